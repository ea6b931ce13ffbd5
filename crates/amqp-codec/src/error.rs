//! Errors that peers tell each other, and the conditions that the specification names (part 2, sections 2.8.14 to
//! 2.8.18; part 4, section 4.5.8).

use crate::composite::composite;
use crate::descriptor;
use crate::map::Fields;
use crate::symbol::Symbol;

composite! {
    /// An error as it is sent (part 2, section 2.8.14).
    pub struct AmqpError, "error", descriptor::ERROR {
        /// What kind of error: one of the constants of [`condition`], or any other symbol.
        condition: Symbol => mandatory,
        /// What happened, for a person to read.
        description: Option<String> => optional,
        /// More about it, for a program to read.
        info: Option<Fields> => optional,
    }
}

impl AmqpError {
    /// An error with a condition and a description.
    #[must_use]
    pub fn new(condition: Symbol, description: impl Into<String>) -> Self {
        Self { condition, description: Some(description.into()), info: None }
    }
}

/// The error conditions that the specification names.
pub mod condition {
    use crate::symbol::Symbol;

    macro_rules! conditions {
        ($($(#[$meta:meta])* $name:ident = $text:literal;)*) => {
            $($(#[$meta])* pub const $name: Symbol = Symbol::from_static($text);)*
        };
    }

    conditions! {
        /// The peer failed inside (section 2.8.15).
        INTERNAL_ERROR = "amqp:internal-error";
        /// What was named is not there (section 2.8.15).
        NOT_FOUND = "amqp:not-found";
        /// The peer may not do that (section 2.8.15).
        UNAUTHORIZED_ACCESS = "amqp:unauthorized-access";
        /// Bytes that could not be decoded (section 2.8.15).
        DECODE_ERROR = "amqp:decode-error";
        /// A limit was passed (section 2.8.15).
        RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded";
        /// Not allowed as things are (section 2.8.15).
        NOT_ALLOWED = "amqp:not-allowed";
        /// A field has a value that makes no sense (section 2.8.15).
        INVALID_FIELD = "amqp:invalid-field";
        /// The peer does not do that (section 2.8.15).
        NOT_IMPLEMENTED = "amqp:not-implemented";
        /// Someone else holds what was asked for (section 2.8.15).
        RESOURCE_LOCKED = "amqp:resource-locked";
        /// A precondition failed (section 2.8.15).
        PRECONDITION_FAILED = "amqp:precondition-failed";
        /// What was used has been deleted (section 2.8.15).
        RESOURCE_DELETED = "amqp:resource-deleted";
        /// A frame that does not fit the state (section 2.8.15).
        ILLEGAL_STATE = "amqp:illegal-state";
        /// A frame with a payload that is not fit for a buffer of the agreed size (section 2.8.15).
        FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small";
        /// An operator closed the connection (section 2.8.16).
        CONNECTION_FORCED = "amqp:connection:forced";
        /// Bytes that are no frames (section 2.8.16).
        FRAMING_ERROR = "amqp:connection:framing-error";
        /// The peer should go elsewhere (section 2.8.16).
        CONNECTION_REDIRECT = "amqp:connection:redirect";
        /// A transfer outside the session window (section 2.8.17).
        WINDOW_VIOLATION = "amqp:session:window-violation";
        /// Frames for a link that ended in an error (section 2.8.17).
        ERRANT_LINK = "amqp:session:errant-link";
        /// An attach with a handle that is taken (section 2.8.17).
        HANDLE_IN_USE = "amqp:session:handle-in-use";
        /// A frame with a handle that no link has (section 2.8.17).
        UNATTACHED_HANDLE = "amqp:session:unattached-handle";
        /// An operator detached the link (section 2.8.18).
        DETACH_FORCED = "amqp:link:detach-forced";
        /// More transfers than credit (section 2.8.18).
        TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded";
        /// A message larger than the link allows (section 2.8.18).
        MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded";
        /// The peer should attach elsewhere (section 2.8.18).
        LINK_REDIRECT = "amqp:link:redirect";
        /// The link was attached from somewhere else (section 2.8.18).
        STOLEN = "amqp:link:stolen";
        /// No transaction has that id (part 4, section 4.5.8).
        TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id";
        /// The transaction was rolled back (part 4, section 4.5.8).
        TRANSACTION_ROLLBACK = "amqp:transaction:rollback";
        /// The transaction took too long (part 4, section 4.5.8).
        TRANSACTION_TIMEOUT = "amqp:transaction:timeout";
    }
}
