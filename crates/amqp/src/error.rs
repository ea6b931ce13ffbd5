//! What can go wrong, by whose fault, and what the peer is told.

use postroad_amqp_codec::error::condition::{
    DECODE_ERROR, FRAMING_ERROR, HANDLE_IN_USE, ILLEGAL_STATE, INVALID_FIELD, MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, STOLEN, TRANSFER_LIMIT_EXCEEDED, UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
};
use postroad_amqp_codec::sasl::SaslCode;
use postroad_amqp_codec::{AmqpError, DecodeError, DecodeErrorKind, Symbol};

use crate::ids::LinkId;

/// Why a connection failed, by whose fault. Each kind has one answer on the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer sent bytes that mean nothing. Answer: `close` with `amqp:connection:framing-error` or
    /// `amqp:decode-error`.
    #[error("the peer sent a malformed frame: {0}")]
    InvalidMessage(#[from] DecodeError),
    /// The peer sent what it must not send now. Answer: `close` with [`PeerMisbehaved::condition`].
    #[error("the peer broke the protocol: {0}")]
    PeerMisbehaved(#[from] PeerMisbehaved),
    /// The peer cannot talk to us. Answer: the protocol header that we would take, or a SASL outcome, and nothing more.
    #[error("no common protocol with the peer: {0}")]
    PeerIncompatible(#[from] PeerIncompatible),
    /// Our own side made a call that the state of the connection does not allow. Nothing was sent.
    #[error("wrong use of the connection: {0}")]
    ApiMisuse(#[from] ApiMisuse),
}

impl Error {
    /// What the `close` frame says; `None` where no `close` frame belongs.
    #[must_use]
    pub fn to_amqp(&self) -> Option<AmqpError> {
        match self {
            Self::InvalidMessage(error) => Some(describe(decode_condition(error), self)),
            Self::PeerMisbehaved(error) => Some(error.to_amqp()),
            Self::PeerIncompatible(_) | Self::ApiMisuse(_) => None,
        }
    }
}

/// A frame that cannot be told apart from the next is a framing error, all else a decode error (part 2, sections
/// 2.8.15 and 2.8.16).
const fn decode_condition(error: &DecodeError) -> Symbol {
    match error.kind {
        DecodeErrorKind::FrameTooLarge { .. }
        | DecodeErrorKind::MalformedFrame { .. }
        | DecodeErrorKind::UnknownFrameType { .. } => FRAMING_ERROR,
        _ => DECODE_ERROR,
    }
}

fn describe(condition: Symbol, error: &impl ToString) -> AmqpError {
    AmqpError::new(condition, error.to_string())
}

/// A rule of the protocol that the peer broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// The first frame is not `open` (part 2, section 2.4.1).
    #[error("expected an open frame first")]
    NotOpened,
    /// A second `open` (part 2, section 2.4.1).
    #[error("the connection is open already")]
    OpenedTwice,
    /// An AMQP frame during SASL or a SASL frame behind it (part 5, section 5.3.1).
    #[error("a frame of the wrong type for this layer")]
    WrongLayer,
    /// A SASL frame out of turn (part 5, section 5.3.2).
    #[error("a SASL frame out of turn")]
    SaslOutOfTurn,
    /// PLAIN credentials that are not three parts (RFC 4616, section 2).
    #[error("PLAIN credentials are not an identity, a user and a password")]
    SaslPlainMalformed,
    /// A channel number above our channel-max (part 2, section 2.7.1).
    #[error("channel {channel} is above the channel-max of {max}")]
    ChannelTooHigh {
        /// The channel of the frame.
        channel: u16,
        /// Our limit.
        max: u16,
    },
    /// A `begin` on a channel that has a session (part 2, section 2.5.1).
    #[error("channel {channel} has a session already")]
    ChannelInUse {
        /// The channel of the frame.
        channel: u16,
    },
    /// A frame on a channel without a session (part 2, section 2.5.1).
    #[error("channel {channel} has no session")]
    ChannelNotBegun {
        /// The channel of the frame.
        channel: u16,
    },
    /// A `begin` that answers one that we did not send (part 2, section 2.7.2).
    #[error("no session waits for an answer on channel {channel}")]
    BeginNotAsked {
        /// The remote-channel of the frame.
        channel: u16,
    },
    /// A `begin` that its own channel-max forbids us to answer (part 2, section 2.7.1).
    #[error("a session that the sender's own channel-max leaves no channel for")]
    NoChannelLeft,
    /// A handle above our handle-max (part 2, section 2.7.2).
    #[error("handle {handle} is above the handle-max of {max}")]
    HandleTooHigh {
        /// The handle of the frame.
        handle: u32,
        /// Our limit.
        max: u32,
    },
    /// An `attach` with a handle that has a link (part 2, section 2.7.3).
    #[error("handle {handle} has a link already")]
    HandleInUse {
        /// The handle of the frame.
        handle: u32,
    },
    /// An `attach` with a name longer than we keep.
    #[error("a link name of {len} bytes is longer than {max}")]
    LinkNameTooLong {
        /// The length of the name, in bytes.
        len: usize,
        /// Our limit, in bytes.
        max: usize,
    },
    /// Nothing was heard for longer than our idle time-out (part 2, section 2.4.5).
    #[error("nothing was received for {ms} milliseconds")]
    Silent {
        /// The time-out, in milliseconds.
        ms: u32,
    },
    /// The connection was not opened in time.
    #[error("the connection was not opened within {ms} milliseconds")]
    NotOpenedInTime {
        /// The limit, in milliseconds.
        ms: u32,
    },
    /// An idle time-out that we cannot serve (part 2, section 2.4.5).
    #[error("an idle time-out of {ms} milliseconds is too short")]
    IdleTimeoutTooShort {
        /// What the peer asks for, in milliseconds.
        ms: u32,
    },
    /// More transfers than the incoming window allows (part 2, section 2.5.6).
    #[error("more transfers than the incoming window allows")]
    WindowViolated,
    /// A frame on a handle without a link (part 2, section 2.8.17).
    #[error("handle {handle} has no link")]
    HandleNotAttached {
        /// The handle of the frame.
        handle: u32,
    },
    /// An `attach` that its own handle-max forbids us to answer (part 2, section 2.7.2).
    #[error("a link that the sender's own handle-max leaves no handle for")]
    NoHandleLeft,
    /// The first transfer of a delivery without an id (part 2, section 2.7.5).
    #[error("a delivery without a delivery-id")]
    DeliveryIdMissing,
    /// The first transfer of a delivery without a tag (part 2, section 2.7.5).
    #[error("a delivery without a delivery-tag")]
    DeliveryTagMissing,
    /// A delivery whose id does not come after the one before it (part 2, section 2.6.12).
    #[error("delivery-id {id} does not come after the delivery before it")]
    DeliveryIdOutOfOrder {
        /// The id of the frame.
        id: u32,
    },
    /// A transfer that continues a delivery with another id (part 2, section 2.7.5).
    #[error("delivery-id {id} on a transfer that continues another delivery")]
    DeliveryIdChanged {
        /// The id of the frame.
        id: u32,
    },
    /// A transfer that continues a delivery with another tag (part 2, section 2.7.5).
    #[error("another delivery-tag on a transfer that continues a delivery")]
    DeliveryTagChanged,
    /// A transfer that continues a delivery with another message format (part 2, section 2.7.5).
    #[error("message-format {format} on a transfer that continues a delivery of another format")]
    MessageFormatChanged {
        /// The format of the frame.
        format: u32,
    },
    /// A disposition whose last delivery comes before its first (part 2, section 2.7.6).
    #[error("a disposition that ends before it starts")]
    DispositionReversed,
    /// A transfer on a link on which the peer receives (part 2, section 2.6).
    #[error("a transfer from the receiving end of a link")]
    TransferFromReceiver,
    /// A delivery without credit (part 2, section 2.6.7).
    #[error("a delivery beyond the link credit")]
    CreditExceeded,
    /// A message larger than our max-message-size (part 2, section 2.7.3).
    #[error("a message larger than {limit} bytes")]
    MessageTooLarge {
        /// Our limit, in bytes.
        limit: u64,
    },
    /// Another link of the same name and direction was attached (part 2, section 2.6.1).
    #[error("another link of this name was attached")]
    Stolen,
}

/// What has to end because of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection: `close`.
    Connection,
    /// The session: `end`.
    Session,
    /// The link: a closing `detach`.
    Link,
}

impl PeerMisbehaved {
    /// What ends.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        match self {
            Self::WindowViolated
            | Self::HandleNotAttached { .. }
            | Self::NoHandleLeft
            | Self::LinkNameTooLong { .. }
            | Self::DeliveryIdMissing
            | Self::DeliveryTagMissing
            | Self::DeliveryIdOutOfOrder { .. }
            | Self::DeliveryIdChanged { .. }
            | Self::DeliveryTagChanged
            | Self::MessageFormatChanged { .. }
            | Self::DispositionReversed => Scope::Session,
            Self::TransferFromReceiver
            | Self::CreditExceeded
            | Self::MessageTooLarge { .. }
            | Self::Stolen => Scope::Link,
            _ => Scope::Connection,
        }
    }

    /// The condition that the peer is told (part 2, sections 2.8.15 to 2.8.18).
    #[must_use]
    pub const fn condition(&self) -> Symbol {
        match self {
            Self::NotOpened | Self::OpenedTwice | Self::SaslOutOfTurn => ILLEGAL_STATE,
            Self::WrongLayer | Self::ChannelTooHigh { .. } | Self::HandleTooHigh { .. } => FRAMING_ERROR,
            Self::ChannelInUse { .. }
            | Self::ChannelNotBegun { .. }
            | Self::BeginNotAsked { .. }
            | Self::NoChannelLeft
            | Self::NoHandleLeft
            | Self::IdleTimeoutTooShort { .. }
            | Self::TransferFromReceiver => NOT_ALLOWED,
            Self::HandleInUse { .. } => HANDLE_IN_USE,
            Self::Silent { .. } | Self::NotOpenedInTime { .. } => RESOURCE_LIMIT_EXCEEDED,
            Self::WindowViolated => WINDOW_VIOLATION,
            Self::HandleNotAttached { .. } => UNATTACHED_HANDLE,
            Self::SaslPlainMalformed
            | Self::LinkNameTooLong { .. }
            | Self::DeliveryIdMissing
            | Self::DeliveryTagMissing
            | Self::DeliveryIdOutOfOrder { .. }
            | Self::DeliveryIdChanged { .. }
            | Self::DeliveryTagChanged
            | Self::MessageFormatChanged { .. }
            | Self::DispositionReversed => INVALID_FIELD,
            Self::CreditExceeded => TRANSFER_LIMIT_EXCEEDED,
            Self::MessageTooLarge { .. } => MESSAGE_SIZE_EXCEEDED,
            Self::Stolen => STOLEN,
        }
    }

    /// Condition and description, as the peer is told.
    #[must_use]
    pub fn to_amqp(&self) -> AmqpError {
        describe(self.condition(), self)
    }
}

/// Why there is no common protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerIncompatible {
    /// A protocol header that we do not serve (part 2, section 2.2); also that of a peer that speaks no AMQP.
    #[error("the peer speaks {}", header_text(.0))]
    Header([u8; 8]),
    /// A SASL mechanism that is not offered (part 5, section 5.3.3.2).
    #[error("the mechanism {0} is not offered")]
    Mechanism(String),
    /// The accepting side offers no mechanism that we could use.
    #[error("the peer offers no mechanism that we can use, only {0}")]
    NoMechanism(String),
    /// The identity was refused: by our user, or by the peer (part 5, section 5.3.3.6).
    #[error("authentication failed: {0:?}")]
    Authentication(SaslCode),
}

fn header_text(header: &[u8; 8]) -> String {
    match header {
        [b'A', b'M', b'Q', b'P', id, major, minor, revision] => {
            format!("AMQP {major}.{minor}.{revision} with protocol id {id}")
        }
        other => format!("another protocol, which starts with {}", other.escape_ascii()),
    }
}

/// A call that the state does not allow. Nothing was sent and nothing changed.
///
/// The `Gone` kinds need no bug: the peer may have ended a session, or the connection, in events that are still to be
/// polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiMisuse {
    /// Nothing more can be sent on this connection.
    #[error("the connection is closed")]
    ConnectionGone,
    /// The session has ended.
    #[error("the session has ended")]
    SessionGone,
    /// The link is detached, or is being detached.
    #[error("the link is detached")]
    LinkGone,
    /// The connection is not yet open on our side, or is open already.
    #[error("not in this state of opening")]
    NotOpening,
    /// No SASL question waits for an answer.
    #[error("no SASL question waits for an answer")]
    NoSaslQuestion,
    /// The link was answered already, or was not attached by the peer.
    #[error("no attach of the peer waits for an answer on this link")]
    NoAttachToAnswer,
    /// The link is not attached at both ends yet.
    #[error("the link is not attached yet")]
    NotAttached,
    /// The call is for the other end of a link.
    #[error("the call is for the other end of a link")]
    WrongRole,
    /// The peer gave no credit for this delivery.
    #[error("the peer gave no credit for this delivery")]
    NoCredit,
    /// The delivery before this one still waits for its last piece.
    #[error("the delivery before it is not complete")]
    DeliveryOpen,
    /// No delivery waits for more pieces.
    #[error("no delivery waits for more pieces")]
    NoDeliveryOpen,
    /// The message is larger than the peer's max-message-size.
    #[error("the message is larger than the peer takes")]
    MessageTooLarge,
    /// The frame would be larger than the peer's max-frame-size.
    #[error("the frame is larger than the peer takes")]
    FrameTooLarge,
    /// The peer's channel-max is reached.
    #[error("the peer allows no more sessions")]
    NoChannelLeft,
    /// The peer's handle-max is reached.
    #[error("the peer allows no more links in this session")]
    NoHandleLeft,
}

/// A fault of the peer that was found while handling one of its frames, with what it is about.
#[derive(Debug)]
pub(crate) enum Fault {
    Connection(Error),
    Session(PeerMisbehaved),
    Link(LinkId, PeerMisbehaved),
}

impl From<PeerMisbehaved> for Fault {
    /// For faults of the session or the connection; a fault of a link has to name it.
    fn from(error: PeerMisbehaved) -> Self {
        match error.scope() {
            Scope::Session => Self::Session(error),
            Scope::Connection | Scope::Link => Self::Connection(error.into()),
        }
    }
}
