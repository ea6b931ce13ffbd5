//! Any bytes as a value: refused, or read, written and read again to the same; skipping finds the same end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_amqp_codec::message::ValueRef;
use postroad_amqp_codec::{Decode, Encode, Reader, Value};

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(data);
    let skipped = Reader::new(data).raw_value();
    // Borrowed scalars are checked as owned values are, or not looked into at all.
    let borrowed = ValueRef::read(&mut Reader::new(data));
    // What is only checked is refused where it would be if it were decoded.
    let mut checked = Reader::new(data);
    let check = checked.check_value();
    let value = match Value::decode(&mut reader) {
        Ok(value) => value,
        Err(error) => return assert_eq!(check, Err(error)),
    };
    assert_eq!((check, checked.position()), (Ok(()), reader.position()));
    assert_eq!(skipped.expect("what can be read can be skipped").len(), reader.position());
    assert!(borrowed.is_ok());
    let mut written = Vec::new();
    value.encode(&mut written);
    let again = Value::decode_all(&written).expect("what was written can be read");
    assert_eq!(again, value);
});
