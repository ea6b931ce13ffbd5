//! The simulator: `cargo xtask sim [--seed N] [--operations N] [--runs N] …`, built for speed.

use std::process::Command;

use crate::run::status;

/// Runs the simulator with these arguments; true if no promise was broken.
pub(crate) fn run(arguments: &[String]) -> Result<bool, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| String::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--package", "postroad-sim", "--"]).args(arguments);
    status(&mut command)
}
