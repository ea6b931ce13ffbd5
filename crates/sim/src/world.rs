//! One simulated world: a broker over a disk in memory, clients over byte pipes, and the checkers around them. Its clock
//! moves when it is told to; nothing happens that the seed did not choose.

use crate::broker::{Broker, Config, Sabotage};
use crate::check::identity::Identities;
use crate::check::order::Order;
use crate::check::recovery::Checkpoints;
use crate::check::{View, Violation, check_record, recovery};
use crate::client::Client;
use crate::engine_time::EngineTime;
use crate::ledger::Ledger;
use crate::life::Folder;
use crate::line::Line;
use crate::messages::Messages;
use crate::random::Random;
use crate::shadow::Shadow;
use postroad_door_amqp::DoorConfig;
use postroad_engine::Now;
use postroad_journal::{MemDisk, Stop};
use postroad_model::settings::BrokerSettings;
use postroad_shell::ConnIds;
use std::collections::VecDeque;
use std::sync::Arc;

/// A client's place in the world: it may be connected or not.
#[derive(Debug)]
pub struct Seat {
    /// Its client id.
    pub id: String,
    /// Its connection.
    pub live: Option<(Client, Line)>,
}

/// What happened in a run, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations of clients and operators.
    pub operations: u64,
    /// Crashes with loss of power, or of the process alone.
    pub crashes: u64,
    /// Clean stops.
    pub stops: u64,
    /// Flipped bits that were reported.
    pub damages: u64,
    /// Durable messages confirmed.
    pub confirmed: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries that were repeated.
    pub repeated: u64,
    /// Steps written.
    pub steps: u64,
    /// Starts at a checkpoint.
    pub checkpoints: u64,
    /// Starts on another folder: a copy, or the one that a copy was used in place of.
    pub restores: u64,
}

/// Broker, disk, clients, checkers.
#[derive(Debug)]
pub struct World {
    /// All chance.
    pub random: Random,
    /// The clocks.
    pub now: Now,
    /// The data folder.
    pub disk: MemDisk,
    /// The broker, while it runs.
    pub broker: Option<Broker>,
    /// The clients.
    pub seats: Vec<Seat>,
    /// What was sent.
    pub messages: Messages,
    /// What the records say.
    pub ledger: Ledger,
    /// What the clients know.
    pub shadow: Shadow,
    /// Numbers.
    pub tally: Tally,
    pub(crate) order: Order,
    identities: Identities,
    /// Folders that are not in use: backups, and what a backup was put in place of.
    pub(crate) shelf: Vec<Folder>,
    /// The time inside the engine.
    pub(crate) latest: EngineTime,
    /// The payloads of all steps that may be on disk.
    pub(crate) written: Vec<Vec<u8>>,
    /// Steps that were there before this life.
    pub(crate) before: u64,
    /// Checkpoints that were made, by a hash of their bytes, with the number of steps before them.
    pub(crate) checkpoints: Checkpoints,
    pub(crate) config: Config,
    pub(crate) door: Arc<DoorConfig>,
    pub(crate) conns: ConnIds,
    pub(crate) lives: u64,
    /// How the life before ended, as the last start found it.
    pub(crate) last_stop: Option<Stop>,
    pub(crate) trace: VecDeque<String>,
    /// Lines of the trace that are kept; 0 keeps none.
    pub(crate) trace_lines: usize,
    /// A digest of everything that was seen, to compare two runs.
    pub digest: u64,
}

impl World {
    /// A world with an empty disk and a broker that has just started.
    ///
    /// # Errors
    /// If it does not start.
    pub fn new(seed: u64, seats: usize, sabotage: Sabotage, trace_lines: usize) -> Result<Self, Violation> {
        let mut random = Random::new(seed);
        let memory = if random.one_in(4) { random.range(2_000, 60_000) } else { 1 << 30 };
        let settings = BrokerSettings {
            name: "sim".into(),
            max_window: 200,
            job_batch: 3,
            memory,
            ..BrokerSettings::default()
        };
        // Nothing that is on disk stays in memory, or a little, or all of it.
        let cache = random.pick(&[0, 0, 2_000, settings.cache]).copied().unwrap_or(0);
        let settings = BrokerSettings { cache, ..settings };
        let checkpoint_every = if random.one_in(4) { u64::MAX } else { random.range(30, 300) << 10 };
        let disk = MemDisk::new();
        if seed.is_multiple_of(2) {
            disk.write_whole_blocks();
        }
        let mut world = Self {
            random,
            now: Now { wall: 1_000_000, mono: 0 },
            disk,
            broker: None,
            seats: (0..seats).map(|n| Seat { id: format!("client-{n}"), live: None }).collect(),
            messages: Messages::default(),
            ledger: Ledger::default(),
            shadow: Shadow::default(),
            tally: Tally::default(),
            order: Order::default(),
            identities: Identities::default(),
            shelf: Vec::new(),
            latest: EngineTime::default(),
            written: Vec::new(),
            before: 0,
            checkpoints: Checkpoints::new(),
            config: Config { settings, checkpoint_every, sabotage },
            door: Arc::new(DoorConfig::default()),
            conns: ConnIds::default(),
            lives: 0,
            last_stop: None,
            trace: VecDeque::new(),
            trace_lines,
            digest: seed,
        };
        world.start()?;
        Ok(world)
    }

    /// The last lines of the trace.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.trace.iter().cloned().collect()
    }

    /// Notes what happens, if a trace is kept.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.trace_lines == 0 {
            return;
        }
        if self.trace.len() == self.trace_lines {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>8} ms  {}", self.now.mono, line()));
    }

    /// Mixes a number into the digest of the run.
    pub(crate) fn mix(&mut self, number: u64) {
        self.digest = (self.digest ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
    }

    /// Steps that are durable, over all lives.
    pub(crate) fn durable(&self) -> u64 {
        self.before + self.broker.as_ref().map_or(0, Broker::durable)
    }

    /// One turn of the broker.
    ///
    /// # Errors
    /// A broken promise.
    pub fn turn(&mut self, inputs: usize, tasks: usize) -> Result<bool, Violation> {
        let now = self.now;
        self.latest.tell(now);
        let Some(broker) = &mut self.broker else { return Ok(false) };
        match broker.turn(now, inputs, tasks) {
            Ok(more) => self.after_turn().map(|()| more),
            Err(_) => self.crash().map(|()| true),
        }
    }

    /// One piece of the disk's work.
    ///
    /// # Errors
    /// A broken promise.
    pub fn disk_work(&mut self) -> Result<bool, Violation> {
        let Some(broker) = &mut self.broker else { return Ok(false) };
        match broker.disk_work(&mut self.random) {
            Ok(worked) => self.after_turn().map(|()| worked),
            Err(_) => self.crash().map(|()| true),
        }
    }

    /// Everything that the disk has to do.
    ///
    /// # Errors
    /// A broken promise.
    pub fn disk_idle(&mut self) -> Result<(), Violation> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        match broker.disk_idle() {
            Ok(()) => self.after_turn(),
            Err(_) => self.crash(),
        }
    }

    /// Checks the steps that were made, and hands out the effects that may be performed.
    pub(crate) fn after_turn(&mut self) -> Result<(), Violation> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        if let Some(text) = broker.difference() {
            return Err(Violation::new("twin run", text));
        }
        if let Some(checkpoint) = broker.checkpoint.take() {
            self.checkpoints.insert((checkpoint.hash, self.before + checkpoint.steps));
        }
        let fresh = std::mem::take(&mut broker.fresh);
        let ready = std::mem::take(&mut broker.ready);
        let answers = std::mem::take(&mut broker.answers);
        for payload in fresh {
            self.step(payload)?;
        }
        for answer in answers {
            self.mix(u64::from(answer.is_ok()));
            if let Err(refusal) = answer {
                self.note(|| format!("operator refused: {refusal}"));
            }
        }
        for (conn, effects) in ready {
            self.mix(conn.0.rotate_left(20) ^ effects.len() as u64);
            let line =
                self.seats.iter_mut().filter_map(|seat| seat.live.as_mut()).find(|(_, l)| l.conn == conn);
            if let Some((_, line)) = line {
                line.deliver(effects);
            }
        }
        Ok(())
    }

    pub(crate) fn step(&mut self, payload: Vec<u8>) -> Result<(), Violation> {
        let records = postroad_record::decode_step(&payload)
            .map_err(|error| Violation::new("records", error.to_string()))?;
        self.tally.steps += 1;
        self.mix(recovery::hash(&payload));
        self.written.push(payload);
        self.ledger.steps += 1;
        let number = self.ledger.steps;
        for record in &records {
            self.note(|| format!("step {number}: {}", short(record)));
            let view = View {
                ledger: &self.ledger,
                messages: &self.messages,
                shadow: &self.shadow,
                wall: self.latest.wall,
                step: &records,
            };
            check_record(&view, &mut self.order, &mut self.identities, record)?;
            self.ledger.apply(record, &self.messages).map_err(|text| Violation::new("records", text))?;
        }
        Ok(())
    }
}

/// A record in a few words.
fn short(record: &postroad_record::Record) -> String {
    let text = match record {
        postroad_record::Record::Body { id, bytes, .. } => format!("Body {} ({} bytes)", id.0, bytes.len()),
        other => format!("{other:?}"),
    };
    text.chars().take(900).collect()
}
