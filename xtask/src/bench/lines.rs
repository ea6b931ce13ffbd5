//! The lines of load: what each does, what it is compared with, and its goals.

use std::time::Duration;

use super::disk::Disk;
use super::load::Load;
use super::table::{Row, count};
use super::{Bench, Role};

/// What a line compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Messages received in a second; more is better.
    Received,
    /// From when a message is due to its receipt.
    Latency,
    /// From sending a message to its confirm.
    Confirm,
}

/// Goals of a line; all that are there are told.
#[derive(Clone, Copy, Debug, Default)]
struct Goals {
    /// Of the limit, at least.
    of_limit: Option<f64>,
    /// Times the best peer, at least.
    times_peer: Option<f64>,
    /// Microseconds of the broker's CPU for each message, at most.
    cpu_us: Option<f64>,
    /// Bytes written to disk for each byte received, at most.
    written: Option<f64>,
    /// Median and 99th percentile in microseconds, at most.
    latency_us: Option<(f64, f64)>,
}

/// A line of load.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its name on the command line.
    pub(crate) id: &'static str,
    what: &'static str,
    options: &'static str,
    topic: bool,
    /// The limit program that does the same.
    limit: Option<Role>,
    /// Whether peers are measured too.
    peers: bool,
    figure: Figure,
    goals: Goals,
}

const NONE: Goals = Goals { of_limit: None, times_peer: None, cpu_us: None, written: None, latency_us: None };
const THROUGHPUT: Goals = Goals { of_limit: Some(0.6), times_peer: Some(5.0), ..NONE };
const FAN_OUT: Goals = Goals { times_peer: Some(5.0), ..NONE };

/// All lines of load, in the order of the table.
pub(crate) const LINES: [Line; 8] = [
    Line {
        id: "settled",
        what: "non-persistent, settled",
        options: "--non-persistent --presettled --ahead 20000",
        topic: false,
        limit: Some(Role::Forwarder),
        peers: true,
        figure: Figure::Received,
        goals: Goals { cpu_us: Some(2.0), ..THROUGHPUT },
    },
    Line {
        id: "unsettled",
        what: "non-persistent",
        options: "--non-persistent",
        topic: false,
        limit: Some(Role::Forwarder),
        peers: true,
        figure: Figure::Received,
        goals: Goals { cpu_us: Some(4.0), ..THROUGHPUT },
    },
    Line {
        id: "rate",
        what: "non-persistent, 2,000 a second: p50 / p99",
        options: "--non-persistent --rate 2000",
        topic: false,
        limit: Some(Role::Forwarder),
        peers: true,
        figure: Figure::Latency,
        goals: Goals { latency_us: Some((100.0, 300.0)), ..NONE },
    },
    Line {
        id: "persistent",
        what: "persistent, 1 producer, window 1,000",
        options: "--window 1000",
        topic: false,
        limit: Some(Role::Joined),
        peers: true,
        figure: Figure::Received,
        goals: Goals { written: Some(1.15), ..THROUGHPUT },
    },
    Line {
        id: "persistent-16",
        what: "persistent, 16 producers, window 1,000",
        options: "--window 1000 --producers 16 --consumers 16",
        topic: false,
        limit: Some(Role::Joined),
        peers: true,
        figure: Figure::Received,
        goals: Goals { written: Some(1.15), ..THROUGHPUT },
    },
    Line {
        id: "persistent-one",
        what: "persistent, one at a time: confirm p50",
        options: "--window 1",
        topic: false,
        limit: Some(Role::Forwarder),
        peers: true,
        figure: Figure::Confirm,
        goals: NONE,
    },
    Line {
        id: "fan-out",
        what: "channel, 100 subscribers, non-persistent",
        options: "--non-persistent --topic --consumers 100",
        topic: true,
        limit: None,
        peers: true,
        figure: Figure::Received,
        goals: FAN_OUT,
    },
    Line {
        id: "fan-out-persistent",
        what: "channel, 100 subscribers, persistent",
        options: "--topic --consumers 100",
        topic: true,
        limit: None,
        peers: true,
        figure: Figure::Received,
        goals: FAN_OUT,
    },
];

/// What came of a line at one program.
type Outcome = (&'static str, Result<Load, String>);

impl Line {
    /// Measures it at every program that it compares, one after the other, each freshly started.
    pub(crate) fn measure(&self, bench: &Bench, disk: &Disk) -> Result<Row, String> {
        println!("\n{}", self.what);
        let limit = match self.limit {
            None => None,
            Some(role) => Some(self.at(bench, role)?),
        };
        let mut brokers = vec![self.at(bench, Role::Postroad)?];
        for peer in 0..bench.peers.len() {
            if self.peers {
                brokers.push(self.at(bench, Role::Peer(peer))?);
            }
        }
        Ok(self.row(limit.as_ref(), &brokers, disk))
    }

    fn at(&self, bench: &Bench, role: Role) -> Result<Outcome, String> {
        let (warmup, duration) = bench.times(role);
        let mut options: Vec<String> = self.options.split(' ').map(str::to_owned).collect();
        options.extend(["--warmup".into(), seconds(warmup), "--duration".into(), seconds(duration)]);
        let server = bench.server(role);
        let load = bench.with(server, |running| {
            let address = if self.topic { &running.topic } else { &running.queue };
            super::load::run(&bench.programs, running, address, &options, warmup + duration)
        })?;
        let told = match &load {
            Ok(load) => self.cell(load),
            Err(error) => error.clone(),
        };
        println!("  {:<10} {told}", server.name());
        Ok((server.name(), load))
    }

    fn figure(&self, load: &Load) -> Option<f64> {
        load.number(match self.figure {
            Figure::Received => "/received_per_second",
            Figure::Latency => "/latency_us/p50",
            Figure::Confirm => "/confirm_us/p50",
        })
    }

    /// A figure in words.
    fn cell(&self, load: &Load) -> String {
        let number = |pointer| load.number(pointer).unwrap_or(f64::NAN);
        let mut text = match self.figure {
            Figure::Received => format!("{}/s", count(number("/received_per_second"))),
            Figure::Latency => {
                format!("{:.0} / {:.0} us", number("/latency_us/p50"), number("/latency_us/p99"))
            }
            Figure::Confirm => format!("{:.0} us", number("/confirm_us/p50")),
        };
        if let (Figure::Received, Some(cpu)) = (self.figure, load.number("/broker_cpu_us_per_message")) {
            text.push_str(&format!(", {cpu:.1} us"));
        }
        if let (Some(_), Some(written)) = (self.goals.written, load.number("/bytes_written_per_byte_sent")) {
            text.push_str(&format!(", writes {written:.2}"));
        }
        if let Some(complaint) = &load.complaint {
            text.push_str(&format!(" ({complaint})"));
        }
        text
    }

    fn row(&self, limit: Option<&Outcome>, brokers: &[Outcome], disk: &Disk) -> Row {
        let mut row = Row::new(self.what);
        let figure = |outcome: &Outcome| outcome.1.as_ref().ok().and_then(|load| self.figure(load));
        for (name, outcome) in brokers.iter().chain(limit) {
            if let Ok(load) = outcome {
                row.reports.insert(name, load.report.clone());
            }
        }
        for (name, outcome) in brokers {
            let told =
                outcome.as_ref().map_or_else(|error| format!("can't: {error}"), |load| self.cell(load));
            row.cells.insert(name, told);
        }
        let ours = brokers.first().and_then(figure);
        let theirs = brokers.iter().skip(1).filter_map(figure);
        // The best is the highest rate, or the lowest latency.
        let best = theirs.reduce(if self.figure == Figure::Received { f64::max } else { f64::min });
        let divide = |by: Option<f64>| Some(ours? / by?).filter(|ratio| ratio.is_finite());
        if self.figure == Figure::Confirm {
            let round_trip = limit.and_then(figure);
            let allowed = round_trip.map(|round_trip| disk.sync_us + 1.3 * round_trip);
            if let (Some(round_trip), Some(allowed)) = (round_trip, allowed) {
                row.limit = format!("write and sync {:.0} us, forwarder {round_trip:.0} us", disk.sync_us);
                row.of_limit = divide(Some(disk.sync_us + round_trip));
                row.goal(format!("at most {allowed:.0} us"), ours.map(|ours| ours <= allowed));
            }
        } else if let Some((name, outcome)) = limit {
            let told =
                outcome.as_ref().map_or_else(|error| format!("can't: {error}"), |load| self.cell(load));
            row.limit = format!("{name}: {told}");
            row.of_limit = limit.and_then(|limit| divide(figure(limit)));
        }
        row.of_best_peer = divide(best);
        self.judge(&mut row, brokers.first().and_then(|(_, outcome)| outcome.as_ref().ok()));
        row
    }

    fn judge(&self, row: &mut Row, ours: Option<&Load>) {
        let goals = &self.goals;
        let number = |pointer| ours.and_then(|load| load.number(pointer));
        let least = |goal: Option<f64>, found: Option<f64>| Some(found? >= goal?);
        let most = |goal: Option<f64>, found: Option<f64>| Some(found? <= goal?);
        let of_limit = least(goals.of_limit, row.of_limit);
        row.goal(format!("{} of the limit", goals.of_limit.unwrap_or_default()), of_limit);
        let times_peer = least(goals.times_peer, row.of_best_peer);
        row.goal(format!("{} times the best peer", goals.times_peer.unwrap_or_default()), times_peer);
        let cpu = most(goals.cpu_us, number("/broker_cpu_us_per_message"));
        row.goal(format!("{} us", goals.cpu_us.unwrap_or_default()), cpu);
        let written = most(goals.written, number("/bytes_written_per_byte_sent"));
        row.goal(format!("writes {}", goals.written.unwrap_or_default()), written);
        if let Some((p50, p99)) = goals.latency_us {
            row.goal(format!("p50 {p50} us"), most(Some(p50), number("/latency_us/p50")));
            row.goal(format!("p99 {p99} us"), most(Some(p99), number("/latency_us/p99")));
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs())
}
