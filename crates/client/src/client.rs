//! A connection with its one session.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_amqp::{Config, Connection, InitiateSasl};
use postroad_amqp_codec::performative::{Attach, Open, Role};
use postroad_amqp_codec::{Fields, Symbol};
use tokio::net::TcpStream;

use crate::driver::Driver;
use crate::error::Error;
use crate::link::{LinkEnd, LinkHandle};
use crate::options::{ConnectOptions, ReceiverOptions, SenderOptions};
use crate::receiver::{Receiver, ReceiverState};
use crate::sender::Sender;
use crate::state::Shared;

/// A connection to a broker. Cloning shares it; it is closed when the last clone and the last link are gone.
///
/// It needs a tokio runtime with I/O and time, of either kind.
#[derive(Clone, Debug)]
pub struct Client {
    handle: Arc<Handle>,
}

/// What keeps a connection open.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    timeout: Duration,
}

impl Handle {
    /// Gives an answer the time that every question may take.
    pub(crate) async fn timed<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timed(self.timeout, answer).await
    }
}

async fn timed<T>(timeout: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(timeout, answer).await {
        Ok(result) => result,
        Err(_) => Err(Error::TimedOut { seconds: timeout.as_secs() }),
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.act(|state| {
            let _ = state.connection.close(None);
            state.touch();
        });
    }
}

impl Client {
    /// Connects, logs in, opens the connection and begins its session.
    ///
    /// # Errors
    /// [`Error::Unreachable`]; [`Error::Login`]; [`Error::ConnectionClosed`] when the broker refuses us;
    /// [`Error::TimedOut`]; [`Error::Protocol`] when it does not speak AMQP 1.0.
    pub async fn connect(options: &ConnectOptions) -> Result<Self, Error> {
        let stream = dial(options).await?;
        let connection = Connection::initiate(config(options), sasl(options), 0);
        let shared = Arc::new(Shared::new(connection, Instant::now()));
        tokio::spawn(Driver::new(Arc::clone(&shared), stream));
        let handle = Arc::new(Handle { shared, timeout: options.timeout });
        let open = handle.shared.until(None, |state| match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state.begun.then_some(())),
        });
        handle.timed(open).await?;
        Ok(Self { handle })
    }

    /// What the broker says of itself (part 2, section 2.7.1).
    #[must_use]
    pub fn peer(&self) -> Open {
        self.handle.shared.lock().open.as_deref().cloned().unwrap_or_default()
    }

    /// Attaches a link for sending. An empty address is the anonymous one: each message says in `to` where it goes.
    ///
    /// # Errors
    /// [`Error::LinkRefused`], [`Error::TimedOut`], or why the connection is gone.
    pub async fn sender(&self, address: &str, options: SenderOptions) -> Result<Sender, Error> {
        Sender::attach(Arc::clone(&self.handle), address, options).await
    }

    /// Attaches a link for receiving.
    ///
    /// # Errors
    /// [`Error::LinkRefused`], [`Error::TimedOut`], or why the connection is gone.
    pub async fn receiver(&self, address: &str, options: ReceiverOptions) -> Result<Receiver, Error> {
        Receiver::attach(Arc::clone(&self.handle), address, options).await
    }

    /// Deletes a durable subscription: attaches to it by its name, without a source, and closes the link.
    ///
    /// # Errors
    /// [`Error::LinkRefused`] when there is none of that name, [`Error::LinkDetached`] when the broker does not let go
    /// of it, [`Error::TimedOut`], or why the connection is gone.
    pub async fn unsubscribe(&self, name: &str) -> Result<(), Error> {
        let attach = Attach { name: name.to_owned(), role: Role::Receiver, ..Attach::default() };
        let end = LinkEnd::Receiver(ReceiverState::default());
        let link = LinkHandle::attach(Arc::clone(&self.handle), attach, end, name, false).await?;
        link.detach(true).await
    }

    /// Closes the connection and waits for the answer, whatever links there are.
    ///
    /// # Errors
    /// Why the connection was gone before, or [`Error::TimedOut`].
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.handle.shared;
        shared.act(|state| {
            state.touch();
            state
                .connection
                .close(None)
                .map_err(|error| state.failure.clone().unwrap_or_else(|| error.into()))
        })?;
        match self.handle.timed(shared.until::<()>(None, |_| Ok(None))).await {
            Err(Error::Closed) => Ok(()),
            other => other,
        }
    }

    /// Waits until the connection is over, and says why.
    pub async fn failed(&self) -> Error {
        self.handle.shared.until::<()>(None, |_| Ok(None)).await.err().unwrap_or(Error::Closed)
    }
}

async fn dial(options: &ConnectOptions) -> Result<TcpStream, Error> {
    let url = &options.url;
    let unreachable =
        |error: std::io::Error| Error::Unreachable { address: url.authority(), reason: error.to_string() };
    let connect = async {
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(stream)
    };
    timed(options.timeout, connect).await.map_err(|error| match error {
        Error::TimedOut { seconds } => {
            let reason = format!("no answer within {seconds} seconds");
            Error::Unreachable { address: url.authority(), reason }
        }
        other => other,
    })
}

fn config(options: &ConnectOptions) -> Config {
    let mut properties = Fields::new();
    properties.insert("product", "postroad-client");
    properties.insert("version", env!("CARGO_PKG_VERSION"));
    let sole = Symbol::from_static("sole-connection-for-container");
    Config {
        container_id: options.container_id.clone(),
        hostname: Some(options.url.host.clone()),
        max_frame_size: options.max_frame_size,
        incoming_window: options.incoming_window.max(1),
        excess_credit: options.excess_credit,
        idle_timeout_ms: options.idle_timeout.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        desired_capabilities: options.sole_container.then_some(sole).into_iter().collect(),
        properties,
        ..Config::default()
    }
}

fn sasl(options: &ConnectOptions) -> InitiateSasl {
    match &options.url.user {
        _ if options.skip_sasl => InitiateSasl::Skip,
        None => InitiateSasl::Anonymous { trace: options.container_id.clone() },
        Some(user) => InitiateSasl::Plain {
            authzid: String::new(),
            user: user.clone(),
            password: options.url.password.clone().unwrap_or_default(),
        },
    }
}
