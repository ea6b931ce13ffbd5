//! The AMQP 1.0 type system and frame codec: bytes to typed values, and back.
//!
//! **What it is.** A pure codec for OASIS AMQP 1.0: the types (part 1), the frames and performatives (part 2, sections
//! 2.3 to 2.8), messages (part 3), transactions (part 4, section 4.5) and SASL (part 5, section 5.3). The parts:
//!
//! - [`value`], [`symbol`], [`map`]: any AMQP value as an owned tree;
//! - [`reader`] and [`decode`]: bounded reading; [`writer`] and [`encode`]: the smallest encoding, in one pass;
//! - [`performative`], [`error`], [`state`], [`terminus`], [`transaction`], [`sasl`]: the types of the specification;
//! - [`message`]: message sections, owned, or found and read inside the encoded bytes;
//! - [`frame`]: protocol headers and frames; payloads are slices of the input, never copies.
//!
//! **What it knows.** Encodings, limits of the format, and which field of which composite has which type. Every
//! decoder treats its input as hostile: sizes are checked against what is there, counts never size an allocation,
//! nesting is bounded, and an error says at which byte it was found and what was expected there.
//!
//! **What it must never know.** Connections, sessions, links, credit or time; who sent the bytes and why. It has no
//! clock, does no I/O and keeps no state between calls.

pub mod composite;
pub mod decode;
pub mod decode_error;
pub mod descriptor;
pub mod encode;
pub mod error;
pub mod frame;
pub mod map;
pub mod message;
pub mod performative;
pub mod reader;
pub mod sasl;
pub mod state;
pub mod symbol;
pub mod terminus;
pub mod transaction;
pub mod value;
pub mod writer;

mod check;
mod format;
#[cfg(test)]
mod tests;

pub use decode::Decode;
pub use decode_error::{DecodeError, DecodeErrorKind};
pub use encode::Encode;
pub use error::AmqpError;
pub use map::{Fields, Map};
pub use reader::Reader;
pub use symbol::Symbol;
pub use value::Value;
pub use writer::Buffer;
