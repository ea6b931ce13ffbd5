//! The byte form of records: postcard, one record after the other, to the end of the frame.

use crate::Record;
use crate::columns::put_number;
use bytes::Bytes;
use postroad_model::id::BodyId;
use serde::Deserialize;

/// Bytes that the records beside a body usually take.
const ROOM_BESIDE_BODY: usize = 128;

/// A journal frame whose payload is no list of records.
#[derive(Debug, thiserror::Error)]
#[error("record {index} of the step can't be read at byte {offset}: {source}")]
pub struct DecodeError {
    /// Which record of the step, from 0.
    pub index: usize,
    /// Where it begins in the payload, in bytes.
    pub offset: usize,
    /// What is wrong.
    pub source: postcard::Error,
}

/// The number of [`Record::Body`] among the records.
const BODY: u8 = 6;

/// A [`Record::Body`] without a copy of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct BodyRef<'a> {
    /// Its broker-wide number.
    pub id: BodyId,
    /// Bytes of the message-annotations section at the start.
    pub annotations: u32,
    /// The sections, encoded as AMQP 1.0.
    #[serde(borrow)]
    pub bytes: &'a [u8],
}

/// What a step holds, one after the other.
#[allow(clippy::large_enum_variant)] // looked at one by one, and never kept
#[derive(Clone, Debug, PartialEq)]
pub enum Item<'a> {
    /// The bytes of a message, which begin at this byte of the payload.
    Body(BodyRef<'a>, u32),
    /// Any other record.
    Record(Record),
}

/// Appends a body; the byte of the payload at which its own bytes begin.
pub fn append_body(body: &BodyRef<'_>, step: &mut Vec<u8>) -> u32 {
    // Else the step grows by doubling while the body goes in, and copies itself each time.
    step.reserve(body.bytes.len() + ROOM_BESIDE_BODY);
    // As the record would be, but with the bytes copied as one.
    step.push(BODY);
    put_number(body.id.0, step);
    put_number(u64::from(body.annotations), step);
    put_number(body.bytes.len() as u64, step);
    step.extend_from_slice(body.bytes);
    u32::try_from(step.len() - body.bytes.len()).unwrap_or(u32::MAX)
}

/// Appends the byte form of `record` to the payload of a step.
pub fn append(record: &Record, step: &mut Vec<u8>) {
    if let Record::Body { id, annotations, bytes } = record {
        append_body(&BodyRef { id: *id, annotations: *annotations, bytes }, step);
        return;
    }
    // Invariant: a Vec takes any number of bytes, and every field has a fixed or prefixed length.
    let taken = std::mem::take(step);
    *step = postcard::to_extend(record, taken).expect("a record always has a byte form");
}

/// Reads the records of a step in order.
///
/// # Errors
/// [`DecodeError`] at the first record that can't be read.
pub fn decode_step(payload: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut records = Vec::new();
    read_step(payload, &mut |item| {
        records.push(match item {
            Item::Body(BodyRef { id, annotations, bytes }, _) => {
                Record::Body { id, annotations, bytes: Bytes::copy_from_slice(bytes) }
            }
            Item::Record(record) => record,
        });
    })?;
    Ok(records)
}

/// Reads what a step holds in order, without copying bodies.
///
/// # Errors
/// [`DecodeError`] at the first record that can't be read; `visit` has seen those before it.
pub fn read_step<'a>(payload: &'a [u8], visit: &mut dyn FnMut(Item<'a>)) -> Result<(), DecodeError> {
    let (mut rest, mut index) = (payload, 0);
    while let Some(&first) = rest.first() {
        let offset = payload.len() - rest.len();
        let failed = |source| DecodeError { index, offset, source };
        if first == BODY {
            let (body, after) = postcard::take_from_bytes::<BodyRef<'a>>(&rest[1..]).map_err(failed)?;
            let at = payload.len() - after.len() - body.bytes.len();
            visit(Item::Body(body, u32::try_from(at).unwrap_or(u32::MAX)));
            rest = after;
        } else {
            let (record, after) = postcard::take_from_bytes(rest).map_err(failed)?;
            visit(Item::Record(record));
            rest = after;
        }
        index += 1;
    }
    Ok(())
}

/// Definitions as JSON text inside a record.
pub(crate) mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value).map_err(S::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}
