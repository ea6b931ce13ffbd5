//! The simulator: one broker with everything that decides (engine, journal and recovery, front door, AMQP engine) and
//! nothing that is left to chance but by the seed: sockets, files, threads and clocks are replaced (DESIGN 7.12).
//!
//! **What it knows.** How the server's core drives the parts, what the specification promises, and a naive model of the
//! durable state. **What it must never know.** How the engine decides; the checkers share with it the records' types only.
//!
//! - `world` puts it together and turns; `life` starts, stops, kills and copies, `lines` carries bytes and listens; `broker`
//!   is one life of the broker around the shell that the server has too, `line` a connection, `client` a client;
//! - `messages` are compared to the byte; `ledger` is the naive model of the records, `shadow` what clients know;
//! - `catalogue`, `workload`, `faults` are what happens, `healing` the end without faults; `check` has a file for each
//!   promise; `run` is a run from a seed.
//!
//! Beside the engine runs a twin whose hash tables get other seeds again and again, and whose output is taken in other
//! pieces: both must give the same.
//!
//! A run has two phases: chaos, in which everything may happen and safety is checked at every step; and healing, in which
//! nothing disturbs and everything that can be delivered must be.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod broker;
pub mod catalogue;
pub mod check;
pub mod client;
pub mod engine_time;
pub mod faults;
pub mod healing;
pub mod ledger;
pub mod life;
pub mod line;
pub mod lines;
pub mod messages;
pub mod random;
pub mod run;
pub mod shadow;
pub mod workload;
pub mod world;

#[cfg(test)]
mod tests;
