//! The performatives: what frames say (part 2, section 2.7), and the small types in their fields (section 2.8).

mod connection;
mod delivery;
mod link;
mod session;
mod tag;

pub use connection::{Close, Open};
pub use delivery::{Disposition, Transfer};
pub use link::{Attach, Detach, Flow, UnsettledMap};
pub use session::{Begin, End};
pub use tag::{DeliveryTag, TagTooLong};

use crate::composite::{finish_composite, unexpected_descriptor};
use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::Encode;
use crate::reader::Reader;
use crate::writer::Buffer;

/// The performative of a frame. The rare and large ones are boxed, so that transfers stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Performative {
    /// Negotiate a connection.
    Open(Box<Open>),
    /// Begin a session.
    Begin(Box<Begin>),
    /// Attach a link.
    Attach(Box<Attach>),
    /// Update flow state.
    Flow(Flow),
    /// Carry a message, or a part of one.
    Transfer(Transfer),
    /// Tell the state of deliveries.
    Disposition(Disposition),
    /// Detach a link.
    Detach(Detach),
    /// End a session.
    End(End),
    /// Close a connection.
    Close(Close),
}

impl Decode for Performative {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let (descriptor, fields) = reader.composite()?;
        match descriptor.code() {
            Some(descriptor::TRANSFER) => finish_composite(fields).map(Self::Transfer),
            Some(descriptor::DISPOSITION) => finish_composite(fields).map(Self::Disposition),
            Some(descriptor::FLOW) => finish_composite(fields).map(Self::Flow),
            Some(descriptor::OPEN) => finish_composite(fields).map(Box::new).map(Self::Open),
            Some(descriptor::BEGIN) => finish_composite(fields).map(Box::new).map(Self::Begin),
            Some(descriptor::ATTACH) => finish_composite(fields).map(Box::new).map(Self::Attach),
            Some(descriptor::DETACH) => finish_composite(fields).map(Self::Detach),
            Some(descriptor::END) => finish_composite(fields).map(Self::End),
            Some(descriptor::CLOSE) => finish_composite(fields).map(Self::Close),
            _ => Err(unexpected_descriptor(start, "a performative", descriptor)),
        }
    }
}

impl Encode for Performative {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Open(open) => open.encode(out),
            Self::Begin(begin) => begin.encode(out),
            Self::Attach(attach) => attach.encode(out),
            Self::Flow(flow) => flow.encode(out),
            Self::Transfer(transfer) => transfer.encode(out),
            Self::Disposition(disposition) => disposition.encode(out),
            Self::Detach(detach) => detach.encode(out),
            Self::End(end) => end.encode(out),
            Self::Close(close) => close.encode(out),
        }
    }
}

/// Conversions of each performative into the enum.
macro_rules! performative_from {
    ($($name:ident),*; boxed $($boxed:ident),*) => {
        $(impl From<$name> for Performative {
            fn from(body: $name) -> Self {
                Self::$name(body)
            }
        })*
        $(impl From<$boxed> for Performative {
            fn from(body: $boxed) -> Self {
                Self::$boxed(Box::new(body))
            }
        })*
    };
}

performative_from! { Flow, Transfer, Disposition, Detach, End, Close; boxed Open, Begin, Attach }

/// Which end of a link is meant (section 2.8.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The end that sends messages.
    #[default]
    Sender,
    /// The end that receives messages.
    Receiver,
}

impl Role {
    /// The other end.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

impl Decode for Role {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if reader.bool()? { Self::Receiver } else { Self::Sender })
    }
}

impl Encode for Role {
    fn encode<B: Buffer>(&self, out: &mut B) {
        matches!(self, Self::Receiver).encode(out);
    }
}

/// How the sender settles deliveries (section 2.8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SenderSettleMode {
    /// It sends every delivery unsettled.
    Unsettled,
    /// It sends every delivery settled.
    Settled,
    /// It does either, as it likes.
    #[default]
    Mixed,
}

impl Decode for SenderSettleMode {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Unsettled),
            1 => Ok(Self::Settled),
            2 => Ok(Self::Mixed),
            other => Err(reader.invalid_choice("a sender settle mode of 0, 1 or 2", other.into())),
        }
    }
}

impl Encode for SenderSettleMode {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let mode: u8 = match self {
            Self::Unsettled => 0,
            Self::Settled => 1,
            Self::Mixed => 2,
        };
        mode.encode(out);
    }
}

/// How the receiver settles deliveries (section 2.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReceiverSettleMode {
    /// It settles of its own accord.
    #[default]
    First,
    /// It settles after the sender has settled.
    Second,
}

impl Decode for ReceiverSettleMode {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::First),
            1 => Ok(Self::Second),
            other => Err(reader.invalid_choice("a receiver settle mode of 0 or 1", other.into())),
        }
    }
}

impl Encode for ReceiverSettleMode {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let mode: u8 = match self {
            Self::First => 0,
            Self::Second => 1,
        };
        mode.encode(out);
    }
}
