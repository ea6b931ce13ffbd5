//! Chance from a seed: every client draws its own sequence, so what it decides does not depend on the others.

/// A sequence of numbers that look random (SplitMix64: the state counts, the output mixes).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The step of the counter: odd, with its bits spread.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// The sequence of one actor under one seed.
    pub(crate) const fn new(seed: u64, actor: u64) -> Self {
        Self(mix(seed ^ mix(actor.wrapping_add(STEP))))
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low) + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) const fn happens(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_for_each_actor() {
        let draw = |seed, actor| {
            let mut random = Random::new(seed, actor);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn numbers_keep_to_their_range() {
        let mut random = Random::new(7, 0);
        let drawn: Vec<u64> = (0..500).map(|_| random.between(3, 5)).collect();
        assert!((3..=5).all(|number| drawn.contains(&number)));
        assert!(drawn.iter().all(|number| (3..=5).contains(number)));
        assert!(!random.happens(0) && random.happens(1000));
    }
}
