//! How many instructions the hot paths take, compared with what they took before.
//!
//! `postroad-hot-paths` runs under callgrind, each path with two counts: what these differ by is the work itself. Unlike
//! times, instructions are the same on a busy machine. They do depend on the compiler, and a little on the processor
//! (the C library copies memory with what there is), hence the tolerance.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use toml::{Table, Value};

use crate::report::Report;
use crate::run;
use crate::workspace::{Workspace, read_toml};

/// Units of work of the two runs of each path: whole batches, and whole messages of the fan-out.
const COUNTS: [u32; 2] = [3_200, 9_600];

/// Per cent by which a path may change before somebody is told.
const TOLERANCE: f64 = 3.0;

/// What would make counts differ from run to run, turned off: the allocator giving memory back by the clock, and the C
/// library copying by one instruction that callgrind counts once a byte, where the processor has a fast one.
const STEADY: [(&str, &str); 2] = [
    ("_RJEM_MALLOC_CONF", "background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1"),
    (
        "GLIBC_TUNABLES",
        "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000",
    ),
];

const USAGE: &str = "say `cargo xtask instructions [--bless]`";

/// Instructions per unit of each path, by name.
type Figures = BTreeMap<String, u64>;

/// One path: its name, and what one unit of it is.
struct HotPath {
    name: String,
    unit: String,
}

/// `instructions [--bless]`: compares with the figures in the repository, or writes them.
pub(crate) fn run(workspace: &Workspace, arguments: &[String], report: &mut Report) -> Result<(), String> {
    let bless = match arguments {
        [] => false,
        [flag] if flag == "--bless" => true,
        _ => return Err(USAGE.to_owned()),
    };
    let program = build(workspace)?;
    let paths = list(&program)?;
    let before = read(&file(workspace))?;
    println!("\ninstructions per unit; the figures in the repository are of {}", before.rustc);
    let mut now = Figures::new();
    for path in &paths {
        let count = count(&program, &path.name)?;
        let verdict = Verdict::of(before.figures.get(&path.name).copied(), count);
        println!("  {:<26}{count:>8}  {:<28}per {}", path.name, verdict.to_string(), path.unit);
        report.step(&path.name, bless || verdict.passes());
        now.insert(path.name.clone(), count);
    }
    for gone in before.figures.keys().filter(|name| !now.contains_key(*name)) {
        println!("  {gone}: there is no such path any more");
        report.step(gone, bless);
    }
    if bless {
        return write(&file(workspace), &paths, &now);
    }
    println!("`cargo xtask instructions --bless` writes new figures; say in the commit why they changed");
    Ok(())
}

fn file(workspace: &Workspace) -> PathBuf {
    workspace.root().join("crates").join("bench").join("instructions.toml")
}

fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    if !run::answers("valgrind", &["--version"]) {
        return Err(
            "valgrind is missing: install it (Debian: apt-get install valgrind), then try again".to_owned()
        );
    }
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--package", "postroad-bench", "--bin", "postroad-hot-paths"]);
    run::must(build.args(["--locked", "--quiet"]).current_dir(workspace.root()))?;
    Ok(workspace.cargo_target().join("release").join("postroad-hot-paths"))
}

fn list(program: &Path) -> Result<Vec<HotPath>, String> {
    let output = Command::new(program).output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = |line: &str| {
        let (name, unit) = line.split_once('\t')?;
        Some(HotPath { name: name.to_owned(), unit: unit.to_owned() })
    };
    let paths: Vec<_> = text.lines().filter_map(path).collect();
    if paths.is_empty() { Err(format!("{} lists no paths", program.display())) } else { Ok(paths) }
}

/// Instructions of one unit of a path.
fn count(program: &Path, path: &str) -> Result<u64, String> {
    let [few, many] = COUNTS;
    let (less, more) = (callgrind(program, path, few)?, callgrind(program, path, many)?);
    Ok(more.saturating_sub(less) / u64::from(many - few))
}

fn callgrind(program: &Path, path: &str, count: u32) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([path, &count.to_string()])
        // Variables lie on the stack of a process and move what lies behind them.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(STEADY)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("valgrind could not be started: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(collected).filter(|_| output.status.success());
    collected.ok_or_else(|| format!("callgrind could not count {path}:\n{said}"))
}

/// The total in callgrind's closing lines.
fn collected(line: &str) -> Option<u64> {
    line.split_once("Collected :")?.1.trim().parse().ok()
}

/// How a count compares with the figure in the repository.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// Within the tolerance, with the change in per cent.
    Same(f64),
    Longer(f64),
    Shorter(f64),
    New,
}

impl Verdict {
    fn of(before: Option<u64>, now: u64) -> Self {
        let Some(before) = before.filter(|before| *before > 0) else { return Self::New };
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
        let change = 100.0 * (now as f64 / before as f64 - 1.0);
        if change > TOLERANCE {
            Self::Longer(change)
        } else if change < -TOLERANCE {
            Self::Shorter(change)
        } else {
            Self::Same(change)
        }
    }

    fn passes(&self) -> bool {
        matches!(self, Self::Same(_) | Self::Shorter(_))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Same(change) => format!("{change:+.1} %"),
            Self::Longer(change) => format!("{change:+.1} % LONGER"),
            Self::Shorter(change) => format!("{change:+.1} % shorter: bless it"),
            Self::New => "NEW: bless it".to_owned(),
        };
        f.pad(&text)
    }
}

/// The figures in the repository, and the compiler that they are of.
struct Recorded {
    rustc: String,
    figures: Figures,
}

fn read(file: &Path) -> Result<Recorded, String> {
    if !file.exists() {
        return Ok(Recorded { rustc: "no compiler yet".to_owned(), figures: Figures::new() });
    }
    let mut table = read_toml(file)?;
    let paths = match table.remove("paths") {
        Some(Value::Table(paths)) => paths,
        _ => Table::new(),
    };
    let figure = |(name, value): (String, Value)| {
        let figure = value.as_integer().and_then(|figure| u64::try_from(figure).ok());
        figure
            .map(|figure| (name, figure))
            .ok_or_else(|| format!("{}: a figure is no number", file.display()))
    };
    let rustc = table.get("rustc").and_then(Value::as_str).unwrap_or("an unknown compiler").to_owned();
    Ok(Recorded { rustc, figures: paths.into_iter().map(figure).collect::<Result<_, _>>()? })
}

fn write(file: &Path, paths: &[HotPath], figures: &Figures) -> Result<(), String> {
    let mut text = String::from(
        "# Instructions of the hot paths, for each unit of work (crates/bench/src/hot_paths). `cargo xtask instructions` fails\n\
         # where one has become 3 % longer, and `cargo xtask instructions --bless` writes this file.\n",
    );
    let version = run::output(Command::new("rustc").arg("--version"))?;
    // Writing to a string does not fail.
    let _ = write!(text, "rustc = \"{}\"\n\n[paths]\n", version.trim());
    for path in paths {
        let _ = writeln!(
            text,
            "{} = {} # {}",
            path.name,
            figures.get(&path.name).copied().unwrap_or(0),
            path.unit
        );
    }
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_became_longer_fails() {
        let passes = |before, now| Verdict::of(before, now).passes();
        assert!(passes(Some(1_000), 1_029) && passes(Some(1_000), 971) && passes(Some(1_000), 500));
        assert!(!passes(Some(1_000), 1_031) && !passes(None, 1) && !passes(Some(0), 1));
        assert_eq!(Verdict::of(Some(100), 150).to_string(), "+50.0 % LONGER");
    }

    #[test]
    fn the_total_of_callgrind_is_found() {
        assert_eq!(collected("==5== Collected : 2497285"), Some(2_497_285));
        assert_eq!(collected("==5== Events    : Ir"), None);
    }
}
