//! Why a limit program stops.

use std::io;

/// Why a limit program stops, or gives up a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A socket, a file or a thread failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The journal failed or is full.
    #[error("the journal failed: {0}")]
    Journal(String),
    /// A peer broke the protocol, or does what these programs are not made for.
    #[error("a connection was given up: {0}")]
    Peer(String),
}

impl LimitError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

impl From<postroad_journal::Error> for LimitError {
    fn from(error: postroad_journal::Error) -> Self {
        Self::Journal(error.to_string())
    }
}
