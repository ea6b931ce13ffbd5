//! A running broker: its threads, and the order in which it starts and stops.
//!
//! Start: read the journal, apply the configuration, bind every socket, and only then accept. Stop: tell the clients,
//! finish what is on its way to the disk, mark the clean stop.

use crate::clock::Clock;
use crate::connection::Shared;
use crate::core::{Core, CoreError, Input};
use crate::define::{define, redefine};
use crate::door::{Users, door_config};
use crate::http::{Access, AdminHandle, ServerInfo};
use crate::listener::{Connections, accept, bind};
use crate::loader::Loader;
use crate::storage::Storage;
use crate::{EngineThread, ServeError};
use postroad_config::{Config, Protocol, SecurityMode};
use postroad_journal::{Options, Recovered};
use postroad_shell::Setup;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

/// Requests of operators that wait for the core at most.
const ADMIN_CALLS: usize = 1_024;

/// A socket that is bound and not yet served.
struct Bound {
    protocol: Protocol,
    address: SocketAddr,
    /// Only programs on this machine can connect, as far as the configuration says.
    loopback: bool,
    socket: std::net::TcpListener,
}

/// A broker that runs on threads of its own.
#[derive(Debug)]
pub struct Broker {
    addresses: Vec<(Protocol, SocketAddr)>,
    recovered: Recovered,
    admin: AdminHandle,
    core: mpsc::UnboundedSender<Input>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Result<(), CoreError>>,
    threads: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Starts a broker.
    ///
    /// # Errors
    /// [`ServeError`] if the data can't be used, a definition is refused, or a socket can't be bound.
    pub fn start(config: &Config, engine_thread: EngineThread) -> Result<Self, ServeError> {
        let began = Instant::now();
        let seed = *uuid::Uuid::new_v4().as_bytes();
        let clock = Clock::new();
        let (journal_events, journal_inbox) = mpsc::unbounded_channel();
        let setup = Setup {
            broker: config.broker.clone(),
            journal: journal_options(config.storage.segment_size),
            checkpoint_every: config.storage.checkpoint_every,
            seed,
            twin: None,
        };
        let Storage { mut shell, writer, reader, recovered } =
            Storage::open(&config.data_dir, setup, journal_events)?;
        define(&mut shell, config, clock.now())?;
        let bound = bind_all(config)?;
        let (core, inbox) = mpsc::unbounded_channel();
        let (admin, admin_inbox) = mpsc::channel(ADMIN_CALLS);
        let admin = AdminHandle::new(admin);
        let users = Arc::new(Users::read(config)?);
        let (stop, stopped) = watch::channel(false);
        let shared = Shared {
            door: Arc::new(door_config(config)),
            users: Arc::clone(&users),
            core: core.clone(),
            clock,
            stop: stopped.clone(),
        };
        let info = server_info(config, users);
        let loader = Loader::start(reader, core.clone()).map_err(ServeError::Thread)?;
        let core_task = Core::new(shell, writer, loader, clock, inbox, admin_inbox, journal_inbox);
        let addresses = bound.iter().map(|b| (b.protocol, b.address)).collect();
        let (report, ended) = oneshot::channel();
        let threads =
            spawn_threads(config, engine_thread, bound, core_task, shared, (admin.clone(), info), report)?;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(broker = %config.broker.name, frames = recovered.frames, took_ms, "started");
        Ok(Self { addresses, recovered, admin, core, stop, ended, threads })
    }

    /// The addresses that are served, with the ports that the system chose where 0 was written.
    #[must_use]
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        &self.addresses
    }

    /// What opening the journal brought to light.
    #[must_use]
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Applies the definitions of a configuration that was read again. Other settings need a start.
    pub async fn redefine(&self, config: &Config) {
        redefine(&self.admin, config).await;
    }

    /// Waits until the broker ends by itself, which it does only when the journal fails.
    ///
    /// # Errors
    /// Why it ended.
    pub async fn ended(&mut self) -> Result<(), ServeError> {
        match (&mut self.ended).await {
            Ok(result) => result.map_err(ServeError::Core),
            Err(_) => Err(ServeError::CoreGone),
        }
    }

    /// Stops the broker in order and waits for the end.
    ///
    /// # Errors
    /// If the journal fails while the last batch is written.
    pub fn stop(self) -> Result<(), ServeError> {
        // Receivers that are gone have ended already.
        let _ = self.stop.send(true);
        let _ = self.core.send(Input::Stop);
        for thread in self.threads {
            if thread.join().is_err() {
                return Err(ServeError::CoreGone);
            }
        }
        match self.ended.blocking_recv() {
            Ok(result) => result.map_err(ServeError::Core),
            Err(_) => Err(ServeError::CoreGone),
        }
    }
}

/// The longest step: the largest message that the configuration can allow (1 GiB), and what is said of it.
const MAX_PAYLOAD: u32 = (1 << 30) + (64 << 20);

/// The journal's sizes; the segment that a start makes is never larger than the others.
fn journal_options(segment_size: u64) -> Options {
    let usual = Options::default();
    let first_segment_size = usual.first_segment_size.min(segment_size);
    Options { segment_size, first_segment_size, max_payload: MAX_PAYLOAD, ..usual }
}

/// What the HTTP side tells, and whom it lets in.
fn server_info(config: &Config, users: Arc<Users>) -> ServerInfo {
    let access = match config.security.mode {
        SecurityMode::Open => Access::Open,
        SecurityMode::Secure => Access::Login(Arc::new(move |user, password| users.admit(user, password))),
    };
    let defaults = Arc::new(config.broker.defaults.clone());
    ServerInfo { access, defaults, ..ServerInfo::new(config.broker.name.clone()) }
}

fn bind_all(config: &Config) -> Result<Vec<Bound>, ServeError> {
    config
        .listeners
        .iter()
        .map(|listener| {
            let written = listener.address();
            let refused = |source| ServeError::Bind { address: written.clone(), source };
            let mut found = written.to_socket_addrs().map_err(refused)?;
            let address = found.next().ok_or_else(|| {
                refused(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"))
            })?;
            let socket = bind(address).map_err(refused)?;
            let address = socket.local_addr().map_err(refused)?;
            Ok(Bound { protocol: listener.protocol, address, loopback: listener.is_loopback(), socket })
        })
        .collect()
}

fn spawn_threads(
    config: &Config,
    engine_thread: EngineThread,
    bound: Vec<Bound>,
    core: Core,
    shared: Shared,
    operators: (AdminHandle, ServerInfo),
    report: oneshot::Sender<Result<(), CoreError>>,
) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let (amqp, http): (Vec<Bound>, Vec<Bound>) =
        bound.into_iter().partition(|b| b.protocol == Protocol::Amqp);
    let limit = usize::try_from(config.limits.max_connections).unwrap_or(usize::MAX);
    let connections = Arc::new(Connections::new(limit));
    let stop = shared.stop.clone();
    let core_run = async move {
        // Nobody waits for the report of a broker that was dropped.
        let _ = report.send(core.run().await);
    };
    let reactor = serve_amqp(amqp, connections, shared);
    let mut threads = Vec::new();
    match engine_thread {
        EngineThread::Own => {
            threads.push(spawn("engine", move || core_run)?);
            threads.push(spawn("reactor", move || reactor)?);
        }
        EngineThread::Reactor => threads.push(spawn("reactor", move || async move {
            tokio::join!(core_run, reactor);
        })?),
    }
    if !http.is_empty() {
        let (handle, info) = operators;
        threads.push(spawn("http", move || serve_http(http, handle, info, stop))?);
    }
    Ok(threads)
}

/// A thread with a runtime of its own, as every part of the broker has one.
fn spawn<F: Future<Output = ()> + 'static>(
    name: &str,
    task: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, ServeError> {
    let thread = std::thread::Builder::new().name(format!("postroad-{name}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Thread)?;
    let run = move || {
        let local = LocalSet::new();
        runtime.block_on(local.run_until(task()));
        // Connections that are still saying goodbye have a moment for it.
        runtime.block_on(async {
            let grace = std::time::Duration::from_millis(500);
            let _ = tokio::time::timeout(grace, local).await;
        });
    };
    thread.spawn(run).map_err(ServeError::Thread)
}

async fn serve_amqp(bound: Vec<Bound>, connections: Arc<Connections>, shared: Shared) {
    let mut loops = Vec::new();
    for Bound { address, socket, .. } in bound {
        match tokio::net::TcpListener::from_std(socket) {
            Ok(listener) => {
                tracing::info!(%address, "serving AMQP 1.0");
                let accepting = accept(listener, Arc::clone(&connections), shared.clone());
                loops.push(tokio::task::spawn_local(accepting));
            }
            Err(error) => tracing::error!(%address, %error, "the listener can't be served"),
        }
    }
    for accepting in loops {
        if let Err(error) = accepting.await {
            tracing::error!(%error, "a listener ended");
        }
    }
}

async fn serve_http(bound: Vec<Bound>, handle: AdminHandle, info: ServerInfo, stop: watch::Receiver<bool>) {
    let mut servers = Vec::new();
    let places = crate::http::Places::default();
    for Bound { address, loopback, socket, .. } in bound {
        // An operator who let others in without logins has said that everybody may, by whatever name.
        let info = ServerInfo { any_host: !loopback, ..info.clone() };
        let router = crate::http::router(handle.clone(), info);
        let mut stop = stop.clone();
        let listener = match tokio::net::TcpListener::from_std(socket) {
            Ok(listener) => places.limit(listener),
            Err(error) => {
                tracing::error!(%address, %error, "the listener can't be served");
                continue;
            }
        };
        tracing::info!(%address, "serving HTTP");
        servers.push(tokio::task::spawn_local(async move {
            let stopped = async move {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            tokio::select! {
                result = axum::serve(listener, router) => {
                    if let Err(error) = result {
                        tracing::error!(%address, %error, "HTTP ended");
                    }
                }
                () = stopped => {}
            }
        }));
    }
    for server in servers {
        if let Err(error) = server.await {
            tracing::error!(%error, "an HTTP listener ended");
        }
    }
}
