//! The start: what the journal holds becomes the engine's state again.

use crate::driven::Driven;
use crate::log::{KIND_CHECKPOINT, KIND_CHECKPOINT_BEGIN, KIND_STEP, place_of};
use crate::shell::Shell;
use postroad_engine::Engine;
use postroad_journal::{
    BatchWriter, Disk, Error, FreeError, JournalId, Keeper, Lsn, Options, Reader, Recovered, Recovery,
    SegmentNumber, Stop,
};
use postroad_model::settings::BrokerSettings;
use std::sync::Arc;

/// What a broker starts with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The broker's settings.
    pub broker: BrokerSettings,
    /// Sizes of the journal.
    pub journal: Options,
    /// A checkpoint is written after so many bytes, or eight times the last one if that is more; earlier where it frees much.
    pub checkpoint_every: u64,
    /// Fresh randomness of this start: a new journal takes it as its id, and identities of stores are drawn from it.
    pub seed: [u8; 16],
    /// For simulators: a second engine runs beside the first, with this for chance, and both are compared
    /// ([`Shell::difference`]).
    pub twin: Option<u64>,
}

/// The parts of a broker that has read its journal back.
#[derive(Debug)]
pub struct Opened<R> {
    /// The shell. What the start itself records is part of its first flush.
    pub shell: Shell<R>,
    /// Writes and syncs the batches.
    pub writer: BatchWriter,
    /// Makes segments ready.
    pub keeper: Keeper,
    /// Reads frames back.
    pub reader: Reader,
    /// What opening the journal brought to light.
    pub recovered: Recovered,
}

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be opened or read.
    #[error(transparent)]
    Journal(#[from] Error),
    /// The journal does not agree with what was read from it.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A frame is sound but is no list of records that this version knows.
    #[error("frame {lsn} can't be read by this version: {reason}")]
    Frame {
        /// Which frame.
        lsn: Lsn,
        /// What is wrong.
        reason: String,
    },
}

/// A frame that was read back.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its number in the journal.
    pub lsn: Lsn,
    /// What it is for.
    pub used: Use,
    /// The records in it.
    pub payload: &'a [u8],
}

/// What a frame is for at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A step, replayed.
    Step,
    /// A piece of the checkpoint at which the log begins, replayed.
    Checkpoint,
    /// A piece of a later checkpoint: what it holds is there already, so it is passed over.
    Passed,
}

/// Tells the pieces of checkpoints apart. The log begins with the one that was declared complete, if there is any. Every
/// later one was begun and perhaps not ended when the process died: replayed half it would take events away.
#[derive(Debug, Default)]
struct Pieces {
    seen_any: bool,
    in_first: bool,
}

impl Pieces {
    fn used(&mut self, kind: u8) -> Option<Use> {
        let is_first = !std::mem::replace(&mut self.seen_any, true);
        match kind {
            KIND_STEP => {
                self.in_first = false;
                Some(Use::Step)
            }
            KIND_CHECKPOINT | KIND_CHECKPOINT_BEGIN => {
                self.in_first = is_first || (self.in_first && kind == KIND_CHECKPOINT);
                Some(if self.in_first { Use::Checkpoint } else { Use::Passed })
            }
            _ => None,
        }
    }
}

/// Opens the journal on `disk`, replays it into a new engine, and makes what every broker has. `see` is shown each frame
/// once it was replayed.
///
/// # Errors
/// [`OpenError`] when the data is locked, damaged, or of a newer format.
pub fn open<R>(
    disk: Arc<dyn Disk>,
    setup: Setup,
    mut see: impl FnMut(Frame<'_>),
) -> Result<Opened<R>, OpenError> {
    let mut engine = Driven::new(&setup.broker, setup.seed, setup.twin);
    let mut recovery = Recovery::open(disk, setup.journal, JournalId(setup.seed))?;
    let (mut pieces, mut read) = (Pieces::default(), 0);
    while let Some(frame) = recovery.next_frame()? {
        read += frame.payload.len() as u64;
        let lsn = frame.lsn;
        let unreadable = |reason| OpenError::Frame { lsn, reason };
        let used = pieces
            .used(frame.label.kind)
            .ok_or_else(|| unreadable(format!("its kind is {}", frame.label.kind)))?;
        if used != Use::Passed {
            let replayed = engine.replay(frame.payload, place_of(&frame.location));
            replayed.map_err(|error| unreadable(error.to_string()))?;
        }
        see(Frame { lsn, used, payload: frame.payload });
    }
    engine.each(Engine::replayed);
    // Before anything is cleared away: a segment whose header is damaged looks like a file that was never used.
    recovery.require(engine.engine().live_segments().keys().copied().map(SegmentNumber))?;
    let opened = recovery.finish()?;
    engine.found(matches!(opened.recovered.stop, Stop::Clean | Stop::New), &setup.broker);
    let shell = Shell::new(engine, opened.journal, read, setup.checkpoint_every);
    shell.free_unneeded()?;
    Ok(Opened {
        shell,
        writer: opened.writer,
        keeper: opened.keeper,
        reader: opened.reader,
        recovered: opened.recovered,
    })
}
