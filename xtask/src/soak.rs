//! Soaks: the built broker under load while things are done to it that must not matter.

use std::process::Command;

use crate::report::{Report, Runner};
use crate::run;
use crate::workspace::Workspace;

/// What `ci` runs: few rounds, and always the same seeds.
const IN_CI: [[&str; 5]; 2] =
    [["kill", "--rounds", "5", "--seed", "1"], ["kill", "--rounds", "5", "--seed", "2"]];

/// `soak kill [--rounds N] [--seed N] [--backlog N] [--keep-data] [--release]`: builds the broker and the program that soaks it, and
/// hands the arguments on to that.
pub(crate) fn run(workspace: &Workspace, arguments: &[String], report: &mut Report) -> Result<(), String> {
    let release = arguments.iter().any(|argument| argument == "--release");
    build(workspace, release)?;
    let arguments = arguments.iter().map(String::as_str).filter(|argument| *argument != "--release");
    soak(workspace, release, arguments, report)
}

/// The soaks of the build server.
pub(crate) fn ci(workspace: &Workspace, report: &mut Report) -> Result<(), String> {
    build(workspace, false)?;
    IN_CI.into_iter().try_for_each(|arguments| soak(workspace, false, arguments.into_iter(), report))
}

fn build(workspace: &Workspace, release: bool) -> Result<(), String> {
    let mut build = Command::new("cargo");
    build.args(["build", "--package", "postroad", "--package", "postroad-soak", "--locked", "--quiet"]);
    build.args(release.then_some("--release")).current_dir(workspace.root());
    run::must(&mut build)
}

fn soak<'a>(
    workspace: &Workspace,
    release: bool,
    arguments: impl Iterator<Item = &'a str>,
    report: &mut Report,
) -> Result<(), String> {
    let programs = workspace.cargo_target().join(if release { "release" } else { "debug" });
    let mut command = Command::new(programs.join("postroad-soak"));
    command.args(arguments).arg("--broker").arg(programs.join("postroad"));
    command.arg("--dir").arg(workspace.output().join("soak"));
    report.suite("soak", Runner::Cargo, &mut command)
}
