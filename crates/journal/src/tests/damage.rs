//! Damage to what was synced is named with its file and offset, by recovery and by `verify`, and never skipped.

use proptest::prelude::*;

use super::owner::{Model, Owner, Random};
use super::{commit, open};
use crate::frame::{FRAME_HEADER, MARK_SIZE, frame_size};
use crate::segment::{HEADER_BLOCK, HEADER_SIZE};
use crate::{
    Checkpoint, Damage, Disk, Error, Flaw, Location, Lsn, MemDisk, Options, Recovery, SegmentNumber, Work,
    verify,
};
use std::sync::Arc;

/// Damage that opening reports; panics if it reports none.
fn damage_of(disk: &MemDisk) -> Damage {
    match open(disk) {
        Err(Error::Damage(damage)) => damage,
        Err(error) => panic!("{error}"),
        Ok((opened, payloads)) => panic!("{:?} with {} payloads", opened.recovered, payloads.len()),
    }
}

/// A journal with synced frames in several segments, its last batch marked as synced.
fn filled(seed: u64) -> (MemDisk, Model) {
    let disk = MemDisk::new();
    let mut model = Model::default();
    let mut owner = Owner::open(&disk, &mut model).unwrap();
    owner.live(&mut Random(seed), 120).unwrap();
    super::flush(&mut owner.opened).unwrap();
    drop(owner);
    (disk.kill(), model)
}

/// Segment files that recovery reads, by name, with their numbers.
fn replayed_files(disk: &MemDisk) -> Vec<(String, SegmentNumber)> {
    let report = verify(disk).unwrap();
    let name = |file: &str| file.trim_start_matches("memory/").to_owned();
    report.segments.iter().filter(|s| s.is_replayed).map(|s| (name(&s.file), s.number)).collect()
}

/// One slot of the control file is enough; the file gets its size back, so that it can be written.
#[test]
fn a_control_file_that_was_cut_short_serves_on() {
    for length in [100, 4096, 8000] {
        let (disk, _) = filled(3);
        let (_, payloads) = open(&disk.kill()).unwrap();
        let mut content = disk.content("control").unwrap();
        content.truncate(length);
        let disk = disk.kill();
        disk.put("control", content);
        let (mut opened, found) = open(&disk).unwrap();
        assert!(found == payloads, "cut to {length} bytes");
        commit(&mut opened, &[b"and goes on"]);
        super::flush(&mut opened).unwrap();
        let disk = disk.kill();
        assert_eq!(disk.content("control").map(|content| content.len()), Some(8192));
        let (_, again) = open(&disk).unwrap();
        assert_eq!(again.len(), payloads.len() + 1);
    }
}

/// Nothing is left in the folder but the header of the segment that the control file names: opening and `verify` agree that
/// what was before it is missing.
#[test]
fn a_named_segment_that_follows_nothing_is_damage() {
    let disk = MemDisk::new();
    let (mut opened, _) = open(&disk).unwrap();
    for _ in 0..2 {
        commit(&mut opened, &[&[7; 3000]]);
    }
    while opened.keeper.work().unwrap() != Work::Nothing {}
    drop(opened);
    let disk = disk.kill();
    let header = usize::try_from(HEADER_BLOCK).unwrap();
    for (name, kept) in [("00000001.seg", 0), ("00000002.seg", header)] {
        let mut content = disk.content(name).unwrap();
        content[kept..].fill(0);
        disk.put(name, content);
    }
    for other in disk.list().unwrap() {
        if !["control", "00000001.seg", "00000002.seg"].contains(&other.as_str()) {
            disk.remove(&other).unwrap();
        }
    }
    let report = verify(&disk).unwrap();
    let damage = damage_of(&disk);
    assert!(matches!(damage.flaw, Flaw::Gap { expected: Lsn(1), .. }), "{damage:?}");
    assert_eq!(report.damage, vec![damage]);
}

/// A tail that nothing could prove was cut off, and its numbers were given again: what it left behind in a file that is used
/// again proves nothing of the frames that have the numbers now.
#[test]
fn marks_of_a_tail_that_was_cut_off_prove_nothing_of_the_next_life() {
    let disk = MemDisk::new();
    let (mut opened, _) = open(&disk).unwrap();
    let payload = [7; 3000];
    for _ in 0..12 {
        commit(&mut opened, &[&payload]);
    }
    drop(opened);
    let disk = disk.kill();
    // The header of the newest segment and the mark behind it are gone, those further on are not.
    let last = verify(&disk).unwrap().segments.pop().unwrap();
    assert!(last.frames > 2, "{last:?}");
    let name = last.file.trim_start_matches("memory/").to_owned();
    let mut content = disk.content(&name).unwrap();
    content[..usize::try_from(HEADER_BLOCK).unwrap() + MARK_SIZE].fill(0);
    disk.put(&name, content);
    let (mut opened, payloads) = open(&disk).unwrap();
    assert_eq!(payloads.len() as u64, last.first.0 - 1, "the whole segment was cut off");
    commit(&mut opened, &[b"again"]);
    let disk = disk.kill();
    assert_eq!(verify(&disk).unwrap().damage, []);
    assert_eq!(open(&disk).unwrap().1.len(), payloads.len() + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// A flipped bit in any frame that recovery reads is found in that very frame.
    #[test]
    fn a_flipped_bit_in_a_frame(seed in 0_u64..20, pick: prop::sample::Index, at: prop::sample::Index, bit in 0_u8..8) {
        let (disk, model) = filled(seed);
        let files = replayed_files(&disk);
        let file_of = |segment| files.iter().find(|file| file.1 == segment).map(|file| file.0.clone());
        let frames: Vec<_> = model
            .frames
            .values()
            .filter_map(|(appended, _)| Some((*appended, file_of(appended.location.segment)?)))
            .collect();
        let (frame, file) = &frames[pick.index(frames.len())];
        let offset = frame.location.offset as usize;
        prop_assert!(disk.flip_bit(file, offset + at.index(FRAME_HEADER + frame.location.length as usize), bit));
        let report = verify(&disk).unwrap();
        let damage = damage_of(&disk);
        prop_assert_eq!(&damage.file, &format!("memory/{file}"));
        prop_assert_eq!(damage.offset, offset as u64);
        prop_assert_eq!(report.damage, vec![damage]);
    }

    /// A flipped bit anywhere is reported, or it changes nothing that is handed out.
    #[test]
    fn a_flipped_bit_anywhere(seed in 0_u64..20, pick: prop::sample::Index, at: prop::sample::Index, bit in 0_u8..8) {
        let (disk, mut model) = filled(seed);
        let mut files: Vec<String> = replayed_files(&disk).into_iter().map(|file| file.0).collect();
        files.push("control".to_owned());
        let file = &files[pick.index(files.len())];
        let length = disk.content(file).unwrap().len();
        prop_assert!(disk.flip_bit(file, at.index(length), bit));
        match model.open(&disk) {
            Ok(_) => {}
            Err(Error::Damage(damage)) => prop_assert!(!verify(&disk).unwrap().damage.is_empty(), "{damage}"),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_a_segment_header() {
    for byte in 0..HEADER_SIZE {
        let disk = MemDisk::new();
        let mut opened = open(&disk).unwrap().0;
        for _ in 0..10 {
            commit(&mut opened, &[&[1; 4000]]);
        }
        let files: Vec<_> = opened.journal.segments().into_iter().map(|segment| segment.file).collect();
        assert!(files.len() > 2);
        drop(opened);
        for file in files {
            let name = file.trim_start_matches("memory/");
            disk.flip_bit(name, byte, 0);
            assert_eq!(damage_of(&disk), Damage { file: file.clone(), offset: 0, flaw: Flaw::SegmentHeader });
            assert_eq!(verify(&disk).unwrap().damage.len(), 1, "{file} {byte}");
            disk.flip_bit(name, byte, 0);
        }
        assert_eq!(open(&disk).unwrap().1.len(), 10);
    }
}

#[test]
fn a_missing_segment_is_a_gap() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let last: Vec<_> = (0..10).flat_map(|_| commit(&mut opened, &[&[1; 4000]])).collect();
    let segments = opened.journal.segments();
    drop(opened);
    let missing = segments[1].clone();
    crate::Disk::remove(&disk, missing.file.trim_start_matches("memory/")).unwrap();
    let damage = damage_of(&disk);
    assert!(
        matches!(damage.flaw, Flaw::Frame { expected } | Flaw::Gap { expected, .. } if expected == missing.first)
    );
    assert!(last.len() == 10 && verify(&disk).unwrap().damage.len() == 1);
}

/// Before the last checkpoint segments may be missing, because they were freed: the owner says which ones it still needs.
#[test]
fn a_segment_before_the_start_that_is_still_needed() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let frames: Vec<_> = (0..10).flat_map(|_| commit(&mut opened, &[&[1; 4000]])).collect();
    let first = *frames.last().unwrap();
    opened.journal.complete_checkpoint(Checkpoint { first, last: first.lsn });
    while opened.keeper.work().unwrap() != Work::Nothing {}
    let kept = opened.journal.segments()[1].clone();
    drop(opened);
    let name = kept.file.trim_start_matches("memory/");
    let require = |disk: &MemDisk, number| {
        let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), super::ID).unwrap();
        while recovery.next_frame().unwrap().is_some() {}
        recovery.require([number])
    };
    assert!(require(&disk.kill(), kept.number).is_ok());
    let disk = disk.kill();
    disk.flip_bit(name, 20, 0);
    let Err(Error::Damage(damage)) = require(&disk, kept.number) else { panic!() };
    assert_eq!(damage, Damage { file: kept.file.clone(), offset: 0, flaw: Flaw::SegmentHeader });
    assert_eq!(verify(&disk).unwrap().unreadable.as_slice(), std::slice::from_ref(&kept.file));
    let disk = disk.kill();
    crate::Disk::remove(&disk, name).unwrap();
    let Err(Error::Damage(damage)) = require(&disk, kept.number) else { panic!() };
    assert_eq!((damage.file.as_str(), damage.flaw), ("memory/", Flaw::SegmentMissing(kept.number)));
    assert!(require(&disk.kill(), first.location.segment).is_ok());
}

/// The last segment has the only marks that tell of its frames, so the control file tells of it.
#[test]
fn a_missing_or_emptied_last_segment() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    (0..10).for_each(|_| drop(commit(&mut opened, &[&[1; 4000]])));
    while opened.keeper.work().unwrap() != Work::Nothing {}
    let last = opened.journal.segments().pop().unwrap();
    drop(opened);
    let name = last.file.trim_start_matches("memory/");
    let size = usize::try_from(last.size).unwrap();
    for content in [None, Some(vec![0; size]), Some(vec![])] {
        let disk = disk.copy();
        match content {
            Some(bytes) => disk.put(name, bytes),
            None => crate::Disk::remove(&disk, name).unwrap(),
        }
        let report = verify(&disk).unwrap();
        let damage = damage_of(&disk);
        assert_eq!(damage.flaw, Flaw::NewestMissing(last.number));
        assert_eq!(report.damage, [damage]);
    }
    // A damaged header is named with its file, also where no mark tells of the segment.
    disk.flip_bit(name, 20, 0);
    let mark = usize::try_from(HEADER_BLOCK).unwrap() + 2 * MARK_SIZE;
    let mut content = disk.content(name).unwrap();
    content[mark..].fill(0);
    disk.put(name, content);
    let damage = damage_of(&disk);
    assert_eq!((damage.file.as_str(), &damage.flaw), (last.file.as_str(), &Flaw::SegmentHeader));
    assert_eq!(verify(&disk).unwrap().damage, [damage]);
}

#[test]
fn a_control_file_survives_damage_to_one_copy_and_not_to_both() {
    let disk = MemDisk::new();
    commit(&mut open(&disk).unwrap().0, &[b"kept"]);
    disk.flip_bit("control", 20, 3);
    assert_eq!(open(&disk).unwrap().1, [b"kept"]);
    disk.flip_bit("control", 20, 3);
    disk.flip_bit("control", 4096 + 20, 3);
    let damage = damage_of(&disk);
    assert_eq!((damage.file.as_str(), damage.flaw), ("memory/control", Flaw::Control));
    assert!(verify(&disk).is_err());
}

#[test]
fn damage_is_reported_where_it_is_read_by_place() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let appended = commit(&mut opened, &[b"one", b"two"]);
    assert_eq!(opened.reader.read(&appended[1].location).unwrap().payload(), b"two".as_slice());
    let offset = appended[1].location.offset as usize;
    disk.flip_bit("00000001.seg", offset + FRAME_HEADER, 0);
    let error = opened.reader.read(&appended[1].location).unwrap_err();
    let Error::Damage(damage) = error else { panic!("{error}") };
    assert_eq!(
        (damage.file.as_str(), damage.offset, damage.flaw),
        ("memory/00000001.seg", offset as u64, Flaw::Read)
    );
    assert!(opened.reader.read(&appended[0].location).is_ok());
}

#[test]
fn frames_that_are_read_together_are_what_they_are_alone() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let all: Vec<_> = (0..60_u8).flat_map(|n| commit(&mut opened, &[&[n; 300], &[n; 7]])).collect();
    let mut places: Vec<_> = all.iter().map(|appended| appended.location).collect();
    let segments: std::collections::BTreeSet<_> = places.iter().map(|place| place.segment).collect();
    assert!(segments.len() > 2, "the frames lie in one segment");
    places.swap(3, 40);
    places.insert(9, places[8]);
    places.retain(|place| place.offset % 5 != 0);
    places[20].length += 1;
    places[25].length = u32::MAX;
    places[30].segment = SegmentNumber::new(99, 1);
    places[35].offset = u32::MAX - 7;
    let damaged = places[50];
    let file = replayed_files(&disk.copy()).into_iter().find(|file| file.1 == damaged.segment).unwrap().0;
    disk.flip_bit(&file, damaged.offset as usize + FRAME_HEADER, 3);
    let alone = |place: &Location| opened.reader.read(place).map_err(|error| error.to_string());
    let together =
        opened.reader.read_all(&places).into_iter().map(|read| read.map_err(|error| error.to_string()));
    assert_eq!(together.collect::<Vec<_>>(), places.iter().map(alone).collect::<Vec<_>>());
    assert_eq!(opened.reader.read_all(&places).iter().filter(|read| read.is_err()).count(), 5);
    assert!(opened.reader.read_all(&[]).is_empty());
}

#[test]
fn bytes_of_a_client_that_look_like_a_frame_do_not_count_as_proof() {
    // A mark as it would be made without knowing the journal's identity, inside a payload that is then torn.
    let fake = crate::frame::Mark {
        generation: SegmentNumber::new(1, 1),
        next: Lsn(u64::MAX),
        synced: Lsn(1 << 60),
    };
    let fake = fake.encode(crate::frame::Mask::NONE);
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"kept"]);
    let torn = opened.journal.append(crate::Label::kind(1), &[&fake, &fake]).unwrap();
    let batch = opened.journal.take_batch().unwrap();
    opened.writer.write(&[batch]).unwrap();
    drop(opened);
    disk.flip_bit("00000001.seg", torn.location.offset as usize, 0);
    let (opened, payloads) = open(&disk).unwrap();
    assert_eq!(payloads, [b"kept"]);
    assert_eq!(opened.recovered.cut.unwrap().offset, u64::from(torn.location.offset));
}

#[test]
fn verify_goes_on_behind_damage() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let all: Vec<_> = (0..20).flat_map(|_| commit(&mut opened, &[&[1; 500], &[2; 500]])).collect();
    drop(opened);
    let files = replayed_files(&disk);
    let mut places = Vec::new();
    for frame in [all[2], all[9], all[30]] {
        let file = &files.iter().find(|file| file.1 == frame.location.segment).unwrap().0;
        disk.flip_bit(file, frame.location.offset as usize + 40, 1);
        places.push((format!("memory/{file}"), u64::from(frame.location.offset)));
    }
    let report = verify(&disk).unwrap();
    let found: Vec<_> = report.damage.iter().map(|damage| (damage.file.clone(), damage.offset)).collect();
    assert_eq!(found, places);
    // Of each damaged batch the damaged frame, and what stands behind it, is lost to the count.
    assert_eq!(report.segments.iter().map(|segment| segment.frames).sum::<u64>(), 40 - 5);
    assert_eq!((report.last, report.life, report.clean_stop), (Lsn(40), 1, false));
}

#[test]
fn reading_what_is_not_there_fails() {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    let mut location = commit(&mut opened, &[b"one"])[0].location;
    location.length += 1;
    assert!(matches!(opened.reader.read(&location), Err(Error::Damage(_))));
    location.length = u32::MAX;
    assert!(matches!(opened.reader.read(&location), Err(Error::Damage(_))));
    location.segment = SegmentNumber::new(9, 9);
    assert!(matches!(opened.reader.read(&location), Err(Error::NoSuchSegment(_))));
    assert_eq!(frame_size(3), 40);
    assert!(Recovery::open(std::sync::Arc::new(disk.clone()), crate::Options::small(), super::ID).is_err());
}

/// Between a start and the first batch behind it nothing but a mark in the segment to come says what is synced.
#[test]
fn a_flipped_bit_before_the_first_batch_of_a_life() {
    let disk = MemDisk::new();
    let (mut opened, _) = open(&disk).unwrap();
    let appended = commit(&mut opened, &[b"one", b"two"]);
    drop(opened);
    // The power is lost before the mark behind the batch reaches the disk, whatever the seed.
    let disk = disk.crash(5);
    drop(open(&disk).unwrap());
    let disk = disk.kill();
    let offset = appended[1].location.offset;
    assert!(disk.flip_bit("00000001.seg", offset as usize + FRAME_HEADER, 3));
    let flaw = Flaw::Frame { expected: Lsn(2) };
    assert_eq!(damage_of(&disk), Damage { file: "memory/00000001.seg".into(), offset: offset.into(), flaw });
}

/// Where the last batch fills its segment, the mark stands in the next one.
#[test]
fn a_flipped_bit_in_a_batch_that_fills_its_segment() {
    let disk = MemDisk::new();
    let (mut opened, _) = open(&disk).unwrap();
    let payload = vec![b'x'; 4096 - crate::frame::MARK_SIZE - FRAME_HEADER];
    let appended = commit(&mut opened, &[&payload]);
    while opened.keeper.work().unwrap() != crate::Work::Nothing {}
    super::flush(&mut opened).unwrap();
    drop(opened);
    let disk = disk.kill();
    let offset = appended[0].location.offset;
    assert!(disk.flip_bit("00000001.seg", offset as usize + FRAME_HEADER, 0));
    let flaw = Flaw::Frame { expected: Lsn(1) };
    assert_eq!(damage_of(&disk), Damage { file: "memory/00000001.seg".into(), offset: offset.into(), flaw });
}

/// A folder in which a life wrote behind the clean stop of the one before; where its first frame lies, and in which file.
fn with_a_life_behind_a_stop() -> (MemDisk, u64, String) {
    let disk = MemDisk::new();
    let mut opened = open(&disk).unwrap().0;
    commit(&mut opened, &[b"one"]);
    opened.journal.append_clean_stop().unwrap();
    super::flush(&mut opened).unwrap();
    drop(opened);
    let mut opened = open(&disk).unwrap().0;
    let appended = commit(&mut opened, &[b"two", b"three"]);
    drop(opened);
    let (offset, name) = (appended[0].location.offset, replayed_files(&disk).pop().unwrap().0);
    (disk, offset.into(), name)
}

/// What a life wrote behind the clean stop of the one before is as safe as anything else: damage to its first frame is not
/// taken for the end that the stop announced.
#[test]
fn a_flipped_bit_in_the_first_frame_behind_a_clean_stop() {
    let (disk, offset, name) = with_a_life_behind_a_stop();
    assert!(disk.flip_bit(&name, usize::try_from(offset).unwrap() + FRAME_HEADER, 0));
    let damage = damage_of(&disk);
    assert_eq!((damage.file, damage.offset), (format!("memory/{name}"), offset));
    assert_eq!(verify(&disk).unwrap().damage.len(), 1);
}

/// Nor is damage to the header of its segment (the simulator's seed 700199).
#[test]
fn a_flipped_bit_in_the_header_behind_a_clean_stop() {
    let (disk, _, name) = with_a_life_behind_a_stop();
    assert!(disk.flip_bit(&name, 40, 0));
    let damage = damage_of(&disk);
    assert_eq!((damage.file, damage.offset, damage.flaw), (format!("memory/{name}"), 0, Flaw::SegmentHeader));
    assert_eq!(verify(&disk).unwrap().damage.len(), 1);
}
