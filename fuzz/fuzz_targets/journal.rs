//! A journal whose files were damaged: opening it reports that, or hands out a prefix of what was written and goes on
//! from there. Damage under a journal that is open: a frame that is read by its place is one that was written, or an error
//! says that it isn't, and it is the same alone as among others.
#![no_main]

use std::io::IoSlice;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use postroad_fuzz::frames::All;
use postroad_journal::{
    AppendError, Appended, Disk, Error, JournalId, Label, Location, MemDisk, Opened, Options, Read, Recovery,
    verify,
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
    damage_between_lives(&case);
    damage_in_a_life(&case);
});

fn damage_between_lives(case: &Case) {
    let disk = MemDisk::new();
    let mut opened = open(&disk).expect("a new folder can be opened").0;
    let written = write(&mut opened, case).1;
    if case.clean {
        stop(&mut opened);
    }
    drop(opened);
    let disk = case.crash.map_or_else(|| disk.kill(), |seed| disk.crash(seed));
    for damage in &case.damage.0 {
        damage.to(&disk, |disk, name, content| disk.put(name, content));
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
}

fn damage_in_a_life(case: &Case) {
    let disk = MemDisk::new();
    let mut opened = open(&disk).expect("a new folder can be opened").0;
    let (frames, written) = write(&mut opened, case);
    for damage in &case.damage.0 {
        damage.to(&disk, overwrite_file);
    }
    let mut places: Vec<_> = frames.iter().map(|frame| frame.location).collect();
    let odd: Vec<_> = case.damage.0.iter().filter_map(|damage| damage.place(&places)).collect();
    places.extend(odd);
    let together = opened.reader.read_all(&places);
    assert_eq!(together.len(), places.len());
    for (place, among_others) in places.iter().zip(together) {
        let alone = opened.reader.read(place);
        match &alone {
            Ok(read) => {
                let number = frames.iter().position(|frame| frame.lsn == read.lsn);
                let number = number.expect("a frame that is read was written");
                assert!(read.payload() == written[number]);
                assert_eq!(read.payload().len(), place.length as usize);
            }
            Err(error) => assert!(!case.damage.0.is_empty(), "{error}"),
        }
        assert_eq!(text(alone), text(among_others));
    }
}

fn text(read: Result<Read, Error>) -> Result<Read, String> {
    read.map_err(|error| error.to_string())
}

/// Writes the batches of a case; returns their frames and what is in them.
fn write(opened: &mut Opened, case: &Case) -> (Vec<Appended>, Vec<Vec<u8>>) {
    let mut written = (Vec::new(), Vec::new());
    for batch in &case.batches {
        let payloads: Vec<Vec<u8>> =
            batch.iter().map(|len| vec![*len as u8; usize::from(len % 9000)]).collect();
        written.0.extend(commit(opened, &payloads));
        written.1.extend(payloads);
    }
    written
}

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
    /// Damages a file; `put` gives it what it then holds.
    fn to(&self, disk: &MemDisk, put: impl Fn(&MemDisk, &str, Vec<u8>)) {
        let change = |file, change: &dyn Fn(&mut Vec<u8>)| {
            if let Some((name, mut content)) = pick(disk, file) {
                change(&mut content);
                put(disk, &name, content);
            }
        };
        match self {
            Self::Flip { file, at, bit } => {
                let _ = pick(disk, *file).map(|(name, _)| disk.flip_bit(&name, usize::from(*at), bit % 8));
            }
            Self::Overwrite { file, at, bytes } => change(*file, &|content| overwrite(content, *at, bytes)),
            Self::Zero { file, at, len } => {
                change(*file, &|content| overwrite(content, *at, &vec![0; usize::from(*len)]));
            }
            Self::Truncate { file, at } => change(*file, &|content| content.truncate((*at).into())),
            Self::Extend { file, bytes } => change(*file, &|content| content.extend_from_slice(bytes)),
            Self::Copy { from, at, len, to, over } => {
                let Some((_, source)) = pick(disk, *from) else { return };
                let start = usize::from(*at).min(source.len());
                let end = (start + usize::from(*len)).min(source.len());
                change(*to, &|content| overwrite(content, *over, &source[start..end]));
            }
            Self::New { name, bytes } => put(disk, &format!("file-{name}"), bytes.clone()),
        }
    }

    /// A place where a frame may begin, or not.
    fn place(&self, places: &[Location]) -> Option<Location> {
        let (&Self::Zero { file, at, len } | &Self::Copy { from: file, at, len, .. }) = self else {
            return None;
        };
        let near = places[usize::from(file) % places.len()];
        Some(Location { offset: at.into(), length: len.into(), ..near })
    }
}

fn pick(disk: &MemDisk, which: u8) -> Option<(String, Vec<u8>)> {
    let names = disk.list().ok()?;
    let name = names.get(usize::from(which) % names.len().max(1))?.clone();
    let content = disk.content(&name)?;
    Some((name, content))
}

/// Writes over a file that somebody may have open; its size stays.
fn overwrite_file(disk: &MemDisk, name: &str, mut content: Vec<u8>) {
    let Ok(file) = disk.open(name) else { return };
    content.resize(usize::try_from(file.size().expect("the disk works")).expect("it is in memory"), 0);
    file.write_at(0, &[IoSlice::new(&content)]).expect("the disk works");
}

fn overwrite(content: &mut [u8], at: u16, bytes: &[u8]) {
    for (place, byte) in content.iter_mut().skip(at.into()).zip(bytes) {
        *place = *byte;
    }
}

fn open(disk: &MemDisk) -> Result<(Opened, Vec<Vec<u8>>), Error> {
    let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), ID)?;
    let (mut payloads, mut places) = (Vec::new(), Vec::new());
    while let Some(frame) = recovery.next_frame()? {
        payloads.push(frame.payload.to_vec());
        places.push(frame.location);
    }
    let opened = recovery.finish()?;
    for (read, payload) in opened.reader.read_all(&places).into_iter().zip(&payloads) {
        assert!(read.expect("what was recovered can be read").payload() == *payload);
    }
    Ok((opened, payloads))
}

fn commit(opened: &mut Opened, payloads: &[Vec<u8>]) -> Vec<Appended> {
    let mut frames = Vec::new();
    for payload in payloads {
        loop {
            match opened.journal.append(Label::kind(1), &[payload]) {
                Ok(frame) => break frames.push(frame),
                Err(AppendError::NotReady { .. }) => drop(opened.keeper.work().expect("the disk has room")),
                Err(error) => panic!("{error}"),
            }
        }
    }
    flush(opened);
    frames
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
