//! `bench`: a broker under load.

mod consumer;
mod idle;
mod payload;
mod plan;
mod process;
mod producer;
mod report;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use postroad_client::Client;
use tokio::task::{JoinSet, LocalSet};

use super::connect::ConnectArgs;
use super::failure::{Failure, failed, usage};
use super::{parse, runtime};
use consumer::Consumer;
use plan::{Plan, Shape};
use producer::Producer;
use tally::Tally;

/// How long a run with a number of messages may take at most.
const UNTIL_DONE: Duration = Duration::from_secs(6 * 3600);

/// The load, and what to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// The queue or topic.
    #[arg(long, default_value = "bench")]
    address: String,
    /// The address is a topic: every consumer gets every message.
    #[arg(long)]
    topic: bool,
    /// Spread producers and consumers over this many addresses: NAME-0, NAME-1 ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    addresses: u32,
    /// Producers, each with its own connection.
    #[arg(long, value_name = "N", default_value_t = 1)]
    producers: u32,
    /// Consumers, each with its own connection.
    #[arg(long, value_name = "N", default_value_t = 1)]
    consumers: u32,
    /// Bytes of each body, at least 16.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that survive a restart of the broker; this is the default.
    #[arg(long, overrides_with = "non_persistent")]
    persistent: bool,
    /// Messages that may be lost when the broker stops.
    #[arg(long, overrides_with = "persistent")]
    non_persistent: bool,
    /// Send and receive settled: no confirms, no acknowledgements.
    #[arg(long)]
    presettled: bool,
    /// How many messages of each producer may wait for their confirm.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    window: u32,
    /// How many messages all producers together may be ahead of the consumers; without it a backlog may grow for as long
    /// as the run takes, which with --presettled nothing else bounds.
    #[arg(long, value_name = "N", conflicts_with = "topic", value_parser = clap::value_parser!(u64).range(1..))]
    ahead: Option<u64>,
    /// How many messages may be sent ahead to each consumer.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    credit: u32,
    /// Let the broker send so many messages more to each consumer than it may: for brokers that count wrong.
    #[arg(long, value_name = "N", default_value_t = 0)]
    excess_credit: u32,
    /// Messages per second of all producers together, each at its time; without it as many as the window allows.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How long to measure.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    duration: Duration,
    /// How long to run before measuring.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::duration)]
    warmup: Duration,
    /// Send so many messages, all producers together, and measure until all are confirmed and received.
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warmup"],
          value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Connections beside all others that do nothing but stay open.
    #[arg(long, value_name = "N", default_value_t = 0)]
    idle: u32,
    /// Threads of the load program.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// The broker's process id, to measure its CPU time, memory, and bytes written to disk.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl BenchArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let shape = self.shape()?;
        let plan = Arc::new(Plan::new(shape, self.threads));
        let args = Arc::new(self);
        let watch = process::Watch::new(args.pid)?;
        let workers: Vec<_> = (0..args.threads)
            .map(|worker| {
                let (args, plan) = (Arc::clone(&args), Arc::clone(&plan));
                std::thread::spawn(move || args.work(worker, &plan))
            })
            .collect();
        let usage = runtime()?.block_on(watch.over(&plan));
        let mut results = Vec::new();
        for worker in workers {
            let done = worker.join();
            results
                .push(done.map_err(|_| failed("a thread of the load program failed", "report it")).flatten());
        }
        report::report(&args, &merge(results)?, &usage)
    }

    fn shape(&self) -> Result<Shape, Failure> {
        if self.producers == 0 && self.consumers == 0 && self.idle == 0 {
            return Err(usage("there is nothing to run", "give --producers or --consumers a number above 0"));
        }
        if self.producers == 0 && self.messages.is_some() {
            return Err(usage("nobody would send the messages", "give --producers a number above 0"));
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(usage("a rate of nothing sends nothing", "give --rate a number above 0"));
        }
        if self.size < payload::STAMP_LEN {
            let what = format!("a body of {} bytes has no room for its time stamp", self.size);
            return Err(usage(what, "give --size at least 16"));
        }
        Ok(Shape {
            producers: self.producers,
            consumers: self.consumers,
            addresses: self.addresses,
            topic: self.topic,
            warmup: self.warmup(),
            duration: self.duration(),
        })
    }

    fn warmup(&self) -> Duration {
        if self.messages.is_some() { Duration::ZERO } else { self.warmup }
    }

    fn duration(&self) -> Duration {
        if self.messages.is_some() { UNTIL_DONE } else { self.duration }
    }

    /// How many of the messages one producer sends.
    fn share(&self, producer: u32) -> u64 {
        let Some(messages) = self.messages else { return u64::MAX };
        let producers = u64::from(self.producers);
        messages / producers + u64::from(u64::from(producer) < messages % producers)
    }

    /// One thread: its share of the producers and consumers.
    fn work(self: &Arc<Self>, worker: u32, plan: &Arc<Plan>) -> Result<Tally, Failure> {
        let runtime = runtime()?;
        let local = LocalSet::new();
        let result = local.block_on(&runtime, self.run_share(worker, plan));
        if result.is_err() {
            plan.abort();
        }
        result
    }

    async fn run_share(self: &Arc<Self>, worker: u32, plan: &Arc<Plan>) -> Result<Tally, Failure> {
        let mine = |number: &u32| number % self.threads == worker;
        let (mut consumers, mut producers) = (Vec::new(), Vec::new());
        let idle = idle::connect(self, (0..self.idle).filter(mine)).await?;
        for number in (0..self.consumers).filter(mine) {
            consumers.push(Consumer::attach(self, number).await?);
        }
        plan.wait_for_consumers().await?;
        for number in (0..self.producers).filter(mine) {
            producers.push(Producer::attach(self, number).await?);
        }
        plan.start().await?;
        let mut tasks = JoinSet::new();
        for consumer in consumers {
            tasks.spawn_local(consumer.run(Arc::clone(plan)));
        }
        for producer in producers {
            tasks.spawn_local(producer.run(Arc::clone(plan)));
        }
        let mut tally = Tally::default();
        while let Some(done) = tasks.join_next().await {
            let done = done.map_err(|_| failed("a task of the load program failed", "report it"))?;
            tally.merge(&done?);
        }
        if self.producers == 0 {
            plan.wait_for_end().await;
        }
        idle::close(idle).await;
        Ok(tally)
    }

    async fn client(&self, role: &str, number: u32) -> Result<Client, Failure> {
        let mut options = self.connect.options();
        options.excess_credit = self.excess_credit;
        options.container_id = format!("{}-{role}-{number}", options.container_id);
        Ok(Client::connect(&options).await?)
    }

    fn address_for(&self, number: u32) -> String {
        if self.addresses == 1 {
            self.address.clone()
        } else {
            format!("{}-{}", self.address, number % self.addresses)
        }
    }
}

/// All tallies as one; where some failed, the failure that is no mere echo of another.
fn merge(results: Vec<Result<Tally, Failure>>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut failure = None;
    for result in results {
        match result {
            Ok(done) => tally.merge(&done),
            Err(found) if failure.is_none() || found != Failure::silent() => failure = Some(found),
            Err(_) => {}
        }
    }
    failure.map_or(Ok(tally), Err)
}
