//! A whole message as owned values: for clients and tests. Brokers read messages where they lie.

use bytes::Bytes;

use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::Encode;
use crate::format;
use crate::map::Map;
use crate::message::sections::{BodyKind, Sections, Span};
use crate::message::{Header, Properties};
use crate::reader::Reader;
use crate::value::Value;
use crate::writer::Buffer;

/// A message (part 3, section 3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// How the message is to be delivered.
    pub header: Option<Header>,
    /// Annotations for the next receiver.
    pub delivery_annotations: Option<Map>,
    /// Annotations that travel with the message.
    pub message_annotations: Option<Map>,
    /// What the sender says of the message.
    pub properties: Option<Properties>,
    /// What the application says of the message; the keys are strings.
    pub application_properties: Option<Map>,
    /// The body.
    pub body: Body,
    /// What comes behind the body: checksums and signatures.
    pub footer: Option<Map>,
}

/// The body of a message (part 3, sections 3.2.6 to 3.2.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// No body section, which some peers send.
    #[default]
    Empty,
    /// Bytes, in one or more sections.
    Data(Vec<Bytes>),
    /// Lists, in one or more sections.
    Sequence(Vec<Vec<Value>>),
    /// One value.
    Value(Value),
}

impl Decode for Message {
    /// Reads a message that is everything that is left.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let message = reader.take(reader.remaining().len())?;
        let sections = Sections::scan(message)?;
        Ok(Self {
            header: read(message, sections.header, Header::decode)?,
            delivery_annotations: read(message, sections.delivery_annotations, decode_map)?,
            message_annotations: read(message, sections.message_annotations, decode_map)?,
            properties: read(message, sections.properties, Properties::decode)?,
            application_properties: read(message, sections.application_properties, decode_map)?,
            body: decode_body(message, &sections)?,
            footer: read(message, sections.footer, decode_map)?,
        })
    }
}

impl Encode for Message {
    fn encode<B: Buffer>(&self, out: &mut B) {
        if let Some(header) = &self.header {
            header.encode(out);
        }
        encode_section(descriptor::DELIVERY_ANNOTATIONS, self.delivery_annotations.as_ref(), out);
        encode_section(descriptor::MESSAGE_ANNOTATIONS, self.message_annotations.as_ref(), out);
        if let Some(properties) = &self.properties {
            properties.encode(out);
        }
        encode_section(descriptor::APPLICATION_PROPERTIES, self.application_properties.as_ref(), out);
        self.body.encode(out);
        encode_section(descriptor::FOOTER, self.footer.as_ref(), out);
    }
}

impl Encode for Body {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Empty => {}
            Self::Data(parts) => {
                parts.iter().for_each(|part| encode_section(descriptor::DATA, Some(part), out));
            }
            Self::Sequence(lists) => {
                for list in lists {
                    put_descriptor(descriptor::AMQP_SEQUENCE, out);
                    list.as_slice().encode(out);
                }
            }
            Self::Value(value) => encode_section(descriptor::AMQP_VALUE, Some(value), out),
        }
    }
}

fn encode_section<B: Buffer, T: Encode>(code: u64, value: Option<&T>, out: &mut B) {
    if let Some(value) = value {
        put_descriptor(code, out);
        value.encode(out);
    }
}

fn put_descriptor<B: Buffer>(code: u64, out: &mut B) {
    out.push(format::DESCRIBED);
    code.encode(out);
}

/// Reads a section, with offsets that count from the start of the message.
fn read<T>(
    message: &[u8],
    span: Option<Span>,
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let Some(span) = span else { return Ok(None) };
    decode(&mut Reader::at(span.of(message), span.range().start)).map(Some)
}

fn decode_map(reader: &mut Reader<'_>) -> Result<Map, DecodeError> {
    reader.descriptor()?;
    Map::decode(reader)
}

fn decode_body(message: &[u8], sections: &Sections) -> Result<Body, DecodeError> {
    let (Some(span), Some(kind)) = (sections.body, sections.body_kind) else { return Ok(Body::Empty) };
    let mut reader = Reader::at(span.of(message), span.range().start);
    Ok(match kind {
        BodyKind::Data => Body::Data(repeat(&mut reader, Bytes::decode)?),
        BodyKind::Sequence => Body::Sequence(repeat(&mut reader, Vec::decode)?),
        BodyKind::Value => {
            reader.descriptor()?;
            Body::Value(Value::decode(&mut reader)?)
        }
    })
}

fn repeat<T>(
    reader: &mut Reader<'_>,
    decode: fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut parts = Vec::new();
    while !reader.is_at_end() {
        reader.descriptor()?;
        parts.push(decode(reader)?);
    }
    Ok(parts)
}
