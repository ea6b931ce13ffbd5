//! Ten thousand clients, and messages of a hundred mebibytes: what the broker holds stays bounded.

use crate::broker::Broker;
use crate::peer::{HEADER, Peer, begin, flow, frame, sender, text, transfer};
use bytes::Bytes;
use postroad_amqp_codec::performative::{Open, Performative, Transfer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONNECTIONS: usize = 10_000;
/// The goal, in bytes of resident memory for each.
const PER_CONNECTION: u64 = 16 * 1024;
/// Connections that are made before the first of them is waited for: the system's queue is not longer.
const AT_ONCE: usize = 500;

#[test]
fn ten_thousand_idle_connections_cost_little_and_disturb_nobody() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let spare =
        limit.maximum.map_or(CONNECTIONS, |files| usize::try_from(files).unwrap().saturating_sub(300));
    let count = CONNECTIONS.min(spare);
    assert!(count >= 1_000, "the system allows too few open files: raise its hard limit (ulimit -Hn)");
    let broker = Broker::start("[limits]\nmax_connections = 20000\nidle_timeout = \"10m\"\n");
    let mut witness = broker.witness();
    witness.goes_on();
    let before = broker.resident();
    let open = [HEADER, &frame(0, &Open { container_id: "idle".into(), ..Open::default() }, &[])].concat();
    let mut peers: Vec<Peer> = Vec::with_capacity(count);
    while peers.len() < count {
        let first = peers.len();
        for _ in 0..AT_ONCE.min(count - first) {
            let mut peer = Peer::connect(broker.address);
            peer.write(&open);
            peers.push(peer);
        }
        for peer in &mut peers[first..] {
            peer.read_exact(8);
            assert!(matches!(peer.next(), (Performative::Open(_), _)));
        }
    }
    let each = broker.resident().saturating_sub(before) / count as u64;
    println!("{count} idle connections take {each} bytes each");
    assert!(each <= PER_CONNECTION, "{each} bytes for each connection");
    witness.goes_on();
    peers[count / 2].is_alive(0);
    drop(peers);
    witness.goes_on();
    broker.stop();
}

/// Sends a message in pieces once there is credit for it, whatever comes meanwhile; the next delivery's id.
struct Feeder {
    peer: Peer,
    limit: u64,
    sent: u32,
    accepted: u32,
}

impl Feeder {
    fn new(broker: &Broker) -> Self {
        let mut peer = broker.open();
        peer.put(0, &begin());
        peer.put(0, &sender(0, "q"));
        Self { peer, limit: 0, sent: 0, accepted: 0 }
    }

    /// Takes one frame of the broker.
    fn take(&mut self) {
        match self.peer.next().0 {
            Performative::Flow(flow) if flow.handle.is_some() => {
                self.limit =
                    u64::from(flow.delivery_count.unwrap_or(0)) + u64::from(flow.link_credit.unwrap_or(0));
            }
            Performative::Disposition(disposition) => {
                let last = disposition.last.unwrap_or(disposition.first);
                self.accepted += last - disposition.first + 1;
            }
            Performative::Begin(_) | Performative::Attach(_) | Performative::Flow(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Whether there is credit, without waiting longer than the broker needs for an answer.
    fn has_credit(&mut self) -> bool {
        self.peer.put(1, &begin());
        self.peer.put(1, &postroad_amqp_codec::performative::End::default());
        loop {
            match self.peer.next().0 {
                Performative::End(_) => return self.limit > u64::from(self.sent),
                Performative::Begin(_) => {}
                Performative::Flow(flow) if flow.handle.is_some() => {
                    self.limit = u64::from(flow.delivery_count.unwrap_or(0))
                        + u64::from(flow.link_credit.unwrap_or(0));
                }
                Performative::Disposition(disposition) => {
                    let last = disposition.last.unwrap_or(disposition.first);
                    self.accepted += last - disposition.first + 1;
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, message: &[u8]) {
        while self.limit <= u64::from(self.sent) {
            self.take();
        }
        let pieces = message.chunks(60_000);
        let last = pieces.len() - 1;
        for (at, piece) in pieces.enumerate() {
            self.peer.put_payload(0, &Transfer { more: at < last, ..transfer(0, self.sent) }, piece);
        }
        self.sent += 1;
    }
}

/// Reads one message, opening the session's window as it goes.
fn read_message(peer: &mut Peer, frames: &mut u32) -> (u32, usize, Bytes) {
    let (mut size, mut end) = (0, Bytes::new());
    loop {
        let (Performative::Transfer(transfer), payload) = peer.next_but_flow() else { panic!("no message") };
        *frames += 1;
        if frames.is_multiple_of(1_000) {
            let window = postroad_amqp_codec::performative::Flow {
                next_incoming_id: Some(*frames),
                handle: None,
                delivery_count: None,
                link_credit: None,
                ..flow(0, 0, 0)
            };
            peer.put(0, &window);
        }
        size += payload.len();
        end = if payload.is_empty() { end } else { payload };
        if !transfer.more {
            return (transfer.delivery_id.unwrap(), size, end);
        }
    }
}

#[test]
fn messages_of_a_hundred_mebibytes_are_taken_where_they_may_be() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let before = broker.resident();
    let mut feeder = Feeder::new(&broker);
    let mut consumer = broker.open();
    consumer.begin(0);
    consumer.attach_receiver(0, "q", 10);
    let body = text(&"z".repeat((100 << 20) - 1_000));
    let mut frames = 0;
    for durable in [&b""[..], b"\x00\x53\x70\xc0\x02\x01\x41"] {
        let message = [durable, &body].concat();
        feeder.send(&message);
        witness.goes_on();
        while feeder.accepted < feeder.sent {
            feeder.take();
        }
        let grown = broker.peak().saturating_sub(before);
        println!("a message of 100 MiB takes {} MiB at the most", grown >> 20);
        assert!(grown < 600 << 20, "{} MiB for a message of 100", grown >> 20);
        let (id, size, end) = read_message(&mut consumer, &mut frames);
        assert!(size > message.len() && size < message.len() + 200, "{size}");
        assert!(end.iter().rev().take(1_000).all(|byte| *byte == b'z'));
        consumer.accept(id);
    }
    // A little more is too much, and is refused at its first piece.
    let more = text(&"z".repeat(100 << 20));
    feeder.peer.put_payload(0, &Transfer { more: true, ..transfer(0, feeder.sent) }, &more[..60_000]);
    feeder.peer.expect_detach(0, "amqp:link:message-size-exceeded");
    witness.goes_on();
    drop(witness);
    broker.warned_once(&["MSG_TOO_BIG"]);
}

#[test]
fn large_messages_wait_for_credit_while_memory_is_short() {
    let broker = Broker::start("[limits]\nmemory = \"32MiB\"\n");
    let mut witness = broker.witness();
    let before = broker.resident();
    let mut feeder = Feeder::new(&broker);
    let message = text(&"z".repeat(16 << 20));
    let mut sent = 0;
    while sent == 0 || feeder.has_credit() {
        feeder.send(&message);
        sent += 1;
        while feeder.accepted < sent {
            feeder.take();
        }
        assert!(sent < 10, "there is credit for ever");
    }
    assert_eq!(sent, 2, "32 MiB are full");
    let grown = broker.peak().saturating_sub(before);
    println!("messages of 16 MiB take {} MiB at the most", grown >> 20);
    assert!(grown < 160 << 20, "{} MiB", grown >> 20);
    // A consumer makes room, and both go on.
    let mut consumer = broker.open();
    consumer.begin(0);
    consumer.attach_receiver(0, "q", 100);
    let mut frames = 0;
    for round in 0..4 {
        let (id, size, _) = read_message(&mut consumer, &mut frames);
        assert!(size > message.len() && size < message.len() + 200, "{size}");
        consumer.accept(id);
        if round < 2 {
            feeder.send(&message);
        }
    }
    witness.goes_on();
    drop(witness);
    assert_eq!(broker.stop(), [""; 0]);
}
