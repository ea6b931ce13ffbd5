//! Room in a store, and how events leave by capacity and by time (5.1, RET-5, RET-6, QU-6).

use crate::dead_letter::Cause;
use crate::engine::{Engine, Task};
use crate::log::Hold;
use crate::store::Store;
use postroad_model::id::{EventId, StoreKey};
use postroad_model::refusal::{Code, Refusal};
use postroad_record::{Record, Removal};

/// Events that one task of expiry removes at most.
const EXPIRED_PER_TASK: usize = 256;

impl Engine {
    /// Whether one more event fits into the store. Without `honour_capacity` the oldest event makes room.
    ///
    /// # Errors
    /// `STORE_FULL`, for a queue `QUEUE_FULL`; `JOIN_SPOOL_FULL` where evicting would overfill what joins still need.
    pub(crate) fn make_room(&mut self, key: StoreKey) -> Result<(), Refusal> {
        let Some(store) = self.store(key) else { return Ok(()) };
        self.check_disk(store)?;
        self.check_spool(store)?;
        if !is_full(store) {
            return Ok(());
        }
        if store.honour_capacity() {
            let (name, capacity) = (store.name.to_string(), store.capacity());
            let text = format!("'{name}' is full: it holds the {capacity} events that its capacity allows");
            let code = if store.is_queue() { Code::QueueFull } else { Code::StoreFull };
            return Err(Refusal::new(code, name, text));
        }
        while self.store(key).is_some_and(is_full) {
            if !self.evict_oldest(key) {
                break;
            }
        }
        Ok(())
    }

    /// Refuses while the disk has no room; a temporary queue needs none.
    fn check_disk(&self, store: &Store) -> Result<(), Refusal> {
        if !self.disk_full || store.owner.is_some() {
            return Ok(());
        }
        let text = "the disk of this broker is full: make room; consumers can go on";
        Err(Refusal::new(Code::DiskFull, store.name.to_string(), text))
    }

    /// Refuses where the events held for joins have reached their limit (FWD-2).
    fn check_spool(&self, store: &Store) -> Result<(), Refusal> {
        let events = store.spool.len() as u64;
        if events < self.settings.spool_max_events {
            return Ok(());
        }
        let name = store.name.to_string();
        let text =
            format!("{events} events of '{name}' wait for its joins, the limit: unblock or delete the join");
        Err(Refusal::new(Code::JoinSpoolFull, name, text))
    }

    fn evict_oldest(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        // What a consumer of a queue holds is not taken from under it.
        let oldest = store.log.iter().find(|e| e.hold != Hold::Delivered).cloned();
        let Some(entry) = oldest else { return false };
        let id = entry.event.id;
        let durable = store.keeps_on_disk(entry.event.durable);
        let cause = Cause {
            code: Code::StoreFull,
            text: "evicted because the store was full".into(),
            component: component(store),
            named_object: None,
        };
        self.note_skipped(key, id);
        self.to_dead_event_store(key, &entry, &cause);
        self.count(key, |c| c.evicted_total += 1);
        self.record(Record::Removed { store: key, ids: vec![(id, id)], why: Removal::Evicted }, durable);
        true
    }

    /// Removes events whose time is over; whether there is more to do.
    pub(crate) fn expire(&mut self, key: StoreKey) -> bool {
        for _ in 0..EXPIRED_PER_TASK {
            let Some(store) = self.store(key) else { return false };
            let Some((at, id)) = first_to_expire(store) else { return false };
            if at > self.now.wall {
                self.wake_at_wall(at, Task::Expire(key));
                return false;
            }
            self.expire_one(key, id);
        }
        true
    }

    /// Whether an event's time in the store is over.
    pub(crate) fn is_expired(&self, key: StoreKey, id: EventId) -> bool {
        let Some(store) = self.store(key) else { return false };
        let leaves = store.log.get(id).map_or(0, |entry| store.leaves_at(&entry.event));
        leaves != 0 && leaves <= self.now.wall
    }

    /// Removes one event whose time is over.
    pub(crate) fn expire_one(&mut self, key: StoreKey, id: EventId) {
        let Some(store) = self.store(key) else { return };
        let Some(entry) = store.log.get(id).cloned() else { return };
        let durable = store.keeps_on_disk(entry.event.durable);
        let cause = Cause {
            code: Code::Expired,
            text: "its time to live was over before it was consumed".into(),
            component: component(store),
            named_object: None,
        };
        self.note_skipped(key, id);
        self.to_dead_event_store(key, &entry, &cause);
        self.count(key, |c| c.expired_total += 1);
        self.record(Record::Removed { store: key, ids: vec![(id, id)], why: Removal::Expired }, durable);
        self.room_in(key);
    }

    /// Events left the store: what waited for room can go on.
    pub(crate) fn room_in(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key) else { return };
        let waiting = std::mem::take(&mut store.waiting);
        for join in waiting {
            self.schedule(Task::Join(join));
        }
    }

    /// Whether any event from `first` to `last` is on disk.
    pub(crate) fn any_on_disk(&self, key: StoreKey, first: EventId, last: EventId) -> bool {
        let Some(store) = self.store(key) else { return false };
        let mut at = first;
        while let Some(entry) = store.log.first_from(at).filter(|e| e.event.id <= last) {
            if store.keeps_on_disk(entry.event.durable) {
                return true;
            }
            at = entry.event.id + 1;
        }
        false
    }
}

/// Whether the store holds as many events as its capacity allows.
pub(crate) fn is_full(store: &Store) -> bool {
    let capacity = u64::from(store.capacity());
    capacity > 0 && store.log.len() >= capacity
}

/// The next event to expire that no consumer of a queue holds (QU-6).
fn first_to_expire(store: &Store) -> Option<(u64, EventId)> {
    let held = |id: &EventId| store.log.get(*id).is_some_and(|e| e.hold == Hold::Delivered);
    store.expiry.iter().find(|(_, id)| !held(id)).copied()
}

/// How a store is named in a dead-letter header.
pub(crate) fn component(store: &Store) -> String {
    let kind = if store.is_queue() { "queue" } else { "channel" };
    format!("{kind}:{}", store.name)
}
