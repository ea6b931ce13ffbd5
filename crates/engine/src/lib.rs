//! The engine: what a broker decides, as a deterministic state machine (DESIGN 2 and 7).
//!
//! What it knows: stores and their events, readers and takers, named objects, joins, identities, credit. A command
//! goes in ([`Engine::handle`]); records, encoded as journal steps, and effects come out ([`Engine::take_output`]);
//! work between stores is done a bounded piece at a time ([`Engine::run`]).
//!
//! What it must never know: clocks, files, sockets, threads, protocols. Times come in with the command, randomness
//! with the start, and nothing that iterates a hash map can be seen from outside.
//!
//! The rule that everything else stands on: *decide, then apply*. Handlers look and decide; what they decide is a
//! list of records; only `apply` changes durable state, and replay uses the same `apply`.
//!
//! Where to look: `engine` (the loop), `apply`, `publish`, `queue`, `channel` and `reader`, `object`, `join` and
//! `crossing`, `consumer`, `dead_letter`, `room` (capacity and expiry), `schedule` (delayed delivery), `manage` (operators), `job` (purges and deletions in
//! pieces); and for what is not in memory: `bodies`, `log`, `leaf`, `loading`.

pub mod admin;
mod annotated;
mod apply;
mod apply_events;
mod bodies;
mod body_page;
mod browse;
mod channel;
mod command;
mod consumer;
mod copies;
mod crossing;
mod dead_letter;
mod dispatch;
mod effect;
mod engine;
mod event_page;
mod expiry;
mod job;
mod join;
mod keys;
mod leaf;
mod lifecycle;
mod lifetimes;
mod loading;
mod log;
mod manage;
mod message_ids;
mod object;
mod origins;
mod outgoing;
mod publish;
mod queue;
mod ranges;
mod reader;
mod ready;
mod resolve;
mod rings;
mod room;
mod schedule;
mod slots;
mod snapshot;
mod store;
mod stores;
mod stragglers;
mod survey;
mod taker;
mod tally;
mod temporary;
#[cfg(test)]
mod tests;
mod view;

pub use bodies::SegmentUse;
pub use command::{
    Client, CloseMode, Command, ConnId, ConsumerSource, ConsumerSpec, Expiry, Lifetime, LinkNo, ProducerKey,
    ProducerTarget, Settlement, TakerKey,
};
pub use effect::{Annotations, Delivery, Effect, Output, Publication, Resolved, Step, StepBytes, Wanted};
pub use engine::{Engine, Now};
pub use loading::Loaded;
pub use postroad_record::{DeadLetter, HeaderValue};
