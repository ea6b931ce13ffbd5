//! A user of the AMQP engine that answers everything, mostly at the wrong time.

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp::{
    AcceptSasl, AttachReply, Config, Connection, Delivery, Event, InitiateSasl, OpenReply, Output,
    SessionOptions,
};
use postroad_amqp_codec::frame::{FrameBody, decode_frame, split_frame};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Performative, Role};
use postroad_amqp_codec::sasl::SaslCode;
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, TargetKind};

/// Everyone is let in.
pub const ANYONE: AcceptSasl = AcceptSasl { anonymous: true, plain: true, skip: true };

/// One engine, what it has not taken of its input, and what it has written.
#[derive(Debug)]
pub struct User {
    /// The engine.
    pub engine: Connection,
    /// What was not taken.
    pub input: BytesMut,
    /// Everything that was written.
    pub written: Vec<u8>,
    now: u64,
}

impl User {
    /// The accepting side.
    #[must_use]
    pub fn accepting() -> Self {
        Self::over(Connection::accept(config("server"), ANYONE, 0))
    }

    /// The initiating side.
    #[must_use]
    pub fn initiating(sasl: InitiateSasl) -> Self {
        Self::over(Connection::initiate(config("client"), sasl, 0))
    }

    fn over(engine: Connection) -> Self {
        Self { engine, input: BytesMut::new(), written: Vec::new(), now: 0 }
    }

    /// Takes bytes, answers everything, and polls the output.
    pub fn take(&mut self, bytes: &[u8]) {
        self.now += 1;
        self.input.extend_from_slice(bytes);
        loop {
            let before = self.input.len();
            self.engine.handle_input(self.now, &mut self.input);
            self.answer();
            if self.input.len() == before {
                break;
            }
        }
        self.poll();
    }

    /// Lets time pass.
    pub fn wait(&mut self, ms: u64) {
        self.now += ms;
        self.engine.handle_deadline(self.now);
        self.answer();
        self.poll();
    }

    /// Begins a session and attaches a link each way, whether or not the peer is ready.
    pub fn start(&mut self) {
        let Ok(session) = self.engine.begin(SessionOptions::default()) else { return };
        for (role, name) in [(Role::Sender, "out"), (Role::Receiver, "in")] {
            let attach = Attach {
                name: name.to_owned(),
                role,
                source: Some(Source { address: Some("q".to_owned()), ..Source::default() }),
                target: Some(TargetKind::Target(Target::default())),
                ..Attach::default()
            };
            if let Ok(link) = self.engine.attach(session, attach) {
                let _ = self.engine.flow_receiver(link, 5, false);
            }
        }
        self.poll();
    }

    fn poll(&mut self) {
        let mut output = Output::new();
        self.engine.poll_output(&mut output);
        self.written.extend_from_slice(&output.copy_to_bytes(output.remaining()));
    }

    /// Answers what can be answered. Whatever the engine says is fine: the peer may have made it impossible.
    fn answer(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            let engine = &mut self.engine;
            let _ = match event {
                Event::SaslAnonymous { .. } => engine.sasl_outcome(SaslCode::Ok),
                Event::SaslPlain { user, .. } => {
                    engine.sasl_outcome(if user.is_empty() { SaslCode::Auth } else { SaslCode::Ok })
                }
                Event::RemoteOpen(_) => engine.open(OpenReply::default()),
                Event::RemoteAttach { link, .. } if link.index() % 4 == 3 => {
                    engine.refuse_attach(link, Default::default())
                }
                Event::RemoteAttach { link, attach, .. } => {
                    let reply = AttachReply {
                        source: attach.source.clone(),
                        target: attach.target.clone(),
                        rcv_settle_mode: attach.rcv_settle_mode,
                        max_message_size: Some(4000),
                        ..AttachReply::default()
                    };
                    engine.accept_attach(link, reply).and_then(|()| engine.flow_receiver(link, 3, false))
                }
                Event::Credit { link, drain: true, .. } => engine.drained(link),
                Event::Credit { link, limit, .. } => send(engine, link, limit),
                Event::Transfer { link, delivery, more: false, .. } => engine
                    .settle_incoming(link, 0, delivery, Some(DeliveryState::Accepted), delivery % 2 > 0)
                    .and_then(|()| engine.flow_receiver(link, delivery + 4, delivery % 5 == 4)),
                Event::Outcome { link, first, last, settled: false, .. } => {
                    engine.settle_outgoing(link, first, last, None)
                }
                Event::Detach { link, closed, .. } => engine.detach(link, closed, None),
                _ => Ok(()),
            };
        }
    }
}

/// Sends one delivery: small, in pieces, or aborted.
fn send(
    engine: &mut Connection,
    link: postroad_amqp::LinkId,
    limit: u64,
) -> Result<(), postroad_amqp::ApiMisuse> {
    let more = limit % 3 == 1;
    let tag = DeliveryTag::from_number(limit);
    let delivery = Delivery { tag, more, settled: limit % 5 == 0, ..Delivery::default() };
    engine.send(link, &delivery, &[Bytes::from_static(&[7; 30])])?;
    match (more, limit % 2) {
        (true, 0) => engine.abort(link),
        (true, _) => engine.send_more(link, &[Bytes::from_static(&[7; 900])], false),
        _ => Ok(()),
    }
}

fn config(name: &str) -> Config {
    Config { container_id: name.to_owned(), handle_max: 15, channel_max: 7, ..Config::default() }
}

/// Checks that bytes are protocol headers and then whole frames, and that nothing comes behind a `close`.
///
/// # Panics
/// When they are not.
pub fn check_written(written: &[u8]) {
    let mut bytes = BytesMut::from(written);
    let mut closed = false;
    while !bytes.is_empty() {
        assert!(!closed, "something is written behind a close");
        if bytes.starts_with(b"AMQP") {
            assert!(bytes.len() >= 8, "half a protocol header");
            bytes.advance(8);
            continue;
        }
        let frame =
            split_frame(&mut bytes, u32::MAX).expect("a frame's size is right").expect("a frame is whole");
        let frame = decode_frame(frame).expect("what is written can be read");
        closed = matches!(frame.body, FrameBody::Amqp { performative: Performative::Close(_), .. });
    }
}
