//! What is measured: the limit programs and Postroad. Peers are in `artemis` and `rabbitmq`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{Process, free_port, signal};
use crate::run;

/// How long a server may take until it answers: a broker may have millions of messages to read.
pub(crate) const START: Duration = Duration::from_secs(1_800);

/// A program that can be put under load.
pub(crate) trait Server {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Its version, and what else decides how fast it is.
    fn version(&self) -> String;

    /// Starts it with what it keeps in `data`, which is there: empty, or as an earlier start left it.
    fn start(&self, data: &Path) -> Result<Running, String>;
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Running {
    /// The process that was started: the server, or what started it.
    pub(crate) process: Process,
    /// Another process that it needs.
    pub(crate) helper: Option<Process>,
    /// The server's own process id.
    pub(crate) pid: u32,
    /// Where it listens.
    pub(crate) port: u16,
    /// Where operators' commands go, for Postroad.
    pub(crate) http: Option<u16>,
    /// User and password, where it wants them.
    pub(crate) login: Option<&'static str>,
    /// Address of the queue.
    pub(crate) queue: String,
    /// Address of the topic.
    pub(crate) topic: String,
    /// Options that the load program needs with it.
    pub(crate) load: Vec<String>,
    /// From its start until it answered.
    pub(crate) started_in: Duration,
}

impl Running {
    /// A server that is one process of ours and wants no login.
    pub(crate) fn plain(mut process: Process, port: u16) -> Result<Self, String> {
        let started_in = process.wait_for_amqp(port, START)?;
        let (pid, topic) = (process.id(), "news".to_owned());
        let (queue, load) = ("bench".to_owned(), Vec::new());
        Ok(Self { process, helper: None, pid, port, http: None, login: None, queue, topic, load, started_in })
    }

    /// The address of its listener.
    pub(crate) fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port)
    }

    /// Ends it in order.
    pub(crate) fn stop(self) -> Result<(), String> {
        let stopped = self.process.stop();
        drop(self.helper);
        stopped
    }

    /// Kills it.
    pub(crate) fn kill(self) {
        signal(self.pid, Signal::KILL);
        // Whoever started it ends with it, and only then what it needed.
        drop(self.process);
        drop(self.helper);
    }
}

/// The programs of this workspace, built for release.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// `postroad`.
    pub(crate) postroad: PathBuf,
    /// `postroad-limits`.
    pub(crate) limits: PathBuf,
    /// The folder with the settings of the brokers.
    pub(crate) settings: PathBuf,
}

/// A limit program that takes connections.
pub(crate) struct Limit {
    pub(crate) programs: Programs,
    /// Whether it appends and syncs what it passes on.
    pub(crate) joined: bool,
}

impl Server for Limit {
    fn name(&self) -> &'static str {
        if self.joined { "joined" } else { "forwarder" }
    }

    fn version(&self) -> String {
        String::from("of this commit")
    }

    fn start(&self, data: &Path) -> Result<Running, String> {
        let port = free_port()?;
        let mut command = Command::new(&self.programs.limits);
        command.args([self.name(), "--listen", &format!("127.0.0.1:{port}")]);
        if self.joined {
            command.arg("--data-dir").arg(data.join("journal"));
        }
        Running::plain(Process::start(self.name(), &mut command, data)?, port)
    }
}

/// The broker.
pub(crate) struct Postroad {
    pub(crate) programs: Programs,
}

impl Server for Postroad {
    fn name(&self) -> &'static str {
        "Postroad"
    }

    fn version(&self) -> String {
        let version = run::output(Command::new(&self.programs.postroad).arg("--version"));
        version.map_or_else(|error| error, |version| version.trim().to_owned())
    }

    fn start(&self, data: &Path) -> Result<Running, String> {
        let (amqp, http) = (free_port()?, free_port()?);
        let template = self.programs.settings.join("postroad.toml");
        let text = std::fs::read_to_string(&template).map_err(|e| format!("{}: {e}", template.display()))?;
        let text = text
            .replace("\"DATA\"", &format!("{:?}", data.join("data").display().to_string()))
            .replace("\"AMQP\"", &format!("\"127.0.0.1:{amqp}\""))
            .replace("\"HTTP\"", &format!("\"127.0.0.1:{http}\""));
        let config = data.join("postroad.toml");
        std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let mut command = Command::new(&self.programs.postroad);
        command.args(["serve", "--config"]).arg(&config).env_remove("POSTROAD_LOG");
        let mut running = Running::plain(Process::start("postroad", &mut command, data)?, amqp)?;
        running.http = Some(http);
        Ok(running)
    }
}
