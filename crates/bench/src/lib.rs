//! Measures for the broker. Three limit programs: what no broker on the same machine can beat, so that a broker's
//! figures mean something.
//!
//! **What it is.**
//! - `forwarder`: accepts AMQP connections and only copies frames from a producer to a consumer;
//! - `writer`: only appends to a journal and syncs;
//! - `joined`: copies frames, but each batch of them is appended and synced before it is confirmed and passed on. No
//!   engine, no queue, no message is looked at.
//!
//! `forwarder` and `joined` share `relay` (connections and pairs), `frames` (where frames begin and end) and `answer`
//! (the few frames that they write themselves); `handshake` brings a connection to the point where only frames are
//! copied; `log` is the journal with group commit.
//!
//! Beside them [`HotPath`]: the broker's own paths for one message, without sockets and files, so that their instructions
//! can be counted.
//!
//! **What the limit programs know.** How the load program behaves: one link on each connection, messages that fit into
//! one frame, as many consumers as producers, the n-th of each paired. Credit goes from end to end, so that nothing piles
//! up here.
//!
//! **What they must never know.** Anything that a broker has to do for its users.

mod answer;
mod error;
mod frames;
mod handshake;
mod hot_paths;
mod log;
mod relay;
mod writer;

pub use error::LimitError;
pub use hot_paths::HotPath;
pub use relay::{Relay, Storing};
pub use writer::{WriterOptions, WriterReport, write};
