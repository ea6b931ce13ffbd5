//! Clients that say nothing, or do not listen.

use crate::broker::Broker;
use crate::peer::{HEADER, Peer, begin, frame, receiver, text};
use postroad_amqp_codec::performative::{Attach, End, Performative, SenderSettleMode};
use std::io::Write;
use std::time::Duration;

/// A frame that says nothing but that the client lives.
const BEAT: &[u8] = &[0, 0, 0, 8, 2, 0, 0, 0];

#[test]
fn a_socket_that_is_never_opened_is_closed() {
    let sasl: &[u8] = b"AMQP\x03\x01\0\0";
    // Silent from the start, inside a header, inside SASL, behind it, and behind the AMQP header.
    let anonymous = b"\0\0\0\x1a\x02\x01\0\0\x00\x53\x41\xc0\x0d\x01\xa3\x09ANONYMOUS";
    let init = &anonymous[..];
    let stages = [vec![], b"AM".to_vec(), sasl.to_vec(), [sasl, init].concat(), HEADER.to_vec()];
    let broker = Broker::start("[limits]\nlogin_timeout = \"300ms\"\n");
    let mut witness = broker.witness();
    let mut peers: Vec<Peer> = stages
        .iter()
        .map(|bytes| {
            let mut peer = Peer::connect(broker.address);
            peer.write(bytes);
            peer
        })
        .collect();
    witness.goes_on();
    let last = peers.last_mut().unwrap();
    assert_eq!(&last.read_exact(8)[..], HEADER);
    assert!(matches!(last.next(), (Performative::Open(_), _)));
    last.expect_close("amqp:resource-limit-exceeded");
    for peer in &mut peers {
        let mut came = Vec::new();
        std::io::Read::read_to_end(&mut peer.socket, &mut came).unwrap();
    }
    witness.goes_on();
    drop(witness);
    let warnings = broker.stop();
    assert_eq!(warnings.len(), stages.len(), "{warnings:#?}");
    assert!(warnings.iter().all(|line| line.contains("not opened within 300")), "{warnings:#?}");
}

#[test]
fn a_client_that_falls_silent_is_closed_and_one_that_beats_is_not() {
    let broker = Broker::start("[limits]\nidle_timeout = \"3s\"\n");
    let mut silent = broker.open();
    let mut beating = broker.open();
    let mut witness = broker.witness();
    let waiting = std::thread::spawn(move || silent.expect_close("amqp:resource-limit-exceeded"));
    while !waiting.is_finished() {
        witness.goes_on();
        beating.write(BEAT);
    }
    waiting.join().unwrap();
    beating.is_alive(0);
    witness.goes_on();
    drop(witness);
    broker.warned_once(&["nothing was received for 3000 milliseconds"]);
}

/// A message large enough that a few fill every buffer on the way.
fn large() -> Vec<u8> {
    text(&"z".repeat(60_000))
}

#[test]
fn a_client_that_never_reads_is_cut_and_loses_nothing() {
    const COUNT: u32 = 400;
    let broker = Broker::start("[limits]\nidle_timeout = \"1s\"\n");
    let mut witness = broker.witness();
    let mut feeder = broker.open();
    feeder.begin(0);
    feeder.attach_sender(0, "q");
    for id in 0..COUNT {
        feeder.send_raw(0, id, &large());
        feeder.expect_accepted(id);
    }
    let mut lazy = broker.open();
    lazy.begin(0);
    lazy.attach_receiver(0, "q", 1_000_000);
    // It lives, it only does not read, until it is cut.
    let beating = std::thread::spawn(move || while lazy.socket.write_all(BEAT).is_ok() {});
    let mut other = broker.open();
    other.begin(0);
    other.attach_receiver(0, "q", COUNT);
    let mut first = [false; COUNT as usize];
    let mut take = |other: &mut Peer, taken: &mut u32| {
        let (Performative::Transfer(transfer), _) = other.next_but_flow() else { panic!("no message") };
        if let Some(slot) = first.get_mut(*taken as usize) {
            *slot = transfer.more;
        }
        if !transfer.more {
            other.accept(transfer.delivery_id.unwrap());
            *taken += 1;
        }
    };
    let mut taken = 0;
    // What does not fit into the buffers of its socket goes to others at once.
    while taken < COUNT / 2 {
        take(&mut other, &mut taken);
    }
    witness.goes_on();
    broker.wait_for("a client does not read what waits for it");
    while taken < COUNT {
        take(&mut other, &mut taken);
    }
    beating.join().unwrap();
    other.is_alive(1);
    let mut witness = broker.witness();
    witness.goes_on();
    assert!(broker.stop().iter().filter(|line| line.contains("does not read")).count() == 1);
}

#[test]
fn a_client_that_wants_everything_settled_and_never_reads_takes_bounded_memory() {
    let broker = Broker::start("[limits]\nidle_timeout = \"30s\"\n");
    let mut lazy = broker.open();
    lazy.begin(0);
    lazy.attach(&Attach { snd_settle_mode: SenderSettleMode::Settled, ..receiver(0, "c") });
    lazy.put(0, &crate::peer::flow(0, 0, 1_000_000));
    lazy.is_alive(1);
    let mut feeder = broker.open();
    feeder.begin(0);
    feeder.attach_sender(0, "q");
    feeder.attach_sender(1, "c");
    let before = broker.resident();
    // 60 MB through the channel: what is sent is kept by the channel's log, once, and by nothing else.
    for id in 0..1_000 {
        feeder.send_raw(1, id, &large());
        feeder.expect_accepted(id);
    }
    let grown = broker.resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{} MiB more", grown >> 20);
    drop(lazy);
    drop(broker);
}

#[test]
fn a_client_that_leaves_its_answers_is_not_read_from_and_then_cut() {
    let broker = Broker::start("[limits]\nidle_timeout = \"1s\"\n");
    let before = broker.resident();
    let mut peer = broker.open();
    peer.socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let pair = [frame(0, &begin(), &[]), frame(0, &End::default(), &[])].concat();
    let flood = pair.repeat(1_000);
    let mut written = 0;
    while let Ok(count) = peer.socket.write(&flood[written % pair.len()..]) {
        written += count;
        assert!(written < 1 << 30, "it reads on and on");
    }
    let grown = broker.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB more for {} MiB of questions", grown >> 20, written >> 20);
    broker.wait_for("a client does not read what waits for it");
    let mut witness = broker.witness();
    witness.goes_on();
    drop(witness);
    broker.warned_once(&["client=bad"]);
}

#[test]
fn a_half_open_socket_holds_no_message() {
    let broker = Broker::start("[limits]\nidle_timeout = \"3s\"\n");
    let mut feeder = broker.open();
    feeder.begin(0);
    feeder.attach_sender(0, "q");
    feeder.send(0, 0, "one");
    feeder.expect_accepted(0);
    // From now on neither a word nor the end of the stream comes from this one.
    let mut gone = broker.open();
    gone.begin(0);
    gone.attach_receiver(0, "q", 1);
    assert!(matches!(gone.next_but_flow(), (Performative::Transfer(_), _)));
    let mut other = broker.open();
    other.begin(0);
    other.attach_receiver(0, "q", 1);
    let mut beats = other.socket.try_clone().unwrap();
    let waiting = std::thread::spawn(move || {
        let next = other.next_but_flow();
        (other, next)
    });
    while !waiting.is_finished() {
        beats.write_all(BEAT).unwrap();
    }
    let (other, next) = waiting.join().unwrap();
    let (Performative::Transfer(_), payload) = next else { panic!("no message: {next:?}") };
    assert!(payload.ends_with(b"one"));
    drop((feeder, gone, other));
    let warnings = broker.stop();
    assert!(warnings.iter().all(|line| line.contains("nothing was received")), "{warnings:#?}");
}
