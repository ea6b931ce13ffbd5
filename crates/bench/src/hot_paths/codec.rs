//! Frames to bytes and back.

use bytes::BytesMut;
use postroad_amqp_codec::frame::{FrameBody, decode_frame, split_frame, write_transfer};
use postroad_amqp_codec::performative::{DeliveryTag, Performative, Transfer};
use postroad_model::message::Incoming;

use super::{BATCH, message};

const MAX_FRAME: u32 = 1 << 16;

fn write(out: &mut BytesMut, id: u32, payload: &[u8]) {
    let mut transfer = Transfer {
        handle: 0,
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from_number(u64::from(id))),
        message_format: Some(0),
        ..Transfer::default()
    };
    let length = write_transfer(out, 0, &mut transfer, payload.len(), MAX_FRAME);
    assert_eq!(length, payload.len(), "one frame takes the message");
    out.extend_from_slice(payload);
}

/// Writes transfers, a batch into one buffer.
pub(super) fn encode(count: u32) {
    let payload = message(true);
    let mut out = BytesMut::with_capacity(1 << 16);
    for first in (0..count).step_by(BATCH as usize) {
        out.clear();
        (first..first + BATCH).for_each(|id| write(&mut out, id, &payload));
        assert!(out.len() > BATCH as usize * payload.len(), "heads and payloads are there");
    }
}

/// Splits and reads transfers, and reads of each message what the broker needs.
pub(super) fn decode(count: u32) {
    let payload = message(true);
    let mut batch = BytesMut::new();
    (0..BATCH).for_each(|id| write(&mut batch, id, &payload));
    let batch = batch.freeze();
    let mut read = 0;
    for _ in (0..count).step_by(BATCH as usize) {
        let mut input = BytesMut::from(batch.as_ref());
        while let Some(frame) = split_frame(&mut input, MAX_FRAME).expect("what was written is sound") {
            let frame = decode_frame(frame).expect("what was written is sound");
            if let FrameBody::Amqp { performative: Performative::Transfer(_), payload, .. } = frame.body {
                let incoming = Incoming::parse(&payload).expect("what was written is a message");
                read += u32::from(incoming.durable);
            }
        }
    }
    assert_eq!(read, count, "every transfer was read");
}
