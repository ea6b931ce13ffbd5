//! RabbitMQ: Debian's packages of it and of Erlang, under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

use super::peers::{Settings, unpack_packages};
use super::process::{Process, free_port};
use super::servers::{Running, START, Server};

/// An unpacked RabbitMQ.
pub(crate) struct RabbitMq {
    settings: Settings,
    /// `rabbitmq_server-VERSION`.
    home: PathBuf,
    /// Programs of Erlang, `erl` with its place put right.
    programs: PathBuf,
    /// Erlang's own programs.
    erlang: PathBuf,
}

impl RabbitMq {
    /// Fetches and unpacks it, unless it is there.
    pub(crate) fn install(settings: Table, folder: &Path) -> Result<Self, String> {
        let settings = Settings(settings);
        let root = folder.join("rabbitmq");
        unpack_packages(&settings.texts("packages")?, &root)?;
        let lib = root.join("usr").join("lib");
        let home = only_entry(&lib.join("rabbitmq").join("lib"), "rabbitmq_server-")?;
        let erlang = lib.join("erlang");
        let programs = folder.join("rabbitmq-programs");
        std::fs::create_dir_all(&programs).map_err(|e| format!("{}: {e}", programs.display()))?;
        let original = erlang.join("bin").join("erl");
        let script =
            std::fs::read_to_string(&original).map_err(|e| format!("{}: {e}", original.display()))?;
        let script = script.replace("=/usr/lib/erlang", &format!("=\"{}\"", erlang.display()));
        // Copied first, so that it may be run like the original.
        let moved = programs.join("erl");
        std::fs::copy(&original, &moved).map_err(|e| format!("{}: {e}", moved.display()))?;
        std::fs::write(&moved, script).map_err(|e| format!("{}: {e}", moved.display()))?;
        let erlang = only_entry(&erlang, "erts-")?.join("bin");
        Ok(Self { settings, home, programs, erlang })
    }

    /// Writes the settings for a start.
    fn configure(&self, data: &Path, port: u16) -> Result<(), String> {
        let config = self.settings.text("config")?;
        let config = config.replace("PORT", &port.to_string()).replace("FOLDER", &data.display().to_string());
        let plugins = self.settings.text("plugins")?.to_owned();
        let definitions = self.settings.text("definitions")?.to_owned();
        let files =
            [("rabbitmq.conf", config), ("enabled_plugins", plugins), ("definitions.json", definitions)];
        for (name, text) in files {
            let file = data.join(name);
            std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(())
    }

    /// The environment of the broker and of the port mapper that it needs.
    fn environment(&self, command: &mut Command, data: &Path, mapper: u16) -> Result<(), String> {
        let paths = [self.programs.clone(), self.erlang.clone()].into_iter();
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::join_paths(paths.chain(std::env::split_paths(&inherited)));
        command.env("PATH", paths.map_err(|e| format!("a folder's name can't be used: {e}"))?);
        command.env("ERL_EPMD_PORT", mapper.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODENAME", "bench@localhost").env("RABBITMQ_LOGS", "-");
        command.env("RABBITMQ_DIST_PORT", free_port()?.to_string());
        command.env("HOME", data).env("RABBITMQ_LOG_BASE", data).env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        command.env("RABBITMQ_MNESIA_BASE", data.join("data"));
        command.env("RABBITMQ_CONFIG_FILE", data.join("rabbitmq.conf"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", data.join("enabled_plugins"));
        command.env("RABBITMQ_PID_FILE", data.join("pid"));
        Ok(())
    }
}

impl Server for RabbitMq {
    fn name(&self) -> &'static str {
        "RabbitMQ"
    }

    fn version(&self) -> String {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let erlang = self.erlang.parent().map_or_else(String::new, name);
        format!("{} on {erlang}", name(&self.home).trim_start_matches("rabbitmq_server-"))
    }

    fn start(&self, data: &Path) -> Result<Running, String> {
        let (port, mapper_port) = (free_port()?, free_port()?);
        self.configure(data, port)?;
        let mut mapper = Command::new(self.erlang.join("epmd"));
        self.environment(&mut mapper, data, mapper_port)?;
        let mapper = Process::start("epmd", &mut mapper, data)?;
        let mut command = Command::new(self.home.join("sbin").join("rabbitmq-server"));
        self.environment(&mut command, data, mapper_port)?;
        let mut process = Process::start("rabbitmq", &mut command, data)?;
        let started_in = process.wait_for_amqp(port, START)?;
        // The process that was started is a shell; the broker tells its own id.
        let file = data.join("pid");
        let pid = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(Running {
            process,
            helper: Some(mapper),
            pid: pid.trim().parse().map_err(|e| format!("{}: {e}", file.display()))?,
            port,
            http: None,
            login: Some("guest"),
            queue: self.settings.text("queue")?.to_owned(),
            topic: self.settings.text("topic")?.to_owned(),
            load: self.settings.texts("load")?.into_iter().map(str::to_owned).collect(),
            started_in,
        })
    }
}

/// The entry of a folder whose name begins like this; packages put a version behind it.
fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = entries.flatten().map(|entry| entry.path());
    let matches = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    };
    found.find(matches).ok_or_else(|| format!("{} holds no {prefix}...", folder.display()))
}
