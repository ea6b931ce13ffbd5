//! The core: one task that drives the shell around engine and journal. Commands come in batches, effects go out once what
//! they promise is durable (DESIGN 2, 7.4).

use crate::clock::Clock;
use crate::http::AdminCall;
use crate::loader::Loader;
use postroad_engine::admin::Response;
use postroad_engine::{Command, ConnId, Effect, Loaded};
use postroad_journal::{Event, Writer};
use postroad_model::refusal::Refusal;
use postroad_shell::{Shell, ShellError, StopMark};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Pieces of waiting work done between two looks at the inbox.
const TASKS_PER_TURN: usize = 64;
/// Milliseconds that the last checkpoint may take. Without it the next start takes longer, and takes the stop for a crash.
const LAST_CHECKPOINT_MS: u64 = 5_000;
/// Milliseconds that clients have to say goodbye when the broker stops.
const GOODBYE_MS: u64 = 1_000;
/// Messages taken from the inbox at once by a core that has waited.
const INBOX: usize = 256;

/// The way to a connection.
pub(crate) type EffectSender = mpsc::UnboundedSender<Vec<Effect>>;

/// What reaches the core.
#[derive(Debug)]
pub(crate) enum Input {
    /// A connection wants its effects sent here.
    Register {
        /// Its number.
        conn: ConnId,
        /// Where they go.
        effects: EffectSender,
    },
    /// Commands of one connection, in order.
    Commands(Vec<Command>),
    /// A connection is over.
    Unregister {
        /// Its number.
        conn: ConnId,
    },
    /// Messages were read from the journal, or can't be.
    Loaded(Vec<Loaded>),
    /// The broker is to stop in order.
    Stop,
}

/// Why the core ended.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// A write or sync failed: what is promised from here on can't be kept.
    #[error("the journal failed, so nothing more can be promised: {0}")]
    Journal(Arc<postroad_journal::Error>),
    /// The engine made what the journal can't take.
    #[error("{0}; this is a fault in the broker")]
    Frame(ShellError),
}

impl From<postroad_journal::Error> for CoreError {
    fn from(error: postroad_journal::Error) -> Self {
        Self::Journal(Arc::new(error))
    }
}

impl From<ShellError> for CoreError {
    fn from(error: ShellError) -> Self {
        match error {
            ShellError::Journal(error) => error.into(),
            ShellError::Frame(_) => Self::Frame(error),
        }
    }
}

/// The shell with its inboxes and the writing threads.
pub(crate) struct Core {
    shell: Shell<EffectSender>,
    writer: Writer,
    loader: Loader,
    clock: Clock,
    inbox: mpsc::UnboundedReceiver<Input>,
    admin: mpsc::Receiver<AdminCall>,
    journal_events: mpsc::UnboundedReceiver<Event>,
    calls: BTreeMap<u64, oneshot::Sender<Result<Response, Refusal>>>,
    /// The operator was told that the disk is full.
    disk_full: bool,
    /// When the broker was told to stop, in monotonic milliseconds.
    stopping: Option<u64>,
    /// When the last checkpoint before the stop was begun, or found not to be worth it.
    last_checkpoint: Option<u64>,
}

impl Core {
    /// A core over a recovered engine.
    pub(crate) fn new(
        shell: Shell<EffectSender>,
        writer: Writer,
        loader: Loader,
        clock: Clock,
        inbox: mpsc::UnboundedReceiver<Input>,
        admin: mpsc::Receiver<AdminCall>,
        journal_events: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        Self {
            shell,
            writer,
            loader,
            clock,
            inbox,
            admin,
            journal_events,
            calls: BTreeMap::new(),
            disk_full: false,
            stopping: None,
            last_checkpoint: None,
        }
    }

    /// Works until the broker stops.
    ///
    /// # Errors
    /// [`CoreError`] if the journal fails.
    pub(crate) async fn run(mut self) -> Result<(), CoreError> {
        let mut inputs = Vec::with_capacity(INBOX);
        let mut more = true;
        loop {
            if !more {
                self.wait(&mut inputs).await?;
            }
            self.take_inputs(&mut inputs)?;
            more = self.turn(&mut inputs)?;
            if self.is_over()? {
                return self.stop();
            }
            if more {
                // Others on this thread have their turn before the next piece.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether a broker that was told to stop has nothing left to do. What consumers held has gone back by then, and
    /// that is on disk: else it would come again without its redelivered flag.
    fn is_over(&mut self) -> Result<bool, CoreError> {
        let Some(since) = self.stopping else { return Ok(false) };
        let now = self.clock.now();
        if self.shell.connections() > 0 {
            if now.mono < since + GOODBYE_MS {
                return Ok(false);
            }
            self.shell.unregister_all(now)?;
            self.pass_on()?;
        }
        let given_up = self.shell.is_stuck() && now.mono >= since + GOODBYE_MS;
        if !self.shell.is_idle() && !given_up {
            return Ok(false);
        }
        let begun = *self.last_checkpoint.get_or_insert(now.mono);
        self.shell.checkpoint_at_end()?;
        self.pass_on()?;
        Ok(given_up || !self.shell.is_checkpointing() || now.mono >= begun + LAST_CHECKPOINT_MS)
    }

    /// Marks the clean stop, waits for the disk, and ends the writing threads.
    fn stop(mut self) -> Result<(), CoreError> {
        match self.shell.stop(|_| ())? {
            StopMark::Clean => {}
            StopMark::NoRoom(frames) => {
                tracing::error!(frames, "the disk is full: stopping without what found no room");
            }
            StopMark::Unmarked(error) => tracing::warn!(%error, "the clean stop can't be marked"),
        }
        self.pass_on()?;
        Ok(self.writer.stop()?)
    }

    /// Waits until something happens.
    async fn wait(&mut self, inputs: &mut Vec<Input>) -> Result<(), CoreError> {
        let waits = self.shell.connections() > 0 || self.shell.is_stuck();
        let goodbye = self.stopping.filter(|_| waits).map(|since| since + GOODBYE_MS);
        // With something else under way its end is what to wait for.
        let last = self.last_checkpoint.filter(|_| self.shell.is_idle());
        let checkpoint = last.map(|begun| begun + LAST_CHECKPOINT_MS);
        let deadline = [self.shell.next_deadline(), goodbye, checkpoint].into_iter().flatten().min();
        let deadline = deadline.map(|mono| self.clock.instant(mono));
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.journal_events.recv() => {
                if let Some(event) = event {
                    self.journal_event(event)?;
                }
            }
            _ = self.inbox.recv_many(inputs, INBOX) => {}
            Some(call) = self.admin.recv() => self.admin_call(call),
            () = timer => {}
        }
        Ok(())
    }

    /// Takes what else is there without waiting.
    fn take_inputs(&mut self, inputs: &mut Vec<Input>) -> Result<(), CoreError> {
        while let Ok(event) = self.journal_events.try_recv() {
            self.journal_event(event)?;
        }
        // All that came while the last turn worked: else those who send could get further and further ahead.
        for _ in 0..self.inbox.len() {
            inputs.extend(self.inbox.try_recv().ok());
        }
        while let Ok(call) = self.admin.try_recv() {
            self.admin_call(call);
        }
        Ok(())
    }

    /// One turn: everything that came in, a bounded piece of waiting work, one batch for the disk.
    fn turn(&mut self, inputs: &mut Vec<Input>) -> Result<bool, CoreError> {
        let now = self.clock.now();
        for input in inputs.drain(..) {
            match input {
                Input::Register { conn, effects } => self.shell.register(conn, effects),
                Input::Unregister { conn } => self.shell.unregister(now, conn),
                Input::Commands(commands) => {
                    for command in commands {
                        self.shell.handle(now, command);
                    }
                }
                Input::Loaded(loaded) => self.shell.loaded(now, loaded),
                Input::Stop => self.stopping = Some(now.mono),
            }
        }
        let more = self.shell.run(now, TASKS_PER_TURN);
        self.shell.flush()?;
        self.pass_on()?;
        Ok(more)
    }

    fn admin_call(&mut self, (request, answer): AdminCall) {
        let reply = self.shell.ask(self.clock.now(), request);
        self.calls.insert(reply, answer);
    }

    /// Gives the disk what is to be written, and everybody else what they may know.
    fn pass_on(&mut self) -> Result<(), CoreError> {
        if let Some(batch) = self.shell.take_batch() {
            self.writer.submit(batch)?;
        }
        let loads = self.shell.take_loads();
        if !loads.is_empty() {
            self.loader.load(loads);
        }
        self.shell.send_ready(|_, route, effects| {
            // A connection that is just ending has dropped its receiver; its Unregister is on the way.
            let _ = route.send(effects);
        });
        while let Some(reply) = self.shell.take_reply() {
            if let Some(call) = self.calls.remove(&reply.number) {
                // The caller may have gone away; then nobody wants the answer.
                let _ = call.send(reply.result);
            }
        }
        Ok(())
    }

    fn journal_event(&mut self, event: Event) -> Result<(), CoreError> {
        match event {
            Event::Durable(lsn) => self.shell.became_durable(lsn),
            Event::Space => {
                if std::mem::take(&mut self.disk_full) {
                    tracing::info!("the disk has room again");
                }
                self.shell.space()?;
            }
            Event::NoSpace => {
                tracing::error!("the disk is full: publishers are refused until there is room");
                self.disk_full = true;
                self.shell.no_space();
            }
            Event::Checkpointed(checkpoint) => match self.shell.checkpointed(checkpoint) {
                Ok(segments) => tracing::info!(segments, "checkpoint complete, segments freed"),
                Err(error) => tracing::error!(%error, "segments before a checkpoint can't be freed"),
            },
            Event::Failed(error) => return Err(CoreError::Journal(error)),
        }
        self.pass_on()
    }
}
