//! Tests of whole connections: two engines that talk over byte pipes ([`pair`]), or one engine and a peer that says
//! whatever the test wants ([`script`]).

mod faults;
mod flow;
mod lifecycle;
mod pair;
mod random;
mod sasl;
mod script;
mod settlement;
mod time;

use proptest::test_runner::{Config as Cases, RngSeed};

/// Property tests run the same cases every time, and leave no files behind.
pub(crate) fn config(cases: u32) -> Cases {
    Cases { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Cases::default() }
}
