//! Tests of whole connections.

use proptest::test_runner::{Config as Cases, RngSeed};

/// Property tests run the same cases every time, and leave no files behind.
pub(crate) fn config(cases: u32) -> Cases {
    Cases { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Cases::default() }
}
