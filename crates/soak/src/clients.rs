//! What all clients share: a thread each, and a new connection whenever the last one is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use postroad_client::{ConnectOptions, Error};
use tokio::runtime::Builder;

use crate::books::{Books, Violation};
use crate::control::{Control, Phase};

/// How long a client waits at most before it looks what phase it is.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) control: Control,
    books: Mutex<Books>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { control: Control::new(), books: Mutex::new(Books::new()) }
    }

    /// The books. A broken promise ends the soak, so nobody writes in them after a panic.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.control.phase()
    }
}

/// Why a session is over.
#[derive(Debug)]
pub(crate) enum End {
    /// The client has nothing more to do.
    Done,
    /// The client wants a new connection; this one is cut without a word.
    Cut,
    /// The connection or a link was lost.
    Lost(Error),
    /// A promise was broken.
    Broken(Violation),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

/// A client: what it does with one connection.
pub(crate) trait Actor: Send {
    /// Connects and works until something ends it. The connection is cut when this is over, unless it was closed.
    fn session(&mut self, shared: &Shared) -> impl Future<Output = End>;
}

/// Starts a client in a thread of its own.
pub(crate) fn start<'scope, 'env, A: Actor + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared,
    mut actor: A,
) -> ScopedJoinHandle<'scope, ()> {
    scope.spawn(move || {
        while shared.control.enter() {
            let end = one_session(shared, &mut actor);
            match &end {
                End::Lost(error) => shared.control.lost(&error.to_string()),
                End::Broken(violation) => shared.control.fail(violation.clone()),
                End::Done | End::Cut => {}
            }
            shared.control.leave();
            if matches!(end, End::Done) {
                return;
            }
        }
    })
}

/// The connection's own task lives in this runtime and stops with it, so what the session has not waited for is never
/// written, and the socket closes without the protocol's farewell.
fn one_session(shared: &Shared, actor: &mut impl Actor) -> End {
    let runtime = Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(actor.session(shared)),
        Err(error) => End::Broken(Violation::new(format!("no runtime for a client: {error}"))),
    }
}

/// How a client connects.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Its number among all clients.
    pub(crate) index: usize,
    pub(crate) options: ConnectOptions,
}
