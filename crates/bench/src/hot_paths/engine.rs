//! Messages through the engine alone: commands in, effects out, every record taken for safe at once.

use bytes::Bytes;
use postroad_engine::admin::Request;
use postroad_engine::{
    Client, Command, ConnId, ConsumerSource, ConsumerSpec, Effect, Engine, LinkNo, Now, Output, ProducerKey,
    ProducerTarget, Settlement, StepBytes, TakerKey,
};
use postroad_model::address::Address;
use postroad_model::message::Incoming;
use postroad_model::settings::{BrokerSettings, ChannelSettings, JoinSettings, QueueSettings, Retention};
use postroad_record::FramePlace;

use super::{BATCH, message};

/// Pieces of work between two looks at what came of it.
const PIECES: usize = 64;

const NOW: Now = Now { wall: 1_000_000, mono: 1_000 };

/// How many subscribers the fan-out has.
const SUBSCRIBERS: u32 = 100;

pub(super) fn persistent(count: u32) {
    let mut bench = Bench::new(&["q"], &[]);
    let (producer, consumer) = (bench.producer("q"), bench.consumer("q"));
    bench.carry(count, &message(true), producer, &[consumer]);
}

pub(super) fn non_persistent(count: u32) {
    let mut bench = Bench::new(&["q"], &[]);
    let (producer, consumer) = (bench.producer("q"), bench.consumer("q"));
    bench.carry(count, &message(false), producer, &[consumer]);
}

/// One unit is one delivery, so a hundredth of a message.
pub(super) fn fan_out(count: u32) {
    let mut bench = Bench::new(&[], &["c"]);
    let producer = bench.producer("c");
    let consumers: Vec<_> = (0..SUBSCRIBERS).map(|_| bench.consumer("c")).collect();
    bench.carry(
        count.next_multiple_of(SUBSCRIBERS * BATCH) / SUBSCRIBERS,
        &message(false),
        producer,
        &consumers,
    );
}

pub(super) fn join(count: u32) {
    let mut bench = Bench::new(&["q"], &["c"]);
    let settings = JoinSettings {
        source: "c".into(),
        destination: "q".into(),
        filter: Some("price > 100".into()),
        ..JoinSettings::default()
    };
    bench.ask(Request::CreateJoin { name: None, settings, configured: false });
    let (producer, consumer) = (bench.producer("c"), bench.consumer("q"));
    bench.carry(count, &message(true), producer, &[consumer]);
}

/// Every step of a turn has a place, and is durable.
fn settle_in(engine: &mut Engine, out: &mut Output) {
    let mut last = None;
    let mut steps = std::mem::take(&mut out.steps);
    for StepBytes { step, payload } in steps.drain(..) {
        engine.placed(step, FramePlace::default());
        out.reuse(payload);
        last = Some(step);
    }
    out.steps = steps;
    if let Some(last) = last {
        engine.became_durable(last);
    }
}

/// An engine and what it wants done.
struct Bench {
    engine: Engine,
    out: Output,
    next_link: u32,
}

/// A consumer, and how many deliveries it had.
struct Consumer {
    key: TakerKey,
    link: LinkNo,
    had: u64,
}

const CONN: ConnId = ConnId(1);

impl Bench {
    fn new(queues: &[&str], channels: &[&str]) -> Self {
        let settings = BrokerSettings { name: "A".into(), ..BrokerSettings::default() };
        let mut engine = Engine::new(settings, [7; 16]);
        engine.recovered(false);
        engine.found();
        let mut bench = Self { engine, out: Output::default(), next_link: 0 };
        for name in queues {
            let settings = QueueSettings::default();
            bench.ask(Request::PutQueue { name: (*name).into(), settings, configured: false });
        }
        for name in channels {
            let settings = ChannelSettings { retention: Retention::Interest, ..ChannelSettings::default() };
            bench.ask(Request::PutChannel { name: (*name).into(), settings, configured: false });
        }
        let client = Client { id: "bench".into(), user: "bench".into(), address: "here".into(), sole: false };
        bench.engine.handle(NOW, Command::Connect { conn: CONN, client });
        bench.work();
        bench
    }

    /// Works until nothing waits; the effects are in `out`.
    fn work(&mut self) {
        while self.engine.run(NOW, PIECES) {}
        self.out.effects.clear();
        self.engine.take_output(&mut self.out);
        settle_in(&mut self.engine, &mut self.out);
    }

    fn ask(&mut self, request: Request) {
        self.engine.handle(NOW, Command::Admin { reply: 0, request: Box::new(request) });
        self.work();
        let done = |effect: &Effect| matches!(effect, Effect::AdminReply { result, .. } if result.is_ok());
        assert!(self.out.effects.iter().any(|(_, effect)| done(effect)), "{:?}", self.out.effects);
    }

    fn link(&mut self) -> LinkNo {
        self.next_link += 1;
        LinkNo(self.next_link)
    }

    fn producer(&mut self, address: &str) -> ProducerKey {
        let (link, target) = (self.link(), ProducerTarget::Address(parse(address)));
        self.engine.handle(NOW, Command::OpenProducer { conn: CONN, link, target });
        self.work();
        let opened = self.out.effects.iter().find_map(|(_, effect)| match effect {
            Effect::ProducerOpened { producer, .. } => Some(*producer),
            _ => None,
        });
        opened.expect("a producer of a defined store is taken")
    }

    fn consumer(&mut self, address: &str) -> Consumer {
        let link = self.link();
        let spec = ConsumerSpec::new(ConsumerSource::Address(parse(address)));
        self.engine.handle(NOW, Command::OpenConsumer { conn: CONN, link, spec: Box::new(spec) });
        self.work();
        let opened = self.out.effects.iter().find_map(|(_, effect)| match effect {
            Effect::ConsumerOpened { taker, .. } => Some(*taker),
            _ => None,
        });
        let key = opened.expect("a consumer of a defined store is taken");
        self.engine.handle(NOW, Command::Credit { taker: key, limit: u64::from(u32::MAX), drain: false });
        self.work();
        Consumer { key, link, had: 0 }
    }

    /// Publishes `count` messages, each batch in one turn, and settles what comes of it.
    fn carry(&mut self, count: u32, sent: &Bytes, producer: ProducerKey, consumers: &[Consumer]) {
        let mut had: Vec<u64> = consumers.iter().map(|consumer| consumer.had).collect();
        let mut confirmed = 0;
        let first_link = consumers.first().map_or(0, |consumer| consumer.link.0);
        let mut tag = 0;
        while tag < u64::from(count) {
            for _ in 0..BATCH {
                let message = Box::new(Incoming::parse(sent).expect("what was written is a message"));
                self.engine.handle(NOW, Command::Publish { producer, tag, message, settled: false });
                tag += 1;
            }
            confirmed += self.deliver(first_link, &mut had);
            for (consumer, had) in consumers.iter().zip(&had) {
                let (first, last) = (tag - u64::from(BATCH), had - 1);
                let outcome = Settlement::Accepted;
                let settle = Command::Settle { taker: consumer.key, first, last, outcome, confirm: false };
                self.engine.handle(NOW, settle);
            }
            confirmed += self.deliver(first_link, &mut had);
        }
        assert_eq!(confirmed, tag, "every message was confirmed");
        assert!(had.iter().all(|had| *had == tag), "every message came: {had:?} of {tag}");
    }

    /// Works, and takes what comes of it as a client that reads at once, until nothing more comes. Counts the deliveries of
    /// each consumer, and gives how many messages were confirmed.
    fn deliver(&mut self, first_link: u32, had: &mut [u64]) -> u64 {
        let mut confirmed = 0;
        loop {
            self.work();
            let mut bytes = 0;
            for (_, effect) in &self.out.effects {
                match effect {
                    Effect::Deliver(delivery) => {
                        had[(delivery.link.0 - first_link) as usize] += 1;
                        bytes += delivery.message.len() as u64;
                    }
                    Effect::Published { first, last, .. } => confirmed += last - first + 1,
                    _ => {}
                }
            }
            if bytes == 0 {
                return confirmed;
            }
            self.engine.handle(NOW, Command::Written { conn: CONN, bytes });
        }
    }
}

fn parse(address: &str) -> Address {
    Address::parse(address, None).expect("the names of this file are addresses")
}
