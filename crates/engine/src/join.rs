//! Joins: a cursor at the source, steps that store at the destination (joins-and-interest 3, DESIGN 7.5).

use crate::admin::{JoinCounters, Response};
use crate::engine::{Engine, Task};
use crate::reader::{Position, ReaderKey};
use crate::store::Store;
use postroad_model::address::{Address, Kind};
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::name::normalise_channel_name;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{JoinRole, JoinSettings, OnBlock};
use postroad_record::{MadeBy, Record};
use postroad_selector::Selector;
use std::collections::{BTreeSet, VecDeque};

/// Milliseconds before a blocked destination is tried again: doubling from the first to the second (FWD-5).
const RETRY_MS: (u64, u64) = (100, 30_000);

/// Events of one step at most, whatever the settings say: no step is larger than what a turn may cost (DESIGN 7.7).
const MAX_BATCH: u32 = 1_000;

/// Why a join does not forward (FWD-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// `enabled = false`.
    Paused,
    /// The destination was never there (`allow_missing`).
    Waiting,
    /// The destination is gone.
    DestinationMissing,
    /// The destination's name belongs to the wrong kind of store.
    DestinationKind,
    /// The destination is full.
    DestinationFull,
    /// The disk is full.
    DiskFull,
    /// Nothing can take an event that the destination refuses for good.
    NoDeadLetter,
    /// A standby whose primary runs.
    Standby,
}

impl Stop {
    /// State and reason as operators see them.
    pub(crate) const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Paused => ("paused", ""),
            Self::Waiting => ("waiting", "destination-missing"),
            Self::DestinationMissing => ("blocked", "destination-missing"),
            Self::DestinationKind => ("blocked", "destination-kind"),
            Self::DestinationFull => ("blocked", "destination-full"),
            Self::DiskFull => ("blocked", "disk-full"),
            Self::NoDeadLetter => ("blocked", "no-dead-letter"),
            Self::Standby => ("standby", "primary-running"),
        }
    }
}

/// A join.
#[derive(Debug)]
pub(crate) struct Join {
    /// Its number.
    pub key: JoinKey,
    /// Its name.
    pub name: String,
    /// The source channel.
    pub source: StoreKey,
    /// Its settings.
    pub settings: JoinSettings,
    /// The highest source event (for an archive: arrival) settled, as it is on disk.
    pub(crate) cursor: u64,
    /// An archive's: the highest arrival settled, on disk or not.
    pub(crate) passed: u64,
    /// Who made it.
    pub made_by: MadeBy,
    /// Its place among the readers of the source.
    pub(crate) reader: ReaderKey,
    /// Events to be offered again because their budget rose (HOP-6).
    pub(crate) reoffers: BTreeSet<EventId>,
    /// Filters before changes, oldest first, each for events up to the id beside it (FIL-4).
    pub(crate) old_filters: VecDeque<(EventId, Option<Selector>)>,
    /// Why it does not forward now.
    pub(crate) stop: Option<Stop>,
    /// Since when, monotonic milliseconds.
    pub(crate) stopped_at: u64,
    /// Milliseconds until the next try.
    pub(crate) backoff: u64,
    /// Counters since the start.
    pub(crate) counters: JoinCounters,
    /// Whether its destination was ever found.
    was_bound: bool,
    /// Events that its source had offered when it last stood at the tail: those since then that did not reach it were
    /// kept back by its filter.
    pub(crate) offers_seen: u64,
    /// The operator that waits for it to forward all it can, and then to be deleted (DEL-2).
    pub(crate) draining: Option<u64>,
}

impl Join {
    /// A new join.
    #[must_use]
    pub(crate) fn new(
        key: JoinKey,
        name: String,
        source: StoreKey,
        settings: JoinSettings,
        cursor: u64,
        made_by: MadeBy,
        reader: ReaderKey,
    ) -> Self {
        Self {
            key,
            name,
            source,
            settings,
            cursor,
            passed: cursor,
            made_by,
            reader,
            reoffers: BTreeSet::new(),
            old_filters: VecDeque::new(),
            stop: None,
            stopped_at: 0,
            backoff: RETRY_MS.0,
            counters: JoinCounters::default(),
            was_bound: false,
            offers_seen: 0,
            draining: None,
        }
    }
}

/// What became of one event on a join.
pub(crate) enum Crossing {
    /// Settled: stored, known, kept back or refused for good.
    Settled,
    /// It waits, and everything behind it.
    Stopped(Stop),
}

impl Engine {
    pub(crate) fn insert_join(&mut self, join: Join) {
        self.next_join = self.next_join.max(join.key.0.saturating_add(1));
        let (key, reader, archive) = (join.key, join.reader, join.settings.archive);
        if let Some(source) = self.store_mut(join.source) {
            if archive {
                source.archives_out.insert(key);
            } else {
                source.joins_out.insert(key);
                if let Some(channel) = source.channel_mut() {
                    channel.readers.all.insert(reader);
                }
            }
        }
        if archive {
            self.pass_arrivals(join.source, join.cursor);
        }
        self.join_names.insert(join.name.clone(), key);
        self.joins.insert(key, join);
        if !archive && !self.replaying {
            self.list_need(reader);
        }
        self.schedule(Task::Join(key));
    }

    pub(crate) fn drop_join(&mut self, key: JoinKey) {
        self.bequeath(key);
        let Some(join) = self.joins.remove(&key) else { return };
        self.join_names.remove(&join.name);
        self.drop_reader(join.reader);
        if let Some(source) = self.store_mut(join.source) {
            source.joins_out.remove(&key);
            source.archives_out.remove(&key);
        }
        self.hold_up(join.source, key, false);
        self.free_spool(join.source);
        self.free_arrivals(join.source);
    }

    /// The standbys of a join that is deleted go on where it stopped, with what it was to offer again.
    fn bequeath(&mut self, key: JoinKey) {
        let Some(primary) = self.joins.get(&key) else { return };
        let (name, cursor, at) = (primary.name.clone(), primary.cursor, self.join_position(key));
        let (source, reoffers) = (primary.source, primary.reoffers.clone());
        let of_primary =
            |join: &&mut Join| join.source == source && join.settings.standby_for.as_deref() == Some(&name);
        let mut heirs = Vec::new();
        for join in self.joins.values_mut().filter(of_primary) {
            join.cursor = join.cursor.max(cursor);
            join.reoffers.extend(reoffers.iter().copied());
            heirs.push((join.key, join.reader));
        }
        for (key, reader) in heirs {
            self.unpark(reader, at);
            self.schedule(Task::Join(key));
        }
    }

    /// New settings; a new filter holds for events above `filter_from` (FIL-4).
    pub(crate) fn change_join(&mut self, key: JoinKey, settings: JoinSettings, filter_from: EventId) {
        let Some(join) = self.joins.get(&key) else { return };
        let (reader, source) = (join.reader, join.source);
        if join.settings.filter != settings.filter {
            let at = self.join_position(key);
            self.leave_tail(reader);
            let new = settings.filter.as_deref().and_then(|text| Selector::parse(text).ok());
            if let Some(state) = self.readers.get_mut(reader) {
                let old = std::mem::replace(&mut state.filter, new);
                if let Position::Tail = state.position {
                    // What is stored and not offered yet is still the old filter's.
                    state.position = Position::Behind(at);
                }
                if let Some(join) = self.joins.get_mut(&key).filter(|join| join.cursor < filter_from) {
                    join.old_filters.push_back((filter_from, old));
                }
            }
            // An archive's position counts arrivals: as an event id it would hold the source for good.
            if !self.replaying && !settings.archive {
                self.list_need(reader);
            }
        }
        if let Some(join) = self.joins.get_mut(&key) {
            join.settings = settings;
        }
        self.hold_up(source, key, false);
        self.schedule(Task::Join(key));
    }

    /// The next source event that a join has to look at.
    pub(crate) fn join_position(&self, key: JoinKey) -> EventId {
        let Some(join) = self.joins.get(&key) else { return 0 };
        match self.readers.get(join.reader).map(|reader| reader.position) {
            Some(Position::Behind(at)) => at,
            _ => self.store(join.source).and_then(Store::channel).map_or(0, |channel| channel.offered + 1),
        }
    }

    /// Forwards a batch over a join; whether there is more to do.
    pub(crate) fn run_join(&mut self, key: JoinKey) -> bool {
        let Some(join) = self.joins.get(&key) else { return false };
        let (batch, source, archive) =
            (join.settings.batch.clamp(1, MAX_BATCH), join.source, join.settings.archive);
        let target = match self.join_ready(key) {
            Ok(target) => target,
            Err(stop) => {
                self.stop_join(key, stop);
                return false;
            }
        };
        let progress = if archive {
            self.record_arrivals_in(key, target, batch)
        } else {
            self.forward_batch(key, target, batch)
        };
        if let Some(cursor) = progress.moved {
            self.record(Record::JoinMoved { join: key, cursor }, true);
            if !archive {
                self.pass_spool(source, key, cursor);
            }
        }
        if archive {
            self.free_arrivals(source);
        }
        if let Some(stop) = progress.stop {
            self.stop_join(key, stop);
            return false;
        }
        self.start_join(key);
        // Reading ends with another turn.
        !progress.reading && (progress.more || self.finish_draining(key))
    }

    /// The destination, if the join may forward now.
    fn join_ready(&mut self, key: JoinKey) -> Result<StoreKey, Stop> {
        let join = self.joins.get(&key).ok_or(Stop::Paused)?;
        if join.draining.is_none() {
            if !join.settings.enabled {
                return Err(Stop::Paused);
            }
            if join.settings.role == JoinRole::Standby && self.primary_runs(key) {
                return Err(Stop::Standby);
            }
        }
        let join = self.joins.get_mut(&key).ok_or(Stop::Paused)?;
        let (archive, may_miss) = (join.settings.archive, join.settings.allow_missing && !join.was_bound);
        let settings = join.settings.clone();
        match self.find_destination(&settings) {
            Some(store) if archive && !self.store(store).is_some_and(Store::is_queue) => {
                Err(Stop::DestinationKind)
            }
            Some(store) => {
                if let Some(join) = self.joins.get_mut(&key) {
                    join.was_bound = true;
                }
                Ok(store)
            }
            None if may_miss => Err(Stop::Waiting),
            None => Err(Stop::DestinationMissing),
        }
    }

    /// The store that a join's destination names: an archive's is a queue, else the queue before the channel (U-8).
    pub(crate) fn find_destination(&self, settings: &JoinSettings) -> Option<StoreKey> {
        let address = Address::parse(&settings.destination, None).ok()?;
        let queue = || self.queues.get(address.name.as_str()).copied();
        let channel = || self.channels.get(normalise_channel_name(&address.name).as_str()).copied();
        match address.kind {
            Some(Kind::Queue) => queue(),
            Some(Kind::Topic | Kind::Channel) => channel(),
            None => queue().or_else(channel),
        }
    }

    /// Whether a standby's primary forwards, or stopped less than `standby_delay` ago (ORD-3). If it does not, the
    /// standby begins where it stopped.
    fn primary_runs(&mut self, key: JoinKey) -> bool {
        let Some(join) = self.joins.get(&key) else { return false };
        let (reader, delay) = (join.reader, u64::from(join.settings.standby_delay));
        let Some(primary) = self.primary_of(join) else {
            self.unpark(reader, 0);
            return false;
        };
        let at = self.join_position(primary.key);
        let runs = primary.stop.is_none() || self.now.mono < primary.stopped_at.saturating_add(delay);
        self.wake_at(self.now.mono.saturating_add(delay.max(RETRY_MS.0)), Task::Join(key));
        if !runs {
            self.unpark(reader, at);
        }
        runs
    }

    /// The join that a standby stands in for. One of that name that was made later may read another channel: its event
    /// ids say nothing of where the standby is.
    fn primary_of(&self, join: &Join) -> Option<&Join> {
        let name = join.settings.standby_for.as_ref().filter(|_| join.settings.role == JoinRole::Standby)?;
        self.joins.get(self.join_names.get(name)?).filter(|primary| primary.source == join.source)
    }

    /// A standby needs nothing while its primary does.
    fn park(&mut self, key: JoinKey) {
        let at = self.join_position(key);
        let Some(join) = self.joins.get(&key) else { return };
        let (reader, reoffers) = (join.reader, join.reoffers.clone());
        self.leave_tail(reader);
        if let Some(reader) = self.readers.get_mut(reader) {
            reader.parked = true;
            reader.position = Position::Behind(at);
        }
        self.list_need(reader);
        for event in reoffers {
            self.record(Record::Reoffered { join: key, event }, true);
        }
    }

    /// A standby reads from `at` on, unless it was further.
    fn unpark(&mut self, key: ReaderKey, at: EventId) {
        let Some(reader) = self.readers.get_mut(key).filter(|reader| reader.parked) else { return };
        reader.parked = false;
        if let Position::Behind(own) = reader.position {
            reader.position = Position::Behind(own.max(at));
        }
        self.list_need(key);
    }

    fn stop_join(&mut self, key: JoinKey, stop: Stop) {
        let mono = self.now.mono;
        let Some(join) = self.joins.get_mut(&key) else { return };
        if join.stop != Some(stop) {
            join.stopped_at = mono;
            join.backoff = RETRY_MS.0;
            tracing::info!(join = %join.name, state = stop.texts().0, reason = stop.texts().1, "join stopped");
        }
        join.stop = Some(stop);
        let (source, state) = (join.source, stop.texts().0);
        let held_up = state == "blocked" && join.settings.on_block == OnBlock::Backpressure;
        if matches!(stop, Stop::DestinationFull | Stop::DiskFull | Stop::NoDeadLetter) {
            join.counters.retried_total += 1;
            let due = mono.saturating_add(join.backoff);
            join.backoff = (join.backoff * 2).min(RETRY_MS.1);
            self.wake_at(due, Task::Join(key));
        }
        self.hold_up(source, key, held_up);
        if stop == Stop::Standby {
            self.park(key);
        }
        self.refuse_draining(key, stop);
    }

    fn start_join(&mut self, key: JoinKey) {
        let Some(join) = self.joins.get_mut(&key) else { return };
        join.backoff = RETRY_MS.0;
        if join.stop.take().is_some() {
            let source = join.source;
            tracing::info!(join = %join.name, "join runs");
            self.hold_up(source, key, false);
        }
    }

    /// A join holds up the publishers of its source, or no longer (5.2, `on_block`).
    fn hold_up(&mut self, source: StoreKey, key: JoinKey, held_up: bool) {
        let Some(store) = self.store_mut(source) else { return };
        if held_up {
            store.held_up_by.insert(key);
        } else if store.held_up_by.remove(&key) && store.held_up_by.is_empty() {
            self.schedule(Task::Release(source));
        }
    }

    /// Whether a stopped join holds up the publishers of its source (5.2, `on_block`).
    pub(crate) fn is_backpressured(&self, store: StoreKey) -> bool {
        self.store(store).is_some_and(|store| !store.held_up_by.is_empty())
    }

    /// A store appeared: joins that missed their destination may go on.
    pub(crate) fn join_destination_appeared(&mut self) {
        let missing = |join: &&Join| {
            matches!(join.stop, Some(Stop::Waiting | Stop::DestinationMissing | Stop::DestinationKind))
        };
        let joins: Vec<JoinKey> = self.joins.values().filter(missing).map(|join| join.key).collect();
        for join in joins {
            self.schedule(Task::Join(join));
        }
    }

    /// Forwards what waits, also over a paused join, then deletes the join and answers the operator (DEL-2).
    pub(crate) fn drain_join(&mut self, key: JoinKey, reply: u64) -> Result<(), Refusal> {
        let Some(join) = self.joins.get_mut(&key) else { return Ok(()) };
        if join.draining.is_some() {
            let text = format!("join '{}' is being drained for another request", join.name);
            return Err(Refusal::new(Code::IllegalState, join.name.clone(), text));
        }
        join.draining = Some(reply);
        let reader = join.reader;
        self.unpark(reader, 0);
        self.schedule(Task::Join(key));
        Ok(())
    }

    /// A join that was to be drained has nothing more to forward: it goes. True if it has to wait for events that were
    /// not offered yet.
    fn finish_draining(&mut self, key: JoinKey) -> bool {
        let Some(join) = self.joins.get(&key).filter(|join| join.draining.is_some()) else { return false };
        let (source, archive) = (join.source, join.settings.archive);
        let offered = self.store(source).and_then(Store::channel).map_or(0, |channel| channel.offered);
        if !archive && self.store(source).is_some_and(|store| store.last_id() > offered) {
            self.schedule(Task::FanOut(source));
            return true;
        }
        self.delete_join_now(key);
        false
    }

    fn refuse_draining(&mut self, key: JoinKey, stop: Stop) {
        let Some(join) = self.joins.get_mut(&key) else { return };
        let Some(reply) = join.draining.take() else { return };
        let (name, (state, reason)) = (join.name.clone(), stop.texts());
        // Counted only now: a join that is blocked comes here each time that it is tried again.
        let waiting = self.join_backlog(key);
        let text = format!("join '{name}' is {state} ({reason}) and can't forward the {waiting} that wait");
        self.answer_operator(reply, Err(Refusal::new(Code::IllegalState, name, text)));
    }

    /// Deletes a join; how many events it had not forwarded.
    pub(crate) fn delete_join_now(&mut self, key: JoinKey) -> u64 {
        let not_forwarded = self.join_backlog(key);
        let waiting =
            self.joins.get_mut(&key).and_then(|join| Some((join.draining.take()?, join.name.clone())));
        self.record_deleted(key);
        if let Some((reply, name)) = waiting {
            self.answer_operator(reply, Ok(Response::JoinDeleted { name, not_forwarded }));
        }
        not_forwarded
    }

    /// Deletes a join whose store goes. What it leaves behind is counted only where somebody is told.
    pub(crate) fn end_join(&mut self, key: JoinKey) {
        if self.joins.get(&key).is_some_and(|join| join.draining.is_some()) {
            self.delete_join_now(key);
        } else {
            self.record_deleted(key);
        }
    }

    fn record_deleted(&mut self, key: JoinKey) {
        if let Some(join) = self.joins.get(&key).filter(|join| !join.settings.archive) {
            // What is held for this join goes with it.
            self.pass_spool(join.source, key, EventId::MAX);
        }
        self.record(Record::JoinDeleted { join: key }, true);
    }

    /// Whether archive joins read from the store.
    pub(crate) fn has_archive(&self, store: StoreKey) -> bool {
        self.store(store).is_some_and(|store| !store.archives_out.is_empty())
    }

    /// The lowest cursor of the joins that read events of the store; `None` if none does. A standby is where its
    /// primary is.
    pub(crate) fn lowest_join_cursor(&self, store: StoreKey) -> Option<u64> {
        let joins = self.store(store)?.joins_out.iter().filter_map(|key| self.joins.get(key));
        joins.map(|join| self.cursor_of(join)).min()
    }

    /// The cursor of a join on disk, or its primary's, if that is further.
    fn cursor_of(&self, join: &Join) -> u64 {
        join.cursor.max(self.primary_of(join).map_or(0, |primary| primary.cursor))
    }

    /// Records how far the other joins of a channel have looked, where that alone still holds what is spooled up to
    /// `passed`. A join at the tail has no turn of its own, so it says nothing; and replay frees by cursors.
    fn pass_spool(&mut self, source: StoreKey, mover: JoinKey, passed: EventId) {
        let Some(store) = self.store(source) else { return };
        let Some((&first, _)) = store.spool.first_key_value().filter(|(first, _)| **first <= passed) else {
            return;
        };
        // Who is ahead of the mover holds nothing up, so each records once, and not with every move.
        let others =
            store.joins_out.iter().filter(|key| **key != mover).filter_map(|key| self.joins.get(key));
        let behind = others.filter(|join| self.cursor_of(join) < passed);
        let settled =
            behind.map(|join| (join.key, join.cursor, self.join_position(join.key).saturating_sub(1)));
        let moved: Vec<_> = settled.filter(|&(_, cursor, at)| at > cursor && at >= first).collect();
        for (join, _, cursor) in moved {
            self.record(Record::JoinMoved { join, cursor }, true);
        }
    }
}

impl Store {
    /// Whether a join has still to look at an event.
    pub(crate) fn is_needed_by_joins(&self, id: EventId) -> bool {
        let Some(channel) = self.channel() else { return false };
        if id > channel.offered {
            return !self.joins_out.is_empty();
        }
        channel.readers.join_needs.first().is_some_and(|&(need, _)| need <= id)
    }
}
