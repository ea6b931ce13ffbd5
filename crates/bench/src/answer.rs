//! The frames that these programs write themselves. Every connection has one session on channel 0 with one link on
//! handle 0, and counts from 0.

use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::frame::write_frame;
use postroad_amqp_codec::performative::{Close, Detach, Disposition, End, Flow, Role};
use postroad_amqp_codec::state::DeliveryState;

/// How many transfer frames a producer may send ahead: never the limit here.
pub(crate) const WINDOW: u32 = i32::MAX.unsigned_abs();

fn frame(body: &impl Encode) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    write_frame(&mut out, 0, body, 0);
    out.freeze()
}

/// Accepts and settles `count` deliveries from `first`.
pub(crate) fn accepted(first: u32, count: u32) -> Bytes {
    let last = first.wrapping_add(count).wrapping_sub(1);
    frame(&Disposition {
        role: Role::Receiver,
        first,
        last: Some(last),
        settled: true,
        state: Some(DeliveryState::Accepted),
        ..Disposition::default()
    })
}

/// Credit for a producer, in the numbers of its consumer.
pub(crate) fn credit(delivery_count: u32, link_credit: u32) -> Bytes {
    frame(&Flow {
        next_incoming_id: Some(delivery_count),
        incoming_window: WINDOW,
        next_outgoing_id: 0,
        outgoing_window: WINDOW,
        handle: Some(0),
        delivery_count: Some(delivery_count),
        link_credit: Some(link_credit),
        ..Flow::default()
    })
}

/// The answer to a detach.
pub(crate) fn detach() -> Bytes {
    frame(&Detach { handle: 0, closed: true, error: None })
}

/// The answer to an end.
pub(crate) fn end() -> Bytes {
    frame(&End { error: None })
}

/// The answer to a close.
pub(crate) fn close() -> Bytes {
    frame(&Close { error: None })
}
