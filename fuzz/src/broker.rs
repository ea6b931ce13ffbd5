//! A broker in memory: the engine, and doors whose clients are written by hand.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp::{
    Config, Connection, Delivery, Event, InitiateSasl, LinkId, Output, SessionId, SessionOptions,
};
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::message::{Body, Header, Message};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Role, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, TargetKind};
use postroad_amqp_codec::value::Value;
use postroad_door_amqp::{Door, DoorConfig, Login};
use postroad_engine::admin::Request;
use postroad_engine::{
    Command, ConnId, Effect, Engine, Loaded, Now, Output as EngineOutput, StepBytes, Wanted,
};
use postroad_model::settings::{BrokerSettings, ChannelSettings, QueueSettings};
use postroad_record::FramePlace;

/// More rounds than any input of a few kilobytes can keep a broker busy for.
const MAX_ROUNDS: usize = 20_000;

/// The queue that only the well-behaved client uses.
pub const SERVED: &str = "served";

/// A broker and the doors of its clients.
#[derive(Debug)]
pub struct Broker {
    engine: Engine,
    doors: Vec<Pipe>,
    config: Arc<DoorConfig>,
    now: u64,
    /// The journal: one payload for each step.
    pub steps: Vec<Vec<u8>>,
}

/// A door, and the bytes on their way to it and from it.
#[derive(Debug)]
struct Pipe {
    door: Door,
    to_door: BytesMut,
    from_door: BytesMut,
    written: usize,
    cut: bool,
}

impl Broker {
    /// A broker with some queues and channels.
    #[must_use]
    pub fn new() -> Self {
        let mut broker = Self::over(Engine::new(settings(), [7; 16]));
        broker.engine.recovered(false);
        broker.engine.found();
        let small = QueueSettings { capacity: 1, ..QueueSettings::default() };
        broker.queue("orders", QueueSettings::default());
        broker.queue("tiny", small);
        broker.queue(SERVED, QueueSettings::default());
        broker.channel("prices");
        broker.channel("copies");
        broker
    }

    /// The broker after a crash: what is in the journal, and nothing else.
    ///
    /// # Panics
    /// When a step can't be read.
    #[must_use]
    pub fn crashed(&self) -> Self {
        let mut engine = Engine::new(settings(), [8; 16]);
        for (at, step) in self.steps.iter().enumerate() {
            engine.replay(step, frame(at)).expect("a step can be read");
        }
        engine.recovered(false);
        let mut broker = Self::over(engine);
        broker.steps.clone_from(&self.steps);
        broker.now = self.now;
        broker.run();
        broker
    }

    fn over(engine: Engine) -> Self {
        let config = DoorConfig { max_message_size: 10_000, ..DoorConfig::default() };
        Self { engine, doors: Vec::new(), config: Arc::new(config), now: 1_000, steps: Vec::new() }
    }

    fn queue(&mut self, name: &str, settings: QueueSettings) {
        self.admin(Request::PutQueue { name: name.into(), settings, configured: false });
    }

    fn channel(&mut self, name: &str) {
        let settings = ChannelSettings::default();
        self.admin(Request::PutChannel { name: name.into(), settings, configured: false });
    }

    fn admin(&mut self, request: Request) {
        self.engine.handle(self.now(), Command::Admin { reply: 0, request: Box::new(request) });
        self.run();
    }

    fn now(&self) -> Now {
        Now { wall: self.now, mono: self.now }
    }

    /// A client connects. Returns its number.
    pub fn connect(&mut self) -> usize {
        let conn = ConnId(self.doors.len() as u64 + 1);
        let door = Door::new(conn, Arc::clone(&self.config), String::from("fuzz"), self.now);
        let (to_door, from_door) = (BytesMut::new(), BytesMut::new());
        self.doors.push(Pipe { door, to_door, from_door, written: 0, cut: false });
        self.doors.len() - 1
    }

    /// A client writes bytes.
    pub fn write(&mut self, client: usize, bytes: &[u8]) {
        self.doors[client].to_door.extend_from_slice(bytes);
    }

    /// What was written to a client and not read.
    pub fn read(&mut self, client: usize) -> BytesMut {
        self.doors[client].from_door.split()
    }

    /// How many bytes were ever written to a client.
    #[must_use]
    pub fn written(&self, client: usize) -> usize {
        self.doors[client].written
    }

    /// A client's socket is cut.
    pub fn cut(&mut self, client: usize) {
        let mut commands = Vec::new();
        self.doors[client].cut = true;
        self.doors[client].door.lost(&mut commands);
        self.handle(commands);
    }

    /// Time passes.
    pub fn wait(&mut self, ms: u64) {
        self.now += ms;
        let mut commands = Vec::new();
        let now = self.now;
        self.doors
            .iter_mut()
            .filter(|pipe| !pipe.cut)
            .for_each(|pipe| pipe.door.deadline(now, &mut commands));
        self.handle(commands);
    }

    fn handle(&mut self, commands: Vec<Command>) {
        let now = self.now();
        commands.into_iter().for_each(|command| self.engine.handle(now, command));
    }

    /// Carries bytes, commands and effects until nothing moves.
    ///
    /// # Panics
    /// When it does not come to rest.
    pub fn run(&mut self) {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < MAX_ROUNDS, "it never comes to rest");
        }
    }

    fn round(&mut self) -> bool {
        let mut moved = false;
        let mut commands = Vec::new();
        for pipe in &mut self.doors {
            moved |= pipe.to_door(self.now, &mut commands);
        }
        moved |= !commands.is_empty();
        self.handle(commands);
        let mut turns = 0;
        while self.engine.run(self.now(), 100) {
            turns += 1;
            assert!(turns < MAX_ROUNDS, "the engine never comes to rest");
        }
        let mut out = EngineOutput::default();
        self.engine.take_output(&mut out);
        moved |= !out.effects.is_empty();
        for StepBytes { step, payload } in out.steps {
            self.engine.placed(step, frame(self.steps.len()));
            self.engine.became_durable(step);
            self.steps.push(payload);
        }
        let mut commands = Vec::new();
        for (_, effect) in out.effects {
            if let Effect::Load { wanted } = &effect {
                let loaded = wanted.iter().map(|wanted| self.load(wanted)).collect();
                commands.push(Command::Loaded { loaded });
            }
            let pipe = effect.conn().and_then(|conn| usize::try_from(conn.0 - 1).ok());
            if let Some(pipe) = pipe.and_then(|no| self.doors.get_mut(no)) {
                pipe.door.effect(effect, &mut commands);
            }
        }
        self.handle(commands);
        let mut commands = Vec::new();
        for pipe in &mut self.doors {
            moved |= pipe.take_output(&mut commands);
        }
        moved |= !commands.is_empty();
        self.handle(commands);
        moved
    }
}

impl Broker {
    /// Reads a message back from the steps.
    fn load(&self, wanted: &Wanted) -> Loaded {
        let place = wanted.place;
        let bytes = &self.steps[place.frame.offset as usize][place.at as usize..][..wanted.length as usize];
        Loaded { body: wanted.body, bytes: Ok(Bytes::copy_from_slice(bytes)) }
    }
}

/// Where a step lies.
fn frame(at: usize) -> FramePlace {
    FramePlace { segment: 1, offset: u32::try_from(at).expect("few steps"), length: 0 }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

fn settings() -> BrokerSettings {
    // What is on disk is read back whenever it is needed.
    BrokerSettings { auto_create_queues: vec![String::from("auto.*")], cache: 0, ..BrokerSettings::default() }
}

impl Pipe {
    fn to_door(&mut self, now: u64, commands: &mut Vec<Command>) -> bool {
        if self.cut || self.to_door.is_empty() {
            return false;
        }
        let before = self.to_door.len();
        self.door.input(now, &mut self.to_door, commands);
        let mut moved = self.to_door.len() != before;
        while let Some(request) = self.door.poll_login() {
            let good = request.password.as_str() == "secret";
            self.door.login_result(if good { Login::Accepted } else { Login::Refused }, commands);
            moved = true;
        }
        moved
    }

    fn take_output(&mut self, commands: &mut Vec<Command>) -> bool {
        let mut output = Output::new();
        self.door.output(&mut output, commands);
        let some = output.has_remaining();
        if !self.cut {
            self.written += output.remaining();
            self.from_door.extend_from_slice(&output.copy_to_bytes(output.remaining()));
        }
        some
    }
}

/// Connects a new client that does everything right, and checks that its message is taken and given back.
///
/// # Panics
/// When it is not.
pub fn check_that_it_serves(broker: &mut Broker) {
    let mut client = GoodClient::new(broker);
    client.carry(broker);
    let session = client.amqp.begin(SessionOptions::default()).expect("an open connection takes sessions");
    let sender = client.attach(session, Role::Sender);
    let receiver = client.attach(session, Role::Receiver);
    client.amqp.flow_receiver(receiver, 1_000, false).expect("the link is there");
    client.carry(broker);
    let tag = DeliveryTag::from_number(0);
    let delivery = Delivery { tag, ..Delivery::default() };
    let mut bytes = Vec::new();
    Message {
        header: Some(Header { durable: true, ..Header::default() }),
        body: Body::Value(Value::String("are you there?".into())),
        ..Message::default()
    }
    .encode(&mut bytes);
    client.amqp.send(sender, &delivery, &[bytes.into()]).expect("the broker has given credit");
    client.carry(broker);
    assert!(client.accepted, "the message was not accepted: {:?}", client.surprises);
    assert!(client.received, "the message did not come back: {:?}", client.surprises);
    assert!(client.surprises.is_empty(), "{:?}", client.surprises);
}

struct GoodClient {
    amqp: Connection,
    no: usize,
    input: BytesMut,
    accepted: bool,
    received: bool,
    surprises: Vec<Event>,
}

impl GoodClient {
    fn new(broker: &mut Broker) -> Self {
        let config = Config { container_id: "good".into(), ..Config::default() };
        let amqp = Connection::initiate(config, InitiateSasl::Skip, broker.now);
        let no = broker.connect();
        let input = BytesMut::new();
        Self { amqp, no, input, accepted: false, received: false, surprises: Vec::new() }
    }

    fn attach(&mut self, session: SessionId, role: Role) -> LinkId {
        let address = Some(SERVED.to_owned());
        let attach = Attach {
            name: format!("{role:?}"),
            role,
            snd_settle_mode: SenderSettleMode::Unsettled,
            source: Some(Source { address: address.clone(), ..Source::default() }),
            target: Some(TargetKind::Target(Target { address, ..Target::default() })),
            ..Attach::default()
        };
        self.amqp.attach(session, attach).expect("an open session takes links")
    }

    fn carry(&mut self, broker: &mut Broker) {
        loop {
            let mut output = Output::new();
            let some = self.amqp.poll_output(&mut output);
            broker.write(self.no, &output.copy_to_bytes(output.remaining()));
            broker.run();
            let answer = broker.read(self.no);
            if !some && answer.is_empty() {
                return;
            }
            self.input.unsplit(answer);
            let mut more = true;
            while more {
                more = self.amqp.handle_input(broker.now, &mut self.input);
                while let Some(event) = self.amqp.poll_event() {
                    self.see(event);
                }
            }
        }
    }

    fn see(&mut self, event: Event) {
        match event {
            Event::Outcome { ref state, settled: true, .. }
                if state.as_deref() == Some(&DeliveryState::Accepted) =>
            {
                self.accepted = true;
            }
            Event::Transfer { link, delivery, more: false, .. } => {
                self.received = true;
                let accepted = Some(DeliveryState::Accepted);
                self.amqp
                    .settle_incoming(link, delivery, delivery, accepted, true)
                    .expect("it was delivered");
            }
            Event::Begun { .. }
            | Event::Attached { .. }
            | Event::Credit { .. }
            | Event::SenderFlow { .. } => {}
            Event::RemoteOpen(_) | Event::Transfer { .. } | Event::Sendable { .. } => {}
            surprise => self.surprises.push(surprise),
        }
    }
}
