//! A journal with group commit, that never grows for long: what is old is given free.

use std::path::Path;
use std::sync::Arc;

use postroad_journal::{
    AppendError, Checkpoint, Event, FileDisk, Journal, JournalId, Label, Lsn, Options, Recovery, Writer,
};

use crate::error::LimitError;

/// The kind of every frame of these programs.
const KIND: u8 = 1;

/// After how many bytes what is before is given free.
const KEEP: u64 = 256 << 20;

/// The journal, and the threads that write it.
#[derive(Debug)]
pub(crate) struct Log {
    journal: Journal,
    writer: Writer,
    since_checkpoint: u64,
}

impl Log {
    /// Makes or opens the journal in a folder; what it holds is passed over.
    pub(crate) fn open(
        folder: &Path,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, LimitError> {
        let disk = FileDisk::new(folder).map_err(LimitError::io("making the folder of the journal"))?;
        let mut recovery =
            Recovery::open(Arc::new(disk), Options::default(), JournalId(*b"postroad-limits!"))?;
        while recovery.next_frame()?.is_some() {}
        let opened = recovery.finish()?;
        let writer = Writer::start(opened.writer, opened.keeper, on_event)
            .map_err(LimitError::io("starting the threads of the journal"))?;
        Ok(Self { journal: opened.journal, writer, since_checkpoint: 0 })
    }

    /// Appends one frame; waits, holding up everything, while no segment is ready.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<Lsn, LimitError> {
        let length = u32::try_from(payload.len()).map_err(|_| LimitError::Journal("too large".to_owned()))?;
        loop {
            match self.journal.append(Label::kind(KIND), &[payload]) {
                Ok(appended) => {
                    self.since_checkpoint += u64::from(length);
                    return Ok(appended.lsn);
                }
                Err(AppendError::NotReady { .. }) => {
                    self.submit()?;
                    self.writer.wait_space(length)?;
                }
                Err(error) => return Err(LimitError::Journal(error.to_string())),
            }
        }
    }

    /// Hands everything appended to the writing thread.
    pub(crate) fn submit(&mut self) -> Result<(), LimitError> {
        if self.since_checkpoint > KEEP
            && let Ok(first) = self.journal.append(Label::kind(KIND), &[])
        {
            self.since_checkpoint = 0;
            self.journal.complete_checkpoint(Checkpoint { first, last: first.lsn });
        }
        if let Some(batch) = self.journal.take_batch() {
            self.writer.submit(batch)?;
        }
        Ok(())
    }

    /// Waits until a frame is safe.
    pub(crate) fn wait(&self, lsn: Lsn) -> Result<(), LimitError> {
        Ok(self.writer.wait_durable(lsn)?)
    }

    /// Gives free what lies before a complete checkpoint.
    pub(crate) fn checkpointed(&self, checkpoint: &Checkpoint) -> Result<(), LimitError> {
        let freed = self.journal.free_before(checkpoint.first.location.segment);
        freed.map(drop).map_err(|error| LimitError::Journal(error.to_string()))
    }
}
