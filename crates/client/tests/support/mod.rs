//! A toy broker over the accepting side of the engine: queues in memory, one task per connection.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::AmqpError;
use postroad_amqp::codec::error::condition::{CONNECTION_FORCED, DETACH_FORCED, NOT_ALLOWED, NOT_FOUND};
use postroad_amqp::codec::performative::{Attach, Role};
use postroad_amqp::codec::sasl::SaslCode;
use postroad_amqp::codec::state::DeliveryState;
use postroad_amqp::codec::terminus::TargetKind;
use postroad_amqp::{
    AcceptSasl, AttachReply, Config, Connection, Delivery, Event, LinkId, OpenReply, Output,
};
use postroad_client::{Client, ConnectOptions, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the toy knows beside its queues.
#[derive(Default)]
pub struct Toy {
    pub queues: BTreeMap<String, VecDeque<Bytes>>,
    /// Names of durable subscriptions.
    pub subscriptions: Vec<String>,
    /// The states that consumers have stated, per delivery.
    pub settled: Vec<(u64, u64, DeliveryState)>,
    /// Attach frames as they came.
    pub attached: Vec<Attach>,
}

pub type SharedToy = Arc<Mutex<Toy>>;

/// Starts the toy on a free port.
pub async fn start() -> (SocketAddr, SharedToy) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, toy) = (listener.local_addr().unwrap(), SharedToy::default());
    let shared = Arc::clone(&toy);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(Served::new(Arc::clone(&shared)).run(stream));
        }
    });
    (address, toy)
}

pub fn options(address: SocketAddr) -> ConnectOptions {
    ConnectOptions::new(address.to_string().parse::<Url>().unwrap())
}

pub async fn connect(address: SocketAddr) -> Client {
    Client::connect(&options(address)).await.unwrap()
}

/// One connection of a client.
struct Served {
    toy: SharedToy,
    engine: Connection,
    consumers: BTreeMap<LinkId, Consumer>,
    producers: BTreeMap<LinkId, (String, BytesMut)>,
}

struct Consumer {
    queue: String,
    limit: u64,
    sent: u64,
    drain: bool,
}

impl Served {
    fn new(toy: SharedToy) -> Self {
        let config = Config { container_id: "toy".to_owned(), incoming_window: 8, ..Config::default() };
        let sasl = AcceptSasl { anonymous: true, plain: true, skip: true };
        let engine = Connection::accept(config, sasl, 0);
        Self { toy, engine, consumers: BTreeMap::new(), producers: BTreeMap::new() }
    }

    async fn run(mut self, mut stream: TcpStream) {
        let (start, mut input, mut output) = (Instant::now(), BytesMut::new(), Output::new());
        loop {
            let now = u64::try_from(start.elapsed().as_millis()).unwrap();
            self.engine.handle_input(now, &mut input);
            while let Some(event) = self.engine.poll_event() {
                self.on_event(event);
            }
            if !input.is_empty() {
                self.engine.handle_input(now, &mut input);
            }
            self.deliver();
            self.engine.poll_output(&mut output);
            if stream.write_all_buf(&mut output).await.is_err() || self.engine.is_finished() {
                return;
            }
            // Another connection may fill a queue meanwhile.
            tokio::select! {
                read = stream.read_buf(&mut input) => if read.unwrap_or(0) == 0 { return },
                () = tokio::time::sleep(std::time::Duration::from_millis(2)) => {}
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslAnonymous { .. } => self.engine.sasl_outcome(SaslCode::Ok).unwrap(),
            Event::SaslPlain { user, password, .. } => {
                let known = user == "alice" && password.as_str() == "secret";
                self.engine.sasl_outcome(if known { SaslCode::Ok } else { SaslCode::Auth }).unwrap();
            }
            Event::RemoteOpen(open) if open.container_id == "unwanted" => {
                let error = AmqpError::new(NOT_ALLOWED, "go away");
                self.engine.refuse_open(Default::default(), error).unwrap();
            }
            Event::RemoteOpen(_) => self.engine.open(OpenReply::default()).unwrap(),
            Event::RemoteAttach { link, attach, .. } => self.on_attach(link, *attach),
            Event::Transfer { link, delivery, settled, payload, more, .. } => {
                self.on_transfer(link, delivery, settled, &payload, more);
            }
            Event::Credit { link, limit, drain, .. } => {
                if let Some(consumer) = self.consumers.get_mut(&link) {
                    (consumer.limit, consumer.drain) = (limit, drain);
                }
            }
            Event::Outcome { link, first, last, state, settled } => {
                let state = state.as_deref().cloned().unwrap();
                self.toy.lock().unwrap().settled.push((first, last, state.clone()));
                if !settled {
                    self.engine.settle_outgoing(link, first, last, Some(state)).unwrap();
                }
            }
            Event::Detach { link, closed, .. } => {
                self.consumers.remove(&link);
                let _ = self.engine.detach(link, closed, None);
            }
            _ => {}
        }
    }

    fn on_attach(&mut self, link: LinkId, attach: Attach) {
        let mut toy = self.toy.lock().unwrap();
        toy.attached.push(attach.clone());
        let mut reply =
            AttachReply { source: attach.source, target: attach.target, ..AttachReply::default() };
        if attach.role == Role::Sender {
            let Some(TargetKind::Target(target)) = &mut reply.target else { panic!() };
            if target.dynamic {
                target.address = Some("made-up".to_owned());
            }
            let queue = target.address.clone().unwrap_or_default();
            if queue == "nowhere" {
                return self.engine.refuse_attach(link, AmqpError::new(NOT_FOUND, "no such queue")).unwrap();
            }
            reply.max_message_size = Some(1 << 20);
            self.producers.insert(link, (queue, BytesMut::new()));
            self.engine.accept_attach(link, reply).unwrap();
            return self.engine.flow_receiver(link, 10, false).unwrap();
        }
        if reply.source.is_none() {
            let Some(at) = toy.subscriptions.iter().position(|name| *name == attach.name) else {
                let error = AmqpError::new(NOT_FOUND, "no such subscription");
                return self.engine.refuse_attach(link, error).unwrap();
            };
            toy.subscriptions.remove(at);
            reply.source = Some(Default::default());
        }
        let queue = reply.source.as_ref().and_then(|source| source.address.clone()).unwrap_or_default();
        if reply.source.as_ref().is_some_and(|source| source.durable != Default::default()) {
            toy.subscriptions.push(attach.name);
        }
        self.engine.accept_attach(link, reply).unwrap();
        self.consumers.insert(link, Consumer { queue, limit: 0, sent: 0, drain: false });
    }

    fn on_transfer(&mut self, link: LinkId, delivery: u64, settled: bool, payload: &[u8], more: bool) {
        let (queue, bytes) = self.producers.get_mut(&link).unwrap();
        bytes.extend_from_slice(payload);
        if more {
            return;
        }
        let message = bytes.split().freeze();
        let queue = queue.clone();
        match queue.as_str() {
            "kick" => {
                let error = AmqpError::new(DETACH_FORCED, "out");
                return self.engine.detach(link, true, Some(error)).unwrap();
            }
            "crash" => {
                return self.engine.close(Some(AmqpError::new(CONNECTION_FORCED, "stopping"))).unwrap();
            }
            _ => {}
        }
        let state = match queue.as_str() {
            "reject" => DeliveryState::Rejected { error: Some(AmqpError::new(NOT_ALLOWED, "no")) },
            "odd" if delivery % 2 == 1 => DeliveryState::Released,
            _ => DeliveryState::Accepted,
        };
        self.toy.lock().unwrap().queues.entry(queue).or_default().push_back(message);
        if !settled {
            self.engine.settle_incoming(link, delivery, delivery, Some(state), true).unwrap();
        }
        self.engine.flow_receiver(link, delivery + 11, false).unwrap();
    }

    fn deliver(&mut self) {
        let mut toy = self.toy.lock().unwrap();
        for (&link, consumer) in &mut self.consumers {
            let queue = toy.queues.entry(consumer.queue.clone()).or_default();
            while consumer.sent < consumer.limit
                && let Some(message) = queue.pop_front()
            {
                let tag = postroad_amqp::codec::performative::DeliveryTag::from_number(consumer.sent);
                self.engine.send(link, &Delivery { tag, ..Delivery::default() }, &[message]).unwrap();
                consumer.sent += 1;
            }
            if std::mem::take(&mut consumer.drain) {
                self.engine.drained(link).unwrap();
                consumer.limit = consumer.sent;
            }
        }
    }
}
