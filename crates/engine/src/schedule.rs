//! Delayed delivery: messages that wait for their time beside the events of their store, without an event id (QU-8, QU-9).
//!
//! They are accepted once they are on disk, as others are. When its time comes a message becomes an event as if it were
//! published then, in one step with the record that takes it out of those that wait: so no reader can be past it.

use crate::command::ConnId;
use crate::dead_letter::Cause;
use crate::engine::{Engine, Task};
use crate::publish::Facts;
use crate::ranges::push_id;
use crate::room::component;
use crate::store::Store;
use postroad_model::id::{StoreKey, WallMs};
use postroad_model::message::Incoming;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::PublisherDedupe;
use postroad_record::{Extra, IdRange, Record, StoredEvent, Unscheduling};
use std::collections::{BTreeMap, BTreeSet};

/// Messages that one task makes events of at most.
const DUE_PER_TASK: usize = 256;
/// Messages that are read back together at most, where their properties are needed.
const READ_TOGETHER: usize = 64;
/// Numbers that one durable reservation covers.
const RESERVED_NUMBERS: u64 = 65_536;
/// Milliseconds after which a full disk is looked at again.
const DISK_RETRY_MS: u64 = 1_000;
/// Milliseconds after which an expired message that found no room where such go is tried again.
const LAY_OUT_RETRY_MS: u64 = 30_000;

/// A message that waits for its delivery time.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    /// When it becomes an event.
    pub due: WallMs,
    /// What it becomes then; its id is 0, its arrival is when it was taken.
    pub event: StoredEvent,
    /// Whether it is on disk.
    pub on_disk: bool,
    /// When it is looked at: when it is due, or before, when its life is over; later, if it could not be laid out then.
    pub at: WallMs,
}

/// The messages of one store that wait, by their numbers.
#[derive(Debug)]
pub(crate) struct Schedule {
    waiting: BTreeMap<u64, Scheduled>,
    by_time: BTreeSet<(WallMs, u64)>,
    /// The number of the next one.
    next: u64,
    /// The number behind the highest that was ever on disk.
    durable_next: u64,
    /// Numbers below this one may be given in memory.
    reserved_below: u64,
    /// The wall-clock time for which there is a timer, 0 if there is none.
    timer: WallMs,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            by_time: BTreeSet::new(),
            next: 1,
            durable_next: 1,
            reserved_below: 1,
            timer: 0,
        }
    }
}

impl Schedule {
    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// The highest number given, 0 if none.
    pub(crate) const fn last_number(&self) -> u64 {
        self.next - 1
    }

    /// The first number that is not given again after a restart.
    pub(crate) fn horizon(&self) -> u64 {
        self.durable_next.max(self.reserved_below)
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Scheduled)> {
        self.waiting.iter().map(|(&number, scheduled)| (number, scheduled))
    }

    /// The one with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&Scheduled> {
        self.waiting.get(&number)
    }

    /// Those behind a time and a number, in the order of their times.
    pub(crate) fn after(&self, place: (WallMs, u64)) -> impl Iterator<Item = (u64, &Scheduled)> {
        let numbers = self.by_time.range(place..).filter(move |found| **found != place);
        numbers.filter_map(|&(_, number)| Some((number, self.waiting.get(&number)?)))
    }

    /// Records of before a restart were read back.
    pub(crate) fn resume(&mut self) {
        self.next = self.next.max(self.horizon());
    }

    fn insert(&mut self, number: u64, scheduled: Scheduled) {
        self.next = self.next.max(number.saturating_add(1));
        if scheduled.on_disk {
            self.durable_next = self.durable_next.max(number.saturating_add(1));
        }
        self.by_time.insert((scheduled.at, number));
        self.waiting.insert(number, scheduled);
    }

    fn remove(&mut self, number: u64) -> Option<Scheduled> {
        let gone = self.waiting.remove(&number)?;
        self.by_time.remove(&(gone.at, number));
        Some(gone)
    }

    fn postpone(&mut self, number: u64, at: WallMs) {
        if let Some(mut scheduled) = self.remove(number) {
            scheduled.at = at;
            self.insert(number, scheduled);
        }
    }
}

impl Engine {
    /// When a message is due, if that is not now.
    pub(crate) fn due_later(&self, message: &Incoming) -> Option<WallMs> {
        let now = self.now.wall;
        message.delay.map(|delay| delay.due(now)).filter(|&due| due > now)
    }

    /// Refuses one more message that waits for its time, where the broker holds as many as it may.
    pub(crate) fn check_schedule(&self, store: &Store) -> Result<(), Refusal> {
        let most = self.settings.max_scheduled;
        if self.scheduled < most {
            return Ok(());
        }
        let text = format!(
            "{most} messages of this broker wait for their delivery time, the limit: raise max_scheduled, or send later"
        );
        Err(Refusal::new(Code::LimitReached, store.name.to_string(), text))
    }

    /// Takes a message that becomes an event later. The store has room for it.
    pub(crate) fn take_for_later(
        &mut self,
        conn: ConnId,
        key: StoreKey,
        due: WallMs,
        facts: &Facts,
        message: Incoming,
    ) {
        let Some(store) = self.store(key) else { return };
        let (number, durable) = (store.schedule.next, store.keeps_on_disk(facts.durable));
        let in_memory = !durable && store.owner.is_none() && number >= store.schedule.reserved_below;
        // Who is a reader when it is due is not known yet.
        let extra = self.publish_extra(conn, store, &message, !store.is_queue());
        if in_memory {
            let below = number.saturating_add(RESERVED_NUMBERS);
            self.record(Record::NumbersReserved { store: key, below }, true);
        }
        let body = self.bodies.next_id();
        self.bodies.insert(body, message.message);
        if durable {
            self.write_body(body, false);
        }
        let event = self.event(0, body, facts, extra);
        let at = look_at(due, &event);
        self.record(Record::Scheduled { store: key, number, due, event }, durable);
        self.watch_schedule(key, at);
    }

    /// Makes events of the messages whose time has come; whether there is more to do.
    pub(crate) fn release_due(&mut self, key: StoreKey) -> bool {
        for _ in 0..DUE_PER_TASK {
            if self.is_step_long() {
                break;
            }
            let now = self.now.wall;
            let Some(store) = self.store_mut(key) else { return false };
            let schedule = &mut store.schedule;
            if schedule.timer <= now {
                schedule.timer = 0;
            }
            let Some(&(at, number)) = schedule.by_time.first() else { return false };
            if at > now {
                self.watch_schedule(key, at);
                return false;
            }
            if self.disk_full {
                self.wake_at(self.now.mono.saturating_add(DISK_RETRY_MS), Task::Due(key));
                return false;
            }
            if !self.end_wait(key, number) {
                return false;
            }
        }
        true
    }

    /// Does with a message what its time has come for; false if messages must be read first.
    fn end_wait(&mut self, key: StoreKey, number: u64) -> bool {
        let Some(scheduled) = self.store(key).and_then(|store| store.schedule.get(number)).cloned() else {
            return true;
        };
        let expires = scheduled.event.expires;
        if self.purge_due(key, number) {
            return true;
        }
        if expires != 0 && expires <= self.now.wall {
            if self.lays_out_by_keys(key) && !self.read_due(key) {
                return false;
            }
            self.expire_scheduled(key, number, &scheduled);
        } else {
            return self.store_due(key, number, scheduled);
        }
        true
    }

    fn store_due(&mut self, key: StoreKey, number: u64, scheduled: Scheduled) -> bool {
        let Some(store) = self.store(key) else { return true };
        if store.has_publish_keys() && !self.read_due(key) {
            return false;
        }
        let Scheduled { event, on_disk, .. } = scheduled;
        let Some(store) = self.store(key) else { return true };
        let needed = self.is_needed(store);
        let extra = event.extra.map(|extra| extra_when_due(store, *extra)).filter(|extra| !extra.is_empty());
        // Its message must not go between the two records.
        self.bodies.hold(event.body, false);
        self.unschedule(key, &[number], Unscheduling::Due);
        if needed {
            self.prove_identity(key);
            let (durable, priority, expires) = (event.durable, event.priority, event.expires);
            let facts = Facts { durable, priority, expires, stays_on_disk: on_disk };
            self.store_event(key, event.body, &facts, extra.map(Box::new));
        }
        self.bodies.release(event.body, false);
        true
    }

    /// Whether the messages that are due next are in memory; else the task goes on when they are.
    fn read_due(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return true };
        let due = store.schedule.by_time.range(..=(self.now.wall, u64::MAX)).take(READ_TOGETHER);
        let bodies: Vec<_> =
            due.filter_map(|(_, number)| Some(store.schedule.get(*number)?.event.body)).collect();
        let mut all_here = true;
        for body in bodies {
            // All of them are asked for, whichever is missing.
            all_here &= self.is_body_at_hand(body, Task::Due(key));
        }
        all_here
    }

    /// The life of a message was over before it was due (QU-9): it goes where expired ones go, or waits for room there.
    fn expire_scheduled(&mut self, key: StoreKey, number: u64, scheduled: &Scheduled) {
        let (Some(store), now) = (self.store(key), self.now.wall) else { return };
        let cause = Cause {
            code: Code::Expired,
            text: "its time to live was over before its delivery time".into(),
            component: component(store),
            named_object: None,
            annotations: None,
        };
        if self.lay_out(key, &scheduled.event, &cause) {
            self.count(key, |c| c.expired_total += 1);
            self.unschedule(key, &[number], Unscheduling::Expired);
        } else if let Some(store) = self.store_mut(key) {
            tracing::error!(store = %store.name, number, "an expired message can't be laid out: make room there");
            store.schedule.postpone(number, now.saturating_add(LAY_OUT_RETRY_MS));
        }
    }

    /// Takes messages out of those that wait, in records of their own those that are on disk.
    pub(crate) fn unschedule(&mut self, key: StoreKey, numbers: &[u64], why: Unscheduling) {
        let Some(store) = self.store(key) else { return };
        let mut lists: [Vec<IdRange>; 2] = Default::default();
        for &number in numbers {
            if let Some(scheduled) = store.schedule.get(number) {
                push_id(&mut lists[usize::from(scheduled.on_disk)], number);
            }
        }
        let [in_memory, on_disk] = lists;
        for (numbers, durable) in [(in_memory, false), (on_disk, true)] {
            if !numbers.is_empty() {
                self.record(Record::Unscheduled { store: key, numbers, why }, durable);
            }
        }
        self.room_in(key);
        self.reap_later(key);
    }

    /// Up to `most` numbers at or below `last`, for a purge.
    pub(crate) fn first_scheduled(&self, key: StoreKey, last: u64, most: usize) -> Vec<u64> {
        let Some(store) = self.store(key) else { return Vec::new() };
        store.schedule.waiting.range(..=last).map(|(&number, _)| number).take(most).collect()
    }

    /// Sees to it that the schedule of a store is looked at at this wall-clock time.
    fn watch_schedule(&mut self, key: StoreKey, at: WallMs) {
        let Some(store) = self.store_mut(key) else { return };
        if store.schedule.timer == 0 || at < store.schedule.timer {
            store.schedule.timer = at;
            self.wake_at_wall(at, Task::Due(key));
        }
    }

    pub(crate) fn apply_scheduled(
        &mut self,
        key: StoreKey,
        number: u64,
        due: WallMs,
        event: StoredEvent,
        durable: bool,
    ) {
        let size = self.bodies.hold(event.body, durable);
        let under_way = self.step_under_way();
        let Some(store) = self.store_mut(key) else { return };
        store.bytes += size;
        if durable {
            // The answer to a repetition must not overtake the one to this.
            store.last_after = store.last_after.max(under_way);
        }
        store.remember_id_of(&event, durable);
        let at = look_at(due, &event);
        store.schedule.insert(number, Scheduled { due, event, on_disk: durable, at });
        self.scheduled += 1;
    }

    pub(crate) fn apply_unscheduled(&mut self, key: StoreKey, numbers: &[IdRange]) {
        let under_way = self.step_under_way();
        for &(first, last) in numbers {
            loop {
                let Some(store) = self.store_mut(key) else { return };
                let number = store.schedule.waiting.range(first..).next().map(|(&number, _)| number);
                let Some(number) = number.filter(|&number| number <= last) else { break };
                let Some(gone) = store.schedule.remove(number) else { break };
                if gone.on_disk {
                    // What it becomes must not be seen before it can't come again.
                    store.last_after = store.last_after.max(under_way);
                }
                let size = self.bodies.release(gone.event.body, gone.on_disk);
                self.scheduled = self.scheduled.saturating_sub(1);
                if let Some(store) = self.store_mut(key) {
                    store.bytes = store.bytes.saturating_sub(size);
                }
            }
        }
    }

    pub(crate) fn apply_numbers_reserved(&mut self, key: StoreKey, below: u64) {
        if let Some(store) = self.store_mut(key) {
            store.schedule.reserved_below = store.schedule.reserved_below.max(below);
        }
    }
}

/// What an event keeps of the facts that were noted when its message was taken: what one published now would have.
fn extra_when_due(store: &Store, extra: Extra) -> Extra {
    let is_left_out = store.channel().is_some_and(|channel| channel.readers.no_local > 0);
    let is_recognised = store.publisher_dedupe() == PublisherDedupe::MessageId;
    Extra {
        publisher: extra.publisher.filter(|_| is_left_out),
        message_id: extra.message_id.filter(|_| is_recognised),
        ..extra
    }
}

/// When a message is looked at: when it is due, or when its life is over.
fn look_at(due: WallMs, event: &StoredEvent) -> WallMs {
    if event.expires == 0 { due } else { due.min(event.expires) }
}
