//! What a named object with a selector owes of whole pages of its channel, as it was counted. Events are only ever added
//! behind a full page, so a count holds as long as the page has as many events as it had.

use std::collections::BTreeMap;

/// The counts of one object: 16 bytes and their place in the map for each page of 512 events that it has not come to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By the number of the page.
    pages: BTreeMap<u64, Counted>,
}

/// A page as it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// The events that were in it.
    live: u32,
    /// Those of them that were owed.
    owed: u32,
}

impl Tally {
    /// Nothing counted yet.
    pub(crate) const fn new() -> Self {
        Self { pages: BTreeMap::new() }
    }

    /// What is owed of a page that holds so many events now, if that is known.
    pub(crate) fn owed_of(&self, page: u64, live: u32) -> Option<u32> {
        self.pages.get(&page).filter(|counted| counted.live == live).map(|counted| counted.owed)
    }

    /// Keeps the count of a page.
    pub(crate) fn note(&mut self, page: u64, live: u32, owed: u32) {
        self.pages.insert(page, Counted { live, owed });
    }

    /// The object has come to this page.
    pub(crate) fn forget_below(&mut self, page: u64) {
        if self.pages.first_key_value().is_some_and(|(&first, _)| first < page) {
            self.pages = self.pages.split_off(&page);
        }
    }
}
