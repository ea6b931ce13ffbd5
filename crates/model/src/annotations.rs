//! What is read of the annotations with which a client sends a message: whose they are, the kind of its destination, and
//! when it is to be delivered.

use crate::address::Kind;
use crate::id::WallMs;
use crate::message::bad_message;
use crate::refusal::{Code, Refusal};
use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::DecodeError;
use postroad_amqp_codec::message::{ValueRef, map_entries, merge_message_annotations};

/// Everything that the broker adds to a message has this prefix (README U-7).
const OWN_PREFIX: &str = "x-opt-postroad-";
/// What clients may set of it (ENV-3).
const CLIENTS_MAY_SET: [&str; 2] = ["x-opt-postroad-report", "x-opt-postroad-retain"];
/// The kind of the destination, from JMS clients (ADR-6).
const KIND: &str = "x-opt-jms-dest";
/// Milliseconds since 1970 before which the message is not to be delivered; goes before [`DELAY`] (QU-8).
const DELIVERY_TIME: &str = "x-opt-delivery-time";
/// Milliseconds after its arrival before which the message is not to be delivered (QU-8).
const DELAY: &str = "x-opt-delivery-delay";

/// Before when a message is not to be delivered (QU-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Before this time.
    Until(WallMs),
    /// Before so many milliseconds have gone by since it was taken.
    For(u64),
}

impl Delay {
    /// When a message that is taken at this time is due.
    #[must_use]
    pub const fn due(self, taken: WallMs) -> WallMs {
        match self {
            Self::Until(at) => at,
            Self::For(ms) => taken.saturating_add(ms),
        }
    }
}

/// What annotations say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Some of them are the broker's own.
    pub(crate) is_forged: bool,
    /// What a JMS client says of its destination's kind (ADR-6).
    pub(crate) to_kind: Option<Kind>,
    /// When the message is to be delivered.
    pub(crate) delay: Option<Delay>,
}

/// Reads a message-annotations section that was checked; an empty one is none.
pub(crate) fn note(annotations: &[u8]) -> Result<Noted, Refusal> {
    let mut noted = Noted::default();
    if annotations.is_empty() {
        return Ok(noted);
    }
    let mut until = None;
    for entry in map_entries(annotations).map_err(bad_message)? {
        let entry = entry.map_err(bad_message)?;
        let Some(key) = entry.key.as_str() else { continue };
        let value = || entry.value_ref().map_err(bad_message);
        match key {
            KIND => noted.to_kind = kind(value()?),
            DELIVERY_TIME => until = milliseconds(key, value()?)?.map(Delay::Until),
            DELAY => noted.delay = milliseconds(key, value()?)?.map(Delay::For),
            _ => noted.is_forged |= !is_allowed(key),
        }
    }
    noted.delay = until.or(noted.delay);
    Ok(noted)
}

const fn kind(value: ValueRef<'_>) -> Option<Kind> {
    match value {
        ValueRef::Int(0 | 2) | ValueRef::Uint(0 | 2) => Some(Kind::Queue),
        ValueRef::Int(1 | 3) | ValueRef::Uint(1 | 3) => Some(Kind::Topic),
        _ => None,
    }
}

/// A time or a length of time; `null` is as good as no annotation.
fn milliseconds(key: &str, value: ValueRef<'_>) -> Result<Option<u64>, Refusal> {
    let read = match value {
        ValueRef::Null => return Ok(None),
        ValueRef::Int(ms) | ValueRef::Timestamp(ms) => u64::try_from(ms).ok(),
        ValueRef::Uint(ms) => Some(ms),
        _ => None,
    };
    let refused = || {
        let text = format!("the annotation {key} must be a whole number of milliseconds, 0 or more");
        Refusal::new(Code::BadMessage, key, text)
    };
    read.map(Some).ok_or_else(refused)
}

/// Whether a client may set an annotation.
fn is_allowed(key: &str) -> bool {
    !key.starts_with(OWN_PREFIX) || CLIENTS_MAY_SET.contains(&key)
}

/// What a consumer adds to the annotations of a message, merged into what was added before: `added` is a bare map or a
/// section, the result a message-annotations section. An entry goes before one with the same key that was there; the
/// broker's own are left out, as they are of what a producer sends (ENV-3). Empty if there is nothing (AMQP part 3,
/// section 3.4.5).
///
/// # Errors
/// When either is no map.
pub fn merge(before: Option<&[u8]>, added: &[u8]) -> Result<Bytes, DecodeError> {
    let mut merged = BytesMut::new();
    merge_message_annotations(&mut merged, before, added, is_allowed)?;
    Ok(merged.freeze())
}

/// Writes those of a client's annotations that it may set (ENV-3).
pub(crate) fn keep_allowed(annotations: &[u8], out: &mut BytesMut) -> Result<(), DecodeError> {
    merge_message_annotations(out, None, annotations, is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_amqp_codec::{Encode, Map, Symbol, Value};

    fn noted(entries: &[(&'static str, Value)]) -> Result<Noted, Refusal> {
        let mut map = Map::default();
        for (key, value) in entries {
            map.0.push((Value::Symbol(Symbol::from_static(key)), value.clone()));
        }
        let mut section = Vec::new();
        Value::Map(map).encode(&mut section);
        note(&section)
    }

    fn delay(entries: &[(&'static str, Value)]) -> Option<Delay> {
        noted(entries).unwrap().delay
    }

    #[test]
    fn a_time_goes_before_a_delay_and_both_have_many_types() {
        for value in [Value::Timestamp(7), Value::Long(7), Value::Ulong(7), Value::Int(7), Value::Ubyte(7)] {
            assert_eq!(delay(&[(DELIVERY_TIME, value.clone())]), Some(Delay::Until(7)));
            assert_eq!(delay(&[(DELAY, value.clone())]), Some(Delay::For(7)));
            for pair in [[DELAY, DELIVERY_TIME], [DELIVERY_TIME, DELAY]] {
                assert_eq!(delay(&pair.map(|key| (key, value.clone()))), Some(Delay::Until(7)));
            }
        }
        assert_eq!(delay(&[(DELIVERY_TIME, Value::Null), (DELAY, Value::Int(3))]), Some(Delay::For(3)));
        assert_eq!(delay(&[("x-opt-other", Value::Int(3))]), None);
        assert_eq!(
            (Delay::For(u64::MAX).due(9), Delay::For(5).due(9), Delay::Until(3).due(9)),
            (u64::MAX, 14, 3)
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for value in [Value::Long(-1), Value::Timestamp(-1), Value::String("7".into()), Value::Bool(true)] {
            for key in [DELIVERY_TIME, DELAY] {
                // Also where the other one would go before it.
                let refusal = noted(&[(DELIVERY_TIME, Value::Int(1)), (key, value.clone())]).unwrap_err();
                assert_eq!((refusal.code, refusal.object.as_str()), (Code::BadMessage, key));
            }
        }
    }
}
