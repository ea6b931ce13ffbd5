//! Credit, drain, echo, windows, messages in pieces.

use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::frame::write_frame;
use postroad_amqp_codec::performative::{Attach, Begin, Detach, Flow, Performative, Role, Transfer};
use postroad_amqp_codec::state::DeliveryState;

use super::pair::{Pair, attach, bytes, memory, named, tagged};
use super::script::{Script, credit, named_attach, transfer};
use crate::connection::MAX_EVENTS;
use crate::{ApiMisuse, AttachReply, Config, Delivery, Event, LinkId};

/// The client sends, the server receives.
fn sender_of_client(client: Config, server: Config) -> (Pair, LinkId, LinkId) {
    let (mut pair, session, _) = Pair::session(client, server);
    let (sender, receiver) = pair.link(session, Role::Sender, "out");
    (pair, sender, receiver)
}

/// A link on which the engine sends to the script, with credit.
fn sender_to_script(config: Config, window: u32, give: u32) -> (Script, LinkId) {
    let mut script = Script::open(config);
    script.send(0, &Begin { incoming_window: window, ..Begin::default() });
    script.event();
    script.expect();
    let link = script.link(Role::Receiver, 0);
    script.send(0, &Flow { incoming_window: window, next_incoming_id: None, ..credit(0, 0, give) });
    assert!(matches!(script.event(), Event::Credit { .. }));
    (script, link)
}

fn expect_transfer(script: &mut Script) -> (Transfer, Bytes) {
    match script.expect_payload() {
        (Performative::Transfer(transfer), payload) => (transfer, payload),
        other => panic!("{other:?}"),
    }
}

#[test]
fn credit_is_an_absolute_limit() {
    let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
    assert_eq!(pair.client.engine.send(sender, &tagged(0), &bytes(1)), Err(ApiMisuse::NoCredit));
    for (round, limit) in [(0, 1), (1, 3), (3, 4)] {
        pair.server.engine.flow_receiver(receiver, limit, false).unwrap();
        pair.run();
        let Event::Credit { limit: told, drain: false, .. } = pair.client.event() else { panic!() };
        assert_eq!(told, limit);
        for number in round..limit {
            assert!(pair.client.engine.can_send(sender));
            assert_eq!(pair.client.engine.send(sender, &tagged(number), &bytes(1)), Ok(number));
        }
        assert!(!pair.client.engine.can_send(sender));
        assert_eq!(pair.client.engine.send(sender, &tagged(9), &bytes(1)), Err(ApiMisuse::NoCredit));
        pair.run();
        assert_eq!(pair.server.events().len() as u64, limit - round);
    }
}

#[test]
fn counts_wrap() {
    let config = |name| Config { first_id: u32::MAX - 2, incoming_window: 3, ..named(name) };
    let (mut pair, sender, receiver) = sender_of_client(config("client"), config("server"));
    for number in 0..10 {
        pair.server.engine.flow_receiver(receiver, number + 1, false).unwrap();
        pair.run();
        assert!(matches!(pair.client.event(), Event::Credit { limit, .. } if limit == number + 1));
        pair.client.engine.send(sender, &tagged(number), &bytes(10)).unwrap();
        pair.run();
        assert!(matches!(pair.server.event(), Event::Transfer { delivery, .. } if delivery == number));
        let accepted = Some(DeliveryState::Accepted);
        pair.server.engine.settle_incoming(receiver, number, number, accepted, true).unwrap();
        pair.run();
        let Event::Outcome { first, last, settled: true, .. } = pair.client.event() else { panic!() };
        assert_eq!((first, last), (number, number));
    }
}

#[test]
fn drain_lets_credit_go() {
    let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
    pair.server.engine.flow_receiver(receiver, 10, true).unwrap();
    pair.run();
    assert!(matches!(pair.client.event(), Event::Credit { limit: 10, drain: true, .. }));
    pair.client.engine.send(sender, &tagged(0), &bytes(1)).unwrap();
    pair.client.engine.drained(sender).unwrap();
    assert_eq!(pair.client.engine.send(sender, &tagged(1), &bytes(1)), Err(ApiMisuse::NoCredit));
    pair.run();
    let events = pair.server.events();
    let [Event::Transfer { .. }, Event::SenderFlow { limit: 1, drained: true, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    pair.server.engine.flow_receiver(receiver, 3, false).unwrap();
    pair.run();
    assert!(matches!(pair.client.event(), Event::Credit { limit: 3, drain: false, .. }));
    assert_eq!(pair.client.engine.send(sender, &tagged(1), &bytes(1)), Ok(1));
    pair.run();
    assert!(matches!(pair.server.event(), Event::Transfer { delivery: 1, .. }));
    // What was let go is gone: one more than the new limit is too much.
    pair.client.engine.send(sender, &tagged(2), &bytes(1)).unwrap();
    assert_eq!(pair.client.engine.send(sender, &tagged(3), &bytes(1)), Err(ApiMisuse::NoCredit));
}

#[test]
fn drain_crosses_new_credit() {
    let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
    pair.server.engine.flow_receiver(receiver, 10, true).unwrap();
    pair.run();
    pair.client.events();
    pair.client.engine.drained(sender).unwrap();
    // The receiver gives more before it hears of that.
    pair.server.engine.flow_receiver(receiver, 15, false).unwrap();
    pair.run();
    assert!(matches!(pair.server.event(), Event::SenderFlow { limit: 5, drained: false, .. }));
    assert!(matches!(pair.client.event(), Event::Credit { limit: 5, .. }));
}

#[test]
fn drain_waits_for_what_the_window_holds_back() {
    let (mut script, link) = sender_to_script(named("server"), 1, 5);
    for number in 0..2 {
        script.engine.send(link, &tagged(number), &bytes(1)).unwrap();
    }
    script.send(0, &Flow { next_incoming_id: Some(0), incoming_window: 1, drain: true, ..credit(0, 0, 5) });
    assert!(matches!(script.event(), Event::Credit { limit: 5, drain: true, .. }));
    script.engine.drained(link).unwrap();
    expect_transfer(&mut script);
    script.expect_nothing();
    script.send(0, &Flow { next_incoming_id: Some(1), incoming_window: 1, ..Flow::default() });
    expect_transfer(&mut script);
    let flow = script.expect_flow();
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(5), Some(0), true));
    assert!(matches!(script.event(), Event::Sendable { .. }));
}

#[test]
fn echo_is_answered() {
    let (mut script, link) = sender_to_script(named("server"), 100, 5);
    script.engine.set_available(link, 42).unwrap();
    script.send(0, &Flow { echo: true, ..credit(0, 0, 7) });
    let flow = script.expect_flow();
    assert_eq!((flow.handle, flow.delivery_count), (Some(0), Some(0)));
    assert_eq!((flow.link_credit, flow.available, flow.echo), (Some(7), Some(42), false));
    script.send(0, &Flow { echo: true, incoming_window: 5, ..Flow::default() });
    let flow = script.expect_flow();
    assert_eq!((flow.handle, flow.next_incoming_id, flow.incoming_window), (None, Some(0), 2048));
    script.expect_nothing();
}

#[test]
fn credit_taken_back_holds_deliveries() {
    let (mut script, link) = sender_to_script(named("server"), 100, 5);
    script.send(0, &credit(0, 0, 0));
    // The user has not heard of it yet, and sends.
    assert_eq!(script.engine.send(link, &tagged(0), &bytes(1)), Ok(0));
    script.expect_nothing();
    assert_eq!((script.engine.waiting(link), script.engine.can_send(link)), (1, false));
    script.send(0, &Flow { echo: true, ..credit(0, 0, 0) });
    assert_eq!(script.expect_flow().available, Some(1));
    script.send(0, &credit(0, 0, 1));
    assert_eq!(expect_transfer(&mut script).0.delivery_id, Some(0));
    script.expect_nothing();
}

#[test]
fn credit_before_our_answer_is_told_after_it() {
    let (mut script, _) = Script::session();
    script.send(0, &named_attach(Role::Receiver, 3));
    script.send(0, &Flow { delivery_count: None, ..credit(3, 0, 8) });
    let Event::RemoteAttach { link, .. } = script.event() else { panic!() };
    script.no_event();
    script.engine.accept_attach(link, AttachReply::default()).unwrap();
    assert!(matches!(script.event(), Event::Credit { limit: 8, .. }));
}

#[test]
fn receiver_may_give_credit_before_the_answer() {
    let (mut pair, session, _) = Pair::session(named("client"), Config { first_id: 77, ..named("server") });
    let receiver = pair.client.engine.attach(session, attach(Role::Receiver, "in")).unwrap();
    pair.client.engine.flow_receiver(receiver, 2, false).unwrap();
    pair.run();
    let Event::RemoteAttach { link: sender, .. } = pair.server.event() else { panic!() };
    pair.server.engine.accept_attach(sender, AttachReply::default()).unwrap();
    assert!(matches!(pair.server.event(), Event::Credit { limit: 2, .. }));
    for number in 0..2 {
        pair.server.engine.send(sender, &tagged(number), &bytes(3)).unwrap();
    }
    pair.run();
    assert_eq!(pair.client.events().len(), 3);
}

#[test]
fn closed_window_holds_deliveries_in_turn() {
    let (mut script, first) = sender_to_script(named("server"), 2, 10);
    let second = script.link(Role::Receiver, 1);
    script.send(0, &Flow { incoming_window: 2, ..credit(1, 0, 10) });
    script.event();
    for number in 0..3 {
        script.engine.send(first, &tagged(number), &bytes(1)).unwrap();
        script.engine.send(second, &tagged(number), &bytes(1)).unwrap();
    }
    let mut handles: Vec<u32> = (0..2).map(|_| expect_transfer(&mut script).0.handle).collect();
    script.expect_nothing();
    assert_eq!((script.engine.waiting(first), script.engine.waiting(second)), (2, 2));
    script.send(0, &Flow { next_incoming_id: Some(2), incoming_window: 100, ..Flow::default() });
    handles.extend((0..4).map(|_| expect_transfer(&mut script).0.handle));
    assert_eq!(handles, [0, 1, 0, 1, 0, 1]);
    assert!(matches!(script.event(), Event::Sendable { link } if link == first));
    assert!(matches!(script.event(), Event::Sendable { link } if link == second));
}

#[test]
fn window_counts_what_is_on_its_way() {
    let (mut script, link) = sender_to_script(named("server"), 3, 10);
    for number in 0..3 {
        script.engine.send(link, &tagged(number), &bytes(1)).unwrap();
        expect_transfer(&mut script);
    }
    // The peer has seen one of three: two are on their way, so of its window of 3 one is left.
    script.send(0, &Flow { next_incoming_id: Some(1), incoming_window: 3, ..Flow::default() });
    for number in 3..5 {
        script.engine.send(link, &tagged(number), &bytes(1)).unwrap();
    }
    expect_transfer(&mut script);
    script.expect_nothing();
}

#[test]
fn incoming_window_opens_by_itself() {
    let (mut script, _) = Script::session_of(Config { incoming_window: 4, ..named("server") });
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, 100, false).unwrap();
    assert_eq!(script.expect_flow().link_credit, Some(100));
    script.send_payload(0, &transfer(0, 0), b"x");
    script.expect_nothing();
    script.send_payload(0, &transfer(0, 1), b"x");
    let flow = script.expect_flow();
    assert_eq!((flow.next_incoming_id, flow.incoming_window, flow.handle), (Some(2), 4, None));
}

#[test]
fn messages_are_cut_to_the_frame_and_come_in_pieces() {
    let server = Config { max_frame_size: 512, ..named("server") };
    let (mut pair, sender, receiver) = sender_of_client(named("client"), server);
    pair.server.engine.flow_receiver(receiver, 5, false).unwrap();
    pair.run();
    pair.client.events();
    let body: Vec<u8> = (0..5000u32).map(|n| n.to_be_bytes()[3]).collect();
    let chunks = [Bytes::copy_from_slice(&body[..100]), Bytes::new(), Bytes::copy_from_slice(&body[100..])];
    pair.client.engine.send(sender, &Delivery { message_format: 3, ..tagged(0) }, &chunks).unwrap();
    pair.run();
    let (mut got, mut pieces) = (Vec::new(), 0);
    for event in pair.server.events() {
        let Event::Transfer { delivery: 0, tag, message_format, payload, more, .. } = event else { panic!() };
        assert_eq!((tag.is_some(), message_format), (pieces == 0, 3));
        got.extend_from_slice(&payload);
        pieces += 1;
        assert_eq!(more, got.len() < body.len());
    }
    assert_eq!(got, body);
    assert_eq!(pieces, 11);
}

#[test]
fn message_is_sent_as_it_comes() {
    let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
    pair.server.engine.flow_receiver(receiver, 5, false).unwrap();
    pair.run();
    pair.client.events();
    let open = Delivery { more: true, ..tagged(0) };
    assert_eq!(pair.client.engine.send(sender, &open, &[]), Ok(0));
    assert_eq!(pair.client.engine.send(sender, &tagged(1), &bytes(1)), Err(ApiMisuse::DeliveryOpen));
    pair.client.engine.send_more(sender, &bytes(10), true).unwrap();
    pair.run();
    assert!(matches!(pair.server.event(), Event::Transfer { delivery: 0, more: true, tag: Some(_), .. }));
    pair.client.engine.send_more(sender, &bytes(20), true).unwrap();
    pair.client.engine.send_more(sender, &[], false).unwrap();
    assert_eq!(pair.client.engine.send_more(sender, &[], false), Err(ApiMisuse::NoDeliveryOpen));
    pair.client.engine.send(sender, &tagged(1), &[]).unwrap();
    pair.run();
    let lengths: Vec<(u64, usize, bool)> = pair
        .server
        .events()
        .into_iter()
        .map(|event| match event {
            Event::Transfer { delivery, payload, more, .. } => (delivery, payload.len(), more),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [(0, 20, true), (0, 0, false), (1, 0, false)]);
}

#[test]
fn aborted_delivery_counts_as_settled() {
    for started in [true, false] {
        let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
        pair.server.engine.flow_receiver(receiver, 5, false).unwrap();
        pair.run();
        pair.client.events();
        let first: &[Bytes] = if started { &bytes(10) } else { &[] };
        pair.client.engine.send(sender, &Delivery { more: true, ..tagged(0) }, first).unwrap();
        pair.run();
        assert_eq!(pair.server.events().len(), usize::from(started));
        pair.client.engine.abort(sender).unwrap();
        assert_eq!(pair.client.engine.abort(sender), Err(ApiMisuse::NoDeliveryOpen));
        pair.client.engine.send(sender, &tagged(1), &bytes(5)).unwrap();
        pair.run();
        let events = pair.server.events();
        let [
            Event::Transfer { delivery: 0, aborted: true, settled: true, more: false, .. },
            Event::Transfer { delivery: 1, aborted: false, .. },
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((pair.client.memory()[4], pair.server.memory()[4]), (1, 1));
        pair.server.engine.settle_incoming(receiver, 0, 9, Some(DeliveryState::Accepted), true).unwrap();
        pair.run();
        assert!(matches!(pair.client.event(), Event::Outcome { first: 1, last: 1, .. }));
        assert_eq!((pair.client.memory()[4], pair.server.memory()[4]), (0, 0));
    }
}

#[test]
fn sender_minds_the_size_limit() {
    let (mut pair, session, _) = Pair::session(named("client"), named("server"));
    let sender = pair.client.engine.attach(session, attach(Role::Sender, "out")).unwrap();
    pair.run();
    let Event::RemoteAttach { link: receiver, .. } = pair.server.event() else { panic!() };
    let reply = AttachReply { max_message_size: Some(100), ..AttachReply::default() };
    pair.server.engine.accept_attach(receiver, reply).unwrap();
    pair.server.engine.flow_receiver(receiver, 9, false).unwrap();
    pair.run();
    let engine = &mut pair.client.engine;
    assert_eq!(engine.send(sender, &tagged(0), &bytes(101)), Err(ApiMisuse::MessageTooLarge));
    assert_eq!(engine.send(sender, &tagged(0), &bytes(100)), Ok(0));
    engine.send(sender, &Delivery { more: true, ..tagged(1) }, &bytes(60)).unwrap();
    assert_eq!(engine.send_more(sender, &bytes(41), false), Err(ApiMisuse::MessageTooLarge));
    engine.abort(sender).unwrap();
}

#[test]
fn calls_for_the_other_end_are_refused() {
    let (mut pair, sender, receiver) = sender_of_client(named("client"), named("server"));
    let (client, server) = (&mut pair.client.engine, &mut pair.server.engine);
    assert_eq!(client.flow_receiver(sender, 1, false), Err(ApiMisuse::WrongRole));
    assert_eq!(client.settle_incoming(sender, 0, 0, None, true), Err(ApiMisuse::WrongRole));
    assert_eq!(server.send(receiver, &tagged(0), &[]), Err(ApiMisuse::WrongRole));
    assert_eq!(server.settle_outgoing(receiver, 0, 0, None), Err(ApiMisuse::WrongRole));
    assert_eq!(server.drained(receiver), Err(ApiMisuse::WrongRole));
}

#[test]
fn detach_drops_what_waits() {
    let (mut script, link) = sender_to_script(named("server"), 0, 5);
    script.engine.send(link, &tagged(0), &bytes(1)).unwrap();
    assert_eq!(memory(&script.engine), [1, 1, 1, 2, 0, 1]);
    script.engine.detach(link, false, None).unwrap();
    assert_eq!(memory(&script.engine), [1, 1, 1, 2, 0, 0]);
    assert!(matches!(script.expect(), Performative::Detach(_)));
    script.send(0, &Flow { next_incoming_id: Some(0), incoming_window: 100, ..Flow::default() });
    script.send(0, &Detach { handle: 0, ..Detach::default() });
    script.expect_nothing();
    assert!(matches!(script.event(), Event::Detach { .. }));
    assert_eq!((memory(&script.engine), script.engine.waiting(link)), ([1, 0, 0, 2, 0, 0], 0));
}

#[test]
fn resumed_deliveries_are_passed_over() {
    let (mut script, _) = Script::session();
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, 10, false).unwrap();
    script.send_payload(0, &Transfer { resume: true, more: true, ..transfer(0, 0) }, b"a");
    script.no_event();
    script.send_payload(0, &Transfer { handle: 0, ..Transfer::default() }, b"b");
    let Event::Transfer { delivery: 0, aborted: true, payload, .. } = script.event() else { panic!() };
    assert!(payload.is_empty());
    script.send_payload(0, &transfer(0, 1), b"c");
    assert!(matches!(script.event(), Event::Transfer { delivery: 1, aborted: false, .. }));
}

#[test]
fn ids_of_deliveries_may_skip() {
    // Some peers number deliveries by their first transfer.
    let (mut script, _) = Script::session();
    let link = script.link(Role::Sender, 0);
    script.engine.flow_receiver(link, 10, false).unwrap();
    script.expect_flow();
    for id in [0, 3, 4, 9] {
        script.send_payload(0, &transfer(0, id), b"a");
    }
    script.engine.settle_incoming(link, 0, 3, Some(DeliveryState::Accepted), true).unwrap();
    let ranges: Vec<(u32, Option<u32>)> = (0..3)
        .map(|_| match script.expect() {
            Performative::Disposition(disposition) => (disposition.first, disposition.last),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ranges, [(0, None), (3, Some(4)), (9, None)]);
}

#[test]
fn attach_without_a_count_starts_at_zero() {
    let (mut script, _) = Script::session();
    script.send(0, &Attach { initial_delivery_count: None, ..named_attach(Role::Sender, 0) });
    let Event::RemoteAttach { link, .. } = script.event() else { panic!() };
    script.engine.accept_attach(link, AttachReply::default()).unwrap();
    script.expect();
    script.engine.flow_receiver(link, 1, false).unwrap();
    assert_eq!(script.expect_flow().delivery_count, Some(0));
}

#[test]
fn no_more_is_taken_while_many_events_wait() {
    let (mut script, _) = Script::session();
    script.link(Role::Receiver, 0);
    let mut frames = Vec::new();
    for count in 0..3_000 {
        write_frame(&mut frames, 0, &credit(0, 0, count), 0);
    }
    let mut input = BytesMut::from(&frames[..]);
    let mut told = 0;
    loop {
        let more = script.engine.handle_input(0, &mut input);
        let events = std::iter::from_fn(|| script.engine.poll_event()).count();
        assert!(events <= MAX_EVENTS, "{events} events");
        told += events;
        if !more {
            break;
        }
    }
    assert_eq!((told, input.len()), (3_000, 0));
    // The rest of a frame is nothing to call again for.
    assert!(!script.engine.handle_input(0, &mut BytesMut::from(&frames[..10])));
}
