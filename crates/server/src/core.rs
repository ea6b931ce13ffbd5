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
    conns: BTreeMap<ConnId, mpsc::UnboundedSender<Vec<Effect>>>,
    calls: BTreeMap<u64, oneshot::Sender<Result<Response, Refusal>>>,
    next_call: u64,
    out: Output,
    /// Effects that wait for the step beside them, oldest first.
    waiting: VecDeque<(Step, Vec<Effect>)>,
    durable: Step,
    /// The last step that the engine made.
    last: Step,
    stopping: bool,
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
            waiting: VecDeque::new(),
            durable: Step(0),
            last: Step(0),
            stopping: false,
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
            if self.stopping && self.storage.is_idle() {
                return self.storage.stop().map_err(|error| CoreError::Journal(Arc::new(error)));
            }
            if more {
                // Others on this thread have their turn before the next piece.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits until something happens.
    async fn wait(&mut self, inputs: &mut Vec<Input>) -> Result<(), CoreError> {
        let deadline = self.engine.next_deadline().map(|mono| self.clock.instant(mono));
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
                    self.conns.insert(conn, effects);
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
                Input::Stop => self.stopping = true,
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
        let mut ready: BTreeMap<ConnId, Vec<Effect>> = BTreeMap::new();
        let mut held = Vec::new();
        for (after, effect) in std::mem::take(&mut self.out.effects) {
            if after <= self.durable {
                self.sort_in(effect, &mut ready);
            } else {
                held.push(effect);
            }
        }
        if !held.is_empty() {
            // The steps of a turn reach the disk in one batch, so one number stands for all of them.
            self.waiting.push_back((self.last, held));
        }
        self.send(ready);
        Ok(())
    }

    /// Appends what the engine made, as far as there is room.
    fn append(&mut self) -> Result<(), CoreError> {
        let steps = std::mem::take(&mut self.out.steps);
        self.storage.append(steps.into_iter()).map_err(|error| CoreError::Journal(Arc::new(error)))?;
        self.engine.set_disk_full(self.storage.is_full());
        Ok(())
    }

    fn journal_event(&mut self, event: Event) -> Result<(), CoreError> {
        match event {
            Event::Durable(lsn) => {
                self.release(lsn);
                Ok(())
            }
            Event::Space => {
                tracing::info!("the disk has room again");
                self.append()
            }
            Event::NoSpace => {
                tracing::error!("the disk is full: publishers are refused until there is room");
                self.engine.set_disk_full(true);
                Ok(())
            }
            Event::Checkpointed(_) => Ok(()),
            Event::Failed(error) => Err(CoreError::Journal(error)),
        }
    }

    /// Performs the effects that waited for frames up to `durable`.
    fn release(&mut self, durable: Lsn) {
        self.durable = self.storage.became_durable(durable);
        let mut ready: BTreeMap<ConnId, Vec<Effect>> = BTreeMap::new();
        while let Some((_, effects)) = self.waiting.pop_front_if(|(step, _)| *step <= self.durable) {
            for effect in effects {
                self.sort_in(effect, &mut ready);
            }
        }
        self.send(ready);
    }

    fn sort_in(&mut self, effect: Effect, ready: &mut BTreeMap<ConnId, Vec<Effect>>) {
        match effect {
            Effect::AdminReply { reply, result } => {
                if let Some(call) = self.calls.remove(&reply) {
                    // The caller may have gone away; then nobody wants the answer.
                    let _ = call.send(*result);
                }
            }
            effect => {
                if let Some(conn) = effect.conn() {
                    ready.entry(conn).or_default().push(effect);
                }
            }
        }
    }

    fn send(&mut self, ready: BTreeMap<ConnId, Vec<Effect>>) {
        for (conn, effects) in ready {
            if let Some(sender) = self.conns.get(&conn) {
                // A connection that is just ending has dropped its receiver; its Unregister is on the way.
                let _ = sender.send(effects);
            }
        }
    }
}
