//! `kill`: rounds of load, each ended by killing the broker.

use std::path::PathBuf;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::audit;
use crate::backlog;
use crate::books::Violation;
use crate::broker::Broker;
use crate::clients::{self, Identity, Shared};
use crate::consumer::Consumer;
use crate::control::Phase;
use crate::follower::Follower;
use crate::mark::{PRODUCERS, Place};
use crate::neighbour;
use crate::producer::Producer;
use crate::random::Random;

/// Consumers of the queue.
const CONSUMERS: usize = 3;

/// Channels whose named object somebody follows.
const FOLLOWED: [Place; 2] = [Place::Stream, Place::Live];

/// All clients.
const CLIENTS: usize = PRODUCERS + CONSUMERS + FOLLOWED.len();

/// How long clients may take to attach to a broker that has just started, or to notice that it is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing may happen at all while something is owed.
const STANDSTILL: Duration = Duration::from_secs(30);

/// In what time a broker under load is sure to write something.
const WRITES: Duration = Duration::from_millis(200);

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The broker's program.
    pub(crate) binary: PathBuf,
    /// A folder for configuration, data and log.
    pub(crate) folder: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    /// Messages of a backlog that nobody reads before the end.
    pub(crate) backlog: u64,
}

/// What was done, when no promise was broken.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Messages that the broker has confirmed.
    pub(crate) messages: u64,
    /// Deliveries to the consumers of the queue and of the named objects.
    pub(crate) deliveries: u64,
    /// Those of messages that had been delivered before.
    pub(crate) redeliveries: u64,
    /// From start to the first answer, in ascending order.
    pub(crate) recoveries: Vec<Duration>,
}

/// Runs the rounds, then checks what is left.
///
/// # Errors
/// The first [`Violation`].
pub(crate) fn run(plan: &Plan) -> Result<Summary, Violation> {
    let prepared = Broker::prepare(&plan.binary, &plan.folder);
    let broker =
        prepared.map_err(|e| Violation::new(format!("{} cannot be prepared: {e}", plan.folder.display())))?;
    let shared = Shared::new();
    let random = Random::new(plan.seed, 0);
    let mut run = Run { broker, shared: &shared, random, recoveries: Vec::new() };
    let kept = std::thread::scope(|scope| {
        neighbour::start(scope, &shared.control, &plan.folder);
        let kept = run.clients_at_work(scope, plan);
        // Whatever happened, nobody may stay behind.
        shared.control.set_phase(Phase::Stop);
        kept
    });
    kept?;
    shared.control.check()?;
    run.audit(plan.backlog)?;
    Ok(run.summary())
}

struct Run<'env> {
    broker: Broker,
    shared: &'env Shared,
    random: Random,
    recoveries: Vec<Duration>,
}

impl<'env> Run<'env> {
    /// Everything that needs the clients.
    fn clients_at_work<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        plan: &Plan,
    ) -> Result<(), Violation> {
        self.recover()?;
        backlog::fill(&self.broker, plan.backlog)?;
        let (producers, others) = self.start(scope, plan.seed);
        for round in 1..=plan.rounds {
            self.round().map_err(|violation| Violation::new(format!("round {round}: {violation}")))?;
        }
        self.shared.control.set_phase(Phase::Finish);
        self.settle_down("the producers", |_| producers.iter().all(ScopedJoinHandle::is_finished))?;
        self.settle_down("the consumers", |shared| {
            let books = shared.books();
            let published = &books.published;
            books.work.is_complete(published)
                && books.stream.is_complete(published)
                && books.live.is_complete(published)
        })?;
        self.shared.control.set_phase(Phase::Stop);
        self.settle_down("leaving", |_| others.iter().all(ScopedJoinHandle::is_finished))
    }

    /// Starts the clients: producers, and the others.
    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        seed: u64,
    ) -> (Vec<ScopedJoinHandle<'scope, ()>>, Vec<ScopedJoinHandle<'scope, ()>>) {
        let shared = self.shared;
        let identity = |kind: &str, index: usize| {
            let options = self.broker.options(&format!("{kind}-{index}"));
            Identity { index, options }
        };
        let producers = (0..PRODUCERS).map(|index| {
            let producer = Producer::new(identity("producer", index), index, seed);
            clients::start(scope, shared, producer)
        });
        let consumers = (PRODUCERS..PRODUCERS + CONSUMERS).map(|index| {
            let consumer = Consumer::new(identity("consumer", index), seed);
            clients::start(scope, shared, consumer)
        });
        let followers = FOLLOWED.into_iter().zip(PRODUCERS + CONSUMERS..).map(|(place, index)| {
            let follower = Follower::new(identity("follower", index), place, seed);
            clients::start(scope, shared, follower)
        });
        (producers.collect(), consumers.chain(followers).collect())
    }

    /// Load, a kill at a moment that nobody chose, and recovery; now and then a kill in the middle of that.
    fn round(&mut self) -> Result<(), Violation> {
        let control = &self.shared.control;
        if !control.all_attached(CLIENTS, PATIENCE) {
            return Err(Violation::new("not all clients could attach".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(self.random.between(200, 800)));
        control.check()?;
        self.crash()?;
        if self.random.happens(200) {
            self.broker.spawn()?;
            std::thread::sleep(Duration::from_millis(self.random.between(1, 60)));
            self.broker.kill()?;
        }
        self.recover()
    }

    fn crash(&mut self) -> Result<(), Violation> {
        let control = &self.shared.control;
        control.set_up(false);
        // Mostly while it writes, where most can go wrong.
        if self.random.happens(700) {
            self.broker.wait_for_disk(WRITES);
        }
        self.broker.kill()?;
        // What the broker had sent before is still read and judged by the rules of its life that is over.
        if !control.nobody_inside(PATIENCE) {
            return Err(Violation::new("a client still waits for a broker that is gone".to_owned()));
        }
        control.check()?;
        self.shared.books().crashed();
        Ok(())
    }

    fn recover(&mut self) -> Result<(), Violation> {
        self.recoveries.push(self.broker.start()?);
        self.shared.control.set_up(true);
        Ok(())
    }

    /// Waits until `done`, as long as anything moves.
    fn settle_down(&self, what: &str, done: impl Fn(&Shared) -> bool) -> Result<(), Violation> {
        let (mut seen, mut since) = (0, Instant::now());
        while !done(self.shared) {
            self.shared.control.check()?;
            let progress = self.shared.books().progress();
            if progress != seen {
                (seen, since) = (progress, Instant::now());
            }
            if since.elapsed() > STANDSTILL {
                return Err(self.standstill(what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.shared.control.check()
    }

    /// What is owed although nothing moves.
    fn standstill(&self, what: &str) -> Violation {
        let books = self.shared.books();
        let published = &books.published;
        let missing: Vec<String> = books.work.missing(published).iter().map(ToString::to_string).collect();
        let object = |name: &str, came, sent| format!("{name}: sent {sent:?}, came {came:?}");
        let stream = object("stream", books.stream.counts(), published.row(Place::Stream));
        let live = object("live", books.live.counts(), published.row(Place::Live));
        Violation::new(format!(
            "nothing moves, but {what} are not done: {} messages confirmed; nobody accepted from work: [{}]; {stream}; \
             {live}",
            published.confirmed,
            missing.join(", ")
        ))
    }

    /// What is left is right, and stays right after one more crash.
    fn audit(&mut self, backlog: u64) -> Result<(), Violation> {
        audit::check_all(&self.broker, self.shared, backlog)?;
        self.crash()?;
        self.recover()?;
        audit::check_empty(&self.broker)
    }

    fn summary(self) -> Summary {
        let books = self.shared.books();
        let mut recoveries = self.recoveries;
        recoveries.sort();
        Summary {
            messages: books.published.confirmed,
            deliveries: books.work.deliveries() + books.stream.deliveries() + books.live.deliveries(),
            redeliveries: books.work.redeliveries() + books.stream.redeliveries() + books.live.redeliveries(),
            recoveries,
        }
    }
}
