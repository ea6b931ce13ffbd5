//! A client that writes what it likes: frames one by one, or bytes.

use crate::broker::PATIENCE;
use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::frame::{FrameBody, decode_frame, split_frame, write_frame};
use postroad_amqp_codec::message::{Body, Message};
use postroad_amqp_codec::performative::{
    Attach, Begin, Close, DeliveryTag, Detach, Disposition, End, Flow, Open, Performative, Role, Transfer,
};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, TargetKind};
use postroad_amqp_codec::{AmqpError, Encode, Value};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(crate) const HEADER: &[u8] = b"AMQP\0\x01\0\0";

pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    input: BytesMut,
}

impl Peer {
    /// A socket, and nothing said.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, input: BytesMut::new() }
    }

    pub(crate) fn open(address: SocketAddr) -> Self {
        let mut peer = Self::connect(address);
        peer.write(HEADER);
        peer.put(0, &Open { container_id: "bad".into(), ..Open::default() });
        assert_eq!(&peer.read_exact(8)[..], HEADER);
        assert!(matches!(peer.next(), (Performative::Open(_), _)));
        peer
    }

    pub(crate) fn begin(&mut self, channel: u16) {
        self.put(channel, &begin());
        assert!(matches!(self.next_but_flow(), (Performative::Begin(_), _)));
    }

    pub(crate) fn attach_sender(&mut self, handle: u32, address: &str) -> Attach {
        self.attach(&sender(handle, address))
    }

    /// Attaches to receive, with credit.
    pub(crate) fn attach_receiver(&mut self, handle: u32, address: &str, credit: u32) -> Attach {
        let attach = self.attach(&receiver(handle, address));
        self.put(0, &flow(handle, 0, credit));
        attach
    }

    /// Attaches a link; the answer, behind which credit comes to a sender.
    #[track_caller]
    pub(crate) fn attach(&mut self, attach: &Attach) -> Attach {
        self.put(0, attach);
        let (Performative::Attach(answer), _) = self.next() else { panic!("no attach") };
        let refused = match attach.role {
            Role::Sender => answer.target.is_none(),
            Role::Receiver => answer.source.is_none(),
        };
        if attach.role == Role::Sender && !refused {
            assert!(matches!(self.next(), (Performative::Flow(_), _)));
        }
        *answer
    }

    /// Sends a message in one frame.
    pub(crate) fn send(&mut self, handle: u32, id: u32, body: &str) {
        self.send_raw(handle, id, &text(body));
    }

    pub(crate) fn send_raw(&mut self, handle: u32, id: u32, payload: &[u8]) {
        self.put_payload(0, &transfer(handle, id), payload);
    }

    /// Sends a message in frames of 60,000 bytes.
    pub(crate) fn send_in_pieces(&mut self, handle: u32, id: u32, body: &str) {
        let message = text(body);
        let pieces = message.chunks(60_000);
        let last = pieces.len() - 1;
        for (at, piece) in pieces.enumerate() {
            self.put_payload(0, &Transfer { more: at < last, ..transfer(handle, id) }, piece);
        }
    }

    pub(crate) fn accept(&mut self, id: u32) {
        let state = Some(DeliveryState::Accepted);
        let accepted =
            Disposition { role: Role::Receiver, first: id, settled: true, state, ..Disposition::default() };
        self.put(0, &accepted);
    }

    pub(crate) fn put(&mut self, channel: u16, body: &impl Encode) {
        self.put_payload(channel, body, &[]);
    }

    pub(crate) fn put_payload(&mut self, channel: u16, body: &impl Encode, payload: &[u8]) {
        self.write(&frame(channel, body, payload));
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next frame that says something.
    #[track_caller]
    pub(crate) fn next(&mut self) -> (Performative, Bytes) {
        self.try_next().expect("the broker closed the socket")
    }

    /// The next frame that is no flow.
    #[track_caller]
    pub(crate) fn next_but_flow(&mut self) -> (Performative, Bytes) {
        loop {
            let next = self.next();
            if !matches!(next.0, Performative::Flow(_)) {
                return next;
            }
        }
    }

    /// The next frame that says something; `None` at the end of the stream.
    pub(crate) fn try_next(&mut self) -> Option<(Performative, Bytes)> {
        loop {
            while let Some(frame) = split_frame(&mut self.input, u32::MAX).unwrap() {
                if let FrameBody::Amqp { performative, payload } = decode_frame(frame).unwrap().body {
                    return Some((performative, payload));
                }
            }
            if !self.read_some() {
                return None;
            }
        }
    }

    pub(crate) fn read_exact(&mut self, count: usize) -> BytesMut {
        while self.input.len() < count {
            assert!(self.read_some(), "the broker closed the socket");
        }
        self.input.split_to(count)
    }

    fn read_some(&mut self) -> bool {
        let mut bytes = [0; 65_536];
        match self.socket.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                true
            }
            // What was not read on the other side when it closed.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    /// The broker closes the connection with this error, and then the socket.
    #[track_caller]
    pub(crate) fn expect_close(&mut self, condition: &str) -> AmqpError {
        let (Performative::Close(close), _) = self.next_but_flow() else { panic!("no close") };
        let error = close.error.expect("a close without an error");
        assert_eq!(error.condition.as_str(), condition, "{error:?}");
        self.put(0, &Close::default());
        assert!(self.try_next().is_none(), "more comes behind the close");
        error
    }

    /// The broker ends the session with this error.
    #[track_caller]
    pub(crate) fn expect_end(&mut self, condition: &str) -> AmqpError {
        let (Performative::End(end), _) = self.next_but_flow() else { panic!("no end") };
        self.put(0, &End::default());
        expect_error(end.error, condition)
    }

    /// The broker closes a link with this error.
    #[track_caller]
    pub(crate) fn expect_detach(&mut self, handle: u32, condition: &str) -> AmqpError {
        let (Performative::Detach(detach), _) = self.next_but_flow() else { panic!("no detach") };
        assert!(detach.closed, "an error closes a link");
        self.put(0, &Detach { handle, closed: true, error: None });
        expect_error(detach.error, condition)
    }

    /// The broker rejects a delivery with this error.
    #[track_caller]
    pub(crate) fn expect_rejected(&mut self, id: u32, condition: &str) -> AmqpError {
        let (Performative::Disposition(disposition), _) = self.next_but_flow() else { panic!("no outcome") };
        assert_eq!((disposition.first, disposition.settled), (id, true));
        let Some(DeliveryState::Rejected { error }) = disposition.state else { panic!("{disposition:?}") };
        expect_error(error, condition)
    }

    #[track_caller]
    pub(crate) fn expect_accepted(&mut self, id: u32) {
        let (Performative::Disposition(disposition), _) = self.next_but_flow() else { panic!("no outcome") };
        assert_eq!((disposition.first, disposition.state), (id, Some(DeliveryState::Accepted)));
    }

    /// The broker still answers on this connection.
    #[track_caller]
    pub(crate) fn is_alive(&mut self, channel: u16) {
        self.begin(channel);
        self.put(channel, &End::default());
        assert!(matches!(self.next_but_flow(), (Performative::End(_), _)));
    }
}

#[track_caller]
fn expect_error(error: Option<AmqpError>, condition: &str) -> AmqpError {
    let error = error.expect("an error");
    assert_eq!(error.condition.as_str(), condition, "{error:?}");
    error
}

/// The stable word in an error's information.
pub(crate) fn reason(error: &AmqpError) -> &str {
    let info = error.info.as_ref();
    info.and_then(|info| info.get("reason")).and_then(Value::as_str).unwrap_or("none")
}

pub(crate) fn frame(channel: u16, body: &impl Encode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(&mut bytes, channel, body, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn begin() -> Begin {
    Begin { incoming_window: 10_000, outgoing_window: 10_000, ..Begin::default() }
}

pub(crate) fn sender(handle: u32, address: &str) -> Attach {
    Attach {
        name: format!("to {address} {handle}"),
        handle,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(TargetKind::Target(Target { address: Some(address.into()), ..Target::default() })),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

pub(crate) fn receiver(handle: u32, address: &str) -> Attach {
    Attach {
        name: format!("from {address} {handle}"),
        handle,
        role: Role::Receiver,
        source: Some(Source { address: Some(address.into()), ..Source::default() }),
        target: Some(TargetKind::Target(Target::default())),
        ..Attach::default()
    }
}

pub(crate) fn flow(handle: u32, delivery_count: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 10_000,
        next_outgoing_id: 0,
        outgoing_window: 10_000,
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

pub(crate) fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from_number(id.into())),
        message_format: Some(0),
        ..Transfer::default()
    }
}

/// A message with a text.
pub(crate) fn text(body: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { body: Body::Value(Value::String(body.into())), ..Message::default() }.encode(&mut bytes);
    bytes
}
