//! What a view shows of a message: texts within bounds, so that what an answer copies does not grow with what was sent.

use crate::admin::{EventView, ScheduledView};
use postroad_amqp_codec::Reader;
use postroad_amqp_codec::message::{ValueRef, map_entries};
use postroad_model::message::Message;

/// Bytes of one text that a view shows.
const TEXT_SHOWN: usize = 4 * 1024;
/// Properties of one message that a view shows.
const PROPERTIES_SHOWN: usize = 128;
/// Bytes of them, before which the last one begins.
const PROPERTIES_BYTES: usize = 16 * 1024;
/// Bytes of an item besides its texts, about.
const ITEM_BYTES: usize = 256;
/// Bytes of an entry of a list of properties besides its texts, about.
const PROPERTY_BYTES: usize = 48;
/// Bytes after which a page ends; what one more item has may come on top.
const PAGE_BYTES: usize = 256 * 1024;
/// A text is read whole to show its beginning: so many bytes read are worth one byte copied.
const READ_FOR_ONE: u64 = 32;

/// How much more a page can take.
pub(super) struct Budget(usize);

impl Budget {
    /// That of a new page.
    pub(super) const fn page() -> Self {
        Self(PAGE_BYTES)
    }

    /// Takes what an item costs whose texts have `bytes`, and whose message has `size`.
    pub(super) fn spend(&mut self, bytes: usize, size: u64) {
        let read = usize::try_from(size / READ_FOR_ONE).unwrap_or(usize::MAX);
        self.0 = self.0.saturating_sub(bytes.saturating_add(read));
    }

    /// Whether the page ends here.
    pub(super) const fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

/// The texts of a message.
#[derive(Default)]
pub(super) struct Excerpt {
    pub(super) message_id: Option<String>,
    pub(super) properties: Vec<(String, String)>,
    pub(super) body: Option<String>,
    /// Whether something is shorter than in the message, or left out.
    pub(super) cut: bool,
}

impl Excerpt {
    pub(super) fn of(message: Option<&Message>) -> Self {
        let mut excerpt = Self::default();
        let Some(message) = message else { return excerpt };
        excerpt.message_id = message.message_id().map(|id| excerpt.value(id));
        excerpt.properties = excerpt.properties_of(message);
        excerpt.body = excerpt.body_of(message);
        excerpt
    }

    /// The beginning of a text.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut end = text.len().min(TEXT_SHOWN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.cut |= end < text.len();
        text.get(..end).unwrap_or_default().to_owned()
    }

    fn value(&mut self, value: ValueRef<'_>) -> String {
        match value {
            ValueRef::Null => "null".into(),
            ValueRef::Bool(b) => b.to_string(),
            ValueRef::Int(n) | ValueRef::Timestamp(n) => n.to_string(),
            ValueRef::Uint(n) => n.to_string(),
            ValueRef::Float(x) => x.to_string(),
            ValueRef::Text(s) | ValueRef::Symbol(s) => self.text(s),
            ValueRef::Uuid(bytes) => uuid::Uuid::from_bytes(bytes).to_string(),
            ValueRef::Binary(bytes) => format!("{} bytes", bytes.len()),
            ValueRef::Other(raw) => format!("{} bytes encoded", raw.len()),
        }
    }

    fn properties_of(&mut self, message: &Message) -> Vec<(String, String)> {
        let (mut properties, mut bytes) = (Vec::new(), 0);
        let Ok(entries) = map_entries(message.application_properties()) else { return properties };
        for entry in entries.map_while(Result::ok) {
            if properties.len() == PROPERTIES_SHOWN || bytes >= PROPERTIES_BYTES {
                self.cut = true;
                break;
            }
            let (Some(key), Ok(value)) = (entry.key.as_str(), entry.value_ref()) else { continue };
            let property = (self.text(key), self.value(value));
            bytes += property_bytes(&property);
            properties.push(property);
        }
        properties
    }

    /// The body, where it is text or bytes whose beginning reads as text.
    fn body_of(&mut self, message: &Message) -> Option<String> {
        let mut reader = Reader::new(message.body());
        reader.descriptor().ok()?;
        let value = ValueRef::read(&mut reader).ok()?;
        match value {
            // Of several sections none is the body.
            _ if !reader.is_at_end() => None,
            ValueRef::Text(text) => Some(self.text(text)),
            ValueRef::Binary(bytes) => self.bytes(bytes),
            _ => None,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> Option<String> {
        let shown = bytes.get(..TEXT_SHOWN).unwrap_or(bytes);
        let is_cut = shown.len() < bytes.len();
        let text = match std::str::from_utf8(shown) {
            Ok(text) => text,
            // The cut went through a character.
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(shown.get(..error.valid_up_to())?).ok()?
            }
            Err(_) => return None,
        };
        self.cut |= is_cut;
        Some(text.to_owned())
    }
}

impl EventView {
    /// About the bytes that it holds in memory: what bounds an answer of many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let dead = self.dead_letter.as_ref();
        let dead = dead.map_or(0, |dead| dead.text.len() + dead.address.as_ref().map_or(0, String::len));
        dead + texts(self.message_id.as_ref(), &self.properties, self.body.as_ref())
    }
}

impl ScheduledView {
    /// About the bytes that it holds in memory: what bounds an answer of many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        texts(self.message_id.as_ref(), &self.properties, self.body.as_ref())
    }
}

fn texts(message_id: Option<&String>, properties: &[(String, String)], body: Option<&String>) -> usize {
    let properties: usize = properties.iter().map(property_bytes).sum();
    ITEM_BYTES + message_id.map_or(0, String::len) + properties + body.map_or(0, String::len)
}

const fn property_bytes((key, value): &(String, String)) -> usize {
    PROPERTY_BYTES + key.len() + value.len()
}
