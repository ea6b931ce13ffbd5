//! Nothing that a peer sends makes the codec panic, and what it does accept means something: it can be written again
//! and reads back the same.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::config;
use super::generate::value;
use super::generate_types::{performative, sasl_body};
use super::messages::message;
use crate::frame::{FrameBody, ProtocolHeader, decode_frame, split_frame, write_frame, write_sasl_frame};
use crate::message::*;
use crate::{Decode, Encode, Reader, Value};

/// A change to bytes on their way.
#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Truncate(Index),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        1 => any::<Index>().prop_map(Damage::Remove),
        1 => any::<Index>().prop_map(Damage::Truncate),
    ];
    vec(one, 1..4)
}

fn apply(bytes: &[u8], changes: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        let len = bytes.len();
        if len == 0 {
            break;
        }
        match change {
            Damage::Set(at, byte) => bytes[at.index(len)] = *byte,
            Damage::Insert(at, byte) => bytes.insert(at.index(len), *byte),
            Damage::Remove(at) => drop(bytes.remove(at.index(len))),
            Damage::Truncate(at) => bytes.truncate(at.index(len)),
        }
    }
    bytes
}

/// A value that is only checked is refused where it would be if it were decoded, and ends at the same place.
fn check_agrees(bytes: &[u8]) {
    let (mut checked, mut decoded) = (Reader::new(bytes), Reader::new(bytes));
    let check = checked.check_value();
    assert_eq!(check, Value::decode(&mut decoded).map(drop));
    if check.is_ok() {
        assert_eq!(checked.position(), decoded.position());
    }
}

/// Everything that reads bytes of a peer, one after the other.
fn read_everything(bytes: &[u8]) {
    again::<Value>(bytes);
    check_agrees(bytes);
    again::<Message>(bytes);
    let _ = Reader::new(bytes).skip_value();
    let _ = ProtocolHeader::decode(bytes);
    if let Ok(sections) = Sections::scan(bytes) {
        assert!(sections.bare_message().range().end <= bytes.len());
        let _ = PropertiesRef::parse(sections.properties.unwrap_or_default().of(bytes));
    }
    let _ = Sections::scan_head(bytes);
    let _ = find_in_map(bytes, "a");
    let _ = map_entries(bytes).map(Iterator::count);
    let _ = write_message_annotations(&mut Vec::new(), Some(bytes), [("a", 1_u32)]);
    if let Ok(properties) = PropertiesRef::parse(bytes) {
        let _ = (
            properties.message_id(),
            properties.to(),
            properties.content_type(),
            properties.group_sequence(),
        );
    }
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = split_frame(&mut input, 4096) {
        read_frame(frame);
    }
    read_frame(Bytes::copy_from_slice(bytes));
}

/// What decodes is a value that can be encoded, and that value decodes to itself.
fn again<T: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = T::decode_all(bytes) {
        assert_eq!(T::decode_all(&value.to_bytes()).unwrap(), value);
    }
}

fn read_frame(frame: Bytes) {
    if let Ok(FrameBody::Amqp { performative, .. }) = decode_frame(frame).map(|frame| frame.body) {
        assert_eq!(Decode::decode_all(&performative.to_bytes()), Ok(performative));
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..64)) {
        read_everything(&bytes);
    }

    /// Bytes that are format codes and small sizes more often than not.
    #[test]
    fn plausible_bytes(bytes in vec(prop_oneof![
        Just(0x00_u8), Just(0x53), 0x10..0x19_u8, 0x23..0x35_u8, 0x40..0x46_u8, 0x50..0x57_u8, 0x70..0x79_u8,
        Just(0xa0), Just(0xa1), Just(0xa3), Just(0xc0), Just(0xc1), Just(0xe0), 0..12_u8,
    ], 0..64)) {
        read_everything(&bytes);
    }

    #[test]
    fn damaged_frames(body in performative(), payload in vec(any::<u8>(), 0..8), changes in damage()) {
        let mut frame = Vec::new();
        write_frame(&mut frame, 1, &body, payload.len());
        frame.extend(payload);
        let mut damaged = apply(&frame, &changes);
        read_everything(&damaged);
        // The size is right again, so that the damage behind it is looked at.
        if let (Some(size), Ok(len)) = (damaged.get_mut(..4), u32::try_from(frame.len())) {
            size.copy_from_slice(&len.to_be_bytes());
            damaged.resize(frame.len(), 0x40);
            read_frame(damaged.into());
        }
    }

    #[test]
    fn damaged_messages(message in message(), changes in damage()) {
        read_everything(&apply(&message.to_bytes(), &changes));
    }

    #[test]
    fn damaged_values(value in value(), changes in damage()) {
        read_everything(&apply(&value.to_bytes(), &changes));
    }

    #[test]
    fn damaged_sasl_frames(body in sasl_body(), changes in damage()) {
        let mut frame = Vec::new();
        write_sasl_frame(&mut frame, &body);
        read_everything(&apply(&frame, &changes));
    }

    /// Every proper prefix of a value is refused, and said to be too short.
    #[test]
    fn prefixes(value in value(), cut in any::<Index>()) {
        let bytes = value.to_bytes();
        let prefix = &bytes[..cut.index(bytes.len())];
        let error = Value::decode_all(prefix).unwrap_err();
        let is_truncated = matches!(error.kind, crate::DecodeErrorKind::Truncated { .. });
        prop_assert!(is_truncated, "{}", error);
    }
}
