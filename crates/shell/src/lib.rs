//! The shell: engine and journal with the bookkeeping between them, without a thread, a clock or a socket. The server
//! drives it with real ones, the simulator with its own, so that what is simulated is what runs.
//!
//! **What it knows.** Which frames are appended, on their way to the disk, durable; which effects wait for which of them,
//! and for whom they are; when a checkpoint is due; how a start reads the journal back, and how an orderly end is marked.
//!
//! **What it must never know.** What a command, a record or an effect means, beyond whom the effect is for. Who writes
//! batches and when they are synced: it hands them out, and is told. What its owner keeps for a connection.
//!
//! One turn: [`Shell::handle`] for what came in, [`Shell::run`] for a bounded piece of waiting work, [`Shell::flush`]; then
//! [`Shell::take_batch`] for the disk, [`Shell::send_ready`] and [`Shell::take_reply`] for those who wait. Between turns the
//! owner tells what happened to the journal: [`Shell::became_durable`], [`Shell::space`], [`Shell::no_space`],
//! [`Shell::checkpointed`].
//!
//! Where to look: `shell` (the turn), `log` (frames and checkpoints), `outbox` (effects that wait, by connection), `open`
//! (the start), `conn_ids` (numbers of connections), `driven` (the engine, and a simulator's second one).

mod conn_ids;
mod driven;
mod log;
mod open;
mod outbox;
mod read;
mod shell;
#[cfg(test)]
mod tests;

pub use conn_ids::ConnIds;
pub use open::{Frame, OpenError, Opened, Setup, Use, open};
pub use outbox::Reply;
pub use read::read_messages;
pub use shell::{Shell, ShellError, StopMark};
