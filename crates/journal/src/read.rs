//! Reading one frame back by its place.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::control::io_error;
use crate::error::{Damage, Error, Flaw, Operation};
use crate::frame::{FRAME_HEADER, FrameHeader, frame_size};
use crate::ids::{Label, Location, Lsn};
use crate::segments::{Segment, Segments};

/// Bytes that are read at once at most, where frames lie behind each other.
const RUN_BYTES: u64 = 256 * 1024;
/// Bytes between two frames at most that are read for nothing, to save a call.
const RUN_GAP: u64 = 4 * 1024;

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
        let inside = end_of(location) <= segment.file.size;
        let frame =
            self.read_bytes(&segment, location.offset, if inside { length_of(location) } else { 0 })?;
        self.check(&segment, location, frame)
    }

    /// Reads several frames, each as [`Self::read`] does. Those that lie close behind each other, as they do where they were
    /// appended one after another, are read at once.
    pub fn read_all(&self, locations: &[Location]) -> Vec<Result<Read, Error>> {
        let mut frames = Vec::with_capacity(locations.len());
        let mut rest = locations;
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(run_length(rest));
            rest = behind;
            match self.read_run(run) {
                Some(run) => frames.extend(run),
                None => frames.extend(run.iter().map(|location| self.read(location))),
            }
        }
        frames
    }

    /// Reads a run of frames; `None` if that fails as a whole, and each is to be read alone, which tells where it fails.
    fn read_run(&self, run: &[Location]) -> Option<Vec<Result<Read, Error>>> {
        let ([first, .., last], Ok(segment)) = (run, self.segments.find(run.first()?.segment)) else {
            return None;
        };
        let end = end_of(last);
        let length =
            usize::try_from(end - u64::from(first.offset)).ok().filter(|_| end <= segment.file.size)?;
        let bytes = self.read_bytes(&segment, first.offset, length).ok()?;
        let frame = |location: &Location| {
            let at = (location.offset - first.offset) as usize;
            bytes.slice(at.min(bytes.len())..(at + length_of(location)).min(bytes.len()))
        };
        Some(run.iter().map(|location| self.check(&segment, location, frame(location))).collect())
    }

    /// Reads up to `length` bytes; fewer only where the file ends.
    fn read_bytes(&self, segment: &Segment, offset: u32, length: usize) -> Result<Bytes, Error> {
        let mut bytes = BytesMut::zeroed(length);
        let read = segment.file.file.read_at(u64::from(offset), &mut bytes);
        let place = || self.segments.disk.location(&segment.file.name);
        bytes.truncate(read.map_err(|source| io_error(&place(), Operation::Read, source))?);
        Ok(bytes.freeze())
    }

    /// Whether these bytes are the frame that was written at a place.
    fn check(&self, segment: &Segment, location: &Location, frame: Bytes) -> Result<Read, Error> {
        let header = FrameHeader::parse(&frame).filter(|header| {
            frame.len() == length_of(location)
                && header.length == location.length
                && header.generation == location.segment
                && frame.get(4..).is_some_and(|rest| self.segments.mask.checksum(rest) == header.checksum)
        });
        match header {
            Some(header) => Ok(Read { lsn: header.lsn, label: header.label, frame }),
            None => {
                let file = self.segments.disk.location(&segment.file.name);
                Err(Damage { file, offset: u64::from(location.offset), flaw: Flaw::Read }.into())
            }
        }
    }
}

/// Bytes of a frame, its header included.
const fn length_of(location: &Location) -> usize {
    FRAME_HEADER + location.length as usize
}

/// Where the frame behind it begins.
fn end_of(location: &Location) -> u64 {
    u64::from(location.offset) + frame_size(u64::from(location.length))
}

/// How many of these, from the first on, are read at once: at least one.
fn run_length(locations: &[Location]) -> usize {
    let Some(first) = locations.first() else { return 0 };
    let goes_on = |pair: &&[Location]| {
        let (end, next) = (end_of(&pair[0]), &pair[1]);
        let gap = u64::from(next.offset).checked_sub(end);
        next.segment == first.segment
            && gap.is_some_and(|gap| gap <= RUN_GAP)
            && end_of(next) - u64::from(first.offset) <= RUN_BYTES
    };
    1 + locations.windows(2).take_while(goes_on).count()
}
