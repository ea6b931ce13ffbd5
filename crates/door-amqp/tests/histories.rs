//! Random histories of clients that keep the protocol: small windows, drains, links that come and go, lost sockets. A
//! naive model says what must be left on the queue in the end.

#![allow(clippy::unwrap_used)]

mod support;

use postroad_amqp::{Config, LinkId};
use postroad_amqp_codec::state::DeliveryState;
use proptest::prelude::*;
use std::collections::BTreeSet;
use support::*;

#[derive(Clone, Debug)]
enum Step {
    /// Send so many messages in one turn.
    Send(usize),
    /// Give a receiver so much more credit than it has used, in several frames of one turn; and the last of it again with
    /// what comes then.
    Credit(usize, Vec<(u64, bool)>, bool),
    /// Settle what a receiver holds, by the outcome's number, waiting for the broker or not.
    Settle(usize, u8, bool),
    Detach(usize),
    Cut(usize),
    /// Hold the engine's effects back, or let them happen.
    Hold(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let credits = || prop::collection::vec((0u64..12, any::<bool>()), 1..4);
    prop_oneof![
        4 => (1usize..9).prop_map(Step::Send),
        6 => (0usize..2, credits(), any::<bool>()).prop_map(|(who, credits, again)| Step::Credit(who, credits, again)),
        4 => (0usize..2, 0u8..3, any::<bool>()).prop_map(|(who, outcome, wait)| Step::Settle(who, outcome, wait)),
        1 => (0usize..2).prop_map(Step::Detach),
        1 => (0usize..2).prop_map(Step::Cut),
        4 => any::<bool>().prop_map(Step::Hold),
    ]
}

struct Receiver {
    client: usize,
    /// A name may be used again only when its link is gone on both sides; so each link has one of its own.
    name: String,
    link: LinkId,
    received: u64,
    held: Vec<(u64, String)>,
}

struct History {
    world: World,
    publisher: usize,
    sender: LinkId,
    sent: usize,
    receivers: Vec<Receiver>,
    finished: BTreeSet<String>,
}

fn small_window() -> Config {
    Config { container_id: "r".into(), incoming_window: 3, ..Config::default() }
}

impl History {
    fn new() -> Self {
        let mut world = world();
        let redelivery =
            postroad_model::settings::RedeliverySettings { max_delivery_attempts: -1, ..Default::default() };
        world.queue("q", postroad_model::settings::QueueSettings { redelivery, ..Default::default() });
        let publisher = world.connect("p");
        let sender = world.sender(publisher, "q");
        let receivers = (0..2).map(|_| Self::receiver(&mut world)).collect();
        Self { world, publisher, sender, sent: 0, receivers, finished: BTreeSet::new() }
    }

    /// A receiver on a connection of its own.
    fn receiver(world: &mut World) -> Receiver {
        let client = world.connect_with(small_window());
        Self::attach(world, client, 0)
    }

    fn attach(world: &mut World, client: usize, number: u32) -> Receiver {
        let name = format!("r{number}");
        let link = world.attach(client, receive_from(&name, "q"));
        world.run();
        Receiver { client, name, link, received: 0, held: Vec::new() }
    }

    fn take(&mut self, who: usize) {
        let receiver = &mut self.receivers[who];
        for line in self.world.lines(receiver.client) {
            let Some((name, rest)) = line.split_once('#').filter(|(name, _)| *name == receiver.name) else {
                continue;
            };
            let (number, body) = rest.split_once(' ').unwrap_or((rest, name));
            let Ok(number) = number.parse::<u64>() else { continue };
            let body = body.split(' ').next().unwrap().to_owned();
            assert_eq!(number, receiver.received, "deliveries are numbered without holes");
            assert!(!self.finished.contains(&body), "{body} was accepted and comes again");
            receiver.received += 1;
            receiver.held.push((number, body));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(count) => {
                for _ in 0..count {
                    let message = encode(&text(&format!("m{}", self.sent)));
                    self.world.clients[self.publisher].amqp.send(self.sender, &head(), &[message]).unwrap();
                    self.sent += 1;
                }
                self.world.run();
            }
            Step::Credit(who, credits, again) => {
                let Receiver { client, link, received, .. } = self.receivers[who];
                for (credit, drain) in credits {
                    let mut out = postroad_amqp::Output::new();
                    let client = &mut self.world.clients[client];
                    client.asks = again.then_some((link, received + credit, drain));
                    client.amqp.flow_receiver(link, received + credit, drain).unwrap();
                    client.amqp.poll_output(&mut out);
                    client.feed(&mut out);
                }
                self.world.run();
            }
            Step::Settle(who, outcome, wait) => self.settle(who, outcome, wait),
            Step::Detach(who) => {
                let Receiver { client, link, ref name, .. } = self.receivers[who];
                let number = name.trim_start_matches('r').parse::<u32>().unwrap() + 1;
                self.world.detach(client, link, true);
                self.receivers[who] = Self::attach(&mut self.world, client, number);
            }
            Step::Hold(hold) => self.world.hold(hold),
            Step::Cut(who) => {
                self.world.hold(false);
                self.world.cut(self.receivers[who].client);
                self.receivers[who] = Self::receiver(&mut self.world);
            }
        }
        (0..2).for_each(|who| self.take(who));
    }

    fn settle(&mut self, who: usize, outcome: u8, wait: bool) {
        let state = match outcome {
            0 => DeliveryState::Released,
            1 => DeliveryState::Modified {
                delivery_failed: true,
                undeliverable_here: false,
                message_annotations: None,
            },
            _ => DeliveryState::Accepted,
        };
        let Receiver { client, link, ref mut held, .. } = self.receivers[who];
        let Some((first, last)) = held.first().zip(held.last()).map(|(first, last)| (first.0, last.0)) else {
            return;
        };
        let held = std::mem::take(held);
        if state == DeliveryState::Accepted {
            self.finished.extend(held.into_iter().map(|(_, body)| body));
        }
        self.world.clients[client].amqp.settle_incoming(link, first, last, Some(state), !wait).unwrap();
        self.world.run();
    }

    /// A receiver that is alone and gives credit is sent what there is.
    fn take_all(&mut self, who: usize) {
        let Receiver { client, link, received, .. } = self.receivers[who];
        self.world.clients[client].asks = None;
        self.world.credit(client, link, received + 1_000);
        self.take(who);
        assert_eq!(self.receivers[who].held.len(), self.sent - self.finished.len(), "receiver {who}");
    }

    /// What is left is what was not accepted, each once.
    fn finish(mut self) {
        self.world.hold(false);
        (0..2).for_each(|who| self.take(who));
        // What the other was sent may wait for credit that it took back.
        let (last, other) = (self.sent % 2, 1 - self.sent % 2);
        self.world.cut(self.receivers[other].client);
        self.take_all(last);
        self.world.cut(self.receivers[last].client);
        let a = self.world.connect("last");
        let link = self.world.receiver(a, "q", 0);
        self.world.lines(a);
        self.world.drain(a, link, 1_000);
        let mut left = Vec::new();
        for line in self.world.lines(a) {
            if let Some((_, body)) = line.split_once(' ').filter(|_| line.starts_with("r#")) {
                left.push(body.split(' ').next().unwrap().to_owned());
            }
        }
        let all: BTreeSet<String> = (0..self.sent).map(|n| format!("m{n}")).collect();
        let expected: BTreeSet<String> = all.difference(&self.finished).cloned().collect();
        assert_eq!(left.len(), expected.len(), "{left:?}");
        assert_eq!(left.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

fn head() -> postroad_amqp::Delivery {
    let tag = postroad_amqp_codec::performative::DeliveryTag::from_number(1);
    postroad_amqp::Delivery { tag, ..postroad_amqp::Delivery::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_accepted_once_or_left(steps in prop::collection::vec(step(), 0..40)) {
        let mut history = History::new();
        steps.into_iter().for_each(|step| history.step(step));
        history.finish();
    }
}
