//! A store: a queue or a channel, with its events, its identity as an origin, and its memory of what it took.

use crate::annotated::Annotated;
use crate::channel::Channel;
use crate::command::{ConnId, ProducerKey, TakerKey};
use crate::copies::Copies;
use crate::effect::Step;
use crate::keys::Keys;
use crate::lifetimes::Lifetimes;
use crate::log::{Entry, EventLog, Hold};
use crate::message_ids::MessageIds;
use crate::origins::Origins;
use crate::queue::Queue;
use crate::schedule::Schedule;
use crate::temporary::Temporary;
use postroad_model::id::{EventId, JoinKey, Origin, StoreKey, StoreUid, WallMs};
use postroad_model::refusal::Code;
use postroad_model::settings::{DedupeSettings, PublisherDedupe, StoreType};
use postroad_record::{Extra, IdRange, MadeBy, StoreDefinition, StoredEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::admin::StoreCounters;

/// A queue or a channel.
#[derive(Debug)]
pub(crate) struct Store {
    /// Its number.
    pub key: StoreKey,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity as an origin.
    pub uid: StoreUid,
    /// Identities and the first event id given under each, oldest first; the last one is `uid`.
    pub identities: Vec<(EventId, StoreUid)>,
    /// Whether `uid` may number further events; false after a start that continues no clean stop (DUP-3).
    pub identity_proved: bool,
    /// Who made it.
    pub made_by: MadeBy,
    /// What kind it is.
    pub kind: Kind,
    /// A temporary queue belongs to a connection and dies with it.
    pub owner: Option<ConnId>,
    /// How long a temporary queue lives before that.
    pub temporary: Option<Temporary>,
    /// It is deleted: nobody finds it any more, and a job removes what is in it.
    pub deleted: bool,
    /// Its events.
    pub log: EventLog,
    /// The id of the next event.
    pub next_id: EventId,
    /// The id behind the newest event that was ever on disk.
    pub durable_next: EventId,
    /// Ids below this one may be given in memory (DESIGN 7.4).
    pub reserved_below: EventId,
    /// What it has taken from other stores.
    pub origins: Origins,
    /// On a channel: where the copies of other stores' events lie, to raise their budget (HOP-6).
    pub copies: Copies,
    /// When events leave by time.
    pub lifetimes: Lifetimes,
    /// The wall-clock time for which expiry has a timer, 0 if it has none.
    pub expiry_timer: WallMs,
    /// The lowest and the highest event that expired since the readers which stood at such were told.
    pub expired: Option<IdRange>,
    /// Events of a channel whose time is over and that nothing can take (5.1).
    pub unburied: BTreeSet<EventId>,
    /// Messages that wait for their delivery time (QU-9).
    pub schedule: Schedule,
    /// Where a retry of what could not be dead-lettered or laid out goes on.
    pub retry_from: EventId,
    /// Bytes of the messages stored, and of those that wait for their time.
    pub bytes: u64,
    /// Message-ids seen within the window (DUP-11).
    pub message_ids: MessageIds,
    /// The values of publish keys that its events have.
    pub keys: Keys,
    /// What consumers added to the annotations of its events.
    pub annotated: Annotated,
    /// Deliveries up to this id may have been sent; durable ahead of the deliveries (AK-10).
    pub sent_up_to: EventId,
    /// The step of that mark: what it covers leaves when it is durable.
    pub marked: Step,
    /// The mark as the last run of the broker left it: what lies at or below comes flagged redelivered.
    pub sent_before_start: EventId,
    /// The latest step that an event of this store waits for: later events wait behind it.
    pub last_after: Step,
    /// Events that left the readable store while a join still needs them (FWD-2).
    pub spool: BTreeMap<EventId, Entry>,
    /// Bytes of the messages of the spool and of the arrivals.
    pub held_bytes: u64,
    /// Arrivals that an archive join has not recorded yet (ARC-3).
    pub arrivals: VecDeque<Arrival>,
    /// The number of the next arrival.
    pub next_arrival: u64,
    /// Joins that read events from here.
    pub joins_out: BTreeSet<JoinKey>,
    /// Archive joins that record arrivals from here.
    pub archives_out: BTreeSet<JoinKey>,
    /// Joins that are blocked and let the publishers wait (5.2, `on_block`).
    pub held_up_by: BTreeSet<JoinKey>,
    /// Joins that wait for room here.
    pub waiting: BTreeSet<JoinKey>,
    /// Links that send to it.
    pub producers: BTreeSet<ProducerKey>,
    /// Consumers and browsers.
    pub takers: BTreeSet<TakerKey>,
    /// Counters since the start.
    pub counters: StoreCounters,
}

/// Something that reached a store, for its archive joins.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its number.
    pub number: u64,
    /// The event that it became, or the first one that it repeats.
    pub event: StoredEvent,
    /// Whether it repeats an event.
    pub duplicate: bool,
    /// Whether it is on disk.
    pub on_disk: bool,
}

/// The two kinds of store.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Messages wait until one consumer takes each.
    Queue(Box<Queue>),
    /// An ordered stream that many can read.
    Channel(Box<Channel>),
}

impl Store {
    /// A new, empty store.
    #[must_use]
    pub(crate) fn new(
        key: StoreKey,
        uid: StoreUid,
        name: &str,
        definition: StoreDefinition,
        made_by: MadeBy,
    ) -> Self {
        let (kind, first) = match definition {
            StoreDefinition::Queue(settings) => {
                let first = settings.first_event_id.max(1);
                (Kind::Queue(Box::new(Queue::new(settings))), first)
            }
            StoreDefinition::Channel(settings) => {
                let first = settings.first_event_id.max(1);
                (Kind::Channel(Box::new(Channel::new(settings, first))), first)
            }
        };
        Self {
            key,
            name: Arc::from(name),
            uid,
            identities: vec![(first, uid)],
            identity_proved: true,
            made_by,
            kind,
            owner: None,
            temporary: None,
            deleted: false,
            log: EventLog::default(),
            next_id: first,
            durable_next: first,
            reserved_below: 0,
            origins: Origins::default(),
            copies: Copies::default(),
            lifetimes: Lifetimes::default(),
            expiry_timer: 0,
            expired: None,
            unburied: BTreeSet::new(),
            schedule: Schedule::default(),
            retry_from: 0,
            bytes: 0,
            message_ids: MessageIds::default(),
            keys: Keys::default(),
            annotated: Annotated::new(),
            sent_up_to: 0,
            marked: Step(0),
            sent_before_start: 0,
            last_after: Step(0),
            spool: BTreeMap::new(),
            held_bytes: 0,
            arrivals: VecDeque::new(),
            next_arrival: 1,
            joins_out: BTreeSet::new(),
            archives_out: BTreeSet::new(),
            held_up_by: BTreeSet::new(),
            waiting: BTreeSet::new(),
            producers: BTreeSet::new(),
            takers: BTreeSet::new(),
            counters: StoreCounters::default(),
        }
    }

    /// The queue in it, if it is one.
    #[must_use]
    pub(crate) fn queue(&self) -> Option<&Queue> {
        match &self.kind {
            Kind::Queue(queue) => Some(queue),
            Kind::Channel(_) => None,
        }
    }

    /// The queue in it, to change it.
    pub(crate) fn queue_mut(&mut self) -> Option<&mut Queue> {
        match &mut self.kind {
            Kind::Queue(queue) => Some(queue),
            Kind::Channel(_) => None,
        }
    }

    /// The channel in it, if it is one.
    #[must_use]
    pub(crate) fn channel(&self) -> Option<&Channel> {
        match &self.kind {
            Kind::Channel(channel) => Some(channel),
            Kind::Queue(_) => None,
        }
    }

    /// The channel in it, to change it.
    pub(crate) fn channel_mut(&mut self) -> Option<&mut Channel> {
        match &mut self.kind {
            Kind::Channel(channel) => Some(channel),
            Kind::Queue(_) => None,
        }
    }

    /// Whether it is a queue.
    #[must_use]
    pub(crate) const fn is_queue(&self) -> bool {
        matches!(self.kind, Kind::Queue(_))
    }

    /// The newest id given, 0 if none (`first_event_id - 1` before the first).
    #[must_use]
    pub(crate) const fn last_id(&self) -> EventId {
        self.next_id - 1
    }

    /// Events that it has taken: those stored, and those that wait for their time.
    #[must_use]
    pub(crate) fn taken(&self) -> u64 {
        self.log.len() + self.schedule.len()
    }

    /// The events that a new one with these values of publish keys replaces (5.1).
    #[must_use]
    pub(crate) fn replaced_by(&self, values: &[(String, String)]) -> Vec<EventId> {
        let Some(channel) = self.channel() else { return Vec::new() };
        let mut replaced = Vec::new();
        for value in values {
            let publish_key = channel.settings.publish_keys.iter().find(|key| key.name == value.0);
            let depth = publish_key.map_or(1, |key| key.depth.max(1) as usize);
            let holders = self.keys.holders(value);
            let over = (holders.len() + 1).saturating_sub(depth);
            replaced.extend(holders.take(over));
        }
        replaced.sort_unstable();
        replaced.dedup();
        replaced
    }

    /// Who first took this event (DUP-2): what it came with, else this store under the identity of its time.
    #[must_use]
    pub(crate) fn origin_of(&self, event: &StoredEvent) -> Origin {
        if let Some(origin) = event.extra.as_ref().and_then(|extra| extra.origin) {
            return origin;
        }
        let at = self.identities.partition_point(|&(first, _)| first <= event.id);
        let store = self.identities.get(at.saturating_sub(1)).map_or(self.uid, |&(_, uid)| uid);
        Origin { store, event: event.id }
    }

    /// An unused store is to number its events from here.
    pub(crate) fn begin_at(&mut self, first: EventId) {
        let first = first.max(1);
        self.next_id = first;
        self.durable_next = first;
        if let Some(identity) = self.identities.first_mut() {
            identity.0 = first;
        }
        if let Kind::Channel(channel) = &mut self.kind {
            channel.offered = first - 1;
        }
    }

    /// The first id that is not given again after a restart.
    #[must_use]
    pub(crate) fn horizon(&self) -> EventId {
        self.durable_next.max(self.reserved_below)
    }

    /// Whether what it takes from other stores is remembered on disk (DUP-5).
    #[must_use]
    pub(crate) fn remembers_on_disk(&self) -> bool {
        self.owner.is_none() && self.store_type() != StoreType::Transient
    }

    /// Whether an event with this wish of its sender is kept on disk here (5.1, `type`).
    #[must_use]
    pub(crate) fn keeps_on_disk(&self, durable: bool) -> bool {
        if self.owner.is_some() {
            return false;
        }
        match self.store_type() {
            StoreType::Persistent => true,
            StoreType::Mixed => durable,
            StoreType::Reliable | StoreType::Transient => false,
        }
    }

    /// When the event leaves this store by time; 0 means never. The earlier of its own and the store's (5.1, `ttl`).
    #[must_use]
    pub(crate) fn leaves_at(&self, event: &StoredEvent) -> WallMs {
        let by_store = match self.ttl() {
            0 => WallMs::MAX,
            ttl => event.arrived.saturating_add(ttl),
        };
        let by_sender = if event.expires == 0 { WallMs::MAX } else { event.expires };
        match by_store.min(by_sender) {
            WallMs::MAX => 0,
            at => at,
        }
    }

    /// When expiry takes an event that is stored here; `None` if it does not: a queue's consumer holds it (QU-6), or its
    /// time is over and nothing can take it (5.1).
    #[must_use]
    pub(crate) fn expires_at(&self, entry: &Entry) -> Option<WallMs> {
        let is_kept = match entry.hold {
            Hold::Delivered | Hold::Blocked(Code::Expired) => true,
            Hold::Ready | Hold::Delayed(_) | Hold::Blocked(_) => self.unburied.contains(&entry.event.id),
        };
        let leaves = if is_kept { 0 } else { self.leaves_at(&entry.event) };
        (leaves != 0).then_some(leaves)
    }

    /// The definition as it would be recorded.
    #[must_use]
    pub(crate) fn definition(&self) -> StoreDefinition {
        match &self.kind {
            Kind::Queue(queue) => StoreDefinition::Queue(queue.settings.clone()),
            Kind::Channel(channel) => StoreDefinition::Channel(channel.settings.clone()),
        }
    }

    /// The number of the latest arrival, 0 if none.
    #[must_use]
    pub(crate) fn last_arrival(&self) -> u64 {
        self.next_arrival - 1
    }

    /// The identity that is present anywhere on the event's way, for split horizon (LOOP-3).
    #[must_use]
    pub(crate) fn was_identity(&self, uid: StoreUid) -> bool {
        self.identities.iter().any(|&(_, own)| own == uid)
    }
}

impl Store {
    /// Where messages of a queue go whose time is over.
    #[must_use]
    pub(crate) fn expiry_queue(&self) -> Option<&str> {
        self.queue()?.settings.expiry_queue.as_deref()
    }

    /// Where events removed before consumption go.
    #[must_use]
    pub(crate) fn dead_event_store(&self) -> Option<&str> {
        match &self.kind {
            Kind::Queue(queue) => queue.settings.dead_event_store.as_deref(),
            Kind::Channel(channel) => channel.settings.dead_event_store.as_deref(),
        }
    }
}

/// The origin that a store takes with an event. Archive copies and dead letters are exempt from "each origin once"
/// (ARC-4, DLQ-8).
pub(crate) fn taken_origin(extra: &Extra) -> Option<Origin> {
    extra.origin.filter(|_| extra.dead.is_none() && !extra.archived)
}

macro_rules! either {
    ($($(#[$doc:meta])* $name:ident : $type:ty = $field:ident;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                #[must_use]
                pub(crate) fn $name(&self) -> $type {
                    match &self.kind {
                        Kind::Queue(queue) => queue.settings.$field.clone(),
                        Kind::Channel(channel) => channel.settings.$field.clone(),
                    }
                }
            )*
        }
    };
}

either! {
    /// How events are kept.
    store_type: StoreType = store_type;
    /// Milliseconds that an event stays; 0 means for ever.
    ttl: u64 = ttl;
    /// Events held at most; 0 means no limit.
    capacity: u32 = capacity;
    /// Full: refuse (true) or evict (false).
    honour_capacity: bool = honour_capacity;
    /// The duplicate window.
    dedupe: DedupeSettings = dedupe;
    /// Whether a repeated message-id is a duplicate.
    publisher_dedupe: PublisherDedupe = publisher_dedupe;
    /// Milliseconds that a message-id is remembered.
    publisher_dedupe_window: u64 = publisher_dedupe_window;
    /// Whether clients see where an event came from.
    expose_origin: bool = expose_origin;
    /// The store's own limit of a message in bytes; 0 means the broker's.
    max_message_size: u64 = max_message_size;
}
