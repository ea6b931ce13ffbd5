//! Reading messages back from the journal, for whoever has a thread for it.

use bytes::Bytes;
use postroad_engine::{Loaded, Wanted};
use postroad_journal::{Location, Reader, SegmentNumber};

/// Reads messages. Each frame's checksum is looked at, so what is damaged is never served; then the reason names the file
/// and the place in it.
pub fn read_messages(reader: &Reader, wanted: &[Wanted]) -> Vec<Loaded> {
    wanted.iter().map(|wanted| Loaded { body: wanted.body, bytes: read(reader, wanted) }).collect()
}

fn read(reader: &Reader, wanted: &Wanted) -> Result<Bytes, String> {
    let frame = wanted.place.frame;
    let location =
        Location { segment: SegmentNumber(frame.segment), offset: frame.offset, length: frame.length };
    let payload = reader.read(&location).map_err(|error| error.to_string())?.payload();
    let (at, length) = (wanted.place.at as usize, wanted.length as usize);
    let end = at.checked_add(length).filter(|&end| end <= payload.len());
    // The copy lets the frame go: what else is in it need not stay in memory.
    end.map(|end| Bytes::copy_from_slice(&payload[at..end]))
        .ok_or_else(|| format!("the frame at {location:?} is too short for it"))
}
