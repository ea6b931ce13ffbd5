//! The project's commands: `cargo xtask COMMAND`.
//!
//! `verify` never writes to the tree and `fix` does, so that you always know which one you are running. `ci` is what
//! the build server runs and what the README names as the test command.
//!
//! What is here: starting other programs (cargo, pytest, npm, mvn, go), counting their tests, and the rules of the
//! house that no linter knows (`tidy`). What is not here: anything of the broker itself.
#![allow(clippy::print_stdout, reason = "a command talks to its user on standard output")]

mod bench;
mod fuzz;
mod instructions;
mod interop;
mod report;
mod run;
mod rust;
mod sim;
mod soak;
mod tidy;
mod workspace;

use std::process::ExitCode;

use report::Report;
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  verify            fmt --check, clippy, tidy, cargo test: fast, needs cargo only, writes nothing
  fix               fmt, and what clippy can mend by itself
  tidy              the rules of the house that no linter knows
  deny              licences, bans and sources of all dependencies (installs cargo-deny when it is missing)
  interop [SUITE]…  the built broker under real clients: python, node, go, java; all of them by default
  fuzz TARGET [--seconds N]
                    one target of fuzz/ for a minute, or N seconds (needs a nightly toolchain)
  soak kill [--rounds N] [--seed N] [--backlog N] [--release]
                    the broker killed again and again under load; 50 rounds by default
  sim [--seed N] [--operations N] [--runs N]
                    the simulator: random histories with crashes, every promise checked at every step
  bench [compare] [--quick] [--data-dir DIR] [--only LINE]…
                    every line of docs/benchmarks.md in one run; with `compare` beside Artemis and RabbitMQ
  instructions [--bless]
                    instructions of the hot paths against crates/bench/instructions.toml (needs valgrind)
  ci                verify, deny, instructions, interop and ten rounds of soak kill
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match dispatch(command, rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure::Usage(text)) => {
            eprint!("{text}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Stopped(text)) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Why a command ended before it could tell what passed and what failed.
enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// Something that the command needs could not be started, read or written.
    Stopped(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Stopped(text)
    }
}

/// Runs one command; true if everything in it passed.
fn dispatch(command: &str, rest: &[String]) -> Result<bool, Failure> {
    if !rest.is_empty() && !matches!(command, "bench" | "instructions" | "interop" | "fuzz" | "sim" | "soak")
    {
        return Err(Failure::Usage(format!("`{command}` takes no arguments")));
    }
    let workspace = Workspace::find()?;
    match command {
        "fix" => return Ok(rust::fix(&workspace)?),
        "bench" => return Ok(bench::run(&workspace, rest)?),
        "sim" => return Ok(sim::run(rest)?),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return Ok(true);
        }
        _ => {}
    }
    let mut report = Report::new(&workspace, command)?;
    match command {
        "verify" => rust::verify(&workspace, &mut report)?,
        "tidy" => report.step("tidy", tidy::run(&workspace)?),
        "deny" => rust::deny(&workspace, &mut report)?,
        "fuzz" => fuzz::run(&workspace, rest, &mut report)?,
        "instructions" => instructions::run(&workspace, rest, &mut report)?,
        "interop" => interop::run(&workspace, rest, &mut report)?,
        "soak" => soak::run(&workspace, rest, &mut report)?,
        "ci" => {
            rust::verify(&workspace, &mut report)?;
            rust::deny(&workspace, &mut report)?;
            instructions::run(&workspace, &[], &mut report)?;
            interop::run(&workspace, &[], &mut report)?;
            soak::ci(&workspace, &mut report)?;
        }
        other => return Err(Failure::Usage(format!("there is no command `{other}`"))),
    }
    Ok(report.finish()?)
}
