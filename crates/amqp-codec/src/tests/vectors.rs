//! Bytes that are known beforehand: examples of the specification, and encodings worked out by hand.

use crate::message::{Body, Message};
use crate::performative::{DeliveryTag, Disposition, Flow, Open, Role, Transfer};
use crate::reader::MAX_DEPTH;
use crate::sasl::{SaslCode, SaslMechanisms, SaslOutcome};
use crate::state::DeliveryState;
use crate::terminus::{Source, TerminusExpiryPolicy};
use crate::value::Array;
use crate::{Decode, DecodeErrorKind, Encode, Symbol, Value};
use bytes::Bytes;

fn check<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(value.to_bytes()[..], *bytes, "encoding {value:?}");
    assert_eq!(&T::decode_all(bytes).unwrap(), value);
}

/// Part 1, section 1.2: a string, and a described string.
#[test]
fn strings_of_the_specification() {
    let mut bytes = vec![0xa1, 0x1e];
    bytes.extend(b"Hello Glorious Messaging World");
    check(&Value::from("Hello Glorious Messaging World"), &bytes);

    let mut bytes = vec![0x00, 0xa1, 0x03];
    bytes.extend(b"URL");
    bytes.extend([0xa1, 0x1e]);
    bytes.extend(b"http://example.org/hello-world");
    check(&Value::described("URL", "http://example.org/hello-world"), &bytes);
}

/// Part 1, section 1.4: the composite with an array and a null.
#[test]
fn composite_of_the_specification() {
    let mut bytes = vec![0x00, 0xa3, 0x11];
    bytes.extend(b"example:book:list");
    bytes.extend([0xc0, 0x40, 0x03, 0xa1, 0x15]);
    bytes.extend(b"AMQP for & by Dummies");
    bytes.extend([0xe0, 0x25, 0x02, 0xa1, 0x0e]);
    bytes.extend(b"Rob J. Godfrey");
    bytes.push(0x13);
    bytes.extend(b"Rafael H. Schloming");
    bytes.push(0x40);
    let authors = Array::new(vec!["Rob J. Godfrey".into(), "Rafael H. Schloming".into()]).unwrap();
    let fields = vec!["AMQP for & by Dummies".into(), authors.into(), Value::Null];
    check(&Value::described(Symbol::from("example:book:list"), fields), &bytes);
}

#[test]
fn scalars_take_their_smallest_encoding() {
    let cases: &[(Value, &[u8])] = &[
        (Value::Null, &[0x40]),
        (Value::Bool(true), &[0x41]),
        (Value::Bool(false), &[0x42]),
        (Value::Uint(0), &[0x43]),
        (Value::Uint(255), &[0x52, 255]),
        (Value::Uint(256), &[0x70, 0, 0, 1, 0]),
        (Value::Ulong(0), &[0x44]),
        (Value::Ulong(1), &[0x53, 1]),
        (Value::Ulong(256), &[0x80, 0, 0, 0, 0, 0, 0, 1, 0]),
        (Value::Int(-128), &[0x54, 0x80]),
        (Value::Int(128), &[0x71, 0, 0, 0, 128]),
        (Value::Long(-1), &[0x55, 0xff]),
        (Value::Long(-129), &[0x81, 255, 255, 255, 255, 255, 255, 255, 0x7f]),
        (Value::Char('A'), &[0x73, 0, 0, 0, 0x41]),
        (Value::Timestamp(1), &[0x83, 0, 0, 0, 0, 0, 0, 0, 1]),
        (Value::List(vec![]), &[0x45]),
        (Value::List(vec![Value::Null]), &[0xc0, 2, 1, 0x40]),
        (Value::Map(crate::Map::new()), &[0xc1, 1, 0]),
    ];
    for (value, bytes) in cases {
        check(value, bytes);
    }
}

#[test]
fn wide_encodings_of_small_values_are_read() {
    let cases: &[(&[u8], Value)] = &[
        (&[0x56, 1], Value::Bool(true)),
        (&[0x70, 0, 0, 0, 0], Value::Uint(0)),
        (&[0x80, 0, 0, 0, 0, 0, 0, 0, 1], Value::Ulong(1)),
        (&[0xb1, 0, 0, 0, 1, b'a'], "a".into()),
        (&[0xd0, 0, 0, 0, 4, 0, 0, 0, 0], Value::List(vec![])),
        (&[0xc0, 1, 0], Value::List(vec![])),
        (
            &[0xd1, 0, 0, 0, 6, 0, 0, 0, 2, 0x40, 0x41],
            [(Value::Null, true.into())].into_iter().collect::<crate::Map>().into(),
        ),
        (&[0xe0, 4, 2, 0x41, 0, 0], Value::Null),
    ];
    for (bytes, value) in cases.iter().take(cases.len() - 1) {
        assert_eq!(&Value::decode_all(bytes).unwrap(), value);
    }
    // The elements of an array of `true` take no bytes: the two behind them do not belong there.
    let error = Value::decode_all(cases[cases.len() - 1].0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::SizeMismatch { expected: "array", left: 2 });
}

#[test]
fn lists_grow_from_8_to_32_bits() {
    // 254 bytes of elements still fit an 8-bit size, which counts the count.
    for (len, code) in [(254_usize, 0xc0), (255, 0xd0)] {
        let list = Value::List(vec![Value::Null; len]);
        let bytes = list.to_bytes();
        assert_eq!(bytes[0], code);
        assert_eq!(Value::decode_all(&bytes).unwrap(), list);
    }
}

#[test]
fn performatives_leave_out_defaults_and_trailing_nulls() {
    let accepted = Disposition {
        role: Role::Receiver,
        first: 1,
        last: Some(3),
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    check(&accepted, &[0, 0x53, 0x15, 0xc0, 11, 5, 0x41, 0x52, 1, 0x52, 3, 0x41, 0, 0x53, 0x24, 0x45]);

    let transfer = Transfer {
        delivery_id: Some(0),
        delivery_tag: Some(DeliveryTag::new(&[7]).unwrap()),
        message_format: Some(0),
        settled: Some(true),
        ..Transfer::default()
    };
    check(&transfer, &[0, 0x53, 0x14, 0xc0, 8, 5, 0x43, 0x43, 0xa0, 1, 7, 0x43, 0x41]);

    let open = Open { container_id: "c".into(), ..Open::default() };
    check(&open, &[0, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'c']);
    check(&Source::default(), &[0, 0x53, 0x28, 0x45]);
}

#[test]
fn symbolic_descriptors_and_single_symbols_are_read() {
    let mut bytes = vec![0, 0xa3, 14];
    bytes.extend(b"amqp:flow:list");
    bytes.extend([0xc0, 5, 4, 0x40, 0x43, 0x43, 0x43]);
    assert_eq!(Flow::decode_all(&bytes).unwrap(), Flow::default());

    let mut bytes = vec![0, 0x53, 0x40, 0xc0, 12, 1, 0xa3, 9];
    bytes.extend(b"ANONYMOUS");
    let one = SaslMechanisms { mechanisms: vec!["ANONYMOUS".into()] };
    assert_eq!(SaslMechanisms::decode_all(&bytes).unwrap(), one);
    check(
        &SaslOutcome { code: SaslCode::Auth, additional_data: None },
        &[0, 0x53, 0x44, 0xc0, 3, 1, 0x50, 1],
    );
}

#[test]
fn a_message_with_a_value() {
    let message = Message { body: Body::Value("hi".into()), ..Message::default() };
    check(&message, &[0, 0x53, 0x77, 0xa1, 2, b'h', b'i']);
}

#[test]
fn errors_say_where_and_what() {
    let say = |bytes: &[u8]| Flow::decode_all(bytes).unwrap_err().to_string();
    assert_eq!(
        say(&[0, 0x53, 0x13, 0xc0, 4, 2, 0x40, 0xa1, 0]),
        "at byte 7: expected uint, found format code 0xa1"
    );
    assert_eq!(
        say(&[0, 0x53, 0x13, 0xc0, 2, 1, 0x40]),
        "at byte 7: expected a value in the mandatory field incoming_window of flow"
    );
    assert_eq!(
        say(&[0, 0x53, 0x14, 0x45]),
        "at byte 0: expected flow, found a value with the descriptor 0x14"
    );
    assert_eq!(say(&[0, 0x53]), "at byte 2: expected 1 more bytes, but only 0 are left");
    assert_eq!(say(&[0x45]), "at byte 0: expected a described value, found format code 0x45");
    let policy = TerminusExpiryPolicy::decode_all(&[0xa3, 1, b'x']).unwrap_err().to_string();
    assert!(policy.contains("found \"x\""), "{policy}");
}

#[test]
fn what_the_format_forbids_is_refused() {
    use DecodeErrorKind as K;
    let kind = |bytes: &[u8]| Value::decode_all(bytes).unwrap_err().kind;
    assert_eq!(kind(&[0xa1, 1, 0xff]), K::InvalidUtf8);
    assert_eq!(kind(&[0xa3, 1, 0x80]), K::InvalidSymbol);
    assert_eq!(kind(&[0x73, 0, 0, 0xd8, 0]), K::InvalidChar { value: 0xd800 });
    assert_eq!(kind(&[0xc1, 2, 1, 0x40]), K::OddMap { count: 1 });
    assert_eq!(kind(&[0x3f]), K::UnknownFormatCode { code: 0x3f });
    assert_eq!(kind(&[0xc0, 2, 2, 0x40]), K::Truncated { needed: 1, left: 0 });
    assert_eq!(kind(&[0x40, 0x40]), K::TrailingBytes { left: 1 });
    assert_eq!(kind(&[0x56, 2]), K::InvalidChoice { expected: "a boolean of 0 or 1", value: 2 });
    let tag = [&[0xa0, 33][..], &[0; 33]].concat();
    let long = DeliveryTag::decode_all(&tag).unwrap_err().kind;
    assert_eq!(long, K::TooLong { expected: "a delivery tag", limit: 32, found: 33 });
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: u8| (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner])).to_bytes();
    assert!(Value::decode_all(&nested(MAX_DEPTH)).is_ok());
    let error = Value::decode_all(&nested(MAX_DEPTH + 1)).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TooDeep { limit: MAX_DEPTH });
    // Descriptors of descriptors, and arrays of arrays, without end.
    assert!(Value::decode_all(&[0; 100_000]).is_err());
    assert!(crate::Reader::new(&[0; 100_000]).skip_value().is_err());
}

#[test]
fn elements_without_bytes_cannot_be_claimed_for_nothing() {
    let bomb = [0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40];
    let error = Value::decode_all(&bomb).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TooManyElements { count: u32::MAX });
    // Nor many times over: the allowance is one for the whole input, however long that is.
    let nulls = |count: usize| Value::Array(Array::new(vec![Value::Null; count]).unwrap());
    assert!(Value::decode_all(&Value::List(vec![nulls(2048); 2]).to_bytes()).is_ok());
    let long = Value::Binary(Bytes::from(vec![0; 10_000]));
    let error = Value::decode_all(&Value::List(vec![long, nulls(2048), nulls(2049)]).to_bytes()).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TooManyElements { count: 2049 });
}

#[test]
fn a_value_that_is_read_can_be_read_where_it_stands_alone() {
    let nulls = Value::Array(Array::new(vec![Value::Null; 3000]).unwrap());
    let among_others = [&nulls.to_bytes()[..], &[0x40; 5000]].concat();
    let read = Value::decode(&mut crate::Reader::new(&among_others)).unwrap();
    assert_eq!(Value::decode_all(&read.to_bytes()), Ok(nulls));
}

#[test]
fn tags_of_numbers_are_short() {
    assert_eq!(DeliveryTag::from_number(0).as_bytes(), [0]);
    assert_eq!(DeliveryTag::from_number(255).as_bytes(), [255]);
    assert_eq!(DeliveryTag::from_number(256).as_bytes(), [1, 0]);
    assert_eq!(DeliveryTag::from_number(u64::MAX).as_bytes(), [255; 8]);
    assert!(DeliveryTag::new(&[0; 33]).is_err());
}

#[test]
fn values_stay_small() {
    assert!(size_of::<Value>() <= 48, "{}", size_of::<Value>());
    assert!(size_of::<crate::performative::Performative>() <= 256);
}

/// What counts is how deep described values lie in each other, and it counts alike where they are read and skipped.
#[test]
fn described_values_may_be_many_but_not_deep() {
    let null = [0x40];
    let described = |descriptor: &[u8], value: &[u8]| [&[0x00], descriptor, value].concat();
    // A tree of described values, 2^7 of them, 7 deep.
    let tree = (0..7).fold(null.to_vec(), |inner, _| described(&inner, &inner));
    // As deep as may be, by the descriptor and by the value; and a step deeper.
    let depth = usize::from(MAX_DEPTH);
    let by_descriptor = |depth| (0..depth).fold(null.to_vec(), |inner, _| described(&inner, &null));
    let by_value = |depth| (0..depth).fold(null.to_vec(), |inner, _| described(&null, &inner));
    for sound in [tree, by_descriptor(depth), by_value(depth)] {
        assert!(Value::decode_all(&sound).is_ok());
        let mut reader = crate::Reader::new(&sound);
        assert_eq!(reader.raw_value().map(<[u8]>::len), Ok(sound.len()));
    }
    for deep in [by_descriptor(depth + 1), by_value(depth + 1)] {
        let error = Value::decode_all(&deep).unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::TooDeep { limit: MAX_DEPTH });
        let error = crate::Reader::new(&deep).skip_value().unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::TooDeep { limit: MAX_DEPTH });
    }
}
