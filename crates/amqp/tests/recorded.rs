//! What real clients have written to a broker, byte for byte, is taken without a fault.
//!
//! `corpus/NAME.bin` holds one connection of one client library, the direction to the broker only: SASL, sessions, links
//! that send and receive, outcomes, drain, durable subscriptions, messages of many frames, close.

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp::codec::performative::{DeliveryTag, Role};
use postroad_amqp::codec::sasl::SaslCode;
use postroad_amqp::codec::state::DeliveryState;
use postroad_amqp::{
    AcceptSasl, ApiMisuse, AttachReply, Config, Connection, Delivery, Event, OpenReply, Output,
};

/// What one connection did.
#[derive(Debug, Default)]
struct Seen {
    sessions: usize,
    links: usize,
    messages: usize,
    outcomes: usize,
    closed: bool,
}

/// An acceptor that says yes to everything, gives much credit, and sends what a recorded client once received.
struct Acceptor {
    engine: Connection,
    seen: Seen,
}

impl Acceptor {
    fn answer(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.on_event(event).expect("what the client did can be answered");
        }
        // What is written back is of no interest: the recorded client has had its answers.
        let mut output = Output::new();
        self.engine.poll_output(&mut output);
        output.advance(output.len());
    }

    fn on_event(&mut self, event: Event) -> Result<(), ApiMisuse> {
        let engine = &mut self.engine;
        match event {
            Event::SaslAnonymous { .. } | Event::SaslPlain { .. } => engine.sasl_outcome(SaslCode::Ok),
            Event::RemoteOpen(_) => engine.open(OpenReply::default()),
            Event::RemoteBegin { .. } => {
                self.seen.sessions += 1;
                Ok(())
            }
            Event::RemoteAttach { link, attach, .. } => {
                self.seen.links += 1;
                let reply = AttachReply {
                    source: attach.source,
                    target: attach.target,
                    rcv_settle_mode: attach.rcv_settle_mode,
                    ..AttachReply::default()
                };
                engine.accept_attach(link, reply)?;
                if attach.role == Role::Sender { engine.flow_receiver(link, 1_000, false) } else { Ok(()) }
            }
            Event::Transfer { link, delivery, settled, more, .. } => {
                self.seen.messages += usize::from(!more);
                if more || settled {
                    return Ok(());
                }
                engine.settle_incoming(link, delivery, delivery, Some(DeliveryState::Accepted), true)
            }
            Event::Credit { link, drain, .. } => self.send(link, drain),
            Event::Outcome { link, first, last, settled, .. } => {
                self.seen.outcomes += 1;
                if settled { Ok(()) } else { engine.settle_outgoing(link, first, last, None) }
            }
            Event::Detach { link, closed, .. } => engine.detach(link, closed, None),
            Event::Close { error } => {
                assert_eq!(error, None);
                self.seen.closed = true;
                Ok(())
            }
            Event::LinkFailed { error, .. } | Event::SessionFailed { error, .. } => panic!("{error}"),
            Event::Failed(error) => panic!("{error}"),
            _ => Ok(()),
        }
    }

    /// Uses the credit up, so that the outcomes of the recording meet deliveries.
    fn send(&mut self, link: postroad_amqp::LinkId, drain: bool) -> Result<(), ApiMisuse> {
        let mut number = 0;
        while self.engine.can_send(link) && number < 100 {
            let delivery = Delivery { tag: DeliveryTag::from_number(number), ..Delivery::default() };
            self.engine.send(link, &delivery, &[Bytes::from_static(b"\0\x53\x77\x40")])?;
            number += 1;
        }
        if drain { self.engine.drained(link) } else { Ok(()) }
    }
}

/// Plays a recording, frame by frame or byte by byte: the client waited for answers, so no more may come at once.
fn play(recording: &[u8], by_bytes: bool) -> Seen {
    let sasl = AcceptSasl { anonymous: true, plain: true, skip: true };
    let engine = Connection::accept(Config { container_id: "broker".into(), ..Config::default() }, sasl, 0);
    let mut acceptor = Acceptor { engine, seen: Seen::default() };
    let mut input = BytesMut::new();
    let mut rest = recording;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(if by_bytes { 1 } else { next_frame(rest) });
        rest = behind;
        input.extend_from_slice(piece);
        acceptor.engine.handle_input(0, &mut input);
        acceptor.answer();
    }
    assert!(input.is_empty(), "{} bytes are left over", input.len());
    acceptor.seen
}

/// The bytes of the frame or protocol header at the front.
fn next_frame(bytes: &[u8]) -> usize {
    let size = u32::from_be_bytes(*bytes.first_chunk().expect("a whole frame"));
    if bytes.starts_with(b"AMQP") { 8 } else { usize::try_from(size).expect("a frame that fits") }
}

fn check(recording: &[u8], sessions: usize, links: usize, messages: usize) {
    for by_bytes in [false, true] {
        let seen = play(recording, by_bytes);
        assert_eq!((seen.sessions, seen.links, seen.messages), (sessions, links, messages), "{seen:?}");
        assert!(seen.closed && seen.outcomes > 0, "{seen:?}");
    }
}

#[test]
fn proton() {
    check(include_bytes!("corpus/proton.bin"), 2, 11, 55);
}

#[test]
fn proton_blocking() {
    check(include_bytes!("corpus/proton-blocking.bin"), 1, 2, 1);
}

#[test]
fn rhea() {
    check(include_bytes!("corpus/rhea.bin"), 1, 4, 23);
}

#[test]
fn go_amqp() {
    check(include_bytes!("corpus/go-amqp.bin"), 1, 4, 22);
}

#[test]
fn qpid_jms() {
    check(include_bytes!("corpus/qpid-jms.bin"), 3, 10, 9);
}
