//! Checking the maps of a message that is passed on as it is encoded: nobody further on can read what breaks these
//! rules.

use crate::decode_error::DecodeError;
use crate::format;
use crate::message::lookup::ValueRef;
use crate::message::sections::Span;
use crate::reader::Reader;

/// Checks a section of annotations (delivery annotations, message annotations, footer): its keys are symbols or
/// `ulong`s (part 3, section 3.2.10), its values are whole. Offsets in errors count from the start of `message`.
///
/// # Errors
/// When a key has another type, or something in the map is no value.
pub fn check_annotations(message: &[u8], section: Span) -> Result<(), DecodeError> {
    let (mut entries, count) = open_map(message, section)?;
    for _ in 0..count / 2 {
        match entries.peek_code()? {
            format::SYMBOL_8 | format::SYMBOL_32 => entries.symbol().map(|_| ())?,
            format::ULONG | format::ULONG_SMALL | format::ULONG_0 => entries.u64().map(|_| ())?,
            code => {
                entries.code()?;
                return Err(entries.unexpected("an annotation's key: symbol or ulong", code));
            }
        }
        check_value(&mut entries)?;
    }
    entries.finish_compound("map")
}

/// Checks an application-properties section: its keys are strings, its values are of simple types (part 3, section
/// 3.2.5). Described values are let through when what they describe is simple, since widespread clients send such.
/// `see` is shown every key. Offsets in errors count from the start of `message`.
///
/// # Errors
/// When a key is no string, a value is a list, a map or an array, or something in the map is no value.
pub fn check_application_properties(
    message: &[u8],
    section: Span,
    mut see: impl FnMut(&str),
) -> Result<(), DecodeError> {
    let (mut entries, count) = open_map(message, section)?;
    for _ in 0..count / 2 {
        see(entries.str()?);
        match entries.peek_code()? {
            format::DESCRIBED => check_described(&mut entries)?,
            code if is_compound(code) => return Err(not_simple(&mut entries)),
            _ => ValueRef::read(&mut entries).map(|_| ())?,
        }
    }
    entries.finish_compound("map")
}

/// The keys and values of a map section, and how many of both it claims.
fn open_map(message: &[u8], section: Span) -> Result<(Reader<'_>, u32), DecodeError> {
    let mut reader = Reader::at(section.of(message), section.range().start);
    reader.descriptor()?;
    reader.map()
}

/// Reads one value whole.
fn check_value(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let code = reader.peek_code()?;
    if is_compound(code) || code == format::DESCRIBED {
        return reader.check_value();
    }
    ValueRef::read(reader).map(|_| ())
}

/// Lists have the codes 0x45, 0xc0 and 0xd0, maps 0xc1 and 0xd1, arrays 0xe0 and 0xf0 (part 1, section 1.6).
const fn is_compound(code: u8) -> bool {
    code == format::LIST_0 || code >= 0xc0
}

fn check_described(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut inside = reader.clone();
    while inside.peek_code()? == format::DESCRIBED {
        inside.code()?;
        inside.skip_value()?;
    }
    if is_compound(inside.peek_code()?) { Err(not_simple(&mut inside)) } else { check_value(reader) }
}

fn not_simple(reader: &mut Reader<'_>) -> DecodeError {
    match reader.code() {
        Ok(code) => reader.unexpected("a property of a simple type", code),
        Err(error) => error,
    }
}
