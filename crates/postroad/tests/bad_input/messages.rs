//! Messages that are none, that hold what AMQP does not allow, or that are too large.

use crate::broker::Broker;
use crate::peer::{reason, text, transfer};
use postroad_amqp_codec::performative::{Performative, Transfer};

const BODY: &[u8] = b"\x00\x53\x77\xa1\x01x";
const QUEUE_SMALL: &str = "[[queue]]\nname = \"small\"\nmax_message_size = 1000\n";

/// Each of these messages is rejected for this reason, at one line of log in all. A settled one ends its link.
#[track_caller]
fn rejected(messages: &[Vec<u8>], condition: &str, said: &str) {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_sender(0, "q");
    let mut id = 0;
    for message in messages {
        peer.send_raw(0, id, message);
        let error = peer.expect_rejected(id, condition);
        assert_eq!(reason(&error), "BAD_MESSAGE");
        assert!(error.description.is_some_and(|text| text.contains(said)), "{}", message.escape_ascii());
        id += 1;
    }
    peer.send(0, id, "good");
    peer.expect_accepted(id);
    peer.put_payload(0, &Transfer { settled: Some(true), ..transfer(0, id + 1) }, &messages[0]);
    let error = peer.expect_detach(0, condition);
    assert_eq!(reason(&error), "BAD_MESSAGE");
    // Only the good one was stored.
    peer.attach_receiver(1, "q", 10);
    let (Performative::Transfer(_), payload) = peer.next_but_flow() else { panic!("no message") };
    assert!(payload.ends_with(&text("good")));
    peer.is_alive(1);
    witness.goes_on();
    drop((witness, peer));
    let warnings = broker.stop();
    assert_eq!(warnings.len(), 2, "one for the link's messages, one for its end: {warnings:#?}");
    assert!(warnings.iter().all(|line| line.contains("BAD_MESSAGE") && line.contains("client=bad")));
}

fn with_body(sections: &[&[u8]]) -> Vec<u8> {
    [&sections.concat(), BODY].concat()
}

#[test]
fn annotations_of_a_wrong_type_are_refused() {
    let string_key = b"\xc1\x06\x02\xa1\x01k\xa1\x00";
    let int_key = b"\xc1\x04\x02\x54\x05\x40";
    let delivery = b"\x00\x53\x71";
    let message = b"\x00\x53\x72";
    let footer = [BODY, b"\x00\x53\x78", string_key].concat();
    let bad = [
        with_body(&[message, string_key]),
        with_body(&[message, int_key]),
        with_body(&[delivery, string_key]),
        footer,
    ];
    rejected(&bad, "amqp:decode-error", "an annotation's key: symbol or ulong");
    rejected(&[with_body(&[message, b"\x45"])], "amqp:decode-error", "a section with a map");
}

#[test]
fn properties_of_a_wrong_type_are_refused() {
    let application = b"\x00\x53\x74";
    rejected(
        &[with_body(&[application, b"\xc1\x05\x02\xa3\x01k\x40"])],
        "amqp:decode-error",
        "expected string",
    );
    rejected(
        &[with_body(&[application, b"\xc1\x05\x02\xa1\x01k\x45"])],
        "amqp:decode-error",
        "a simple type",
    );
    // A message-id that is a boolean; a to that is a symbol; a header whose priority is an int.
    let bad = [
        with_body(&[b"\x00\x53\x73\xc0\x02\x01\x41"]),
        with_body(&[b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa3\x01q"]),
        with_body(&[b"\x00\x53\x70\xc0\x04\x02\x40\x54\x04"]),
    ];
    rejected(&bad, "amqp:decode-error", "expected");
}

#[test]
fn sections_out_of_order_twice_or_unknown_are_refused() {
    let header = b"\x00\x53\x70\x45";
    let annotations = b"\x00\x53\x72\xc1\x01\x00";
    let properties = b"\x00\x53\x73\x45";
    let bad = [
        with_body(&[annotations, header]),
        with_body(&[properties, annotations]),
        with_body(&[header, header]),
        with_body(&[annotations, annotations]),
        with_body(&[properties, properties]),
        with_body(&[BODY]),
        [BODY, properties].concat(),
        [BODY, b"\x00\x53\x75\xa0\x00"].concat(),
    ];
    rejected(&bad, "amqp:decode-error", "does not belong after");
    let garbage = [
        with_body(&[header, b"\x00\x53\x69\x45"]),
        with_body(&[header, b"\x00\xa3\x03foo\x45"]),
        with_body(&[annotations, b"\x00\x80\xff\xff\xff\xff\xff\xff\xff\xff\x45"]),
    ];
    rejected(&garbage, "amqp:decode-error", "a message section");
    let cut = [
        b"\x00\x53\x77\xb1\x00\x00\x10\x00short".to_vec(),
        with_body(&[header, b"\x00"]),
        with_body(&[header, b"\xff\xff"]),
        Vec::from(b"no message"),
        Vec::from(b"\x00"),
    ];
    rejected(&cut, "amqp:decode-error", "can't be read as AMQP 1.0");
}

#[test]
fn an_oversize_message_is_refused_by_the_link_or_by_its_store() {
    for config in [QUEUE_SMALL, "max_message_size = 1000\n[[queue]]\nname = \"small\"\n"] {
        let broker = Broker::start(config);
        let mut witness = broker.witness();
        let mut peer = broker.open();
        peer.begin(0);
        assert_eq!(peer.attach_sender(0, "small").max_message_size, Some(1_000));
        peer.send(0, 0, &"z".repeat(2_000));
        peer.expect_detach(0, "amqp:link:message-size-exceeded");
        // What would only show in the end is seen as soon as it is announced, or is there.
        peer.attach_sender(1, "small");
        let announced = text(&"z".repeat(50_000));
        peer.put_payload(0, &Transfer { more: true, ..transfer(1, 1) }, &announced[..100]);
        let error = peer.expect_detach(1, "amqp:link:message-size-exceeded");
        assert_eq!(reason(&error), "MSG_TOO_BIG");
        peer.attach_sender(2, "small");
        let section = [&b"\x00\x53\x75\xa0\xc8"[..], &[7; 200]].concat();
        for at in 0..5 {
            peer.put_payload(0, &Transfer { more: true, ..transfer(2, 2) }, &section);
            if at < 4 {
                peer.is_alive(1);
            }
        }
        peer.expect_detach(2, "amqp:link:message-size-exceeded");
        peer.attach_sender(3, "small");
        peer.send(3, 3, "fits");
        peer.expect_accepted(3);
        witness.goes_on();
        let warnings = broker.stop();
        assert_eq!(warnings.len(), 3, "{warnings:#?}");
    }
}

#[test]
fn an_oversize_message_for_an_address_of_its_own_is_rejected() {
    let broker = Broker::start(QUEUE_SMALL);
    let mut peer = broker.open();
    peer.begin(0);
    let mut relay = crate::peer::sender(0, "");
    relay.target = Some(postroad_amqp_codec::terminus::TargetKind::Target(Default::default()));
    peer.attach(&relay);
    let to = |address: &str, size: usize| {
        let mut to =
            vec![0x00, 0x53, 0x73, 0xc0, u8::try_from(address.len() + 5).unwrap(), 3, 0x40, 0x40, 0xa1];
        to.push(u8::try_from(address.len()).unwrap());
        to.extend_from_slice(address.as_bytes());
        [to, text(&"z".repeat(size))].concat()
    };
    peer.send_raw(0, 0, &to("small", 2_000));
    let error = peer.expect_rejected(0, "amqp:link:message-size-exceeded");
    assert_eq!(reason(&error), "MSG_TOO_BIG");
    peer.send_raw(0, 1, &to("nowhere", 10));
    peer.expect_rejected(1, "amqp:not-found");
    peer.send_raw(0, 2, &to("small", 100));
    peer.expect_accepted(2);
    broker.warned_once(&["MSG_TOO_BIG", "further ones on this link are counted only"]);
}
