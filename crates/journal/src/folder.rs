//! What a data folder holds, before any of it is believed.

use std::sync::Arc;

use crate::control::io_error;
use crate::disk::{Disk, FolderLock};
use crate::error::{Damage, Error, Flaw, Operation};
use crate::frame::Mask;
use crate::ids::{JournalId, SegmentNumber};
use crate::scan::find_mark_in_file;
use crate::segment::{FORMAT, HEADER_BLOCK, HeaderState, SegmentHeader, file_number};
use crate::segments::{Segment, SegmentFile};

/// The segment files of a folder, by what their headers say.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// Segments of the log, in order.
    pub(crate) used: Vec<Arc<Segment>>,
    pub(crate) spare: Vec<SegmentFile>,
    pub(crate) unreadable: Vec<SegmentFile>,
    /// Segments that were cut off, or grew.
    pub(crate) resized: Vec<Damage>,
    /// A number for a new file, larger than all that are there.
    pub(crate) next_file: u32,
}

impl Folder {
    /// Reads the headers of all segment files.
    pub(crate) fn look(disk: &dyn Disk, id: JournalId, names: &[String]) -> Result<Self, Error> {
        let mut folder = Self { next_file: 1, ..Self::default() };
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| file_number(name)).collect();
        numbers.sort_unstable();
        for number in numbers {
            folder.next_file = number.wrapping_add(1);
            folder.add(disk, id, crate::segment::file_name(number))?;
        }
        folder.used.sort_by_key(|segment| segment.number);
        Ok(folder)
    }

    /// The damage that a segment is missing: that of the file which is it, as its marks say, if its header alone is damaged.
    pub(crate) fn missing(
        &self,
        disk: &dyn Disk,
        mask: Mask,
        number: SegmentNumber,
        flaw: Flaw,
    ) -> Result<Damage, Error> {
        for file in &self.unreadable {
            let location = disk.location(&file.name);
            let found = find_mark_in_file(file, mask, |mark| mark.generation == number);
            if found.map_err(|source| io_error(&location, Operation::Read, source))?.is_some() {
                return Ok(Damage { file: location, offset: 0, flaw: Flaw::SegmentHeader });
            }
        }
        Ok(Damage { file: disk.location(""), offset: 0, flaw })
    }

    fn add(&mut self, disk: &dyn Disk, id: JournalId, name: String) -> Result<(), Error> {
        let location = disk.location(&name);
        let file = disk.open(&name).map_err(|source| io_error(&location, Operation::Open, source))?;
        let size = file.size().map_err(|source| io_error(&location, Operation::Open, source))?;
        let mut block = vec![0; usize::try_from(HEADER_BLOCK).unwrap_or(0)];
        let read =
            file.read_at(0, &mut block).map_err(|source| io_error(&location, Operation::Read, source))?;
        block.truncate(read);
        let state = SegmentHeader::parse(&block, id, size);
        let file = SegmentFile { name, size, file };
        match state {
            HeaderState::Used(header) => {
                self.used.push(Arc::new(Segment { number: header.number, first: header.first, file }));
            }
            HeaderState::Spare => self.spare.push(file),
            HeaderState::Unreadable => self.unreadable.push(file),
            HeaderState::Resized { stated } => {
                let flaw = Flaw::SegmentSize { stated, found: size };
                self.resized.push(Damage { file: location, offset: size.min(stated), flaw });
            }
            HeaderState::Newer(found) => {
                return Err(Error::NewerFormat { file: location, found, supported: FORMAT });
            }
        }
        Ok(())
    }
}

/// Takes the folder's lock.
pub(crate) fn lock(disk: &dyn Disk) -> Result<Box<dyn FolderLock>, Error> {
    disk.lock().map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => {
            Error::Locked { folder: disk.location(""), holder: source.to_string() }
        }
        _ => io_error(&disk.location("lock"), Operation::Lock, source),
    })
}

/// Lists the files of the folder.
pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<String>, Error> {
    disk.list().map_err(|source| io_error(&disk.location(""), Operation::List, source))
}
