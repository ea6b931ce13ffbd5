//! What can go wrong, typed, so that the owner can tell a full disk from a broken one and damage from both.

use std::fmt;
use std::io;

use crate::ids::{Lsn, SegmentNumber};

/// What was being done to a file when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Creating and filling a file.
    Create,
    /// Opening a file or looking at its properties.
    Open,
    /// Listing the folder.
    List,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Syncing a file or the folder.
    Sync,
    /// Removing a file.
    Remove,
    /// Taking the folder's lock.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Remove => "remove",
            Self::Lock => "lock",
        })
    }
}

/// Why the journal can't do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. After a failed write or sync every later call gives [`Error::PreviousIo`].
    #[error("cannot {operation} journal file {file}: {source}")]
    Io {
        /// The file, with its folder.
        file: String,
        /// What was tried.
        operation: Operation,
        /// What the system said.
        source: io::Error,
    },
    /// An earlier write or sync failed. What reached the disk since is unknown, so nothing more is promised.
    #[error(
        "an earlier write or sync of the journal failed; nothing more is promised until the process is started again"
    )]
    PreviousIo,
    /// Another process has the folder open.
    #[error(
        "the data folder {folder} is in use by another process{holder}; stop it, or choose another folder"
    )]
    Locked {
        /// The folder.
        folder: String,
        /// ` (process N)` if the other process has left its id.
        holder: String,
    },
    /// The folder was written by a newer program.
    #[error(
        "{file} has journal format {found}, but this program knows formats up to {supported}; start the newer program on it"
    )]
    NewerFormat {
        /// The file, with its folder.
        file: String,
        /// The format found.
        found: u32,
        /// The newest format that this program knows.
        supported: u32,
    },
    /// What was once safe on disk is not there as it was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The disk has no room for a segment.
    #[error("no space left for a journal segment of {size} bytes in {folder}")]
    NoSpace {
        /// The folder.
        folder: String,
        /// Bytes that were wanted.
        size: u64,
    },
    /// The place asked for is in a segment that is not (or no longer) part of the journal.
    #[error("{0} is not part of the journal")]
    NoSuchSegment(SegmentNumber),
    /// The options contradict each other or the format.
    #[error("journal options: {0}")]
    Options(&'static str),
}

/// Damage that was found, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("journal file {file} is damaged at offset {offset}: {flaw}")]
pub struct Damage {
    /// The file, with its folder.
    pub file: String,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong at a damaged place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The checksum of a frame, or the frame's header as a whole, is wrong.
    Frame {
        /// The frame that should be there.
        expected: Lsn,
    },
    /// A sound frame, but not the one that belongs there.
    WrongFrame {
        /// The frame that should be there.
        expected: Lsn,
        /// The frame that is there.
        found: Lsn,
    },
    /// The segment ends and the next one begins with too high a number: segments are missing or damaged in between.
    Gap {
        /// The frame that should follow.
        expected: Lsn,
        /// The next frame that is there.
        found: Lsn,
    },
    /// The segment begins with a number that an earlier segment holds already.
    Overlap {
        /// The frame that should be first.
        expected: Lsn,
        /// The frame that is first according to the header.
        found: Lsn,
    },
    /// A frame that was asked for by its place is not there as it was written.
    Read,
    /// The segment's header is not sound.
    SegmentHeader,
    /// The file has another size than the segment had when it was made.
    SegmentSize {
        /// Bytes that it had.
        stated: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The segment where recovery has to start is missing.
    StartMissing(SegmentNumber),
    /// A segment is missing in which something lies that is still needed.
    SegmentMissing(SegmentNumber),
    /// The newest segment of the log is missing, or no longer holds anything: frames in it were synced.
    NewestMissing(SegmentNumber),
    /// The control file is missing, or none of its copies is sound.
    Control,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { expected } => {
                write!(f, "{expected} was synced there and does not match its checksum")
            }
            Self::WrongFrame { expected, found } => {
                write!(f, "{expected} was synced there, but {found} is there")
            }
            Self::Gap { expected, found } => {
                write!(f, "{expected} was synced and must follow, but the next segment begins with {found}")
            }
            Self::Overlap { expected, found } => {
                write!(f, "the segment begins with {found}, but {expected} is the next one")
            }
            Self::Read => f.write_str("the frame that was written there does not match its checksum"),
            Self::SegmentHeader => f.write_str("the segment's header does not match its checksum"),
            Self::SegmentSize { stated, found } => {
                write!(f, "the file has {found} bytes, and had {stated} when the segment was made")
            }
            Self::StartMissing(number) => write!(f, "recovery starts in {number}, which is missing"),
            Self::SegmentMissing(number) => write!(f, "{number} holds what is still needed, and is missing"),
            Self::NewestMissing(number) => {
                write!(f, "{number} holds what was written last, and its file is missing or was emptied")
            }
            Self::Control => f.write_str("the control file is missing or no copy in it matches its checksum"),
        }
    }
}

/// Why a frame can't be appended. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The next segment is still being made ready. Try again after [`Event::Space`](crate::Event::Space).
    #[error("the next journal segment ({size} bytes) is not ready yet")]
    NotReady {
        /// Bytes of the segment that is needed.
        size: u64,
    },
    /// The disk was too full to make the next segment ready. Refuse publishers; try again when space was freed.
    #[error("no space left for the next journal segment ({size} bytes)")]
    NoSpace {
        /// Bytes of the segment that is needed.
        size: u64,
    },
    /// The payload is longer than [`Options::max_payload`](crate::Options::max_payload).
    #[error("a payload of {length} bytes is longer than the {max} bytes allowed")]
    TooLarge {
        /// Bytes of the payload.
        length: usize,
        /// Bytes allowed.
        max: u32,
    },
    /// Kind 0 and the kinds from 240 on belong to the journal.
    #[error("frame kind {0} belongs to the journal")]
    ReservedKind(u8),
    /// The clean stop was appended; it must stay the last frame.
    #[error("the journal has been stopped")]
    Stopped,
    /// As [`Error::PreviousIo`].
    #[error(
        "an earlier write or sync of the journal failed; nothing more is promised until the process is started again"
    )]
    PreviousIo,
}

/// Why a segment can't be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// Recovery would need it: no checkpoint that starts in a later segment is complete.
    #[error("{0} is still needed by recovery")]
    StillNeeded(SegmentNumber),
}
