//! What one module alone cannot show: the language as a whole, against a naive evaluator and as a table.

mod hostile;
mod indexed;
mod language;
mod naive;
mod random;

use proptest::test_runner::{Config, RngSeed};

/// Deterministic runs: the same cases every time.
pub(crate) fn config(cases: u32) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(0x5e1e_c705), failure_persistence: None, ..Config::default() }
}
