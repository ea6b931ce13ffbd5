//! One client connection: a socket, a front door, and the way to the core and back. Reading, writing, effects and
//! time-outs go on side by side, so a peer that does not read never stops us from reading.

use crate::buffer;
use crate::clock::Clock;
use crate::core::Input;
use crate::door::Users;
use bytes::{Buf, BytesMut};
use postroad_amqp::Output;
use postroad_amqp_codec::AmqpError;
use postroad_amqp_codec::error::condition;
use postroad_door_amqp::{Door, DoorConfig, Login};
use postroad_engine::{Command, ConnId, Effect};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// Chunks written in one call.
const WRITE_SLICES: usize = 64;
/// Milliseconds that a client may take nothing of what waits for it, where no idle time-out says less.
const PATIENCE_MS: u64 = 60_000;
/// The same once the connection is over.
const CLOSED_PATIENCE_MS: u64 = 5_000;

/// What every connection needs.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// What the front door allows and says.
    pub door: Arc<DoorConfig>,
    /// Who may log in.
    pub users: Arc<Users>,
    /// The way to the core.
    pub core: mpsc::UnboundedSender<Input>,
    /// The clocks.
    pub clock: Clock,
    /// Turns true when the broker stops.
    pub stop: watch::Receiver<bool>,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: TcpStream, peer: SocketAddr, conn: ConnId, shared: Shared) {
    let (effects, inbox) = mpsc::unbounded_channel();
    if shared.core.send(Input::Register { conn, effects }).is_err() {
        return;
    }
    let door = Door::new(conn, Arc::clone(&shared.door), peer.to_string(), shared.clock.mono());
    let core = shared.core.clone();
    let mut connection = Connection {
        stream,
        door,
        shared,
        inbox,
        input: BytesMut::new(),
        output: Output::new(),
        blocked: None,
        commands: Vec::new(),
    };
    if let Err(error) = connection.run().await {
        tracing::debug!(%peer, %error, "connection lost");
    }
    connection.door.lost(&mut connection.commands);
    connection.send_commands();
    // The core forgets the connection and returns what it held; should it be gone, there is nothing to return to.
    let _ = core.send(Input::Unregister { conn });
}

struct Connection {
    stream: TcpStream,
    door: Door,
    shared: Shared,
    inbox: mpsc::UnboundedReceiver<Vec<Effect>>,
    input: BytesMut,
    output: Output,
    /// Since when the client has taken nothing of the output, in monotonic milliseconds.
    blocked: Option<u64>,
    commands: Vec<Command>,
}

/// What woke the connection.
enum Woken {
    Readable(io::Result<()>),
    Writable(io::Result<()>),
    Effects(Option<Vec<Effect>>),
    Deadline,
    Impatience,
    Stop,
}

/// What one read left behind.
enum Read {
    /// Nothing: it found room for everything.
    All,
    /// Very likely more.
    Part,
    /// The client sends nothing any more.
    End,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let mut stopping = false;
        loop {
            let mut crowded = false;
            if self.output.is_empty() {
                self.door.output(&mut self.output, &mut self.commands);
            }
            self.write()?;
            self.send_commands();
            if self.output.is_empty() && self.door.is_closed() {
                return Ok(());
            }
            match self.wait(stopping).await {
                Woken::Readable(ready) => {
                    ready?;
                    match self.read()? {
                        Read::End => return Ok(()),
                        Read::All => {}
                        Read::Part => crowded = true,
                    }
                }
                Woken::Writable(ready) => ready?,
                Woken::Effects(Some(effects)) => self.take_effects(effects),
                Woken::Effects(None) => return Ok(()),
                Woken::Deadline => self.door.deadline(self.shared.clock.mono(), &mut self.commands),
                Woken::Impatience => {
                    self.door.report_unread(self.output.len());
                    return Ok(());
                }
                Woken::Stop => {
                    stopping = true;
                    let error = AmqpError::new(condition::CONNECTION_FORCED, "the broker is stopping");
                    self.door.shut_down(error);
                }
            }
            self.log_in();
            self.send_commands();
            if crowded {
                // The core and the other connections have their turn first. A producer that is read for as long as it sends
                // would build up a backlog that the consumers are too late for.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn wait(&mut self, stopping: bool) -> Woken {
        let impatient = self.blocked.map(|since| since.saturating_add(self.patience()));
        let deadline = [self.door.next_deadline(), impatient].into_iter().flatten().min();
        let deadline = deadline.map(|mono| self.shared.clock.instant(mono));
        let (clock, blocked) = (self.shared.clock, !self.output.is_empty());
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            effects = self.inbox.recv() => Woken::Effects(effects),
            ready = self.stream.readable(), if !self.door.is_clogged() => Woken::Readable(ready),
            ready = self.stream.writable(), if blocked => Woken::Writable(ready),
            () = timer => match impatient {
                Some(at) if at <= clock.mono() => Woken::Impatience,
                _ => Woken::Deadline,
            },
            _ = self.shared.stop.wait_for(|stop| *stop), if !stopping => Woken::Stop,
        }
    }

    /// How long the client may take nothing of what waits for it, in milliseconds.
    fn patience(&self) -> u64 {
        match self.shared.door.idle_timeout_ms {
            _ if self.door.is_closed() => CLOSED_PATIENCE_MS,
            Some(ms) => ms.into(),
            None => PATIENCE_MS,
        }
    }

    /// Reads a bounded piece of what is there.
    fn read(&mut self) -> io::Result<Read> {
        buffer::make_room(&mut self.input);
        let read = self.take_input();
        buffer::give_back(&mut self.input);
        read
    }

    fn take_input(&mut self) -> io::Result<Read> {
        // Asked once, and not waited for. Unlike `try_read_buf` this notes that the socket is empty when less came than there
        // is room for, which saves asking again.
        let mut context = Context::from_waker(Waker::noop());
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(&mut context);
        match read {
            Poll::Ready(Ok(0)) => Ok(Read::End),
            Poll::Ready(Ok(_)) => {
                let full = self.input.len() == self.input.capacity();
                self.door.input(self.shared.clock.mono(), &mut self.input, &mut self.commands);
                Ok(if full { Read::Part } else { Read::All })
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Read::All),
        }
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) -> io::Result<()> {
        let mut progress = false;
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
            let filled = self.output.chunks_vectored(&mut slices);
            match self.stream.try_write_vectored(&slices[..filled]) {
                Ok(written) => {
                    self.output.advance(written);
                    progress = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if progress || self.blocked.is_none() {
                        self.blocked = Some(self.shared.clock.mono());
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if self.output.is_empty() {
                self.door.output(&mut self.output, &mut self.commands);
            }
        }
        self.blocked = None;
        Ok(())
    }

    fn take_effects(&mut self, effects: Vec<Effect>) {
        let mut next = Some(effects);
        while let Some(effects) = next {
            for effect in effects {
                self.door.effect(effect, &mut self.commands);
            }
            next = self.inbox.try_recv().ok();
        }
    }

    fn log_in(&mut self) {
        let Some(request) = self.door.poll_login() else { return };
        let admitted = self.shared.users.admit(&request.user, request.password.as_str());
        if !admitted {
            tracing::warn!(user = %request.user, "login refused");
        }
        let login = if admitted { Login::Accepted } else { Login::Refused };
        self.door.login_result(login, &mut self.commands);
        // What the client sent behind its credentials waits in the buffer.
        self.door.input(self.shared.clock.mono(), &mut self.input, &mut self.commands);
    }

    fn send_commands(&mut self) {
        if !self.commands.is_empty() {
            // A core that is gone ends the connection by dropping its effects' sender.
            let _ = self.shared.core.send(Input::Commands(std::mem::take(&mut self.commands)));
        }
    }
}
