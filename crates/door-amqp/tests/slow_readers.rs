//! Clients that do not read what they asked for: what waits for them is bounded, and nothing is lost by it.

#![allow(clippy::unwrap_used)]

mod support;

use postroad_amqp::{Config, LinkId};
use postroad_amqp_codec::frame::write_frame;
use postroad_amqp_codec::performative::{Attach, Begin, End, Open, SenderSettleMode};
use postroad_amqp_codec::terminus::{Source, distribution_mode};
use support::*;

const SIZE: usize = 100_000;
const COUNT: usize = 60;
/// What may wait for one client: the broker's bound, the message that passed it, and the heads.
const BOUND: usize = 1024 * 1024 + SIZE + 10_000;

/// A broker with messages of 6 MB in all in its queue.
fn filled() -> World {
    let mut world = world();
    let feeder = world.connect("feeder");
    let sender = world.sender(feeder, "orders");
    for _ in 0..COUNT {
        world.send(feeder, sender, &text(&"z".repeat(SIZE)));
    }
    world
}

/// A client that has given credit for everything and reads nothing.
fn lazy(world: &mut World, config: Config, attach: Attach) -> (usize, LinkId) {
    let lazy = world.connect_with(Config { container_id: "lazy".into(), ..config });
    let link = world.attach(lazy, attach);
    world.run();
    world.lines(lazy);
    world.clients[lazy].unread = true;
    world.credit(lazy, link, 1_000_000);
    (lazy, link)
}

/// It reads again: how many messages came, and the most that had waited.
fn reads(world: &mut World, client: usize) -> (usize, usize) {
    world.clients[client].unread = false;
    world.run();
    (world.lines(client).len(), world.clients[client].most_ready)
}

fn browse() -> Attach {
    let distribution_mode = Some(distribution_mode::COPY);
    receive_with("r", Source { address: Some("orders".into()), distribution_mode, ..Source::default() })
}

#[test]
fn what_waits_for_a_client_that_does_not_read_is_bounded() {
    let presettled = Attach { snd_settle_mode: SenderSettleMode::Settled, ..receive_from("r", "orders") };
    for attach in [receive_from("r", "orders"), presettled, browse()] {
        let mut world = filled();
        let (lazy, _) = lazy(&mut world, Config::default(), attach);
        let (came, waited) = reads(&mut world, lazy);
        assert_eq!(came, COUNT);
        assert!((1024 * 1024..BOUND).contains(&waited), "{waited} bytes waited");
    }
}

#[test]
fn others_take_what_a_client_that_does_not_read_leaves() {
    let mut world = filled();
    let (lazy, _) = lazy(&mut world, Config::default(), receive_from("r", "orders"));
    let other = world.connect("other");
    world.receiver(other, "orders", 1_000);
    let taken = world.lines(other).len() - 1;
    let (came, _) = reads(&mut world, lazy);
    assert_eq!(came + taken, COUNT);
    assert!((10..13).contains(&came), "{came} were on their way");
}

#[test]
fn a_subscriber_that_does_not_read_finds_everything_later() {
    let mut world = world();
    let (lazy, _) = lazy(&mut world, Config::default(), receive_from("r", "prices"));
    let feeder = world.connect("feeder");
    let sender = world.sender(feeder, "prices");
    for _ in 0..COUNT {
        world.send(feeder, sender, &text(&"z".repeat(SIZE)));
    }
    let (came, waited) = reads(&mut world, lazy);
    assert_eq!(came, COUNT);
    assert!(waited < BOUND, "{waited} bytes waited");
}

#[test]
fn a_drain_is_answered_behind_everything_that_was_held() {
    for attach in [receive_from("r", "orders"), browse()] {
        let mut world = filled();
        let (lazy, link) = lazy(&mut world, Config::default(), attach);
        world.drain(lazy, link, 1_000_000);
        world.clients[lazy].unread = false;
        world.run();
        let lines = world.lines(lazy);
        assert_eq!(lines.len(), COUNT + 1);
        assert_eq!(lines.last().unwrap(), "r drained");
    }
}

#[test]
fn what_a_closed_window_keeps_inside_counts_as_waiting() {
    let mut world = filled();
    // One frame at a time, and the window is opened for each.
    let config = Config { incoming_window: 1, max_frame_size: 4_096, ..Config::default() };
    let (lazy, _) = lazy(&mut world, config, receive_from("r", "orders"));
    let other = world.connect("other");
    world.receiver(other, "orders", 1_000);
    let taken = world.lines(other).len() - 1;
    assert!(COUNT - taken < 13, "{} messages wait for one client", COUNT - taken);
    let (came, _) = reads(&mut world, lazy);
    assert_eq!(came + taken, COUNT);
}

#[test]
fn nothing_more_is_read_from_a_client_that_leaves_its_answers() {
    let mut world = world();
    let mut bytes = b"AMQP\0\x01\0\0".to_vec();
    write_frame(&mut bytes, 0, &Open { container_id: "raw".into(), ..Open::default() }, 0);
    let raw = world.raw_client(&bytes);
    world.clients[raw].unread = true;
    let mut session = Vec::new();
    write_frame(&mut session, 0, &Begin { incoming_window: 1, ..Begin::default() }, 0);
    write_frame(&mut session, 0, &End::default(), 0);
    let mut sessions = 0;
    while !world.clients[raw].door.is_clogged() {
        world.clients[raw].feed_bytes(&session);
        world.run();
        sessions += 1;
        assert!(sessions < 20_000, "its answers are never too many");
    }
    assert!(sessions > 1_000, "{sessions} answered sessions are no flood");
    world.clients[raw].unread = false;
    world.run();
    assert!(!world.clients[raw].door.is_clogged());
}
