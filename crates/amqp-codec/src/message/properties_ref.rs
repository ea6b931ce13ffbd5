//! The properties section read where it lies (part 3, section 3.2.4).

use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::format;
use crate::message::lookup::ValueRef;
use crate::reader::Reader;

/// The number of fields in the properties section.
const FIELDS: usize = 13;

/// The properties section of an encoded message. Types were checked when it was made; a text that is not valid reads
/// as absent.
#[derive(Clone, Copy, Debug)]
pub struct PropertiesRef<'a> {
    section: &'a [u8],
    /// Where each field starts in `section`; zero for an absent one.
    starts: [u32; FIELDS],
}

impl<'a> PropertiesRef<'a> {
    /// Finds the fields of a properties section (its descriptor included) or of its bare list.
    ///
    /// # Errors
    /// When it is neither, or a field has a type that is not its own.
    pub fn parse(section: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(section);
        if section.first() == Some(&format::DESCRIBED) {
            let start = reader.offset();
            let found = reader.descriptor()?;
            if found.code() != Some(descriptor::PROPERTIES) {
                return Err(crate::composite::unexpected_descriptor(start, "properties", found));
            }
        }
        let (mut reader, count) = reader.list()?;
        let mut starts = [0; FIELDS];
        let kinds = FIELD_KINDS.iter().zip(&mut starts);
        for ((kind, start), _) in kinds.zip(0..count) {
            if !reader.take_null()? {
                *start = u32::try_from(reader.position()).unwrap_or(0);
                kind.check(&reader)?;
                reader.skip_value()?;
            }
        }
        Ok(Self { section, starts })
    }

    /// A message without a properties section.
    #[must_use]
    pub const fn empty() -> Self {
        Self { section: &[], starts: [0; FIELDS] }
    }

    /// The sender's id of the message: an unsigned number, UUID, binary or text.
    #[must_use]
    pub fn message_id(&self) -> Option<ValueRef<'a>> {
        self.read(0, ValueRef::read)
    }

    /// The user who made the message.
    #[must_use]
    pub fn user_id(&self) -> Option<&'a [u8]> {
        self.read(1, Reader::binary)
    }

    /// The node that the message is for.
    #[must_use]
    pub fn to(&self) -> Option<&'a str> {
        self.read(2, Reader::str)
    }

    /// What the message is about.
    #[must_use]
    pub fn subject(&self) -> Option<&'a str> {
        self.read(3, Reader::str)
    }

    /// The node to answer to.
    #[must_use]
    pub fn reply_to(&self) -> Option<&'a str> {
        self.read(4, Reader::str)
    }

    /// The id of the message that this one answers: an unsigned number, UUID, binary or text.
    #[must_use]
    pub fn correlation_id(&self) -> Option<ValueRef<'a>> {
        self.read(5, ValueRef::read)
    }

    /// The MIME type of the data sections.
    #[must_use]
    pub fn content_type(&self) -> Option<&'a str> {
        self.read(6, Reader::symbol)
    }

    /// How the data sections are encoded besides.
    #[must_use]
    pub fn content_encoding(&self) -> Option<&'a str> {
        self.read(7, Reader::symbol)
    }

    /// When the message is void, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn absolute_expiry_time(&self) -> Option<i64> {
        self.read(8, Reader::timestamp)
    }

    /// When the message was made, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn creation_time(&self) -> Option<i64> {
        self.read(9, Reader::timestamp)
    }

    /// The group that the message belongs to.
    #[must_use]
    pub fn group_id(&self) -> Option<&'a str> {
        self.read(10, Reader::str)
    }

    /// The place of the message in its group.
    #[must_use]
    pub fn group_sequence(&self) -> Option<u32> {
        self.read(11, Reader::u32)
    }

    /// The group that an answer is to belong to.
    #[must_use]
    pub fn reply_to_group_id(&self) -> Option<&'a str> {
        self.read(12, Reader::str)
    }

    fn read<T>(
        &self,
        field: usize,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Option<T> {
        let start = *self.starts.get(field)?;
        if start == 0 {
            return None;
        }
        let bytes = self.section.get(usize::try_from(start).ok()?..)?;
        read(&mut Reader::new(bytes)).ok()
    }
}

/// The types of the fields.
#[derive(Clone, Copy)]
enum FieldKind {
    MessageId,
    Binary,
    Text,
    Symbol,
    Timestamp,
    Uint,
}

/// The type of each field, in order.
const FIELD_KINDS: [FieldKind; FIELDS] = [
    FieldKind::MessageId,
    FieldKind::Binary,
    FieldKind::Text,
    FieldKind::Text,
    FieldKind::Text,
    FieldKind::MessageId,
    FieldKind::Symbol,
    FieldKind::Symbol,
    FieldKind::Timestamp,
    FieldKind::Timestamp,
    FieldKind::Text,
    FieldKind::Uint,
    FieldKind::Text,
];

impl FieldKind {
    /// Checks the format code of the next value.
    fn check(self, reader: &Reader<'_>) -> Result<(), DecodeError> {
        let mut reader = reader.clone();
        let code = reader.code()?;
        let text = matches!(code, format::STRING_8 | format::STRING_32);
        let binary = matches!(code, format::BINARY_8 | format::BINARY_32);
        let ulong = matches!(code, format::ULONG | format::ULONG_SMALL | format::ULONG_0);
        let (expected, fits) = match self {
            Self::MessageId => (
                "a message id: ulong, uuid, binary or string",
                text || binary || ulong || code == format::UUID,
            ),
            Self::Binary => ("binary", binary),
            Self::Text => ("string", text),
            Self::Symbol => ("symbol", matches!(code, format::SYMBOL_8 | format::SYMBOL_32)),
            Self::Timestamp => ("timestamp", code == format::TIMESTAMP),
            Self::Uint => ("uint", matches!(code, format::UINT | format::UINT_SMALL | format::UINT_0)),
        };
        if fits { Ok(()) } else { Err(reader.unexpected(expected, code)) }
    }
}
