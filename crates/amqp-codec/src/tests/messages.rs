//! Encoded messages read in place, against the owned messages that they were made from.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::config;
use super::generate::{annotations_map, binary, properties_map, value};
use super::generate_types::{header, properties};
use crate::message::*;
use crate::{Decode, DecodeErrorKind, Encode, Map, Reader, Value, descriptor};

#[test]
fn a_first_part_announces_the_whole() {
    let data = |size: u32| [&b"\x00\x53\x75\xb0"[..], &size.to_be_bytes(), b"abc"].concat();
    let announced = |first: &[u8]| Sections::announced_len(first);
    assert_eq!(announced(&data(3)), 11);
    assert_eq!(announced(&data(1_000)), 1_008);
    assert_eq!(announced(&data(u32::MAX)), u64::from(u32::MAX) + 8);
    let behind = [&b"\x00\x53\x70\x45\x00\x53\x73\xc0\x01\x00"[..], &data(500)].concat();
    assert_eq!(announced(&behind), 518);
    // A size that is not all there, a descriptor that is not, a value of fixed width, and what is no message.
    for first in [&b"\x00\x53\x75\xb0\x00\x00"[..], b"\x00\x53", b"\x00\x53\x77\x80\x01", b"no message", b""]
    {
        assert_eq!(announced(first), first.len() as u64);
    }
}

pub(super) fn message() -> BoxedStrategy<Message> {
    let body = prop_oneof![
        Just(Body::Empty),
        vec(binary(), 1..3).prop_map(Body::Data),
        vec(vec(value(), 0..3), 1..3).prop_map(Body::Sequence),
        value().prop_map(Body::Value),
    ];
    let maps = (of(annotations_map()), of(annotations_map()), of(properties_map()), of(annotations_map()));
    (of(header()), of(properties()), maps, body)
        .prop_map(|(header, properties, maps, body)| Message {
            header,
            delivery_annotations: maps.0,
            message_annotations: maps.1,
            properties,
            application_properties: maps.2,
            body,
            footer: maps.3,
        })
        .boxed()
}

/// What a borrowed value should be, said of the owned one.
fn borrowed(value: &Value) -> Option<ValueRef<'_>> {
    Some(match value {
        Value::Null => ValueRef::Null,
        Value::Bool(v) => ValueRef::Bool(*v),
        Value::Float(v) => ValueRef::Float((*v).into()),
        Value::Double(v) => ValueRef::Float(*v),
        Value::String(v) => ValueRef::Text(v),
        Value::Symbol(v) => ValueRef::Symbol(v.as_str()),
        Value::Binary(v) => ValueRef::Binary(v),
        Value::Timestamp(v) => ValueRef::Timestamp(*v),
        Value::Uuid(v) => ValueRef::Uuid(*v),
        Value::Ubyte(_) | Value::Ushort(_) | Value::Uint(_) | Value::Ulong(_) => {
            ValueRef::Uint(value.as_u64()?)
        }
        Value::Byte(_) | Value::Short(_) | Value::Int(_) | Value::Long(_) => ValueRef::Int(value.as_i64()?),
        _ => return None,
    })
}

fn agrees(found: Option<ValueRef<'_>>, owned: Option<&Value>) {
    match (found, owned) {
        (Some(ValueRef::Float(found)), Some(owned)) => {
            let Some(ValueRef::Float(wanted)) = borrowed(owned) else { panic!("{owned:?}") };
            assert!(found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan());
        }
        (Some(ValueRef::Other(raw)), Some(owned)) => assert_eq!(&Value::decode_all(raw).unwrap(), owned),
        (found, owned) => assert_eq!(found, owned.and_then(borrowed)),
    }
}

/// The bytes of one section alone.
fn section<T: Encode>(code: u64, value: &T) -> Vec<u8> {
    let mut out = vec![0];
    code.encode(&mut out);
    value.encode(&mut out);
    out
}

fn check_spans(message: &Message, bytes: &[u8], found: &Sections) {
    let of = |span: Option<Span>| span.map(|span| span.of(bytes).to_vec());
    let map = |code, map: &Option<Map>| map.as_ref().map(|map| section(code, map));
    assert_eq!(of(found.header), message.header.as_ref().map(|h| h.to_bytes().to_vec()));
    assert_eq!(of(found.properties), message.properties.as_ref().map(|p| p.to_bytes().to_vec()));
    let annotations = map(descriptor::DELIVERY_ANNOTATIONS, &message.delivery_annotations);
    assert_eq!(of(found.delivery_annotations), annotations);
    let annotations = map(descriptor::MESSAGE_ANNOTATIONS, &message.message_annotations);
    assert_eq!(of(found.message_annotations), annotations);
    let application = map(descriptor::APPLICATION_PROPERTIES, &message.application_properties);
    assert_eq!(of(found.application_properties), application);
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn messages_round_trip(message in message()) {
        prop_assert_eq!(Message::decode_all(&message.to_bytes()).unwrap(), message);
    }

    #[test]
    fn sections_lie_where_they_were_written(message in message()) {
        let bytes = message.to_bytes();
        let found = Sections::scan(&bytes).unwrap();
        check_spans(&message, &bytes, &found);
        let mut body = Vec::new();
        message.body.encode(&mut body);
        prop_assert_eq!(found.body.map(|span| span.of(&bytes).to_vec()).unwrap_or_default(), body);
        let bare = Message {
            properties: message.properties.clone(),
            application_properties: message.application_properties.clone(),
            body: message.body.clone(),
            ..Message::default()
        };
        prop_assert_eq!(found.bare_message().of(&bytes), &bare.to_bytes()[..]);
        let footer = message.footer.as_ref().map(|map| section(descriptor::FOOTER, map));
        prop_assert_eq!(found.footer.map(|span| span.of(&bytes).to_vec()), footer);
    }

    /// A piece of a message tells the same of the sections in front of the body as the whole, or nothing yet.
    #[test]
    fn the_head_of_a_message_can_be_scanned_first(message in message(), cut in any::<prop::sample::Index>()) {
        let bytes = message.to_bytes();
        let piece = &bytes[..cut.index(bytes.len() + 1)];
        let whole = Sections::scan(&bytes).unwrap();
        if let Some(head) = Sections::scan_head(piece).unwrap() {
            check_spans(&message, piece, &head);
            prop_assert_eq!(head.body_kind, whole.body_kind);
        } else {
            prop_assert!(whole.body.is_none_or(|body| piece.len() < body.range().start + 5));
        }
    }

    #[test]
    fn lookups_agree_with_the_map(map in properties_map(), key in "[a-z]{1,2}") {
        let bytes = section(descriptor::APPLICATION_PROPERTIES, &map);
        agrees(find_in_map(&bytes, &key), map.get(&key));
        agrees(find_in_map(&map.to_bytes(), &key), map.get(&key));
        let entries: Vec<_> = map_entries(&bytes).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(entries.len(), map.len());
        for (entry, (key, value)) in entries.iter().zip(map.iter()) {
            agrees(Some(entry.key), Some(key));
            agrees(entry.value_ref().ok(), Some(value));
            agrees(find_in_map(&bytes, key.as_str().unwrap()), Some(value));
            prop_assert_eq!(entry.raw.len(), key.to_bytes().len() + entry.value.len());
        }
    }

    #[test]
    fn properties_read_in_place(p in properties()) {
        let bytes = p.to_bytes();
        let read = PropertiesRef::parse(&bytes).unwrap();
        agrees(read.message_id(), p.message_id.clone().map(Value::from).as_ref());
        agrees(read.correlation_id(), p.correlation_id.clone().map(Value::from).as_ref());
        prop_assert_eq!(read.user_id(), p.user_id.as_deref());
        prop_assert_eq!(read.to(), p.to.as_deref());
        prop_assert_eq!(read.subject(), p.subject.as_deref());
        prop_assert_eq!(read.reply_to(), p.reply_to.as_deref());
        prop_assert_eq!(read.content_type(), p.content_type.as_ref().map(|s| s.as_str()));
        prop_assert_eq!(read.content_encoding(), p.content_encoding.as_ref().map(|s| s.as_str()));
        prop_assert_eq!(read.absolute_expiry_time(), p.absolute_expiry_time.map(|t| t.0));
        prop_assert_eq!(read.creation_time(), p.creation_time.map(|t| t.0));
        prop_assert_eq!(read.group_id(), p.group_id.as_deref());
        prop_assert_eq!(read.group_sequence(), p.group_sequence);
        prop_assert_eq!(read.reply_to_group_id(), p.reply_to_group_id.as_deref());
    }

    /// Annotations are merged as a map would merge them, without a change to those that are only passed on.
    #[test]
    fn annotations_are_merged(existing in of(annotations_map()), added in vec(("[a-d]{1}", any::<u64>()), 0..4)) {
        let mut existing = existing;
        if let Some(map) = &mut existing {
            map.insert(crate::Symbol::from("a"), "replaced or kept");
        }
        let raw = existing.as_ref().map(|map| section(descriptor::MESSAGE_ANNOTATIONS, map));
        let mut out = Vec::new();
        let pairs = added.iter().map(|(key, value)| (key.as_str(), value));
        write_message_annotations(&mut out, raw.as_deref(), pairs).unwrap();

        let is_added = |key: &Value| added.iter().any(|(new, _)| key.as_str() == Some(new));
        let kept = existing.iter().flat_map(|map| map.0.clone()).filter(|(key, _)| !is_added(key));
        let new = added.iter().map(|(key, value)| (crate::Symbol::new(key).unwrap().into(), (*value).into()));
        let wanted: Map = kept.chain(new).collect();
        if wanted.is_empty() {
            prop_assert!(out.is_empty());
        } else {
            prop_assert_eq!(out, section(descriptor::MESSAGE_ANNOTATIONS, &wanted));
        }
    }

    /// Changes go over what is there, the latest of a key over the earlier ones; what may not be changed stays.
    #[test]
    fn changes_of_annotations_are_merged(existing in of(annotations_map()), changes in vec(("[a-d]", any::<u64>()), 0..6)) {
        let mut existing = existing;
        if let Some(map) = &mut existing {
            map.insert(crate::Symbol::from("a"), "changed or kept");
        }
        let raw = existing.as_ref().map(|map| section(descriptor::MESSAGE_ANNOTATIONS, map));
        let symbol = |key: &str| Value::from(crate::Symbol::new(key).unwrap());
        let map = Map(changes.iter().map(|(key, value)| (symbol(key), Value::from(*value))).collect());
        let mut bare = Vec::new();
        map.encode(&mut bare);
        let mut out = Vec::new();
        merge_message_annotations(&mut out, raw.as_deref(), &bare, |key| key != "d").unwrap();

        let mut changed: Vec<(Value, Value)> = Vec::new();
        for (key, value) in map.0.into_iter().filter(|(key, _)| key.as_str() != Some("d")) {
            match changed.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => changed.push((key, value)),
            }
        }
        let is_changed = |key: &Value| changed.iter().any(|(new, _)| key.as_str().is_some() && key.as_str() == new.as_str());
        let kept: Vec<_> = existing.iter().flat_map(|map| map.0.clone()).filter(|(key, _)| !is_changed(key)).collect();
        let wanted: Map = kept.into_iter().chain(changed).collect();
        if wanted.is_empty() {
            prop_assert!(out.is_empty());
        } else {
            prop_assert_eq!(out, section(descriptor::MESSAGE_ANNOTATIONS, &wanted));
        }
    }

    /// So are application properties, with strings as keys.
    #[test]
    fn application_properties_are_merged(kept in vec("[e-h]", 0..4), added in vec(("[a-d]", any::<u64>()), 1..4)) {
        let kept: Map = kept.iter().map(|key| (Value::from(key.as_str()), Value::from(key.as_str()))).collect();
        let mut old = kept.clone();
        old.0.push((added[0].0.as_str().into(), "replaced".into()));
        let raw = section(descriptor::APPLICATION_PROPERTIES, &old);
        let mut out = Vec::new();
        let pairs = added.iter().map(|(key, value)| (key.as_str(), value));
        write_application_properties(&mut out, Some(&raw), pairs.clone()).unwrap();
        let new = pairs.map(|(key, value)| (Value::from(key), Value::from(*value)));
        let wanted: Map = kept.0.into_iter().chain(new).collect();
        prop_assert_eq!(out, section(descriptor::APPLICATION_PROPERTIES, &wanted));
    }
}

#[test]
fn sections_out_of_order_are_refused() {
    let header = Header::default().to_bytes();
    let properties = Properties::default().to_bytes();
    let data = section(descriptor::DATA, &bytes::Bytes::from_static(b"x"));
    let value = section(descriptor::AMQP_VALUE, &Value::Null);
    let sequence = section(descriptor::AMQP_SEQUENCE, &Value::List(vec![]));
    let order = |parts: &[&[u8]]| Sections::scan(&parts.concat());
    assert!(order(&[&header, &properties, &data, &data]).is_ok());
    assert!(order(&[&sequence, &sequence]).is_ok());
    assert!(order(&[]).is_ok());
    let wrong: [&[&[u8]]; 5] = [
        &[&properties, &header],
        &[&header, &header],
        &[&value, &value],
        &[&data, &value],
        &[&data, &properties],
    ];
    for parts in wrong {
        let error = order(parts).unwrap_err();
        assert!(matches!(error.kind, DecodeErrorKind::SectionOrder { .. }), "{error}");
        assert_eq!(error.offset, parts[0].len());
    }
}

#[test]
fn sections_of_the_wrong_type_are_refused() {
    let bad = |code, value: &Value| Sections::scan(&section(code, value)).unwrap_err().to_string();
    let list = Value::List(vec![]);
    assert_eq!(
        bad(descriptor::DATA, &"text".into()),
        "at byte 3: expected a section with a binary, found format code 0xa1"
    );
    assert!(bad(descriptor::APPLICATION_PROPERTIES, &list).contains("expected a section with a map"));
    assert!(bad(descriptor::PROPERTIES, &Value::Null).contains("expected a section with a list"));
    assert!(bad(descriptor::OPEN, &list).contains("expected a message section"));
    let wrong_subject = section(
        descriptor::PROPERTIES,
        &Value::List(vec![Value::Null; 3].into_iter().chain([5_u32.into()]).collect()),
    );
    let error = PropertiesRef::parse(&wrong_subject).unwrap_err();
    assert_eq!(error.to_string(), "at byte 9: expected string, found format code 0x52");
}

#[test]
fn damaged_maps_end_the_search() {
    assert_eq!(find_in_map(&[], "a"), None);
    assert_eq!(find_in_map(&[0xc1, 3, 2, 0xa1, 9], "a"), None);
    let mut entries = map_entries(&[0xc1, 3, 2, 0xa1, 9]).unwrap();
    assert!(entries.next().unwrap().is_err());
    assert!(entries.next().is_none());
    let mut out = vec![1];
    assert!(write_message_annotations(&mut out, Some(&[0x45]), [("a", 1_u32)]).is_err());
    assert_eq!(out, [1]);
    assert_eq!(ValueRef::read(&mut Reader::new(&[0x40])).unwrap(), ValueRef::Null);
}
