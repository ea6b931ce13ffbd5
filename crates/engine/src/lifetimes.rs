//! When the events of a store leave by time. Of each page of events the earliest time is known, or one before it: an event
//! costs nothing here, however long the backlog, and the page is looked through when its time has come.

use crate::log::EventLog;
use postroad_model::id::{EventId, WallMs};
use std::collections::{BTreeMap, BTreeSet};

/// The pages of a store with events that leave by time.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    /// No event of the page leaves before this.
    by_page: BTreeMap<u64, WallMs>,
    by_time: BTreeSet<(WallMs, u64)>,
}

impl Lifetimes {
    /// An event leaves then.
    pub(crate) fn note(&mut self, leaves: WallMs, event: EventId) {
        let page = EventLog::page_of(event);
        if self.by_page.get(&page).is_none_or(|&earliest| leaves < earliest) {
            self.set(page, Some(leaves));
        }
    }

    /// No event of a page leaves before `earliest`; `None`: none leaves by time.
    pub(crate) fn set(&mut self, page: u64, earliest: Option<WallMs>) {
        let before = match earliest {
            Some(earliest) => self.by_page.insert(page, earliest),
            None => self.by_page.remove(&page),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, page));
        }
        self.by_time.extend(earliest.map(|earliest| (earliest, page)));
    }

    /// Whether no event leaves by time.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_page.is_empty()
    }

    /// The page whose time comes first, and that time: nothing leaves before.
    #[must_use]
    pub(crate) fn first(&self) -> Option<(WallMs, u64)> {
        self.by_time.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_earliest_time() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.first(), None);
        for (leaves, event) in [(50, 1), (40, 2), (60, 3), (45, 5_000)] {
            lifetimes.note(leaves, event);
        }
        let later = EventLog::page_of(5_000);
        assert_eq!(lifetimes.first(), Some((40, 0)));
        lifetimes.set(0, Some(60));
        assert_eq!(lifetimes.first(), Some((45, later)));
        lifetimes.set(later, None);
        lifetimes.set(later, None);
        assert_eq!(lifetimes.first(), Some((60, 0)));
        lifetimes.note(70, 4);
        lifetimes.set(0, None);
        assert_eq!((lifetimes.first(), lifetimes.by_page.len()), (None, 0));
    }
}
