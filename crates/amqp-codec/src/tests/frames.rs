//! Frames: split, decoded, written, and refused.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::config;
use super::generate_types::{performative, sasl_body, transfer};
use crate::DecodeErrorKind;
use crate::frame::*;
use crate::performative::{Performative, Transfer};

proptest! {
    #![proptest_config(config(200))]

    /// A stream of frames, fed in pieces of any size, gives the same frames; payloads are slices of the input.
    #[test]
    fn streams_split_into_their_frames(
        frames in vec((any::<u16>(), performative(), vec(any::<u8>(), 0..40)), 1..5),
        piece in 1..200_usize,
    ) {
        let mut stream = Vec::new();
        for (channel, performative, payload) in &frames {
            write_frame(&mut stream, *channel, performative, payload.len());
            stream.extend(payload);
        }
        let mut input = BytesMut::new();
        let mut read = Vec::new();
        for part in stream.chunks(piece) {
            input.extend_from_slice(part);
            while let Some(frame) = split_frame(&mut input, u32::MAX).unwrap() {
                read.push(decode_frame(frame).unwrap());
            }
        }
        prop_assert!(input.is_empty());
        let wanted: Vec<_> = frames
            .into_iter()
            .map(|(channel, performative, payload)| Frame {
                channel,
                body: FrameBody::Amqp { performative, payload: payload.into() },
            })
            .collect();
        prop_assert_eq!(read, wanted);
    }

    #[test]
    fn sasl_frames(body in sasl_body()) {
        let mut bytes = BytesMut::new();
        let written = write_sasl_frame(&mut bytes, &body);
        prop_assert_eq!(written, bytes.len());
        prop_assert_eq!(decode_frame(bytes.freeze()).unwrap(), Frame { channel: 0, body: FrameBody::Sasl(body) });
    }

    /// A payload is sent in frames that each fit, that say `more` until the last, and that give it back whole.
    #[test]
    fn large_deliveries_are_split(
        first in transfer(),
        payload in vec(any::<u8>(), 0..3000),
        max in 512..1500_u32,
        more_after in any::<bool>(),
    ) {
        let mut head = Vec::new();
        write_frame(&mut head, 0, &first, 0);
        prop_assume!(head.len() + 8 < 512);
        let mut transfer = Transfer { more: more_after, ..first };
        let mut left = &payload[..];
        let mut back = Vec::new();
        loop {
            transfer.more = more_after;
            let mut frame = Vec::new();
            let taken = write_transfer(&mut frame, 3, &mut transfer, left.len(), max);
            frame.extend(&left[..taken]);
            left = &left[taken..];
            prop_assert!(frame.len() <= max as usize);
            let Frame { body, .. } = decode_frame(frame.into()).unwrap();
            let FrameBody::Amqp { performative: Performative::Transfer(read), payload } = body else { panic!() };
            back.extend_from_slice(&payload);
            prop_assert_eq!(&read, &transfer);
            prop_assert_eq!(read.more, !left.is_empty() || more_after);
            if left.is_empty() { break; }
        }
        prop_assert_eq!(back, payload);
    }
}

#[test]
fn payloads_are_slices_of_the_input() {
    let mut input = BytesMut::new();
    write_frame(&mut input, 0, &Transfer::default(), 5);
    input.extend_from_slice(b"hello");
    let frame = split_frame(&mut input, 512).unwrap().unwrap();
    let range = frame.as_ptr_range();
    let FrameBody::Amqp { payload, .. } = decode_frame(frame).unwrap().body else { panic!() };
    assert_eq!(payload, "hello");
    assert!(range.contains(&payload.as_ptr()));
}

#[test]
fn a_limit_below_the_head_still_makes_progress() {
    let mut out = Vec::new();
    let mut transfer = Transfer::default();
    assert_eq!(write_transfer(&mut out, 0, &mut transfer, 10, 4), 1);
    assert!(transfer.more);
    transfer.more = false;
    assert_eq!(write_transfer(&mut out, 0, &mut transfer, 1, 4), 1);
    assert!(!transfer.more);
    assert_eq!(write_transfer(&mut out, 0, &mut transfer, 0, 4), 0);
}

#[test]
fn empty_frames_and_extended_headers() {
    let mut bytes = BytesMut::new();
    write_empty_frame(&mut bytes, 2);
    assert_eq!(bytes[..], [0, 0, 0, 8, 2, 0, 0, 2]);
    assert_eq!(decode_frame(bytes.freeze()).unwrap(), Frame { channel: 2, body: FrameBody::Empty });
    // Bytes between header and body are passed over (part 2, section 2.3.1).
    let bytes = Bytes::from_static(&[0, 0, 0, 16, 3, 0, 0, 1, 9, 9, 9, 9, 0, 0x53, 0x18, 0x45]);
    assert!(matches!(decode_frame(bytes).unwrap().body, FrameBody::Amqp { .. }));
}

#[test]
fn bad_frames_are_refused_before_they_are_there() {
    use DecodeErrorKind as K;
    let split = |bytes: &[u8]| split_frame(&mut BytesMut::from(bytes), 512);
    assert_eq!(split(&[0, 0, 0]).unwrap(), None);
    assert_eq!(split(&[0, 0, 2, 0]).unwrap(), None);
    assert_eq!(split(&[0, 0, 2, 1]).unwrap_err().kind, K::FrameTooLarge { size: 513, limit: 512 });
    assert_eq!(split(&[0, 0, 0, 7]).unwrap_err().kind, K::MalformedFrame { size: 7, doff: 2 });
    let decode = |bytes: &'static [u8]| decode_frame(Bytes::from_static(bytes)).unwrap_err();
    assert_eq!(decode(&[0, 0, 0, 8, 1, 0, 0, 0]).kind, K::MalformedFrame { size: 8, doff: 1 });
    assert_eq!(decode(&[0, 0, 0, 8, 3, 0, 0, 0]).kind, K::MalformedFrame { size: 8, doff: 3 });
    assert_eq!(decode(&[0, 0, 0, 8, 2, 7, 0, 0]).kind, K::UnknownFrameType { frame_type: 7 });
    assert_eq!(decode(&[0, 0, 0, 9, 2, 0, 0, 0]).kind, K::MalformedFrame { size: 9, doff: 2 });
    // Offsets count from the start of the frame.
    let unknown = decode(&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x19, 0x45]);
    assert_eq!(
        unknown.to_string(),
        "at byte 8: expected a performative, found a value with the descriptor 0x19"
    );
    let trailing = decode(&[0, 0, 0, 17, 2, 1, 0, 0, 0, 0x53, 0x44, 0xc0, 3, 1, 0x50, 0, 0x40]);
    assert_eq!(trailing.kind, K::TrailingBytes { left: 1 });
}

#[test]
fn protocol_headers() {
    for header in [ProtocolHeader::AMQP, ProtocolHeader::TLS, ProtocolHeader::SASL] {
        let bytes = header.to_bytes();
        assert_eq!(ProtocolHeader::decode(&bytes).unwrap(), Some(header));
        assert!(header.is_supported());
        for len in 0..8 {
            assert_eq!(ProtocolHeader::decode(&bytes[..len]).unwrap(), None);
        }
    }
    assert_eq!(ProtocolHeader::SASL.to_bytes(), *b"AMQP\x03\x01\x00\x00");
    // AMQP 0-9-1 has another layer number; a browser says something else from its first byte.
    assert!(ProtocolHeader::decode(b"AMQP\x01\x01\x00\x0a").is_err());
    assert_eq!(ProtocolHeader::decode(b"GE").unwrap_err().offset, 0);
    let newer = ProtocolHeader::decode(b"AMQP\x00\x01\x01\x00").unwrap().unwrap();
    assert!(!newer.is_supported());
}
