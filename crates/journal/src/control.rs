//! The control file: identity, life, and where recovery starts (journal-format.md, "Control file").

use std::io::IoSlice;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, Error, Flaw, Operation};
use crate::frame::{Mask, u32_at, u64_at};
use crate::ids::{JournalId, Lsn, SegmentNumber};
use crate::segment::{FORMAT, HEADER_SIZE, checksum_is_right, id_at};

/// Name of the control file.
pub(crate) const CONTROL: &str = "control";

const MAGIC: &[u8; 8] = b"PRCNTROL";
const SLOT: u64 = 4096;

/// Where recovery starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) segment: SegmentNumber,
    pub(crate) lsn: Lsn,
}

/// What the control file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) sequence: u64,
    pub(crate) id: JournalId,
    pub(crate) life: u32,
    /// Index within this life of the newest segment that is known to hold a synced frame; 0: of none, or not known.
    pub(crate) newest: u32,
    /// `None` before the first checkpoint: everything is replayed.
    pub(crate) start: Option<Start>,
}

impl Control {
    /// The newest segment that is known to hold a synced frame.
    pub(crate) fn newest_segment(&self) -> Option<SegmentNumber> {
        (self.newest != 0).then(|| SegmentNumber::new(self.life, self.newest))
    }

    fn encode(&self) -> Vec<u8> {
        let mut slot = vec![0; usize::try_from(SLOT).expect("4096 fits")];
        let (segment, lsn) = self.start.map_or((0, 0), |start| (start.segment.0, start.lsn.0));
        slot[..8].copy_from_slice(MAGIC);
        slot[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        slot[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        slot[24..40].copy_from_slice(&self.id.0);
        slot[40..44].copy_from_slice(&self.life.to_le_bytes());
        slot[44..48].copy_from_slice(&self.newest.to_le_bytes());
        slot[48..56].copy_from_slice(&segment.to_le_bytes());
        slot[56..64].copy_from_slice(&lsn.to_le_bytes());
        let checksum = Mask::NONE.checksum(&slot[..HEADER_SIZE]);
        slot[12..16].copy_from_slice(&checksum.to_le_bytes());
        slot
    }

    /// A sound slot; `Err` with the format number if a newer program wrote it.
    fn parse(slot: &[u8]) -> Result<Option<Self>, u32> {
        if !slot.starts_with(MAGIC) {
            return Ok(None);
        }
        match u32_at(slot, 8) {
            Some(FORMAT) if checksum_is_right(slot, Mask::NONE) => Ok(Self::fields(slot)),
            // A newer program may place its checksum elsewhere, so it can't be asked for.
            Some(newer) if newer > FORMAT => Err(newer),
            _ => Ok(None),
        }
    }

    fn fields(slot: &[u8]) -> Option<Self> {
        let segment = u64_at(slot, 48)?;
        let lsn = Lsn(u64_at(slot, 56)?);
        Some(Self {
            sequence: u64_at(slot, 16)?,
            id: id_at(slot, 24)?,
            life: u32_at(slot, 40)?,
            newest: u32_at(slot, 44)?,
            start: (segment != 0).then_some(Start { segment: SegmentNumber(segment), lsn }),
        })
    }
}

/// The open control file with its present content.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: Arc<dyn DiskFile>,
    location: String,
    pub(crate) content: Control,
}

impl ControlFile {
    /// Reads the control file, or makes one if the folder is new. `has_segments`: whether the folder holds segment files.
    pub(crate) fn open(
        disk: &dyn Disk,
        new_id: JournalId,
        names: &[String],
        has_segments: bool,
    ) -> Result<Self, Error> {
        let exists = names.iter().any(|name| name == CONTROL);
        if let Some(control) = if exists { Self::read(disk)? } else { None } {
            return control.whole();
        }
        if has_segments {
            return Err(Damage { file: disk.location(CONTROL), offset: 0, flaw: Flaw::Control }.into());
        }
        Self::create(disk, new_id, exists)
    }

    /// Gives a file that was cut short the room for both slots again: one of them is sound, so nothing is lost.
    fn whole(self) -> Result<Self, Error> {
        let size = self.file.size().map_err(|source| io_error(&self.location, Operation::Read, source))?;
        if size < 2 * SLOT {
            let grown = self.file.grow(2 * SLOT);
            grown.map_err(|source| io_error(&self.location, Operation::Write, source))?;
        }
        Ok(self)
    }

    /// Reads the control file without changing anything. `None` if no slot is sound.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>, Error> {
        let location = disk.location(CONTROL);
        let file = disk.open(CONTROL).map_err(|source| io_error(&location, Operation::Open, source))?;
        let mut best: Option<Control> = None;
        let mut newer = None;
        for offset in [0, SLOT] {
            let mut slot = [0; HEADER_SIZE];
            let read = file
                .read_at(offset, &mut slot)
                .map_err(|source| io_error(&location, Operation::Read, source))?;
            match Control::parse(slot.get(..read).unwrap_or_default()) {
                Ok(Some(found)) if best.is_none_or(|best| found.sequence > best.sequence) => {
                    best = Some(found);
                }
                Ok(_) => {}
                Err(format) => newer = Some(format),
            }
        }
        // A sound slot beside a "newer" one means that the latter's format field is damaged: a newer program would have
        // rewritten both. A crash in the middle of its first write leaves the older slot, and then the folder is as it was.
        match (best, newer) {
            (Some(content), _) => Ok(Some(Self { file, location, content })),
            (None, Some(found)) => Err(Error::NewerFormat { file: location, found, supported: FORMAT }),
            (None, None) => Ok(None),
        }
    }

    /// Makes the control file of a new folder, durably. A file that a crash left half made is made again.
    fn create(disk: &dyn Disk, id: JournalId, exists: bool) -> Result<Self, Error> {
        let location = disk.location(CONTROL);
        if exists {
            disk.remove(CONTROL).map_err(|source| io_error(&location, Operation::Remove, source))?;
        }
        let file = disk
            .create(CONTROL, 2 * SLOT)
            .map_err(|source| io_error(&location, Operation::Create, source))?;
        let mut control =
            Self { file, location, content: Control { sequence: 0, id, life: 0, newest: 0, start: None } };
        control.update(|_| ())?;
        disk.sync_folder().map_err(|source| io_error(&control.location, Operation::Sync, source))?;
        Ok(control)
    }

    /// Changes the content, durably: one slot after the other, so that one is sound at every moment.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Control)) -> Result<(), Error> {
        let mut next = self.content;
        change(&mut next);
        next.sequence = next.sequence.saturating_add(1);
        let slot = next.encode();
        for offset in [0, SLOT] {
            let written = self.file.write_at(offset, &[IoSlice::new(&slot)]);
            written.map_err(|source| io_error(&self.location, Operation::Write, source))?;
            self.file.sync().map_err(|source| io_error(&self.location, Operation::Sync, source))?;
        }
        self.content = next;
        Ok(())
    }
}

/// An [`Error::Io`].
pub(crate) fn io_error(location: &str, operation: Operation, source: std::io::Error) -> Error {
    Error::Io { file: location.to_owned(), operation, source }
}
