//! A message as the broker keeps it: the sender's annotations and its bare message, encoded as AMQP 1.0, shared
//! and never changed (DESIGN 2); and what is read of it once, when it comes in.

use crate::address::Kind;
use crate::annotations::{self, Delay, Noted};
use crate::refusal::{Code, Refusal};
use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::composite::decode_composite;
use postroad_amqp_codec::message::{
    Header, PropertiesRef, Sections, Span, ValueRef, check_annotations, check_application_properties,
    find_in_map, merge_message_annotations,
};
use postroad_amqp_codec::{DecodeError, Reader};

/// The beginning of the names of [`REPEATS`].
const SCHEDULE_PREFIX: &str = "AMQ_SCHEDULED_";
/// Properties with which ActiveMQ's clients ask for a repeated delivery, which there is none of here (QU-10).
const REPEATS: [&str; 3] = ["AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_CRON"];

/// An immutable message. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    bytes: Bytes,
    annotations: u32,
    properties: Span,
    application: Span,
    body: Span,
}

impl Message {
    /// A message from the bytes that the journal kept: a message-annotations section of `annotations` bytes (0 if
    /// there is none), then the bare message and the footer.
    ///
    /// # Errors
    /// If the sections do not scan, or the annotations are longer than the bytes.
    pub fn from_stored(bytes: Bytes, annotations: u32) -> Result<Self, DecodeError> {
        let sections = Sections::scan(&bytes)?;
        let annotations = annotations.min(sections.len);
        Ok(Self {
            annotations,
            properties: sections.properties.unwrap_or_default(),
            application: sections.application_properties.unwrap_or_default(),
            body: sections.body.unwrap_or_default(),
            bytes,
        })
    }

    /// A message whose sections were found where it came from: there its bare message began at `bare`, here it begins
    /// behind `annotations` bytes.
    fn laid_out(bytes: Bytes, annotations: usize, sections: &Sections, bare: u32) -> Self {
        let annotations = u32::try_from(annotations).unwrap_or(u32::MAX);
        let place = |span: Option<Span>| {
            let moved = |at: u32| at.saturating_sub(bare).saturating_add(annotations);
            span.map(|span| Span { start: moved(span.start), end: moved(span.end) }).unwrap_or_default()
        };
        Self {
            annotations,
            properties: place(sections.properties),
            application: place(sections.application_properties),
            body: place(sections.body),
            bytes,
        }
    }

    /// Annotations section and bare message.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes in all.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Length of the annotations section in bytes.
    #[must_use]
    pub const fn annotations_len(&self) -> u32 {
        self.annotations
    }

    /// The sender's message-annotations section, if it has one.
    #[must_use]
    pub fn annotations(&self) -> Option<&[u8]> {
        self.bytes.get(..self.annotations as usize).filter(|section| !section.is_empty())
    }

    /// The same message with these annotations besides the sender's, which they go before: `section` is a
    /// message-annotations section.
    ///
    /// # Errors
    /// When either section is no map.
    pub fn annotated(&self, section: &[u8]) -> Result<Self, DecodeError> {
        let mut out = BytesMut::with_capacity(self.len() + section.len());
        merge_message_annotations(&mut out, self.annotations(), section, |_| true)?;
        let annotations = u32::try_from(out.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&self.bare());
        Self::from_stored(out.freeze(), annotations)
    }

    /// The bare message and the footer, as they were sent.
    #[must_use]
    pub fn bare(&self) -> Bytes {
        self.bytes.slice((self.annotations as usize).min(self.bytes.len())..)
    }

    /// The body sections, encoded; empty if the message has none.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.body.of(&self.bytes)
    }

    /// The application-properties section, encoded; empty if the message has none.
    #[must_use]
    pub fn application_properties(&self) -> &[u8] {
        self.application.of(&self.bytes)
    }

    /// The bare message and the footer, parted where the application-properties section stands or would stand: what is
    /// before it, and what is behind it.
    #[must_use]
    pub fn around_application_properties(&self) -> (Bytes, Bytes) {
        let bare = self.annotations as usize;
        let behind_properties = if self.properties.is_empty() { bare } else { self.properties.range().end };
        let (before, behind) = if self.application.is_empty() {
            (behind_properties, behind_properties)
        } else {
            (self.application.range().start, self.application.range().end)
        };
        (self.bytes.slice(bare..before), self.bytes.slice(behind..))
    }

    /// One application property.
    #[must_use]
    pub fn application_property(&self, key: &str) -> Option<ValueRef<'_>> {
        if self.application.is_empty() {
            return None;
        }
        find_in_map(self.application.of(&self.bytes), key)
    }

    /// `message-id`.
    #[must_use]
    pub fn message_id(&self) -> Option<ValueRef<'_>> {
        self.properties()?.message_id()
    }

    /// `correlation-id`.
    #[must_use]
    pub fn correlation_id(&self) -> Option<ValueRef<'_>> {
        self.properties()?.correlation_id()
    }

    /// `subject`.
    #[must_use]
    pub fn subject(&self) -> Option<ValueRef<'_>> {
        self.properties()?.subject().map(ValueRef::Text)
    }

    /// `creation-time`.
    #[must_use]
    pub fn creation_time(&self) -> Option<ValueRef<'_>> {
        self.properties()?.creation_time().map(ValueRef::Timestamp)
    }

    /// `group-id`.
    #[must_use]
    pub fn group_id(&self) -> Option<ValueRef<'_>> {
        self.properties()?.group_id().map(ValueRef::Text)
    }

    fn properties(&self) -> Option<PropertiesRef<'_>> {
        if self.properties.is_empty() {
            return None;
        }
        PropertiesRef::parse(self.properties.of(&self.bytes)).ok()
    }
}

/// A message that came in, and what the broker reads of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The message, in an allocation of its own.
    pub message: Message,
    /// Header: asked to be kept.
    pub durable: bool,
    /// Header: 0 to 9, default 4.
    pub priority: u8,
    /// Header: milliseconds of life.
    pub ttl_ms: Option<u32>,
    /// Properties: end of life, milliseconds since 1970.
    pub absolute_expiry: Option<u64>,
    /// Properties: the address, for an anonymous producer.
    pub to: Option<String>,
    /// What `x-opt-jms-dest` says of the kind of `to` (ADR-6).
    pub to_kind: Option<Kind>,
    /// Properties: the message-id as text.
    pub message_id: Option<String>,
    /// Annotations: when it is to be delivered at the earliest (QU-8).
    pub delay: Option<Delay>,
}

impl Incoming {
    /// Reads a message as a client sent it. The broker's own annotations are taken out (ENV-3), header and delivery
    /// annotations end here. The body is not looked into.
    ///
    /// # Errors
    /// `BAD_MESSAGE` where the sections do not parse, or stand where they do not belong, or hold annotations or
    /// properties whose keys or values have types that AMQP does not allow there (part 3, sections 3.2.5 and 3.2.10), or
    /// a delivery time that is none (QU-8). `NOT_SUPPORTED` where it asks for repeated deliveries (QU-10).
    pub fn parse(sent: &[u8]) -> Result<Self, Refusal> {
        if sent.is_empty() {
            let text = "the message has no bytes: it needs at least a body section";
            return Err(Refusal::new(Code::BadMessage, "message", text));
        }
        Self::read(sent, None)
    }

    /// As [`Incoming::parse`], for bytes that are the message's own: they are kept instead of copied where that is
    /// possible.
    ///
    /// # Errors
    /// As [`Incoming::parse`].
    pub fn parse_owned(sent: &Bytes) -> Result<Self, Refusal> {
        if sent.is_empty() {
            return Self::parse(sent);
        }
        Self::read(sent, Some(sent))
    }

    /// Why the first part of a message makes all of it no message, as far as that can be seen.
    ///
    /// # Errors
    /// `BAD_MESSAGE`.
    pub fn check_first_part(first: &[u8]) -> Result<(), Refusal> {
        Sections::scan_head(first).map(|_| ()).map_err(bad_message)
    }

    fn read(sent: &[u8], own: Option<&Bytes>) -> Result<Self, Refusal> {
        let sections = Sections::scan(sent).map_err(bad_message)?;
        check_maps(sent, &sections)?;
        let header = match sections.header {
            Some(span) => decode_composite::<Header>(&mut Reader::at(span.of(sent), span.range().start))
                .map_err(bad_message)?,
            None => Header::default(),
        };
        let annotations = sections.message_annotations.map_or(&[][..], |span| span.of(sent));
        let Noted { is_forged, to_kind, delay } = annotations::note(annotations)?;
        let message = store_form(sent, own, &sections, annotations, is_forged).map_err(bad_message)?;
        let properties = match sections.properties {
            Some(span) => Some(PropertiesRef::parse(span.of(sent)).map_err(bad_message)?),
            None => None,
        };
        let expiry = properties.as_ref().and_then(PropertiesRef::absolute_expiry_time);
        let message_id = properties.as_ref().and_then(PropertiesRef::message_id);
        Ok(Self {
            message,
            durable: header.durable,
            priority: header.priority,
            ttl_ms: header.ttl,
            absolute_expiry: expiry.and_then(|at| u64::try_from(at).ok()),
            to: properties.as_ref().and_then(PropertiesRef::to).map(str::to_owned),
            to_kind,
            message_id: message_id.map(id_text),
            delay,
        })
    }
}

/// A message whose sections are none.
#[allow(clippy::needless_pass_by_value)] // as what `map_err` hands on
pub(crate) fn bad_message(error: DecodeError) -> Refusal {
    let text = format!("the message can't be read as AMQP 1.0 message sections: {error}");
    Refusal::new(Code::BadMessage, "message", text)
}

/// Checks what consumers will read of the message besides its body.
fn check_maps(sent: &[u8], sections: &Sections) -> Result<(), Refusal> {
    let annotations = [sections.delivery_annotations, sections.message_annotations, sections.footer];
    for section in annotations.into_iter().flatten() {
        check_annotations(sent, section).map_err(bad_message)?;
    }
    let Some(section) = sections.application_properties else { return Ok(()) };
    let mut repeats = None;
    check_application_properties(sent, section, |key| {
        if key.starts_with(SCHEDULE_PREFIX) {
            repeats = repeats.or_else(|| REPEATS.into_iter().find(|name| *name == key));
        }
    })
    .map_err(bad_message)?;
    let Some(name) = repeats else { return Ok(()) };
    let text = format!(
        "the property {name} asks for repeated deliveries, which this broker does not make: send the message each time"
    );
    Err(Refusal::new(Code::NotSupported, name, text))
}

/// The bytes that are kept: allowed annotations, then everything behind them.
fn store_form(
    sent: &[u8],
    own: Option<&Bytes>,
    sections: &Sections,
    annotations: &[u8],
    is_forged: bool,
) -> Result<Message, DecodeError> {
    let bare = sections.bare_message().start;
    let bare_at = bare as usize;
    if let Some(own) = own.filter(|_| !is_forged) {
        // The annotations stand right before the bare message.
        let kept = own.slice(bare_at.saturating_sub(annotations.len()).min(own.len())..);
        return Ok(Message::laid_out(kept, annotations.len(), sections, bare));
    }
    let behind = sent.get(bare_at..).unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(annotations.len() + behind.len());
    if is_forged {
        annotations::keep_allowed(annotations, &mut bytes)?;
    } else {
        bytes.extend_from_slice(annotations);
    }
    let length = bytes.len();
    bytes.extend_from_slice(behind);
    Ok(Message::laid_out(bytes.freeze(), length, sections, bare))
}

/// A message-id as text that is equal exactly for equal ids of one type.
fn id_text(id: ValueRef<'_>) -> String {
    match id {
        ValueRef::Text(text) | ValueRef::Symbol(text) => text.to_owned(),
        ValueRef::Uint(number) => format!("ulong:{number}"),
        ValueRef::Uuid(bytes) => format!("uuid:{}", uuid::Uuid::from_bytes(bytes)),
        ValueRef::Binary(bytes) => {
            bytes.iter().fold(String::from("binary:"), |text, b| format!("{text}{b:02x}"))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_amqp_codec::message::{Body, Message as Whole, Properties};
    use postroad_amqp_codec::{Encode, Map, Symbol, Value};

    fn encode(message: &Whole) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    fn annotated(entries: &[(&'static str, Value)]) -> Whole {
        let mut map = Map::default();
        for (key, value) in entries {
            map.0.push((Value::Symbol(Symbol::from_static(key)), value.clone()));
        }
        let properties = Properties { to: Some("orders".into()), ..Properties::default() };
        Whole {
            header: Some(Header { durable: true, priority: 7, ttl: Some(5), ..Header::default() }),
            message_annotations: Some(map),
            properties: Some(properties),
            body: Body::Value(Value::String("hello".into())),
            ..Whole::default()
        }
    }

    #[test]
    fn a_client_cannot_forge_what_is_the_brokers() {
        let sent = annotated(&[
            ("x-opt-postroad-origin", Value::Ulong(1)),
            ("x-opt-jms-dest", Value::Byte(1)),
            ("x-opt-postroad-report", Value::Bool(true)),
        ]);
        let incoming = Incoming::parse(&encode(&sent)).unwrap();
        let kept = incoming.message.annotations().unwrap();
        assert_eq!(find_in_map(kept, "x-opt-postroad-origin"), None);
        assert_eq!(find_in_map(kept, "x-opt-postroad-report"), Some(ValueRef::Bool(true)));
        assert_eq!(incoming.to_kind, Some(Kind::Topic));
        assert_eq!(Incoming::parse_owned(&encode(&sent).into()).unwrap(), incoming);
        postroad_testkit::proves("ENV-3");
    }

    #[test]
    fn header_facts_are_read_and_the_bare_message_is_kept_to_the_byte() {
        let sent = annotated(&[("a", Value::Byte(1))]);
        let encoded = encode(&sent);
        let incoming = Incoming::parse(&encoded).unwrap();
        assert!(incoming.durable);
        assert_eq!((incoming.priority, incoming.ttl_ms), (7, Some(5)));
        assert_eq!(incoming.to.as_deref(), Some("orders"));
        let bare = incoming.message.bare();
        assert!(encoded.ends_with(&bare) && !bare.is_empty());
        let again =
            Message::from_stored(incoming.message.bytes().clone(), incoming.message.annotations_len());
        assert_eq!(again.unwrap(), incoming.message);
        let own = Bytes::from(encoded);
        assert_eq!(Incoming::parse_owned(&own).unwrap(), incoming);
    }

    #[test]
    fn a_bare_message_is_parted_where_application_properties_stand() {
        let mut whole = annotated(&[("a", Value::Byte(1))]);
        let without = Incoming::parse(&encode(&whole)).unwrap().message;
        let mut map = Map::default();
        map.0.push(("k".into(), "v".into()));
        whole.application_properties = Some(map);
        let with = Incoming::parse(&encode(&whole)).unwrap().message;
        let (before, behind) = without.around_application_properties();
        assert_eq!([&before[..], &behind].concat(), without.bare());
        assert_eq!(with.around_application_properties(), (before, behind.clone()));
        assert_eq!(behind, without.body());
        whole.properties = None;
        let bare = Incoming::parse(&encode(&whole)).unwrap().message;
        assert_eq!(bare.around_application_properties(), (Bytes::new(), behind));
    }

    /// A message with these sections before a small body, and why it is refused.
    fn refusal(sections: &[&[u8]]) -> String {
        let mut sent = sections.concat();
        sent.extend_from_slice(b"\x00\x53\x77\xa1\x01x");
        let refusal = Incoming::parse(&sent).unwrap_err();
        assert_eq!(refusal.code, Code::BadMessage);
        refusal.message
    }

    #[test]
    fn annotations_have_symbols_or_numbers_as_keys() {
        let string_key = b"\xc1\x06\x02\xa1\x01k\xa1\x00";
        for section in [b"\x00\x53\x71", b"\x00\x53\x72"] {
            let said = refusal(&[section, string_key]);
            assert!(said.contains("at byte 6: expected an annotation's key: symbol or ulong"), "{said}");
        }
        let mut footed = b"\x00\x53\x77\x40\x00\x53\x78".to_vec();
        footed.extend_from_slice(string_key);
        assert_eq!(Incoming::parse(&footed).unwrap_err().code, Code::BadMessage);
        // A key that is no ASCII, a value that is no UTF-8, a list cut short, more entries than there is room for.
        for map in [
            &b"\xc1\x05\x02\xa3\x01\xff\x40"[..],
            b"\xc1\x07\x02\xa3\x01k\xa1\x01\xff",
            b"\xc1\x08\x02\xa3\x01k\xc0\x02\x05\x40",
            b"\xc1\x05\x04\xa3\x01k\x40",
            b"\xc1\x06\x02\xa3\x01k\x40\x40",
        ] {
            refusal(&[b"\x00\x53\x72", map]);
        }
        let good = b"\x00\x53\x72\xc1\x07\x04\xa3\x01k\x40\x44\x45\x00\x53\x77\x40";
        assert!(Incoming::parse(good).is_ok());
    }

    #[test]
    fn properties_have_strings_as_keys_and_simple_values() {
        for map in [
            // A symbol as key; a list, a map, an array, a described list as value; a text that is no UTF-8.
            &b"\xc1\x05\x02\xa3\x01k\x40"[..],
            b"\xc1\x05\x02\xa1\x01k\x45",
            b"\xc1\x07\x02\xa1\x01k\xc1\x01\x00",
            b"\xc1\x08\x02\xa1\x01k\xe0\x02\x00\x40",
            b"\xc1\x08\x02\xa1\x01k\x00\xa3\x01d\x45",
            b"\xc1\x07\x02\xa1\x01k\xa1\x01\xff",
        ] {
            refusal(&[b"\x00\x53\x74", map]);
        }
        let described = b"\x00\x53\x74\xc1\x09\x02\xa1\x01k\x00\xa3\x01d\x41\x00\x53\x77\x40";
        assert!(Incoming::parse(described).is_ok());
    }

    #[test]
    fn what_asks_for_repeated_deliveries_is_refused() {
        let with = |name: &str| {
            let mut sent = annotated(&[]);
            let mut properties = Map::default();
            properties.insert("AMQ_SCHEDULED_DELAY", 5_i64);
            properties.insert(name, 3_i32);
            sent.application_properties = Some(properties);
            Incoming::parse(&encode(&sent))
        };
        for name in REPEATS {
            let refusal = with(name).unwrap_err();
            assert_eq!((refusal.code, refusal.object.as_str()), (Code::NotSupported, name));
        }
        assert!(with("AMQ_SCHEDULED_REPEATS").is_ok());
    }

    #[test]
    fn sections_stand_in_their_order_and_once() {
        let (header, annotations) = (b"\x00\x53\x70\x45", b"\x00\x53\x72\xc1\x01\x00");
        assert!(refusal(&[annotations, header]).contains("does not belong after"));
        assert!(refusal(&[annotations, annotations]).contains("does not belong after"));
        assert!(refusal(&[header, b"\x00\x53\x69\x45"]).contains("a message section"));
        assert!(refusal(&[b"\x00\x53\x77\x40"]).contains("does not belong after"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(Incoming::parse(b"no message").unwrap_err().code, Code::BadMessage);
        assert_eq!(Incoming::parse(b"").unwrap_err().code, Code::BadMessage);
        assert_eq!(Incoming::parse_owned(&Bytes::new()).unwrap_err().code, Code::BadMessage);
    }
}
