//! What durable subscriptions become when links, sessions and connections end at an unusual time.

#![allow(clippy::unwrap_used)]

mod support;

use postroad_amqp_codec::terminus::{Source, TerminusExpiryPolicy};
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
