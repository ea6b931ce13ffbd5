//! Starts, checkpoints that are whole and that are not, full disks, and the end.

use super::Broker;
use crate::{StopMark, Use};
use postroad_journal::{Disk, MemDisk, Stop};
use postroad_record::Record;

/// A broker whose queue holds `count` messages of `size` bytes, all durable.
fn with_messages(disk: &MemDisk, checkpoint_every: u64, count: u64, size: usize) -> Broker {
    let mut broker = Broker::start(disk, checkpoint_every);
    broker.make_queue("q");
    let (_, producer) = broker.producer(1, "q");
    for tag in 0..count {
        broker.publish(producer, tag, size);
        broker.turn();
        broker.settle();
    }
    broker
}

#[test]
fn a_start_reads_back_what_was_durable() {
    let disk = MemDisk::new();
    let broker = with_messages(&disk, u64::MAX, 20, 1_000);
    drop(broker);
    let mut broker = Broker::start(&disk.crash(5), u64::MAX);
    assert_eq!(broker.stop, Stop::Unclean);
    assert_eq!(broker.depth(), 20);
}

#[test]
fn a_start_begins_at_the_last_whole_checkpoint() {
    let disk = MemDisk::new();
    let mut broker = with_messages(&disk, 1, 20, 1_000);
    broker.purge("q");
    broker.turn();
    broker.settle();
    let (_, producer) = broker.producer(2, "q");
    for tag in 0..5 {
        broker.publish(producer, tag, 1_000);
    }
    broker.turn();
    broker.settle();
    drop(broker);
    let mut broker = Broker::start(&disk.crash(5), u64::MAX);
    assert_eq!(broker.frames.first(), Some(&Use::Checkpoint));
    assert_eq!(broker.depth(), 5);
}

/// Of a segment before the last checkpoint the journal does not know whether it is needed; whoever replays it does.
#[test]
fn a_segment_with_messages_must_be_there() {
    let disk = MemDisk::new();
    drop(with_messages(&disk, 1, 20, 4_000));
    let segments: Vec<String> =
        disk.list().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect();
    let mut refused = 0;
    for name in &segments {
        let disk = disk.copy();
        disk.flip_bit(name, 20, 0);
        match Broker::try_start(&disk, u64::MAX) {
            Ok(mut broker) => assert_eq!(broker.depth(), 20),
            Err(error) => {
                assert!(error.to_string().contains(name.as_str()), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 5, "{refused} of {segments:?}");
}

/// The keeper may tell of a checkpoint before the writer tells what is durable.
#[test]
fn a_checkpoint_tells_that_what_is_before_it_is_durable() {
    let mut broker = with_messages(&MemDisk::new(), 1, 3, 1_000);
    let (_, producer) = broker.producer(2, "q");
    let made = broker.shell.checkpoints();
    while broker.shell.checkpoints() == made {
        broker.settle();
        broker.publish(producer, 1, 1_000);
        broker.turn();
    }
    let before = broker.shell.durable();
    broker.sync_quietly();
    assert_eq!(broker.shell.durable(), before);
    while broker.keep() {}
    assert!(broker.shell.durable() > before);
}

/// What is free is used again soon, so that a journal through which much passes makes few segments.
#[test]
fn a_small_checkpoint_comes_when_it_frees_two_segments() {
    const EVERY: u64 = 160 << 10;
    let mut broker = Broker::start(&MemDisk::new(), EVERY);
    broker.make_queue("q");
    let (_, producer) = broker.producer(1, "q");
    let (begun, mut bytes) = (broker.shell.checkpoints(), 0);
    while broker.shell.checkpoints() == begun {
        broker.publish(producer, bytes, 4_000);
        broker.turn();
        broker.settle();
        broker.purge("q");
        broker.turn();
        broker.settle();
        bytes += 4_000;
    }
    assert!(bytes < EVERY / 2, "it came after {bytes} bytes");
}

/// A checkpoint of many segments makes those of the one before free, which alone is no reason for the next.
#[test]
fn a_large_checkpoint_is_not_followed_by_others_at_once() {
    // Of which each holds one piece of a checkpoint, and is nearly half empty.
    const SEGMENT: u64 = 128 << 10;
    let mut broker = Broker::start_with(&MemDisk::new(), 64 << 10, SEGMENT);
    for number in 0..1_000 {
        broker.make_queue(&format!("{number:0200}"));
    }
    broker.make_queue("q");
    let (_, producer) = broker.producer(1, "q");
    let before = broker.shell.checkpoints();
    assert!(before > 2);
    for tag in 0..200 {
        broker.publish(producer, tag, 100);
        broker.turn();
        broker.settle();
    }
    assert!(broker.shell.checkpoints() <= before + 1, "{} more", broker.shell.checkpoints() - before);
}

/// A checkpoint that a crash cut short stands behind the steps that it was to replace: its pieces must not be replayed over
/// them, or what its missing pieces held would be gone.
#[test]
fn half_a_checkpoint_takes_nothing_away() {
    let disk = MemDisk::new();
    let mut broker = with_messages(&disk, 1, 20, 60_000);
    for n in 0..400 {
        broker.make_queue(&format!("one-of-many-so-that-the-state-has-several-pieces-{n}"));
    }
    broker.make_queue("churn");
    let (_, producer) = broker.producer(2, "churn");
    let (mut passed, begun) = (0, broker.shell.checkpoints());
    while broker.shell.checkpoints() < begun + 2 {
        let before = broker.shell.checkpoints();
        broker.publish(producer, 0, 60_000);
        broker.turn();
        broker.settle();
        broker.purge("churn");
        broker.turn();
        if broker.shell.checkpoints() == before {
            broker.settle();
            continue;
        }
        // The state has more than one piece, each in a segment of its own: the process may die between them.
        broker.settle_watched(|| {
            let mut after = Broker::start(&disk.copy(), u64::MAX);
            assert_eq!(after.depth(), 20);
            passed += after.frames.iter().filter(|used| **used == Use::Passed).count();
        });
    }
    assert!(passed > 0, "no copy held a part of a checkpoint, so this shows nothing");
}

/// Publishes more in one turn than there is room for; gives how many.
fn overfill(broker: &mut Broker, disk: &MemDisk) -> u64 {
    let (_, producer) = broker.producer(2, "q");
    disk.set_capacity(Some(0));
    for tag in 0..100 {
        broker.publish(producer, tag, 1_000);
    }
    broker.turn();
    broker.settle();
    broker.publish(producer, 100, 1_000);
    broker.turn();
    broker.settle();
    100
}

#[test]
fn what_finds_no_room_waits_and_is_not_confirmed() {
    let disk = MemDisk::new();
    let mut broker = with_messages(&disk, u64::MAX, 1, 1_000);
    broker.take_sent();
    let count = overfill(&mut broker, &disk);
    assert!(broker.shell.is_stuck() && !broker.shell.is_idle());
    // The steps of a turn are confirmed together, so not even those are that found room; a refusal waits behind them.
    assert_eq!(broker.take_sent(), []);
    disk.set_capacity(None);
    broker.settle();
    let sent: Vec<String> = broker.take_sent().into_iter().flat_map(|(_, words)| words).collect();
    assert_eq!(sent, [format!("accepted 0..{}", count - 1), format!("refused {count}")]);
    assert!(broker.shell.is_idle());
}

/// A copy of the folder is started and stopped in order before anybody publishes to it. What it numbers after the next
/// start must not carry the identity under which its original goes on (DUP-3).
#[test]
fn an_orderly_stop_does_not_prove_what_the_start_did_not() {
    let disk = MemDisk::new();
    drop(with_messages(&disk, u64::MAX, 1, 10));
    let copy = disk.copy();
    let mut broker = Broker::start(&copy, u64::MAX);
    let mut renewed = 0;
    let mark = broker.shell.stop(|step| renewed += renewals(&step.payload)).unwrap();
    assert!(matches!(mark, StopMark::Clean));
    assert!(renewed > 0, "no store has a new identity");
    broker.pass_on();
    broker.sync_quietly();
    drop(broker);
    let mut broker = Broker::start(&copy, u64::MAX);
    assert_eq!(broker.stop, Stop::Clean);
    let mut renewed = 0;
    broker.shell.stop(|step| renewed += renewals(&step.payload)).unwrap();
    assert_eq!(renewed, 0, "what was proved stays as it is");
}

fn renewals(payload: &[u8]) -> usize {
    let records = postroad_record::decode_step(payload).unwrap();
    records.iter().filter(|record| matches!(record, Record::StoreUidRenewed { .. })).count()
}

#[test]
fn a_clean_stop_is_marked_only_when_nothing_waits() {
    let disk = MemDisk::new();
    let mut broker = with_messages(&disk, u64::MAX, 3, 1_000);
    assert!(matches!(broker.shell.stop(|_| ()).unwrap(), StopMark::Clean));
    broker.pass_on();
    broker.sync_quietly();
    drop(broker);
    let mut broker = Broker::start(&disk, u64::MAX);
    assert_eq!(broker.stop, Stop::Clean);
    overfill(&mut broker, &disk);
    assert!(matches!(broker.shell.stop(|_| ()).unwrap(), StopMark::NoRoom(1..)));
}

#[test]
fn an_orderly_end_leaves_little_to_read() {
    let disk = MemDisk::new();
    // What 20 messages take is more than a sixteenth of this, and less than all of it.
    let every = 200_000;
    let mut broker = with_messages(&disk, every, 20, 1_000);
    assert_eq!(broker.shell.checkpoints(), 0);
    broker.shell.checkpoint_at_end().unwrap();
    assert!(broker.shell.is_checkpointing());
    broker.pass_on();
    broker.settle();
    assert!(!broker.shell.is_checkpointing());
    broker.shell.checkpoint_at_end().unwrap();
    assert_eq!(broker.shell.checkpoints(), 1, "one is enough");
    assert!(matches!(broker.shell.stop(|_| ()).unwrap(), StopMark::Clean));
    broker.pass_on();
    broker.sync_quietly();
    drop(broker);

    let mut broker = Broker::start(&disk, every);
    assert_eq!((broker.stop, broker.frames.first()), (Stop::Clean, Some(&Use::Checkpoint)));
    assert!(broker.frames.len() < 6, "{:?}", broker.frames);
    assert_eq!(broker.depth(), 20);
    broker.shell.checkpoint_at_end().unwrap();
    assert!(!broker.shell.is_checkpointing(), "nothing was written since");
}

#[test]
fn a_last_checkpoint_that_finds_no_room_does_not_spoil_the_stop() {
    let disk = MemDisk::new();
    let every = 200_000;
    let mut broker = with_messages(&disk, every, 20, 1_000);
    for number in 0..300 {
        broker.make_queue(&format!("queue-{number}"));
    }
    broker.settle();
    // The state does not fit into a usual segment, and there is no room for a larger one.
    disk.set_capacity(Some(0));
    broker.shell.checkpoint_at_end().unwrap();
    broker.pass_on();
    broker.settle();
    assert!(broker.shell.is_stuck() && broker.shell.is_checkpointing());
    assert!(matches!(broker.shell.stop(|_| ()).unwrap(), StopMark::Clean));
    assert!(!broker.shell.is_checkpointing());
    broker.pass_on();
    broker.sync_quietly();
    drop(broker);
    disk.set_capacity(None);
    let mut broker = Broker::start(&disk, every);
    assert_eq!((broker.stop, broker.depth()), (Stop::Clean, 20));
}
