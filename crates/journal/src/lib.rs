//! The journal: an append-only, checksummed, segmented log with group commit.
//!
//! The files are drawn byte by byte in `docs/internals/journal-format.md`. The parts, in the order in which data meets them:
//!
//! - [`Journal`] lays out frames in memory. It is the only place that gives out log sequence numbers and positions, and
//!   does no I/O: the owner appends, then takes a [`Batch`].
//! - [`BatchWriter`] writes batches and syncs them; [`Keeper`] makes segments ready ahead of time, recycles freed ones and
//!   declares checkpoints. Both work when called, so a simulator can call them in any order.
//! - [`Writer`] is the shell around these two for production: one thread each, and events for the owner.
//! - [`Reader`] reads one frame back by its [`Location`].
//! - [`Recovery`] is how a journal is opened: it streams the frames that survived, then yields the parts above.
//! - [`verify()`] checks a journal that nobody has open.
//!
//! **What it knows:** bytes, frames, segments, what is synced, and files behind the [`Disk`] trait ([`FileDisk`] for
//! real ones, [`MemDisk`] for tests and simulation).
//!
//! **What it must never know:** what a payload means, messages, stores, protocols, async runtimes, clocks.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use postroad_journal::{JournalId, Label, MemDisk, Options, Recovery};
//!
//! # fn main() -> Result<(), postroad_journal::Error> {
//! let disk = Arc::new(MemDisk::new());
//! let mut recovery = Recovery::open(disk, Options::small(), JournalId([7; 16]))?;
//! while let Some(frame) = recovery.next_frame()? {
//!     println!("{} holds {} bytes", frame.lsn, frame.payload.len());
//! }
//! let mut opened = recovery.finish()?;
//! let appended = opened.journal.append(Label::kind(1), &[b"hello ", b"world"]).expect("there is room");
//! if let Some(batch) = opened.journal.take_batch() {
//!     opened.writer.write(std::slice::from_ref(&batch))?;
//!     opened.writer.sync()?;
//! }
//! assert_eq!(opened.reader.read(&appended.location)?.payload(), b"hello world".as_slice());
//! # Ok(())
//! # }
//! ```

mod batch_writer;
mod control;
mod disk;
mod error;
mod folder;
mod frame;
mod ids;
mod journal;
mod keeper;
mod options;
mod read;
mod recovery;
mod scan;
mod segment;
mod segments;
mod verify;
mod writer;

pub use batch_writer::BatchWriter;
pub use disk::{Disk, DiskFile, FileDisk, FolderLock, Identity, MemDisk, MemFault};
pub use error::{AppendError, Damage, Error, Flaw, FreeError, Operation};
pub use ids::{Appended, Checkpoint, JournalId, Label, Location, LogId, Lsn, SegmentNumber};
pub use journal::{Batch, Journal, Space};
pub use keeper::{Keeper, Work};
pub use options::Options;
pub use read::{Read, Reader};
pub use recovery::{Cut, Frame, Opened, Recovered, Recovery, Stop};
pub use segments::SegmentInfo;
pub use verify::{Report, SegmentReport, verify};
pub use writer::{Event, Writer};

#[cfg(test)]
mod tests;
