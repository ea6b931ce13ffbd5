//! What a record does to the events of a store, and to the indexes over them (`apply`).

use crate::effect::Step;
use crate::engine::Engine;
use crate::lifetimes::Lifetimes;
use crate::log::{Entry, EventLog, Hold};
use crate::message_ids::Seen;
use crate::ready::{PRIORITIES, Ready};
use crate::store::{Arrival, Kind, Store, taken_origin};
use crate::view::View;
use postroad_model::id::{BodyId, EventId, Origin, StoreKey, WallMs};
use postroad_model::settings::PublisherDedupe;
use postroad_record::{IdRange, PagedEvent, StoredEvent};
use postroad_selector::{Properties, Value};

impl Engine {
    pub(crate) fn apply_stored(&mut self, key: StoreKey, event: StoredEvent, durable: bool) {
        let size = self.bodies.hold(event.body, durable);
        let under_way = self.step_under_way();
        let Some(store) = self.store_mut(key) else { return };
        let id = event.id;
        store.next_id = store.next_id.max(id.saturating_add(1));
        store.bytes += size;
        store.counters.stored_total += 1;
        if durable {
            store.last_after = store.last_after.max(under_way);
            store.durable_next = store.durable_next.max(id.saturating_add(1));
        }
        if let Some(origin) = origin_of(&event) {
            store.origins.take(origin, event.arrived, &store.dedupe());
        }
        store.index(&event, durable);
        let after = store.last_after;
        store.log.push(Entry { event, on_disk: durable, after, failed: 0, counted: 0, hold: Hold::Ready });
    }

    /// A page of events that a checkpoint kept.
    pub(crate) fn apply_event_page(&mut self, key: StoreKey, page: &[u8]) {
        let Some(store) = self.store_mut(key) else { return };
        let events = match store.log.restore(page) {
            Ok(events) => events,
            Err(error) => {
                // The checksum was right, so a broker wrote this: the start goes on without it, and says so.
                tracing::error!(store = %store.name, %error, "events of a checkpoint are left out");
                return;
            }
        };
        let bodies: Vec<BodyId> = events.iter().map(|paged| paged.event.body).collect();
        let bytes = self.bodies.hold_restored(&bodies);
        let Some(store) = self.store_mut(key) else { return };
        store.bytes += bytes;
        store.counters.stored_total += events.len() as u64;
        if let Some(last) = events.last() {
            let behind = last.event.id.saturating_add(1);
            store.next_id = store.next_id.max(behind);
            store.durable_next = store.durable_next.max(behind);
        }
        for PagedEvent { event, .. } in &events {
            store.take_back_origin(event);
            store.index(event, true);
        }
    }

    /// Bodies that a checkpoint kept.
    pub(crate) fn apply_body_page(&mut self, page: &[u8]) {
        if let Err(error) = self.bodies.restore_page(page) {
            tracing::error!(%error, "messages of a checkpoint are left out");
        }
    }

    /// An event that is held for the joins of a store alone.
    pub(crate) fn apply_spooled(&mut self, key: StoreKey, event: StoredEvent, durable: bool) {
        self.bodies.hold(event.body, durable);
        let size = self.bodies.size(event.body);
        let Some(store) = self.store_mut(key) else { return };
        store.held_bytes += size;
        store.next_id = store.next_id.max(event.id.saturating_add(1));
        store.durable_next = store.durable_next.max(event.id.saturating_add(1));
        store.take_back_origin(&event);
        store.remember_id_of(&event, durable);
        let entry =
            Entry { event, on_disk: durable, after: Step(0), failed: 0, counted: 0, hold: Hold::Ready };
        store.spool.insert(entry.event.id, entry);
    }

    /// The publish keys of the store that the event has, with its values (5.1).
    pub(crate) fn publish_key_values(&self, key: StoreKey, event: &StoredEvent) -> Vec<(String, String)> {
        let Some(store) = self.store(key).filter(|store| store.has_publish_keys()) else { return Vec::new() };
        // Who stores here has seen to it that the message is in memory, unless it can't be read any more.
        let Some(message) = self.bodies.get(event.body) else { return Vec::new() };
        store.publish_key_values(&View { message, event })
    }

    pub(crate) fn apply_removed(&mut self, key: StoreKey, ids: &[IdRange], kept: bool) {
        for &(first, last) in ids {
            let mut next = Some(first);
            while let Some(id) = next.filter(|&id| id <= last) {
                next = if self.remove_one(key, id, kept) {
                    id.checked_add(1)
                } else {
                    // Mostly there are no gaps in a range.
                    let store = self.store(key);
                    store.and_then(|store| store.log.first_from(id)).map(|entry| entry.event.id)
                };
            }
        }
        if kept {
            self.free_spool(key);
        }
    }

    /// Removes an event; whether it was there.
    fn remove_one(&mut self, key: StoreKey, id: EventId, kept: bool) -> bool {
        let Some(store) = self.store_mut(key) else { return false };
        let Some(entry) = store.log.remove(id) else { return false };
        store.release_hold_of(&entry);
        store.leave_indexes(&entry.event);
        if let Some(queue) = store.queue_mut() {
            queue.count_level(entry.event.priority, false);
        }
        store.keys.remove(id);
        // Its joins still need what they hold of it.
        let freed = if kept { 0 } else { store.annotated.forget(id) };
        self.freed_annotated(freed);
        let size = if kept {
            self.bodies.size(entry.event.body)
        } else {
            self.bodies.release(entry.event.body, entry.on_disk)
        };
        if let Some(store) = self.store_mut(key) {
            store.bytes = store.bytes.saturating_sub(size);
            if kept {
                store.held_bytes += size;
                store.spool.insert(id, entry);
            }
        }
        true
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
        let size = self.bodies.size(event.body);
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
            let freed = self.store_mut(key).map_or(0, |store| store.annotated.forget(entry.event.id));
            self.freed_annotated(freed);
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
        let size = self.bodies.size(event.body);
        if let Some(store) = self.store_mut(key) {
            store.held_bytes = store.held_bytes.saturating_sub(size);
        }
        self.bodies.release(event.body, on_disk);
    }

    /// Makes the indexes of a store what its new settings say.
    pub(crate) fn rebuild_indexes(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key) else { return };
        if let Kind::Channel(channel) = &store.kind {
            let names = channel.settings.publish_keys.iter().map(|key| key.name.as_str());
            store.keys.keep_only(&names.collect());
        }
        let mut lifetimes = Lifetimes::default();
        store.log.for_each(|entry| {
            if let Some(leaves) = store.expires_at(entry) {
                lifetimes.note(leaves, entry.event.id);
            }
        });
        store.lifetimes = lifetimes;
        if let Kind::Queue(queue) = &mut store.kind {
            let mut ready = Ready::default();
            let mut levels = [0; PRIORITIES];
            store.log.for_each(|e| {
                levels[usize::from(queue.level(e.event.priority))] += 1;
                if e.hold == Hold::Ready {
                    ready.insert(queue.level(e.event.priority), e.event.id);
                }
            });
            queue.levels = levels;
            queue.ready = ready;
        }
    }
}

impl Store {
    /// Whether it tells events apart by publish keys: then their messages must be in memory when they are stored.
    pub(crate) fn has_publish_keys(&self) -> bool {
        self.channel().is_some_and(|channel| !channel.settings.publish_keys.is_empty())
    }

    /// Its publish keys that an event has, with their values (5.1).
    pub(crate) fn publish_key_values(&self, view: &View<'_>) -> Vec<(String, String)> {
        let keys = self.channel().into_iter().flat_map(|channel| &channel.settings.publish_keys);
        keys.filter_map(|key| Some((key.name.clone(), key_text(view.property(&key.name))?))).collect()
    }

    /// Puts a stored event into the indexes.
    fn index(&mut self, event: &StoredEvent, durable: bool) {
        self.remember_id_of(event, durable);
        if let (Some(origin), false) = (origin_of(event), self.is_queue()) {
            self.copies.note(origin, event.id);
        }
        let leaves = self.leaves_at(event);
        if leaves != 0 {
            self.lifetimes.note(leaves, event.id);
        }
        if let Kind::Queue(queue) = &mut self.kind {
            let level = queue.level(event.priority);
            queue.ready.insert(level, event.id);
            queue.count_level(event.priority, true);
        }
    }

    /// Takes an event that is in the log no more out of the indexes.
    fn leave_indexes(&mut self, event: &StoredEvent) {
        self.unburied.remove(&event.id);
        if let Some(origin) = event.extra.as_ref().and_then(|extra| extra.origin) {
            self.copies.forget(origin, event.id);
        }
        let page = EventLog::page_of(event.id);
        let is_indexed = !self.lifetimes.is_empty() || !self.copies.is_empty();
        if is_indexed && self.log.is_empty_page(page) {
            self.lifetimes.set(page, None);
            self.copies.forget_page(page);
        }
    }

    /// Remembers where an event came from that a checkpoint kept.
    fn take_back_origin(&mut self, event: &StoredEvent) {
        if let Some(origin) = origin_of(event) {
            self.origins.take_back(origin, event.arrived, &self.dedupe());
        }
    }

    /// Remembers the message-id of an event, or of a message that waits for its time and has no event id yet.
    pub(crate) fn remember_id_of(&mut self, event: &StoredEvent, durable: bool) {
        let message_id = event.extra.as_ref().and_then(|extra| extra.message_id.as_deref());
        if let Some(message_id) = message_id
            && self.publisher_dedupe() == PublisherDedupe::MessageId
        {
            self.remember_message_id(message_id, event.id, event.arrived, durable);
        }
    }

    /// Remembers a message-id.
    pub(crate) fn remember_message_id(&mut self, id: &str, event: EventId, at: WallMs, durable: bool) {
        let window = self.publisher_dedupe_window();
        self.message_ids.remember(id, Seen { event, at, durable }, window);
    }
}

/// The origin that a store takes with an event.
fn origin_of(event: &StoredEvent) -> Option<Origin> {
    taken_origin(event.extra.as_ref()?)
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
