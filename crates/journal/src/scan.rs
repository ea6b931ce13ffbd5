//! Reading a segment from front to back, and searching it for marks.

use std::io;
use std::sync::Arc;

use crate::frame::{ALIGNMENT, FRAME_HEADER, FrameHeader, MARK_SIZE, Mark, Mask};
use crate::ids::{Location, Lsn};
use crate::segment::HEADER_BLOCK;
use crate::segments::{Segment, SegmentFile};

/// How much is read at once, in bytes.
const READ: usize = 1 << 20;

/// Most of a segment that was begun lately: zeros are told from marks a page at a time.
const ZEROS: [u8; 4096] = [0; 4096];

/// A piece of a file in memory.
#[derive(Debug, Default)]
struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Makes `length` bytes from `at` available, or as many as the file has.
    fn load(&mut self, file: &SegmentFile, at: u64, length: usize) -> io::Result<()> {
        if self.get(at, length).is_some() {
            return Ok(());
        }
        let left = usize::try_from(file.size.saturating_sub(at)).unwrap_or(usize::MAX);
        self.bytes.resize(length.max(READ).min(left), 0);
        self.at = at;
        let read = file.file.read_at(at, &mut self.bytes)?;
        self.bytes.truncate(read);
        Ok(())
    }

    fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        self.rest(at)?.get(..length)
    }

    fn rest(&self, at: u64) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(at.checked_sub(self.at)?).ok()?..)
    }
}

/// What stands at a place in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Frame(FrameHeader, Location),
    Mark(Mark),
    /// No sound frame of the expected number.
    Nothing(Unsound),
}

/// Why there is no sound frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsound {
    /// Nothing of this segment's generation begins here.
    Other,
    /// Something of this segment's generation begins here and is not whole.
    Torn,
    /// A whole frame of another number.
    WrongFrame(Lsn),
}

/// Reads the frames of one segment in order.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    segment: Arc<Segment>,
    mask: Mask,
    offset: u64,
    window: Window,
}

impl SegmentReader {
    pub(crate) fn new(segment: Arc<Segment>, mask: Mask) -> Self {
        Self { segment, mask, offset: HEADER_BLOCK, window: Window::default() }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where the next frame is expected.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes on at another place.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Looks at the next place, and goes past what is there if it is sound.
    pub(crate) fn next(&mut self, expected: Lsn) -> io::Result<Found> {
        self.window.load(&self.segment.file, self.offset, FRAME_HEADER)?;
        let header = self.window.get(self.offset, FRAME_HEADER).and_then(FrameHeader::parse);
        let Some(header) =
            header.filter(|header| header.generation == self.segment.number && header.label.kind != 0)
        else {
            return Ok(Found::Nothing(Unsound::Other));
        };
        let found = if header.is_mark() { self.mark(expected)? } else { self.frame(header, expected)? };
        match found {
            Found::Frame(..) => self.offset += header.size(),
            Found::Mark(_) => self.offset += MARK_SIZE as u64,
            Found::Nothing(_) => {}
        }
        Ok(found)
    }

    /// The payload of the frame that [`next`](Self::next) returned last.
    pub(crate) fn payload(&self, location: &Location) -> &[u8] {
        let length = usize::try_from(location.length).unwrap_or(0);
        self.window.get(u64::from(location.offset) + FRAME_HEADER as u64, length).unwrap_or_default()
    }

    /// The first sound mark from `offset` on that is wanted, with its place.
    pub(crate) fn find_mark(
        &mut self,
        offset: u64,
        wanted: impl Fn(&Mark) -> bool,
    ) -> io::Result<Option<(u64, Mark)>> {
        find_mark(&self.segment.file, self.mask, &mut self.window, offset, wanted)
    }

    fn mark(&mut self, expected: Lsn) -> io::Result<Found> {
        self.window.load(&self.segment.file, self.offset, MARK_SIZE)?;
        let mark = self.window.get(self.offset, MARK_SIZE).and_then(|bytes| Mark::parse(bytes, self.mask));
        Ok(match mark {
            Some(mark) if mark.next == expected => Found::Mark(mark),
            Some(mark) => Found::Nothing(Unsound::WrongFrame(mark.next)),
            None => Found::Nothing(Unsound::Torn),
        })
    }

    fn frame(&mut self, header: FrameHeader, expected: Lsn) -> io::Result<Found> {
        let torn = Ok(Found::Nothing(Unsound::Torn));
        let fits = self.offset.checked_add(header.size()).is_some_and(|end| end <= self.segment.file.size);
        let Some(length) = usize::try_from(header.length).ok().filter(|_| fits) else { return torn };
        let Ok(offset) = u32::try_from(self.offset) else { return torn };
        self.window.load(&self.segment.file, self.offset, FRAME_HEADER + length)?;
        let frame = self.window.get(self.offset, FRAME_HEADER + length);
        let checked = frame.and_then(|frame| frame.get(4..)).map(|rest| self.mask.checksum(rest));
        if checked != Some(header.checksum) {
            return torn;
        }
        if header.lsn != expected {
            return Ok(Found::Nothing(Unsound::WrongFrame(header.lsn)));
        }
        Ok(Found::Frame(header, Location { segment: self.segment.number, offset, length: header.length }))
    }
}

/// The first sound mark in a file that is wanted, whatever its segment's header says.
pub(crate) fn find_mark_in_file(
    file: &SegmentFile,
    mask: Mask,
    wanted: impl Fn(&Mark) -> bool,
) -> io::Result<Option<(u64, Mark)>> {
    find_mark(file, mask, &mut Window::default(), HEADER_BLOCK, wanted)
}

/// The mark with which the file's content began, if a sound one is there.
pub(crate) fn first_mark(file: &SegmentFile, mask: Mask) -> io::Result<Option<Mark>> {
    let mut bytes = [0; MARK_SIZE];
    let read = file.file.read_at(HEADER_BLOCK, &mut bytes)?;
    Ok(bytes.get(..read).and_then(|bytes| Mark::parse(bytes, mask)))
}

/// Marks have a fixed length, so that the search takes time in proportion to the file, whatever bytes clients wrote into it.
fn find_mark(
    file: &SegmentFile,
    mask: Mask,
    window: &mut Window,
    mut offset: u64,
    wanted: impl Fn(&Mark) -> bool,
) -> io::Result<Option<(u64, Mark)>> {
    loop {
        window.load(file, offset, MARK_SIZE)?;
        let Some(rest) = window.rest(offset).filter(|rest| rest.len() >= MARK_SIZE) else { return Ok(None) };
        if rest.get(..ZEROS.len()) == Some(&ZEROS) {
            // No mark begins with zeros, except perhaps one whose end lies behind them.
            offset += (ZEROS.len() - MARK_SIZE.next_multiple_of(ALIGNMENT)) as u64;
            continue;
        }
        let mut at = offset;
        let piece = rest.get(..ZEROS.len() + MARK_SIZE).unwrap_or(rest);
        for bytes in piece.windows(MARK_SIZE).step_by(ALIGNMENT) {
            if let Some(mark) = Mark::parse(bytes, mask).filter(&wanted) {
                return Ok(Some((at, mark)));
            }
            at += ALIGNMENT as u64;
        }
        offset = at;
    }
}
