//! Memory and start times: an empty broker, idle connections, a long backlog, and starts with it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load;
use super::process::memory;
use super::servers::{Running, Server};
use super::table::{Row, count, size};
use super::{Bench, Role};

/// How long a broker may take to come to rest before its memory is read.
const REST: Duration = Duration::from_secs(3);

/// How long filling the backlog may take.
const FILLING: Duration = Duration::from_secs(3_600);

/// What was measured at one broker; what could not be is missing.
#[derive(Debug, Default)]
struct Found {
    start_empty: Option<f64>,
    idle: Option<f64>,
    connection: Option<f64>,
    fill_rate: Option<f64>,
    backlog: Option<f64>,
    restart: Option<f64>,
    restart_killed: Option<f64>,
    /// What went wrong, and ended the measurement there.
    error: Option<String>,
}

/// The lines that one run over all brokers gives.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>, String> {
    println!("\nmemory and starts");
    let mut all = Vec::new();
    let roles = std::iter::once(Role::Postroad).chain((0..bench.peers.len()).map(Role::Peer));
    for role in roles {
        let server = bench.server(role);
        let data = bench.folder(server)?;
        let mut found = Found::default();
        if let Err(error) = found.measure(bench, server, &data) {
            found.error = Some(error);
        }
        bench.remove(&data)?;
        println!("  {:<10} {}", server.name(), found.to_json());
        all.push((server.name(), found));
    }
    Ok(rows(bench, &all))
}

impl Found {
    fn measure(&mut self, bench: &Bench, server: &dyn Server, data: &std::path::Path) -> Result<(), String> {
        let running = server.start(data)?;
        self.start_empty = Some(running.started_in.as_secs_f64());
        let empty = at_rest(&running)?;
        self.idle = Some(empty);
        self.connection = Some(self.connections(bench, &running)?);
        // What the connections have left behind is not the backlog's.
        let before = at_rest(&running)?;
        self.fill(bench, &running)?;
        self.backlog = Some(at_rest(&running)? - before.min(empty));
        running.stop()?;
        let running = server.start(data)?;
        self.restart = Some(running.started_in.as_secs_f64());
        std::thread::sleep(REST);
        running.kill();
        let running = server.start(data)?;
        self.restart_killed = Some(running.started_in.as_secs_f64());
        running.kill();
        Ok(())
    }

    /// Bytes for each idle connection.
    fn connections(&self, bench: &Bench, running: &Running) -> Result<f64, String> {
        let idle = bench.idle_connections();
        let options = format!("--producers 0 --consumers 0 --warmup 0s --duration 3s --idle {idle}");
        let load = load::run(&bench.programs, running, &running.queue, &words(&options), FILLING)?;
        let at = |moment| load.number(moment).ok_or("the broker's memory is not known");
        Ok((at("/broker_memory/after")? - at("/broker_memory/before")?) / f64::from(idle))
    }

    /// Fills the queue, durably.
    fn fill(&mut self, bench: &Bench, running: &Running) -> Result<(), String> {
        let messages = bench.backlog();
        let options = format!("--consumers 0 --size 100 --window 5000 --messages {messages}");
        let begun = Instant::now();
        let load = load::run(&bench.programs, running, &running.queue, &words(&options), FILLING)?;
        if let Some(complaint) = load.complaint {
            return Err(complaint);
        }
        let seconds = load.number("/seconds").unwrap_or_else(|| begun.elapsed().as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a count below 2^53 is exact")]
        let rate = messages as f64 / seconds;
        self.fill_rate = Some(rate);
        Ok(())
    }

    fn to_json(&self) -> Value {
        json!({
            "start_empty_s": self.start_empty, "idle_bytes": self.idle, "connection_bytes": self.connection,
            "fill_per_second": self.fill_rate, "backlog_bytes": self.backlog,
            "start_after_stop_s": self.restart, "start_after_kill_s": self.restart_killed, "error": self.error,
        })
    }
}

fn words(options: &str) -> Vec<String> {
    options.split(' ').map(str::to_owned).collect()
}

/// Memory once nothing happens any more.
fn at_rest(running: &Running) -> Result<f64, String> {
    std::thread::sleep(REST);
    #[expect(clippy::cast_precision_loss, reason = "a size below 2^53 is exact")]
    let bytes = memory(running.pid).ok_or("the broker has ended")? as f64;
    Ok(bytes)
}

/// One figure of all brokers as a line.
struct Shown {
    line: String,
    value: fn(&Found) -> Option<f64>,
    tell: fn(f64) -> String,
    /// At most this, and how the goal reads.
    goal: Option<(f64, &'static str)>,
}

fn rows(bench: &Bench, all: &[(&'static str, Found)]) -> Vec<Row> {
    let backlog = count_of(bench.backlog());
    let store = format!("a store of {backlog} x 100 bytes");
    let mib = f64::from(1 << 20);
    let lines = [
        Shown {
            line: "memory: idle".into(),
            value: |f| f.idle,
            tell: size,
            goal: Some((20.0 * mib, "20 MiB")),
        },
        Shown {
            line: format!(
                "memory: each of {} idle connections",
                count_of(u64::from(bench.idle_connections()))
            ),
            value: |f| f.connection,
            tell: size,
            goal: Some((16.0 * 1024.0, "16 KiB")),
        },
        Shown {
            line: format!("memory: {store}, above empty"),
            value: |f| f.backlog,
            tell: size,
            goal: Some((64.0 * mib, "64 MiB")),
        },
        Shown { line: format!("filling {store}"), value: |f| f.fill_rate, tell: per_second, goal: None },
        Shown {
            line: "start: empty store".into(),
            value: |f| f.start_empty,
            tell: time,
            goal: Some((0.1, "100 ms")),
        },
        Shown {
            line: format!("start: {store}, stopped in order"),
            value: |f| f.restart,
            tell: time,
            goal: Some((2.0, "2 s")),
        },
        Shown {
            line: format!("start: {store}, killed"),
            value: |f| f.restart_killed,
            tell: time,
            goal: Some((2.0, "2 s")),
        },
    ];
    lines.iter().map(|shown| shown.row(all)).collect()
}

impl Shown {
    fn row(&self, all: &[(&'static str, Found)]) -> Row {
        let mut row = Row::new(self.line.clone());
        for (name, found) in all {
            let told = (self.value)(found).map(self.tell);
            let missing = || found.error.as_ref().map_or_else(String::new, |error| format!("can't: {error}"));
            row.cells.insert(name, told.unwrap_or_else(missing));
            row.reports.insert(name, found.to_json());
        }
        let ours = all.first().and_then(|(_, found)| (self.value)(found));
        if let Some((most, text)) = self.goal {
            row.goal(format!("at most {text}"), ours.map(|ours| ours <= most));
        }
        row
    }
}

fn per_second(rate: f64) -> String {
    format!("{}/s", count(rate))
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

fn count_of(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^53 is exact")]
    let number = number as f64;
    count(number)
}
