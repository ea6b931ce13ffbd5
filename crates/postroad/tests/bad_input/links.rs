//! Links that can't be: unknown destinations, bad selectors, wrong kinds, handles and sessions beyond what is allowed,
//! credit that makes no sense.

use crate::broker::Broker;
use crate::peer::{Peer, begin, flow, reason, receiver, sender, transfer};
use postroad_amqp_codec::performative::{Attach, Begin, Detach, Flow, Performative, Transfer};
use postroad_amqp_codec::terminus::{Source, TargetKind};
use postroad_amqp_codec::{Fields, Symbol, Value};

/// A link is refused on its own: a null terminus, a closing detach with the error, one line in the log. The session
/// lives on, and so do others.
#[track_caller]
fn refused(attach: &Attach, condition: &str, code: &str) {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.begin(0);
    let answer = peer.attach(attach);
    assert!(answer.source.is_none() || answer.target.is_none(), "it was attached: {answer:?}");
    let error = peer.expect_detach(attach.handle, condition);
    assert_eq!(reason(&error), code);
    assert!(error.description.is_some_and(|text| text.len() > 10));
    peer.attach_sender(9, "q");
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["client=bad", code]);
}

fn of_kind(mut attach: Attach, kind: &'static str) -> Attach {
    let capabilities = vec![Symbol::from_static(kind)];
    match (&mut attach.source, &mut attach.target) {
        (Some(source), _) if source.address.is_some() => source.capabilities = capabilities,
        (_, Some(TargetKind::Target(target))) => target.capabilities = capabilities,
        _ => panic!("no terminus"),
    }
    attach
}

fn selecting(value: Value) -> Attach {
    let mut filter = Fields::new();
    filter.insert("jms-selector", Value::described(0x0000_468C_0000_0004_u64, value));
    let source = Source { address: Some("q".into()), filter: Some(filter), ..Source::default() };
    Attach { source: Some(source), ..receiver(0, "q") }
}

#[test]
fn an_unknown_destination_is_refused() {
    refused(&sender(0, "nowhere"), "amqp:not-found", "UNKNOWN_QUEUE");
    refused(&receiver(0, "nowhere"), "amqp:not-found", "UNKNOWN_QUEUE");
    refused(&of_kind(receiver(0, "nowhere"), "topic"), "amqp:not-found", "CHANNEL_NOT_FOUND");
}

#[test]
fn a_bad_selector_is_refused() {
    refused(&selecting(Value::from("price >")), "amqp:invalid-field", "FILTER_SYNTAX");
    refused(&selecting(Value::Int(5)), "amqp:invalid-field", "BAD_VALUE");
}

#[test]
fn a_wrong_kind_is_refused() {
    refused(&of_kind(sender(0, "q"), "topic"), "amqp:not-found", "CHANNEL_NOT_FOUND");
    refused(&of_kind(receiver(0, "c"), "queue"), "amqp:not-found", "UNKNOWN_QUEUE");
    refused(&sender(0, "c::object"), "amqp:not-allowed", "OBJECT_NOT_ALLOWED_HERE");
    refused(&receiver(0, "q::object"), "amqp:not-allowed", "OBJECT_NOT_ALLOWED_HERE");
}

#[test]
fn a_link_without_a_terminus_is_refused() {
    refused(&Attach { target: None, ..sender(0, "q") }, "amqp:invalid-field", "BAD_VALUE");
}

/// The connection is closed with this error, and nothing else is.
#[track_caller]
fn closes(condition: &str, said: &str, act: impl FnOnce(&mut Peer)) {
    let broker = Broker::start("[limits]\nmax_sessions = 4\nmax_links = 4\n");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    act(&mut peer);
    peer.expect_close(condition);
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["client=bad", said]);
}

#[test]
fn a_duplicate_handle_closes_the_connection() {
    closes("amqp:session:handle-in-use", "handle 0", |peer| {
        peer.begin(0);
        peer.attach_sender(0, "q");
        peer.put(0, &sender(0, "w"));
    });
}

#[test]
fn a_handle_beyond_handle_max_closes_the_connection() {
    closes("amqp:connection:framing-error", "handle-max", |peer| {
        peer.put(0, &begin());
        let (Performative::Begin(answer), _) = peer.next() else { panic!("no begin") };
        assert_eq!(answer.handle_max, 3);
        peer.put(0, &sender(4, "q"));
    });
}

#[test]
fn sessions_without_end_close_the_connection() {
    closes("amqp:connection:framing-error", "channel-max", |peer| {
        for channel in 0..4 {
            peer.begin(channel);
        }
        peer.put(4, &begin());
    });
    closes("amqp:not-allowed", "channel 2", |peer| {
        peer.begin(2);
        peer.put(2, &begin());
    });
    closes("amqp:not-allowed", "channel 3", |peer| peer.put(3, &flow(0, 0, 1)));
}

#[test]
fn negative_credit_closes_the_connection() {
    // An int of -1 where a uint belongs, as the link credit and as the delivery count.
    for field in [6, 5] {
        closes("amqp:decode-error", "uint", |peer| {
            peer.begin(0);
            peer.attach_receiver(1, "q", 1);
            let nulls = |count: usize| vec![0x40; count];
            let fixed = [&[0x43, 0x52, 100, 0x43, 0x52, 100, 0x52, 1][..], &nulls(field - 5), &[0x54, 0xff]];
            let fields = fixed.concat();
            let count = u8::try_from(field + 1).unwrap();
            let size = u8::try_from(fields.len() + 1).unwrap();
            let body = [&[0x00, 0x53, 0x13, 0xc0, size, count][..], &fields].concat();
            peer.write(&raw_frame(0, &body));
        });
    }
}

fn raw_frame(channel: u16, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len() + 8).unwrap();
    [&size.to_be_bytes()[..], &[2, 0], &channel.to_be_bytes(), body].concat()
}

#[test]
fn credit_that_wraps_gives_what_it_says_and_no_more() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut feeder = broker.open();
    feeder.begin(0);
    feeder.attach_sender(0, "q");
    for id in 0..6 {
        feeder.send(0, id, &format!("message {id}"));
        feeder.expect_accepted(id);
    }
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach(&receiver(0, "q"));
    // The delivery count is 0. Counts behind it use the credit up before it begins, also over the wrap.
    for (count, credit) in [(u32::MAX, 1), (0u32.wrapping_sub(5), 5), (0x8000_0001, 0x7fff_ffff), (0, 0)] {
        peer.put(0, &flow(0, count, credit));
        peer.is_alive(1);
    }
    // One behind, with two: one message.
    peer.put(0, &flow(0, u32::MAX, 2));
    expect_messages(&mut peer, 1);
    // What is left out: a flow of the session alone, one without a count, one without credit.
    peer.put(0, &Flow { handle: None, delivery_count: None, link_credit: None, ..flow(0, 0, 0) });
    peer.put(0, &Flow { link_credit: None, ..flow(0, 1, 0) });
    peer.is_alive(1);
    peer.put(0, &Flow { delivery_count: None, ..flow(0, 0, 2) });
    expect_messages(&mut peer, 1);
    // All the credit there is: the rest, once.
    peer.put(0, &flow(0, 2, u32::MAX));
    expect_messages(&mut peer, 4);
    peer.is_alive(1);
    witness.goes_on();
    drop((witness, peer));
    assert_eq!(broker.stop(), [""; 0]);
}

#[track_caller]
fn expect_messages(peer: &mut Peer, count: usize) {
    for _ in 0..count {
        let (Performative::Transfer(transfer), _) = peer.next_but_flow() else { panic!("no message") };
        peer.accept(transfer.delivery_id.unwrap());
    }
    peer.is_alive(1);
}

#[test]
fn a_flow_without_its_mandatory_fields_closes_the_connection() {
    closes("amqp:decode-error", "incoming_window", |peer| {
        peer.begin(0);
        peer.write(&raw_frame(0, &[0x00, 0x53, 0x13, 0xc0, 2, 1, 0x43]));
    });
}

/// The session is ended with this error; the connection and its other sessions live on.
#[track_caller]
fn ends(condition: &str, said: &str, act: impl FnOnce(&mut Peer)) {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.begin(0);
    peer.begin(1);
    act(&mut peer);
    peer.expect_end(condition);
    peer.put(1, &sender(0, "q"));
    assert!(matches!(peer.next_but_flow(), (Performative::Attach(_), _)));
    peer.is_alive(2);
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["client=bad", said]);
}

#[test]
fn what_breaks_the_rules_of_a_session_ends_it() {
    ends("amqp:session:unattached-handle", "handle 7", |peer| peer.put(0, &flow(7, 0, 1)));
    ends("amqp:session:unattached-handle", "handle 7", |peer| {
        peer.put(0, &Detach { handle: 7, closed: true, error: None });
    });
    ends("amqp:invalid-field", "delivery-id", |peer| {
        peer.attach_sender(0, "q");
        peer.put_payload(0, &Transfer { delivery_id: None, ..transfer(0, 0) }, b"x");
    });
}

#[test]
fn a_peer_whose_own_limits_leave_no_answer_is_told() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.put(0, &Begin { handle_max: 0, ..begin() });
    peer.next();
    peer.attach_sender(0, "q");
    peer.put(0, &sender(1, "w"));
    peer.expect_end("amqp:not-allowed");
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["client=bad", "handle-max"]);
}

#[test]
fn deliveries_without_credit_detach_the_link() {
    let broker = Broker::start("[limits]\nmemory = \"1MiB\"\n");
    let mut feeder = broker.open();
    feeder.begin(0);
    feeder.attach_sender(0, "q");
    // Two fill the memory. The third was allowed before, and is taken; the fourth is more than too much.
    let large = "z".repeat(600_000);
    for id in 0..3 {
        feeder.send_in_pieces(0, id, &large);
        feeder.expect_accepted(id);
    }
    feeder.send_in_pieces(0, 3, &large);
    let error = feeder.expect_rejected(3, "amqp:resource-limit-exceeded");
    assert_eq!(reason(&error), "LIMIT_REACHED");
    // Whoever comes now has no credit.
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_sender(0, "q");
    peer.send(0, 0, "no credit");
    peer.expect_detach(0, "amqp:link:transfer-limit-exceeded");
    peer.is_alive(1);
    // A consumer takes the messages, and everything goes on.
    let mut consumer = broker.open();
    consumer.begin(0);
    consumer.attach_receiver(0, "q", 10);
    expect_whole_messages(&mut consumer, 3);
    feeder.send(0, 4, "room again");
    feeder.expect_accepted(4);
    let warnings = broker.stop();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(warnings[0].contains("LIMIT_REACHED") && warnings[1].contains("link credit"), "{warnings:#?}");
}

#[track_caller]
fn expect_whole_messages(peer: &mut Peer, count: usize) {
    let mut whole = 0;
    while whole < count {
        let (Performative::Transfer(transfer), _) = peer.next_but_flow() else { panic!("no message") };
        if let Some(id) = transfer.delivery_id.filter(|_| !transfer.more) {
            peer.accept(id);
        }
        whole += usize::from(!transfer.more);
    }
}
