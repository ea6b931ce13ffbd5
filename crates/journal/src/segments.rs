//! What the parts of an open journal share: the table of segments, what is synced, and whether anything failed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::control::{Start, io_error};
use crate::disk::{Disk, DiskFile, FolderLock};
use crate::error::{Error, FreeError, Operation};
use crate::frame::Mask;
use crate::ids::{Checkpoint, JournalId, Lsn, SegmentNumber};
use crate::options::Options;
use crate::segment::HEADER_BLOCK;

/// A segment file with room for frames, whatever it holds at present.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// A segment of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: SegmentNumber,
    pub(crate) first: Lsn,
    pub(crate) file: SegmentFile,
}

/// What the owner can know about a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: SegmentNumber,
    /// The first frame in it.
    pub first: Lsn,
    /// Bytes of the file.
    pub size: u64,
    /// Name of the file, with its folder.
    pub file: String,
}

/// The shared part of an open journal. Holds the folder's lock.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) id: JournalId,
    pub(crate) mask: Mask,
    durable: AtomicU64,
    failed: AtomicBool,
    table: Mutex<Table>,
    changed: Condvar,
    /// Held while the control file is written, and while its identity is read for a clean stop.
    control: Mutex<()>,
    _lock: Box<dyn FolderLock>,
}

/// The table of segments: those of the log, those ready for it, and what the keeper has to do.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) live: BTreeMap<SegmentNumber, Arc<Segment>>,
    pub(crate) ready: Vec<SegmentFile>,
    pub(crate) freed: VecDeque<Arc<Segment>>,
    pub(crate) checkpoints: VecDeque<Checkpoint>,
    pub(crate) start: Option<Start>,
    /// The newest segment that the control file names; index 0 while there is none of this life.
    pub(crate) noted: SegmentNumber,
    /// The clean stop is the last thing that is written, so no segment is noted any more.
    pub(crate) stopped: bool,
    /// A frame waits for a segment of this size, which is larger than any that is ready.
    pub(crate) wanted: Option<u64>,
    /// The last attempt to make a segment met a full disk.
    pub(crate) full: bool,
    pub(crate) next_file: u32,
    pub(crate) stopping: bool,
}

impl Table {
    /// Takes the smallest ready file that is large enough, or notes that one is wanted.
    pub(crate) fn take_ready(&mut self, size: u64) -> Option<SegmentFile> {
        let fitting = self.ready.iter().enumerate().filter(|(_, file)| file.size >= size);
        let best = fitting.min_by_key(|(_, file)| file.size).map(|(index, _)| index);
        if best.is_none() {
            self.wanted = self.wanted.max(Some(size));
        }
        // Not `swap_remove`: the files are used in the order in which they became ready.
        best.map(|index| self.ready.remove(index))
    }
}

impl Table {
    /// The size of the file that should be made next, if one should.
    pub(crate) fn size_to_create(&self, options: &Options) -> Option<u64> {
        let usual = options.segment_size;
        match self.wanted {
            Some(wanted) => Some(wanted.next_multiple_of(HEADER_BLOCK).max(usual)),
            None => (self.ready.len() < options.ready_ahead).then_some(usual),
        }
    }

    /// The newest segment in which a frame is durable, if the control file names an older one.
    pub(crate) fn to_note(&self, durable: Lsn) -> Option<SegmentNumber> {
        let newest = self.live.values().rev().find(|segment| segment.first <= durable)?.number;
        (!self.stopped && self.noted < newest).then_some(newest)
    }

    /// The next checkpoint, if all of it is durable.
    pub(crate) fn due_checkpoint(&self, durable: Lsn) -> Option<Checkpoint> {
        self.checkpoints.front().filter(|next| next.last <= durable).copied()
    }
}

impl Segments {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        id: JournalId,
        lock: Box<dyn FolderLock>,
        durable: Lsn,
        table: Table,
    ) -> Self {
        Self {
            disk,
            options,
            id,
            mask: Mask::of(id),
            durable: AtomicU64::new(durable.0),
            failed: AtomicBool::new(false),
            table: Mutex::new(table),
            changed: Condvar::new(),
            control: Mutex::new(()),
            _lock: lock,
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the control file as it is.
    pub(crate) fn hold_control(&self) -> MutexGuard<'_, ()> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the keeper is woken, or as long as `at_most` if that is given.
    pub(crate) fn wait<'a>(
        &self,
        table: MutexGuard<'a, Table>,
        at_most: Option<Duration>,
    ) -> MutexGuard<'a, Table> {
        match at_most {
            Some(time) => self.changed.wait_timeout(table, time).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(table).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Wakes the keeper. The caller must not hold the table.
    pub(crate) fn wake_keeper(&self) {
        // Orders what the caller changed with the keeper's last look before it sleeps, also if that is not in the table.
        drop(self.table());
        self.changed.notify_all();
    }

    /// The last frame known to be safe on disk.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Everything up to and with `lsn` is safe on disk.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        self.durable.store(lsn.0, Ordering::Release);
        // A checkpoint may have waited for this, or a segment that is to be noted.
        let table = self.table();
        let waits = !table.checkpoints.is_empty() || table.to_note(lsn).is_some();
        drop(table);
        if waits {
            self.wake_keeper();
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// `Err` if anything failed before.
    pub(crate) fn check_failed(&self) -> Result<(), Error> {
        if self.has_failed() { Err(Error::PreviousIo) } else { Ok(()) }
    }

    /// From now on nothing is promised any more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Passes a result on; an error that leaves the disk in doubt ends everything.
    pub(crate) fn or_fail<T>(
        &self,
        file: &str,
        operation: Operation,
        result: io::Result<T>,
    ) -> Result<T, Error> {
        result.map_err(|source| {
            self.fail();
            io_error(&self.disk.location(file), operation, source)
        })
    }

    pub(crate) fn find(&self, number: SegmentNumber) -> Result<Arc<Segment>, Error> {
        self.table().live.get(&number).cloned().ok_or(Error::NoSuchSegment(number))
    }

    /// Gives all live segments with a number in the range free, if recovery needs none of them.
    pub(crate) fn free(&self, which: impl Fn(SegmentNumber) -> bool) -> Result<usize, FreeError> {
        let mut table = self.table();
        let start = table.start.map(|start| start.segment);
        let numbers: Vec<_> = table.live.keys().copied().filter(|number| which(*number)).collect();
        if let Some(needed) = numbers.iter().find(|number| start.is_none_or(|start| **number >= start)) {
            return Err(FreeError::StillNeeded(*needed));
        }
        for number in &numbers {
            let segment = table.live.remove(number);
            table.freed.extend(segment);
        }
        drop(table);
        self.wake_keeper();
        Ok(numbers.len())
    }

    pub(crate) fn list(&self) -> Vec<SegmentInfo> {
        let table = self.table();
        let info = |segment: &Arc<Segment>| SegmentInfo {
            number: segment.number,
            first: segment.first,
            size: segment.file.size,
            file: self.disk.location(&segment.file.name),
        };
        table.live.values().map(info).collect()
    }
}
