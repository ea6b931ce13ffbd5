//! HTTP connections: how many there may be at once, and how long one may lie idle. Each is an open file, of which the
//! journal and the clients need theirs.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at once, over all listeners; others wait to be accepted.
const CONNECTIONS: usize = 128;
/// How long a client may send nothing that has had its answer, or was never heard.
const IDLE: Duration = Duration::from_secs(120);
/// How long an answer may take, as that of a purge of a full store may.
const ANSWER: Duration = Duration::from_secs(600);

/// Places for connections, which all listeners share.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    idle: Duration,
}

impl Default for Places {
    fn default() -> Self {
        Self::new(CONNECTIONS, IDLE)
    }
}

impl Places {
    fn new(connections: usize, idle: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(connections)), idle }
    }

    /// The listener, accepting only while there are places.
    pub(crate) fn limit(&self, listener: TcpListener) -> Limited {
        Limited { listener, places: self.clone() }
    }
}

/// A listener that accepts only while there are places.
#[derive(Debug)]
pub(crate) struct Limited {
    listener: TcpListener,
    places: Places,
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // It is never closed, so there is always a place in the end.
        let place = Arc::clone(&self.places.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let idle = self.places.idle;
        let deadline = Box::pin(tokio::time::sleep(idle));
        (Connection { stream, idle, patience: idle, deadline, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with its place; one that is idle for too long ends with an error.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    idle: Duration,
    /// How long nothing may happen from now on.
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Something went over the connection, or nothing can: then it may not wait for ever.
    fn watch<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            let deadline = Instant::now() + self.patience;
            self.deadline.as_mut().reset(deadline);
            return poll;
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if poll.is_ready() {
            self.patience = ANSWER;
        }
        self.watch(context, poll)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        if poll.is_ready() {
            self.patience = self.idle;
        }
        self.watch(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn idle_connections_give_up_their_places_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Places::new(2, Duration::from_millis(500));
        // An answer may take longer than a client may be idle.
        let answer = || async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            "here"
        };
        let router = Router::new().route("/", get(answer));
        let server = async { axum::serve(places.limit(listener), router).await };
        let client = async {
            let mut idle = Vec::new();
            for _ in 0..3 {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            let mut asking = TcpStream::connect(address).await.unwrap();
            asking.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            asking.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("here"), "{answer}");
            // The first of those that never asked was cut, without an answer.
            assert_eq!(idle[0].read(&mut [0; 16]).await.unwrap(), 0);
        };
        tokio::select! {
            ended = server => panic!("the server ended: {ended:?}"),
            () = client => {}
        }
    }
}
