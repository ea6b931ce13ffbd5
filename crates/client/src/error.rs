//! What can go wrong, by whose fault.

use std::fmt;
use std::io;

use postroad_amqp::ApiMisuse;
use postroad_amqp_codec::{AmqpError, DecodeError};

use crate::url::UrlError;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the broker makes no sense.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// There was no connection to the broker.
    #[error("could not reach {address}: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The broker is there, but did not do what was asked of it in time.
    #[error("the broker did not answer within {seconds} seconds")]
    TimedOut {
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// The socket failed, or the broker closed it without a word.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// What the system says.
        reason: String,
    },
    /// The broker does not let us in (part 5, section 5.3.3.6).
    #[error("the broker refused the login: {reason}")]
    Login {
        /// What the broker says.
        reason: String,
    },
    /// One side broke the protocol.
    #[error("the protocol was broken: {0}")]
    Protocol(String),
    /// The broker closed the connection (part 2, section 2.7.9).
    #[error("the broker closed the connection: {0}")]
    ConnectionClosed(PeerError),
    /// The broker ended the session (part 2, section 2.7.8).
    #[error("the broker ended the session: {0}")]
    SessionEnded(PeerError),
    /// The broker refused the link (part 2, section 2.6.3).
    #[error("the broker refused {address}: {error}")]
    LinkRefused {
        /// The address, or the name of the subscription, that was asked for.
        address: String,
        /// Why.
        error: PeerError,
    },
    /// The broker detached the link (part 2, section 2.7.7).
    #[error("the broker detached the link: {0}")]
    LinkDetached(PeerError),
    /// We have closed the connection or the link ourselves.
    #[error("it is closed")]
    Closed,
    /// The message is larger than the broker takes on this link.
    #[error("the message is larger than the broker takes")]
    TooLarge,
    /// What came is no AMQP message.
    #[error("not an AMQP message: {0}")]
    Message(#[from] DecodeError),
    /// The engine does not allow the call as things are.
    #[error("not possible now: {0}")]
    Call(ApiMisuse),
}

impl Error {
    pub(crate) fn lost(error: &io::Error) -> Self {
        Self::Lost { reason: error.to_string() }
    }

    /// What the broker said, where it said anything.
    #[must_use]
    pub const fn peer(&self) -> Option<&PeerError> {
        match self {
            Self::ConnectionClosed(error) | Self::SessionEnded(error) | Self::LinkDetached(error) => {
                Some(error)
            }
            Self::LinkRefused { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether the broker could not be reached at all.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl From<ApiMisuse> for Error {
    fn from(error: ApiMisuse) -> Self {
        match error {
            ApiMisuse::MessageTooLarge => Self::TooLarge,
            other => Self::Call(other),
        }
    }
}

/// An error as the broker states it (part 2, section 2.8.14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerError {
    /// The condition, such as `amqp:not-found`; empty when the broker gave no error.
    pub condition: String,
    /// What happened, for a person to read; may be empty.
    pub description: String,
}

impl From<Option<AmqpError>> for PeerError {
    fn from(error: Option<AmqpError>) -> Self {
        error.map_or_else(Self::default, |error| Self {
            condition: error.condition.as_str().to_owned(),
            description: error.description.unwrap_or_default(),
        })
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.condition.as_str(), self.description.as_str()) {
            ("", "") => f.write_str("no reason given"),
            (condition, "") => f.write_str(condition),
            ("", description) => f.write_str(description),
            (condition, description) => write!(f, "{description} ({condition})"),
        }
    }
}
