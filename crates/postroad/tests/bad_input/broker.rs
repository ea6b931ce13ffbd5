//! One broker process: its folder, a port of its own choice, what it logs, how it ends.

use crate::peer::{Peer, flow};
use postroad_amqp_codec::performative::{Flow, Performative};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_postroad");
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Lines of a log, and a bell for each.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

pub(crate) struct Broker {
    pub(crate) folder: TempDir,
    process: Child,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
    pub(crate) address: SocketAddr,
}

impl Broker {
    /// A broker with the queues `q` and `w`, the channel `c`, and what else is configured.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_config(folder.path(), config);
        Self::in_folder(folder)
    }

    /// A broker over a folder with a configuration.
    pub(crate) fn in_folder(folder: TempDir) -> Self {
        let mut process = serve(folder.path()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(process.stderr.take().unwrap());
        let log = Arc::new(Log::default());
        let shared = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                shared.lines.lock().unwrap().push(line);
                shared.more.notify_all();
            }
        });
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut broker = Self { folder, process, log, reader: Some(reader), address: none };
        let line = broker.wait_for("serving AMQP 1.0");
        broker.address = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
        broker
    }

    /// The first line of the log that holds all these texts, once it is there.
    #[track_caller]
    pub(crate) fn wait_for_all(&self, texts: &[&str]) -> String {
        let holds = |line: &&String| texts.iter().all(|text| line.contains(text));
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.log.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(holds) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the log never says {texts:?}: {lines:#?}");
            lines = self.log.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_for_all(&[text])
    }

    /// A client that has opened its connection.
    pub(crate) fn open(&self) -> Peer {
        Peer::open(self.address)
    }

    /// A client with a session, and the witness that nothing else is touched.
    pub(crate) fn witness(&self) -> Witness {
        Witness::new(self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most resident memory that there ever was, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Stops it in order; the warnings and errors that it logged.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.process.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        let lines = self.log.lines.lock().unwrap().clone();
        assert!(status.success(), "{status}: {lines:#?}");
        lines.into_iter().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect()
    }

    /// Stops it; it must have logged one warning, which holds these texts.
    #[track_caller]
    pub(crate) fn warned_once(self, texts: &[&str]) {
        let warnings = self.stop();
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        for text in texts {
            assert!(warnings[0].contains(text), "no {text:?} in {}", warnings[0]);
        }
    }

    /// Ends it as a power cut would; its folder is left.
    pub(crate) fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(crate) fn write_config(folder: &Path, config: &str) {
    // What stands before the first table belongs to [broker].
    let (broker, rest) = config.split_at(config.find('[').unwrap_or(config.len()));
    let text = format!(
        "[broker]\nname = \"A\"\n{broker}\n[[listener]]\nprotocol = \"amqp\"\naddress = \"127.0.0.1:0\"\n\
         [[queue]]\nname = \"q\"\n[[queue]]\nname = \"w\"\n[[channel]]\nname = \"c\"\n{rest}"
    );
    std::fs::write(folder.join("broker.toml"), text).unwrap();
}

/// The command that serves what is in a folder.
pub(crate) fn serve(folder: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("--config").arg(folder.join("broker.toml"));
    command.arg("--data-dir").arg(folder.join("data"));
    command.env("POSTROAD_LOG", "info").stdin(Stdio::null());
    command
}

/// Serving must fail with 1; what it says.
#[track_caller]
pub(crate) fn refuses_to_serve(folder: &Path) -> String {
    fails(serve(folder), 1)
}

/// A command that must end with this code, and soon; what it says.
#[track_caller]
pub(crate) fn fails(mut command: Command, code: i32) -> String {
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = process.stderr.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        errors.read_to_string(&mut said).ok();
        // Nobody listens any more once it took too long.
        tell.send(said).ok();
    });
    let said = told.recv_timeout(PATIENCE);
    process.kill().ok();
    let status = process.wait().unwrap();
    let said = said.expect("it serves");
    assert_eq!(status.code(), Some(code), "{said}");
    said
}

/// A client that was there before anything went wrong, sends and receives, and goes on.
pub(crate) struct Witness {
    peer: Peer,
    sent: u32,
}

impl Witness {
    fn new(broker: &Broker) -> Self {
        let mut peer = broker.open();
        peer.begin(0);
        peer.attach_sender(0, "w");
        peer.attach_receiver(1, "w", 0);
        Self { peer, sent: 0 }
    }

    /// A message goes to the broker and comes back, on the same links as ever.
    #[track_caller]
    pub(crate) fn goes_on(&mut self) {
        let body = format!("witness {}", self.sent);
        if self.sent.is_multiple_of(500) {
            // Credit and window for the next ones.
            let next_incoming_id = Some(self.sent);
            self.peer.put(0, &Flow { next_incoming_id, ..flow(1, self.sent, 1_000) });
        }
        self.peer.send(0, self.sent, &body);
        let (mut accepted, mut came) = (false, false);
        while !(accepted && came) {
            match self.peer.next_but_flow() {
                (Performative::Disposition(_), _) => accepted = true,
                (Performative::Transfer(transfer), payload) => {
                    assert!(payload.ends_with(body.as_bytes()));
                    self.peer.accept(transfer.delivery_id.unwrap());
                    came = true;
                }
                other => panic!("the witness was disturbed: {other:?}"),
            }
        }
        self.sent += 1;
    }
}
