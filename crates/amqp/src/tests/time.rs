//! Idle time-outs, and other deadlines.

use postroad_amqp_codec::frame::ProtocolHeader;
use postroad_amqp_codec::performative::{Open, Performative};

use super::pair::{ANYONE, Pair, named};
use super::script::Script;
use crate::{Config, Event, OpenReply, PeerMisbehaved, SessionOptions};

/// An open engine whose peer asks for a frame every 1,000 ms at least.
fn with_idle_peer(config: Config) -> Script {
    let mut script = Script::accept(config, ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open { idle_time_out: Some(1000), ..Open::default() });
    script.event();
    script.engine.open(OpenReply::default()).unwrap();
    script.expect_header(ProtocolHeader::AMQP);
    script.expect();
    script
}

#[test]
fn empty_frames_keep_the_peer_calm() {
    let mut script = with_idle_peer(Config { idle_timeout_ms: None, ..named("server") });
    assert_eq!(script.engine.next_deadline(), Some(500));
    script.engine.handle_deadline(499);
    script.expect_nothing();
    script.engine.handle_deadline(500);
    assert_eq!(script.engine.next_deadline(), Some(1000));
    script.expect_empty();
    // Anything that is sent serves as well.
    script.engine.handle_deadline(900);
    script.engine.begin(SessionOptions::default()).unwrap();
    script.expect();
    assert_eq!(script.engine.next_deadline(), Some(1400));
}

#[test]
fn silent_peer_is_closed() {
    let mut script = Script::open(Config { idle_timeout_ms: Some(3000), ..named("server") });
    script.now = 2000;
    script.raw(&[0, 0, 0, 8, 2, 0, 0, 0]);
    assert_eq!(script.engine.next_deadline(), Some(5000));
    // Half a frame is a sign of life too, but the same half a frame is not.
    script.now = 3000;
    script.raw(&[0, 0]);
    script.now = 4000;
    script.raw(&[]);
    assert_eq!(script.engine.next_deadline(), Some(6000));
    script.engine.handle_deadline(6000);
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerMisbehaved::Silent { ms: 3000 }.into());
    script.expect_close("amqp:resource-limit-exceeded");
    assert_eq!(script.engine.next_deadline(), Some(11_000));
    script.engine.handle_deadline(11_000);
    assert!(script.engine.is_finished());
    script.no_event();
}

#[test]
fn idle_pair_lives_for_ever() {
    let config = |name| Config { idle_timeout_ms: Some(1000), ..named(name) };
    let mut pair = Pair::open(config("client"), config("server"));
    for _ in 0..1000 {
        let next = [&pair.client, &pair.server].map(|side| side.engine.next_deadline().unwrap());
        pair.now = next.into_iter().min().unwrap();
        pair.client.engine.handle_deadline(pair.now);
        pair.server.engine.handle_deadline(pair.now);
        pair.run();
    }
    assert!(pair.now >= 100_000);
    assert!(pair.client.engine.is_open() && pair.server.engine.is_open());
    assert!(pair.client.events().is_empty() && pair.server.events().is_empty());
}

#[test]
fn slow_opener_is_given_up() {
    let mut script = Script::accept(Config { open_timeout_ms: Some(100), ..named("server") }, ANYONE);
    script.now = 90;
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    assert_eq!(script.engine.next_deadline(), Some(100));
    script.engine.handle_deadline(100);
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerMisbehaved::NotOpenedInTime { ms: 100 }.into());
    script.expect_header(ProtocolHeader::AMQP);
    assert!(matches!(script.expect(), Performative::Open(_)));
    script.expect_close("amqp:resource-limit-exceeded");
}

#[test]
fn impossible_idle_timeout_is_refused() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open { idle_time_out: Some(1), ..Open::default() });
    script.expect_header(ProtocolHeader::AMQP);
    script.expect();
    script.expect_close("amqp:not-allowed");
}

#[test]
fn close_is_not_waited_for_for_ever() {
    let mut script = Script::open(named("server"));
    script.engine.close(None).unwrap();
    assert_eq!(script.engine.next_deadline(), Some(5000));
    script.engine.handle_deadline(5000);
    assert!(script.engine.is_finished());
}
