//! The journal as the owner sees it: appending frames to a batch, in memory.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::control::CONTROL;
use crate::disk::Identity;
use crate::error::{AppendError, FreeError};
use crate::frame::{
    ALIGNMENT, FIRST_RESERVED_KIND, FRAME_HEADER, KIND_CLEAN_STOP, MARK_SIZE, frame_size, seal,
};
use crate::ids::{Appended, Checkpoint, Label, Location, Lsn, SegmentNumber};
use crate::segment::HEADER_BLOCK;
use crate::segments::{Segment, SegmentInfo, Segments};

/// The least room that a batch's buffer is made with, in bytes.
const MIN_BUFFER: usize = 16 << 10;
/// The most room that a batch's buffer is made with in advance; it grows beyond that if it must.
const MAX_BUFFER: usize = 4 << 20;

/// Lays out frames, gives out their numbers and places, and collects them in a batch. Does no I/O.
///
/// There is one, and it belongs to the owner's thread.
#[derive(Debug)]
pub struct Journal {
    segments: Arc<Segments>,
    /// The number of the next frame.
    next: Lsn,
    life: u32,
    last_index: u32,
    current: Option<Current>,
    /// Chunks of the batch in segments that are full.
    full_chunks: Vec<Chunk>,
    buffer_hint: usize,
    stopped: bool,
}

/// The segment that is being filled.
#[derive(Debug)]
struct Current {
    segment: Arc<Segment>,
    /// Where the chunk that is being built begins: its mark's offset.
    chunk_at: u64,
    chunk_first: Lsn,
    /// The frames of the chunk, without its mark.
    frames: BytesMut,
}

impl Current {
    /// Where the next frame would begin.
    fn end(&self) -> u64 {
        self.chunk_at + MARK_SIZE as u64 + self.frames.len() as u64
    }

    fn fits(&self, frame: u64) -> bool {
        self.end() + frame <= self.segment.file.size
    }

    /// Ends the chunk, if there is anything in it; the next one begins behind it.
    fn take_chunk(&mut self, next: Lsn, buffer: usize) -> Option<Chunk> {
        if self.frames.is_empty() {
            return None;
        }
        let end = self.end();
        let frames = std::mem::replace(&mut self.frames, BytesMut::with_capacity(buffer)).freeze();
        let chunk = Chunk {
            segment: Arc::clone(&self.segment),
            offset: self.chunk_at,
            first: self.chunk_first,
            frames,
        };
        self.chunk_at = end;
        self.chunk_first = next;
        Some(chunk)
    }
}

/// Frames that lie one behind the other in one segment and are written together.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub(crate) segment: Arc<Segment>,
    /// Where the chunk's mark goes; the frames follow it.
    pub(crate) offset: u64,
    pub(crate) first: Lsn,
    pub(crate) frames: Bytes,
}

impl Chunk {
    /// Whether it is the first of its segment, so that the segment's header is written with it.
    pub(crate) fn opens_segment(&self) -> bool {
        self.offset == HEADER_BLOCK
    }

    /// Where the next chunk begins.
    pub(crate) fn end(&self) -> u64 {
        self.offset + MARK_SIZE as u64 + self.frames.len() as u64
    }
}

/// Frames that are made durable together. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) chunks: Vec<Chunk>,
    last: Lsn,
    bytes: usize,
}

impl Batch {
    /// The last frame in it.
    #[must_use]
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Bytes of its frames, headers included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The payload of a frame of this batch, without a copy; `None` if the frame is not in it.
    #[must_use]
    pub fn payload(&self, location: &Location) -> Option<Bytes> {
        let chunk = self.chunks.iter().find(|chunk| {
            chunk.segment.number == location.segment
                && chunk.offset < u64::from(location.offset)
                && u64::from(location.offset) < chunk.end()
        })?;
        let in_chunk = u64::from(location.offset).checked_sub(chunk.offset + MARK_SIZE as u64)?;
        let start = usize::try_from(in_chunk).ok()? + FRAME_HEADER;
        let end = start.checked_add(usize::try_from(location.length).ok()?)?;
        (end <= chunk.frames.len()).then(|| chunk.frames.slice(start..end))
    }
}

/// How much room there is for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The next segment is ready.
    Ample,
    /// The next segment is being made ready. `left` bytes remain in the current one.
    Preparing {
        /// Bytes left.
        left: u64,
    },
    /// The disk is too full for the next segment: refuse what adds to the store, and go on with what takes from it as long
    /// as the `left` bytes in the current segment last.
    Full {
        /// Bytes left.
        left: u64,
    },
}

/// The smallest segment that holds a frame with so many bytes of payload.
pub(crate) fn segment_size_for(payload: u64) -> u64 {
    segment_size_for_frame(frame_size(payload))
}

fn segment_size_for_frame(frame: u64) -> u64 {
    HEADER_BLOCK + MARK_SIZE as u64 + frame
}

impl Journal {
    pub(crate) fn new(segments: Arc<Segments>, next: Lsn, life: u32) -> Self {
        Self {
            segments,
            next,
            life,
            last_index: 0,
            current: None,
            full_chunks: Vec::new(),
            buffer_hint: MIN_BUFFER,
            stopped: false,
        }
    }

    /// Appends one frame, whose payload is the parts one behind the other, to the batch.
    ///
    /// # Errors
    /// As [`AppendError`] says; then nothing was changed.
    pub fn append(&mut self, label: Label, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        let length = parts.iter().map(|part| part.len()).sum();
        self.check(label, length)?;
        self.append_unchecked(label, parts, length)
    }

    /// Appends one frame whose payload `encode` puts into the buffer, straight into the batch.
    ///
    /// # Errors
    /// As [`AppendError`] says; then nothing was changed. `encode` has run then, or not.
    pub fn append_with(
        &mut self,
        label: Label,
        encode: impl FnOnce(&mut BytesMut),
    ) -> Result<Appended, AppendError> {
        self.check(label, 0)?;
        let Some(current) = self.current.as_mut().filter(|current| current.fits(FRAME_HEADER as u64)) else {
            let mut payload = BytesMut::new();
            encode(&mut payload);
            return self.append(label, &[&payload]);
        };
        // The closure gets the free end of the buffer, so it can't touch the frames before; joining the two again
        // copies nothing, unless the payload outgrew the buffer.
        let start = current.frames.len();
        current.frames.reserve(MIN_BUFFER);
        current.frames.put_bytes(0, FRAME_HEADER);
        let mut payload = current.frames.split_off(start + FRAME_HEADER);
        encode(&mut payload);
        let length = payload.len();
        if !current.fits(length.next_multiple_of(ALIGNMENT) as u64) {
            current.frames.truncate(start);
            return self.append(label, &[&payload]);
        }
        if let Err(error) = self.check(label, length) {
            self.discard_from(start);
            return Err(error);
        }
        if let Some(current) = self.current.as_mut() {
            current.frames.unsplit(payload);
        }
        self.seal_from(start, label, length)
    }

    /// Appends the clean stop: the very last frame, which proves to the next start that nothing followed. It counts once it is
    /// durable. Every later append fails. A checkpoint that is completed after this call makes the proof void.
    ///
    /// Looks at the control file's properties, which is the only I/O in a journal; if that fails, the stop is appended and will not
    /// be taken for a proof.
    ///
    /// # Errors
    /// As [`AppendError`] says; then nothing was changed.
    pub fn append_clean_stop(&mut self) -> Result<Appended, AppendError> {
        // A segment that was noted behind this would void the proof.
        self.segments.table().stopped = true;
        let held = self.segments.hold_control();
        let identity = self.segments.disk.identity(CONTROL).unwrap_or(Identity([0; 32]));
        drop(held);
        self.check(Label::kind(1), identity.0.len())?;
        let appended = self.append_unchecked(Label::kind(KIND_CLEAN_STOP), &[&identity.0], identity.0.len());
        self.stopped |= appended.is_ok();
        appended
    }

    /// Takes what was appended since the last call, to be written; `None` if that is nothing. Batches must be written in
    /// the order in which they were taken.
    pub fn take_batch(&mut self) -> Option<Batch> {
        let size = self.pending_bytes();
        let mut chunks = std::mem::take(&mut self.full_chunks);
        self.buffer_hint = size.next_power_of_two().clamp(MIN_BUFFER, MAX_BUFFER);
        if let Some(current) = self.current.as_mut() {
            chunks.extend(current.take_chunk(self.next, self.buffer_hint));
        }
        (!chunks.is_empty()).then(|| Batch { chunks, last: self.next.previous(), bytes: size })
    }

    /// Bytes of the frames appended since the last [`take_batch`](Self::take_batch), headers included.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        let full: usize = self.full_chunks.iter().map(|chunk| chunk.frames.len()).sum();
        full + self.current.as_ref().map_or(0, |current| current.frames.len())
    }

    /// The number that the next frame will get.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// The last frame known to be safe on disk.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.segments.durable()
    }

    /// How much room there is for more frames.
    #[must_use]
    pub fn space(&self) -> Space {
        let left = self
            .current
            .as_ref()
            .map_or(0, |current| current.segment.file.size.saturating_sub(current.end()));
        let table = self.segments.table();
        // The segments that are ready are of no use to a frame that wants a larger one: all others wait behind it.
        if table.full && (table.ready.is_empty() || table.wanted.is_some()) {
            Space::Full { left }
        } else if !table.ready.is_empty() {
            Space::Ample
        } else {
            Space::Preparing { left }
        }
    }

    /// Declares a checkpoint complete whose frames were all appended: once its last frame is durable, the [`Keeper`](crate::Keeper)
    /// makes recovery start at its first one.
    pub fn complete_checkpoint(&self, checkpoint: Checkpoint) {
        self.segments.table().checkpoints.push_back(checkpoint);
        self.segments.wake_keeper();
    }

    /// Bytes of a usual segment.
    #[must_use]
    pub fn segment_size(&self) -> u64 {
        self.segments.options.segment_size
    }

    /// How many segments the log has.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.table().live.len()
    }

    /// The segments of the log, in order; the one being filled is the last.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.segments.list()
    }

    /// The earliest segment that recovery needs; `None` if it needs all.
    #[must_use]
    pub fn recovery_start(&self) -> Option<SegmentNumber> {
        self.segments.table().start.map(|start| start.segment)
    }

    /// Gives a segment free for reuse. What made it unneeded (a checkpoint, the moving of its last live bodies) must be
    /// durable, and nobody may read from it any more. Freeing one that is not in the journal does nothing.
    ///
    /// # Errors
    /// [`FreeError::StillNeeded`] if no complete checkpoint starts in a later segment.
    pub fn free(&self, segment: SegmentNumber) -> Result<(), FreeError> {
        self.segments.free(|number| number == segment).map(drop)
    }

    /// Gives all segments before `segment` free, as [`free`](Self::free) does, and says how many there were.
    ///
    /// # Errors
    /// [`FreeError::StillNeeded`] if no complete checkpoint starts in `segment` or later; then none is freed.
    pub fn free_before(&self, segment: SegmentNumber) -> Result<usize, FreeError> {
        self.segments.free(|number| number < segment)
    }

    fn check(&self, label: Label, length: usize) -> Result<(), AppendError> {
        if self.segments.has_failed() {
            return Err(AppendError::PreviousIo);
        }
        if self.stopped {
            return Err(AppendError::Stopped);
        }
        if label.kind == 0 || label.kind >= FIRST_RESERVED_KIND {
            return Err(AppendError::ReservedKind(label.kind));
        }
        let max = self.segments.options.max_payload;
        if length as u64 > u64::from(max) {
            return Err(AppendError::TooLarge { length, max });
        }
        Ok(())
    }

    fn append_unchecked(
        &mut self,
        label: Label,
        parts: &[&[u8]],
        length: usize,
    ) -> Result<Appended, AppendError> {
        let size = frame_size(length as u64);
        if !self.current.as_ref().is_some_and(|current| current.fits(size)) {
            self.next_segment(size)?;
        }
        let mut start = 0;
        if let Some(current) = self.current.as_mut() {
            start = current.frames.len();
            current.frames.put_bytes(0, FRAME_HEADER);
            for part in parts {
                current.frames.extend_from_slice(part);
            }
        }
        self.seal_from(start, label, length)
    }

    /// Pads and seals the frame that begins at `start` in the buffer, and counts it.
    fn seal_from(&mut self, start: usize, label: Label, length: usize) -> Result<Appended, AppendError> {
        let current = self.current.as_mut().expect("a frame was just laid out in it");
        let lsn = self.next;
        let number = current.segment.number;
        let offset = current.chunk_at + (MARK_SIZE + start) as u64;
        seal(&mut current.frames[start..], self.segments.mask, lsn, number, label);
        let padding = length.next_multiple_of(ALIGNMENT) - length;
        current.frames.put_bytes(0, padding);
        self.next = lsn.next();
        let location = Location {
            segment: number,
            offset: u32::try_from(offset).expect("segments are below 4 GiB (Options::check)"),
            length: u32::try_from(length).expect("payloads are below 4 GiB (Options::check)"),
        };
        Ok(Appended { lsn, location })
    }

    fn discard_from(&mut self, start: usize) {
        if let Some(current) = self.current.as_mut() {
            current.frames.truncate(start);
        }
    }

    /// Goes on in a new segment that has room for a frame of `frame` bytes.
    fn next_segment(&mut self, frame: u64) -> Result<(), AppendError> {
        let needed = segment_size_for_frame(frame);
        let mut table = self.segments.table();
        let Some(file) = table.take_ready(needed) else {
            let full = table.full;
            drop(table);
            self.segments.wake_keeper();
            let size = needed.next_multiple_of(HEADER_BLOCK).max(self.segments.options.segment_size);
            return Err(if full { AppendError::NoSpace { size } } else { AppendError::NotReady { size } });
        };
        self.last_index = self.last_index.checked_add(1).expect("a life never fills 2^32 segments");
        let number = SegmentNumber::new(self.life, self.last_index);
        let segment = Arc::new(Segment { number, first: self.next, file });
        table.live.insert(number, Arc::clone(&segment));
        drop(table);
        self.segments.wake_keeper();
        let next = Current {
            segment,
            chunk_at: HEADER_BLOCK,
            chunk_first: self.next,
            frames: BytesMut::with_capacity(self.buffer_hint),
        };
        if let Some(mut full) = self.current.replace(next) {
            self.full_chunks.extend(full.take_chunk(self.next, 0));
        }
        Ok(())
    }
}
