//! The AMQP 1.0 engine: connections, sessions and links, in both roles, without I/O.
//!
//! **What it is.** Parts 2 (transport) and 5.3 (SASL) of OASIS AMQP 1.0 as a state machine: bytes in, [`Event`]s out,
//! calls in, bytes out, next deadline. [`Connection`] is all there is to use; the rest are its types.
//!
//! - `connection`, `sasl`, `clock`: headers, SASL, open and close, which frame goes where, idle time-outs;
//! - `session`: begin and end, transfer windows, what is held back until output is polled;
//! - `link`: attach and detach; `link::sender`, `link::receiver`: credit, drain, deliveries;
//! - `settlement`, `delivery`: dispositions as ranges, and the books of unsettled deliveries;
//! - `serial`: RFC 1982 numbers; `ids`: slots and handles; `output`: frames packed, payloads shared;
//! - `config`, `event`, `error`: what goes in, what comes out, and by whose fault.
//!
//! **What it knows.** The protocol's state, and how each fault is answered. Inside, deliveries are counted in 64 bits
//! and nothing wraps; the wire's 32 bits are met at the edge. It works per batch: many frames in one call, outcomes as
//! ranges, flow and dispositions joined until output is polled. Memory follows what we have allowed the peer (sessions,
//! links, credit), never a number that it claims.
//!
//! **What it must never know.** What a message is (payloads are bytes, in pieces as they come), what an address or a
//! queue is, who a user is; sockets, TLS, threads or the time of day. It buffers no message: a large one is the user's
//! to stage or to drop.
//!
//! **What is deliberately not here.** Resuming deliveries after a link is attached again (part 2, section 2.6.13):
//! resumed deliveries are passed over, as for a terminus that remembers none. Outcomes for a link that is detached on
//! our side are passed over too. Input for a link that we have detached for a fault is ignored until the peer detaches,
//! since it was on its way; the session is not ended for it (section 2.6.5 would have that).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod config;
mod connection;
mod delivery;
mod error;
mod event;
mod ids;
mod link;
mod output;
mod sasl;
mod serial;
mod session;
mod settlement;

#[cfg(test)]
mod tests;

pub use config::{AcceptSasl, Config, InitiateSasl};
pub use connection::{Connection, OpenReply};
pub use error::{ApiMisuse, Error, PeerIncompatible, PeerMisbehaved, Scope};
pub use event::{Event, Password};
pub use ids::{LinkId, SessionId};
pub use link::AttachReply;
pub use link::sender::Delivery;
pub use output::Output;
pub use serial::Serial;
pub use session::SessionOptions;

pub use postroad_amqp_codec as codec;
