//! What happens to one event on a join: hop budget, split horizon, identity, room (HOP, LOOP, DUP, FWD).

use crate::dead_letter::Cause;
use crate::engine::{Engine, Task};
use crate::join::{Crossing, Stop};
use crate::origins::Verdict;
use crate::publish::Facts;
use crate::reader::Position;
use crate::store::Store;
use crate::view::View;
use postroad_model::id::{EventId, JoinKey, Origin, StoreKey};
use postroad_model::refusal::Code;
use postroad_model::settings::LateCopies;
use postroad_record::{Extra, Record, StoredEvent};
use postroad_selector::Selector;

/// Stores that an event's path remembers at most (LOOP-3).
const PATH_LENGTH: usize = 32;

/// How far a batch got.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The new cursor, if what was settled is on disk.
    pub(crate) moved: Option<u64>,
    /// What stopped it.
    pub(crate) stop: Option<Stop>,
    /// Whether there is more to do.
    pub(crate) more: bool,
    /// A message must be read before it can go on.
    pub(crate) reading: bool,
}

/// A source event that a join looks at.
struct Next {
    event: StoredEvent,
    /// After a restart the join would find it again, unless the cursor says that it is past it.
    needs_cursor: bool,
}

impl Engine {
    /// Forwards up to `batch` events in the order of their ids.
    pub(crate) fn forward_batch(&mut self, key: JoinKey, target: StoreKey, batch: u32) -> Progress {
        let Some(join) = self.joins.get(&key) else { return Progress::default() };
        let (source, reader) = (join.source, join.reader);
        let mut left = batch;
        let mut reading = false;
        let mut stop = self.forward_reoffers(key, source, target, &mut left, &mut reading);
        let (mut dirty, mut more) = (false, true);
        while left > 0 && stop.is_none() && !reading && !self.is_step_long() {
            let Some(Position::Behind(at)) = self.readers.get(reader).map(|r| r.position) else {
                more = false;
                break;
            };
            let Some(Next { event, needs_cursor }) = self.next_on_join(source, at) else {
                self.reach_tail(reader);
                continue;
            };
            let task = Task::Join(key);
            // What is spooled is not in the store's log any more: it is known by its body alone.
            let is_at_hand = !self.must_look(key, source, target, &event)
                || (self.is_at_hand(source, event.id, task) && self.is_body_at_hand(event.body, task));
            if !is_at_hand {
                reading = true;
                break;
            }
            if !self.passes_filter(key, event.id, &event) {
                self.tally(key, |c| c.filtered_total += 1);
            } else if self.is_being_purged(source, &event) != Some(true)
                && let Crossing::Stopped(why) = self.cross(key, source, target, &event)
            {
                stop = Some(why);
                break;
            }
            if let Some(reader) = self.readers.get_mut(reader) {
                reader.position = Position::Behind(event.id + 1);
            }
            dirty |= needs_cursor;
            left -= 1;
        }
        self.list_need(reader);
        let settled = self.join_position(key).saturating_sub(1);
        dirty |= self.is_past_old_filter(key, settled);
        Progress { moved: dirty.then_some(settled), more: more && stop.is_none(), stop, reading }
    }

    /// Whether the cursor would leave behind a filter that was changed.
    fn is_past_old_filter(&self, key: JoinKey, settled: u64) -> bool {
        let oldest = self.joins.get(&key).and_then(|join| join.old_filters.front());
        oldest.is_some_and(|(up_to, _)| *up_to <= settled)
    }

    /// The next event at or above an id, from the store or from what is spooled for its joins.
    fn next_on_join(&self, source: StoreKey, at: EventId) -> Option<Next> {
        let store = self.store(source)?;
        let offered = store.channel()?.offered;
        let stored = store.log.first_from(at).filter(|e| e.event.id <= offered);
        let spooled = store.spool.range(at..).next().map(|(_, entry)| entry);
        if let Some(entry) = spooled.filter(|s| stored.is_none_or(|e| s.event.id < e.event.id)) {
            return Some(Next { event: entry.event.clone(), needs_cursor: true });
        }
        stored.map(|entry| Next { event: entry.event.clone(), needs_cursor: entry.on_disk })
    }

    /// The filter that holds for the source event, or arrival, of this number lets it pass (FIL-2, FIL-4).
    pub(crate) fn passes_filter(&self, key: JoinKey, number: u64, event: &StoredEvent) -> bool {
        let Some(filter) = self.filter_for(key, number) else { return true };
        // A message that can't be read any more goes on, for somebody to see.
        let Some(message) = self.bodies.get(event.body) else { return true };
        filter.matches(&View { message, event })
    }

    /// Whether the message of an event must be looked at to tell if it crosses a join, or what it replaces where it
    /// comes to.
    fn must_look(&self, key: JoinKey, source: StoreKey, target: StoreKey, event: &StoredEvent) -> bool {
        self.has_filter(key, event.id)
            || self.store(target).is_some_and(Store::has_publish_keys)
            || self.lays_out_by_keys(source)
            || self.lays_out_by_keys(target)
            || self.is_being_purged(source, event).is_none()
    }

    /// Whether a filter holds for the source event, or arrival, of this number.
    fn has_filter(&self, key: JoinKey, number: u64) -> bool {
        self.filter_for(key, number).is_some()
    }

    fn filter_for(&self, key: JoinKey, number: u64) -> Option<&Selector> {
        let join = self.joins.get(&key)?;
        match join.old_filters.iter().find(|(up_to, _)| number <= *up_to) {
            Some((_, old)) => old.as_ref(),
            None => self.readers.get(join.reader).and_then(|reader| reader.filter.as_ref()),
        }
    }

    /// Offers events again whose budget rose after the join had passed them (HOP-6).
    fn forward_reoffers(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        target: StoreKey,
        left: &mut u32,
        reading: &mut bool,
    ) -> Option<Stop> {
        while *left > 0 && !self.is_step_long() {
            let id = self.joins.get(&key).and_then(|join| join.reoffers.first().copied())?;
            // What the join has not passed comes by itself.
            let passed = id < self.join_position(key);
            let entry = self.store(source).and_then(|s| s.log.get(id)).filter(|_| passed);
            let (event, durable) = (entry.map(|e| e.event.clone()), entry.is_none_or(|e| e.on_disk));
            if let Some(event) = &event
                && self.must_look(key, source, target, event)
                && !self.is_body_at_hand(event.body, Task::Join(key))
            {
                *reading = true;
                return None;
            }
            if let Some(event) = event
                && self.passes_filter(key, id, &event)
                && self.is_being_purged(source, &event) != Some(true)
                && let Crossing::Stopped(stop) = self.cross(key, source, target, &event)
            {
                return Some(stop);
            }
            self.record(Record::Reoffered { join: key, event: id }, durable);
            *left -= 1;
        }
        None
    }

    /// Carries one event over a join.
    fn cross(&mut self, key: JoinKey, source: StoreKey, target: StoreKey, event: &StoredEvent) -> Crossing {
        let leaves = self.store(source).map_or(0, |store| store.leaves_at(event));
        if leaves != 0 && leaves <= self.now.wall {
            self.tally(key, |c| c.expired_total += 1);
            return Crossing::Settled;
        }
        let Some(budget) = self.budget_after(key, event) else {
            self.tally(key, |c| c.hop_stopped_total += 1);
            return Crossing::Settled;
        };
        let Some(origin) = self.store(source).map(|s| s.origin_of(event)) else { return Crossing::Settled };
        if self.is_behind_horizon(key, target, event, origin) {
            self.tally(key, |c| c.split_horizon_total += 1);
            return Crossing::Settled;
        }
        match self.judge(target, origin) {
            Verdict::Duplicate => self.meet_duplicate(key, source, target, event, origin, budget),
            Verdict::Undecidable if self.refuses_late(target) => self.set_aside(key, source, target, event),
            Verdict::New | Verdict::Undecidable => {
                self.store_joined(key, source, target, event, origin, budget)
            }
        }
    }

    /// The hop budget beyond this join; `None` if the event may not cross it (HOP-2).
    fn budget_after(&self, key: JoinKey, event: &StoredEvent) -> Option<u8> {
        let max_hops = self.joins.get(&key)?.settings.max_hops;
        match event.extra.as_ref().and_then(|extra| extra.budget) {
            None => Some(max_hops),
            Some(0) => None,
            Some(budget) => Some((budget - 1).min(max_hops)),
        }
    }

    /// Whether the event has been at the destination, as its path says (LOOP-3).
    fn is_behind_horizon(&self, key: JoinKey, target: StoreKey, event: &StoredEvent, origin: Origin) -> bool {
        if !self.joins.get(&key).is_some_and(|j| j.settings.split_horizon) {
            return false;
        }
        let Some(target) = self.store(target) else { return false };
        let on_path =
            event.extra.as_ref().is_some_and(|e| e.path.iter().any(|&uid| target.was_identity(uid)));
        on_path || target.was_identity(origin.store)
    }

    /// Whether a store has taken an origin (LOOP-2, DUP-4). What it numbered itself it has.
    fn judge(&self, target: StoreKey, origin: Origin) -> Verdict {
        let Some(store) = self.store(target) else { return Verdict::New };
        if store.was_identity(origin.store) {
            return Verdict::Duplicate;
        }
        store.origins.judge(origin)
    }

    fn refuses_late(&self, target: StoreKey) -> bool {
        self.store(target).is_some_and(|s| s.dedupe().late == LateCopies::DeadLetter)
    }

    /// A copy of what the destination has: not stored, but archived (ARC-3), and it may raise the budget (HOP-6).
    fn meet_duplicate(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        target: StoreKey,
        event: &StoredEvent,
        origin: Origin,
        budget: u8,
    ) -> Crossing {
        let Some(store) = self.store(target) else { return Crossing::Settled };
        if let Err(refusal) = self.check_repeated_arrival(store, event.durable) {
            return self.wait_for_room(key, target, refusal.code);
        }
        let own = store.identities.iter().any(|&(_, uid)| uid == origin.store);
        let held = if own { Some(origin.event) } else { store.copies.find(origin, &store.log) };
        if self.has_archive(target) {
            let extra = Some(Box::new(self.joined_extra(source, event, origin, budget)));
            let (id, arrived) = (held.unwrap_or(event.id), self.now.wall);
            self.record_arrival(target, StoredEvent { id, arrived, extra, ..event.clone() }, true);
        }
        self.tally(key, |c| c.duplicate_total += 1);
        if !own {
            self.raise_budget(key, target, held, budget);
        }
        Crossing::Settled
    }

    fn raise_budget(&mut self, key: JoinKey, target: StoreKey, held: Option<EventId>, budget: u8) {
        let Some(store) = self.store(target).filter(|store| !store.is_queue()) else { return };
        let Some(entry) = held.and_then(|id| store.log.get(id)) else {
            let missed = u64::from(!store.joins_out.is_empty());
            self.tally(key, |c| c.hop_refresh_missed_total += missed);
            return;
        };
        let stored = entry.event.extra.as_ref().and_then(|extra| extra.budget);
        if stored.is_some_and(|stored| budget > stored) {
            let (event, durable) = (entry.event.id, entry.on_disk);
            let record = Record::BudgetRaised { store: target, event, budget: Some(budget), reoffer: true };
            self.record(record, durable);
        }
    }

    /// A copy too old to be judged is neither stored nor dropped (DUP-7).
    fn set_aside(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        target: StoreKey,
        event: &StoredEvent,
    ) -> Crossing {
        let name = self.joins.get(&key).map_or_else(String::new, |j| j.name.clone());
        let Some(store) = self.store(target) else { return Crossing::Settled };
        let dest = store.name.to_string();
        let des = store.dead_event_store().map(str::to_owned);
        let cause = Cause {
            code: Code::DuplicateUndecidable,
            text: format!(
                "'{dest}' has forgotten whether it took this event: check, then retry or discard it"
            ),
            component: format!("join:{name}"),
            named_object: None,
            annotations: None,
        };
        self.count(target, |c| c.undecidable_total += 1);
        tracing::warn!(store = %dest, join = %name, "a copy is too old to be judged; it is set aside");
        self.lay_aside(des.as_deref(), source, event, &dest, &cause)
    }

    /// An event that the destination refuses for good goes to the source's dead event store (FWD-5).
    fn refuse_for_good(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        event: &StoredEvent,
        code: Code,
        text: &str,
    ) -> Crossing {
        let Some(join) = self.joins.get(&key) else { return Crossing::Settled };
        let (dest, component) = (join.settings.destination.clone(), format!("join:{}", join.name));
        let cause = Cause { code, text: text.to_owned(), component, named_object: None, annotations: None };
        let des = self.store(source).and_then(Store::dead_event_store).map(str::to_owned);
        let crossing = self.lay_aside(des.as_deref(), source, event, &dest, &cause);
        if matches!(crossing, Crossing::Settled) {
            self.tally(key, |c| c.dead_lettered_total += 1);
        }
        crossing
    }

    fn lay_aside(
        &mut self,
        des: Option<&str>,
        source: StoreKey,
        event: &StoredEvent,
        dest: &str,
        cause: &Cause,
    ) -> Crossing {
        let grave = des.and_then(|name| self.named_store(name));
        if grave.is_some_and(|grave| self.put_dead(grave, source, event, dest, cause)) {
            return Crossing::Settled;
        }
        let queue = self.dead_letter_queue();
        if self.put_dead(queue, source, event, dest, cause) {
            return Crossing::Settled;
        }
        Crossing::Stopped(Stop::NoDeadLetter)
    }

    fn store_joined(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        target: StoreKey,
        event: &StoredEvent,
        origin: Origin,
        budget: u8,
    ) -> Crossing {
        let size = self.bodies.size(event.body);
        let Some(store) = self.store(target) else { return Crossing::Stopped(Stop::DestinationMissing) };
        if let Err(refusal) = self.check_size(store, size) {
            return self.refuse_for_good(key, source, event, refusal.code, &refusal.message);
        }
        let durable = store.keeps_on_disk(event.durable);
        let remembered = store.remembers_on_disk();
        let facts = Facts::of(event);
        let copy = self.event(store.next_id, event.body, &facts, None);
        let values = self.values_for_room(store, self.bodies.get(event.body), &copy);
        if let Err(refusal) = self.make_room(target, durable, &values) {
            return self.wait_for_room(key, target, refusal.code);
        }
        self.tally(key, |c| c.forwarded_total += 1);
        let needed = self.store(target).is_some_and(|store| self.is_needed(store));
        if remembered && !(durable && needed) {
            // What is not stored here on disk must not be taken again all the same (DUP-5).
            let at = self.now.wall;
            self.record(Record::OriginTaken { store: target, origin, at }, true);
        }
        if needed {
            let extra = self.joined_extra(source, event, origin, budget);
            let copy = self.store_event(target, event.body, &facts, Some(Box::new(extra)));
            self.copy_annotated((source, event.id), None, (target, copy));
        }
        Crossing::Settled
    }

    fn wait_for_room(&mut self, key: JoinKey, target: StoreKey, code: Code) -> Crossing {
        if code == Code::DiskFull {
            return Crossing::Stopped(Stop::DiskFull);
        }
        if let Some(store) = self.store_mut(target) {
            store.waiting.insert(key);
        }
        Crossing::Stopped(Stop::DestinationFull)
    }

    /// The facts that a joined event carries besides those of its message (DUP-13).
    fn joined_extra(&self, source: StoreKey, event: &StoredEvent, origin: Origin, budget: u8) -> Extra {
        let before = event.extra.as_deref().cloned().unwrap_or_default();
        let mut path = before.path;
        let mut origin_store = before.origin_store;
        if let Some(store) = self.store(source) {
            path.push(store.uid);
            origin_store = origin_store.or_else(|| Some(store.name.to_string()));
        }
        let over = path.len().saturating_sub(PATH_LENGTH);
        path.drain(..over);
        Extra {
            origin: Some(origin),
            origin_store,
            budget: Some(budget),
            path,
            generation: before.generation,
            publisher: before.publisher,
            ..Extra::default()
        }
    }

    /// Records up to `batch` arrivals in an archive queue (ARC-2 to ARC-5).
    pub(crate) fn record_arrivals_in(&mut self, key: JoinKey, target: StoreKey, batch: u32) -> Progress {
        let Some(join) = self.joins.get(&key) else { return Progress::default() };
        let (source, mut passed) = (join.source, join.passed);
        let (mut dirty, mut stop, mut more, mut reading) = (false, None, true, false);
        for _ in 0..batch {
            if self.is_step_long() {
                break;
            }
            let Some(store) = self.store(source) else { break };
            let at = store.arrivals.partition_point(|arrival| arrival.number <= passed);
            let Some(arrival) = store.arrivals.get(at) else {
                more = false;
                break;
            };
            let (number, on_disk) = (arrival.number, arrival.on_disk);
            let (event, duplicate) = (arrival.event.clone(), arrival.duplicate);
            let must_look = self.has_filter(key, number) || self.lays_out_by_keys(source);
            if must_look && !self.is_body_at_hand(event.body, Task::Join(key)) {
                reading = true;
                break;
            }
            if !self.passes_filter(key, number, &event) {
                self.tally(key, |c| c.filtered_total += 1);
            } else if let Crossing::Stopped(why) = self.archive(key, source, target, &event, duplicate) {
                stop = Some(why);
                break;
            }
            passed = number;
            dirty |= on_disk;
        }
        if let Some(join) = self.joins.get_mut(&key) {
            join.passed = passed;
        }
        dirty |= self.is_past_old_filter(key, passed);
        Progress { moved: dirty.then_some(passed), more: more && stop.is_none(), stop, reading }
    }

    fn archive(
        &mut self,
        key: JoinKey,
        source: StoreKey,
        target: StoreKey,
        event: &StoredEvent,
        duplicate: bool,
    ) -> Crossing {
        let Some(budget) = self.budget_after(key, event) else {
            self.tally(key, |c| c.hop_stopped_total += 1);
            return Crossing::Settled;
        };
        let size = self.bodies.size(event.body);
        let Some(store) = self.store(target) else { return Crossing::Stopped(Stop::DestinationMissing) };
        if let Err(refusal) = self.check_size(store, size) {
            return self.refuse_for_good(key, source, event, refusal.code, &refusal.message);
        }
        let durable = store.keeps_on_disk(event.durable);
        if let Err(refusal) = self.make_room(target, durable, &[]) {
            return self.wait_for_room(key, target, refusal.code);
        }
        let Some(origin) = self.store(source).map(|s| s.origin_of(event)) else { return Crossing::Settled };
        let mut extra = self.joined_extra(source, event, origin, budget);
        extra.archived = true;
        extra.archive_duplicate = duplicate;
        let facts = Facts::of(event);
        let copy = self.store_event(target, event.body, &facts, Some(Box::new(extra)));
        self.copy_annotated((source, event.id), None, (target, copy));
        self.tally(key, |c| c.forwarded_total += 1);
        Crossing::Settled
    }

    fn tally(&mut self, key: JoinKey, change: impl FnOnce(&mut crate::admin::JoinCounters)) {
        if let Some(join) = self.joins.get_mut(&key) {
            change(&mut join.counters);
        }
    }
}
