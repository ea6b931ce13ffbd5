//! A flipped bit in what was synced is reported with file and offset, or harmless; it is never served (DESIGN 7.3).

use super::Violation;
use super::recovery::check_prefix;
use crate::random::Random;
use postroad_journal::{Disk, Error, JournalId, MemDisk, Options, Recovery};
use std::sync::Arc;

/// Flips one bit somewhere in a copy of the folder and reads the copy. Says whether the damage was reported.
///
/// # Errors
/// If the flip is neither reported nor harmless.
pub fn check(
    disk: &MemDisk,
    written: &[Vec<u8>],
    durable: u64,
    random: &mut Random,
) -> Result<bool, Violation> {
    let copy = disk.copy();
    let mut names = copy.list().unwrap_or_default();
    names.sort_unstable();
    let Some(name) = random.pick(&names).cloned() else { return Ok(false) };
    let size = copy.content(&name).map_or(0, |content| content.len());
    let (offset, bit) = (random.index(size), u8::try_from(random.below(8)).unwrap_or(0));
    if !copy.flip_bit(&name, offset, bit) {
        return Ok(false);
    }
    match read_all(&copy) {
        Ok(read) => {
            let result = check_prefix(written, durable, &read);
            let place = format!("after a flipped bit in {name} at {offset}");
            result.map(|()| false).map_err(|v| Violation::new("damage", format!("{place}: {}", v.text)))
        }
        Err(Error::Damage(damage)) if damage.file.contains(&name) || damage.file.ends_with('/') => Ok(true),
        Err(Error::Damage(_) | Error::NewerFormat { .. }) => Ok(true),
        Err(error) => {
            let text = format!("a flipped bit in {name} at {offset} is reported as: {error}");
            Err(Violation::new("damage", text))
        }
    }
}

fn read_all(disk: &MemDisk) -> Result<Vec<Vec<u8>>, Error> {
    let mut recovery = Recovery::open(Arc::new(disk.clone()), Options::small(), JournalId([0; 16]))?;
    let mut read = Vec::new();
    while let Some(frame) = recovery.next_frame()? {
        read.push(frame.payload.to_vec());
    }
    Ok(read)
}
