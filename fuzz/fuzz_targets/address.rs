//! Any text as an address: refused, or its printed form means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_model::address::{Address, Kind};

fuzz_target!(|input: (u8, &str)| {
    let (hint, text) = input;
    let hint = [None, Some(Kind::Queue), Some(Kind::Topic), Some(Kind::Channel)][usize::from(hint % 4)];
    let Ok(address) = Address::parse(text, hint) else { return };
    let printed = address.to_string();
    let again = Address::parse(&printed, None);
    assert_eq!(again.as_ref(), Ok(&address), "printed as {printed}");
});
