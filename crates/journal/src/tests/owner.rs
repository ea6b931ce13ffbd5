//! An owner of a journal that does random things, and a model of what the journal must hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    AppendError, Appended, Checkpoint, Error, Label, Lsn, MemDisk, Opened, Options, Recovery, Stop, Work,
};

use super::ID;

/// A small generator, so that a seed means the same everywhere.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn payload(&mut self) -> Vec<u8> {
        let length = match self.below(40) {
            0 => 20_000 + self.below(10_000),
            1..=4 => 4_000 + self.below(8_000),
            5 => 0,
            _ => self.below(500),
        };
        let first = self.below(256);
        (0..length).map(|index| u8::try_from((first + index / 7) % 256).unwrap()).collect()
    }
}

/// What a journal must hold, over all its lives.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) frames: BTreeMap<Lsn, (Appended, Vec<u8>)>,
    /// Everything up to here was reported as durable.
    pub(super) confirmed: Lsn,
    /// Where recovery must start.
    pub(super) start: Option<Lsn>,
    /// Where it may start instead, because that checkpoint was being declared.
    maybe_start: Option<Lsn>,
}

impl Model {
    /// Opens the journal and checks what it holds against the model; then the model is what was found.
    pub(super) fn open(&mut self, disk: &MemDisk) -> Result<Opened, Error> {
        let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), ID)?;
        let (mut first, mut last): (Option<Lsn>, Option<Lsn>) = (None, None);
        while let Some(frame) = recovery.next_frame()? {
            let lsn = frame.lsn;
            match last {
                None => assert!(
                    self.may_start_at(lsn),
                    "starts at {lsn}: {:?} {:?}",
                    self.start,
                    self.maybe_start
                ),
                // A clean stop has a number of its own and is not handed out.
                Some(last) => {
                    assert_eq!(self.frames.range(last.next()..).next().map(|next| *next.0), Some(lsn));
                }
            }
            let (appended, payload) = self.frames.get(&lsn).expect("was appended");
            assert_eq!((frame.location, frame.payload), (appended.location, payload.as_slice()), "{lsn}");
            first = first.or(Some(lsn));
            last = Some(lsn);
        }
        assert!(last.unwrap_or_default() >= self.last_confirmed_frame(), "{last:?} < {:?}", self.confirmed);
        let opened = recovery.finish()?;
        self.start = first.or(self.start);
        self.maybe_start = None;
        let last = opened.recovered.last;
        self.frames.retain(|lsn, _| *lsn <= last);
        self.confirmed = last;
        Ok(opened)
    }

    fn may_start_at(&self, lsn: Lsn) -> bool {
        let first = |start: Option<Lsn>| start.unwrap_or(Lsn(1));
        lsn == first(self.start) || self.maybe_start.is_some() && lsn == first(self.maybe_start)
    }

    /// The last confirmed frame that is not one of the journal's own.
    fn last_confirmed_frame(&self) -> Lsn {
        self.frames.range(..=self.confirmed).next_back().map_or(Lsn(0), |(lsn, _)| *lsn)
    }
}

/// One life of a journal.
pub(super) struct Owner<'a> {
    pub(super) opened: Opened,
    model: &'a mut Model,
    unfinished: Option<Checkpoint>,
}

impl<'a> Owner<'a> {
    pub(super) fn open(disk: &MemDisk, model: &'a mut Model) -> Result<Self, Error> {
        let opened = model.open(disk)?;
        Ok(Self { opened, model, unfinished: None })
    }

    /// Does so many random things.
    pub(super) fn live(&mut self, random: &mut Random, steps: u32) -> Result<(), Error> {
        for _ in 0..steps {
            match random.below(16) {
                0..=6 => drop(self.append(random)?),
                7..=9 => self.flush(random)?,
                10 => self.write_two(random)?,
                11..=13 => self.keep()?,
                14 => self.begin_checkpoint(random)?,
                _ => self.opened.writer.mark_tail()?,
            }
        }
        Ok(())
    }

    /// Appends a frame, waiting for room if there is none.
    pub(super) fn append(&mut self, random: &mut Random) -> Result<Appended, Error> {
        let payload = random.payload();
        loop {
            let (a, b) = payload.split_at(payload.len() / 3);
            let appended = match random.below(2) {
                0 => self.opened.journal.append(Label::kind(1), &[a, b]),
                _ => self
                    .opened
                    .journal
                    .append_with(Label::kind(1), |buffer| buffer.extend_from_slice(&payload)),
            };
            match appended {
                Ok(appended) => {
                    self.model.frames.insert(appended.lsn, (appended, payload));
                    return Ok(appended);
                }
                Err(AppendError::NotReady { .. }) => self.keep()?,
                Err(AppendError::PreviousIo) => return Err(Error::PreviousIo),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Writes and syncs, or only one of the two.
    pub(super) fn flush(&mut self, random: &mut Random) -> Result<(), Error> {
        if random.below(6) > 0
            && let Some(batch) = self.opened.journal.take_batch()
        {
            self.opened.writer.write(&[batch])?;
        }
        if random.below(6) > 0 {
            self.model.confirmed = self.model.confirmed.max(self.opened.writer.sync()?);
        }
        Ok(())
    }

    /// Two batches in one write.
    fn write_two(&mut self, random: &mut Random) -> Result<(), Error> {
        self.append(random)?;
        let one = self.opened.journal.take_batch();
        self.append(random)?;
        let two = self.opened.journal.take_batch();
        self.opened.writer.write(&one.into_iter().chain(two).collect::<Vec<_>>())
    }

    fn begin_checkpoint(&mut self, random: &mut Random) -> Result<(), Error> {
        if self.unfinished.is_some() {
            return Ok(());
        }
        let first = self.append(random)?;
        let last = self.append(random)?.lsn;
        let checkpoint = Checkpoint { first, last };
        self.unfinished = Some(checkpoint);
        self.opened.journal.complete_checkpoint(checkpoint);
        Ok(())
    }

    fn keep(&mut self) -> Result<(), Error> {
        self.model.maybe_start = self.unfinished.map(|unfinished| unfinished.first.lsn);
        if let Work::Checkpointed(checkpoint) = self.opened.keeper.work()? {
            self.model.start = Some(checkpoint.first.lsn);
            self.unfinished = None;
            self.opened.journal.free_before(checkpoint.first.location.segment).unwrap();
        }
        self.model.maybe_start = None;
        Ok(())
    }

    /// Stops in order.
    pub(super) fn stop(mut self) -> Result<(), Error> {
        while self.unfinished.is_some() {
            super::flush(&mut self.opened)?;
            self.model.confirmed = self.opened.journal.durable();
            self.keep()?;
        }
        while matches!(self.opened.journal.append_clean_stop(), Err(AppendError::NotReady { .. })) {
            self.keep()?;
        }
        super::flush(&mut self.opened)?;
        self.model.confirmed = self.opened.journal.durable();
        Ok(())
    }

    pub(super) fn stopped(&self) -> Stop {
        self.opened.recovered.stop
    }
}
