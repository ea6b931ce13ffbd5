//! Messages: the sections that are composites, as owned values, and reading an encoded message where it lies (part 3,
//! section 3.2).

mod annotate;
mod check;
mod lookup;
mod owned;
mod properties_ref;
mod sections;

pub use annotate::{merge_message_annotations, write_application_properties, write_message_annotations};
pub use check::{check_annotations, check_application_properties};
pub use lookup::{MapEntries, MapEntry, ValueRef, find_in_map, map_entries};
pub use owned::{Body, Message};
pub use properties_ref::PropertiesRef;
pub use sections::{BodyKind, Sections, Span};

use bytes::Bytes;

use crate::composite::composite;
use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::{Encode, put_uuid};
use crate::format;
use crate::reader::Reader;
use crate::symbol::Symbol;
use crate::value::{Timestamp, Value};
use crate::writer::Buffer;

composite! {
    /// How a message is to be delivered (part 3, section 3.2.1). Encoding it writes the whole header section.
    pub struct Header, "header", descriptor::HEADER {
        /// The message survives a failure of its holder.
        durable: bool => or(false),
        /// How urgent the message is: higher is more urgent.
        priority: u8 => or(Header::DEFAULT_PRIORITY),
        /// Milliseconds that the message is to live.
        ttl: Option<u32> => optional,
        /// Nobody else has acquired the message before this receiver.
        first_acquirer: bool => or(false),
        /// How many deliveries of the message have failed.
        delivery_count: u32 => or(0),
    }
}

impl Header {
    /// The priority of a message that states none (part 3, section 3.2.1).
    pub const DEFAULT_PRIORITY: u8 = 4;
}

composite! {
    /// What the sender says of a message: immutable (part 3, section 3.2.4). Encoding it writes the whole properties
    /// section.
    pub struct Properties, "properties", descriptor::PROPERTIES {
        /// The sender's id of the message.
        message_id: Option<MessageId> => optional,
        /// The user who made the message.
        user_id: Option<Bytes> => optional,
        /// The node that the message is for.
        to: Option<String> => optional,
        /// What the message is about.
        subject: Option<String> => optional,
        /// The node to answer to.
        reply_to: Option<String> => optional,
        /// The id of the message that this one answers.
        correlation_id: Option<MessageId> => optional,
        /// The MIME type of the body's data sections.
        content_type: Option<Symbol> => optional,
        /// How those data sections are encoded besides.
        content_encoding: Option<Symbol> => optional,
        /// When the message is void.
        absolute_expiry_time: Option<Timestamp> => optional,
        /// When the message was made.
        creation_time: Option<Timestamp> => optional,
        /// The group that the message belongs to.
        group_id: Option<String> => optional,
        /// The place of the message in its group: a serial number that wraps.
        group_sequence: Option<u32> => optional,
        /// The group that an answer is to belong to.
        reply_to_group_id: Option<String> => optional,
    }
}

/// The id of a message (part 3, sections 3.2.11 to 3.2.14).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageId {
    /// A number.
    Ulong(u64),
    /// A UUID.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(Bytes),
    /// A text.
    String(String),
}

impl Decode for MessageId {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = reader.peek_code()?;
        match code {
            format::ULONG | format::ULONG_SMALL | format::ULONG_0 => reader.u64().map(Self::Ulong),
            format::UUID => reader.uuid().map(Self::Uuid),
            format::BINARY_8 | format::BINARY_32 => Bytes::decode(reader).map(Self::Binary),
            format::STRING_8 | format::STRING_32 => String::decode(reader).map(Self::String),
            _ => {
                reader.code()?;
                Err(reader.unexpected("a message id: ulong, uuid, binary or string", code))
            }
        }
    }
}

impl Encode for MessageId {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Ulong(id) => id.encode(out),
            Self::Uuid(id) => put_uuid(out, *id),
            Self::Binary(id) => id.encode(out),
            Self::String(id) => id.encode(out),
        }
    }
}

impl From<MessageId> for Value {
    fn from(id: MessageId) -> Self {
        match id {
            MessageId::Ulong(id) => Self::Ulong(id),
            MessageId::Uuid(id) => Self::Uuid(id),
            MessageId::Binary(id) => Self::Binary(id),
            MessageId::String(id) => Self::String(id),
        }
    }
}
