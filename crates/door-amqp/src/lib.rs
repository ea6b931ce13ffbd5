//! The AMQP 1.0 front door: a client's connection on one side, the engine's commands and effects on the other.
//!
//! **What it is.** [`Door`], one for each client connection, without I/O: the socket's bytes go in and commands come
//! out; effects go in and bytes come out. The loop around it: [`Door::input`] with what was read, [`Door::effect`] with
//! what the engine wants done for this connection, then [`Door::output`] and write; [`Door::deadline`] at
//! [`Door::next_deadline`]; [`Door::poll_login`] and [`Door::login_result`] for credentials; [`Door::lost`] in the end.
//!
//! - `door`: the connection, and who gets which event and effect;
//! - `producer`: links on which the client sends; `staging`: messages in pieces; `consumer`: links on which it receives;
//! - `source`: what sources mean (filters, durability, expiry); `deliver`: headers and annotations;
//! - `outgoing`: how much of what the engine sent is written;
//! - `detach`: how links, sessions and the connection end; `links`: the tables; `refusal`: errors on the wire;
//! - `report`: what the operator is told.
//!
//! **What it knows.** How AMQP 1.0, and JMS over it, ask for what the engine has (named-objects 3.9, addressing 3.1),
//! and how the engine's answers are written (README U-7, U-13). Numbers of deliveries are the same here and in the
//! engine, so nothing is kept for a delivery.
//!
//! **What it must never know.** What a store holds, who may do what, what is durable; sockets, threads, the time. It
//! keeps no truth: when it is lost, the engine knows all that matters (DESIGN 7.10).
//!
//! **What is not here yet.** Transactions, shared subscriptions, delayed delivery, temporary topics, and the time-out of
//! a terminus (a subscription that asks for one stays, and is told so). Messages are put together in memory, as far as
//! [`Staging`] has room.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod consumer;
mod deliver;
mod detach;
mod door;
mod dynamic;
mod links;
mod outgoing;
mod producer;
mod refusal;
mod report;
mod source;
mod staging;

pub use config::{DeadLetterCompat, DeadLetterView, DoorConfig};
pub use door::{Door, Login, LoginRequest};
pub use refusal::amqp_error;
pub use staging::Staging;
