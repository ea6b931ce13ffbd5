//! Where the sections of an encoded message lie (part 3, section 3.2).

use std::ops::Range;

use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::descriptor;
use crate::format;
use crate::reader::Reader;

/// A range of bytes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last.
    pub end: u32,
}

impl Span {
    /// The bytes of the span; empty when `message` is not the message that it was found in.
    #[must_use]
    pub fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.range()).unwrap_or_default()
    }

    /// The span as a range of indices.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        index(self.start)..index(self.end)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What the body of a message is made of (part 3, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// One or more `data` sections: bytes.
    Data,
    /// One or more `amqp-sequence` sections: lists.
    Sequence,
    /// One `amqp-value` section.
    Value,
}

/// Where the sections of a message lie. Each span covers a whole section, its descriptor included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// The header section.
    pub header: Option<Span>,
    /// The delivery-annotations section.
    pub delivery_annotations: Option<Span>,
    /// The message-annotations section.
    pub message_annotations: Option<Span>,
    /// The properties section.
    pub properties: Option<Span>,
    /// The application-properties section.
    pub application_properties: Option<Span>,
    /// All sections of the body; absent in a message without a body, which some peers send.
    pub body: Option<Span>,
    /// What the body is made of.
    pub body_kind: Option<BodyKind>,
    /// The footer section.
    pub footer: Option<Span>,
    /// The bytes of the message that were looked at.
    pub len: u32,
}

impl Sections {
    /// Finds the sections of a whole message. Sizes, types and order of the sections are checked, but nothing inside
    /// them.
    ///
    /// # Errors
    /// When something is no section, or stands where it does not belong, or ends too early.
    pub fn scan(message: &[u8]) -> Result<Self, DecodeError> {
        let mut sections = Self { len: message_len(message)?, ..Self::default() };
        let mut reader = Reader::new(message);
        let mut last = None;
        while !reader.is_at_end() {
            let start = reader.clone();
            let kind = section_kind(&mut reader)?;
            kind.check_place(last, &start)?;
            kind.check_type(&mut reader.clone())?;
            reader.skip_value()?;
            sections.add(kind, span(&start, &reader));
            last = Some(kind);
        }
        Ok(sections)
    }

    /// Finds the sections in front of the body in the first part of a message that comes in pieces; `None` while
    /// those are not all there. The body is taken to reach to the end of `message`, and the footer is not looked for.
    ///
    /// # Errors
    /// When something is no section, or stands where it does not belong.
    pub fn scan_head(message: &[u8]) -> Result<Option<Self>, DecodeError> {
        match Self::scan_to_body(message) {
            Ok(sections) => Ok(sections),
            Err(DecodeError { kind: DecodeErrorKind::Truncated { .. }, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many bytes a message has at the least that begins with `first`: where the sections end that begin in there, as
    /// their sizes say. A message whose beginning is no message has what is there.
    #[must_use]
    pub fn announced_len(first: &[u8]) -> u64 {
        let mut reader = Reader::new(first);
        while !reader.is_at_end() && section_kind(&mut reader).is_ok() {
            let value = reader.clone();
            if reader.skip_value().is_err() {
                return value.announced_end().unwrap_or_default().max(first.len() as u64);
            }
        }
        first.len() as u64
    }

    /// The bare message: what the sender made, and nobody may change (properties to body).
    #[must_use]
    pub fn bare_message(&self) -> Span {
        let before = [self.header, self.delivery_annotations, self.message_annotations];
        let start = before.iter().flatten().map(|span| span.end).max().unwrap_or(0);
        Span { start, end: self.footer.map_or(self.len, |footer| footer.start) }
    }

    fn scan_to_body(message: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut sections = Self { len: message_len(message)?, ..Self::default() };
        let mut reader = Reader::new(message);
        let mut last = None;
        while !reader.is_at_end() {
            let start = reader.clone();
            let kind = section_kind(&mut reader)?;
            kind.check_place(last, &start)?;
            kind.check_type(&mut reader.clone())?;
            if kind.body_kind().is_some() {
                let end = sections.len;
                sections.add(kind, Span { end, ..span(&start, &start) });
                return Ok(Some(sections));
            }
            reader.skip_value()?;
            sections.add(kind, span(&start, &reader));
            last = Some(kind);
        }
        Ok(last.filter(|kind| *kind == SectionKind::Footer).map(|_| sections))
    }

    fn add(&mut self, kind: SectionKind, found: Span) {
        let slot = match kind {
            SectionKind::Header => &mut self.header,
            SectionKind::DeliveryAnnotations => &mut self.delivery_annotations,
            SectionKind::MessageAnnotations => &mut self.message_annotations,
            SectionKind::Properties => &mut self.properties,
            SectionKind::ApplicationProperties => &mut self.application_properties,
            SectionKind::Data | SectionKind::Sequence | SectionKind::Value => &mut self.body,
            SectionKind::Footer => &mut self.footer,
        };
        let start = slot.map_or(found.start, |first| first.start);
        *slot = Some(Span { start, end: found.end });
        self.body_kind = self.body_kind.or(kind.body_kind());
    }
}

/// The sections, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionKind {
    Header,
    DeliveryAnnotations,
    MessageAnnotations,
    Properties,
    ApplicationProperties,
    Data,
    Sequence,
    Value,
    Footer,
}

impl SectionKind {
    const fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            descriptor::HEADER => Self::Header,
            descriptor::DELIVERY_ANNOTATIONS => Self::DeliveryAnnotations,
            descriptor::MESSAGE_ANNOTATIONS => Self::MessageAnnotations,
            descriptor::PROPERTIES => Self::Properties,
            descriptor::APPLICATION_PROPERTIES => Self::ApplicationProperties,
            descriptor::DATA => Self::Data,
            descriptor::AMQP_SEQUENCE => Self::Sequence,
            descriptor::AMQP_VALUE => Self::Value,
            descriptor::FOOTER => Self::Footer,
            _ => return None,
        })
    }

    const fn body_kind(self) -> Option<BodyKind> {
        match self {
            Self::Data => Some(BodyKind::Data),
            Self::Sequence => Some(BodyKind::Sequence),
            Self::Value => Some(BodyKind::Value),
            _ => None,
        }
    }

    /// The place in the order; the three kinds of body share one.
    const fn place(self) -> u8 {
        match self {
            Self::Header => 0,
            Self::DeliveryAnnotations => 1,
            Self::MessageAnnotations => 2,
            Self::Properties => 3,
            Self::ApplicationProperties => 4,
            Self::Data | Self::Sequence | Self::Value => 5,
            Self::Footer => 6,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Header => "this header",
            Self::DeliveryAnnotations => "this delivery-annotations",
            Self::MessageAnnotations => "this message-annotations",
            Self::Properties => "this properties",
            Self::ApplicationProperties => "this application-properties",
            Self::Data => "this data",
            Self::Sequence => "this amqp-sequence",
            Self::Value => "this amqp-value",
            Self::Footer => "this footer",
        }
    }

    /// Sections come in order, each once; only `data` and `amqp-sequence` may be repeated.
    fn check_place(self, last: Option<Self>, at: &Reader<'_>) -> Result<(), DecodeError> {
        let Some(last) = last else { return Ok(()) };
        let repeats = last == self && matches!(self, Self::Data | Self::Sequence);
        if repeats || self.place() > last.place() {
            return Ok(());
        }
        Err(at.error(DecodeErrorKind::SectionOrder { section: self.name() }))
    }

    fn check_type(self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let code = reader.code()?;
        let (expected, fits) = match self {
            Self::Header | Self::Properties | Self::Sequence => {
                ("a section with a list", matches!(code, format::LIST_0 | format::LIST_8 | format::LIST_32))
            }
            Self::Data => ("a section with a binary", matches!(code, format::BINARY_8 | format::BINARY_32)),
            Self::Value => return Ok(()),
            _ => ("a section with a map", matches!(code, format::MAP_8 | format::MAP_32)),
        };
        if fits { Ok(()) } else { Err(reader.unexpected(expected, code)) }
    }
}

/// Reads the descriptor of a section.
fn section_kind(reader: &mut Reader<'_>) -> Result<SectionKind, DecodeError> {
    let start = reader.clone();
    let descriptor = reader.descriptor()?;
    descriptor.code().and_then(SectionKind::from_code).ok_or_else(|| {
        start.error(DecodeErrorKind::UnexpectedDescriptor {
            expected: "a message section",
            descriptor: descriptor.to_text(),
        })
    })
}

/// The bytes between two places; the message has been checked to be addressable with 32 bits.
fn span(start: &Reader<'_>, end: &Reader<'_>) -> Span {
    let place = |reader: &Reader<'_>| u32::try_from(reader.position()).unwrap_or(u32::MAX);
    Span { start: place(start), end: place(end) }
}

fn message_len(message: &[u8]) -> Result<u32, DecodeError> {
    let kind = DecodeErrorKind::MessageTooLarge { size: message.len() };
    u32::try_from(message.len()).map_err(|_| DecodeError { offset: 0, kind })
}

fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
