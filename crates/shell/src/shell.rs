//! The turn: what came in goes through the engine, its steps into the journal, its effects to those they are for once
//! they may be told.

use crate::driven::Driven;
use crate::log::Log;
use crate::outbox::{Outbox, Reply};
use postroad_engine::admin::{Request, Response};
use postroad_engine::{Command, ConnId, Effect, Engine, Loaded, Now, Output, Step, StepBytes, Wanted};
use postroad_journal::{AppendError, Batch, Checkpoint, Error, FreeError, Journal, Lsn};
use postroad_model::refusal::Refusal;

/// Pieces of waiting work done at once when the last connections are gone.
const TASKS_AT_THE_END: usize = 64;

/// Why a broker must end.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// A write or sync failed before: what is promised from here on can't be kept.
    #[error(transparent)]
    Journal(#[from] Error),
    /// A frame that the journal can't take. A step holds one message, whose size is limited far below a frame's, and
    /// nothing is appended after the clean stop; so this is a fault of the program.
    #[error("a frame can't be appended: {0}")]
    Frame(AppendError),
}

/// How the end of the log was marked.
#[derive(Debug)]
pub enum StopMark {
    /// As a clean stop: the next start knows that nothing is missing.
    Clean,
    /// Not at all, because so many frames found no room: the next start must not trust that nothing is missing.
    NoRoom(usize),
    /// Not at all: there is no room for the mark itself. Then the next start renews the stores' identities, which is
    /// always right.
    Unmarked(AppendError),
}

/// Engine and journal, and the effects that wait between them. `R` is what the owner keeps for a connection.
#[derive(Debug)]
pub struct Shell<R> {
    engine: Driven,
    log: Log,
    outbox: Outbox<R>,
    next_reply: u64,
    checkpoints: u64,
    /// Nothing is moved any more: the end is near.
    ending: bool,
    /// Reused from turn to turn.
    out: Output,
}

impl<R> Shell<R> {
    pub(crate) fn new(engine: Driven, journal: Journal, read: u64, checkpoint_every: u64) -> Self {
        Self {
            engine,
            log: Log::new(journal, read, checkpoint_every),
            outbox: Outbox::default(),
            next_reply: 1,
            checkpoints: 0,
            ending: false,
            out: Output::default(),
        }
    }

    // ---- what comes in ----

    /// A connection wants its effects. Its number is one of [`ConnIds`](crate::ConnIds).
    pub fn register(&mut self, conn: ConnId, route: R) {
        self.outbox.register(conn, route);
    }

    /// A connection is over: what waits for it is dropped, what it held goes back.
    pub fn unregister(&mut self, now: Now, conn: ConnId) {
        self.outbox.unregister(conn);
        self.engine.handle(now, Command::Disconnect { conn });
    }

    /// Handles a command of a connection.
    pub fn handle(&mut self, now: Now, command: Command) {
        self.engine.handle(now, command);
    }

    /// Asks on behalf of an operator; gives the number of the [`Reply`] to come.
    pub fn ask(&mut self, now: Now, request: Box<Request>) -> u64 {
        let reply = self.next_reply;
        self.next_reply += 1;
        self.engine.handle(now, Command::Admin { reply, request });
        reply
    }

    /// Does up to `budget` pieces of waiting work; whether more is waiting.
    pub fn run(&mut self, now: Now, budget: usize) -> bool {
        self.engine.run(now, budget)
    }

    // ---- the end of a turn ----

    /// Ends a turn: its steps are appended as far as there is room, a checkpoint behind them if one is due, and its effects
    /// wait or are ready.
    ///
    /// # Errors
    /// If the journal has failed; the broker must end.
    pub fn flush(&mut self) -> Result<(), ShellError> {
        self.flush_seen(|_| ())
    }

    /// As [`Self::flush`], and shows each step before it is appended. For a simulator, which compares them with what comes
    /// back, and may damage them on purpose.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_seen(&mut self, see: impl FnMut(&mut StepBytes)) -> Result<(), ShellError> {
        self.engine.take_output(&mut self.out);
        self.out.steps.iter_mut().for_each(see);
        if let Some(last) = self.out.steps.last() {
            self.outbox.begin_turn(last.step);
        }
        let mut steps = std::mem::take(&mut self.out.steps);
        self.append(steps.drain(..))?;
        self.out.steps = steps;
        if self.log.wants_checkpoint(self.engine.engine().live_segments().len()) {
            self.checkpoint()?;
        }
        for (after, effect) in self.out.effects.drain(..) {
            self.outbox.take(after, effect);
        }
        Ok(())
    }

    /// Writes the state into the journal, so that what lies before can be freed and a start has little to read.
    fn checkpoint(&mut self) -> Result<(), ShellError> {
        self.checkpoints += 1;
        let mut pieces = Vec::new();
        self.engine.engine().snapshot(&mut |piece| pieces.push(piece.to_vec()));
        self.log.append_checkpoint(pieces, self.engine.engine().live_segments().keys().copied().collect())
    }

    /// What was appended since the last call: to be written and synced, in the order in which it was taken.
    pub fn take_batch(&mut self) -> Option<Batch> {
        self.log.take_batch()
    }

    /// Hands out the effects that may be performed, a list for each connection, in order.
    pub fn send_ready(&mut self, send: impl FnMut(ConnId, &R, Vec<Effect>)) {
        self.outbox.send_ready(send);
    }

    /// The next answer that an operator may be given.
    pub fn take_reply(&mut self) -> Option<Reply> {
        self.outbox.take_reply()
    }

    /// An answer that was flushed, also if a crash could take back what it says. For a start, while nobody is served, and
    /// for questions that change nothing; `None` if the engine has not answered yet.
    pub fn take_reply_early(&mut self, number: u64) -> Option<Result<Response, Refusal>> {
        self.outbox.take_reply_early(number).map(|reply| reply.result)
    }

    // ---- what happened to the journal ----

    /// Every frame up to `lsn` is durable: what waited for it is ready.
    pub fn became_durable(&mut self, lsn: Lsn) {
        let durable = self.log.became_durable(lsn);
        self.engine.became_durable(durable);
        self.outbox.release(durable);
    }

    /// The messages that are to be read from the journal, in any order; what came of it goes to [`Self::loaded`].
    pub fn take_loads(&mut self) -> Vec<Wanted> {
        self.outbox.take_loads()
    }

    /// Messages were read, or can't be.
    pub fn loaded(&mut self, now: Now, loaded: Vec<Loaded>) {
        self.engine.handle(now, Command::Loaded { loaded });
    }

    /// A segment became ready: what found no room is appended.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn space(&mut self) -> Result<(), ShellError> {
        self.append(std::iter::empty())
    }

    /// Appends steps behind those that wait, as far as there is room. The engine hears where each lies, and gets its buffer
    /// back with the next turn.
    fn append(&mut self, steps: impl Iterator<Item = StepBytes>) -> Result<(), ShellError> {
        let Self { engine, log, out, .. } = self;
        log.append(steps, |step, place| {
            engine.placed(step.step, place);
            out.reuse(step.payload);
        })?;
        engine.set_disk_full(log.is_full());
        Ok(())
    }

    /// The disk has no room for another segment: publishers are refused, consumers go on.
    pub fn no_space(&mut self) {
        self.engine.set_disk_full(true);
    }

    /// A checkpoint is complete. Says how many segments that frees. What keeps others from being freed is written again
    /// bit by bit, where it is little.
    ///
    /// # Errors
    /// If the journal knows of no such checkpoint.
    pub fn checkpointed(&mut self, checkpoint: Checkpoint) -> Result<usize, FreeError> {
        // This may come before the news that its last frame is durable, which another thread brings. Messages that were moved
        // before it would then seem to lie where they were, and the segment where they are would be freed.
        self.became_durable(checkpoint.last);
        let freed = self.log.checkpointed(checkpoint, self.engine.engine().live_segments())?;
        if !self.ending {
            let sparse = self.log.sparse(self.engine.engine().live_segments());
            self.engine.clear_segments(&sparse);
        }
        Ok(freed)
    }

    /// Frees what a start found that nothing needs any more. Says how many segments that were.
    ///
    /// # Errors
    /// As [`Self::checkpointed`].
    pub(crate) fn free_unneeded(&self) -> Result<usize, FreeError> {
        self.log.free_unneeded(self.engine.engine().live_segments())
    }

    // ---- the end ----

    /// Takes leave of every connection that is still there: what they held goes back, and that is flushed.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn unregister_all(&mut self, now: Now) -> Result<(), ShellError> {
        for conn in self.outbox.ids() {
            self.unregister(now, conn);
        }
        while self.engine.run(now, TASKS_AT_THE_END) {}
        self.flush()
    }

    /// Everything is on disk and the end is near: begins a checkpoint, if the next start would have much to read without it;
    /// once, however often it is called. Wait until [`Self::is_checkpointing`] is false before [`Self::stop`]: one that is
    /// completed behind the mark of a clean stop makes the mark void.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn checkpoint_at_end(&mut self) -> Result<(), ShellError> {
        let again = std::mem::replace(&mut self.ending, true);
        if !again && self.log.wants_last_checkpoint() { self.checkpoint() } else { Ok(()) }
    }

    /// Whether a checkpoint was begun that is not complete yet.
    #[must_use]
    pub const fn is_checkpointing(&self) -> bool {
        self.log.is_completing()
    }

    /// Marks the end of the log, after which nothing is appended; the last batch is to be taken, written and synced. Where
    /// steps found no room there is no clean stop; a checkpoint that found none is given up. `see` is shown each step that the
    /// engine still makes.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn stop(&mut self, see: impl FnMut(&mut StepBytes)) -> Result<StopMark, ShellError> {
        self.log.give_up_checkpoint();
        self.engine.each(Engine::prepare_stop);
        self.flush_seen(see)?;
        Ok(match self.log.waiting() {
            0 => self.log.append_clean_stop().map_or_else(StopMark::Unmarked, |()| StopMark::Clean),
            frames => StopMark::NoRoom(frames),
        })
    }

    // ---- questions ----

    /// The engine, to look at.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        self.engine.engine()
    }

    /// What the twin of the engine did otherwise ([`Setup::twin`](crate::Setup)).
    #[must_use]
    pub fn difference(&self) -> Option<&str> {
        self.engine.difference()
    }

    /// Checkpoints that were begun since the start.
    #[must_use]
    pub const fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// The monotonic time at which [`Self::run`] is to be called next, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.engine.engine().next_deadline()
    }

    /// Connections that are registered.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.outbox.open()
    }

    /// The last step of this life that is durable, with every one before it.
    #[must_use]
    pub const fn durable(&self) -> Step {
        self.log.durable()
    }

    /// Whether everything that was flushed is durable, and so nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.log.is_idle()
    }

    /// Whether the disk has no room for another segment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.log.is_full()
    }

    /// Whether frames can't be appended because the disk is full.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.log.waiting() > 0 && self.log.is_full()
    }
}
