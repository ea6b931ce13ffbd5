//! Room in a store, and how events leave by capacity and by time (5.1, RET-5, RET-6, QU-6).

use crate::dead_letter::Cause;
use crate::engine::{Engine, Task};
use crate::log::{Entry, Hold};
use crate::ranges::push_id;
use crate::reader::ReaderKey;
use crate::store::Store;
use crate::view::View;
use postroad_model::id::{EventId, StoreKey, WallMs};
use postroad_model::message::Message;
use postroad_model::refusal::{Code, Refusal};
use postroad_record::{IdRange, Record, Removal, StoredEvent};

/// Events that one task of expiry or eviction removes at most.
const EXPIRED_PER_TASK: usize = 256;
/// Looks at readers that are behind, for the events that it removes, after which such a task removes no more.
const LOOKS_PER_TASK: usize = 8_192;
/// Pages of events that one task of expiry looks through at most.
const PAGES_PER_TASK: usize = 64;
/// Events that one arrival evicts at most: where a capacity was lowered, a task removes the rest.
const EVICTED_PER_ARRIVAL: usize = 8;

/// What came of the attempt to evict the oldest event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eviction {
    /// It is gone.
    Done,
    /// Consumers hold all there is.
    NothingFree,
    /// Nothing can take it, so it stays.
    Kept,
}

impl Engine {
    /// Whether one more event fits into the store; `durable` if it is to be on disk. What it replaces by these `values` of
    /// publish keys is room for it. Without `honour_capacity` the oldest event makes room.
    ///
    /// # Errors
    /// `STORE_FULL`, for a queue `QUEUE_FULL`; `JOIN_SPOOL_FULL` where joins hold as much as they may; `DISK_FULL`.
    pub(crate) fn make_room(
        &mut self,
        key: StoreKey,
        durable: bool,
        values: &[(String, String)],
    ) -> Result<(), Refusal> {
        let Some(store) = self.store(key) else { return Ok(()) };
        if durable {
            self.check_disk(&store.name)?;
        }
        self.check_spool(store)?;
        if !self.lacks_room(store, values) {
            return Ok(());
        }
        if store.honour_capacity() {
            let (name, capacity) = (store.name.to_string(), store.capacity());
            let text = format!("'{name}' is full: it holds the {capacity} events that its capacity allows");
            let code = if store.is_queue() { Code::QueueFull } else { Code::StoreFull };
            return Err(Refusal::new(code, name, text));
        }
        for _ in 0..EVICTED_PER_ARRIVAL {
            // What was evicted is replaced no more, so it is counted anew.
            if !self.store(key).is_some_and(|store| self.lacks_room(store, values)) {
                return Ok(());
            }
            if self.is_step_long() {
                break;
            }
            match self.evict_oldest(key) {
                Eviction::Done => {}
                Eviction::NothingFree if self.store(key).is_some_and(waits_alone) => {
                    return Err(self.cannot_evict(key));
                }
                Eviction::NothingFree => return Ok(()),
                Eviction::Kept => return Err(self.cannot_evict(key)),
            }
        }
        self.schedule(Task::Evict(key));
        Ok(())
    }

    /// Whether the store is full also without what an event with these values of publish keys replaces.
    fn lacks_room(&self, store: &Store, values: &[(String, String)]) -> bool {
        let replaced = || store.replaced_by(values).len() as u64;
        is_full(store) && store.taken().saturating_sub(replaced()) >= u64::from(store.capacity())
    }

    /// The values of publish keys that an event has, if only what it replaces is room for it.
    pub(crate) fn values_for_room(
        &self,
        store: &Store,
        message: Option<&Message>,
        event: &StoredEvent,
    ) -> Vec<(String, String)> {
        match message {
            Some(message) if is_full(store) => store.publish_key_values(&View { message, event }),
            _ => Vec::new(),
        }
    }

    /// The oldest event has to make room, and nothing can take it: rather than losing it the new one is refused.
    fn cannot_evict(&self, key: StoreKey) -> Refusal {
        let Some(store) = self.store(key) else { return Refusal::new(Code::StoreFull, "", "it is full") };
        let (name, dlq) = (store.name.to_string(), &self.settings.dead_letter_queue);
        let text = if waits_alone(store) {
            format!(
                "'{name}' is full of messages that wait for their delivery time: cancel some, or send later"
            )
        } else {
            format!(
                "'{name}' is full, and neither its dead event store nor '{dlq}' can take the oldest event: make room there"
            )
        };
        let code = if store.is_queue() { Code::QueueFull } else { Code::StoreFull };
        Refusal::new(code, name, text)
    }

    /// Evicts what is above the capacity of a store that does not honour it; whether there is more to do.
    pub(crate) fn evict(&mut self, key: StoreKey) -> bool {
        let oldest = self.store(key).and_then(|store| store.log.first()).map_or(0, |entry| entry.event.id);
        for _ in 0..self.removed_singly(key, oldest) {
            if self.is_step_long() {
                break;
            }
            let over = |store: &Store| !store.honour_capacity() && is_over(store);
            if !self.store(key).is_some_and(over) || self.evict_oldest(key) != Eviction::Done {
                return false;
            }
        }
        true
    }

    /// Refuses what adds to the disk while that has no room.
    pub(crate) fn check_disk(&self, name: &str) -> Result<(), Refusal> {
        if !self.disk_full {
            return Ok(());
        }
        let text = "the disk of this broker is full: make room; consumers can go on";
        Err(Refusal::new(Code::DiskFull, name, text))
    }

    /// Refuses where what is held for joins has reached its limit (FWD-2).
    fn check_spool(&self, store: &Store) -> Result<(), Refusal> {
        let events = (store.spool.len() + store.arrivals.len()) as u64;
        if events < self.settings.spool_max_events && store.held_bytes < self.settings.spool_max_bytes {
            return Ok(());
        }
        let name = store.name.to_string();
        let text =
            format!("{events} events of '{name}' wait for its joins, the limit: unblock or delete the join");
        Err(Refusal::new(Code::JoinSpoolFull, name, text))
    }

    /// Refuses a repetition where the archives of a store could not be told of it. Elsewhere it takes no room.
    pub(crate) fn check_repeated_arrival(&self, store: &Store, durable: bool) -> Result<(), Refusal> {
        if store.archives_out.is_empty() {
            return Ok(());
        }
        if store.keeps_on_disk(durable) {
            self.check_disk(&store.name)?;
        }
        self.check_spool(store)
    }

    fn evict_oldest(&mut self, key: StoreKey) -> Eviction {
        let Some(store) = self.store(key) else { return Eviction::NothingFree };
        let Some(entry) = oldest_free(store).cloned() else { return Eviction::NothingFree };
        let id = entry.event.id;
        self.offer_up_to(key, id);
        let Some(store) = self.store(key) else { return Eviction::NothingFree };
        let cause = Cause {
            code: Code::StoreFull,
            text: "evicted because the store was full".into(),
            component: component(store),
            named_object: None,
            annotations: None,
        };
        if !self.lay_out(key, &entry.event, &cause) {
            return Eviction::Kept;
        }
        self.note_skipped(key, &[id]);
        self.count(key, |c| c.evicted_total += 1);
        self.take_out(key, &[id], Removal::Evicted);
        Eviction::Done
    }

    /// Takes events out of a store: in records of their own those that are on disk, and those that joins still need.
    pub(crate) fn take_out(&mut self, key: StoreKey, ids: &[EventId], why: Removal) {
        let may_keep = matches!(why, Removal::Evicted | Removal::Replaced);
        if may_keep && let Some(&last) = ids.last() {
            self.offer_up_to(key, last);
        }
        let Some(store) = self.store(key) else { return };
        let mut lists: [Vec<IdRange>; 4] = Default::default();
        for &id in ids {
            let Some(entry) = store.log.get(id) else { continue };
            let kept = may_keep && store.is_needed_by_joins(id);
            push_id(&mut lists[usize::from(entry.on_disk) * 2 + usize::from(kept)], id);
        }
        for (at, ids) in lists.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
            let (on_disk, kept) = (at / 2 == 1, at % 2 == 1);
            self.record(Record::Removed { store: key, ids, why, kept }, on_disk);
        }
        if !matches!(why, Removal::Unneeded | Removal::Consumed | Removal::Expired) {
            self.move_on(key, ids);
        }
        self.room_in(key);
        self.reap_later(key);
    }

    /// What makes room for others has been offered before, or a burst would pass by readers that keep up.
    fn offer_up_to(&mut self, key: StoreKey, last: EventId) {
        while self.store(key).and_then(Store::channel).is_some_and(|channel| channel.offered < last) {
            if !self.fan_out_now(key) {
                return;
            }
        }
    }

    /// Readers that stood at an event that is gone look for the next one, so that they hold nothing that they do not
    /// want (EX-6).
    fn move_on(&mut self, key: StoreKey, ids: &[EventId]) {
        let Some(channel) = self.store(key).and_then(Store::channel) else { return };
        let waiting: Vec<ReaderKey> = ids
            .iter()
            .flat_map(|&id| channel.readers.needs.range((id, ReaderKey::FIRST)..(id + 1, ReaderKey::FIRST)))
            .map(|&(_, reader)| reader)
            .collect();
        for reader in waiting {
            self.schedule(Task::Feed(reader));
        }
    }

    /// Sees to it that expiry looks at the store at this wall-clock time.
    pub(crate) fn watch_expiry(&mut self, key: StoreKey, at: WallMs) {
        let Some(store) = self.store_mut(key) else { return };
        if store.expiry_timer == 0 || at < store.expiry_timer {
            store.expiry_timer = at;
            self.wake_at_wall(at, Task::Expire(key));
        }
    }

    /// Removes events whose time is over; whether there is more to do.
    pub(crate) fn expire(&mut self, key: StoreKey) -> bool {
        let mut gone = Vec::new();
        let more = self.lay_out_all_expired(key, &mut gone);
        gone.sort_unstable();
        self.remove_expired(key, &gone);
        let earliest = self.store(key).and_then(|store| store.lifetimes.first());
        if earliest.is_none_or(|(at, _)| at > self.now.wall) {
            self.move_on_from_expired(key);
        }
        more
    }

    /// Finds events whose time is over, to be removed together; whether there is more to do.
    fn lay_out_all_expired(&mut self, key: StoreKey, gone: &mut Vec<EventId>) -> bool {
        let (mut expired, mut looks) = (0, 0);
        while expired < EXPIRED_PER_TASK && looks < PAGES_PER_TASK && !self.is_step_long() {
            let now = self.now.wall;
            let Some(store) = self.store_mut(key) else { return false };
            if store.expiry_timer <= now {
                store.expiry_timer = 0;
            }
            let Some((at, page)) = store.lifetimes.first() else { return false };
            if at > now {
                self.watch_expiry(key, at);
                return false;
            }
            looks += 1;
            let mut due: Vec<(WallMs, EventId)> = Vec::new();
            let mut next = None;
            for (entry, leaves) in store.log.in_page(page).filter_map(|e| Some((e, store.expires_at(e)?))) {
                if leaves <= now {
                    due.push((leaves, entry.event.id));
                } else {
                    next = Some(next.map_or(leaves, |next: WallMs| next.min(leaves)));
                }
            }
            due.sort_unstable();
            let last = due.iter().map(|&(_, id)| id).max().unwrap_or(0);
            let room = at_once(self.asked_for_each(key, last)).saturating_sub(expired);
            let Some(store) = self.store_mut(key) else { return false };
            let all = due.len() <= room;
            if all {
                store.lifetimes.set(page, next);
            }
            due.truncate(room);
            expired += due.len();
            if !self.lay_out_expired_of_page(key, &due, gone) {
                return false;
            }
            if !all {
                // The page would be found again, with what is to be removed still in it.
                return true;
            }
        }
        true
    }

    /// Lays out events of a page of which no time is noted any more; it is noted again for those that do not fit into the
    /// step. False if a message must be read first.
    fn lay_out_expired_of_page(
        &mut self,
        key: StoreKey,
        due: &[(WallMs, EventId)],
        gone: &mut Vec<EventId>,
    ) -> bool {
        let by_keys = self.lays_out_by_keys(key);
        for &(leaves, id) in due {
            let long = self.is_step_long();
            if long || (by_keys && !self.is_at_hand(key, id, Task::Expire(key))) {
                if let Some(store) = self.store_mut(key) {
                    store.lifetimes.note(leaves, id);
                }
                return long;
            }
            if self.lay_out_expired(key, id) {
                gone.push(id);
            } else {
                self.keep_expired(key, id);
            }
        }
        true
    }

    /// Whether an event's time in the store is over.
    pub(crate) fn is_expired(&self, key: StoreKey, id: EventId) -> bool {
        let Some(store) = self.store(key) else { return false };
        let leaves = store.log.get(id).map_or(0, |entry| store.leaves_at(&entry.event));
        leaves != 0 && leaves <= self.now.wall
    }

    /// Removes one event whose time is over; false if it was to be laid out and nothing can take it.
    pub(crate) fn expire_one(&mut self, key: StoreKey, id: EventId) -> bool {
        if !self.lay_out_expired(key, id) {
            return false;
        }
        self.remove_expired(key, &[id]);
        self.move_on_from_expired(key);
        true
    }

    /// Puts an event whose time is over where its store wants such; false if nothing can take it.
    fn lay_out_expired(&mut self, key: StoreKey, id: EventId) -> bool {
        let Some(store) = self.store(key) else { return true };
        let Some(entry) = store.log.get(id).cloned() else { return true };
        let cause = Cause {
            code: Code::Expired,
            text: "its time to live was over before it was consumed".into(),
            component: component(store),
            named_object: None,
            annotations: None,
        };
        self.lay_out(key, &entry.event, &cause)
    }

    /// Removes events, ascending, that were laid out.
    fn remove_expired(&mut self, key: StoreKey, ids: &[EventId]) {
        self.note_skipped(key, ids);
        self.count(key, |c| c.expired_total += ids.len() as u64);
        self.take_out(key, ids, Removal::Expired);
        if let (Some(store), Some(&first), Some(&last)) = (self.store_mut(key), ids.first(), ids.last()) {
            let (lowest, highest) = store.expired.unwrap_or((first, last));
            store.expired = Some((lowest.min(first), highest.max(last)));
        }
    }

    /// Readers that stood at what expired look for the next event, once all of it is gone: they would pass the rest of it
    /// unseen, and nobody would be told that they miss it.
    fn move_on_from_expired(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key) else { return };
        let Some((first, last)) = store.expired.take() else { return };
        let Some(channel) = store.channel() else { return };
        let places = (first, ReaderKey::FIRST)..(last.saturating_add(1), ReaderKey::FIRST);
        let waiting: Vec<ReaderKey> =
            channel.readers.needs.range(places).map(|&(_, reader)| reader).collect();
        for reader in waiting {
            self.schedule(Task::Feed(reader));
        }
    }

    /// How many events a task may remove one by one, of which the first is this one: each is a record for every reader
    /// that is behind.
    pub(crate) fn removed_singly(&self, key: StoreKey, first: EventId) -> usize {
        at_once(self.readers_behind(key, first).count())
    }

    /// Events left the store: what waited for room can go on.
    pub(crate) fn room_in(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key) else { return };
        let waiting = std::mem::take(&mut store.waiting);
        for join in waiting {
            self.schedule(Task::Join(join));
        }
    }
}

/// How many events a task may remove at once where so many readers must be looked at for each; one at least.
fn at_once(readers: usize) -> usize {
    (LOOKS_PER_TASK / readers.max(1)).clamp(1, EXPIRED_PER_TASK)
}

/// Whether the store holds as many events as its capacity allows, with those that wait for their time.
pub(crate) fn is_full(store: &Store) -> bool {
    let capacity = u64::from(store.capacity());
    capacity > 0 && store.taken() >= capacity
}

/// Whether the store holds more events than its capacity allows.
fn is_over(store: &Store) -> bool {
    let capacity = u64::from(store.capacity());
    capacity > 0 && store.taken() > capacity
}

/// Whether a store is full of messages that wait for their time: what was taken for later is not evicted (QU-9).
fn waits_alone(store: &Store) -> bool {
    let capacity = u64::from(store.capacity());
    capacity > 0 && store.schedule.len() >= capacity
}

/// The oldest event that no consumer of a queue holds: what a consumer has is not taken from under it.
fn oldest_free(store: &Store) -> Option<&Entry> {
    let Some(queue) = store.queue() else { return store.log.first() };
    let others = || store.log.from(0).find(|e| e.hold != Hold::Delivered);
    match queue.ready.oldest() {
        // Delayed and blocked messages are few; only they can be older than the first that is ready.
        Some(ready) if queue.delayed.is_empty() && queue.blocked.is_empty() => store.log.get(ready),
        _ => others(),
    }
}

/// How a store is named in a dead-letter header.
pub(crate) fn component(store: &Store) -> String {
    let kind = if store.is_queue() { "queue" } else { "channel" };
    format!("{kind}:{}", store.name)
}
