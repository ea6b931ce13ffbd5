//! Checking a whole journal, for people: every segment, every frame, and all the damage there is.

use std::sync::Arc;

use crate::control::{CONTROL, ControlFile, Start, io_error};
use crate::disk::Disk;
use crate::error::{Damage, Error, Flaw, Operation};
use crate::folder::{Folder, list, lock};
use crate::frame::{FRAME_HEADER, KIND_CLEAN_STOP, MARK_SIZE, Mark, Mask};
use crate::ids::{Lsn, SegmentNumber};
use crate::recovery::newest_missing;
use crate::scan::{Found, SegmentReader, Unsound, find_mark_in_file, first_mark};
use crate::segments::Segment;

/// What [`verify()`] found in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many times the journal was opened for writing.
    pub life: u32,
    /// Where recovery starts; `None`: at the beginning.
    pub start: Option<(SegmentNumber, Lsn)>,
    /// The segments of the log, in order.
    pub segments: Vec<SegmentReport>,
    /// How many files are spare.
    pub spare: usize,
    /// How many segments lie wholly behind a torn tail; the next start makes them spare.
    pub cut_off: usize,
    /// Files whose header can't be read: a crash cut a write of it short, or it is damaged. Whether what lies there is still needed
    /// is not known before everything is replayed.
    pub unreadable: Vec<String>,
    /// The last frame; 0 if there is none.
    pub last: Lsn,
    /// Whether the log ends with a clean stop.
    pub clean_stop: bool,
    /// Everything that was once synced and is not as it was.
    pub damage: Vec<Damage>,
}

/// One segment, as [`verify()`] found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub number: SegmentNumber,
    /// The file, with its folder.
    pub file: String,
    /// Bytes of the file.
    pub size: u64,
    /// The first frame according to the header.
    pub first: Lsn,
    /// The last sound frame; one less than `first` if there is none.
    pub last: Lsn,
    /// How many sound frames there are.
    pub frames: u64,
    /// Bytes up to the end of the last one.
    pub used: u64,
    /// Whether recovery reads it; others only hold what is read by place.
    pub is_replayed: bool,
}

/// Reads a journal that nobody has open, from end to end, without changing it.
///
/// Damage is no error here: it is in the report, and reading goes on behind it at the next mark.
///
/// # Errors
/// [`Error::Locked`] if somebody has it open, [`Error::NewerFormat`], [`Error::Io`], and [`Error::Damage`] only if the control
/// file can't be read, because without it no checksum can be checked.
pub fn verify(disk: &dyn Disk) -> Result<Report, Error> {
    let _lock = lock(disk)?;
    let names = list(disk)?;
    let control = if names.iter().any(|name| name == CONTROL) { ControlFile::read(disk)? } else { None };
    let Some(control) = control else {
        return Err(Damage { file: disk.location(CONTROL), offset: 0, flaw: Flaw::Control }.into());
    };
    let folder = Folder::look(disk, control.content.id, &names)?;
    let mut check = Check {
        disk,
        mask: Mask::of(control.content.id),
        start: control.content.start,
        synced: control.content.start.map_or(Lsn(0), |start| start.lsn),
        last: Lsn(0),
        clean_stop: false,
        has_ended: false,
        unreadable: Vec::new(),
        damage: folder.resized.clone(),
    };
    check.collect_proofs(&folder)?;
    check.check_start(&folder)?;
    let mut segments = Vec::with_capacity(folder.used.len());
    for (index, segment) in folder.used.iter().enumerate() {
        if !check.has_ended {
            segments.push(check.segment(segment, folder.used.get(index + 1))?);
        }
    }
    check.check_newest(control.content.newest_segment(), &segments, &folder.used);
    Ok(Report {
        life: control.content.life,
        start: check.start.map(|start| (start.segment, start.lsn)),
        cut_off: folder.used.len() - segments.len(),
        segments,
        spare: folder.spare.len(),
        unreadable: check.unreadable.into_iter().map(|unreadable| unreadable.file).collect(),
        last: check.last,
        clean_stop: check.clean_stop,
        damage: check.damage,
    })
}

struct Check<'a> {
    disk: &'a dyn Disk,
    mask: Mask,
    start: Option<Start>,
    /// Everything up to here was synced, as some mark says.
    synced: Lsn,
    last: Lsn,
    clean_stop: bool,
    /// The log ends in the segment read last, with a torn tail.
    has_ended: bool,
    unreadable: Vec<Unreadable>,
    damage: Vec<Damage>,
}

/// A file without a sound header.
struct Unreadable {
    file: String,
    /// The first frame in it, as its first mark says.
    first: Option<Lsn>,
    /// The last frame that its marks state to be synced.
    synced: Lsn,
}

impl Check<'_> {
    /// Reads all marks first: what the last of them states holds for the whole log.
    fn collect_proofs(&mut self, folder: &Folder) -> Result<(), Error> {
        let used = folder.used.iter().map(|segment| (&segment.file, false));
        let life = folder.used.last().map_or(0, |segment| segment.number.life());
        for (file, has_no_header) in used.chain(folder.unreadable.iter().map(|file| (file, true))) {
            let synced = std::cell::Cell::new(Lsn(0));
            let note = |mark: &Mark| {
                if mark.proves(mark.synced, life) {
                    synced.set(synced.get().max(mark.synced));
                }
                false
            };
            find_mark_in_file(file, self.mask, note)
                .map_err(|source| io_error(&self.disk.location(&file.name), Operation::Read, source))?;
            if has_no_header {
                let first = first_mark(file, self.mask)
                    .map_err(|source| io_error(&self.disk.location(&file.name), Operation::Read, source))?;
                let first = first.map(|mark| mark.next);
                self.unreadable.push(Unreadable {
                    file: self.disk.location(&file.name),
                    first,
                    synced: synced.get(),
                });
            }
            self.synced = self.synced.max(synced.get());
        }
        // A tail mark may stand at the beginning of a file that is ready.
        for file in &folder.spare {
            let first = first_mark(file, self.mask)
                .map_err(|source| io_error(&self.disk.location(&file.name), Operation::Read, source))?;
            let proof = first.filter(|mark| mark.proves(mark.synced, life));
            self.synced = self.synced.max(proof.map_or(Lsn(0), |mark| mark.synced));
        }
        Ok(())
    }

    fn check_start(&mut self, folder: &Folder) -> Result<(), Error> {
        let (expected, used) = (Lsn(1), &folder.used);
        let first = used.first().map(|segment| (segment.first, self.disk.location(&segment.file.name)));
        match first {
            None if self.synced >= expected => {
                self.note_damage(self.disk.location(""), 0, Flaw::Frame { expected }, expected);
            }
            Some((found, file)) if self.start.is_none() && found > expected => {
                // The first segment of all is missing, or was never synced, and then none was.
                self.has_ended = self.synced < expected;
                if !self.has_ended {
                    self.note_damage(file, 0, Flaw::Gap { expected, found }, expected);
                }
            }
            _ => {}
        }
        if let Some(start) = self.start
            && !used.iter().any(|segment| segment.number == start.segment)
        {
            let flaw = Flaw::StartMissing(start.segment);
            self.damage.push(folder.missing(self.disk, self.mask, start.segment, flaw)?);
        }
        Ok(())
    }

    /// The log reaches the newest segment that the control file names: it does not end in `read`, the segments before.
    fn check_newest(&mut self, newest: Option<SegmentNumber>, read: &[SegmentReport], used: &[Arc<Segment>]) {
        let Some(newest) = newest else { return };
        // Where something else was found the newest segment may be that.
        if !self.damage.is_empty() || read.iter().any(|segment| segment.number >= newest) {
            return;
        }
        let cut_off = used.get(read.len()).filter(|_| used.iter().any(|segment| segment.number == newest));
        let damage = match (cut_off, self.unreadable.as_slice()) {
            (Some(next), _) => self.cut_short(read.last(), next),
            (None, [Unreadable { file, .. }]) => {
                Damage { file: file.clone(), offset: 0, flaw: Flaw::SegmentHeader }
            }
            (None, _) => newest_missing(self.disk, newest),
        };
        self.damage.push(damage);
    }

    /// Names the place where the frame behind the last one should be: in its segment if there is room, else before the next.
    fn cut_short(&self, last: Option<&SegmentReport>, next: &Segment) -> Damage {
        let expected = self.last.next();
        let has_room =
            |last: &&SegmentReport| last.size.saturating_sub(last.used) > (MARK_SIZE + FRAME_HEADER) as u64;
        match last.filter(has_room) {
            Some(last) => {
                Damage { file: last.file.clone(), offset: last.used, flaw: Flaw::Frame { expected } }
            }
            None => Damage {
                file: self.disk.location(&next.file.name),
                offset: 0,
                flaw: Flaw::Gap { expected, found: next.first },
            },
        }
    }

    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        next: Option<&Arc<Segment>>,
    ) -> Result<SegmentReport, Error> {
        let is_replayed = self.start.is_none_or(|start| segment.number >= start.segment);
        if is_replayed && segment.first <= self.last {
            let flaw = Flaw::Overlap { expected: self.last.next(), found: segment.first };
            self.damage.push(Damage { file: self.disk.location(&segment.file.name), offset: 0, flaw });
        }
        let mut reader = SegmentReader::new(Arc::clone(segment), self.mask);
        let mut expected = segment.first;
        let mut frames = 0;
        loop {
            match reader.next(expected).map_err(|source| self.read_error(segment, source))? {
                Found::Mark(_) => {}
                Found::Frame(header, _) => {
                    frames += 1;
                    expected = expected.next();
                    self.clean_stop = header.label.kind == KIND_CLEAN_STOP;
                }
                Found::Nothing(why) => match self.resume(&mut reader, expected, why, next)? {
                    Some(resumed) => expected = resumed,
                    None => break,
                },
            }
        }
        self.last = expected.previous();
        Ok(SegmentReport {
            number: segment.number,
            file: self.disk.location(&segment.file.name),
            size: segment.file.size,
            first: segment.first,
            last: self.last,
            frames,
            used: reader.offset(),
            is_replayed,
        })
    }

    /// Nothing sound is at the reader's place. If `expected` should be there, that is noted, and reading goes on at the next mark,
    /// whose number is returned.
    fn resume(
        &mut self,
        reader: &mut SegmentReader,
        expected: Lsn,
        why: Unsound,
        next: Option<&Arc<Segment>>,
    ) -> Result<Option<Lsn>, Error> {
        let segment = Arc::clone(reader.segment());
        let Some(limit) = self.limit(reader, &segment, expected, next)? else { return Ok(None) };
        let number = segment.number;
        let here = |mark: &Mark| mark.generation == number && mark.next > expected && mark.next <= limit;
        let resumed =
            reader.find_mark(reader.offset(), here).map_err(|source| self.read_error(&segment, source))?;
        let flaw = match why {
            Unsound::WrongFrame(found) => Flaw::WrongFrame { expected, found },
            _ => Flaw::Frame { expected },
        };
        self.damage.push(Damage {
            file: self.disk.location(&segment.file.name),
            offset: reader.offset(),
            flaw,
        });
        Ok(resumed.map(|(offset, mark)| {
            reader.skip_to(offset);
            mark.next
        }))
    }

    /// If `expected` should be in this segment: the highest number that a mark behind the damage can stand before.
    fn limit(
        &mut self,
        reader: &mut SegmentReader,
        segment: &Segment,
        expected: Lsn,
        next: Option<&Arc<Segment>>,
    ) -> Result<Option<Lsn>, Error> {
        let end = next.map_or(self.synced, |next| next.first.previous());
        if end < expected && next.is_some() {
            return Ok(None);
        }
        if self.start.is_none_or(|start| segment.number >= start.segment) {
            self.has_ended = expected > self.synced;
            return Ok((!self.has_ended).then_some(end));
        }
        // In between two segments that do not follow each other others may have been freed, so this one may have ended here.
        let follows = next.is_some_and(|next| next.number.0 == segment.number.0.wrapping_add(1));
        let proves = |mark: &Mark| mark.proves(expected, segment.number.life());
        let is_proved = follows
            || reader
                .find_mark(reader.offset(), proves)
                .map_err(|source| self.read_error(segment, source))?
                .is_some();
        Ok(is_proved.then_some(end))
    }

    /// Blames a file without a sound header if there is one that may have held the missing frame.
    fn note_damage(&mut self, file: String, offset: u64, flaw: Flaw, expected: Lsn) {
        let may_hold = |other: &Unreadable| other.synced >= expected || other.first == Some(expected);
        let blamed = self.unreadable.iter().position(may_hold);
        let damage = match blamed.map(|index| self.unreadable.remove(index)) {
            Some(Unreadable { file, .. }) => Damage { file, offset: 0, flaw: Flaw::SegmentHeader },
            None => Damage { file, offset, flaw },
        };
        self.damage.push(damage);
    }

    fn read_error(&self, segment: &Segment, source: std::io::Error) -> Error {
        io_error(&self.disk.location(&segment.file.name), Operation::Read, source)
    }
}
