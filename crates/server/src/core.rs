//! The core: one task that owns engine and journal. Commands come in batches, effects go out once what they promise
//! is durable (DESIGN 2, 7.4).

use crate::clock::Clock;
use crate::http::AdminCall;
use crate::storage::Storage;
use postroad_engine::admin::Response;
use postroad_engine::{Command, ConnId, Effect, Engine, Output, Step};
use postroad_journal::{Event, Lsn};
use postroad_model::refusal::Refusal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Pieces of waiting work done between two looks at the inbox.
const TASKS_PER_TURN: usize = 64;
/// Milliseconds that clients have to say goodbye when the broker stops.
const GOODBYE_MS: u64 = 1_000;
/// Messages taken from the inbox at once.
const INBOX: usize = 256;

/// What reaches the core.
#[derive(Debug)]
pub(crate) enum Input {
    /// A connection wants its effects sent here.
    Register {
        /// Its number.
        conn: ConnId,
        /// Where they go.
        effects: mpsc::UnboundedSender<Vec<Effect>>,
    },
    /// Commands of one connection, in order.
    Commands(Vec<Command>),
    /// A connection is over.
    Unregister {
        /// Its number.
        conn: ConnId,
    },
    /// The broker is to stop in order.
    Stop,
}

/// Why the core ended.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// A write or sync failed: what is promised from here on can't be kept.
    #[error("the journal failed, so nothing more can be promised: {0}")]
    Journal(Arc<postroad_journal::Error>),
}

/// Engine, journal and connections.
pub(crate) struct Core {
    engine: Engine,
    storage: Storage,
    clock: Clock,
    inbox: mpsc::UnboundedReceiver<Input>,
    admin: mpsc::Receiver<AdminCall>,
    journal_events: mpsc::UnboundedReceiver<Event>,
    conns: BTreeMap<ConnId, Route>,
    calls: BTreeMap<u64, oneshot::Sender<Result<Response, Refusal>>>,
    next_call: u64,
    out: Output,
    /// Connections with effects ready.
    to_send: Vec<ConnId>,
    /// Effects that wait for the step beside them, oldest first.
    waiting: VecDeque<(Step, Vec<Effect>)>,
    durable: Step,
    /// The last step that the engine made.
    last: Step,
    /// The operator was told that the disk is full.
    disk_full: bool,
    /// When the broker was told to stop, in monotonic milliseconds.
    stopping: Option<u64>,
}

/// The way to a connection.
struct Route {
    sender: mpsc::UnboundedSender<Vec<Effect>>,
    /// Effects that go out with the next batch.
    ready: Vec<Effect>,
    /// The last step that an effect of this connection waits for: later effects wait behind it, so that everything
    /// of one connection is performed in the order in which it came.
    held_until: Step,
}

impl Core {
    /// A core over a recovered engine.
    pub(crate) fn new(
        engine: Engine,
        storage: Storage,
        clock: Clock,
        inbox: mpsc::UnboundedReceiver<Input>,
        admin: mpsc::Receiver<AdminCall>,
        journal_events: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        Self {
            engine,
            storage,
            clock,
            inbox,
            admin,
            journal_events,
            conns: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 1,
            out: Output::default(),
            to_send: Vec::new(),
            waiting: VecDeque::new(),
            durable: Step(0),
            last: Step(0),
            disk_full: false,
            stopping: None,
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
                return self.storage.stop().map_err(|error| CoreError::Journal(Arc::new(error)));
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
        if !self.conns.is_empty() {
            if now.mono < since + GOODBYE_MS {
                return Ok(false);
            }
            for conn in std::mem::take(&mut self.conns).into_keys() {
                self.engine.handle(now, Command::Disconnect { conn });
            }
            while self.engine.run(now, TASKS_PER_TURN) {}
            self.flush()?;
        }
        let given_up = self.storage.is_stuck() && now.mono >= since + GOODBYE_MS;
        Ok(self.storage.is_idle() || given_up)
    }

    /// Waits until something happens.
    async fn wait(&mut self, inputs: &mut Vec<Input>) -> Result<(), CoreError> {
        let waits = !self.conns.is_empty() || self.storage.is_stuck();
        let goodbye = self.stopping.filter(|_| waits).map(|since| since + GOODBYE_MS);
        let deadline = [self.engine.next_deadline(), goodbye].into_iter().flatten().min();
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
        while inputs.len() < INBOX
            && let Ok(input) = self.inbox.try_recv()
        {
            inputs.push(input);
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
                Input::Register { conn, effects } => {
                    let route = Route { sender: effects, ready: Vec::new(), held_until: Step(0) };
                    self.conns.insert(conn, route);
                }
                Input::Unregister { conn } => {
                    self.conns.remove(&conn);
                    self.engine.handle(now, Command::Disconnect { conn });
                }
                Input::Commands(commands) => {
                    for command in commands {
                        self.engine.handle(now, command);
                    }
                }
                Input::Stop => self.stopping = Some(now.mono),
            }
        }
        let more = self.engine.run(now, TASKS_PER_TURN);
        self.flush()?;
        Ok(more)
    }

    fn admin_call(&mut self, (request, answer): AdminCall) {
        let reply = self.next_call;
        self.next_call += 1;
        self.calls.insert(reply, answer);
        self.engine.handle(self.clock.now(), Command::Admin { reply, request });
    }

    /// Sends the steps of the turn to the disk, and performs the effects that wait for nothing.
    fn flush(&mut self) -> Result<(), CoreError> {
        self.engine.take_output(&mut self.out);
        if let Some(last) = self.out.steps.last() {
            self.last = last.step;
        }
        self.append()?;
        self.checkpoint_if_due()?;
        let mut held = Vec::new();
        let mut effects = std::mem::take(&mut self.out.effects);
        for (after, effect) in effects.drain(..) {
            if after > self.durable || self.is_held_up(&effect) {
                self.hold_behind(&effect);
                held.push(effect);
            } else {
                self.perform(effect);
            }
        }
        self.out.effects = effects;
        if !held.is_empty() {
            // The steps of a turn reach the disk in one batch, so one number stands for all of them.
            self.waiting.push_back((self.last, held));
        }
        self.send();
        Ok(())
    }

    /// Whether earlier effects of the same connection still wait.
    fn is_held_up(&self, effect: &Effect) -> bool {
        let route = effect.conn().and_then(|conn| self.conns.get(&conn));
        route.is_some_and(|route| route.held_until > self.durable)
    }

    fn hold_behind(&mut self, effect: &Effect) {
        let last = self.last;
        if let Some(route) = effect.conn().and_then(|conn| self.conns.get_mut(&conn)) {
            route.held_until = last;
        }
    }

    /// Appends what the engine made, as far as there is room.
    fn append(&mut self) -> Result<(), CoreError> {
        let steps = std::mem::take(&mut self.out.steps);
        self.storage.append(steps.into_iter()).map_err(|error| CoreError::Journal(Arc::new(error)))?;
        self.engine.set_disk_full(self.storage.is_full());
        Ok(())
    }

    /// Writes the state into the journal when much was appended since the last time, so that what lies before can be
    /// freed and a start has little to read.
    fn checkpoint_if_due(&mut self) -> Result<(), CoreError> {
        if !self.storage.wants_checkpoint(self.engine.message_bytes()) {
            return Ok(());
        }
        let mut pieces = Vec::new();
        self.engine.snapshot(&mut |piece| pieces.push(piece.to_vec()));
        self.storage.append_checkpoint(pieces).map_err(|error| CoreError::Journal(Arc::new(error)))
    }

    fn journal_event(&mut self, event: Event) -> Result<(), CoreError> {
        match event {
            Event::Durable(lsn) => {
                self.release(lsn);
                Ok(())
            }
            Event::Space => {
                if std::mem::take(&mut self.disk_full) {
                    tracing::info!("the disk has room again");
                }
                self.append()
            }
            Event::NoSpace => {
                tracing::error!("the disk is full: publishers are refused until there is room");
                self.disk_full = true;
                self.engine.set_disk_full(true);
                Ok(())
            }
            Event::Checkpointed(checkpoint) => {
                self.storage.checkpointed(checkpoint);
                Ok(())
            }
            Event::Failed(error) => Err(CoreError::Journal(error)),
        }
    }

    /// Performs the effects that waited for frames up to `durable`.
    fn release(&mut self, durable: Lsn) {
        self.durable = self.storage.became_durable(durable);
        while let Some((_, effects)) = self.waiting.pop_front_if(|(step, _)| *step <= self.durable) {
            for effect in effects {
                self.perform(effect);
            }
        }
        self.send();
    }

    /// Answers an operator, or puts an effect into the next batch of its connection.
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AdminReply { reply, result } => {
                if let Some(call) = self.calls.remove(&reply) {
                    // The caller may have gone away; then nobody wants the answer.
                    let _ = call.send(*result);
                }
            }
            effect => {
                let Some(conn) = effect.conn() else { return };
                if let Some(route) = self.conns.get_mut(&conn) {
                    if route.ready.is_empty() {
                        self.to_send.push(conn);
                    }
                    route.ready.push(effect);
                }
            }
        }
    }

    /// Sends each connection what is ready for it.
    fn send(&mut self) {
        for conn in self.to_send.drain(..) {
            if let Some(route) = self.conns.get_mut(&conn) {
                // A connection that is just ending has dropped its receiver; its Unregister is on the way.
                let _ = route.sender.send(std::mem::take(&mut route.ready));
            }
        }
    }
}
