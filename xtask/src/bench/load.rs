//! Runs of the load program, `postroad bench`.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::servers::{Programs, Running};

/// How much longer than it should a run may take: for connecting, and for what a slow broker still has to deliver.
const GRACE: Duration = Duration::from_secs(240);

/// What a run of the load program gave.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Its JSON report.
    pub(crate) report: Value,
    /// What it complained of, though it has figures.
    pub(crate) complaint: Option<String>,
}

impl Load {
    /// A number of the report.
    pub(crate) fn number(&self, pointer: &str) -> Option<f64> {
        self.report.pointer(pointer).and_then(Value::as_f64)
    }
}

/// Puts a server under load. `expected` is how long the run should take. An error is what the load program says where it
/// has no figures.
pub(crate) fn run(
    programs: &Programs,
    server: &Running,
    address: &str,
    options: &[String],
    expected: Duration,
) -> Result<Load, String> {
    let mut command = Command::new(&programs.postroad);
    command.args(["bench", "--json", "--url", &server.url(), "--address", address]);
    command
        .args(["--pid", &server.pid.to_string(), "--connect-timeout", "60s"])
        .args(&server.load)
        .args(options);
    command.env_remove("POSTROAD_URL").env_remove("POSTROAD_USER").env_remove("POSTROAD_PASSWORD");
    if let Some(login) = server.login {
        command.env("POSTROAD_USER", login).env("POSTROAD_PASSWORD", login);
    }
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|e| format!("the load program could not be started: {e}"))?;
    let (mut out, mut errors) = (child.stdout.take(), child.stderr.take());
    let deadline = Instant::now() + expected + GRACE;
    // What it prints fits into the pipes, so it can be read when it has ended.
    let status = loop {
        match child.try_wait().map_err(|e| format!("the load program: {e}"))? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end after {} s", (expected + GRACE).as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let (out, errors) = (text(&mut out), text(&mut errors));
    let complaint = errors.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    match serde_json::from_str(out.trim()) {
        Ok(report) => Ok(Load { report, complaint: (!status.success()).then_some(complaint) }),
        Err(_) => Err(if complaint.is_empty() { format!("no figures ({status})") } else { complaint }),
    }
}

fn text(stream: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What can't be read is no report; that is said then.
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
