//! Fuzzing: one target of `fuzz/`, for a time.
//!
//! What the fuzzer finds on its way is kept under `target/fuzz`, so that the next run goes on from there; the committed
//! seeds in `fuzz/corpus` are only read. An input that breaks a target lies in `fuzz/artifacts` afterwards.

use std::path::Path;
use std::process::Command;

use crate::report::Report;
use crate::run;
use crate::workspace::Workspace;

/// The release of cargo-fuzz that is installed when none is there.
const CARGO_FUZZ: &str = "0.13.2";

const DEFAULT_SECONDS: u64 = 60;

/// What the fuzzer is held to: an input that takes longer, or more memory, or asks for so much at once, is a finding.
const LIMITS: [&str; 5] =
    ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-max_len=8192", "-len_control=0"];

/// Runs `TARGET [--seconds N]`; an input that breaks the target fails the command.
pub(crate) fn run(workspace: &Workspace, arguments: &[String], report: &mut Report) -> Result<(), String> {
    let (target, seconds) = read_arguments(arguments)?;
    let folder = workspace.root().join("fuzz");
    if !folder.join("fuzz_targets").join(format!("{target}.rs")).is_file() {
        return Err(format!("there is no fuzz target `{target}`; they are in fuzz/fuzz_targets"));
    }
    if !run::answers("cargo", &["fuzz", "--version"]) {
        let install = ["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--quiet"];
        run::must(Command::new("cargo").args(install).env_remove("CARGO_TARGET_DIR"))?;
    }
    let found = workspace.output().join("fuzz").join(target);
    std::fs::create_dir_all(&found).map_err(|e| format!("{}: {e}", found.display()))?;
    let mut command = Command::new("cargo");
    // Cargo builds for the compiler that runs it: this command's own one would win over `+nightly`.
    command.current_dir(workspace.root()).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command.args(["+nightly", "fuzz", "run", target]).arg(&found);
    let seeds = folder.join("corpus").join(target);
    command.args(Some(seeds.as_path()).filter(|seeds| seeds.is_dir())).arg("--").args(LIMITS);
    command.arg(format!("-max_total_time={seconds}")).args(dictionary(&folder, target));
    report.step(&format!("fuzz {target}"), run::status(&mut command)?);
    Ok(())
}

fn read_arguments(arguments: &[String]) -> Result<(&str, u64), String> {
    let wrong = || "say `cargo xtask fuzz TARGET [--seconds N]`".to_owned();
    match arguments {
        [target] => Ok((target, DEFAULT_SECONDS)),
        [target, flag, seconds] if flag == "--seconds" => Ok((target, seconds.parse().map_err(|_| wrong())?)),
        _ => Err(wrong()),
    }
}

/// The words of the target's language, if it has one.
fn dictionary(folder: &Path, target: &str) -> Option<String> {
    let words = folder.join("dictionaries").join(format!("{target}.dict"));
    words.is_file().then(|| format!("-dict={}", words.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            read_arguments(&words).map(|(target, seconds)| (target.to_owned(), seconds))
        };
        assert_eq!(read(&["selector"]), Ok(("selector".to_owned(), DEFAULT_SECONDS)));
        assert_eq!(read(&["selector", "--seconds", "5"]), Ok(("selector".to_owned(), 5)));
        assert!(read(&[]).is_err());
        assert!(read(&["selector", "--seconds", "x"]).is_err());
        assert!(read(&["selector", "5"]).is_err());
    }
}
