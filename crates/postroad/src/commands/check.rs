//! `postroad check`: judges configuration files before a broker runs with them.

use super::failure::{Failure, Outcome};
use super::print;
use clap::Args;
use postroad_config::{Diagnostic, Options, Severity};
use std::path::PathBuf;

/// Look for errors in configuration files
///
/// Each finding has its file, line and column, what is wrong, and what to do. Exit code 1 if there are errors; warnings
/// alone are no failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad check postroad.toml
  postroad check --json sites/*.toml")]
pub(crate) struct CheckCommand {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Judge as 'serve --allow-open-remote' would
    #[arg(long)]
    allow_open_remote: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl CheckCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let options = Options { allow_open_remote: self.allow_open_remote, ..Options::default() };
        let reports = self.files.iter().map(|file| postroad_config::load(file, &options).1);
        let found: Vec<Diagnostic> = reports.flat_map(|report| report.diagnostics).collect();
        let errors = found.iter().filter(|finding| finding.severity == Severity::Error).count();
        if self.json {
            print::json(&serde_json::to_value(&found).unwrap_or_default())?;
        } else {
            for finding in &found {
                print::line(&format!("{finding}\n"))?;
            }
            let warnings = found.len() - errors;
            let counts = [(self.files.len(), "file"), (errors, "error"), (warnings, "warning")];
            print::line(&counts.map(|(count, word)| counted(count, word)).join(", "))?;
        }
        if errors == 0 { Ok(()) } else { Err(Failure::silent()) }
    }
}

fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}
