//! Random traffic between two engines, cut into random pieces: everything arrives, once, in order, within credit.

use bytes::Bytes;
use postroad_amqp_codec::performative::{DeliveryTag, Role};
use postroad_amqp_codec::state::DeliveryState;
use proptest::prelude::*;

use super::pair::{Pair, Random, named};
use crate::{Config, Delivery, Event, LinkId};

/// What the user at one end of a sending link knows.
#[derive(Default)]
struct SenderModel {
    limit: u64,
    sent: u64,
    /// Bytes of the delivery that is sent in pieces.
    open: Option<usize>,
    /// Unsettled deliveries.
    unsettled: Vec<u64>,
    settled: Vec<u64>,
}

/// What the user at the receiving end knows.
#[derive(Default)]
struct ReceiverModel {
    limit: u64,
    received: u64,
    /// Bytes of the delivery that is coming in.
    open: usize,
    /// Complete, and not yet settled.
    unsettled: Vec<u64>,
    draining: bool,
}

/// The bytes of a delivery: a length and a pattern that follow from its number.
fn body(number: u64, len: usize) -> Bytes {
    (0..len).map(|at| u8::try_from((at as u64 + number) % 251).unwrap()).collect()
}

fn length(number: u64) -> usize {
    usize::try_from(number * 7919 % 1500).unwrap()
}

struct World {
    pair: Pair,
    random: Random,
    senders: Vec<(LinkId, SenderModel)>,
    receivers: Vec<(LinkId, ReceiverModel)>,
    total: u64,
}

impl World {
    fn new(seed: u64, links: usize, total: u64, client: Config, server: Config) -> Self {
        let (mut pair, session, _) = Pair::session(client, server);
        pair.random = Some(Random(seed));
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for link in 0..links {
            let (sender, receiver) = pair.link(session, Role::Sender, &format!("link {link}"));
            senders.push((sender, SenderModel::default()));
            receivers.push((receiver, ReceiverModel::default()));
        }
        Self { pair, random: Random(seed ^ 0x5555), senders, receivers, total }
    }

    /// One thing that a sending user may do.
    fn send(&mut self, at: usize) {
        let (link, model) = &mut self.senders[at];
        let engine = &mut self.pair.client.engine;
        if let Some(done) = model.open {
            let number = model.sent - 1;
            let whole = body(number, length(number));
            let next = (done + 1 + self.random.below(400)).min(whole.len());
            engine.send_more(*link, &[whole.slice(done..next)], next < whole.len()).unwrap();
            model.open = (next < whole.len()).then_some(next);
            return;
        }
        if model.sent == model.limit || model.sent == self.total {
            return;
        }
        let number = model.sent;
        let whole = body(number, length(number));
        let cut = if self.random.below(4) == 0 { self.random.below(whole.len() + 1) } else { whole.len() };
        let more = cut < whole.len();
        let settled = self.random.below(3) == 0;
        let tag = DeliveryTag::from_number(number);
        let delivery = Delivery { tag, settled, more, ..Delivery::default() };
        let middle = self.random.below(cut + 1);
        let chunks = [whole.slice(..middle), whole.slice(middle..cut)];
        assert_eq!(engine.send(*link, &delivery, &chunks), Ok(number));
        model.sent += 1;
        model.open = more.then_some(cut);
        let book = if settled { &mut model.settled } else { &mut model.unsettled };
        book.push(number);
    }

    /// One thing that a receiving user may do.
    fn receive(&mut self, at: usize) {
        let (link, model) = &mut self.receivers[at];
        let engine = &mut self.pair.server.engine;
        match self.random.below(4) {
            0 if !model.draining => {
                model.limit = model.received.max(model.limit) + self.random.below(5) as u64;
                model.draining = self.random.below(4) == 0 && model.limit > model.received;
                engine.flow_receiver(*link, model.limit, model.draining).unwrap();
            }
            1 if !model.unsettled.is_empty() => {
                let from = self.random.below(model.unsettled.len());
                let to = from + self.random.below(model.unsettled.len() - from);
                let (first, last) = (model.unsettled[from], model.unsettled[to]);
                let state = if first % 2 == 0 { DeliveryState::Accepted } else { DeliveryState::Released };
                engine.settle_incoming(*link, first, last, Some(state), true).unwrap();
                model.unsettled.drain(from..=to);
            }
            _ => {}
        }
    }

    fn take_events(&mut self) {
        for event in self.pair.client.events() {
            match event {
                Event::Credit { link, limit, drain, .. } => {
                    let (_, model) = self.senders.iter_mut().find(|(own, _)| *own == link).unwrap();
                    model.limit = limit;
                    if drain {
                        self.pair.client.engine.drained(link).unwrap();
                        model.limit = model.sent;
                    }
                }
                Event::Outcome { link, first, last, settled: true, .. } => {
                    let (_, model) = self.senders.iter_mut().find(|(own, _)| *own == link).unwrap();
                    let told: Vec<u64> =
                        model.unsettled.extract_if(.., |n| (first..=last).contains(n)).collect();
                    assert!(!told.is_empty());
                    model.settled.extend(told);
                }
                Event::Sendable { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        for event in self.pair.server.events() {
            self.take_received(event);
        }
    }

    fn take_received(&mut self, event: Event) {
        match event {
            Event::Transfer { link, delivery, tag, settled, payload, more, aborted, .. } => {
                let (_, model) = self.receivers.iter_mut().find(|(own, _)| *own == link).unwrap();
                assert!(!aborted && delivery == model.received && delivery < model.limit);
                assert_eq!(
                    tag,
                    (model.open == 0 || tag.is_some()).then(|| DeliveryTag::from_number(delivery))
                );
                let whole = body(delivery, length(delivery));
                assert_eq!(payload, whole.slice(model.open..model.open + payload.len()));
                model.open += payload.len();
                if !more {
                    assert_eq!(model.open, whole.len());
                    (model.open, model.received) = (0, delivery + 1);
                    if !settled {
                        model.unsettled.push(delivery);
                    }
                }
            }
            Event::SenderFlow { link, limit, drained, .. } => {
                let (_, model) = self.receivers.iter_mut().find(|(own, _)| *own == link).unwrap();
                assert!(limit <= model.limit);
                model.limit = limit;
                if drained {
                    model.draining = false;
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        let total = self.total;
        self.senders.iter().all(|(_, model)| model.settled.len() as u64 == total && model.open.is_none())
            && self.receivers.iter().all(|(_, model)| model.received == total && model.unsettled.is_empty())
    }

    fn run(&mut self) {
        let mut turns = 0;
        while !self.is_done() {
            turns += 1;
            assert!(turns < 200_000, "no end in sight");
            let at = self.random.below(self.senders.len());
            match self.random.below(4) {
                0 => self.send(at),
                1 => self.receive(at),
                2 => self.pair.step(),
                _ => self.take_events(),
            }
        }
        for (link, model) in &mut self.senders {
            model.settled.sort_unstable();
            assert_eq!(model.settled, (0..self.total).collect::<Vec<_>>());
            assert_eq!(self.pair.client.engine.waiting(*link), 0);
        }
        let links = self.senders.len();
        for side in [&self.pair.client, &self.pair.server] {
            assert_eq!(side.memory(), [1, links, links, 2, 0, 0]);
        }
    }
}

proptest! {
    #![proptest_config(crate::tests::config(30))]

    #[test]
    fn everything_arrives(
        seed in 1u64..,
        links in 1usize..4,
        first_id in prop_oneof![Just(0), (u32::MAX - 60)..=u32::MAX, (1u32 << 31) - 20..(1 << 31)],
        window in 1u32..20,
        max_frame_size in 512u32..2000,
    ) {
        let client = Config { first_id, ..named("client") };
        let server = Config { first_id, incoming_window: window, max_frame_size, ..named("server") };
        World::new(seed, links, 60, client, server).run();
    }
}
