//! Which deliveries are unsettled: dense numbers, in order, in a queue; never a map per delivery.

use std::collections::VecDeque;

/// Unsettled deliveries in the order of their keys.
///
/// A session keeps one per direction: delivery id to link. A link keeps one: delivery number to delivery id. Keys only
/// grow, mostly by one, so that an entry is found by subtraction, or else by binary search. Entries that are settled
/// out of order stay as holes until half of the queue is holes.
#[derive(Debug)]
pub(crate) struct Ledger<V> {
    entries: VecDeque<Entry<V>>,
    holes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    key: u64,
    value: V,
    live: bool,
    /// What the user was told of it; see [`Ledger::mark_values`].
    marks: u8,
}

/// Queues shorter than this are not worth compacting.
const COMPACT_FROM: usize = 64;

impl<V: Copy> Ledger<V> {
    pub(crate) const fn new() -> Self {
        Self { entries: VecDeque::new(), holes: 0 }
    }

    /// How many deliveries are unsettled.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.holes
    }

    /// Adds a delivery. Its key must be greater than every key before it.
    pub(crate) fn push(&mut self, key: u64, value: V) {
        debug_assert!(self.entries.back().is_none_or(|last| last.key < key));
        self.entries.push_back(Entry { key, value, live: true, marks: 0 });
    }

    /// Where the first entry is whose key is `key` or more.
    fn position(&self, key: u64) -> usize {
        let guess = self.entries.front().and_then(|first| usize::try_from(key.checked_sub(first.key)?).ok());
        match guess.filter(|&at| self.entries.get(at).is_some_and(|entry| entry.key == key)) {
            Some(at) => at,
            None => self.entries.partition_point(|entry| entry.key < key),
        }
    }

    /// Calls `found` for every unsettled delivery with a key in `first..=last`, in order.
    pub(crate) fn visit(&self, first: u64, last: u64, mut found: impl FnMut(u64, V)) {
        let range = self.entries.range(self.position(first)..);
        for entry in range.take_while(|entry| entry.key <= last).filter(|entry| entry.live) {
            found(entry.key, entry.value);
        }
    }

    /// As [`Ledger::visit`], and settles them.
    pub(crate) fn settle(&mut self, first: u64, last: u64, mut found: impl FnMut(u64, V)) {
        let at = self.position(first);
        for entry in self.entries.range_mut(at..).take_while(|entry| entry.key <= last) {
            if std::mem::take(&mut entry.live) {
                self.holes += 1;
                found(entry.key, entry.value);
            }
        }
        self.tidy();
    }

    /// Settles everything.
    pub(crate) fn clear(&mut self, mut found: impl FnMut(u64, V)) {
        self.settle(0, u64::MAX, &mut found);
        self.entries = VecDeque::new();
    }

    /// Drops the holes at the front; all holes when they are the larger part.
    fn tidy(&mut self) {
        let settled = self.entries.iter().take_while(|entry| !entry.live).count();
        self.entries.drain(..settled);
        self.holes -= settled;
        if self.entries.len() >= COMPACT_FROM && self.holes > self.entries.len() / 2 {
            self.entries.retain(|entry| entry.live);
            self.holes = 0;
        }
    }
}

impl Ledger<u64> {
    /// As [`Ledger::visit`], but the range is one of values, and what bears the mark is passed over; the rest bears it
    /// from now on. A mark is one bit. Values must grow as keys do.
    pub(crate) fn mark_values(&mut self, first: u64, last: u64, mark: u8, mut found: impl FnMut(u64, u64)) {
        let at = self.entries.partition_point(|entry| entry.value < first);
        let range = self.entries.range_mut(at..).take_while(|entry| entry.value <= last);
        for entry in range.filter(|entry| entry.live && entry.marks & mark == 0) {
            entry.marks |= mark;
            found(entry.key, entry.value);
        }
    }

    /// As [`Ledger::settle`], but the range is one of values.
    pub(crate) fn settle_values(&mut self, first: u64, last: u64, mut found: impl FnMut(u64, u64)) {
        let at = self.entries.partition_point(|entry| entry.value < first);
        for entry in self.entries.range_mut(at..).take_while(|entry| entry.value <= last) {
            if std::mem::take(&mut entry.live) {
                self.holes += 1;
                found(entry.key, entry.value);
            }
        }
        self.tidy();
    }
}

/// Collects numbers into ranges without holes.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    open: Option<(u64, u64)>,
}

impl Ranges {
    /// Takes the next number; returns a range that ended before it.
    pub(crate) fn add(&mut self, number: u64) -> Option<(u64, u64)> {
        match &mut self.open {
            Some((_, last)) if last.checked_add(1) == Some(number) => {
                *last = number;
                None
            }
            open => open.replace((number, number)),
        }
    }

    /// The last range.
    pub(crate) fn finish(self) -> Option<(u64, u64)> {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push { gap: u64 },
        Settle { first: u64, len: u64 },
        SettleValues { first: u64, len: u64 },
        Visit { first: u64, len: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u64..3).prop_map(|gap| Step::Push { gap }),
            1 => (0u64..300, 0u64..20).prop_map(|(first, len)| Step::Settle { first, len }),
            1 => (0u64..600, 0u64..20).prop_map(|(first, len)| Step::SettleValues { first, len }),
            1 => (0u64..300, 0u64..20).prop_map(|(first, len)| Step::Visit { first, len }),
        ]
    }

    fn check(steps: Vec<Step>) {
        let mut ledger = Ledger::new();
        let mut model = BTreeMap::new();
        let (mut key, mut value) = (0, 0);
        for step in steps {
            let mut got = Vec::new();
            let found = |key, value| got.push((key, value));
            let expected: Vec<(u64, u64)> = match step {
                Step::Push { gap } => {
                    key += gap;
                    value += 2 * gap;
                    ledger.push(key, value);
                    model.insert(key, value);
                    Vec::new()
                }
                Step::Visit { first, len } => {
                    ledger.visit(first, first + len, found);
                    model.range(first..=first + len).map(|(k, v)| (*k, *v)).collect()
                }
                Step::Settle { first, len } => {
                    ledger.settle(first, first + len, found);
                    model.extract_if(first..=first + len, |_, _| true).collect()
                }
                Step::SettleValues { first, len } => {
                    let range = first..=first + len;
                    let mut visited = Vec::new();
                    ledger.mark_values(first, first + len, 1, |key, value| visited.push((key, value)));
                    ledger.mark_values(first, first + len, 1, |key, _| panic!("{key} bears the mark"));
                    ledger.settle_values(first, first + len, found);
                    let expected: Vec<_> = model.extract_if(.., |_, value| range.contains(value)).collect();
                    assert_eq!(visited, expected);
                    expected
                }
            };
            assert_eq!(got, expected);
            assert_eq!(ledger.len(), model.len());
            assert!(ledger.entries.len() <= COMPACT_FROM + 2 * model.len());
        }
    }

    proptest! {
        #![proptest_config(crate::tests::config(256))]

        #[test]
        fn behaves_like_a_sorted_map(steps in prop::collection::vec(step(), 0..400)) {
            check(steps);
        }
    }

    #[test]
    fn ranges_have_no_holes() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(3), None);
        assert_eq!(ranges.add(4), None);
        assert_eq!(ranges.add(6), Some((3, 4)));
        assert_eq!(ranges.finish(), Some((6, 6)));
    }
}
