//! Frames and marks as bytes (journal-format.md, "Frame" and "Checksums").

use crate::ids::{JournalId, Label, LogId, Lsn, SegmentNumber};

/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER: usize = 32;
/// Frames begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// Bytes of a mark: a frame whose payload is one LSN.
pub(crate) const MARK_SIZE: usize = FRAME_HEADER + MARK_PAYLOAD;
const MARK_PAYLOAD: usize = 8;

/// Kinds from here on belong to the journal.
pub(crate) const FIRST_RESERVED_KIND: u8 = 240;
/// States what was synced when it was written; stands at the beginning of a chunk.
const KIND_MARK: u8 = 240;
/// The last frame of a life that ended in order.
pub(crate) const KIND_CLEAN_STOP: u8 = 241;

/// What the checksums of one journal are xor-ed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mask(u32);

impl Mask {
    /// For the file that holds the journal id itself.
    pub(crate) const NONE: Self = Self(0);

    /// The mask of a journal.
    pub(crate) fn of(id: JournalId) -> Self {
        Self(crc_fast::crc32_iscsi(&id.0))
    }

    /// CRC-32C of the bytes, masked.
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes) ^ self.0
    }
}

/// A frame's header, not yet believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) checksum: u32,
    pub(crate) length: u32,
    pub(crate) lsn: Lsn,
    pub(crate) generation: SegmentNumber,
    pub(crate) label: Label,
}

impl FrameHeader {
    /// Reads a header from the first 32 bytes, or says `None` if there are fewer.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            checksum: u32_at(bytes, 0)?,
            length: u32_at(bytes, 4)?,
            lsn: Lsn(u64_at(bytes, 8)?),
            generation: SegmentNumber(u64_at(bytes, 16)?),
            label: Label { log: LogId(u32_at(bytes, 24)?), kind: *bytes.get(28)?, version: *bytes.get(29)? },
        })
        .filter(|_| bytes.len() >= FRAME_HEADER)
    }

    /// Whether this is the header of a mark; [`Mark::parse`] decides whether the mark is sound.
    pub(crate) fn is_mark(&self) -> bool {
        self.label.kind == KIND_MARK
    }

    /// Bytes that the frame takes up in its segment, padding included.
    pub(crate) fn size(&self) -> u64 {
        frame_size(u64::from(self.length))
    }
}

/// Bytes that a frame with a payload of this length takes up in its segment.
pub(crate) fn frame_size(payload: u64) -> u64 {
    (FRAME_HEADER as u64 + payload).next_multiple_of(ALIGNMENT as u64)
}

/// Fills in the header of `frame`, which is 32 bytes of any content followed by the payload.
///
/// # Panics
/// If `frame` is shorter than a header: the journal always lays out room for it.
pub(crate) fn seal(frame: &mut [u8], mask: Mask, lsn: Lsn, generation: SegmentNumber, label: Label) {
    let (header, payload) =
        frame.split_first_chunk_mut::<FRAME_HEADER>().expect("a frame has room for its header");
    let length = u32::try_from(payload.len()).expect("payloads are below 4 GiB (Options::check)");
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&lsn.0.to_le_bytes());
    header[16..24].copy_from_slice(&generation.0.to_le_bytes());
    header[24..28].copy_from_slice(&label.log.0.to_le_bytes());
    header[28..32].copy_from_slice(&[label.kind, label.version, 0, 0]);
    let checksum = mask.checksum(&frame[4..]);
    frame[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// A sound mark: when it was written, every frame up to and with `synced` was safe on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) generation: SegmentNumber,
    /// The frame that follows the mark.
    pub(crate) next: Lsn,
    pub(crate) synced: Lsn,
}

impl Mark {
    /// Whether it says that a frame is safe which is to be found in a segment of this life. What an earlier life wrote with
    /// that number, or a higher one, was cut off when this life began, and given again.
    pub(crate) fn proves(&self, frame: Lsn, life: u32) -> bool {
        self.synced >= frame && (self.generation.0 == 0 || self.generation.life() >= life)
    }

    /// The mark as bytes.
    pub(crate) fn encode(self, mask: Mask) -> [u8; MARK_SIZE] {
        let mut bytes = [0; MARK_SIZE];
        bytes[FRAME_HEADER..].copy_from_slice(&self.synced.0.to_le_bytes());
        seal(&mut bytes, mask, self.next, self.generation, Label::kind(KIND_MARK));
        bytes
    }

    /// The mark at the beginning of `bytes`, if a sound one is there.
    pub(crate) fn parse(bytes: &[u8], mask: Mask) -> Option<Self> {
        let header = FrameHeader::parse(bytes)?;
        if !header.is_mark() || usize::try_from(header.length) != Ok(MARK_PAYLOAD) {
            return None;
        }
        if mask.checksum(bytes.get(4..MARK_SIZE)?) != header.checksum {
            return None;
        }
        let synced = Lsn(u64_at(bytes, FRAME_HEADER)?);
        (synced < header.lsn).then_some(Self { generation: header.generation, next: header.lsn, synced })
    }
}

/// The little-endian number at an offset, if the bytes reach that far.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

/// The little-endian number at an offset, if the bytes reach that far.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_any_flipped_bit_makes_it_unsound() {
        let mask = Mask::of(JournalId([1; 16]));
        let mark = Mark { generation: SegmentNumber::new(3, 9), next: Lsn(17), synced: Lsn(12) };
        let bytes = mark.encode(mask);
        assert_eq!(Mark::parse(&bytes, mask), Some(mark));
        assert_eq!(Mark::parse(&bytes, Mask::of(JournalId([2; 16]))), None);
        for bit in 0..MARK_SIZE * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::parse(&flipped, mask), None, "bit {bit}");
        }
        assert_eq!(Mark::parse(&bytes[..MARK_SIZE - 1], mask), None);
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(Mask::NONE.checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn zeros_are_no_frame() {
        let header = FrameHeader::parse(&[0; FRAME_HEADER]).unwrap();
        assert_eq!(header.label.kind, 0);
        assert_eq!(Mark::parse(&[0; MARK_SIZE], Mask::NONE), None);
        assert_eq!(FrameHeader::parse(&[0; FRAME_HEADER - 1]), None);
    }
}
