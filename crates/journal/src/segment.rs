//! The header of a segment file as bytes, and the file names (journal-format.md, "Segment").

use crate::frame::{Mask, u32_at, u64_at};
use crate::ids::{JournalId, Lsn, SegmentNumber};

/// Bytes at the beginning of a segment file that hold its header and nothing else.
pub(crate) const HEADER_BLOCK: u64 = 4096;
/// The newest format that this program reads, and the one that it writes.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of the header that are not zero by definition.
pub(crate) const HEADER_SIZE: usize = 64;

const MAGIC: &[u8; 8] = b"PRSEGMNT";

/// What a segment file holds at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: SegmentNumber,
    pub(crate) size: u64,
    pub(crate) id: JournalId,
    pub(crate) first: Lsn,
}

/// What the beginning of a segment file turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// A sound header of this journal.
    Used(SegmentHeader),
    /// All zero: the file may be used.
    Spare,
    /// Neither: torn or damaged.
    Unreadable,
    /// A sound header of this journal, in a file that has another size than it says: files get their size before their
    /// header, and keep it.
    Resized {
        /// Bytes that the file had.
        stated: u64,
    },
    /// Written by a newer program.
    Newer(u32),
}

impl SegmentHeader {
    /// The whole header block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; usize::try_from(HEADER_BLOCK).expect("4096 fits")];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        block[16..24].copy_from_slice(&self.number.0.to_le_bytes());
        block[24..32].copy_from_slice(&self.size.to_le_bytes());
        block[32..48].copy_from_slice(&self.id.0);
        block[48..56].copy_from_slice(&self.first.0.to_le_bytes());
        let checksum = Mask::of(self.id).checksum(&block[..HEADER_SIZE]);
        block[12..16].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads a header that must be of journal `id` and in a file of `file_size` bytes.
    pub(crate) fn parse(block: &[u8], id: JournalId, file_size: u64) -> HeaderState {
        Self::parse_used(block, id, file_size).unwrap_or_else(|| {
            if block.iter().all(|byte| *byte == 0) { HeaderState::Spare } else { HeaderState::Unreadable }
        })
    }

    fn parse_used(block: &[u8], id: JournalId, file_size: u64) -> Option<HeaderState> {
        if !block.starts_with(MAGIC) {
            return None;
        }
        let format = u32_at(block, 8)?;
        let sound = checksum_is_right(block, Mask::of(id));
        // The control file tells a newer folder from a damaged one, so here only a sound header may say so.
        if format > FORMAT && sound {
            return Some(HeaderState::Newer(format));
        }
        let header = Self {
            number: SegmentNumber(u64_at(block, 16)?),
            size: u64_at(block, 24)?,
            id: id_at(block, 32)?,
            first: Lsn(u64_at(block, 48)?),
        };
        if !sound || format != FORMAT || header.id != id || header.first == Lsn(0) {
            return None;
        }
        if header.size != file_size {
            return Some(HeaderState::Resized { stated: header.size });
        }
        Some(HeaderState::Used(header))
    }
}

/// Whether the checksum at offset 12 is that of the first 64 bytes with itself set to zero.
pub(crate) fn checksum_is_right(block: &[u8], mask: Mask) -> bool {
    let Some(header) = block.first_chunk::<HEADER_SIZE>() else { return false };
    let mut without = *header;
    without[12..16].fill(0);
    u32_at(header, 12) == Some(mask.checksum(&without))
}

/// The journal id at an offset.
pub(crate) fn id_at(bytes: &[u8], at: usize) -> Option<JournalId> {
    bytes.get(at..)?.first_chunk().map(|chunk| JournalId(*chunk))
}

/// Name of the `number`th segment file.
pub(crate) fn file_name(number: u32) -> String {
    format!("{number:08}.seg")
}

/// The number in the name of a segment file; `None` for every other file.
pub(crate) fn file_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg")?;
    let number = digits.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JournalId = JournalId([3; 16]);

    #[test]
    fn a_header_reads_back_and_any_flipped_bit_is_seen() {
        let header = SegmentHeader { number: SegmentNumber::new(1, 2), size: 8192, id: ID, first: Lsn(5) };
        let block = header.encode();
        assert_eq!(SegmentHeader::parse(&block, ID, 8192), HeaderState::Used(header));
        for size in [4096, 16_384] {
            assert_eq!(SegmentHeader::parse(&block, ID, size), HeaderState::Resized { stated: 8192 });
        }
        assert_eq!(SegmentHeader::parse(&block, JournalId([4; 16]), 8192), HeaderState::Unreadable);
        for bit in 0..HEADER_SIZE * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::parse(&flipped, ID, 8192), HeaderState::Unreadable, "bit {bit}");
        }
        assert_eq!(SegmentHeader::parse(&[0; 4096], ID, 8192), HeaderState::Spare);
    }

    #[test]
    fn file_names_are_exact() {
        assert_eq!(file_number("00000042.seg"), Some(42));
        assert_eq!(file_number("123456789.seg"), Some(123_456_789));
        for other in ["42.seg", "00000042.tmp", "+0000042.seg", "control", "99999999999.seg"] {
            assert_eq!(file_number(other), None, "{other}");
        }
    }
}
