//! Whatever moment a crash comes at and whatever of the unsynced writes it takes: everything confirmed is there, and what is there is
//! a prefix of what was appended.

use proptest::prelude::*;

use super::owner::{Model, Owner, Random};
use crate::{Error, MemDisk, MemFault, Stop, verify};

/// A disk that writes whole blocks, or not.
fn disk(seed: u64) -> MemDisk {
    let disk = MemDisk::new();
    if seed.is_multiple_of(2) {
        disk.write_whole_blocks();
    }
    disk
}

/// Lives a life that dies in its `crash_at`th operation. `false`: it ended in order before that.
fn live_and_crash(disk: &MemDisk, model: &mut Model, seed: u64, steps: u32, crash_at: u64) -> bool {
    disk.inject(MemFault::CrashAt(crash_at));
    let mut life = || {
        let mut owner = Owner::open(disk, model)?;
        let mut random = Random(seed);
        owner.live(&mut random, steps)?;
        owner.stop()
    };
    match life() {
        Ok(()) => false,
        Err(Error::Io { .. } | Error::PreviousIo) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Opens what a crash has left, checks it, and looks at it with `verify` too.
fn check(disk: &MemDisk, model: &mut Model) {
    let report = verify(disk);
    if let Ok(report) = &report {
        assert_eq!(report.damage, []);
    }
    let opened = model.open(disk).unwrap();
    if let Ok(report) = report {
        assert_eq!(report.last, opened.recovered.last);
    }
}

#[test]
fn a_crash_at_every_operation_loses_nothing_confirmed() {
    for seed in 0..4 {
        for crash_at in 1.. {
            let mut model = Model::default();
            let disk = disk(seed);
            let crashed = live_and_crash(&disk, &mut model, seed, 60, crash_at);
            check(&disk.crash(seed ^ crash_at), &mut model);
            if !crashed {
                break;
            }
        }
    }
}

#[test]
fn a_stop_in_order_is_told_from_a_crash() {
    let mut model = Model::default();
    let disk = MemDisk::new();
    live_and_crash(&disk, &mut model, 1, 40, u64::MAX);
    let disk = disk.crash(1);
    let owner = Owner::open(&disk, &mut model).unwrap();
    assert_eq!(owner.stopped(), Stop::Clean);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Life after life, each ended by a crash, a kill or in order: frames that an earlier life has left
    /// behind a cut are never taken for frames of a later one.
    #[test]
    fn many_lives(seed: u64, ends in prop::collection::vec((0_u8..3, 1_u64..120), 1..6)) {
        let mut model = Model::default();
        let mut disk = disk(seed);
        for (index, (end, crash_at)) in ends.into_iter().enumerate() {
            let seed = seed.wrapping_add(index as u64);
            let crash_at = if end == 0 { u64::MAX } else { crash_at };
            live_and_crash(&disk, &mut model, seed, 50, crash_at);
            disk = if end == 2 { disk.kill() } else { disk.crash(seed) };
        }
        check(&disk, &mut model);
    }
}
