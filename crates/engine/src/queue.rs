//! Queues: consumers compete, each message goes to one of them (named-objects 3.12, SH-3).

use crate::bodies::Bodies;
use crate::command::{Settlement, TakerKey};
use crate::effect::{Delivery, Effect, Step};
use crate::engine::{Engine, Task};
use crate::log::Hold;
use crate::ready::{PRIORITIES, Ready};
use crate::store::Store;
use crate::taker::Taker;
use crate::view::View;
use postroad_model::id::{EventId, ObjectKey, StoreKey, WallMs};
use postroad_model::refusal::Code;
use postroad_model::settings::QueueSettings;
use postroad_record::{Place, Record, Removal};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Deliveries that one task of dispatch makes at most before others have a turn (DESIGN 7.5).
const DELIVERIES_PER_TASK: usize = 256;
/// Messages that one task of dispatch tries against selectors at most.
const TRIES_PER_TASK: usize = 2_000;

/// Refusals of a consumer between two looks for messages that are gone.
const REFUSED_BETWEEN_SWEEPS: usize = 1_024;

/// What a queue has besides its events.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Its settings.
    pub settings: QueueSettings,
    /// What may be delivered.
    pub ready: Ready,
    /// Messages that wait for a redelivery delay, by monotonic due time in milliseconds.
    pub delayed: BTreeSet<(u64, EventId)>,
    /// Messages with consumers.
    pub delivered: u64,
    /// Messages that could not be dead-lettered.
    pub blocked: BTreeSet<EventId>,
    /// Consumers that drain.
    pub draining: BTreeSet<TakerKey>,
    /// The window that a consumer had when it last gave credit.
    window: u64,
    /// Consumers by priority, highest first, each level a ring in attach order.
    rings: BTreeMap<Reverse<i32>, Ring>,
}

/// Consumers of equal priority, served in turn.
#[derive(Debug, Default)]
struct Ring {
    takers: Vec<TakerKey>,
    /// Where the next turn begins.
    next: usize,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub(crate) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            ready: Ready::default(),
            delayed: BTreeSet::new(),
            delivered: 0,
            blocked: BTreeSet::new(),
            draining: BTreeSet::new(),
            window: 0,
            rings: BTreeMap::new(),
        }
    }

    /// The priority level at which a message waits here (QU-7).
    #[must_use]
    pub(crate) fn level(&self, priority: u8) -> u8 {
        priority.min(self.settings.max_priority.min(9))
    }

    /// Adds a consumer behind those of its priority.
    pub(crate) fn attach(&mut self, taker: TakerKey, priority: i32) {
        self.rings.entry(Reverse(priority)).or_default().takers.push(taker);
    }

    /// Removes a consumer.
    pub(crate) fn detach(&mut self, taker: TakerKey, priority: i32) {
        let Some(ring) = self.rings.get_mut(&Reverse(priority)) else { return };
        if let Some(at) = ring.takers.iter().position(|&t| t == taker) {
            ring.takers.remove(at);
            if ring.next > at {
                ring.next -= 1;
            }
        }
        if ring.takers.is_empty() {
            self.rings.remove(&Reverse(priority));
        }
        self.draining.remove(&taker);
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

    /// The consumers, highest priority first.
    pub(crate) fn takers(&self) -> impl Iterator<Item = TakerKey> + '_ {
        self.rings.values().flat_map(|ring| ring.takers.iter().copied())
    }
}

/// Whose delivery it is, which decides where its attempts and its sent mark are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// A queue's: its attempts stand at the message.
    Queue,
    /// A named object's.
    Object {
        /// Which object.
        object: ObjectKey,
        /// Earlier failed attempts.
        failed: u32,
        /// The step that says so.
        after: Step,
    },
    /// A volatile subscription's: what it had is forgotten with the broker, so it needs no mark.
    Volatile {
        /// Earlier failed attempts.
        failed: u32,
    },
}

impl From {
    /// Where the sent mark is kept.
    const fn place(self, store: StoreKey) -> Option<Place> {
        match self {
            Self::Queue => Some(Place::Store(store)),
            Self::Object { object, .. } => Some(Place::Object(object)),
            Self::Volatile { .. } => None,
        }
    }
}

/// The choice of the next delivery.
struct Choice {
    taker: TakerKey,
    event: EventId,
    level: u8,
    ring: Reverse<i32>,
    /// Place of the taker in its ring.
    place: usize,
}

impl Engine {
    /// Delivers what can be delivered from a queue; whether there is more to do.
    pub(crate) fn dispatch_queue(&mut self, key: StoreKey) -> bool {
        let mut tries = TRIES_PER_TASK;
        for _ in 0..DELIVERIES_PER_TASK {
            match self.choose(key, &mut tries) {
                // Its timer may not have had its turn yet: an expired message is never delivered (QU-6).
                Some(choice) if self.is_expired(key, choice.event) => self.expire_one(key, choice.event),
                Some(choice) => self.deliver_from_queue(key, &choice),
                None if tries == 0 => return true,
                None => {
                    self.finish_drains(key);
                    return false;
                }
            }
        }
        true
    }

    /// Finds the next message and its consumer (SH-3): the best message first, its consumer in turn.
    fn choose(&mut self, key: StoreKey, tries: &mut usize) -> Option<Choice> {
        let store = self.stores.get(key.0 as usize)?.as_ref()?;
        let queue = store.queue()?;
        let first = queue.ready.first()?;
        let (exclusive, max_window) = (queue.settings.exclusive, self.settings.max_window);
        for (&ring_key, ring) in &queue.rings {
            let (count, start) = (ring.takers.len(), ring.next);
            let mut best: Option<Choice> = None;
            for step in 0..if exclusive { 1 } else { count } {
                let place = if exclusive { 0 } else { (start + step) % count };
                let Some(&taker) = ring.takers.get(place) else { continue };
                let Some(state) = self.takers.get_mut(taker).filter(|t| t.window(max_window) > 0) else {
                    continue;
                };
                let selective = state.is_selective();
                let found =
                    if selective { candidate(store, &self.bodies, state, tries) } else { Some(first) };
                if let Some((level, event)) = found {
                    let better = |b: &Choice| (Reverse(level), event) < (Reverse(b.level), b.event);
                    if best.as_ref().is_none_or(better) {
                        best = Some(Choice { taker, event, level, ring: ring_key, place });
                    }
                }
                // Nobody further on can get a better message than the first one.
                if !selective || *tries == 0 {
                    break;
                }
            }
            if best.is_some() || *tries == 0 || exclusive {
                return best;
            }
        }
        None
    }

    /// Whether a consumer's own filter and its refusals let an event through.
    pub(crate) fn taker_wants(&self, taker: TakerKey, store: StoreKey, id: EventId) -> bool {
        let (Some(state), Some(store)) = (self.takers.get(taker), self.store(store)) else { return false };
        wants(store, &self.bodies, state, id)
    }

    fn deliver_from_queue(&mut self, key: StoreKey, choice: &Choice) {
        let id = choice.event;
        let Some(store) = self.store_mut(key) else { return };
        let Some(queue) = store.queue_mut() else { return };
        queue.ready.remove(choice.level, id);
        if let Some(ring) = queue.rings.get_mut(&choice.ring)
            && !queue.settings.exclusive
        {
            ring.next = (choice.place + 1) % ring.takers.len();
        }
        queue.delivered += 1;
        if let Some(entry) = store.log.get_mut(id) {
            entry.hold = Hold::Delivered;
        }
        store.hide_from_expiry(id);
        let Some(taker) = self.takers.get_mut(choice.taker) else { return };
        let tag = taker.note_sent(id);
        let presettled = taker.presettled;
        self.send_from_store(choice.taker, key, id, tag, From::Queue);
        if presettled {
            self.take_out(key, &[id], Removal::Consumed);
        }
    }

    /// Emits the delivery of an event to a consumer.
    pub(crate) fn send_from_store(
        &mut self,
        taker: TakerKey,
        key: StoreKey,
        id: EventId,
        tag: u64,
        from: From,
    ) {
        if let Some(place) = from.place(key) {
            let ahead = self.takers.get(taker).map_or(0, |t| t.window(self.settings.max_window)).min(1_024);
            self.mark_sent(place, key, id, ahead);
        }
        let under_way = self.step_under_way();
        let now = self.now.wall;
        let Some(state) = self.takers.get(taker) else { return };
        let Some(store) = self.stores.get(key.0 as usize).and_then(Option::as_ref) else { return };
        let Some(entry) = store.log.get(id) else { return };
        let Some(message) = self.bodies.get(entry.event.body) else { return };
        let (failed, sent_before, marked) = match from {
            From::Queue => (entry.failed, store.sent_before_start, store.marked),
            From::Object { failed, object, after } => {
                let marks = self.objects.get(&object).map(|o| (o.sent_before_start, o.marked));
                let (sent_before, marked) = marks.unwrap_or_default();
                (failed, sent_before, marked.max(after))
            }
            From::Volatile { failed } => (failed, 0, Step(0)),
        };
        let maybe_sent = id <= sent_before && entry.on_disk;
        let leaves = store.leaves_at(&entry.event);
        let delivery = Delivery {
            conn: state.conn,
            link: state.link,
            tag,
            message: message.clone(),
            durable: entry.event.durable,
            priority: entry.event.priority,
            ttl_ms: (leaves != 0).then(|| u32::try_from(leaves.saturating_sub(now)).unwrap_or(u32::MAX)),
            delivery_count: failed.max(u32::from(maybe_sent)),
            settled: state.presettled,
            annotations: self.annotations(store, &entry.event, from),
        };
        let marked = if entry.on_disk { marked } else { Step(0) };
        let after = entry.after.max(under_way).max(state.after).max(marked);
        if let Some(state) = self.takers.get_mut(taker) {
            state.after = after;
        }
        let again = delivery.delivery_count > 0;
        if let From::Object { object, .. } = from
            && let Some(object) = self.objects.get_mut(&object)
        {
            object.redelivered += u64::from(again);
            object.skipped_untold = 0;
        }
        self.count(key, |c| {
            c.delivered_total += 1;
            c.redelivered_total += u64::from(again);
        });
        self.emit(after, Effect::Deliver(Box::new(delivery)));
        if !self.has_window(taker) {
            self.finish_drain(taker);
        }
    }

    /// Marks durably that deliveries up to `id`, and some ahead, may have been sent (AK-10).
    pub(crate) fn mark_sent(&mut self, place: Place, key: StoreKey, id: EventId, ahead: u64) {
        let Some(store) = self.store(key) else { return };
        let durable = store.log.get(id).is_some_and(|e| e.on_disk);
        let marked = match place {
            Place::Store(_) => store.sent_up_to,
            Place::Object(object) => match self.objects.get(&object) {
                Some(object) if object.settings.persistent => object.sent_up_to,
                _ => return,
            },
        };
        if durable && id > marked {
            self.record(Record::Sent { place, up_to: id.saturating_add(ahead) }, true);
        }
    }

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
            Settlement::Modified { failed, undeliverable_here } => {
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
        let Some(queue) = self.store(key).and_then(|s| s.queue()) else { return };
        let all = queue.takers().all(|t| self.takers.get(t).is_some_and(|t| t.refused.contains(&id)));
        if all {
            let text = "every attached consumer refused the message";
            self.dead_letter_from_queue(key, id, Code::RefusedByAll, text);
        }
    }

    fn note_refused(&mut self, key: StoreKey, taker: TakerKey, id: EventId) {
        let Some(store) = self.stores.get(key.0 as usize).and_then(Option::as_ref) else { return };
        let Some(state) = self.takers.get_mut(taker) else { return };
        state.refused.insert(id);
        // A consumer that refuses all day must not make the broker remember what is long gone.
        if state.refused.len().is_multiple_of(REFUSED_BETWEEN_SWEEPS) {
            state.refused.retain(|&id| store.log.get(id).is_some());
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
        if let Some(counts) = failed {
            let durable = entry.on_disk;
            let (failed, counted) =
                (entry.failed.saturating_add(1), entry.counted.saturating_add(u32::from(counts)));
            let Some(queue) = store.queue() else { return };
            let limit = queue.settings.redelivery.max_delivery_attempts;
            over = u32::try_from(limit).is_ok_and(|limit| counted >= limit);
            delay = queue.settings.redelivery.delay_ms(failed);
            let place = Place::Store(key);
            self.record(Record::Attempted { place, event: id, failed, counted }, durable);
        }
        if over {
            let text = "the message failed as often as max_delivery_attempts allows";
            self.dead_letter_from_queue(key, id, Code::MaxAttempts, text);
            return;
        }
        self.make_ready(key, id, delay);
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
            let takers: Vec<TakerKey> = queue.takers().collect();
            for taker in takers {
                if let Some(state) = self.takers.get_mut(taker) {
                    state.look_again(level, id);
                }
            }
            self.schedule(Task::Dispatch(key));
        }
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
    }

    /// Priorities were told apart anew: selective consumers look at everything again.
    pub(crate) fn look_again_everywhere(&mut self, key: StoreKey) {
        let Some(queue) = self.store(key).and_then(Store::queue) else { return };
        let takers: Vec<TakerKey> = queue.takers().collect();
        for taker in takers {
            if let Some(state) = self.takers.get_mut(taker) {
                state.scanned = [0; PRIORITIES];
            }
        }
    }

    /// Makes delayed messages deliverable whose time has come.
    pub(crate) fn undelay(&mut self, key: StoreKey) -> bool {
        for _ in 0..DELIVERIES_PER_TASK {
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
    fn finish_drains(&mut self, key: StoreKey) {
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
        if !state.drain {
            return;
        }
        state.drain = false;
        state.limit = state.sent;
        let store = state.store;
        let (after, effect) = (state.after, Effect::Drained { conn: state.conn, link: state.link });
        self.emit(after, effect);
        if let Some(queue) = self.store_mut(store).and_then(|s| s.queue_mut()) {
            queue.draining.remove(&taker);
        }
    }

    /// How many ready messages match no attached consumer (QU-12), looking at no more than `limit` of them.
    pub(crate) fn stranded(&self, key: StoreKey, limit: usize) -> u64 {
        let Some(store) = self.store(key) else { return 0 };
        let Some(queue) = store.queue() else { return 0 };
        let takers: Vec<TakerKey> = queue.takers().collect();
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

/// The next message that a selective consumer would take.
fn candidate(store: &Store, bodies: &Bodies, state: &mut Taker, tries: &mut usize) -> Option<(u8, EventId)> {
    let queue = store.queue()?;
    loop {
        let (level, id) = queue.ready.after(state.scanned)?;
        if *tries == 0 {
            return None;
        }
        *tries -= 1;
        if wants(store, bodies, state, id) {
            return Some((level, id));
        }
        state.scanned[usize::from(level)] = id;
    }
}

/// Whether a consumer's own filter and its refusals let an event through.
fn wants(store: &Store, bodies: &Bodies, state: &Taker, id: EventId) -> bool {
    if state.refused.contains(&id) {
        return false;
    }
    let Some(filter) = &state.filter else { return true };
    let Some(entry) = store.log.get(id) else { return false };
    let Some(message) = bodies.get(entry.event.body) else { return false };
    filter.matches(&View { message, event: &entry.event })
}

impl Store {
    /// Takes a message of a queue out of the list in which its hold keeps it.
    pub(crate) fn release_hold(&mut self, id: EventId) {
        let Some(entry) = self.log.get(id) else { return };
        let (hold, priority) = (entry.hold, entry.event.priority);
        let Some(queue) = self.queue_mut() else { return };
        match hold {
            Hold::Ready => {
                let level = queue.level(priority);
                queue.ready.remove(level, id);
            }
            Hold::Delivered => queue.delivered = queue.delivered.saturating_sub(1),
            Hold::Delayed(due) => {
                queue.delayed.remove(&(due, id));
            }
            Hold::Blocked(_) => {
                queue.blocked.remove(&id);
            }
        }
    }

    /// An unsettled delivery is not expired under its consumer (QU-6).
    fn hide_from_expiry(&mut self, id: EventId) {
        let leaves = self.log.get(id).map_or(0, |entry| self.leaves_at(&entry.event));
        if leaves != 0 {
            self.expiry.remove(&(leaves, id));
        }
    }

    /// Makes an event subject to expiry again; when it leaves, 0 for never.
    pub(crate) fn show_to_expiry(&mut self, id: EventId) -> WallMs {
        let leaves = self.log.get(id).map_or(0, |entry| self.leaves_at(&entry.event));
        if leaves != 0 {
            self.expiry.insert((leaves, id));
        }
        leaves
    }
}
