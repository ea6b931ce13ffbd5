//! Readers: everything that reads a channel in event order with a position of its own (DESIGN 7.6): volatile
//! subscriptions, named objects, joins.
//!
//! A reader *at the tail* has looked at everything that was offered so far. It costs nothing until an event
//! comes that it wants: the channel's index finds it. A reader that can't take such an event falls *behind* and
//! is then read from its own position. So a publish costs what the interested, live readers cost, however many
//! sleep (named-objects 7).

use crate::annotated::Annotated;
use crate::command::TakerKey;
use crate::effect::Step;
use crate::ranges::RangeSet;
use postroad_model::id::{EventId, JoinKey, ObjectKey, StoreKey};
use postroad_model::refusal::Code;
use postroad_selector::Selector;
use std::collections::{BTreeMap, BTreeSet};

/// A reader's place in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReaderKey {
    /// The slot.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

impl ReaderKey {
    /// The least of all keys.
    pub(crate) const FIRST: Self = Self { index: 0, generation: 0 };
}

/// Whose reader it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A subscription that ends with its consumer.
    Volatile,
    /// A named object.
    Object(ObjectKey),
    /// A join.
    Join(JoinKey),
}

/// How far a reader has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// At everything that the channel has offered.
    Tail,
    /// At everything below this id.
    Behind(EventId),
}

/// What became of an event that the reader still owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// With the consumer, under this delivery number.
    Delivered(u64),
    /// Came back; to be sent again before anything newer, not before this monotonic time in milliseconds.
    Returned(u64),
    /// Could not be dead-lettered, for this reason.
    Blocked(Code),
}

/// What is known of the failed attempts to deliver an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// How many failed.
    pub failed: u32,
    /// How many of them count toward the limit (AK-5).
    pub counted: u32,
    /// The step that says so: the event is not sent again before that is durable.
    pub after: Step,
}

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The channel.
    pub store: StoreKey,
    /// Whose it is.
    pub who: Who,
    /// Only what matches.
    pub filter: Option<Selector>,
    /// Leaves out what this client published (AM-10).
    pub no_local: Option<String>,
    /// Events below this one were there before it and are not offered to it.
    pub begin: EventId,
    /// How far it has looked.
    pub position: Position,
    /// What it looked at and still owes.
    owed: BTreeMap<EventId, Owed>,
    /// Those of it that came back.
    returned: BTreeSet<EventId>,
    /// What its present consumer's own filter passed over: owed to the next consumer (T5).
    pub passed: RangeSet,
    /// Finished above the lowest owed event.
    pub done: RangeSet,
    /// Failed attempts, and those that count, of events owed.
    pub attempts: BTreeMap<EventId, Attempts>,
    /// What its consumers added to the annotations of events that it owes.
    pub annotated: Annotated,
    /// Deliveries whose attempt counts as failed already (AK-10).
    pub counted_ahead: BTreeSet<EventId>,
    /// The attached consumer.
    pub taker: Option<TakerKey>,
    /// Its entry in the channel's list of lowest needs, if it has one.
    pub listed: Option<EventId>,
    /// A standby join's: it needs nothing while its primary does.
    pub parked: bool,
}

impl Reader {
    /// A reader that begins at `position`.
    #[must_use]
    pub(crate) const fn new(store: StoreKey, who: Who, position: Position) -> Self {
        Self {
            store,
            who,
            filter: None,
            no_local: None,
            begin: 0,
            position,
            owed: BTreeMap::new(),
            returned: BTreeSet::new(),
            passed: RangeSet::new(),
            done: RangeSet::new(),
            attempts: BTreeMap::new(),
            annotated: Annotated::new(),
            counted_ahead: BTreeSet::new(),
            taker: None,
            listed: None,
            parked: false,
        }
    }

    /// What it looked at and still owes, ascending.
    pub(crate) const fn owed(&self) -> &BTreeMap<EventId, Owed> {
        &self.owed
    }

    /// Whether it is to have all events from its position on, and none before.
    pub(crate) fn wants_all(&self) -> bool {
        self.filter.is_none()
            && self.no_local.is_none()
            && self.owed.is_empty()
            && self.passed.is_empty()
            && self.done.is_empty()
    }

    /// Says what became of an event that it owes.
    pub(crate) fn owe(&mut self, id: EventId, owed: Owed) {
        self.owed.insert(id, owed);
        if !matches!(owed, Owed::Delivered(_)) {
            self.counted_ahead.remove(&id);
        }
        if matches!(owed, Owed::Returned(_)) {
            self.returned.insert(id);
        } else {
            self.returned.remove(&id);
        }
    }

    /// It owes this event no more.
    pub(crate) fn forgive(&mut self, id: EventId) {
        self.owed.remove(&id);
        self.returned.remove(&id);
        self.counted_ahead.remove(&id);
    }

    /// The first event that came back, and the monotonic time in milliseconds before which it is not sent again.
    pub(crate) fn first_returned(&self) -> Option<(EventId, u64)> {
        let id = *self.returned.first()?;
        match self.owed.get(&id) {
            Some(&Owed::Returned(due)) => Some((id, due)),
            _ => None,
        }
    }

    /// The lowest event that it needs; `None` if it needs nothing that was offered so far.
    #[must_use]
    pub(crate) fn lowest_need(&self) -> Option<EventId> {
        if self.parked {
            return None;
        }
        let owed = self.owed.keys().next().copied();
        let passed = self.passed.iter().next().map(|(first, _)| first);
        let behind = match self.position {
            Position::Tail => None,
            Position::Behind(id) => Some(id),
        };
        [owed, passed, behind].into_iter().flatten().min()
    }

    /// Deliveries without outcome.
    #[must_use]
    pub(crate) fn delivered(&self) -> u64 {
        self.owed.values().filter(|owed| matches!(owed, Owed::Delivered(_))).count() as u64
    }

    /// The consumer is gone: what its own filter passed over is to be looked at again.
    pub(crate) fn forget_consumer(&mut self) {
        self.taker = None;
        let first = self.passed.iter().next().map(|(first, _)| first);
        if let Some(first) = first {
            self.passed = RangeSet::default();
            self.position = Position::Behind(match self.position {
                Position::Tail => first,
                Position::Behind(at) => at.min(first),
            });
        }
    }
}

/// The readers of one channel.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// All of them.
    pub all: BTreeSet<ReaderKey>,
    /// At the tail, without a filter.
    pub plain: BTreeSet<ReaderKey>,
    /// At the tail, with a filter.
    pub filtered: postroad_selector::SelectorIndex<ReaderKey>,
    /// The lowest need of each reader that has one.
    pub needs: BTreeSet<(EventId, ReaderKey)>,
    /// Those of them that are joins'.
    pub join_needs: BTreeSet<(EventId, ReaderKey)>,
    /// How many leave out what their own client published (AM-10).
    pub no_local: usize,
    /// Readers whose consumer drains and waits until everything stored was offered.
    pub draining: BTreeSet<ReaderKey>,
}

impl Readers {
    /// Changes the lowest need of a reader.
    pub(crate) fn list(&mut self, key: ReaderKey, old: Option<EventId>, new: Option<EventId>, is_join: bool) {
        for needs in [Some(&mut self.needs), is_join.then_some(&mut self.join_needs)].into_iter().flatten() {
            if let Some(old) = old {
                needs.remove(&(old, key));
            }
            if let Some(new) = new {
                needs.insert((new, key));
            }
        }
    }
}
