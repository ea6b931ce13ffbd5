//! Protocol headers and frames (part 2, sections 2.2 and 2.3; part 5, section 5.3.1).

use bytes::{Buf, Bytes, BytesMut};

use crate::decode::Decode;
use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::encode::Encode;
use crate::performative::{Performative, Transfer};
use crate::reader::Reader;
use crate::sasl::SaslBody;
use crate::writer::{Buffer, saturate, write_at};

/// The smallest limit on frame sizes that a peer may set, and the limit before there is another, in bytes (part 2,
/// section 2.8.19).
pub const MIN_MAX_FRAME_SIZE: u32 = 512;

/// The bytes of a frame header (part 2, section 2.3.1).
pub const FRAME_HEADER_LEN: usize = 8;

/// The bytes of a protocol header (part 2, section 2.2).
pub const PROTOCOL_HEADER_LEN: usize = 8;

/// Which layer a protocol header starts (part 2, section 2.2; part 5, sections 5.2.1 and 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolId {
    /// AMQP itself.
    Amqp,
    /// TLS, and AMQP inside.
    Tls,
    /// SASL, and AMQP after it.
    Sasl,
}

/// What each side of a connection says before the first frame (part 2, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolHeader {
    /// The layer.
    pub id: ProtocolId,
    /// The major version.
    pub major: u8,
    /// The minor version.
    pub minor: u8,
    /// The revision.
    pub revision: u8,
}

impl ProtocolHeader {
    /// AMQP 1.0.0.
    pub const AMQP: Self = Self { id: ProtocolId::Amqp, major: 1, minor: 0, revision: 0 };

    /// TLS for AMQP 1.0.0.
    pub const TLS: Self = Self { id: ProtocolId::Tls, major: 1, minor: 0, revision: 0 };

    /// SASL for AMQP 1.0.0.
    pub const SASL: Self = Self { id: ProtocolId::Sasl, major: 1, minor: 0, revision: 0 };

    /// Whether this is version 1.0.0, the only one.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.major == 1 && self.minor == 0 && self.revision == 0
    }

    /// Reads the header at the start of `input`; `None` while what is there could become one.
    ///
    /// # Errors
    /// [`DecodeErrorKind::NotAmqp`] as soon as it cannot: other peers may never send a whole header.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, DecodeError> {
        let magic = b"AMQP";
        if let Some(offset) = input.iter().zip(magic).position(|(found, wanted)| found != wanted) {
            return Err(DecodeError { offset, kind: DecodeErrorKind::NotAmqp });
        }
        let Some(&[_, _, _, _, id, major, minor, revision]) = input.first_chunk() else { return Ok(None) };
        let id = match id {
            0 => ProtocolId::Amqp,
            2 => ProtocolId::Tls,
            3 => ProtocolId::Sasl,
            _ => return Err(DecodeError { offset: magic.len(), kind: DecodeErrorKind::NotAmqp }),
        };
        Ok(Some(Self { id, major, minor, revision }))
    }

    /// The header as bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; PROTOCOL_HEADER_LEN] {
        let id = match self.id {
            ProtocolId::Amqp => 0,
            ProtocolId::Tls => 2,
            ProtocolId::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, self.major, self.minor, self.revision]
    }
}

/// The layer that a frame belongs to (part 2, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// A performative, and a payload.
    Amqp,
    /// A step of the SASL dialogue.
    Sasl,
}

impl FrameType {
    const fn code(self) -> u8 {
        match self {
            Self::Amqp => 0,
            Self::Sasl => 1,
        }
    }
}

/// The first 8 bytes of every frame (part 2, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// The bytes of the whole frame, these 8 included.
    pub size: u32,
    /// Where the body starts, in words of 4 bytes.
    pub doff: u8,
    /// The layer.
    pub frame_type: FrameType,
    /// The channel; without meaning in SASL frames.
    pub channel: u16,
}

impl FrameHeader {
    /// Reads the header of a frame and checks it by itself.
    ///
    /// # Errors
    /// When less than 8 bytes are there, the size or data offset cannot be, or the type is not defined.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let Some(&[a, b, c, d, doff, frame_type, high, low]) = frame.first_chunk() else {
            let kind = DecodeErrorKind::Truncated { needed: FRAME_HEADER_LEN, left: frame.len() };
            return Err(DecodeError { offset: 0, kind });
        };
        let size = u32::from_be_bytes([a, b, c, d]);
        if doff < 2 || u32::from(doff) * 4 > size {
            return Err(DecodeError { offset: 4, kind: DecodeErrorKind::MalformedFrame { size, doff } });
        }
        let frame_type = match frame_type {
            0 => FrameType::Amqp,
            1 => FrameType::Sasl,
            _ => {
                return Err(DecodeError {
                    offset: 5,
                    kind: DecodeErrorKind::UnknownFrameType { frame_type },
                });
            }
        };
        Ok(Self { size, doff, frame_type, channel: u16::from_be_bytes([high, low]) })
    }
}

/// A frame that has been decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The channel; zero in SASL frames.
    pub channel: u16,
    /// What the frame says.
    pub body: FrameBody,
}

/// What a frame says (part 2, section 2.3.2; part 5, section 5.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameBody {
    /// Nothing: the peer shows that it is there (part 2, section 2.4.5).
    Empty,
    /// A performative.
    Amqp {
        /// What it says.
        performative: Performative,
        /// What comes behind it: message data of a transfer. A slice of the frame, not a copy.
        payload: Bytes,
    },
    /// A step of the SASL dialogue.
    Sasl(SaslBody),
}

/// Takes the next whole frame off the front of `input`; `None` while it is not all there.
///
/// # Errors
/// When the frame states a size above `max_frame_size` or below 8 bytes; nothing is buffered for such a frame.
pub fn split_frame(input: &mut BytesMut, max_frame_size: u32) -> Result<Option<Bytes>, DecodeError> {
    let Some(size) = input.first_chunk().map(|size| u32::from_be_bytes(*size)) else { return Ok(None) };
    if size > max_frame_size {
        let kind = DecodeErrorKind::FrameTooLarge { size, limit: max_frame_size };
        return Err(DecodeError { offset: 0, kind });
    }
    let len = usize::try_from(size).unwrap_or(usize::MAX);
    if len < FRAME_HEADER_LEN {
        return Err(DecodeError { offset: 0, kind: DecodeErrorKind::MalformedFrame { size, doff: 2 } });
    }
    if input.len() < len {
        return Ok(None);
    }
    Ok(Some(input.split_to(len).freeze()))
}

/// Decodes one whole frame, as [`split_frame`] returns it.
///
/// # Errors
/// When the frame is not well formed: a wrong header, an unknown performative, a wrong field, or bytes behind the
/// body of a SASL frame. Offsets count from the start of the frame.
pub fn decode_frame(mut frame: Bytes) -> Result<Frame, DecodeError> {
    let header = FrameHeader::decode(&frame)?;
    if usize::try_from(header.size).ok() != Some(frame.len()) {
        let kind = DecodeErrorKind::MalformedFrame { size: header.size, doff: header.doff };
        return Err(DecodeError { offset: 0, kind });
    }
    let start = usize::from(header.doff) * 4;
    let body = frame.get(start..).unwrap_or_default();
    let mut reader = Reader::at(body, start);
    match header.frame_type {
        FrameType::Sasl => {
            let body = SaslBody::decode(&mut reader)?;
            reader.finish()?;
            Ok(Frame { channel: 0, body: FrameBody::Sasl(body) })
        }
        FrameType::Amqp if body.is_empty() => Ok(Frame { channel: header.channel, body: FrameBody::Empty }),
        FrameType::Amqp => {
            let performative = Performative::decode(&mut reader)?;
            let payload_start = reader.offset();
            frame.advance(payload_start);
            Ok(Frame { channel: header.channel, body: FrameBody::Amqp { performative, payload: frame } })
        }
    }
}

/// Writes a frame with a performative. `payload_len` bytes of payload count into its size: the caller appends them,
/// or sends them behind these bytes. Returns how many bytes were written.
pub fn write_frame<B: Buffer, T: Encode>(
    out: &mut B,
    channel: u16,
    performative: &T,
    payload_len: usize,
) -> usize {
    write(out, FrameType::Amqp, channel, performative, payload_len)
}

/// Writes a frame of the SASL layer. Returns how many bytes were written.
pub fn write_sasl_frame<B: Buffer, T: Encode>(out: &mut B, body: &T) -> usize {
    write(out, FrameType::Sasl, 0, body, 0)
}

/// Writes a frame that says nothing, which keeps a connection from idling out (part 2, section 2.4.5).
pub fn write_empty_frame<B: Buffer>(out: &mut B, channel: u16) {
    let header_len = saturate(FRAME_HEADER_LEN);
    put_header(out, FrameType::Amqp, channel, header_len);
}

/// Writes the head of the next transfer frame of a delivery of which `payload_left` bytes are to be sent, within
/// `max_frame_size`. Returns how many of those bytes belong to this frame: they go behind the head.
///
/// `transfer.more` says whether more comes even after those `payload_left` bytes, and is set to what the frame says.
/// A limit too small for the head and one byte (peers cannot go below 512) gives a frame with one byte of payload.
pub fn write_transfer<B: Buffer>(
    out: &mut B,
    channel: u16,
    transfer: &mut Transfer,
    payload_left: usize,
    max_frame_size: u32,
) -> usize {
    let limit = usize::try_from(max_frame_size).unwrap_or(usize::MAX);
    let start = out.len();
    let head = write_frame(out, channel, transfer, payload_left);
    if head.saturating_add(payload_left) <= limit || payload_left <= 1 {
        return payload_left;
    }
    out.truncate(start);
    transfer.more = true;
    let head = write_frame(out, channel, transfer, 0);
    let payload = limit.saturating_sub(head).clamp(1, payload_left);
    write_at(out.bytes_mut(), start, &saturate(head.saturating_add(payload)).to_be_bytes());
    payload
}

fn write<B: Buffer, T: Encode>(
    out: &mut B,
    frame_type: FrameType,
    channel: u16,
    body: &T,
    payload_len: usize,
) -> usize {
    let start = out.len();
    put_header(out, frame_type, channel, 0);
    body.encode(out);
    let written = out.len() - start;
    write_at(out.bytes_mut(), start, &saturate(written.saturating_add(payload_len)).to_be_bytes());
    written
}

fn put_header<B: Buffer>(out: &mut B, frame_type: FrameType, channel: u16, size: u32) {
    let [a, b, c, d] = size.to_be_bytes();
    let [high, low] = channel.to_be_bytes();
    out.put(&[a, b, c, d, 2, frame_type.code(), high, low]);
}
