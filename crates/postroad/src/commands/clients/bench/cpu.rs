//! CPU time of processes, from `/proc`.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::super::failure::{Failure, usage};
use super::plan::Plan;

/// Clock ticks per second in `/proc/PID/stat`: 100 on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Whose CPU time is measured.
#[derive(Debug)]
pub(super) struct Watch {
    pid: Option<u32>,
}

/// CPU seconds of the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) broker: Option<f64>,
    /// The load program itself.
    pub(super) own: Option<f64>,
    /// Seconds that were measured.
    pub(super) seconds: f64,
}

impl Watch {
    pub(super) fn new(pid: Option<u32>) -> Result<Self, Failure> {
        if let Some(pid) = pid
            && cpu_seconds(&pid.to_string()).is_none()
        {
            let what = format!("no CPU time is known of process {pid}");
            return Err(usage(what, "give --pid the id of a process on this machine, on Linux"));
        }
        Ok(Self { pid })
    }

    /// Measures over the measured time of a run; nothing when the run fails before.
    pub(super) async fn over(&self, plan: &Plan) -> Usage {
        if plan.began().await.is_err() {
            return Usage::default();
        }
        let (from, to) = plan.measured_instants();
        sleep_until(from.into()).await;
        let (start, before) = (Instant::now(), self.read());
        let mut shown = plan.progress();
        while Instant::now() < to && !plan.is_aborted() {
            let next = to.min(Instant::now() + Duration::from_secs(1));
            sleep_until(next.into()).await;
            shown = show(plan, shown);
        }
        let (after, seconds) = (self.read(), start.elapsed().as_secs_f64());
        let used = |before: Option<f64>, after: Option<f64>| Some(after? - before?);
        Usage { broker: used(before.0, after.0), own: used(before.1, after.1), seconds }
    }

    fn read(&self) -> (Option<f64>, Option<f64>) {
        (self.pid.and_then(|pid| cpu_seconds(&pid.to_string())), cpu_seconds("self"))
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
}
