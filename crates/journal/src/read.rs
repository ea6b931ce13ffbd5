//! Reading one frame back by its place.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::control::io_error;
use crate::error::{Damage, Error, Flaw, Operation};
use crate::frame::{FRAME_HEADER, FrameHeader, frame_size};
use crate::ids::{Label, Location, Lsn};
use crate::segments::Segments;

/// Reads frames that were written, from any thread. Clones read the same journal.
#[derive(Debug, Clone)]
pub struct Reader {
    segments: Arc<Segments>,
}

/// A frame that was read back, and whose checksum is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Its number.
    pub lsn: Lsn,
    /// What the owner said about it.
    pub label: Label,
    frame: Bytes,
}

impl Read {
    /// The payload.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.frame.slice(FRAME_HEADER.min(self.frame.len())..)
    }
}

impl Reader {
    pub(crate) fn new(segments: Arc<Segments>) -> Self {
        Self { segments }
    }

    /// Reads the frame at a place, which must have been written (not only appended) before.
    ///
    /// # Errors
    /// [`Error::NoSuchSegment`] if its segment was freed, [`Error::Damage`] if the frame is not there as it was written,
    /// [`Error::Io`] if it can't be read.
    pub fn read(&self, location: &Location) -> Result<Read, Error> {
        let segment = self.segments.find(location.segment)?;
        let name = &segment.file.name;
        let place = || self.segments.disk.location(name);
        let offset = u64::from(location.offset);
        let inside = offset + frame_size(u64::from(location.length)) <= segment.file.size;
        let length =
            usize::try_from(location.length).ok().filter(|_| inside).map(|length| FRAME_HEADER + length);
        let mut frame = BytesMut::zeroed(length.unwrap_or(0));
        let read = segment.file.file.read_at(offset, &mut frame);
        let read = read.map_err(|source| io_error(&place(), Operation::Read, source))?;
        let frame = frame.freeze();
        let header = FrameHeader::parse(&frame).filter(|header| {
            read == frame.len()
                && header.length == location.length
                && header.generation == location.segment
                && frame.get(4..).is_some_and(|rest| self.segments.mask.checksum(rest) == header.checksum)
        });
        match header {
            Some(header) => Ok(Read { lsn: header.lsn, label: header.label, frame }),
            None => Err(Damage { file: place(), offset, flaw: Flaw::Read }.into()),
        }
    }
}
