//! Messages that come in pieces: what is refused early, what is kept of them, and the credit that they cost.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use postroad_amqp::{Delivery, LinkId};
use postroad_amqp_codec::performative::DeliveryTag;
use postroad_door_amqp::Staging;
use postroad_model::settings::QueueSettings;
use std::sync::Arc;
use support::*;

fn head(settled: bool) -> Delivery {
    Delivery { tag: DeliveryTag::from_number(1), more: true, settled, ..Delivery::default() }
}

/// Begins a message with its first bytes.
fn begin(world: &mut World, client: usize, link: LinkId, first: &[u8], settled: bool) {
    let piece = Bytes::copy_from_slice(first);
    world.clients[client].amqp.send(link, &head(settled), &[piece]).unwrap();
    world.run();
}

fn go_on(world: &mut World, client: usize, link: LinkId, piece: &[u8], more: bool) {
    world.clients[client].amqp.send_more(link, &[Bytes::copy_from_slice(piece)], more).unwrap();
    world.run();
}

fn small_store() -> World {
    let mut world = world();
    world.queue("small", QueueSettings { max_message_size: 1_000, ..QueueSettings::default() });
    world
}

#[test]
fn a_message_that_announces_too_much_is_refused_at_its_first_piece() {
    for settled in [false, true] {
        let mut world = small_store();
        let (a, b) = (world.connect("a"), world.connect("b"));
        let sender = world.sender(a, "small");
        let whole = encode(&text(&"z".repeat(5_000)));
        begin(&mut world, a, sender, &whole[..100], settled);
        world.expect(a, &["small closed amqp:link:message-size-exceeded MSG_TOO_BIG"]);
        let sender = world.sender(b, "small");
        world.send(b, sender, &text("fits"));
        world.expect(b, &["small#0 accepted"]);
        let again = world.sender(a, "small");
        world.send(a, again, &text("fits, too"));
        world.expect(a, &["small#0 accepted"]);
    }
}

#[test]
fn what_begins_as_no_message_is_not_kept() {
    let mut world = world();
    let staging = Arc::new(Staging::new(1_000_000));
    world.configure(|config| config.staging = Arc::clone(&staging));
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    begin(&mut world, a, sender, b"no message", false);
    go_on(&mut world, a, sender, &[0; 50_000], true);
    assert_eq!(staging.used(), 0);
    go_on(&mut world, a, sender, b"the end", false);
    world.expect(a, &["orders#0 rejected amqp:decode-error BAD_MESSAGE"]);
    world.send(a, sender, &text("a message"));
    world.expect(a, &["orders#1 accepted"]);
}

#[test]
fn the_next_message_waits_until_a_large_one_is_stored() {
    let mut world = world();
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    assert!(world.clients[a].amqp.can_send(sender));
    let whole = encode(&text(&"z".repeat(3_000_000)));
    begin(&mut world, a, sender, &whole[..500_000], false);
    go_on(&mut world, a, sender, &whole[500_000..2_000_000], true);
    world.hold(true);
    go_on(&mut world, a, sender, &whole[2_000_000..], false);
    assert!(!world.clients[a].amqp.can_send(sender), "it is not durable yet");
    world.expect(a, &[]);
    world.hold(false);
    world.expect(a, &["orders#0 accepted"]);
    assert!(world.clients[a].amqp.can_send(sender));
    world.send(a, sender, &text("small"));
    world.expect(a, &["orders#1 accepted"]);
}

#[test]
fn an_aborted_large_message_gives_its_credit_back() {
    let mut world = world();
    let staging = Arc::new(Staging::new(10_000_000));
    world.configure(|config| config.staging = Arc::clone(&staging));
    let a = world.connect("a");
    let sender = world.sender(a, "orders");
    let whole = encode(&text(&"z".repeat(3_000_000)));
    begin(&mut world, a, sender, &whole[..2_000_000], false);
    assert_eq!(staging.used(), 2_000_000);
    world.clients[a].amqp.abort(sender).unwrap();
    world.run();
    assert_eq!(staging.used(), 0);
    assert!(world.clients[a].amqp.can_send(sender));
    begin(&mut world, a, sender, &whole[..2_000_000], true);
    go_on(&mut world, a, sender, &whole[2_000_000..], false);
    assert!(world.clients[a].amqp.can_send(sender), "a settled one has no answer to wait for");
}

#[test]
fn unfinished_messages_have_bounded_room() {
    let mut world = world();
    let staging = Arc::new(Staging::new(300_000));
    world.configure(|config| {
        config.staging = Arc::clone(&staging);
        config.max_message_size = 200_000;
    });
    let whole = encode(&text(&"z".repeat(180_000)));
    let (a, b) = (world.connect("a"), world.connect("b"));
    let (first, second) = (world.sender(a, "orders"), world.sender(b, "orders"));
    begin(&mut world, a, first, &whole[..160_000], false);
    begin(&mut world, b, second, &whole[..160_000], false);
    assert_eq!(staging.used(), 160_000);
    go_on(&mut world, b, second, &whole[160_000..], false);
    world.expect(b, &["orders#0 rejected amqp:resource-limit-exceeded LIMIT_REACHED"]);
    go_on(&mut world, a, first, &whole[160_000..], false);
    world.expect(a, &["orders#0 accepted"]);
    assert_eq!(staging.used(), 0);
    begin(&mut world, b, second, &whole[..160_000], false);
    go_on(&mut world, b, second, &whole[160_000..], false);
    world.expect(b, &["orders#1 accepted"]);
    // A connection that is lost leaves nothing behind.
    begin(&mut world, b, second, &whole[..160_000], false);
    assert_eq!(staging.used(), 160_000);
    world.cut(b);
    assert_eq!(staging.used(), 0);
}
