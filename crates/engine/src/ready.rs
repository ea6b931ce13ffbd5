//! Which messages of a queue may be delivered: for each priority a sparse bitmap over the ids, 64 to a word.

use postroad_model::id::EventId;
use std::collections::BTreeMap;

/// Priorities told apart (QU-7).
pub(crate) const PRIORITIES: usize = 10;

/// The deliverable ids of a queue, by priority.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    levels: [BTreeMap<u64, u64>; PRIORITIES],
    len: u64,
}

impl Ready {
    /// Whether nothing is deliverable.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes an id deliverable.
    pub(crate) fn insert(&mut self, priority: u8, id: EventId) {
        let word = self.levels[level(priority)].entry(id / 64).or_default();
        let bit = 1 << (id % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.len += 1;
        }
    }

    /// Takes an id out; whether it was there.
    pub(crate) fn remove(&mut self, priority: u8, id: EventId) -> bool {
        let words = &mut self.levels[level(priority)];
        let bit = 1 << (id % 64);
        let Some(word) = words.get_mut(&(id / 64)).filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        if *word == 0 {
            words.remove(&(id / 64));
        }
        self.len -= 1;
        true
    }

    /// The next deliverable message: highest priority first, then lowest id.
    #[must_use]
    pub(crate) fn first(&self) -> Option<(u8, EventId)> {
        self.after([0; PRIORITIES])
    }

    /// The oldest deliverable message, whatever its priority.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<EventId> {
        self.levels.iter().filter_map(|words| next_in(words, 0)).min()
    }

    /// The next deliverable message whose id is above `passed` at its priority.
    #[must_use]
    pub(crate) fn after(&self, passed: [EventId; PRIORITIES]) -> Option<(u8, EventId)> {
        if self.len == 0 {
            return None;
        }
        for priority in (0..PRIORITIES).rev() {
            if let Some(id) = next_in(&self.levels[priority], passed[priority] + 1) {
                return Some((u8::try_from(priority).unwrap_or(9), id));
            }
        }
        None
    }
}

fn next_in(words: &BTreeMap<u64, u64>, from: EventId) -> Option<EventId> {
    let first = from / 64;
    for (&number, &word) in words.range(first..) {
        let word = if number == first { word & (u64::MAX << (from % 64)) } else { word };
        if word != 0 {
            return Some(number * 64 + u64::from(word.trailing_zeros()));
        }
    }
    None
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
            ops in prop::collection::vec((any::<bool>(), 0u8..10, 1u64..300), 1..300),
            passed in 0u64..300,
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
