//! The byte form of records: it never changes for what was ever written, and it reads back.

mod samples;

use crate::{
    BodyPlace, FramePlace, Item, PAGE, PagedEvent, Record, StoredBody, append, decode_step, put_bodies,
    put_events, read_step, take_bodies, take_events,
};
use postroad_model::id::BodyId;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use samples::{any_record, samples};
use std::fmt::Write as _;

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x7ec0), ..Config::default() }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(record, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// A line a record: what it is, then its bytes. Where this fails for a line that was there before, journals of earlier
/// versions can no longer be read: take the change back. A new record adds a line.
///
/// What holds definitions has to be read alike, but may be written longer: settings are added to their JSON.
#[test]
fn what_was_ever_written_reads_alike() {
    let mut golden = include_str!("golden.txt").lines();
    for record in samples() {
        let (name, bytes) = (samples::name(&record), encoded(&record));
        let line = format!("{name} {}", hex(&bytes));
        let (golden_name, golden_bytes) =
            golden.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
        assert_eq!(golden_name, name, "golden.txt lacks the line:\n{line}");
        let golden_bytes = unhex(golden_bytes);
        assert_eq!(decode_step(&golden_bytes).unwrap(), [record], "{name} reads otherwise than it did");
        if !bytes.contains(&b'{') {
            assert_eq!(hex(&golden_bytes), hex(&bytes), "{name} is written otherwise than it was");
        }
    }
    assert_eq!(golden.next(), None, "golden.txt has a line that no record belongs to");
}

#[test]
fn there_is_a_sample_of_every_record() {
    let mut numbers: Vec<u8> = samples().iter().map(|record| encoded(record)[0]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..samples::VARIANTS).collect::<Vec<u8>>());
}

#[test]
fn a_record_of_a_later_version_is_an_error_with_its_place() {
    let mut step = encoded(&samples()[0]);
    let offset = step.len();
    step.push(samples::VARIANTS);
    let error = decode_step(&step).unwrap_err();
    assert_eq!((error.index, error.offset), (1, offset));
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn steps_read_back(records in prop::collection::vec(any_record(), 0..6)) {
        let mut step = Vec::new();
        for record in &records {
            append(record, &mut step);
        }
        prop_assert_eq!(decode_step(&step).unwrap(), records);
    }

    #[test]
    fn a_step_that_was_cut_is_an_error_or_fewer_records(record in any_record(), cut in any::<prop::sample::Index>()) {
        let mut step = encoded(&samples()[0]);
        let first = step.len();
        append(&record, &mut step);
        step.truncate(first + cut.index(step.len() - first));
        let whole = step.len() == first;
        prop_assert_eq!(decode_step(&step).is_ok(), whole);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_step(&bytes);
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn a_step_read_in_place_holds_the_same(records in prop::collection::vec(any_record(), 0..6)) {
        let mut step = Vec::new();
        for record in &records {
            append(record, &mut step);
        }
        let mut read = Vec::new();
        read_step(&step, &mut |item| {
            read.push(match item {
                Item::Body(body, at) => {
                    let bytes = bytes::Bytes::copy_from_slice(&step[at as usize..][..body.bytes.len()]);
                    Record::Body { id: body.id, annotations: body.annotations, bytes }
                }
                Item::Record(record) => record,
            });
        })
        .unwrap();
        prop_assert_eq!(read, records);
    }

    #[test]
    fn pages_read_back(
        events in prop::collection::vec((any_record(), any::<u32>(), 0u32..3), 0..PAGE),
        bodies in prop::collection::vec(any::<(u64, u32, u32, u64, u32, u32, u32)>(), 0..PAGE),
        behind in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let events: Vec<PagedEvent> = events
            .into_iter()
            .filter_map(|(record, failed, counted)| match record {
                Record::Stored { event, .. } => Some(PagedEvent { event, failed, counted }),
                _ => None,
            })
            .collect();
        let mut page = Vec::new();
        put_events(events.iter().map(|e| (&e.event, e.failed, e.counted)), &mut page);
        page.extend_from_slice(&behind);
        let mut rest = &page[..];
        prop_assert_eq!(take_events(&mut rest).unwrap(), events);
        prop_assert_eq!(rest, &behind[..]);

        let bodies: Vec<StoredBody> = bodies
            .into_iter()
            .map(|(id, length, annotations, segment, offset, frame, at)| StoredBody {
                id: BodyId(id),
                length,
                annotations,
                place: BodyPlace { frame: FramePlace { segment, offset, length: frame }, at },
            })
            .collect();
        let mut page = Vec::new();
        put_bodies(bodies.iter().copied(), &mut page);
        prop_assert_eq!(take_bodies(&mut &page[..]).unwrap(), bodies);
    }

    #[test]
    fn arbitrary_bytes_are_a_page_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = take_events(&mut &bytes[..]);
        let _ = take_bodies(&mut &bytes[..]);
        let _ = read_step(&bytes, &mut |_| {});
    }
}
