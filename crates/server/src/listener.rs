//! Listeners: sockets that are bound before anything else is promised, and the loops that accept from them.

use crate::connection::{self, Shared};
use postroad_engine::ConnId;
use postroad_shell::ConnIds;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// How long accepting rests after an error such as too many open files.
const REST: Duration = Duration::from_millis(100);

/// Numbers and counts connections over all listeners.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<Table>,
    limit: usize,
    /// The operator was told that the limit is reached.
    told: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    ids: ConnIds,
    open: usize,
}

impl Connections {
    /// At most `limit` connections at once.
    #[must_use]
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Mutex::default(), limit, told: AtomicBool::new(false) }
    }

    /// A number for a new connection, unless there are too many.
    fn enter(&self) -> Option<ConnId> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        (table.open < self.limit).then(|| {
            table.open += 1;
            table.ids.take()
        })
    }

    /// A connection is over, and the core has been told.
    fn leave(&self, conn: ConnId) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.open -= 1;
        table.ids.give_back(conn);
    }
}

/// Binds a listening socket.
///
/// # Errors
/// If the address is taken or not this machine's.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for old connections to time out in the system.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG.try_into().unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Accepts AMQP connections until the broker stops. Runs within a `LocalSet`.
pub(crate) async fn accept(listener: TcpListener, connections: Arc<Connections>, mut shared: Shared) {
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shared.stop.wait_for(|stop| *stop) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => {
                failing = false;
                accepted
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections can't be accepted");
                }
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Some(conn) = connections.enter() else {
            if !connections.told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    %peer, limit = connections.limit,
                    "as many connections as max_connections allows: others are refused"
                );
            }
            continue;
        };
        connections.told.store(false, Ordering::Relaxed);
        // Everything that is ready goes out in one write, so waiting for more would only add latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "TCP_NODELAY can't be set");
        }
        let (shared, connections) = (shared.clone(), Arc::clone(&connections));
        tokio::task::spawn_local(async move {
            connection::serve(stream, peer, conn, shared).await;
            connections.leave(conn);
        });
    }
}
