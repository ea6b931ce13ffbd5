//! How big things are.

use crate::error::Error;
use crate::segment::HEADER_BLOCK;

/// The largest segment file: offsets must fit into 32 bits.
const MAX_SEGMENT: u64 = (1 << 32) - HEADER_BLOCK;

/// Sizes and reserves of a journal. They may differ from one start to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a normal segment file: a multiple of 4,096, at least 8,192.
    pub segment_size: u64,
    /// Bytes of the segment that is made while opening, if no spare one is there. Like `segment_size`, and not above it.
    pub first_segment_size: u64,
    /// How many segments to keep ready beyond the current one, at least 1.
    pub ready_ahead: usize,
    /// How many spare segments to keep for reuse; freed ones beyond that are removed.
    pub keep_spare: usize,
    /// The longest payload that is accepted, in bytes.
    pub max_payload: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_size: 64 << 20,
            first_segment_size: 4 << 20,
            ready_ahead: 2,
            keep_spare: 16,
            max_payload: 256 << 20,
        }
    }
}

impl Options {
    /// Small segments for tests and simulation: 16 KiB each.
    #[must_use]
    pub fn small() -> Self {
        Self {
            segment_size: 16 << 10,
            first_segment_size: 8 << 10,
            ready_ahead: 1,
            keep_spare: 3,
            max_payload: 1 << 20,
        }
    }

    /// Refuses sizes that the format can't hold.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for size in [self.segment_size, self.first_segment_size] {
            if size % HEADER_BLOCK != 0 || !(2 * HEADER_BLOCK..=MAX_SEGMENT).contains(&size) {
                return Err(Error::Options(
                    "segment sizes must be multiples of 4096, from 8192 to 4 GiB - 4096",
                ));
            }
        }
        if self.first_segment_size > self.segment_size {
            return Err(Error::Options("first_segment_size must not be larger than segment_size"));
        }
        if self.ready_ahead == 0 {
            return Err(Error::Options("ready_ahead must be at least 1"));
        }
        if u64::from(self.max_payload) > MAX_SEGMENT - 2 * HEADER_BLOCK {
            return Err(Error::Options("max_payload must leave room for the headers in 4 GiB"));
        }
        Ok(())
    }
}
