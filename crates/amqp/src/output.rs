//! Bytes on their way out: frames are packed, large payloads are shared.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::frame::{write_empty_frame, write_frame, write_sasl_frame, write_transfer};
use postroad_amqp_codec::performative::Transfer;

/// Payloads of this many bytes and more are passed on as they are; smaller ones are copied between the frames around
/// them, since a copy costs less than an entry of its own in a vectored write.
const SHARE_FROM: usize = 2048;

/// What is to be written to the peer: a list of byte chunks for a vectored write.
///
/// One `Output` serves a connection for life: fill it with [`crate::Connection::poll_output`], write from it (it is a
/// [`Buf`]), and fill it again; what was not yet written stays in front.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl Output {
    /// An output without bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }

    /// The number of bytes that wait to be written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether everything has been written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunks that wait to be written, in order; none is empty.
    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.chunks.iter()
    }

    fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_back(chunk);
        }
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| chunk)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Drops bytes that were written. More than there are is no fault: then all are dropped.
    fn advance(&mut self, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        while left > 0 {
            match self.chunks.front_mut() {
                Some(chunk) if chunk.len() > left => {
                    chunk.advance(left);
                    return;
                }
                Some(chunk) => left -= chunk.len(),
                None => return,
            }
            self.chunks.pop_front();
        }
    }
}

/// A frame that would be larger than the peer allows (part 2, section 2.7.1); nothing of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameTooLarge;

/// Where frames are written before they are polled.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: Vec<Bytes>,
    /// The chunk that is being written.
    tail: BytesMut,
    /// How large buffers became lately: the next one starts with that.
    hint: usize,
    /// Bytes since the last drain that are not transfers.
    answers: usize,
}

/// Buffers start with a size between these.
const BUFFER_SIZES: (usize, usize) = (256, 64 * 1024);
/// A buffer with so many bytes is full when it has no more room: growing it would copy them.
const FULL_FROM: usize = 16 * 1024;
/// Bytes of a frame besides its payload, as a rule.
const HEAD: usize = 256;

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.tail.is_empty()
    }

    /// Bytes that are not transfers.
    pub(crate) const fn answers(&self) -> usize {
        self.answers
    }

    /// Moves everything to the end of `output`.
    pub(crate) fn drain_into(&mut self, output: &mut Output) {
        let tail = std::mem::take(&mut self.tail);
        if !tail.is_empty() {
            // It falls slowly: a small batch between large ones says nothing.
            self.hint = tail.len().max(self.hint - self.hint / 4);
        }
        self.answers = 0;
        self.chunks.drain(..).for_each(|chunk| output.push(chunk));
        output.push(tail.freeze());
    }

    /// Bytes that are no frame: a protocol header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// A frame without a body, which only shows that we live (part 2, section 2.4.5).
    pub(crate) fn empty_frame(&mut self) {
        self.reserve(HEAD);
        write_empty_frame(&mut self.tail, 0);
    }

    pub(crate) fn sasl_frame(&mut self, body: &impl Encode) {
        self.reserve(HEAD);
        write_sasl_frame(&mut self.tail, body);
    }

    /// A frame without a payload, `max` bytes at the most.
    pub(crate) fn frame(&mut self, channel: u16, max: u32, body: &impl Encode) -> Result<(), FrameTooLarge> {
        self.reserve(HEAD);
        let start = self.tail.len();
        if write_frame(&mut self.tail, channel, body, 0) > max as usize {
            self.tail.truncate(start);
            return Err(FrameTooLarge);
        }
        self.answers += self.tail.len() - start;
        Ok(())
    }

    /// A transfer frame with as much of the payload as fits. `head.more` says whether the delivery goes on behind the
    /// payload, and is made true when the payload goes on itself.
    pub(crate) fn transfer(
        &mut self,
        channel: u16,
        max: u32,
        head: &mut Transfer,
        payload: &mut Payload<'_>,
    ) {
        let copied = if payload.left() < SHARE_FROM { payload.left() } else { 0 };
        self.reserve(HEAD + copied);
        let count = write_transfer(&mut self.tail, channel, head, payload.left(), max);
        self.payload(payload, count);
    }

    /// Makes room for a frame of about so many bytes, so that a buffer does not grow step by step: that would copy what is
    /// in it each time.
    fn reserve(&mut self, room: usize) {
        if self.tail.capacity() - self.tail.len() >= room {
            return;
        }
        let usual = if self.tail.len() >= FULL_FROM {
            self.chunks.push(std::mem::take(&mut self.tail).freeze());
            BUFFER_SIZES.1
        } else {
            self.hint.clamp(BUFFER_SIZES.0, BUFFER_SIZES.1)
        };
        self.tail.reserve(room.max(usual).max(self.tail.len()));
    }

    fn payload(&mut self, payload: &mut Payload<'_>, count: usize) {
        let mut left = count;
        while let Some(piece) = payload.take(left) {
            left -= piece.len();
            if piece.len() < SHARE_FROM {
                self.tail.extend_from_slice(&piece);
            } else {
                self.chunks.push(self.tail.split().freeze());
                self.chunks.push(piece);
            }
        }
    }
}

/// A place inside a list of chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    index: usize,
    offset: usize,
}

/// What is left of a payload that is being written.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    chunks: &'a [Bytes],
    place: Place,
    left: usize,
}

impl<'a> Payload<'a> {
    /// What lies behind `place`.
    pub(crate) fn new(chunks: &'a [Bytes], place: Place) -> Self {
        let rest = chunks.get(place.index..).unwrap_or_default();
        let left = rest.iter().map(Bytes::len).sum::<usize>().saturating_sub(place.offset);
        Self { chunks, place, left }
    }

    /// How many bytes are left.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// The chunks of the rest.
    pub(crate) fn rest(&self) -> Vec<Bytes> {
        let chunks = self.chunks.get(self.place.index..).unwrap_or_default();
        let offset = self.place.offset;
        let rest = chunks.iter().enumerate().map(|(at, chunk)| match at {
            0 => chunk.slice(offset.min(chunk.len())..),
            _ => chunk.clone(),
        });
        rest.filter(|chunk| !chunk.is_empty()).collect()
    }

    /// Where the rest starts.
    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    /// The next piece, `max` bytes at the most; `None` when that is nothing.
    fn take(&mut self, max: usize) -> Option<Bytes> {
        if max == 0 {
            return None;
        }
        loop {
            let chunk = self.chunks.get(self.place.index)?;
            let rest = chunk.len().saturating_sub(self.place.offset);
            if rest > max {
                let start = self.place.offset;
                self.place.offset += max;
                self.left -= max;
                return Some(chunk.slice(start..start + max));
            }
            let piece = chunk.slice(chunk.len() - rest..);
            self.place = Place { index: self.place.index + 1, offset: 0 };
            self.left -= rest;
            if rest > 0 {
                return Some(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use postroad_amqp_codec::frame::{FrameBody, decode_frame, split_frame};

    use super::*;

    fn flat(output: &mut Output) -> Vec<u8> {
        output.copy_to_bytes(output.remaining()).to_vec()
    }

    #[test]
    fn empty_frame_is_a_head() {
        let (mut outbox, mut output) = (Outbox::default(), Output::new());
        outbox.empty_frame();
        outbox.drain_into(&mut output);
        assert_eq!(flat(&mut output), [0, 0, 0, 8, 2, 0, 0, 0]);
        assert!(output.is_empty());
    }

    #[test]
    fn payload_is_split_to_fit() {
        let (mut outbox, mut output) = (Outbox::default(), Output::new());
        let chunks = [Bytes::from(vec![1; 300]), Bytes::new(), Bytes::from(vec![2; 5000])];
        let mut payload = Payload::new(&chunks, Place::default());
        let mut frames = 0;
        while payload.left() > 0 {
            let mut head = Transfer { delivery_id: Some(7), ..Transfer::default() };
            outbox.transfer(3, 512, &mut head, &mut payload);
            assert_eq!(head.more, payload.left() > 0);
            frames += 1;
        }
        outbox.drain_into(&mut output);
        let (mut wire, mut got) = (BytesMut::from(&flat(&mut output)[..]), Vec::new());
        while let Some(frame) = split_frame(&mut wire, 512).unwrap() {
            let FrameBody::Amqp { payload, .. } = decode_frame(frame).unwrap().body else { panic!() };
            got.extend_from_slice(&payload);
            frames -= 1;
        }
        assert_eq!((frames, got), (0, chunks.concat()));
    }

    #[test]
    fn large_payloads_are_shared() {
        let (mut outbox, mut output) = (Outbox::default(), Output::new());
        let body = Bytes::from(vec![9; SHARE_FROM]);
        let chunks = [body.clone()];
        let mut payload = Payload::new(&chunks, Place::default());
        outbox.transfer(0, 65_536, &mut Transfer::default(), &mut payload);
        outbox.empty_frame();
        outbox.drain_into(&mut output);
        assert!(output.chunks().any(|chunk| chunk.as_ptr() == body.as_ptr()));
        assert_eq!(output.chunks().count(), 3);
    }

    #[test]
    fn advance_crosses_chunks() {
        let mut output = Output::new();
        output.push(Bytes::from_static(b"abc"));
        output.push(Bytes::new());
        output.push(Bytes::from_static(b"defg"));
        output.advance(4);
        assert_eq!((output.len(), output.chunk()), (3, &b"efg"[..]));
        output.advance(99);
        assert!(output.is_empty());
    }
}
