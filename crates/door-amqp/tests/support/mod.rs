//! A broker in memory and its clients: doors, the real engine, and AMQP peers, joined by pipes. What a client sees is
//! kept as lines of text, so that a test's expectations can be read.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp::{
    Config, Connection, Delivery, Event, InitiateSasl, LinkId, Output, SessionId, SessionOptions,
};
use postroad_amqp_codec::frame::{FrameBody, decode_frame, split_frame};
use postroad_amqp_codec::message::{Body, Header, Message, Properties};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Performative, Role, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{
    Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy, distribution_mode,
};
use postroad_amqp_codec::{AmqpError, Decode, Encode, Fields, Map, Reader, Symbol, Value};
use postroad_door_amqp::{Door, DoorConfig, Login};
use postroad_engine::admin::Request;
use postroad_engine::{Command, ConnId, Effect, Engine, Now, Output as EngineOutput};
use postroad_model::settings::{BrokerSettings, ChannelSettings, QueueSettings};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A broker with its clients.
pub struct World {
    pub engine: Engine,
    pub clients: Vec<Client>,
    config: Arc<DoorConfig>,
    now: u64,
    /// Effects wait, as if their records were not durable yet.
    hold: bool,
    waiting: Vec<Effect>,
}

/// One client and its door.
pub struct Client {
    pub amqp: Connection,
    pub door: Door,
    session: Option<SessionId>,
    to_door: BytesMut,
    to_client: BytesMut,
    names: BTreeMap<LinkId, String>,
    partial: BTreeMap<LinkId, Vec<u8>>,
    lines: Vec<String>,
    /// The latest whole message of each link.
    pub latest: BTreeMap<LinkId, Message>,
    /// The latest attach of each link.
    pub attached: BTreeMap<LinkId, Attach>,
    /// Its pipe is cut.
    cut: bool,
    /// Its bytes are written by the test, and what comes is only kept.
    raw: bool,
    /// It reads nothing, so nothing can be written to it.
    pub unread: bool,
    /// The credit and the drain that it asks for again whenever messages came, so that a flow frame of the link, not one
    /// of the session, opens the window.
    pub asks: Option<(LinkId, u64, bool)>,
    /// The most bytes that were ever ready for it at once.
    pub most_ready: usize,
}

/// A broker with a queue `orders`, a small queue `tiny` and a channel `prices`.
pub fn world() -> World {
    let settings =
        BrokerSettings { auto_create_queues: vec![String::from("auto.*")], ..BrokerSettings::default() };
    let mut world = World {
        engine: Engine::new(settings, [7; 16]),
        clients: Vec::new(),
        config: Arc::new(DoorConfig::default()),
        now: 1_000,
        hold: false,
        waiting: Vec::new(),
    };
    world.engine.recovered(false);
    world.engine.found();
    world.queue("orders", QueueSettings::default());
    world.queue("tiny", QueueSettings { capacity: 1, ..QueueSettings::default() });
    world.channel("prices", ChannelSettings::default());
    world
}

impl World {
    pub fn configure(&mut self, change: impl FnOnce(&mut DoorConfig)) {
        change(Arc::make_mut(&mut self.config));
    }

    pub fn queue(&mut self, name: &str, settings: QueueSettings) {
        self.admin(Request::PutQueue { name: name.into(), settings, configured: false });
    }

    pub fn channel(&mut self, name: &str, settings: ChannelSettings) {
        self.admin(Request::PutChannel { name: name.into(), settings, configured: false });
    }

    pub fn admin(&mut self, request: Request) {
        self.command(Command::Admin { reply: 0, request: Box::new(request) });
        self.run();
    }

    fn now(&self) -> Now {
        Now { wall: self.now, mono: self.now }
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        self.engine.handle(now, command);
    }

    /// A client whose connection waits to be carried.
    pub fn client(&mut self, config: Config, sasl: InitiateSasl) -> usize {
        let conn = ConnId(self.clients.len() as u64 + 1);
        self.clients.push(Client {
            amqp: Connection::initiate(config, sasl, self.now),
            door: Door::new(conn, Arc::clone(&self.config), String::from("test"), self.now),
            session: None,
            to_door: BytesMut::new(),
            to_client: BytesMut::new(),
            names: BTreeMap::new(),
            partial: BTreeMap::new(),
            lines: Vec::new(),
            latest: BTreeMap::new(),
            attached: BTreeMap::new(),
            cut: false,
            raw: false,
            unread: false,
            asks: None,
            most_ready: 0,
        });
        self.clients.len() - 1
    }

    /// A client that sends these bytes, and whose answers are only kept.
    pub fn raw_client(&mut self, bytes: &[u8]) -> usize {
        let no = self.client(Config::default(), InitiateSasl::Skip);
        self.clients[no].raw = true;
        self.clients[no].to_door.extend_from_slice(bytes);
        self.run();
        no
    }

    /// A client that has opened its connection and a session.
    pub fn connect(&mut self, container: &str) -> usize {
        self.connect_with(Config { container_id: container.into(), ..Config::default() })
    }

    pub fn connect_with(&mut self, config: Config) -> usize {
        let no = self.client(config, InitiateSasl::Skip);
        self.run();
        self.begin(no);
        self.run();
        self.lines(no);
        no
    }

    pub fn begin(&mut self, no: usize) -> SessionId {
        let session = self.clients[no].amqp.begin(SessionOptions::default()).unwrap();
        self.clients[no].session = Some(session);
        session
    }

    /// Ends a client's session.
    pub fn end(&mut self, no: usize) {
        let client = &mut self.clients[no];
        client.amqp.end(client.session.take().unwrap(), None).unwrap();
        self.run();
    }

    /// Carries bytes, commands and effects until nothing moves.
    pub fn run(&mut self) {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < 10_000, "it never comes to rest");
        }
    }

    fn round(&mut self) -> bool {
        let mut moved = false;
        for no in 0..self.clients.len() {
            let mut commands = Vec::new();
            let now = self.now;
            let client = &mut self.clients[no];
            moved |= client.carry_to_door(now, &mut commands);
            moved |= !commands.is_empty();
            commands.into_iter().for_each(|command| self.command(command));
        }
        let now = self.now();
        while self.engine.run(now, 100) {}
        let mut out = EngineOutput::default();
        self.engine.take_output(&mut out);
        self.waiting.extend(out.effects.into_iter().map(|(_, effect)| effect));
        let due = if self.hold { Vec::new() } else { std::mem::take(&mut self.waiting) };
        moved |= !due.is_empty();
        let mut commands = Vec::new();
        for effect in due {
            self.clients.iter_mut().for_each(|c| c.door.effect(effect.clone(), &mut commands));
        }
        commands.into_iter().for_each(|command| self.command(command));
        let mut commands = Vec::new();
        for client in &mut self.clients {
            moved |= client.carry_to_client(now.mono, &mut commands);
        }
        moved |= !commands.is_empty();
        commands.into_iter().for_each(|command| self.command(command));
        moved
    }

    /// Holds effects back, or lets them happen again.
    pub fn hold(&mut self, hold: bool) {
        self.hold = hold;
        self.run();
    }

    /// Cuts a client's socket.
    pub fn cut(&mut self, no: usize) {
        let mut commands = Vec::new();
        self.clients[no].cut = true;
        self.clients[no].door.lost(&mut commands);
        self.clients[no].door.lost(&mut commands);
        commands.into_iter().for_each(|command| self.command(command));
        self.run();
    }

    /// Lets time pass for the doors.
    pub fn wait(&mut self, ms: u64) {
        self.now += ms;
        let mut commands = Vec::new();
        let now = self.now;
        self.clients.iter_mut().for_each(|client| client.door.deadline(now, &mut commands));
        commands.into_iter().for_each(|command| self.command(command));
        self.run();
    }

    /// What a client saw since the last time.
    pub fn lines(&mut self, no: usize) -> Vec<String> {
        std::mem::take(&mut self.clients[no].lines)
    }

    /// Checks what a client saw since the last time.
    #[track_caller]
    pub fn expect(&mut self, no: usize, expected: &[&str]) {
        self.run();
        assert_eq!(self.lines(no), expected);
    }

    /// Attaches a link.
    pub fn attach(&mut self, no: usize, attach: Attach) -> LinkId {
        let client = &mut self.clients[no];
        let name = attach.name.clone();
        let link = client.amqp.attach(client.session.unwrap(), attach).unwrap();
        client.names.insert(link, name);
        link
    }

    /// Attaches a sender and shows that it is attached.
    pub fn sender(&mut self, no: usize, address: &str) -> LinkId {
        let link = self.attach(no, send_to(address));
        self.run();
        let expected = format!("attached {address} to {address}");
        assert_eq!(self.lines(no), [expected]);
        link
    }

    /// Attaches a receiver named `r` with this much credit.
    pub fn receiver(&mut self, no: usize, address: &str, credit: u64) -> LinkId {
        let link = self.attach(no, receive_from("r", address));
        self.clients[no].amqp.flow_receiver(link, credit, false).unwrap();
        self.run();
        link
    }

    pub fn credit(&mut self, no: usize, link: LinkId, limit: u64) {
        self.clients[no].amqp.flow_receiver(link, limit, false).unwrap();
        self.run();
    }

    pub fn drain(&mut self, no: usize, link: LinkId, limit: u64) {
        self.clients[no].amqp.flow_receiver(link, limit, true).unwrap();
        self.run();
    }

    pub fn send(&mut self, no: usize, link: LinkId, message: &Message) -> u64 {
        self.send_as(no, link, &Delivery::default(), message)
    }

    pub fn send_as(&mut self, no: usize, link: LinkId, head: &Delivery, message: &Message) -> u64 {
        let payload = encode(message);
        let number = self.clients[no].amqp.send(link, &tagged(head), &[payload]).unwrap();
        self.run();
        number
    }

    pub fn settle(&mut self, no: usize, link: LinkId, number: u64, state: DeliveryState, settled: bool) {
        self.clients[no].amqp.settle_incoming(link, number, number, Some(state), settled).unwrap();
        self.run();
    }

    pub fn detach(&mut self, no: usize, link: LinkId, closed: bool) {
        self.clients[no].amqp.detach(link, closed, None).unwrap();
        self.run();
    }
}

impl Client {
    /// Puts bytes into the pipe to the door.
    pub fn feed(&mut self, output: &mut Output) {
        self.to_door.extend_from_slice(&output.copy_to_bytes(output.remaining()));
    }

    /// Puts bytes of the test's own into it.
    pub fn feed_bytes(&mut self, bytes: &[u8]) {
        self.to_door.extend_from_slice(bytes);
    }

    /// The frames with something in them that came to a raw client.
    pub fn performatives(&mut self) -> Vec<Performative> {
        let mut bytes = self.to_client.split();
        let mut performatives = Vec::new();
        while let Some(frame) = split_frame(&mut bytes, u32::MAX).unwrap() {
            if let FrameBody::Amqp { performative, .. } = decode_frame(frame).unwrap().body {
                performatives.push(performative);
            }
        }
        performatives
    }

    /// The names of the frames that came to a raw client.
    pub fn frames(&mut self) -> Vec<&'static str> {
        let mut bytes = self.to_client.split();
        if bytes.starts_with(b"AMQP") {
            bytes.advance(8);
        }
        let mut names = Vec::new();
        while let Some(frame) = split_frame(&mut bytes, u32::MAX).unwrap() {
            names.push(match decode_frame(frame).unwrap().body {
                FrameBody::Empty => "empty",
                FrameBody::Sasl(_) => "sasl",
                FrameBody::Amqp { performative, .. } => match performative {
                    Performative::Open(_) => "open",
                    Performative::Begin(_) => "begin",
                    Performative::Attach(_) => "attach",
                    Performative::Flow(_) => "flow",
                    Performative::Transfer(_) => "transfer",
                    Performative::Disposition(_) => "disposition",
                    Performative::Detach(_) => "detach",
                    Performative::End(_) => "end",
                    Performative::Close(_) => "close",
                },
            });
        }
        names
    }

    fn carry_to_door(&mut self, now: u64, commands: &mut Vec<Command>) -> bool {
        let mut output = Output::new();
        if self.cut {
            return false;
        }
        if !self.raw {
            self.amqp.poll_output(&mut output);
        }
        self.to_door.extend_from_slice(&output.copy_to_bytes(output.remaining()));
        let before = self.to_door.len();
        if before > 0 {
            self.door.input(now, &mut self.to_door, commands);
        }
        let mut moved = self.to_door.len() != before;
        while let Some(request) = self.door.poll_login() {
            let good = request.password.as_str() == "secret";
            self.lines.push(format!("login {} {good}", request.user));
            self.door.login_result(if good { Login::Accepted } else { Login::Refused }, commands);
            moved = true;
        }
        moved
    }

    fn carry_to_client(&mut self, now: u64, commands: &mut Vec<Command>) -> bool {
        if self.unread {
            return false;
        }
        let mut output = Output::new();
        self.door.output(&mut output, commands);
        let some = output.has_remaining();
        self.most_ready = self.most_ready.max(output.remaining());
        if self.cut {
            return false;
        }
        self.to_client.extend_from_slice(&output.copy_to_bytes(output.remaining()));
        if self.raw {
            return some;
        }
        loop {
            let more = self.amqp.handle_input(now, &mut self.to_client);
            while let Some(event) = self.amqp.poll_event() {
                self.event(event);
            }
            if !more {
                return some;
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::RemoteOpen(open) => {
                let offered: Vec<&str> = open.offered_capabilities.iter().map(Symbol::as_str).collect();
                let failed =
                    open.properties.is_some_and(|p| p.get("amqp:connection-establishment-failed").is_some());
                let failed = if failed { " failed" } else { "" };
                self.lines.push(format!("open {} {}{failed}", open.container_id, offered.join(" ")));
            }
            Event::Attached { link, attach } => self.on_attached(link, *attach),
            Event::Transfer { link, delivery, payload, more, settled, aborted, .. } => {
                let bytes = self.partial.entry(link).or_default();
                bytes.extend_from_slice(&payload);
                if aborted {
                    self.partial.remove(&link);
                    let line = format!("{}#{delivery} aborted", self.names[&link]);
                    self.lines.push(line);
                } else if !more {
                    let bytes = self.partial.remove(&link).unwrap();
                    self.on_message(link, delivery, settled, &bytes);
                    if let Some((link, limit, drain)) = self.asks {
                        // It may be detached.
                        let _ = self.amqp.flow_receiver(link, limit, drain);
                    }
                }
            }
            Event::Outcome { link, first, last, state, settled } => {
                let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
                let state = state.as_deref().map_or_else(String::new, state_text);
                let settled = if settled { "" } else { " unsettled" };
                let line = format!("{}#{range} {state}{settled}", self.names[&link]);
                self.lines.push(line);
            }
            Event::SenderState { link, first, last, .. } => {
                let line = format!("{}#{first}-{last} settled", self.names[&link]);
                self.lines.push(line);
            }
            Event::SenderFlow { link, drained: true, .. } => {
                let line = format!("{} drained", self.names[&link]);
                self.lines.push(line);
            }
            Event::Detach { link, closed, error } => {
                let closed = if closed { "closed" } else { "detached" };
                let line = format!("{} {closed}{}", self.names[&link], error_text(error.as_ref()));
                self.lines.push(line);
                // The peer's detach is answered, unless it is the answer.
                let _ = self.amqp.detach(link, closed == "closed", None);
            }
            Event::Close { error } => self.lines.push(format!("close{}", error_text(error.as_ref()))),
            Event::Failed(error) => self.lines.push(format!("failed: {error}")),
            _ => {}
        }
    }

    fn on_attached(&mut self, link: LinkId, attach: Attach) {
        let name = &self.names[&link];
        let end = match (attach.role, &attach.source, &attach.target) {
            (Role::Receiver, _, Some(TargetKind::Target(target))) => {
                format!("to {}", target.address.as_deref().unwrap_or("anyone"))
            }
            (Role::Sender, Some(source), _) => {
                format!("from {}", source.address.as_deref().unwrap_or("nothing"))
            }
            _ => String::from("to null"),
        };
        let line = format!("attached {name} {end}");
        self.lines.push(line);
        self.attached.insert(link, attach);
    }

    fn on_message(&mut self, link: LinkId, delivery: u64, settled: bool, bytes: &[u8]) {
        let message = Message::decode(&mut Reader::new(bytes)).unwrap();
        let body = match &message.body {
            Body::Value(Value::String(text)) if text.len() > 40 => format!("{} bytes", text.len()),
            Body::Value(Value::String(text)) => text.clone(),
            other => format!("{other:?}"),
        };
        let mut line = format!("{}#{delivery} {body}", self.names[&link]);
        if settled {
            line.push_str(" settled");
        }
        let count = message.header.as_ref().map_or(0, |header| header.delivery_count);
        if count > 0 {
            write!(line, " count {count}").unwrap();
        }
        self.lines.push(line);
        self.latest.insert(link, message);
    }
}

fn tagged(head: &Delivery) -> Delivery {
    let tag = if head.tag == DeliveryTag::default() { DeliveryTag::from_number(0) } else { head.tag };
    Delivery { tag, ..head.clone() }
}

fn state_text(state: &DeliveryState) -> String {
    match state {
        DeliveryState::Accepted => String::from("accepted"),
        DeliveryState::Released => String::from("released"),
        DeliveryState::Rejected { error } => format!("rejected{}", error_text(error.as_ref())),
        other => format!("{other:?}"),
    }
}

/// Condition and reason of an error.
fn error_text(error: Option<&AmqpError>) -> String {
    let Some(error) = error else { return String::new() };
    let info = error.info.as_ref();
    let reason = info.and_then(|info| info.get("reason")).and_then(Value::as_str).unwrap_or("-");
    format!(" {} {reason}", error.condition)
}

pub fn encode(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes.into()
}

/// A durable message with a text.
pub fn text(body: &str) -> Message {
    Message {
        header: Some(Header { durable: true, ..Header::default() }),
        body: Body::Value(Value::String(body.into())),
        ..Message::default()
    }
}

/// A message that says where it goes.
pub fn text_to(address: &str, body: &str) -> Message {
    let properties = Properties { to: Some(address.into()), ..Properties::default() };
    Message { properties: Some(properties), ..text(body) }
}

/// A message with a string property.
pub fn text_with(key: &str, value: &str, body: &str) -> Message {
    let mut map = Map::new();
    map.insert(key, value);
    Message { application_properties: Some(map), ..text(body) }
}

/// A sender's attach, named by its address.
pub fn send_to(address: &str) -> Attach {
    send_with(address, Target { address: Some(address.into()), ..Target::default() })
}

pub fn send_with(name: &str, target: Target) -> Attach {
    Attach {
        name: name.into(),
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(TargetKind::Target(target)),
        ..Attach::default()
    }
}

pub fn receive_from(name: &str, address: &str) -> Attach {
    receive_with(name, Source { address: Some(address.into()), ..Source::default() })
}

pub fn receive_with(name: &str, source: Source) -> Attach {
    Attach {
        name: name.into(),
        role: Role::Receiver,
        snd_settle_mode: SenderSettleMode::Unsettled,
        source: Some(source),
        target: Some(TargetKind::Target(Target::default())),
        ..Attach::default()
    }
}

/// The filter with which JMS selects.
pub fn selector(text: &str) -> Fields {
    let mut filter = Fields::new();
    filter.insert("jms-selector", Value::described(0x0000_468C_0000_0004_u64, text));
    filter
}

/// The source of a durable subscription as JMS asks for it (AM-3).
pub fn durable_source(address: &str) -> Source {
    Source {
        address: Some(address.into()),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: TerminusExpiryPolicy::Never,
        distribution_mode: Some(distribution_mode::COPY),
        capabilities: vec![Symbol::from_static("topic")],
        ..Source::default()
    }
}

/// The attach that asks for a subscription by name, without a source (AM-7).
pub fn unsubscribe(name: &str) -> Attach {
    let target = Some(TargetKind::Target(Target::default()));
    Attach { name: name.into(), role: Role::Receiver, target, ..Attach::default() }
}
