//! What processes use, from `/proc`: CPU time, memory, bytes written to disks.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::super::failure::{Failure, usage};
use super::plan::Plan;

/// Clock ticks per second in `/proc/PID/stat`: 100 on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Whose usage is measured.
#[derive(Debug)]
pub(super) struct Watch {
    pid: Option<u32>,
    /// The broker's memory before the first connection, in bytes.
    memory_before: Option<u64>,
}

/// What was used in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// CPU seconds of the broker.
    pub(super) broker: Option<f64>,
    /// CPU seconds of the load program itself.
    pub(super) own: Option<f64>,
    /// Bytes that the broker made the system write to disks.
    pub(super) written: Option<u64>,
    pub(super) memory: Memory,
    /// Seconds that were measured.
    pub(super) seconds: f64,
}

/// The broker's resident memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Before the first connection.
    pub(super) before: Option<u64>,
    /// With everything attached, before the first message.
    pub(super) attached: Option<u64>,
    /// At the end of the measured time.
    pub(super) after: Option<u64>,
}

/// What was used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    broker: Option<f64>,
    own: Option<f64>,
    written: Option<u64>,
}

impl Watch {
    pub(super) fn new(pid: Option<u32>) -> Result<Self, Failure> {
        if let Some(pid) = pid
            && cpu_seconds(&pid.to_string()).is_none()
        {
            let what = format!("no CPU time is known of process {pid}");
            return Err(usage(what, "give --pid the id of a process on this machine, on Linux"));
        }
        Ok(Self { pid, memory_before: pid.and_then(memory) })
    }

    /// Measures over the measured time of a run, or until it is over; nothing when the run fails before.
    pub(super) async fn over(&self, plan: &Plan) -> Usage {
        if plan.began().await.is_err() {
            return Usage::default();
        }
        let attached = self.pid.and_then(memory);
        let (from, to) = plan.measured_instants();
        sleep_until(from.into()).await;
        let (start, before) = (Instant::now(), self.read());
        let mut shown = plan.progress();
        let mut look = start;
        while Instant::now() < to && !plan.is_aborted() && !plan.is_complete() {
            let next = to.min(Instant::now() + Duration::from_millis(20));
            sleep_until(next.into()).await;
            if look.elapsed() >= Duration::from_secs(1) {
                look = Instant::now();
                shown = show(plan, shown);
            }
        }
        let (after, seconds) = (self.read(), start.elapsed().as_secs_f64());
        let used = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
        Usage {
            broker: used(before.broker, after.broker),
            own: used(before.own, after.own),
            written: before.written.zip(after.written).map(|(before, after)| after.saturating_sub(before)),
            memory: Memory { before: self.memory_before, attached, after: self.pid.and_then(memory) },
            seconds,
        }
    }

    fn read(&self) -> Reading {
        Reading {
            broker: self.pid.and_then(|pid| cpu_seconds(&pid.to_string())),
            own: cpu_seconds("self"),
            written: self.pid.and_then(written),
        }
    }
}

/// Says how it goes, once a second, to a person.
fn show(plan: &Plan, before: (u64, u64)) -> (u64, u64) {
    let now = plan.progress();
    if io::stderr().is_terminal() {
        let (sent, received) = (now.0 - before.0, now.1 - before.1);
        let _ = write!(io::stderr(), "\r{sent} msg/s sent, {received} msg/s received        \r");
    }
    now
}

/// User and system time of a process so far, in seconds.
fn cpu_seconds(process: &str) -> Option<f64> {
    parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Fields 14 and 15; the second one, the name, may hold anything, and ends with the last bracket.
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Resident memory of a process, in bytes.
fn memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(field(&status, "VmRSS:")? * 1024)
}

/// Bytes that a process made the system write to disks so far; nothing where it belongs to another user.
fn written(pid: u32) -> Option<u64> {
    field(&std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?, "write_bytes:")
}

/// The number behind a name that opens a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(parse(stat), Some(2.0));
        assert_eq!(parse("42 (a"), None);
        assert!(cpu_seconds("self").is_some());
    }

    #[test]
    fn memory_and_writes_are_read() {
        let io = "rchar: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n";
        assert_eq!((field(io, "write_bytes:"), field(io, "wchar:")), (Some(4096), None));
        assert!(memory(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert!(written(std::process::id()).is_some());
    }
}
