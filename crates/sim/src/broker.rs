//! One life of the broker: engine and journal with what lies between them, as in the server's core, but stepwise: every
//! turn, write, sync and segment made ready is a call of its own, in an order that the seed chooses.

use crate::random::Random;
use postroad_engine::admin::{Request, Response};
use postroad_engine::{Command, ConnId, Effect, Engine, LinkNo, Now, Output, Step, StepBytes};
use postroad_journal::{
    AppendError, Batch, BatchWriter, Error, Journal, JournalId, Keeper, Label, Lsn, MemDisk, Options,
    Recovery, Space, Stop, Work,
};
use postroad_model::refusal::Refusal;
use postroad_model::settings::BrokerSettings;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Kind of the frames that hold a step, as the server writes them.
const KIND_STEP: u8 = 1;

/// What reaches the core, in order.
#[derive(Debug)]
pub enum Input {
    /// Commands of one connection.
    Commands(Vec<Command>),
    /// A connection is over.
    Unregister(ConnId),
    /// An operator's request.
    Admin(Request),
}

/// What a life of the broker begins with.
#[derive(Debug)]
pub struct Start {
    /// The payloads of the steps that were read back.
    pub steps: Vec<Vec<u8>>,
    /// How the life before ended, as the journal says.
    pub stop: Stop,
}

/// Bugs that can be put back on purpose, to see that they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Effects are performed before their steps are durable.
    EarlyEffects,
    /// Sent marks are left out of the journal.
    NoSentMark,
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    /// The engine.
    pub engine: Engine,
    journal: Journal,
    writer: BatchWriter,
    keeper: Keeper,
    inbox: VecDeque<Input>,
    /// Steps that found no segment ready, in order.
    unappended: VecDeque<StepBytes>,
    on_the_way: VecDeque<(Lsn, Step)>,
    batches: VecDeque<Batch>,
    written: bool,
    /// Effects that wait for the step beside them, oldest first.
    waiting: VecDeque<(Step, Vec<Effect>)>,
    /// How many effects of each link wait: what comes after them waits too.
    held_up: BTreeMap<(ConnId, LinkNo), usize>,
    durable: Step,
    last: Step,
    next_reply: u64,
    /// Effects that may be performed, by connection.
    pub ready: BTreeMap<ConnId, Vec<Effect>>,
    /// The payloads of the steps that the last call made, in order.
    pub fresh: Vec<Vec<u8>>,
    out: Output,
    /// What an operator was answered last.
    pub answers: Vec<Result<Response, Refusal>>,
    sabotage: Sabotage,
}

impl Broker {
    /// Opens the journal on `disk`, reads it back, and starts.
    ///
    /// # Errors
    /// What the journal says, or that a step can't be read.
    pub fn start(
        disk: &MemDisk,
        settings: &BrokerSettings,
        seed: u64,
        sabotage: Sabotage,
    ) -> Result<(Self, Start), StartError> {
        let entropy = entropy(seed);
        let mut engine = Engine::new(settings.clone(), entropy);
        let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), JournalId(entropy))
            .map_err(StartError::Journal)?;
        let mut steps = Vec::new();
        while let Some(frame) = recovery.next_frame().map_err(StartError::Journal)? {
            for record in
                postroad_record::decode_step(frame.payload).map_err(|e| StartError::Step(e.to_string()))?
            {
                engine.replay(record);
            }
            steps.push(frame.payload.to_vec());
        }
        let opened = recovery.finish().map_err(StartError::Journal)?;
        let stop = opened.recovered.stop;
        let continues = matches!(stop, Stop::Clean | Stop::New);
        engine.recovered(continues);
        engine.configure(settings.clone());
        engine.found();
        let mut broker = Self {
            engine,
            journal: opened.journal,
            writer: opened.writer,
            keeper: opened.keeper,
            inbox: VecDeque::new(),
            unappended: VecDeque::new(),
            on_the_way: VecDeque::new(),
            batches: VecDeque::new(),
            written: false,
            waiting: VecDeque::new(),
            held_up: BTreeMap::new(),
            durable: Step(0),
            last: Step(0),
            next_reply: 1,
            ready: BTreeMap::new(),
            fresh: Vec::new(),
            out: Output::default(),
            answers: Vec::new(),
            sabotage,
        };
        broker.flush().map_err(StartError::Journal)?;
        Ok((broker, Start { steps, stop }))
    }

    /// Something for the next turns.
    pub fn push(&mut self, input: Input) {
        self.inbox.push_back(input);
    }

    /// One turn: up to `inputs` of what came in, up to `tasks` pieces of waiting work, one batch for the disk. Says whether
    /// anything is left to do.
    ///
    /// # Errors
    /// If the journal has failed.
    pub fn turn(&mut self, now: Now, inputs: usize, tasks: usize) -> Result<bool, Error> {
        for _ in 0..inputs {
            let Some(input) = self.inbox.pop_front() else { break };
            match input {
                Input::Commands(commands) => {
                    for command in commands {
                        self.engine.handle(now, command);
                    }
                }
                Input::Unregister(conn) => self.engine.handle(now, Command::Disconnect { conn }),
                Input::Admin(request) => {
                    let reply = self.next_reply;
                    self.next_reply += 1;
                    self.engine.handle(now, Command::Admin { reply, request: Box::new(request) });
                }
            }
        }
        let more = self.engine.run(now, tasks);
        self.flush()?;
        Ok(more || !self.inbox.is_empty())
    }

    /// Asks an operator's question now and gives the answer, without waiting for the disk. For questions only.
    pub fn ask(&mut self, now: Now, request: Request) -> Option<Result<Response, Refusal>> {
        let mut out = Output::default();
        std::mem::swap(&mut out, &mut self.out);
        self.engine.handle(now, Command::Admin { reply: 0, request: Box::new(request) });
        self.engine.take_output(&mut out);
        let answer = out.effects.drain(..).find_map(|(_, effect)| match effect {
            Effect::AdminReply { result, .. } => Some(*result),
            _ => None,
        });
        std::mem::swap(&mut out, &mut self.out);
        answer
    }

    /// Sends the steps of the turn to the disk, and performs the effects that wait for nothing.
    fn flush(&mut self) -> Result<(), Error> {
        self.engine.take_output(&mut self.out);
        if let Some(last) = self.out.steps.last() {
            self.last = last.step;
        }
        if self.sabotage == Sabotage::NoSentMark {
            self.out.steps.iter_mut().for_each(|step| step.payload = without_marks(&step.payload));
        }
        self.fresh.extend(self.out.steps.iter().map(|step| step.payload.clone()));
        self.append()?;
        let mut held = Vec::new();
        for (after, effect) in std::mem::take(&mut self.out.effects) {
            let link = link_of(&effect);
            let behind = link.is_some_and(|link| self.held_up.contains_key(&link));
            if (after <= self.durable && !behind) || self.sabotage == Sabotage::EarlyEffects {
                self.perform(effect);
            } else {
                if let Some(link) = link {
                    *self.held_up.entry(link).or_default() += 1;
                }
                held.push(effect);
            }
        }
        if !held.is_empty() {
            self.waiting.push_back((self.last, held));
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), Error> {
        self.unappended.extend(std::mem::take(&mut self.out.steps));
        let mut last = None;
        while let Some(step) = self.unappended.front() {
            match self.journal.append(Label::kind(KIND_STEP), &[&step.payload]) {
                Ok(appended) => last = Some((appended.lsn, step.step)),
                Err(AppendError::NotReady { .. } | AppendError::NoSpace { .. }) => break,
                Err(_) => return Err(Error::PreviousIo),
            }
            self.unappended.pop_front();
        }
        self.on_the_way.extend(last);
        self.batches.extend(self.journal.take_batch());
        self.engine.set_disk_full(matches!(self.journal.space(), Space::Full { .. }));
        Ok(())
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AdminReply { result, .. } => self.answers.push(*result),
            effect => {
                if let Some(conn) = effect.conn() {
                    self.ready.entry(conn).or_default().push(effect);
                }
            }
        }
    }

    /// Does one piece of the disk's work, as chance chooses; says whether there was any.
    ///
    /// # Errors
    /// If the disk fails or the process dies in it.
    pub fn disk_work(&mut self, random: &mut Random) -> Result<bool, Error> {
        match random.below(3) {
            0 if !self.batches.is_empty() => self.write(random.range(1, 4)).map(|()| true),
            1 if self.written => self.sync().map(|()| true),
            _ => self.keep(),
        }
    }

    /// Does everything that the disk has to do.
    ///
    /// # Errors
    /// If the disk fails or the process dies in it.
    pub fn disk_idle(&mut self) -> Result<(), Error> {
        loop {
            while self.keep()? {}
            if self.batches.is_empty() && !self.written {
                return Ok(());
            }
            self.write(u64::MAX)?;
            self.sync()?;
        }
    }

    fn write(&mut self, most: u64) -> Result<(), Error> {
        let count = self.batches.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let batches: Vec<Batch> = self.batches.drain(..count).collect();
        self.writer.write(&batches)?;
        self.written = true;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        let lsn = self.writer.sync()?;
        self.written = false;
        while let Some(&(_, step)) = self.on_the_way.front().filter(|&&(last, _)| last <= lsn) {
            self.durable = step;
            self.on_the_way.pop_front();
        }
        while let Some((_, effects)) = self.waiting.pop_front_if(|(step, _)| *step <= self.durable) {
            for effect in effects {
                self.let_go(&effect);
                self.perform(effect);
            }
        }
        if self.batches.is_empty() {
            self.writer.mark_tail()?;
        }
        Ok(())
    }

    fn let_go(&mut self, effect: &Effect) {
        let Some(link) = link_of(effect) else { return };
        if let Some(held) = self.held_up.get_mut(&link) {
            *held -= 1;
            if *held == 0 {
                self.held_up.remove(&link);
            }
        }
    }

    fn keep(&mut self) -> Result<bool, Error> {
        match self.keeper.work()? {
            Work::Nothing | Work::NoSpace => {
                // A full disk is tried again by whoever frees it; steps that wait need no segment then.
                self.append()?;
                Ok(false)
            }
            _ => {
                self.append()?;
                Ok(true)
            }
        }
    }

    /// Steps of this life that are durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.0
    }

    /// Whether nothing waits: no input, no step, no effect.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty()
            && self.unappended.is_empty()
            && self.on_the_way.is_empty()
            && self.waiting.is_empty()
    }

    /// Marks the clean stop and syncs it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stop(&mut self) -> Result<(), Error> {
        if self.journal.append_clean_stop().is_ok() {
            self.batches.extend(self.journal.take_batch());
        }
        self.write(u64::MAX)?;
        self.writer.sync().map(drop)
    }
}

/// Why a broker can't start.
#[derive(Debug)]
pub enum StartError {
    /// The journal can't be opened or read.
    Journal(Error),
    /// A step can't be read.
    Step(String),
}

/// The link that an effect is for: for one link they are performed in the order in which they came.
fn link_of(effect: &Effect) -> Option<(ConnId, LinkNo)> {
    match effect {
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
        | Effect::SubscriptionDeleted { conn, link } => Some((*conn, *link)),
        Effect::Deliver(delivery) => Some((delivery.conn, delivery.link)),
        Effect::Connected { .. } | Effect::ConnectRefused { .. } | Effect::AdminReply { .. } => None,
    }
}

/// A step without its sent marks.
fn without_marks(payload: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for record in postroad_record::decode_step(payload).unwrap_or_default() {
        if !matches!(record, postroad_record::Record::Sent { .. }) {
            postroad_record::append(&record, &mut kept);
        }
    }
    kept
}

fn entropy(seed: u64) -> [u8; 16] {
    let mut random = Random::new(seed);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.bits().to_le_bytes());
    bytes[8..].copy_from_slice(&random.bits().to_le_bytes());
    bytes
}
