//! A flipped bit in what was synced is reported with file and offset, or harmless; it is never served (DESIGN 7.3).

use super::Violation;
use super::recovery::{Checkpoints, check_replay, check_start};
use crate::broker::{Broker, Config, StartError};
use crate::random::Random;
use postroad_engine::Now;
use postroad_journal::{Disk, Error, MemDisk};
use postroad_shell::OpenError;

/// What is known of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The steps that may be in it.
    pub written: &'a [Vec<u8>],
    /// How many of them are durable.
    pub durable: u64,
    /// Numbers of bodies were given again.
    pub reused: bool,
    /// Checkpoints that may be in it, with the steps before them.
    pub checkpoints: &'a Checkpoints,
}

/// Flips one bit somewhere in a copy of the folder and reads the copy. Says whether the damage was reported.
///
/// # Errors
/// If the flip is neither reported nor harmless.
pub fn check(
    disk: &MemDisk,
    config: &Config,
    known: Known<'_>,
    now: Now,
    random: &mut Random,
) -> Result<bool, Violation> {
    let copy = disk.copy();
    let mut names = copy.list().unwrap_or_default();
    names.sort_unstable();
    let Some(name) = random.pick(&names).cloned() else { return Ok(false) };
    let content = copy.content(&name).unwrap_or_default();
    // Most of a segment is zeros that nobody reads: look for what was written.
    let mut offsets = (0..20).map(|_| random.index(content.len()));
    let Some(offset) = offsets.find(|&at| content.get(at).is_some_and(|byte| *byte != 0)) else {
        return Ok(false);
    };
    let bit = u8::try_from(random.below(8)).unwrap_or(0);
    if !copy.flip_bit(&name, offset, bit) {
        return Ok(false);
    }
    let place = format!("a flipped bit in {name} at {offset}");
    match Broker::start(&copy, config, random.bits()) {
        Ok((mut broker, start)) => {
            let after =
                |violation: Violation| Violation::new("damage", format!("after {place}: {}", violation.text));
            let Known { written, durable, reused, checkpoints } = known;
            let steps = check_start(written, durable, checkpoints, &start.frames).map_err(after)?;
            if has_unreadable(&broker) {
                return Ok(true);
            }
            check_replay(&mut broker, &config.settings, &written[..steps], reused, now)
                .map_err(after)
                .map(|()| false)
        }
        Err(StartError::Open(OpenError::Journal(Error::Damage(_) | Error::NewerFormat { .. }))) => Ok(true),
        Err(error) => Err(Violation::new("damage", format!("{place} is reported as: {error}"))),
    }
}

/// Whether a message can't be read back where it lies: the reason, with file and offset, is what the broker logs.
fn has_unreadable(broker: &Broker) -> bool {
    let mut unreadable = false;
    let _digest = broker.engine().digest(&mut |wanted| {
        let read = broker.read(wanted);
        unreadable |= read.is_none();
        read
    });
    unreadable
}
