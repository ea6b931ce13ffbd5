//! One engine, and a peer that sends what the test says.

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp_codec::frame::{
    FrameBody, ProtocolHeader, decode_frame, split_frame, write_frame, write_sasl_frame,
};
use postroad_amqp_codec::performative::{
    Attach, Begin, DeliveryTag, Flow, Open, Performative, Role, Transfer,
};
use postroad_amqp_codec::sasl::SaslBody;
use postroad_amqp_codec::{AmqpError, Encode};

use super::pair::{ANYONE, attach, named, reply};
use crate::{AcceptSasl, AttachReply, Config, Connection, Event, LinkId, OpenReply, Output, SessionId};

pub(crate) struct Script {
    pub(crate) engine: Connection,
    input: BytesMut,
    /// What the engine has written and the script has not looked at.
    pub(crate) wire: BytesMut,
    pub(crate) now: u64,
}

impl Script {
    pub(crate) fn accept(config: Config, sasl: AcceptSasl) -> Self {
        Self::over(Connection::accept(config, sasl, 0))
    }

    pub(crate) fn over(engine: Connection) -> Self {
        Self { engine, input: BytesMut::new(), wire: BytesMut::new(), now: 0 }
    }

    /// An accepting engine that is open.
    pub(crate) fn open(config: Config) -> Self {
        let mut script = Self::accept(config, ANYONE);
        script.raw(&ProtocolHeader::AMQP.to_bytes());
        script.send(0, &Open { container_id: "peer".to_owned(), ..Open::default() });
        assert!(matches!(script.event(), Event::RemoteOpen(_)));
        script.engine.open(OpenReply::default()).unwrap();
        script.expect_header(ProtocolHeader::AMQP);
        assert!(matches!(script.expect(), Performative::Open(_)));
        script
    }

    /// An accepting engine with a session on channel 0.
    pub(crate) fn session() -> (Self, SessionId) {
        Self::session_of(named("server"))
    }

    pub(crate) fn session_of(config: Config) -> (Self, SessionId) {
        let mut script = Self::open(config);
        script.send(0, &Begin { incoming_window: 1000, outgoing_window: 1000, ..Begin::default() });
        let Event::RemoteBegin { session, .. } = script.event() else { panic!() };
        assert!(matches!(script.expect(), Performative::Begin(_)));
        (script, session)
    }

    /// Attaches a link of the peer on channel 0, and accepts it.
    pub(crate) fn link(&mut self, role: Role, handle: u32) -> LinkId {
        self.link_with(role, handle, |reply| reply)
    }

    pub(crate) fn link_with(
        &mut self,
        role: Role,
        handle: u32,
        change: impl FnOnce(AttachReply) -> AttachReply,
    ) -> LinkId {
        let frame = named_attach(role, handle);
        let answer = change(reply(&frame));
        self.send(0, &frame);
        let Event::RemoteAttach { link, .. } = self.event() else { panic!() };
        self.engine.accept_attach(link, answer).unwrap();
        assert!(matches!(self.expect(), Performative::Attach(_)));
        link
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.engine.handle_input(self.now, &mut self.input);
    }

    /// What the engine left of the input.
    pub(crate) fn left_over(&self) -> usize {
        self.input.len()
    }

    pub(crate) fn send(&mut self, channel: u16, body: &impl Encode) {
        self.send_payload(channel, body, b"");
    }

    pub(crate) fn send_payload(&mut self, channel: u16, body: &impl Encode, payload: &[u8]) {
        let mut frame = Vec::new();
        write_frame(&mut frame, channel, body, payload.len());
        frame.extend_from_slice(payload);
        self.raw(&frame);
    }

    pub(crate) fn send_sasl(&mut self, body: &impl Encode) {
        let mut frame = Vec::new();
        write_sasl_frame(&mut frame, body);
        self.raw(&frame);
    }

    pub(crate) fn event(&mut self) -> Event {
        self.engine.poll_event().expect("an event")
    }

    pub(crate) fn no_event(&mut self) {
        let event = self.engine.poll_event();
        assert!(event.is_none(), "{event:?}");
    }

    pub(crate) fn poll(&mut self) {
        let mut output = Output::new();
        self.engine.poll_output(&mut output);
        self.wire.extend_from_slice(&output.copy_to_bytes(output.remaining()));
    }

    pub(crate) fn expect_header(&mut self, header: ProtocolHeader) {
        self.poll();
        assert_eq!(self.wire.split_to(8)[..], header.to_bytes());
    }

    fn frame(&mut self) -> Option<FrameBody> {
        self.poll();
        let frame = split_frame(&mut self.wire, u32::MAX).unwrap()?;
        Some(decode_frame(frame).unwrap().body)
    }

    /// The next performative that the engine has written.
    pub(crate) fn expect(&mut self) -> Performative {
        self.expect_payload().0
    }

    pub(crate) fn expect_payload(&mut self) -> (Performative, Bytes) {
        match self.frame() {
            Some(FrameBody::Amqp { performative, payload }) => (performative, payload),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expect_empty(&mut self) {
        assert_eq!(self.frame(), Some(FrameBody::Empty));
    }

    pub(crate) fn expect_sasl(&mut self) -> SaslBody {
        match self.frame() {
            Some(FrameBody::Sasl(body)) => body,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn expect_nothing(&mut self) {
        let frame = self.frame();
        assert!(frame.is_none() && self.wire.is_empty(), "{frame:?}");
    }

    pub(crate) fn expect_close(&mut self, condition: &str) {
        let Performative::Close(close) = self.expect() else { panic!() };
        check_condition(close.error, condition);
        self.expect_nothing();
    }

    pub(crate) fn expect_end(&mut self, condition: &str) {
        let Performative::End(end) = self.expect() else { panic!() };
        check_condition(end.error, condition);
        self.expect_nothing();
    }

    pub(crate) fn expect_detach(&mut self, condition: &str) {
        let Performative::Detach(detach) = self.expect() else { panic!() };
        assert!(detach.closed);
        check_condition(detach.error, condition);
        self.expect_nothing();
    }

    pub(crate) fn expect_flow(&mut self) -> Flow {
        match self.expect() {
            Performative::Flow(flow) => flow,
            other => panic!("{other:?}"),
        }
    }
}

fn check_condition(error: Option<AmqpError>, condition: &str) {
    let error = error.expect("an error");
    assert_eq!(error.condition, condition);
    assert!(error.description.is_some());
}

pub(crate) fn named_attach(role: Role, handle: u32) -> Attach {
    let initial_delivery_count = (role == Role::Sender).then_some(0);
    Attach { handle, initial_delivery_count, ..attach(role, &format!("link {handle} {role:?}")) }
}

/// A whole delivery.
pub(crate) fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from_number(id.into())),
        message_format: Some(0),
        ..Transfer::default()
    }
}

/// The receiver's credit for a link.
pub(crate) fn credit(handle: u32, count: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 1000,
        outgoing_window: 1000,
        handle: Some(handle),
        delivery_count: Some(count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}
