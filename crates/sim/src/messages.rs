//! The messages of a run: what was sent, so that what arrives can be compared with it, byte for byte.

use crate::random::Random;
use bytes::Bytes;
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::composite::decode_composite;
use postroad_amqp_codec::message::{
    Body, Header, Message as Whole, MessageId, Properties, Sections, ValueRef, find_in_map,
};
use postroad_amqp_codec::{Map, Reader, Symbol, Value};
use postroad_model::annotations::Delay;
use postroad_model::message::Message;

/// The colours by which selectors choose.
pub const COLOURS: [&str; 3] = ["red", "green", "blue"];

/// The annotation that consumers add to what they give back.
pub const NOTE: &str = "x-opt-sim-note";

/// Milliseconds that a message is delayed at most.
pub const MAX_DELAY_MS: u64 = 3_000;

/// One message that a client has sent, at least once.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Index into [`COLOURS`].
    pub colour: usize,
    /// Value of the publish key.
    pub key: u64,
    /// Asked to be kept.
    pub durable: bool,
    /// Not to be delivered at once.
    pub delay: Option<Delay>,
    /// Sent more than once under the same message-id.
    pub resent: bool,
    /// The seat that sent it first, and the store that it went to.
    pub by: (usize, String),
    /// The sections behind the header, as they were sent.
    bare: Bytes,
    /// Everything, as it was sent.
    whole: Bytes,
}

/// A message as a client received it.
#[derive(Clone, Debug)]
pub struct Received {
    /// Which message.
    pub number: u64,
    /// Its event id, where it came from a channel.
    pub event: Option<u64>,
    /// Earlier failed attempts, as the header says.
    pub delivery_count: u32,
    /// The header's durable flag.
    pub durable: bool,
    /// What consumers that gave it back added.
    pub note: Option<u64>,
}

/// All messages of a run, by number.
#[derive(Debug, Default)]
pub struct Messages {
    sent: Vec<Sent>,
}

impl Messages {
    /// Makes a message that a seat sends to a store at a wall-clock time, and that goes to `to` if it names an address
    /// itself. Returns its number and its bytes.
    pub fn make(
        &mut self,
        random: &mut Random,
        by: (usize, String),
        to: Option<&str>,
        wall: u64,
    ) -> (u64, Bytes) {
        let number = self.sent.len() as u64;
        let colour = random.index(COLOURS.len());
        let (key, durable) = (random.below(4), !random.one_in(4));
        let ttl = random.one_in(12).then(|| u32::try_from(random.range(1, 3_000)).unwrap_or(1));
        let delay = random.one_in(8).then(|| {
            let ms = random.below(MAX_DELAY_MS);
            if random.one_in(2) { Delay::For(ms) } else { Delay::Until(wall.saturating_add(ms)) }
        });
        let size = match random.below(100) {
            0 => random.range(8_000, 20_000),
            1..=5 => random.range(500, 3_000),
            _ => random.range(0, 60),
        };
        let header = Header {
            durable,
            priority: u8::try_from(random.below(10)).unwrap_or(4),
            ttl,
            ..Header::default()
        };
        let (whole, bare) = encode(number, COLOURS[colour], key, to, (header, delay), size);
        self.sent.push(Sent { colour, key, durable, delay, resent: false, by, bare, whole });
        (number, self.sent.last().map(|sent| sent.whole.clone()).unwrap_or_default())
    }

    /// A durable message of one colour that never expires, as a probe.
    pub fn probe(&mut self, colour: usize) -> (u64, Bytes) {
        let number = self.sent.len() as u64;
        let header = Header { durable: true, ..Header::default() };
        let key = number + 100;
        let (whole, bare) =
            encode(number, COLOURS.get(colour).copied().unwrap_or("red"), key, None, (header, None), 5);
        let by = (usize::MAX, String::new());
        self.sent.push(Sent {
            colour,
            key,
            durable: true,
            delay: None,
            resent: false,
            by,
            bare,
            whole: whole.clone(),
        });
        (number, whole)
    }

    /// The bytes of a message, to send it again.
    pub fn again(&mut self, number: u64) -> Option<Bytes> {
        let sent = self.sent.get_mut(usize::try_from(number).ok()?)?;
        sent.resent = true;
        Some(sent.whole.clone())
    }

    /// What was sent under a number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Sent> {
        self.sent.get(usize::try_from(number).ok()?)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Reads a delivery, and compares it with what was sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self, payload: &[u8]) -> Result<Received, String> {
        let sections = Sections::scan(payload).map_err(|e| format!("a delivery can't be read: {e}"))?;
        let header = match sections.header {
            Some(span) => decode_composite::<Header>(&mut Reader::new(span.of(payload)))
                .map_err(|e| format!("a header can't be read: {e}"))?,
            None => Header::default(),
        };
        let annotations = sections.message_annotations.map_or(&[][..], |span| span.of(payload));
        let annotation = |key| match find_in_map(annotations, key) {
            Some(ValueRef::Uint(number)) => Some(number),
            _ => None,
        };
        let (event, note) = (annotation("x-opt-postroad-event-id"), annotation(NOTE));
        let bare = payload.get(sections.bare_message().start as usize..).unwrap_or_default();
        let number = number_of(bare)?;
        let sent = self.get(number).ok_or_else(|| format!("message {number} was never sent"))?;
        if sent.bare != bare {
            return Err(format!("message {number} arrived with other bytes than it was sent with"));
        }
        Ok(Received { number, event, delivery_count: header.delivery_count, durable: header.durable, note })
    }

    /// The number of a message as the broker keeps it, compared with what was sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_stored(&self, bytes: Bytes, annotations: u32) -> Result<u64, String> {
        let message = Message::from_stored(bytes, annotations).map_err(|e| format!("a stored body: {e}"))?;
        let bare = message.bare();
        let number = number_of(&bare)?;
        match self.get(number) {
            Some(sent) if sent.bare == bare => Ok(number),
            _ => {
                Err(format!("the body of message {number} is stored with other bytes than it was sent with"))
            }
        }
    }
}

/// Everything, and the sections behind the header.
fn encode(
    number: u64,
    colour: &str,
    key: u64,
    to: Option<&str>,
    (header, delay): (Header, Option<Delay>),
    size: u64,
) -> (Bytes, Bytes) {
    let mut properties = Map::new();
    properties.insert("n", number);
    properties.insert("colour", colour);
    properties.insert("k", key.to_string().as_str());
    let filler = char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
    let text: String = std::iter::repeat_n(filler, usize::try_from(size).unwrap_or(0)).collect();
    let annotation = delay.map(|delay| match delay {
        Delay::Until(at) => ("x-opt-delivery-time", Value::Timestamp(i64::try_from(at).unwrap_or(i64::MAX))),
        Delay::For(ms) => ("x-opt-delivery-delay", Value::Ulong(ms)),
    });
    let message = Whole {
        header: Some(header),
        message_annotations: annotation
            .map(|(key, value)| Map(vec![(Symbol::from_static(key).into(), value)])),
        properties: Some(Properties {
            message_id: Some(MessageId::String(format!("m{number}"))),
            to: to.map(str::to_owned),
            ..Properties::default()
        }),
        application_properties: Some(properties),
        body: Body::Value(Value::String(text)),
        ..Whole::default()
    };
    let mut whole = Vec::new();
    message.encode(&mut whole);
    let whole = Bytes::from(whole);
    let start = Sections::scan(&whole).map_or(0, |sections| sections.bare_message().start as usize);
    let bare = whole.slice(start.min(whole.len())..);
    (whole, bare)
}

fn number_of(bare: &[u8]) -> Result<u64, String> {
    let sections = Sections::scan(bare).map_err(|e| format!("a bare message can't be read: {e}"))?;
    let map = sections.application_properties.map_or(&[][..], |span| span.of(bare));
    match find_in_map(map, "n") {
        Some(ValueRef::Uint(number)) => Ok(number),
        other => Err(format!("a message has no number: {other:?}")),
    }
}
