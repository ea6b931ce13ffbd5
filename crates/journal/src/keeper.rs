//! What happens to segments off the path of the log: made ready ahead of time, recycled, removed; and checkpoints.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::control::{Control, ControlFile, Start};
use crate::disk::Disk;
use crate::error::{Error, Operation};
use crate::ids::{Checkpoint, SegmentNumber};
use crate::segment::{HEADER_BLOCK, file_name};
use crate::segments::{Segment, SegmentFile, Segments};

/// Makes segments ready, recycles freed ones, and declares checkpoints, one piece of work at a time. There is one for a
/// journal.
#[derive(Debug)]
pub struct Keeper {
    pub(crate) segments: Arc<Segments>,
    control: ControlFile,
}

/// What one call of [`Keeper::work`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// There is nothing to do.
    Nothing,
    /// A segment became ready.
    Ready,
    /// A freed segment was removed, because there are spare ones enough.
    Removed(SegmentNumber),
    /// A checkpoint is complete, durably: recovery starts there, and what lies before can be freed.
    Checkpointed(Checkpoint),
    /// The control file names this segment as the newest: should it be missing at the next start, that is seen.
    Noted(SegmentNumber),
    /// The disk is too full for another segment. Trying again is of use once something was freed, or after a while.
    NoSpace,
}

/// What there is to do next.
enum Job {
    Checkpoint(Checkpoint),
    Note(SegmentNumber),
    Recycle(Arc<Segment>),
    Create { name: String, size: u64 },
    Nothing,
}

impl Keeper {
    pub(crate) fn new(segments: Arc<Segments>, control: ControlFile) -> Self {
        Self { segments, control }
    }

    /// Does the next piece of work, or says that there is none. May take as long as zeroing a segment takes.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::PreviousIo`]; a full disk is none, but [`Work::NoSpace`].
    pub fn work(&mut self) -> Result<Work, Error> {
        self.segments.check_failed()?;
        match self.next_job() {
            Job::Checkpoint(checkpoint) => self.checkpoint(checkpoint),
            Job::Note(newest) => self.note(newest),
            Job::Recycle(segment) => self.recycle(&segment),
            Job::Create { name, size } => self.create(name, size),
            Job::Nothing => Ok(Work::Nothing),
        }
    }

    /// Checkpoints come first because they free space, and freed files because they are ready sooner than new ones.
    fn next_job(&self) -> Job {
        let mut table = self.segments.table();
        let durable = self.segments.durable();
        if let Some(checkpoint) = table.due_checkpoint(durable) {
            table.checkpoints.pop_front();
            return Job::Checkpoint(checkpoint);
        }
        if let Some(newest) = table.to_note(durable) {
            return Job::Note(newest);
        }
        if let Some(segment) = table.freed.pop_front() {
            return Job::Recycle(segment);
        }
        let Some(size) = table.size_to_create(&self.segments.options) else { return Job::Nothing };
        let name = file_name(table.next_file);
        table.next_file = table.next_file.wrapping_add(1);
        Job::Create { name, size }
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Work, Error> {
        let start = Start { segment: checkpoint.first.location.segment, lsn: checkpoint.first.lsn };
        let newest = self.segments.table().to_note(self.segments.durable());
        self.update(|content| {
            content.start = Some(start);
            content.newest = newest.map_or(content.newest, SegmentNumber::index);
        })?;
        let mut table = self.segments.table();
        table.start = Some(start);
        table.noted = newest.unwrap_or(table.noted);
        drop(table);
        Ok(Work::Checkpointed(checkpoint))
    }

    /// Names the newest segment in the control file, unless the clean stop was begun meanwhile.
    fn note(&mut self, newest: SegmentNumber) -> Result<Work, Error> {
        let segments = Arc::clone(&self.segments);
        let held = segments.hold_control();
        if segments.table().stopped {
            return Ok(Work::Nothing);
        }
        let written = self.control.update(|content| content.newest = newest.index());
        drop(held);
        written.inspect_err(|_| segments.fail())?;
        segments.table().noted = newest;
        Ok(Work::Noted(newest))
    }

    /// Writes the control file.
    fn update(&mut self, change: impl FnOnce(&mut Control)) -> Result<(), Error> {
        let _held = self.segments.hold_control();
        self.control.update(change).inspect_err(|_| self.segments.fail())
    }

    /// A freed segment becomes spare, or is removed if it has an unusual size or there are spare ones enough.
    fn recycle(&self, segment: &Arc<Segment>) -> Result<Work, Error> {
        let SegmentFile { name, size, file } = &segment.file;
        let options = &self.segments.options;
        let enough = self.segments.table().ready.len() >= options.keep_spare.max(options.ready_ahead);
        if *size != options.segment_size || enough {
            let disk = &self.segments.disk;
            self.segments.or_fail(name, Operation::Remove, disk.remove(name))?;
            self.segments.or_fail("", Operation::Sync, disk.sync_folder())?;
            self.segments.table().full = false;
            return Ok(Work::Removed(segment.number));
        }
        self.segments.or_fail(name, Operation::Write, wipe_header(file.as_ref()))?;
        self.add_ready(SegmentFile { name: name.clone(), size: *size, file: Arc::clone(file) });
        Ok(Work::Ready)
    }

    fn create(&self, name: String, size: u64) -> Result<Work, Error> {
        match create_spare(self.segments.disk.as_ref(), &name, size) {
            Ok(file) => {
                self.add_ready(SegmentFile { name, size, file });
                Ok(Work::Ready)
            }
            Err(error) if is_no_space(&error) => {
                self.segments.table().full = true;
                Ok(Work::NoSpace)
            }
            Err(error) => self.segments.or_fail(&name, Operation::Create, Err(error)),
        }
    }

    fn add_ready(&self, file: SegmentFile) {
        let mut table = self.segments.table();
        table.full = false;
        table.wanted = table.wanted.filter(|wanted| *wanted > file.size);
        table.ready.push(file);
    }
}

/// Makes a spare segment file, durably. If that fails, what was begun is removed, so that a full disk is not left fuller.
pub(crate) fn create_spare(
    disk: &dyn Disk,
    name: &str,
    size: u64,
) -> io::Result<Arc<dyn crate::disk::DiskFile>> {
    let made = disk.create(name, size).and_then(|file| disk.sync_folder().map(|()| file));
    if made.is_err() {
        // The first error is the one that counts; a file that stays behind is removed at the next start.
        drop(disk.remove(name));
    }
    made
}

/// Makes a segment file spare, durably: its header becomes zero.
pub(crate) fn wipe_header(file: &dyn crate::disk::DiskFile) -> io::Result<()> {
    let zeros = vec![0; usize::try_from(HEADER_BLOCK).map_err(io::Error::other)?];
    file.write_at(0, &[IoSlice::new(&zeros)])?;
    file.sync()
}

/// Whether the error means that there is no room.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
