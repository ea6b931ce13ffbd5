//! Where frames go: batches, segments, recycling, frames larger than a segment.

use std::sync::Arc;

use proptest::prelude::*;

use super::{commit, open, open_with};
use crate::frame::frame_size;
use crate::{AppendError, Checkpoint, Label, LogId, Lsn, MemDisk, Options, Work};

#[test]
fn labels_and_payloads_come_back() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let label = Label { log: LogId(77), kind: 239, version: 5 };
    let appended = opened.journal.append(label, &[b"a", b"", b"bc"]).unwrap();
    let batch = opened.journal.take_batch().unwrap();
    assert_eq!(batch.payload(&appended.location).unwrap(), b"abc".as_slice());
    assert_eq!((batch.last(), batch.bytes()), (Lsn(1), 40));
    assert!(opened.journal.take_batch().is_none());
    opened.writer.write(&[batch]).unwrap();
    assert_eq!(opened.writer.sync().unwrap(), Lsn(1));
    let read = opened.reader.read(&appended.location).unwrap();
    assert_eq!((read.lsn, read.label, read.payload()), (Lsn(1), label, b"abc".as_slice().into()));
    drop(opened);
    let mut recovery = crate::Recovery::open(Arc::new(disk.clone()), Options::small(), super::ID).unwrap();
    let frame = recovery.next_frame().unwrap().unwrap();
    assert_eq!((frame.lsn, frame.label, frame.location), (Lsn(1), label, appended.location));
    assert_eq!(frame.payload, b"abc");
    assert!(recovery.next_frame().unwrap().is_none());
}

#[test]
fn refusals_change_nothing() {
    let disk = MemDisk::new();
    let mut opened =
        open_with(Arc::new(disk.clone()), Options { max_payload: 100, ..Options::small() }).unwrap().0;
    for kind in [0, 240, 241, 255] {
        assert_eq!(opened.journal.append(Label::kind(kind), &[]), Err(AppendError::ReservedKind(kind)));
    }
    let too_large = Err(AppendError::TooLarge { length: 101, max: 100 });
    assert_eq!(opened.journal.append(Label::kind(1), &[&[0; 50], &[0; 51]]), too_large);
    opened.journal.append(Label::kind(1), &[b"first"]).unwrap();
    let pending = opened.journal.pending_bytes();
    assert_eq!(opened.journal.append_with(Label::kind(1), |buffer| buffer.resize(101, 0)), too_large);
    assert_eq!((opened.journal.pending_bytes(), opened.journal.next_lsn()), (pending, Lsn(2)));
    commit(&mut opened, &[b"second"]);
    drop(opened);
    assert_eq!(open(&disk).unwrap().1, [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let wrong = [
        Options { segment_size: 4096, ..Options::small() },
        Options { segment_size: 10_000, ..Options::small() },
        Options { segment_size: 1 << 32, ..Options::default() },
        Options { first_segment_size: 1 << 20, ..Options::small() },
        Options { ready_ahead: 0, ..Options::small() },
        Options { max_payload: u32::MAX, ..Options::small() },
    ];
    for options in wrong {
        assert!(matches!(open_with(Arc::new(MemDisk::new()), options), Err(crate::Error::Options(_))));
    }
    Options::default().check().unwrap();
}

#[test]
fn a_frame_larger_than_a_segment_gets_its_own() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let large = vec![9; 100_000];
    assert_eq!(
        opened.journal.append(Label::kind(1), &[&large]),
        Err(AppendError::NotReady { size: 25 * 4096 + 4096 })
    );
    commit(&mut opened, &[b"before", &large, b"after"]);
    let sizes: Vec<_> = opened.journal.segments().iter().map(|segment| segment.size).collect();
    assert_eq!(sizes, [8 << 10, 26 * 4096]);
    let checkpoint = commit(&mut opened, &[&[1; 12_000], b"checkpoint"]);
    assert_eq!(opened.journal.segments().len(), 3);
    opened.journal.complete_checkpoint(Checkpoint { first: checkpoint[1], last: checkpoint[1].lsn });
    assert!(matches!(opened.keeper.work().unwrap(), Work::Checkpointed(_)));
    opened.journal.free_before(checkpoint[1].location.segment).unwrap();
    assert!(matches!(opened.keeper.work().unwrap(), Work::Removed(_)));
    assert!(matches!(opened.keeper.work().unwrap(), Work::Removed(_)), "files of unusual sizes are not kept");
    drop(opened);
    assert_eq!(open(&disk).unwrap().1, [b"checkpoint"]);
}

/// Old frames lie behind new ones in a recycled file; they have another generation and are not read.
#[test]
fn a_recycled_segment_shows_nothing_old() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let mut files = std::collections::BTreeSet::new();
    for round in 0..20_u8 {
        for _ in 0..14 {
            commit(&mut opened, &[&[round; 1000]]);
        }
        let checkpoint = commit(&mut opened, &[b"checkpoint"])[0];
        opened.journal.complete_checkpoint(Checkpoint { first: checkpoint, last: checkpoint.lsn });
        while opened.keeper.work().unwrap() != Work::Nothing {}
        opened.journal.free_before(checkpoint.location.segment).unwrap();
        while opened.keeper.work().unwrap() != Work::Nothing {}
        files.extend(opened.journal.segments().into_iter().map(|segment| segment.file));
        let disk = disk.copy();
        let mut opened = open(&disk).unwrap().0;
        assert_eq!(opened.recovered.last, checkpoint.lsn);
        commit(&mut opened, &[b"goes on"]);
        drop(opened);
        assert_eq!(open(&disk).unwrap().1.len(), 2);
    }
    assert!(files.len() < 8, "{files:?} were needed although segments are recycled");
    assert!(opened.journal.segments()[0].number > crate::SegmentNumber::new(1, 15));
}

/// An old frame behind new ones has the very number that is expected there; only its generation gives it away.
#[test]
fn an_old_frame_with_the_expected_number_is_not_read() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"one"]);
    while opened.keeper.work().unwrap() != Work::Nothing {}
    let torn = opened.journal.append(Label::kind(1), &[&[2; 3900]]).unwrap();
    opened.journal.append(Label::kind(1), &[&[3; 32]]).unwrap();
    let old = opened.journal.append(Label::kind(1), &[b"old"]).unwrap();
    assert_eq!((old.lsn, old.location.offset), (Lsn(4), 4096 + 40 + 64));
    let batch = opened.journal.take_batch().unwrap();
    opened.writer.write(&[batch]).unwrap();
    drop(opened);
    disk.flip_bit("00000001.seg", torn.location.offset as usize, 0);

    let (mut opened, payloads) = open(&disk).unwrap();
    assert_eq!(payloads, [b"one"]);
    let label = Label::kind(1);
    let new = [opened.journal.append(label, &[]).unwrap(), opened.journal.append(label, &[]).unwrap()];
    assert_eq!(opened.journal.segments()[1].file, "memory/00000002.seg", "the test needs the same file");
    assert_eq!((new[1].lsn, new[1].location.offset + 32), (Lsn(3), old.location.offset));
    let batch = opened.journal.take_batch().unwrap();
    opened.writer.write(&[batch]).unwrap();
    opened.writer.sync().unwrap();
    drop(opened);
    assert_eq!(open(&disk).unwrap().1, [b"one".as_slice(), b"", b""]);
}

/// A frame of the right generation at a wrong place, as a disk that writes to a wrong place would leave it.
#[test]
fn a_frame_with_another_number_is_damage() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let frames = commit(&mut opened, &[b"one", b"two"]);
    drop(opened);
    let mut content = disk.content("00000001.seg").unwrap();
    let at = |frame: usize| frames[frame].location.offset as usize;
    content.copy_within(at(0)..at(1), at(1));
    disk.put("00000001.seg", content);
    let Err(crate::Error::Damage(damage)) = open(&disk) else { panic!("the damage is not seen") };
    assert_eq!(damage.flaw, crate::Flaw::WrongFrame { expected: Lsn(2), found: Lsn(1) });
    assert_eq!(damage.offset, u64::from(frames[1].location.offset));
}

#[test]
fn batches_in_the_wrong_order_are_a_mistake_of_the_owner() {
    let mut opened = open(&MemDisk::new()).unwrap().0;
    opened.journal.append(Label::kind(1), &[b"one"]).unwrap();
    let one = opened.journal.take_batch().unwrap();
    opened.journal.append(Label::kind(1), &[b"two"]).unwrap();
    let two = opened.journal.take_batch().unwrap();
    let wrong = std::panic::AssertUnwindSafe(|| opened.writer.write(&[two, one]));
    assert!(std::panic::catch_unwind(wrong).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Both ways to append lay out the same bytes, however the frames are spread over batches.
    #[test]
    fn append_and_append_with_agree(payloads in prop::collection::vec((0_usize..9000, any::<u8>(), any::<bool>()), 1..40)) {
        let (one, two) = (MemDisk::new(), MemDisk::new());
        let mut parts = open(&one).unwrap().0;
        let mut closure = open(&two).unwrap().0;
        for (length, byte, ends_batch) in payloads {
            let payload = vec![byte; length];
            while matches!(parts.journal.append(Label::kind(1), &[&payload]), Err(AppendError::NotReady { .. })) {
                parts.keeper.work().unwrap();
            }
            while matches!(
                closure.journal.append_with(Label::kind(1), |buffer| buffer.extend_from_slice(&payload)),
                Err(AppendError::NotReady { .. })
            ) {
                closure.keeper.work().unwrap();
            }
            prop_assert_eq!(parts.journal.pending_bytes(), closure.journal.pending_bytes());
            if ends_batch {
                super::flush(&mut parts).unwrap();
                super::flush(&mut closure).unwrap();
            }
        }
        for name in crate::Disk::list(&one).unwrap() {
            prop_assert_eq!(one.content(&name), two.content(&name));
        }
    }

    #[test]
    fn frames_are_aligned(length in 0_u64..1 << 32) {
        let size = frame_size(length);
        prop_assert!(size.is_multiple_of(8) && size >= length + 32 && size < length + 40);
    }
}
