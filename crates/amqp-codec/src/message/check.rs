//! Checking the maps of a message that is passed on as it is encoded: nobody further on can read what breaks these
//! rules.

use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::format;
use crate::message::lookup::ValueRef;
use crate::message::sections::Span;
use crate::reader::Reader;
use crate::value::Value;

/// Checks a section of annotations (delivery annotations, message annotations, footer): its keys are symbols or
/// `ulong`s (part 3, section 3.2.10), its values are whole. Offsets in errors count from the start of `message`.
///
/// # Errors
/// When a key has another type, or something in the map is no value.
pub fn check_annotations(message: &[u8], section: Span) -> Result<(), DecodeError> {
    check_map(message, section, |reader| match reader.peek_code()? {
        format::SYMBOL_8 | format::SYMBOL_32 => reader.symbol().map(|_| ()),
        format::ULONG | format::ULONG_SMALL | format::ULONG_0 => reader.u64().map(|_| ()),
        code => {
            reader.code()?;
            Err(reader.unexpected("an annotation's key: symbol or ulong", code))
        }
    })
}

/// Checks an application-properties section: its keys are strings, its values are of simple types (part 3, section
/// 3.2.5). Described values are let through when what they describe is simple, since widespread clients send such.
/// Offsets in errors count from the start of `message`.
///
/// # Errors
/// When a key is no string, a value is a list, a map or an array, or something in the map is no value.
pub fn check_application_properties(message: &[u8], section: Span) -> Result<(), DecodeError> {
    check_map(message, section, |reader| {
        reader.str()?;
        check_simple(&mut reader.clone())
    })
}

/// Walks over a map; `check_key` reads a key, and may look at the value behind it.
fn check_map<'a>(
    message: &'a [u8],
    section: Span,
    check_key: impl Fn(&mut Reader<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::at(section.of(message), section.range().start);
    reader.descriptor()?;
    let (mut entries, count) = reader.map()?;
    for _ in 0..count / 2 {
        check_key(&mut entries)?;
        check_value(&mut entries)?;
    }
    entries.finish_compound("map")
}

/// Reads one value whole.
fn check_value(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut whole = reader.clone();
    if let ValueRef::Other(_) = ValueRef::read(reader)? {
        // Compound values are rare here, so they may cost an allocation.
        Value::decode(&mut whole)?;
        reader.absorb_allowance(&whole);
    }
    Ok(())
}

fn check_simple(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    while reader.peek_code()? == format::DESCRIBED {
        reader.code()?;
        reader.skip_value()?;
    }
    let code = reader.code()?;
    // Lists have the codes 0x45, 0xc0 and 0xd0, maps 0xc1 and 0xd1, arrays 0xe0 and 0xf0 (part 1, section 1.6).
    let compound = code == format::LIST_0 || code >= 0xc0;
    if compound { Err(reader.unexpected("a property of a simple type", code)) } else { Ok(()) }
}
