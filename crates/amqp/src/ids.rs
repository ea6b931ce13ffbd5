//! Names of sessions and links that a user can keep, and the tables behind them.

use std::collections::BTreeMap;

/// A session of one connection.
///
/// [`SessionId::index`] is small and dense, so that a user can keep sessions in a plain vector. An index is used again
/// after both peers have ended the session; the id as a whole is not, so an id kept too long names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) Id);

impl SessionId {
    /// The slot of this session: less than the number of sessions that were ever open at once.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.position()
    }
}

/// A link of one connection, in any of its sessions. [`LinkId::index`] as for [`SessionId`], used again after both
/// peers have detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) Id);

impl LinkId {
    /// The slot of this link: less than the number of links that were ever attached at once on this connection.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.position()
    }
}

/// A slot and how often it had been used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) index: u32,
    generation: u32,
}

impl Id {
    fn position(self) -> usize {
        // A 32-bit index always fits: the crate is for targets of 32 bits and more.
        usize::try_from(self.index).unwrap_or(usize::MAX)
    }
}

/// A table of slots that are used again; the free slots are a stack.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    item: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// The number of items.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The id that the next [`Slots::insert`] gives.
    fn next_id(&self) -> Id {
        match self.free.last() {
            Some(&index) => Id { index, generation: self.generation(index) },
            None => Id { index: u32::try_from(self.slots.len()).unwrap_or(u32::MAX), generation: 0 },
        }
    }

    fn generation(&self, index: u32) -> u32 {
        self.slots.get(index as usize).map_or(0, |slot| slot.generation)
    }

    /// Adds the item that `make` returns when told its id.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Id) -> T) -> Id {
        let id = self.next_id();
        let item = Some(make(id));
        match self.slots.get_mut(id.position()) {
            Some(slot) => {
                slot.item = item;
                self.free.pop();
            }
            None => self.slots.push(Slot { generation: id.generation, item }),
        }
        id
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.position())?;
        if slot.generation == id.generation { slot.item.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.position())?;
        if slot.generation == id.generation { slot.item.as_mut() } else { None }
    }

    /// Takes the item out; its slot will be used again under another id.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.position())?;
        if slot.generation != id.generation {
            return None;
        }
        let item = slot.item.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(item)
    }
}

/// Numbers that the peer chose, to our ids: input handles and incoming channels.
///
/// Small numbers, which every sane peer uses, are looked up in a vector; large ones in a tree. So memory follows the
/// number of entries, not the numbers that a peer picks.
#[derive(Debug)]
pub(crate) struct NumberMap<T> {
    dense: Vec<Option<T>>,
    sparse: BTreeMap<u32, T>,
}

/// Numbers below this are in the vector.
const DENSE: u32 = 1024;

impl<T: Copy> NumberMap<T> {
    pub(crate) const fn new() -> Self {
        Self { dense: Vec::new(), sparse: BTreeMap::new() }
    }

    pub(crate) fn get(&self, number: u32) -> Option<T> {
        if number < DENSE {
            self.dense.get(number as usize).copied().flatten()
        } else {
            self.sparse.get(&number).copied()
        }
    }

    pub(crate) fn insert(&mut self, number: u32, item: T) {
        if number >= DENSE {
            self.sparse.insert(number, item);
            return;
        }
        let index = number as usize;
        if self.dense.len() <= index {
            self.dense.resize(index + 1, None);
        }
        if let Some(slot) = self.dense.get_mut(index) {
            *slot = Some(item);
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        if number < DENSE {
            self.dense.get_mut(number as usize).and_then(Option::take)
        } else {
            self.sparse.remove(&number)
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = T> {
        self.dense.iter().copied().flatten().chain(self.sparse.values().copied())
    }
}

/// The numbers that we choose: output handles and outgoing channels, the lowest unused one first (part 2, sections
/// 2.5.1 and 2.7.3 recommend that).
#[derive(Debug, Default)]
pub(crate) struct NumberPool {
    next: u32,
    free: std::collections::BTreeSet<u32>,
}

impl NumberPool {
    /// The lowest unused number that is `max` at the most.
    pub(crate) fn take(&mut self, max: u32) -> Option<u32> {
        match self.free.first().copied() {
            Some(number) if number <= max => self.free.pop_first(),
            Some(_) => None,
            None if self.next <= max && self.next < u32::MAX => {
                self.next += 1;
                Some(self.next - 1)
            }
            None => None,
        }
    }

    pub(crate) fn give_back(&mut self, number: u32) {
        if number < self.next {
            self.free.insert(number);
        }
        // What is free at the upper end is forgotten, so that the pool shrinks again.
        while self.next > 0 && self.free.last() == Some(&(self.next - 1)) {
            self.free.pop_last();
            self.next -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_under_another_id() {
        let mut slots = Slots::new();
        let first = slots.insert(|_| 'a');
        slots.insert(|_| 'b');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert(|_| 'c');
        assert_eq!(second.index, first.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get(second), Some(&'c'));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn large_numbers_take_no_vector() {
        let mut map = NumberMap::new();
        map.insert(u32::MAX, 'x');
        map.insert(3, 'y');
        assert_eq!(map.dense.len(), 4);
        assert_eq!((map.get(u32::MAX), map.get(3), map.get(4)), (Some('x'), Some('y'), None));
        assert_eq!(map.remove(u32::MAX), Some('x'));
        assert_eq!(map.values().collect::<Vec<_>>(), ['y']);
    }

    #[test]
    fn pool_gives_the_lowest() {
        let mut pool = NumberPool::default();
        assert_eq!(
            (pool.take(2), pool.take(2), pool.take(2), pool.take(2)),
            (Some(0), Some(1), Some(2), None)
        );
        pool.give_back(1);
        pool.give_back(0);
        assert_eq!((pool.take(2), pool.take(2)), (Some(0), Some(1)));
        for number in [2, 0, 1] {
            pool.give_back(number);
        }
        assert_eq!(pool.next, 0);
        assert!(pool.free.is_empty());
    }
}
