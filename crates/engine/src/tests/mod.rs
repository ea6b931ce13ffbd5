//! Tests of the engine as a whole, through commands and effects alone. Most are scripts (`script`): a line a thing
//! that happens or must be so.

mod broker;
mod script;

mod addresses;
mod annotated;
mod channels;
mod clock;
mod dead_letters;
mod definitions;
mod excerpts;
mod expiry;
mod forwarding;
mod histories;
mod jobs;
mod joins;
mod memory;
mod networks;
mod objects;
mod paging;
mod paths;
mod queues;
mod schedule;
mod steps;
mod temporaries;
mod wild;

use bytes::Bytes;
use postroad_amqp_codec::message::{Body, Header, Message as Whole, MessageId, Properties, map_entries};
use postroad_amqp_codec::{Decode, Encode, Map, Symbol, Value};
use postroad_model::message::{Incoming, Message};

/// What a test says of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) nondurable: bool,
    pub(crate) priority: Option<u8>,
    pub(crate) ttl: Option<u32>,
    pub(crate) id: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) properties: Vec<(String, Value)>,
    pub(crate) annotations: Vec<(&'static str, Value)>,
}

impl Draft {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// The message as a front door hands it over.
    pub(crate) fn incoming(&self) -> Incoming {
        Incoming::parse(&self.encoded()).unwrap()
    }

    fn encoded(&self) -> Vec<u8> {
        let mut properties = Map::default();
        for (key, value) in &self.properties {
            properties.0.push((Value::String(key.as_str().into()), value.clone()));
        }
        let mut annotations = Map::default();
        for (key, value) in &self.annotations {
            annotations.0.push((Value::Symbol(postroad_amqp_codec::Symbol::from_static(key)), value.clone()));
        }
        let message = Whole {
            header: Some(Header {
                durable: !self.nondurable,
                priority: self.priority.unwrap_or(Header::DEFAULT_PRIORITY),
                ttl: self.ttl,
                ..Header::default()
            }),
            message_annotations: (!annotations.0.is_empty()).then_some(annotations),
            properties: Some(Properties {
                message_id: self.id.clone().map(MessageId::String),
                to: self.to.clone(),
                ..Properties::default()
            }),
            application_properties: (!properties.0.is_empty()).then_some(properties),
            body: Body::Value(Value::String(self.text.as_str().into())),
            ..Whole::default()
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }
}

/// The annotations of a message, as `key=value`, but those that delay it.
pub(crate) fn notes(message: &Message) -> Vec<String> {
    let Some(section) = message.annotations() else { return Vec::new() };
    let entries = map_entries(section).unwrap().map(Result::unwrap);
    let notes = entries.filter_map(|entry| {
        let key = entry.key.as_str().filter(|key| !key.starts_with("x-opt-delivery-"))?;
        Some(format!("{key}={}", entry.value_ref().unwrap().as_str().unwrap_or_default()))
    });
    notes.collect()
}

/// A map of annotations, encoded, from `key=value` words.
pub(crate) fn noted(words: &[&str]) -> Bytes {
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    let map =
        pairs.map(|(key, value)| (Value::Symbol(Symbol::new(key).unwrap()), Value::String(value.into())));
    let mut bytes = Vec::new();
    Value::Map(Map(map.collect())).encode(&mut bytes);
    bytes.into()
}

/// The text of a message that a [`Draft`] made.
pub(crate) fn body_text(message: &Message) -> String {
    match Value::decode_all(message.body()) {
        Ok(Value::Described(described)) => match described.value {
            Value::String(text) => text.to_string(),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}
