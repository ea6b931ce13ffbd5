//! Jobs: purges and deletions of stores that are larger than one step, a bounded piece at a time (DESIGN 7.7). A job is
//! durable: a restart goes on where its last piece ended. Other work has its turn between the pieces.

use crate::admin::{JobView, Response};
use crate::bodies::Sight;
use crate::engine::{Engine, Task};
use crate::log::{Entry, Hold};
use crate::store::Store;
use crate::view::View;
use postroad_model::id::{EventId, JobKey, JoinKey, ObjectKey, StoreKey};
use postroad_model::refusal::{Code, Refusal};
use postroad_record::{Record, Removal, StoredEvent, Unscheduling, Work};
use postroad_selector::Selector;

/// Purges that may run at once.
const MAX_JOBS: usize = 1_000;
/// Events that a piece looks at for each one that it may remove: a filter that matches little must not take longer.
const LOOKS: usize = 8;

/// A purge, or the deletion of a store, under way.
#[derive(Debug)]
pub(crate) struct Job {
    /// Its number.
    pub key: JobKey,
    /// What it does.
    pub work: Work,
    /// Whether it is on disk.
    pub durable: bool,
    /// How many of its joins' destinations it has been through.
    pub stage: u32,
    /// The next event to look at: at the destination of the join at hand, then in its own store.
    pub at: EventId,
    /// Events removed so far.
    pub done: u64,
    /// Of a purge: messages that wait for their time go too, up to this number.
    pub scheduled: u64,
    filter: Option<Selector>,
    /// The newest event at the destination of the join at hand when its turn came: what comes later is no copy of
    /// what is purged.
    until: Option<EventId>,
    /// The message of this event must be read before it can go on.
    unread: Option<(StoreKey, EventId)>,
    /// Operators who wait for the end.
    waiting: Vec<u64>,
}

/// What a piece found: the events that it is to remove, and where the next piece goes on.
struct Found {
    ids: Vec<EventId>,
    next: Option<EventId>,
    /// The message of this event must be read first.
    unread: Option<(StoreKey, EventId)>,
}

impl Job {
    /// A job that has done nothing yet.
    #[must_use]
    pub(crate) fn new(key: JobKey, work: Work, durable: bool) -> Self {
        let (at, filter) = match &work {
            Work::Purge { from, filter, joins, .. } => {
                (if joins.is_empty() { *from } else { 0 }, filter.as_deref())
            }
            Work::PurgeObject { from, filter, .. } => (*from, filter.as_deref()),
            Work::Delete { .. } => (0, None),
        };
        // It was parsed before the job began.
        let filter = filter.and_then(|text| Selector::parse(text).ok());
        Self {
            key,
            work,
            durable,
            stage: 0,
            at,
            done: 0,
            scheduled: 0,
            filter,
            until: None,
            unread: None,
            waiting: Vec::new(),
        }
    }

    /// The store that it works on.
    pub(crate) const fn store(&self) -> Option<StoreKey> {
        match self.work {
            Work::Purge { store, .. } | Work::Delete { store } => Some(store),
            Work::PurgeObject { .. } => None,
        }
    }

    /// The named object that it works on.
    pub(crate) const fn object(&self) -> Option<ObjectKey> {
        match self.work {
            Work::PurgeObject { object, .. } => Some(object),
            Work::Purge { .. } | Work::Delete { .. } => None,
        }
    }
}

impl Engine {
    /// Does a piece of a purge at once. If that is all, it is one step, and the count is the answer; else a job goes on,
    /// and the answer comes at its end. Messages that wait for their time go too, up to the number `scheduled`.
    pub(crate) fn begin_purge(
        &mut self,
        reply: u64,
        work: Work,
        durable: bool,
        scheduled: u64,
    ) -> Result<Option<Response>, Refusal> {
        if let Some(job) = self.jobs.values_mut().find(|job| (&job.work, job.scheduled) == (&work, scheduled))
        {
            // The same again waits for the one that runs.
            job.waiting.push(reply);
            return Ok(None);
        }
        if self.jobs.len() >= MAX_JOBS {
            let text = format!("{MAX_JOBS} purges run already: wait for one of them");
            return Err(Refusal::new(Code::LimitReached, "jobs", text));
        }
        let mut job = Job::new(JobKey(self.next_job), work, durable);
        job.scheduled = scheduled;
        let more = self.do_piece(&mut job);
        if !more {
            return Ok(Some(Response::Purged { purged: job.done }));
        }
        let (key, stage, at, done) = (job.key, job.stage, job.at, job.done);
        self.record(Record::JobStarted { job: key, work: job.work }, durable);
        if scheduled > 0 {
            self.record(Record::JobCovers { job: key, scheduled }, durable);
        }
        self.record(Record::JobMoved { job: key, stage, at, done }, durable);
        if let Some(state) = self.jobs.get_mut(&key) {
            state.until = job.until;
            state.waiting.push(reply);
        }
        Ok(None)
    }

    /// Does a piece of a job; whether there is more to do.
    pub(crate) fn run_job(&mut self, key: JobKey) -> bool {
        let Some(mut job) = self.jobs.remove(&key) else { return false };
        let more = self.do_piece(&mut job);
        let (durable, stage, at, done) = (job.durable, job.stage, job.at, job.done);
        let unread = job.unread.take();
        let deleted = if let Work::Delete { store } = job.work { Some(store) } else { None };
        let waiting = if more { Vec::new() } else { std::mem::take(&mut job.waiting) };
        self.jobs.insert(key, job);
        if more {
            self.record(Record::JobMoved { job: key, stage, at, done }, durable);
        } else if let Some(store) = deleted {
            self.record(Record::StoreDeleted { store }, durable);
        } else {
            self.record(Record::JobEnded { job: key }, durable);
        }
        for reply in waiting {
            self.answer_operator(reply, Ok(Response::Purged { purged: done }));
        }
        more && unread.is_none_or(|(store, event)| self.is_at_hand(store, event, Task::Job(key)))
    }

    fn do_piece(&mut self, job: &mut Job) -> bool {
        if self.purge_scheduled(job) {
            return true;
        }
        let next = match job.work.clone() {
            Work::Purge { store, from, to, joins, .. } => match joins.get(job.stage as usize) {
                Some(&join) => self.purge_copies(job, join, (store, from, to), &joins),
                None => {
                    let free = |entry: &Entry| is_free(self.store(store), entry);
                    let found = self.find(store, job.at, to, |entry| {
                        if free(entry) { self.passes(job.filter.as_ref(), &entry.event) } else { Some(false) }
                    });
                    job.unread = found.unread;
                    self.take_out(store, &found.ids, Removal::Purged);
                    job.done += found.ids.len() as u64;
                    found.next
                }
            },
            Work::PurgeObject { object, to, .. } => self.purge_piece_of_object(job, object, to),
            Work::Delete { store } => {
                let found = self.find(store, job.at, EventId::MAX, |_| Some(true));
                self.take_out(store, &found.ids, Removal::Purged);
                job.done += found.ids.len() as u64;
                found.next
            }
        };
        job.at = next.unwrap_or(job.at);
        next.is_some()
    }

    /// Removes messages that wait for their time, if the job removes such; whether there may be more.
    fn purge_scheduled(&mut self, job: &mut Job) -> bool {
        let (store, last) = match job.work {
            Work::Purge { store, .. } => (store, job.scheduled),
            Work::Delete { store } => (store, u64::MAX),
            Work::PurgeObject { .. } => return false,
        };
        let batch = self.settings.job_batch.max(1) as usize;
        let numbers = self.first_scheduled(store, last, batch);
        self.unschedule(store, &numbers, Unscheduling::Purged);
        job.done += numbers.len() as u64;
        numbers.len() == batch
    }

    /// Removes a message whose time has come if a purge under way was about to; whether it was.
    pub(crate) fn purge_due(&mut self, key: StoreKey, number: u64) -> bool {
        let covers = |job: &&Job| job.store() == Some(key) && number <= job.scheduled;
        let Some(found) = self.jobs.values().find(covers) else { return false };
        let (job, stage, at, done, durable) =
            (found.key, found.stage, found.at, found.done + 1, found.durable);
        self.record(Record::JobMoved { job, stage, at, done }, durable);
        self.unschedule(key, &[number], Unscheduling::Purged);
        true
    }

    /// Looks through a store for up to a batch of events between two ids; `wanted` is `None` for one whose message must be
    /// read first.
    fn find(
        &self,
        key: StoreKey,
        from: EventId,
        to: EventId,
        wanted: impl Fn(&Entry) -> Option<bool>,
    ) -> Found {
        let batch = self.settings.job_batch.max(1) as usize;
        let (mut ids, mut at) = (Vec::new(), from);
        for _ in 0..batch.saturating_mul(LOOKS) {
            let entry = self.store(key).and_then(|store| store.log.first_from(at));
            let Some(entry) = entry.filter(|entry| entry.event.id <= to) else {
                return Found { ids, next: None, unread: None };
            };
            if ids.len() == batch {
                break;
            }
            let id = entry.event.id;
            let Some(wanted) = wanted(entry) else {
                return Found { ids, next: Some(id), unread: Some((key, id)) };
            };
            at = id + 1;
            if wanted {
                ids.push(id);
            }
        }
        Found { ids, next: Some(at), unread: None }
    }

    /// Purges copies that came over a join. The events at the source are still there: they go last.
    fn purge_copies(
        &mut self,
        job: &mut Job,
        join: JoinKey,
        (source, from, to): (StoreKey, EventId, EventId),
        joins: &[JoinKey],
    ) -> Option<EventId> {
        let target = self.joins.get(&join).and_then(|join| self.find_destination(&join.settings));
        if let Some(target) = target {
            let last = self.store(target).map_or(0, Store::last_id);
            let until = *job.until.get_or_insert(last);
            let found = self.find(target, job.at, until, |entry| {
                let free = is_free(self.store(target), entry);
                let copied = self.source_event(target, source, &entry.event).filter(|_| free);
                match copied.filter(|event| (from..=to).contains(&event.id)) {
                    Some(event) => self.passes(job.filter.as_ref(), event),
                    None => Some(false),
                }
            });
            job.unread = found.unread;
            self.take_out(target, &found.ids, Removal::Purged);
            if found.next.is_some() {
                return found.next;
            }
        }
        job.stage += 1;
        job.until = None;
        Some(if job.stage as usize == joins.len() { from } else { 0 })
    }

    /// The stored event of `source` of which an event of `target` is a copy, if it came from there directly.
    fn source_event(&self, target: StoreKey, source: StoreKey, copy: &StoredEvent) -> Option<&StoredEvent> {
        let source = self.store(source)?;
        let last = copy.extra.as_ref()?.path.last()?;
        if !source.was_identity(*last) {
            return None;
        }
        let origin = self.store(target)?.origin_of(copy);
        let id = match source.copies.find(origin, &source.log) {
            Some(id) => id,
            None if source.was_identity(origin.store) => origin.event,
            None => return None,
        };
        source.log.get(id).map(|entry| &entry.event)
    }

    /// Whether a selector, if there is one, lets an event pass; `None` if its message must be read first.
    fn passes(&self, filter: Option<&Selector>, event: &StoredEvent) -> Option<bool> {
        let Some(filter) = filter else { return Some(true) };
        match self.bodies.sight(event.body) {
            Sight::Away => None,
            Sight::Lost => Some(false),
            Sight::Here => {
                let message = self.bodies.get(event.body);
                Some(message.is_some_and(|message| filter.matches(&View { message, event })))
            }
        }
    }

    /// Whether a purge under way is about to remove an event: then it is not forwarded any more (FWD-2).
    /// `None` if its message must be read first.
    pub(crate) fn is_being_purged(&self, key: StoreKey, event: &StoredEvent) -> Option<bool> {
        for job in self.jobs.values() {
            let Work::Purge { store, from, to, .. } = job.work else { continue };
            if store == key && (from..=to).contains(&event.id) && self.passes(job.filter.as_ref(), event)? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn purge_piece_of_object(&mut self, job: &mut Job, object: ObjectKey, to: EventId) -> Option<EventId> {
        let state = self.objects.get(&object)?;
        let (store, reader) = (state.store, state.reader);
        let from = job.at.max(self.readers.get(reader).and_then(|r| r.lowest_need()).unwrap_or(u64::MAX));
        let found = self.find(store, from, to, |entry| {
            let owed = self.reader_owes(reader, entry.event.id);
            if owed { self.passes(job.filter.as_ref(), &entry.event) } else { Some(false) }
        });
        job.unread = found.unread;
        if let Some(state) = self.readers.get_mut(reader) {
            for &id in &found.ids {
                state.forgive(id);
                state.passed.remove(id, id);
                state.done.insert(id, id);
            }
        }
        self.move_object(object, reader, &found.ids);
        self.schedule(Task::Feed(reader));
        job.done += found.ids.len() as u64;
        found.next
    }

    /// Removes a store that has neither consumers nor producers nor objects any more: at once if that is one step, else
    /// its name is free now, and a job removes what is in it.
    pub(crate) fn remove_store(&mut self, key: StoreKey, durable: bool) {
        let few = u64::from(self.settings.job_batch.max(1));
        if self.store(key).is_none_or(|store| store.taken() <= few) {
            return self.record(Record::StoreDeleted { store: key }, durable);
        }
        let (job, work) = (JobKey(self.next_job), Work::Delete { store: key });
        self.record(Record::JobStarted { job, work }, durable);
    }

    /// Ends the jobs on something that is about to go; who waits for them is told.
    pub(crate) fn abandon_jobs(&mut self, name: &str, of: impl Fn(&Job) -> bool) {
        let keys: Vec<JobKey> = self.jobs.values().filter(|job| of(job)).map(|job| job.key).collect();
        for key in keys {
            let Some(job) = self.jobs.get_mut(&key) else { continue };
            let (waiting, durable) = (std::mem::take(&mut job.waiting), job.durable);
            self.record(Record::JobEnded { job: key }, durable);
            for reply in waiting {
                let text = format!("'{name}' was deleted while it was being purged");
                self.answer_operator(reply, Err(Refusal::new(Code::Deleted, name, text)));
            }
        }
    }

    /// A job began: live, or before the crash.
    pub(crate) fn insert_job(&mut self, key: JobKey, work: Work, durable: bool) {
        self.next_job = self.next_job.max(key.0.saturating_add(1));
        if let Work::Delete { store } = work {
            self.free_name(store);
        }
        self.jobs.insert(key, Job::new(key, work, durable));
        self.schedule(Task::Job(key));
    }

    /// A job has come so far.
    pub(crate) fn move_job(&mut self, key: JobKey, stage: u32, at: EventId, done: u64) {
        if let Some(job) = self.jobs.get_mut(&key) {
            (job.stage, job.at, job.done) = (stage, at, done);
        }
    }

    /// The jobs on some things as operators see them, in the order of their beginning.
    pub(crate) fn job_views(&self, of: impl Fn(&Job) -> bool) -> Vec<JobView> {
        self.jobs.values().filter(|job| of(job)).map(|job| self.job_view(job)).collect()
    }

    fn job_view(&self, job: &Job) -> JobView {
        let name = |key: StoreKey| self.store(key).map_or_else(String::new, |s| s.name.to_string());
        let (kind, object, range, filter) = match &job.work {
            Work::Purge { store, from, to, filter, .. } => {
                ("purge", name(*store), Some((*from, *to)), filter)
            }
            Work::PurgeObject { object, from, to, filter } => {
                let state = self.objects.get(object);
                let full = state.map(|o| format!("{}::{}", name(o.store), o.name)).unwrap_or_default();
                ("purge", full, Some((*from, *to)), filter)
            }
            Work::Delete { store } => ("delete", name(*store), None, &None),
        };
        JobView {
            id: job.key.0,
            kind,
            object,
            from: range.map(|(from, _)| from),
            to: range.map(|(_, to)| to),
            filter: filter.clone(),
            at: job.at,
            removed: job.done,
        }
    }
}

/// Whether no consumer of a queue holds the event: what a consumer has is not taken from under it.
fn is_free(store: Option<&Store>, entry: &Entry) -> bool {
    store.is_none_or(|store| !store.is_queue() || entry.hold != Hold::Delivered)
}
