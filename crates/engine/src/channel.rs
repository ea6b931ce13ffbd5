//! Channels: each event is offered once to the readers at the tail, and read by those behind at their own pace.

use crate::command::{Settlement, TakerKey};
use crate::engine::{Engine, Task};
use crate::queue::From;
use crate::reader::{Owed, Position, ReaderKey, Readers, Who};
use crate::view::View;
use postroad_model::id::{EventId, StoreKey};
use postroad_model::refusal::Code;
use postroad_model::settings::{ChannelSettings, Retention, StoreType};
use postroad_record::{Place, Record, Removal};

/// Events that one task of fan-out offers at most.
const OFFERS_PER_TASK: usize = 64;
/// Events that one task reads for a reader behind at most.
const READS_PER_TASK: usize = 512;

/// What a channel has besides its events.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Its settings.
    pub settings: ChannelSettings,
    /// Who reads it.
    pub readers: Readers,
    /// Every event at or below this id was offered to the readers at the tail.
    pub offered: EventId,
}

impl Channel {
    /// A channel without readers.
    #[must_use]
    pub(crate) fn new(settings: ChannelSettings, first_id: EventId) -> Self {
        Self { settings, readers: Readers::default(), offered: first_id - 1 }
    }

    /// Whether events go as soon as nobody needs them.
    #[must_use]
    pub(crate) fn keeps_by_interest(&self) -> bool {
        self.settings.retention == Retention::Interest || self.settings.store_type == StoreType::Transient
    }

    /// The lowest event that a reader needs; everything not yet offered counts as needed.
    #[must_use]
    pub(crate) fn lowest_need(&self) -> EventId {
        self.readers.needs.first().map_or(self.offered + 1, |&(id, _)| id.min(self.offered + 1))
    }
}

impl Engine {
    /// Offers new events to the readers at the tail; whether there is more to do.
    pub(crate) fn fan_out(&mut self, key: StoreKey) -> bool {
        for _ in 0..OFFERS_PER_TASK {
            let Some(store) = self.store(key) else { return false };
            let Some(channel) = store.channel() else { return false };
            let Some(entry) = store.log.first_from(channel.offered + 1) else {
                self.set_offered(key, store.last_id());
                self.schedule(Task::Trim(key));
                return false;
            };
            let id = entry.event.id;
            let mut wanting: Vec<ReaderKey> = Vec::new();
            if let Some(message) = self.bodies.get(entry.event.body) {
                let view = View { message, event: &entry.event };
                channel.readers.filtered.matches(&view, &mut wanting);
            }
            wanting.extend(channel.readers.plain.iter().copied());
            self.set_offered(key, id);
            for reader in wanting {
                self.offer(reader, id);
            }
        }
        true
    }

    fn set_offered(&mut self, key: StoreKey, id: EventId) {
        if let Some(channel) = self.store_mut(key).and_then(|s| s.channel_mut()) {
            channel.offered = channel.offered.max(id);
        }
    }

    /// Offers one event to a reader at the tail: it is sent on at once, or the reader falls behind.
    fn offer(&mut self, key: ReaderKey, id: EventId) {
        let Some(reader) = self.readers.get(key) else { return };
        if id < reader.begin || self.is_own(key, id) || self.is_expired(reader.store, id) {
            return;
        }
        match (reader.who, reader.taker) {
            (Who::Join(join), _) => {
                self.fall_behind(key, id);
                self.schedule(Task::Join(join));
            }
            (_, Some(taker)) if reader.first_returned(u64::MAX).is_none() && self.has_window(taker) => {
                if self.taker_wants(taker, reader.store, id) {
                    self.send_to_reader(key, taker, id);
                } else if let Some(reader) = self.readers.get_mut(key) {
                    reader.passed.insert(id, id);
                }
                self.list_need(key);
            }
            _ => self.fall_behind(key, id),
        }
    }

    /// Whether a no-local reader's own client published the event (AM-10).
    fn is_own(&self, key: ReaderKey, id: EventId) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        let Some(own) = &reader.no_local else { return false };
        let entry = self.store(reader.store).and_then(|s| s.log.get(id));
        let publisher = entry.and_then(|e| e.event.extra.as_ref()?.publisher.as_ref());
        publisher == Some(own)
    }

    pub(crate) fn has_window(&self, taker: TakerKey) -> bool {
        self.takers.get(taker).is_some_and(|t| t.window(self.settings.max_window) > 0)
    }

    /// The reader leaves the tail: from `id` on it is read at its own pace.
    fn fall_behind(&mut self, key: ReaderKey, id: EventId) {
        self.leave_tail(key);
        if let Some(reader) = self.readers.get_mut(key) {
            reader.position = Position::Behind(id);
        }
        self.list_need(key);
    }

    /// Takes a reader out of the channel's index of readers at the tail.
    pub(crate) fn leave_tail(&mut self, key: ReaderKey) {
        let Some(reader) = self.readers.get(key) else { return };
        let (store, filter) = (reader.store, reader.filter.clone());
        let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) else { return };
        match filter {
            Some(filter) => {
                channel.readers.filtered.remove(&filter, &key);
            }
            None => {
                channel.readers.plain.remove(&key);
            }
        }
    }

    /// Puts a reader that has looked at everything into the index of readers at the tail.
    pub(crate) fn reach_tail(&mut self, key: ReaderKey) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        reader.position = Position::Tail;
        let (store, filter) = (reader.store, reader.filter.clone());
        let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) else { return };
        match filter {
            Some(filter) => {
                channel.readers.filtered.insert(&filter, key);
            }
            None => {
                channel.readers.plain.insert(key);
            }
        }
        self.list_need(key);
    }

    /// Brings a reader's entry in the channel's list of lowest needs up to date.
    pub(crate) fn list_need(&mut self, key: ReaderKey) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        let need = reader.lowest_need();
        let (store, listed) = (reader.store, std::mem::replace(&mut reader.listed, need));
        if listed == need {
            return;
        }
        let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) else { return };
        if let Some(old) = listed {
            channel.readers.needs.remove(&(old, key));
        }
        if let Some(new) = need {
            channel.readers.needs.insert((new, key));
        }
        if channel.keeps_by_interest() {
            self.schedule(Task::Trim(store));
        }
    }

    /// Sends a reader's consumer what it may have; whether there is more to do.
    pub(crate) fn feed(&mut self, key: ReaderKey) -> bool {
        let more = self.feed_some(key);
        self.list_need(key);
        more
    }

    fn feed_some(&mut self, key: ReaderKey) -> bool {
        for _ in 0..READS_PER_TASK {
            let Some(reader) = self.readers.get(key) else { return false };
            let Some(taker) = reader.taker else { return false };
            let store = reader.store;
            if !self.has_window(taker) {
                return false;
            }
            let returned = self.readers.get(key).and_then(|r| r.first_returned(self.now.mono));
            match returned {
                Some(Ok(id)) => {
                    if !self.send_again(key, taker, id) {
                        return false;
                    }
                    continue;
                }
                // Order goes before progress: newer events wait for the delayed one (AK-7).
                Some(Err(due)) => {
                    self.wake_at(due, Task::Feed(key));
                    self.finish_drain(taker);
                    return false;
                }
                None => {}
            }
            match self.next_wanted(key) {
                Next::Event(id) if self.taker_wants(taker, store, id) => {
                    self.send_to_reader(key, taker, id);
                }
                Next::Event(id) => {
                    if let Some(reader) = self.readers.get_mut(key) {
                        reader.passed.insert(id, id);
                    }
                }
                Next::Looked => {}
                Next::End => {
                    self.finish_drain(taker);
                    return false;
                }
            }
        }
        true
    }

    /// Looks at one more event for a reader behind.
    fn next_wanted(&mut self, key: ReaderKey) -> Next {
        let Some(reader) = self.readers.get(key) else { return Next::End };
        let Position::Behind(at) = reader.position else { return Next::End };
        let Some(store) = self.store(reader.store) else { return Next::End };
        let offered = store.channel().map_or(0, |c| c.offered);
        let found = store.log.first_from(at).filter(|e| e.event.id <= offered);
        let Some(entry) = found else {
            self.reach_tail(key);
            return Next::End;
        };
        let id = entry.event.id;
        let matches = reader.filter.as_ref().is_none_or(|filter| {
            let message = self.bodies.get(entry.event.body);
            message.is_some_and(|message| filter.matches(&View { message, event: &entry.event }))
        });
        let wanted = matches
            && !self.is_expired(reader.store, id)
            && !reader.done.contains(id)
            && !reader.owed.contains_key(&id)
            && !self.is_own(key, id);
        if let Some(reader) = self.readers.get_mut(key) {
            reader.position = Position::Behind(id + 1);
        }
        if wanted { Next::Event(id) } else { Next::Looked }
    }

    /// Sends an event to a reader's consumer for the first time since the reader looked at it.
    fn send_to_reader(&mut self, key: ReaderKey, taker: TakerKey, id: EventId) {
        let Some(state) = self.takers.get_mut(taker) else { return };
        let (tag, presettled) = (state.note_sent(id), state.presettled);
        let Some(reader) = self.readers.get_mut(key) else { return };
        reader.owed.insert(id, Owed::Delivered(tag));
        let (store, who) = (reader.store, reader.who);
        let failed = reader.attempts.get(&id).map_or(0, |&(failed, _)| failed);
        let from = match who {
            Who::Object(object) => From::Object { object, failed },
            Who::Volatile | Who::Join(_) => From::Volatile { failed },
        };
        self.send_from_store(taker, store, id, tag, from);
        if presettled {
            self.finish_for_reader(key, &[(tag, id)]);
        }
    }

    /// Sends an event again that came back; false if it is gone and there was nothing to send.
    fn send_again(&mut self, key: ReaderKey, taker: TakerKey, id: EventId) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        let gone = self.store(reader.store).is_none_or(|s| s.log.get(id).is_none());
        if gone {
            self.finish_for_reader(key, &[(u64::MAX, id)]);
            return true;
        }
        if !self.taker_wants(taker, reader.store, id) {
            // This consumer does not want it: it waits for the next one.
            if let Some(reader) = self.readers.get_mut(key) {
                reader.owed.remove(&id);
                reader.passed.insert(id, id);
            }
            return true;
        }
        self.send_to_reader(key, taker, id);
        true
    }

    /// The outcomes of a range of a channel consumer's deliveries.
    pub(crate) fn settle_for_reader(
        &mut self,
        key: ReaderKey,
        closed: &[(u64, EventId)],
        outcome: &Settlement,
    ) {
        match outcome {
            Settlement::Accepted => self.finish_for_reader(key, closed),
            Settlement::Released => {
                for &(tag, id) in closed {
                    self.return_to_reader(key, tag, id, None);
                }
            }
            Settlement::Modified { failed, undeliverable_here } => {
                for &(tag, id) in closed {
                    if *undeliverable_here {
                        let text = "its only consumer said that it can't take the message";
                        self.dead_letter_from_reader(key, id, Code::RefusedByAll, text);
                    } else {
                        self.return_to_reader(key, tag, id, failed.then_some(true));
                    }
                }
            }
            Settlement::Rejected { reason } => {
                for &(_, id) in closed {
                    let text = reason.as_deref().unwrap_or("the consumer rejected the message");
                    self.dead_letter_from_reader(key, id, Code::Rejected, text);
                }
            }
        }
        self.schedule(Task::Feed(key));
    }

    /// A delivery came back. `failed` says that an attempt failed, and whether it counts (AK-5).
    pub(crate) fn return_to_reader(&mut self, key: ReaderKey, tag: u64, id: EventId, failed: Option<bool>) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        if reader.owed.get(&id) != Some(&Owed::Delivered(tag)) {
            return;
        }
        let (mut failed_so_far, mut counted) = reader.attempts.get(&id).copied().unwrap_or_default();
        if let Some(counts) = failed {
            failed_so_far = failed_so_far.saturating_add(1);
            counted += u32::from(counts);
            reader.attempts.insert(id, (failed_so_far, counted));
        }
        let (who, mono) = (reader.who, self.now.mono);
        let mut due = mono;
        if let Who::Object(object) = who
            && let Some(state) = self.objects.get(&object)
        {
            let redelivery = state.settings.redelivery.clone();
            if failed.is_some() {
                let durable = state.settings.persistent;
                let place = Place::Object(object);
                self.record(Record::Attempted { place, event: id, failed: failed_so_far, counted }, durable);
                due = mono.saturating_add(redelivery.delay_ms(failed_so_far));
            }
            if u32::try_from(redelivery.max_delivery_attempts).is_ok_and(|max| counted >= max) {
                let text = "the message failed as often as max_delivery_attempts allows";
                self.dead_letter_from_reader(key, id, Code::MaxAttempts, text);
                return;
            }
        }
        if let Some(reader) = self.readers.get_mut(key) {
            reader.owed.insert(id, Owed::Returned(due));
        }
    }

    /// Removes what nobody needs from a channel with `retention = "interest"`; whether there is more to do.
    pub(crate) fn trim(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        let Some(channel) = store.channel() else { return false };
        if !channel.keeps_by_interest() {
            return false;
        }
        let need = channel.lowest_need();
        let Some(first) = store.log.first().map(|e| e.event.id).filter(|&id| id < need) else {
            return false;
        };
        // One range, but no more events than a task may touch.
        let last = need.min(first + READS_PER_TASK as u64) - 1;
        let durable = self.any_on_disk(key, first, last);
        self.record(
            Record::Removed { store: key, ids: vec![(first, last)], why: Removal::Unneeded },
            durable,
        );
        self.room_in(key);
        true
    }
}

/// What a look at the next event found.
enum Next {
    /// An event that the reader wants.
    Event(EventId),
    /// An event that it does not want.
    Looked,
    /// Nothing more.
    End,
}
