//! The command line as a whole: which commands there are, and what they have in common.

use crate::commands::clients::ClientCommand;
use crate::commands::demo::Demo;
use crate::commands::failure::{Failure, Outcome};
use crate::commands::operators::OperatorCommand;
use crate::commands::print;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use postroad_server::{EngineThread, ServeOptions};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

const ABOUT: &str = "Postroad, a federated message broker";

const AFTER_HELP: &str = "\
Environment:
  POSTROAD_URL       The broker: http://HOST[:8161] for operators' commands,
                     amqp://HOST[:5672] for clients' commands; each takes the
                     host of the other form, and its own port.
  POSTROAD_USER      The user to log in as, and
  POSTROAD_PASSWORD  the password, where the broker has users.
  POSTROAD_CONFIG    The configuration file of 'serve'.
  POSTROAD_LOG       What 'serve' logs: error, warn, info, debug or trace, also
                     by part: info,postroad_server=debug.

Exit codes: 0 done, 1 refused or failed, 2 bad usage, 3 broker not reached.

Examples:
  postroad serve                      a broker to try, on this machine only
  postroad channel create orders      a stored stream
  postroad join create orders audit   what arrives in orders goes to audit too
  postroad queue list --json          for programs";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "postroad", version, about = ABOUT, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(ServeCommand),
    #[command(flatten)]
    Operators(Box<OperatorCommand>),
    #[command(flatten)]
    Clients(Box<ClientCommand>),
    /// Start a small network of real brokers on free ports, run clients over it, and show what happened
    ///
    /// Example: postroad demo joins
    Demo {
        #[command(subcommand)]
        what: Demo,
    },
    /// Print a completion script for a shell
    ///
    /// Example for bash: postroad completions bash > /etc/bash_completion.d/postroad
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Run a broker until it is told to stop (SIGINT, SIGTERM)
///
/// Without a configuration file it listens on this machine only (AMQP 5672, HTTP 8161), lets everybody in, and makes
/// queues and channels when they are first used. For production, begin with 'postroad init'.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad serve
  postroad serve --config /etc/postroad.toml
  postroad serve --data-dir /var/lib/postroad")]
struct ServeCommand {
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "POSTROAD_CONFIG")]
    config: Option<PathBuf>,
    /// Where everything is stored that must survive a restart; overrides the configuration
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Let other machines connect without a login; for closed networks only
    #[arg(long)]
    allow_open_remote: bool,
    /// Where the engine runs, for measurements: on a thread of its own, or on the reactor's
    #[arg(long, value_name = "own|reactor", hide = true, value_parser = engine_thread)]
    engine_thread: Option<EngineThread>,
}

fn engine_thread(text: &str) -> Result<EngineThread, String> {
    match text {
        "own" => Ok(EngineThread::Own),
        "reactor" => Ok(EngineThread::Reactor),
        _ => Err("write own or reactor".to_owned()),
    }
}

impl Cli {
    /// Does what the command line says.
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Clients(command) => return command.run(),
            Command::Serve(serve) => serve.run(),
            Command::Operators(command) => command.run(),
            Command::Demo { what } => what.run().map_err(|error| Failure::failed(error.to_string())),
            Command::Completions { shell } => completions(shell),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        }
    }
}

impl ServeCommand {
    fn run(self) -> Outcome {
        start_logging(self.config.as_deref());
        let options = ServeOptions {
            config_file: self.config,
            data_dir: self.data_dir,
            allow_open_remote: self.allow_open_remote,
            engine_thread: self.engine_thread.unwrap_or_default(),
        };
        postroad_server::serve(&options).map_err(|error| Failure::failed(error.to_string()))
    }
}

fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postroad", &mut script);
    print::line(String::from_utf8_lossy(&script).trim_end())
}

/// Logs go to standard error, one line each. `POSTROAD_LOG` wins over the configuration's level.
fn start_logging(config: Option<&Path>) {
    let filter = EnvFilter::try_from_env("POSTROAD_LOG").unwrap_or_else(|_| EnvFilter::new(level(config)));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .compact()
        .init();
}

/// The level of the configuration, whatever else is in it: a file that can't be used says so when the broker starts, not here.
fn level(config: Option<&Path>) -> &'static str {
    let options = postroad_config::Options {
        allow_open_remote: true,
        stores_elsewhere: true,
        ..postroad_config::Options::default()
    };
    let read = config.and_then(|file| postroad_config::load(file, &options).0);
    read.map_or("info", |config| config.log.level.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
