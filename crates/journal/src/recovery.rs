//! Opening a journal: what of it survived, as a stream, and then the parts to go on with (journal-format.md, "Recovery").

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::batch_writer::BatchWriter;
use crate::control::{CONTROL, ControlFile, io_error};
use crate::disk::{Disk, FolderLock};
use crate::error::{Damage, Error, Flaw, Operation};
use crate::folder::{Folder, list, lock};
use crate::frame::{FIRST_RESERVED_KIND, FRAME_HEADER, FrameHeader, KIND_CLEAN_STOP, MARK_SIZE, Mark, Mask};
use crate::ids::{JournalId, Label, Location, Lsn, SegmentNumber};
use crate::journal::Journal;
use crate::keeper::{Keeper, create_spare, is_no_space, wipe_header};
use crate::options::Options;
use crate::read::Reader;
use crate::scan::{Found, SegmentReader, Unsound, find_mark_in_file, first_mark};
use crate::segment::{file_name, file_number};
use crate::segments::{Segment, SegmentFile, Segments, Table};

/// A frame that survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its number: one more than that of the frame before, or two where a clean stop lies between.
    pub lsn: Lsn,
    /// What the owner said about it.
    pub label: Label,
    /// Where it lies.
    pub location: Location,
    /// Its payload.
    pub payload: &'a [u8],
}

/// How the life before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There was none: the folder is new.
    New,
    /// In order, and this is the same folder: nothing was confirmed that is not here.
    Clean,
    /// In order, but this folder is a copy or was restored: the original may have gone on.
    CleanElsewhere,
    /// Without a clean stop.
    Unclean,
}

/// Where a torn tail was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file, with its folder.
    pub file: String,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The first frame that is lost. It was never confirmed.
    pub lsn: Lsn,
}

/// What opening a journal brought to light.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The last frame that is there; 0 if there is none.
    pub last: Lsn,
    /// How many frames were handed out.
    pub frames: u64,
    /// How many times the journal was opened for writing, this time included.
    pub life: u32,
    /// How the life before ended.
    pub stop: Stop,
    /// The torn tail, if traces of one were found.
    pub cut: Option<Cut>,
}

/// The parts of an open journal.
#[derive(Debug)]
pub struct Opened {
    /// For the owner.
    pub journal: Journal,
    /// For whoever writes: a thread of its own ([`Writer`](crate::Writer)) or a simulator.
    pub writer: BatchWriter,
    /// For whoever has time: a thread of its own ([`Writer`](crate::Writer)) or a simulator.
    pub keeper: Keeper,
    /// For whoever reads.
    pub reader: Reader,
    /// What was found.
    pub recovered: Recovered,
}

/// A journal that is being opened. Until [`finish`](Recovery::finish) nothing in the folder is changed (except that a new
/// folder gets its control file).
#[derive(Debug)]
pub struct Recovery {
    disk: Arc<dyn Disk>,
    options: Options,
    lock: Box<dyn FolderLock>,
    control: ControlFile,
    mask: Mask,
    is_new: bool,
    folder: Folder,
    /// Segments still to be read.
    ahead: VecDeque<Arc<Segment>>,
    /// Segments that are part of the log, each with the number of the frame behind it.
    behind: Vec<(Arc<Segment>, Lsn)>,
    reader: Option<SegmentReader>,
    expected: Lsn,
    /// Everything up to here is known to have been synced.
    synced: Lsn,
    frames: u64,
    /// The clean stop, if it is the last frame read.
    stop: Option<[u8; 32]>,
    cut: Option<Cut>,
    done: bool,
}

impl Recovery {
    /// Takes the folder's lock and looks at what is there. `new_id` becomes the journal's identity if the folder is new; draw it
    /// at random.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NewerFormat`], [`Error::Damage`], [`Error::Io`] or [`Error::Options`].
    pub fn open(disk: Arc<dyn Disk>, options: Options, new_id: JournalId) -> Result<Self, Error> {
        options.check()?;
        let lock = lock(disk.as_ref())?;
        let names = list(disk.as_ref())?;
        let has_segments = names.iter().any(|name| file_number(name).is_some());
        let control = ControlFile::open(disk.as_ref(), new_id, &names, has_segments)?;
        let id = control.content.id;
        let mut folder = Folder::look(disk.as_ref(), id, &names)?;
        if let Some(damage) = folder.resized.pop() {
            return Err(damage.into());
        }
        let start = control.content.start;
        let first =
            folder.used.partition_point(|segment| start.is_some_and(|start| segment.number < start.segment));
        let ahead: VecDeque<_> = folder.used.drain(first..).collect();
        if let Some(start) = start
            && ahead.front().is_none_or(|segment| segment.number != start.segment)
        {
            let flaw = Flaw::StartMissing(start.segment);
            return Err(folder.missing(disk.as_ref(), Mask::of(id), start.segment, flaw)?.into());
        }
        let expected = start.and(ahead.front()).map_or(Lsn(1), |segment| segment.first);
        Ok(Self {
            disk,
            options,
            lock,
            mask: Mask::of(id),
            is_new: control.content.life == 0,
            synced: start.map_or(Lsn(0), |start| start.lsn),
            control,
            folder,
            ahead,
            behind: Vec::new(),
            reader: None,
            expected,
            frames: 0,
            stop: None,
            cut: None,
            done: false,
        })
    }

    /// The next frame, in order, from the last checkpoint on; `None` at the end of the log.
    ///
    /// # Errors
    /// [`Error::Damage`] if something that was synced is not there as it was written, [`Error::Io`] if it can't be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        let Some((header, location)) = self.advance()? else { return Ok(None) };
        self.frames += 1;
        let payload = self.reader.as_ref().map(|reader| reader.payload(&location)).unwrap_or_default();
        Ok(Some(Frame { lsn: header.lsn, label: header.label, location, payload }))
    }

    /// Goes on to the next frame of the owner.
    fn advance(&mut self) -> Result<Option<(FrameHeader, Location)>, Error> {
        let start = self.control.content.start.map_or(Lsn(0), |start| start.lsn);
        while !self.done {
            let Some(reader) = self.reader.as_mut() else {
                self.next_segment(Unsound::Other)?;
                continue;
            };
            match reader.next(self.expected).map_err(|source| self.read_error(source))? {
                Found::Mark(mark) => self.synced = self.synced.max(mark.synced),
                Found::Nothing(why) => self.next_segment(why)?,
                Found::Frame(header, location) => {
                    self.expected = header.lsn.next();
                    let reserved = header.label.kind >= FIRST_RESERVED_KIND;
                    self.stop = if header.label.kind == KIND_CLEAN_STOP {
                        self.stop_identity(&location)
                    } else {
                        None
                    };
                    if header.lsn >= start && !reserved {
                        return Ok(Some((header, location)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn stop_identity(&self, location: &Location) -> Option<[u8; 32]> {
        self.reader.as_ref()?.payload(location).first_chunk().copied()
    }

    /// The segment being read ends here (if there is one): goes on in the next, or ends, or finds that it can't be the end.
    fn next_segment(&mut self, why: Unsound) -> Result<(), Error> {
        match self.ahead.front().map(|next| (next.first, next)) {
            Some((first, next)) if first < self.expected => {
                let flaw = Flaw::Overlap { expected: self.expected, found: first };
                return Err(Damage { file: self.disk.location(&next.file.name), offset: 0, flaw }.into());
            }
            Some((first, _)) if first == self.expected => {
                // A later life wrote behind the clean stop, so that one says nothing about the end of the log any more.
                self.stop = None;
                self.leave_segment();
            }
            next => {
                // Nothing is ever written behind a clean stop in its life, so there is nothing to search for, unless a
                // file that can't be read may belong to a later one.
                let stopped = self.stop.is_some() && next.is_none() && self.folder.unreadable.is_empty();
                if !stopped {
                    self.check_end(why)?;
                }
                self.check_newest(why)?;
                self.end(why);
                return Ok(());
            }
        }
        self.reader = self.ahead.pop_front().map(|segment| SegmentReader::new(segment, self.mask));
        Ok(())
    }

    fn leave_segment(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.behind.push((Arc::clone(reader.segment()), self.expected));
        }
    }

    /// The log ends with the segment being read.
    fn end(&mut self, why: Unsound) {
        self.done = true;
        if let Some(reader) = &self.reader
            && (why != Unsound::Other || !self.ahead.is_empty())
        {
            let file = self.disk.location(&reader.segment().file.name);
            tracing::warn!(
                file,
                offset = reader.offset(),
                lsn = self.expected.0,
                "cut off the journal's torn tail"
            );
            self.cut = Some(Cut { file, offset: reader.offset(), lsn: self.expected });
        }
        self.leave_segment();
    }

    /// `Err` if the expected frame was once synced: then the log does not end here, but is damaged.
    fn check_end(&mut self, why: Unsound) -> Result<(), Error> {
        let expected = self.expected;
        let life = self.reader.as_ref().map_or(0, |reader| reader.segment().number.life());
        let proves = |mark: &Mark| mark.proves(expected, life);
        let mut blamed = None;
        let mut is_proved = self.synced >= expected;
        for file in &self.folder.unreadable {
            let first = first_mark(file, self.mask).map_err(|source| self.error_in(file, source))?;
            let found =
                find_mark_in_file(file, self.mask, proves).map_err(|source| self.error_in(file, source))?;
            is_proved |= found.is_some();
            // Either the expected frame was the first in this file, or it was somewhere before the mark that proves it.
            if found.is_some() || first.is_some_and(|mark| mark.next == expected) {
                blamed = Some(self.disk.location(&file.name));
            }
        }
        if !is_proved && !self.is_proved(proves)? {
            return Ok(());
        }
        Err(match blamed {
            Some(file) => Damage { file, offset: 0, flaw: Flaw::SegmentHeader },
            None => self.damage(why),
        }
        .into())
    }

    /// `Err` if the log ends before the segment in which, as the control file says, frames were synced.
    fn check_newest(&self, why: Unsound) -> Result<(), Error> {
        let Some(newest) = self.control.content.newest_segment() else { return Ok(()) };
        if self.reader.as_ref().is_some_and(|reader| reader.segment().number >= newest) {
            return Ok(());
        }
        if self.ahead.iter().any(|segment| segment.number == newest) {
            return Err(self.damage(why).into());
        }
        Err(match self.folder.unreadable.as_slice() {
            [file] => {
                Damage { file: self.disk.location(&file.name), offset: 0, flaw: Flaw::SegmentHeader }.into()
            }
            _ => newest_missing(self.disk.as_ref(), newest).into(),
        })
    }

    /// Whether a wanted mark is in the rest of this segment, in a later one, or at the beginning of a spare file.
    fn is_proved(&mut self, wanted: impl Fn(&Mark) -> bool) -> Result<bool, Error> {
        if let Some(mut reader) = self.reader.take() {
            let found = reader.find_mark(reader.offset(), &wanted);
            self.reader = Some(reader);
            if found.map_err(|source| self.read_error(source))?.is_some() {
                return Ok(true);
            }
        }
        for segment in &self.ahead {
            let file = &segment.file;
            let found =
                find_mark_in_file(file, self.mask, &wanted).map_err(|source| self.error_in(file, source))?;
            if found.is_some() {
                return Ok(true);
            }
        }
        for file in &self.folder.spare {
            let found = first_mark(file, self.mask).map_err(|source| self.error_in(file, source))?;
            if found.is_some_and(|mark| wanted(&mark)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Names the place where the expected frame should be.
    fn damage(&self, why: Unsound) -> Damage {
        let expected = self.expected;
        let has_room = |reader: &&SegmentReader| {
            let left = reader.segment().file.size.saturating_sub(reader.offset());
            why != Unsound::Other || left > (MARK_SIZE + FRAME_HEADER) as u64
        };
        let here = self.reader.as_ref().filter(has_room);
        if let (None, Some(next)) = (here, self.ahead.front()) {
            let flaw = Flaw::Gap { expected, found: next.first };
            return Damage { file: self.disk.location(&next.file.name), offset: 0, flaw };
        }
        let flaw = match why {
            Unsound::WrongFrame(found) if found != expected => Flaw::WrongFrame { expected, found },
            _ => Flaw::Frame { expected },
        };
        match &self.reader {
            Some(reader) => Damage {
                file: self.disk.location(&reader.segment().file.name),
                offset: reader.offset(),
                flaw,
            },
            None => Damage { file: self.disk.location(""), offset: 0, flaw },
        }
    }

    fn read_error(&self, source: std::io::Error) -> Error {
        let name = self.reader.as_ref().map_or("", |reader| reader.segment().file.name.as_str());
        io_error(&self.disk.location(name), Operation::Read, source)
    }

    fn error_in(&self, file: &SegmentFile, source: std::io::Error) -> Error {
        io_error(&self.disk.location(&file.name), Operation::Read, source)
    }

    /// `Err` if a segment is missing in which something lies that is still needed. For when every frame was read: of what lies
    /// before the last checkpoint the owner alone knows what was freed.
    ///
    /// # Errors
    /// [`Error::Damage`], or [`Error::Io`] if a file can't be read.
    pub fn require(&self, needed: impl IntoIterator<Item = SegmentNumber>) -> Result<(), Error> {
        let read = self.behind.iter().map(|(segment, _)| segment);
        let there: BTreeSet<_> = self.folder.used.iter().chain(read).map(|segment| segment.number).collect();
        let Some(missing) = needed.into_iter().find(|number| !there.contains(number)) else { return Ok(()) };
        let flaw = Flaw::SegmentMissing(missing);
        Err(self.folder.missing(self.disk.as_ref(), self.mask, missing, flaw)?.into())
    }

    /// Reads what was not read yet, makes what survived durable, clears away what was cut off, and begins a new life.
    ///
    /// A full disk is no error here: the journal opens, and its [`Space`](crate::Space) says so.
    ///
    /// # Errors
    /// As [`next_frame`](Self::next_frame).
    pub fn finish(mut self) -> Result<Opened, Error> {
        while self.next_frame()?.is_some() {}
        let stop = self.how_it_stopped()?;
        self.sync_what_survived()?;
        self.clear_away()?;
        let newest = self.behind.last().map_or(0, |(segment, _)| segment.number.life());
        let life = self.control.content.life.max(newest).saturating_add(1);
        self.control.update(|content| {
            content.life = life;
            content.newest = 0;
        })?;
        let full = self.make_first_ready()?;
        let recovered = Recovered {
            last: self.expected.previous(),
            frames: self.frames,
            life,
            stop,
            cut: self.cut.take(),
        };
        let mut opened = self.into_parts(recovered, full);
        // Until the first batch of this life is written, nothing else proves that what was read is synced.
        opened.writer.mark_tail()?;
        Ok(opened)
    }

    fn how_it_stopped(&self) -> Result<Stop, Error> {
        if self.is_new {
            return Ok(Stop::New);
        }
        let Some(stop) = self.stop else { return Ok(Stop::Unclean) };
        let identity = self.disk.identity(CONTROL);
        let identity =
            identity.map_err(|source| io_error(&self.disk.location(CONTROL), Operation::Open, source))?;
        Ok(if identity.0 == stop { Stop::Clean } else { Stop::CleanElsewhere })
    }

    /// What was read may have been in the system's memory only; the next life states that it is synced.
    fn sync_what_survived(&self) -> Result<(), Error> {
        for (segment, next) in self.behind.iter().filter(|(_, next)| next.previous() > self.synced) {
            tracing::debug!(segment = %segment.number, next = next.0, "sync a segment of the last life");
            let result = segment.file.file.sync();
            result.map_err(|source| {
                io_error(&self.disk.location(&segment.file.name), Operation::Sync, source)
            })?;
        }
        Ok(())
    }

    /// Segments that were cut off and files without a sound header become spare; files of unusual sizes are removed.
    fn clear_away(&mut self) -> Result<(), Error> {
        let mut files: Vec<SegmentFile> = std::mem::take(&mut self.folder.unreadable);
        for segment in self.ahead.drain(..) {
            files.extend(Arc::into_inner(segment).map(|segment| segment.file));
        }
        for file in files {
            if file.size >= crate::segment::HEADER_BLOCK {
                wipe_header(file.file.as_ref())
                    .map_err(|source| io_error(&self.disk.location(&file.name), Operation::Write, source))?;
            }
            self.folder.spare.push(file);
        }
        let usual = [self.options.segment_size, self.options.first_segment_size];
        let spare = std::mem::take(&mut self.folder.spare);
        let (keep, mut remove): (Vec<_>, Vec<_>) =
            spare.into_iter().partition(|file| usual.contains(&file.size));
        self.folder.spare = keep;
        let most = self.options.keep_spare.max(self.options.ready_ahead).min(self.folder.spare.len());
        remove.extend(self.folder.spare.drain(most..));
        for file in remove {
            let result = self.disk.remove(&file.name);
            result.map_err(|source| io_error(&self.disk.location(&file.name), Operation::Remove, source))?;
        }
        // Also for the names of files that the last life made and did not live to sync.
        self.disk.sync_folder().map_err(|source| io_error(&self.disk.location(""), Operation::Sync, source))
    }

    /// Sees to it that there is a segment for the first frame. `Ok(true)`: the disk is too full for one.
    fn make_first_ready(&mut self) -> Result<bool, Error> {
        if !self.folder.spare.is_empty() {
            return Ok(false);
        }
        let size = self.options.first_segment_size;
        let name = file_name(self.folder.next_file);
        self.folder.next_file = self.folder.next_file.wrapping_add(1);
        match create_spare(self.disk.as_ref(), &name, size) {
            Ok(file) => self.folder.spare.push(SegmentFile { name, size, file }),
            Err(error) if is_no_space(&error) => return Ok(true),
            Err(error) => return Err(io_error(&self.disk.location(&name), Operation::Create, error)),
        }
        Ok(false)
    }

    fn into_parts(self, recovered: Recovered, full: bool) -> Opened {
        let survived =
            self.folder.used.into_iter().chain(self.behind.into_iter().map(|(segment, _)| segment));
        let table = Table {
            live: survived.map(|segment| (segment.number, segment)).collect(),
            ready: self.folder.spare,
            start: self.control.content.start,
            noted: SegmentNumber::new(recovered.life, 0),
            full,
            next_file: self.folder.next_file,
            ..Table::default()
        };
        let id = self.control.content.id;
        let segments = Arc::new(Segments::new(self.disk, self.options, id, self.lock, recovered.last, table));
        Opened {
            journal: Journal::new(Arc::clone(&segments), self.expected, recovered.life),
            writer: BatchWriter::new(Arc::clone(&segments)),
            keeper: Keeper::new(Arc::clone(&segments), self.control),
            reader: Reader::new(segments),
            recovered,
        }
    }
}

/// Damage to the folder: the newest segment is not in it.
pub(crate) fn newest_missing(disk: &dyn Disk, newest: SegmentNumber) -> Damage {
    Damage { file: disk.location(""), offset: 0, flaw: Flaw::NewestMissing(newest) }
}
