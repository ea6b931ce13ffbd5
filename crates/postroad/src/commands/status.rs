//! `postroad status`.

use super::api::{ApiArgs, Path};
use super::failure::Outcome;
use super::print;
use clap::Args;

/// Show what a broker is and does
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad status
  postroad status --url http://broker-2:8161 --json")]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    api: ApiArgs,
}

impl StatusCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let api = self.api.connect()?;
        let status = api.get(&Path::of("status"))?;
        if api.json {
            return print::json(&status);
        }
        print::resource(&status, &["name", "version", "uptime_seconds", "connections"])
    }
}
