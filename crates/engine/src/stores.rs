//! The stores by their numbers. A number is never given twice, so a broker that makes and deletes queues all day leaves
//! numbers behind that nobody has: each takes a pointer, and nothing once there are millions, which only damage could name
//! out of turn.

use crate::store::Store;
use postroad_model::id::StoreKey;
use std::collections::BTreeMap;

/// Numbers from here on are looked up.
const LOOKED_UP_FROM: usize = 1 << 22;

/// All stores.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// Those with a number below [`LOOKED_UP_FROM`], by number.
    listed: Vec<Option<Box<Store>>>,
    /// All others.
    others: BTreeMap<StoreKey, Box<Store>>,
    /// One above the highest number that a store ever had.
    end: u32,
}

impl Stores {
    /// The store with this number.
    #[must_use]
    pub(crate) fn get(&self, key: StoreKey) -> Option<&Store> {
        match self.listed.get(key.0 as usize) {
            Some(place) => place.as_deref(),
            None => self.others.get(&key).map(Box::as_ref),
        }
    }

    /// The store with this number, to change it.
    #[must_use]
    pub(crate) fn get_mut(&mut self, key: StoreKey) -> Option<&mut Store> {
        match self.listed.get_mut(key.0 as usize) {
            Some(place) => place.as_deref_mut(),
            None => self.others.get_mut(&key).map(Box::as_mut),
        }
    }

    /// Puts a store in the place of its number.
    pub(crate) fn insert(&mut self, store: Store) {
        let (key, at) = (store.key, store.key.0 as usize);
        self.end = self.end.max(key.0.saturating_add(1));
        if at >= LOOKED_UP_FROM {
            self.others.insert(key, Box::new(store));
            return;
        }
        if self.listed.len() <= at {
            self.listed.resize_with(at + 1, || None);
        }
        self.listed[at] = Some(Box::new(store));
    }

    /// Takes a store out.
    pub(crate) fn take(&mut self, key: StoreKey) -> Option<Box<Store>> {
        match self.listed.get_mut(key.0 as usize) {
            Some(place) => place.take(),
            None => self.others.remove(&key),
        }
    }

    /// All stores, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.listed.iter().flatten().chain(self.others.values()).map(Box::as_ref)
    }

    /// All stores, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Store> {
        self.listed.iter_mut().flatten().chain(self.others.values_mut()).map(Box::as_mut)
    }

    /// The first store with this number or a higher one, to change it.
    pub(crate) fn first_from(&mut self, key: StoreKey) -> Option<&mut Store> {
        let listed = self.listed.get_mut(key.0 as usize..).unwrap_or_default();
        let others = self.others.range_mut(key..).map(|(_, store)| store);
        listed.iter_mut().flatten().chain(others).map(Box::as_mut).next()
    }

    /// The number for a store that is no reuse of one.
    #[must_use]
    pub(crate) const fn next_key(&self) -> StoreKey {
        StoreKey(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::id::StoreUid;
    use postroad_model::settings::QueueSettings;
    use postroad_record::{MadeBy, StoreDefinition};

    #[test]
    fn stores_are_found_by_numbers_however_high() {
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
        assert!(stores.take(StoreKey(5_000_000)).is_some());
        assert_eq!(keys(&stores), [3, 255]);
        assert_eq!(stores.next_key(), StoreKey(5_000_001));
    }
}
