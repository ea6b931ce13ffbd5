//! What a record does to the events of a store, and to the indexes over them (`apply`).

use crate::engine::Engine;
use crate::log::{Entry, Hold};
use crate::message_ids::Seen;
use crate::ready::{PRIORITIES, Ready};
use crate::store::{Arrival, Kind, Store};
use crate::view::View;
use postroad_model::id::{EventId, StoreKey, WallMs};
use postroad_model::message::Message;
use postroad_model::settings::PublisherDedupe;
use postroad_record::{Extra, IdRange, StoredEvent};
use postroad_selector::{Properties, Value};

impl Engine {
    pub(crate) fn apply_stored(&mut self, key: StoreKey, event: StoredEvent, durable: bool) {
        self.bodies.hold(event.body, durable);
        let size = self.bodies.get(event.body).map_or(0, Message::len) as u64;
        let keys = self.publish_key_values(key, &event);
        let under_way = self.step_under_way();
        let Some(store) = self.store_mut(key) else { return };
        let id = event.id;
        store.next_id = store.next_id.max(id + 1);
        store.bytes += size;
        store.counters.stored_total += 1;
        if durable {
            store.last_after = store.last_after.max(under_way);
            store.durable_next = store.durable_next.max(id + 1);
        }
        if let Some(extra) = &event.extra {
            remember_extra(store, &event, extra, durable);
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
            queue.count_level(event.priority, true);
        }
        let after = store.last_after;
        store.log.push(Entry { event, on_disk: durable, after, failed: 0, counted: 0, hold: Hold::Ready });
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

    pub(crate) fn apply_removed(&mut self, key: StoreKey, ids: &[IdRange], kept: bool) {
        for &(first, last) in ids {
            let mut at = first;
            while let Some(id) = self
                .store(key)
                .and_then(|s| s.log.first_from(at))
                .map(|e| e.event.id)
                .filter(|&id| id <= last)
            {
                self.remove_one(key, id, kept);
                at = id + 1;
            }
        }
        if kept {
            self.free_spool(key);
        }
    }

    fn remove_one(&mut self, key: StoreKey, id: EventId, kept: bool) {
        let Some(store) = self.store_mut(key) else { return };
        store.release_hold(id);
        let Some(entry) = store.log.remove(id) else { return };
        let leaves = store.leaves_at(&entry.event);
        if leaves != 0 {
            store.expiry.remove(&(leaves, id));
            store.unburied.remove(&id);
        }
        if let Some(origin) = entry.event.extra.as_ref().and_then(|e| e.origin) {
            store.by_origin.remove(&origin);
        }
        if let Some(queue) = store.queue_mut() {
            queue.count_level(entry.event.priority, false);
        }
        let size = self.bodies.get(entry.event.body).map_or(0, Message::len) as u64;
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
        if kept {
            store.held_bytes += size;
            store.spool.insert(id, entry);
        } else {
            self.bodies.release(entry.event.body, entry.on_disk);
        }
    }

    pub(crate) fn apply_arrived(
        &mut self,
        key: StoreKey,
        number: u64,
        event: StoredEvent,
        duplicate: bool,
        durable: bool,
    ) {
        self.bodies.hold(event.body, durable);
        let size = self.bodies.get(event.body).map_or(0, Message::len) as u64;
        self.pass_arrivals(key, number);
        let under_way = self.step_under_way();
        let Some(store) = self.store_mut(key) else { return };
        store.held_bytes += size;
        if durable {
            store.last_after = store.last_after.max(under_way);
        }
        store.arrivals.push_back(Arrival { number, event, duplicate, on_disk: durable });
    }

    /// Arrival numbers up to this one were given.
    pub(crate) fn pass_arrivals(&mut self, key: StoreKey, number: u64) {
        if let Some(store) = self.store_mut(key) {
            store.next_arrival = store.next_arrival.max(number.saturating_add(1));
        }
    }

    /// Frees spooled events that every join has passed.
    pub(crate) fn free_spool(&mut self, key: StoreKey) {
        if self.store(key).is_none_or(|store| store.spool.is_empty()) {
            return;
        }
        let passed = self.lowest_join_cursor(key).unwrap_or(u64::MAX);
        while let Some(entry) = self.store_mut(key).and_then(|s| s.spool.first_entry()) {
            if *entry.key() > passed {
                return;
            }
            let entry = entry.remove();
            self.let_go(key, &entry.event, entry.on_disk);
        }
    }

    /// Frees arrivals that every archive join has recorded.
    pub(crate) fn free_arrivals(&mut self, key: StoreKey) {
        let Some(store) = self.store(key).filter(|store| !store.arrivals.is_empty()) else { return };
        let archives = || store.archives_out.iter().filter_map(|key| self.joins.get(key));
        let cursor = archives().map(|j| j.cursor).min().unwrap_or(u64::MAX);
        let passed = archives().map(|j| j.passed).min().unwrap_or(u64::MAX);
        while let Some(store) = self.store_mut(key) {
            // What is on disk goes when a restart would not look for it again.
            let gone = |a: &Arrival| a.number <= if a.on_disk { cursor } else { passed };
            let Some(arrival) =
                store.arrivals.front().is_some_and(gone).then(|| store.arrivals.pop_front()).flatten()
            else {
                return;
            };
            self.let_go(key, &arrival.event, arrival.on_disk);
        }
    }

    /// An event that was held for joins is needed no more.
    fn let_go(&mut self, key: StoreKey, event: &StoredEvent, on_disk: bool) {
        let size = self.bodies.get(event.body).map_or(0, Message::len) as u64;
        if let Some(store) = self.store_mut(key) {
            store.held_bytes = store.held_bytes.saturating_sub(size);
        }
        self.bodies.release(event.body, on_disk);
    }

    /// Makes the indexes of a store what its new settings say.
    pub(crate) fn rebuild_indexes(&mut self, key: StoreKey) {
        let Some(store) = self.store(key) else { return };
        let mut keyed = std::collections::BTreeMap::<_, std::collections::VecDeque<EventId>>::new();
        for entry in store.log.iter() {
            for key in self.publish_key_values(key, &entry.event) {
                keyed.entry(key).or_default().push_back(entry.event.id);
            }
        }
        let Some(store) = self.store_mut(key) else { return };
        store.keyed = keyed;
        let leaves: Vec<(u64, EventId)> = store
            .log
            .iter()
            .filter(|e| !(store.is_queue() && e.hold == Hold::Delivered))
            .map(|e| (store.leaves_at(&e.event), e.event.id))
            .filter(|&(at, _)| at != 0)
            .collect();
        store.expiry = leaves.into_iter().collect();
        if let Kind::Queue(queue) = &mut store.kind {
            let mut ready = Ready::default();
            queue.levels = [0; PRIORITIES];
            for entry in store.log.iter() {
                queue.count_level(entry.event.priority, true);
                if entry.hold == Hold::Ready {
                    ready.insert(queue.level(entry.event.priority), entry.event.id);
                }
            }
            queue.ready = ready;
        }
    }
}

impl Store {
    /// Remembers a message-id.
    pub(crate) fn remember_message_id(&mut self, id: &str, event: EventId, at: WallMs, durable: bool) {
        let window = self.publisher_dedupe_window();
        self.message_ids.remember(id, Seen { event, at, durable }, window);
    }
}

/// What an event's extra facts add to the memory of its store.
fn remember_extra(store: &mut Store, event: &StoredEvent, extra: &Extra, durable: bool) {
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
        store.remember_message_id(message_id, event.id, event.arrived, durable);
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
