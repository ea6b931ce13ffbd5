//! The writer's threads: group commit, order, failures, space.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::{ID, open, open_with};
use crate::{
    AppendError, Checkpoint, Error, Event, FileDisk, Journal, Label, Lsn, MemDisk, MemFault, Opened, Options,
    Recovery, Writer,
};

fn start(opened: Opened) -> (Journal, Writer, Receiver<Event>) {
    let (sender, events): (Sender<Event>, _) = channel();
    let writer = Writer::start(opened.writer, opened.keeper, move |event| drop(sender.send(event))).unwrap();
    (opened.journal, writer, events)
}

fn append(journal: &mut Journal, writer: &Writer, payload: &[u8]) -> crate::Appended {
    loop {
        match journal.append(Label::kind(1), &[payload]) {
            Ok(appended) => return appended,
            Err(AppendError::NotReady { .. }) => {
                assert!(writer.wait_space(u32::try_from(payload.len()).unwrap()).unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn many_threads_append_and_wait() {
    const THREADS: u32 = 8;
    const EACH: u32 = 200;
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_size: 64 << 10, ..Options::small() };
    let disk = || Arc::new(FileDisk::new(folder.path()).unwrap());
    let (journal, writer, events) = start(open_with(disk(), options.clone()).unwrap().0);
    let journal = Mutex::new(journal);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, writer) = (&journal, &writer);
            scope.spawn(move || {
                for index in 0..EACH {
                    let payload = [thread.to_le_bytes(), index.to_le_bytes()].concat().repeat(20);
                    let mut journal = journal.lock().unwrap();
                    let lsn = append(&mut journal, writer, &payload).lsn;
                    writer.submit(journal.take_batch().unwrap()).unwrap();
                    drop(journal);
                    if index % 10 == 0 {
                        writer.wait_durable(lsn).unwrap();
                        assert!(writer.durable() >= lsn);
                    }
                }
            });
        }
    });
    writer.stop().unwrap();
    drop(journal);
    let durable: Vec<Lsn> =
        events.iter().filter_map(|e| if let Event::Durable(lsn) = e { Some(lsn) } else { None }).collect();
    assert!(durable.is_sorted());
    assert_eq!(durable.last(), Some(&Lsn(u64::from(THREADS * EACH))));

    let payloads = open_with(disk(), options).unwrap().1;
    let mut next = [0; THREADS as usize];
    for payload in &payloads {
        let number = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        assert_eq!(number(4), next[number(0) as usize]);
        next[number(0) as usize] += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
}

#[test]
fn a_lone_batch_becomes_durable_and_is_marked() {
    let disk = MemDisk::new();
    let (mut journal, writer, events) = start(open(&disk).unwrap().0);
    let appended = append(&mut journal, &writer, b"lone");
    let batch = journal.take_batch().unwrap();
    writer.submit(batch).unwrap();
    writer.wait_durable(appended.lsn).unwrap();
    writer.stop().unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::Durable(Lsn(1)))));
    // With the mark behind it, damage to it is damage and no torn tail.
    drop(journal);
    disk.flip_bit("00000001.seg", appended.location.offset as usize, 0);
    assert!(matches!(open(&disk), Err(Error::Damage(_))));
}

#[test]
fn a_failed_sync_is_told_once_and_ends_everything() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    // The keeper must find nothing to do, so that the sync that fails is the log's.
    opened.journal.append(Label::kind(1), &[b"takes the ready segment"]).unwrap();
    while opened.keeper.work().unwrap() != crate::Work::Nothing {}
    let (mut journal, writer, events) = start(opened);
    disk.inject(MemFault::FailSync(1));
    let lsn = append(&mut journal, &writer, b"in doubt").lsn;
    writer.submit(journal.take_batch().unwrap()).unwrap();
    assert!(matches!(writer.wait_durable(lsn), Err(Error::PreviousIo)));
    assert!(writer.failure().unwrap().to_string().starts_with("cannot sync journal file"));
    assert_eq!(journal.append(Label::kind(1), &[]), Err(AppendError::PreviousIo));
    assert!(matches!(writer.wait_space(1), Err(Error::PreviousIo)));
    assert!(matches!(writer.stop(), Err(Error::PreviousIo)));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Failed(_))).count(), 1);
}

#[test]
fn a_full_disk_is_told_and_so_is_space_that_comes_back() {
    let disk = MemDisk::new();
    let opened = open(&disk).unwrap().0;
    disk.set_capacity(Some(0));
    let (mut journal, writer, events) = start(opened);
    append(&mut journal, &writer, b"the last ready segment is taken");
    assert!(events.iter().any(|event| matches!(event, Event::NoSpace)));
    let lsn = append(&mut journal, &writer, b"goes on").lsn;
    writer.submit(journal.take_batch().unwrap()).unwrap();
    writer.wait_durable(lsn).unwrap();
    assert!(matches!(journal.space(), crate::Space::Full { left: 1.. }));
    disk.set_capacity(None);
    assert!(events.iter().any(|event| matches!(event, Event::Space)));
    assert_eq!(journal.space(), crate::Space::Ample);
    writer.stop().unwrap();
}

/// The keeper may be about to note the segment that the last batch has opened; it must not void the proof.
#[test]
fn a_stop_right_behind_a_batch_is_proved() {
    let disk = MemDisk::new();
    open(&disk).unwrap();
    for _ in 0..100 {
        let (mut journal, writer, _events) = start(open(&disk).unwrap().0);
        let lsn = append(&mut journal, &writer, b"last").lsn;
        writer.submit(journal.take_batch().unwrap()).unwrap();
        writer.wait_durable(lsn).unwrap();
        journal.append_clean_stop().unwrap();
        writer.submit(journal.take_batch().unwrap()).unwrap();
        writer.stop().unwrap();
        drop(journal);
        let recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), ID).unwrap();
        assert_eq!(recovery.finish().unwrap().recovered.stop, crate::Stop::Clean);
    }
}

#[test]
fn a_checkpoint_is_announced_once_it_is_durable() {
    let disk = MemDisk::new();
    let (mut journal, writer, events) = start(open(&disk).unwrap().0);
    for _ in 0..30 {
        append(&mut journal, &writer, &[1; 1000]);
        writer.submit(journal.take_batch().unwrap()).unwrap();
    }
    let first = append(&mut journal, &writer, b"checkpoint");
    journal.complete_checkpoint(Checkpoint { first, last: first.lsn });
    writer.submit(journal.take_batch().unwrap()).unwrap();
    let done = events.iter().find_map(|e| if let Event::Checkpointed(done) = e { Some(done) } else { None });
    assert_eq!(done.unwrap().first, first);
    assert!(journal.free_before(first.location.segment).unwrap() > 1);
    writer.stop().unwrap();
    drop(journal);
    let mut recovery = Recovery::open(Arc::new(disk), Options::small(), ID).unwrap();
    assert_eq!(recovery.next_frame().unwrap().unwrap().payload, b"checkpoint");
}
