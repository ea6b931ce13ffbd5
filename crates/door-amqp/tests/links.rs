//! Connections, links and subscriptions through the door and the engine.

#![allow(clippy::unwrap_used)]

mod support;

use postroad_amqp::{Config, InitiateSasl};
use postroad_amqp_codec::error::condition;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, ReceiverSettleMode, UnsettledMap};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{
    Coordinator, Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy,
};
use postroad_amqp_codec::{AmqpError, Fields, Symbol, Value};
use postroad_engine::admin::Request;
use postroad_model::settings::{ChannelSettings, NamedObjectSettings, Start};
use postroad_testkit::proves;
use support::*;

/// A durable subscription as JMS asks for it (AM-3).
fn durable(name: &str, address: &str) -> Attach {
    receive_with(name, durable_source(address))
}

fn sole(container: &str) -> Config {
    let desired_capabilities = vec![Symbol::from_static("sole-connection-for-container")];
    Config { container_id: container.into(), desired_capabilities, ..Config::default() }
}

#[test]
fn a_connection_is_opened_when_the_engine_has_it() {
    let mut world = world();
    let a = world.client(sole("a"), InitiateSasl::Skip);
    world.expect(a, &["open postroad ANONYMOUS-RELAY DELAYED_DELIVERY sole-connection-for-container"]);
    let b = world.client(Config { container_id: "b".into(), ..Config::default() }, InitiateSasl::Skip);
    world.expect(b, &["open postroad ANONYMOUS-RELAY DELAYED_DELIVERY"]);
    world.clients[b].amqp.close(None).unwrap();
    world.expect(b, &["close"]);
    assert!(world.clients[b].door.is_closed());
}

#[test]
fn a_second_sole_connection_is_refused_before_it_is_open() {
    let mut world = world();
    let a = world.client(sole("a"), InitiateSasl::Skip);
    world.run();
    let second = world.client(sole("a"), InitiateSasl::Skip);
    world.expect(
        second,
        &[
            "open postroad ANONYMOUS-RELAY DELAYED_DELIVERY failed",
            "close amqp:invalid-field CLIENT_ID_IN_USE",
        ],
    );
    assert!(world.clients[second].door.is_closed());
    world.cut(a);
    let third = world.client(sole("a"), InitiateSasl::Skip);
    world.expect(third, &["open postroad ANONYMOUS-RELAY DELAYED_DELIVERY sole-connection-for-container"]);
    proves("AM-2");
}

#[test]
fn credentials_are_asked_for_outside() {
    let mut world = world();
    let plain = |password: &str| InitiateSasl::Plain {
        authzid: String::new(),
        user: "ada".into(),
        password: password.into(),
    };
    let a = world.client(Config::default(), plain("secret"));
    world.expect(a, &["login ada true", "open postroad ANONYMOUS-RELAY DELAYED_DELIVERY"]);
    let b = world.client(Config::default(), plain("guess"));
    world.expect(
        b,
        &["login ada false", "failed: no common protocol with the peer: authentication failed: Auth"],
    );
    assert!(world.clients[b].door.is_closed());
    let c = world.client(Config::default(), InitiateSasl::Anonymous { trace: String::new() });
    world.expect(c, &["open postroad ANONYMOUS-RELAY DELAYED_DELIVERY"]);
}

#[test]
fn nobody_acts_for_somebody_else() {
    let mut world = world();
    let sasl = InitiateSasl::Plain { authzid: "root".into(), user: "ada".into(), password: "secret".into() };
    let a = world.client(Config::default(), sasl);
    world.expect(a, &["failed: no common protocol with the peer: authentication failed: Auth"]);
}

#[test]
fn refused_links_have_no_terminus_and_then_an_error() {
    let mut world = world();
    let a = world.connect("a");
    world.attach(a, receive_from("r", "nowhere"));
    world.expect(a, &["attached r to null", "r closed amqp:not-found UNKNOWN_QUEUE"]);
    world.attach(a, send_to("nowhere"));
    world.expect(a, &["attached nowhere to null", "nowhere closed amqp:not-found UNKNOWN_QUEUE"]);
    world.attach(a, send_to("orders?prio=1"));
    world.expect(
        a,
        &["attached orders?prio=1 to null", "orders?prio=1 closed amqp:invalid-field BAD_ADDRESS"],
    );
    // A source that names nothing asks for a subscription of the link's name, like none at all (AM-7).
    world.attach(a, receive_with("r", Source::default()));
    world.expect(a, &["attached r to null", "r closed amqp:not-found OBJECT_NOT_FOUND"]);
    let coordinator = Some(TargetKind::Coordinator(Coordinator::default()));
    world.attach(a, Attach { target: coordinator, ..send_to("t") });
    world.expect(a, &["attached t to null", "t closed amqp:not-implemented NOT_SUPPORTED"]);
    // The numbers of refused links are used again.
    world.receiver(a, "orders", 1);
    world.expect(a, &["attached r from orders"]);
    proves("AM-8");
}

#[test]
fn filters_are_known_by_their_descriptor_and_honoured_ones_are_echoed() {
    let mut world = world();
    let a = world.connect("a");
    let mut filter = selector("colour = 'red'");
    filter.insert("other", Value::described(Symbol::from_static("unknown:filter"), "x"));
    let by_name =
        Value::described(Symbol::from_static("apache.org:no-local-filter:list"), Value::List(Vec::new()));
    filter.insert("mine", by_name.clone());
    let source = Source { address: Some("prices".into()), filter: Some(filter), ..Source::default() };
    let receiver = world.attach(a, receive_with("r", source));
    world.credit(a, receiver, 10);
    world.lines(a);
    let echoed = world.clients[a].attached[&receiver].source.clone().unwrap().filter.unwrap();
    assert_eq!(echoed.len(), 2);
    assert_eq!(echoed.get("jms-selector"), selector("colour = 'red'").get("jms-selector"));
    assert_eq!(echoed.get("mine"), Some(&by_name));
    let b = world.connect("b");
    let sender = world.sender(b, "prices");
    world.send(b, sender, &text_with("colour", "red", "rose"));
    world.send(b, sender, &text_with("colour", "blue", "sky"));
    world.expect(a, &["r#0 rose"]);
    let own = world.sender(a, "prices");
    world.send(a, own, &text_with("colour", "red", "own"));
    world.expect(a, &["prices#0 accepted"]);
    for (name, bad) in [("x", Value::from("colour =")), ("y", Value::Int(1))] {
        let mut filter = Fields::new();
        filter.insert("jms-selector", Value::described(0x0000_468C_0000_0004_u64, bad));
        let source = Source { address: Some("prices".into()), filter: Some(filter), ..Source::default() };
        world.attach(a, receive_with(name, source));
        world.run();
        let lines = world.lines(a);
        assert!(lines[1].starts_with(&format!("{name} closed amqp:invalid-field")), "{lines:?}");
    }
    proves("AM-9");
    proves("AM-10");
}

#[test]
fn a_durable_subscription_outlives_its_link_and_its_connection() {
    let mut world = world();
    let a = world.connect("a");
    let publisher = world.connect("p");
    let sender = world.sender(publisher, "prices");
    let link = world.attach(a, durable("sub|2", "prices"));
    world.credit(a, link, 10);
    world.expect(a, &["attached sub|2 from prices"]);
    let source = world.clients[a].attached[&link].source.clone().unwrap();
    assert_eq!(
        (source.durable, source.expiry_policy),
        (TerminusDurability::UnsettledState, TerminusExpiryPolicy::Never)
    );
    world.send(publisher, sender, &text("1"));
    world.expect(a, &["sub|2#0 1"]);
    world.settle(a, link, 0, DeliveryState::Accepted, true);
    world.detach(a, link, false);
    world.expect(a, &["sub|2 detached"]);
    world.send(publisher, sender, &text("2"));
    let link = world.attach(a, durable("sub", "prices"));
    world.credit(a, link, 10);
    world.expect(a, &["attached sub from prices", "sub#0 2"]);
    world.cut(a);
    let a = world.connect("a");
    let link = world.attach(a, durable("sub", "prices"));
    world.credit(a, link, 10);
    world.expect(a, &["attached sub from prices", "sub#0 2 count 1"]);
    world.detach(a, link, true);
    world.expect(a, &["sub closed"]);
    let link = world.attach(a, durable("sub", "prices"));
    world.credit(a, link, 10);
    world.expect(a, &["attached sub from prices"]);
    proves("AM-4");
    proves("AM-5");
    proves("AM-6");
}

#[test]
fn the_other_expiry_policies_end_a_subscription_when_they_say() {
    let policies = [
        (TerminusExpiryPolicy::LinkDetach, [false, false, false]),
        (TerminusExpiryPolicy::SessionEnd, [true, false, false]),
        (TerminusExpiryPolicy::ConnectionClose, [true, true, false]),
        (TerminusExpiryPolicy::Never, [true, true, true]),
    ];
    for (expiry_policy, kept) in policies {
        for (event, kept) in kept.into_iter().enumerate() {
            for detach_first in [false, true] {
                let mut world = world();
                let a = world.connect("a");
                let source = Source { expiry_policy, ..durable_source("prices") };
                let link = world.attach(a, receive_with("sub", source));
                world.run();
                if detach_first || event == 0 {
                    world.detach(a, link, false);
                }
                let mut looker = a;
                match event {
                    0 => {}
                    1 => {
                        world.end(a);
                        world.begin(a);
                    }
                    _ if detach_first => {
                        world.cut(a);
                        looker = world.connect("a");
                    }
                    _ => {
                        world.clients[a].amqp.close(None).unwrap();
                        world.run();
                        looker = world.connect("a");
                    }
                }
                world.lines(looker);
                world.attach(looker, unsubscribe("sub"));
                world.run();
                let found = world.lines(looker).len() == 1;
                assert_eq!(found, kept, "{expiry_policy:?}, event {event}, detached first: {detach_first}");
            }
        }
    }
}

#[test]
fn a_subscription_waits_for_as_long_as_its_timeout_says() {
    for (expiry_policy, end) in [
        (TerminusExpiryPolicy::LinkDetach, 0),
        (TerminusExpiryPolicy::SessionEnd, 1),
        (TerminusExpiryPolicy::ConnectionClose, 2),
    ] {
        let mut world = world();
        let mut a = world.connect("a");
        for kept in [true, false] {
            let source = Source { expiry_policy, timeout: 10, ..durable_source("prices") };
            let link = world.attach(a, receive_with("sub", source));
            world.run();
            let told = world.clients[a].attached[&link].source.clone().unwrap();
            assert_eq!((told.expiry_policy, told.timeout), (expiry_policy, 10));
            match end {
                0 => world.detach(a, link, false),
                1 => {
                    world.end(a);
                    world.begin(a);
                }
                _ => {
                    world.clients[a].amqp.close(None).unwrap();
                    world.run();
                    a = world.connect("a");
                }
            }
            world.run();
            world.wait(if kept { 9_000 } else { 11_000 });
            world.lines(a);
            let lookup = world.attach(a, unsubscribe("sub"));
            world.run();
            let lines = world.lines(a);
            assert_eq!(lines.len() == 1, kept, "{expiry_policy:?}: {lines:?}");
            if kept {
                let found = world.clients[a].attached[&lookup].source.clone().unwrap();
                assert_eq!((found.expiry_policy, found.timeout), (expiry_policy, 10));
                world.detach(a, lookup, false);
                world.run();
            }
        }
    }
    proves("AM-6");
}

#[test]
fn a_client_is_told_that_nothing_of_another_terminus_outlives_its_link() {
    let mut world = world();
    world.admin(Request::CreateObject {
        channel: "prices".into(),
        name: "native".into(),
        settings: NamedObjectSettings::default(),
        configured: false,
    });
    let a = world.connect("a");
    let asked = |address: &str, durable| Source {
        address: Some(address.into()),
        durable,
        expiry_policy: TerminusExpiryPolicy::Never,
        timeout: 10,
        capabilities: (address == "orders").then(|| Symbol::from_static("queue")).into_iter().collect(),
        ..Source::default()
    };
    let none = TerminusDurability::None;
    let state = TerminusDurability::UnsettledState;
    for (address, wanted, durable, policy) in [
        ("prices", none, none, TerminusExpiryPolicy::LinkDetach),
        ("orders", state, none, TerminusExpiryPolicy::LinkDetach),
        ("prices::native", state, state, TerminusExpiryPolicy::Never),
    ] {
        let link = world.attach(a, receive_with(address, asked(address, wanted)));
        world.run();
        let told = world.clients[a].attached[&link].source.clone().unwrap();
        assert_eq!((told.durable, told.expiry_policy, told.timeout), (durable, policy, 0), "{address}");
    }
}

#[test]
fn unsubscribing_finds_the_subscription_and_then_deletes_it() {
    let mut world = world();
    let a = world.connect("a");
    let source = Source { filter: Some(selector("x = 1")), ..durable_source("prices") };
    let link = world.attach(a, receive_with("sub", source.clone()));
    world.run();
    let lookup = world.attach(a, Attach { name: "sub|x".into(), ..unsubscribe("sub") });
    world.expect(a, &["attached sub from prices", "attached sub|x from prices"]);
    let found = world.clients[a].attached[&lookup].source.clone().unwrap();
    assert_eq!(
        (found.durable, found.expiry_policy, &found.filter),
        (source.durable, source.expiry_policy, &source.filter)
    );
    assert_eq!(found.capabilities, source.capabilities);
    world.detach(a, lookup, true);
    world.expect(a, &["sub|x closed amqp:resource-locked OBJECT_IN_USE"]);
    world.detach(a, link, false);
    world.lines(a);
    let lookup = world.attach(a, unsubscribe("sub"));
    world.run();
    world.detach(a, lookup, false);
    world.expect(a, &["attached sub from prices", "sub detached"]);
    let lookup = world.attach(a, unsubscribe("sub"));
    world.run();
    world.detach(a, lookup, true);
    world.expect(a, &["attached sub from prices", "sub closed"]);
    world.attach(a, unsubscribe("sub"));
    world.expect(a, &["attached sub to null", "sub closed amqp:not-found OBJECT_NOT_FOUND"]);
    proves("AM-7");
}

#[test]
fn shared_subscriptions_are_refused_until_they_are_there() {
    let mut world = world();
    let a = world.connect("a");
    for extra in ["shared", "global"] {
        let mut source = durable_source("prices");
        source.capabilities.push(Symbol::new(extra).unwrap());
        world.attach(a, receive_with("s", source));
        world.expect(a, &["attached s to null", "s closed amqp:not-implemented NOT_SUPPORTED"]);
        let desired_capabilities = vec![Symbol::new(extra).unwrap()];
        world.attach(a, Attach { desired_capabilities, ..unsubscribe("s|global") });
        world.expect(a, &["attached s|global to null", "s|global closed amqp:not-implemented NOT_SUPPORTED"]);
    }
}

#[test]
fn a_durable_without_a_client_id_is_refused() {
    let mut world = world();
    let a = world.connect("");
    world.attach(a, durable("sub", "prices"));
    world.expect(a, &["attached sub to null", "sub closed amqp:invalid-field CLIENT_ID_REQUIRED"]);
    proves("AM-18");
}

#[test]
fn a_durable_terminus_on_a_queue_is_a_plain_consumer() {
    let mut world = world();
    let a = world.connect("a");
    let source = Source {
        capabilities: vec![Symbol::from_static("queue")],
        distribution_mode: None,
        ..durable_source("orders")
    };
    let link = world.attach(a, receive_with("r", source));
    world.expect(a, &["attached r from orders"]);
    assert_eq!(world.clients[a].attached[&link].source.as_ref().unwrap().durable, TerminusDurability::None);
}

#[test]
fn native_objects_are_never_deleted_by_clients() {
    let mut world = world();
    let settings = NamedObjectSettings { start_event_id: Start::Oldest, ..NamedObjectSettings::default() };
    world.admin(Request::CreateObject {
        channel: "prices".into(),
        name: "audit".into(),
        settings,
        configured: false,
    });
    let a = world.connect("a");
    let sender = world.sender(a, "prices");
    world.send(a, sender, &text("1"));
    world.lines(a);
    for _ in 0..2 {
        let link = world.receiver(a, "prices::audit", 10);
        let lines = world.lines(a);
        assert_eq!(lines[0], "attached r from prices::audit");
        assert_eq!(lines[1], "r#0 1");
        world.attach(a, receive_from("second", "prices::audit"));
        world.expect(a, &["attached second to null", "second closed amqp:resource-locked OBJECT_IN_USE"]);
        world.detach(a, link, true);
        world.expect(a, &["r closed"]);
    }
    proves("AM-17");
}

#[test]
fn the_start_of_a_durable_may_be_named() {
    let mut world = world();
    world.channel(
        "log",
        ChannelSettings { retention: postroad_model::settings::Retention::Log, ..ChannelSettings::default() },
    );
    let a = world.connect("a");
    let sender = world.sender(a, "log");
    for body in ["1", "2", "3"] {
        world.send(a, sender, &text(body));
    }
    world.lines(a);
    let mut properties = Fields::new();
    properties.insert("start-event-id", 2_u64);
    properties.insert("priority", 5_i32);
    let link = world.attach(a, Attach { properties: Some(properties), ..durable("sub", "log") });
    world.credit(a, link, 10);
    world.expect(a, &["attached sub from log", "sub#0 2", "sub#1 3"]);
    let mut properties = Fields::new();
    properties.insert("start-event-id", "later");
    world.attach(a, Attach { properties: Some(properties), ..durable("other", "log") });
    world.expect(a, &["attached other to null", "other closed amqp:invalid-field BAD_VALUE"]);
}

#[test]
fn a_temporary_queue_takes_a_reply() {
    let mut world = world();
    let a = world.connect("a");
    let source = Source { dynamic: true, ..Source::default() };
    let replies = world.attach(a, receive_with("replies", source));
    world.credit(a, replies, 10);
    let address = world.clients[a].attached[&replies].source.clone().unwrap().address.unwrap();
    assert!(address.starts_with("$tmp.") && address.ends_with("@postroad"), "{address}");
    world.lines(a);
    let b = world.connect("b");
    let relay = world.attach(b, send_with("relay", Target::default()));
    world.run();
    world.send(b, relay, &text_to(&address, "answer"));
    world.expect(a, &["replies#0 answer"]);
    let target = Target { dynamic: true, ..Target::default() };
    let link = world.attach(a, send_with("made", target));
    world.run();
    let Some(TargetKind::Target(target)) = world.clients[a].attached[&link].target.clone() else { panic!() };
    assert!(target.dynamic && target.address.unwrap().starts_with("$tmp."));
    world.cut(a);
    world.lines(b);
    world.send(b, relay, &text_to(&address, "late"));
    world.expect(b, &["relay#1 rejected amqp:not-found UNKNOWN_QUEUE"]);
    proves("ADR-9");
}

#[test]
fn a_temporary_queue_lives_as_its_client_asked() {
    let mut world = world();
    let (a, b) = (world.connect("a"), world.connect("b"));
    let relay = world.attach(b, send_with("relay", Target::default()));
    world.run();
    for (policy, told, lives) in
        [(None, 0x2b_u64, false), (Some(0x2b_u64), 0x2b, false), (Some(0x2d), 0x2d, true)]
    {
        let mut properties = Fields::new();
        properties.insert("supported-dist-modes", Symbol::from_static("move"));
        if let Some(code) = policy {
            properties.insert("lifetime-policy", Value::described(code, Value::List(Vec::new())));
        }
        let dynamic_node_properties = Some(properties);
        let source = Source { dynamic: true, dynamic_node_properties, ..Source::default() };
        let link = world.attach(a, receive_with("replies", source));
        world.run();
        let source = world.clients[a].attached[&link].source.clone().unwrap();
        let mut expected = Fields::new();
        expected.insert("lifetime-policy", Value::described(told, Value::List(Vec::new())));
        assert_eq!(source.dynamic_node_properties, Some(expected));
        let address = source.address.unwrap();
        world.send(b, relay, &text_to(&address, "one"));
        world.lines(b);
        world.detach(a, link, true);
        world.run();
        world.send(b, relay, &text_to(&address, "two"));
        let outcome = world.lines(b).join(" ");
        assert_eq!(outcome.contains("UNKNOWN_QUEUE"), !lives, "{policy:?}: {outcome}");
    }
    let mut properties = Fields::new();
    properties.insert("lifetime-policy", Value::described(0x99_u64, Value::List(Vec::new())));
    let source = Source { dynamic: true, dynamic_node_properties: Some(properties), ..Source::default() };
    world.lines(a);
    world.attach(a, receive_with("odd", source));
    world.expect(a, &["attached odd to null", "odd closed amqp:invalid-field BAD_VALUE"]);
    proves("ADR-9");
}

#[test]
fn temporary_topics_are_refused() {
    let mut world = world();
    let a = world.connect("a");
    let capabilities = vec![Symbol::from_static("temporary-topic")];
    world.attach(a, send_with("t", Target { dynamic: true, capabilities, ..Target::default() }));
    world.expect(a, &["attached t to null", "t closed amqp:not-implemented NOT_SUPPORTED"]);
}

#[test]
fn links_of_an_ended_session_are_left_and_others_stay() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    world.send(a, sender, &text("x"));
    world.receiver(a, "orders", 10);
    world.lines(a);
    world.end(a);
    world.begin(a);
    world.run();
    world.receiver(a, "orders", 10);
    world.expect(a, &["attached r from orders", "r#0 x"]);
}

#[test]
fn a_deleted_queue_ends_its_links() {
    let mut world = world();
    let a = world.connect("a");
    world.sender(a, "orders");
    world.receiver(a, "orders", 10);
    world.lines(a);
    world.admin(Request::DeleteStore {
        kind: postroad_engine::admin::StoreKind::Queue,
        name: "orders".into(),
        cascade: false,
        force: true,
    });
    let mut lines = world.lines(a);
    lines.sort();
    assert_eq!(
        lines,
        ["orders closed amqp:resource-deleted DELETED", "r closed amqp:resource-deleted DELETED"]
    );
    world.queue("orders", postroad_model::settings::QueueSettings::default());
    world.sender(a, "orders");
}

#[test]
fn a_stop_closes_and_waits_for_the_answer() {
    let mut world = world();
    let a = world.connect("a");
    let error = AmqpError::new(condition::CONNECTION_FORCED, "the broker stops");
    world.clients[a].door.shut_down(error);
    world.expect(a, &["close amqp:connection:forced -"]);
    assert!(world.clients[a].door.is_closed());
}

#[test]
fn a_silent_client_is_given_up() {
    let mut world = world();
    world.configure(|config| config.idle_timeout_ms = Some(1_000));
    let a = world.connect("a");
    world.wait(2_000);
    let lines = world.lines(a);
    assert!(lines[0].starts_with("close amqp:resource-limit-exceeded"), "{lines:?}");
}

#[test]
fn a_link_may_come_and_go_many_times() {
    let mut world = world();
    let a = world.connect("a");
    for _ in 0..50 {
        let link = world.receiver(a, "orders", 1);
        world.detach(a, link, true);
        world.expect(a, &["attached r from orders", "r closed"]);
        let link = world.sender(a, "orders");
        world.detach(a, link, true);
        world.expect(a, &["orders closed"]);
    }
}

#[test]
fn a_link_that_is_detached_before_it_is_answered_leaves_nothing() {
    let mut world = world();
    let a = world.connect("a");
    let link = world.attach(a, durable("sub", "prices"));
    world.clients[a].amqp.detach(link, false, None).unwrap();
    world.run();
    let lines = world.lines(a);
    assert!(lines.contains(&String::from("sub detached")), "{lines:?}");
    world.attach(a, durable("sub", "prices"));
    world.expect(a, &["attached sub from prices"]);
}

#[test]
fn settling_second_and_resuming_are_answered_with_what_is_there() {
    let mut world = world();
    let a = world.connect("a");
    let tag = DeliveryTag::from_number(7);
    let link = world.attach(
        a,
        Attach {
            rcv_settle_mode: ReceiverSettleMode::Second,
            unsettled: Some(UnsettledMap(vec![(tag, Some(DeliveryState::Accepted))])),
            ..receive_from("r", "orders")
        },
    );
    world.expect(a, &["attached r from orders"]);
    let answer = &world.clients[a].attached[&link];
    assert_eq!((answer.rcv_settle_mode, &answer.unsettled), (ReceiverSettleMode::First, &None));
    proves("AM-16");
}
