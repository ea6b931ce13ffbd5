//! Peers that break the rules: what ends, what they are told, and that nothing else is touched.

use postroad_amqp_codec::frame::ProtocolHeader;
use postroad_amqp_codec::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Role, Transfer,
};
use postroad_amqp_codec::state::DeliveryState;
use proptest::prelude::*;

use super::pair::{ANYONE, bytes, named, tagged};
use super::script::{Script, credit, named_attach, transfer};
use crate::{ApiMisuse, AttachReply, Config, Event, LinkId, PeerMisbehaved};

/// A script with a link on which the engine receives, with credit for `limit` deliveries.
fn receiver(limit: u64) -> (Script, LinkId) {
    let (mut script, _) = Script::session();
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, limit, false).unwrap();
    script.expect_flow();
    (script, link)
}

fn expect_failed(script: &mut Script, condition: &str) {
    let event = script.event();
    assert!(matches!(event, Event::Failed(_)), "{event:?}");
    script.expect_close(condition);
    assert_eq!(script.engine.close(None), Err(ApiMisuse::ConnectionGone));
    // Everything but a close is passed over.
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    script.no_event();
    script.send(0, &Close { error: None });
    assert!(script.engine.is_finished());
    script.no_event();
    script.expect_nothing();
}

fn expect_session_failed(script: &mut Script, condition: &str) {
    let event = script.event();
    assert!(matches!(event, Event::SessionFailed { .. }), "{event:?}");
    script.expect_end(condition);
    // What was on its way is passed over; the session goes with the peer's end, and the connection lives.
    script.send_payload(0, &transfer(0, 99), b"x");
    script.send(0, &End { error: None });
    script.no_event();
    assert_eq!((script.engine.sessions.len(), script.engine.links.len()), (0, 0));
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    assert!(matches!(script.event(), Event::RemoteBegin { .. }));
}

fn expect_link_failed(script: &mut Script, link: LinkId, condition: &str) {
    let event = script.event();
    assert!(matches!(event, Event::LinkFailed { link: failed, .. } if failed == link), "{event:?}");
    script.expect_detach(condition);
    // What was on its way is passed over; the link goes with the peer's detach, and the session lives.
    script.send_payload(0, &transfer(0, 1000), b"x");
    script.send(0, &Detach { handle: 0, closed: true, error: None });
    script.no_event();
    assert_eq!(script.engine.links.len(), 0);
    script.link(Role::Sender, 0);
}

#[test]
fn malformed_frames_close_the_connection() {
    let cases: [(&[u8], &str); 7] = [
        // Smaller than a frame header; a data offset inside the header; one beyond the frame; an unknown type.
        (&[0, 0, 0, 7, 2, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 1, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 3, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 2, 9, 0, 0], "amqp:connection:framing-error"),
        // Larger than we allow.
        (&[0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0], "amqp:connection:framing-error"),
        // No performative; a list that ends too early.
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x41], "amqp:decode-error"),
        (&[0, 0, 0, 13, 2, 0, 0, 0, 0, 0x53, 0x14, 0xc0, 9], "amqp:decode-error"),
    ];
    for (frame, condition) in cases {
        let (mut script, _) = Script::session();
        script.raw(frame);
        expect_failed_raw(&mut script, condition);
    }
}

/// As [`expect_failed`], for input behind which no frame can be found.
fn expect_failed_raw(script: &mut Script, condition: &str) {
    assert!(matches!(script.event(), Event::Failed(_)));
    script.expect_close(condition);
    script.raw(&[0xff; 100]);
    script.no_event();
    script.expect_nothing();
}

#[test]
fn truncated_frame_waits() {
    let (mut script, _) = Script::session();
    script.raw(&[0, 0, 0, 40, 2, 0, 0, 0, 0, 0x53]);
    script.no_event();
    script.expect_nothing();
    assert_eq!(script.left_over(), 10);
}

#[test]
fn early_frames_are_small() {
    let mut script = Script::accept(Config { max_frame_size: u32::MAX, ..named("server") }, ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.raw(&[0, 1, 0, 0, 2, 0, 0, 0]);
    script.expect_header(ProtocolHeader::AMQP);
    assert!(matches!(script.expect(), Performative::Open(_)));
    script.expect_close("amqp:connection:framing-error");
}

#[test]
fn open_comes_first_and_once() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    script.expect_header(ProtocolHeader::AMQP);
    assert!(matches!(script.expect(), Performative::Open(_)));
    expect_failed(&mut script, "amqp:illegal-state");

    let mut script = Script::open(named("server"));
    script.send(0, &Open::default());
    expect_failed(&mut script, "amqp:illegal-state");
}

#[test]
fn channels_are_checked() {
    let mut script = Script::open(Config { channel_max: 5, ..named("server") });
    script.send(6, &Begin { incoming_window: 1, ..Begin::default() });
    expect_failed(&mut script, "amqp:connection:framing-error");

    let (mut script, _) = Script::session();
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    expect_failed(&mut script, "amqp:not-allowed");

    let (mut script, _) = Script::session();
    script.send(0, &Begin { incoming_window: 1, ..Begin::default() });
    expect_failed(&mut script, "amqp:not-allowed");

    for wrong in [0, 9] {
        let (mut script, _) = Script::session();
        script.send(1, &Begin { remote_channel: Some(wrong), incoming_window: 1, ..Begin::default() });
        expect_failed(&mut script, "amqp:not-allowed");
    }
}

#[test]
fn frames_need_a_session() {
    let (mut script, _) = Script::session();
    script.send(1, &End { error: None });
    expect_failed(&mut script, "amqp:not-allowed");
    for body in [
        Performative::from(named_attach(Role::Sender, 0)),
        Flow::default().into(),
        transfer(0, 0).into(),
        Disposition::default().into(),
        Detach::default().into(),
    ] {
        let (mut script, _) = Script::session();
        script.send(1, &body);
        expect_failed(&mut script, "amqp:not-allowed");
    }
}

#[test]
fn peer_without_channels_cannot_begin() {
    let mut script = Script::accept(named("server"), ANYONE);
    script.raw(&ProtocolHeader::AMQP.to_bytes());
    script.send(0, &Open { channel_max: 0, ..Open::default() });
    script.event();
    script.engine.open(crate::OpenReply::default()).unwrap();
    for channel in 0..2 {
        script.send(channel, &Begin { incoming_window: 1, ..Begin::default() });
    }
    assert!(matches!(script.event(), Event::RemoteBegin { .. }));
    let Event::Failed(error) = script.event() else { panic!() };
    assert_eq!(error, PeerMisbehaved::NoChannelLeft.into());
}

#[test]
fn handles_are_checked() {
    let (mut script, _) = Script::session_of(Config { handle_max: 3, ..named("server") });
    script.send(0, &named_attach(Role::Sender, 4));
    expect_failed(&mut script, "amqp:connection:framing-error");

    let (mut script, _) = Script::session();
    script.link(Role::Sender, 0);
    script.send(0, &Attach { handle: 0, ..named_attach(Role::Sender, 1) });
    expect_failed(&mut script, "amqp:session:handle-in-use");

    for body in [
        Performative::from(Flow { handle: Some(7), incoming_window: 9, ..Flow::default() }),
        transfer(7, 0).into(),
        Detach { handle: 7, ..Detach::default() }.into(),
    ] {
        let (mut script, _) = receiver(1);
        script.send(0, &body);
        expect_session_failed(&mut script, "amqp:session:unattached-handle");
    }
}

#[test]
fn names_of_links_are_short() {
    let (mut script, _) = Script::session();
    for (handle, role) in [(0, Role::Sender), (1, Role::Receiver)] {
        script.send(0, &Attach { name: "n".repeat(1024), ..named_attach(role, handle) });
        assert!(matches!(script.event(), Event::RemoteAttach { .. }));
    }
    script.send(0, &Attach { name: "n".repeat(1025), ..named_attach(Role::Sender, 2) });
    expect_session_failed(&mut script, "amqp:invalid-field");
}

/// go-amqp gives a receiver credit once more when it has just closed it.
#[test]
fn flow_behind_the_detach_of_its_link_ends_nothing() {
    let (mut script, _) = Script::session();
    let link = script.link(Role::Receiver, 1);
    script.send(0, &Detach { handle: 1, closed: true, error: None });
    assert!(matches!(script.event(), Event::Detach { .. }));
    script.send(0, &credit(1, 0, 5));
    script.engine.detach(link, true, None).unwrap();
    script.send(0, &credit(1, 0, 5));
    script.no_event();
    assert!(matches!(script.expect(), Performative::Detach(_)));
    script.expect_nothing();
    script.link(Role::Receiver, 1);
}

#[test]
fn peer_without_handles_cannot_attach() {
    let mut script = Script::open(named("server"));
    script.send(0, &Begin { incoming_window: 1, handle_max: 0, ..Begin::default() });
    script.event();
    script.expect();
    script.link(Role::Sender, 0);
    script.send(0, &named_attach(Role::Sender, 1));
    expect_session_failed(&mut script, "amqp:not-allowed");
}

#[test]
fn window_is_enforced() {
    // The window opens whenever output is polled, so all must come in one batch.
    let (mut script, _) = Script::session_of(Config { incoming_window: 3, ..named("server") });
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, 100, false).unwrap();
    script.expect_flow();
    for id in 0..3 {
        script.send(0, &transfer(0, id));
        assert!(matches!(script.event(), Event::Transfer { .. }));
    }
    script.send(0, &transfer(0, 3));
    expect_session_failed(&mut script, "amqp:session:window-violation");
}

#[test]
fn deliveries_are_numbered_and_tagged() {
    let other_tag = Some(postroad_amqp_codec::performative::DeliveryTag::from_number(77));
    let wrong: [&[Transfer]; 7] = [
        &[Transfer { delivery_id: None, ..transfer(0, 0) }],
        &[Transfer { delivery_tag: None, ..transfer(0, 0) }],
        &[transfer(0, 5), transfer(0, 5)],
        &[transfer(0, 5), transfer(0, 4)],
        &[Transfer { more: true, ..transfer(0, 5) }, transfer(0, 6)],
        &[Transfer { more: true, ..transfer(0, 5) }, Transfer { delivery_tag: other_tag, ..transfer(0, 5) }],
        &[Transfer { more: true, ..transfer(0, 5) }, Transfer { message_format: Some(1), ..transfer(0, 5) }],
    ];
    for frames in wrong {
        let (mut script, _) = receiver(100);
        for (at, frame) in frames.iter().enumerate() {
            script.send_payload(0, frame, b"x");
            if at + 1 < frames.len() {
                assert!(matches!(script.event(), Event::Transfer { .. }));
            }
        }
        expect_session_failed(&mut script, "amqp:invalid-field");
    }
}

#[test]
fn delivery_ids_wrap() {
    let (mut script, _) = receiver(100);
    for id in [u32::MAX - 1, u32::MAX, 0, 1] {
        script.send_payload(0, &transfer(0, id), b"x");
        assert!(matches!(script.event(), Event::Transfer { .. }));
    }
}

#[test]
fn dispositions_run_forward() {
    let (mut script, _) = receiver(1);
    let role = Role::Receiver;
    script.send(0, &Disposition { role, first: 5, last: Some(4), settled: true, ..Disposition::default() });
    expect_session_failed(&mut script, "amqp:invalid-field");
}

#[test]
fn dispositions_for_nothing_are_passed_over() {
    let (mut script, _) = receiver(1);
    for role in [Role::Sender, Role::Receiver] {
        for first in [0, 17, u32::MAX] {
            let last = Some(first.wrapping_add(1 << 30));
            let state = Some(DeliveryState::Accepted);
            script
                .send(0, &Disposition { role, first, last, settled: true, state, ..Disposition::default() });
        }
    }
    script.no_event();
    script.expect_nothing();
}

#[test]
fn credit_is_enforced() {
    let (mut script, link) = receiver(2);
    for id in 0..2 {
        script.send_payload(0, &transfer(0, id), b"x");
        script.event();
    }
    script.send_payload(0, &transfer(0, 2), b"x");
    expect_link_failed(&mut script, link, "amqp:link:transfer-limit-exceeded");
}

#[test]
fn a_peer_that_counts_wrong_may_be_let_pass_so_far_and_no_further() {
    let (mut script, _) = Script::session_of(Config { excess_credit: 3, ..Config::default() });
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, 2, false).unwrap();
    assert_eq!(script.expect_flow().link_credit, Some(2));
    for id in 0..5 {
        script.send_payload(0, &transfer(0, id), b"x");
        assert!(matches!(script.event(), Event::Transfer { .. }));
    }
    script.send_payload(0, &transfer(0, 5), b"x");
    expect_link_failed(&mut script, link, "amqp:link:transfer-limit-exceeded");
}

#[test]
fn deliveries_on_their_way_when_credit_is_taken_back_are_welcome() {
    let (mut script, link) = receiver(2);
    script.engine.flow_receiver(link, 0, false).unwrap();
    assert_eq!(script.expect_flow().link_credit, Some(0));
    for id in 0..2 {
        script.send_payload(0, &transfer(0, id), b"x");
        assert!(matches!(script.event(), Event::Transfer { .. }));
    }
    script.send_payload(0, &transfer(0, 2), b"x");
    expect_link_failed(&mut script, link, "amqp:link:transfer-limit-exceeded");
}

#[test]
fn skipped_credit_cannot_be_used() {
    let (mut script, link) = receiver(5);
    script.send_payload(0, &transfer(0, 0), b"x");
    script.send(0, &Flow { drain: true, ..credit(0, 4, 0) });
    assert!(matches!(script.event(), Event::Transfer { .. }));
    // Three of five were let go, one was used, one is left.
    assert!(matches!(script.event(), Event::SenderFlow { limit: 2, drained: false, .. }));
    script.send_payload(0, &transfer(0, 1), b"x");
    assert!(matches!(script.event(), Event::Transfer { .. }));
    script.send_payload(0, &transfer(0, 2), b"x");
    expect_link_failed(&mut script, link, "amqp:link:transfer-limit-exceeded");
}

#[test]
fn transfer_before_our_answer_has_no_credit() {
    let (mut script, _) = Script::session();
    script.send(0, &named_attach(Role::Sender, 0));
    script.send_payload(0, &transfer(0, 0), b"x");
    let Event::RemoteAttach { link, .. } = script.event() else { panic!() };
    assert!(matches!(script.expect(), Performative::Attach(attach) if attach.target.is_none()));
    assert_eq!(script.engine.accept_attach(link, AttachReply::default()), Err(ApiMisuse::LinkGone));
    expect_link_failed(&mut script, link, "amqp:link:transfer-limit-exceeded");
}

#[test]
fn size_is_enforced_at_the_first_piece_that_shows_it() {
    let (mut script, _) = Script::session();
    let link = script.link_with(Role::Sender, 0, |reply| AttachReply { max_message_size: Some(10), ..reply });
    script.engine.flow_receiver(link, 5, false).unwrap();
    script.expect_flow();
    script.send_payload(0, &transfer(0, 0), &[1; 10]);
    script.send_payload(0, &Transfer { more: true, ..transfer(0, 1) }, &[1; 6]);
    script.send_payload(0, &Transfer { more: true, ..transfer(0, 1) }, &[1; 5]);
    assert!(matches!(script.event(), Event::Transfer { delivery: 0, .. }));
    assert!(matches!(script.event(), Event::Transfer { delivery: 1, more: true, .. }));
    expect_link_failed(&mut script, link, "amqp:link:message-size-exceeded");
}

#[test]
fn receivers_do_not_send() {
    let (mut script, _) = Script::session();
    let link = script.link(Role::Receiver, 0);
    script.send_payload(0, &transfer(0, 0), b"x");
    expect_link_failed(&mut script, link, "amqp:not-allowed");
}

#[test]
fn one_link_fails_and_the_others_go_on() {
    let (mut script, link) = receiver(1);
    let other = script.link(Role::Receiver, 1);
    script.send(0, &credit(1, 0, 10));
    script.event();
    script.engine.send(other, &tagged(0), &bytes(1)).unwrap();
    script.expect();
    script.send_payload(0, &transfer(0, 0), b"x");
    script.send_payload(0, &transfer(0, 1), b"x");
    assert!(matches!(script.event(), Event::Transfer { .. }));
    assert!(matches!(script.event(), Event::LinkFailed { .. }));
    assert_eq!(script.engine.flow_receiver(link, 9, false), Err(ApiMisuse::LinkGone));
    assert_eq!(script.engine.settle_incoming(link, 0, 0, None, true), Err(ApiMisuse::LinkGone));
    script.expect_detach("amqp:link:transfer-limit-exceeded");
    let state = Some(DeliveryState::Accepted);
    let role = Role::Receiver;
    script.send(0, &Disposition { role, first: 0, settled: true, state, ..Disposition::default() });
    assert!(matches!(script.event(), Event::Outcome { link, .. } if link == other));
    script.engine.send(other, &tagged(1), &bytes(1)).unwrap();
    assert!(matches!(script.expect(), Performative::Transfer(_)));
}

/// Frames that make sense by themselves, in any order: peers that know the words but not the rules.
fn any_frame() -> impl Strategy<Value = (u16, Performative, usize)> {
    let handle = 0u32..3;
    let id = prop_oneof![0u32..6, (u32::MAX - 2)..=u32::MAX];
    let role = prop_oneof![Just(Role::Sender), Just(Role::Receiver)];
    let body = (0..9, handle, id, role, any::<[bool; 4]>()).prop_map(|(kind, handle, id, role, flags)| {
        let [a, b, c, d] = flags;
        match kind {
            0 => named_attach(role, handle).into(),
            1 => Transfer { more: a, settled: b.then_some(c), aborted: d, ..transfer(handle, id) }.into(),
            2 => {
                Transfer { more: a, delivery_id: b.then_some(id), delivery_tag: None, ..transfer(handle, id) }
                    .into()
            }
            3 => Flow { drain: a, echo: b, handle: c.then_some(handle), ..credit(handle, id, id) }.into(),
            4 => {
                let state = b.then_some(DeliveryState::Accepted);
                let last = d.then_some(id.wrapping_add(handle));
                Disposition { role, first: id, last, settled: a, state, batchable: c }.into()
            }
            5 => Detach { handle, closed: a, error: None }.into(),
            6 => End { error: None }.into(),
            7 => Begin {
                remote_channel: a.then_some(0),
                incoming_window: id,
                next_outgoing_id: id,
                handle_max: if b { handle } else { u32::MAX },
                ..Begin::default()
            }
            .into(),
            _ => Close { error: None }.into(),
        }
    });
    (0u16..3, body, 0usize..40)
}

/// Answers what can be answered, as a careless user would.
fn answer(script: &mut Script) {
    while let Some(event) = script.engine.poll_event() {
        let engine = &mut script.engine;
        // Whatever the call says is fine: the peer may have made it impossible.
        let _ = match event {
            Event::RemoteAttach { link, .. } if link.index() % 3 == 2 => {
                engine.refuse_attach(link, Default::default())
            }
            Event::RemoteAttach { link, .. } => engine
                .accept_attach(link, AttachReply::default())
                .and_then(|()| engine.flow_receiver(link, 3, false)),
            Event::Credit { link, limit, .. } if limit > 3 => engine.drained(link),
            Event::Credit { link, .. } => engine.send(link, &tagged(1), &bytes(30)).map(|_| ()),
            Event::Transfer { link, delivery, .. } => {
                engine.settle_incoming(link, 0, delivery, Some(DeliveryState::Accepted), delivery > 0)
            }
            Event::Outcome { link, first, last, settled: false, .. } => {
                engine.settle_outgoing(link, first, last, None)
            }
            Event::Detach { link, closed, .. } => engine.detach(link, closed, None),
            _ => Ok(()),
        };
    }
}

proptest! {
    #![proptest_config(crate::tests::config(400))]

    #[test]
    fn any_frames_are_survived(frames in prop::collection::vec(any_frame(), 0..60)) {
        let (mut script, _) = Script::session();
        for (channel, body, payload) in frames {
            script.send_payload(channel, &body, &vec![1; payload]);
            answer(&mut script);
            script.poll();
        }
        script.engine.handle_deadline(1 << 40);
        script.poll();
        check_frames(&mut script);
    }

    #[test]
    fn any_bytes_are_survived(prefix in 0usize..4, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut script = match prefix {
            0 => Script::accept(named("server"), ANYONE),
            1 => Script::open(named("server")),
            2 => receiver(5).0,
            _ => Script::over(crate::Connection::initiate(named("client"), crate::InitiateSasl::Skip, 0)),
        };
        script.raw(&bytes);
        answer(&mut script);
        script.poll();
        script.engine.handle_deadline(1 << 40);
    }

    #[test]
    fn damaged_frames_are_survived(
        frames in prop::collection::vec(any_frame(), 1..10),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut wire = Vec::new();
        for (channel, body, _) in frames {
            postroad_amqp_codec::frame::write_frame(&mut wire, channel, &body, 0);
        }
        for (at, byte) in damage {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        let (mut script, _) = receiver(5);
        script.raw(&wire);
        answer(&mut script);
        script.poll();
    }
}

/// What the engine has written is whole frames, none behind a close.
fn check_frames(script: &mut Script) {
    let mut closed = false;
    while !script.wire.is_empty() {
        assert!(!closed);
        closed = matches!(script.expect(), Performative::Close(_));
    }
}
