//! `apply(record)`: the one place where durable state changes, shared by live work and replay (DESIGN 7.1).
//! It decides nothing: whatever depended on time, credit or chance stands in the record. What it does to the
//! events of a store is in `apply_events`.

use crate::effect::Step;
use crate::engine::{Engine, Task};
use crate::join::Join;
use crate::object::Object;
use crate::reader::{Attempts, Position, Reader, Who};
use crate::store::{Kind, Store};
use postroad_model::id::{EventId, JoinKey, ObjectKey, StoreKey, StoreUid};
use postroad_model::settings::PublishKey;
use postroad_record::{
    BodyPlace, BodyRef, DecodeError, FramePlace, IdRange, Item, MadeBy, Owner, Place, Record,
    StoreDefinition, StoredBody,
};
use postroad_selector::Selector;

impl Engine {
    /// Applies one record. `durable` says that it stands in the journal.
    #[allow(clippy::too_many_lines)] // one arm a record, on one page on purpose
    pub(crate) fn apply(&mut self, record: Record, durable: bool) {
        match record {
            Record::BrokerCreated { id } => self.broker_id = id,
            Record::StoreCreated { store, uid, name, definition, made_by } => {
                self.insert_store(Store::new(store, uid, &name, definition, made_by));
            }
            Record::StoreAltered { store, definition, made_by } => {
                self.alter_store(store, definition, made_by);
            }
            Record::StoreDeleted { store } => self.drop_store(store),
            Record::StoreUidRenewed { store, uid, from } => self.renew_uid(store, uid, from),
            Record::IdsReserved { store, below } => {
                if let Some(store) = self.store_mut(store) {
                    store.reserved_below = store.reserved_below.max(below);
                }
            }
            // A body is no change of its own: it is written beside the event that holds it, and found in its place.
            Record::Body { .. } => {}
            Record::Stored { store, event } => self.apply_stored(store, event, durable),
            Record::Removed { store, ids, why: _, kept } => self.apply_removed(store, &ids, kept),
            Record::Attempted { place, event, failed, counted } => {
                self.apply_attempted(place, event, failed, counted);
            }
            Record::Sent { place, up_to } => self.apply_sent(place, up_to),
            Record::ObjectCreated { object, store, owner, name, settings, low, made_by } => {
                let filter = settings.selector.as_deref().and_then(|text| Selector::parse(text).ok());
                let no_local = settings.no_local.then(|| owner.clone()).and_then(client_of);
                let reader = self.readers.insert(|_| {
                    let mut reader = Reader::new(store, Who::Object(object), Position::Behind(low));
                    reader.begin = low;
                    reader.filter = filter;
                    reader.no_local = no_local;
                    reader
                });
                self.insert_object(Object::new(object, store, owner, name, settings, low, made_by, reader));
            }
            Record::ObjectAltered { object, settings } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.settings = settings;
                }
            }
            Record::ObjectDeleted { object } => self.drop_object(object),
            Record::ObjectMoved { object, low, done } => self.apply_object_moved(object, low, done),
            Record::ObjectSkipped { object, total } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.skipped_untold += total.saturating_sub(object.skipped);
                    object.skipped = total;
                }
            }
            Record::JoinCreated { join, name, source, settings, cursor, made_by } => {
                let reader = self.readers.insert(|_| {
                    let at = Position::Behind(cursor.saturating_add(1));
                    let mut reader = Reader::new(source, Who::Join(join), at);
                    reader.filter = settings.filter.as_deref().and_then(|text| Selector::parse(text).ok());
                    reader
                });
                self.insert_join(Join::new(join, name, source, settings, cursor, made_by, reader));
            }
            Record::JoinAltered { join, settings, filter_from } => {
                self.change_join(join, settings, filter_from);
            }
            Record::JoinDeleted { join } => self.drop_join(join),
            Record::JoinMoved { join, cursor } => self.apply_join_moved(join, cursor),
            Record::BudgetRaised { store, event, budget, reoffer } => {
                self.apply_budget(store, event, budget, reoffer);
            }
            Record::Reoffered { join, event } => {
                if let Some(join) = self.joins.get_mut(&join) {
                    join.reoffers.remove(&event);
                }
            }
            Record::Arrived { store, arrival, event, duplicate } => {
                self.apply_arrived(store, arrival, event, duplicate, durable);
            }
            Record::OriginTaken { store, origin, at } => {
                let under_way = self.step_under_way();
                if let Some(store) = self.store_mut(store) {
                    let window = store.dedupe();
                    store.origins.take(origin, at, &window);
                    store.last_after = store.last_after.max(under_way);
                }
            }
            Record::OriginsKnown { store, origin, known } => {
                if let Some(store) = self.store_mut(store) {
                    store.origins.restore(origin, known);
                }
            }
            Record::Suspected { place, up_to } => self.apply_suspected(place, up_to),
            Record::MessageIdSeen { store, message_id, event, at } => {
                if let Some(store) = self.store_mut(store) {
                    store.remember_message_id(&message_id, event, at, durable);
                }
            }
            Record::JobStarted { job, work } => self.insert_job(job, work, durable),
            Record::JobMoved { job, stage, at, done } => self.move_job(job, stage, at, done),
            Record::JobEnded { job } => {
                self.jobs.remove(&job);
            }
            Record::Keyed { store, event, values } => {
                if let Some(store) = self.store_mut(store) {
                    store.keys.add(event, values);
                }
            }
            Record::BodyPage { page } => self.apply_body_page(&page),
            Record::EventPage { store, page } => self.apply_event_page(store, &page),
            Record::Spooled { store, event } => self.apply_spooled(store, event, durable),
            Record::Scheduled { store, number, due, event } => {
                self.apply_scheduled(store, number, due, event, durable);
            }
            Record::Unscheduled { store, numbers, why: _ } => self.apply_unscheduled(store, &numbers),
            Record::NumbersReserved { store, below } => self.apply_numbers_reserved(store, below),
            Record::Annotated { place, event, annotations } => {
                self.apply_annotated(place, event, annotations);
            }
            Record::JobCovers { job, scheduled } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.scheduled = scheduled;
                }
            }
        }
    }

    fn renew_uid(&mut self, store: StoreKey, uid: StoreUid, from: EventId) {
        let Some(store) = self.store_mut(store) else { return };
        store.uid = uid;
        store.identities.push((from, uid));
        store.identity_proved = true;
    }

    fn apply_sent(&mut self, place: Place, up_to: EventId) {
        let under_way = self.step_under_way();
        let mark = match place {
            Place::Store(key) => self.store_mut(key).map(|s| (&mut s.sent_up_to, &mut s.marked)),
            Place::Object(key) => self.objects.get_mut(&key).map(|o| (&mut o.sent_up_to, &mut o.marked)),
        };
        if let Some((mark, marked)) = mark {
            *mark = up_to.max(*mark);
            *marked = under_way;
        }
    }

    fn apply_suspected(&mut self, place: Place, up_to: EventId) {
        let mark = match place {
            Place::Store(store) => self.store_mut(store).map(|store| &mut store.sent_before_start),
            Place::Object(object) => {
                self.objects.get_mut(&object).map(|object| &mut object.sent_before_start)
            }
        };
        if let Some(mark) = mark {
            *mark = up_to.max(*mark);
        }
    }

    fn apply_attempted(&mut self, place: Place, id: EventId, failed: u32, counted: u32) {
        let after = self.step_under_way();
        match place {
            Place::Store(store) => {
                if let Some(entry) = self.store_mut(store).and_then(|s| s.log.get_mut(id)) {
                    entry.failed = failed;
                    entry.counted = counted;
                    entry.after = entry.after.max(after);
                }
            }
            Place::Object(object) => {
                let reader = self.objects.get(&object).map(|object| object.reader);
                if let Some(reader) = reader.and_then(|key| self.readers.get_mut(key)) {
                    reader.attempts.insert(id, Attempts { failed, counted, after });
                }
            }
        }
    }

    fn apply_object_moved(&mut self, key: ObjectKey, low: EventId, done: Vec<IdRange>) {
        let replaying = self.replaying;
        let Some(object) = self.objects.get_mut(&key) else { return };
        object.low = object.low.max(low);
        if replaying {
            // Who acknowledges has been told what was skipped before.
            object.skipped_untold = 0;
        }
        let low = object.low;
        let Some(reader) = self.readers.get_mut(object.reader) else { return };
        let mut freed = 0;
        for (first, last) in done {
            reader.done.insert(first, last);
            freed += reader.annotated.forget_range(first, last);
            while let Some((&id, _)) = reader.attempts.range(first..=last).next() {
                reader.attempts.remove(&id);
            }
        }
        reader.done.trim_below(low);
        while let Some(attempt) = reader.attempts.first_entry().filter(|attempt| *attempt.key() < low) {
            attempt.remove();
        }
        freed += reader.annotated.forget_range(0, low.saturating_sub(1));
        self.freed_annotated(freed);
    }

    fn apply_join_moved(&mut self, key: JoinKey, cursor: u64) {
        let Some(join) = self.joins.get_mut(&key) else { return };
        join.cursor = join.cursor.max(cursor);
        join.passed = join.passed.max(cursor);
        let (source, archive) = (join.source, join.settings.archive);
        while join.old_filters.front().is_some_and(|(up_to, _)| *up_to <= cursor) {
            join.old_filters.pop_front();
        }
        if archive {
            self.pass_arrivals(source, cursor);
        }
        self.free_spool(source);
        self.free_arrivals(source);
    }

    fn apply_budget(&mut self, key: StoreKey, id: EventId, budget: Option<u8>, reoffer: bool) {
        let Some(store) = self.store_mut(key) else { return };
        if let Some(extra) = store.log.get_mut(id).and_then(|e| e.event.extra.as_mut()) {
            extra.budget = budget;
        }
        if !reoffer {
            return;
        }
        // Also for joins that have not come so far: they find out, and the record says nothing of who was where.
        let joins: Vec<JoinKey> = store.joins_out.iter().copied().collect();
        for key in joins {
            if let Some(join) = self.joins.get_mut(&key) {
                join.reoffers.insert(id);
                self.schedule(Task::Join(key));
            }
        }
    }

    fn insert_store(&mut self, store: Store) {
        let names = if store.is_queue() { &mut self.queues } else { &mut self.channels };
        names.insert(store.name.clone(), store.key);
        self.count_grave(store.dead_event_store(), true);
        self.stores.insert(store);
    }

    fn alter_store(&mut self, key: StoreKey, definition: StoreDefinition, made_by: MadeBy) {
        let old = self.store(key).and_then(Store::dead_event_store).map(str::to_owned);
        self.count_grave(old.as_deref(), false);
        let Some(store) = self.store_mut(key) else { return };
        store.made_by = made_by;
        let before = indexed_by(store);
        let (unused, settings_first) = (store.last_id() + 1 == store.identities[0].0, first_id(&definition));
        match (&mut store.kind, definition) {
            (Kind::Queue(queue), StoreDefinition::Queue(settings)) => queue.settings = settings,
            (Kind::Channel(channel), StoreDefinition::Channel(settings)) => channel.settings = settings,
            // The kind of a store never changes: the engine writes no such record.
            _ => {}
        }
        if unused && store.horizon() == store.next_id {
            store.begin_at(settings_first);
        }
        let new = store.dead_event_store().map(str::to_owned);
        let rebuild = before != indexed_by(store);
        self.count_grave(new.as_deref(), true);
        if rebuild {
            self.rebuild_indexes(key);
        }
    }

    /// The name of a store that is deleted is free, though what is in it is still there.
    pub(crate) fn free_name(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key).filter(|store| !store.deleted) else { return };
        store.deleted = true;
        let (name, is_queue) = (store.name.clone(), store.is_queue());
        let des = store.dead_event_store().map(str::to_owned);
        let names = if is_queue { &mut self.queues } else { &mut self.channels };
        names.remove(&name);
        self.count_grave(des.as_deref(), false);
    }

    fn drop_store(&mut self, key: StoreKey) {
        self.free_name(key);
        self.jobs.retain(|_, job| job.store() != Some(key));
        let Some(store) = self.stores.take(key) else { return };
        if store.owner.is_some() {
            self.free_stores.push(key);
        }
        store.log.for_each(|entry| {
            self.bodies.release(entry.event.body, entry.on_disk);
        });
        for entry in store.spool.values() {
            self.bodies.release(entry.event.body, entry.on_disk);
        }
        for arrival in &store.arrivals {
            self.bodies.release(arrival.event.body, arrival.on_disk);
        }
        for (_, scheduled) in store.schedule.iter() {
            self.bodies.release(scheduled.event.body, scheduled.on_disk);
        }
        self.scheduled = self.scheduled.saturating_sub(store.schedule.len());
        self.freed_annotated(store.annotated.bytes());
    }

    /// Keeps count of how many stores name a dead event store.
    fn count_grave(&mut self, name: Option<&str>, more: bool) {
        let Some(name) = name else { return };
        let count = self.graves.entry(name.to_owned()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.graves.remove(name);
        }
    }

    /// Reads a step of the journal, or a piece of a [`Engine::snapshot`], back: `payload` is that of the frame at `frame`.
    /// Messages stay there. Call [`Engine::recovered`] after the last one.
    ///
    /// # Errors
    /// If the payload is no list of records; those before the bad one have been applied.
    pub fn replay(&mut self, payload: &[u8], frame: FramePlace) -> Result<(), DecodeError> {
        self.replaying = true;
        self.bodies.replaying = true;
        postroad_record::read_step(payload, &mut |item| match item {
            Item::Body(BodyRef { id, annotations, bytes }, at) => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let place = BodyPlace { frame, at };
                self.bodies.restore(&StoredBody { id, length, annotations, place });
            }
            Item::Record(record) => self.apply(record, true),
        })?;
        self.bodies.cool();
        Ok(())
    }

    /// All records were read back: what nothing holds any more is forgotten, and [`Self::live_segments`] is right from here on.
    pub fn replayed(&mut self) {
        if std::mem::take(&mut self.bodies.replaying) {
            self.bodies.sweep();
        }
    }

    /// All records were read back. `continues` says that this start is proved to continue a clean stop of the same
    /// data folder, so that the stores keep their identities (DUP-3).
    pub fn recovered(&mut self, continues: bool) {
        self.replayed();
        self.replaying = false;
        for store in self.stores.iter_mut() {
            store.identity_proved = continues;
            store.next_id = store.next_id.max(store.reserved_below);
            store.last_after = Step(0);
            store.schedule.resume();
            if let Kind::Channel(channel) = &mut store.kind {
                channel.offered = store.next_id - 1;
            }
        }
        self.crashed = !continues;
        self.resume_after_replay();
    }
}

/// The settings on which the indexes of a store are built: while they stay, so do the indexes.
fn indexed_by(store: &Store) -> (u64, u8, Vec<PublishKey>) {
    match &store.kind {
        Kind::Queue(queue) => (queue.settings.ttl, queue.settings.max_priority, Vec::new()),
        Kind::Channel(channel) => (channel.settings.ttl, 0, channel.settings.publish_keys.clone()),
    }
}

/// The id that the first event of a store gets.
pub(crate) const fn first_id(definition: &StoreDefinition) -> EventId {
    match definition {
        StoreDefinition::Channel(settings) => settings.first_event_id,
        StoreDefinition::Queue(settings) => settings.first_event_id,
    }
}

fn client_of(owner: Owner) -> Option<String> {
    match owner {
        Owner::Client(id) => Some(id),
        Owner::Native => None,
    }
}
