//! The buffer that the connections of a thread read into, one at a time: a connection that is idle has none.

use bytes::BytesMut;
use std::cell::RefCell;

/// Bytes read from a socket at once.
const READ_SIZE: usize = 64 * 1024;
/// The beginning of a frame that is shorter than this is kept in a buffer of its size.
const SMALL: usize = 4 * 1024;

thread_local! {
    /// Taken while a connection reads, and by one that has read most of a large frame.
    static SHARED: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Makes room for a read behind what is in `input`.
pub(crate) fn make_room(input: &mut BytesMut) {
    if input.capacity() - input.len() >= READ_SIZE / 4 {
        return;
    }
    if input.len() >= READ_SIZE {
        // Doubling, so that a frame of many times this size is not copied over and over.
        input.reserve(input.len());
        return;
    }
    let mut buffer = SHARED.take();
    // This finds the whole of it free again, unless a slice of it is in use somewhere: then it is a new one.
    buffer.reserve(READ_SIZE + input.len());
    buffer.extend_from_slice(input);
    *input = buffer;
}

/// Gives the buffer back, unless it holds much of a frame that is still to come.
pub(crate) fn give_back(input: &mut BytesMut) {
    if input.len() >= SMALL {
        return;
    }
    let rest = if input.is_empty() { BytesMut::new() } else { BytesMut::from(&input[..]) };
    let mut buffer = std::mem::replace(input, rest);
    buffer.clear();
    if buffer.capacity() > 2 * READ_SIZE {
        // It was for a large frame.
        buffer = BytesMut::new();
    }
    SHARED.set(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut BytesMut, bytes: &[u8]) {
        make_room(input);
        assert!(input.capacity() - input.len() >= READ_SIZE / 4);
        input.extend_from_slice(bytes);
    }

    #[test]
    fn an_idle_connection_has_no_buffer_and_many_share_one() {
        let (mut a, mut b) = (BytesMut::new(), BytesMut::new());
        read(&mut a, b"frame");
        let place = a.as_ptr();
        a.clear();
        give_back(&mut a);
        assert_eq!(a.capacity(), 0);
        read(&mut b, b"another");
        assert_eq!(b.as_ptr(), place);
        give_back(&mut b);
        assert_eq!(&b[..], b"another");
        assert!(b.capacity() < SMALL);
        read(&mut a, b"x");
        assert_eq!(a.as_ptr(), place);
        read(&mut b, b" and its end");
        assert_eq!(&b[..], b"another and its end");
    }

    #[test]
    fn a_buffer_in_use_elsewhere_is_not_written_to() {
        let mut input = BytesMut::new();
        read(&mut input, b"payload");
        let payload = input.split().freeze();
        give_back(&mut input);
        read(&mut input, b"overwritten?");
        assert_eq!(&payload[..], b"payload");
    }

    #[test]
    fn a_large_frame_grows_by_doubling_and_leaves_no_large_buffer() {
        let mut input = BytesMut::new();
        let mut grown = 0;
        while input.len() < 4_000_000 {
            let before = input.capacity();
            read(&mut input, &[7; 10_000]);
            grown += usize::from(input.capacity() != before);
            give_back(&mut input);
        }
        assert!(grown < 16, "{grown} copies");
        assert!(input.iter().all(|byte| *byte == 7));
        input.clear();
        give_back(&mut input);
        read(&mut input, b"x");
        assert!(input.capacity() <= 2 * READ_SIZE);
    }
}
