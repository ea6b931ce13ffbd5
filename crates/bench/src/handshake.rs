//! From a fresh connection to its one link, by the real protocol engine; after that the engine is out of the way.

use bytes::BytesMut;
use postroad_amqp::{AcceptSasl, AttachReply, Config, Connection, Event, LinkId, OpenReply, Output};
use postroad_amqp_codec::performative::{Attach, Role, SenderSettleMode};
use postroad_amqp_codec::sasl::SaslCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answer::WINDOW;
use crate::error::LimitError;
use crate::frames::MAX_FRAME;

/// A connection with one link attached.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// What came behind the attach.
    pub(crate) input: BytesMut,
    /// It sends; otherwise it receives.
    pub(crate) sends: bool,
    /// It sends settled: it wants no dispositions.
    pub(crate) presettled: bool,
    /// The credit that it gave at once.
    pub(crate) credit: u32,
}

/// Serves a connection until its link is attached.
pub(crate) async fn shake_hands(mut stream: TcpStream) -> Result<Peer, LimitError> {
    stream.set_nodelay(true).map_err(LimitError::io("setting TCP_NODELAY"))?;
    let config = Config {
        container_id: "postroad-limits".to_owned(),
        max_frame_size: u32::try_from(MAX_FRAME).unwrap_or(u32::MAX),
        idle_timeout_ms: None,
        incoming_window: WINDOW,
        channel_max: 0,
        handle_max: 0,
        ..Config::default()
    };
    let sasl = AcceptSasl { anonymous: true, plain: true, skip: true };
    let mut engine = Connection::accept(config, sasl, 0);
    let (mut input, mut output, mut attached) = (BytesMut::new(), Output::new(), None);
    loop {
        // A question holds the input back, so the answer is followed by another look at it.
        for _ in 0..2 {
            engine.handle_input(0, &mut input);
            take_events(&mut engine, &mut attached)?;
        }
        engine.poll_output(&mut output);
        stream.write_all_buf(&mut output).await.map_err(LimitError::io("answering a handshake"))?;
        if let Some(Attached { sends, presettled, credit, .. }) = attached {
            return Ok(Peer { stream, input, sends, presettled, credit });
        }
        let read = stream.read_buf(&mut input).await.map_err(LimitError::io("reading a handshake"))?;
        if read == 0 {
            return Err(LimitError::Peer("it left before it attached a link".to_owned()));
        }
    }
}

/// The link as it was attached.
#[derive(Debug)]
struct Attached {
    link: LinkId,
    sends: bool,
    presettled: bool,
    credit: u32,
}

fn take_events(engine: &mut Connection, attached: &mut Option<Attached>) -> Result<(), LimitError> {
    while let Some(event) = engine.poll_event() {
        let done = match event {
            Event::SaslAnonymous { .. } | Event::SaslPlain { .. } => engine.sasl_outcome(SaslCode::Ok),
            Event::RemoteOpen(_) => engine.open(OpenReply::default()),
            Event::RemoteAttach { link, attach, .. } => {
                *attached = Some(Attached {
                    link,
                    sends: attach.role == Role::Sender,
                    presettled: attach.snd_settle_mode == SenderSettleMode::Settled,
                    credit: 0,
                });
                engine.accept_attach(link, reply(*attach))
            }
            Event::Credit { link, limit, .. } => {
                if let Some(attached) = attached.as_mut().filter(|attached| attached.link == link) {
                    attached.credit = u32::try_from(limit).unwrap_or(u32::MAX);
                }
                Ok(())
            }
            Event::RemoteBegin { .. } => Ok(()),
            other => return Err(LimitError::Peer(format!("{other:?} in its handshake"))),
        };
        done.map_err(|error| LimitError::Peer(error.to_string()))?;
    }
    Ok(())
}

fn reply(attach: Attach) -> AttachReply {
    AttachReply {
        source: attach.source,
        target: attach.target,
        snd_settle_mode: attach.snd_settle_mode,
        rcv_settle_mode: attach.rcv_settle_mode,
        ..AttachReply::default()
    }
}
