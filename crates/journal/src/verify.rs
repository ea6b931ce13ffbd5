//! Checking a whole journal, for people: every segment, every frame, and all the damage there is.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::control::{CONTROL, ControlFile, Start, io_error};
use crate::disk::Disk;
use crate::error::{Damage, Error, Flaw, Operation};
use crate::folder::{Folder, list, lock};
use crate::frame::{KIND_CLEAN_STOP, Mark, Mask};
use crate::ids::{Lsn, SegmentNumber};
use crate::scan::{Found, SegmentReader, Unsound, find_mark_in_file};
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
        damage: Vec::new(),
    };
    check.collect_proofs(&folder)?;
    check.check_start(&folder.used);
    let mut segments = Vec::with_capacity(folder.used.len());
    for (index, segment) in folder.used.iter().enumerate() {
        segments.push(check.segment(segment, folder.used.get(index + 1))?);
    }
    Ok(Report {
        life: control.content.life,
        start: check.start.map(|start| (start.segment, start.lsn)),
        segments,
        spare: folder.spare.len(),
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
    damage: Vec<Damage>,
}

impl Check<'_> {
    /// Reads all marks first: what the last of them states holds for the whole log.
    fn collect_proofs(&mut self, folder: &Folder) -> Result<(), Error> {
        let used = folder.used.iter().map(|segment| (&segment.file, false));
        let mut unreadable = BTreeMap::new();
        for (file, has_no_header) in used.chain(folder.unreadable.iter().map(|file| (file, true))) {
            let synced = std::cell::Cell::new(Lsn(0));
            let note = |mark: &Mark| {
                synced.set(synced.get().max(mark.synced));
                false
            };
            find_mark_in_file(file, self.mask, note)
                .map_err(|source| io_error(&self.disk.location(&file.name), Operation::Read, source))?;
            if has_no_header {
                unreadable.insert(file.name.as_str(), synced.get());
            }
            self.synced = self.synced.max(synced.get());
        }
        let newest = folder.used.last().map_or(Lsn(0), |segment| segment.first);
        for (name, synced) in unreadable {
            // A torn header of a segment that was never synced, or was being recycled, holds no newer proof.
            if synced >= newest {
                let file = self.disk.location(name);
                self.damage.push(Damage { file, offset: 0, flaw: Flaw::SegmentHeader });
            }
        }
        Ok(())
    }

    fn check_start(&mut self, used: &[Arc<Segment>]) {
        if let Some(start) = self.start
            && !used.iter().any(|segment| segment.number == start.segment)
        {
            let flaw = Flaw::StartMissing(start.segment);
            self.damage.push(Damage { file: self.disk.location(""), offset: 0, flaw });
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
        let is_replayed = self.start.is_none_or(|start| segment.number >= start.segment);
        // In between two segments that do not follow each other, others may have been freed.
        let next = next.filter(|next| is_replayed || next.number.0 == segment.number.0.wrapping_add(1));
        if next.is_some_and(|next| next.first <= expected) || expected > self.synced {
            return Ok(None);
        }
        let (number, synced) = (segment.number, self.synced);
        let here =
            |mark: &Mark| mark.generation == number && mark.next > expected && mark.next <= synced.next();
        let resumed =
            reader.find_mark(reader.offset(), here).map_err(|source| self.read_error(&segment, source))?;
        if resumed.is_none() && next.is_none() && !is_replayed {
            return Ok(None);
        }
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

    fn read_error(&self, segment: &Segment, source: std::io::Error) -> Error {
        io_error(&self.disk.location(&segment.file.name), Operation::Read, source)
    }
}
