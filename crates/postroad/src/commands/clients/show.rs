//! Messages as people and programs see them.

use std::io::{self, Write};

use postroad_client::Delivery;
use postroad_client::codec::message::{Body, Message, MessageId};
use postroad_client::codec::{Map, Value};
use serde_json::{Map as JsonMap, Value as Json};

/// How messages are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The body, one line each.
    Body,
    /// Everything, several lines each.
    Full,
    /// One JSON object per line.
    Json,
}

impl Style {
    pub(super) const fn of(json: bool, verbose: bool) -> Self {
        match (json, verbose) {
            (true, _) => Self::Json,
            (false, true) => Self::Full,
            (false, false) => Self::Body,
        }
    }
}

/// Prints one message. What is no AMQP message is shown as bytes.
pub(super) fn print(out: &mut impl Write, delivery: &Delivery, style: Style) -> io::Result<()> {
    let message = match delivery.message() {
        Ok(message) if delivery.format == 0 => message,
        _ => {
            let body = Body::Data(vec![delivery.payload.clone()]);
            Message { body, ..Message::default() }
        }
    };
    match style {
        Style::Body => writeln!(out, "{}", body_text(&message.body)),
        Style::Json => writeln!(out, "{}", to_json(&message)),
        Style::Full => full(out, &message),
    }
}

fn full(out: &mut impl Write, message: &Message) -> io::Result<()> {
    writeln!(out, "{}", body_text(&message.body))?;
    if let Json::Object(fields) = to_json(message) {
        for (key, value) in fields.iter().filter(|(key, _)| *key != "body") {
            match value {
                Json::Object(entries) => {
                    for (name, value) in entries {
                        writeln!(out, "  {key}.{name}: {}", plain(value))?;
                    }
                }
                value => writeln!(out, "  {key}: {}", plain(value))?,
            }
        }
    }
    Ok(())
}

fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The message as a JSON object: header fields, properties, annotations, body.
fn to_json(message: &Message) -> Json {
    let mut fields = JsonMap::new();
    let header = message.header.clone().unwrap_or_default();
    if let Some(properties) = &message.properties {
        let text = |text: &Option<String>| text.clone().map(Json::String);
        let id = |id: &Option<MessageId>| id.clone().map(|id| value_json(&id.into()));
        let time = |time: Option<i64>| time.map(Json::from);
        add(&mut fields, "message_id", id(&properties.message_id));
        add(&mut fields, "correlation_id", id(&properties.correlation_id));
        add(&mut fields, "to", text(&properties.to));
        add(&mut fields, "subject", text(&properties.subject));
        add(&mut fields, "reply_to", text(&properties.reply_to));
        let content_type = properties.content_type.as_ref().map(|kind| kind.as_str().into());
        add(&mut fields, "content_type", content_type);
        add(&mut fields, "creation_time", time(properties.creation_time.map(|time| time.0)));
        add(&mut fields, "expiry_time", time(properties.absolute_expiry_time.map(|time| time.0)));
        add(&mut fields, "group_id", text(&properties.group_id));
    }
    add(&mut fields, "durable", Some(header.durable.into()));
    add(&mut fields, "priority", Some(header.priority.into()));
    add(&mut fields, "ttl_ms", header.ttl.map(Json::from));
    add(&mut fields, "delivery_count", Some(header.delivery_count.into()));
    add(&mut fields, "properties", message.application_properties.as_ref().map(map_json));
    add(&mut fields, "annotations", message.message_annotations.as_ref().map(map_json));
    fields.insert("body".to_owned(), body_json(&message.body));
    Json::Object(fields)
}

fn add(fields: &mut JsonMap<String, Json>, key: &str, value: Option<Json>) {
    if let Some(value) = value {
        fields.insert(key.to_owned(), value);
    }
}

fn map_json(map: &Map) -> Json {
    Json::Object(map.iter().map(|(key, value)| (value_text(key), value_json(value))).collect())
}

fn value_text(value: &Value) -> String {
    match value_json(value) {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

/// The nearest JSON value; bytes as text where they are text, else in hexadecimal.
fn value_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Float(number) => f64::from(*number).into(),
        Value::Double(number) => (*number).into(),
        Value::Char(letter) => letter.to_string().into(),
        Value::Timestamp(ms) => (*ms).into(),
        Value::Uuid(id) => uuid_text(id).into(),
        Value::Binary(bytes) => bytes_text(bytes).into(),
        Value::String(text) => text.as_str().into(),
        Value::Symbol(symbol) => symbol.as_str().into(),
        Value::List(items) => items.iter().map(value_json).collect(),
        Value::Map(map) => map_json(map),
        Value::Array(array) => array.elements().iter().map(value_json).collect(),
        Value::Described(described) => value_json(&described.value),
        Value::Decimal32(bytes) => hex(bytes).into(),
        Value::Decimal64(bytes) => hex(bytes).into(),
        Value::Decimal128(bytes) => hex(bytes).into(),
        number => {
            number.as_u64().map(Json::from).or_else(|| number.as_i64().map(Json::from)).unwrap_or_default()
        }
    }
}

fn body_json(body: &Body) -> Json {
    match body {
        Body::Empty => Json::Null,
        Body::Data(parts) => bytes_text(&parts.concat()).into(),
        Body::Sequence(lists) => lists.iter().flatten().map(value_json).collect(),
        Body::Value(value) => value_json(value),
    }
}

fn body_text(body: &Body) -> String {
    match body_json(body) {
        Json::Null => String::new(),
        other => plain(&other),
    }
}

fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text.to_owned(),
        _ => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn uuid_text(id: &[u8; 16]) -> String {
    let text = hex(id);
    let part = |from, to| text.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// A summary at the end of a command, for a program or a person.
pub(super) fn summary(out: &mut impl Write, json: bool, fields: &Json, text: &str) -> io::Result<()> {
    if json { writeln!(out, "{fields}") } else { writeln!(out, "{text}") }
}

/// `1 message`, `2 messages`.
pub(super) fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}

#[cfg(test)]
mod tests {
    use postroad_client::codec::message::Properties;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_has_the_nearest_types() {
        let mut properties = Map::new();
        properties.insert("n", 5_i64);
        properties.insert("u", Value::Uuid([1; 16]));
        let message = Message {
            properties: Some(Properties { message_id: Some(MessageId::Ulong(7)), ..Properties::default() }),
            application_properties: Some(properties),
            body: Body::Data(vec![vec![0xff, 0].into()]),
            ..Message::default()
        };
        let expected = json!({
            "message_id": 7, "durable": false, "priority": 4, "delivery_count": 0,
            "properties": {"n": 5, "u": "01010101-0101-0101-0101-010101010101"}, "body": "ff00",
        });
        assert_eq!(to_json(&message), expected);
    }

    #[test]
    fn bodies_are_one_line() {
        assert_eq!(body_text(&Body::Value("hi".into())), "hi");
        assert_eq!(body_text(&Body::Value(Value::List(vec![1_i32.into(), true.into()]))), "[1,true]");
        assert_eq!(body_text(&Body::Empty), "");
    }
}
