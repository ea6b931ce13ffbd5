//! Where encoded bytes go, and the heads of lists, maps and arrays, whose size is known only at their end.

use bytes::{BufMut, BytesMut};

use crate::format;

/// A growing buffer that encoders write to: `Vec<u8>` or [`BytesMut`].
pub trait Buffer {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn push(&mut self, byte: u8);

    /// How many bytes are there.
    fn len(&self) -> usize;

    /// Whether no bytes are there.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what is behind the first `len` bytes.
    fn truncate(&mut self, len: usize);

    /// The bytes that are there, to be changed in place.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Buffer for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    #[inline]
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn truncate(&mut self, len: usize) {
        Vec::truncate(self, len);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Buffer for BytesMut {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.put_u8(byte);
    }

    #[inline]
    fn len(&self) -> usize {
        BytesMut::len(self)
    }

    fn truncate(&mut self, len: usize) {
        BytesMut::truncate(self, len);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// The bytes of an 8-bit compound head: code, size, count.
const SMALL_HEAD: usize = 3;

/// How much longer the 32-bit head is.
const HEAD_GROWTH: usize = 6;

/// A list, map or array that is being written. It starts with room for the 8-bit head; a body that turns out larger
/// is moved up once.
#[derive(Clone, Copy, Debug)]
pub struct Compound {
    start: usize,
}

impl Compound {
    /// Leaves room for the head. The elements are written next.
    pub fn begin<B: Buffer>(out: &mut B) -> Self {
        let start = out.len();
        out.put(&[0; SMALL_HEAD]);
        Self { start }
    }

    /// Ends a list of `count` elements.
    pub fn end_list<B: Buffer>(self, out: &mut B, count: u32) {
        if count == 0 {
            out.truncate(self.start);
            out.push(format::LIST_0);
        } else {
            self.end(out, count, format::LIST_8, format::LIST_32);
        }
    }

    /// Ends a map of `count` keys and values, counted together.
    pub fn end_map<B: Buffer>(self, out: &mut B, count: u32) {
        self.end(out, count, format::MAP_8, format::MAP_32);
    }

    /// Ends an array of `count` elements, whose constructor was written in front of them.
    pub fn end_array<B: Buffer>(self, out: &mut B, count: u32) {
        self.end(out, count, format::ARRAY_8, format::ARRAY_32);
    }

    /// Ends an element of an array of lists, maps or arrays: those share their constructor, so the element has a
    /// 32-bit size and count, and no code of its own.
    pub(crate) fn end_element<B: Buffer>(self, out: &mut B, count: u32) {
        let body = self.body_len(out);
        // The 8-bit head that was left room for is 5 bytes shorter than a 32-bit size and count.
        out.put(&[0; HEAD_GROWTH - 1]);
        let size = saturate(body + 4).to_be_bytes();
        if let Some(element) = out.bytes_mut().get_mut(self.start..) {
            element.copy_within(SMALL_HEAD..SMALL_HEAD + body, 8);
            write_at(element, 0, &size);
            write_at(element, 4, &count.to_be_bytes());
        }
    }

    fn end<B: Buffer>(self, out: &mut B, count: u32, small: u8, large: u8) {
        let body = self.body_len(out);
        if let (Ok(size), Ok(count)) = (u8::try_from(body + 1), u8::try_from(count)) {
            write_at(out.bytes_mut(), self.start, &[small, size, count]);
            return;
        }
        out.put(&[0; HEAD_GROWTH]);
        let size = saturate(body + 4).to_be_bytes();
        if let Some(compound) = out.bytes_mut().get_mut(self.start..) {
            compound.copy_within(SMALL_HEAD..SMALL_HEAD + body, SMALL_HEAD + HEAD_GROWTH);
            write_at(compound, 0, &[large]);
            write_at(compound, 1, &size);
            write_at(compound, 5, &count.to_be_bytes());
        }
    }

    fn body_len<B: Buffer>(self, out: &B) -> usize {
        out.len().saturating_sub(self.start + SMALL_HEAD)
    }
}

/// Overwrites bytes that are there.
pub(crate) fn write_at(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(slot) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..new.len())) {
        slot.copy_from_slice(new);
    }
}

/// A length as the format states it. Nothing larger than 4 GiB can be encoded; no caller builds such a value.
pub(crate) fn saturate(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
