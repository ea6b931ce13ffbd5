//! The journal under the engine: reading it back at the start, appending steps, and what became durable.

use postroad_engine::{Engine, Step, StepBytes};
use postroad_journal::{
    AppendError, Checkpoint, Error, Event, FileDisk, JournalId, Label, Lsn, Options, Recovered, Recovery,
    Space, Stop, Writer,
};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Kind of the frames that hold a step: a list of records.
const KIND_STEP: u8 = 1;
/// Kind of the frames that hold a piece of a checkpoint: records that rebuild the state, like those of a step.
const KIND_CHECKPOINT: u8 = 2;

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

/// The journal of a running broker.
#[derive(Debug)]
pub(crate) struct Storage {
    journal: postroad_journal::Journal,
    writer: Writer,
    /// Frames that found no segment ready, in order.
    waiting: VecDeque<Pending>,
    /// Frames on their way to the disk, with the last step that each batch holds.
    on_the_way: VecDeque<(Lsn, Step)>,
    durable: Step,
    /// Bytes appended since the last checkpoint began.
    since_checkpoint: u64,
    /// A checkpoint is due after so many.
    checkpoint_every: u64,
    /// The first frame of the checkpoint that is being appended.
    checkpoint: Option<postroad_journal::Appended>,
    /// A checkpoint is appended and not yet declared complete by the journal.
    completing: bool,
}

/// A frame that is to be appended.
#[derive(Debug)]
enum Pending {
    Step(StepBytes),
    Checkpoint { payload: Vec<u8>, last: bool },
}

impl Pending {
    fn frame(&self) -> (u8, &[u8]) {
        match self {
            Self::Step(step) => (KIND_STEP, &step.payload),
            Self::Checkpoint { payload, .. } => (KIND_CHECKPOINT, payload),
        }
    }
}

impl Storage {
    /// Opens the journal in `folder`, replays it into `engine`, and starts the writing threads.
    ///
    /// # Errors
    /// [`StorageError`] when the data is locked, damaged, or of a newer format.
    pub(crate) fn open(
        folder: &Path,
        options: Options,
        checkpoint_every: u64,
        engine: &mut Engine,
        seed: [u8; 16],
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<(Self, Recovered), StorageError> {
        let journal_error = |source| StorageError::Journal { folder: folder.to_owned(), source };
        let disk = FileDisk::new(folder)
            .map_err(|source| StorageError::Folder { folder: folder.to_owned(), source })?;
        let mut recovery = Recovery::open(Arc::new(disk), options, JournalId(seed)).map_err(journal_error)?;
        let mut read = 0;
        while let Some(frame) = recovery.next_frame().map_err(journal_error)? {
            read += frame.payload.len() as u64;
            let lsn = frame.lsn;
            let unknown = |reason| StorageError::Record { folder: folder.to_owned(), lsn, reason };
            if !matches!(frame.label.kind, KIND_STEP | KIND_CHECKPOINT) {
                return Err(unknown(format!("its kind is {}", frame.label.kind)));
            }
            let records =
                postroad_record::decode_step(frame.payload).map_err(|error| unknown(error.to_string()))?;
            for record in records {
                engine.replay(record);
            }
        }
        let opened = recovery.finish().map_err(journal_error)?;
        engine.recovered(matches!(opened.recovered.stop, Stop::Clean | Stop::New));
        let pass_on = move |event| {
            // The receiver ends only with the broker; then nobody waits for this any more.
            let _ = events.send(event);
        };
        let writer = Writer::start(opened.writer, opened.keeper, pass_on).map_err(StorageError::Threads)?;
        let storage = Self {
            journal: opened.journal,
            writer,
            waiting: VecDeque::new(),
            on_the_way: VecDeque::new(),
            durable: Step(0),
            since_checkpoint: read,
            checkpoint_every,
            checkpoint: None,
            completing: false,
        };
        Ok((storage, opened.recovered))
    }

    /// Appends steps behind those that wait, as far as there is room, and hands what was appended to the writer.
    ///
    /// # Errors
    /// If the journal has failed; the broker must end.
    pub(crate) fn append(&mut self, steps: impl Iterator<Item = StepBytes>) -> Result<(), Error> {
        self.waiting.extend(steps.map(Pending::Step));
        let mut last = None;
        while let Some(pending) = self.waiting.pop_front() {
            let (kind, payload) = pending.frame();
            let appended = match self.journal.append(Label::kind(kind), &[payload]) {
                Ok(appended) => appended,
                Err(AppendError::NotReady { .. } | AppendError::NoSpace { .. }) => {
                    self.waiting.push_front(pending);
                    break;
                }
                Err(AppendError::PreviousIo) => return Err(Error::PreviousIo),
                // Invariant: a step holds one message of at most max_message_size, far below max_payload, and
                // nothing is appended after the clean stop.
                Err(error) => {
                    tracing::error!(%error, "a frame can't be appended");
                    return Err(Error::PreviousIo);
                }
            };
            self.since_checkpoint += payload.len() as u64;
            match pending {
                Pending::Step(step) => last = Some((appended.lsn, step.step)),
                Pending::Checkpoint { last, .. } => self.checkpoint_appended(appended, last),
            }
        }
        self.on_the_way.extend(last);
        if let Some(batch) = self.journal.take_batch() {
            self.writer.submit(batch)?;
        }
        Ok(())
    }

    fn checkpoint_appended(&mut self, appended: postroad_journal::Appended, last: bool) {
        let first = *self.checkpoint.get_or_insert(appended);
        if last {
            self.journal.complete_checkpoint(Checkpoint { first, last: appended.lsn });
            self.checkpoint = None;
        }
    }

    /// Whether enough was appended for a checkpoint of a state that holds so many bytes of messages. Waiting for twice
    /// the state keeps what checkpoints write below half of all that is written.
    #[must_use]
    pub(crate) fn wants_checkpoint(&self, state: u64) -> bool {
        let due = self.checkpoint_every.max(state.saturating_mul(2));
        !self.completing && self.waiting.is_empty() && self.since_checkpoint >= due && !self.is_full()
    }

    /// Appends a checkpoint: pieces that rebuild the state as it is after every step appended so far.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(crate) fn append_checkpoint(&mut self, pieces: Vec<Vec<u8>>) -> Result<(), Error> {
        let count = pieces.len();
        let pending = pieces.into_iter().enumerate();
        let pending = pending.map(|(at, payload)| Pending::Checkpoint { payload, last: at + 1 == count });
        self.waiting.extend(pending);
        self.completing = count > 0;
        self.since_checkpoint = 0;
        self.append(std::iter::empty())
    }

    /// A checkpoint is complete: what lies before it is not needed any more.
    pub(crate) fn checkpointed(&mut self, checkpoint: Checkpoint) {
        self.completing = false;
        match self.journal.free_before(checkpoint.first.location.segment) {
            Ok(segments) => tracing::info!(segments, "checkpoint complete, segments freed"),
            Err(error) => tracing::error!(%error, "segments before a checkpoint can't be freed"),
        }
    }

    /// Notes that every frame up to `lsn` is durable, and says up to which step that is everything.
    pub(crate) fn became_durable(&mut self, lsn: Lsn) -> Step {
        while let Some(&(_, step)) = self.on_the_way.front().filter(|&&(last, _)| last <= lsn) {
            self.durable = step;
            self.on_the_way.pop_front();
        }
        self.durable
    }

    /// Whether steps wait for a segment, or frames for the disk.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.on_the_way.is_empty()
    }

    /// Whether the disk has no room for another segment.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.journal.space(), Space::Full { .. })
    }

    /// Whether steps can't be appended because the disk is full.
    #[must_use]
    pub(crate) fn is_stuck(&self) -> bool {
        !self.waiting.is_empty() && self.is_full()
    }

    /// Writes the clean stop, waits for the disk, and ends the threads. Where steps found no room there is no clean
    /// stop: the next start must not trust that nothing is missing.
    ///
    /// # Errors
    /// If the journal has failed, before or now.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        if !self.waiting.is_empty() {
            tracing::error!(
                steps = self.waiting.len(),
                "the disk is full: stopping without what found no room"
            );
            return self.writer.stop();
        }
        match self.journal.append_clean_stop() {
            Ok(_) => {
                if let Some(batch) = self.journal.take_batch() {
                    self.writer.submit(batch)?;
                }
            }
            // Without room for the mark the next start renews the stores' identities, which is always right.
            Err(error) => tracing::warn!(%error, "the clean stop can't be marked"),
        }
        self.writer.stop()
    }
}
