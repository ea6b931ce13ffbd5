//! Tests of the whole codec: what is written reads back, other implementations agree, and nothing that a peer sends
//! can make it panic.

mod frames;
mod generate;
mod generate_types;
mod hostile;
mod messages;
mod oracles;
mod round_trips;
mod vectors;

use proptest::test_runner::{Config, RngSeed};

/// The settings of all property tests: the same cases in every run.
pub(crate) fn config(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(0x00a1_0b2c), failure_persistence: None, ..Config::default() }
}
