//! Deliveries: the header, and the annotations of the client and the broker as one section (README U-7, CH-3, DUP-13,
//! QU-2, RET-6, DLQ-3); of dead letters, their header as properties, too, where that is wanted (DLQ-6).

use crate::config::{DeadLetterCompat, DoorConfig};
use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::message::{Header, write_application_properties, write_message_annotations};
use postroad_amqp_codec::value::Timestamp;
use postroad_amqp_codec::{Buffer, Encode, Symbol};
use postroad_engine::{Annotations, DeadLetter, Delivery, HeaderValue};
use postroad_model::message::Message;

/// The value of an annotation or a property.
#[derive(Clone, Copy, Debug)]
enum Note<'a> {
    Text(&'a str),
    Symbol(&'a str),
    Ulong(u64),
    Long(u64),
    Int(i32),
    Bool(bool),
    Time(u64),
}

impl Encode for Note<'_> {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match *self {
            Self::Text(text) => text.encode(out),
            Self::Symbol(text) => match Symbol::new(text) {
                Ok(symbol) => symbol.encode(out),
                Err(_) => text.encode(out),
            },
            Self::Ulong(number) => number.encode(out),
            Self::Long(number) => i64::try_from(number).unwrap_or(i64::MAX).encode(out),
            Self::Int(number) => number.encode(out),
            Self::Bool(value) => value.encode(out),
            Self::Time(at) => Timestamp(i64::try_from(at).unwrap_or(i64::MAX)).encode(out),
        }
    }
}

/// The payload of a delivery: what stands before the stored bytes, and those bytes, which are shared. `scratch` is kept
/// from delivery to delivery for its memory.
pub(crate) fn payload(delivery: &Delivery, config: &DoorConfig, scratch: &mut BytesMut) -> [Bytes; 2] {
    write_header(delivery, scratch);
    let message = &delivery.message;
    let merged = write_annotations(&delivery.annotations, config, message.annotations(), scratch);
    let exposed = delivery.annotations.dead.as_deref().filter(|_| config.dead_letters.expose_properties);
    let stored = match exposed {
        Some(dead) if merged => write_exposed(dead, &config.broker, message, scratch),
        _ if merged => message.bare(),
        _ => message.bytes().clone(),
    };
    [scratch.split().freeze(), stored]
}

/// Writes a dead letter's header among its application properties; what comes behind them (DLQ-6).
fn write_exposed(dead: &DeadLetter, broker: &str, message: &Message, out: &mut BytesMut) -> Bytes {
    let (before, behind) = message.around_application_properties();
    let start = out.len();
    out.extend_from_slice(&before);
    // JMS knows no unsigned numbers and no times.
    let fields = dead.header(Some(broker)).map(|field| {
        let note = match field.value {
            HeaderValue::Word(text) | HeaderValue::Text(text) => Note::Text(text),
            HeaderValue::Int(number) => Note::Int(number),
            HeaderValue::Id(number) | HeaderValue::Time(number) => Note::Long(number),
        };
        (field.property, note)
    });
    let sent = Some(message.application_properties()).filter(|section| !section.is_empty());
    // The client's properties were read when they came in, so this fails for damage in memory only.
    if write_application_properties(out, sent, fields).is_err() {
        out.truncate(start);
        return message.bare();
    }
    behind
}

fn write_header(delivery: &Delivery, out: &mut BytesMut) {
    let header = Header {
        durable: delivery.durable,
        priority: delivery.priority,
        ttl: delivery.ttl_ms,
        first_acquirer: false,
        delivery_count: delivery.delivery_count,
    };
    if header != Header::default() {
        header.encode(out);
    }
}

/// Writes the section of the client's annotations and the broker's; whether it did.
fn write_annotations(
    added: &Annotations,
    config: &DoorConfig,
    sent: Option<&[u8]>,
    out: &mut BytesMut,
) -> bool {
    let Some(dead) = added.dead.as_deref() else {
        return write_section(sent, usual(added).into_iter().flatten(), out);
    };
    let queue = dead.named_object.as_ref().map(|object| format!("{}::{object}", dead.dest));
    let original = (config.dead_letters.compat == Some(DeadLetterCompat::Artemis)).then(|| {
        let queue = queue.as_deref().unwrap_or(&dead.dest);
        [("x-opt-ORIG-ADDRESS", Note::Text(&dead.dest)), ("x-opt-ORIG-QUEUE", Note::Text(queue))]
    });
    let header = dead.header(Some(&config.broker)).map(|field| {
        let note = match field.value {
            HeaderValue::Word(text) => Note::Symbol(text),
            HeaderValue::Text(text) => Note::Text(text),
            HeaderValue::Int(number) => Note::Int(number),
            HeaderValue::Id(number) => Note::Ulong(number),
            HeaderValue::Time(at) => Note::Time(at),
        };
        (field.annotation, note)
    });
    let usual = usual(added).into_iter().flatten();
    write_section(sent, usual.chain(header).chain(original.into_iter().flatten()), out)
}

fn write_section<'a>(
    sent: Option<&[u8]>,
    added: impl Iterator<Item = (&'static str, Note<'a>)> + Clone,
    out: &mut BytesMut,
) -> bool {
    if added.clone().next().is_none() {
        return false;
    }
    // The client's annotations were read when they came in, so this fails for damage in memory only.
    write_message_annotations(out, sent, added).is_ok()
}

/// What not only dead letters have.
fn usual(added: &Annotations) -> [Option<(&'static str, Note<'_>)>; 8] {
    let channel = added.channel.as_ref();
    let origin = added.origin.as_ref();
    [
        channel.map(|(name, _)| ("x-opt-postroad-channel", Note::Text(name))),
        channel.map(|&(_, id)| ("x-opt-postroad-event-id", Note::Ulong(id))),
        origin.map(|(place, _, _)| ("x-opt-postroad-origin-place", Note::Text(place))),
        origin.map(|(_, store, _)| ("x-opt-postroad-origin-store", Note::Text(store))),
        origin.map(|&(_, _, id)| ("x-opt-postroad-origin-id", Note::Ulong(id))),
        added.archive_duplicate.then_some(("x-opt-postroad-archive-duplicate", Note::Bool(true))),
        added.in_delivery.then_some(("x-opt-postroad-in-delivery", Note::Bool(true))),
        added.events_skipped.map(|count| ("x-opt-postroad-events-skipped", Note::Ulong(count))),
    ]
}
