//! Readers: everything that reads a channel in event order with a position of its own (DESIGN 7.6): volatile
//! subscriptions, named objects, joins.
//!
//! A reader *at the tail* has looked at everything that was offered so far. It costs nothing until an event
//! comes that it wants: the channel's index finds it. A reader that can't take such an event falls *behind* and
//! is then read from its own position. So a publish costs what the interested, live readers cost, however many
//! sleep (named-objects 7).

use crate::command::TakerKey;
use crate::ranges::RangeSet;
use postroad_model::id::{EventId, JoinKey, ObjectKey, StoreKey};
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
    /// Could not be dead-lettered.
    Blocked,
}

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Its own key.
    pub key: ReaderKey,
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
    pub owed: BTreeMap<EventId, Owed>,
    /// What its present consumer's own filter passed over: owed to the next consumer (T5).
    pub passed: RangeSet,
    /// Finished above the lowest owed event.
    pub done: RangeSet,
    /// Failed attempts, and those that count, of events owed.
    pub attempts: BTreeMap<EventId, (u32, u32)>,
    /// The attached consumer.
    pub taker: Option<TakerKey>,
    /// Its entry in the channel's list of lowest needs, if it has one.
    pub listed: Option<EventId>,
}

impl Reader {
    /// A reader that begins at `position`.
    #[must_use]
    pub(crate) fn new(key: ReaderKey, store: StoreKey, who: Who, position: Position) -> Self {
        Self {
            key,
            store,
            who,
            filter: None,
            no_local: None,
            begin: 0,
            position,
            owed: BTreeMap::new(),
            passed: RangeSet::default(),
            done: RangeSet::default(),
            attempts: BTreeMap::new(),
            taker: None,
            listed: None,
        }
    }

    /// The lowest event that it needs; `None` if it needs nothing that was offered so far.
    #[must_use]
    pub(crate) fn lowest_need(&self) -> Option<EventId> {
        let owed = self.owed.keys().next().copied();
        let passed = self.passed.iter().next().map(|(first, _)| first);
        let behind = match self.position {
            Position::Tail => None,
            Position::Behind(id) => Some(id),
        };
        [owed, passed, behind].into_iter().flatten().min()
    }

    /// The first event that came back and may be sent now; `Err` holds the time to wait for.
    #[must_use]
    pub(crate) fn first_returned(&self, mono: u64) -> Option<Result<EventId, u64>> {
        self.owed.iter().find_map(|(&id, owed)| match *owed {
            Owed::Returned(due) if due <= mono => Some(Ok(id)),
            Owed::Returned(due) => Some(Err(due)),
            Owed::Delivered(_) | Owed::Blocked => None,
        })
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
}
