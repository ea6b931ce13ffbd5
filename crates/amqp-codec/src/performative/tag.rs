//! Delivery tags.

use std::fmt;

use crate::decode::Decode;
use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::encode::{Encode, put_binary};
use crate::reader::Reader;
use crate::writer::Buffer;

/// A delivery tag: at most 32 bytes, held inline (section 2.8.7).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryTag {
    /// Zero behind `len`, so that derived comparisons see the tag alone.
    bytes: [u8; DeliveryTag::MAX_LEN],
    len: u8,
}

/// A delivery tag was longer than 32 bytes (section 2.8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery tag has at most {max} bytes", max = DeliveryTag::MAX_LEN)]
pub struct TagTooLong;

impl DeliveryTag {
    /// The longest tag, in bytes.
    pub const MAX_LEN: usize = 32;

    /// A tag of these bytes.
    ///
    /// # Errors
    /// [`TagTooLong`] when there are more than 32.
    pub fn new(tag: &[u8]) -> Result<Self, TagTooLong> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..tag.len()).ok_or(TagTooLong)?.copy_from_slice(tag);
        Ok(Self { bytes, len: u8::try_from(tag.len()).map_err(|_| TagTooLong)? })
    }

    /// The shortest tag that holds a number, big-endian without leading zeros.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        let all = number.to_be_bytes();
        let start = (usize::try_from(number.leading_zeros()).unwrap_or(0) / 8).min(all.len() - 1);
        Self::new(all.get(start..).unwrap_or_default()).unwrap_or_default()
    }

    /// The bytes of the tag.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for DeliveryTag {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeliveryTag(\"{}\")", self.as_bytes().escape_ascii())
    }
}

impl Decode for DeliveryTag {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        let bytes = reader.binary()?;
        Self::new(bytes).map_err(|_| DecodeError {
            offset,
            kind: DecodeErrorKind::TooLong {
                expected: "a delivery tag",
                limit: Self::MAX_LEN,
                found: bytes.len(),
            },
        })
    }
}

impl Encode for DeliveryTag {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_binary(out, self.as_bytes());
    }
}
