//! A wall clock that jumps: what has expired stays so, what has not lives on, and delays do not care.

use super::Draft;
use super::broker::Broker;
use crate::admin::Request;
use crate::{ConsumerSource, ConsumerSpec, ProducerTarget, Settlement};
use postroad_model::address::Address;
use postroad_model::settings::{BrokerSettings, QueueSettings};

const HOUR: u64 = 3_600_000;

fn address() -> Address {
    Address::parse("q", None).unwrap()
}

/// A queue `q` whose failed messages wait a second, and a producer.
fn queue() -> (Broker, String) {
    let mut broker = Broker::with(BrokerSettings { name: "here".into(), ..BrokerSettings::default() });
    broker.set_clock(|_| 1_000 * HOUR);
    let mut settings = QueueSettings::default();
    settings.redelivery.redelivery_delay = 1_000;
    broker.ask(Request::PutQueue { name: "q".into(), settings, configured: false }).unwrap();
    let producer = broker.producer("P", ProducerTarget::Address(address())).unwrap();
    (broker, producer)
}

fn publish(broker: &mut Broker, producer: &str, name: &str, ttl_ms: Option<u32>) {
    let mut message = Draft::new(name).incoming();
    message.ttl_ms = ttl_ms;
    broker.publish(producer, message);
    broker.run();
}

fn consume(broker: &mut Broker, name: &str) {
    let spec = ConsumerSpec::new(ConsumerSource::Address(address()));
    broker.consume(name, name, spec, 100).unwrap();
    broker.run();
}

fn got(broker: &Broker, consumer: &str) -> Vec<String> {
    broker.consumers[consumer].got.iter().map(|got| got.text.clone()).collect()
}

#[test]
fn a_clock_set_forward_ends_what_has_a_time_and_nothing_else() {
    let (mut broker, producer) = queue();
    publish(&mut broker, &producer, "short", Some(60_000));
    publish(&mut broker, &producer, "long", Some(7_200_000));
    publish(&mut broker, &producer, "ever", None);
    broker.set_clock(|wall| wall + HOUR);
    broker.wait(1);
    consume(&mut broker, "C");
    assert_eq!(got(&broker, "C"), ["long", "ever"]);
}

#[test]
fn a_clock_set_back_revives_nothing_and_does_not_stop_time() {
    let (mut broker, producer) = queue();
    publish(&mut broker, &producer, "gone", Some(60_000));
    broker.set_clock(|wall| wall + HOUR);
    broker.wait(1);
    publish(&mut broker, &producer, "short", Some(60_000));
    broker.set_clock(|wall| wall - 2 * HOUR);
    broker.wait(1);
    publish(&mut broker, &producer, "later", Some(60_000));
    publish(&mut broker, &producer, "ever", None);
    broker.wait(50_000);
    publish(&mut broker, &producer, "last", Some(60_000));
    // Time goes at half its pace until the clock has caught up: twice their time is over for the first ones.
    broker.wait(75_000);
    consume(&mut broker, "C");
    assert_eq!(got(&broker, "C"), ["ever", "last"]);
}

#[test]
fn time_meets_a_clock_that_was_set_back() {
    let (mut broker, producer) = queue();
    broker.set_clock(|wall| wall - HOUR);
    broker.wait(1);
    // Slow for two hours, and then as fast as the clock again.
    broker.wait(2 * HOUR + 1_000);
    publish(&mut broker, &producer, "short", Some(60_000));
    broker.wait(61_000);
    publish(&mut broker, &producer, "ever", None);
    consume(&mut broker, "C");
    assert_eq!(got(&broker, "C"), ["ever"]);
}

#[test]
fn delays_do_not_follow_the_wall_clock() {
    for jump in [|wall: u64| wall + HOUR, |wall: u64| wall - HOUR] {
        let (mut broker, producer) = queue();
        publish(&mut broker, &producer, "again", None);
        consume(&mut broker, "C");
        broker.settle(
            "C",
            0,
            0,
            Settlement::Modified { failed: true, undeliverable_here: false, annotations: None },
        );
        broker.set_clock(jump);
        broker.wait(900);
        assert_eq!(got(&broker, "C"), ["again"]);
        broker.wait(101);
        assert_eq!(got(&broker, "C"), ["again", "again"]);
    }
}
