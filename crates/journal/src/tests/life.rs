//! From one life of a journal to the next: locks, clean stops, copies, real files.

use std::sync::Arc;

use super::{ID, commit, flush, open, open_with};
use crate::{
    AppendError, Disk, Error, FileDisk, JournalId, Lsn, MemDisk, Opened, Options, Recovery, Stop, verify,
};

fn stop(mut opened: Opened) {
    opened.journal.append_clean_stop().unwrap();
    flush(&mut opened).unwrap();
    assert_eq!(opened.journal.append(crate::Label::kind(1), &[b"late"]), Err(AppendError::Stopped));
    assert_eq!(opened.journal.append_clean_stop(), Err(AppendError::Stopped));
}

#[test]
fn a_clean_stop_proves_one_start_of_the_same_folder() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    assert_eq!(opened.recovered.stop, Stop::New);
    commit(&mut opened, &[b"one"]);
    stop(opened);
    assert!(verify(&disk).unwrap().clean_stop);
    let copy = disk.copy();
    assert_eq!(open(&copy).unwrap().0.recovered.stop, Stop::CleanElsewhere);

    let mut opened = open(&disk).unwrap().0;
    assert_eq!((opened.recovered.stop, opened.recovered.last), (Stop::Clean, Lsn(2)));
    assert_eq!(commit(&mut opened, &[b"two"])[0].lsn, Lsn(3), "the stop has a number of its own");
    drop(opened);
    let (opened, payloads) = open(&disk).unwrap();
    assert_eq!((opened.recovered.stop, opened.recovered.life), (Stop::Unclean, 3));
    assert_eq!(payloads, [b"one", b"two"]);
}

#[test]
fn a_start_without_an_append_uses_up_the_proof() {
    let disk = MemDisk::new();
    stop(open(&disk).unwrap().0);
    assert_eq!(open(&disk).unwrap().0.recovered.stop, Stop::Clean);
    assert_eq!(open(&disk).unwrap().0.recovered.stop, Stop::CleanElsewhere);
}

#[test]
fn one_process_per_folder() {
    let disk = MemDisk::new();
    let opened = open(&disk).unwrap().0;
    assert!(matches!(open(&disk), Err(Error::Locked { .. })));
    assert!(matches!(verify(&disk), Err(Error::Locked { .. })));
    let Opened { journal, writer, keeper, reader, .. } = opened;
    drop((journal, writer, keeper));
    assert!(open(&disk).is_err(), "a reader is left");
    drop(reader);
    assert!(open(&disk).is_ok());
}

#[test]
fn the_identity_is_drawn_once() {
    let disk = MemDisk::new();
    commit(&mut open(&disk).unwrap().0, &[b"one"]);
    let recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), JournalId([0; 16])).unwrap();
    assert_eq!(recovery.finish().unwrap().recovered.frames, 1);
    assert_eq!(format!("{ID:?}"), "JournalId(..)");
}

#[test]
fn other_sizes_and_other_files_do_not_disturb() {
    let disk = MemDisk::new();
    disk.put("notes.txt", b"mine".to_vec());
    commit(&mut open(&disk).unwrap().0, &[b"one"]);
    let larger = Options { segment_size: 64 << 10, first_segment_size: 32 << 10, ..Options::small() };
    let (mut opened, payloads) = open_with(Arc::new(disk.clone()), larger).unwrap();
    commit(&mut opened, &[&[1; 30_000]]);
    drop(opened);
    assert_eq!(payloads, [b"one"]);
    assert_eq!(open(&disk).unwrap().1.len(), 2);
    assert_eq!(disk.content("notes.txt").unwrap(), b"mine");
}

/// Lives that do nothing must not use up files.
#[test]
fn many_idle_lives_use_no_space() {
    let disk = MemDisk::new();
    for _ in 0..20 {
        let mut opened = open(&disk).unwrap().0;
        while opened.keeper.work().unwrap() != crate::Work::Nothing {}
    }
    assert!(disk.list().unwrap().len() <= 4, "{:?}", disk.list());
}

#[test]
fn real_files() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("data/journal");
    let disk = || Arc::new(FileDisk::new(&place).unwrap());
    let (mut opened, _) = open_with(disk(), Options::small()).unwrap();
    let mut all = Vec::new();
    for index in 0..100_u8 {
        let payload = vec![index; usize::from(index) * 30];
        let appended = commit(&mut opened, &[&payload]);
        assert_eq!(opened.reader.read(&appended[0].location).unwrap().payload(), payload);
        all.push(payload);
    }
    while opened.keeper.work().unwrap() != crate::Work::Nothing {}
    let error = open_with(disk(), Options::small()).unwrap_err();
    let holder = format!("in use by another process (process {})", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    drop(opened);

    let (opened, payloads) = open_with(disk(), Options::small()).unwrap();
    assert_eq!((payloads, opened.recovered.stop), (all, Stop::Unclean));
    stop(opened);
    assert_eq!(verify(disk().as_ref()).unwrap().damage, []);

    // A copy has its own inodes; the original is still the original.
    let copied = folder.path().join("copy");
    std::fs::create_dir(&copied).unwrap();
    for name in disk().list().unwrap() {
        std::fs::copy(place.join(&name), copied.join(&name)).unwrap();
    }
    let copy = open_with(Arc::new(FileDisk::new(&copied).unwrap()), Options::small()).unwrap().0;
    assert_eq!(copy.recovered.stop, Stop::CleanElsewhere);
    assert_eq!(open_with(disk(), Options::small()).unwrap().0.recovered.stop, Stop::Clean);
}
