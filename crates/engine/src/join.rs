//! Joins: a cursor at the source, steps that store at the destination (joins-and-interest 3, DESIGN 7.5).

use crate::admin::JoinCounters;
use crate::engine::{Engine, Task};
use crate::reader::{Position, ReaderKey};
use crate::store::Store;
use postroad_model::address::Address;
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::settings::{JoinRole, JoinSettings, OnBlock};
use postroad_record::{MadeBy, Record};
use postroad_selector::Selector;
use std::collections::BTreeSet;

/// Milliseconds before a blocked destination is tried again: doubling from the first to the second (FWD-5).
const RETRY_MS: (u64, u64) = (100, 30_000);

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
    pub cursor: u64,
    /// Who made it.
    pub made_by: MadeBy,
    /// Its place among the readers of the source.
    pub(crate) reader: ReaderKey,
    /// Events to be offered again because their budget rose (HOP-6).
    pub(crate) reoffers: BTreeSet<EventId>,
    /// The filter before the last change, for events up to the id beside it (FIL-4).
    pub(crate) old_filter: Option<(EventId, Option<Selector>)>,
    /// Why it does not forward now.
    pub(crate) stop: Option<Stop>,
    /// Since when, monotonic milliseconds.
    pub(crate) stopped_at: u64,
    /// Milliseconds until the next try.
    pub(crate) backoff: u64,
    /// Counters since the start.
    pub(crate) counters: JoinCounters,
    /// Events seen by the source when it was last behind, for the count of those filtered in the index.
    pub(crate) was_bound: bool,
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
            made_by,
            reader,
            reoffers: BTreeSet::new(),
            old_filter: None,
            stop: None,
            stopped_at: 0,
            backoff: RETRY_MS.0,
            counters: JoinCounters::default(),
            was_bound: false,
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
        self.next_join = self.next_join.max(join.key.0 + 1);
        let archive = join.settings.archive;
        if let Some(source) = self.store_mut(join.source) {
            source.joins_out.insert(join.key);
            if let Some(channel) = source.channel_mut()
                && !archive
            {
                channel.readers.all.insert(join.reader);
            }
        }
        self.join_names.insert(join.name.clone(), join.key);
        let (key, reader) = (join.key, join.reader);
        self.joins.insert(key, join);
        if !archive && !self.replaying {
            self.list_need(reader);
        }
        self.schedule(Task::Join(key));
    }

    pub(crate) fn drop_join(&mut self, key: JoinKey) {
        let Some(join) = self.joins.remove(&key) else { return };
        self.join_names.remove(&join.name);
        self.drop_reader(join.reader);
        if let Some(source) = self.store_mut(join.source) {
            source.joins_out.remove(&key);
        }
        self.free_spool(join.source);
        self.free_arrivals(join.source);
    }

    /// New settings; the filter holds for events above `filter_from` (FIL-4).
    pub(crate) fn change_join(&mut self, key: JoinKey, settings: JoinSettings, filter_from: EventId) {
        let Some(join) = self.joins.get(&key) else { return };
        let reader = join.reader;
        let filter_changed = join.settings.filter != settings.filter;
        let at_tail = self.readers.get(reader).is_some_and(|r| r.position == Position::Tail);
        if filter_changed {
            self.leave_tail(reader);
            let new = settings.filter.as_deref().and_then(|text| Selector::parse(text).ok());
            let old = self.readers.get_mut(reader).and_then(|r| std::mem::replace(&mut r.filter, new));
            if let Some(join) = self.joins.get_mut(&key)
                && join.old_filter.is_none()
            {
                join.old_filter = Some((filter_from, old));
            }
            if at_tail && !self.replaying {
                self.reach_tail(reader);
            }
        }
        if let Some(join) = self.joins.get_mut(&key) {
            join.settings = settings;
        }
        self.schedule(Task::Join(key));
    }

    /// Forwards a batch over a join; whether there is more to do.
    pub(crate) fn run_join(&mut self, key: JoinKey) -> bool {
        let Some(join) = self.joins.get(&key) else { return false };
        let batch = join.settings.batch.max(1);
        let target = match self.join_ready(key) {
            Ok(target) => target,
            Err(stop) => {
                self.stop_join(key, stop);
                return false;
            }
        };
        let archive = self.joins.get(&key).is_some_and(|j| j.settings.archive);
        let (moved, stop, more) = if archive {
            self.record_arrivals_in(key, target, batch)
        } else {
            self.forward_batch(key, target, batch)
        };
        if let Some((cursor, durable)) = moved {
            self.record(Record::JoinMoved { join: key, cursor }, durable);
        }
        match stop {
            Some(stop) => {
                self.stop_join(key, stop);
                false
            }
            None => {
                self.start_join(key);
                more
            }
        }
    }

    /// The destination, if the join may forward now.
    fn join_ready(&mut self, key: JoinKey) -> Result<StoreKey, Stop> {
        let join = self.joins.get(&key).ok_or(Stop::Paused)?;
        if !join.settings.enabled {
            return Err(Stop::Paused);
        }
        if join.settings.role == JoinRole::Standby && self.primary_runs(key) {
            return Err(Stop::Standby);
        }
        let join = self.joins.get(&key).ok_or(Stop::Paused)?;
        match self.find_destination(&join.settings) {
            Some(store) if join.settings.archive && !self.store(store).is_some_and(Store::is_queue) => {
                Err(Stop::DestinationKind)
            }
            Some(store) => {
                if let Some(join) = self.joins.get_mut(&key) {
                    join.was_bound = true;
                }
                Ok(store)
            }
            None if join.was_bound || !join.settings.allow_missing => Err(Stop::DestinationMissing),
            None => Err(Stop::Waiting),
        }
    }

    /// The store that a join's destination names: an archive's is a queue, else the queue before the channel (U-8).
    pub(crate) fn find_destination(&self, settings: &JoinSettings) -> Option<StoreKey> {
        let address = Address::parse(&settings.destination, None).ok()?;
        match address.kind {
            Some(postroad_model::address::Kind::Queue) => self.queues.get(address.name.as_str()).copied(),
            Some(_) => self.channels.get(address.name.as_str()).copied(),
            None if settings.archive => self.named_store(&address.name),
            None => self
                .queues
                .get(address.name.as_str())
                .or_else(|| {
                    let name = postroad_model::name::normalise_channel_name(&address.name);
                    self.channels.get(name.as_str())
                })
                .copied(),
        }
    }

    /// Whether a standby's primary forwards, or stopped less than `standby_delay` ago (ORD-3).
    fn primary_runs(&mut self, key: JoinKey) -> bool {
        let Some(join) = self.joins.get(&key) else { return false };
        let delay = u64::from(join.settings.standby_delay);
        let Some(name) = &join.settings.standby_for else { return false };
        let Some(primary) = self.join_names.get(name).and_then(|p| self.joins.get(p)) else { return false };
        let (cursor, stop, since) = (primary.cursor, primary.stop, primary.stopped_at);
        self.wake_at(self.now.mono + delay.max(100), Task::Join(key));
        if stop.is_none() || self.now.mono < since + delay {
            return true;
        }
        self.skip_to(key, cursor);
        false
    }

    /// A standby begins where its primary stopped.
    fn skip_to(&mut self, key: JoinKey, cursor: u64) {
        let Some(join) = self.joins.get(&key) else { return };
        if join.cursor >= cursor {
            return;
        }
        let reader = join.reader;
        self.record(Record::JoinMoved { join: key, cursor }, true);
        if let Some(reader) = self.readers.get_mut(reader)
            && let Position::Behind(at) = reader.position
        {
            reader.position = Position::Behind(at.max(cursor + 1));
        }
        self.list_need(reader);
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
        let retries = matches!(stop, Stop::DestinationFull | Stop::NoDeadLetter);
        if retries {
            join.counters.retried_total += 1;
            let due = mono + join.backoff;
            join.backoff = (join.backoff * 2).min(RETRY_MS.1);
            self.wake_at(due, Task::Join(key));
        }
    }

    fn start_join(&mut self, key: JoinKey) {
        let Some(join) = self.joins.get_mut(&key) else { return };
        join.backoff = RETRY_MS.0;
        let stopped = join.stop.take().is_some();
        let source = join.source;
        if stopped {
            tracing::info!(join = %join.name, "join runs");
            self.release_producers(source);
        }
    }

    /// Whether a stopped join holds up the publishers of its source (5.2, `on_block`).
    pub(crate) fn is_backpressured(&self, store: StoreKey) -> bool {
        let Some(store) = self.store(store) else { return false };
        store.joins_out.iter().filter_map(|key| self.joins.get(key)).any(|join| {
            let blocked = join.stop.is_some_and(|stop| stop.texts().0 == "blocked");
            blocked && join.settings.on_block == OnBlock::Backpressure
        })
    }

    /// A store appeared: joins that missed their destination may go on.
    pub(crate) fn join_destination_appeared(&mut self, _store: StoreKey) {
        let missing = |join: &&Join| matches!(join.stop, Some(Stop::Waiting | Stop::DestinationMissing));
        let joins: Vec<JoinKey> = self.joins.values().filter(missing).map(|join| join.key).collect();
        for join in joins {
            self.schedule(Task::Join(join));
        }
    }

    /// Whether archive joins read from the store.
    pub(crate) fn has_archive(&self, store: StoreKey) -> bool {
        let joins = self.store(store).map(|s| &s.joins_out);
        joins.is_some_and(|joins| {
            joins.iter().any(|key| self.joins.get(key).is_some_and(|j| j.settings.archive))
        })
    }

    /// The lowest cursor of the joins that read events of the store; `None` if none does.
    pub(crate) fn lowest_join_cursor(&self, store: StoreKey) -> Option<u64> {
        let joins = &self.store(store)?.joins_out;
        joins
            .iter()
            .filter_map(|key| self.joins.get(key))
            .filter(|j| !j.settings.archive)
            .map(|j| j.cursor)
            .min()
    }

    /// Frees spooled events that every join has passed.
    pub(crate) fn free_spool(&mut self, key: StoreKey) {
        let passed = self.lowest_join_cursor(key).unwrap_or(u64::MAX);
        while let Some(entry) = self.store_mut(key).and_then(|s| s.spool.first_entry()) {
            if *entry.key() > passed {
                return;
            }
            let body = entry.remove().event.body;
            self.bodies.release(body);
        }
    }

    /// Frees arrivals that every archive join has recorded.
    pub(crate) fn free_arrivals(&mut self, key: StoreKey) {
        let Some(store) = self.store(key) else { return };
        let archives =
            store.joins_out.iter().filter_map(|key| self.joins.get(key)).filter(|j| j.settings.archive);
        let passed = archives.map(|j| j.cursor).min().unwrap_or(u64::MAX);
        while let Some(store) = self.store_mut(key) {
            if store.arrivals.front().is_none_or(|arrival| arrival.number > passed) {
                return;
            }
            if let Some(arrival) = store.arrivals.pop_front() {
                self.bodies.release(arrival.event.body);
            }
        }
    }
}
