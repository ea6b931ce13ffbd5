//! Any bytes as a message: sections, maps and properties where they lie, the owned form, and what the broker keeps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_amqp_codec::message::{Message, PropertiesRef, Sections, find_in_map, map_entries};
use postroad_amqp_codec::{Decode, Encode, Reader};
use postroad_model::message::{Incoming, Message as Stored};

/// Messages up to this size are also cut behind every byte.
const CUT_UP_TO: usize = 200;

fuzz_target!(|data: &[u8]| {
    let scanned = Sections::scan(data);
    let head = Sections::scan_head(data);
    if let Ok(sections) = &scanned {
        let head = head.expect("the front of a whole message is sound");
        assert_eq!(head.and_then(|head| head.properties), head.and(sections.properties));
        check_prefixes(data);
        look_into(data, sections);
    }
    if let Ok(message) = Message::decode(&mut Reader::new(data)) {
        let mut written = Vec::new();
        message.encode(&mut written);
        let again = Message::decode(&mut Reader::new(&written)).expect("what was written can be read");
        assert_eq!(again, message);
    }
    if let Ok(incoming) = Incoming::parse(data) {
        scanned.expect("what the broker takes has sections");
        keep(&incoming);
    }
});

/// A message that comes in pieces is never refused for what is still to come.
fn check_prefixes(data: &[u8]) {
    if data.len() <= CUT_UP_TO {
        for end in 0..data.len() {
            Sections::scan_head(&data[..end]).expect("a piece of a sound message");
        }
    }
}

fn look_into(data: &[u8], sections: &Sections) {
    let maps = [
        sections.delivery_annotations,
        sections.message_annotations,
        sections.application_properties,
        sections.footer,
    ];
    for section in maps.into_iter().flatten().map(|span| span.of(data)) {
        let Ok(entries) = map_entries(section) else { continue };
        let mut seen = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else { break };
            let Some(key) = entry.key.as_str().filter(|key| !seen.contains(key)) else { continue };
            // The first entry with a key counts, also if its value can't be read.
            seen.push(key);
            if let Ok(value) = entry.value_ref() {
                let found = find_in_map(section, key).expect("an entry is found by its key");
                // Numbers that are not equal to themselves are written out.
                assert_eq!(format!("{found:?}"), format!("{value:?}"));
            }
        }
        assert_eq!(find_in_map(section, "no such key, however long one looks"), None);
    }
    if let Some(Ok(properties)) = sections.properties.map(|span| PropertiesRef::parse(span.of(data))) {
        let texts = (properties.to(), properties.subject(), properties.reply_to(), properties.group_id());
        let ids = (properties.message_id(), properties.correlation_id());
        let _ = (texts, ids, properties.absolute_expiry_time(), properties.creation_time());
    }
}

/// What is stored reads back from the journal.
fn keep(incoming: &Incoming) {
    let message = &incoming.message;
    let again = Stored::from_stored(message.bytes().clone(), message.annotations_len())
        .expect("what is kept can be read");
    assert_eq!(&again, message);
    assert!(again.bare().len() <= message.len());
    let _ = (message.message_id(), message.correlation_id(), message.subject(), message.group_id());
    let _ =
        (message.creation_time(), message.application_property("a"), message.body(), message.annotations());
}
