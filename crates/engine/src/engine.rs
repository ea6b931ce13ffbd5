//! The engine: commands in, effects and records out, tasks in between.

use crate::admin::{Response, StoreCounters};
use crate::bodies::Bodies;
use crate::command::{Client, Command, ConnId, LinkNo, ProducerKey, TakerKey};
use crate::effect::{Effect, Output, Step, StepBytes};
use crate::job::Job;
use crate::join::Join;
use crate::loading::Loading;
use crate::object::{Object, ObjectName};
use crate::publish::Producer;
use crate::reader::{Reader, ReaderKey};
use crate::slots::Slots;
use crate::store::{Kind, Store};
use crate::stores::Stores;
use crate::stragglers::Clearing;
use crate::survey::Survey;
use crate::taker::{Source, Taker};
use postroad_model::id::{BodyId, JobKey, JoinKey, ObjectKey, StoreKey, StoreUid, WallMs};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::BrokerSettings;
use postroad_record::{BodyRef, Record};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Stores whose events are cooled in one turn.
const STORES_COOLED: usize = 4;
/// Bytes from which on nothing more is begun in a step: messages that first go to disk now are in it, and a frame of the
/// journal has its limit.
const LONG_STEP: usize = 1024 * 1024;

/// The two times (DESIGN 7.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970; for expiry and schedules.
    pub wall: WallMs,
    /// Milliseconds since some start, never jumping; for delays.
    pub mono: u64,
}

/// Work between stores, a bounded piece at a time (DESIGN 7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Deliver from a queue.
    Dispatch(StoreKey),
    /// Offer new events of a channel.
    FanOut(StoreKey),
    /// Send to a reader behind.
    Feed(ReaderKey),
    /// Forward over a join.
    Join(JoinKey),
    /// Remove what nobody needs.
    Trim(StoreKey),
    /// Remove what expired.
    Expire(StoreKey),
    /// Remove what is above the capacity.
    Evict(StoreKey),
    /// Delete a temporary queue whose life is over.
    Reap(StoreKey),
    /// End a durable subscription whose time is over.
    Lapse(ObjectKey),
    /// Begin the time of the durable subscriptions whose consumers went with the broker.
    LapseAll,
    /// Look for messages that all consumers of a queue refused.
    Recheck(StoreKey),
    /// Make delayed messages deliverable.
    Undelay(StoreKey),
    /// Make events of messages whose delivery time has come.
    Due(StoreKey),
    /// Send to a browser.
    Browse(TakerKey),
    /// Try blocked dead letters again.
    Unblock(StoreKey),
    /// Give credit to the publishers of a store that waited.
    Release(StoreKey),
    /// Do a piece of a purge or of a deletion.
    Job(JobKey),
    /// Count what named objects owe.
    Survey(u64),
    /// Carry out an operator's request again that wanted to look at messages. It waits for them, never in the queue.
    Request(u64),
    /// Write stragglers again.
    Clear,
}

impl Task {
    /// The store that it is about, if it is about one alone.
    const fn store(self) -> Option<StoreKey> {
        match self {
            Self::Dispatch(store)
            | Self::FanOut(store)
            | Self::Trim(store)
            | Self::Expire(store)
            | Self::Evict(store)
            | Self::Recheck(store)
            | Self::Reap(store)
            | Self::Undelay(store)
            | Self::Due(store)
            | Self::Unblock(store)
            | Self::Release(store) => Some(store),
            Self::Feed(_)
            | Self::Join(_)
            | Self::Browse(_)
            | Self::Job(_)
            | Self::Survey(_)
            | Self::Lapse(_)
            | Self::LapseAll
            | Self::Request(_)
            | Self::Clear => None,
        }
    }
}

/// A connection and what belongs to it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: Client,
    pub(crate) producers: BTreeSet<ProducerKey>,
    pub(crate) takers: BTreeSet<TakerKey>,
    pub(crate) temporaries: BTreeSet<StoreKey>,
    /// Bytes of messages sent to it and not yet written, as far as its consumers have counted them.
    pub(crate) on_the_way: i64,
    /// Its consumers are sent nothing until more is written.
    pub(crate) held: bool,
}

/// The deterministic heart of a broker: no I/O, no clock, no threads. The same commands at the same times give
/// the same effects, byte for byte.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: BrokerSettings,
    pub(crate) broker_id: [u8; 16],
    pub(crate) place: Arc<str>,
    pub(crate) stores: Stores,
    /// Numbers of temporary queues that are gone: no record knows them, so they are given again.
    pub(crate) free_stores: Vec<StoreKey>,
    pub(crate) queues: BTreeMap<Arc<str>, StoreKey>,
    pub(crate) channels: BTreeMap<Arc<str>, StoreKey>,
    pub(crate) bodies: Bodies,
    pub(crate) loading: Loading,
    pub(crate) clearing: Clearing,
    /// The first store whose events are to be cooled next.
    cool_from: StoreKey,
    pub(crate) objects: BTreeMap<ObjectKey, Object>,
    pub(crate) object_names: BTreeMap<ObjectName, ObjectKey>,
    pub(crate) next_object: u32,
    pub(crate) joins: BTreeMap<JoinKey, Join>,
    pub(crate) join_names: BTreeMap<String, JoinKey>,
    pub(crate) next_join: u32,
    pub(crate) jobs: BTreeMap<JobKey, Job>,
    pub(crate) next_job: u32,
    pub(crate) surveys: BTreeMap<u64, Survey>,
    pub(crate) next_survey: u64,
    /// Messages that wait for their delivery time, in all stores.
    pub(crate) scheduled: u64,
    /// Bytes that annotations of outcomes take, in all stores and readers.
    pub(crate) annotated_bytes: u64,
    /// How many stores name a dead event store, by its name.
    pub(crate) graves: BTreeMap<String, u32>,
    pub(crate) readers: Slots<Reader>,
    pub(crate) takers: Slots<Taker>,
    pub(crate) producers: Slots<Producer>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) now: Now,
    /// The wall clock was set back: the time of ours and the monotonic time when that was seen.
    ahead: Option<(WallMs, u64)>,
    /// Producers that get no credit because the messages held take as much memory as they may.
    pub(crate) starved: BTreeSet<ProducerKey>,
    /// The disk has no room for more (DESIGN 7.3): what adds to it is refused, what takes from it goes on.
    pub(crate) disk_full: bool,
    /// This start continues no clean stop.
    pub(crate) crashed: bool,
    /// True while records of the journal are read back.
    pub(crate) replaying: bool,
    entropy: Entropy,
    tasks: VecDeque<Task>,
    queued: BTreeSet<Task>,
    wall_timers: BTreeSet<(WallMs, Task)>,
    mono_timers: BTreeSet<(u64, Task)>,
    /// Records of the step under way, encoded.
    pending: Vec<u8>,
    last_step: Step,
    out: Output,
}

impl Engine {
    /// An empty broker. `seed` is fresh randomness of this start: store identities are drawn from it.
    #[must_use]
    pub fn new(settings: BrokerSettings, seed: [u8; 16]) -> Self {
        let place = Arc::from(settings.name.as_str());
        Self {
            settings,
            broker_id: [0; 16],
            place,
            stores: Stores::default(),
            free_stores: Vec::new(),
            queues: BTreeMap::new(),
            channels: BTreeMap::new(),
            bodies: Bodies::default(),
            loading: Loading::default(),
            clearing: Clearing::default(),
            cool_from: StoreKey(0),
            objects: BTreeMap::new(),
            object_names: BTreeMap::new(),
            next_object: 0,
            joins: BTreeMap::new(),
            join_names: BTreeMap::new(),
            next_join: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            surveys: BTreeMap::new(),
            next_survey: 0,
            scheduled: 0,
            annotated_bytes: 0,
            graves: BTreeMap::new(),
            readers: Slots::default(),
            takers: Slots::default(),
            producers: Slots::default(),
            conns: BTreeMap::new(),
            now: Now::default(),
            ahead: None,
            starved: BTreeSet::new(),
            disk_full: false,
            crashed: false,
            replaying: false,
            entropy: Entropy::new(seed),
            tasks: VecDeque::new(),
            queued: BTreeSet::new(),
            wall_timers: BTreeSet::new(),
            mono_timers: BTreeSet::new(),
            pending: Vec::new(),
            last_step: Step(0),
            out: Output::default(),
        }
    }

    /// Handles one command; its records are one step, or several where many messages would make that too large.
    pub fn handle(&mut self, now: Now, command: Command) {
        self.set_now(now);
        self.perform(command);
        self.commit();
    }

    /// Does up to `budget` pieces of waiting work; whether more is waiting.
    pub fn run(&mut self, now: Now, budget: usize) -> bool {
        self.set_now(now);
        self.ring_timers();
        self.feed_starved();
        for _ in 0..budget {
            let Some(task) = self.tasks.pop_front() else { return false };
            self.queued.remove(&task);
            if self.run_task(task) {
                self.schedule(task);
            }
            self.had_its_turn(task);
            self.commit();
        }
        !self.tasks.is_empty()
    }

    /// Moves what the last turns produced into `out`, which must be empty.
    pub fn take_output(&mut self, out: &mut Output) {
        self.send_loads();
        self.bodies.evict(self.settings.cache.min(self.settings.memory / 2));
        self.cool_some_stores();
        std::mem::swap(&mut self.out, out);
    }

    /// Moves what there is so far into `out`, behind what is in it, in the midst of a turn.
    pub fn take_so_far(&mut self, out: &mut Output) {
        out.append(&mut self.out);
    }

    /// Cools the events of a few stores, each in its turn.
    fn cool_some_stores(&mut self) {
        for _ in 0..STORES_COOLED {
            let Some(store) = self.stores.first_from(self.cool_from) else {
                self.cool_from = StoreKey(0);
                return;
            };
            store.log.cool();
            self.cool_from = StoreKey(store.key.0.saturating_add(1));
        }
    }

    /// The monotonic time at which `run` is to be called next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let wall = self.wall_timers.first().map(|&(at, _)| {
            let wait = at.saturating_sub(self.now.wall);
            self.now.mono.saturating_add(if self.ahead.is_some() { wait.saturating_mul(2) } else { wait })
        });
        let mono = self.mono_timers.first().map(|&(at, _)| at);
        [wall, mono].into_iter().flatten().min()
    }

    /// Bytes of the messages held, each counted once, wherever they are.
    #[must_use]
    pub const fn message_bytes(&self) -> u64 {
        self.bodies.bytes()
    }

    /// Gives the hash tables another seed. Nothing that can be seen may change by it, which is what a simulator tries.
    pub fn rehash(&mut self, seed: u64) {
        for store in self.stores.iter_mut() {
            if let Kind::Channel(channel) = &mut store.kind {
                channel.readers.filtered.reseed(seed);
            }
        }
    }

    /// Says whether the disk has no room for more.
    pub const fn set_disk_full(&mut self, full: bool) {
        self.disk_full = full;
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Connect { conn, client } => self.connect(conn, client),
            Command::Disconnect { conn } => self.disconnect(conn),
            Command::OpenProducer { conn, link, target } => self.open_producer(conn, link, &target),
            Command::Publish { producer, tag, message, settled } => {
                self.publish(producer, tag, *message, settled);
            }
            Command::CloseProducer { producer } => self.close_producer(producer),
            Command::OpenConsumer { conn, link, spec } => self.open_consumer(conn, link, &spec),
            Command::Credit { taker, limit, drain } => self.credit(taker, limit, drain),
            Command::Settle { taker, first, last, outcome, confirm } => {
                self.settle(taker, first, last, outcome, confirm);
            }
            Command::Written { conn, bytes } => self.written(conn, bytes),
            Command::CloseConsumer { taker, mode, default } => self.close_consumer(taker, mode, &default),
            Command::FindSubscription { conn, link, name } => self.find_subscription(conn, link, &name),
            Command::ExpireSubscription { conn, name } => self.expire_subscription(conn, &name),
            Command::DeleteSubscription { conn, link, name } => self.delete_subscription(conn, link, &name),
            Command::Loaded { loaded } => self.take_loaded(loaded),
            Command::Admin { reply, request } => self.take_request(reply, *request),
        }
    }

    fn run_task(&mut self, task: Task) -> bool {
        if task.store().and_then(|store| self.store(store)).is_some_and(|store| store.deleted) {
            // A job removes what is in it.
            return false;
        }
        match task {
            Task::Dispatch(store) => self.dispatch_queue(store),
            Task::FanOut(store) => self.fan_out(store),
            Task::Feed(reader) => self.feed(reader),
            Task::Join(join) => self.run_join(join),
            Task::Trim(store) => self.trim(store),
            Task::Expire(store) => self.expire(store),
            Task::Evict(store) => self.evict(store),
            Task::Reap(store) => self.reap(store),
            Task::Lapse(object) => self.lapse(object),
            Task::LapseAll => self.expire_after_start(),
            Task::Recheck(store) => self.recheck_refused(store),
            Task::Undelay(store) => self.undelay(store),
            Task::Due(store) => self.release_due(store),
            Task::Browse(taker) => self.feed_browser(taker),
            Task::Unblock(store) => self.unblock(store),
            Task::Release(store) => self.release_producers(store),
            Task::Job(job) => self.run_job(job),
            Task::Survey(number) => self.go_on_with_survey(number),
            // It has its turn when what it waits for is there.
            Task::Request(_) => false,
            Task::Clear => self.move_stragglers(),
        }
    }

    fn set_now(&mut self, now: Now) {
        let before = self.now;
        self.now.mono = before.mono.max(now.mono);
        if now.wall >= before.wall {
            self.now.wall = now.wall;
            self.ahead = None;
            return;
        }
        // A clock that is set back must not bring back what has expired (DESIGN 7.11). Nor may time stand still until
        // the clock has caught up: it goes on at half its pace, so that it meets the clock some day.
        let (from, since) = *self.ahead.get_or_insert((before.wall, before.mono));
        let slow = from.saturating_add((self.now.mono - since) / 2);
        self.now.wall = slow.max(before.wall);
    }

    fn ring_timers(&mut self) {
        while let Some(&(at, task)) = self.wall_timers.first().filter(|&&(at, _)| at <= self.now.wall) {
            self.wall_timers.remove(&(at, task));
            self.schedule(task);
        }
        while let Some(&(at, task)) = self.mono_timers.first().filter(|&&(at, _)| at <= self.now.mono) {
            self.mono_timers.remove(&(at, task));
            self.schedule(task);
        }
    }

    /// Puts a task into the queue, once.
    pub(crate) fn schedule(&mut self, task: Task) {
        // Most often the message before has just scheduled it.
        let is_latest = self.tasks.back() == Some(&task);
        if !is_latest && !self.replaying && self.queued.insert(task) {
            self.tasks.push_back(task);
        }
    }

    /// Schedules a task for a monotonic time in milliseconds.
    pub(crate) fn wake_at(&mut self, mono: u64, task: Task) {
        self.mono_timers.insert((mono, task));
    }

    /// Schedules a task for a wall-clock time in milliseconds.
    pub(crate) fn wake_at_wall(&mut self, wall: WallMs, task: Task) {
        self.wall_timers.insert((wall, task));
    }

    /// Makes a change: it is applied now, and if `durable` it stands in the step under way.
    pub(crate) fn record(&mut self, record: Record, durable: bool) {
        if durable {
            postroad_record::append(&record, &mut self.pending);
        }
        self.apply(record, durable);
    }

    /// The step that whatever happens now must wait for: the one under way if it has records.
    pub(crate) fn step_under_way(&self) -> Step {
        if self.pending.is_empty() { Step(0) } else { Step(self.last_step.0 + 1) }
    }

    /// The latest step that has records, under way or done.
    pub(crate) fn latest_step(&self) -> Step {
        Step(self.last_step.0 + u64::from(!self.pending.is_empty()))
    }

    /// Answers an operator, who is shown nothing that a crash could take back (DESIGN 7.4).
    pub(crate) fn answer_operator(&mut self, reply: u64, result: Result<Response, Refusal>) {
        self.emit(self.latest_step(), Effect::AdminReply { reply, result: Box::new(result) });
    }

    /// Asks for something outside, to be done once `after` is durable.
    pub(crate) fn emit(&mut self, after: Step, effect: Effect) {
        self.out.effects.push((after, effect));
    }

    /// Tells a producer that a delivery was taken, with the one before where that comes from the same turn: what a turn
    /// makes durable becomes so together.
    pub(crate) fn emit_accepted(&mut self, after: Step, conn: ConnId, link: LinkNo, tag: u64) {
        self.out.accept(after, conn, link, (tag, tag));
    }

    /// Adds the bytes of a message to the step under way: the step, and the byte of its payload where they begin.
    pub(crate) fn encode_body(&mut self, id: BodyId) -> Option<(Step, u32)> {
        let message = self.bodies.get(id)?;
        let body = BodyRef { id, annotations: message.annotations_len(), bytes: message.bytes() };
        let at = postroad_record::append_body(&body, &mut self.pending);
        Some((Step(self.last_step.0 + 1), at))
    }

    /// Whether the step under way is so large that a piece of work ends, and goes on in its next turn.
    pub(crate) const fn is_step_long(&self) -> bool {
        self.pending.len() >= LONG_STEP
    }

    /// Ends the step under way if it is large, between two things of a command that may take place without each other.
    pub(crate) fn end_long_step(&mut self) {
        if self.is_step_long() {
            self.commit();
        }
    }

    /// The latest step that is done.
    pub(crate) const fn step_done(&self) -> Step {
        self.last_step
    }

    /// The step that whatever happens now must wait for, where a command may have ended some since `before` was done.
    pub(crate) fn step_since(&self, before: Step) -> Step {
        if self.last_step > before { self.latest_step() } else { self.step_under_way() }
    }

    /// Ends the step under way, for what happens outside commands and tasks.
    pub(crate) fn end_step(&mut self) {
        self.commit();
    }

    /// Ends the step under way.
    fn commit(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.last_step = Step(self.last_step.0 + 1);
        let next = self.out.buffer();
        let payload = std::mem::replace(&mut self.pending, next);
        self.out.steps.push(StepBytes { step: self.last_step, payload });
    }

    /// Fresh randomness for an identity.
    pub(crate) fn new_uid(&mut self) -> StoreUid {
        StoreUid(self.entropy.next())
    }

    pub(crate) fn store(&self, key: StoreKey) -> Option<&Store> {
        self.stores.get(key)
    }

    pub(crate) fn store_mut(&mut self, key: StoreKey) -> Option<&mut Store> {
        self.stores.get_mut(key)
    }

    pub(crate) fn count(&mut self, key: StoreKey, change: impl FnOnce(&mut StoreCounters)) {
        if let Some(store) = self.store_mut(key) {
            change(&mut store.counters);
        }
    }

    /// Every store, in the order of creation.
    pub(crate) fn all_stores(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter()
    }

    fn connect(&mut self, conn: ConnId, client: Client) {
        let taken = client.sole && self.conns.values().any(|other| other.client.id == client.id);
        if taken {
            let refusal = Refusal::new(
                Code::ClientIdInUse,
                client.id.clone(),
                format!("client id '{}' is in use by another connection: close that one first", client.id),
            );
            self.emit(Step(0), Effect::ConnectRefused { conn, refusal });
            return;
        }
        let state = Conn {
            client,
            producers: BTreeSet::new(),
            takers: BTreeSet::new(),
            temporaries: BTreeSet::new(),
            on_the_way: 0,
            held: false,
        };
        self.conns.insert(conn, state);
        self.emit(Step(0), Effect::Connected { conn });
    }

    fn disconnect(&mut self, conn: ConnId) {
        let Some(state) = self.conns.remove(&conn) else { return };
        for producer in state.producers {
            let gone = self.close_producer_quietly(producer);
            if let Some(store) = gone.and_then(|producer| producer.store()) {
                self.reap_later(store);
            }
        }
        for taker in state.takers {
            let source = self.takers.get(taker).map(|taker| taker.source);
            self.lose_consumer(taker);
            if let Some(Source::Reader(reader)) = source {
                self.lost_with_connection(reader);
            }
        }
        for store in state.temporaries {
            self.delete_store_now(store);
        }
    }

    /// Refuses what a link asked for.
    pub(crate) fn refuse_link(&mut self, conn: ConnId, link: LinkNo, refusal: Refusal) {
        self.emit(Step(0), Effect::LinkRefused { conn, link, refusal });
    }
}

/// A stream of identities drawn from the randomness of one start.
#[derive(Debug)]
struct Entropy {
    seed: [u8; 16],
    drawn: u64,
}

impl Entropy {
    const fn new(seed: [u8; 16]) -> Self {
        Self { seed, drawn: 0 }
    }

    fn next(&mut self) -> [u8; 16] {
        self.drawn += 1;
        // The seed is what makes it unique among starts; the counter what makes it unique within one.
        let low = mix(u64::from_le_bytes(half(&self.seed, 0)) ^ self.drawn);
        let high = mix(u64::from_le_bytes(half(&self.seed, 8)) ^ low);
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&low.to_le_bytes());
        uid[8..].copy_from_slice(&high.to_le_bytes());
        uid
    }
}

fn half(seed: &[u8; 16], from: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&seed[from..from + 8]);
    bytes
}

/// A bijective mixing of 64 bits (splitmix64's finaliser): no two counters give the same word.
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
