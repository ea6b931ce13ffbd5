//! The byte form of records: postcard, one record after the other, to the end of the frame.

use crate::Record;

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

/// Appends the byte form of `record` to the payload of a step.
pub fn append(record: &Record, step: &mut Vec<u8>) {
    if let Record::Body { bytes, .. } = record {
        // Else the step grows by doubling while the body goes in, and copies itself each time.
        step.reserve(bytes.len() + ROOM_BESIDE_BODY);
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
    let mut rest = payload;
    while !rest.is_empty() {
        let offset = payload.len() - rest.len();
        let (record, after) = postcard::take_from_bytes(rest).map_err(|source| DecodeError {
            index: records.len(),
            offset,
            source,
        })?;
        records.push(record);
        rest = after;
    }
    Ok(records)
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
