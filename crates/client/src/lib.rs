//! A small asynchronous AMQP 1.0 client: connect, send, receive, settle.
//!
//! **What it is.** The protocol engine of `postroad-amqp` with a socket: one task per connection reads, writes and keeps
//! time; everybody else works on the shared state under a short lock and is woken once per batch, never per message.
//! What is ready when the task runs goes out in one write.
//!
//! - `url`, `options`, `error`: where to, how, and what can go wrong;
//! - `client`: a connection with its one session; `link`: what both kinds of links share;
//! - `sender`: one message at a time with its outcome, or pipelined with outcomes as ranges;
//! - `receiver`: credit, drain, deliveries, settlement as ranges;
//! - `state`: what the engine's events do to that; `driver`: the task with the socket.
//!
//! **What it knows.** AMQP 1.0 and nothing of any one broker, so that every broker runs under the same load.
//!
//! **What it must never know.** How a broker works inside; commands, tables, files.
//!
//! **What is deliberately not here.** TLS, reconnecting, transactions, and resuming deliveries after a link is attached
//! again.

mod client;
mod driver;
mod error;
mod link;
mod options;
mod receiver;
mod sender;
mod state;
mod url;

pub use client::Client;
pub use error::{Error, PeerError};
pub use options::{ConnectOptions, Credit, NodeKind, ReceiverOptions, SenderOptions};
pub use receiver::{Delivery, Receiver};
pub use sender::{Outcomes, Sender};
pub use url::{Url, UrlError};

pub use postroad_amqp_codec as codec;
