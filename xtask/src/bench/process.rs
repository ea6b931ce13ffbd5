//! Programs that run while something is measured: started with a log file, awaited, and ended by their process id.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The header with which an AMQP 1.0 connection with SASL begins; a server answers with one of its own.
const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// Between two attempts to connect: the resolution of a start time.
const ATTEMPTS: Duration = Duration::from_millis(1);

/// How long a program may take to end in order.
const GOODBYE: Duration = Duration::from_secs(120);

/// A program that was started here. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    started: Instant,
}

impl Process {
    /// Starts a program; what it prints goes into a file in `folder`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let shown = |e: std::io::Error| format!("{}: {e}", log.display());
        let output = File::options().create(true).append(true).open(&log).map_err(shown)?;
        let errors = output.try_clone().map_err(shown)?;
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = child.map_err(|e| format!("{name} could not be started: {e}"))?;
        Ok(Self { child, name: name.to_owned(), log, started })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers like an AMQP server on `port`: how long that took since it was started.
    pub(crate) fn wait_for_amqp(&mut self, port: u16, patience: Duration) -> Result<Duration, String> {
        while !answers_amqp(port) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended at its start ({status}): {}", self.name, self.last_words()));
            }
            if self.started.elapsed() > patience {
                let waited = patience.as_secs();
                return Err(format!("{} does not answer after {waited} s: {}", self.name, self.last_words()));
            }
            std::thread::sleep(ATTEMPTS);
        }
        Ok(self.started.elapsed())
    }

    /// The last line that it printed.
    fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it printed nothing").trim().to_owned()
    }

    /// Asks it to end, and waits for it.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + GOODBYE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                // Brokers tell a stop by a signal with codes of their own.
                Ok(Some(_)) => return Ok(()),
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        }
        Err(format!("{} did not end within {} s", self.name, GOODBYE.as_secs()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that a program of ours has started.
pub(crate) fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // Where it is gone there is nobody to tell.
        let _ = kill_process(pid, signal);
    }
}

fn answers_amqp(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut socket) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    let mut answer = [0; 8];
    let asked = socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .and_then(|()| socket.write_all(&SASL_HEADER))
        .and_then(|()| socket.read_exact(&mut answer));
    asked.is_ok() && answer.starts_with(b"AMQP")
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port: {e}"))?;
    Ok(listener.local_addr().map_err(|e| format!("no free port: {e}"))?.port())
}

/// Resident memory of a process, in bytes.
pub(crate) fn memory(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_awaited_and_ended() {
        let folder = std::env::temp_dir().join(format!("xtask-process-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut sleeper = Process::start("sleeper", Command::new("sleep").arg("60"), &folder).unwrap();
        assert!(memory(sleeper.id()).is_some());
        let port = free_port().unwrap();
        assert!(
            sleeper.wait_for_amqp(port, Duration::from_millis(20)).unwrap_err().contains("does not answer")
        );
        sleeper.stop().unwrap();
        let mut failing = Process::start("false", &mut Command::new("false"), &folder).unwrap();
        assert!(
            failing.wait_for_amqp(port, Duration::from_secs(10)).unwrap_err().contains("ended at its start")
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
