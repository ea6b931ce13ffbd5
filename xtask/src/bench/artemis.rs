//! Apache ActiveMQ Artemis: its binary distribution from Maven, under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

use super::peers::{Settings, unpack_packages};
use super::process::{Process, free_port};
use super::servers::{Running, Server};
use crate::run;

/// An unpacked Artemis.
pub(crate) struct Artemis {
    settings: Settings,
    version: String,
    /// The unpacked distribution.
    home: PathBuf,
    /// The folder with libaio.
    libraries: PathBuf,
}

impl Artemis {
    /// Fetches it, unless it is there.
    pub(crate) fn install(settings: Table, folder: &Path) -> Result<Self, String> {
        let settings = Settings(settings);
        let version = settings.text("version")?.to_owned();
        let home = folder.join(format!("apache-artemis-{version}"));
        if !home.is_dir() {
            let archive = format!("apache-artemis-{version}-bin.tar.gz");
            let artifact = format!("-Dartifact={}:{version}:tar.gz:bin", settings.text("artifact")?);
            let mut fetch = Command::new("mvn");
            fetch.args(["--batch-mode", "--quiet", "dependency:copy", &artifact]).current_dir(folder);
            run::must(fetch.arg(format!("-DoutputDirectory={}", folder.display())))?;
            run::must(Command::new("tar").args(["-xzf", &archive]).current_dir(folder))?;
        }
        let aio = folder.join("libaio");
        unpack_packages(&[settings.text("libaio")?], &aio)?;
        let libraries = aio.join("usr").join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        Ok(Self { settings, version, home, libraries })
    }

    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.libraries).env_remove("JAVA_ARGS");
        command
    }

    /// Makes the folder of a broker; its port is kept in a file beside it.
    fn create(&self, instance: &Path, port_file: &Path) -> Result<(), String> {
        let port = free_port()?.to_string();
        let mut create = self.command(self.home.join("bin").join("artemis"));
        create.arg("create");
        for option in self.settings.texts("create")? {
            create.arg(option.replace("PORT", &port));
        }
        // It says at length what can be done next.
        run::output(create.arg(instance))?;
        let properties = instance.join("etc").join("bench.properties");
        std::fs::write(&properties, self.settings.text("properties")?)
            .map_err(|e| format!("{}: {e}", properties.display()))?;
        std::fs::write(port_file, port).map_err(|e| format!("{}: {e}", port_file.display()))
    }
}

impl Server for Artemis {
    fn name(&self) -> &'static str {
        "Artemis"
    }

    fn version(&self) -> String {
        // Java tells its version on standard error.
        let java = Command::new("java").arg("-version").output();
        let java =
            java.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
        format!("{} on {}", self.version, java.lines().next().unwrap_or("an unknown Java"))
    }

    fn start(&self, data: &Path) -> Result<Running, String> {
        let (instance, port_file) = (data.join("artemis"), data.join("port"));
        if !instance.is_dir() {
            self.create(&instance, &port_file)?;
        }
        let port =
            std::fs::read_to_string(&port_file).map_err(|e| format!("{}: {e}", port_file.display()))?;
        let port = port.parse().map_err(|e| format!("{}: {e}", port_file.display()))?;
        let mut command = self.command(instance.join("bin").join("artemis"));
        command.args(["run", "--properties"]).arg(instance.join("etc").join("bench.properties"));
        let mut running = Running::plain(Process::start("artemis", &mut command, data)?, port)?;
        self.settings.text("queue")?.clone_into(&mut running.queue);
        self.settings.text("topic")?.clone_into(&mut running.topic);
        Ok(running)
    }
}
