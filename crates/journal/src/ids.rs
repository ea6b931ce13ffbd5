//! The numbers that name things in a journal.

use std::fmt;

/// Log sequence number: counts the frames of a journal from 1, without gaps, over all its lives. 0 is "before the first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The number after this one.
    ///
    /// # Panics
    /// After 2^64 - 1 frames; at a thousand million a second that takes 584 years.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a journal never holds 2^64 frames"))
    }

    /// The number before this one, or 0.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {}", self.0)
    }
}

/// Number of a segment, never used twice in a journal: the life in the upper 32 bits, the index within it (from 1) in the
/// lower. The order of the numbers is the order of the log. It is also the generation that every frame repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// The `index`th segment of a life.
    #[must_use]
    pub fn new(life: u32, index: u32) -> Self {
        Self(u64::from(life) << 32 | u64::from(index))
    }

    /// Which segment of its life it is.
    #[must_use]
    pub(crate) fn index(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }

    /// The life in which the segment was begun: how often the journal had been opened for writing.
    #[must_use]
    pub fn life(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}.{}", self.life(), self.0 & u64::from(u32::MAX))
    }
}

/// Identity of a journal, drawn at random once. It seeds the checksums, so it must not become known to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JournalId(pub [u8; 16]);

impl fmt::Debug for JournalId {
    /// Leaves the id out, so that it can't get into a log file by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalId(..)")
    }
}

/// Which log a frame belongs to: 0 is the broker's own, others are consensus groups. The journal only carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogId(pub u32);

/// What the owner says about a frame beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The log that the frame belongs to.
    pub log: LogId,
    /// The owner's kind, 1 to 239.
    pub kind: u8,
    /// The owner's version of the payload's encoding.
    pub version: u8,
}

impl Label {
    /// A frame of `kind`, version 1, in the broker's own log.
    #[must_use]
    pub fn kind(kind: u8) -> Self {
        Self { log: LogId(0), kind, version: 1 }
    }
}

/// Where a frame lies. Valid until its segment is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The segment.
    pub segment: SegmentNumber,
    /// Where the frame's header begins, in bytes from the start of the segment file.
    pub offset: u32,
    /// Length of the payload in bytes, without the header.
    pub length: u32,
}

/// What an append gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The frame's number.
    pub lsn: Lsn,
    /// Where it will lie.
    pub location: Location,
}

/// A checkpoint that the owner has written as frames of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its first frame: recovery will start there.
    pub first: Appended,
    /// Its last frame: the checkpoint counts only once this one is synced.
    pub last: Lsn,
}
