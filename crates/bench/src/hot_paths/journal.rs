//! Frames into batches of a journal. Nothing is written: what a disk in memory does is not what a real one does.

use std::sync::Arc;

use postroad_journal::{JournalId, Label, MemDisk, Options, Recovery};

use super::{BATCH, SEGMENT, message};

/// Appends frames and takes each batch of them, sealed and ready to be written.
pub(super) fn append(count: u32) {
    let payload = message(true);
    let options = Options { segment_size: SEGMENT, first_segment_size: SEGMENT, ..Options::default() };
    let recovery = Recovery::open(Arc::new(MemDisk::new()), options, JournalId(*b"postroad-limits!"));
    let mut recovery = recovery.expect("a disk in memory does not fail");
    assert!(recovery.next_frame().expect("it is empty").is_none());
    let mut opened = recovery.finish().expect("a disk in memory does not fail");
    let mut batches = 0;
    for _ in (0..count).step_by(BATCH as usize) {
        for _ in 0..BATCH {
            let appended = opened.journal.append(Label::kind(1), &[&payload]);
            appended.expect("the segment takes more than any count of this program");
        }
        batches += u32::from(opened.journal.take_batch().is_some());
    }
    assert_eq!(batches * BATCH, count, "every batch is there");
}
