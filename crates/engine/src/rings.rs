//! The consumers of a queue in the order of their turns (SH-3): the highest priority first, in one priority a ring in
//! attach order. Those without window cost nothing.

use crate::command::TakerKey;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Where a consumer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    priority: Reverse<i32>,
    /// Rises with each attach.
    number: u64,
}

/// All consumers of a queue.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    rings: BTreeMap<Reverse<i32>, Ring>,
    attached: u64,
}

#[derive(Debug, Default)]
struct Ring {
    all: BTreeMap<u64, TakerKey>,
    /// Those that have window.
    open: BTreeMap<u64, TakerKey>,
    /// Where the next turn begins.
    next: u64,
}

impl Rings {
    /// Adds a consumer behind those of its priority.
    pub(crate) fn attach(&mut self, taker: TakerKey, priority: i32) -> Turn {
        self.attached += 1;
        let turn = Turn { priority: Reverse(priority), number: self.attached };
        self.rings.entry(turn.priority).or_default().all.insert(turn.number, taker);
        turn
    }

    /// Removes a consumer.
    pub(crate) fn detach(&mut self, turn: Turn) {
        let Some(ring) = self.rings.get_mut(&turn.priority) else { return };
        ring.all.remove(&turn.number);
        ring.open.remove(&turn.number);
        if ring.all.is_empty() {
            self.rings.remove(&turn.priority);
        }
    }

    /// A consumer has window, or has none.
    pub(crate) fn set_open(&mut self, turn: Turn, open: bool) {
        let Some(ring) = self.rings.get_mut(&turn.priority) else { return };
        if !open {
            ring.open.remove(&turn.number);
        } else if let Some(&taker) = ring.all.get(&turn.number) {
            ring.open.insert(turn.number, taker);
        }
    }

    /// A consumer had its turn.
    pub(crate) fn served(&mut self, turn: Turn) {
        if let Some(ring) = self.rings.get_mut(&turn.priority) {
            ring.next = turn.number + 1;
        }
    }

    /// Whether there is no consumer.
    pub(crate) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// All consumers, highest priority first.
    pub(crate) fn all(&self) -> impl Iterator<Item = TakerKey> + '_ {
        self.rings.values().flat_map(|ring| ring.all.values().copied())
    }

    /// The one consumer of an exclusive queue that is served, if it has window (QU-3).
    pub(crate) fn active(&self) -> Option<(Turn, TakerKey)> {
        let (&priority, ring) = self.rings.first_key_value()?;
        let (&number, &taker) = ring.all.first_key_value()?;
        ring.open.contains_key(&number).then_some((Turn { priority, number }, taker))
    }

    /// For each priority, highest first, the consumers with window in the order of their turns.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = impl Iterator<Item = (Turn, TakerKey)> + '_> + '_ {
        self.rings.iter().map(|(&priority, ring)| {
            // Mostly somebody is found before the ring begins anew, so that is looked up only then.
            let anew = std::iter::once(ring).flat_map(|ring| ring.open.range(..ring.next));
            let turns = ring.open.range(ring.next..).chain(anew);
            turns.map(move |(&number, &taker)| (Turn { priority, number }, taker))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn taker(index: u32) -> TakerKey {
        TakerKey { index, generation: 0 }
    }

    fn order(rings: &Rings) -> Vec<Vec<u32>> {
        rings.in_turn().map(|ring| ring.map(|(_, taker)| taker.index).collect()).collect()
    }

    #[test]
    fn turns_go_round_among_those_with_window() {
        let mut rings = Rings::default();
        let turns: Vec<Turn> = (0..4).map(|index| rings.attach(taker(index), 0)).collect();
        let first = rings.attach(taker(9), 5);
        assert!(order(&rings).iter().all(Vec::is_empty));
        for &turn in &turns {
            rings.set_open(turn, true);
        }
        rings.set_open(turns[1], false);
        rings.set_open(first, true);
        assert_eq!(order(&rings), [vec![9], vec![0, 2, 3]]);
        rings.served(turns[2]);
        assert_eq!(order(&rings), [vec![9], vec![3, 0, 2]]);
        rings.detach(turns[3]);
        rings.detach(first);
        assert_eq!(order(&rings), [vec![0, 2]]);
        assert_eq!(rings.active(), Some((turns[0], taker(0))));
        rings.set_open(turns[0], false);
        assert_eq!(rings.active(), None, "only the first attached is served");
    }
}
