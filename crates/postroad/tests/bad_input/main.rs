//! What clients and operators do wrong, against the built broker over real sockets: each fault gets its error, one line
//! in the log, and touches nothing else.

// A panic is how a test fails; the lint's exception does not reach helper functions.
#![allow(clippy::unwrap_used)]

mod broker;
mod frames;
mod links;
mod many;
mod messages;
mod peer;
mod silence;
mod start;
