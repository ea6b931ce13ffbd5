//! Where peers come from: the settings of each stand in `xtask/peers`, its programs lie under `target/bench/peers`.

use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use super::artemis::Artemis;
use super::rabbitmq::RabbitMq;
use super::servers::Server;
use crate::run;
use crate::workspace::{Workspace, read_toml};

/// The settings of a peer.
pub(crate) struct Settings(pub(crate) Table);

impl Settings {
    /// A text.
    pub(crate) fn text(&self, key: &str) -> Result<&str, String> {
        self.0.get(key).and_then(Value::as_str).ok_or_else(|| format!("a peer's settings lack `{key}`"))
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&str>, String> {
        let list = self.0.get(key).and_then(Value::as_array);
        let texts = list.and_then(|list| list.iter().map(Value::as_str).collect());
        texts.ok_or_else(|| format!("a peer's settings lack the list `{key}`"))
    }
}

/// All peers that can be had; of one that can't be, why.
pub(crate) fn install(workspace: &Workspace) -> Result<Vec<Box<dyn Server>>, String> {
    let folder = workspace.output().join("bench").join("peers");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let settings = |name: &str| read_toml(&workspace.root().join("xtask").join("peers").join(name));
    let mut peers: Vec<Box<dyn Server>> = Vec::new();
    match Artemis::install(settings("artemis.toml")?, &folder) {
        Ok(artemis) => peers.push(Box::new(artemis)),
        Err(error) => println!("Artemis is left out: {error}"),
    }
    match RabbitMq::install(settings("rabbitmq.toml")?, &folder) {
        Ok(rabbitmq) => peers.push(Box::new(rabbitmq)),
        Err(error) => println!("RabbitMQ is left out: {error}"),
    }
    Ok(peers)
}

/// Downloads Debian packages and unpacks them into `folder`, unless it is there. Nothing is installed.
pub(crate) fn unpack_packages(packages: &[&str], folder: &Path) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    // It gets its name when it is whole.
    let part = folder.with_extension("part");
    if part.exists() {
        std::fs::remove_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    }
    std::fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    let download = || run::status(Command::new("apt-get").arg("download").args(packages).current_dir(&part));
    // A machine that has never looked, or not for long, knows no package, or an old one.
    if !download()? {
        run::must(Command::new("apt-get").args(["update", "--quiet"]))?;
        if !download()? {
            return Err(format!("Debian's packages could not be downloaded: {}", packages.join(" ")));
        }
    }
    let entries = std::fs::read_dir(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    for archive in entries.flatten().map(|entry| entry.path()) {
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run::must(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&part))?;
            std::fs::remove_file(&archive).map_err(|e| format!("{}: {e}", archive.display()))?;
        }
    }
    std::fs::rename(&part, folder).map_err(|e| format!("{}: {e}", folder.display()))
}
