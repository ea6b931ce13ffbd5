//! How large a step may become: what first goes to disk with it counts in bytes, too (DESIGN 7.5).

use super::Draft;
use super::broker::Broker;
use super::script::continue_with;
use crate::command::Settlement;
use crate::{Command, ConnId, ProducerTarget};
use postroad_model::address::Address;

/// Bytes of a message of [`publish_large`].
const LARGE: usize = 200_000;
/// Bytes of a step at most, with messages of that size.
const MOST: usize = 2 * 1024 * 1024;

/// Publishes messages that are large and in memory only.
fn publish_large(broker: &mut Broker, store: &str, count: usize, ttl: Option<u32>) {
    let target = ProducerTarget::Address(Address::parse(store, None).unwrap());
    let producer = broker.producer("pub", target).unwrap();
    for _ in 0..count {
        let draft = Draft { nondurable: true, ttl, ..Draft::new(&"x".repeat(LARGE)) };
        broker.publish(&producer, draft.incoming());
    }
}

/// Writes what is on the way to a consumer until it has got `count` messages.
fn write_until_got(broker: &mut Broker, consumer: &str, count: usize) {
    while broker.consumers[consumer].got.len() < count {
        let conn = ConnId(broker.consumers[consumer].conn);
        broker.send(Command::Written { conn, bytes: LARGE as u64 });
    }
}

/// The steps are small, and all is on disk that should be.
fn check_steps(broker: &mut Broker, script: &str) {
    continue_with(broker, script);
    broker.sync();
    let largest = broker.synced.iter().map(Vec::len).max().unwrap();
    assert!(largest < MOST, "a step of {largest} bytes");
    broker.crash();
    continue_with(broker, script);
    let largest = broker.synced.iter().map(Vec::len).max().unwrap();
    assert!(largest < MOST, "a step of {largest} bytes");
}

fn world(script: &str) -> Broker {
    let mut broker = Broker::new();
    continue_with(&mut broker, script);
    broker
}

#[test]
fn a_join_ends_a_step_that_has_become_large() {
    let mut broker = world("channel c\nqueue p type=persistent\njoin c->p\npause c->p");
    publish_large(&mut broker, "c", 20, None);
    continue_with(&mut broker, "resume c->p");
    check_steps(&mut broker, "view p depth=20");

    let mut broker =
        world("channel c\nqueue p type=persistent\njoin c->p name=c->archive archive=true\npause c->archive");
    publish_large(&mut broker, "c", 20, None);
    continue_with(&mut broker, "resume c->archive");
    check_steps(&mut broker, "view p depth=20");
}

#[test]
fn an_outcome_of_many_large_messages_is_confirmed_with_the_last_of_its_steps() {
    for (store, source, define) in [("q", "q", "queue q"), ("c", "c::o", "channel c\nobject c::o")] {
        let mut broker = world(&format!("queue DLQ type=persistent\n{define}\nconsume A {source}"));
        publish_large(&mut broker, store, 20, None);
        write_until_got(&mut broker, "A", 20);
        broker.auto_sync = false;
        broker.settle("A", 0, 19, Settlement::Rejected { reason: None });
        let steps = broker.unsynced.len();
        assert!(steps > 3, "{steps} steps");
        broker.sync_some(steps - 1);
        assert!(broker.consumers["A"].confirmed.is_empty());
        broker.auto_sync = true;
        broker.sync();
        assert_eq!(broker.consumers["A"].confirmed, [(0, 19)]);
        check_steps(&mut broker, "view DLQ depth=20");
    }
}

#[test]
fn a_lost_consumer_makes_no_large_step() {
    let mut broker = world("queue DLQ type=persistent\nqueue q\nconsume A q");
    publish_large(&mut broker, "q", 20, None);
    write_until_got(&mut broker, "A", 20);
    continue_with(&mut broker, "queue q max_delivery_attempts=0\ncut A");
    check_steps(&mut broker, "view queue:DLQ depth=20");
}

#[test]
fn expiry_ends_a_step_that_has_become_large() {
    for define in ["channel c", "queue c", "queue c expiry_queue=grave"] {
        let mut broker = world(&format!(
            "queue grave type=persistent\n{define} dead_event_store=grave\nconsume A c credit=0"
        ));
        publish_large(&mut broker, "c", 20, Some(100));
        continue_with(&mut broker, "wait 200\nview c depth=0 expired_total=20");
        check_steps(&mut broker, "view grave depth=20");
    }
}

#[test]
fn eviction_ends_a_step_that_has_become_large() {
    let define = "queue grave type=persistent\nqueue c dead_event_store=grave honour_capacity=false";
    let mut broker = world(define);
    publish_large(&mut broker, "c", 20, None);
    continue_with(&mut broker, "queue c dead_event_store=grave honour_capacity=false capacity=1");
    publish_large(&mut broker, "c", 1, None);
    continue_with(&mut broker, "view c depth=1");
    check_steps(&mut broker, "view grave depth=20");
}

#[test]
fn what_is_tried_again_makes_no_large_step() {
    for (store, source, define) in [("q", "q", "queue q"), ("c", "c::o", "channel c\nobject c::o")] {
        let mut broker = world(&format!(
            "queue DLQ type=persistent capacity=1\npublish DLQ 0\n{define}\nconsume A {source}"
        ));
        publish_large(&mut broker, store, 20, None);
        write_until_got(&mut broker, "A", 20);
        broker.settle("A", 0, 19, Settlement::Rejected { reason: None });
        continue_with(&mut broker, "view DLQ depth=1\nqueue DLQ type=persistent\nwait 30000");
        check_steps(&mut broker, "view DLQ depth=21");
    }
}

#[test]
fn messages_that_become_due_make_no_large_step() {
    // Their lives end before they are due, and they go to disk then.
    let mut broker = world("queue grave type=persistent\nqueue q dead_event_store=grave");
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let producer = broker.producer("pub", target).unwrap();
    for _ in 0..20 {
        let text = "x".repeat(LARGE);
        let delay = ("x-opt-delivery-delay", postroad_amqp_codec::Value::Long(1_000));
        let draft = Draft { nondurable: true, ttl: Some(100), annotations: vec![delay], ..Draft::new(&text) };
        broker.publish(&producer, draft.incoming());
    }
    continue_with(&mut broker, "wait 200");
    check_steps(&mut broker, "view grave depth=20");
}

#[test]
fn what_many_objects_miss_is_counted_in_few_records() {
    // One that is selective is asked about each event, so fewer go in a step.
    for (selector, most) in [("", 2_000), ("selector=\"k IS NULL\"", 20_000)] {
        let objects: Vec<String> = (0..300).map(|n| format!("object c::o{n} {selector}\n")).collect();
        let mut broker = world(&format!("channel c\n{}publish c 1..200{{ttl=100}} last", objects.concat()));
        let before = broker.synced.len();
        broker.wait(200);
        let bytes = broker.synced[before..].iter().map(Vec::len).sum::<usize>();
        assert!(bytes < most, "{bytes} bytes");
        let script = "view c depth=1 expired_total=200\nview c::o7 skipped_events=200 backlog=1";
        continue_with(&mut broker, script);
    }
}

#[test]
fn an_object_is_told_of_all_that_expired_at_once() {
    continue_with(
        &mut Broker::new(),
        "channel c
         object c::o start_event_id=0
         publish c 1..600{ttl=100} last
         wait 200
         view c depth=1 expired_total=600
         view c::o skipped_events=600
         consume A c::o
         got A = last",
    );
}
