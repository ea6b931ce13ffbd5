//! Publishing and receiving through the door and the engine.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use postroad_amqp::{Config, Delivery};
use postroad_amqp_codec::performative::{DeliveryTag, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, distribution_mode};
use postroad_amqp_codec::{AmqpError, Fields, Map, Symbol, Value};
use postroad_model::settings::QueueSettings;
use postroad_testkit::proves;
use support::*;

#[test]
fn a_queue_carries_messages_and_settles_both_ends() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text("one"));
    world.send(a, sender, &text("two"));
    world.expect(a, &["orders#0 accepted", "orders#1 accepted"]);
    let receiver = world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders", "r#0 one", "r#1 two"]);
    world.settle(a, receiver, 0, DeliveryState::Accepted, true);
    world.settle(a, receiver, 1, DeliveryState::Accepted, false);
    world.expect(a, &["r#1-1 settled"]);
    world.detach(a, receiver, true);
    world.expect(a, &["r closed"]);
    world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders"]);
}

#[test]
fn outcomes_of_a_batch_are_one_range() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    for _ in 0..5 {
        let head = Delivery { tag: DeliveryTag::from_number(1), ..Delivery::default() };
        world.clients[a].amqp.send(sender, &head, &[encode(&text("x"))]).unwrap();
    }
    world.expect(a, &["orders#0-4 accepted"]);
}

#[test]
fn a_channel_numbers_its_events_and_says_so() {
    let mut world = world();
    let a = world.connect("a");
    let receiver = world.receiver(a, "prices", 10);
    world.expect(a, &["attached r from prices"]);
    let sender = world.sender(a, "prices");
    world.send(a, sender, &text("first"));
    world.expect(a, &["r#0 first", "prices#0 accepted"]);
    let annotations = world.clients[a].latest[&receiver].message_annotations.clone().unwrap();
    assert_eq!(annotations.get("x-opt-postroad-channel"), Some(&Value::from("prices")));
    assert_eq!(annotations.get("x-opt-postroad-event-id"), Some(&Value::Ulong(1)));
    assert!(world.clients[a].latest[&receiver].header.as_ref().unwrap().durable);
}

#[test]
fn annotations_of_a_client_reach_the_other_beside_the_brokers() {
    let mut world = world();
    let a = world.connect("a");
    let receiver = world.receiver(a, "prices", 10);
    world.lines(a);
    let sender = world.sender(a, "prices");
    let mut message = text("x");
    let mut map = postroad_amqp_codec::Map::new();
    map.insert(Symbol::from_static("x-opt-mine"), "kept");
    map.insert(Symbol::from_static("x-opt-postroad-origin-id"), 99_u64);
    message.message_annotations = Some(map);
    world.send(a, sender, &message);
    let got = world.clients[a].latest[&receiver].message_annotations.clone().unwrap();
    assert_eq!(got.get("x-opt-mine"), Some(&Value::from("kept")));
    assert_ne!(got.get("x-opt-postroad-origin-id"), Some(&Value::Ulong(99)));
    assert_eq!(got.get("x-opt-postroad-event-id"), Some(&Value::Ulong(1)));
    proves("DUP-10");
}

#[test]
fn browsing_takes_nothing() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text("one"));
    world.send(a, sender, &text("two"));
    world.lines(a);
    let source = Source {
        address: Some("orders".into()),
        distribution_mode: Some(distribution_mode::COPY),
        ..Source::default()
    };
    let browser = world.attach(a, receive_with("b", source));
    world.run();
    world.drain(a, browser, 10);
    world.expect(a, &["attached b from orders", "b#0 one", "b#1 two", "b drained"]);
    world.detach(a, browser, true);
    world.lines(a);
    world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders", "r#0 one", "r#1 two"]);
    proves("QU-2");
}

#[test]
fn credit_is_honoured_exactly_and_drain_is_answered() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    for body in ["1", "2", "3"] {
        world.send(a, sender, &text(body));
    }
    world.lines(a);
    let receiver = world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders", "r#0 1"]);
    world.drain(a, receiver, 2);
    world.expect(a, &["r#1 2", "r drained"]);
    world.drain(a, receiver, 10);
    world.expect(a, &["r#2 3", "r drained"]);
    world.send(a, sender, &text("4"));
    world.expect(a, &["orders#3 accepted"]);
    world.credit(a, receiver, 4);
    world.expect(a, &["r#3 4"]);
    proves("AM-15");
}

#[test]
fn credit_that_overtakes_a_drain_is_kept() {
    let mut world = world();
    let a = world.connect("a");
    let receiver = world.receiver(a, "orders", 0);
    world.lines(a);
    let sender = world.sender(a, "orders");
    world.hold(true);
    world.drain(a, receiver, 5);
    // The engine has let the credit go; before the client hears of it, it takes the drain back.
    world.credit(a, receiver, 3);
    world.hold(false);
    for body in ["1", "2", "3", "4"] {
        world.send(a, sender, &text(body));
    }
    let lines = world.lines(a);
    assert_eq!(lines.iter().filter(|line| line.starts_with("r#")).count(), 3, "{lines:?}");
}

#[test]
fn an_orderly_close_returns_what_is_open_uncounted_and_a_loss_counts_it() {
    let mut world = world();
    let p = world.connect("p");
    let sender = world.sender(p, "orders");
    world.send(p, sender, &text("x"));
    let a = world.connect("a");
    world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders", "r#0 x"]);
    world.clients[a].amqp.close(None).unwrap();
    world.expect(a, &["close"]);
    let b = world.connect("b");
    world.receiver(b, "orders", 1);
    world.expect(b, &["attached r from orders", "r#0 x"]);
    world.cut(b);
    let c = world.connect("c");
    world.receiver(c, "orders", 1);
    world.expect(c, &["attached r from orders", "r#0 x count 1"]);
    proves("AK-5");
}

#[test]
fn outcomes_return_a_message_or_end_it() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text("x"));
    world.lines(a);
    let receiver = world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders", "r#0 x"]);
    world.settle(a, receiver, 0, DeliveryState::Released, true);
    world.expect(a, &["r#1 x"]);
    let failed = DeliveryState::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: None,
    };
    world.settle(a, receiver, 1, failed, true);
    world.expect(a, &["r#2 x count 1"]);
    let error = Some(AmqpError::new(Symbol::from_static("app:bad"), "no such customer"));
    world.settle(a, receiver, 2, DeliveryState::Rejected { error }, true);
    world.expect(a, &[]);
    let dead = world.attach(a, receive_from("d", "DLQ"));
    world.credit(a, dead, 1);
    world.expect(a, &["attached d from DLQ", "d#0 x"]);
    let got = world.clients[a].latest[&dead].message_annotations.clone().unwrap();
    assert_eq!(got.get("x-opt-postroad-dl-reason").and_then(Value::as_str), Some("REJECTED"));
    assert_eq!(got.get("x-opt-postroad-dl-dest").and_then(Value::as_str), Some("orders"));
    assert_eq!(got.get("x-opt-postroad-dl-by").and_then(Value::as_str), Some("postroad"));
    assert!(got.get("x-opt-postroad-dl-text").and_then(Value::as_str).unwrap().contains("no such customer"));
    assert!(matches!(got.get("x-opt-postroad-dl-count"), Some(Value::Int(1))));
    assert!(matches!(got.get("x-opt-postroad-dl-time"), Some(Value::Timestamp(_))));
}

#[test]
fn annotations_of_an_outcome_are_seen_by_who_gets_the_message_next() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    let mut sent = text("x");
    let of_sender = [("x-opt-a", "sent"), ("x-opt-b", "sent")];
    sent.message_annotations = Some(
        of_sender.into_iter().map(|(key, value)| (Symbol::from_static(key).into(), value.into())).collect(),
    );
    world.send(a, sender, &sent);
    world.lines(a);
    let receiver = world.receiver(a, "orders", 10);
    let mut notes = Fields::new();
    notes.insert("x-opt-b", "changed");
    notes.insert("x-opt-c", 3_u32);
    let modified = DeliveryState::Modified {
        delivery_failed: false,
        undeliverable_here: false,
        message_annotations: Some(notes),
    };
    world.settle(a, receiver, 0, modified, false);
    world.expect(a, &["attached r from orders", "r#0 x", "r#1 x", "r#0-0 settled"]);
    let got = world.clients[a].latest[&receiver].clone();
    let annotations = got.message_annotations.unwrap();
    assert_eq!(annotations.get("x-opt-a").and_then(Value::as_str), Some("sent"));
    assert_eq!(annotations.get("x-opt-b").and_then(Value::as_str), Some("changed"));
    assert!(matches!(annotations.get("x-opt-c"), Some(Value::Uint(3))));
    let places = annotations.0.iter().filter(|(key, _)| key.as_str() == Some("x-opt-b"));
    assert_eq!(places.count(), 1);
    proves("AK-2");
}

#[test]
fn what_has_no_outcome_at_an_orderly_detach_takes_the_default() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text("x"));
    world.lines(a);
    let failed = postroad_amqp_codec::state::Outcome::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: None,
    };
    let source =
        Source { address: Some("orders".into()), default_outcome: Some(failed), ..Source::default() };
    let receiver = world.attach(a, receive_with("r", source));
    world.credit(a, receiver, 1);
    world.detach(a, receiver, true);
    world.expect(a, &["attached r from orders", "r#0 x", "r closed"]);
    let receiver = world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders", "r#0 x count 1"]);
    world.detach(a, receiver, true);
    world.lines(a);
    world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders", "r#0 x count 1"]);
    proves("AM-14");
}

#[test]
fn a_refused_message_says_why() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "tiny");
    world.send(a, sender, &text("fits"));
    world.send(a, sender, &text("does not"));
    world.expect(a, &["tiny#0 accepted", "tiny#1 rejected amqp:resource-limit-exceeded QUEUE_FULL"]);
    let head = Delivery { settled: true, ..Delivery::default() };
    world.send_as(a, sender, &head, &text("nobody would hear"));
    world.expect(a, &["tiny closed amqp:resource-limit-exceeded QUEUE_FULL"]);
}

#[test]
fn presettled_messages_have_no_outcome() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    let head = Delivery { settled: true, ..Delivery::default() };
    world.send_as(a, sender, &head, &text("x"));
    world.expect(a, &[]);
    let attach = postroad_amqp_codec::performative::Attach {
        snd_settle_mode: SenderSettleMode::Settled,
        ..receive_from("r", "orders")
    };
    let receiver = world.attach(a, attach);
    world.credit(a, receiver, 1);
    world.expect(a, &["attached r from orders", "r#0 x settled"]);
}

#[test]
fn large_messages_cross_in_many_frames() {
    let mut world = world();
    world.configure(|config| config.max_frame_size = 1_000);
    let a = world.connect_with(Config { container_id: "a".into(), max_frame_size: 700, ..Config::default() });
    let sender = world.sender(a, "orders");
    let body = "z".repeat(300_000);
    world.send(a, sender, &text(&body));
    world.send(a, sender, &text("small"));
    world.expect(a, &["orders#0 accepted", "orders#1 accepted"]);
    world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders", "r#0 300000 bytes", "r#1 small"]);
}

#[test]
fn a_sender_is_told_the_limit_of_its_store() {
    let mut world = world();
    world.queue("small", QueueSettings { max_message_size: 1_000, ..QueueSettings::default() });
    let a = world.connect("a");
    let sender = world.sender(a, "small");
    assert_eq!(world.clients[a].attached[&sender].max_message_size, Some(1_000));
    world.send(a, sender, &text("x"));
    world.expect(a, &["small#0 accepted"]);
}

#[test]
fn aborted_messages_are_forgotten_and_their_credit_is_given_back() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    for _ in 0..5_000 {
        let head = Delivery { more: true, tag: DeliveryTag::from_number(1), ..Delivery::default() };
        world.clients[a].amqp.send(sender, &head, &[Bytes::from_static(b"half")]).unwrap();
        world.clients[a].amqp.abort(sender).unwrap();
        world.run();
    }
    world.send(a, sender, &text("x"));
    world.expect(a, &["orders#5000 accepted"]);
}

#[test]
fn what_is_no_message_is_rejected_and_settled_ends_the_link() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    let junk = Bytes::from_static(b"no message");
    let head = Delivery { tag: DeliveryTag::from_number(1), ..Delivery::default() };
    world.clients[a].amqp.send(sender, &head, std::slice::from_ref(&junk)).unwrap();
    world.expect(a, &["orders#0 rejected amqp:decode-error BAD_MESSAGE"]);
    let other = Delivery { message_format: 5, ..head.clone() };
    world.send_as(a, sender, &other, &text("x"));
    world.expect(a, &["orders#1 rejected amqp:not-implemented NOT_SUPPORTED"]);
    let txn_id = Bytes::from_static(b"t");
    let state = Some(DeliveryState::Transactional { txn_id, outcome: None });
    world.send_as(a, sender, &Delivery { state, ..head.clone() }, &text("x"));
    world.expect(a, &["orders#2 rejected amqp:not-implemented NOT_SUPPORTED"]);
    let head = Delivery { settled: true, ..head };
    world.clients[a].amqp.send(sender, &head, &[junk]).unwrap();
    world.expect(a, &["orders closed amqp:decode-error BAD_MESSAGE"]);
}

#[test]
fn repeated_deliveries_are_refused_where_they_are_asked_for() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    for name in ["AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON"] {
        world.send(a, sender, &text_with(name, "3", "x"));
    }
    let refused = |at| format!("orders#{at} rejected amqp:not-implemented NOT_SUPPORTED");
    let lines = [0, 1, 2].map(refused);
    world.expect(a, &lines.each_ref().map(String::as_str));
    let head = Delivery { settled: true, ..Delivery::default() };
    world.send_as(a, sender, &head, &text_with("AMQ_SCHEDULED_CRON", "* * * * *", "x"));
    world.expect(a, &["orders closed amqp:not-implemented NOT_SUPPORTED"]);
    proves("QU-10");
}

#[test]
fn a_time_that_is_none_is_refused() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    let mut annotations = Map::new();
    annotations.0.push((Value::Symbol("x-opt-delivery-delay".into()), Value::Long(-1)));
    let message =
        postroad_amqp_codec::message::Message { message_annotations: Some(annotations), ..text("x") };
    world.send(a, sender, &message);
    world.expect(a, &["orders#0 rejected amqp:decode-error BAD_MESSAGE"]);
}

#[test]
fn an_anonymous_sender_addresses_each_message() {
    let mut world = world();
    let a = world.connect("a");
    let relay = world.attach(a, send_with("relay", Target::default()));
    world.expect(a, &["attached relay to anyone"]);
    world.send(a, relay, &text_to("orders", "x"));
    world.send(a, relay, &text_to("nowhere", "y"));
    world.expect(a, &["relay#0 accepted", "relay#1 rejected amqp:not-found UNKNOWN_QUEUE"]);
    world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders", "r#0 x"]);
}

#[test]
fn a_message_too_large_for_its_consumer_does_not_upset_the_count() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text(&"z".repeat(500)));
    world.send(a, sender, &text("x"));
    world.lines(a);
    let attach = postroad_amqp_codec::performative::Attach {
        max_message_size: Some(200),
        ..receive_from("r", "orders")
    };
    let receiver = world.attach(a, attach);
    world.credit(a, receiver, 10);
    world.expect(a, &["attached r from orders", "r#0 aborted", "r#1 x"]);
    world.settle(a, receiver, 1, DeliveryState::Accepted, true);
    world.send(a, sender, &text("y"));
    world.expect(a, &["r#2 y", "orders#2 accepted"]);
}
