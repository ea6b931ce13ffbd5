//! Outcomes, ranges, and who settles when.

use postroad_amqp_codec::AmqpError;
use postroad_amqp_codec::error::condition;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Disposition, Performative, Role};
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::terminus::{Coordinator, Target, TargetKind};

use super::pair::{Pair, attach, bytes, named, tagged};
use super::script::{Script, credit, transfer};
use crate::{Delivery, Event, LinkId};

/// A pair with two links from client to server, on which `count` deliveries each were sent in turn.
fn sent(count: u64) -> (Pair, [LinkId; 2], [LinkId; 2]) {
    let (mut pair, session, _) = Pair::session(named("client"), named("server"));
    let links = ["a", "b"].map(|name| pair.link(session, Role::Sender, name));
    for (_, receiver) in links {
        pair.server.engine.flow_receiver(receiver, 1000, false).unwrap();
    }
    pair.run();
    for number in 0..count {
        for (sender, _) in links {
            pair.client.engine.send(sender, &tagged(number), &bytes(4)).unwrap();
        }
    }
    pair.run();
    pair.client.events();
    assert_eq!(pair.server.events().len() as u64, 2 * count);
    (pair, links.map(|link| link.0), links.map(|link| link.1))
}

fn outcomes(pair: &mut Pair) -> Vec<(LinkId, u64, u64, Option<DeliveryState>, bool)> {
    pair.client
        .events()
        .into_iter()
        .map(|event| match event {
            Event::Outcome { link, first, last, state, settled } => {
                (link, first, last, state.map(|state| DeliveryState::clone(&state)), settled)
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn every_outcome_arrives() {
    let states = [
        DeliveryState::Accepted,
        DeliveryState::Released,
        DeliveryState::Rejected { error: Some(AmqpError::new(condition::INVALID_FIELD, "bad")) },
        DeliveryState::Modified {
            delivery_failed: true,
            undeliverable_here: true,
            message_annotations: None,
        },
        DeliveryState::Received { section_number: 1, section_offset: 2 },
        DeliveryState::Transactional { txn_id: "tx".into(), outcome: Some(Outcome::Accepted) },
        DeliveryState::Declared { txn_id: "tx".into() },
    ];
    for state in states {
        let (mut pair, [sender, _], [receiver, _]) = sent(1);
        pair.server.engine.settle_incoming(receiver, 0, 0, Some(state.clone()), true).unwrap();
        pair.run();
        assert_eq!(outcomes(&mut pair), [(sender, 0, 0, Some(state), true)]);
    }
}

#[test]
fn settling_without_a_state() {
    let (mut pair, [sender, _], [receiver, _]) = sent(1);
    pair.server.engine.settle_incoming(receiver, 0, 0, None, true).unwrap();
    pair.run();
    assert_eq!(outcomes(&mut pair), [(sender, 0, 0, None, true)]);
}

#[test]
fn ranges_go_out_as_one_frame() {
    let (mut script, _) = Script::session();
    let links = [script.link(Role::Sender, 0), script.link(Role::Sender, 1)];
    for link in links {
        script.engine.flow_receiver(link, 100, false).unwrap();
        script.expect_flow();
    }
    for id in 0..20 {
        script.send_payload(0, &transfer(id % 2, id), b"x");
    }
    let accepted = || Some(DeliveryState::Accepted);
    // One by one, over both links, then some with another state.
    for number in 0..5 {
        for link in links {
            script.engine.settle_incoming(link, number, number, accepted(), true).unwrap();
        }
    }
    script.engine.settle_incoming(links[0], 5, 5, Some(DeliveryState::Released), true).unwrap();
    // What is settled already is passed over.
    script.engine.settle_incoming(links[1], 0, 5, Some(DeliveryState::Released), true).unwrap();
    let expected = [(0, Some(9), DeliveryState::Accepted), (10, Some(11), DeliveryState::Released)];
    for (first, last, state) in expected {
        let frame = Disposition {
            role: Role::Receiver,
            first,
            last,
            settled: true,
            state: Some(state),
            batchable: false,
        };
        assert_eq!(script.expect(), Performative::Disposition(frame));
    }
    script.expect_nothing();
}

#[test]
fn ranges_over_links_are_split_by_link() {
    let (mut script, _) = Script::session();
    let links = [script.link(Role::Receiver, 0), script.link(Role::Receiver, 1)];
    for handle in 0..2 {
        script.send(0, &credit(handle, 0, 100));
        script.event();
    }
    for (number, link) in [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)] {
        script.engine.send(links[link], &tagged(number), &bytes(1)).unwrap();
    }
    let frame = Disposition {
        role: Role::Receiver,
        first: 1,
        last: Some(u32::MAX / 2),
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    script.send(0, &frame);
    for (link, first, last) in [(0, 1, 1), (1, 0, 1), (0, 2, 2)] {
        let Event::Outcome { link: told, first: from, last: to, settled: true, .. } = script.event() else {
            panic!()
        };
        assert_eq!((told, from, to), (links[link], first, last));
    }
    script.no_event();
    // Only the first is still unsettled.
    script.send(0, &Disposition { first: 0, ..frame });
    assert!(matches!(script.event(), Event::Outcome { first: 0, last: 0, .. }));
    script.no_event();
}

#[test]
fn outcomes_one_by_one_are_told_as_a_range() {
    let (mut script, _) = Script::session();
    let link = script.link(Role::Receiver, 0);
    script.send(0, &credit(0, 0, 100));
    script.event();
    for number in 0..50 {
        script.engine.send(link, &tagged(number), &bytes(1)).unwrap();
    }
    for first in 0..50 {
        let state = Some(DeliveryState::Accepted);
        script.send(
            0,
            &Disposition { role: Role::Receiver, first, settled: true, state, ..Disposition::default() },
        );
    }
    assert!(matches!(script.event(), Event::Outcome { first: 0, last: 49, .. }));
    script.no_event();
}

#[test]
fn what_is_repeated_unsettled_is_told_once() {
    let (mut script, _) = Script::session();
    let links = [script.link(Role::Receiver, 0), script.link(Role::Receiver, 1)];
    for handle in 0..2 {
        script.send(0, &credit(handle, 0, 100));
        script.event();
    }
    // Neighbours are of different links, so that nothing can be told as a range.
    for number in 0..10 {
        for link in links {
            script.engine.send(link, &tagged(number), &bytes(1)).unwrap();
        }
    }
    let mut told = |state: Option<DeliveryState>, settled| {
        let frame =
            Disposition { role: Role::Receiver, last: Some(19), settled, state, ..Disposition::default() };
        script.send(0, &frame);
        std::iter::from_fn(|| script.engine.poll_event()).count()
    };
    assert_eq!(told(None, false), 0);
    assert_eq!(told(Some(DeliveryState::Received { section_number: 0, section_offset: 0 }), false), 20);
    assert_eq!(told(Some(DeliveryState::Received { section_number: 0, section_offset: 1 }), false), 0);
    assert_eq!(told(Some(DeliveryState::Accepted), false), 20);
    assert_eq!(told(Some(DeliveryState::Accepted), false), 0);
    assert_eq!(told(Some(DeliveryState::Released), false), 0);
    assert_eq!(told(Some(DeliveryState::Accepted), true), 20);
}

#[test]
fn receiver_settles_second() {
    let (mut pair, [sender, _], [receiver, _]) = sent(3);
    pair.server.engine.settle_incoming(receiver, 0, 2, Some(DeliveryState::Accepted), false).unwrap();
    pair.run();
    assert_eq!(outcomes(&mut pair), [(sender, 0, 2, Some(DeliveryState::Accepted), false)]);
    pair.client.engine.settle_outgoing(sender, 0, 2, Some(DeliveryState::Accepted)).unwrap();
    pair.client.engine.settle_outgoing(sender, 0, 2, Some(DeliveryState::Accepted)).unwrap();
    pair.run();
    // Ids 0, 2 and 4 are this link's: three frames, since the other link's are between.
    let mut numbers = Vec::new();
    for event in pair.server.events() {
        let Event::SenderState { link, first, last, state, settled: true } = event else { panic!() };
        assert_eq!((link, state.as_deref()), (receiver, Some(&DeliveryState::Accepted)));
        numbers.extend(first..=last);
    }
    assert_eq!(numbers, [0, 1, 2]);
    // Forgotten at both ends: to settle again says nothing.
    pair.server.engine.settle_incoming(receiver, 0, 2, Some(DeliveryState::Accepted), true).unwrap();
    pair.run();
    assert!(pair.client.events().is_empty());
}

#[test]
fn settled_deliveries_are_not_tracked() {
    let (mut pair, [sender, _], [receiver, _]) = sent(0);
    for number in 0..5 {
        let delivery = Delivery { settled: true, ..tagged(number) };
        pair.client.engine.send(sender, &delivery, &bytes(1)).unwrap();
    }
    pair.run();
    for event in pair.server.events() {
        assert!(matches!(event, Event::Transfer { settled: true, .. }));
    }
    pair.server.engine.settle_incoming(receiver, 0, 4, Some(DeliveryState::Accepted), true).unwrap();
    pair.run();
    assert!(pair.client.events().is_empty());
}

#[test]
fn transaction_travels_with_the_delivery() {
    let (mut pair, [sender, _], _) = sent(0);
    let state = DeliveryState::Transactional { txn_id: "tx".into(), outcome: None };
    let delivery =
        Delivery { state: Some(state.clone()), tag: DeliveryTag::from_number(1), ..Delivery::default() };
    pair.client.engine.send(sender, &delivery, &bytes(100)).unwrap();
    pair.run();
    let Event::Transfer { state: got, .. } = pair.server.event() else { panic!() };
    assert_eq!(got.as_deref(), Some(&state));
}

#[test]
fn discharge_does_not_overtake_outcomes() {
    let (mut script, session) = Script::session();
    let receiver = script.link(Role::Sender, 0);
    script.engine.flow_receiver(receiver, 10, false).unwrap();
    script.expect_flow();
    script.send_payload(0, &transfer(0, 0), b"x");
    script.event();
    for coordinator in [false, true] {
        let target = if coordinator {
            TargetKind::Coordinator(Coordinator::default())
        } else {
            TargetKind::Target(Target::default())
        };
        let name = format!("{coordinator}");
        let ours = Attach { target: Some(target), ..attach(Role::Sender, &name) };
        let sender = script.engine.attach(session, ours).unwrap();
        script.expect();
        let handle = 1 + u32::from(coordinator);
        script.send(0, &Attach { handle, role: Role::Receiver, ..attach(Role::Sender, &name) });
        script.event();
        script.send(0, &credit(handle, 0, 10));
        script.event();
        let state = DeliveryState::Transactional { txn_id: "tx".into(), outcome: Some(Outcome::Accepted) };
        script.engine.settle_incoming(receiver, 0, 0, Some(state), false).unwrap();
        script.engine.send(sender, &tagged(0), &bytes(1)).unwrap();
        let first = script.expect();
        assert_eq!(matches!(first, Performative::Disposition(_)), coordinator);
        script.expect();
    }
}

#[test]
fn large_reasons_are_cut_to_the_frame() {
    let server = crate::Config { max_frame_size: 512, ..named("server") };
    let (mut pair, session, _) = Pair::session(server, named("client"));
    let (sender, receiver) = pair.link(session, Role::Sender, "a");
    pair.server.engine.flow_receiver(receiver, 1, false).unwrap();
    pair.run();
    pair.client.engine.send(sender, &tagged(0), &[]).unwrap();
    pair.run();
    pair.client.events();
    let error = AmqpError::new(condition::INVALID_FIELD, "x".repeat(1000));
    let state = DeliveryState::Rejected { error: Some(error) };
    pair.server.engine.settle_incoming(receiver, 0, 0, Some(state), true).unwrap();
    pair.run();
    let error = AmqpError { condition: condition::INVALID_FIELD, ..AmqpError::default() };
    let expected = DeliveryState::Rejected { error: Some(error) };
    assert_eq!(outcomes(&mut pair), [(sender, 0, 0, Some(expected), true)]);
}

#[test]
fn detach_forgets_the_deliveries() {
    let (mut pair, [sender, other], [receiver, _]) = sent(10);
    pair.client.engine.detach(sender, true, None).unwrap();
    pair.server.engine.settle_incoming(receiver, 0, 9, Some(DeliveryState::Accepted), true).unwrap();
    pair.run();
    assert!(pair.client.events().is_empty());
    let session = pair.client.engine.session_of(other).unwrap();
    assert_eq!(pair.client.engine.sessions.get(session.0).unwrap().outgoing.len(), 10);
}
