//! Benchmarks: every line of docs/benchmarks.md in one run, so that figures can be divided by each other. `compare` runs
//! peers beside Postroad.
//!
//! Each program is started for each line with an empty folder, alone on the machine but for the load program, and ended
//! before the next one starts.

mod artemis;
mod disk;
mod joins;
mod lines;
mod load;
mod peers;
mod process;
mod rabbitmq;
mod servers;
mod stores;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::run;
use crate::workspace::Workspace;
use servers::{Limit, Postroad, Programs, Running, Server};
use table::Row;

const USAGE: &str = "say `cargo xtask bench [compare] [--quick] [--data-dir DIR] [--only LINE]…`";

/// The lines that are not of the load program.
const OTHER_LINES: [&str; 2] = ["joins", "store"];

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    compare: bool,
    quick: bool,
    data_dir: Option<PathBuf>,
    /// Only these lines; all if there are none.
    only: Vec<String>,
}

/// One of the programs that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The limit that only copies frames.
    Forwarder,
    /// The limit that stores them too.
    Joined,
    /// The broker.
    Postroad,
    /// The peer of this number.
    Peer(usize),
}

/// Everything that a line needs.
pub(crate) struct Bench {
    pub(crate) programs: Programs,
    pub(crate) peers: Vec<Box<dyn Server>>,
    forwarder: Limit,
    joined: Limit,
    postroad: Postroad,
    /// Where programs keep their data, each in a folder of its own.
    data: PathBuf,
    quick: bool,
}

/// `bench [compare] …`: measures, prints the table, and writes it to `target/bench`.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let output = workspace.output().join("bench");
    let data = options
        .data_dir
        .clone()
        .unwrap_or_else(|| output.clone())
        .join(format!("data-{}", std::process::id()));
    std::fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    let result = disk::refuse_memory(&data).and_then(|kind| measure(workspace, &options, &data, &kind));
    // What failed is worth more than the data it left.
    let removed = std::fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()));
    let (rows, about, brokers) = result?;
    removed?;
    println!("\n{}", table::markdown(&rows, &brokers));
    let file = output.join(if options.compare { "compare.json" } else { "bench.json" });
    std::fs::create_dir_all(&output).map_err(|e| format!("{}: {e}", output.display()))?;
    std::fs::write(&file, format!("{:#}\n", table::json(&rows, &about)))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    println!("\n{}", file.display());
    Ok(true)
}

type Measured = (Vec<Row>, serde_json::Value, Vec<&'static str>);

fn measure(workspace: &Workspace, options: &Options, data: &Path, kind: &str) -> Result<Measured, String> {
    let programs = build(workspace)?;
    let seconds = if options.quick { 1 } else { 5 };
    let disk = disk::measure(&programs.limits, data, seconds)?;
    println!(
        "disk: {kind}; write and sync of 1 KiB p50 {:.0} us, p99 {:.0} us; {}/s at 500 a sync",
        disk.sync_us,
        disk.sync_p99_us,
        table::count(disk.messages_per_second)
    );
    raise_open_files();
    let peers = if options.compare { peers::install(workspace)? } else { Vec::new() };
    let bench = Bench {
        forwarder: Limit { programs: programs.clone(), joined: false },
        joined: Limit { programs: programs.clone(), joined: true },
        postroad: Postroad { programs: programs.clone() },
        programs,
        peers,
        data: data.to_owned(),
        quick: options.quick,
    };
    let mut brokers = vec![&bench.postroad as &dyn Server];
    brokers.extend(bench.peers.iter().map(AsRef::as_ref));
    let versions: Vec<_> = brokers.iter().map(|broker| (broker.name(), broker.version())).collect();
    for (name, version) in &versions {
        println!("{name}: {version}");
    }
    let rows = bench.rows(options, &disk)?;
    let about = json!({
        "versions": versions.into_iter().collect::<std::collections::BTreeMap<_, _>>(), "quick": options.quick,
        "file_system": kind, "sync_us": disk.sync_us, "sync_p99_us": disk.sync_p99_us, "writer": disk.reports,
    });
    Ok((rows, about, brokers.iter().map(|broker| broker.name()).collect()))
}

fn build(workspace: &Workspace) -> Result<Programs, String> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--package", "postroad", "--package", "postroad-bench"]);
    run::must(build.args(["--locked", "--quiet"]).current_dir(workspace.root()))?;
    let release = workspace.cargo_target().join("release");
    Ok(Programs {
        postroad: release.join("postroad"),
        limits: release.join("postroad-limits"),
        settings: workspace.root().join("xtask").join("peers"),
    })
}

/// A connection is an open file at both of its ends; what is started here inherits the limit.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it can't be raised the line with many connections says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match argument {
                "compare" => options.compare = true,
                "--quick" => options.quick = true,
                "--data-dir" => options.data_dir = Some(arguments.next().ok_or(USAGE)?.into()),
                "--only" => options.only.push(arguments.next().ok_or(USAGE)?.to_owned()),
                _ => return Err(USAGE.to_owned()),
            }
        }
        let known: Vec<&str> = lines::LINES.iter().map(|line| line.id).chain(OTHER_LINES).collect();
        match options.only.iter().find(|id| !known.contains(&id.as_str())) {
            Some(unknown) => Err(format!("there is no line `{unknown}`; there are {}", known.join(", "))),
            None => Ok(options),
        }
    }

    fn wants(&self, line: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|id| id == line)
    }
}

impl Bench {
    fn rows(&self, options: &Options, disk: &disk::Disk) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        for line in lines::LINES.iter().filter(|line| options.wants(line.id)) {
            rows.push(line.measure(self, disk)?);
        }
        if options.wants("joins") {
            rows.push(joins::measure(self)?);
        }
        if options.wants("store") {
            rows.extend(stores::measure(self)?);
        }
        Ok(rows)
    }

    /// The program in this role.
    pub(crate) fn server(&self, role: Role) -> &dyn Server {
        match role {
            Role::Forwarder => &self.forwarder,
            Role::Joined => &self.joined,
            Role::Postroad => &self.postroad,
            Role::Peer(number) => self.peers[number].as_ref(),
        }
    }

    /// How long a program is warmed up, and measured. Peers compile while they run.
    pub(crate) fn times(&self, role: Role) -> (Duration, Duration) {
        let seconds = match (self.quick, role) {
            (true, _) => (1, 2),
            (false, Role::Peer(_)) => (10, 10),
            (false, _) => (2, 10),
        };
        (Duration::from_secs(seconds.0), Duration::from_secs(seconds.1))
    }

    /// Messages of the line with joins.
    pub(crate) fn joined_messages(&self) -> u64 {
        if self.quick { 20_000 } else { 1_000_000 }
    }

    /// Messages of the long backlog.
    pub(crate) fn backlog(&self) -> u64 {
        if self.quick { 100_000 } else { 10_000_000 }
    }

    /// Idle connections.
    pub(crate) fn idle_connections(&self) -> u32 {
        if self.quick { 100 } else { 5_000 }
    }

    /// An empty folder for a program.
    pub(crate) fn folder(&self, server: &dyn Server) -> Result<PathBuf, String> {
        let folder = self.data.join(server.name());
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(folder)
    }

    /// Removes a program's folder.
    pub(crate) fn remove(&self, folder: &Path) -> Result<(), String> {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// Does something with a freshly started program, and ends it. The outer error stops everything, the inner one is what
    /// the program could not do.
    pub(crate) fn with<T>(
        &self,
        server: &dyn Server,
        work: impl FnOnce(&Running) -> Result<T, String>,
    ) -> Result<Result<T, String>, String> {
        let folder = self.folder(server)?;
        let done = match server.start(&folder) {
            Err(error) => Err(error),
            Ok(running) => {
                let done = work(&running);
                running.kill();
                done
            }
        };
        self.remove(&folder)?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let read = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            Options::read(&words)
        };
        assert_eq!(read(""), Ok(Options::default()));
        let all = read("compare --quick --data-dir d --only store --only settled").unwrap();
        assert!(
            all.compare && all.quick && all.wants("store") && all.wants("settled") && !all.wants("joins")
        );
        assert_eq!(all.data_dir, Some(PathBuf::from("d")));
        assert!(
            read("--only nothing").unwrap_err().contains("there is no line `nothing`; there are settled")
        );
        assert!(read("--data-dir").is_err() && read("fast").is_err());
    }
}
