//! The commands that need cargo only: `verify`, `fix` and `deny`.

use std::process::Command;

use crate::report::{Report, Runner};
use crate::workspace::Workspace;
use crate::{run, tidy};

/// The release of cargo-deny that `deny` installs when none is there.
const CARGO_DENY: &str = "0.20.2";

/// Formatting, lints, the rules of the house and all tests of the workspace. Writes nothing but build results.
pub(crate) fn verify(workspace: &Workspace, report: &mut Report) -> Result<(), String> {
    report.step("fmt", run::status(cargo(workspace).args(["fmt", "--all", "--check"]))?);
    report.step("tidy", tidy::run(workspace)?);
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    report.step("clippy", run::status(cargo(workspace).args(clippy))?);
    let test = ["test", "--workspace", "--locked", "--no-fail-fast", "--quiet"];
    report.suite("cargo test", Runner::Cargo, cargo(workspace).args(test))
}

/// Formats the tree and lets clippy mend what it can.
pub(crate) fn fix(workspace: &Workspace) -> Result<bool, String> {
    let mended = run::status(cargo(workspace).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
    ]))?;
    let formatted = run::status(cargo(workspace).args(["fmt", "--all"]))?;
    Ok(mended && formatted)
}

/// Licences, bans and sources by `deny.toml`. The advisory database is left out: it lives in a git repository that a
/// build machine cannot be expected to reach.
pub(crate) fn deny(workspace: &Workspace, report: &mut Report) -> Result<(), String> {
    if !run::answers("cargo", &["deny", "--version"]) {
        // A debug build does the same work here and is ready three times sooner.
        let install = ["install", "cargo-deny", "--version", CARGO_DENY, "--locked", "--debug", "--quiet"];
        run::must(Command::new("cargo").args(install).env_remove("CARGO_TARGET_DIR"))?;
    }
    let check = ["deny", "--workspace", "check", "bans", "licenses", "sources"];
    report.step("deny", run::status(cargo(workspace).args(check))?);
    Ok(())
}

fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    command
}
