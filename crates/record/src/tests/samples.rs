//! One of every record, and any record.

use crate::{
    BodyPlace, DeadLetter, Extra, FramePlace, IdBlock, IdRange, Ids, KnownOrigins, MadeBy, Owner, Place,
    Record, Removal, StoreDefinition, StoredBody, StoredEvent, Unscheduling, Work, put_bodies, put_events,
};
use bytes::Bytes;
use postroad_model::id::{BodyId, JobKey, JoinKey, ObjectKey, Origin, StoreKey, StoreUid};
use postroad_model::settings::{
    ChannelSettings, JoinSettings, NamedObjectSettings, QueueSettings, Retention, Start,
};
use proptest::prelude::*;

macro_rules! names {
    ($($name:ident,)*) => {
        /// The name of a record, as in `docs/internals/records.md`.
        pub(super) const fn name(record: &Record) -> &'static str {
            match record {
                $(Record::$name { .. } => stringify!($name),)*
            }
        }

        /// How many records there are.
        #[allow(clippy::cast_possible_truncation)] // there are few
        pub(super) const VARIANTS: u8 = [$(stringify!($name)),*].len() as u8;
    };
}

names! {
    BrokerCreated,
    StoreCreated,
    StoreAltered,
    StoreDeleted,
    StoreUidRenewed,
    IdsReserved,
    Body,
    Stored,
    Removed,
    Attempted,
    Sent,
    ObjectCreated,
    ObjectAltered,
    ObjectDeleted,
    ObjectMoved,
    ObjectSkipped,
    JoinCreated,
    JoinAltered,
    JoinDeleted,
    JoinMoved,
    BudgetRaised,
    Reoffered,
    Arrived,
    OriginTaken,
    OriginsKnown,
    Suspected,
    MessageIdSeen,
    JobStarted,
    JobMoved,
    JobEnded,
    Keyed,
    BodyPage,
    EventPage,
    Spooled,
    Scheduled,
    Unscheduled,
    NumbersReserved,
    JobCovers,
    Annotated,
}

const STORE: StoreKey = StoreKey(300);
const UID: StoreUid = StoreUid([0xa5; 16]);

fn plain_event() -> StoredEvent {
    StoredEvent {
        id: 7,
        body: BodyId(1_000),
        arrived: 5,
        expires: 0,
        priority: 4,
        durable: true,
        extra: None,
    }
}

fn rich_event() -> StoredEvent {
    let dead = DeadLetter {
        reason: "REJECTED".into(),
        reason_code: 2_053,
        dest: "q".into(),
        event_id: 3,
        named_object: Some("o".into()),
        address: Some("q@b".into()),
        component: "queue:q".into(),
        time: 9,
        count: 1,
        text: "because".into(),
        expires: 11,
    };
    let extra = Extra {
        origin: Some(Origin { store: UID, event: 6 }),
        origin_store: Some("a".into()),
        budget: Some(9),
        path: vec![UID],
        generation: 1,
        publisher: Some("cid".into()),
        message_id: Some("m".into()),
        dead: Some(Box::new(dead)),
        archived: true,
        archive_duplicate: true,
    };
    StoredEvent { expires: 12, durable: false, extra: Some(Box::new(extra)), ..plain_event() }
}

/// One of every record, and a second one where a field has several forms.
pub(super) fn samples() -> Vec<Record> {
    let mut records = definitions();
    records.extend(events());
    records.extend(joins());
    records.extend(memories());
    records.extend(jobs());
    records.extend(pages());
    records.extend(schedule());
    records.extend(annotated());
    records
}

fn jobs() -> Vec<Record> {
    let (store, job) = (STORE, JobKey(5));
    let filter = Some("k = 1".into());
    let purge = Work::Purge {
        store,
        from: 1,
        to: 1_000,
        filter: filter.clone(),
        joins: vec![JoinKey(1), JoinKey(2)],
    };
    vec![
        Record::JobStarted { job, work: purge },
        Record::JobStarted {
            job,
            work: Work::PurgeObject { object: ObjectKey(2), from: 0, to: 300, filter: None },
        },
        Record::JobStarted { job, work: Work::Delete { store } },
        Record::JobMoved { job, stage: 1, at: 300, done: 256 },
        Record::JobEnded { job },
    ]
}

fn definitions() -> Vec<Record> {
    let channel = ChannelSettings { retention: Retention::Interest, ..ChannelSettings::default() };
    let settings = NamedObjectSettings { start_event_id: Start::At(4), ..NamedObjectSettings::default() };
    let definition = StoreDefinition::Queue(QueueSettings::default());
    let object = ObjectKey(2);
    let (store, uid, made_by) = (STORE, UID, MadeBy::Configuration);
    vec![
        Record::BrokerCreated { id: [1; 16] },
        Record::StoreCreated {
            store,
            uid,
            name: "a".into(),
            definition: StoreDefinition::Channel(channel),
            made_by: MadeBy::Operator,
        },
        Record::StoreAltered { store, definition, made_by },
        Record::StoreDeleted { store },
        Record::StoreUidRenewed { store, uid, from: 65_537 },
        Record::IdsReserved { store, below: 65_537 },
        Record::ObjectCreated {
            object,
            store,
            owner: Owner::Client("cid".into()),
            name: "S".into(),
            settings: settings.clone(),
            low: 1,
            made_by: MadeBy::FirstUse,
        },
        Record::ObjectAltered { object, settings },
        Record::ObjectDeleted { object },
    ]
}

fn events() -> Vec<Record> {
    let (store, object) = (STORE, ObjectKey(2));
    vec![
        Record::Body { id: BodyId(1_000), annotations: 2, bytes: Bytes::from_static(b"bytes") },
        Record::Stored { store, event: plain_event() },
        Record::Stored { store, event: rich_event() },
        Record::Removed { store, ids: vec![(1, 3), (5, 5)], why: Removal::Consumed, kept: false },
        Record::Removed { store, ids: vec![(300, 400)], why: Removal::Unneeded, kept: true },
        Record::Attempted { place: Place::Store(store), event: 7, failed: 2, counted: 1 },
        Record::Sent { place: Place::Object(object), up_to: 1_000 },
        Record::ObjectMoved { object, low: 4, done: vec![(6, 8)] },
        Record::ObjectSkipped { object, total: 2 },
        Record::Arrived { store, arrival: 3, event: plain_event(), duplicate: true },
        Record::Suspected { place: Place::Store(store), up_to: 1_000 },
    ]
}

fn joins() -> Vec<Record> {
    let join = JoinKey(1);
    let filter = Some("k = 1".into());
    let settings =
        JoinSettings { source: "a".into(), destination: "b".into(), filter, ..JoinSettings::default() };
    let made_by = MadeBy::Broker;
    vec![
        Record::JoinCreated {
            join,
            name: "a->b".into(),
            source: STORE,
            settings: settings.clone(),
            cursor: 0,
            made_by,
        },
        Record::JoinAltered { join, settings, filter_from: 9 },
        Record::JoinDeleted { join },
        Record::JoinMoved { join, cursor: 9 },
        Record::BudgetRaised { store: STORE, event: 7, budget: Some(8), reoffer: true },
        Record::Reoffered { join, event: 7 },
    ]
}

fn memories() -> Vec<Record> {
    let bits = Ids::Bits(Bytes::from_static(&[0x81, 0x02]));
    let known = KnownOrigins {
        full: vec![(1, 2)],
        blocks: vec![
            IdBlock { number: 0, touched: 5, ids: Ids::Run(1, 65_535) },
            IdBlock { number: 3, touched: 6, ids: bits },
        ],
        newest: 200_000,
        forgotten_below: 65_535,
    };
    vec![
        Record::OriginTaken { store: STORE, origin: Origin { store: UID, event: 6 }, at: 5 },
        Record::OriginsKnown { store: STORE, origin: UID, known },
        Record::MessageIdSeen { store: STORE, message_id: "m".into(), event: 7, at: 5 },
    ]
}

fn pages() -> Vec<Record> {
    let place = BodyPlace { frame: FramePlace { segment: 1 << 32 | 2, offset: 4_096, length: 80 }, at: 4 };
    let body = StoredBody { id: BodyId(1_000), length: 70, annotations: 2, place };
    let (mut bodies, mut events) = (Vec::new(), Vec::new());
    put_bodies([body, StoredBody { id: BodyId(1_001), ..body }].into_iter(), &mut bodies);
    let (plain, rich) = (plain_event(), rich_event());
    put_events([(&plain, 0, 0), (&rich, 2, 1)].into_iter(), &mut events);
    vec![
        Record::Keyed { store: STORE, event: 7, values: vec![("k".into(), "tv".into())] },
        Record::BodyPage { page: bodies.into() },
        Record::EventPage { store: STORE, page: events.into() },
        Record::Spooled { store: STORE, event: rich },
    ]
}

fn schedule() -> Vec<Record> {
    let event = StoredEvent { id: 0, ..plain_event() };
    let why = [Unscheduling::Due, Unscheduling::Expired, Unscheduling::Cancelled, Unscheduling::Purged];
    let mut records = vec![Record::Scheduled { store: STORE, number: 3, due: 1_000, event }];
    records.extend(why.map(|why| Record::Unscheduled { store: STORE, numbers: vec![(3, 3), (5, 300)], why }));
    records.push(Record::NumbersReserved { store: STORE, below: 65_537 });
    records.push(Record::JobCovers { job: JobKey(5), scheduled: 300 });
    records
}

fn annotated() -> [Record; 2] {
    // A section of one entry: `n` is 1.
    let annotations = Bytes::from_static(&[0, 0x53, 0x72, 0xc1, 6, 2, 0xa3, 1, b'n', 0x54, 1]);
    [Place::Store(STORE), Place::Object(ObjectKey(2))].map(|place| {
        let annotations = annotations.clone();
        Record::Annotated { place, event: 300, annotations }
    })
}

/// A record with any numbers in it.
pub(super) fn any_record() -> impl Strategy<Value = Record> {
    let ranges = prop::collection::vec((any::<u64>(), any::<u64>()), 0..5);
    let number = || prop_oneof![0..300u64, any::<u64>()];
    (any::<prop::sample::Index>(), any::<u32>(), number(), number(), ranges, ".{0,12}").prop_map(
        |(which, key, one, two, ranges, text)| {
            let samples = samples();
            let record = samples[which.index(samples.len())].clone();
            changed(record, key, one, two, &ranges, &text)
        },
    )
}

/// The same kind of record with these numbers and texts in it.
fn changed(record: Record, key: u32, one: u64, two: u64, ranges: &[IdRange], text: &str) -> Record {
    let store = StoreKey(key);
    match record {
        Record::Stored { event, .. } => {
            let event = StoredEvent { id: one, body: BodyId(two), arrived: two, expires: one, ..event };
            Record::Stored { store, event }
        }
        Record::Body { .. } => {
            let bytes = Bytes::from(text.as_bytes().to_vec());
            Record::Body { id: BodyId(one), annotations: key, bytes }
        }
        Record::Scheduled { event, .. } => {
            Record::Scheduled { store, number: one, due: two, event: StoredEvent { expires: one, ..event } }
        }
        Record::Unscheduled { why, .. } => Record::Unscheduled { store, numbers: ranges.to_vec(), why },
        Record::Removed { why, kept, .. } => Record::Removed { store, ids: ranges.to_vec(), why, kept },
        Record::ObjectMoved { .. } => {
            Record::ObjectMoved { object: ObjectKey(key), low: one, done: ranges.to_vec() }
        }
        Record::Attempted { .. } => {
            Record::Attempted { place: Place::Object(ObjectKey(key)), event: one, failed: key, counted: key }
        }
        Record::Annotated { place, .. } => {
            Record::Annotated { place, event: one, annotations: Bytes::from(text.as_bytes().to_vec()) }
        }
        Record::JoinCreated { mut settings, made_by, .. } => {
            settings.filter = Some(text.to_owned());
            settings.start = Start::At(two.max(1));
            let (name, source) = (text.to_owned(), store);
            Record::JoinCreated { join: JoinKey(key), name, source, settings, cursor: one, made_by }
        }
        Record::OriginTaken { .. } => {
            Record::OriginTaken { store, origin: Origin { store: UID, event: one }, at: two }
        }
        Record::BudgetRaised { reoffer, .. } => {
            let budget = u8::try_from(key % 256).ok().filter(|budget| *budget != 7);
            Record::BudgetRaised { store, event: one, budget, reoffer }
        }
        other => other,
    }
}
