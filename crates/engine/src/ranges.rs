//! A set of event ids kept as inclusive ranges: small when what it holds is mostly contiguous.

use postroad_model::id::EventId;
use postroad_record::IdRange;
use std::collections::BTreeMap;

/// A set of ids as disjoint, non-adjacent inclusive ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// First id of a range to its last.
    ranges: BTreeMap<EventId, EventId>,
}

impl RangeSet {
    /// A set without ids.
    pub(crate) const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// Adds every id from `first` to `last`.
    pub(crate) fn insert(&mut self, first: EventId, last: EventId) {
        let (mut first, mut last) = (first, last);
        if let Some((&start, &end)) = self.ranges.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            first = start;
            last = last.max(end);
        }
        while let Some((&start, &end)) = self.ranges.range(first..=last.saturating_add(1)).next() {
            last = last.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, last);
    }

    /// Whether the id is in the set.
    #[must_use]
    pub(crate) fn contains(&self, id: EventId) -> bool {
        self.range_of(id).is_some()
    }

    /// The last id of the range that holds `id`, if one does.
    #[must_use]
    pub(crate) fn range_of(&self, id: EventId) -> Option<EventId> {
        self.ranges.range(..=id).next_back().filter(|&(_, &end)| end >= id).map(|(_, &end)| end)
    }

    /// Whether any id from `first` to `last` is in the set.
    #[must_use]
    pub(crate) fn touches(&self, first: EventId, last: EventId) -> bool {
        self.ranges.range(..=last).next_back().is_some_and(|(_, &end)| end >= first)
    }

    /// Removes every id below `low`.
    pub(crate) fn trim_below(&mut self, low: EventId) {
        while let Some((&start, &end)) = self.ranges.first_key_value() {
            if start >= low {
                return;
            }
            self.ranges.remove(&start);
            if end >= low {
                self.ranges.insert(low, end);
                return;
            }
        }
    }

    /// Removes every id from `first` to `last`.
    pub(crate) fn remove(&mut self, first: EventId, last: EventId) {
        if let Some((&start, &end)) = self.ranges.range(..first).next_back()
            && end >= first
        {
            self.ranges.insert(start, first - 1);
            if end > last {
                self.ranges.insert(last + 1, end);
            }
        }
        while let Some((&start, &end)) = self.ranges.range(first..=last).next() {
            self.ranges.remove(&start);
            if end > last {
                self.ranges.insert(last + 1, end);
            }
        }
    }

    /// The ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IdRange> + '_ {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    /// Whether nothing is in it.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Appends `id` to a list of ranges, growing the last one where it follows directly.
pub(crate) fn push_id(ranges: &mut Vec<IdRange>, id: EventId) {
    match ranges.last_mut() {
        Some((_, last)) if *last + 1 == id => *last = id,
        _ => ranges.push((id, id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_plain_set(
            inserts in prop::collection::vec((0u64..200, 0u64..8), 0..60),
            removals in prop::collection::vec((0u64..200, 0u64..30), 0..6),
            low in 0u64..200,
        ) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (first, extra) in inserts {
                set.insert(first, first + extra);
                model.extend(first..=first + extra);
            }
            for (first, extra) in removals {
                set.remove(first, first + extra);
                model.retain(|id| !(first..=first + extra).contains(id));
            }
            set.trim_below(low);
            model.retain(|&id| id >= low);
            for id in 0..220 {
                prop_assert_eq!(set.contains(id), model.contains(&id));
                prop_assert_eq!(set.touches(id, id + 3), model.range(id..=id + 3).next().is_some());
            }
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 + 1 < w[1].0), "ranges touch: {:?}", ranges);
        }
    }
}
