//! A broker without a world: an engine, a virtual clock, a journal in memory, and clients that only count.

use crate::admin::{EventView, Page, Request, Response, ScheduledView, StoreKind};
use crate::command::{
    Client, CloseMode, Command, ConnId, ConsumerSpec, LinkNo, ProducerKey, Settlement, TakerKey,
};
use crate::effect::{Annotations, Delivery, Effect, Output, Publication, Resolved, Step, StepBytes, Wanted};
use crate::{Engine, Loaded, Now, ProducerTarget};
use bytes::Bytes;
use postroad_model::id::StoreKey;
use postroad_model::message::Incoming;
use postroad_model::refusal::Refusal;
use postroad_model::settings::BrokerSettings;
use postroad_record::{BodyPlace, FramePlace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Pieces of work after which a broker that is still not idle counts as hung.
const HUNG: usize = 2_000_000;

/// A delivery as its consumer got it.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub tag: u64,
    pub text: String,
    pub count: u32,
    pub annotations: Annotations,
    /// The message's own annotations, as `key=value`.
    pub notes: Vec<String>,
    /// No outcome was given yet.
    pub open: bool,
}

/// A consumer and everything that it was told.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    pub conn: u64,
    pub link: u32,
    pub taker: Option<TakerKey>,
    pub resolved: Option<Resolved>,
    pub got: Vec<Got>,
    /// How much of `got` a test has looked at.
    pub read: usize,
    pub drained: u32,
    pub confirmed: Vec<(u64, u64)>,
    /// Why it was refused or thrown out.
    pub ended: Option<Refusal>,
    pub closed: bool,
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Waiting,
    Accepted,
    Refused(Arc<Refusal>),
}

/// A producer, and what became of what it sent, by tag.
#[derive(Debug, Default)]
pub(super) struct Producer {
    pub conn: u64,
    pub link: u32,
    pub key: Option<ProducerKey>,
    pub credit: u64,
    pub resolved: Option<Resolved>,
    pub ended: Option<Refusal>,
    pub fates: Vec<Fate>,
}

/// One link, whose effects keep their order.
type Lane = (u64, u32);

pub(super) struct Broker {
    pub engine: Engine,
    pub settings: BrokerSettings,
    pub now: Now,
    /// Steps that survive a crash.
    pub synced: Vec<Vec<u8>>,
    /// Steps on their way to the disk.
    pub unsynced: VecDeque<StepBytes>,
    pub durable: Step,
    /// Whether each step is synced at once.
    pub auto_sync: bool,
    held: BTreeMap<Lane, VecDeque<(Step, Effect)>>,
    pub consumers: BTreeMap<String, Consumer>,
    pub producers: BTreeMap<String, Producer>,
    clients: BTreeMap<String, u64>,
    pub replies: BTreeMap<u64, Result<Response, Refusal>>,
    pub refused_conns: BTreeSet<u64>,
    pub subscriptions: Vec<Effect>,
    next_number: u64,
    starts: u8,
    /// Everything that came out, in order, to compare two runs.
    pub seen_steps: Vec<String>,
    pub seen_effects: Vec<String>,
    /// Pieces of work that one call does.
    pub pieces: usize,
    /// Operators do not wait for answers, so that nothing is synced for them.
    pub hasty: bool,
    /// Messages with this text can't be read back.
    pub damaged: Option<String>,
    /// What is asked of the journal is not answered.
    pub slow: bool,
    pub loads: Vec<Wanted>,
    /// Messages that were read back so far.
    pub reads: usize,
}

impl Broker {
    pub(super) fn new() -> Self {
        Self::with(Self::settings())
    }

    /// The settings of a broker that a test says nothing about.
    pub(super) fn settings() -> BrokerSettings {
        BrokerSettings { name: "here".into(), ..BrokerSettings::default() }
    }

    pub(super) fn with(settings: BrokerSettings) -> Self {
        let mut broker = Self {
            engine: Engine::new(settings.clone(), [0; 16]),
            settings,
            now: Now { wall: 1_000_000, mono: 1_000 },
            synced: Vec::new(),
            unsynced: VecDeque::new(),
            durable: Step(0),
            auto_sync: true,
            held: BTreeMap::new(),
            consumers: BTreeMap::new(),
            producers: BTreeMap::new(),
            clients: BTreeMap::new(),
            replies: BTreeMap::new(),
            refused_conns: BTreeSet::new(),
            subscriptions: Vec::new(),
            next_number: 0,
            starts: 0,
            seen_steps: Vec::new(),
            seen_effects: Vec::new(),
            pieces: 1,
            hasty: false,
            damaged: None,
            slow: false,
            loads: Vec::new(),
            reads: 0,
        };
        broker.start(false);
        broker
    }

    /// Loses everything that is not on disk, and starts again. If all was on disk the state must be the same.
    pub(super) fn crash(&mut self) {
        if self.unsynced.is_empty() {
            self.check_digest();
        }
        self.start(false);
    }

    /// Replaying the journal, or a snapshot, gives the durable state that there is.
    pub(super) fn check_digest(&mut self) {
        self.sync();
        let state = |steps: &[Vec<u8>]| {
            let mut engine = replayed(&self.settings, steps, [99; 16], false);
            engine.run(self.now, 0);
            (self.digest_of(&engine), names(&engine))
        };
        let mut snapshot = Vec::new();
        self.engine.snapshot(&mut |piece| snapshot.push(piece.to_vec()));
        let held = (self.digest(), names(&self.engine));
        assert_eq!(state(&self.synced), held, "replay of the journal");
        assert_eq!(state(&snapshot), held, "replay of a snapshot");
    }

    /// The digest of what is durable.
    pub(super) fn digest(&self) -> u64 {
        self.digest_of(&self.engine)
    }

    /// The digest of an engine whose messages lie in this broker's journal.
    pub(super) fn digest_of(&self, engine: &Engine) -> u64 {
        engine.digest(&mut |wanted| Some(body_at(&self.synced, wanted.place, wanted.length)))
    }

    /// Ends every connection, syncs, and starts again with the proof that nothing else wrote to the folder: from the whole
    /// journal, or from a checkpoint alone.
    pub(super) fn restart_clean(&mut self, from_checkpoint: bool) {
        for conn in std::mem::take(&mut self.clients).into_values() {
            self.handle(Command::Disconnect { conn: ConnId(conn) });
        }
        self.check_digest();
        if !from_checkpoint {
            return self.start(true);
        }
        let mut snapshot = Vec::new();
        self.engine.snapshot(&mut |piece| snapshot.push(piece.to_vec()));
        self.start_with(replayed(&self.settings, &snapshot, [self.starts + 1; 16], true));
    }

    fn start(&mut self, continues: bool) {
        self.start_with(replayed(&self.settings, &self.synced, [self.starts + 1; 16], continues));
    }

    fn start_with(&mut self, engine: Engine) {
        self.starts += 1;
        self.engine = engine;
        self.unsynced.clear();
        self.held.clear();
        self.durable = Step(0);
        self.consumers.clear();
        self.producers.clear();
        self.clients.clear();
        self.engine.found();
        self.run();
    }

    /// One command, and all the work that follows from it.
    pub(super) fn send(&mut self, command: Command) {
        self.handle(command);
        self.run();
    }

    /// One command alone.
    pub(super) fn handle(&mut self, command: Command) {
        self.engine.handle(self.now, command);
        self.collect();
    }

    /// Works until there is nothing left to do.
    pub(super) fn run(&mut self) {
        let mut pieces = 0;
        loop {
            while self.engine.run(self.now, self.pieces) {
                self.collect();
                pieces += 1;
                assert!(pieces < HUNG, "the engine never comes to rest");
            }
            self.collect();
            // What is read comes when there is nothing else to do, so that it does not matter how work is cut.
            if self.slow || self.loads.is_empty() {
                return;
            }
            self.answer_loads();
        }
    }

    fn answer_loads(&mut self) {
        let wanted = std::mem::take(&mut self.loads);
        self.reads += wanted.len();
        let loaded = wanted.into_iter().map(|wanted| self.read(wanted)).collect();
        self.engine.handle(self.now, Command::Loaded { loaded });
    }

    /// Reads what was asked for until now on a slow disk, and works on with it.
    pub(super) fn read_asked(&mut self) {
        self.answer_loads();
        self.run();
    }

    /// Lets time go by, stopping at each deadline.
    pub(super) fn wait(&mut self, ms: u64) {
        let end = self.now.mono + ms;
        let mut rings = 0;
        while let Some(due) = self.engine.next_deadline().filter(|&due| due <= end) {
            self.pass(due.saturating_sub(self.now.mono));
            self.run();
            rings += 1;
            assert!(rings < HUNG, "a timer rings for ever");
        }
        self.pass(end - self.now.mono);
        self.run();
    }

    /// Sets the wall clock, as an operator or a time server does.
    pub(super) fn set_clock(&mut self, change: impl FnOnce(u64) -> u64) {
        self.now.wall = change(self.now.wall);
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono += ms;
        self.now.wall += ms;
    }

    /// Makes every step durable, also those that follow from messages that were read once they were durable.
    pub(super) fn sync(&mut self) {
        self.sync_some(usize::MAX);
        while !self.unsynced.is_empty() {
            self.sync_some(usize::MAX);
        }
    }

    /// Makes the oldest steps durable.
    pub(super) fn sync_some(&mut self, steps: usize) {
        for _ in 0..steps.min(self.unsynced.len()) {
            let Some(step) = self.unsynced.pop_front() else { break };
            self.durable = step.step;
            self.synced.push(step.payload);
        }
        self.engine.became_durable(self.durable);
        self.release();
    }

    /// Takes the engine's output.
    fn collect(&mut self) {
        let mut out = Output::default();
        self.engine.take_output(&mut out);
        for step in out.steps {
            self.seen_steps.push(format!("{step:?}"));
            self.engine.placed(step.step, frame(self.synced.len() + self.unsynced.len()));
            self.unsynced.push_back(step);
        }
        for (after, effect) in out.effects {
            if !matches!(effect, Effect::Load { .. }) {
                self.seen_effects.push(format!("{after:?} {effect:?}"));
            }
            self.held.entry(lane(&effect)).or_default().push_back((after, effect));
        }
        if self.auto_sync {
            self.sync();
        } else {
            self.release();
        }
    }

    /// Reads a message back.
    fn read(&self, wanted: Wanted) -> Loaded {
        let bytes = body_at(&self.synced, wanted.place, wanted.length);
        let text = |damaged: &String| bytes.windows(damaged.len()).any(|part| part == damaged.as_bytes());
        if self.damaged.as_ref().is_some_and(text) {
            return Loaded { body: wanted.body, bytes: Err("flipped".into()) };
        }
        Loaded { body: wanted.body, bytes: Ok(bytes) }
    }

    /// Performs the effects whose steps are durable, each link in its own order.
    fn release(&mut self) {
        let mut ready = Vec::new();
        for effects in self.held.values_mut() {
            while effects.front().is_some_and(|(after, _)| *after <= self.durable) {
                ready.extend(effects.pop_front().map(|(_, effect)| effect));
            }
        }
        for effect in ready {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connected { .. } => {}
            Effect::ConnectRefused { conn, .. } => {
                self.refused_conns.insert(conn.0);
            }
            Effect::ProducerOpened { conn, link, producer, resolved, credit } => {
                if let Some(state) = self.producer_at(conn, link) {
                    (state.key, state.resolved, state.credit) = (Some(producer), resolved, credit);
                }
            }
            Effect::ProducerCredit { conn, link, limit } => {
                if let Some(state) = self.producer_at(conn, link) {
                    let sent = state.fates.len() as u64;
                    assert!(limit >= state.credit || limit <= sent, "credit falls only to what was sent");
                    state.credit = limit;
                }
            }
            Effect::Published { conn, link, first, last, outcome } => {
                let fate = match outcome {
                    Publication::Accepted => Fate::Accepted,
                    Publication::Refused(refusal) => Fate::Refused(refusal),
                };
                if let Some(state) = self.producer_at(conn, link) {
                    for tag in first..=last {
                        // There is no such slot only where a test sent under a number of its own.
                        if let Some(slot) = state.fates.get_mut(usize::try_from(tag).unwrap_or(usize::MAX)) {
                            *slot = fate.clone();
                        }
                    }
                }
            }
            Effect::ConsumerOpened { conn, link, taker, resolved } => {
                if let Some(state) = self.consumer_at(conn, link) {
                    (state.taker, state.resolved) = (Some(taker), Some(resolved));
                }
            }
            Effect::LinkRefused { conn, link, refusal } | Effect::DetachLink { conn, link, refusal } => {
                self.end_link(conn, link, refusal);
            }
            Effect::Deliver(delivery) => self.deliver(&delivery),
            Effect::Settled { conn, link, first, last, .. } => {
                if let Some(state) = self.consumer_at(conn, link) {
                    state.confirmed.push((first, last));
                }
            }
            Effect::Drained { conn, link } => {
                if let Some(state) = self.consumer_at(conn, link) {
                    state.drained += 1;
                }
            }
            Effect::LinkClosed { conn, link } => {
                if let Some(state) = self.consumer_at(conn, link) {
                    (state.closed, state.taker) = (true, None);
                }
            }
            Effect::SubscriptionFound { .. } | Effect::SubscriptionDeleted { .. } => {
                self.subscriptions.push(effect);
            }
            Effect::Load { wanted } => self.loads.extend(wanted),
            Effect::AdminReply { reply, result } => {
                self.replies.insert(reply, *result);
            }
        }
    }

    fn end_link(&mut self, conn: ConnId, link: LinkNo, refusal: Refusal) {
        if let Some(state) = self.consumer_at(conn, link) {
            (state.ended, state.taker) = (Some(refusal), None);
        } else if let Some(state) = self.producer_at(conn, link) {
            (state.ended, state.key) = (Some(refusal), None);
        } else {
            self.subscriptions.push(Effect::LinkRefused { conn, link, refusal });
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        let text = super::body_text(&delivery.message);
        let Some(state) = self.consumer_at(delivery.conn, delivery.link) else { return };
        assert_eq!(delivery.tag, state.got.len() as u64, "delivery numbers are dense");
        state.got.push(Got {
            tag: delivery.tag,
            text,
            count: delivery.delivery_count,
            annotations: delivery.annotations.clone(),
            notes: super::notes(&delivery.message),
            open: !delivery.settled,
        });
    }

    fn consumer_at(&mut self, conn: ConnId, link: LinkNo) -> Option<&mut Consumer> {
        self.consumers.values_mut().find(|c| c.conn == conn.0 && c.link == link.0)
    }

    fn producer_at(&mut self, conn: ConnId, link: LinkNo) -> Option<&mut Producer> {
        self.producers.values_mut().find(|p| p.conn == conn.0 && p.link == link.0)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// The connection of a client, made when it is first asked for.
    pub(super) fn conn(&mut self, client: &str) -> u64 {
        if let Some(&conn) = self.clients.get(client) {
            return conn;
        }
        let conn = self.number();
        self.clients.insert(client.to_owned(), conn);
        let client = Client {
            id: client.to_owned(),
            user: "anonymous".into(),
            address: format!("10.0.0.1:{conn}"),
            sole: false,
        };
        self.send(Command::Connect { conn: ConnId(conn), client });
        conn
    }

    /// Cuts the connection of a client.
    pub(super) fn cut(&mut self, client: &str) {
        let Some(conn) = self.clients.remove(client) else { return };
        self.consumers.retain(|_, c| c.conn != conn);
        self.producers.retain(|_, p| p.conn != conn);
        self.held.retain(|lane, _| lane.0 != conn);
        self.send(Command::Disconnect { conn: ConnId(conn) });
    }

    /// Attaches a consumer under a name of the test's.
    pub(super) fn consume(
        &mut self,
        name: &str,
        client: &str,
        spec: ConsumerSpec,
        credit: u64,
    ) -> Result<(), Refusal> {
        let conn = self.conn(client);
        let link = u32::try_from(self.number()).unwrap();
        self.consumers.insert(name.to_owned(), Consumer { conn, link, ..Consumer::default() });
        self.send(Command::OpenConsumer { conn: ConnId(conn), link: LinkNo(link), spec: Box::new(spec) });
        if let Some(refusal) = self.consumers[name].ended.clone() {
            self.consumers.remove(name);
            return Err(refusal);
        }
        self.credit(name, credit, false);
        Ok(())
    }

    pub(super) fn credit(&mut self, name: &str, limit: u64, drain: bool) {
        if let Some(taker) = self.consumers.get(name).and_then(|c| c.taker) {
            self.send(Command::Credit { taker, limit, drain });
        }
    }

    /// Gives an outcome to a range of deliveries, and waits for the broker to confirm it.
    pub(super) fn settle(&mut self, name: &str, first: u64, last: u64, outcome: Settlement) {
        let Some(state) = self.consumers.get_mut(name) else { return };
        for got in state.got.iter_mut().filter(|got| (first..=last).contains(&got.tag)) {
            got.open = false;
        }
        if let Some(taker) = state.taker {
            self.send(Command::Settle { taker, first, last, outcome, confirm: true });
        }
    }

    pub(super) fn close(&mut self, name: &str, mode: CloseMode) {
        let taker = self.consumers.get(name).and_then(|c| c.taker);
        if let Some(taker) = taker {
            self.send(Command::CloseConsumer { taker, mode, default: Settlement::Released });
        }
        self.consumers.remove(name);
    }

    /// The producer of a client at an address, made when it is first asked for.
    pub(super) fn producer(&mut self, client: &str, target: ProducerTarget) -> Result<String, Refusal> {
        let name = format!("{client} {target:?}");
        if self.producers.get(&name).is_some_and(|p| p.key.is_some()) {
            return Ok(name);
        }
        let conn = self.conn(client);
        let link = u32::try_from(self.number()).unwrap();
        self.producers.insert(name.clone(), Producer { conn, link, ..Producer::default() });
        self.send(Command::OpenProducer { conn: ConnId(conn), link: LinkNo(link), target });
        match self.producers[&name].ended.clone() {
            Some(refusal) => Err(refusal),
            None => Ok(name),
        }
    }

    /// Sends a message; its tag at the producer.
    pub(super) fn publish(&mut self, producer: &str, message: Incoming) -> u64 {
        let state = self.producers.get_mut(producer).unwrap();
        let tag = state.fates.len() as u64;
        state.fates.push(Fate::Waiting);
        if let Some(key) = state.key {
            let message = Box::new(message);
            self.send(Command::Publish { producer: key, tag, message, settled: false });
        }
        tag
    }

    pub(super) fn fate(&self, producer: &str, tag: u64) -> Fate {
        self.producers[producer].fates[usize::try_from(tag).unwrap()].clone()
    }

    /// All events that a browse shows, page by page.
    pub(super) fn browse(&mut self, request: impl Fn(Page) -> Request) -> Result<Vec<EventView>, Refusal> {
        let (mut events, mut after) = (Vec::new(), None);
        loop {
            match self.ask(request(Page { after, limit: usize::MAX }))? {
                Response::Events { items, next: None } => {
                    events.extend(items);
                    return Ok(events);
                }
                Response::Events { items, next } => {
                    events.extend(items);
                    after = next;
                }
                other => panic!("no events: {other:?}"),
            }
        }
    }

    /// What waits for its delivery time in a store, page by page.
    pub(super) fn scheduled(&mut self, kind: StoreKind, name: &str) -> Result<Vec<ScheduledView>, Refusal> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = Page { after, limit: 3 };
            match self.ask(Request::ListScheduled { kind, name: name.to_owned(), page })? {
                Response::Scheduled { items, next } => {
                    all.extend(items);
                    if next.is_none() {
                        return Ok(all);
                    }
                    after = next;
                }
                other => panic!("no list: {other:?}"),
            }
        }
    }

    /// What an operator is answered, which must not wait for more than a sync.
    pub(super) fn ask(&mut self, request: Request) -> Result<Response, Refusal> {
        let reply = self.number();
        self.send(Command::Admin { reply, request: Box::new(request) });
        if self.hasty {
            return self.replies.remove(&reply).unwrap_or(Ok(Response::Purged { purged: 0 }));
        }
        if !self.replies.contains_key(&reply) {
            self.sync();
        }
        self.replies.remove(&reply).expect("an operator is always answered")
    }
}

/// An engine that has read these steps back.
pub(super) fn replayed(
    settings: &BrokerSettings,
    steps: &[Vec<u8>],
    seed: [u8; 16],
    continues: bool,
) -> Engine {
    let mut engine = Engine::new(settings.clone(), seed);
    for (at, step) in steps.iter().enumerate() {
        engine.replay(step, frame(at)).expect("what was written can be read");
    }
    engine.recovered(continues);
    engine
}

/// The durable stores by the names under which they are found, queues first: no digest says that.
fn names(engine: &Engine) -> Vec<(Arc<str>, StoreKey)> {
    let all = engine.queues.iter().chain(&engine.channels).map(|(name, &key)| (name.clone(), key));
    all.filter(|(_, key)| engine.store(*key).is_some_and(|store| store.owner.is_none())).collect()
}

/// Where a step lies: segments of 100 steps.
fn frame(at: usize) -> FramePlace {
    let at = u32::try_from(at).unwrap();
    FramePlace { segment: u64::from(at / 100), offset: at % 100, length: 0 }
}

/// The bytes of a message.
pub(super) fn body_at(steps: &[Vec<u8>], place: BodyPlace, length: u32) -> Bytes {
    let step = usize::try_from(place.frame.segment).unwrap() * 100 + place.frame.offset as usize;
    Bytes::copy_from_slice(&steps[step][place.at as usize..][..length as usize])
}

/// The link of an effect; connections and operators have lanes of their own.
fn lane(effect: &Effect) -> Lane {
    match effect {
        Effect::Connected { conn } | Effect::ConnectRefused { conn, .. } => (conn.0, 0),
        Effect::ProducerOpened { conn, link, .. }
        | Effect::ProducerCredit { conn, link, .. }
        | Effect::Published { conn, link, .. }
        | Effect::ConsumerOpened { conn, link, .. }
        | Effect::LinkRefused { conn, link, .. }
        | Effect::Settled { conn, link, .. }
        | Effect::Drained { conn, link }
        | Effect::LinkClosed { conn, link }
        | Effect::DetachLink { conn, link, .. }
        | Effect::SubscriptionFound { conn, link, .. }
        | Effect::SubscriptionDeleted { conn, link } => (conn.0, link.0),
        Effect::Load { .. } => (u64::MAX, 1),
        Effect::Deliver(delivery) => (delivery.conn.0, delivery.link.0),
        Effect::AdminReply { reply, .. } => (u64::MAX, u32::try_from(*reply).unwrap_or(0)),
    }
}
