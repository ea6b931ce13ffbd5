//! A journal whose files were damaged: opening it reports that, or hands out a prefix of what was written and goes on
//! from there.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use postroad_fuzz::frames::All;
use postroad_journal::{
    AppendError, Disk, Error, JournalId, Label, MemDisk, Opened, Options, Recovery, verify,
};

const ID: JournalId = JournalId(*b"a journal's name");

#[derive(Arbitrary, Debug)]
struct Case {
    /// The sizes of the payloads of each batch.
    batches: [[u16; 3]; 6],
    clean: bool,
    crash: Option<u64>,
    damage: All<Damage>,
}

#[derive(Arbitrary, Debug)]
enum Damage {
    Flip {
        file: u8,
        at: u16,
        bit: u8,
    },
    Overwrite {
        file: u8,
        at: u16,
        bytes: Vec<u8>,
    },
    Zero {
        file: u8,
        at: u16,
        len: u16,
    },
    Truncate {
        file: u8,
        at: u16,
    },
    Extend {
        file: u8,
        bytes: Vec<u8>,
    },
    /// A piece of one file over another.
    Copy {
        from: u8,
        at: u16,
        len: u16,
        to: u8,
        over: u16,
    },
    New {
        name: u8,
        bytes: Vec<u8>,
    },
}

fuzz_target!(|case: Case| {
    let disk = MemDisk::new();
    let Ok((mut opened, _)) = open(&disk) else { panic!("a new folder can be opened") };
    let mut written = Vec::new();
    for batch in &case.batches {
        let payloads: Vec<Vec<u8>> =
            batch.iter().map(|len| vec![*len as u8; usize::from(len % 9000)]).collect();
        commit(&mut opened, &payloads);
        written.extend(payloads);
    }
    if case.clean {
        stop(&mut opened);
    }
    drop(opened);
    let disk = case.crash.map_or_else(|| disk.kill(), |seed| disk.crash(seed));
    for damage in &case.damage.0 {
        damage.to(&disk);
    }
    let report = verify(&disk);
    match open(&disk) {
        Ok((mut opened, payloads)) => {
            assert!(written.starts_with(&payloads), "{} of {} payloads", payloads.len(), written.len());
            assert!(!case.damage.0.is_empty() || payloads.len() == written.len());
            go_on(&disk, &mut opened, payloads);
        }
        Err(error) => {
            assert!(!case.damage.0.is_empty(), "{error}");
            assert!(report.is_err() || report.is_ok_and(|report| !report.damage.is_empty()), "{error}");
        }
    }
});

/// What is appended behind a recovered prefix is there after the next start.
fn go_on(disk: &MemDisk, opened: &mut Opened, mut payloads: Vec<Vec<u8>>) {
    let more = vec![vec![1; 10], vec![2; 3000]];
    commit(opened, &more);
    payloads.extend(more);
    let (_, again) = open(&disk.kill()).expect("what was opened can be opened again");
    assert_eq!(again.len(), payloads.len());
    assert!(again == payloads);
}

impl Damage {
    fn to(&self, disk: &MemDisk) {
        match self {
            Self::Flip { file, at, bit } => {
                let _ = pick(disk, *file).map(|(name, _)| disk.flip_bit(&name, usize::from(*at), bit % 8));
            }
            Self::Overwrite { file, at, bytes } => {
                change(disk, *file, |content| overwrite(content, *at, bytes))
            }
            Self::Zero { file, at, len } => {
                change(disk, *file, |content| overwrite(content, *at, &vec![0; usize::from(*len)]));
            }
            Self::Truncate { file, at } => change(disk, *file, |content| content.truncate((*at).into())),
            Self::Extend { file, bytes } => change(disk, *file, |content| content.extend_from_slice(bytes)),
            Self::Copy { from, at, len, to, over } => {
                let Some((_, source)) = pick(disk, *from) else { return };
                let start = usize::from(*at).min(source.len());
                let end = (start + usize::from(*len)).min(source.len());
                change(disk, *to, |content| overwrite(content, *over, &source[start..end]));
            }
            Self::New { name, bytes } => disk.put(&format!("file-{name}"), bytes.clone()),
        }
    }
}

fn pick(disk: &MemDisk, which: u8) -> Option<(String, Vec<u8>)> {
    let names = disk.list().ok()?;
    let name = names.get(usize::from(which) % names.len().max(1))?.clone();
    let content = disk.content(&name)?;
    Some((name, content))
}

fn change(disk: &MemDisk, file: u8, change: impl FnOnce(&mut Vec<u8>)) {
    if let Some((name, mut content)) = pick(disk, file) {
        change(&mut content);
        disk.put(&name, content);
    }
}

fn overwrite(content: &mut [u8], at: u16, bytes: &[u8]) {
    for (place, byte) in content.iter_mut().skip(at.into()).zip(bytes) {
        *place = *byte;
    }
}

fn open(disk: &MemDisk) -> Result<(Opened, Vec<Vec<u8>>), Error> {
    let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), ID)?;
    let mut payloads = Vec::new();
    while let Some(frame) = recovery.next_frame()? {
        payloads.push(frame.payload.to_vec());
    }
    Ok((recovery.finish()?, payloads))
}

fn commit(opened: &mut Opened, payloads: &[Vec<u8>]) {
    for payload in payloads {
        loop {
            match opened.journal.append(Label::kind(1), &[payload]) {
                Ok(_) => break,
                Err(AppendError::NotReady { .. }) => drop(opened.keeper.work().expect("the disk has room")),
                Err(error) => panic!("{error}"),
            }
        }
    }
    flush(opened);
}

fn stop(opened: &mut Opened) {
    while let Err(error) = opened.journal.append_clean_stop() {
        match error {
            AppendError::NotReady { .. } => drop(opened.keeper.work().expect("the disk has room")),
            error => panic!("{error}"),
        }
    }
    flush(opened);
}

fn flush(opened: &mut Opened) {
    if let Some(batch) = opened.journal.take_batch() {
        opened.writer.write(&[batch]).expect("the disk works");
    }
    opened.writer.sync().expect("the disk works");
    opened.writer.mark_tail().expect("the disk works");
}
