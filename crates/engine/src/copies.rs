//! Where the copies of other stores' events lie in a channel, to raise their hop budget (HOP-6) and to find what a purge
//! removed there (FWD-3). Those of the latest events are known one by one: what comes twice mostly comes soon. Of each older
//! page of events it is known which range of each origin store's events it holds, so a long backlog costs next to nothing.

use crate::log::EventLog;
use crate::store::taken_origin;
use postroad_model::id::{EventId, Origin, StoreUid};
use std::collections::BTreeMap;

/// Copies that are known one by one.
const RECENT: usize = 65_536;

/// The copies in one channel.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    recent: BTreeMap<Origin, EventId>,
    /// The origins that each page of events has brought to `recent`, also those that went since.
    recent_pages: BTreeMap<u64, Vec<Origin>>,
    /// How many origins there are in `recent_pages`.
    listed: usize,
    /// The older pages, by an origin store and the first of its events that the page has a copy of.
    ranges: BTreeMap<(StoreUid, EventId), Vec<Range>>,
    /// The keys of each page in `ranges`.
    keys: BTreeMap<u64, Vec<(StoreUid, EventId)>>,
    /// Ids in the widest range of each origin store that there ever was.
    widest: BTreeMap<StoreUid, u64>,
}

/// A page that has copies of an origin store's events up to `last`.
#[derive(Debug)]
struct Range {
    page: u64,
    last: EventId,
}

impl Copies {
    /// An event was stored that is a copy.
    pub(crate) fn note(&mut self, origin: Origin, event: EventId) {
        self.recent.insert(origin, event);
        self.recent_pages.entry(EventLog::page_of(event)).or_default().push(origin);
        self.listed += 1;
        while self.listed > RECENT && self.recent_pages.len() > 1 {
            self.let_oldest_page_go();
        }
    }

    /// An event that was a copy is gone.
    pub(crate) fn forget(&mut self, origin: Origin, event: EventId) {
        if self.recent.get(&origin) == Some(&event) {
            self.recent.remove(&origin);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.recent_pages.is_empty() && self.keys.is_empty()
    }

    /// A page has no events any more.
    pub(crate) fn forget_page(&mut self, page: u64) {
        if let Some(origins) = self.recent_pages.remove(&page) {
            self.listed -= origins.len();
        }
        for key in self.keys.remove(&page).unwrap_or_default() {
            if let Some(ranges) = self.ranges.get_mut(&key) {
                ranges.retain(|range| range.page != page);
                if ranges.is_empty() {
                    self.ranges.remove(&key);
                }
            }
        }
    }

    /// The event of `log` that is a copy of this one.
    #[must_use]
    pub(crate) fn find(&self, origin: Origin, log: &EventLog) -> Option<EventId> {
        if let Some(&event) = self.recent.get(&origin) {
            return Some(event);
        }
        let widest = *self.widest.get(&origin.store)?;
        let lowest = origin.event.saturating_sub(widest);
        let ranges = self.ranges.range((origin.store, lowest)..=(origin.store, origin.event)).rev();
        let pages = ranges.flat_map(|(_, ranges)| ranges).filter(|range| origin.event <= range.last);
        pages.flat_map(|range| log.in_page(range.page)).find_map(|entry| {
            let is_it = entry.event.extra.as_deref().and_then(taken_origin) == Some(origin);
            is_it.then_some(entry.event.id)
        })
    }

    /// Keeps of the oldest page that is known one by one only the ranges.
    fn let_oldest_page_go(&mut self) {
        let Some((page, origins)) = self.recent_pages.pop_first() else { return };
        self.listed -= origins.len();
        let mut ranges: BTreeMap<StoreUid, (EventId, EventId)> = BTreeMap::new();
        for origin in origins {
            if self.recent.get(&origin).is_none_or(|&event| EventLog::page_of(event) != page) {
                continue;
            }
            self.recent.remove(&origin);
            let (first, last) = ranges.entry(origin.store).or_insert((origin.event, origin.event));
            (*first, *last) = ((*first).min(origin.event), (*last).max(origin.event));
        }
        for (store, (first, last)) in ranges {
            let widest = self.widest.entry(store).or_default();
            *widest = (*widest).max(last - first);
            self.ranges.entry((store, first)).or_default().push(Range { page, last });
            self.keys.entry(page).or_default().push((store, first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::entry;
    use postroad_record::Extra;
    use proptest::prelude::*;

    fn copy(id: EventId, origin: Origin) -> crate::log::Entry {
        let mut entry = entry(id, 4);
        entry.event.extra = Some(Box::new(Extra { origin: Some(origin), ..Extra::default() }));
        entry
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

        /// As a map of all copies would find them, whatever the order in which they came and went.
        #[test]
        fn copies_are_found_however_old(
            stride in 1u64..4,
            swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..200),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..2_000),
        ) {
            const COUNT: usize = RECENT + 40_000;
            let uid = |n: usize| StoreUid([u8::try_from(n % 3).unwrap(); 16]);
            let mut origins: Vec<Origin> =
                (0..COUNT).map(|n| Origin { store: uid(n), event: n as u64 * stride }).collect();
            for (one, two) in swaps {
                origins.swap(one.index(COUNT), two.index(COUNT));
            }
            let (mut copies, mut log, mut model) = (Copies::default(), EventLog::default(), BTreeMap::new());
            for (&origin, id) in origins.iter().zip(1..) {
                log.push(copy(id, origin));
                copies.note(origin, id);
                model.insert(origin, id);
            }
            prop_assert!(copies.recent.len() <= RECENT + 512);
            let pages_of_old_events = gone.iter().map(|at| at.index(COUNT) as u64 + 1).chain(1..5_000);
            for id in pages_of_old_events {
                if log.remove(id).is_some() {
                    let origin = origins[usize::try_from(id).unwrap() - 1];
                    copies.forget(origin, id);
                    model.remove(&origin);
                    if log.is_empty_page(EventLog::page_of(id)) {
                        copies.forget_page(EventLog::page_of(id));
                    }
                }
            }
            for origin in origins.iter().step_by(379).chain(&origins[..600]) {
                prop_assert_eq!(copies.find(*origin, &log), model.get(origin).copied());
            }
            prop_assert_eq!(copies.find(Origin { store: uid(0), event: u64::MAX }, &log), None);
            prop_assert!(copies.keys.len() <= 40_000 / 512 + 2);
        }
    }
}
