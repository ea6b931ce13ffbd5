//! The broker's start in its data folder: engine and journal in their shell, and the threads that write.

use crate::core::EffectSender;
use postroad_journal::{Error, Event, FileDisk, FreeError, Lsn, Reader, Recovered, Writer};
use postroad_shell::{OpenError, Opened, Setup, Shell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Why the stored state can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The data folder can't be made or entered.
    #[error("the data folder {} can't be used: {source}", folder.display())]
    Folder {
        /// The data folder.
        folder: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The journal can't be opened or read.
    #[error("the data in {} can't be used: {source}", folder.display())]
    Journal {
        /// The data folder.
        folder: PathBuf,
        /// What is wrong, with file and offset where there is one.
        source: Error,
    },
    /// The journal does not agree with what was read from it.
    #[error("the data in {} can't be used: {source}", folder.display())]
    Free {
        /// The data folder.
        folder: PathBuf,
        /// What is wrong.
        source: FreeError,
    },
    /// A frame is sound but is no list of records that this version knows.
    #[error("frame {lsn} in {} can't be read by this version: {reason}", folder.display())]
    Record {
        /// The data folder.
        folder: PathBuf,
        /// Which frame.
        lsn: Lsn,
        /// What is wrong.
        reason: String,
    },
    /// The threads of the journal can't be started.
    #[error("the journal's threads can't be started: {0}")]
    Threads(#[source] std::io::Error),
}

/// The broker's state as it was read back, and what writes it.
#[derive(Debug)]
pub(crate) struct Storage {
    /// Engine and journal.
    pub shell: Shell<EffectSender>,
    /// The writing threads.
    pub writer: Writer,
    /// Reads what was written.
    pub reader: Reader,
    /// What opening the journal brought to light.
    pub recovered: Recovered,
}

impl Storage {
    /// Opens the journal in `folder`, replays it, and starts the writing threads.
    ///
    /// # Errors
    /// [`StorageError`] when the data is locked, damaged, or of a newer format.
    pub(crate) fn open(
        folder: &Path,
        setup: Setup,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, StorageError> {
        let disk = FileDisk::new(folder)
            .map_err(|source| StorageError::Folder { folder: folder.to_owned(), source })?;
        let opened = postroad_shell::open(Arc::new(disk), setup, |_| ());
        let Opened { shell, writer, keeper, reader, recovered } = opened.map_err(|error| match error {
            OpenError::Free(source) => StorageError::Free { folder: folder.to_owned(), source },
            OpenError::Journal(source) => StorageError::Journal { folder: folder.to_owned(), source },
            OpenError::Frame { lsn, reason } => {
                StorageError::Record { folder: folder.to_owned(), lsn, reason }
            }
        })?;
        let pass_on = move |event| {
            // The receiver ends only with the broker; then nobody waits for this any more.
            let _ = events.send(event);
        };
        let writer = Writer::start(writer, keeper, pass_on).map_err(StorageError::Threads)?;
        Ok(Self { shell, writer, reader, recovered })
    }
}
