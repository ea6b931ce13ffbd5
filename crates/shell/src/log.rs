//! The journal under the engine: frames that wait for room, frames on their way to the disk, and checkpoints.

use crate::shell::ShellError;
use postroad_engine::{SegmentUse, Step, StepBytes};
use postroad_journal::{
    AppendError, Appended, Batch, Checkpoint, FreeError, Journal, Label, Location, Lsn, SegmentInfo,
    SegmentNumber, Space,
};
use postroad_record::FramePlace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Kind of the frames that hold a step: a list of records.
pub(crate) const KIND_STEP: u8 = 1;
/// Kind of the frames that hold a further piece of a checkpoint: records that rebuild the state, like those of a step.
pub(crate) const KIND_CHECKPOINT: u8 = 2;
/// Kind of the frame that holds the first piece of a checkpoint.
pub(crate) const KIND_CHECKPOINT_BEGIN: u8 = 3;

/// On a full disk: bytes that a checkpoint may take besides twice those of the last one.
const ROOM_WHEN_FULL: u64 = 64 * 1024;
/// An orderly end makes a checkpoint where a start would have to read this part of what is otherwise read at most.
const LAST: u64 = 16;
/// A checkpoint that is small beside them is due when it frees so many segments.
const SOON: u64 = 2;
/// A segment is sparse when it is so many times as large as what is still needed of it.
const SPARSE: u64 = 3;
/// So many sparse segments are left as they are.
const FEW: u64 = 4;

/// Frames from the engine's hands to the disk's.
#[derive(Debug)]
pub(crate) struct Log {
    journal: Journal,
    /// Frames that found no segment ready, in order.
    waiting: VecDeque<Pending>,
    /// The last frame of each batch that holds steps, with the last of these.
    on_the_way: VecDeque<(Lsn, Step)>,
    durable: Step,
    /// Bytes of the steps appended since the last checkpoint began.
    since_checkpoint: u64,
    /// A checkpoint is due after so many.
    checkpoint_every: u64,
    /// Bytes of the last checkpoint.
    checkpoint_bytes: u64,
    /// Segments that it filled.
    checkpoint_segments: u64,
    /// The first frame of the checkpoint that is being appended.
    checkpoint: Option<Appended>,
    /// A checkpoint is appended and not yet declared complete by the journal.
    completing: bool,
    /// Segments in which messages lay that were held when the last checkpoint began: it says where.
    needed: BTreeSet<u64>,
}

/// A frame that is to be appended.
#[derive(Debug)]
enum Pending {
    Step(StepBytes),
    Checkpoint { payload: Vec<u8>, first: bool, last: bool },
}

impl Pending {
    fn frame(&self) -> (u8, &[u8]) {
        match self {
            Self::Step(step) => (KIND_STEP, &step.payload),
            Self::Checkpoint { payload, first: true, .. } => (KIND_CHECKPOINT_BEGIN, payload),
            Self::Checkpoint { payload, .. } => (KIND_CHECKPOINT, payload),
        }
    }
}

impl Log {
    /// A log behind `read` bytes that a start had to read.
    pub(crate) fn new(journal: Journal, read: u64, checkpoint_every: u64) -> Self {
        Self {
            journal,
            waiting: VecDeque::new(),
            on_the_way: VecDeque::new(),
            durable: Step(0),
            since_checkpoint: read,
            checkpoint_every,
            checkpoint_bytes: 0,
            checkpoint_segments: 0,
            checkpoint: None,
            completing: false,
            needed: BTreeSet::new(),
        }
    }

    /// Appends steps behind those that wait, as far as there is room; `placed` is told where each came to lie, and gets it back.
    ///
    /// # Errors
    /// If the journal has failed; the broker must end.
    pub(crate) fn append(
        &mut self,
        steps: impl Iterator<Item = StepBytes>,
        mut placed: impl FnMut(StepBytes, FramePlace),
    ) -> Result<(), ShellError> {
        self.waiting.extend(steps.map(Pending::Step));
        let mut last = None;
        while let Some(pending) = self.waiting.front() {
            let (kind, payload) = pending.frame();
            let appended = match self.journal.append(Label::kind(kind), &[payload]) {
                Ok(appended) => appended,
                Err(AppendError::NotReady { .. } | AppendError::NoSpace { .. }) => break,
                Err(AppendError::PreviousIo) => return Err(postroad_journal::Error::PreviousIo.into()),
                Err(error) => return Err(ShellError::Frame(error)),
            };
            let bytes = payload.len() as u64;
            match self.waiting.pop_front() {
                Some(Pending::Step(step)) => {
                    self.since_checkpoint += bytes;
                    last = Some((appended.lsn, step.step));
                    placed(step, place_of(&appended.location));
                }
                Some(Pending::Checkpoint { last, .. }) => self.checkpoint_appended(appended, last),
                None => {}
            }
        }
        self.on_the_way.extend(last);
        Ok(())
    }

    fn checkpoint_appended(&mut self, appended: Appended, last: bool) {
        let first = *self.checkpoint.get_or_insert(appended);
        if last {
            let (from, to) = (first.location.segment, appended.location.segment);
            self.checkpoint_segments = to.0.saturating_sub(from.0);
            self.journal.complete_checkpoint(Checkpoint { first, last: appended.lsn });
            self.checkpoint = None;
        }
    }

    /// What was appended since the last call, for the disk.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        self.journal.take_batch()
    }

    /// Whether a checkpoint is due: enough was appended, or enough segments would be free after it, of which messages are
    /// held in `used` ones. Waiting for eight times the last one keeps what checkpoints write small beside all that is
    /// written, and beside what they free where that comes sooner.
    #[must_use]
    pub(crate) fn wants_checkpoint(&self, used: usize) -> bool {
        if self.completing || !self.waiting.is_empty() || self.since_checkpoint == 0 {
            return false;
        }
        let gain = self.gain(used);
        if let Space::Full { left } = self.journal.space() {
            // Room is made as soon as that is possible without filling up what is left.
            let needed = self.checkpoint_bytes.saturating_mul(2).saturating_add(ROOM_WHEN_FULL);
            return gain > 0 && left > needed;
        }
        let often = self.checkpoint_bytes.saturating_mul(8);
        // The sooner segments are free, the fewer new ones must be filled with zeros.
        let soon = self.journal.segment_size().saturating_mul(SOON).max(often).max(self.checkpoint_every / 4);
        let late = self.checkpoint_every.max(self.checkpoint_bytes);
        self.since_checkpoint >= self.checkpoint_every.max(often) || gain >= soon.min(late)
    }

    /// Whether a start would have so much to read that a checkpoint is worth its time at an orderly end.
    #[must_use]
    pub(crate) fn wants_last_checkpoint(&self) -> bool {
        let fits = !self.completing && self.waiting.is_empty() && !self.is_full();
        fits && self.since_checkpoint >= self.checkpoint_every / LAST
    }

    /// Forgets the pieces of a checkpoint that found no room: a start passes over those that did. What waits behind them is
    /// to be appended with the next call of [`Self::append`].
    pub(crate) fn give_up_checkpoint(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|pending| matches!(pending, Pending::Step(_)));
        if self.waiting.len() < before {
            self.completing = false;
            self.checkpoint = None;
        }
    }

    /// Whether a checkpoint is appended and not complete yet.
    #[must_use]
    pub(crate) const fn is_completing(&self) -> bool {
        self.completing
    }

    /// Bytes of the segments that would be free after a checkpoint: those in which no message is held, but for the one that
    /// is being filled, and as many as it takes itself. The last one's are among them, so without that a large checkpoint
    /// would be reason enough for the next.
    fn gain(&self, used: usize) -> u64 {
        let size = self.journal.segment_size();
        let unused = self.journal.segment_count().saturating_sub(used + 1) as u64;
        unused.saturating_sub(self.checkpoint_segments).saturating_mul(size)
    }

    /// Appends a checkpoint: pieces that rebuild the state as it is after every step appended so far, and the segments in
    /// which its messages lie.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(crate) fn append_checkpoint(
        &mut self,
        pieces: Vec<Vec<u8>>,
        needed: BTreeSet<u64>,
    ) -> Result<(), ShellError> {
        let count = pieces.len();
        self.checkpoint_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.needed = needed;
        let pending = pieces.into_iter().enumerate();
        let pending = pending.map(|(at, payload)| Pending::Checkpoint {
            payload,
            first: at == 0,
            last: at + 1 == count,
        });
        self.waiting.extend(pending);
        self.completing = count > 0;
        self.since_checkpoint = 0;
        self.append(std::iter::empty(), |_, _| ())
    }

    /// A checkpoint is complete: of what lies before it the segments are needed in which its messages lie, and those in
    /// which messages lie now, because some may have been moved meanwhile. Says how many others that frees.
    ///
    /// # Errors
    /// If the journal knows of no such checkpoint.
    pub(crate) fn checkpointed(
        &mut self,
        checkpoint: Checkpoint,
        used: &BTreeMap<u64, SegmentUse>,
    ) -> Result<usize, FreeError> {
        self.completing = false;
        let needed = |number: u64| self.needed.contains(&number) || used.contains_key(&number);
        self.free_before(checkpoint.first.location.segment, needed)
    }

    /// Frees the segments before one, but for those that are needed.
    fn free_before(&self, segment: SegmentNumber, needed: impl Fn(u64) -> bool) -> Result<usize, FreeError> {
        let mut freed = 0;
        for SegmentInfo { number, .. } in self.journal.segments() {
            if number < segment && !needed(number.0) {
                self.journal.free(number)?;
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Frees what a start found that nothing needs any more: it was not freed before the life before ended.
    ///
    /// # Errors
    /// As [`Self::checkpointed`].
    pub(crate) fn free_unneeded(&self, used: &BTreeMap<u64, SegmentUse>) -> Result<usize, FreeError> {
        match self.journal.recovery_start() {
            Some(start) => self.free_before(start, |number| used.contains_key(&number)),
            None => Ok(0),
        }
    }

    /// Segments before the last complete checkpoint of which the messages that are still held take only a small part. None
    /// where the segments together are not much larger than what is held in them, and none where moving it would make
    /// only a few of them free: else an idle broker could go on moving what it has just moved.
    pub(crate) fn sparse(&self, used: &BTreeMap<u64, SegmentUse>) -> BTreeSet<u64> {
        let Some(start) = self.journal.recovery_start() else { return BTreeSet::new() };
        let before = || used.range(..start.0).map(|(_, used)| used);
        let (segments, held) = (before().count() as u64, before().map(|used| used.bytes).sum::<u64>());
        let size = self.journal.segment_size();
        if segments.saturating_mul(size)
            <= held.saturating_mul(SPARSE).saturating_add(size.saturating_mul(FEW))
        {
            return BTreeSet::new();
        }
        let (mut sparse, mut to_move) = (BTreeSet::new(), 0);
        for segment in self.journal.segments().iter().filter(|segment| segment.number < start) {
            let bytes = used.get(&segment.number.0).map_or(0, |used| used.bytes);
            if bytes > 0 && bytes.saturating_mul(SPARSE) < segment.size {
                sparse.insert(segment.number.0);
                to_move += bytes;
            }
        }
        let taken = to_move.div_ceil(size.max(1));
        if sparse.len() as u64 > taken + FEW { sparse } else { BTreeSet::new() }
    }

    /// Notes that every frame up to `lsn` is durable, and says up to which step that is everything.
    pub(crate) fn became_durable(&mut self, lsn: Lsn) -> Step {
        while let Some((_, step)) = self.on_the_way.pop_front_if(|(last, _)| *last <= lsn) {
            self.durable = step;
        }
        self.durable
    }

    /// The last step that is durable, with every one before it.
    pub(crate) const fn durable(&self) -> Step {
        self.durable
    }

    /// Whether no frame waits for a segment and no step for the disk.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.on_the_way.is_empty()
    }

    /// Frames that wait for a segment.
    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the disk has no room for another segment.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.journal.space(), Space::Full { .. })
    }

    /// Marks the clean stop as the very last frame.
    ///
    /// # Errors
    /// As [`AppendError`] says.
    pub(crate) fn append_clean_stop(&mut self) -> Result<(), AppendError> {
        self.journal.append_clean_stop().map(drop)
    }
}

/// Where a frame lies, as the engine keeps it.
pub(crate) const fn place_of(location: &Location) -> FramePlace {
    FramePlace { segment: location.segment.0, offset: location.offset, length: location.length }
}
