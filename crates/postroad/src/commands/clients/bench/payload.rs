//! The messages: all alike but for a stamp at the very end, which says in which run and when they were due.

use bytes::{BufMut, Bytes, BytesMut};
use postroad_client::codec::Encode;
use postroad_client::codec::message::{Body, Header, Message, Properties};

/// Run (8 bytes) and time (8 bytes, nanoseconds since the start).
pub(super) const STAMP_LEN: usize = 16;

/// How many stamps share one allocation.
const STAMPS: usize = 1024;

/// A message without its stamp.
#[derive(Debug)]
pub(super) struct Template {
    head: Bytes,
    run: u64,
    stamps: BytesMut,
}

impl Template {
    /// A message with a body of `size` bytes, stamp included; at least [`STAMP_LEN`].
    pub(super) fn new(run: u64, size: usize, durable: bool, to: Option<String>) -> Self {
        let message = Message {
            header: Some(Header { durable, ..Header::default() }),
            properties: to.map(|to| Properties { to: Some(to), ..Properties::default() }),
            body: Body::Data(vec![vec![b'x'; size.max(STAMP_LEN)].into()]),
            ..Message::default()
        };
        let whole = message.to_bytes();
        let head = whole.slice(..whole.len().saturating_sub(STAMP_LEN));
        Self { head, run, stamps: BytesMut::new() }
    }

    /// The message that was due at `time`.
    pub(super) fn stamped(&mut self, time: u64) -> [Bytes; 2] {
        if self.stamps.capacity() < STAMP_LEN {
            self.stamps = BytesMut::with_capacity(STAMPS * STAMP_LEN);
        }
        self.stamps.put_u64(self.run);
        self.stamps.put_u64(time);
        [self.head.clone(), self.stamps.split().freeze()]
    }
}

/// Bytes of a message with a body of `size` bytes, as it is sent.
pub(super) fn encoded_len(size: usize) -> usize {
    Template::new(0, size, true, None).head.len() + STAMP_LEN
}

/// When a message of this run was due; `None` for any other message.
pub(super) fn due(run: u64, payload: &[u8]) -> Option<u64> {
    let (found, time) = payload.last_chunk::<STAMP_LEN>()?.split_first_chunk::<8>()?;
    let time = u64::from_be_bytes(*time.first_chunk()?);
    (u64::from_be_bytes(*found) == run).then_some(time)
}

#[cfg(test)]
mod tests {
    use postroad_client::codec::Decode;

    use super::*;

    #[test]
    fn stamps_survive_the_way() {
        let mut template = Template::new(7, 100, true, None);
        for time in 0..3000 {
            let payload = template.stamped(time).concat();
            assert_eq!(due(7, &payload), Some(time));
            assert_eq!(due(8, &payload), None);
            let message = Message::decode_all(&payload).unwrap();
            assert!(matches!(message.body, Body::Data(parts) if parts[0].len() == 100));
        }
        assert_eq!(due(7, b"short"), None);
    }
}
