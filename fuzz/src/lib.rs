//! What the fuzz targets share: frames with a structure, and users of the AMQP engine that never behave.
//!
//! **What it knows.** How to turn the fuzzer's bytes into things that go deep: frames that are mostly well formed, on
//! channels and handles that mostly exist. The targets themselves, in `fuzz_targets/`, say what must hold.
//!
//! **What it must never know.** How the crates work inside: targets see what any peer and any user sees.

#![forbid(unsafe_code)]

pub mod broker;
pub mod frames;
pub mod user;
