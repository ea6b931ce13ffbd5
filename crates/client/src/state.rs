//! What a connection, its user and its task share, and what the engine's events do to it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use postroad_amqp::{ApiMisuse, Connection, Event, LinkId, PeerIncompatible, SessionId, SessionOptions};
use postroad_amqp_codec::error::condition::NOT_IMPLEMENTED;
use postroad_amqp_codec::performative::Open;
use postroad_amqp_codec::{AmqpError, Symbol};

use crate::error::{Error, PeerError};
use crate::link::{Link, LinkEnd};

/// The state under its lock, with the clock of the connection.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    start: Instant,
}

/// Tasks to wake when something changes.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    pub(crate) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) connection: Connection,
    /// The one session, once it is begun on our side.
    pub(crate) session: Option<SessionId>,
    /// The broker's open frame.
    pub(crate) open: Option<Box<Open>>,
    /// The broker has begun its side of the session.
    pub(crate) begun: bool,
    /// Why nothing works any more.
    pub(crate) failure: Option<Error>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    /// Who waits for the connection to open or to close.
    waiters: Waiters,
    /// The task with the socket.
    pub(crate) driver: Option<Waker>,
    /// The engine has something to write.
    dirty: bool,
}

impl Shared {
    pub(crate) fn new(connection: Connection, start: Instant) -> Self {
        let state = State {
            connection,
            session: None,
            open: None,
            begun: false,
            failure: None,
            links: BTreeMap::new(),
            waiters: Waiters::default(),
            driver: None,
            dirty: false,
        };
        Self { state: Mutex::new(state), start }
    }

    /// Milliseconds of the connection's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock leaves the state half changed, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, and wakes the connection's task if there is something to write.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state);
        if std::mem::take(&mut state.dirty)
            && let Some(driver) = state.driver.take()
        {
            driver.wake();
        }
        result
    }

    /// Waits until `check` finds something, asked again whenever something changed on the link (on the connection,
    /// if `None`).
    pub(crate) async fn until<T>(
        &self,
        link: Option<LinkId>,
        mut check: impl FnMut(&mut State) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        poll_fn(|cx| {
            self.act(|state| match check(state) {
                Ok(Some(found)) => Poll::Ready(Ok(found)),
                Err(error) => Poll::Ready(Err(error)),
                Ok(None) => match state.failure.clone() {
                    Some(failure) => Poll::Ready(Err(failure)),
                    None => {
                        state.waiters_of(link).add(cx.waker());
                        Poll::Pending
                    }
                },
            })
        })
        .await
    }
}

impl State {
    /// Notes that the engine has something to write.
    pub(crate) const fn touch(&mut self) {
        self.dirty = true;
    }

    /// Notes that everything has been taken from the engine.
    pub(crate) const fn clean(&mut self) {
        self.dirty = false;
    }

    fn waiters_of(&mut self, link: Option<LinkId>) -> &mut Waiters {
        match link.and_then(|link| self.links.get_mut(&link)) {
            Some(link) => &mut link.waiters,
            None => &mut self.waiters,
        }
    }

    /// A link that still works.
    pub(crate) fn usable(&mut self, id: LinkId) -> Result<&mut Link, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let link = self.links.get_mut(&id).ok_or(Error::Closed)?;
        match &link.ended {
            Some(error) => Err(error.clone()),
            None => Ok(link),
        }
    }

    /// Nothing works any more; the first reason counts.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.waiters.wake();
        self.links.values_mut().for_each(Link::wake_all);
    }

    /// Takes everything that the engine has to tell.
    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Transfer { .. } => self.on_transfer(event),
            Event::Outcome { link, first, last, state, settled } => {
                self.on_outcome(link, (first, last), state.as_deref(), settled);
            }
            Event::Credit { link, limit, drain, .. } => self.on_credit(link, limit, drain),
            Event::SenderFlow { link, limit, drained, .. } => self.on_sender_flow(link, limit, drained),
            Event::SenderState { link, first, last, settled: true, .. } => {
                self.on_settled(link, first, last);
            }
            Event::Sendable { link } => self.wake_link(link),
            Event::RemoteOpen(open) => self.on_open(open),
            Event::Begun { .. } => {
                self.begun = true;
                self.waiters.wake();
            }
            Event::Attached { link, attach } => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.attach = Some(attach);
                    link.waiters.wake();
                }
            }
            Event::RemoteAttach { link, .. } => {
                let error = AmqpError::new(NOT_IMPLEMENTED, "this client takes no links");
                let _ = self.connection.refuse_attach(link, error);
                self.touch();
            }
            Event::Detach { link, error, .. } => self.on_detach(link, error),
            Event::LinkFailed { link, error } => self.end_link(link, Error::Protocol(error.to_string())),
            Event::End { error, .. } => self.fail(Error::SessionEnded(error.into())),
            Event::SessionFailed { error, .. } => self.fail(Error::Protocol(error.to_string())),
            Event::Close { error } => self.on_close(error),
            Event::Failed(error) => self.fail(connection_error(&error)),
            // Sessions of the peer, its states on the way to settlement, and questions that only servers are asked.
            Event::RemoteBegin { .. }
            | Event::SenderState { .. }
            | Event::SaslAnonymous { .. }
            | Event::SaslPlain { .. } => {}
        }
    }

    fn on_open(&mut self, open: Box<Open>) {
        self.open = Some(open);
        match self.connection.begin(SessionOptions::default()) {
            Ok(session) => self.session = Some(session),
            // It is closed again already; the next event says why.
            Err(ApiMisuse::ConnectionGone) => {}
            Err(error) => self.fail(error.into()),
        }
        self.touch();
        self.waiters.wake();
    }

    fn on_close(&mut self, error: Option<AmqpError>) {
        self.fail(match error {
            None if self.failure.is_none() => Error::Closed,
            error => Error::ConnectionClosed(error.into()),
        });
    }

    fn on_detach(&mut self, link: LinkId, error: Option<AmqpError>) {
        // An error when this is the answer to our own detach.
        let asked = self.connection.detach(link, true, None).is_err();
        self.touch();
        let by_error = error.is_some();
        self.end_link(
            link,
            if asked && !by_error { Error::Closed } else { Error::LinkDetached(PeerError::from(error)) },
        );
    }

    fn end_link(&mut self, id: LinkId, error: Error) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.ended = Some(error);
        link.wake_all();
        if link.abandoned {
            self.links.remove(&id);
        }
    }

    fn wake_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.waiters.wake();
        }
    }

    fn on_credit(&mut self, id: LinkId, limit: u64, drain: bool) {
        let Some(Link { end: LinkEnd::Sender(sender), waiters, .. }) = self.links.get_mut(&id) else {
            return;
        };
        sender.limit = limit;
        if drain {
            // What waits in the engine goes out first; more is not known of here.
            sender.limit = sender.next;
            let _ = self.connection.drained(id);
            self.dirty = true;
        }
        waiters.wake();
    }

    fn on_sender_flow(&mut self, id: LinkId, limit: u64, drained: bool) {
        let Some(Link { end: LinkEnd::Receiver(receiver), waiters, .. }) = self.links.get_mut(&id) else {
            return;
        };
        if drained {
            receiver.limit = limit;
            receiver.draining = false;
            receiver.drained = true;
            waiters.wake();
        }
    }
}

/// What the failure of a connection means for its user.
fn connection_error(error: &postroad_amqp::Error) -> Error {
    match error {
        postroad_amqp::Error::PeerIncompatible(
            why @ (PeerIncompatible::Authentication(_) | PeerIncompatible::NoMechanism(_)),
        ) => Error::Login { reason: why.to_string() },
        other => Error::Protocol(other.to_string()),
    }
}

/// A symbol for text that may be none.
pub(crate) fn symbol(text: &str) -> Symbol {
    Symbol::new(text).unwrap_or_default()
}
