//! Queues: consumers compete, each message goes to one of them (named-objects 3.12, SH-3).

use crate::command::{Settlement, TakerKey};
use crate::effect::Effect;
use crate::engine::{Engine, Task, mix};
use crate::log::{Entry, Hold};
use crate::ready::{PRIORITIES, Ready};
use crate::rings::Rings;
use crate::store::Store;
use postroad_model::id::{EventId, StoreKey, WallMs};
use postroad_model::refusal::Code;
use postroad_model::settings::QueueSettings;
use postroad_record::{Place, Record, Removal};
use std::collections::{BTreeMap, BTreeSet};

/// Delayed messages that one task makes deliverable at most.
const UNDELAYED_PER_TASK: usize = 256;
/// Refused messages that one task looks at after a consumer left.
const RECHECKED_PER_TASK: usize = 256;
/// Refusals of a consumer between two looks for messages that are gone.
const REFUSED_BETWEEN_SWEEPS: usize = 1_024;

/// What a queue has besides its events.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Its settings.
    pub settings: QueueSettings,
    /// How many messages it holds at each priority level.
    pub levels: [u64; PRIORITIES],
    /// What may be delivered.
    pub ready: Ready,
    /// Messages that wait for a redelivery delay, by monotonic due time in milliseconds.
    pub delayed: BTreeSet<(u64, EventId)>,
    /// Consumers have window, and the broker has not sent them what is there.
    pub behind: bool,
    /// How fast consumers take what comes, while much waits.
    pub pace: Pace,
    /// Messages with consumers.
    pub delivered: u64,
    /// Those of them whose present attempt counts as failed already (AK-10).
    pub counted_ahead: BTreeSet<EventId>,
    /// Messages that could not be dead-lettered.
    pub blocked: BTreeSet<EventId>,
    /// Whether a consumer that is attached may have refused something.
    pub refusals: bool,
    /// Whether a consumer that is attached may have passed over something.
    pub passed_over: bool,
    /// The lowest message at each level that came back since consumers that passed over some were told.
    pub returned: BTreeMap<u8, EventId>,
    /// Where a look at what the remaining consumers have refused goes on.
    pub recheck_from: EventId,
    /// Consumers that drain.
    pub draining: BTreeSet<TakerKey>,
    /// The window that a consumer had when it last gave credit.
    window: u64,
    /// Its consumers.
    pub rings: Rings,
}

/// Whether consumers take about as much as comes: they, or the broker for them, are only just too slow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Messages that came since it was looked at.
    came: u64,
    /// Deliveries in all when it was.
    delivered: u64,
    /// What was found.
    pub is_close: bool,
}

impl Pace {
    /// Messages between two looks.
    const LOOK_AFTER: u64 = 1_024;

    /// A message came, with so many deliveries made until now. While little waits nothing is to be found.
    pub(crate) const fn note_arrival(&mut self, much_waits: bool, delivered: u64) {
        if !much_waits {
            *self = Self { came: 0, delivered, is_close: false };
            return;
        }
        self.came += 1;
        if self.came >= Self::LOOK_AFTER {
            self.is_close = delivered.saturating_sub(self.delivered) >= Self::LOOK_AFTER / 2;
            (self.came, self.delivered) = (0, delivered);
        }
    }
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            levels: [0; PRIORITIES],
            ready: Ready::default(),
            delayed: BTreeSet::new(),
            behind: false,
            pace: Pace::default(),
            delivered: 0,
            counted_ahead: BTreeSet::new(),
            blocked: BTreeSet::new(),
            refusals: false,
            passed_over: false,
            returned: BTreeMap::new(),
            recheck_from: 0,
            draining: BTreeSet::new(),
            window: 0,
            rings: Rings::default(),
        }
    }

    /// The priority level at which a message waits here (QU-7).
    #[must_use]
    pub(crate) fn level(&self, priority: u8) -> u8 {
        priority.min(self.settings.max_priority.min(9))
    }

    /// A message was stored, or left, at the level of this priority.
    pub(crate) fn count_level(&mut self, priority: u8, stored: bool) {
        let level = usize::from(self.level(priority));
        let held = &mut self.levels[level];
        *held = if stored { *held + 1 } else { held.saturating_sub(1) };
    }

    /// Whether messages wait at this level.
    pub(crate) fn has_level(&self, level: u8) -> bool {
        self.levels.get(usize::from(level)).is_some_and(|&held| held > 0)
    }

    /// How many deliveries may go out before the next credit; 0 without consumers.
    pub(crate) fn window(&self) -> u64 {
        if self.rings.is_empty() { 0 } else { self.window }
    }

    /// Notes the window of a consumer that gives credit, and whether it drains.
    pub(crate) fn note_credit(&mut self, taker: TakerKey, window: u64, drain: bool) {
        self.window = window;
        if drain {
            self.draining.insert(taker);
        }
    }
}

impl Engine {
    /// The outcomes of a range of a queue consumer's deliveries.
    pub(crate) fn settle_in_queue(
        &mut self,
        key: StoreKey,
        taker: TakerKey,
        closed: &[(u64, EventId)],
        outcome: &Settlement,
    ) {
        match outcome {
            Settlement::Accepted => {
                let mut ids: Vec<EventId> = closed.iter().map(|&(_, id)| id).collect();
                ids.sort_unstable();
                self.count(key, |c| c.acked_total += closed.len() as u64);
                self.take_out(key, &ids, Removal::Consumed);
            }
            Settlement::Released => {
                for &(_, id) in closed {
                    self.return_to_queue(key, id, None);
                }
            }
            Settlement::Modified { failed, undeliverable_here, .. } => {
                for &(_, id) in closed {
                    if *undeliverable_here {
                        self.refuse_here(key, taker, id);
                    }
                    self.return_to_queue(key, id, failed.then_some(true));
                }
            }
            Settlement::Rejected { reason } => {
                for &(_, id) in closed {
                    let text = reason.clone().unwrap_or_else(|| "the consumer rejected the message".into());
                    self.dead_letter_from_queue(key, id, Code::Rejected, &text);
                }
            }
        }
        self.schedule(Task::Dispatch(key));
    }

    /// The message is not to be offered to this consumer again; once all have refused it, it is a dead letter (AK-3).
    fn refuse_here(&mut self, key: StoreKey, taker: TakerKey, id: EventId) {
        self.note_refused(key, taker, id);
        self.dead_letter_if_all_refused(key, id);
    }

    fn dead_letter_if_all_refused(&mut self, key: StoreKey, id: EventId) {
        let Some(queue) = self.store(key).and_then(|s| s.queue()) else { return };
        let all = queue.rings.all().all(|t| self.takers.get(t).is_some_and(|t| t.refused.contains(&id)));
        if all {
            let text = "every attached consumer refused the message";
            self.dead_letter_from_queue(key, id, Code::RefusedByAll, text);
        }
    }

    /// A consumer left: what all others have refused nobody will take (AK-3).
    pub(crate) fn consumer_left(&mut self, key: StoreKey) {
        let Some(queue) = self.store_mut(key).and_then(|s| s.queue_mut()) else { return };
        queue.recheck_from = 0;
        // Mostly nobody has refused anything, and many consumers may leave at once.
        if queue.refusals {
            self.schedule(Task::Recheck(key));
        }
    }

    /// Looks for what all consumers have refused; whether there is more to do.
    pub(crate) fn recheck_refused(&mut self, key: StoreKey) -> bool {
        let Some(queue) = self.store(key).and_then(Store::queue) else { return false };
        let takers = queue.rings.all().filter_map(|taker| self.takers.get(taker));
        // What all have refused is among what the most content of them has.
        let Some(least) = takers.min_by_key(|taker| taker.refused.len()) else { return false };
        let refused = |taker: TakerKey| self.takers.get(taker).is_some_and(|t| !t.refused.is_empty());
        let refusals = queue.rings.all().any(refused);
        let ids: Vec<EventId> =
            least.refused.range(queue.recheck_from..).take(RECHECKED_PER_TASK).copied().collect();
        if let Some(queue) = self.store_mut(key).and_then(|s| s.queue_mut()) {
            queue.refusals = refusals;
        }
        let Some(&last) = ids.last() else { return false };
        let mut next = last + 1;
        for &id in &ids {
            if self.is_step_long() {
                next = id;
                break;
            }
            let hold = self.store(key).and_then(|s| s.log.get(id)).map(|entry| entry.hold);
            if matches!(hold, Some(Hold::Ready | Hold::Delayed(_))) {
                self.dead_letter_if_all_refused(key, id);
            }
        }
        if let Some(queue) = self.store_mut(key).and_then(|s| s.queue_mut()) {
            queue.recheck_from = next;
        }
        ids.len() == RECHECKED_PER_TASK || next <= last
    }

    fn note_refused(&mut self, key: StoreKey, taker: TakerKey, id: EventId) {
        let Some(store) = self.stores.get(key) else { return };
        let Some(state) = self.takers.get_mut(taker) else { return };
        state.refused.insert(id);
        // A consumer that refuses all day must not make the broker remember what is long gone.
        if state.refused.len().is_multiple_of(REFUSED_BETWEEN_SWEEPS) {
            state.refused.retain(|&id| store.log.get(id).is_some());
        }
        if let Some(queue) = self.store_mut(key).and_then(|s| s.queue_mut()) {
            queue.refusals = true;
        }
    }

    /// A message comes back to its place in the queue. `failed` says that an attempt failed, and whether it
    /// counts toward the limit (AK-5).
    pub(crate) fn return_to_queue(&mut self, key: StoreKey, id: EventId, failed: Option<bool>) {
        let Some(store) = self.store(key) else { return };
        let Some(entry) = store.log.get(id) else { return };
        if entry.hold != Hold::Delivered {
            return;
        }
        let (mut delay, mut over) = (0, false);
        let Some(queue) = store.queue() else { return };
        let earlier = entry.failed.saturating_sub(u32::from(queue.counted_ahead.contains(&id)));
        if let Some(counts) = failed {
            let durable = entry.on_disk;
            let (failed, counted) =
                (earlier.saturating_add(1), entry.counted.saturating_add(u32::from(counts)));
            let limit = queue.settings.redelivery.max_delivery_attempts;
            over = u32::try_from(limit).is_ok_and(|limit| counted >= limit);
            delay = queue.settings.redelivery.delay_ms(failed, self.chance(id, failed));
            let place = Place::Store(key);
            self.record(Record::Attempted { place, event: id, failed, counted }, durable);
        } else if earlier != entry.failed {
            let (place, counted) = (Place::Store(key), entry.counted);
            self.record(Record::Attempted { place, event: id, failed: earlier, counted }, true);
        }
        if over {
            let text = "the message failed as often as max_delivery_attempts allows";
            self.dead_letter_from_queue(key, id, Code::MaxAttempts, text);
            return;
        }
        self.make_ready(key, id, delay);
    }

    /// A number that spreads the delays of an event's attempts (AK-7): it need not be secret, only uneven.
    pub(crate) fn chance(&self, id: EventId, failed: u32) -> u32 {
        let mixed = mix(mix(id ^ self.now.mono.rotate_left(32)) ^ u64::from(failed));
        u32::try_from(mixed >> 32).unwrap_or(0)
    }

    /// Makes a message that is held deliverable again, now or after a delay in milliseconds.
    pub(crate) fn make_ready(&mut self, key: StoreKey, id: EventId, delay: u64) {
        let due = self.now.mono.saturating_add(delay);
        let Some(store) = self.store_mut(key) else { return };
        store.release_hold(id);
        let Some(entry) = store.log.get_mut(id) else { return };
        entry.hold = if delay == 0 { Hold::Ready } else { Hold::Delayed(due) };
        let (priority, leaves) = (entry.event.priority, store.show_to_expiry(id));
        let Some(queue) = store.queue_mut() else { return };
        if delay > 0 {
            queue.delayed.insert((due, id));
            self.wake_at(due, Task::Undelay(key));
        } else {
            let level = queue.level(priority);
            queue.ready.insert(level, id);
            if queue.passed_over {
                // Thousands may come back at once, and there may be thousands to tell.
                let lowest = queue.returned.entry(level).or_insert(id);
                *lowest = id.min(*lowest);
            }
            self.schedule(Task::Dispatch(key));
        }
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
    }

    /// Consumers that passed over messages look at those again that came back since, before any is chosen.
    pub(crate) fn look_again_at_returned(&mut self, key: StoreKey) {
        let Some(queue) = self.stores.get_mut(key).and_then(Store::queue_mut) else { return };
        if queue.returned.is_empty() {
            return;
        }
        let returned = std::mem::take(&mut queue.returned);
        queue.passed_over = false;
        for taker in queue.rings.all() {
            let Some(state) = self.takers.get_mut(taker) else { continue };
            for (&level, &id) in &returned {
                state.look_again(level, id);
            }
            queue.passed_over |= state.scanned.iter().any(|&passed| passed > 0);
        }
    }

    /// Priorities were told apart anew: selective consumers look at everything again.
    pub(crate) fn look_again_everywhere(&mut self, key: StoreKey) {
        let Some(queue) = self.store(key).and_then(Store::queue) else { return };
        let takers: Vec<TakerKey> = queue.rings.all().collect();
        for taker in takers {
            if let Some(state) = self.takers.get_mut(taker) {
                state.scanned = [0; PRIORITIES];
            }
        }
    }

    /// Makes delayed messages deliverable whose time has come.
    pub(crate) fn undelay(&mut self, key: StoreKey) -> bool {
        for _ in 0..UNDELAYED_PER_TASK {
            let mono = self.now.mono;
            let Some(queue) = self.store_mut(key).and_then(|s| s.queue_mut()) else { return false };
            let Some(&(due, id)) = queue.delayed.first() else { return false };
            if due > mono {
                self.wake_at(due, Task::Undelay(key));
                return false;
            }
            self.make_ready(key, id, 0);
        }
        true
    }

    /// Tells consumers that drain, once nothing more can be sent to them now.
    pub(crate) fn finish_drains(&mut self, key: StoreKey) {
        let Some(queue) = self.store(key).and_then(|s| s.queue()) else { return };
        if queue.draining.is_empty() {
            return;
        }
        let takers: Vec<TakerKey> = queue.draining.iter().copied().collect();
        for taker in takers {
            self.finish_drain(taker);
        }
    }

    /// Tells one consumer that drains that nothing more can be sent now; its credit is used up.
    pub(crate) fn finish_drain(&mut self, taker: TakerKey) {
        let Some(state) = self.takers.get_mut(taker) else { return };
        // One that is held is told after what is still to come.
        if !state.drain || state.held {
            return;
        }
        state.drain = false;
        state.limit = state.sent;
        let store = state.store;
        let (after, effect) = (state.after, Effect::Drained { conn: state.conn, link: state.link });
        self.emit(after, effect);
        self.note_window(taker);
        if let Some(queue) = self.store_mut(store).and_then(|s| s.queue_mut()) {
            queue.draining.remove(&taker);
        }
    }

    /// How many ready messages match no attached consumer (QU-12), looking at no more than `limit` of them.
    pub(crate) fn stranded(&self, key: StoreKey, limit: usize) -> u64 {
        let Some(store) = self.store(key) else { return 0 };
        let Some(queue) = store.queue() else { return 0 };
        let takers: Vec<TakerKey> = queue.rings.all().collect();
        if takers.is_empty() || takers.iter().any(|t| self.takers.get(*t).is_some_and(|t| !t.is_selective()))
        {
            return 0;
        }
        let (mut passed, mut stranded) = ([0; PRIORITIES], 0);
        for _ in 0..limit {
            let Some((level, id)) = queue.ready.after(passed) else { break };
            passed[usize::from(level)] = id;
            if !takers.iter().any(|&t| self.taker_wants(t, key, id)) {
                stranded += 1;
            }
        }
        stranded
    }
}

impl Store {
    /// Takes a message of a queue out of the list in which its hold keeps it.
    pub(crate) fn release_hold(&mut self, id: EventId) {
        let Some(entry) = self.log.get(id) else { return };
        let (hold, priority) = (entry.hold, entry.event.priority);
        self.unlist(id, hold, priority);
    }

    /// As [`Self::release_hold`], for a message that is in the log no more.
    pub(crate) fn release_hold_of(&mut self, entry: &Entry) {
        self.unlist(entry.event.id, entry.hold, entry.event.priority);
    }

    fn unlist(&mut self, id: EventId, hold: Hold, priority: u8) {
        let Some(queue) = self.queue_mut() else { return };
        match hold {
            Hold::Ready => {
                let level = queue.level(priority);
                queue.ready.remove(level, id);
            }
            Hold::Delivered => {
                queue.delivered = queue.delivered.saturating_sub(1);
                queue.counted_ahead.remove(&id);
            }
            Hold::Delayed(due) => {
                queue.delayed.remove(&(due, id));
            }
            Hold::Blocked(_) => {
                queue.blocked.remove(&id);
            }
        }
    }

    /// Makes an event subject to expiry again; when it leaves, 0 for never.
    pub(crate) fn show_to_expiry(&mut self, id: EventId) -> WallMs {
        let leaves = self.log.get(id).map_or(0, |entry| self.leaves_at(&entry.event));
        if leaves != 0 {
            self.lifetimes.note(leaves, id);
        }
        leaves
    }
}
