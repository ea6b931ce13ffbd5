//! What sending and receiving links share: attach, detach, and letting go.

use std::sync::Arc;

use postroad_amqp::LinkId;
use postroad_amqp_codec::performative::{Attach, Role};
use postroad_amqp_codec::terminus::TargetKind;

use crate::client::Handle;
use crate::error::{Error, PeerError};
use crate::receiver::ReceiverState;
use crate::sender::SenderState;
use crate::state::Waiters;

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    /// The broker's answer.
    pub(crate) attach: Option<Box<Attach>>,
    /// Why it works no more.
    pub(crate) ended: Option<Error>,
    /// Nobody holds it: it goes when the broker has detached.
    pub(crate) abandoned: bool,
    pub(crate) waiters: Waiters,
    pub(crate) end: LinkEnd,
}

/// Which end of it we are.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    Sender(SenderState),
    Receiver(ReceiverState),
}

impl Link {
    pub(crate) fn wake_all(&mut self) {
        self.waiters.wake();
        if let LinkEnd::Sender(sender) = &mut self.end {
            sender.wake_awaited();
        }
    }
}

/// A link in the user's hands; letting it go detaches.
#[derive(Debug)]
pub(crate) struct LinkHandle {
    pub(crate) connection: Arc<Handle>,
    pub(crate) id: LinkId,
    /// The broker's answer.
    pub(crate) attach: Box<Attach>,
    close_on_drop: bool,
}

/// Detaches a link that nobody waits for any more.
#[derive(Debug)]
struct Abandon<'a> {
    connection: &'a Handle,
    id: LinkId,
    close: bool,
    armed: bool,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if self.armed {
            abandon(self.connection, self.id, self.close);
        }
    }
}

fn abandon(connection: &Handle, id: LinkId, close: bool) {
    connection.shared.act(|state| {
        let Some(link) = state.links.get_mut(&id) else { return };
        link.abandoned = true;
        if link.ended.is_some() || state.failure.is_some() {
            state.links.remove(&id);
        } else {
            let _ = state.connection.detach(id, close, None);
            state.touch();
        }
    });
}

impl LinkHandle {
    /// Attaches a link and waits for the answer (part 2, section 2.6.3). `asked` is what is named when it is refused.
    pub(crate) async fn attach(
        connection: Arc<Handle>,
        attach: Attach,
        end: LinkEnd,
        asked: &str,
        close_on_drop: bool,
    ) -> Result<Self, Error> {
        let id = connection.shared.act(|state| {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let session = state.session.ok_or(Error::Closed)?;
            let id = state.connection.attach(session, attach)?;
            let waiters = Waiters::default();
            state.links.insert(id, Link { attach: None, ended: None, abandoned: false, waiters, end });
            state.touch();
            Ok(id)
        })?;
        let mut guard = Abandon { connection: &connection, id, close: close_on_drop, armed: true };
        let answer = connection.timed(connection.shared.until(Some(id), |state| {
            let link = state.links.get_mut(&id).ok_or(Error::Closed)?;
            if let Some(error) = &link.ended {
                return Err(refused(asked, error));
            }
            // A null terminus is a refusal whose reason is on its way.
            Ok(link.attach.take_if(|attach| has_terminus(attach)))
        }));
        let attach = answer.await?;
        guard.armed = false;
        drop(guard);
        Ok(Self { connection, id, attach, close_on_drop })
    }

    /// Detaches and waits for the answer.
    pub(crate) async fn detach(self, close: bool) -> Result<(), Error> {
        let id = self.id;
        let shared = &self.connection.shared;
        shared.act(|state| {
            state.usable(id)?;
            state.connection.detach(id, close, None)?;
            state.touch();
            Ok::<_, Error>(())
        })?;
        let ended = shared.until(Some(id), |state| {
            Ok(state.links.get(&id).map_or(Some(Error::Closed), |link| link.ended.clone()))
        });
        match self.connection.timed(ended).await? {
            Error::Closed => Ok(()),
            error => Err(error),
        }
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        abandon(&self.connection, self.id, self.close_on_drop);
    }
}

/// Whether the broker's end of the link has what ours asked for.
const fn has_terminus(attach: &Attach) -> bool {
    match attach.role {
        Role::Sender => attach.source.is_some(),
        Role::Receiver => attach.target.is_some(),
    }
}

fn refused(asked: &str, error: &Error) -> Error {
    let error = match error {
        Error::LinkDetached(error) => error.clone(),
        Error::Closed => PeerError::default(),
        other => return other.clone(),
    };
    Error::LinkRefused { address: asked.to_owned(), error }
}

/// The address of the node at the broker's end.
pub(crate) fn address_of(attach: &Attach) -> Option<&str> {
    match (attach.role, &attach.target) {
        (Role::Sender, _) => attach.source.as_ref()?.address.as_deref(),
        (Role::Receiver, Some(TargetKind::Target(target))) => target.address.as_deref(),
        (Role::Receiver, _) => None,
    }
}
