//! `apply(record)`: the one place where durable state changes, shared by live work and replay (DESIGN 7.1).
//! It decides nothing: whatever depended on time, credit or chance stands in the record.

use crate::effect::Step;
use crate::engine::Engine;
use crate::join::Join;
use crate::log::{Entry, Hold};
use crate::object::Object;
use crate::reader::{Position, Reader, Who};
use crate::store::{Arrival, Kind, Store};
use crate::view::View;
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::message::Message;
use postroad_model::settings::PublisherDedupe;
use postroad_record::{IdRange, Place, Record, Removal, StoreDefinition, StoredEvent};
use postroad_selector::{Properties, Selector, Value};

impl Engine {
    /// Applies one record.
    #[allow(clippy::too_many_lines)] // one arm a record, on one page on purpose
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::BrokerCreated { id } => self.broker_id = id,
            Record::StoreCreated { store, uid, name, definition, made_by } => {
                self.insert_store(Store::new(store, uid, &name, definition, made_by));
            }
            Record::StoreAltered { store, definition, made_by } => {
                if let Some(store) = self.store_mut(store) {
                    store.made_by = made_by;
                    match (&mut store.kind, definition) {
                        (Kind::Queue(queue), StoreDefinition::Queue(settings)) => queue.settings = settings,
                        (Kind::Channel(channel), StoreDefinition::Channel(settings)) => {
                            channel.settings = settings;
                        }
                        // The kind of a store never changes: the engine writes no such record.
                        _ => {}
                    }
                }
            }
            Record::StoreDeleted { store } => self.drop_store(store),
            Record::StoreUidRenewed { store, uid } => {
                if let Some(store) = self.store_mut(store) {
                    let (old, last) = (store.uid, store.last_id());
                    store.origins.take_all(old, last);
                    store.uid = uid;
                    store.identities.push((store.next_id, uid));
                    store.identity_proved = true;
                }
            }
            Record::IdsReserved { store, below } => {
                if let Some(store) = self.store_mut(store) {
                    store.reserved_below = store.reserved_below.max(below);
                }
            }
            Record::Body { id, annotations, bytes } => {
                // Bytes that a broker wrote scan; damage is found by the checksum before it comes here.
                if let Ok(message) = Message::from_stored(bytes, annotations) {
                    self.bodies.insert(id, message, true);
                }
            }
            Record::Stored { store, event } => self.apply_stored(store, event),
            Record::Removed { store, ids, why } => self.apply_removed(store, &ids, why),
            Record::Attempted { place, event, failed, counted } => {
                self.apply_attempted(place, event, failed, counted);
            }
            Record::Sent { place: Place::Store(store), up_to } => {
                if let Some(store) = self.store_mut(store) {
                    store.sent_up_to = store.sent_up_to.max(up_to);
                }
            }
            Record::Sent { place: Place::Object(object), up_to } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.sent_up_to = object.sent_up_to.max(up_to);
                }
            }
            Record::ObjectCreated { object, store, owner, name, settings, low, made_by } => {
                let filter = settings.selector.as_deref().and_then(|text| Selector::parse(text).ok());
                let no_local = settings.no_local.then(|| owner.clone()).and_then(client_of);
                let reader = self.readers.insert(|key| {
                    let mut reader = Reader::new(key, store, Who::Object(object), Position::Behind(low));
                    reader.begin = low;
                    reader.filter = filter;
                    reader.no_local = no_local;
                    reader
                });
                let state = Object::new(object, store, owner, name, settings, low, made_by, reader);
                self.insert_object(state);
            }
            Record::ObjectAltered { object, settings } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.settings = settings;
                }
            }
            Record::ObjectDeleted { object } => self.drop_object(object),
            Record::ObjectMoved { object, low, done } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.low = object.low.max(low);
                    let low = object.low;
                    if let Some(reader) = self.readers.get_mut(object.reader) {
                        for (first, last) in done {
                            reader.done.insert(first, last);
                        }
                        reader.done.trim_below(low);
                    }
                }
            }
            Record::ObjectSkipped { object, total } => {
                if let Some(object) = self.objects.get_mut(&object) {
                    object.skipped = total;
                }
            }
            Record::JoinCreated { join, name, source, settings, cursor, made_by } => {
                let reader = self.readers.insert(|key| {
                    let mut reader = Reader::new(key, source, Who::Join(join), Position::Behind(cursor + 1));
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
                self.bodies.hold(event.body);
                if let Some(store) = self.store_mut(store) {
                    store.next_arrival = arrival + 1;
                    store.arrivals.push_back(Arrival { number: arrival, event, duplicate });
                }
            }
            Record::OriginTaken { store, origin, at } => {
                if let Some(store) = self.store_mut(store) {
                    let window = store.dedupe();
                    store.origins.take(origin, at, &window);
                }
            }
        }
    }

    fn apply_stored(&mut self, key: StoreKey, event: StoredEvent) {
        self.bodies.hold(event.body);
        let size = self.bodies.get(event.body).map_or(0, Message::len) as u64;
        let keys = self.publish_key_values(key, &event);
        let under_way = self.step_under_way();
        let Some(store) = self.store_mut(key) else { return };
        let id = event.id;
        store.next_id = store.next_id.max(id + 1);
        store.bytes += size;
        store.counters.stored_total += 1;
        if store.keeps_on_disk(event.durable) {
            store.last_after = store.last_after.max(under_way);
        }
        if let Some(extra) = &event.extra {
            remember_extra(store, &event, extra);
        }
        for key in keys {
            store.keyed.entry(key).or_default().push_back(id);
        }
        let leaves = store.leaves_at(&event);
        if leaves != 0 {
            store.expiry.insert((leaves, id));
        }
        if let Kind::Queue(queue) = &mut store.kind {
            let level = queue.level(event.priority);
            queue.ready.insert(level, id);
        }
        let after = store.last_after;
        store.log.push(Entry { event, after, failed: 0, counted: 0, hold: Hold::Ready });
    }

    /// The publish keys of the store that the event has, with its values.
    pub(crate) fn publish_key_values(&self, key: StoreKey, event: &StoredEvent) -> Vec<(usize, String)> {
        let Some(channel) = self.store(key).and_then(Store::channel) else { return Vec::new() };
        if channel.settings.publish_keys.is_empty() {
            return Vec::new();
        }
        let Some(message) = self.bodies.get(event.body) else { return Vec::new() };
        let view = View { message, event };
        let keys = channel.settings.publish_keys.iter().enumerate();
        keys.filter_map(|(at, key)| Some((at, key_text(view.property(&key.name))?))).collect()
    }

    fn apply_removed(&mut self, key: StoreKey, ids: &[IdRange], why: Removal) {
        // Joins that have not passed an event keep its body, unless it expired or was purged (FWD-2).
        let spooled_from = match why {
            Removal::Evicted | Removal::Replaced => self.lowest_join_cursor(key),
            _ => None,
        };
        for &(first, last) in ids {
            let mut at = first;
            while let Some(id) = self
                .store(key)
                .and_then(|s| s.log.first_from(at))
                .map(|e| e.event.id)
                .filter(|&id| id <= last)
            {
                self.remove_one(key, id, spooled_from);
                at = id + 1;
            }
        }
    }

    fn remove_one(&mut self, key: StoreKey, id: EventId, spooled_from: Option<u64>) {
        let Some(store) = self.store_mut(key) else { return };
        let Some(entry) = store.log.remove(id) else { return };
        let leaves = store.leaves_at(&entry.event);
        if leaves != 0 {
            store.expiry.remove(&(leaves, id));
        }
        if let Some(origin) = entry.event.extra.as_ref().and_then(|e| e.origin) {
            store.by_origin.remove(&origin);
        }
        if let Kind::Queue(queue) = &mut store.kind {
            let level = queue.level(entry.event.priority);
            match entry.hold {
                Hold::Ready => {
                    queue.ready.remove(level, id);
                }
                Hold::Delivered => queue.delivered = queue.delivered.saturating_sub(1),
                Hold::Delayed => queue.delayed.retain(|&(_, delayed)| delayed != id),
                Hold::Blocked => {
                    queue.blocked.remove(&id);
                }
            }
        }
        let body = entry.event.body;
        let size = self.bodies.get(body).map_or(0, Message::len) as u64;
        let keys = self.publish_key_values(key, &entry.event);
        let Some(store) = self.store_mut(key) else { return };
        store.bytes = store.bytes.saturating_sub(size);
        for key in keys {
            if let Some(holders) = store.keyed.get_mut(&key) {
                holders.retain(|&holder| holder != id);
                if holders.is_empty() {
                    store.keyed.remove(&key);
                }
            }
        }
        if spooled_from.is_some_and(|cursor| id > cursor) {
            store.spool.insert(id, entry);
        } else {
            self.bodies.release(body);
        }
    }

    fn apply_attempted(&mut self, place: Place, id: EventId, failed: u32, counted: u32) {
        match place {
            Place::Store(store) => {
                if let Some(entry) = self.store_mut(store).and_then(|s| s.log.get_mut(id)) {
                    entry.failed = failed;
                    entry.counted = counted;
                }
            }
            Place::Object(object) => {
                let reader = self.objects.get(&object).map(|object| object.reader);
                if let Some(reader) = reader.and_then(|key| self.readers.get_mut(key)) {
                    reader.attempts.insert(id, (failed, counted));
                }
            }
        }
    }

    fn apply_join_moved(&mut self, key: JoinKey, cursor: u64) {
        let Some(join) = self.joins.get_mut(&key) else { return };
        join.cursor = join.cursor.max(cursor);
        let source = join.source;
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
        let joins = store.joins_out.clone();
        for join in joins {
            if let Some(join) = self.joins.get_mut(&join)
                && !join.settings.archive
                && join.cursor >= id
            {
                join.reoffers.insert(id);
            }
        }
    }
}

/// What an event's extra facts add to the memory of its store.
fn remember_extra(store: &mut Store, event: &StoredEvent, extra: &postroad_record::Extra) {
    // Archive copies and dead letters are exempt from "each origin once" (ARC-4, DLQ-8).
    if let Some(origin) = extra.origin
        && extra.dead.is_none()
        && !extra.archived
    {
        let window = store.dedupe();
        store.origins.take(origin, event.arrived, &window);
        if !store.is_queue() {
            store.by_origin.insert(origin, event.id);
        }
    }
    if let Some(message_id) = &extra.message_id
        && store.publisher_dedupe() == PublisherDedupe::MessageId
    {
        let window = store.publisher_dedupe_window();
        store.message_ids.remember(message_id.clone(), event.id, event.arrived, window);
    }
}

/// The value of a publish key as text that is equal exactly for equal values.
fn key_text(value: Value<'_>) -> Option<String> {
    match value {
        Value::Null | Value::Opaque => None,
        Value::Bool(b) => Some(format!("b{b}")),
        Value::Long(n) => Some(format!("n{n}")),
        Value::Double(x) => Some(format!("d{x}")),
        Value::Text(s) => Some(format!("t{s}")),
    }
}

fn client_of(owner: postroad_record::Owner) -> Option<String> {
    match owner {
        postroad_record::Owner::Client(id) => Some(id),
        postroad_record::Owner::Native => None,
    }
}

impl Engine {
    fn insert_store(&mut self, store: Store) {
        let at = store.key.0 as usize;
        if self.stores.len() <= at {
            self.stores.resize_with(at + 1, || None);
        }
        let names = if store.is_queue() { &mut self.queues } else { &mut self.channels };
        names.insert(store.name.clone(), store.key);
        self.stores[at] = Some(store);
    }

    fn drop_store(&mut self, key: StoreKey) {
        let Some(store) = self.stores.get_mut(key.0 as usize).and_then(Option::take) else { return };
        let names = if store.is_queue() { &mut self.queues } else { &mut self.channels };
        names.remove(&store.name);
        for entry in store.log.iter().chain(store.spool.values()) {
            self.bodies.release(entry.event.body);
        }
        for arrival in &store.arrivals {
            self.bodies.release(arrival.event.body);
        }
    }

    /// Reads a record of the journal back. Call [`Engine::recovered`] after the last one.
    pub fn replay(&mut self, record: Record) {
        self.replaying = true;
        self.apply(record);
    }

    /// All records were read back. `continues` says that this start is proved to continue a clean stop of the same
    /// data folder, so that the stores keep their identities (DUP-3).
    pub fn recovered(&mut self, continues: bool) {
        self.replaying = false;
        for store in self.stores.iter_mut().flatten() {
            store.identity_proved = continues;
            store.next_id = store.next_id.max(store.reserved_below);
            store.sent_before_start = if continues { 0 } else { store.sent_up_to };
            store.last_after = Step(0);
            if let Kind::Channel(channel) = &mut store.kind {
                channel.offered = store.next_id - 1;
            }
        }
        for object in self.objects.values_mut() {
            object.sent_before_start = if continues { 0 } else { object.sent_up_to };
        }
        self.resume_after_replay();
    }
}
