//! Sessions: begin and end, windows, and the flow state that links share (part 2, section 2.5).

use std::collections::VecDeque;

use postroad_amqp_codec::performative::{Begin, End, Flow};
use postroad_amqp_codec::{AmqpError, Fields, Symbol};

use crate::connection::Connection;
use crate::delivery::Ledger;
use crate::error::{ApiMisuse, Fault, PeerMisbehaved};
use crate::event::Event;
use crate::ids::{LinkId, NumberMap, NumberPool, SessionId};
use crate::serial::Serial;
use crate::settlement::PendingDisposition;

/// Our outgoing window: we never keep transfers to send them again, so it limits nothing (part 2, section 2.5.6).
const OUTGOING_WINDOW: u32 = i32::MAX as u32;

/// Delivery ids are counted in 64 bits from here, so that ids a little before the first one have a place too.
const FIRST_DELIVERY: u64 = 1 << 32;

/// What a `begin` frame says beside windows and handles (part 2, section 2.7.2).
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Extensions that we offer in the session.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions that we would use in the session.
    pub desired_capabilities: Vec<Symbol>,
    /// Properties of the session.
    pub properties: Option<Fields>,
}

/// One session: our end of it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The channel that we send on.
    pub(crate) channel: u16,
    /// The channel that the peer sends on, once it has begun.
    pub(crate) remote_channel: Option<u16>,
    /// We have ended: nothing is sent, and all input but the peer's `end` is passed over.
    pub(crate) ended: bool,
    /// We have ended it for a fault of the peer, and the user knows.
    pub(crate) failed: bool,

    first_outgoing: Serial,
    pub(crate) next_outgoing: Serial,
    /// How many transfers the peer takes now.
    pub(crate) remote_window: u32,
    next_incoming: Serial,
    /// How many transfers the peer may send now.
    incoming_left: u32,
    incoming_window: u32,

    /// The highest handle that the peer takes.
    pub(crate) remote_handle_max: u32,
    pub(crate) handles: NumberPool,
    /// Links by the peer's handle.
    pub(crate) input: NumberMap<LinkId>,
    /// One above the highest handle that the peer has ever attached.
    handles_seen: u32,
    /// All links, by our handle.
    pub(crate) output: NumberMap<LinkId>,

    /// Our next delivery id.
    pub(crate) next_delivery: u64,
    /// Our unsettled deliveries: id to link.
    pub(crate) outgoing: Ledger<LinkId>,
    /// The peer's latest delivery id.
    pub(crate) last_incoming: Option<u64>,
    /// The peer's unsettled deliveries: id to link.
    pub(crate) incoming: Ledger<LinkId>,

    /// A disposition that may still grow.
    pub(crate) disposition: Option<PendingDisposition>,
    /// Sending links that have deliveries waiting for the remote window, in turn.
    pub(crate) ring: VecDeque<LinkId>,
    /// Links whose flow state the peer has to be told.
    pub(crate) flows_due: Vec<LinkId>,
    /// The peer has to be told the flow state of the session.
    pub(crate) flow_due: bool,
    /// In the list of sessions that have something to write when output is polled.
    pub(crate) dirty: bool,
}

impl Session {
    fn new(id: SessionId, channel: u16, first_id: u32, incoming_window: u32) -> Self {
        Self {
            id,
            channel,
            remote_channel: None,
            ended: false,
            failed: false,
            first_outgoing: Serial::new(first_id),
            next_outgoing: Serial::new(first_id),
            remote_window: 0,
            next_incoming: Serial::new(0),
            incoming_left: incoming_window,
            incoming_window,
            remote_handle_max: u32::MAX,
            handles: NumberPool::default(),
            input: NumberMap::new(),
            handles_seen: 0,
            output: NumberMap::new(),
            next_delivery: FIRST_DELIVERY + u64::from(first_id),
            outgoing: Ledger::new(),
            last_incoming: None,
            incoming: Ledger::new(),
            disposition: None,
            ring: VecDeque::new(),
            flows_due: Vec::new(),
            flow_due: false,
            dirty: false,
        }
    }

    fn begun(&mut self, channel: u16, begin: &Begin) {
        self.remote_channel = Some(channel);
        self.next_incoming = Serial::new(begin.next_outgoing_id);
        self.remote_window = begin.incoming_window;
        self.remote_handle_max = begin.handle_max;
    }

    /// The 64-bit count of a delivery id of the peer's deliveries.
    pub(crate) fn incoming_id(&self, id: u32) -> u64 {
        match self.last_incoming {
            Some(last) => Serial::new(id).nearest(last),
            None => FIRST_DELIVERY + u64::from(id),
        }
    }

    /// One more transfer frame has arrived (part 2, section 2.5.6).
    pub(crate) fn take_transfer(&mut self) -> Result<(), PeerMisbehaved> {
        self.incoming_left = self.incoming_left.checked_sub(1).ok_or(PeerMisbehaved::WindowViolated)?;
        self.next_incoming = self.next_incoming.next();
        if self.incoming_left <= self.incoming_window / 2 {
            self.flow_due = true;
        }
        Ok(())
    }

    /// The session's part of a flow frame. The window that it states is open from then on.
    pub(crate) fn flow(&mut self) -> Flow {
        self.flow_due = false;
        self.incoming_left = self.incoming_window;
        Flow {
            next_incoming_id: self.remote_channel.map(|_| self.next_incoming.get()),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing.get(),
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }

    /// Gives the peer's handle to a link.
    pub(crate) fn bind(&mut self, handle: u32, link: LinkId) {
        self.input.insert(handle, link);
        self.handles_seen = self.handles_seen.max(handle.saturating_add(1));
    }

    /// Whether a handle has no link and is none that the peer has never used.
    fn was_attached(&self, handle: u32) -> bool {
        self.input.get(handle).is_none() && handle < self.handles_seen
    }

    /// Takes over the session's part of the peer's flow frame (part 2, section 2.5.6).
    fn take_flow(&mut self, flow: &Flow) {
        let seen = flow.next_incoming_id.map_or(self.first_outgoing, Serial::new);
        let window = i64::from(seen.since(self.next_outgoing)) + i64::from(flow.incoming_window);
        self.remote_window = u32::try_from(window.max(0)).unwrap_or(u32::MAX);
        self.next_incoming = Serial::new(flow.next_outgoing_id);
    }
}

impl Connection {
    /// Begins a session. Links may be attached to it at once; the answer comes as [`Event::Begun`] (part 2, section
    /// 2.5.1).
    ///
    /// # Errors
    /// [`ApiMisuse::ConnectionGone`] when nothing more can be sent, [`ApiMisuse::NotOpening`] before the peer has
    /// opened, [`ApiMisuse::NoChannelLeft`] at the peer's channel-max, [`ApiMisuse::FrameTooLarge`].
    pub fn begin(&mut self, options: SessionOptions) -> Result<SessionId, ApiMisuse> {
        self.check_open()?;
        let id = self.add_session().ok_or(ApiMisuse::NoChannelLeft)?;
        let begin = Begin {
            offered_capabilities: options.offered_capabilities,
            desired_capabilities: options.desired_capabilities,
            properties: options.properties,
            ..self.begin_frame(None)
        };
        if self.write_on(id, &begin).is_err() {
            self.drop_session(id);
            return Err(ApiMisuse::FrameTooLarge);
        }
        Ok(id)
    }

    /// Ends a session with all its links. The ids of the links name nothing from now on; deliveries that were sent and
    /// not settled are in doubt. [`Event::End`] confirms (part 2, section 2.5.2).
    ///
    /// # Errors
    /// [`ApiMisuse::SessionGone`] when it has ended already.
    pub fn end(&mut self, session: SessionId, error: Option<AmqpError>) -> Result<(), ApiMisuse> {
        self.session_mut(session).ok_or(ApiMisuse::SessionGone)?;
        self.end_session(session, error);
        Ok(())
    }

    /// Sends `end` and drops the links; the session stays until the peer has ended too.
    pub(crate) fn end_session(&mut self, id: SessionId, error: Option<AmqpError>) {
        self.flush_disposition(id);
        self.write_with_error(id, error, |error| End { error });
        self.drop_links(id);
        if let Some(session) = self.sessions.get_mut(id.0) {
            session.ended = true;
        }
    }

    /// Ends a session for a fault of the peer (part 2, section 2.5.4).
    pub(crate) fn fail_session(&mut self, id: SessionId, error: PeerMisbehaved) {
        if self.session_mut(id).is_none() {
            return;
        }
        self.end_session(id, Some(error.to_amqp()));
        if let Some(session) = self.sessions.get_mut(id.0) {
            session.failed = true;
        }
        self.events.push_back(Event::SessionFailed { session: id, error });
    }

    pub(crate) fn on_begin(&mut self, channel: u16, begin: Box<Begin>) -> Result<(), Fault> {
        if self.channels.get(channel.into()).is_some() {
            return Err(PeerMisbehaved::ChannelInUse { channel }.into());
        }
        match begin.remote_channel {
            Some(ours) => self.begin_answered(channel, ours, begin),
            None => self.begin_remote(channel, begin),
        }
    }

    fn begin_answered(&mut self, channel: u16, ours: u16, begin: Box<Begin>) -> Result<(), Fault> {
        let id = self.own_channels.get(ours.into());
        let waiting = id.and_then(|id| self.sessions.get_mut(id.0)).filter(|s| s.remote_channel.is_none());
        let session = waiting.ok_or(PeerMisbehaved::BeginNotAsked { channel: ours })?;
        session.begun(channel, &begin);
        let (id, ended) = (session.id, session.ended);
        self.channels.insert(channel.into(), id);
        if !ended {
            self.events.push_back(Event::Begun { session: id, begin });
            self.pump(id);
        }
        Ok(())
    }

    fn begin_remote(&mut self, channel: u16, begin: Box<Begin>) -> Result<(), Fault> {
        let id = self.add_session().ok_or(PeerMisbehaved::NoChannelLeft)?;
        if let Some(session) = self.sessions.get_mut(id.0) {
            session.begun(channel, &begin);
        }
        self.channels.insert(channel.into(), id);
        let answer = self.begin_frame(Some(channel));
        // Without properties and capabilities the frame is smaller than the smallest that every peer takes.
        let _ = self.write_on(id, &answer);
        self.events.push_back(Event::RemoteBegin { session: id, begin });
        Ok(())
    }

    pub(crate) fn on_end(&mut self, channel: u16, error: Option<AmqpError>) -> Result<(), Fault> {
        let id = self.channels.get(channel.into()).ok_or(PeerMisbehaved::ChannelNotBegun { channel })?;
        let (ended, failed) = self.sessions.get(id.0).map_or((true, true), |s| (s.ended, s.failed));
        if !ended {
            self.end_session(id, None);
        }
        if !failed {
            self.events.push_back(Event::End { session: id, error });
        }
        self.drop_session(id);
        Ok(())
    }

    pub(crate) fn on_flow(&mut self, id: SessionId, flow: Flow) -> Result<(), Fault> {
        let Some(session) = self.session_mut(id) else { return Ok(()) };
        session.take_flow(&flow);
        match flow.handle {
            // go-amqp may send a link's flow behind its detach; what it says of the session holds.
            Some(handle) if session.was_attached(handle) => {}
            Some(handle) => self.on_link_flow(id, handle, flow)?,
            None => {
                session.flow_due |= flow.echo;
                self.touch(id);
            }
        }
        self.pump(id);
        Ok(())
    }

    /// A session that we have not ended.
    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        if self.local_closed {
            return None;
        }
        self.sessions.get_mut(id.0).filter(|session| !session.ended)
    }

    fn add_session(&mut self) -> Option<SessionId> {
        let channel = self.channel_pool.take(self.peer.channel_max.into())?;
        let (first_id, window) = (self.config.first_id, self.config.incoming_window.max(1));
        let number = u16::try_from(channel).unwrap_or(u16::MAX);
        let id = SessionId(self.sessions.insert(|id| Session::new(SessionId(id), number, first_id, window)));
        self.own_channels.insert(channel, id);
        Some(id)
    }

    fn begin_frame(&self, remote_channel: Option<u16>) -> Begin {
        Begin {
            remote_channel,
            next_outgoing_id: self.config.first_id,
            incoming_window: self.config.incoming_window.max(1),
            outgoing_window: OUTGOING_WINDOW,
            handle_max: self.config.handle_max,
            ..Begin::default()
        }
    }

    /// Takes a session out of every table.
    fn drop_session(&mut self, id: SessionId) {
        self.drop_links(id);
        if let Some(session) = self.sessions.remove(id.0) {
            self.own_channels.remove(session.channel.into());
            self.channel_pool.give_back(session.channel.into());
            if let Some(channel) = session.remote_channel {
                self.channels.remove(channel.into());
            }
        }
    }

    /// Takes all links of a session out of every table.
    fn drop_links(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id.0) else { return };
        let links: Vec<LinkId> = session.output.values().collect();
        session.ring.clear();
        for link in links {
            self.drop_link(link);
        }
    }

    /// Notes that a session has something to write when output is polled.
    pub(crate) fn touch(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id.0)
            && !session.dirty
        {
            session.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Writes what was held back to be written in one piece: dispositions and flows.
    pub(crate) fn flush(&mut self) {
        while let Some(id) = self.dirty.pop() {
            if let Some(session) = self.sessions.get_mut(id.0) {
                session.dirty = false;
            }
            self.flush_session(id);
        }
    }

    pub(crate) fn flush_session(&mut self, id: SessionId) {
        self.flush_disposition(id);
        let Some(session) = self.session_mut(id) else { return };
        for link in std::mem::take(&mut session.flows_due) {
            self.write_link_flow(link);
        }
        if let Some(session) = self.session_mut(id).filter(|session| session.flow_due) {
            let flow = session.flow();
            // A flow frame without properties is smaller than the smallest that every peer takes.
            let _ = self.write_on(id, &flow);
        }
    }
}
