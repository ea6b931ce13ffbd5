//! What a peer writes by hand: everything at once, and anything at all.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::BytesMut;
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::frame::write_frame;
use postroad_amqp_codec::performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Role, Transfer,
};
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::terminus::{Source, Target, TerminusExpiryPolicy};
use proptest::prelude::*;
use support::*;

const HEADER: &[u8] = b"AMQP\0\x01\0\0";

fn put(out: &mut Vec<u8>, channel: u16, body: &impl Encode, payload: &[u8]) {
    write_frame(out, channel, body, payload.len());
    out.extend_from_slice(payload);
}

fn open() -> Open {
    Open { container_id: "raw".into(), ..Open::default() }
}

fn begin() -> Begin {
    Begin { incoming_window: 1_000, outgoing_window: 1_000, ..Begin::default() }
}

fn sender(handle: u32, address: &str) -> Attach {
    Attach { handle, initial_delivery_count: Some(0), ..send_to(address) }
}

fn receiver(handle: u32, address: &str) -> Attach {
    Attach { handle, ..receive_from("r", address) }
}

fn credit(handle: u32, credit: u32, drain: bool) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 1_000,
        outgoing_window: 1_000,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(credit),
        drain,
        ..Flow::default()
    }
}

#[test]
fn what_comes_before_the_open_is_answered_is_kept() {
    let mut world = world();
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &sender(0, "orders"), &[]);
    put(&mut bytes, 0, &receiver(1, "orders"), &[]);
    put(&mut bytes, 0, &credit(1, 10, false), &[]);
    let a = world.raw_client(&bytes);
    assert_eq!(world.clients[a].frames(), ["open", "begin", "attach", "attach", "flow"]);
    let mut bytes = Vec::new();
    put(&mut bytes, 0, &Detach { handle: 1, closed: true, error: None }, &[]);
    put(&mut bytes, 0, &End::default(), &[]);
    put(&mut bytes, 0, &Close::default(), &[]);
    world.clients[a].feed_bytes(&bytes);
    world.run();
    assert_eq!(world.clients[a].frames(), ["end", "close"]);
    assert!(world.clients[a].door.is_closed());
}

/// The flow frames that came, and nothing else did.
fn flows(world: &mut World, client: usize) -> Vec<Flow> {
    let frames = world.clients[client].performatives();
    let flow = |frame| match frame {
        Performative::Flow(flow) => flow,
        other => panic!("{other:?}"),
    };
    frames.into_iter().map(flow).collect()
}

#[test]
fn drains_and_echoes_are_answered_also_where_there_is_nothing() {
    let mut world = world();
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &sender(0, "orders"), &[]);
    put(&mut bytes, 0, &receiver(1, "orders"), &[]);
    let a = world.raw_client(&bytes);
    world.clients[a].frames();
    let mut asks = |flow: Flow| {
        let mut bytes = Vec::new();
        put(&mut bytes, 0, &flow, &[]);
        world.clients[a].feed_bytes(&bytes);
        world.run();
        flows(&mut world, a)
    };
    // A drain of 5 that finds no message, and one without credit: the count goes up by what was let go.
    for (given, count) in [(5, 5), (0, 5)] {
        let answers = asks(Flow { delivery_count: Some(count - given), ..credit(1, given, true) });
        let [answer] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!((answer.delivery_count, answer.link_credit, answer.drain), (Some(count), Some(0), true));
    }
    // Credit alone needs no answer; an echo does, on either link and in the session.
    assert!(asks(Flow { delivery_count: Some(5), ..credit(1, 3, false) }).is_empty());
    let answers = asks(Flow { delivery_count: Some(5), echo: true, ..credit(1, 4, false) });
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].handle, answers[0].link_credit, answers[0].echo), (Some(1), Some(4), false));
    let answers = asks(Flow { link_credit: None, echo: true, ..credit(0, 0, false) });
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].handle, answers[0].link_credit), (Some(0), Some(2_048)));
    let session = Flow { handle: None, delivery_count: None, link_credit: None, ..credit(0, 0, false) };
    let answers = asks(Flow { echo: true, ..session });
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].handle, answers[0].incoming_window), (None, 2_048));
}

/// A raw client with credit for 10 messages, to be drained, on a queue that has so many, and a window for one.
fn drains_through_a_small_window(world: &mut World) -> usize {
    let b = world.connect("b");
    let publisher = world.sender(b, "orders");
    (0..10).for_each(|_| _ = world.send(b, publisher, &text("x")));
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &Begin { incoming_window: 1, ..begin() }, &[]);
    put(&mut bytes, 0, &receiver(0, "orders"), &[]);
    put(&mut bytes, 0, &Flow { incoming_window: 1, ..credit(0, 10, true) }, &[]);
    let a = world.raw_client(&bytes);
    assert_eq!(world.clients[a].frames(), ["open", "begin", "attach", "transfer"]);
    a
}

/// Opens the window by the link's own flow frame, which also gives credit.
fn open_window(world: &mut World, client: usize, seen: u32, given: u32, drain: bool) -> Vec<Performative> {
    let mut bytes = Vec::new();
    let flow = Flow { next_incoming_id: Some(seen), delivery_count: Some(seen), ..credit(0, given, drain) };
    put(&mut bytes, 0, &flow, &[]);
    world.clients[client].feed_bytes(&bytes);
    world.run();
    world.clients[client].performatives()
}

#[test]
fn a_drain_is_answered_when_its_own_link_opens_the_window() {
    // The credit as it was, and more.
    for given in [9, 9 + 5] {
        let mut world = world();
        let a = drains_through_a_small_window(&mut world);
        let frames = open_window(&mut world, a, 1, given, true);
        let Some(Performative::Flow(flow)) = frames.last() else { panic!("{given}: {frames:?}") };
        assert_eq!((frames.len() - 1, flow.drain, flow.link_credit), (9, true, Some(0)), "{given}");
    }
    // Less, which is used up by what is sent; and then more.
    let mut world = world();
    let a = drains_through_a_small_window(&mut world);
    assert_eq!(open_window(&mut world, a, 1, 4, true).len(), 4);
    let frames = open_window(&mut world, a, 5, 7, true);
    let Some(Performative::Flow(flow)) = frames.last() else { panic!("{frames:?}") };
    assert_eq!((frames.len() - 1, flow.delivery_count, flow.link_credit), (5, Some(12), Some(0)));
}

#[test]
fn credit_that_overtakes_a_drain_is_passed_on_when_its_own_link_opens_the_window() {
    let mut world = world();
    let a = drains_through_a_small_window(&mut world);
    assert_eq!(open_window(&mut world, a, 1, 9 + 5, false).len(), 9);
    let c = world.connect("c");
    let publisher = world.sender(c, "orders");
    (0..6).for_each(|_| _ = world.send(c, publisher, &text("y")));
    let came = world.clients[a].frames();
    assert_eq!(came.iter().filter(|frame| **frame == "transfer").count(), 5);
}

fn part(handle: u32, id: u32, more: bool) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(postroad_amqp_codec::performative::DeliveryTag::from_number(id.into())),
        more,
        ..Transfer::default()
    }
}

#[test]
fn pieces_of_several_links_may_alternate() {
    let mut world = world();
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &sender(0, "orders"), &[]);
    put(&mut bytes, 0, &Attach { name: "other".into(), ..sender(1, "tiny") }, &[]);
    let a = world.raw_client(&bytes);
    world.clients[a].frames();
    let (first, second) = (encode(&text(&"one ".repeat(20))), encode(&text(&"two ".repeat(20))));
    let mut bytes = Vec::new();
    put(&mut bytes, 0, &part(0, 0, true), &first[..30]);
    put(&mut bytes, 0, &part(1, 1, true), &second[..10]);
    // What goes on need not say again what it belongs to.
    put(&mut bytes, 0, &Transfer { handle: 0, more: true, ..Transfer::default() }, &first[30..50]);
    put(&mut bytes, 0, &Transfer { handle: 1, ..Transfer::default() }, &second[10..]);
    put(&mut bytes, 0, &Transfer { handle: 0, ..Transfer::default() }, &first[50..]);
    world.clients[a].feed_bytes(&bytes);
    world.run();
    assert!(world.clients[a].frames().iter().all(|frame| *frame == "disposition"));
    let b = world.connect("b");
    world.receiver(b, "orders", 1);
    world.expect(b, &["attached r from orders", "r#0 80 bytes"]);
    let c = world.connect("c");
    world.receiver(c, "tiny", 1);
    world.expect(c, &["attached r from tiny", "r#0 80 bytes"]);
}

#[test]
fn outcomes_that_are_repeated_ask_nothing_more_of_the_engine() {
    let mut world = world();
    let b = world.connect("b");
    let publisher = world.sender(b, "orders");
    (0..20).for_each(|_| _ = world.send(b, publisher, &text("x")));
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &receiver(0, "orders"), &[]);
    put(&mut bytes, 0, &Attach { name: "other".into(), ..receiver(1, "orders") }, &[]);
    for handle in 0..2 {
        put(&mut bytes, 0, &credit(handle, 10, false), &[]);
    }
    let a = world.raw_client(&bytes);
    let frames = world.clients[a].frames();
    assert_eq!(frames.iter().filter(|frame| **frame == "transfer").count(), 20);
    let mut bytes = BytesMut::new();
    let mut frame = Vec::new();
    let state = Some(DeliveryState::Accepted);
    let accepted = Disposition { role: Role::Receiver, last: Some(19), state, ..Disposition::default() };
    put(&mut frame, 0, &accepted, &[]);
    (0..3_000).for_each(|_| bytes.extend_from_slice(&frame));
    let mut commands = Vec::new();
    world.clients[a].door.input(1_000, &mut bytes, &mut commands);
    assert!(bytes.is_empty(), "all of it is taken");
    assert!((1..=20).contains(&commands.len()), "{} commands", commands.len());
}

#[test]
fn all_input_is_taken_however_much_it_says() {
    let mut world = world();
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &receiver(0, "orders"), &[]);
    let a = world.raw_client(&bytes);
    let mut bytes = Vec::new();
    (0..5_000).for_each(|count| put(&mut bytes, 0, &credit(0, count, false), &[]));
    let (mut input, mut commands) = (BytesMut::from(&bytes[..]), Vec::new());
    world.clients[a].door.input(1_000, &mut input, &mut commands);
    assert_eq!((input.len(), commands.len()), (0, 5_000));
}

#[test]
fn what_a_link_was_sent_is_not_accepted_on_the_next_one() {
    let mut world = world();
    let b = world.connect("b");
    let publisher = world.sender(b, "tiny");
    world.send(b, publisher, &text("it is full now"));
    let mut bytes = HEADER.to_vec();
    put(&mut bytes, 0, &open(), &[]);
    put(&mut bytes, 0, &begin(), &[]);
    put(&mut bytes, 0, &Attach { handle: 0, ..send_with("first", Target::default()) }, &[]);
    let a = world.raw_client(&bytes);
    assert_eq!(world.clients[a].frames(), ["open", "begin", "attach", "flow"]);
    world.clients[a].unread = true;
    // The first message is refused and ends the link, since nobody waits for an answer; the second is accepted behind that.
    let mut bytes = Vec::new();
    let settled = Transfer { settled: Some(true), ..part(0, 0, false) };
    put(&mut bytes, 0, &settled, &encode(&text_to("tiny", "x")));
    put(&mut bytes, 0, &part(0, 1, false), &encode(&text_to("orders", "x")));
    world.clients[a].feed_bytes(&bytes);
    world.run();
    let mut bytes = Vec::new();
    put(&mut bytes, 0, &Detach { handle: 0, closed: true, error: None }, &[]);
    put(&mut bytes, 0, &Attach { handle: 0, name: "second".into(), ..sender(0, "orders") }, &[]);
    world.clients[a].feed_bytes(&bytes);
    world.run();
    world.hold(true);
    let mut bytes = Vec::new();
    (2..4).for_each(|id| put(&mut bytes, 0, &part(0, id, false), &encode(&text("y"))));
    world.clients[a].feed_bytes(&bytes);
    world.run();
    world.clients[a].unread = false;
    world.run();
    assert_eq!(
        world.clients[a].frames(),
        ["detach", "attach", "flow"],
        "nothing of the second is stored yet"
    );
    world.hold(false);
    assert_eq!(world.clients[a].frames(), ["disposition"]);
}

#[test]
fn a_link_that_fails_before_it_is_answered_leaves_its_subscription_to_the_session() {
    for ends_session in [false, true] {
        let mut world = world();
        let mut bytes = HEADER.to_vec();
        put(&mut bytes, 0, &open(), &[]);
        put(&mut bytes, 0, &begin(), &[]);
        let a = world.raw_client(&bytes);
        world.hold(true);
        let mut bytes = Vec::new();
        let expiry_policy = TerminusExpiryPolicy::SessionEnd;
        let source = Source { expiry_policy, ..durable_source("prices") };
        put(&mut bytes, 0, &Attach { handle: 0, ..receive_with("sub", source) }, &[]);
        // It takes the name from the first.
        put(&mut bytes, 0, &Attach { handle: 1, ..receive_from("sub", "orders") }, &[]);
        if ends_session {
            put(&mut bytes, 0, &End::default(), &[]);
        }
        world.clients[a].feed_bytes(&bytes);
        world.hold(false);
        let found = |world: &mut World| {
            let b = world.connect("raw");
            world.attach(b, unsubscribe("sub"));
            world.run();
            world.lines(b).len() == 1
        };
        assert_eq!(found(&mut world), !ends_session, "ends session: {ends_session}");
        if !ends_session {
            let mut bytes = Vec::new();
            put(&mut bytes, 0, &End::default(), &[]);
            world.clients[a].feed_bytes(&bytes);
            world.run();
            assert!(!found(&mut world), "it ends with its session");
        }
    }
}

/// Frames of any kind, mostly where they make sense.
#[derive(Clone, Debug)]
enum Step {
    Begin(u16),
    Sender(u32, &'static str),
    Receiver(u32, &'static str),
    Flow(u32, u32, bool),
    Transfer(u32, bool, bool, bool, Vec<u8>),
    Dispose(u32, u32, bool, u8),
    Detach(u32, bool),
    End,
    Close,
    Junk(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let address = || {
        prop_oneof![
            Just("orders"),
            Just("tiny"),
            Just("prices"),
            Just("nowhere"),
            Just("DLQ"),
            Just("auto.x")
        ]
    };
    prop_oneof![
        1 => (0u16..2).prop_map(Step::Begin),
        3 => (0u32..4, address()).prop_map(|(handle, address)| Step::Sender(handle, address)),
        3 => (0u32..4, address()).prop_map(|(handle, address)| Step::Receiver(handle, address)),
        6 => (0u32..4, 0u32..20, any::<bool>()).prop_map(|(h, credit, drain)| Step::Flow(h, credit, drain)),
        9 => (0u32..4, prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.1), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(h, more, settled, aborted, body)| Step::Transfer(h, more, settled, aborted, body)),
        6 => (0u32..20, 0u32..5, any::<bool>(), 0u8..8).prop_map(|(f, n, s, k)| Step::Dispose(f, n, s, k)),
        2 => (0u32..4, any::<bool>()).prop_map(|(handle, closed)| Step::Detach(handle, closed)),
        1 => Just(Step::End),
        1 => Just(Step::Close),
        1 => prop::collection::vec(any::<u8>(), 0..30).prop_map(Step::Junk),
    ]
}

fn write(step: Step, next_id: &mut u32, out: &mut Vec<u8>) {
    match step {
        Step::Begin(channel) => put(out, channel, &begin(), &[]),
        Step::Sender(handle, address) => put(out, 0, &sender(handle, address), &[]),
        Step::Receiver(handle, address) => put(out, 0, &receiver(handle, address), &[]),
        Step::Flow(handle, count, drain) => put(out, 0, &credit(handle, count, drain), &[]),
        Step::Transfer(handle, more, settled, aborted, body) => {
            let body = if body.len() > 4 { encode(&text("x")).to_vec() } else { body };
            let id = *next_id;
            *next_id += u32::from(!more);
            let frame = Transfer {
                handle,
                delivery_id: Some(id),
                delivery_tag: Some(postroad_amqp_codec::performative::DeliveryTag::from_number(id.into())),
                settled: Some(settled),
                more,
                aborted,
                ..Transfer::default()
            };
            put(out, 0, &frame, &body);
        }
        Step::Dispose(first, count, settled, kind) => {
            let txn_id = bytes::Bytes::from_static(b"t");
            let state = match kind {
                0 => None,
                1 => Some(DeliveryState::Accepted),
                2 => Some(DeliveryState::Released),
                3 => Some(DeliveryState::Rejected { error: None }),
                4 => Some(DeliveryState::Received { section_number: 0, section_offset: 0 }),
                5 => Some(DeliveryState::Transactional { txn_id, outcome: Some(Outcome::Accepted) }),
                6 => Some(DeliveryState::Declared { txn_id }),
                _ => Some(DeliveryState::Modified {
                    delivery_failed: true,
                    undeliverable_here: true,
                    message_annotations: None,
                }),
            };
            let last = Some(first + count);
            let frame =
                Disposition { role: Role::Receiver, first, last, settled, state, ..Disposition::default() };
            put(out, 0, &frame, &[]);
        }
        Step::Detach(handle, closed) => put(out, 0, &Detach { handle, closed, error: None }, &[]),
        Step::End => put(out, 0, &End::default(), &[]),
        Step::Close => put(out, 0, &Close::default(), &[]),
        Step::Junk(bytes) => out.extend_from_slice(&bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(11), ..ProptestConfig::default() })]

    #[test]
    fn any_frames_are_survived_and_leave_a_broker_that_serves(
        steps in prop::collection::vec(prop::collection::vec(step(), 1..8), 0..12),
        cut in any::<bool>(),
    ) {
        let mut world = world();
        let mut bytes = HEADER.to_vec();
        put(&mut bytes, 0, &open(), &[]);
        put(&mut bytes, 0, &begin(), &[]);
        put(&mut bytes, 0, &sender(0, "orders"), &[]);
        put(&mut bytes, 0, &receiver(1, "orders"), &[]);
        let a = world.raw_client(&bytes);
        let mut next_id = 0;
        for batch in steps {
            let mut bytes = Vec::new();
            batch.into_iter().for_each(|step| write(step, &mut next_id, &mut bytes));
            world.clients[a].feed_bytes(&bytes);
            world.run();
        }
        if cut {
            world.cut(a);
        }
        let b = world.connect("b");
        let sender = world.sender(b, "orders");
        world.send(b, sender, &text("x"));
        prop_assert_eq!(world.lines(b), ["orders#0 accepted"]);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
        let mut world = world();
        let mut input = if header { HEADER.to_vec() } else { Vec::new() };
        input.extend_from_slice(&bytes);
        let a = world.raw_client(&input);
        world.cut(a);
        world.connect("b");
    }
}
