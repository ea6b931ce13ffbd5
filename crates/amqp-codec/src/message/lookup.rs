//! Reading application properties and annotations inside their encoded section, without building a map.

use crate::decode_error::DecodeError;
use crate::encode::{Encode, put_binary, put_symbol, put_timestamp, put_uuid};
use crate::format;
use crate::reader::Reader;
use crate::writer::Buffer;

/// A value that is borrowed from encoded bytes. Numbers are widened to the largest type of their kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// `null`.
    Null,
    /// `boolean`.
    Bool(bool),
    /// `byte`, `short`, `int` or `long`.
    Int(i64),
    /// `ubyte`, `ushort`, `uint` or `ulong`.
    Uint(u64),
    /// `float` or `double`.
    Float(f64),
    /// `string`.
    Text(&'a str),
    /// `symbol`.
    Symbol(&'a str),
    /// `binary`.
    Binary(&'a [u8]),
    /// `timestamp`: milliseconds since the Unix epoch.
    Timestamp(i64),
    /// `uuid`.
    Uuid([u8; 16]),
    /// Anything else, as it is encoded: `char`, decimals, lists, maps, arrays, described values.
    Other(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes are no value.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let code = reader.peek_code()?;
        Ok(match code {
            format::NULL => reader.skip_value().map(|()| Self::Null)?,
            format::TRUE | format::FALSE | format::BOOLEAN => Self::Bool(reader.bool()?),
            format::UBYTE => Self::Uint(reader.u8()?.into()),
            format::USHORT => Self::Uint(reader.u16()?.into()),
            format::UINT | format::UINT_SMALL | format::UINT_0 => Self::Uint(reader.u32()?.into()),
            format::ULONG | format::ULONG_SMALL | format::ULONG_0 => Self::Uint(reader.u64()?),
            format::BYTE => Self::Int(reader.i8()?.into()),
            format::SHORT => Self::Int(reader.i16()?.into()),
            format::INT | format::INT_SMALL => Self::Int(reader.i32()?.into()),
            format::LONG | format::LONG_SMALL => Self::Int(reader.i64()?),
            format::FLOAT => Self::Float(reader.f32()?.into()),
            format::DOUBLE => Self::Float(reader.f64()?),
            format::STRING_8 | format::STRING_32 => Self::Text(reader.str()?),
            format::SYMBOL_8 | format::SYMBOL_32 => Self::Symbol(reader.symbol()?),
            format::BINARY_8 | format::BINARY_32 => Self::Binary(reader.binary()?),
            format::TIMESTAMP => Self::Timestamp(reader.timestamp()?),
            format::UUID => Self::Uuid(reader.uuid()?),
            _ => Self::Other(reader.raw_value()?),
        })
    }

    /// The text of a string or a symbol.
    #[must_use]
    pub const fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Text(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }
}

/// Numbers are written as `long`, `ulong` and `double`, whatever they were read from.
impl Encode for ValueRef<'_> {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match *self {
            Self::Null => out.push(format::NULL),
            Self::Bool(v) => v.encode(out),
            Self::Int(v) => v.encode(out),
            Self::Uint(v) => v.encode(out),
            Self::Float(v) => v.encode(out),
            Self::Text(v) => v.encode(out),
            Self::Symbol(v) => put_symbol(out, v),
            Self::Binary(v) => put_binary(out, v),
            Self::Timestamp(v) => put_timestamp(out, v),
            Self::Uuid(v) => put_uuid(out, v),
            Self::Other(raw) => out.put(raw),
        }
    }
}

/// The value of the first entry with this key, in a map section (its descriptor included) or a bare map. The key may
/// be a string or a symbol. `None` when there is no such entry, or the map is damaged before it.
#[must_use]
pub fn find_in_map<'a>(section: &'a [u8], key: &str) -> Option<ValueRef<'a>> {
    let (mut reader, count) = open_map(section).ok()?;
    for _ in 0..count / 2 {
        if take_key(&mut reader, key.as_bytes()).ok()? {
            return ValueRef::read(&mut reader).ok();
        }
        reader.skip_value().ok()?;
    }
    None
}

/// The entries of a map section (its descriptor included) or of a bare map, in order.
///
/// # Errors
/// When the bytes are neither.
pub fn map_entries(section: &[u8]) -> Result<MapEntries<'_>, DecodeError> {
    let (reader, count) = open_map(section)?;
    Ok(MapEntries { reader, left: count / 2 })
}

/// An entry of an encoded map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapEntry<'a> {
    /// The key.
    pub key: ValueRef<'a>,
    /// The encoded value.
    pub value: &'a [u8],
    /// The encoded key and value, to be copied whole.
    pub raw: &'a [u8],
}

impl<'a> MapEntry<'a> {
    /// Reads the value.
    ///
    /// # Errors
    /// When the bytes are no value of the type that their code says.
    pub fn value_ref(&self) -> Result<ValueRef<'a>, DecodeError> {
        ValueRef::read(&mut Reader::new(self.value))
    }
}

/// The entries of an encoded map; ends after the first error.
#[derive(Clone, Debug)]
pub struct MapEntries<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> MapEntries<'a> {
    fn read(&mut self) -> Result<MapEntry<'a>, DecodeError> {
        let rest = self.reader.remaining();
        let start = self.reader.position();
        let key = ValueRef::read(&mut self.reader)?;
        let value = self.reader.raw_value()?;
        let raw = rest.get(..self.reader.position() - start).unwrap_or_default();
        Ok(MapEntry { key, value, raw })
    }
}

impl<'a> Iterator for MapEntries<'a> {
    type Item = Result<MapEntry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.read();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

fn open_map(section: &[u8]) -> Result<(Reader<'_>, u32), DecodeError> {
    let mut reader = Reader::new(section);
    if section.first() == Some(&format::DESCRIBED) {
        reader.descriptor()?;
    }
    reader.map()
}

/// Passes over a key and says whether it is the one that is looked for.
fn take_key(reader: &mut Reader<'_>, key: &[u8]) -> Result<bool, DecodeError> {
    match reader.peek_code()? {
        format::STRING_8 | format::SYMBOL_8 | format::STRING_32 | format::SYMBOL_32 => {
            let code = reader.code()?;
            Ok(reader.variable_body(code)? == key)
        }
        _ => reader.skip_value().map(|()| false),
    }
}
