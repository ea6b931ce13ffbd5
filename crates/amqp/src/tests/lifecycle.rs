//! Open and close, begin and end, attach and detach.

use postroad_amqp_codec::error::condition;
use postroad_amqp_codec::frame::ProtocolHeader;
use postroad_amqp_codec::performative::{
    Attach, Begin, Close, Detach, End, Open, Performative, ReceiverSettleMode, Role, SenderSettleMode,
};
use postroad_amqp_codec::{AmqpError, Fields, Symbol};
use postroad_testkit::proves;

use super::pair::{ANYONE, Pair, attach, memory, named, reply};
use super::script::{Script, named_attach};
use crate::{ApiMisuse, AttachReply, Config, Event, OpenReply, SessionOptions};

fn refusal() -> AmqpError {
    AmqpError::new(condition::NOT_FOUND, "no such queue")
}

#[test]
fn open_carries_every_field() {
    let offered = vec![Symbol::from_static("ANONYMOUS-RELAY")];
    let config = Config {
        hostname: Some("host".to_owned()),
        max_frame_size: 1000,
        channel_max: 7,
        idle_timeout_ms: Some(2000),
        offered_capabilities: offered.clone(),
        desired_capabilities: vec![Symbol::from_static("sole-connection-for-container")],
        properties: [(Symbol::from_static("product"), "postroad".into())].into_iter().collect(),
        ..named("client")
    };
    let mut pair = Pair::new(config.clone(), named("server"), crate::InitiateSasl::Skip);
    pair.run();
    let Event::RemoteOpen(open) = pair.server.event() else { panic!() };
    let expected = Open {
        container_id: "client".to_owned(),
        hostname: Some("host".to_owned()),
        max_frame_size: 1000,
        channel_max: 7,
        idle_time_out: Some(1000),
        offered_capabilities: offered,
        desired_capabilities: config.desired_capabilities,
        properties: Some(config.properties),
        ..Open::default()
    };
    assert_eq!(*open, expected);
    assert_eq!(pair.server.engine.peer_max_frame_size(), 1000);
}

#[test]
fn open_offers_more_to_one_peer() {
    let server = Config { offered_capabilities: vec![Symbol::from_static("a")], ..named("server") };
    let mut pair = Pair::new(named("client"), server, crate::InitiateSasl::Skip);
    pair.run();
    let reply = OpenReply { offered_capabilities: vec![Symbol::from_static("b")], ..OpenReply::default() };
    assert!(!pair.server.engine.is_open());
    pair.server.engine.open(reply).unwrap();
    assert_eq!(pair.server.engine.open(OpenReply::default()), Err(ApiMisuse::NotOpening));
    pair.run();
    let Event::RemoteOpen(open) = pair.client.event() else { panic!() };
    assert_eq!(open.offered_capabilities, ["a", "b"]);
    assert!(pair.server.engine.is_open() && pair.client.engine.is_open());
}

#[test]
fn refused_open_is_an_open_and_a_close() {
    let mut pair = Pair::new(named("client"), named("server"), crate::InitiateSasl::Skip);
    pair.run();
    let failed = Symbol::from_static("amqp:connection-establishment-failed");
    let properties: Fields = [(failed, true.into())].into_iter().collect();
    let mut error = AmqpError::new(condition::INVALID_FIELD, "container-id in use");
    error.info = Some([(Symbol::from_static("invalid-field"), "container-id".into())].into_iter().collect());
    pair.server.engine.refuse_open(properties.clone(), error.clone()).unwrap();
    pair.run();
    let events = pair.client.events();
    let [Event::RemoteOpen(open), Event::Close { error: Some(told) }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((open.properties.as_ref(), told), (Some(&properties), &error));
    assert!(pair.client.engine.is_finished() && pair.server.engine.is_finished());
}

#[test]
fn close_is_answered() {
    let mut pair = Pair::open(named("client"), named("server"));
    pair.client.engine.close(None).unwrap();
    assert_eq!(pair.client.engine.close(None), Err(ApiMisuse::ConnectionGone));
    assert_eq!(pair.client.engine.begin(SessionOptions::default()), Err(ApiMisuse::ConnectionGone));
    assert!(!pair.client.engine.is_finished());
    pair.run();
    assert!(matches!(pair.server.event(), Event::Close { error: None }));
    assert!(matches!(pair.client.event(), Event::Close { error: None }));
    assert!(pair.client.engine.is_finished() && pair.server.engine.is_finished());
    assert_eq!(pair.client.engine.next_deadline(), None);
}

#[test]
fn pipelined_frames_wait_for_our_open() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open::default());
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    script.send(0, &named_attach(Role::Sender, 0));
    script.expect_header(ProtocolHeader::AMQP);
    script.expect_nothing();
    script.engine.open(OpenReply::default()).unwrap();
    assert!(matches!(script.expect(), Performative::Open(_)));
    assert!(matches!(script.expect(), Performative::Begin(_)));
    assert!(matches!(script.event(), Event::RemoteOpen(_)));
    assert!(matches!(script.event(), Event::RemoteBegin { .. }));
    assert!(matches!(script.event(), Event::RemoteAttach { .. }));
}

#[test]
fn whole_life_in_one_batch() {
    let (mut pair, session, _) = Pair::session(named("client"), named("server"));
    pair.client.engine.attach(session, attach(Role::Sender, "a")).unwrap();
    pair.client.engine.end(session, None).unwrap();
    pair.client.engine.close(None).unwrap();
    pair.run();
    let events = pair.server.events();
    let expected =
        matches!(&events[..], [Event::RemoteAttach { .. }, Event::End { .. }, Event::Close { .. }]);
    assert!(expected, "{events:?}");
    // What the user answers now is too late, and harmless.
    let Event::RemoteAttach { link, .. } = &events[0] else { panic!() };
    assert_eq!(
        pair.server.engine.accept_attach(*link, AttachReply::default()),
        Err(ApiMisuse::ConnectionGone)
    );
}

#[test]
fn sessions_reuse_channels() {
    let (mut pair, session, remote) = Pair::session(named("client"), named("server"));
    let mut last = (session, remote);
    for _ in 0..100 {
        pair.client.engine.end(last.0, None).unwrap();
        let next = pair.client.engine.begin(SessionOptions::default()).unwrap();
        pair.run();
        let events = pair.server.events();
        let [Event::End { session: ended, .. }, Event::RemoteBegin { session, .. }] = &events[..] else {
            panic!()
        };
        assert_eq!(*ended, last.1);
        assert_ne!(*session, last.1);
        assert_eq!(pair.server.engine.end(last.1, None), Err(ApiMisuse::SessionGone));
        assert!(session.index() < 2 && next.index() < 2);
        last = (next, *session);
    }
    assert_eq!(pair.server.memory(), [1, 0, 0, 2, 0, 0]);
    assert_eq!(pair.client.memory(), [1, 0, 0, 1 + 1, 0, 0]);
}

#[test]
fn both_ends_end_at_once() {
    let (mut pair, session, remote) = Pair::session(named("client"), named("server"));
    pair.client.engine.end(session, None).unwrap();
    pair.server.engine.end(remote, Some(refusal())).unwrap();
    pair.run();
    assert!(matches!(pair.server.event(), Event::End { error: None, .. }));
    let Event::End { error, .. } = pair.client.event() else { panic!() };
    assert_eq!(error, Some(refusal()));
    assert_eq!((pair.server.engine.sessions.len(), pair.client.engine.sessions.len()), (0, 0));
}

#[test]
fn channel_max_of_the_peer_is_kept() {
    let mut pair = Pair::open(named("client"), Config { channel_max: 1, ..named("server") });
    pair.client.engine.begin(SessionOptions::default()).unwrap();
    let last = pair.client.engine.begin(SessionOptions::default()).unwrap();
    assert_eq!(pair.client.engine.begin(SessionOptions::default()), Err(ApiMisuse::NoChannelLeft));
    pair.run();
    pair.client.engine.end(last, None).unwrap();
    pair.run();
    pair.client.engine.begin(SessionOptions::default()).unwrap();
}

#[test]
fn handle_max_of_the_peer_is_kept() {
    let (mut pair, session, _) = Pair::session(named("client"), Config { handle_max: 1, ..named("server") });
    for name in ["a", "b"] {
        pair.client.engine.attach(session, attach(Role::Sender, name)).unwrap();
    }
    let third = pair.client.engine.attach(session, attach(Role::Sender, "c"));
    assert_eq!(third, Err(ApiMisuse::NoHandleLeft));
}

#[test]
fn attach_carries_every_field() {
    let (mut pair, session, _) = Pair::session(named("client"), Config { first_id: 99, ..named("server") });
    let asked = Attach {
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        max_message_size: Some(5000),
        desired_capabilities: vec![Symbol::from_static("SHARED-SUBS")],
        properties: Some([(Symbol::from_static("priority"), 3.into())].into_iter().collect()),
        ..attach(Role::Receiver, "link")
    };
    let link = pair.client.engine.attach(session, asked.clone()).unwrap();
    pair.run();
    let Event::RemoteAttach { link: remote, attach: seen, .. } = pair.server.event() else { panic!() };
    assert_eq!(*seen, asked);
    let answer = AttachReply {
        snd_settle_mode: SenderSettleMode::Unsettled,
        offered_capabilities: vec![Symbol::from_static("SHARED-SUBS")],
        ..reply(&seen)
    };
    pair.server.engine.accept_attach(remote, answer).unwrap();
    assert_eq!(pair.server.engine.accept_attach(remote, reply(&seen)), Err(ApiMisuse::NoAttachToAnswer));
    pair.run();
    let Event::Attached { link: answered, attach: got } = pair.client.event() else { panic!() };
    let expected = Attach {
        snd_settle_mode: SenderSettleMode::Unsettled,
        initial_delivery_count: Some(99),
        offered_capabilities: vec![Symbol::from_static("SHARED-SUBS")],
        ..attach(Role::Sender, "link")
    };
    assert_eq!((answered, *got), (link, expected));
    assert_eq!(pair.server.engine.session_of(remote).map(crate::SessionId::index), Some(0));
}

#[test]
fn refused_attach_is_an_attach_without_termini_and_a_detach() {
    let (mut pair, session, _) = Pair::session(named("client"), named("server"));
    let link = pair.client.engine.attach(session, attach(Role::Receiver, "a")).unwrap();
    pair.run();
    let Event::RemoteAttach { link: remote, .. } = pair.server.event() else { panic!() };
    pair.server.engine.refuse_attach(remote, refusal()).unwrap();
    pair.run();
    let events = pair.client.events();
    let [Event::Attached { attach, .. }, Event::Detach { closed: true, error: Some(error), .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((&attach.source, &attach.target, error), (&None, &None, &refusal()));
    pair.client.engine.detach(link, true, None).unwrap();
    pair.run();
    assert!(matches!(pair.server.event(), Event::Detach { closed: true, error: None, .. }));
    assert_eq!((pair.client.engine.links.len(), pair.server.engine.links.len()), (0, 0));
    proves("AM-8");
}

#[test]
fn detach_and_close_differ() {
    for closed in [false, true] {
        let (mut pair, session, _) = Pair::session(named("client"), named("server"));
        let (link, remote) = pair.link(session, Role::Receiver, "a");
        pair.client.engine.detach(link, closed, None).unwrap();
        assert_eq!(pair.client.engine.detach(link, closed, None), Err(ApiMisuse::LinkGone));
        pair.run();
        let Event::Detach { link: detached, closed: told, .. } = pair.server.event() else { panic!() };
        assert_eq!((detached, told), (remote, closed));
        pair.server.engine.detach(remote, closed, Some(refusal())).unwrap();
        pair.run();
        let Event::Detach { error, .. } = pair.client.event() else { panic!() };
        assert_eq!(error, Some(refusal()));
        assert_eq!((pair.client.engine.links.len(), pair.server.engine.links.len()), (0, 0));
    }
}

#[test]
fn both_ends_detach_at_once() {
    let (mut pair, session, _) = Pair::session(named("client"), named("server"));
    let (link, remote) = pair.link(session, Role::Sender, "a");
    pair.client.engine.detach(link, true, None).unwrap();
    pair.server.engine.detach(remote, false, None).unwrap();
    pair.run();
    assert!(matches!(pair.client.event(), Event::Detach { closed: false, .. }));
    assert!(matches!(pair.server.event(), Event::Detach { closed: true, .. }));
    assert_eq!((pair.client.engine.links.len(), pair.server.engine.links.len()), (0, 0));
}

#[test]
fn links_reuse_slots_and_handles() {
    let (mut script, _) = Script::session();
    for _ in 0..300 {
        script.send(0, &named_attach(Role::Receiver, 5));
        script.send(0, &Detach { handle: 5, closed: true, error: None });
        let Event::RemoteAttach { link, attach, .. } = script.event() else { panic!() };
        assert!(matches!(script.event(), Event::Detach { .. }));
        assert_eq!(link.index(), 0);
        // The user answers both in turn, though the second has come already.
        script.engine.accept_attach(link, reply(&attach)).unwrap();
        script.engine.detach(link, true, None).unwrap();
        let Performative::Attach(attach) = script.expect() else { panic!() };
        assert_eq!(attach.handle, 0);
        let Performative::Detach(detach) = script.expect() else { panic!() };
        assert_eq!(detach.handle, 0);
    }
    assert_eq!(memory(&script.engine), [1, 0, 0, 2, 0, 0]);
}

#[test]
fn reattach_before_our_answer_is_another_link() {
    let (mut script, _) = Script::session();
    let first = script.link(Role::Receiver, 1);
    script.send(0, &Detach { handle: 1, closed: false, error: None });
    script.send(0, &named_attach(Role::Receiver, 1));
    assert!(matches!(script.event(), Event::Detach { .. }));
    let Event::RemoteAttach { link: second, .. } = script.event() else { panic!() };
    assert_ne!(first, second);
    script.engine.detach(first, false, None).unwrap();
    script.engine.accept_attach(second, AttachReply::default()).unwrap();
    assert!(matches!(script.expect(), Performative::Detach(_)));
    assert!(matches!(script.expect(), Performative::Attach(_)));
}

#[test]
fn a_second_link_of_the_name_steals_it() {
    let (mut script, _) = Script::session();
    let first = script.link(Role::Receiver, 1);
    script.send(0, &Attach { handle: 2, ..named_attach(Role::Receiver, 1) });
    script.expect_detach("amqp:link:stolen");
    let Event::LinkFailed { link, .. } = script.event() else { panic!() };
    assert_eq!(link, first);
    assert!(matches!(script.event(), Event::RemoteAttach { .. }));
    script.send(0, &Detach { handle: 1, closed: true, error: None });
    script.no_event();
    // The other direction is another name.
    script.send(0, &Attach { handle: 3, role: Role::Sender, ..named_attach(Role::Receiver, 1) });
    assert!(matches!(script.event(), Event::RemoteAttach { .. }));
    script.expect_nothing();
}

#[test]
fn detach_before_the_answer() {
    let (mut script, session) = Script::session();
    let link = script.engine.attach(session, attach(Role::Sender, "ours")).unwrap();
    script.engine.detach(link, true, None).unwrap();
    let Performative::Attach(own) = script.expect() else { panic!() };
    assert!(matches!(script.expect(), Performative::Detach(_)));
    script.send(0, &Attach { handle: 9, role: Role::Receiver, ..*own });
    script.no_event();
    script.send(0, &Detach { handle: 9, closed: true, error: None });
    assert!(matches!(script.event(), Event::Detach { .. }));
    assert_eq!(script.engine.links.len(), 0);
}

#[test]
fn frames_on_their_way_to_an_ended_session_are_passed_over() {
    let (mut script, session) = Script::session();
    script.link(Role::Sender, 0);
    script.engine.end(session, Some(refusal())).unwrap();
    script.send(0, &named_attach(Role::Sender, 1));
    script.send(0, &Detach { handle: 77, closed: true, error: None });
    script.no_event();
    script.send(0, &End { error: None });
    assert!(matches!(script.event(), Event::End { .. }));
    assert!(matches!(script.expect(), Performative::End(_)));
    script.expect_nothing();
}

#[test]
fn frames_on_their_way_to_a_closed_connection_are_passed_over() {
    let (mut script, _) = Script::session();
    script.engine.close(None).unwrap();
    script.send(0, &named_attach(Role::Sender, 1));
    script.send(3, &End { error: None });
    script.no_event();
    script.send(0, &Close { error: None });
    assert!(matches!(script.event(), Event::Close { .. }));
    assert!(matches!(script.expect(), Performative::Close(_)));
    script.expect_nothing();
}

#[test]
fn large_errors_are_cut_to_the_frame() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open { max_frame_size: 512, ..Open::default() });
    script.engine.open(OpenReply::default()).unwrap();
    script.expect_header(ProtocolHeader::AMQP);
    script.expect();
    script.engine.close(Some(AmqpError::new(condition::INTERNAL_ERROR, "x".repeat(2000)))).unwrap();
    let Performative::Close(close) = script.expect() else { panic!() };
    let error = close.error.unwrap();
    assert_eq!((error.condition, error.description), (condition::INTERNAL_ERROR, None));
}
