//! What a store has taken, by origin: the memory that makes delivery once and once only (DUP-4 to DUP-7).
//!
//! For each origin store the ids are kept in blocks of 65,536: a run while they are contiguous, a bitmap once
//! they are not, nothing but a range of block numbers once a block is full. Blocks that are old, far below the
//! newest id and not full may be forgotten; what can't be judged after that is told apart from what is new.

use crate::ranges::RangeSet;
use postroad_model::id::{EventId, Origin, StoreUid, WallMs};
use postroad_model::settings::DedupeSettings;
use postroad_record::{self as record, KnownOrigins};
use std::collections::BTreeMap;

/// Ids in one block.
pub(crate) const BLOCK: u64 = 65_536;
const WORDS: usize = 1_024;

/// What the memory says of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Never seen here.
    New,
    /// Taken before.
    Duplicate,
    /// So old that its block was forgotten (DUP-7).
    Undecidable,
}

/// Everything that one store has taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    by_store: BTreeMap<StoreUid, Taken>,
}

impl Origins {
    /// Judges an arrival.
    #[must_use]
    pub(crate) fn judge(&self, origin: Origin) -> Verdict {
        self.by_store.get(&origin.store).map_or(Verdict::New, |taken| taken.judge(origin.event))
    }

    /// Remembers that `origin` was taken at `at`, and forgets what the window no longer covers (DUP-6).
    pub(crate) fn take(&mut self, origin: Origin, at: WallMs, window: &DedupeSettings) {
        let taken = self.by_store.entry(origin.store).or_default();
        taken.insert(origin.event, at);
        taken.forget(at, window);
    }

    /// Remembers an event that a checkpoint kept. What that checkpoint knew of its origin holds: a block that was forgotten
    /// stays so, or nothing else in it could be told from what is new.
    pub(crate) fn take_back(&mut self, origin: Origin, at: WallMs, window: &DedupeSettings) {
        if self.judge(origin) == Verdict::New {
            self.take(origin, at, window);
        }
    }

    /// Remembers what a checkpoint knows of an origin store.
    pub(crate) fn restore(&mut self, store: StoreUid, known: KnownOrigins) {
        let mut taken =
            Taken { newest: known.newest, forgotten_below: known.forgotten_below, ..Taken::default() };
        for (first, last) in known.full {
            taken.full.insert(first, last);
        }
        for block in known.blocks {
            let ids = Ids::from_record(&block.ids);
            taken.blocks.insert(block.number, Block { ids, touched: block.touched });
        }
        self.by_store.insert(store, taken);
    }

    /// What is known of each origin store, for a checkpoint.
    pub(crate) fn known(&self) -> impl Iterator<Item = (StoreUid, KnownOrigins)> + '_ {
        self.by_store.iter().map(|(uid, taken)| (*uid, taken.known()))
    }
}

#[derive(Clone, Debug, Default)]
struct Taken {
    /// Numbers of blocks in which every id was taken; never forgotten.
    full: RangeSet,
    blocks: BTreeMap<u64, Block>,
    newest: EventId,
    /// Ids at or below this one can't be judged, unless they are known.
    forgotten_below: EventId,
}

#[derive(Clone, Debug)]
struct Block {
    ids: Ids,
    touched: WallMs,
}

#[derive(Clone, Debug)]
enum Ids {
    /// Contiguous offsets, first and last.
    Run(u16, u16),
    Bits(Box<[u64; WORDS]>),
}

impl Taken {
    fn judge(&self, id: EventId) -> Verdict {
        let number = id / BLOCK;
        if self.full.contains(number) {
            return Verdict::Duplicate;
        }
        match self.blocks.get(&number) {
            Some(block) if block.ids.contains(offset(id)) => Verdict::Duplicate,
            // The block may be there for what was taken since, late or from an older checkpoint.
            _ if id <= self.forgotten_below => Verdict::Undecidable,
            _ => Verdict::New,
        }
    }

    fn insert(&mut self, id: EventId, at: WallMs) {
        let number = id / BLOCK;
        self.newest = self.newest.max(id);
        if self.full.contains(number) {
            return;
        }
        let at_offset = offset(id);
        match self.blocks.get_mut(&number) {
            Some(block) => {
                block.ids.insert(at_offset);
                block.touched = block.touched.max(at);
                if block.ids.is_full() {
                    self.blocks.remove(&number);
                    self.full.insert(number, number);
                }
            }
            None => {
                self.blocks.insert(number, Block { ids: Ids::Run(at_offset, at_offset), touched: at });
            }
        }
    }

    fn forget(&mut self, now: WallMs, window: &DedupeSettings) {
        while let Some((&number, block)) = self.blocks.first_key_value() {
            let last = number.saturating_mul(BLOCK) + (BLOCK - 1);
            let far = self.newest.saturating_sub(last) > window.min_ids;
            let old = now.saturating_sub(block.touched) > window.min_age;
            if !(far && old) {
                return;
            }
            self.blocks.remove(&number);
            self.forgotten_below = self.forgotten_below.max(last);
        }
    }

    fn known(&self) -> KnownOrigins {
        let block = |(&number, block): (&u64, &Block)| record::IdBlock {
            number,
            touched: block.touched,
            ids: block.ids.to_record(),
        };
        KnownOrigins {
            full: self.full.iter().collect(),
            blocks: self.blocks.iter().map(block).collect(),
            newest: self.newest,
            forgotten_below: self.forgotten_below,
        }
    }
}

impl Ids {
    fn contains(&self, at: u16) -> bool {
        match self {
            Self::Run(first, last) => (*first..=*last).contains(&at),
            Self::Bits(words) => words[usize::from(at) / 64] >> (at % 64) & 1 == 1,
        }
    }

    fn insert(&mut self, at: u16) {
        match self {
            Self::Run(first, last) if (*first..=*last).contains(&at) => {}
            Self::Run(_, last) if last.checked_add(1) == Some(at) => *last = at,
            Self::Run(first, _) if at.checked_add(1) == Some(*first) => *first = at,
            Self::Run(first, last) => {
                let mut words = Box::new([0u64; WORDS]);
                for bit in *first..=*last {
                    words[usize::from(bit) / 64] |= 1 << (bit % 64);
                }
                words[usize::from(at) / 64] |= 1 << (at % 64);
                *self = Self::Bits(words);
            }
            Self::Bits(words) => words[usize::from(at) / 64] |= 1 << (at % 64),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::Run(first, last) => *first == 0 && *last == u16::MAX,
            Self::Bits(words) => words.iter().all(|&word| word == u64::MAX),
        }
    }

    fn to_record(&self) -> record::Ids {
        match self {
            Self::Run(first, last) => record::Ids::Run(*first, *last),
            Self::Bits(words) => {
                record::Ids::Bits(words.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
        }
    }

    fn from_record(ids: &record::Ids) -> Self {
        match ids {
            record::Ids::Run(first, last) => Self::Run(*first, *last),
            record::Ids::Bits(bytes) => {
                let mut words = Box::new([0u64; WORDS]);
                for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                }
                Self::Bits(words)
            }
        }
    }
}

/// The place of an id within its block.
fn offset(id: EventId) -> u16 {
    u16::try_from(id % BLOCK).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const UID: StoreUid = StoreUid([1; 16]);

    fn at(event: EventId) -> Origin {
        Origin { store: UID, event }
    }

    #[test]
    fn an_unfiltered_flow_is_one_range() {
        let mut origins = Origins::default();
        for id in 1..=3 * BLOCK {
            origins.take(at(id), 0, &DedupeSettings::default());
        }
        let taken = &origins.by_store[&UID];
        assert_eq!(taken.blocks.len(), 2, "the first block lacks id 0, the last has one id");
        assert_eq!(taken.full.iter().collect::<Vec<_>>(), [(1, 2)]);
    }

    #[test]
    fn what_was_forgotten_is_told_apart_from_what_is_new() {
        let window = DedupeSettings { min_ids: BLOCK, min_age: 100, ..DedupeSettings::default() };
        let mut origins = Origins::default();
        origins.take(at(5), 0, &window);
        origins.take(at(3 * BLOCK), 50, &window);
        assert_eq!(origins.judge(at(6)), Verdict::New, "the block is not old enough");
        origins.take(at(3 * BLOCK + 1), 200, &window);
        assert_eq!(origins.judge(at(5)), Verdict::Undecidable);
        assert_eq!(origins.judge(at(2 * BLOCK)), Verdict::New);
        assert_eq!(origins.judge(at(3 * BLOCK)), Verdict::Duplicate);
        origins.take_back(at(5), 0, &window);
        assert_eq!(origins.judge(at(5)), Verdict::Undecidable, "it stays forgotten");
        origins.take(at(5), 200, &window);
        assert_eq!(origins.judge(at(5)), Verdict::Duplicate, "it was taken late");
        assert_eq!(origins.judge(at(6)), Verdict::Undecidable, "its neighbours are not known again");
        postroad_testkit::proves("DUP-6");
    }

    proptest! {
        #[test]
        fn remembers_exactly_what_was_taken(ids in prop::collection::vec(1u64..200_000, 1..300)) {
            let (mut origins, mut model) = (Origins::default(), BTreeSet::new());
            for id in ids {
                let expected = if model.contains(&id) { Verdict::Duplicate } else { Verdict::New };
                prop_assert_eq!(origins.judge(at(id)), expected);
                origins.take(at(id), 0, &DedupeSettings::default());
                model.insert(id);
            }
            let mut restored = Origins::default();
            for (uid, known) in origins.known() {
                restored.restore(uid, known);
            }
            for id in (1..200_000).step_by(331).chain(model.iter().copied()) {
                prop_assert_eq!(restored.judge(at(id)), origins.judge(at(id)));
            }
        }
    }
}
