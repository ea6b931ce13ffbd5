//! Channels: each event is offered once to the readers at the tail, and read by those behind at their own pace.

use crate::command::{Settlement, TakerKey};
use crate::dispatch::{DAMAGED, From};
use crate::engine::{Engine, Task};
use crate::log::Entry;
use crate::reader::{Attempts, Owed, Position, Reader, ReaderKey, Readers, Who};
use crate::store::Store;
use crate::view::View;
use postroad_model::id::{EventId, JoinKey, StoreKey};
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
    /// How many events were offered since the start.
    pub offers: u64,
}

impl Channel {
    /// A channel without readers.
    #[must_use]
    pub(crate) fn new(settings: ChannelSettings, first_id: EventId) -> Self {
        Self { settings, readers: Readers::default(), offered: first_id - 1, offers: 0 }
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
        self.offer_events(key, true)
    }

    /// As [`Self::fan_out`], for what can't wait for messages to be read: such an event is one that every reader wants.
    pub(crate) fn fan_out_now(&mut self, key: StoreKey) -> bool {
        self.offer_events(key, false)
    }

    fn offer_events(&mut self, key: StoreKey, may_wait: bool) -> bool {
        let mut wanting: Vec<ReaderKey> = Vec::new();
        for _ in 0..OFFERS_PER_TASK {
            let Some(store) = self.store(key) else { return false };
            let Some(channel) = store.channel() else { return false };
            let Some(entry) = store.log.first_from(channel.offered + 1) else {
                self.all_offered(key);
                return false;
            };
            let id = entry.event.id;
            let is_watched = !(channel.readers.plain.is_empty() && channel.readers.filtered.is_empty());
            if may_wait && is_watched && !self.is_at_hand(key, id, Task::FanOut(key)) {
                return false;
            }
            let Some(store) = self.store(key) else { return false };
            let (Some(channel), Some(entry)) = (store.channel(), store.log.get(id)) else { return false };
            wanting.clear();
            match self.bodies.get(entry.event.body) {
                Some(message) => {
                    let view = View { message, event: &entry.event };
                    channel.readers.filtered.matches(&view, &mut wanting);
                }
                None => channel.readers.filtered.keys(&mut wanting),
            }
            wanting.extend(channel.readers.plain.iter().copied());
            if let Some(channel) = self.store_mut(key).and_then(|s| s.channel_mut()) {
                channel.offered = id;
                channel.offers += 1;
            }
            for &reader in &wanting {
                self.offer(reader, id);
            }
        }
        true
    }

    fn all_offered(&mut self, key: StoreKey) {
        let Some(store) = self.store_mut(key) else { return };
        let last = store.last_id();
        let Some(channel) = store.channel_mut() else { return };
        channel.offered = channel.offered.max(last);
        for reader in std::mem::take(&mut channel.readers.draining) {
            self.schedule(Task::Feed(reader));
        }
        self.schedule(Task::Trim(key));
    }

    /// Offers one event to a reader at the tail: it is sent on at once, or the reader falls behind.
    fn offer(&mut self, key: ReaderKey, id: EventId) {
        let Some(reader) = self.readers.get(key) else { return };
        if let Who::Join(join) = reader.who {
            self.fall_behind(key, id);
            self.schedule(Task::Join(join));
            return;
        }
        if id < reader.begin || self.is_own(key, id) || self.is_expired(reader.store, id) {
            return;
        }
        match reader.taker {
            Some(taker)
                if reader.first_returned().is_none()
                    && self.has_window(taker)
                    && self.is_here(reader.store, id) =>
            {
                if self.taker_wants(taker, reader.store, id) {
                    self.send_to_reader(key, taker, id);
                } else if let Some(reader) = self.readers.get_mut(key) {
                    reader.passed.insert(id, id);
                }
                self.list_need(key);
            }
            taker => {
                self.fall_behind(key, id);
                // No credit and no outcome may be due from a consumer that can take more, to wake its reader.
                if taker.is_some_and(|taker| self.has_window(taker)) {
                    self.schedule(Task::Feed(key));
                }
            }
        }
    }

    /// Whether a no-local reader's own client published the event (AM-10).
    pub(crate) fn is_own(&self, key: ReaderKey, id: EventId) -> bool {
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
        if let Some(Who::Join(join)) = self.readers.get(key).map(|reader| reader.who)
            && let Some(join) = self.joins.get_mut(&join)
        {
            join.offers_seen += 1;
        }
        self.leave_tail(key);
        if let Some(reader) = self.readers.get_mut(key) {
            reader.position = Position::Behind(id);
        }
        self.list_need(key);
    }

    /// Takes a reader out of the channel's index of readers at the tail.
    pub(crate) fn leave_tail(&mut self, key: ReaderKey) {
        let Some(reader) = self.readers.get(key).filter(|reader| reader.position == Position::Tail) else {
            return;
        };
        let (store, filter, who) = (reader.store, reader.filter.clone(), reader.who);
        if let Who::Join(join) = who {
            self.count_kept_back(join, store);
        }
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
        let (store, filter, who) = (reader.store, reader.filter.clone(), reader.who);
        let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) else { return };
        let offers = channel.offers;
        match filter {
            Some(filter) => {
                channel.readers.filtered.insert(&filter, key);
            }
            None => {
                channel.readers.plain.insert(key);
            }
        }
        if let Who::Join(join) = who
            && let Some(join) = self.joins.get_mut(&join)
        {
            join.offers_seen = offers;
        }
        self.list_need(key);
    }

    /// What was offered while a join stood at the tail and did not reach it was kept back by its filter.
    fn count_kept_back(&mut self, join: JoinKey, store: StoreKey) {
        let offers = self.store(store).and_then(Store::channel).map_or(0, |channel| channel.offers);
        if let Some(join) = self.joins.get_mut(&join) {
            join.counters.filtered_total += offers.saturating_sub(join.offers_seen);
            join.offers_seen = offers;
        }
    }

    /// Brings a reader's entry in the channel's list of lowest needs up to date.
    pub(crate) fn list_need(&mut self, key: ReaderKey) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        let need = reader.lowest_need();
        let (store, listed) = (reader.store, std::mem::replace(&mut reader.listed, need));
        let is_join = matches!(reader.who, Who::Join(_));
        if listed == need {
            return;
        }
        let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) else { return };
        channel.readers.list(key, listed, need, is_join);
        if channel.keeps_by_interest() {
            self.schedule(Task::Trim(store));
        }
    }

    /// Moves a reader past what it does not want, and sends its consumer what it may have; whether there is more to do.
    pub(crate) fn feed(&mut self, key: ReaderKey) -> bool {
        if self.readers.get(key).is_none_or(|reader| matches!(reader.who, Who::Join(_))) {
            return false;
        }
        self.forget_passed(key);
        let more = self.feed_some(key);
        self.list_need(key);
        more
    }

    /// What a consumer's own filter passed over and has left the channel since waits for no other consumer (EX-6).
    fn forget_passed(&mut self, key: ReaderKey) {
        let first = |reader: &Reader| Some((reader.store, reader.passed.iter().next()?.0));
        while let Some((store, passed)) = self.readers.get(key).and_then(first) {
            let Some(store) = self.store(store) else { return };
            let stored = store.log.first_from(passed).map_or(EventId::MAX, |entry| entry.event.id);
            if stored == passed {
                return;
            }
            if let Some(reader) = self.readers.get_mut(key) {
                reader.passed.trim_below(stored);
            }
        }
    }

    fn feed_some(&mut self, key: ReaderKey) -> bool {
        for _ in 0..READS_PER_TASK {
            let next = self.next_for(key);
            if let Next::Unread(id) = next {
                let store = self.readers.get(key).map(|reader| reader.store);
                // It was away a moment ago, so it is asked for now.
                if store.is_none_or(|store| !self.is_at_hand(store, id, Task::Feed(key))) {
                    return false;
                }
                continue;
            }
            // Without a consumer it waits at the first event that somebody will have to take.
            let taker = self.readers.get(key).and_then(|reader| reader.taker);
            match (next, taker) {
                (Next::Looked, _) => {}
                (Next::Gone(id), _) => self.finish_for_reader(key, &[(u64::MAX, id)]),
                (Next::New(id) | Next::Again(id), Some(taker)) if self.has_window(taker) => {
                    let store = self.takers.get(taker).map(|taker| taker.store);
                    if store.is_some_and(|store| !self.is_at_hand(store, id, Task::Feed(key))) {
                        return false;
                    }
                    self.send_or_pass(key, taker, id);
                }
                (Next::End, _) if self.awaits_offers(key) => return false,
                (next, taker) => {
                    if let (Next::Wait(due), Some(_)) = (next, taker) {
                        self.wake_at(due, Task::Feed(key));
                    }
                    if let Some(taker) = taker {
                        self.finish_drain(taker);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// A reader that has looked at everything stands at the tail. True if what was stored since must be offered before
    /// its consumer can be told that there is nothing more.
    fn awaits_offers(&mut self, key: ReaderKey) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        let (store, behind) = (reader.store, matches!(reader.position, Position::Behind(_)));
        if behind {
            self.reach_tail(key);
        }
        let Some(state) = self.store_mut(store) else { return false };
        let last = state.last_id();
        let Some(channel) = state.channel_mut().filter(|channel| channel.offered < last) else {
            return false;
        };
        channel.readers.draining.insert(key);
        self.schedule(Task::FanOut(store));
        true
    }

    /// Looks for the next event of a reader: what came back and what it has not looked at, in the order of ids.
    fn next_for(&mut self, key: ReaderKey) -> Next {
        let Some(reader) = self.readers.get(key) else { return Next::End };
        let returned = reader.first_returned();
        let found = self.next_unseen(reader);
        let unseen = found.filter(|&id| returned.is_none_or(|(first, _)| id < first));
        let Some(id) = unseen else {
            return match returned {
                Some((id, _)) if !self.is_stored(reader.store, id) => Next::Gone(id),
                // Order goes before progress: newer events wait for the delayed one (AK-7).
                Some((_, due)) if due > self.now.mono => Next::Wait(due),
                Some((id, _)) => Next::Again(id),
                None => Next::End,
            };
        };
        if reader.filter.is_some() && self.is_unread(reader.store, id) {
            return Next::Unread(id);
        }
        let wanted = !self.is_expired(reader.store, id)
            && !reader.done.contains(id)
            && !reader.owed().contains_key(&id)
            && self.reader_matches(key, id)
            && !self.is_own(key, id);
        let position = Position::Behind(if wanted { id } else { id + 1 });
        if let Some(reader) = self.readers.get_mut(key) {
            reader.position = position;
        }
        if wanted { Next::New(id) } else { Next::Looked }
    }

    /// Whether an event is still in its store.
    fn is_stored(&self, store: StoreKey, id: EventId) -> bool {
        self.store(store).is_some_and(|store| store.log.get(id).is_some())
    }

    /// The next offered event that a reader behind has not looked at.
    fn next_unseen(&self, reader: &Reader) -> Option<EventId> {
        let Position::Behind(at) = reader.position else { return None };
        let store = self.store(reader.store)?;
        let offered = store.channel()?.offered;
        store.log.first_from(at).map(|entry| entry.event.id).filter(|&id| id <= offered)
    }

    /// Sends an event to a reader's consumer, unless its own filter passes over it: then it waits for the next one.
    fn send_or_pass(&mut self, key: ReaderKey, taker: TakerKey, id: EventId) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        let store = reader.store;
        if let Position::Behind(at) = reader.position
            && at == id
        {
            reader.position = Position::Behind(id + 1);
        }
        if !self.is_stored(store, id) {
            self.finish_for_reader(key, &[(u64::MAX, id)]);
        } else if self.is_lost(store, id) {
            self.dead_letter_from_reader(key, id, Code::MessageDamaged, DAMAGED);
        } else if self.taker_wants(taker, store, id) {
            self.send_to_reader(key, taker, id);
        } else if let Some(reader) = self.readers.get_mut(key) {
            reader.forgive(id);
            reader.passed.insert(id, id);
        }
    }

    /// Sends an event to a reader's consumer.
    fn send_to_reader(&mut self, key: ReaderKey, taker: TakerKey, id: EventId) {
        let Some(state) = self.takers.get_mut(taker) else { return };
        let (tag, presettled) = (state.note_sent(id), state.presettled);
        let Some(reader) = self.readers.get_mut(key) else { return };
        reader.owe(id, Owed::Delivered(tag));
        let (store, who) = (reader.store, reader.who);
        let Attempts { failed, after, .. } = reader.attempts.get(&id).copied().unwrap_or_default();
        let from = match who {
            Who::Object(object) => From::Object { object, failed, after },
            Who::Volatile | Who::Join(_) => From::Volatile { failed },
        };
        self.send_from_store(taker, store, id, tag, from);
        if presettled {
            self.finish_for_reader(key, &[(tag, id)]);
        }
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
            Settlement::Modified { failed, undeliverable_here, .. } => {
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
        let now = self.now.mono;
        let Some(reader) = self.readers.get(key) else { return };
        if reader.owed().get(&id) != Some(&Owed::Delivered(tag)) {
            return;
        }
        let on_disk = self.store(reader.store).and_then(|s| s.log.get(id)).is_some_and(|entry| entry.on_disk);
        let Some(reader) = self.readers.get_mut(key) else { return };
        let Attempts { failed: before, mut counted, after } =
            reader.attempts.get(&id).copied().unwrap_or_default();
        let mut failed_so_far = before.saturating_sub(u32::from(reader.counted_ahead.contains(&id)));
        if let Some(counts) = failed {
            failed_so_far = failed_so_far.saturating_add(1);
            counted = counted.saturating_add(u32::from(counts));
            reader.attempts.insert(id, Attempts { failed: failed_so_far, counted, after });
        }
        let who = reader.who;
        let mut due = now;
        if let Who::Object(object) = who
            && let Some(state) = self.objects.get(&object)
        {
            let redelivery = state.settings.redelivery.clone();
            if failed.is_some() || failed_so_far != before {
                let durable = state.settings.persistent && on_disk;
                let (place, failed) = (Place::Object(object), failed_so_far);
                self.record(Record::Attempted { place, event: id, failed, counted }, durable);
            }
            if failed.is_some() {
                due = now.saturating_add(redelivery.delay_ms(failed_so_far, self.chance(id, failed_so_far)));
            }
            if u32::try_from(redelivery.max_delivery_attempts).is_ok_and(|max| counted >= max) {
                let text = "the message failed as often as max_delivery_attempts allows";
                self.dead_letter_from_reader(key, id, Code::MaxAttempts, text);
                return;
            }
        }
        if let Some(reader) = self.readers.get_mut(key) {
            reader.owe(id, Owed::Returned(due));
        }
    }

    /// Removes what nobody needs from a channel with `retention = "interest"`; whether there is more to do.
    pub(crate) fn trim(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        let Some(channel) = store.channel() else { return false };
        if !channel.keeps_by_interest() {
            return false;
        }
        let (need, now) = (channel.lowest_need(), self.now.wall);
        // Where what expires is to be kept, expiry removes it, not the lack of need (5.1, `dead_event_store`).
        let expires = |entry: &Entry| {
            let leaves = store.leaves_at(&entry.event);
            store.dead_event_store().is_some() && leaves != 0 && leaves <= now
        };
        let (mut ids, mut at, mut looks) = (Vec::new(), 0, 0);
        while let Some(entry) = store.log.first_from(at).filter(|entry| entry.event.id < need) {
            if looks == READS_PER_TASK {
                break;
            }
            looks += 1;
            at = entry.event.id + 1;
            if !expires(entry) {
                ids.push(entry.event.id);
            }
        }
        self.take_out(key, &ids, Removal::Unneeded);
        looks == READS_PER_TASK && !ids.is_empty()
    }
}

/// What a look for the next event found.
enum Next {
    /// An event that it wants and has not sent yet; the reader stands at it.
    New(EventId),
    /// An event that came back.
    Again(EventId),
    /// An event that came back and has left the channel since: nobody is to have it, so it must hold nothing (EX-6).
    Gone(EventId),
    /// An event that came back and waits for its redelivery delay, until this monotonic time in milliseconds.
    Wait(u64),
    /// An event that it does not want; the reader is past it.
    Looked,
    /// An event whose message must be read before it can be told whether it wants it.
    Unread(EventId),
    /// Nothing more.
    End,
}
