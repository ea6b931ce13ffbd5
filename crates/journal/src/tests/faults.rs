//! A disk that fails or is full.

use super::{commit, flush, open};
use crate::{AppendError, Checkpoint, Error, FreeError, Label, MemDisk, MemFault, Operation, Space, Work};

#[test]
fn after_a_failed_sync_nothing_is_promised() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"confirmed"]);
    disk.inject(MemFault::FailSync(1));
    opened.journal.append(Label::kind(1), &[b"in doubt"]).unwrap();
    let error = flush(&mut opened).unwrap_err();
    assert!(
        matches!(&error, Error::Io { operation: Operation::Sync, file, .. } if file == "memory/00000001.seg")
    );
    assert_eq!(
        error.to_string(),
        "cannot sync journal file memory/00000001.seg: fault injected into the memory disk"
    );
    assert!(matches!(opened.writer.sync(), Err(Error::PreviousIo)));
    assert!(matches!(opened.writer.write(&[]), Err(Error::PreviousIo)));
    assert!(matches!(opened.writer.mark_tail(), Err(Error::PreviousIo)));
    assert!(matches!(opened.keeper.work(), Err(Error::PreviousIo)));
    assert_eq!(opened.journal.append(Label::kind(1), &[]), Err(AppendError::PreviousIo));
    assert_eq!(opened.journal.durable(), crate::Lsn(1));
}

#[test]
fn after_a_failed_write_nothing_is_promised() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"confirmed"]);
    disk.inject(MemFault::FailWrite(1));
    opened.journal.append(Label::kind(1), &[b"in doubt"]).unwrap();
    assert!(matches!(flush(&mut opened), Err(Error::Io { operation: Operation::Write, .. })));
    assert!(matches!(opened.writer.sync(), Err(Error::PreviousIo)));
    drop(opened);
    assert_eq!(open(&disk).unwrap().1[0], b"confirmed");
}

#[test]
fn a_failed_checkpoint_ends_everything_too() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let first = commit(&mut opened, &[b"checkpoint"])[0];
    while opened.keeper.work().unwrap() != Work::Nothing {}
    opened.journal.complete_checkpoint(Checkpoint { first, last: first.lsn });
    disk.inject(MemFault::FailWrite(1));
    assert!(matches!(opened.keeper.work(), Err(Error::Io { .. })));
    assert!(matches!(opened.writer.sync(), Err(Error::PreviousIo)));
}

/// Fills the journal until the disk is full: the owner hears of it while there is room for what frees space again.
#[test]
fn a_full_disk_is_met_early_and_space_comes_back() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    disk.set_capacity(Some(60 << 10));
    let mut last = Vec::new();
    while !matches!(opened.journal.space(), Space::Full { .. }) {
        last = commit(&mut opened, &[&[7; 1000]]);
        while !matches!(opened.keeper.work().unwrap(), Work::Nothing | Work::NoSpace) {}
    }
    let Space::Full { left } = opened.journal.space() else { panic!() };
    assert!(left > 10_000, "only {left} bytes are left");
    // What takes from the store goes on: acknowledgements, and a checkpoint that frees segments.
    let checkpoint = commit(&mut opened, &[b"acknowledged", b"checkpoint"]);
    opened.journal.complete_checkpoint(Checkpoint { first: checkpoint[1], last: checkpoint[1].lsn });
    assert_eq!(opened.journal.free_before(last[0].location.segment).map_err(drop), Err(()));
    assert!(matches!(opened.keeper.work().unwrap(), Work::Checkpointed(_)));
    assert!(opened.journal.free_before(checkpoint[1].location.segment).unwrap() > 1);
    assert_eq!(opened.keeper.work().unwrap(), Work::Removed(crate::SegmentNumber::new(1, 1)));
    assert_eq!(opened.keeper.work().unwrap(), Work::Ready);
    assert_eq!(opened.journal.space(), Space::Ample);
    drop(opened);
    assert_eq!(open(&disk).unwrap().1, [b"checkpoint"]);
}

#[test]
fn a_full_disk_ends_in_no_space_and_not_in_a_failure() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    disk.set_capacity(Some(0));
    assert_eq!(opened.keeper.work().unwrap(), Work::Nothing);
    opened.journal.append(Label::kind(1), &[b"the last ready segment is taken"]).unwrap();
    assert_eq!(opened.keeper.work().unwrap(), Work::NoSpace);
    let error = loop {
        if let Err(error) = opened.journal.append(Label::kind(1), &[&[0; 1000]]) {
            break error;
        }
    };
    assert_eq!(error, AppendError::NoSpace { size: 16 << 10 });
    flush(&mut opened).unwrap();
    let last = opened.journal.durable();
    drop(opened);
    // It opens on the full disk, and says what there is.
    let (mut opened, payloads) = open(&disk).unwrap();
    assert_eq!(payloads.len() as u64, last.0);
    assert_eq!(opened.journal.space(), Space::Full { left: 0 });
    assert!(matches!(opened.journal.append(Label::kind(1), &[b"x"]), Err(AppendError::NoSpace { .. })));
    disk.set_capacity(None);
    while opened.journal.space() != Space::Ample {
        assert!(matches!(opened.keeper.work().unwrap(), Work::Noted(_) | Work::Ready));
    }
    commit(&mut opened, &[b"goes on"]);
}

/// Segments that are ready are of no use to a frame that is larger than they are, and all others wait behind it.
#[test]
fn a_disk_without_room_for_a_large_frame_is_full() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"small"]);
    while opened.keeper.work().unwrap() != Work::Nothing {}
    assert_eq!(opened.journal.space(), Space::Ample);
    disk.set_capacity(Some(0));
    let large = vec![1; 40 << 10];
    let append = |opened: &mut crate::Opened| opened.journal.append(Label::kind(1), &[&large]);
    assert!(matches!(append(&mut opened), Err(AppendError::NotReady { .. })));
    assert_eq!(opened.keeper.work().unwrap(), Work::NoSpace);
    assert!(matches!(opened.journal.space(), Space::Full { .. }));
    assert!(matches!(append(&mut opened), Err(AppendError::NoSpace { .. })));
    // It is tried again without being asked again, and so found when there is room.
    assert_eq!(opened.keeper.work().unwrap(), Work::NoSpace);
    disk.set_capacity(None);
    assert_eq!(opened.keeper.work().unwrap(), Work::Ready);
    assert_eq!(opened.journal.space(), Space::Ample);
    assert!(append(&mut opened).is_ok());
}

#[test]
fn a_segment_that_recovery_needs_is_not_freed() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let frame = commit(&mut opened, &[b"one"])[0];
    let segment = frame.location.segment;
    assert_eq!(opened.journal.free(segment), Err(FreeError::StillNeeded(segment)));
    opened.journal.complete_checkpoint(Checkpoint { first: frame, last: crate::Lsn(2) });
    while !matches!(opened.keeper.work().unwrap(), Work::Nothing) {}
    assert_eq!(opened.journal.recovery_start(), None, "the checkpoint is not durable yet");
    commit(&mut opened, &[b"two"]);
    assert!(matches!(opened.keeper.work().unwrap(), Work::Checkpointed(_)));
    assert_eq!(opened.journal.recovery_start(), Some(segment));
    assert_eq!(opened.journal.free(segment), Err(FreeError::StillNeeded(segment)));
    assert_eq!(opened.journal.free_before(segment), Ok(0));
}
