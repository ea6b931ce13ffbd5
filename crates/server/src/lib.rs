//! The broker as a process: sockets, timers, threads, the journal's files, signals (DESIGN 2).
//!
//! What it knows: which thread does what. One *reactor* serves sockets and runs the protocol engines, and beside them
//! the *core*, which drives the shell around engine and journal (docs/adr/0004 says why on the same thread); the journal
//! has two threads of its own, and one reads back from it (`loader`); HTTP has one. Commands and effects cross between them in batches.
//!
//! What it must never know: what a command means. It decides nothing about messages.
//!
//! Where to look: `broker` (start and stop), `core` (the loop around the shell), `storage` (the data folder),
//! `listener`, `connection` and `buffer` (sockets), `define` (the configuration's definitions), `files` (open files), [`http`] (REST).

mod broker;
mod buffer;
mod clock;
mod connection;
mod core;
mod define;
mod door;
mod files;
pub mod http;
mod listener;
mod loader;
mod storage;

pub use broker::Broker;
pub use storage::StorageError;

use postroad_config::{Config, Options};
use postroad_model::refusal::Refusal;
use std::path::PathBuf;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// On which thread the engine runs (docs/adr says why the default is what it is).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineThread {
    /// On one of its own.
    Own,
    /// On the reactor's.
    #[default]
    Reactor,
}

/// How to start a broker from the command line.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The configuration file; without one the broker is in development mode (README U-11).
    pub config_file: Option<PathBuf>,
    /// The data folder, if not the configuration's.
    pub data_dir: Option<PathBuf>,
    /// Listeners beyond loopback are allowed in open mode.
    pub allow_open_remote: bool,
    /// Where the engine runs.
    pub engine_thread: EngineThread,
}

/// Why a broker can't start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration has errors.
    #[error("the configuration can't be used:\n{0}")]
    Config(postroad_config::Report),
    /// The stored data can't be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The journal failed while the definitions were written.
    #[error("the definitions can't be written: {0}")]
    Shell(#[from] postroad_shell::ShellError),
    /// A definition of the configuration is refused.
    #[error("{}: {}", .0.code, .0.message)]
    Definition(Refusal),
    /// An address can't be listened on.
    #[error("can't listen on {address}: {source}. Stop what uses it, or configure another address")]
    Bind {
        /// The address as it was written.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A user's password can't be read.
    #[error("the password of user '{user}' can't be read: {source}")]
    Password {
        /// The user.
        user: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system gives no thread.
    #[error("a thread can't be started: {0}")]
    Thread(#[source] std::io::Error),
    /// The core ended because of an error.
    #[error(transparent)]
    Core(core::CoreError),
    /// The core ended without a word.
    #[error("the engine's thread ended unexpectedly; see the log")]
    CoreGone,
    /// Signals can't be listened for.
    #[error("signals can't be received: {0}")]
    Signal(#[source] std::io::Error),
}

/// Runs a broker until it is told to stop (SIGINT, SIGTERM) or its journal fails.
///
/// # Errors
/// [`ServeError`] says why it could not start or had to end.
pub fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    let mut config = configuration(options)?;
    config.limits.max_connections = files::raise_limit(config.limits.max_connections);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
    // Before anything is served: a signal that comes right after the start must not end the process unheard.
    let signals = runtime.block_on(async { Signals::listen() }).map_err(ServeError::Signal)?;
    let mut broker = Broker::start(&config, options.engine_thread)?;
    if config.development {
        tracing::warn!(
            "development mode: no configuration file, so everybody on this machine may do everything, and queues and \
             channels are made when first used"
        );
    }
    runtime.block_on(watch(&mut broker, options, signals))?;
    tracing::info!("stopping");
    broker.stop()?;
    tracing::info!("stopped");
    Ok(())
}

/// The configuration that the options name, with what they override.
///
/// # Errors
/// [`ServeError::Config`] with every error of the file.
pub fn configuration(options: &ServeOptions) -> Result<Config, ServeError> {
    let broker_name = postroad_config::host_name();
    let mut config = match &options.config_file {
        None => Config::development(&broker_name),
        Some(path) => {
            let allow_open_remote = options.allow_open_remote;
            let rules = Options { broker_name, allow_open_remote, stores_elsewhere: true };
            match postroad_config::load(path, &rules) {
                (Some(config), report) => {
                    for warning in &report.diagnostics {
                        tracing::warn!("{warning}");
                    }
                    config
                }
                (None, report) => return Err(ServeError::Config(report)),
            }
        }
    };
    if let Some(folder) = &options.data_dir {
        config.data_dir.clone_from(folder);
    }
    Ok(config)
}

/// The signals that a broker obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on. Needs a runtime around it.
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Watches over a running broker: until a signal to stop, or its own end. SIGHUP reads the file again.
async fn watch(broker: &mut Broker, options: &ServeOptions, mut signals: Signals) -> Result<(), ServeError> {
    loop {
        tokio::select! {
            ended = broker.ended() => return ended,
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.hangup.recv() => {}
        }
        let config = match configuration(options) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "the configuration was not applied");
                continue;
            }
        };
        // On a full disk its answers may never come, and the broker must still hear that it is to stop.
        tokio::select! {
            () = broker.redefine(&config) => {
                tracing::info!("the configuration's definitions were applied again");
            }
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
        }
    }
}
