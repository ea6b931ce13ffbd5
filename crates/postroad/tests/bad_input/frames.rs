//! Bytes that are no AMQP, or no AMQP that makes sense: the connection they came on ends, and no other.

use crate::broker::Broker;
use crate::peer::{HEADER, Peer, begin, frame, sender, transfer};
use postroad_amqp_codec::performative::{Open, Performative, Transfer};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

/// What comes back until the socket is closed, for bytes that are written at once.
fn answer(broker: &Broker, bytes: &[u8]) -> Vec<u8> {
    let mut peer = Peer::connect(broker.address);
    // The broker may have closed the socket before it has read all.
    let _ = peer.socket.write_all(bytes);
    let _ = peer.socket.shutdown(Shutdown::Write);
    let mut came = Vec::new();
    match peer.socket.read_to_end(&mut came) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the socket is not closed: {error}"),
    }
    came
}

#[test]
fn what_is_no_header_is_told_the_header_that_is_served() {
    let sasl_header = b"AMQP\x03\x01\0\0";
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x10\x24\x00\x04MQTT",
        b"AMQP\0\x00\x09\x01",
        b"AMQP\x07\x01\0\0",
    ] {
        let broker = Broker::start("");
        let mut witness = broker.witness();
        assert_eq!(answer(&broker, bytes), sasl_header, "{}", bytes.escape_ascii());
        witness.goes_on();
        broker.warned_once(&["no common protocol"]);
    }
}

#[test]
fn random_bytes_end_their_connection_only() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    // The same noise in every run: a linear congruential generator.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = |count: usize| -> Vec<u8> {
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .take(count)
        .collect()
    };
    let open = frame(0, &Open { container_id: "noise".into(), ..Open::default() }, &[]);
    let session = frame(0, &begin(), &[]);
    let link = frame(0, &sender(0, "q"), &[]);
    let starts =
        [vec![], HEADER.to_vec(), [HEADER, &open].concat(), [HEADER, &open, &session, &link].concat()];
    let rounds = 50;
    for _ in 0..rounds {
        for start in &starts {
            let mut bytes = start.clone();
            bytes.extend(noise(400));
            answer(&broker, &bytes);
        }
        witness.goes_on();
    }
    let warnings = broker.stop();
    assert!(warnings.len() <= rounds * starts.len(), "more than one line for a connection");
    // A frame whose size is never reached is no fault, but most noise is seen at once.
    assert!(warnings.len() > rounds * starts.len() / 2, "{} lines", warnings.len());
}

/// After an open connection with a session, these bytes close it with this error.
#[track_caller]
fn closes(bytes: &[u8], condition: &str) {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_sender(0, "q");
    peer.write(bytes);
    peer.expect_close(condition);
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["client=bad"]);
}

#[test]
fn malformed_frames_close_the_connection() {
    // Larger than we take, shorter than its header, a data offset outside of it, an unknown type.
    closes(b"\xff\xff\xff\xff\x02\0\0\0", "amqp:connection:framing-error");
    closes(b"\0\0\0\x07\x02\0\0\0", "amqp:connection:framing-error");
    closes(b"\0\0\0\x08\x09\0\0\0", "amqp:connection:framing-error");
    closes(b"\0\0\0\x08\x02\x07\0\0", "amqp:connection:framing-error");
    // An unknown performative, a performative that is no list, a field of another type, a SASL frame behind SASL.
    closes(b"\0\0\0\x0c\x02\0\0\0\x00\x53\x99\x45", "amqp:decode-error");
    closes(b"\0\0\0\x0d\x02\0\0\0\x00\x53\x14\xa1\x00", "amqp:decode-error");
    closes(b"\0\0\0\x10\x02\0\0\0\x00\x53\x14\xc0\x03\x01\xa1\x00", "amqp:decode-error");
    closes(b"\0\0\0\x10\x02\x01\0\0\x00\x53\x44\xc0\x03\x01\x50\x00", "amqp:connection:framing-error");
}

#[test]
fn frames_out_of_turn_close_the_connection() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = Peer::connect(broker.address);
    peer.write(HEADER);
    peer.put(0, &begin());
    assert_eq!(&peer.read_exact(8)[..], HEADER);
    assert!(matches!(peer.next(), (Performative::Open(_), _)), "an open goes before the close");
    peer.expect_close("amqp:illegal-state");
    witness.goes_on();
    drop((witness, peer));
    broker.warned_once(&["expected an open frame first"]);
    closes(&frame(0, &Open { container_id: "again".into(), ..Open::default() }, &[]), "amqp:illegal-state");
}

#[test]
fn a_connection_that_breaks_inside_a_message_leaves_nothing_of_it() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_sender(0, "q");
    peer.send(0, 0, "whole");
    peer.expect_accepted(0);
    peer.put_payload(0, &Transfer { more: true, ..transfer(0, 1) }, b"\x00\x53\x77\xb1\x00\x00\x10\x00half");
    drop(peer);
    let mut consumer = broker.open();
    consumer.begin(0);
    consumer.attach_receiver(0, "q", 10);
    let (Performative::Transfer(transfer), payload) = consumer.next_but_flow() else { panic!("no message") };
    assert!(payload.ends_with(b"whole"));
    consumer.accept(transfer.delivery_id.unwrap());
    consumer.is_alive(1);
    witness.goes_on();
    drop((witness, consumer));
    assert_eq!(broker.stop(), [""; 0]);
}
