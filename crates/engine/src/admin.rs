//! What an operator may ask, and the answers: the resources of the REST interface as plain data.

use postroad_model::id::EventId;
use postroad_model::settings::{ChannelSettings, JoinSettings, NamedObjectSettings, QueueSettings};
use serde::{Deserialize, Serialize};

/// What a store is, when a request means only one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// A channel.
    Channel,
    /// A queue.
    Queue,
}

/// Which events a purge, a browse or an acknowledgement means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// First event id, if limited.
    pub from: Option<EventId>,
    /// Last event id, if limited.
    pub to: Option<EventId>,
    /// Selector, if limited.
    pub filter: Option<String>,
}

/// Which page of a browse. A page may hold fewer events than asked for, even none, though more follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Where it begins: what the page before gave as `next`.
    pub after: Option<String>,
    /// At most so many events.
    pub limit: usize,
}

/// One request of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Creates a channel, or alters it if it is there.
    PutChannel {
        /// Its name.
        name: String,
        /// Its settings, whole.
        settings: ChannelSettings,
        /// From the configuration file.
        configured: bool,
    },
    /// Creates a queue, or alters it if it is there.
    PutQueue {
        /// Its name.
        name: String,
        /// Its settings, whole.
        settings: QueueSettings,
        /// From the configuration file.
        configured: bool,
    },
    /// Shows a channel or queue.
    ShowStore {
        /// Its kind.
        kind: StoreKind,
        /// Its name.
        name: String,
    },
    /// Lists channels or queues in the order of their names.
    ListStores {
        /// Which kind.
        kind: StoreKind,
        /// Only names after this one.
        after: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// Deletes a channel or queue.
    DeleteStore {
        /// Its kind.
        kind: StoreKind,
        /// Its name.
        name: String,
        /// Joins from and to it go with it (DEL-4).
        cascade: bool,
        /// Consumers are detached; else they are a reason to refuse.
        force: bool,
    },
    /// Removes events.
    PurgeStore {
        /// The store's kind.
        kind: StoreKind,
        /// Its name.
        name: String,
        /// Which events.
        selection: Selection,
    },
    /// Reads events without changing anything.
    BrowseStore {
        /// The store's kind.
        kind: StoreKind,
        /// Its name.
        name: String,
        /// Which events.
        selection: Selection,
        /// Which page of them.
        page: Page,
    },
    /// Lists the messages of a store that wait for their delivery time, in the order in which it comes (QU-9).
    ListScheduled {
        /// The store's kind.
        kind: StoreKind,
        /// Its name.
        name: String,
        /// Which page of them.
        page: Page,
    },
    /// Cancels a message that waits for its delivery time (QU-9).
    CancelScheduled {
        /// The store's kind.
        kind: StoreKind,
        /// Its name.
        name: String,
        /// The message's number in the list.
        number: u64,
    },
    /// Creates a native named object; the same again changes nothing (NO-11).
    CreateObject {
        /// Its channel.
        channel: String,
        /// Its name.
        name: String,
        /// Its settings.
        settings: NamedObjectSettings,
        /// From the configuration file.
        configured: bool,
    },
    /// Shows a named object; `owner` is `None` for a native one, else the client id.
    ShowObject {
        /// Its channel.
        channel: String,
        /// Its owner.
        owner: Option<String>,
        /// Its name.
        name: String,
    },
    /// Lists the named objects of a channel, or of all.
    ListObjects {
        /// Which channel.
        channel: Option<String>,
    },
    /// Deletes a named object (OP-6).
    DeleteObject {
        /// Its channel.
        channel: String,
        /// Its owner.
        owner: Option<String>,
        /// Its name.
        name: String,
        /// An attached consumer is detached; else it is a reason to refuse.
        force: bool,
    },
    /// Finishes events of a named object (OP-2, OP-3).
    PurgeObject {
        /// Its channel.
        channel: String,
        /// Its owner.
        owner: Option<String>,
        /// Its name.
        name: String,
        /// Which events.
        selection: Selection,
    },
    /// Reads what a named object owes (OP-1).
    BrowseObject {
        /// Its channel.
        channel: String,
        /// Its owner.
        owner: Option<String>,
        /// Its name.
        name: String,
        /// Which events.
        selection: Selection,
        /// Which page of them.
        page: Page,
    },
    /// Creates a join; the same again changes nothing (JOIN-7).
    CreateJoin {
        /// Its name; `None` lets the broker make it.
        name: Option<String>,
        /// Its settings.
        settings: JoinSettings,
        /// From the configuration file.
        configured: bool,
    },
    /// Creates a join of the configuration file, or makes the one of that name what the file says.
    DefineJoin {
        /// Its name.
        name: String,
        /// Its settings, as for a new join.
        settings: JoinSettings,
        /// Whether one that is there runs, if the file says so; else it stays as it is, which may be an operator's pause.
        enabled: Option<bool>,
    },
    /// Changes a join.
    AlterJoin {
        /// Its name.
        name: String,
        /// Its settings, whole; source, destination and archive must be the same.
        settings: JoinSettings,
    },
    /// Shows a join.
    ShowJoin {
        /// Its name.
        name: String,
    },
    /// Lists joins, also those that end at a store (JOIN-11).
    ListJoins {
        /// Only those from or to this store.
        store: Option<String>,
    },
    /// Deletes a join (DEL-1, DEL-2).
    DeleteJoin {
        /// Its name.
        name: String,
        /// Forward the backlog first.
        drain: bool,
    },
    /// Pauses or resumes a join.
    EnableJoin {
        /// Its name.
        name: String,
        /// False pauses it.
        enabled: bool,
    },
    /// What the broker is and does.
    Status,
}

/// An answer that is no refusal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Response {
    /// A channel or queue.
    Store(Box<StoreView>),
    /// Several.
    Stores {
        /// In the order of their names.
        items: Vec<StoreView>,
    },
    /// A named object.
    Object(Box<ObjectView>),
    /// Several.
    Objects {
        /// In the order of channel, owner and name.
        items: Vec<ObjectView>,
    },
    /// A join.
    Join(Box<JoinView>),
    /// Several.
    Joins {
        /// In the order of their names.
        items: Vec<JoinView>,
    },
    /// Events.
    Events {
        /// In the order in which they would be delivered.
        items: Vec<EventView>,
        /// Where the next page begins, if there may be more.
        next: Option<String>,
    },
    /// Messages that wait for their delivery time.
    Scheduled {
        /// In the order in which it comes.
        items: Vec<ScheduledView>,
        /// Where the next page begins, if there may be more.
        next: Option<String>,
    },
    /// A message that waited for its delivery time is gone.
    Cancelled {
        /// Its number.
        number: u64,
    },
    /// How many events were removed.
    Purged {
        /// The number.
        purged: u64,
    },
    /// A join is gone.
    JoinDeleted {
        /// Its name.
        name: String,
        /// Stored events that it had not forwarded (DEL-2).
        not_forwarded: u64,
    },
    /// Something is gone.
    Deleted {
        /// Its name.
        name: String,
    },
    /// The broker.
    Status(Box<StatusView>),
}

/// A channel or queue as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreView {
    /// Its name.
    pub name: String,
    /// `channel` or `queue`.
    pub kind: StoreKind,
    /// Whether this answer made it.
    pub created: bool,
    /// Its identity as an origin.
    pub store_uid: String,
    /// Who made it: `broker`, `configuration`, `operator`, `first-use`.
    pub made_by: &'static str,
    /// The settings, by the names of the specification.
    pub settings: SettingsView,
    /// Events stored.
    pub depth: u64,
    /// Bytes of the messages stored, and of those that wait for their delivery time.
    pub bytes: u64,
    /// The oldest event's id, 0 if none.
    pub first_event_id: EventId,
    /// The newest id given, 0 if none.
    pub last_event_id: EventId,
    /// Consumers attached.
    pub consumers: usize,
    /// Deliveries without outcome.
    pub in_delivery: u64,
    /// Messages that match no attached consumer (QU-12).
    pub stranded: u64,
    /// Messages that wait for their delivery time (QU-9).
    pub scheduled: u64,
    /// Events that could not be dead-lettered or laid out: they wait for room there (AK-8).
    pub blocked: usize,
    /// Purges under way.
    pub jobs: Vec<JobView>,
    /// What is allowed and may surprise (ADR-2).
    pub warnings: Vec<String>,
    /// Events that were expired, evicted or refused as duplicates.
    pub counters: StoreCounters,
}

/// A purge, or the deletion of a store, that goes on in pieces (DESIGN 7.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// Its number.
    pub id: u32,
    /// `purge` or `delete`.
    pub kind: &'static str,
    /// The store, or `CHANNEL::NAME` of a named object.
    pub object: String,
    /// First event id, of a purge.
    pub from: Option<EventId>,
    /// Last event id, of a purge: what came later stays.
    pub to: Option<EventId>,
    /// The selector of a purge, if it has one.
    pub filter: Option<String>,
    /// The event id that it looks at next.
    pub at: EventId,
    /// Events removed so far.
    pub removed: u64,
}

/// Settings of either kind of store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SettingsView {
    /// Of a channel.
    Channel(ChannelSettings),
    /// Of a queue.
    Queue(QueueSettings),
}

/// Counters of a store since the broker started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreCounters {
    /// Events stored.
    pub stored_total: u64,
    /// Deliveries sent.
    pub delivered_total: u64,
    /// Events finished by a queue's consumers.
    pub acked_total: u64,
    /// Deliveries sent again.
    pub redelivered_total: u64,
    /// Events expired.
    pub expired_total: u64,
    /// Events evicted by capacity.
    pub evicted_total: u64,
    /// Publishes refused.
    pub refused_total: u64,
    /// Repeated message-ids not stored.
    pub deduplicated_total: u64,
    /// Events dead-lettered from here.
    pub dead_lettered_total: u64,
    /// Copies that could not be judged (DUP-7).
    pub undecidable_total: u64,
}

/// A named object as operators see it (OP-8, SH-10).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectView {
    /// `owner/name`, percent-encoded (NO-7).
    pub id: String,
    /// Its name.
    pub name: String,
    /// `native` or `client:ID`.
    pub owner: String,
    /// Its channel.
    pub channel: String,
    /// Whether this answer made it.
    pub created: bool,
    /// Who made it.
    pub created_by: &'static str,
    /// Its settings.
    pub settings: NamedObjectSettings,
    /// Highest event with nothing owed at or below it.
    pub last_event_id: EventId,
    /// -1 for an object that is not shared (SH-10).
    pub outstanding_events: i64,
    /// Events owed, exactly.
    pub backlog: u64,
    /// Deliveries without outcome.
    pub in_delivery: u64,
    /// Owed events that were removed before they were delivered (RET-6).
    pub skipped_events: u64,
    /// Deliveries sent again.
    pub redelivered: u64,
    /// Events dead-lettered.
    pub dead_lettered: u64,
    /// Consumers attached.
    pub consumers: Vec<ConsumerView>,
    /// Purges under way.
    pub jobs: Vec<JobView>,
}

/// An attached consumer as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConsumerView {
    /// Client id.
    pub client_id: String,
    /// Network address.
    pub address: String,
    /// Deliveries that may still be sent.
    pub window: u64,
}

/// A join as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinView {
    /// Its name.
    pub name: String,
    /// Whether this answer made it.
    pub created: bool,
    /// Who made it.
    pub made_by: &'static str,
    /// Its settings.
    #[serde(flatten)]
    pub settings: JoinSettings,
    /// `running`, `paused`, `waiting` or `blocked`.
    pub state: &'static str,
    /// Why it is not running, else empty.
    pub reason: String,
    /// Highest source event settled.
    pub cursor: u64,
    /// Source events behind the newest.
    pub lag_events: u64,
    /// Counters.
    #[serde(flatten)]
    pub counters: JoinCounters,
}

/// Counters of a join since the broker started (section 8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JoinCounters {
    /// Events stored at the destination.
    pub forwarded_total: u64,
    /// Events that the filter kept back.
    pub filtered_total: u64,
    /// Events that the destination had already.
    pub duplicate_total: u64,
    /// Events stopped by the hop budget.
    pub hop_stopped_total: u64,
    /// Events not sent back where they came from.
    pub split_horizon_total: u64,
    /// Events whose time was over.
    pub expired_total: u64,
    /// Events that the destination refused for good.
    pub dead_lettered_total: u64,
    /// Times that a blocked destination was tried again.
    pub retried_total: u64,
    /// Budgets that rose after the event was gone (HOP-6).
    pub hop_refresh_missed_total: u64,
}

/// An event as a browse shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventView {
    /// Its id.
    pub id: EventId,
    /// When it was stored, milliseconds since 1970.
    pub arrived: u64,
    /// When its time is over, 0 for never.
    pub expires: u64,
    /// 0 to 9.
    pub priority: u8,
    /// Asked to be kept.
    pub durable: bool,
    /// A consumer holds it.
    pub in_delivery: bool,
    /// Earlier failed attempts.
    pub delivery_count: u32,
    /// Origin store and event.
    pub origin: String,
    /// Hop budget, if limited.
    pub hop_budget: Option<u8>,
    /// Message size in bytes.
    pub size: u64,
    /// The dead-letter header, if it has one.
    pub dead_letter: Option<DeadLetterView>,
    /// A repeated arrival in an archive.
    pub archive_duplicate: bool,
    /// Message id as text, if any.
    pub message_id: Option<String>,
    /// Application properties as text values.
    pub properties: Vec<(String, String)>,
    /// The body as text, if it is text.
    pub body: Option<String>,
    /// Whether a text was cut to 4 KiB, or properties were left out.
    pub cut: bool,
}

/// A message that waits for its delivery time as a list shows it (QU-9).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduledView {
    /// Its number among those of its store, by which it can be cancelled.
    pub number: u64,
    /// When it is to be delivered, milliseconds since 1970.
    pub due: u64,
    /// When it was taken, milliseconds since 1970.
    pub taken: u64,
    /// When its time is over, 0 for never.
    pub expires: u64,
    /// 0 to 9.
    pub priority: u8,
    /// Asked to be kept.
    pub durable: bool,
    /// Message size in bytes.
    pub size: u64,
    /// Message id as text, if any.
    pub message_id: Option<String>,
    /// Application properties as text values.
    pub properties: Vec<(String, String)>,
    /// The body as text, if it is text.
    pub body: Option<String>,
    /// Whether a text was cut to 4 KiB, or properties were left out.
    pub cut: bool,
}

/// The dead-letter header in the form of the REST interface (DLQ-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetterView {
    /// The reason's word.
    pub reason: String,
    /// Where it was going.
    pub dest: String,
    /// Its event id there.
    pub event_id: EventId,
    /// The named object that owed it.
    pub named_object: Option<String>,
    /// What the sender wrote, if it entered here.
    pub address: Option<String>,
    /// What dead-lettered it.
    pub component: String,
    /// When, milliseconds since 1970.
    pub time: u64,
    /// How often.
    pub count: u32,
    /// One sentence.
    pub text: String,
}

/// The broker as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusView {
    /// Its name.
    pub name: String,
    /// Its id.
    pub broker_id: String,
    /// Connections.
    pub connections: usize,
    /// Channels defined.
    pub channels: usize,
    /// Queues defined.
    pub queues: usize,
    /// Joins defined.
    pub joins: usize,
    /// Named objects.
    pub named_objects: usize,
    /// Events stored in all stores.
    pub events: u64,
    /// Messages held, each counted once.
    pub messages: usize,
    /// Their bytes.
    pub message_bytes: u64,
    /// Purges, and deletions of stores, under way.
    pub jobs: Vec<JobView>,
}
