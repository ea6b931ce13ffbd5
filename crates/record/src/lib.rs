//! The durable records: every change that the broker's state can make, and their encoding in the journal.
//!
//! What it knows: the meaning and the byte form of each record (drawn in `docs/internals/records.md`).
//! What it must never know: why a record was made (the engine decides) and where it lies (the journal keeps it).
//! A record carries outcomes only: whatever depended on time, credit or chance stands in it as a fact, so that
//! replay decides nothing (DESIGN 7.1).
//!
//! A *step* is a list of records in one journal frame: all of it is there after a crash, or none (DESIGN 7.2).
//! The order of the variants *is* the format: new ones go to the end, none is removed or reordered; the golden
//! file in `tests/` fails when that is forgotten. Definitions are kept as JSON inside their record, so that a
//! setting with a default can be added without a new format.

mod codec;
mod columns;
mod dead_letter;
mod event;
mod origins;
mod pages;
#[cfg(test)]
mod tests;

pub use codec::{BodyRef, DecodeError, Item, append, append_body, decode_step, read_step};
pub use columns::{put_column, put_number, take_column, take_number};
pub use dead_letter::{DeadLetter, HeaderField, HeaderValue};
pub use event::{Extra, StoredEvent};
pub use origins::{IdBlock, Ids, KnownOrigins};
pub use pages::{
    BodyPlace, FramePlace, PAGE, PageError, PagedEvent, StoredBody, put_bodies, put_events, take_bodies,
    take_events, take_lengths,
};

use bytes::Bytes;
use postroad_model::id::{BodyId, EventId, JobKey, JoinKey, ObjectKey, Origin, StoreKey, StoreUid, WallMs};
use postroad_model::settings::{ChannelSettings, JoinSettings, NamedObjectSettings, QueueSettings};
use serde::{Deserialize, Serialize};

/// An inclusive range of event ids.
pub type IdRange = (EventId, EventId);

/// What kind of store was defined, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StoreDefinition {
    /// A channel.
    Channel(#[serde(with = "codec::as_json")] ChannelSettings),
    /// A queue.
    Queue(#[serde(with = "codec::as_json")] QueueSettings),
}

/// Who made a definition; decides who may remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MadeBy {
    /// The broker itself (the dead-letter queue).
    Broker,
    /// The configuration file.
    Configuration,
    /// An operator, through REST or the command line.
    Operator,
    /// A client, by using the address for the first time.
    FirstUse,
}

/// Who owns a named object (NO-7).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// Made by configuration or an operator; its name is unique on its channel.
    Native,
    /// Made by a client; its name is unique for the client id.
    Client(String),
}

/// Why events left a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// A consumer took them.
    Consumed,
    /// Their time was over.
    Expired,
    /// An operator purged them.
    Purged,
    /// The store was full (`honour_capacity = false`).
    Evicted,
    /// A newer event with the same publish key came.
    Replaced,
    /// They went to the dead-letter queue.
    DeadLettered,
    /// Nobody needs them any more (`retention = "interest"`).
    Unneeded,
}

/// Why a message that waited for its delivery time waits no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unscheduling {
    /// Its time came: it is stored in the same step, if anybody needs it.
    Due,
    /// Its life was over before.
    Expired,
    /// An operator cancelled it.
    Cancelled,
    /// An operator purged the store, or deleted it.
    Purged,
}

/// What a delivery count or a sent mark belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// A queue.
    Store(StoreKey),
    /// A named object.
    Object(ObjectKey),
}

/// What a job does, a bounded piece at a time (DESIGN 7.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Removes events of a store.
    Purge {
        /// Which store.
        store: StoreKey,
        /// The first event id.
        from: EventId,
        /// The last one: what came after the purge was asked for stays.
        to: EventId,
        /// Only what matches this selector.
        filter: Option<String>,
        /// Joins whose destinations lose the copies (FWD-3).
        joins: Vec<JoinKey>,
    },
    /// Finishes events of a named object (OP-2).
    PurgeObject {
        /// Which object.
        object: ObjectKey,
        /// The first event id.
        from: EventId,
        /// The last one.
        to: EventId,
        /// Only what matches this selector.
        filter: Option<String>,
    },
    /// Removes everything in a store that is deleted; its name is free already.
    Delete {
        /// Which store.
        store: StoreKey,
    },
}

/// One durable change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The data folder belongs to this broker: its id, made with the folder.
    BrokerCreated {
        /// The broker id (README U-3).
        id: [u8; 16],
    },
    /// A store was defined.
    StoreCreated {
        /// Its number.
        store: StoreKey,
        /// Its identity as an origin.
        uid: StoreUid,
        /// Its name.
        name: String,
        /// Its kind and settings.
        definition: StoreDefinition,
        /// Who made it.
        made_by: MadeBy,
    },
    /// The settings of a store changed.
    StoreAltered {
        /// Which store.
        store: StoreKey,
        /// The new settings; the kind never changes.
        definition: StoreDefinition,
        /// Who owns the definition now.
        made_by: MadeBy,
    },
    /// A store and everything in it is gone.
    StoreDeleted {
        /// Which store.
        store: StoreKey,
    },
    /// From the next event on the store is another origin (DUP-3).
    StoreUidRenewed {
        /// Which store.
        store: StoreKey,
        /// The new identity.
        uid: StoreUid,
        /// The first event id that is given under it.
        from: EventId,
    },
    /// Event ids below this one are given in memory and never again after a restart (DESIGN 7.4).
    IdsReserved {
        /// Which store.
        store: StoreKey,
        /// The first id that is not reserved.
        below: EventId,
    },
    /// The bytes of a message, before the first event that holds it.
    Body {
        /// Its broker-wide number.
        id: BodyId,
        /// Bytes of the message-annotations section at the start; the bare message follows.
        annotations: u32,
        /// The sections, encoded as AMQP 1.0.
        bytes: Bytes,
    },
    /// An event was stored.
    Stored {
        /// Where.
        store: StoreKey,
        /// The event.
        event: StoredEvent,
    },
    /// Events left a store.
    Removed {
        /// Which store.
        store: StoreKey,
        /// Which ids; ids in between that are not there are no error.
        ids: Vec<IdRange>,
        /// Why.
        why: Removal,
        /// Joins of the store still need them: they leave what can be read, not the disk (FWD-2).
        kept: bool,
    },
    /// A delivery attempt failed.
    Attempted {
        /// Of what.
        place: Place,
        /// Which event.
        event: EventId,
        /// Failed attempts so far.
        failed: u32,
        /// Attempts that count toward the limit (AK-5).
        counted: u32,
    },
    /// Deliveries up to this id may have been sent (AK-10).
    Sent {
        /// From where.
        place: Place,
        /// The highest id that may have been sent.
        up_to: EventId,
    },
    /// A named object was created.
    ObjectCreated {
        /// Its number.
        object: ObjectKey,
        /// Its channel.
        store: StoreKey,
        /// Who owns it.
        owner: Owner,
        /// Its name in its owner's space.
        name: String,
        /// Its settings.
        #[serde(with = "codec::as_json")]
        settings: NamedObjectSettings,
        /// The first event that it owes.
        low: EventId,
        /// Who made it.
        made_by: MadeBy,
    },
    /// The settings of a named object changed.
    ObjectAltered {
        /// Which object.
        object: ObjectKey,
        /// The new settings.
        #[serde(with = "codec::as_json")]
        settings: NamedObjectSettings,
    },
    /// A named object is gone.
    ObjectDeleted {
        /// Which object.
        object: ObjectKey,
    },
    /// A named object finished events: everything below `low`, and `done` at or above it.
    ObjectMoved {
        /// Which object.
        object: ObjectKey,
        /// The lowest event still owed.
        low: EventId,
        /// Single events finished above it.
        done: Vec<IdRange>,
    },
    /// Events that an object still owed are gone (RET-6).
    ObjectSkipped {
        /// Which object.
        object: ObjectKey,
        /// How many so far.
        total: u64,
    },
    /// A join was created.
    JoinCreated {
        /// Its number.
        join: JoinKey,
        /// Its name.
        name: String,
        /// The source channel.
        source: StoreKey,
        /// Its settings.
        #[serde(with = "codec::as_json")]
        settings: JoinSettings,
        /// The highest source event settled; for an archive join the highest arrival.
        cursor: u64,
        /// Who made it.
        made_by: MadeBy,
    },
    /// The settings of a join changed.
    JoinAltered {
        /// Which join.
        join: JoinKey,
        /// The new settings.
        #[serde(with = "codec::as_json")]
        settings: JoinSettings,
        /// The new filter holds for events above this id (FIL-4).
        filter_from: EventId,
    },
    /// A join is gone.
    JoinDeleted {
        /// Which join.
        join: JoinKey,
    },
    /// A join settled source events up to here.
    JoinMoved {
        /// Which join.
        join: JoinKey,
        /// The new cursor.
        cursor: u64,
    },
    /// A stored event may cross more stores than was thought (HOP-6).
    BudgetRaised {
        /// Where.
        store: StoreKey,
        /// Which event.
        event: EventId,
        /// The new budget; `None` means unlimited.
        budget: Option<u8>,
        /// Joins whose cursor had passed the event offer it again.
        reoffer: bool,
    },
    /// An event that was offered again after its budget rose was settled by a join (HOP-6).
    Reoffered {
        /// Which join.
        join: JoinKey,
        /// Which source event.
        event: EventId,
    },
    /// Something reached a store from which an archive join reads (ARC-3).
    Arrived {
        /// Where.
        store: StoreKey,
        /// The arrival's number there, from 1.
        arrival: u64,
        /// The event that it became, or the first one that it repeats.
        event: StoredEvent,
        /// Whether it repeats an event.
        duplicate: bool,
    },
    /// An origin that no event of the store shows any more was taken (DUP-4).
    OriginTaken {
        /// By which store.
        store: StoreKey,
        /// What.
        origin: Origin,
        /// When, for the age of the window.
        at: WallMs,
    },
    /// Everything that a store has taken of one origin store (DUP-4); in checkpoints.
    OriginsKnown {
        /// By which store.
        store: StoreKey,
        /// Of which origin store.
        origin: StoreUid,
        /// What.
        known: KnownOrigins,
    },
    /// Deliveries up to this id may have been sent before a stop that was not clean (AK-10).
    Suspected {
        /// From where.
        place: Place,
        /// The highest id that may have been sent.
        up_to: EventId,
    },
    /// A message-id was seen by a store that recognises repeated ones (DUP-11); in checkpoints.
    MessageIdSeen {
        /// By which store.
        store: StoreKey,
        /// The message-id as text.
        message_id: String,
        /// The event that it became.
        event: EventId,
        /// When.
        at: WallMs,
    },
    /// A job began; all of its pieces follow in steps of their own.
    JobStarted {
        /// Its number.
        job: JobKey,
        /// What it does.
        work: Work,
    },
    /// A job has done a piece.
    JobMoved {
        /// Which job.
        job: JobKey,
        /// How many of its joins' destinations it has been through.
        stage: u32,
        /// The next event to look at, there or in its own store.
        at: EventId,
        /// Events removed so far.
        done: u64,
    },
    /// A job is done. The deletion of a store ends with `StoreDeleted` instead.
    JobEnded {
        /// Which job.
        job: JobKey,
    },
    /// The values of the publish keys that an event has, before the event itself (5.1).
    Keyed {
        /// Of which store.
        store: StoreKey,
        /// Which event.
        event: EventId,
        /// Each key's name, and its value as text.
        values: Vec<(String, String)>,
    },
    /// Bodies that lie in the journal already; in checkpoints.
    BodyPage {
        /// The page, as [`put_bodies`] writes it.
        page: Bytes,
    },
    /// Events of a store; in checkpoints.
    EventPage {
        /// Of which store.
        store: StoreKey,
        /// The page, as [`put_events`] writes it.
        page: Bytes,
    },
    /// An event that only the joins of a store still need (FWD-2); in checkpoints.
    Spooled {
        /// Where.
        store: StoreKey,
        /// The event.
        event: StoredEvent,
    },
    /// A message was taken that waits for its delivery time beside the events of a store (QU-9).
    Scheduled {
        /// Of which store.
        store: StoreKey,
        /// Its number among those that wait there, from 1, never given again.
        number: u64,
        /// When it becomes an event.
        due: WallMs,
        /// What it becomes then; its id is 0, and its arrival is when it was taken.
        event: StoredEvent,
    },
    /// Messages wait for their delivery time no more.
    Unscheduled {
        /// Of which store.
        store: StoreKey,
        /// Which numbers; some in between that do not wait are no error.
        numbers: Vec<IdRange>,
        /// Why.
        why: Unscheduling,
    },
    /// Numbers of waiting messages below this one may be given in memory, and never again after a restart.
    NumbersReserved {
        /// Of which store.
        store: StoreKey,
        /// The first number that is not reserved.
        below: u64,
    },
    /// A purge takes waiting messages too: those up to this number.
    JobCovers {
        /// Which job.
        job: JobKey,
        /// The last number.
        scheduled: u64,
    },
    /// Consumers added annotations to a message that came back (AMQP part 3, section 3.4.5).
    Annotated {
        /// From where they had it.
        place: Place,
        /// Which event.
        event: EventId,
        /// All that were added so far, as one message-annotations section.
        annotations: Bytes,
    },
}
