//! The connection: bytes in, events out, frames to the right session, open and close, time (part 2, sections 2.2 to
//! 2.4).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::frame::{FrameBody, MIN_MAX_FRAME_SIZE, ProtocolHeader, decode_frame, split_frame};
use postroad_amqp_codec::performative::{Close, Open, Performative};
use postroad_amqp_codec::{AmqpError, Encode, Fields, Symbol};

use crate::clock::Clock;
use crate::config::{AcceptSasl, Config, InitiateSasl};
use crate::error::{ApiMisuse, Error, Fault, PeerMisbehaved};
use crate::event::Event;
use crate::ids::{LinkId, NumberMap, NumberPool, SessionId, Slots};
use crate::link::{Link, Names};
use crate::output::{FrameTooLarge, Outbox, Output};
use crate::sasl::Sasl;
use crate::session::Session;
use crate::settlement::{CommonStates, Run};

/// The largest frame that is taken before the peer has opened, in bytes. The specification says 512 (part 2, section
/// 2.4.1); real peers have larger credentials and properties.
const MAX_EARLY_FRAME: u32 = 16 * 1024;

/// The shortest idle time-out of a peer that is served, in milliseconds (part 2, section 2.4.5).
const MIN_IDLE_TIMEOUT_MS: u32 = 10;

/// How many events may wait before no more input is taken: a frame of a few bytes may tell of thousands of deliveries.
pub(crate) const MAX_EVENTS: usize = 1024;

/// One AMQP 1.0 connection: our side of it, as a state machine without sockets, threads or a clock.
///
/// **The loop.** Read bytes into a `BytesMut` and call [`handle_input`](Self::handle_input); poll events until there are
/// none, and call it again if it stopped for that; make calls; [`poll_output`](Self::poll_output) and write; sleep until
/// input, or [`next_deadline`](Self::next_deadline), and then call [`handle_deadline`](Self::handle_deadline). What is
/// written between two polls of the output goes out together: flow frames and dispositions are held back until then and
/// joined.
///
/// **Back-pressure.** Some frames of the peer are answered at once, so read no more from a peer while much of the
/// [`Output`] for it is not written; and events hold payloads, so poll them after every input.
///
/// **Time** is `now_ms`, in milliseconds of a clock that never runs back.
///
/// **Faults of the peer** end what they are about: the link, the session or the connection. The peer is told, one
/// event says what happened, and nothing else is touched. When the connection itself is over
/// ([`is_finished`](Self::is_finished)), write what is left of the output and close the socket.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) sasl: Sasl,
    pub(crate) stage: Stage,
    /// Our open frame is written.
    local_open: bool,
    /// The peer's open frame has come.
    remote_open: bool,
    /// Our close frame is written, or none can be: nothing more is sent.
    pub(crate) local_closed: bool,
    pub(crate) peer: Peer,
    /// Sessions by the peer's channel.
    pub(crate) channels: NumberMap<SessionId>,
    /// Sessions by our channel.
    pub(crate) own_channels: NumberMap<SessionId>,
    pub(crate) channel_pool: NumberPool,
    pub(crate) sessions: Slots<Session>,
    pub(crate) links: Slots<Link>,
    pub(crate) names: Names,
    /// Headers, SASL frames and the open frame.
    pub(crate) early: Outbox,
    /// Everything behind the open frame; not polled before that is written.
    pub(crate) out: Outbox,
    pub(crate) events: VecDeque<Event>,
    /// Sessions that have something to write when output is polled.
    pub(crate) dirty: Vec<SessionId>,
    pub(crate) states: CommonStates,
    /// Kept between dispositions for its memory.
    pub(crate) runs: Vec<Run>,
    /// Bytes of payload that wait in the queues of sending links.
    pub(crate) waiting_bytes: u64,
    clock: Clock,
}

/// What the next bytes of the peer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The first protocol header.
    Header,
    /// Accepting: the mechanism that the peer chooses.
    SaslInit,
    /// Accepting: PLAIN credentials that did not come with the choice.
    SaslResponse,
    /// Accepting: nothing is read until the user has answered.
    SaslQuestion,
    /// Initiating: the mechanisms that the peer offers.
    SaslMechanisms,
    /// Initiating: the end of the dialogue.
    SaslOutcome,
    /// The AMQP header behind SASL, or after our own.
    AmqpHeader,
    /// AMQP frames.
    Amqp,
    /// We have failed the connection: everything but a close frame is passed over (part 2, section 2.4.6, DISCARDING).
    Discarding,
    /// Nothing: everything is thrown away.
    Finished,
}

/// What the peer's open frame has told us; before it, the least that every peer must take (part 2, section 2.4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) max_frame_size: u32,
    pub(crate) channel_max: u16,
}

/// What the accepting side says in its open frame beside what its [`Config`] says.
#[derive(Clone, Debug, Default)]
pub struct OpenReply {
    /// Extensions to offer to this peer, in addition.
    pub offered_capabilities: Vec<Symbol>,
    /// Properties for this peer, in addition.
    pub properties: Fields,
}

impl Connection {
    /// The accepting side: waits for the peer's protocol header.
    #[must_use]
    pub fn accept(config: Config, sasl: AcceptSasl, now_ms: u64) -> Self {
        Self::new(config, Sasl::Accept(sasl), now_ms)
    }

    /// The initiating side: sends its protocol header, and its open frame as soon as it may.
    #[must_use]
    pub fn initiate(config: Config, sasl: InitiateSasl, now_ms: u64) -> Self {
        let mut connection = Self::new(config, Sasl::Initiate(sasl), now_ms);
        connection.start();
        connection
    }

    fn new(config: Config, sasl: Sasl, now_ms: u64) -> Self {
        Self {
            clock: Clock::new(now_ms, config.idle_timeout_ms, config.open_timeout_ms),
            config,
            sasl,
            stage: Stage::Header,
            local_open: false,
            remote_open: false,
            local_closed: false,
            peer: Peer { max_frame_size: MIN_MAX_FRAME_SIZE, channel_max: 0 },
            channels: NumberMap::new(),
            own_channels: NumberMap::new(),
            channel_pool: NumberPool::default(),
            sessions: Slots::new(),
            links: Slots::new(),
            names: Names::default(),
            early: Outbox::default(),
            out: Outbox::default(),
            events: VecDeque::new(),
            dirty: Vec::new(),
            states: CommonStates::new(),
            runs: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Takes whole frames off the front of `input`; the rest of a frame stays in it. Whether it stopped before that,
    /// since many events wait: then poll them, and call it again with what was left.
    ///
    /// While a SASL question waits for its answer nothing is taken: call it again after the answer, with what was left.
    /// Payloads in events are slices of the input, so they keep its memory alive.
    pub fn handle_input(&mut self, now_ms: u64, input: &mut BytesMut) -> bool {
        self.clock.input(now_ms, input.len());
        let mut full = false;
        while !full {
            let more = match self.stage {
                Stage::Header | Stage::AmqpHeader => self.take_header(input),
                Stage::SaslQuestion => Ok(false),
                Stage::Finished => {
                    input.clear();
                    Ok(false)
                }
                _ => self.take_frame(input),
            };
            match more {
                Ok(true) => full = self.events.len() >= MAX_EVENTS,
                Ok(false) => break,
                // We have said why we close: what is no frame is thrown away like everything else.
                Err(_) if self.stage == Stage::Discarding => {
                    input.clear();
                    break;
                }
                Err(error) => self.fail(error),
            }
        }
        self.clock.left_over(input.len());
        full && !input.is_empty()
    }

    /// What happened: the next event, `None` when there is no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Moves all bytes that are ready to the end of `output`; whether there were any.
    pub fn poll_output(&mut self, output: &mut Output) -> bool {
        let before = output.len();
        self.flush();
        self.early.drain_into(output);
        if self.local_open {
            self.out.drain_into(output);
        }
        let some = output.len() > before;
        if some {
            self.clock.output();
        }
        some
    }

    /// When [`handle_deadline`](Self::handle_deadline) has to be called, if nothing happens before; `None`: never. It
    /// changes with every other call.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.stage == Stage::Finished {
            return None;
        }
        self.clock.next_deadline(self.local_open, self.remote_open)
    }

    /// Does what is due at `now_ms`: shows the peer that we live, gives up a peer that is silent or does not open (part
    /// 2, section 2.4.5), ends the wait for the peer's close.
    pub fn handle_deadline(&mut self, now_ms: u64) {
        if self.stage == Stage::Finished {
            return;
        }
        self.clock.tick(now_ms);
        if self.clock.is_close_due() {
            self.stage = Stage::Finished;
        } else if let Some(error) = self.clock.fault(self.remote_open) {
            self.fail(error.into());
        } else if self.clock.is_beat_due() && self.local_open && !self.local_closed {
            if self.early.is_empty() && self.out.is_empty() {
                self.out.empty_frame();
            }
            self.clock.output();
        }
    }

    /// Opens the connection: the accepting side's answer to [`Event::RemoteOpen`] (part 2, section 2.4.1).
    ///
    /// # Errors
    /// [`ApiMisuse::NotOpening`] before the peer has opened or when we have; [`ApiMisuse::ConnectionGone`].
    pub fn open(&mut self, reply: OpenReply) -> Result<(), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        if self.local_open || !self.remote_open {
            return Err(ApiMisuse::NotOpening);
        }
        self.write_open(reply);
        Ok(())
    }

    /// Refuses the connection: an open frame with `properties`, then a close frame with the error.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn refuse_open(&mut self, properties: Fields, error: AmqpError) -> Result<(), ApiMisuse> {
        self.open(OpenReply { properties, ..OpenReply::default() })?;
        self.send_close(Some(error));
        Ok(())
    }

    /// Closes the connection. Nothing more is sent; [`Event::Close`] confirms, or the connection is finished after 5
    /// seconds without an answer (part 2, section 2.4.3).
    ///
    /// # Errors
    /// [`ApiMisuse::ConnectionGone`] when it is closed already.
    pub fn close(&mut self, error: Option<AmqpError>) -> Result<(), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        self.send_close(error);
        Ok(())
    }

    /// Whether the connection is over: write what is left of the output, and close the socket.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    /// Whether both sides have opened, and neither has closed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.local_open && self.remote_open && !self.local_closed
    }

    /// The largest frame that the peer takes, in bytes; 512 until it has opened.
    #[must_use]
    pub fn peer_max_frame_size(&self) -> u32 {
        self.peer.max_frame_size
    }

    /// Bytes of payload, on all sending links, that are not written since a session's window is closed or a piece has
    /// to come.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Bytes of frames other than transfers that are ready and were not polled: mostly answers to the peer. A user that
    /// can't write should read no more once they are many.
    #[must_use]
    pub fn answers_waiting(&self) -> usize {
        self.early.answers() + self.out.answers()
    }

    /// The session of a link; `None` when the link is gone.
    #[must_use]
    pub fn session_of(&self, link: LinkId) -> Option<SessionId> {
        self.links.get(link.0).map(|link| link.session)
    }

    fn take_header(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        let header = match ProtocolHeader::decode(input) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(false),
            Err(_) => return Err(self.refuse_header(input)),
        };
        let _ = input.split_to(header.to_bytes().len());
        self.on_header(header)?;
        Ok(true)
    }

    fn take_frame(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        let mut max = self.own_max_frame_size();
        if !self.remote_open {
            max = max.min(MAX_EARLY_FRAME);
        }
        let Some(frame) = split_frame(input, max)? else { return Ok(false) };
        let frame = decode_frame(frame)?;
        match frame.body {
            FrameBody::Sasl(body) => self.on_sasl(body)?,
            _ if !matches!(self.stage, Stage::Amqp | Stage::Discarding) => {
                return Err(PeerMisbehaved::WrongLayer.into());
            }
            FrameBody::Empty => {}
            FrameBody::Amqp { performative, payload } => {
                self.on_frame(frame.channel, performative, payload)?;
            }
        }
        Ok(true)
    }

    fn on_frame(&mut self, channel: u16, performative: Performative, payload: Bytes) -> Result<(), Error> {
        if let Performative::Close(close) = performative {
            return self.on_close(close);
        }
        if self.stage == Stage::Discarding {
            return Ok(());
        }
        let max = self.config.channel_max;
        if channel > max {
            return Err(PeerMisbehaved::ChannelTooHigh { channel, max }.into());
        }
        match performative {
            Performative::Open(open) => self.on_open(open),
            _ if !self.remote_open => Err(PeerMisbehaved::NotOpened.into()),
            // What was on its way when we closed.
            _ if self.local_closed => Ok(()),
            performative => self.on_session_frame(channel, performative, payload),
        }
    }

    /// A frame of a session, or of one of its links.
    fn on_session_frame(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
    ) -> Result<(), Error> {
        let session = self.channels.get(channel.into());
        let id = || session.ok_or(Error::from(PeerMisbehaved::ChannelNotBegun { channel }));
        let result = match performative {
            Performative::Transfer(transfer) => self.on_transfer(id()?, transfer, payload),
            Performative::Disposition(disposition) => self.on_disposition(id()?, disposition),
            Performative::Flow(flow) => self.on_flow(id()?, flow),
            Performative::Attach(attach) => self.on_attach(id()?, attach),
            Performative::Detach(detach) => self.on_detach(id()?, detach),
            Performative::Begin(begin) => self.on_begin(channel, begin),
            Performative::End(end) => self.on_end(channel, end.error),
            Performative::Open(_) | Performative::Close(_) => Ok(()),
        };
        match (result, session) {
            (Err(Fault::Link(link, error)), _) => self.fail_link(link, error),
            (Err(Fault::Session(error)), Some(session)) => self.fail_session(session, error),
            (Err(Fault::Session(error)), None) => return Err(error.into()),
            (Err(Fault::Connection(error)), _) => return Err(error),
            (Ok(()), _) => {}
        }
        Ok(())
    }

    fn on_open(&mut self, open: Box<Open>) -> Result<(), Error> {
        if self.remote_open {
            return Err(PeerMisbehaved::OpenedTwice.into());
        }
        self.remote_open = true;
        self.peer.max_frame_size = open.max_frame_size.max(MIN_MAX_FRAME_SIZE);
        self.peer.channel_max = open.channel_max;
        match open.idle_time_out {
            Some(ms) if (1..MIN_IDLE_TIMEOUT_MS).contains(&ms) => {
                return Err(PeerMisbehaved::IdleTimeoutTooShort { ms }.into());
            }
            timeout => self.clock.beat_for(timeout),
        }
        if !self.local_closed {
            self.events.push_back(Event::RemoteOpen(open));
        }
        Ok(())
    }

    fn on_close(&mut self, close: Close) -> Result<(), Error> {
        if self.stage == Stage::Discarding {
            self.stage = Stage::Finished;
            return Ok(());
        }
        if !self.remote_open {
            return Err(PeerMisbehaved::NotOpened.into());
        }
        if !self.local_closed {
            self.send_close(None);
        }
        self.stage = Stage::Finished;
        self.events.push_back(Event::Close { error: close.error });
        Ok(())
    }

    /// Gives the connection up: tells the peer where a close frame is due, and the user.
    pub(crate) fn fail(&mut self, error: Error) {
        match self.stage {
            Stage::Finished | Stage::Discarding => return,
            Stage::Amqp => {
                self.stage = Stage::Discarding;
                if !self.local_closed {
                    self.send_close(error.to_amqp());
                }
            }
            _ => self.stage = Stage::Finished,
        }
        self.local_closed = true;
        self.events.push_back(Event::Failed(error));
    }

    fn send_close(&mut self, error: Option<AmqpError>) {
        if matches!(self.stage, Stage::Amqp | Stage::Discarding) || self.local_open {
            if !self.local_open {
                self.write_open(OpenReply::default());
            }
            self.flush();
            let (out, max) = (&mut self.out, self.peer.max_frame_size);
            shorten(error, |error| out.frame(0, max, &Close { error }));
            self.clock.closing();
        } else {
            // Before the AMQP layer there is no close frame: the socket is closed.
            self.stage = Stage::Finished;
        }
        self.local_closed = true;
    }

    /// Writes our open frame; before this nothing but headers and SASL frames goes out.
    pub(crate) fn write_open(&mut self, reply: OpenReply) {
        let config = &self.config;
        let mut open = Open {
            container_id: config.container_id.clone(),
            hostname: config.hostname.clone(),
            max_frame_size: self.own_max_frame_size(),
            channel_max: config.channel_max,
            idle_time_out: config.idle_timeout_ms.map(|ms| (ms / 2).max(1)),
            offered_capabilities: config.offered_capabilities.clone(),
            desired_capabilities: config.desired_capabilities.clone(),
            ..Open::default()
        };
        open.offered_capabilities.extend(reply.offered_capabilities);
        let properties: Fields = config.properties.0.iter().cloned().chain(reply.properties.0).collect();
        open.properties = Some(properties).filter(|properties| !properties.is_empty());
        // Larger than the peer allows or not: without it there is no connection.
        let _ = self.early.frame(0, u32::MAX, &open);
        self.local_open = true;
    }

    /// The largest frame that the peer may send, in bytes.
    pub(crate) fn own_max_frame_size(&self) -> u32 {
        self.config.max_frame_size.max(MIN_MAX_FRAME_SIZE)
    }

    /// Whether sessions can be begun.
    pub(crate) fn check_open(&self) -> Result<(), ApiMisuse> {
        if self.local_closed {
            Err(ApiMisuse::ConnectionGone)
        } else if self.local_open && self.remote_open {
            Ok(())
        } else {
            Err(ApiMisuse::NotOpening)
        }
    }

    /// Writes a frame on the channel of a session; nothing once we have closed or ended.
    pub(crate) fn write_on(&mut self, session: SessionId, body: &impl Encode) -> Result<(), FrameTooLarge> {
        if self.local_closed {
            return Ok(());
        }
        match self.sessions.get(session.0).filter(|session| !session.ended) {
            Some(session) => self.out.frame(session.channel, self.peer.max_frame_size, body),
            None => Ok(()),
        }
    }

    /// Writes a frame that carries an error, with as much of the error as fits.
    pub(crate) fn write_with_error<T: Encode>(
        &mut self,
        session: SessionId,
        error: Option<AmqpError>,
        frame: impl Fn(Option<AmqpError>) -> T,
    ) {
        shorten(error, |error| self.write_on(session, &frame(error)));
    }
}

/// Tries to write with all of an error, then without its information, then without its description.
fn shorten(error: Option<AmqpError>, mut write: impl FnMut(Option<AmqpError>) -> Result<(), FrameTooLarge>) {
    if write(error.clone()).is_ok() {
        return;
    }
    let Some(mut error) = error else { return };
    error.info = None;
    if write(Some(error.clone())).is_err() {
        error.description = None;
        // A condition is a short name; one that is not is the caller's own doing, and is left out.
        let _ = write(Some(error)).or_else(|_| write(None));
    }
}
