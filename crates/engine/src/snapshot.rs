//! The durable state as records: for checkpoints, and as a digest that shows whether two engines hold the same.

use crate::bodies::SegmentUse;
use crate::effect::Wanted;
use crate::engine::Engine;
use crate::job::Job;
use crate::join::Join;
use crate::object::Object;
use crate::reader::{Attempts, Reader};
use crate::store::{Kind, Store};
use crate::view::View;
use bytes::Bytes;
use postroad_model::id::EventId;
use postroad_model::message::Message;
use postroad_model::settings::JoinSettings;
use postroad_record::{IdRange, Place, Record, StoredEvent, Work, put_bodies};
use std::collections::BTreeMap;

/// Bytes after which a piece of a snapshot is given out.
const PIECE: usize = 1 << 16;

/// How the position of a named object is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Plain,
    /// Alike for all positions that owe the same events on disk.
    Canonical,
}

impl Engine {
    /// Gives out the durable state as payloads of steps, each of whole records and of about 64 KiB, larger only where one
    /// message is. Replaying them in order, then [`Engine::recovered`], rebuilds the state; without the last of them it
    /// is incomplete.
    ///
    /// Messages are not in it, only where they lie: [`Engine::live_segments`] says what must be kept besides.
    pub fn snapshot(&self, emit: &mut dyn FnMut(&[u8])) {
        let mut piece = Vec::with_capacity(PIECE);
        self.durable_records(Form::Plain, &mut |_| None, &mut |record| {
            postroad_record::append(&record, &mut piece);
            if piece.len() >= PIECE {
                emit(&piece);
                piece.clear();
            }
        });
        if !piece.is_empty() {
            emit(&piece);
        }
    }

    /// A hash over the durable state: two engines that were told the same time have the same digest exactly if a crash
    /// of either would leave the same. `read` gives the bytes of messages that are not in memory.
    #[must_use]
    pub fn digest(&self, read: &mut dyn FnMut(&Wanted) -> Option<Bytes>) -> u64 {
        let (mut digest, mut bytes) = (0u64, Vec::new());
        self.durable_records(Form::Canonical, read, &mut |record| {
            bytes.clear();
            postroad_record::append(&record, &mut bytes);
            for chunk in bytes.chunks(8) {
                let word =
                    chunk.iter().fold(u64::from(chunk.len() < 8), |word, byte| word << 8 | u64::from(*byte));
                digest = crate::engine::mix(digest ^ word);
            }
        });
        digest
    }

    /// The segments of the journal in which messages lie that are still held.
    #[must_use]
    pub const fn live_segments(&self) -> &BTreeMap<u64, SegmentUse> {
        self.bodies.segments()
    }

    fn durable_records(&self, form: Form, read: Read<'_>, visit: &mut dyn FnMut(Record)) {
        if self.broker_id != [0; 16] {
            visit(Record::BrokerCreated { id: self.broker_id });
        }
        let mut stores: Vec<&Store> = self.all_stores().filter(|store| store.owner.is_none()).collect();
        // What has the name of a deleted store now must come behind it, or its end frees the name again. Numbers do not
        // tell them apart: a store may have that of a temporary queue that is gone.
        stores.sort_by_key(|store| !store.deleted);
        for store in &stores {
            visit_store(store, visit);
            self.visit_jobs(|job| store.deleted && job.store() == Some(store.key), visit);
            if store.remembers_on_disk() && !store.deleted {
                visit_memory(store, self.now.wall, visit);
            }
        }
        for object in self.objects.values().filter(|object| object.settings.persistent) {
            visit(object_created(object));
        }
        for join in self.joins.values() {
            self.visit_join(join, visit);
        }
        let deletes = |job: &Job| matches!(job.work, Work::Delete { .. });
        self.visit_jobs(|job| !deletes(job), visit);
        match form {
            Form::Plain => self.visit_body_pages(visit),
            Form::Canonical => self.visit_bodies(read, visit),
        }
        for store in stores {
            match form {
                Form::Plain => visit_event_pages(store, visit),
                Form::Canonical => visit_each_event(store, visit),
            }
            visit_schedule(store, visit);
            visit_beside_events(store, visit);
            self.visit_reoffers(store, visit);
        }
        for object in self.objects.values().filter(|object| object.settings.persistent) {
            self.visit_object(object, form, read, visit);
        }
    }

    /// Where the messages lie that are in the journal. Those of steps that have no place yet go along.
    fn visit_body_pages(&self, visit: &mut dyn FnMut(Record)) {
        for leaf in self.bodies.leaves() {
            if let Some(frozen) = leaf.if_cold() {
                visit(Record::BodyPage { page: Bytes::copy_from_slice(&frozen.bytes[..frozen.durable]) });
                continue;
            }
            leaf.peek(|page| {
                let stored = page.stored();
                if !stored.is_empty() {
                    let mut bytes = Vec::new();
                    put_bodies(stored.into_iter(), &mut bytes);
                    visit(Record::BodyPage { page: bytes.into() });
                }
                for (id, body) in page.numbered().filter(|(_, body)| body.written && body.place.is_none()) {
                    if let Some(message) = &body.message {
                        let (annotations, bytes) = (message.annotations_len(), message.bytes().clone());
                        visit(Record::Body { id, annotations, bytes });
                    }
                }
            });
        }
    }

    /// The messages that events on disk hold.
    fn visit_bodies(&self, read: Read<'_>, visit: &mut dyn FnMut(Record)) {
        for leaf in self.bodies.leaves() {
            leaf.peek(|page| {
                for (id, body) in page.numbered().filter(|(_, body)| body.durable_holders > 0) {
                    let here = body.message.as_ref().map(|message| message.bytes().clone());
                    let bytes =
                        here.or_else(|| read(&Wanted { body: id, place: body.place?, length: body.length }));
                    let bytes = bytes.unwrap_or_default();
                    visit(Record::Body { id, annotations: body.annotations, bytes });
                }
            });
        }
    }

    /// Jobs that go on.
    fn visit_jobs(&self, of: impl Fn(&Job) -> bool, visit: &mut dyn FnMut(Record)) {
        for job in self.jobs.values().filter(|job| job.durable && of(job)) {
            visit(Record::JobStarted { job: job.key, work: job.work.clone() });
            if job.scheduled > 0 {
                visit(Record::JobCovers { job: job.key, scheduled: job.scheduled });
            }
            visit(Record::JobMoved { job: job.key, stage: job.stage, at: job.at, done: job.done });
        }
    }

    /// A join was created with its oldest filter that still matters, and changed since.
    fn visit_join(&self, join: &Join, visit: &mut dyn FnMut(Record)) {
        let text =
            |filter: &Option<postroad_selector::Selector>| filter.as_ref().map(|f| f.source().to_owned());
        let mut filters: Vec<Option<String>> =
            join.old_filters.iter().map(|(_, filter)| text(filter)).collect();
        filters.push(join.settings.filter.clone());
        let mut settings = filters.into_iter().map(|filter| JoinSettings { filter, ..join.settings.clone() });
        let mut before = None;
        if let Some(settings) = settings.next() {
            before.clone_from(&settings.filter);
            let (name, source, cursor, made_by) = (join.name.clone(), join.source, join.cursor, join.made_by);
            visit(Record::JoinCreated { join: join.key, name, source, settings, cursor, made_by });
        }
        for (settings, &(filter_from, _)) in settings.zip(&join.old_filters) {
            // A change that a crash took the events of may lie between two times of one filter.
            if settings.filter != before {
                before.clone_from(&settings.filter);
                visit(Record::JoinAltered { join: join.key, settings, filter_from });
            }
        }
    }

    /// Events to be offered again over some of the joins of a store.
    fn visit_reoffers(&self, store: &Store, visit: &mut dyn FnMut(Record)) {
        let joins = || store.joins_out.iter().filter_map(|key| self.joins.get(key));
        let mut events: Vec<EventId> = joins().flat_map(|join| join.reoffers.iter().copied()).collect();
        events.sort_unstable();
        events.dedup();
        for event in events {
            let Some(entry) = store.log.get(event).filter(|entry| entry.on_disk) else { continue };
            let budget = entry.event.extra.as_ref().and_then(|extra| extra.budget);
            visit(Record::BudgetRaised { store: store.key, event, budget, reoffer: true });
            for join in joins().filter(|join| !join.reoffers.contains(&event)) {
                visit(Record::Reoffered { join: join.key, event });
            }
        }
    }

    fn visit_object(&self, object: &Object, form: Form, read: Read<'_>, visit: &mut dyn FnMut(Record)) {
        let (Some(reader), Some(store)) = (self.readers.get(object.reader), self.store(object.store)) else {
            return;
        };
        let key = object.key;
        let (low, done) = match form {
            Form::Plain => (object.low, reader.done.iter().collect()),
            Form::Canonical => self.canonical_position(object, reader, store, read),
        };
        visit(Record::ObjectMoved { object: key, low, done });
        if object.skipped > 0 {
            visit(Record::ObjectSkipped { object: key, total: object.skipped });
        }
        visit_marks(Place::Object(key), object.sent_up_to, object.sent_before_start, visit);
        for (&event, &Attempts { failed, counted, .. }) in &reader.attempts {
            let owed = event >= object.low && !reader.done.contains(event);
            if owed && store.log.get(event).is_some_and(|entry| entry.on_disk) {
                visit(Record::Attempted { place: Place::Object(key), event, failed, counted });
            }
        }
        for (event, added) in reader.annotated.iter() {
            let owed = event >= object.low && !reader.done.contains(event);
            if owed && store.log.get(event).is_some_and(|entry| entry.on_disk) {
                let (place, annotations) = (Place::Object(key), added.section.clone());
                visit(Record::Annotated { place, event, annotations });
            }
        }
    }

    /// The first event on disk that an object owes, and what it finished of those above it.
    fn canonical_position(
        &self,
        object: &Object,
        reader: &Reader,
        store: &Store,
        read: Read<'_>,
    ) -> (EventId, Vec<IdRange>) {
        let (mut low, mut done) = (None, Vec::new());
        let mut at = object.low;
        while let Some(entry) = store.log.first_from(at) {
            let id = entry.event.id;
            at = id + 1;
            let wanted = self.wants(reader, &entry.event, read) && !self.is_own(object.reader, id);
            if !entry.on_disk || !wanted {
                continue;
            }
            if !reader.done.contains(id) {
                low = low.or(Some(id));
            } else if low.is_some() {
                crate::ranges::push_id(&mut done, id);
            }
        }
        (low.unwrap_or_else(|| object.low.max(store.horizon())), done)
    }

    /// Whether the filter of a reader lets an event pass, wherever its message is.
    fn wants(&self, reader: &Reader, event: &StoredEvent, read: Read<'_>) -> bool {
        let Some(filter) = &reader.filter else { return true };
        let here = self.bodies.get(event.body).cloned();
        let message = here.or_else(|| {
            let (annotations, place) = self.bodies.whereabouts(event.body)?;
            let length = u32::try_from(self.bodies.size(event.body)).ok()?;
            let wanted = Wanted { body: event.body, place: place?, length };
            Message::from_stored(read(&wanted)?, annotations).ok()
        });
        message.is_some_and(|message| filter.matches(&View { message: &message, event }))
    }
}

/// Gives the bytes of a message that is not in memory.
type Read<'a> = &'a mut dyn FnMut(&Wanted) -> Option<Bytes>;

/// What a store is.
fn visit_store(store: &Store, visit: &mut dyn FnMut(Record)) {
    let mut identities = store.identities.iter();
    let Some(&(_, uid)) = identities.next() else { return };
    let (key, name, definition, made_by) =
        (store.key, store.name.to_string(), store.definition(), store.made_by);
    visit(Record::StoreCreated { store: key, uid, name, definition, made_by });
    for &(from, uid) in identities {
        visit(Record::StoreUidRenewed { store: key, uid, from });
    }
    visit(Record::IdsReserved { store: key, below: store.horizon() });
}

/// What a store remembers of what it took.
fn visit_memory(store: &Store, now: u64, visit: &mut dyn FnMut(Record)) {
    for (origin, known) in store.origins.known() {
        visit(Record::OriginsKnown { store: store.key, origin, known });
    }
    for (message_id, seen) in store.message_ids.durable(now, store.publisher_dedupe_window()) {
        let (message_id, event, at) = (message_id.to_owned(), seen.event, seen.at);
        visit(Record::MessageIdSeen { store: store.key, message_id, event, at });
    }
}

/// The events of a store on disk, page by page.
fn visit_event_pages(store: &Store, visit: &mut dyn FnMut(Record)) {
    for leaf in store.log.leaves() {
        if let Some(frozen) = leaf.if_cold().filter(|frozen| frozen.all_on_disk) {
            let page = Bytes::copy_from_slice(&frozen.bytes[..frozen.durable]);
            visit(Record::EventPage { store: store.key, page });
            continue;
        }
        let mut page = Vec::new();
        if leaf.peek(|events| events.put_durable(&mut page)) {
            visit(Record::EventPage { store: store.key, page: page.into() });
        }
    }
}

/// The events of a store on disk, one by one, with what is known of their attempts.
fn visit_each_event(store: &Store, visit: &mut dyn FnMut(Record)) {
    let place = Place::Store(store.key);
    store.log.for_each(|entry| {
        if !entry.on_disk {
            return;
        }
        let (event, failed, counted) = (entry.event.id, entry.failed, entry.counted);
        visit(Record::Stored { store: store.key, event: entry.event.clone() });
        if failed > 0 {
            visit(Record::Attempted { place, event, failed, counted });
        }
    });
}

/// What waits for its time, and the numbers that were given.
fn visit_schedule(store: &Store, visit: &mut dyn FnMut(Record)) {
    let (key, below) = (store.key, store.schedule.horizon());
    if below > 1 {
        visit(Record::NumbersReserved { store: key, below });
    }
    for (number, scheduled) in store.schedule.iter().filter(|(_, scheduled)| scheduled.on_disk) {
        let (due, event) = (scheduled.due, scheduled.event.clone());
        visit(Record::Scheduled { store: key, number, due, event });
    }
}

/// What a store has besides its events: their publish keys, what is held for its joins, its arrivals, its marks.
fn visit_beside_events(store: &Store, visit: &mut dyn FnMut(Record)) {
    let key = store.key;
    for (event, values) in store.keys.iter() {
        if store.log.get(event).is_some_and(|entry| entry.on_disk) {
            visit(Record::Keyed { store: key, event, values: values.clone() });
        }
    }
    for entry in store.spool.values().filter(|entry| entry.on_disk) {
        visit(Record::Spooled { store: key, event: entry.event.clone() });
    }
    for (event, added) in store.annotated.iter() {
        let entry = store.log.get(event).or_else(|| store.spool.get(&event));
        if entry.is_some_and(|entry| entry.on_disk) {
            let (place, annotations) = (Place::Store(key), added.section.clone());
            visit(Record::Annotated { place, event, annotations });
        }
    }
    for arrival in store.arrivals.iter().filter(|arrival| arrival.on_disk) {
        let (number, event, duplicate) = (arrival.number, arrival.event.clone(), arrival.duplicate);
        visit(Record::Arrived { store: key, arrival: number, event, duplicate });
    }
    if let Kind::Channel(_) = store.kind {
        return;
    }
    visit_marks(Place::Store(key), store.sent_up_to, store.sent_before_start, visit);
}

fn visit_marks(place: Place, sent: EventId, suspected: EventId, visit: &mut dyn FnMut(Record)) {
    if sent > 0 {
        visit(Record::Sent { place, up_to: sent });
    }
    if suspected > 0 {
        visit(Record::Suspected { place, up_to: suspected });
    }
}

fn object_created(object: &Object) -> Record {
    Record::ObjectCreated {
        object: object.key,
        store: object.store,
        owner: object.owner.clone(),
        name: object.name.clone(),
        settings: object.settings.clone(),
        low: object.begin,
        made_by: object.made_by,
    }
}
