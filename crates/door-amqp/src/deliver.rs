//! Deliveries: the header, and the annotations of the client and the broker as one section (README U-7, CH-3, DUP-13,
//! QU-2, RET-6, DLQ-3).

use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::message::{Header, write_message_annotations};
use postroad_amqp_codec::value::Timestamp;
use postroad_amqp_codec::{Buffer, Encode, Symbol};
use postroad_engine::{Annotations, Delivery};

/// The value of an annotation.
#[derive(Clone, Copy, Debug)]
enum Note<'a> {
    Text(&'a str),
    Symbol(&'a str),
    Ulong(u64),
    Int(u32),
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
            Self::Int(number) => i32::try_from(number).unwrap_or(i32::MAX).encode(out),
            Self::Bool(value) => value.encode(out),
            Self::Time(at) => Timestamp(i64::try_from(at).unwrap_or(i64::MAX)).encode(out),
        }
    }
}

type Entry<'a> = Option<(&'static str, Note<'a>)>;

/// The payload of a delivery: what stands before the stored bytes, and those bytes, which are shared. `scratch` is kept
/// from delivery to delivery for its memory.
pub(crate) fn payload(delivery: &Delivery, broker: &str, scratch: &mut BytesMut) -> [Bytes; 2] {
    write_header(delivery, scratch);
    let message = &delivery.message;
    let merged = write_annotations(&delivery.annotations, broker, message.annotations(), scratch);
    let stored = if merged { message.bare() } else { message.bytes().clone() };
    [scratch.split().freeze(), stored]
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
fn write_annotations(added: &Annotations, broker: &str, sent: Option<&[u8]>, out: &mut BytesMut) -> bool {
    let usual = usual(added);
    let rare = dead_letter(added, broker);
    let entries = usual.iter().chain(rare.iter().flatten()).flatten().copied();
    if entries.clone().next().is_none() {
        return false;
    }
    // The client's annotations were read when they came in, so this fails for damage in memory only.
    write_message_annotations(out, sent, entries).is_ok()
}

fn usual(added: &Annotations) -> [Entry<'_>; 8] {
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

/// The dead-letter header (DLQ-3).
fn dead_letter<'a>(added: &'a Annotations, broker: &'a str) -> Option<[Entry<'a>; 11]> {
    let dead = added.dead.as_deref()?;
    let object = dead.named_object.as_deref();
    Some([
        Some(("x-opt-postroad-dl-reason", Note::Symbol(&dead.reason))),
        Some(("x-opt-postroad-dl-reason-code", Note::Int(dead.reason_code))),
        Some(("x-opt-postroad-dl-dest", Note::Text(&dead.dest))),
        Some(("x-opt-postroad-dl-event-id", Note::Ulong(dead.event_id))),
        object.map(|name| ("x-opt-postroad-dl-named-object", Note::Text(name))),
        dead.address.as_deref().map(|address| ("x-opt-postroad-dl-address", Note::Text(address))),
        Some(("x-opt-postroad-dl-component", Note::Text(&dead.component))),
        Some(("x-opt-postroad-dl-by", Note::Text(broker))),
        Some(("x-opt-postroad-dl-time", Note::Time(dead.time))),
        Some(("x-opt-postroad-dl-count", Note::Int(dead.count))),
        Some(("x-opt-postroad-dl-text", Note::Text(&dead.text))),
    ])
}
