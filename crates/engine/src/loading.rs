//! Reading messages back from the journal. The engine reads nothing itself: what it needs it asks for ([`Effect::Load`]),
//! and the work that needs it waits until it is there ([`Command::Loaded`](crate::Command::Loaded), DESIGN 7.8).

use crate::admin::Request;
use crate::bodies::Sight;
use crate::effect::{Effect, Step, Wanted};
use crate::engine::{Engine, Task};
use bytes::Bytes;
use postroad_model::id::{BodyId, EventId, StoreKey};
use postroad_model::message::Message;
use postroad_record::FramePlace;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// Messages of one store that are asked for together at most: what is read next is most likely what lies behind. A reading
/// is answered in a later turn, so these are what a consumer of a backlog gets in a turn.
const AHEAD: usize = 1_024;
/// Bytes of them at most.
const AHEAD_BYTES: u64 = 2 * 1024 * 1024;
/// Pieces of work that are read ahead of at once: what is there for them together is half of the cache that a broker has
/// by default. Where there are more, some can go on while others wait.
const READINGS: usize = 4;
/// Bytes that are under way at most; what else is wanted waits.
const UNDER_WAY_BYTES: u64 = 8 * 1024 * 1024;
/// Messages that one page of a browse waits for at most, and their bytes.
const PAGE_WAITS: (usize, u64) = (64, 256 * 1024);

/// What is asked for, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Asked for, and not sent out yet.
    asked: VecDeque<BodyId>,
    /// What is being read.
    reading: BTreeMap<BodyId, Wanted>,
    /// Bytes of it.
    under_way: u64,
    /// Work that waits for a message.
    waiting: BTreeMap<BodyId, Vec<Task>>,
    /// How many messages each piece of waiting work lacks.
    lacking: BTreeMap<Task, usize>,
    /// What stays in memory until this work had its turn.
    pins: BTreeMap<Task, Vec<BodyId>>,
    /// Work that goes through a backlog, the latest last.
    readings: Vec<Reading>,
    /// Messages that an operator's request would have looked at, had they been in memory.
    missed: RefCell<Vec<BodyId>>,
    /// Requests that wait for messages, by the numbers of their answers.
    requests: BTreeMap<u64, Request>,
    /// A request is carried out again: it makes do with what is in memory now.
    retrying: bool,
}

impl Loading {
    fn note_reading(&mut self, reading: Reading) {
        self.readings.retain(|known| known.task != reading.task);
        if self.readings.len() == READINGS {
            self.readings.remove(0);
        }
        self.readings.push(reading);
    }
}

/// How far messages were asked for ahead of a piece of work.
#[derive(Debug)]
struct Reading {
    task: Task,
    /// Where it began to ask the last time: when the work is here, the next ones are asked for.
    from: EventId,
    /// Up to here it asked, exclusive.
    to: EventId,
}

/// What came of reading a message.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Which message.
    pub body: BodyId,
    /// Its bytes, or why they can't be had, with the place.
    pub bytes: Result<Bytes, String>,
}

impl Engine {
    /// Whether the message of an event can be looked at now. If not, it is asked for with what lies behind it, and `task`
    /// has its turn when it is there. A message that can't be had counts as there: it is in nobody's way.
    pub(crate) fn is_at_hand(&mut self, key: StoreKey, id: EventId, task: Task) -> bool {
        self.is_at_hand_up_to(key, id, EventId::MAX, task)
    }

    /// As [`Self::is_at_hand`], for work that looks at no event behind `last`.
    pub(crate) fn is_at_hand_up_to(&mut self, key: StoreKey, id: EventId, last: EventId, task: Task) -> bool {
        let Some(entry) = self.store(key).and_then(|store| store.log.get(id)) else { return true };
        let body = entry.event.body;
        if !self.is_away(body) {
            self.read_on(key, id, last, task);
            return true;
        }
        if !self.bodies.is_loading(body) {
            self.ask_ahead(key, id, last, task);
        }
        self.wait_for(body, task);
        false
    }

    /// A piece of work is at an event that is in memory. If that was read for it, what lies behind is asked for before the
    /// work is there, so that it need not stop for it.
    pub(crate) fn read_on(&mut self, key: StoreKey, id: EventId, last: EventId, task: Task) {
        let readings = &mut self.loading.readings;
        let came = |reading: &Reading| reading.task == task && reading.from <= id;
        let Some(place) = readings.iter().position(came) else { return };
        let Reading { to, .. } = readings.remove(place);
        if id < to {
            self.ask_ahead(key, to, last, task);
        }
    }

    /// As [`Self::is_at_hand`], for a message that is known by its number alone.
    pub(crate) fn is_body_at_hand(&mut self, body: BodyId, task: Task) -> bool {
        if !self.is_away(body) {
            return true;
        }
        self.loading.asked.push_back(body);
        self.wait_for(body, task);
        false
    }

    fn is_away(&self, body: BodyId) -> bool {
        matches!(self.bodies.sight(body), Sight::Away)
    }

    /// Whether the message of an event is in memory.
    pub(crate) fn is_here(&self, key: StoreKey, id: EventId) -> bool {
        let entry = self.store(key).and_then(|store| store.log.get(id));
        entry.is_some_and(|entry| self.bodies.get(entry.event.body).is_some())
    }

    /// Whether the message of an event is in the journal only.
    pub(crate) fn is_unread(&self, key: StoreKey, id: EventId) -> bool {
        let entry = self.store(key).and_then(|store| store.log.get(id));
        entry.is_some_and(|entry| self.is_away(entry.event.body))
    }

    /// Whether the message of an event can't be had any more.
    pub(crate) fn is_lost(&self, key: StoreKey, id: EventId) -> bool {
        let entry = self.store(key).and_then(|store| store.log.get(id));
        entry.is_some_and(|entry| matches!(self.bodies.sight(entry.event.body), Sight::Lost))
    }

    fn wait_for(&mut self, body: BodyId, task: Task) {
        let waiting = self.loading.waiting.entry(body).or_default();
        if !waiting.contains(&task) {
            waiting.push(task);
            *self.loading.lacking.entry(task).or_default() += 1;
        }
    }

    /// Asks for the messages of a store from an event on, as far as they are not in memory, and notes for whom.
    fn ask_ahead(&mut self, key: StoreKey, id: EventId, last: EventId, task: Task) {
        let Some(store) = self.stores.get(key) else { return };
        let (mut at, mut bytes) = (id, 0);
        for _ in 0..AHEAD {
            let Some(entry) = store.log.first_from(at).filter(|entry| entry.event.id <= last) else { break };
            let body = entry.event.body;
            if matches!(self.bodies.sight(body), Sight::Away) {
                bytes += self.bodies.size(body);
                if bytes > AHEAD_BYTES && entry.event.id != id {
                    break;
                }
                self.loading.asked.push_back(body);
            }
            at = entry.event.id + 1;
        }
        if bytes > 0 {
            self.loading.note_reading(Reading { task, from: id, to: at });
        }
    }

    /// Sends out what was asked for, as far as not too much is under way already.
    pub(crate) fn send_loads(&mut self) {
        let mut wanted = Vec::new();
        while self.loading.under_way < UNDER_WAY_BYTES {
            let Some(body) = self.loading.asked.pop_front() else { break };
            if let Some((place, length)) = self.bodies.begin_load(body) {
                self.loading.under_way += u64::from(length);
                self.loading.reading.insert(body, Wanted { body, place, length });
                wanted.push(Wanted { body, place, length });
            } else if !self.is_away(body) {
                // It is in memory again, or it is gone: nobody would be told.
                self.wake_waiting(body, false);
            }
        }
        if !wanted.is_empty() {
            self.emit(Step(0), Effect::Load { wanted });
        }
    }

    /// Messages were read, or can't be.
    pub(crate) fn take_loaded(&mut self, loaded: Vec<Loaded>) {
        for Loaded { body, bytes } in loaded {
            let Some(wanted) = self.loading.reading.remove(&body) else { continue };
            self.loading.under_way -= u64::from(wanted.length);
            let Some((annotations, place)) = self.bodies.whereabouts(body) else {
                // It went while it was read; what waited for it looks again.
                self.wake_waiting(body, false);
                continue;
            };
            let read = bytes.and_then(|bytes| {
                Message::from_stored(bytes, annotations).map_err(|error| format!("it does not scan: {error}"))
            });
            if read.is_err() && place != Some(wanted.place) {
                // It was moved meanwhile: it is to be read where it lies now.
                self.bodies.give_up_load(body);
                self.loading.asked.push_back(body);
                continue;
            }
            if let Err(reason) = &read {
                tracing::error!(message = body.0, %reason, "a stored message can't be read");
            }
            let pin = self.loading.waiting.contains_key(&body);
            self.bodies.loaded(body, read.ok(), pin);
            self.wake_waiting(body, true);
        }
    }

    fn wake_waiting(&mut self, body: BodyId, pinned: bool) {
        for task in self.loading.waiting.remove(&body).unwrap_or_default() {
            if pinned {
                self.loading.pins.entry(task).or_default().push(body);
            }
            let lacking = self.loading.lacking.entry(task).or_default();
            *lacking = lacking.saturating_sub(1);
            if *lacking > 0 {
                continue;
            }
            self.loading.lacking.remove(&task);
            if let Task::Request(reply) = task {
                // An operator's question changes nothing, so it need not wait for its turn.
                self.retry_request(reply);
                self.had_its_turn(task);
            } else {
                self.schedule(task);
            }
        }
    }

    /// A piece of work had its turn: what was kept in memory for it may go.
    pub(crate) fn had_its_turn(&mut self, task: Task) {
        if self.loading.pins.is_empty() {
            return;
        }
        for body in self.loading.pins.remove(&task).unwrap_or_default() {
            self.bodies.unpin(body);
        }
    }

    /// The message, for an operator's request: if it is not in memory, the request is carried out again when it is.
    pub(crate) fn look_at(&self, body: BodyId) -> Option<&Message> {
        if self.is_away(body) {
            self.loading.missed.borrow_mut().push(body);
        }
        self.bodies.get(body)
    }

    /// Whether a page of a browse ends before this message, which is not in memory: on the first try only when it has
    /// enough to wait for.
    pub(crate) fn is_page_over(&self, body: BodyId) -> bool {
        let missed = self.loading.missed.borrow();
        let bytes = || missed.iter().map(|&body| self.bodies.size(body)).sum::<u64>();
        self.is_away(body)
            && (self.loading.retrying || missed.len() >= PAGE_WAITS.0 || bytes() >= PAGE_WAITS.1)
    }

    /// Carries out an operator's request, and answers it unless it is answered later.
    pub(crate) fn take_request(&mut self, reply: u64, request: Request) {
        let looks = matches!(
            request,
            Request::BrowseStore { .. } | Request::BrowseObject { .. } | Request::ListScheduled { .. }
        );
        let again = (looks && !self.loading.retrying).then(|| request.clone());
        let result = self.administer(reply, request);
        let missed = std::mem::take(&mut *self.loading.missed.borrow_mut());
        if let (Some(request), false) = (again, missed.is_empty()) {
            for body in missed {
                self.loading.asked.push_back(body);
                self.wait_for(body, Task::Request(reply));
            }
            self.loading.requests.insert(reply, request);
            return;
        }
        if let Some(result) = result {
            self.answer_operator(reply, result);
        }
    }

    /// What a request wanted to look at is in memory.
    fn retry_request(&mut self, reply: u64) {
        if let Some(request) = self.loading.requests.remove(&reply) {
            self.loading.retrying = true;
            self.take_request(reply, request);
            self.loading.retrying = false;
        }
    }

    /// The bytes of a message, if they are in memory.
    #[must_use]
    pub fn message_in_memory(&self, body: BodyId) -> Option<Bytes> {
        self.bodies.get(body).map(|message| message.bytes().clone())
    }

    /// The payload of this step lies here in the journal. Call it for every step, in order, once it was appended.
    pub fn placed(&mut self, step: Step, place: FramePlace) {
        self.bodies.placed(step, place);
    }

    /// Every step up to this one is durable.
    pub fn became_durable(&mut self, step: Step) {
        self.bodies.became_durable(step);
    }
}
