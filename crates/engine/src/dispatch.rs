//! Dispatch: which message goes to which consumer of a queue (SH-3), and how a delivery leaves, whoever it is for.

use crate::bodies::{Bodies, Sight};
use crate::command::TakerKey;
use crate::effect::{Delivery, Effect, Step};
use crate::engine::{Engine, Task};
use crate::log::Hold;
use crate::rings::Turn;
use crate::slots::Slots;
use crate::store::Store;
use crate::taker::Taker;
use crate::view::View;
use postroad_model::id::{EventId, ObjectKey, StoreKey};
use postroad_model::refusal::Code;
use postroad_record::{Place, Record, Removal};
use std::cmp::Reverse;

/// Deliveries that one task of dispatch makes at most before others have a turn (DESIGN 7.5).
const DELIVERIES_PER_TASK: usize = 256;
/// Deliverable messages from which on producers wait while consumers do.
const BEHIND_FROM: u64 = 4_096;
/// Deliverable messages from which on producers slow down for consumers that could make up for them.
const MUCH_WAITS: u64 = 16_384;
/// Messages that one task of dispatch tries against selectors at most.
const TRIES_PER_TASK: usize = 2_000;

/// What a dead letter says whose bytes can't be read.
pub(crate) const DAMAGED: &str =
    "its bytes can't be read from the disk any more: the log says which file and where";

/// Whose delivery it is, which decides where its attempts and its sent mark are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// A queue's: its attempts stand at the message.
    Queue {
        /// Earlier failed attempts.
        failed: u32,
    },
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
            Self::Queue { .. } => Some(Place::Store(store)),
            Self::Object { object, .. } => Some(Place::Object(object)),
            Self::Volatile { .. } => None,
        }
    }
}

/// How far a task of dispatch came.
enum Done {
    /// Nothing more can be delivered now.
    All,
    /// There is more, for its next turn.
    Part,
    /// The next message must be read first.
    Reading,
    /// Selective consumers are to be asked about more messages.
    Searching,
}

/// What a look for the next delivery brought.
enum Found {
    /// A message and its consumer.
    Choice(Choice),
    /// A selective consumer must be asked about this message, which is not in memory.
    Unread(EventId),
    /// Nothing, or not yet.
    Nothing,
}

/// The choice of the next delivery.
struct Choice {
    taker: TakerKey,
    event: EventId,
    level: u8,
    turn: Turn,
}

impl Engine {
    /// Delivers what can be delivered from a queue; whether there is more to do.
    pub(crate) fn dispatch_queue(&mut self, key: StoreKey) -> bool {
        let done = self.dispatch_some(key);
        let behind = matches!(done, Done::Part | Done::Reading);
        if let Some(queue) = self.store_mut(key).and_then(Store::queue_mut)
            && std::mem::replace(&mut queue.behind, behind)
            && !behind
        {
            self.schedule(Task::Release(key));
        }
        matches!(done, Done::Part | Done::Searching)
    }

    fn dispatch_some(&mut self, key: StoreKey) -> Done {
        self.look_again_at_returned(key);
        let mut tries = TRIES_PER_TASK;
        let done = self.dispatch_with(key, &mut tries);
        if tries < TRIES_PER_TASK
            && let Some(queue) = self.store_mut(key).and_then(Store::queue_mut)
        {
            queue.passed_over = true;
        }
        done
    }

    fn dispatch_with(&mut self, key: StoreKey, tries: &mut usize) -> Done {
        for _ in 0..DELIVERIES_PER_TASK {
            if self.is_step_long() {
                break;
            }
            match self.choose(key, tries) {
                Found::Choice(choice) => {
                    if !self.take_choice(key, &choice) {
                        return Done::Reading;
                    }
                }
                Found::Unread(event) => {
                    if !self.is_at_hand(key, event, Task::Dispatch(key)) {
                        return Done::All;
                    }
                }
                Found::Nothing if *tries == 0 => return Done::Searching,
                Found::Nothing => {
                    self.finish_drains(key);
                    return Done::All;
                }
            }
        }
        Done::Part
    }

    /// Whether consumers of a queue wait for more than a while because the broker does not come after with what is there:
    /// then its producers wait, or they would fill the disk with what could go to somebody at once. Where consumers are
    /// slow, or there are none, they do not.
    pub(crate) fn is_behind(&self, key: StoreKey) -> bool {
        let queue = self.store(key).and_then(Store::queue);
        queue.is_some_and(|queue| queue.behind && queue.ready.len() > BEHIND_FROM)
    }

    /// Whether producers are to slow down, so that consumers who take about as much as they send can make up for what
    /// waits. Otherwise it would wait for as long as all go on: what was left behind has to be read from the disk, which
    /// slows down the consumers and not the producers.
    pub(crate) fn is_catching_up(&self, key: StoreKey) -> bool {
        let queue = self.store(key).and_then(Store::queue);
        queue.is_some_and(|queue| queue.pace.is_close && queue.ready.len() > MUCH_WAITS)
    }

    /// A message came to a store: of a queue with a backlog it counts for [`Self::is_catching_up`].
    pub(crate) fn note_arrival(&mut self, key: StoreKey) {
        let Some(store) = self.stores.get_mut(key) else { return };
        let delivered = store.counters.delivered_total;
        if let Some(queue) = store.queue_mut() {
            queue.pace.note_arrival(queue.ready.len() > MUCH_WAITS, delivered);
        }
    }

    /// Delivers a message that was chosen, or does what is to be done with it instead; false if it must be read first.
    fn take_choice(&mut self, key: StoreKey, choice: &Choice) -> bool {
        let id = choice.event;
        let Some(store) = self.stores.get(key) else { return true };
        let Some(entry) = store.log.get(id) else { return true };
        let leaves = store.leaves_at(&entry.event);
        if leaves != 0 && leaves <= self.now.wall {
            if self.lays_out_by_keys(key) && !self.is_at_hand(key, id, Task::Dispatch(key)) {
                return false;
            }
            // Its timer may not have had its turn yet: an expired message is never delivered (QU-6).
            if !self.expire_one(key, id) {
                self.keep_expired(key, id);
            }
            return true;
        }
        match self.bodies.sight(entry.event.body) {
            Sight::Here => {
                self.read_on(key, id, EventId::MAX, Task::Dispatch(key));
                self.deliver_from_queue(key, choice);
            }
            Sight::Away => return self.is_at_hand(key, id, Task::Dispatch(key)),
            Sight::Lost => self.dead_letter_from_queue(key, id, Code::MessageDamaged, DAMAGED),
        }
        true
    }

    /// Finds the next message and its consumer (SH-3): the best message first, its consumer in turn.
    fn choose(&mut self, key: StoreKey, tries: &mut usize) -> Found {
        let Some(store) = self.stores.get(key) else {
            return Found::Nothing;
        };
        let Some(queue) = store.queue() else { return Found::Nothing };
        let Some(first) = queue.ready.first() else { return Found::Nothing };
        if queue.settings.exclusive {
            let active = queue.rings.active().into_iter();
            return best_of(active, store, &self.bodies, &mut self.takers, tries, first);
        }
        for ring in queue.rings.in_turn() {
            let best = best_of(ring, store, &self.bodies, &mut self.takers, tries, first);
            if !matches!(best, Found::Nothing) || *tries == 0 {
                return best;
            }
        }
        Found::Nothing
    }

    /// A queue's consumer may have window now, or none any more.
    pub(crate) fn note_window(&mut self, taker: TakerKey) {
        let max_window = self.settings.max_window;
        let Some(state) = self.takers.get_mut(taker) else { return };
        let (store, turn, open) = (state.store, state.turn, state.window(max_window) > 0);
        if std::mem::replace(&mut state.listed_open, open) == open {
            return;
        }
        if let (Some(turn), Some(queue)) = (turn, self.store_mut(store).and_then(|s| s.queue_mut())) {
            queue.rings.set_open(turn, open);
        }
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
        queue.rings.served(choice.turn);
        queue.delivered += 1;
        let mut failed = 0;
        if let Some(entry) = store.log.get_mut(id) {
            entry.hold = Hold::Delivered;
            failed = entry.failed;
        }
        let Some(taker) = self.takers.get_mut(choice.taker) else { return };
        let tag = taker.note_sent(id);
        let presettled = taker.presettled;
        self.note_window(choice.taker);
        self.send_from_store(choice.taker, key, id, tag, From::Queue { failed });
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
            let presettled = self.takers.get(taker).is_some_and(|t| t.presettled);
            // What is counted before it is sent needs no mark.
            if presettled || !self.count_ahead(place, key, id) {
                let ahead =
                    self.takers.get(taker).map_or(0, |t| t.window(self.settings.max_window)).min(1_024);
                self.mark_sent(place, key, id, ahead);
            }
        }
        let under_way = self.step_under_way();
        let now = self.now.wall;
        let Some(state) = self.takers.get(taker) else { return };
        let Some(store) = self.stores.get(key) else { return };
        let Some(entry) = store.log.get(id) else { return };
        let Some(message) = self.bodies.get(entry.event.body) else { return };
        let (message, added) = self.with_added(message, store, id, state.source);
        let (failed, sent_before, marked) = match from {
            From::Queue { failed } => (failed, store.sent_before_start, store.marked),
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
            message,
            durable: entry.event.durable,
            priority: entry.event.priority,
            ttl_ms: (leaves != 0).then(|| u32::try_from(leaves.saturating_sub(now)).unwrap_or(u32::MAX)),
            delivery_count: failed.max(u32::from(maybe_sent)),
            settled: state.presettled,
            annotations: self.annotations(store, &entry.event, from),
        };
        let marked = if entry.on_disk { marked } else { Step(0) };
        let after = entry.after.max(under_way).max(state.after).max(marked).max(added);
        if let Some(state) = self.takers.get_mut(taker) {
            state.after = after;
        }
        let again = delivery.delivery_count > 0;
        let bytes = delivery.message.len();
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
        self.note_on_the_way(taker, bytes);
        if !self.has_window(taker) {
            self.finish_drain(taker);
        }
    }

    /// Counts an attempt as failed on disk before it is made, where that is wanted; whether it did (AK-10).
    fn count_ahead(&mut self, place: Place, key: StoreKey, id: EventId) -> bool {
        let Some(store) = self.stores.get_mut(key) else { return false };
        let Some(entry) = store.log.get(id).filter(|entry| entry.on_disk) else { return false };
        let (mut failed, mut counted) = (entry.failed, entry.counted);
        let is_new = match place {
            Place::Store(_) => {
                let queue = store.queue_mut().filter(|q| q.settings.redelivery.persist_count_before_delivery);
                queue.is_some_and(|queue| queue.counted_ahead.insert(id))
            }
            Place::Object(object) => {
                let object = self.objects.get(&object).filter(|object| object.counts_ahead());
                let Some(reader) = object.and_then(|o| self.readers.get_mut(o.reader)) else { return false };
                let attempts = reader.attempts.get(&id).copied().unwrap_or_default();
                (failed, counted) = (attempts.failed, attempts.counted);
                reader.counted_ahead.insert(id)
            }
        };
        if is_new {
            let failed = failed.saturating_add(1);
            self.record(Record::Attempted { place, event: id, failed, counted }, true);
        }
        is_new
    }

    /// Marks durably that deliveries up to `id`, and some ahead, may have been sent (AK-10).
    pub(crate) fn mark_sent(&mut self, place: Place, key: StoreKey, id: EventId, ahead: u64) {
        let Some(store) = self.store(key) else { return };
        let marked = match place {
            Place::Store(_) => store.sent_up_to,
            Place::Object(object) => match self.objects.get(&object) {
                Some(object) if object.settings.persistent => object.sent_up_to,
                _ => return,
            },
        };
        // Behind the newest event that was ever on disk there is nothing to look up.
        let may_be_on_disk = id > marked && id < store.durable_next;
        if may_be_on_disk && store.log.get(id).is_some_and(|e| e.on_disk) {
            self.record(Record::Sent { place, up_to: id.saturating_add(ahead) }, true);
        }
    }
}

/// The best message for consumers of one priority, and the first of them in turn that takes it.
fn best_of(
    turns: impl Iterator<Item = (Turn, TakerKey)>,
    store: &Store,
    bodies: &Bodies,
    takers: &mut Slots<Taker>,
    tries: &mut usize,
    first: (u8, EventId),
) -> Found {
    let mut best: Option<Choice> = None;
    for (turn, taker) in turns {
        let Some(state) = takers.get_mut(taker) else { continue };
        let selective = state.is_selective();
        let found = if selective { candidate(store, bodies, state, tries) } else { Ok(Some(first)) };
        let found = match found {
            Ok(found) => found,
            Err(unread) => return Found::Unread(unread),
        };
        if let Some((level, event)) = found {
            let better = |b: &Choice| (Reverse(level), event) < (Reverse(b.level), b.event);
            if best.as_ref().is_none_or(better) {
                best = Some(Choice { taker, event, level, turn });
            }
        }
        // Nobody further on can get a better message than the first one.
        if !selective || *tries == 0 {
            break;
        }
    }
    best.map_or(Found::Nothing, Found::Choice)
}

/// The next message that a selective consumer would take; `Err` with one that must be read before it can be told.
fn candidate(
    store: &Store,
    bodies: &Bodies,
    state: &mut Taker,
    tries: &mut usize,
) -> Result<Option<(u8, EventId)>, EventId> {
    let Some(queue) = store.queue() else { return Ok(None) };
    loop {
        let Some((level, id)) = queue.ready.after(state.scanned) else { return Ok(None) };
        if *tries == 0 {
            return Ok(None);
        }
        *tries -= 1;
        if state.filter.is_some() && is_away(store, bodies, id) {
            return Err(id);
        }
        if wants(store, bodies, state, id) {
            return Ok(Some((level, id)));
        }
        state.scanned[usize::from(level)] = id;
    }
}

/// Whether the message of an event is in the journal only.
fn is_away(store: &Store, bodies: &Bodies, id: EventId) -> bool {
    store.log.get(id).is_some_and(|entry| matches!(bodies.sight(entry.event.body), Sight::Away))
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
