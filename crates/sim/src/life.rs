//! The lives of the broker in a world: it starts, crashes, stops; its folder is damaged, copied and put back. What comes
//! back is compared with what was written.

use crate::broker::{Broker, Start};
use crate::check::damage::Known;
use crate::check::recovery::Checkpoints;
use crate::check::{Violation, damage, recovery};
use crate::ledger::Ledger;
use crate::world::World;
use postroad_engine::Now;
use postroad_journal::{MemDisk, Stop};
use postroad_shell::{ConnIds, Use};

/// Bits that are flipped at a time, each in a copy of its own.
const FLIPS: u32 = 5;

/// A data folder that is not in use, and what is known of it.
#[derive(Debug)]
pub struct Folder {
    disk: MemDisk,
    /// It is a copy that nobody has used yet: its first start must not take it for the one that it was made of.
    is_copy: bool,
    written: Vec<Vec<u8>>,
    durable: u64,
    checkpoints: Checkpoints,
}

impl World {
    /// Starts the broker on what is on the disk, and checks what came back.
    pub(crate) fn start(&mut self) -> Result<(), Violation> {
        self.start_on(false)
    }

    /// Starts the broker on a folder that may be a copy.
    fn start_on(&mut self, is_copy: bool) -> Result<(), Violation> {
        self.conns = ConnIds::default();
        for _ in 0..100 {
            self.lives += 1;
            let seed = self.random.bits();
            match Broker::start(&self.disk, &self.config, seed) {
                Ok((broker, start)) => {
                    if is_copy && start.stop == Stop::Clean {
                        let text = "a copy of the folder is taken for the folder itself";
                        return Err(Violation::new("an identity means one message", text));
                    }
                    return self.resume(broker, &start);
                }
                // A crash that strikes while the journal is being opened: what was durable still is.
                Err(error) if error.is_of_the_disk() => self.disk = self.next_disk(),
                Err(error) => {
                    return Err(Violation::new("recovery", format!("the broker does not start: {error}")));
                }
            }
        }
        Err(Violation::new("recovery", "the broker never starts"))
    }

    pub(crate) fn resume(&mut self, broker: Broker, start: &Start) -> Result<(), Violation> {
        let steps = recovery::check_start(&self.written, self.before, &self.checkpoints, &start.frames)?;
        if steps < self.written.len() || self.ledger.steps != steps as u64 || self.lives == 1 {
            self.written.truncate(steps);
            self.checkpoints.retain(|(_, before)| *before <= steps as u64);
            let mut ledger = Ledger::default();
            for payload in &self.written {
                let records = postroad_record::decode_step(payload)
                    .map_err(|error| Violation::new("records", error.to_string()))?;
                ledger
                    .apply_step(&records, &self.messages)
                    .map_err(|text| Violation::new("records", text))?;
            }
            self.ledger = ledger;
        }
        self.order.forget();
        self.last_stop = Some(start.stop);
        self.before = self.written.len() as u64;
        self.tally.checkpoints += u64::from(start.frames.iter().any(|(used, _)| *used == Use::Checkpoint));
        self.note(|| format!("the broker starts ({:?}, {steps} steps)", start.stop));
        self.broker = Some(broker);
        let now = self.now;
        // Before its first own step, it is exactly what was read back.
        let (Some(mut broker), ledger) = (self.broker.take(), &self.ledger) else { return Ok(()) };
        if self.lives > 1 {
            recovery::check_state(&mut broker, ledger, now)?;
        }
        self.broker = Some(broker);
        self.after_turn()
    }

    pub(crate) fn next_disk(&mut self) -> MemDisk {
        if self.random.one_in(4) { self.disk.kill() } else { self.disk.crash(self.random.bits()) }
    }

    /// The process dies, with loss of power or without; and is started again.
    ///
    /// # Errors
    /// A broken promise.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.tally.crashes += 1;
        self.compare()?;
        self.before = self.durable();
        let durable = self.before;
        self.note(|| format!("crash, {durable} steps are durable"));
        self.broker = None;
        self.disk = self.next_disk();
        self.lose_all();
        self.start()
    }

    /// The broker stops in order and is started again.
    ///
    /// # Errors
    /// A broken promise.
    pub fn stop(&mut self) -> Result<(), Violation> {
        self.tally.stops += 1;
        self.note(|| "clean stop".into());
        // What consumers hold is given back before the stop, or nobody would know that it was delivered.
        for seat in 0..self.seats.len() {
            self.lose(seat);
        }
        let mut more = true;
        while more {
            more = self.turn(usize::MAX, 1_000)?;
            self.disk_idle()?;
        }
        self.compare()?;
        // With steps that a full disk does not take, a mark of a clean stop would be a lie.
        if self.broker.as_ref().is_some_and(|broker| !broker.is_idle()) {
            return self.crash();
        }
        let end = |broker: &mut Broker| {
            broker.disk_idle()?;
            broker.checkpoint_at_end()?;
            broker.stop()
        };
        let stopped = self.broker.as_mut().map_or(Ok(true), end);
        self.after_turn()?;
        self.before = self.durable();
        self.broker = None;
        if stopped.is_err() {
            self.disk = self.next_disk();
        }
        let lives = self.lives;
        self.start()?;
        // A start that dies half-way leaves its own traces, and the next one can't tell.
        if self.lives == lives + 1
            && stopped.is_ok_and(|marked| marked)
            && self.last_stop != Some(Stop::Clean)
        {
            let text = format!("a clean stop is taken for {:?}", self.last_stop);
            return Err(Violation::new("recovery", text));
        }
        Ok(())
    }

    /// Copies the folder as it is at this moment.
    pub fn back_up(&mut self) {
        self.note(|| "the folder is copied".into());
        let (disk, durable) = (self.disk.copy(), self.durable());
        let (written, checkpoints) = (self.written.clone(), self.checkpoints.clone());
        self.shelf.push(Folder { disk, is_copy: true, written, durable, checkpoints });
    }

    /// The broker dies, and is started on another folder. The one that it had may come back later.
    ///
    /// # Errors
    /// A broken promise.
    pub fn change_folders(&mut self) -> Result<(), Violation> {
        let at = self.random.index(self.shelf.len());
        if at >= self.shelf.len() {
            return Ok(());
        }
        let other = self.shelf.swap_remove(at);
        self.tally.restores += 1;
        self.compare()?;
        let durable = self.durable();
        self.broker = None;
        self.lose_all();
        if self.random.one_in(2) {
            let (written, checkpoints) = (self.written.clone(), self.checkpoints.clone());
            let disk = self.next_disk();
            self.shelf.push(Folder { disk, is_copy: false, written, durable, checkpoints });
        }
        self.note(|| format!("another folder with {} durable steps is used", other.durable));
        self.disk = other.disk;
        self.written = other.written;
        self.checkpoints = other.checkpoints;
        self.before = other.durable;
        self.ledger = Ledger::default();
        self.shadow.forget();
        self.start_on(other.is_copy)
    }

    /// Flips a bit in a copy of the disk, which must be noticed or harmless.
    ///
    /// # Errors
    /// A broken promise.
    pub fn flip(&mut self) -> Result<(), Violation> {
        let durable = self.durable();
        let quiet = self.broker.as_mut().is_some_and(|broker| broker.disk_idle().is_ok());
        if !quiet {
            return self.crash();
        }
        self.after_turn()?;
        // Without that note damage to the last batch can't be told from a torn tail (journal-format.md).
        if !self.broker.as_ref().is_some_and(Broker::can_note) {
            return Ok(());
        }
        let durable = self.durable().max(durable);
        let (written, checkpoints, reused) = (&self.written, &self.checkpoints, self.ledger.reused);
        let known = Known { written, durable, reused, checkpoints };
        for _ in 0..FLIPS {
            let found = damage::check(&self.disk, &self.config, known, self.now, &mut self.random)?;
            self.tally.damages += u64::from(found);
        }
        Ok(())
    }

    /// Replays everything beside the running broker, and compares.
    ///
    /// # Errors
    /// A broken promise.
    pub fn compare(&mut self) -> Result<(), Violation> {
        let now = Now { wall: self.latest.wall, mono: self.now.mono };
        let Some(broker) = &mut self.broker else { return Ok(()) };
        recovery::check_replay(broker, &self.config.settings, &self.written, self.ledger.reused, now)
    }
}
