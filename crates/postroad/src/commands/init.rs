//! `postroad init`: a commented production configuration to begin with.

use super::failure::{Failure, Outcome};
use super::print;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a commented production configuration
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad init
  postroad init /etc/postroad.toml
  postroad init - | less")]
pub(crate) struct InitCommand {
    /// Where to; - for standard output
    #[arg(default_value = "postroad.toml", value_name = "FILE")]
    file: PathBuf,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
}

impl InitCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let text = postroad_config::example();
        if self.file.as_os_str() == "-" {
            return print::line(text.trim_end());
        }
        self.write(text).map_err(|error| unwritable(&self.file, &error))?;
        let file = self.file.display();
        print::line(&format!(
            "{file} written: edit it, then 'postroad check {file}', then 'postroad serve --config {file}'"
        ))
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).truncate(true);
        if self.force {
            options.create(true)
        } else {
            options.create_new(true)
        };
        options.open(&self.file)?.write_all(text.as_bytes())
    }
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    let file = file.display();
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        return Failure::failed(format!("{file} exists"))
            .with_advice("overwrite it with --force, or name another file");
    }
    Failure::failed(format!("{file} can't be written: {error}"))
        .with_advice("check the folder and who may write there")
}
