//! One simulated world: a broker over a disk in memory, clients over byte pipes, and the checkers around them. Its clock
//! moves when it is told to; nothing happens that the seed did not choose.

use crate::broker::{Broker, Config, Input, Sabotage, Start};
use crate::check::order::Order;
use crate::check::{View, Violation, check_record, damage, delivery, recovery};
use crate::client::{Client, Held, Place, Saw};
use crate::engine_time::EngineTime;
use crate::ledger::Ledger;
use crate::line::Line;
use crate::messages::Messages;
use crate::random::Random;
use crate::shadow::Shadow;
use postroad_amqp::LinkId;
use postroad_door_amqp::DoorConfig;
use postroad_engine::Now;
use postroad_journal::MemDisk;
use postroad_model::settings::BrokerSettings;
use postroad_shell::{ConnIds, Use};
use std::collections::{BTreeMap, VecDeque};
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
    order: Order,
    /// The time inside the engine.
    latest: EngineTime,
    /// The payloads of all steps that may be on disk.
    written: Vec<Vec<u8>>,
    /// Steps that were there before this life.
    before: u64,
    /// Checkpoints that were made, by a hash of their bytes, with the number of steps before them.
    checkpoints: BTreeMap<u64, u64>,
    config: Config,
    door: Arc<DoorConfig>,
    conns: ConnIds,
    lives: u64,
    trace: VecDeque<String>,
    /// Lines of the trace that are kept; 0 keeps none.
    trace_lines: usize,
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
        let settings =
            BrokerSettings { name: "sim".into(), max_window: 200, job_batch: 3, ..BrokerSettings::default() };
        // Nothing that is on disk stays in memory, or a little, or all of it.
        let cache = random.pick(&[0, 0, 2_000, settings.cache]).copied().unwrap_or(0);
        let settings = BrokerSettings { cache, ..settings };
        let checkpoint_every = if random.one_in(4) { u64::MAX } else { random.range(4, 100) << 10 };
        let mut world = Self {
            random,
            now: Now { wall: 1_000_000, mono: 0 },
            disk: MemDisk::new(),
            broker: None,
            seats: (0..seats).map(|n| Seat { id: format!("client-{n}"), live: None }).collect(),
            messages: Messages::default(),
            ledger: Ledger::default(),
            shadow: Shadow::default(),
            tally: Tally::default(),
            order: Order::default(),
            latest: EngineTime::default(),
            written: Vec::new(),
            before: 0,
            checkpoints: BTreeMap::new(),
            config: Config { settings, checkpoint_every, sabotage },
            door: Arc::new(DoorConfig::default()),
            conns: ConnIds::default(),
            lives: 0,
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
    fn mix(&mut self, number: u64) {
        self.digest = (self.digest ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
    }

    /// Steps that are durable, over all lives.
    fn durable(&self) -> u64 {
        self.before + self.broker.as_ref().map_or(0, Broker::durable)
    }

    // ---- the broker's life ----

    /// Starts the broker on what is on the disk, and checks what came back.
    fn start(&mut self) -> Result<(), Violation> {
        self.conns = ConnIds::default();
        for _ in 0..100 {
            self.lives += 1;
            let seed = self.random.bits();
            match Broker::start(&self.disk, &self.config, seed) {
                Ok((broker, start)) => return self.resume(broker, &start),
                // A crash that strikes while the journal is being opened: what was durable still is.
                Err(error) if error.is_of_the_disk() => self.disk = self.next_disk(),
                Err(error) => {
                    return Err(Violation::new("recovery", format!("the broker does not start: {error}")));
                }
            }
        }
        Err(Violation::new("recovery", "the broker never starts"))
    }

    fn resume(&mut self, broker: Broker, start: &Start) -> Result<(), Violation> {
        let steps = recovery::check_start(&self.written, self.before, &self.checkpoints, &start.frames)?;
        if steps < self.written.len() || self.lives == 1 {
            self.written.truncate(steps);
            self.checkpoints.retain(|_, before| *before <= steps as u64);
            let mut ledger = Ledger::default();
            for payload in &self.written {
                let records = postroad_record::decode_step(payload)
                    .map_err(|error| Violation::new("records", error.to_string()))?;
                ledger
                    .apply_step(&records, &self.messages)
                    .map_err(|text| Violation::new("records", text))?;
            }
            self.ledger = ledger;
        }
        self.order.forget();
        self.before = self.written.len() as u64;
        self.tally.checkpoints += u64::from(start.frames.iter().any(|(used, _)| *used == Use::Checkpoint));
        self.note(|| format!("the broker starts ({:?}, {steps} steps)", start.stop));
        self.broker = Some(broker);
        let now = self.now;
        // Before its first own step, it is exactly what was read back.
        let (Some(mut broker), ledger) = (self.broker.take(), &self.ledger) else { return Ok(()) };
        if self.lives > 1 {
            recovery::check_state(&mut broker, ledger, now)?;
        }
        self.broker = Some(broker);
        self.after_turn()
    }

    fn next_disk(&mut self) -> MemDisk {
        if self.random.one_in(4) { self.disk.kill() } else { self.disk.crash(self.random.bits()) }
    }

    /// The process dies, with loss of power or without; and is started again.
    ///
    /// # Errors
    /// A broken promise.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.tally.crashes += 1;
        self.compare()?;
        self.before = self.durable();
        let durable = self.before;
        self.note(|| format!("crash, {durable} steps are durable"));
        self.broker = None;
        self.disk = self.next_disk();
        self.lose_all();
        self.start()
    }

    /// The broker stops in order and is started again.
    ///
    /// # Errors
    /// A broken promise.
    pub fn stop(&mut self) -> Result<(), Violation> {
        self.tally.stops += 1;
        self.note(|| "clean stop".into());
        // What consumers hold is given back before the stop, or nobody would know that it was delivered.
        for seat in 0..self.seats.len() {
            self.lose(seat);
        }
        let mut more = true;
        while more {
            more = self.turn(usize::MAX, 1_000)?;
            self.disk_idle()?;
        }
        self.compare()?;
        // With steps that a full disk does not take, a mark of a clean stop would be a lie.
        if self.broker.as_ref().is_some_and(|broker| !broker.is_idle()) {
            return self.crash();
        }
        let stopped =
            self.broker.as_mut().map_or(Ok(true), |broker| broker.disk_idle().and_then(|()| broker.stop()));
        self.after_turn()?;
        self.before = self.durable();
        self.broker = None;
        if stopped.is_err() {
            self.disk = self.next_disk();
        }
        self.start()
    }

    /// Flips a bit in a copy of the disk, which must be noticed or harmless.
    ///
    /// # Errors
    /// A broken promise.
    pub fn flip(&mut self) -> Result<(), Violation> {
        let durable = self.durable();
        let quiet = self.broker.as_mut().is_some_and(|broker| broker.disk_idle().is_ok());
        if !quiet {
            return self.crash();
        }
        self.after_turn()?;
        let durable = self.durable().max(durable);
        self.tally.damages += u64::from(damage::check(
            &self.disk,
            &self.config,
            &self.written,
            durable,
            &self.checkpoints,
            self.now,
            &mut self.random,
        )?);
        Ok(())
    }

    /// Replays everything beside the running broker, and compares.
    ///
    /// # Errors
    /// A broken promise.
    pub fn compare(&mut self) -> Result<(), Violation> {
        let now = Now { wall: self.latest.wall, mono: self.now.mono };
        let Some(broker) = &mut self.broker else { return Ok(()) };
        recovery::check_replay(broker, &self.config.settings, &self.written, now)
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
    fn after_turn(&mut self) -> Result<(), Violation> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        if let Some(checkpoint) = broker.checkpoint.take() {
            self.checkpoints.insert(checkpoint.hash, self.before + checkpoint.steps);
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

    fn step(&mut self, payload: Vec<u8>) -> Result<(), Violation> {
        let records = postroad_record::decode_step(&payload)
            .map_err(|error| Violation::new("records", error.to_string()))?;
        self.tally.steps += 1;
        self.mix(
            payload.iter().fold(payload.len() as u64, |sum, &byte| sum.wrapping_mul(31) ^ u64::from(byte)),
        );
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
            check_record(&view, &mut self.order, record)?;
            self.ledger.apply(record, &self.messages).map_err(|text| Violation::new("records", text))?;
        }
        Ok(())
    }

    // ---- lines ----

    /// Connects a client.
    pub fn connect(&mut self, seat: usize) {
        let first_id = if self.random.one_in(2) { 0 } else { u32::MAX - 20 };
        let Some(place) = self.seats.get_mut(seat).filter(|seat| seat.live.is_none()) else { return };
        let conn = self.conns.take();
        if let Some(broker) = &mut self.broker {
            broker.push(Input::Register(conn));
        }
        let client = Client::new(&place.id, self.now.mono, first_id);
        place.live = Some((client, Line::new(conn, &self.door, self.now.mono)));
        self.note(|| format!("client-{seat} connects as {}", conn.0));
    }

    /// Moves bytes of one connection in both directions; says whether anything moved.
    ///
    /// # Errors
    /// A broken promise.
    pub fn carry(&mut self, seat: usize) -> Result<bool, Violation> {
        let mut commands = Vec::new();
        let mono = self.now.mono;
        let Some((client, line)) = self.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else {
            return Ok(false);
        };
        let mut moved = line.client_side(mono, &mut self.random, &mut client.amqp);
        moved |= line.broker_side(mono, &mut self.random, &mut commands);
        let over = line.is_over();
        moved |= !commands.is_empty();
        if let Some(broker) = self.broker.as_mut().filter(|_| !commands.is_empty()) {
            broker.push(Input::Commands(commands));
        }
        let gone = self.listen(seat)?;
        if over || gone {
            self.lose(seat);
        }
        Ok(moved)
    }

    /// A connection is gone: the broker learns it, the client has what it has.
    pub fn lose(&mut self, seat: usize) {
        let Some((client, mut line)) = self.seats.get_mut(seat).and_then(|s| s.live.take()) else { return };
        self.note(|| format!("client-{seat} is cut off"));
        if let Some(broker) = &mut self.broker {
            let mut commands = Vec::new();
            line.lost(&mut commands);
            broker.push(Input::Commands(commands));
            broker.push(Input::Unregister(line.conn));
        }
        self.conns.give_back(line.conn);
        for (place, held, orderly) in client.end() {
            self.returned(&place, &held, orderly);
        }
    }

    fn lose_all(&mut self) {
        for seat in 0..self.seats.len() {
            let Some((client, _)) = self.seats.get_mut(seat).and_then(|s| s.live.take()) else { continue };
            for (place, held, orderly) in client.end() {
                self.returned(&place, &held, orderly);
            }
        }
    }

    /// Deliveries go back without an outcome. After an orderly detach they are released, if the broker got that far.
    pub fn returned(&mut self, place: &Place, held: &[Held], orderly: bool) {
        for held in held {
            if let Some(item) = delivery::item(place, held)
                && let Some(seen) = self.shadow.seen.get_mut(place).and_then(|seen| seen.get_mut(&item))
            {
                seen.returned = true;
                seen.excused |= orderly;
            }
        }
    }

    // ---- what clients see ----

    /// Takes in what a client learned; says whether its connection is over.
    fn listen(&mut self, seat: usize) -> Result<bool, Violation> {
        let mut over = false;
        while let Some(saw) =
            self.seats.get_mut(seat).and_then(|s| s.live.as_mut()).and_then(|(c, _)| c.poll())
        {
            match saw {
                Saw::Confirmed { number, store } => self.confirmed(number, &store)?,
                Saw::Refused { number } => {
                    self.mix(number);
                    self.note(|| format!("message {number} is refused"));
                }
                Saw::Delivered { link, delivery, payload, settled } => {
                    self.delivered(seat, link, delivery, &payload, settled)?;
                }
                Saw::AckConfirmed { place, held, accepted } => self.ack_confirmed(&place, &held, accepted)?,
                Saw::LinkGone { place, held, orderly } => {
                    if let Some(place) = place {
                        self.returned(&place, &held, orderly);
                    }
                }
                Saw::Over => over = true,
            }
        }
        Ok(over)
    }

    fn confirmed(&mut self, number: u64, store: &str) -> Result<(), Violation> {
        self.mix(number.wrapping_mul(3));
        self.note(|| format!("message {number} is confirmed by {store}"));
        let durable = self.durable();
        let counted = delivery::check_confirmed(&self.ledger, &self.messages, number, store, durable)?;
        self.tally.confirmed += u64::from(counted);
        Ok(())
    }

    fn delivered(
        &mut self,
        seat: usize,
        link: LinkId,
        number: u64,
        payload: &[u8],
        settled: bool,
    ) -> Result<(), Violation> {
        let received = self.messages.read(payload).map_err(|text| Violation::new("content", text))?;
        let resent = self.messages.get(received.number).is_some_and(|sent| sent.resent);
        let durable = self.durable();
        self.mix(received.number << 8 | u64::from(received.delivery_count));
        let found = self.seats.get_mut(seat).and_then(|s| s.live.as_mut());
        let leaving = found.as_ref().is_some_and(|(client, _)| client.is_leaving(link));
        let Some(receiver) = found.and_then(|(client, _)| client.receiver(link)) else { return Ok(()) };
        let place = receiver.wanted.place.clone();
        let held = Held { number: received.number, event: received.event };
        if !settled {
            receiver.held.insert(number, held);
        }
        let fresh = delivery::item(&place, &held)
            .is_some_and(|item| !self.shadow.seen.get(&place).is_some_and(|seen| seen.contains_key(&item)));
        if let (true, Some(event)) = (fresh, received.event) {
            if event <= receiver.highest {
                let text = format!("event {event} of {place:?} came behind event {}", receiver.highest);
                return Err(Violation::new("order of one consumer", text));
            }
            receiver.highest = event;
        }
        self.note(|| {
            format!(
                "client-{seat} gets message {} of {place:?} (event {:?}, count {})",
                received.number, received.event, received.delivery_count
            )
        });
        delivery::check_delivered(&mut self.shadow, &self.ledger, &place, &received, resent, durable)?;
        if leaving {
            self.returned(&place, &[held], true);
        }
        Ok(())
    }

    fn ack_confirmed(&mut self, place: &Place, held: &Held, accepted: bool) -> Result<(), Violation> {
        let durable = self.durable();
        let item = delivery::item(place, held).filter(|_| accepted);
        let resent = self.messages.get(held.number).is_some_and(|sent| sent.resent);
        let Some(item) = item.filter(|_| !resent) else { return Ok(()) };
        self.note(|| format!("the acknowledgement of message {} of {place:?} is confirmed", held.number));
        let on_disk = self.messages.get(held.number).is_some_and(|sent| sent.durable);
        if on_disk {
            delivery::check_ack_confirmed(&self.ledger, place, held, durable)?;
        }
        self.shadow.confirmed.entry(place.clone()).or_default().insert(item);
        Ok(())
    }
}

/// A record in a few words.
fn short(record: &postroad_record::Record) -> String {
    let text = match record {
        postroad_record::Record::Body { id, bytes, .. } => format!("Body {} ({} bytes)", id.0, bytes.len()),
        other => format!("{other:?}"),
    };
    text.chars().take(220).collect()
}
