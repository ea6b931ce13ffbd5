//! Which messages of a queue may be delivered: for each priority a sparse bitmap over the ids, 512 to a block.

use postroad_model::id::EventId;
use std::collections::VecDeque;

/// Priorities told apart (QU-7).
pub(crate) const PRIORITIES: usize = 10;
/// Ids of one block.
const BLOCK: u64 = 512;

/// The deliverable ids of a queue, by priority.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    levels: [Bits; PRIORITIES],
    /// The levels at which something is deliverable, a bit each: mostly it is one.
    used: u16,
    len: u64,
}

/// A set of ids: mostly few blocks, those in between mostly full.
#[derive(Debug, Default)]
struct Bits {
    /// Blocks that are not empty, ascending by number.
    blocks: VecDeque<(u64, [u64; 8])>,
}

impl Ready {
    /// Whether nothing is deliverable.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many ids are deliverable.
    #[must_use]
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Makes an id deliverable.
    pub(crate) fn insert(&mut self, priority: u8, id: EventId) {
        let level = level(priority);
        self.len += u64::from(self.levels[level].insert(id));
        self.used |= 1 << level;
    }

    /// Takes an id out; whether it was there.
    pub(crate) fn remove(&mut self, priority: u8, id: EventId) -> bool {
        let level = level(priority);
        let was_there = self.levels[level].remove(id);
        self.len -= u64::from(was_there);
        if self.levels[level].blocks.is_empty() {
            self.used &= !(1 << level);
        }
        was_there
    }

    /// The next deliverable message: highest priority first, then lowest id.
    #[must_use]
    pub(crate) fn first(&self) -> Option<(u8, EventId)> {
        let priority = self.used.checked_ilog2()?;
        let id = self.levels[priority as usize].first()?;
        Some((u8::try_from(priority).unwrap_or(9), id))
    }

    /// The oldest deliverable message, whatever its priority.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<EventId> {
        self.levels.iter().filter_map(Bits::first).min()
    }

    /// The next deliverable message whose id is above `passed` at its priority.
    #[must_use]
    pub(crate) fn after(&self, passed: [EventId; PRIORITIES]) -> Option<(u8, EventId)> {
        for priority in (0..PRIORITIES).rev().filter(|priority| self.used & 1 << priority != 0) {
            if let Some(id) = self.levels[priority].next(passed[priority] + 1) {
                return Some((u8::try_from(priority).unwrap_or(9), id));
            }
        }
        None
    }
}

impl Bits {
    /// Where a block is, or where it would be. Most looks are at the first block or at the last one.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match (self.blocks.front(), self.blocks.back()) {
            (Some(&(first, _)), _) if number <= first => {
                if number == first {
                    Ok(0)
                } else {
                    Err(0)
                }
            }
            (_, Some(&(last, _))) if number == last => Ok(self.blocks.len() - 1),
            (_, Some(&(last, _))) if number < last => {
                self.blocks.binary_search_by_key(&number, |&(number, _)| number)
            }
            _ => Err(self.blocks.len()),
        }
    }

    fn insert(&mut self, id: EventId) -> bool {
        let at = self.find(id / BLOCK).unwrap_or_else(|at| {
            self.blocks.insert(at, (id / BLOCK, [0; 8]));
            at
        });
        let word = &mut self.blocks[at].1[word(id)];
        let before = *word;
        *word |= bit(id);
        before != *word
    }

    fn remove(&mut self, id: EventId) -> bool {
        let Ok(at) = self.find(id / BLOCK) else { return false };
        let words = &mut self.blocks[at].1;
        let before = words[word(id)];
        words[word(id)] &= !bit(id);
        let was_there = before != words[word(id)];
        if was_there && words.iter().all(|&word| word == 0) {
            self.blocks.remove(at);
        }
        was_there
    }

    /// The first id.
    fn first(&self) -> Option<EventId> {
        let (number, words) = self.blocks.front()?;
        let at = words.iter().position(|&word| word != 0)?;
        Some(number * BLOCK + at as u64 * 64 + u64::from(words[at].trailing_zeros()))
    }

    /// The first id from `from` on.
    fn next(&self, from: EventId) -> Option<EventId> {
        let at = self.find(from / BLOCK).unwrap_or_else(|at| at);
        self.blocks.range(at..).find_map(|&(number, words)| {
            let begin = if number == from / BLOCK { word(from) } else { 0 };
            (begin..words.len()).find_map(|at| {
                let first = number * BLOCK + at as u64 * 64;
                // Below `from` nothing counts; the shift is below 64 where it is used.
                let mask = if first < from { u64::MAX << (from - first).min(63) } else { u64::MAX };
                let left = words[at] & mask;
                (left != 0).then(|| first + u64::from(left.trailing_zeros()))
            })
        })
    }
}

/// The word of an id within its block.
const fn word(id: EventId) -> usize {
    #[allow(clippy::cast_possible_truncation)] // below 8
    let word = (id % BLOCK / 64) as usize;
    word
}

const fn bit(id: EventId) -> u64 {
    1 << (id % 64)
}

fn level(priority: u8) -> usize {
    usize::from(priority).min(PRIORITIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn gives_what_a_sorted_set_gives(
            ops in prop::collection::vec((any::<bool>(), 0u8..10, 1u64..2_000), 1..300),
            passed in 0u64..2_000,
        ) {
            let (mut ready, mut model) = (Ready::default(), BTreeSet::new());
            for (insert, priority, id) in ops {
                if insert {
                    ready.insert(priority, id);
                    model.insert((Reverse(priority), id));
                } else {
                    prop_assert_eq!(ready.remove(priority, id), model.remove(&(Reverse(priority), id)));
                }
            }
            prop_assert_eq!(ready.len, model.len() as u64);
            let expected = model.first().map(|&(Reverse(p), id)| (p, id));
            prop_assert_eq!(ready.first(), expected);
            prop_assert_eq!(ready.oldest(), model.iter().map(|&(_, id)| id).min());
            let beyond = model.iter().find(|&&(_, id)| id > passed).map(|&(Reverse(p), id)| (p, id));
            prop_assert_eq!(ready.after([passed; PRIORITIES]), beyond);
        }
    }
}
