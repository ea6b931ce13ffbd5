//! The task with the socket: reads, lets the engine work, writes all that is ready at once, keeps time.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use postroad_amqp::Output;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::error::Error;
use crate::state::Shared;

/// How many bytes are read at once.
const READ_SIZE: usize = 64 * 1024;

/// The engine is asked for more output while less than this waits for the socket, in bytes.
const WRITE_AHEAD: usize = 1 << 20;

/// How many chunks go into one write.
const SLICES: usize = 64;

/// Runs until the connection is over.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    stream: TcpStream,
    input: BytesMut,
    output: Output,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends, in milliseconds of the connection's clock. Later deadlines are left to the next time.
    armed: u64,
}

/// The connection is over, for this reason.
struct Over(Error);

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, stream: TcpStream) -> Self {
        let sleep = Box::pin(tokio::time::sleep(Duration::from_secs(3600)));
        Self { shared, stream, input: BytesMut::new(), output: Output::new(), sleep, armed: u64::MAX }
    }

    /// One turn; whether there may be more to do at once.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, Over> {
        let read = match self.poll_read(cx) {
            Poll::Ready(Ok(0)) => {
                return Err(Over(Error::Lost { reason: "the broker closed the socket".to_owned() }));
            }
            Poll::Ready(Ok(_)) => true,
            Poll::Ready(Err(error)) => return Err(Over(Error::lost(&error))),
            Poll::Pending => false,
        };
        let (finished, deadline) = self.work(cx, read);
        self.write(cx).map_err(|error| Over(Error::lost(&error)))?;
        if finished && self.output.is_empty() {
            return Err(Over(Error::Closed));
        }
        Ok(self.keep_time(cx, deadline) || read)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.output.len() > WRITE_AHEAD {
            return Poll::Pending;
        }
        if self.input.capacity() - self.input.len() < READ_SIZE / 4 {
            self.input.reserve(READ_SIZE);
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }

    /// Lets the engine work on the input; whether it is finished, and its next deadline.
    fn work(&mut self, cx: &Context<'_>, read: bool) -> (bool, Option<u64>) {
        let now = self.shared.now_ms();
        let mut state = self.shared.lock();
        if read {
            while state.connection.handle_input(now, &mut self.input) {
                state.take_events();
            }
            state.take_events();
        }
        if self.output.len() < WRITE_AHEAD {
            state.connection.poll_output(&mut self.output);
            state.clean();
        }
        match &mut state.driver {
            Some(known) => known.clone_from(cx.waker()),
            unknown => *unknown = Some(cx.waker().clone()),
        }
        (state.connection.is_finished(), state.connection.next_deadline())
    }

    /// Writes as much as the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.output.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.output.advance(count),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }

    /// Does what is due; whether anything was.
    fn keep_time(&mut self, cx: &mut Context<'_>, deadline: Option<u64>) -> bool {
        let now = self.shared.now_ms();
        if let Some(deadline) = deadline.filter(|deadline| *deadline < self.armed) {
            self.armed = deadline;
            let left = Duration::from_millis(deadline.saturating_sub(now));
            self.sleep.as_mut().reset(Instant::now() + left);
        }
        if self.armed == u64::MAX || self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.armed = u64::MAX;
        let mut state = self.shared.lock();
        state.connection.handle_deadline(self.shared.now_ms());
        state.take_events();
        true
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.turn(cx) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(Over(error)) => {
                    self.shared.act(|state| state.fail(error));
                    return Poll::Ready(());
                }
            }
        }
    }
}
