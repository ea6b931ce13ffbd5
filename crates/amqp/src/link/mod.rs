//! Links: attach and detach, from both sides (part 2, sections 2.6.1 to 2.6.6).

pub(crate) mod receiver;
pub(crate) mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_amqp_codec::performative::{
    Attach, Detach, ReceiverSettleMode, Role, SenderSettleMode, UnsettledMap,
};
use postroad_amqp_codec::terminus::{Source, TargetKind};
use postroad_amqp_codec::{AmqpError, Fields, Symbol};

use crate::connection::Connection;
use crate::error::{ApiMisuse, Fault, PeerMisbehaved};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::link::receiver::ReceiverLink;
use crate::link::sender::SenderLink;

/// The longest name of a peer's link, in bytes. A link that was refused is kept until the peer answers, so its name is
/// all that a peer can make us hold for it.
const MAX_LINK_NAME: usize = 1024;

/// What we say about a link that the peer has attached (part 2, section 2.7.3). Name, handle, role and the initial
/// delivery count are filled in.
#[derive(Clone, Debug, Default)]
pub struct AttachReply {
    /// The source as it is; `None` where there is none.
    pub source: Option<Source>,
    /// The target as it is; `None` where there is none.
    pub target: Option<TargetKind>,
    /// How the sender settles: where we receive, what we would like.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiver settles. The default, first, is also the answer to a peer that asked for second where that is
    /// not supported.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// What is unsettled at our end, for a link that is resumed.
    pub unsettled: Option<UnsettledMap>,
    /// `unsettled` is not complete.
    pub incomplete_unsettled: bool,
    /// The largest message that we take, in bytes, on a link on which we receive; `None` or 0: no limit. It is
    /// enforced.
    pub max_message_size: Option<u64>,
    /// Extensions that we offer on the link.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions that we would use on the link.
    pub desired_capabilities: Vec<Symbol>,
    /// Properties of the link.
    pub properties: Option<Fields>,
}

/// How far one end of a link has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// No attach yet.
    Absent,
    /// Attach, but no detach.
    Attached,
    /// Detach.
    Detached,
}

/// One link: our end of it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: SessionId,
    name: Arc<str>,
    /// What we have sent.
    pub(crate) local: Half,
    /// What the peer has sent.
    pub(crate) remote: Half,
    /// We have detached it for a fault of the peer, and the user knows.
    failed: bool,
    pub(crate) output_handle: u32,
    /// In the session's list of links whose flow state the peer has to be told.
    pub(crate) flow_due: bool,
    pub(crate) end: LinkEnd,
}

/// Which end of the link we are.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    Sender(SenderLink),
    Receiver(ReceiverLink),
}

impl Link {
    /// Whether we can still say something about it.
    pub(crate) fn is_usable(&self) -> bool {
        self.local == Half::Attached
    }

    fn role(&self) -> Role {
        match self.end {
            LinkEnd::Sender(_) => Role::Sender,
            LinkEnd::Receiver(_) => Role::Receiver,
        }
    }

    /// Takes over what the peer's attach says.
    fn attached(&mut self, attach: &Attach) {
        self.remote = Half::Attached;
        match &mut self.end {
            LinkEnd::Sender(sender) => sender.attached(attach),
            LinkEnd::Receiver(receiver) => receiver.attached(attach),
        }
    }
}

/// Links by our role and their name, which are unique between two containers (part 2, section 2.6.1).
#[derive(Debug, Default)]
pub(crate) struct Names {
    senders: BTreeMap<Arc<str>, LinkId>,
    receivers: BTreeMap<Arc<str>, LinkId>,
}

impl Names {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.senders.len() + self.receivers.len()
    }

    fn of(&mut self, role: Role) -> &mut BTreeMap<Arc<str>, LinkId> {
        match role {
            Role::Sender => &mut self.senders,
            Role::Receiver => &mut self.receivers,
        }
    }
}

impl Connection {
    /// Attaches a link. Everything in `attach` is sent as it is, except the handle and a sender's initial delivery
    /// count, which are filled in; `attach.role` is our role. A receiver may give credit at once; a sender has to wait
    /// for credit. The answer comes as [`Event::Attached`] (part 2, section 2.6.3).
    ///
    /// A name that is in use in the same direction on this connection moves to the new link.
    ///
    /// # Errors
    /// [`ApiMisuse::SessionGone`]; [`ApiMisuse::NoHandleLeft`] at the peer's handle-max; [`ApiMisuse::FrameTooLarge`].
    pub fn attach(&mut self, session: SessionId, attach: Attach) -> Result<LinkId, ApiMisuse> {
        self.session_mut(session).ok_or(ApiMisuse::SessionGone)?;
        let id = self.add_link(session, attach.role, &attach.name).ok_or(ApiMisuse::NoHandleLeft)?;
        self.send_attach(id, attach).inspect_err(|_| self.drop_link(id))?;
        Ok(id)
    }

    /// Answers a link of the peer (part 2, section 2.6.3). A receiver gives credit with
    /// [`Connection::flow_receiver`]; a sender is told the peer's credit by [`Event::Credit`].
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`]; [`ApiMisuse::NoAttachToAnswer`] when it was answered already;
    /// [`ApiMisuse::FrameTooLarge`].
    pub fn accept_attach(&mut self, link: LinkId, reply: AttachReply) -> Result<(), ApiMisuse> {
        let role = self.unanswered(link)?.role();
        let attach = Attach {
            role,
            source: reply.source,
            target: reply.target,
            snd_settle_mode: reply.snd_settle_mode,
            rcv_settle_mode: reply.rcv_settle_mode,
            unsettled: reply.unsettled,
            incomplete_unsettled: reply.incomplete_unsettled,
            max_message_size: reply.max_message_size,
            offered_capabilities: reply.offered_capabilities,
            desired_capabilities: reply.desired_capabilities,
            properties: reply.properties,
            ..Attach::default()
        };
        self.send_attach(link, attach)?;
        self.tell_early_credit(link);
        Ok(())
    }

    /// Refuses a link of the peer: an attach without source and target, then a closing detach with the error (part 2,
    /// section 2.6.3). When the peer's detach comes, [`Event::Detach`] says so.
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`]; [`ApiMisuse::NoAttachToAnswer`] when it was answered already.
    pub fn refuse_attach(&mut self, link: LinkId, error: AmqpError) -> Result<(), ApiMisuse> {
        self.unanswered(link)?;
        self.detach(link, true, Some(error))
    }

    /// Detaches a link, or answers the peer's detach; with `closed` the link is destroyed, else it may be attached
    /// again (part 2, sections 2.6.4 to 2.6.6). Deliveries that wait for the session window are dropped; those that are
    /// unsettled are in doubt. If the peer has not detached yet, [`Event::Detach`] confirms.
    ///
    /// # Errors
    /// [`ApiMisuse::ConnectionGone`]; [`ApiMisuse::LinkGone`] when it was detached on this side already.
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<AmqpError>) -> Result<(), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        if self.links.get(link.0).is_none_or(|found| found.local == Half::Detached) {
            return Err(ApiMisuse::LinkGone);
        }
        self.send_detach(link, closed, error);
        Ok(())
    }

    /// A link that the peer has attached and we have not answered.
    fn unanswered(&mut self, link: LinkId) -> Result<&mut Link, ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        let found = self.links.get_mut(link.0).ok_or(ApiMisuse::LinkGone)?;
        match found.local {
            Half::Absent => Ok(found),
            Half::Attached => Err(ApiMisuse::NoAttachToAnswer),
            Half::Detached => Err(ApiMisuse::LinkGone),
        }
    }

    /// Adds a link under a free handle; `None` at the peer's handle-max.
    fn add_link(&mut self, session: SessionId, role: Role, name: &str) -> Option<LinkId> {
        let (first_id, excess) = (self.config.first_id, u64::from(self.config.excess_credit));
        let found = self.sessions.get_mut(session.0)?;
        let output_handle = found.handles.take(found.remote_handle_max)?;
        let name: Arc<str> = name.into();
        let end = match role {
            Role::Sender => LinkEnd::Sender(SenderLink::new(first_id)),
            Role::Receiver => LinkEnd::Receiver(ReceiverLink::new(excess)),
        };
        let id = LinkId(self.links.insert(|_| Link {
            session,
            name: Arc::clone(&name),
            local: Half::Absent,
            remote: Half::Absent,
            failed: false,
            output_handle,
            flow_due: false,
            end,
        }));
        found.output.insert(output_handle, id);
        self.names.of(role).insert(name, id);
        Some(id)
    }

    /// Fills in and sends an attach. It says nothing of the link's state that is not in `attach`.
    fn send_attach(&mut self, id: LinkId, mut attach: Attach) -> Result<(), ApiMisuse> {
        let link = self.links.get_mut(id.0).ok_or(ApiMisuse::LinkGone)?;
        let session = link.session;
        attach.name = link.name.to_string();
        attach.handle = link.output_handle;
        match &mut link.end {
            LinkEnd::Sender(sender) => sender.attaching(&mut attach),
            LinkEnd::Receiver(receiver) => receiver.attaching(&mut attach),
        }
        self.write_on(session, &attach).map_err(|_| ApiMisuse::FrameTooLarge)?;
        if let Some(link) = self.links.get_mut(id.0) {
            link.local = Half::Attached;
        }
        Ok(())
    }

    /// Sends a detach, with an attach before it where there was none. The link goes when the peer has detached too.
    fn send_detach(&mut self, id: LinkId, closed: bool, error: Option<AmqpError>) {
        let Some(link) = self.links.get(id.0) else { return };
        let (session, handle, role) = (link.session, link.output_handle, link.role());
        if link.local == Half::Absent {
            // Only the name is of variable size, and it came in a frame of the peer.
            let _ = self.send_attach(id, Attach { role, ..Attach::default() });
        }
        self.flush_disposition(session);
        self.write_with_error(session, error, |error| Detach { handle, closed, error });
        self.silence_link(id);
        if let Some(link) = self.links.get_mut(id.0) {
            link.local = Half::Detached;
            if link.remote == Half::Detached {
                self.drop_link(id);
            }
        }
    }

    /// Detaches a link for a fault of the peer (part 2, section 2.6.5).
    pub(crate) fn fail_link(&mut self, id: LinkId, error: PeerMisbehaved) {
        let Some(link) = self.links.get_mut(id.0) else { return };
        link.failed = true;
        self.send_detach(id, true, Some(error.to_amqp()));
        self.events.push_back(Event::LinkFailed { link: id, error });
    }

    /// Forgets what a link was about to send, and its deliveries.
    fn silence_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id.0) else { return };
        let Some(session) = self.sessions.get_mut(link.session.0) else { return };
        match &mut link.end {
            LinkEnd::Sender(sender) => self.waiting_bytes -= sender.silence(id, session),
            LinkEnd::Receiver(receiver) => receiver.silence(session),
        }
    }

    /// Takes a link out of every table.
    pub(crate) fn drop_link(&mut self, id: LinkId) {
        self.silence_link(id);
        let Some(link) = self.links.remove(id.0) else { return };
        if let Some(session) = self.sessions.get_mut(link.session.0) {
            session.output.remove(link.output_handle);
            session.handles.give_back(link.output_handle);
        }
        let names = self.names.of(link.role());
        if names.get(&link.name) == Some(&id) {
            names.remove(&link.name);
        }
    }

    pub(crate) fn on_attach(&mut self, session: SessionId, attach: Box<Attach>) -> Result<(), Fault> {
        let max = self.config.handle_max;
        let Some(found) = self.session_mut(session) else { return Ok(()) };
        let handle = attach.handle;
        if handle > max {
            return Err(PeerMisbehaved::HandleTooHigh { handle, max }.into());
        }
        if found.input.get(handle).is_some() {
            return Err(PeerMisbehaved::HandleInUse { handle }.into());
        }
        let namesake = self.names.of(attach.role.opposite()).get(attach.name.as_str()).copied();
        let state =
            namesake.and_then(|id| self.links.get(id.0)).map(|link| (link.session, link.local, link.remote));
        match (namesake, state) {
            (Some(id), Some((asked, _, Half::Absent))) if asked == session => {
                self.attach_answered(id, session, attach);
                return Ok(());
            }
            (Some(id), Some((_, Half::Absent | Half::Attached, Half::Attached))) => {
                self.fail_link(id, PeerMisbehaved::Stolen);
            }
            _ => {}
        }
        self.attach_remote(session, attach)
    }

    fn attach_answered(&mut self, id: LinkId, session: SessionId, attach: Box<Attach>) {
        if let Some(session) = self.sessions.get_mut(session.0) {
            session.bind(attach.handle, id);
        }
        let Some(link) = self.links.get_mut(id.0) else { return };
        link.attached(&attach);
        if link.local == Half::Attached {
            self.events.push_back(Event::Attached { link: id, attach });
        }
    }

    fn attach_remote(&mut self, session: SessionId, attach: Box<Attach>) -> Result<(), Fault> {
        let (len, max) = (attach.name.len(), MAX_LINK_NAME);
        if len > max {
            return Err(PeerMisbehaved::LinkNameTooLong { len, max }.into());
        }
        let role = attach.role.opposite();
        let id = self.add_link(session, role, &attach.name).ok_or(PeerMisbehaved::NoHandleLeft)?;
        if let Some(session) = self.sessions.get_mut(session.0) {
            session.bind(attach.handle, id);
        }
        if let Some(link) = self.links.get_mut(id.0) {
            link.attached(&attach);
        }
        self.events.push_back(Event::RemoteAttach { link: id, session, attach });
        Ok(())
    }

    pub(crate) fn on_detach(&mut self, session: SessionId, detach: Detach) -> Result<(), Fault> {
        let Some(found) = self.session_mut(session) else { return Ok(()) };
        let handle = detach.handle;
        let id = found.input.remove(handle).ok_or(PeerMisbehaved::HandleNotAttached { handle })?;
        let Some(link) = self.links.get_mut(id.0) else { return Ok(()) };
        link.remote = Half::Detached;
        let (failed, answered) = (link.failed, link.local == Half::Detached);
        if !failed {
            self.events.push_back(Event::Detach { link: id, closed: detach.closed, error: detach.error });
        }
        if answered {
            self.drop_link(id);
        }
        Ok(())
    }

    /// The link that the peer names by a handle.
    pub(crate) fn input_link(&mut self, session: SessionId, handle: u32) -> Result<LinkId, PeerMisbehaved> {
        let found = self.sessions.get(session.0).and_then(|session| session.input.get(handle));
        found.ok_or(PeerMisbehaved::HandleNotAttached { handle })
    }
}
