//! What is not in memory: messages and pages of events that lie in the journal or cold, and come when they are needed.

use super::Draft;
use super::broker::Broker;
use super::script::{check, check_with, continue_with};
use crate::admin::{Request, Response};
use crate::{Command, Loaded, ProducerTarget};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::settings::BrokerSettings;
use postroad_testkit::proves;
use std::collections::BTreeSet;

/// A broker that keeps nothing in memory that is on disk.
fn uncached() -> Broker {
    Broker::with(BrokerSettings { cache: 0, ..Broker::settings() })
}

#[test]
fn messages_on_disk_leave_memory_and_come_back_in_order() {
    let mut broker = uncached();
    continue_with(&mut broker, "queue q\n publish q 1..3000 \n publish q m1{mem} m2{mem}");
    let in_memory: u64 = 2;
    assert_eq!(broker.engine.bodies.resident_count(), in_memory);
    continue_with(
        &mut broker,
        "consume A q credit=5000
         got A = 1..3000 m1 m2
         ack A ..3000
         view q depth=2
         crash
         stored q =",
    );
}

#[test]
fn what_was_taken_is_in_no_list_though_something_old_stays() {
    let mut broker = Broker::with(Broker::settings());
    continue_with(
        &mut broker,
        "queue dead
         queue q
         channel log
         channel c retention=interest
         publish dead 0
         publish log 0
         consume A q credit=9000 presettled
         consume B c credit=9000 presettled
         publish q 1..3000
         publish c 1..3000
         stored q =
         stored c =",
    );
    assert_eq!(broker.engine.bodies.resident_count(), 2);
    assert!(broker.engine.bodies.listed() < 2_100, "{}", broker.engine.bodies.listed());
    let mut broker = Broker::with(BrokerSettings { cache: 1_000_000, ..Broker::settings() });
    continue_with(
        &mut broker,
        "queue q\n publish q 1..8000\n consume A q credit=9000 presettled\n stored q =",
    );
    assert!(broker.reads > 4_000, "most had left memory: {}", broker.reads);
    assert!(broker.engine.bodies.listed() < 2_100, "{}", broker.engine.bodies.listed());
}

#[test]
fn a_segment_that_is_cleared_again_and_again_fills_no_list() {
    let mut broker = Broker::with(Broker::settings());
    continue_with(&mut broker, "queue q\n publish q 1..50");
    for _ in 0..50 {
        let segments = broker.engine.live_segments().keys().copied().collect();
        broker.engine.clear_segments(segments);
        broker.run();
    }
    broker.check_digest();
    assert_eq!(broker.engine.bodies.listed(), 50);
}

#[test]
fn a_selective_consumer_reads_what_it_must_and_no_more_than_it_may_have() {
    check(
        "queue q
         publish q 1..40{k=1} 41{k=2} 42..80{k=1} 81{k=2}
         consume A q selector=\"k = 2\"
         got A = 41 81
         consume B q credit=3
         got B = 1..3",
    );
}

#[test]
fn drained_means_that_nothing_is_left_also_of_what_must_be_read_first() {
    check(
        "queue q
         publish q 1..3
         consume A q credit=0
         credit A 10 drain
         got A = 1..3
         drained A 1",
    );
}

#[test]
fn a_message_that_cannot_be_read_is_a_dead_letter_and_holds_up_nobody() {
    let mut broker = uncached();
    continue_with(&mut broker, "queue q\n publish q 1..3");
    broker.damaged = Some("2".into());
    continue_with(
        &mut broker,
        "consume A q
         got A = 1 3
         view q dead_lettered_total=1
         view DLQ depth=1",
    );
}

#[test]
fn what_was_deleted_while_it_was_read_is_forgotten() {
    let mut broker = uncached();
    continue_with(&mut broker, "queue q\n publish q 1..3\n publish q 4");
    broker.slow = true;
    continue_with(&mut broker, "consume A q\n got A =\n delete q force");
    let wanted = std::mem::take(&mut broker.loads);
    assert_eq!(wanted.len(), 4, "what lies behind is asked for with it");
    let loaded =
        wanted.into_iter().map(|w| Loaded { body: w.body, bytes: Err("the segment is gone".into()) });
    broker.send(Command::Loaded { loaded: loaded.collect() });
    broker.slow = false;
    continue_with(&mut broker, "queue q\n publish q 5\n consume A q\n got A = 5");
}

#[test]
fn stragglers_are_written_again_so_that_their_segment_is_free() {
    let mut broker = check_with(
        BrokerSettings { cache: 0, ..Broker::settings() },
        "queue q
         channel c
         publish c 7
         publish q 1..600
         consume A q credit=400
         ack A ..380
         cut A",
    );
    let before: Vec<u64> = broker.engine.live_segments().keys().copied().collect();
    assert!(before.len() > 4, "{before:?}");
    let first = before[0];
    assert_eq!(broker.engine.live_segments()[&first].messages, 1, "the event of the channel");
    broker.engine.clear_segments(BTreeSet::from([first, before[1]]));
    broker.run();
    broker.sync();
    assert!(!broker.engine.live_segments().contains_key(&first));
    assert!(!broker.engine.live_segments().contains_key(&before[1]));
    broker.check_digest();
    continue_with(
        &mut broker,
        "stored c = 7
         crash
         stored c = 7
         consume A q
         view q depth=220",
    );
}

#[test]
fn producers_wait_while_consumers_wait_for_what_is_read() {
    let mut broker = uncached();
    continue_with(&mut broker, "queue q\n publish q 1..5000 by=other");
    broker.slow = true;
    continue_with(&mut broker, "consume A q credit=9000\n got A =");
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let producer = broker.producer("P", target).unwrap();
    let before = broker.producers[&producer].credit;
    for n in 0..1_500 {
        broker.publish(&producer, Draft::new(&n.to_string()).incoming());
    }
    assert_eq!(broker.producers[&producer].credit, before, "it was given more while consumers starve");
    broker.slow = false;
    broker.run();
    assert!(broker.producers[&producer].credit > before, "the consumer has all that it takes");
}

#[test]
fn producers_slow_down_only_for_consumers_that_can_make_up_for_what_waits() {
    let mut broker = uncached();
    continue_with(&mut broker, "queue q\n publish q 1..20000 by=other\n consume A q credit=0");
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let producer = broker.producer("P", target).unwrap();
    let (mut sent, mut limit) = (0, 0);
    let mut publish = |broker: &mut Broker, for_each: u64| {
        for _ in 0..4_096_u64 {
            sent += 1;
            if sent % 64 == 0 {
                limit += 64 * for_each / 16;
                broker.credit("A", limit, false);
            }
            broker.publish(&producer, Draft::new("late").incoming());
        }
        broker.producers[&producer].credit - sent
    };
    assert!(publish(&mut broker, 4) >= 1_024, "they take a quarter of what comes: they are slow themselves");
    assert!(publish(&mut broker, 12) <= 256, "they take three quarters of it");
    assert!(publish(&mut broker, 4) >= 1_024, "they became slow");
    assert!(publish(&mut broker, 160) >= 1_024, "nothing waits any more");
    continue_with(&mut broker, "view q depth=36384");
}

#[test]
fn what_lies_behind_is_read_before_a_consumer_is_there() {
    // The first ones stay in memory, and there is room for what is read.
    let mut broker = Broker::with(BrokerSettings { cache: 1_000_000, ..Broker::settings() });
    continue_with(&mut broker, "queue q\n publish q 1..8000");
    broker.slow = true;
    continue_with(&mut broker, "consume A q credit=0 presettled");
    let asked_at = |broker: &mut Broker, up_to: u64| {
        broker.credit("A", up_to, false);
        broker.loads.len()
    };
    let first = (1..8_000).find(|&up_to| asked_at(&mut broker, up_to) > 0).unwrap();
    assert_eq!(broker.loads.len(), 1_024);
    broker.read_asked();
    assert_eq!(broker.loads.len(), 1_024, "asked for while the consumer has only begun");
    broker.read_asked();
    assert_eq!(asked_at(&mut broker, first + 1_023), 0, "each message is asked for once");
    assert_eq!(asked_at(&mut broker, first + 1_024), 1_024);
    continue_with(&mut broker, &format!("got A = 1..{}", first + 1_024));
}

#[test]
fn what_an_object_owes_is_exact_also_where_its_messages_must_be_read() {
    let mut broker = uncached();
    continue_with(
        &mut broker,
        "channel c
         publish c 1..1000{k=1} 1001..2000{k=2} 2001..3000{k=1} 3001..3100{k=2}
         object c::o start_event_id=0 selector=\"k = 2\"",
    );
    assert!(broker.reads > 3_000, "its creation was answered with what it owes: {}", broker.reads);
    // It stands at 1,001, the first one that it wants. What was counted of whole pages is known: 1,001 to 1,023 and 3,072
    // to 3,100 lie in others.
    assert_eq!(look(&mut broker), (1_100, 23 + 29));
    // In these pages something is missing now: they are counted once more.
    continue_with(&mut broker, "purge c 1500..1500 \n purge c 2600..2600");
    assert_eq!(look(&mut broker), (1_099, 23 + 29 + 2 * 511));
    assert_eq!(look(&mut broker), (1_099, 23 + 29));
    continue_with(&mut broker, "consume A c::o credit=200 \n got A = 1001..1200 \n ack A ..1200 \n cut A");
    assert_eq!(look(&mut broker).0, 899);
    continue_with(&mut broker, "publish c 3101..3700{k=2}");
    assert_eq!(look(&mut broker).0, 1_499);
    continue_with(&mut broker, "purge c::o 2000..3050");
    assert_eq!(look(&mut broker).0, 1_448);
    proves("SH-10");
}

/// The backlog of the object, and how many messages were read to count it.
fn look(broker: &mut Broker) -> (u64, usize) {
    let before = broker.reads;
    let request = Request::ShowObject { channel: "c".into(), owner: None, name: "o".into() };
    let Ok(Response::Object(view)) = broker.ask(request) else { panic!("no object") };
    (view.backlog, broker.reads - before)
}

#[test]
fn what_crosses_a_join_to_a_channel_with_publish_keys_is_read_first() {
    for away in ["", "restart"] {
        check(&format!(
            "channel a
             channel b publish_keys=[{{\"name\":\"k\"}}]
             join a->b
             pause a->b
             publish a 1{{k=1}} 2{{k=1}} 3{{k=2}}
             {away}
             resume a->b
             stored b = 2 3
             crash
             publish a 4{{k=2}}
             stored b = 2 4"
        ));
    }
    // Too large for its target, it goes to one with keys.
    check(
        "channel a dead_event_store=grave
         channel b max_message_size=1
         channel grave publish_keys=[{\"name\":\"k\"}]
         join a->b
         pause a->b
         publish a 1{k=1} 2{k=1} 3{k=2}
         restart
         resume a->b
         stored grave = 2 3",
    );
}

/// Publishes to a channel `c`, without letting the broker do the work that follows.
pub(super) fn publish_unworked(broker: &mut Broker, drafts: &[Draft]) {
    let target = ProducerTarget::Address(Address::parse("c", None).unwrap());
    let name = broker.producer("pub", target).unwrap();
    let producer = broker.producers[&name].key.unwrap();
    for draft in drafts {
        let message = Box::new(draft.incoming());
        broker.handle(Command::Publish { producer, tag: 0, message, settled: false });
    }
}

#[test]
fn a_consumer_that_waits_gets_what_was_offered_before_it_was_read() {
    let key = |text: &str| Draft { properties: vec![("k".into(), Value::Long(1))], ..Draft::new(text) };
    // What replaces, or evicts, has the events before it offered while their messages are in the journal only.
    let kinds = [("publish_keys=[{\"name\":\"k\"}]", "1 3"), ("capacity=2 honour_capacity=false", "2 3")];
    for (settings, left) in kinds {
        let mut broker = uncached();
        continue_with(&mut broker, &format!("channel c {settings}\n consume A c"));
        broker.slow = true;
        publish_unworked(&mut broker, &[Draft::new("1"), key("2")]);
        broker.run();
        assert!(!broker.loads.is_empty(), "it waits for messages");
        publish_unworked(&mut broker, &[key("3")]);
        broker.slow = false;
        broker.run();
        continue_with(&mut broker, &format!("stored c = {left}\n got A = {left}"));
    }
}

#[test]
fn a_consumer_that_waits_is_not_held_up_by_a_message_that_cannot_be_read() {
    for filter in ["", "selector=\"k IS NULL\""] {
        let mut broker = uncached();
        broker.damaged = Some("2".into());
        continue_with(&mut broker, &format!("channel c\n consume A c {filter}"));
        publish_unworked(&mut broker, &["1", "2", "3"].map(Draft::new));
        broker.run();
        continue_with(&mut broker, "got A = 1 3");
    }
}

#[test]
fn what_expires_into_a_channel_with_publish_keys_is_read_first() {
    for away in ["", "restart"] {
        for store in ["channel c", "queue c", "queue c expiry_queue=grave"] {
            check(&format!(
                "channel grave publish_keys=[{{\"name\":\"k\"}}]
                 {store} dead_event_store=grave
                 publish c 1{{k=1,ttl=100}} 2{{k=1,ttl=100}} 3{{k=2,ttl=100}}
                 {away}
                 wait 200
                 stored c =
                 stored grave = 2 3
                 publish c 4{{k=2,ttl=100,delay=1000}} 5{{k=2,ttl=100,delay=1000}}
                 {away}
                 wait 200
                 stored grave = 2 5"
            ));
        }
    }
    // Also when it could not be laid out at first.
    check(
        "channel grave capacity=2 publish_keys=[{\"name\":\"k\"}]
         queue DLQ capacity=1
         publish DLQ 0
         publish grave 0 0
         queue c dead_event_store=grave
         publish c 1{k=1,ttl=100} 2{k=1,ttl=100}
         wait 200
         stored c = 1 2
         restart
         channel grave publish_keys=[{\"name\":\"k\"}]
         wait 30000
         stored grave = 0 0 2",
    );
}

#[test]
fn what_a_join_leaves_behind_is_counted_without_making_pages_hot() {
    for (join, left) in [("", 6_000), ("start=100", 5_901), ("start=5999", 2), ("filter=\"k = 1\"", 2)] {
        let mut broker = check(&format!(
            "channel a
             channel b
             publish a x{{k=1}} 2..5999 y{{k=1}}
             join a->b start=all {join} enabled=false"
        ));
        let hot = |broker: &Broker| {
            let store = broker.engine.store(broker.engine.channels["a"]).unwrap();
            store.log.leaves().filter(|leaf| leaf.if_cold().is_none()).count()
        };
        let before = hot(&broker);
        let request = Request::DeleteJoin { name: "a->b".into(), drain: false };
        broker.engine.handle(broker.now, Command::Admin { reply: 99, request: Box::new(request) });
        // Where the join stands is looked at.
        assert!(hot(&broker) <= before + 1, "{} pages are hot, {before} were", hot(&broker));
        broker.run();
        let Some(Ok(Response::JoinDeleted { not_forwarded, .. })) = broker.replies.get(&99) else {
            panic!("{:?}", broker.replies)
        };
        assert_eq!(*not_forwarded, left, "{join}");
    }
}
