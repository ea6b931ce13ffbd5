//! The broker as a process: configured, started, killed.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postroad_client::{ConnectOptions, Url};

use crate::backlog::COLD;
use crate::books::Violation;

/// The queue in which everything from both channels ends.
pub(crate) const JOINED: &str = "joined";

/// The named object that the clients follow on both channels.
pub(crate) const FOLLOWED: &str = "followed";

/// The named object that nobody reads before the end.
pub(crate) const UNREAD: &str = "unread";

/// How long a start may take.
const START: Duration = Duration::from_secs(60);

/// How long any answer to a client may take.
const ANSWER: Duration = Duration::from_secs(20);

/// A write that takes so long has others waiting behind it.
const LONG_WRITE: Duration = Duration::from_micros(1500);

/// What opens a connection (AMQP 1.0 part 5, section 5.3.1): the broker answers with the like.
const HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// The broker and its folder.
#[derive(Debug)]
pub(crate) struct Broker {
    binary: PathBuf,
    folder: PathBuf,
    amqp: SocketAddr,
    http: SocketAddr,
    child: Option<Child>,
}

impl Broker {
    /// Prepares a folder with the configuration, on free ports. Nothing is started.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn prepare(binary: &Path, folder: &Path) -> io::Result<Self> {
        let data = folder.join("data");
        std::fs::create_dir_all(&data)?;
        let (amqp, http) = free_ports()?;
        std::fs::write(folder.join("postroad.toml"), configuration(&data, amqp, http))?;
        Ok(Self { binary: binary.to_owned(), folder: folder.to_owned(), amqp, http, child: None })
    }

    /// Starts the broker on its data and waits until it answers; how long that took.
    ///
    /// # Errors
    /// [`Violation`] if it does not come up.
    pub(crate) fn start(&mut self) -> Result<Duration, Violation> {
        let began = Instant::now();
        self.spawn()?;
        while !self.answers() {
            if let Some(status) = self.exit_status() {
                return Err(self.failed(&format!("ended at its start ({status})")));
            }
            if began.elapsed() > START {
                return Err(self.failed(&format!("did not answer within {} seconds", START.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(began.elapsed())
    }

    /// Starts the broker and waits for nothing.
    ///
    /// # Errors
    /// [`Violation`] if the program cannot be started.
    pub(crate) fn spawn(&mut self) -> Result<(), Violation> {
        let start = || {
            let log = OpenOptions::new().create(true).append(true).open(self.folder.join("broker.log"))?;
            Command::new(&self.binary)
                .args(["serve", "--config"])
                .arg(self.folder.join("postroad.toml"))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
        };
        let child = start().map_err(|e| self.failed(&format!("could not be started: {e}")))?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// [`Violation`] if it had ended before by itself.
    pub(crate) fn kill(&mut self) -> Result<(), Violation> {
        if let Some(status) = self.exit_status() {
            return Err(self.failed(&format!("ended by itself ({status})")));
        }
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|e| self.failed(&format!("could not be killed: {e}")))
    }

    /// Waits until one of its threads has been waiting for the disk for a while; at most so long in all.
    pub(crate) fn wait_for_disk(&self, time: Duration) {
        let began = Instant::now();
        let Some(child) = &self.child else { return };
        let entries = std::fs::read_dir(format!("/proc/{}/task", child.id()));
        let stats = entries.into_iter().flatten().flatten().map(|entry| entry.path().join("stat"));
        let mut threads: Vec<(PathBuf, Option<Instant>)> = stats.map(|stat| (stat, None)).collect();
        while began.elapsed() < time {
            for (stat, since) in &mut threads {
                let waits = is_in_disk_wait(stat);
                *since = waits.then(|| since.unwrap_or_else(Instant::now));
                if since.is_some_and(|since| since.elapsed() > LONG_WRITE) {
                    return;
                }
            }
        }
    }

    /// How a client connects that is to be known by `name`.
    pub(crate) fn options(&self, name: &str) -> ConnectOptions {
        let url =
            Url { host: self.amqp.ip().to_string(), port: self.amqp.port(), user: None, password: None };
        ConnectOptions { container_id: name.to_owned(), timeout: ANSWER, ..ConnectOptions::new(url) }
    }

    /// How many events a channel holds, as REST says.
    ///
    /// # Errors
    /// [`Violation`] if it says nothing.
    pub(crate) fn depth(&self, channel: &str) -> Result<u64, Violation> {
        let url = format!("http://{}/api/v1/channels/{channel}", self.http);
        let asked = ureq::get(&url).call().and_then(|mut answer| answer.body_mut().read_to_string());
        let text = asked.map_err(|e| self.failed(&format!("did not answer {url}: {e}")))?;
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let depth = shown.get("depth").and_then(serde_json::Value::as_u64);
        depth.ok_or_else(|| self.failed(&format!("told no depth at {url}")))
    }

    /// Says what went wrong, with the end of the log.
    fn failed(&self, what: &str) -> Violation {
        let log = std::fs::read_to_string(self.folder.join("broker.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default();
        Violation::new(format!("the broker {what}; its log ends with\n{}", tail.join("\n")))
    }

    fn exit_status(&mut self) -> Option<std::process::ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten()
    }

    /// Whether it serves AMQP.
    fn answers(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect(self.amqp)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(&HEADER)?;
            let mut answer = [0; HEADER.len()];
            stream.read_exact(&mut answer)?;
            Ok::<_, io::Error>(answer)
        };
        ask().is_ok_and(|answer| answer == HEADER)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether the system shows a thread as waiting for a device: `D` behind its name in parentheses.
fn is_in_disk_wait(stat: &Path) -> bool {
    std::fs::read_to_string(stat)
        .is_ok_and(|text| text.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" D")))
}

/// Two ports that nobody listens on.
fn free_ports() -> io::Result<(SocketAddr, SocketAddr)> {
    let amqp = TcpListener::bind("127.0.0.1:0")?;
    let http = TcpListener::bind("127.0.0.1:0")?;
    Ok((amqp.local_addr()?, http.local_addr()?))
}

/// Small segments and checkpoints, so that crashes meet what the journal does between them. From `stream`, two paths
/// lead to the joined queue. The queue gives up on no message: a soak fails more deliveries than any application.
fn configuration(data: &Path, amqp: SocketAddr, http: SocketAddr) -> String {
    let data = serde_json::Value::from(data.to_string_lossy()).to_string();
    format!(
        r#"[broker]
name = "soak"
data_dir = {data}

[storage]
segment_size = "1MiB"
checkpoint_every = "2MiB"

[[listener]]
protocol = "amqp"
address = "{amqp}"

[[listener]]
protocol = "http"
address = "{http}"

[[queue]]
name = "work"
publisher_dedupe = "message-id"
publisher_dedupe_window = "1h"
max_delivery_attempts = -1

[[queue]]
name = "{JOINED}"

[[queue]]
name = "{COLD}"

[[channel]]
name = "stream"
retention = "log"
publisher_dedupe = "message-id"
publisher_dedupe_window = "1h"

[[channel.named_object]]
name = "{FOLLOWED}"
start_event_id = 0
max_delivery_attempts = -1

[[channel.named_object]]
name = "{UNREAD}"
start_event_id = 0

[[channel]]
name = "live"
retention = "interest"
publisher_dedupe = "message-id"
publisher_dedupe_window = "1h"

[[channel.named_object]]
name = "{FOLLOWED}"
start_event_id = 0
max_delivery_attempts = -1

[[channel]]
name = "between"
retention = "interest"

[[join]]
source = "stream"
destination = "{JOINED}"

[[join]]
source = "stream"
destination = "between"

[[join]]
source = "between"
destination = "{JOINED}"

[[join]]
source = "live"
destination = "{JOINED}"
"#
    )
}
