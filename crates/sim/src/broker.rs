//! One life of the broker: the shell around engine and journal, driven as the server's core drives it, but stepwise: every
//! turn, write, sync and segment made ready is a call of its own, in an order that the seed chooses.

use crate::check::recovery::hash;
use crate::random::Random;
use bytes::Bytes;
use postroad_engine::admin::{Request, Response};
use postroad_engine::{Command, ConnId, Effect, Engine, Loaded, Now, Step, StepBytes, Wanted};
use postroad_journal::{Batch, BatchWriter, Error, Keeper, Lsn, MemDisk, Options, Reader, Stop, Work};
use postroad_model::refusal::Refusal;
use postroad_model::settings::BrokerSettings;
use postroad_shell::{OpenError, Opened, Setup, Shell, ShellError, StopMark, Use, read_messages};
use std::collections::VecDeque;
use std::sync::Arc;

/// What reaches the core, in order.
#[derive(Debug)]
pub enum Input {
    /// A connection is there.
    Register(ConnId),
    /// Commands of one connection.
    Commands(Vec<Command>),
    /// A connection is over.
    Unregister(ConnId),
    /// An operator's request.
    Admin(Box<Request>),
    /// Messages were read back.
    Loaded(Vec<Loaded>),
}

/// What a life of the broker begins with.
#[derive(Debug)]
pub struct Start {
    /// The frames that were read back, and what for.
    pub frames: Vec<(Use, Vec<u8>)>,
    /// How the life before ended, as the journal says.
    pub stop: Stop,
}

/// Bugs that can be put back on purpose, to see that they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// What is written counts as durable before it is synced.
    EarlyEffects,
    /// Sent marks are left out of the journal.
    NoSentMark,
}

/// How a broker is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The broker's settings.
    pub settings: BrokerSettings,
    /// Bytes between checkpoints.
    pub checkpoint_every: u64,
    /// A bug that is put back on purpose.
    pub sabotage: Sabotage,
}

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    shell: Shell<()>,
    writer: BatchWriter,
    keeper: Keeper,
    reader: Reader,
    /// Messages to be read back.
    loads: VecDeque<Wanted>,
    inbox: VecDeque<Input>,
    batches: VecDeque<Batch>,
    /// The last frame that is written, if it is not synced.
    written: Option<Lsn>,
    /// The last frame that is synced.
    synced: Lsn,
    /// The shell was not told what is synced.
    is_untold: bool,
    /// What is durable in truth, whatever the shell was told.
    durable: Step,
    /// What the shell was told to be durable, with the frame that it must be synced up to.
    told: VecDeque<(Lsn, Step)>,
    /// Effects that may be performed, by connection.
    pub ready: Vec<(ConnId, Vec<Effect>)>,
    /// The payloads of the steps that the last call made, in order.
    pub fresh: Vec<Vec<u8>>,
    /// What an operator was answered last.
    pub answers: Vec<Result<Response, Refusal>>,
    /// The checkpoint that was made last.
    pub checkpoint: Option<Made>,
    /// The disk had no room for a further segment when the keeper looked last.
    no_space: bool,
    /// Steps of this life.
    steps: u64,
    sabotage: Sabotage,
}

/// A checkpoint that was made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// A hash of its bytes.
    pub hash: u64,
    /// Steps of this life before it.
    pub steps: u64,
}

impl Broker {
    /// Opens the journal on `disk`, reads it back, and starts.
    ///
    /// # Errors
    /// What the journal says, or that a step can't be read.
    pub fn start(disk: &MemDisk, config: &Config, seed: u64) -> Result<(Self, Start), StartError> {
        let setup = Setup {
            broker: config.settings.clone(),
            // A piece of a checkpoint may be larger than a megabyte by one message.
            journal: Options { max_payload: 2 << 20, ..Options::small() },
            checkpoint_every: config.checkpoint_every,
            seed: entropy(seed),
            twin: Some(seed),
        };
        let mut frames = Vec::new();
        let see = |frame: postroad_shell::Frame<'_>| frames.push((frame.used, frame.payload.to_vec()));
        let opened = postroad_shell::open(Arc::new(disk.clone()), setup, see)?;
        let Opened { shell, writer, keeper, reader, recovered } = opened;
        let mut broker = Self {
            shell,
            writer,
            keeper,
            reader,
            loads: VecDeque::new(),
            inbox: VecDeque::new(),
            batches: VecDeque::new(),
            written: None,
            synced: Lsn(0),
            is_untold: false,
            durable: Step(0),
            told: VecDeque::new(),
            ready: Vec::new(),
            fresh: Vec::new(),
            answers: Vec::new(),
            checkpoint: None,
            no_space: false,
            steps: 0,
            sabotage: config.sabotage,
        };
        broker.flush()?;
        Ok((broker, Start { frames, stop: recovered.stop }))
    }

    /// The engine, to look at.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        self.shell.engine()
    }

    /// What the engine's twin did otherwise: with other seeds of hash tables, and output taken at other moments.
    #[must_use]
    pub fn difference(&self) -> Option<&str> {
        self.shell.difference()
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
    pub fn turn(&mut self, now: Now, inputs: usize, tasks: usize) -> Result<bool, ShellError> {
        for _ in 0..inputs {
            let Some(input) = self.inbox.pop_front() else { break };
            match input {
                Input::Register(conn) => self.shell.register(conn, ()),
                Input::Commands(commands) => {
                    for command in commands {
                        self.shell.handle(now, command);
                    }
                }
                Input::Unregister(conn) => self.shell.unregister(now, conn),
                Input::Admin(request) => drop(self.shell.ask(now, request)),
                Input::Loaded(loaded) => self.shell.loaded(now, loaded),
            }
        }
        let more = self.shell.run(now, tasks);
        self.flush()?;
        Ok(more || !self.inbox.is_empty())
    }

    /// Asks an operator's question now and gives the answer, without waiting for the disk. For questions only.
    pub fn ask(&mut self, now: Now, request: Request) -> Option<Result<Response, Refusal>> {
        let number = self.shell.ask(now, Box::new(request));
        loop {
            self.end_turn().ok()?;
            let answer = self.shell.take_reply_early(number);
            self.pass_on();
            if answer.is_some() || self.loads.is_empty() {
                return answer;
            }
            // A question may have to wait for messages that are not in memory.
            let wanted: Vec<Wanted> = self.loads.drain(..).collect();
            self.shell.loaded(now, read_messages(&self.reader, &wanted));
        }
    }

    /// The bytes of a message, from where the engine says that they lie unless it has them itself, because they may not be
    /// written yet; `None` if they can't be read.
    #[must_use]
    pub fn read(&self, wanted: &Wanted) -> Option<Bytes> {
        let here = self.engine().message_in_memory(wanted.body);
        here.or_else(|| read_messages(&self.reader, &[*wanted]).pop()?.bytes.ok())
    }

    fn flush(&mut self) -> Result<(), ShellError> {
        self.end_turn()?;
        self.pass_on();
        Ok(())
    }

    fn end_turn(&mut self) -> Result<(), ShellError> {
        let (fresh, sabotage, made) = (&mut self.fresh, self.sabotage, self.shell.checkpoints());
        let before = fresh.len();
        self.shell.flush_seen(|step: &mut StepBytes| {
            if sabotage == Sabotage::NoSentMark {
                step.payload = without_marks(&step.payload);
            }
            fresh.push(step.payload.clone());
        })?;
        self.steps += (self.fresh.len() - before) as u64;
        self.note_checkpoint(made);
        Ok(())
    }

    /// Notes what the checkpoint holds that was made since there were `before` of them.
    fn note_checkpoint(&mut self, before: u64) {
        if self.shell.checkpoints() > before {
            let mut bytes = Vec::new();
            self.shell.engine().snapshot(&mut |piece| bytes.extend_from_slice(piece));
            self.checkpoint = Some(Made { hash: hash(&bytes), steps: self.steps });
        }
    }

    /// Puts what the shell gives out where it is looked for.
    fn pass_on(&mut self) {
        self.batches.extend(self.shell.take_batch());
        self.loads.extend(self.shell.take_loads());
        let ready = &mut self.ready;
        self.shell.send_ready(|conn, (), effects| ready.push((conn, effects)));
        while let Some(reply) = self.shell.take_reply() {
            self.answers.push(reply.result);
        }
    }

    /// Does one piece of the disk's work, as chance chooses; says whether there was any.
    ///
    /// # Errors
    /// If the disk fails or the process dies in it.
    pub fn disk_work(&mut self, random: &mut Random) -> Result<bool, ShellError> {
        match random.below(4) {
            0 if !self.batches.is_empty() => self.write(random.range(1, 4)).map(|()| true),
            3 if !self.loads.is_empty() => {
                self.load(random.range(1, 4));
                Ok(true)
            }
            1 if self.written.is_some() => self.sync_untold().map(|()| true),
            2 if self.is_untold => self.tell_synced().map(|()| true),
            _ => self.keep(),
        }
    }

    /// Does everything that the disk has to do.
    ///
    /// # Errors
    /// If the disk fails or the process dies in it.
    pub fn disk_idle(&mut self) -> Result<(), ShellError> {
        loop {
            while self.keep()? {}
            self.load(u64::MAX);
            if self.batches.is_empty() && self.written.is_none() && !self.is_untold {
                // As the writer does when it has had nothing to do for a while, also after a start.
                self.writer.mark_tail()?;
                return Ok(());
            }
            self.write(u64::MAX)?;
            self.sync()?;
        }
    }

    /// Reads up to `most` messages back, in any order as the owner is free to.
    fn load(&mut self, most: u64) {
        let count = self.loads.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let wanted: Vec<Wanted> = self.loads.drain(..count).rev().collect();
        if !wanted.is_empty() {
            self.inbox.push_back(Input::Loaded(read_messages(&self.reader, &wanted)));
        }
    }

    fn write(&mut self, most: u64) -> Result<(), ShellError> {
        let count = self.batches.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let batches: Vec<Batch> = self.batches.drain(..count).collect();
        self.writer.write(&batches)?;
        self.written = batches.last().map(Batch::last).or(self.written);
        if let Some(lsn) = self.written.filter(|_| self.sabotage == Sabotage::EarlyEffects) {
            self.tell_durable(lsn);
        }
        Ok(())
    }

    /// Syncs what is written, and tells it at once.
    fn sync(&mut self) -> Result<(), ShellError> {
        self.sync_untold()?;
        self.tell_synced()
    }

    /// Syncs what is written. The shell hears of it later, perhaps after the keeper has worked on from there.
    fn sync_untold(&mut self) -> Result<(), ShellError> {
        self.synced = self.writer.sync()?;
        self.is_untold = true;
        self.written = None;
        Ok(())
    }

    fn tell_synced(&mut self) -> Result<(), ShellError> {
        self.is_untold = false;
        self.tell_durable(self.synced);
        if self.batches.is_empty() {
            self.writer.mark_tail()?;
        }
        Ok(())
    }

    fn tell_durable(&mut self, lsn: Lsn) {
        self.shell.became_durable(lsn);
        self.was_told(lsn);
        self.pass_on();
    }

    /// Notes what the shell holds for durable since it was told so of the frames up to this one, and what of that is true.
    fn was_told(&mut self, lsn: Lsn) {
        self.told.push_back((lsn, self.shell.durable()));
        while let Some((_, step)) = self.told.pop_front_if(|(needs, _)| *needs <= self.synced) {
            self.durable = step;
        }
    }

    /// One piece of the keeper's work, and what the writing threads tell of it.
    fn keep(&mut self) -> Result<bool, ShellError> {
        match self.keeper.work()? {
            Work::Nothing => return Ok(false),
            Work::NoSpace => {
                self.no_space = true;
                self.shell.no_space();
                return Ok(false);
            }
            Work::Ready => {
                self.no_space = false;
                self.shell.space()?;
            }
            Work::Removed(_) | Work::Noted(_) => {}
            Work::Checkpointed(checkpoint) => {
                let freed = self.shell.checkpointed(checkpoint);
                freed.expect("the journal has just said that this checkpoint is complete");
                self.was_told(checkpoint.last);
            }
        }
        self.pass_on();
        Ok(true)
    }

    /// Whether the disk has room for the note that what is durable is synced, wherever that has to go.
    #[must_use]
    pub const fn can_note(&self) -> bool {
        !self.no_space
    }

    /// Steps of this life that are durable.
    #[must_use]
    pub const fn durable(&self) -> u64 {
        self.durable.0
    }

    /// Whether nothing waits: no input, no frame, no effect.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.loads.is_empty() && self.shell.is_idle()
    }

    /// Makes the checkpoint that an orderly end makes, if it is worth it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn checkpoint_at_end(&mut self) -> Result<(), ShellError> {
        let made = self.shell.checkpoints();
        self.shell.checkpoint_at_end()?;
        self.note_checkpoint(made);
        self.pass_on();
        self.disk_idle()
    }

    /// Marks the clean stop and syncs it; says whether the next start must find the mark.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stop(&mut self) -> Result<bool, ShellError> {
        let fresh = &mut self.fresh;
        let mark = self.shell.stop(|step| fresh.push(step.payload.clone()))?;
        self.pass_on();
        self.write(u64::MAX)?;
        self.sync()?;
        // A checkpoint that is completed behind the mark would make it void.
        Ok(matches!(mark, StopMark::Clean) && !self.shell.is_checkpointing())
    }
}

/// Why a broker can't start.
#[derive(Debug)]
pub enum StartError {
    /// The journal can't be opened or read.
    Open(OpenError),
    /// The first steps can't be appended.
    Shell(ShellError),
}

impl StartError {
    /// Whether the disk failed or the process died in it.
    #[must_use]
    pub const fn is_of_the_disk(&self) -> bool {
        matches!(
            self,
            Self::Open(OpenError::Journal(Error::Io { .. } | Error::PreviousIo))
                | Self::Shell(ShellError::Journal(Error::Io { .. } | Error::PreviousIo))
        )
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Shell(error) => error.fmt(f),
        }
    }
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<ShellError> for StartError {
    fn from(error: ShellError) -> Self {
        Self::Shell(error)
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
