//! Messages from client to client: the client's protocol engine, the front door, and the broker's engine and journal in
//! their shell, joined by buffers in place of sockets. A batch for the disk is dropped, and counts as synced.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp::{
    Config, Connection, Delivery, Event, InitiateSasl, LinkId, Output, SessionId, SessionOptions,
};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Role, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, TargetKind};
use postroad_door_amqp::{Door, DoorConfig};
use postroad_engine::admin::Request;
use postroad_engine::{Command, ConnId, Now};
use postroad_journal::{MemDisk, Options};
use postroad_model::settings::{BrokerSettings, QueueSettings};
use postroad_shell::{ConnIds, Setup, Shell};

use super::{BATCH, SEGMENT, message};

const NOW: Now = Now { wall: 1_000_000, mono: 1_000 };

/// Pieces of work between two looks at what came of it.
const PIECES: usize = 64;

pub(super) fn persistent(count: u32) {
    Pipes::new(false).carry(count, &message(true));
}

pub(super) fn non_persistent(count: u32) {
    Pipes::new(false).carry(count, &message(false));
}

pub(super) fn settled(count: u32) {
    Pipes::new(true).carry(count, &message(false));
}

/// A client that sends to a queue and receives from it, and its broker.
struct Pipes {
    client: Connection,
    door: Door,
    shell: Shell<()>,
    commands: Vec<Command>,
    to_door: BytesMut,
    to_client: BytesMut,
    presettled: bool,
    session: Option<SessionId>,
    sender: Option<LinkId>,
    receiver: Option<LinkId>,
    attached: u32,
    confirmed: u64,
    received: u64,
    /// Deliveries that have their outcome.
    settled: u64,
}

impl Pipes {
    fn new(presettled: bool) -> Self {
        let setup = Setup {
            broker: BrokerSettings { name: "A".into(), ..BrokerSettings::default() },
            journal: Options { segment_size: SEGMENT, first_segment_size: SEGMENT, ..Options::default() },
            checkpoint_every: u64::MAX,
            seed: [7; 16],
            twin: None,
        };
        let opened = postroad_shell::open(Arc::new(MemDisk::new()), setup, |_| ());
        let mut shell: Shell<()> = opened.expect("a disk in memory does not fail").shell;
        let queue =
            Request::PutQueue { name: "q".into(), settings: QueueSettings::default(), configured: false };
        shell.ask(NOW, Box::new(queue));
        let conn: ConnId = ConnIds::default().take();
        shell.register(conn, ());
        let config = Config { container_id: "bench".into(), idle_timeout_ms: None, ..Config::default() };
        let mut pipes = Self {
            client: Connection::initiate(config, InitiateSasl::Skip, NOW.mono),
            door: Door::new(conn, Arc::new(DoorConfig::default()), "here".into(), NOW.mono),
            shell,
            commands: Vec::new(),
            to_door: BytesMut::new(),
            to_client: BytesMut::new(),
            presettled,
            session: None,
            sender: None,
            receiver: None,
            attached: 0,
            confirmed: 0,
            received: 0,
            settled: 0,
        };
        pipes.attach();
        pipes
    }

    fn attach(&mut self) {
        self.turn();
        let session = self.client.begin(SessionOptions::default()).expect("the connection is open");
        self.session = Some(session);
        let snd_settle_mode =
            if self.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let attach = |name: &str, role| Attach {
            name: name.into(),
            role,
            snd_settle_mode,
            source: Some(Source { address: Some("q".into()), ..Source::default() }),
            target: Some(TargetKind::Target(Target { address: Some("q".into()), ..Target::default() })),
            ..Attach::default()
        };
        self.receiver = self.client.attach(session, attach("in", Role::Receiver)).ok();
        self.sender = self.client.attach(session, attach("out", Role::Sender)).ok();
        self.turn();
        assert_eq!(self.attached, 2, "both links are attached");
    }

    /// Sends `count` messages, a batch at a time, and receives and settles them.
    fn carry(&mut self, count: u32, message: &Bytes) {
        let (Some(sender), Some(receiver)) = (self.sender, self.receiver) else {
            panic!("both links are attached")
        };
        let limit = u64::from(count);
        self.client.flow_receiver(receiver, limit, false).expect("the link is attached");
        self.turn();
        let payload = std::slice::from_ref(message);
        let mut sent = 0;
        while sent < limit {
            for _ in 0..BATCH {
                assert!(self.client.can_send(sender), "there is credit");
                let head = Delivery {
                    tag: DeliveryTag::from_number(sent),
                    settled: self.presettled,
                    ..Delivery::default()
                };
                sent = self.client.send(sender, &head, payload).expect("the link is attached") + 1;
            }
            self.turn();
        }
        assert_eq!(self.received, limit, "every message came");
        assert_eq!(self.confirmed, if self.presettled { 0 } else { limit }, "every message was confirmed");
    }

    /// Carries bytes, commands and effects until nothing moves.
    fn turn(&mut self) {
        loop {
            let sent = carry(&mut self.to_door, |output| {
                self.client.poll_output(output);
            });
            if sent {
                self.door.input(NOW.mono, &mut self.to_door, &mut self.commands);
            }
            self.broker();
            let answered = carry(&mut self.to_client, |output| {
                self.door.output(output, &mut self.commands);
            });
            if !sent && !answered && self.commands.is_empty() {
                return;
            }
            let mut more = true;
            while more {
                more = self.client.handle_input(NOW.mono, &mut self.to_client);
                while let Some(event) = self.client.poll_event() {
                    self.event(event);
                }
            }
            self.settle();
        }
    }

    /// The broker's part of a turn, until it has nothing more to do.
    fn broker(&mut self) {
        loop {
            for command in self.commands.drain(..) {
                self.shell.handle(NOW, command);
            }
            let more = self.shell.run(NOW, PIECES);
            self.shell.flush().expect("a journal that is not written does not fail");
            let batch = self.shell.take_batch();
            if let Some(batch) = &batch {
                self.shell.became_durable(batch.last());
            }
            self.shell.send_ready(|_, (), effects| {
                effects.into_iter().for_each(|effect| self.door.effect(effect, &mut self.commands));
            });
            while self.shell.take_reply().is_some() {}
            if !more && batch.is_none() && self.commands.is_empty() {
                return;
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Attached { .. } => self.attached += 1,
            Event::Transfer { more: false, .. } => self.received += 1,
            Event::Outcome { first, last, settled: true, state, .. } => {
                assert_eq!(state.as_deref(), Some(&DeliveryState::Accepted), "every message is taken");
                self.confirmed += last - first + 1;
            }
            Event::Detach { error, .. } => panic!("a link was ended: {error:?}"),
            Event::Close { error } => panic!("the connection was ended: {error:?}"),
            Event::Failed(error) => panic!("the protocol was broken: {error}"),
            _ => {}
        }
    }

    /// Accepts what came since the last time, as one range.
    fn settle(&mut self) {
        let (first, end) = (self.settled, self.received);
        if first == end || self.presettled {
            return;
        }
        self.settled = end;
        let Some(receiver) = self.receiver else { return };
        let accepted = Some(DeliveryState::Accepted);
        self.client
            .settle_incoming(receiver, first, end - 1, accepted, true)
            .expect("these deliveries were received");
    }
}

/// Takes what one side has to say into the buffer that the other side reads, as a socket would; whether there was any.
fn carry(into: &mut BytesMut, say: impl FnOnce(&mut Output)) -> bool {
    let mut output = Output::new();
    say(&mut output);
    let some = output.has_remaining();
    while output.has_remaining() {
        let chunk = output.chunk();
        let length = chunk.len();
        into.extend_from_slice(chunk);
        output.advance(length);
    }
    some
}
