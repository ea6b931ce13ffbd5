//! Any bytes as a step of the journal: refused, or read, written and read again to the same; replaying it never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_engine::Engine;
use postroad_model::settings::BrokerSettings;
use postroad_record::{FramePlace, append, decode_step};

fuzz_target!(|data: &[u8]| {
    let Ok(records) = decode_step(data) else { return };
    let mut written = Vec::new();
    records.iter().for_each(|record| append(record, &mut written));
    let again = decode_step(&written).expect("what was written can be read");
    assert_eq!(again, records);
    // A checksum stands before every record, so only a bug can bring an engine to these: it must still not panic.
    let mut engine = Engine::new(BrokerSettings::default(), [7; 16]);
    engine.replay(data, FramePlace::default()).expect("it was read before");
    engine.recovered(false);
});
