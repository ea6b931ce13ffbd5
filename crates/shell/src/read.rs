//! Reading messages back from the journal, for whoever has a thread for it.

use bytes::Bytes;
use postroad_engine::{Loaded, Wanted};
use postroad_journal::{Error, Location, Read, Reader, SegmentNumber};

/// Reads messages. Each frame's checksum is looked at, so what is damaged is never served; then the reason names the file
/// and the place in it.
pub fn read_messages(reader: &Reader, wanted: &[Wanted]) -> Vec<Loaded> {
    let locations: Vec<_> = wanted.iter().map(location).collect();
    let frames = reader.read_all(&locations);
    let loaded = |(wanted, frame): (&Wanted, Result<Read, Error>)| Loaded {
        body: wanted.body,
        bytes: frame.map_err(|error| error.to_string()).and_then(|frame| cut_out(&frame, wanted)),
    };
    wanted.iter().zip(frames).map(loaded).collect()
}

fn location(wanted: &Wanted) -> Location {
    let frame = wanted.place.frame;
    Location { segment: SegmentNumber(frame.segment), offset: frame.offset, length: frame.length }
}

fn cut_out(frame: &Read, wanted: &Wanted) -> Result<Bytes, String> {
    let payload = frame.payload();
    let (at, length) = (wanted.place.at as usize, wanted.length as usize);
    let end = at.checked_add(length).filter(|&end| end <= payload.len());
    // The copy lets the frame go: what else is in it need not stay in memory.
    end.map(|end| Bytes::copy_from_slice(&payload[at..end]))
        .ok_or_else(|| format!("the frame at {:?} is too short for it", location(wanted)))
}
