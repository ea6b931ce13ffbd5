//! What durable subscriptions become when links, sessions and connections end at an unusual time.

#![allow(clippy::unwrap_used)]

mod support;

use postroad_amqp_codec::Fields;
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, TerminusExpiryPolicy};
use postroad_model::settings::ChannelSettings;
use postroad_testkit::proves;
use support::*;

#[test]
fn a_subscription_expires_also_when_an_attach_to_it_was_refused() {
    for ends_session in [true, false] {
        let mut world = world();
        let mut a = world.connect("a");
        let expiry_policy = TerminusExpiryPolicy::SessionEnd;
        let source = Source { expiry_policy, ..durable_source("prices") };
        let link = world.attach(a, receive_with("sub", source.clone()));
        world.run();
        world.detach(a, link, false);
        world.lines(a);
        world.attach(a, receive_with("sub", Source { filter: Some(selector("((")), ..source }));
        world.expect(a, &["attached sub to null", "sub closed amqp:invalid-field FILTER_SYNTAX"]);
        if ends_session {
            world.end(a);
            world.begin(a);
        } else {
            world.clients[a].amqp.close(None).unwrap();
            world.run();
            a = world.connect("a");
        }
        world.lines(a);
        world.attach(a, unsubscribe("sub"));
        world.run();
        assert_eq!(world.lines(a).len(), 2, "it is gone; ends session: {ends_session}");
    }
    proves("AM-6");
}

#[test]
fn a_subscription_that_is_closed_before_it_is_answered_goes_also_when_its_session_ends() {
    let mut world = world();
    let a = world.connect("a");
    world.hold(true);
    let link = world.attach(a, receive_with("sub", durable_source("prices")));
    world.detach(a, link, true);
    world.end(a);
    world.begin(a);
    world.hold(false);
    world.lines(a);
    world.attach(a, unsubscribe("sub"));
    world.run();
    assert_eq!(world.lines(a).len(), 2, "it is gone");
    proves("AM-6");
}

/// The broker ends a link whose outcome it can't take. To the subscription that is a detach.
#[test]
fn a_subscription_expires_also_when_the_broker_ends_its_link() {
    for expiry_policy in [TerminusExpiryPolicy::LinkDetach, TerminusExpiryPolicy::SessionEnd] {
        let mut world = world();
        world.channel("small", ChannelSettings { max_message_size: 1_000, ..ChannelSettings::default() });
        let a = world.connect("a");
        let source = Source { expiry_policy, ..durable_source("small") };
        let link = world.attach(a, receive_with("sub", source));
        world.credit(a, link, 10);
        world.lines(a);
        let sender = world.sender(a, "topic://small");
        world.send(a, sender, &text("hello"));
        world.run();
        let mut notes = Fields::new();
        notes.insert("x-opt-note", "long".repeat(500).as_str());
        let state = DeliveryState::Modified {
            delivery_failed: false,
            undeliverable_here: false,
            message_annotations: Some(notes),
        };
        world.settle(a, link, 0, state, true);
        world.run();
        let lines = world.lines(a);
        assert!(
            lines.iter().any(|line| line.starts_with("sub closed") && line.ends_with("MSG_TOO_BIG")),
            "{lines:?}"
        );
        if expiry_policy == TerminusExpiryPolicy::SessionEnd {
            world.end(a);
            world.begin(a);
            world.lines(a);
        }
        world.attach(a, unsubscribe("sub"));
        world.run();
        assert_eq!(world.lines(a).len(), 2, "it is gone");
    }
    proves("AM-6");
}
