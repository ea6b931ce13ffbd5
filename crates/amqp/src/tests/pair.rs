//! Two engines, a virtual clock, and pipes that cut bytes where they like.

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Role};
use postroad_amqp_codec::terminus::{Source, Target, TargetKind};

use crate::{
    AcceptSasl, AttachReply, Config, Connection, Delivery, Event, InitiateSasl, LinkId, OpenReply, Output,
    SessionId, SessionOptions,
};

/// A generator of numbers, the same ones every time.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`, which is above 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

pub(crate) struct Side {
    pub(crate) engine: Connection,
    input: BytesMut,
    output: Output,
}

impl Side {
    fn new(engine: Connection) -> Self {
        Self { engine, input: BytesMut::new(), output: Output::new() }
    }

    /// How much the engine remembers: sessions, links, names, channels, unsettled deliveries, links in turn.
    pub(crate) fn memory(&self) -> [usize; 6] {
        memory(&self.engine)
    }

    /// All events that wait.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.engine.poll_event()).collect()
    }

    /// The only event that waits.
    pub(crate) fn event(&mut self) -> Event {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) now: u64,
    /// Cuts bytes when set.
    pub(crate) random: Option<Random>,
}

pub(crate) const ANYONE: AcceptSasl = AcceptSasl { anonymous: true, plain: true, skip: true };

pub(crate) fn named(name: &str) -> Config {
    Config { container_id: name.to_owned(), ..Config::default() }
}

impl Pair {
    pub(crate) fn new(client: Config, server: Config, sasl: InitiateSasl) -> Self {
        let client = Side::new(Connection::initiate(client, sasl, 0));
        let server = Side::new(Connection::accept(server, ANYONE, 0));
        Self { client, server, now: 0, random: None }
    }

    /// Both sides are open, without SASL.
    pub(crate) fn open(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server, InitiateSasl::Skip);
        pair.run();
        assert!(matches!(pair.server.event(), Event::RemoteOpen(_)));
        pair.server.engine.open(OpenReply::default()).unwrap();
        pair.run();
        assert!(matches!(pair.client.event(), Event::RemoteOpen(_)));
        pair
    }

    /// Both sides are open, and the client has a session. Returns the client's and the server's id.
    pub(crate) fn session(client: Config, server: Config) -> (Self, SessionId, SessionId) {
        let mut pair = Self::open(client, server);
        let session = pair.client.engine.begin(SessionOptions::default()).unwrap();
        pair.run();
        assert!(matches!(pair.client.event(), Event::Begun { .. }));
        let Event::RemoteBegin { session: remote, .. } = pair.server.event() else { panic!() };
        (pair, session, remote)
    }

    /// Attaches a link of the client, and accepts it. Returns the client's and the server's id.
    pub(crate) fn link(&mut self, session: SessionId, role: Role, name: &str) -> (LinkId, LinkId) {
        let own = self.client.engine.attach(session, attach(role, name)).unwrap();
        self.run();
        let Event::RemoteAttach { link, attach, .. } = self.server.event() else { panic!() };
        self.server.engine.accept_attach(link, reply(&attach)).unwrap();
        self.run();
        let Event::Attached { link: answered, .. } = self.client.event() else { panic!() };
        assert_eq!(answered, own);
        (own, link)
    }

    /// Carries bytes to and fro until nobody has any.
    pub(crate) fn run(&mut self) {
        loop {
            let mut some = self.client.engine.poll_output(&mut self.client.output);
            some |= self.server.engine.poll_output(&mut self.server.output);
            if !some && self.client.output.is_empty() && self.server.output.is_empty() {
                return;
            }
            carry(&mut self.client, &mut self.server, self.now, self.random.as_mut());
            carry(&mut self.server, &mut self.client, self.now, self.random.as_mut());
        }
    }

    /// Carries bytes, some of them only, one time each way.
    pub(crate) fn step(&mut self) {
        self.client.engine.poll_output(&mut self.client.output);
        carry(&mut self.client, &mut self.server, self.now, self.random.as_mut());
        self.server.engine.poll_output(&mut self.server.output);
        carry(&mut self.server, &mut self.client, self.now, self.random.as_mut());
    }
}

/// See [`Side::memory`].
pub(crate) fn memory(engine: &Connection) -> [usize; 6] {
    let sessions: Vec<_> = engine.own_channels.values().filter_map(|id| engine.sessions.get(id.0)).collect();
    [
        engine.sessions.len(),
        engine.links.len(),
        engine.names.len(),
        engine.own_channels.values().count() + engine.channels.values().count(),
        sessions.iter().map(|session| session.outgoing.len() + session.incoming.len()).sum(),
        sessions.iter().map(|session| session.ring.len()).sum(),
    ]
}

fn carry(from: &mut Side, to: &mut Side, now: u64, random: Option<&mut Random>) {
    let count = match random {
        Some(random) => random.below(700).min(from.output.len()),
        None => from.output.len(),
    };
    to.input.extend_from_slice(&from.output.copy_to_bytes(count));
    to.engine.handle_input(now, &mut to.input);
}

pub(crate) fn attach(role: Role, name: &str) -> Attach {
    let address = Some("q".to_owned());
    Attach {
        name: name.to_owned(),
        role,
        source: Some(Source { address: address.clone(), ..Source::default() }),
        target: Some(TargetKind::Target(Target { address, ..Target::default() })),
        ..Attach::default()
    }
}

/// A reply that takes everything as it was asked for.
pub(crate) fn reply(attach: &Attach) -> AttachReply {
    AttachReply { source: attach.source.clone(), target: attach.target.clone(), ..AttachReply::default() }
}

pub(crate) fn tagged(number: u64) -> Delivery {
    Delivery { tag: DeliveryTag::from_number(number), ..Delivery::default() }
}

pub(crate) fn bytes(len: usize) -> [Bytes; 1] {
    [Bytes::from(vec![7; len])]
}
