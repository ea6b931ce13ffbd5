//! The words that every part of Postroad shares: identities, names, settings, refusals, messages.
//!
//! What it knows: the shapes of things and the rules for writing their names.
//! What it must never know: how things are stored, routed or carried; any protocol beyond the encoding of a
//! message; clocks, files, sockets. Everything depends on this crate, it depends on the AMQP codec alone,
//! because a message *is* its AMQP 1.0 bare message.

pub mod address;
pub mod annotations;
pub mod id;
pub mod message;
pub mod name;
pub mod refusal;
pub mod settings;
