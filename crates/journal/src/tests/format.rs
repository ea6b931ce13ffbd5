//! The files as they are on disk: the golden folder must stay readable, and what is written today must be like it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{commit, open_with};
use crate::{Checkpoint, Error, Label, LogId, MemDisk, Options, Stop, Work};

/// Set this to write the golden files anew, which a change of format needs, with a new folder and version.
const RENEW: &str = "RENEW_GOLDEN_FILES";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1").join(name)
}

fn tiny() -> Options {
    Options { segment_size: 8192, first_segment_size: 8192, ..Options::small() }
}

const FILES: [&str; 3] = ["control", "00000001.seg", "00000002.seg"];

/// One of everything: both segment kinds of chunk, a checkpoint, frames of another log, padding, a clean stop.
fn write_sample() -> MemDisk {
    let disk = MemDisk::new();
    let mut opened = open_with(Arc::new(disk.clone()), tiny()).unwrap().0;
    while opened.keeper.work().unwrap() != Work::Nothing {}
    commit(&mut opened, &[b"first", b""]);
    commit(&mut opened, &[&[0xab; 3000]]);
    let checkpoint = commit(&mut opened, &[&[0xcd; 2000], b"checkpoint"]);
    opened.journal.complete_checkpoint(Checkpoint { first: checkpoint[0], last: checkpoint[1].lsn });
    assert!(matches!(opened.keeper.work().unwrap(), Work::Checkpointed(_)));
    let label = Label { log: LogId(0x0102_0304), kind: 239, version: 9 };
    opened.journal.append(label, &[b"of another log"]).unwrap();
    // The stop holds the identity of a file, which in memory is made of small numbers.
    opened.journal.append_clean_stop().unwrap();
    super::flush(&mut opened).unwrap();
    disk
}

#[test]
fn what_is_written_is_what_was_written_when_the_format_was_fixed() {
    let disk = write_sample();
    for name in FILES {
        let content = disk.content(name).unwrap();
        if std::env::var_os(RENEW).is_some() {
            std::fs::create_dir_all(golden(name).parent().unwrap()).unwrap();
            std::fs::write(golden(name), &content).unwrap();
        }
        assert!(content == std::fs::read(golden(name)).unwrap(), "{name} is not written as format 1 was");
    }
}

#[test]
fn the_golden_folder_is_read() {
    // The second control file names no newest segment, as those of the first programs did not.
    for control in ["control", "control-without-newest"] {
        let disk = MemDisk::new();
        for name in FILES {
            let file = if name == "control" { control } else { name };
            disk.put(name, std::fs::read(golden(file)).unwrap());
        }
        check_golden_folder(disk);
    }
}

fn check_golden_folder(disk: MemDisk) {
    let report = crate::verify(&disk).unwrap();
    assert_eq!((report.damage, report.last, report.clean_stop), (vec![], crate::Lsn(7), true));
    let (opened, payloads) = open_with(Arc::new(disk), tiny()).unwrap();
    assert_eq!(payloads, [[0xcd; 2000].to_vec(), b"checkpoint".to_vec(), b"of another log".to_vec()]);
    assert_eq!(opened.recovered.stop, Stop::CleanElsewhere);
    let segments = opened.journal.segments();
    assert_eq!(segments.iter().map(|segment| segment.first.0).collect::<Vec<_>>(), [1, 4]);
    let text = crate::Location { segment: segments[0].number, offset: 4096 + 40, length: 5 };
    assert_eq!(opened.reader.read(&text).unwrap().payload(), b"first".as_slice());
}

#[test]
fn a_newer_format_is_refused() {
    let sample = write_sample();
    for files in [vec![("control", 8), ("control", 4096 + 8)], vec![("00000002.seg", 8)]] {
        let disk = sample.copy();
        for (name, offset) in &files {
            let mut content = disk.content(name).unwrap();
            content[*offset] = 2;
            if name.ends_with(".seg") {
                content[12..16].fill(0);
                let checksum = crate::frame::Mask::of(super::ID).checksum(&content[..64]);
                content[12..16].copy_from_slice(&checksum.to_le_bytes());
            }
            disk.put(name, content);
        }
        let error = open_with(Arc::new(disk.clone()), tiny()).unwrap_err();
        let text = format!(
            "memory/{} has journal format 2, but this program knows formats up to 1; start the newer program on it",
            files[0].0
        );
        assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }));
        assert_eq!(error.to_string(), text);
        assert!(matches!(crate::verify(&disk), Err(Error::NewerFormat { .. })));
    }
}
