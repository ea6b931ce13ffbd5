//! The stores by their numbers. A number is never given twice, so a broker that makes and deletes queues all day leaves
//! numbers behind that nobody has: they take a bit more than nothing, and so do numbers that only damage could name.

use crate::store::Store;
use postroad_model::id::StoreKey;

/// Numbers in one page.
const PAGE: usize = 256;

type Page = Box<[Option<Box<Store>>]>;

/// All stores.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Pages by number; one that never had a store, or has none any more, takes no memory.
    pages: Vec<Option<Page>>,
    /// One above the highest number that a store ever had.
    end: u32,
}

impl Stores {
    /// The store with this number.
    #[must_use]
    pub(crate) fn get(&self, key: StoreKey) -> Option<&Store> {
        let (page, at) = place(key);
        self.pages.get(page)?.as_ref()?.get(at)?.as_deref()
    }

    /// The store with this number, to change it.
    #[must_use]
    pub(crate) fn get_mut(&mut self, key: StoreKey) -> Option<&mut Store> {
        let (page, at) = place(key);
        self.pages.get_mut(page)?.as_mut()?.get_mut(at)?.as_deref_mut()
    }

    /// Puts a store in the place of its number.
    pub(crate) fn insert(&mut self, store: Store) {
        let (page, at) = place(store.key);
        self.end = self.end.max(store.key.0.saturating_add(1));
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| (0..PAGE).map(|_| None).collect());
        page[at] = Some(Box::new(store));
    }

    /// Takes a store out.
    pub(crate) fn take(&mut self, key: StoreKey) -> Option<Box<Store>> {
        let (number, at) = place(key);
        let page = self.pages.get_mut(number)?.as_mut()?;
        let store = page.get_mut(at)?.take()?;
        if page.iter().all(Option::is_none) {
            self.pages[number] = None;
        }
        Some(store)
    }

    /// All stores, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.pages.iter().flatten().flatten().filter_map(Option::as_deref)
    }

    /// All stores, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Store> {
        self.pages.iter_mut().flatten().flatten().filter_map(Option::as_deref_mut)
    }

    /// The first store with this number or a higher one, to change it.
    pub(crate) fn first_from(&mut self, key: StoreKey) -> Option<&mut Store> {
        let (first, from) = place(key);
        let pages = self.pages.iter_mut().enumerate().skip(first);
        let places = pages.filter_map(move |(number, page)| {
            let from = if number == first { from } else { 0 };
            page.as_mut()?.get_mut(from..)
        });
        places.flatten().find_map(Option::as_deref_mut)
    }

    /// The number for a store that is no reuse of one.
    #[must_use]
    pub(crate) const fn next_key(&self) -> StoreKey {
        StoreKey(self.end)
    }
}

const fn place(key: StoreKey) -> (usize, usize) {
    (key.0 as usize / PAGE, key.0 as usize % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::id::StoreUid;
    use postroad_model::settings::QueueSettings;
    use postroad_record::{MadeBy, StoreDefinition};

    #[test]
    fn numbers_that_nobody_has_take_next_to_nothing() {
        let mut stores = Stores::default();
        let store = |key: u32| {
            let definition = StoreDefinition::Queue(QueueSettings::default());
            Store::new(StoreKey(key), StoreUid::default(), "q", definition, MadeBy::Operator)
        };
        for key in [3, 255, 256, 5_000_000] {
            stores.insert(store(key));
        }
        let keys = |stores: &Stores| stores.iter().map(|store| store.key.0).collect::<Vec<_>>();
        assert_eq!(keys(&stores), [3, 255, 256, 5_000_000]);
        assert_eq!(stores.next_key(), StoreKey(5_000_001));
        assert_eq!(stores.first_from(StoreKey(4)).map(|store| store.key.0), Some(255));
        assert_eq!(stores.first_from(StoreKey(257)).map(|store| store.key.0), Some(5_000_000));
        assert!(stores.first_from(StoreKey(5_000_001)).is_none());
        assert!(stores.take(StoreKey(256)).is_some() && stores.take(StoreKey(256)).is_none());
        assert!(stores.get(StoreKey(256)).is_none() && stores.get_mut(StoreKey(u32::MAX)).is_none());
        assert_eq!(stores.pages.iter().flatten().count(), 2);
        assert_eq!(keys(&stores), [3, 255, 5_000_000]);
    }
}
