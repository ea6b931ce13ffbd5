//! Slots with generations: a key of something that is gone is recognised, though its slot is used again.

/// A key into [`Slots`].
pub(crate) trait SlotKey: Copy {
    /// Makes the key of a slot.
    fn new(index: u32, generation: u32) -> Self;
    /// The slot and how often it was used before.
    fn parts(self) -> (u32, u32);
}

macro_rules! slot_key {
    ($name:ty) => {
        impl SlotKey for $name {
            fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }
            fn parts(self) -> (u32, u32) {
                (self.index, self.generation)
            }
        }
    };
}
slot_key!(crate::command::TakerKey);
slot_key!(crate::command::ProducerKey);
slot_key!(crate::reader::ReaderKey);

/// Things by key.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Puts in what `make` makes from its own key.
    pub(crate) fn insert<K: SlotKey>(&mut self, make: impl FnOnce(K) -> T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            // Invariant: each slot costs memory, which ends long before 2^32 of them.
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 slots")
        });
        let slot = &mut self.slots[index as usize];
        let key = K::new(index, slot.0);
        slot.1 = Some(make(key));
        key
    }

    /// What the key stands for, unless it is gone.
    #[must_use]
    pub(crate) fn get<K: SlotKey>(&self, key: K) -> Option<&T> {
        let (index, generation) = key.parts();
        self.slots.get(index as usize).filter(|slot| slot.0 == generation)?.1.as_ref()
    }

    /// What the key stands for, to change it.
    pub(crate) fn get_mut<K: SlotKey>(&mut self, key: K) -> Option<&mut T> {
        let (index, generation) = key.parts();
        self.slots.get_mut(index as usize).filter(|slot| slot.0 == generation)?.1.as_mut()
    }

    /// Takes out what the key stands for; the key is stale from now on.
    pub(crate) fn remove<K: SlotKey>(&mut self, key: K) -> Option<T> {
        let (index, generation) = key.parts();
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.0 == generation)?;
        let taken = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(index);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::TakerKey;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slots = Slots::default();
        let first: TakerKey = slots.insert(|_| 'a');
        assert_eq!(slots.remove(first), Some('a'));
        let second: TakerKey = slots.insert(|_| 'b');
        assert_eq!(first.index, second.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get(second), Some(&'b'));
    }
}
