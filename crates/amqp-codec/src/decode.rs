//! Owned values from encoded bytes.

use bytes::Bytes;

use crate::decode_error::DecodeError;
use crate::format;
use crate::map::{Fields, Map};
use crate::reader::Reader;
use crate::symbol::Symbol;
use crate::value::{Array, Described, Timestamp, Value};

/// A type that can be read from its encoding.
pub trait Decode: Sized {
    /// Reads one value; the reader goes on behind it.
    ///
    /// # Errors
    /// When the bytes are not a value of this type: where, and what was expected there.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads one value that is the whole input.
    ///
    /// # Errors
    /// As [`Decode::decode`], and when bytes are left behind the value.
    fn decode_all(input: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(input);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

macro_rules! decode_primitive {
    ($($type:ty => $read:expr;)*) => {
        $(impl Decode for $type {
            #[inline]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let read: fn(&mut Reader<'_>) -> Result<Self, DecodeError> = $read;
                read(reader)
            }
        })*
    };
}

decode_primitive! {
    bool => |r| r.bool();
    u8 => |r| r.u8();
    u16 => |r| r.u16();
    u32 => |r| r.u32();
    u64 => |r| r.u64();
    String => |r| r.str().map(str::to_owned);
    Symbol => |r| r.symbol().map(Symbol::from_ascii);
    Bytes => |r| r.binary().map(Bytes::copy_from_slice);
    Timestamp => |r| r.timestamp().map(Timestamp);
    Value => |r| { let code = r.code()?; value_body(r, code) };
    Vec<Value> => |r| r.list().and_then(|(body, count)| list_body(r, body, count));
    Map => |r| r.map().and_then(|(body, count)| map_body(r, body, count));
}

impl Decode for Fields {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut body, count) = reader.map()?;
        let mut entries = Vec::new();
        for _ in 0..count / 2 {
            let key = Symbol::decode(&mut body)?;
            entries.push((key, Value::decode(&mut body)?));
        }
        body.finish_compound("map")?;
        reader.absorb_allowance(&body);
        Ok(Self(entries))
    }
}

/// The value whose format code has been read.
fn value_body(r: &mut Reader<'_>, code: u8) -> Result<Value, DecodeError> {
    Ok(match code {
        format::DESCRIBED => return described_body(r),
        format::NULL => Value::Null,
        format::TRUE | format::FALSE | format::BOOLEAN => Value::Bool(r.bool_body(code)?),
        format::UBYTE => Value::Ubyte(r.byte()?),
        format::USHORT => Value::Ushort(u16::from_be_bytes(r.array()?)),
        format::UINT | format::UINT_SMALL | format::UINT_0 => Value::Uint(r.u32_body(code)?),
        format::ULONG | format::ULONG_SMALL | format::ULONG_0 => Value::Ulong(r.u64_body(code)?),
        format::BYTE => Value::Byte(i8::from_be_bytes(r.array()?)),
        format::SHORT => Value::Short(i16::from_be_bytes(r.array()?)),
        format::INT | format::INT_SMALL => Value::Int(r.i32_body(code)?),
        format::LONG | format::LONG_SMALL => Value::Long(r.i64_body(code)?),
        format::FLOAT => Value::Float(f32::from_be_bytes(r.array()?)),
        format::DOUBLE => Value::Double(f64::from_be_bytes(r.array()?)),
        format::DECIMAL32 => Value::Decimal32(r.array()?),
        format::DECIMAL64 => Value::Decimal64(r.array()?),
        format::DECIMAL128 => Value::Decimal128(r.array()?),
        format::CHAR => Value::Char(r.char_body()?),
        format::TIMESTAMP => Value::Timestamp(i64::from_be_bytes(r.array()?)),
        format::UUID => Value::Uuid(r.array()?),
        format::BINARY_8 | format::BINARY_32 => Value::Binary(Bytes::copy_from_slice(r.variable_body(code)?)),
        format::STRING_8 | format::STRING_32 => Value::String(r.str_body(code)?.to_owned()),
        format::SYMBOL_8 | format::SYMBOL_32 => Value::Symbol(Symbol::from_ascii(r.symbol_body(code)?)),
        format::LIST_0 | format::LIST_8 | format::LIST_32 => {
            let (body, count) = r.compound_body(code)?;
            Value::List(list_body(r, body, count)?)
        }
        format::MAP_8 | format::MAP_32 => {
            let (body, count) = r.map_body(code)?;
            Value::Map(map_body(r, body, count)?)
        }
        format::ARRAY_8 | format::ARRAY_32 => Value::Array(array_body(r, code)?),
        _ => return Err(r.unknown_code(code)),
    })
}

fn described_body(reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
    reader.descend()?;
    let descriptor = Value::decode(reader)?;
    let value = Value::decode(reader)?;
    reader.ascend();
    Ok(Value::Described(Box::new(Described { descriptor, value })))
}

/// The elements are collected one by one: a claimed count never sizes an allocation.
fn list_body(reader: &mut Reader<'_>, mut body: Reader<'_>, count: u32) -> Result<Vec<Value>, DecodeError> {
    let mut elements = Vec::new();
    for _ in 0..count {
        elements.push(Value::decode(&mut body)?);
    }
    body.finish_compound("list")?;
    reader.absorb_allowance(&body);
    Ok(elements)
}

fn map_body(reader: &mut Reader<'_>, mut body: Reader<'_>, count: u32) -> Result<Map, DecodeError> {
    let mut entries = Vec::new();
    for _ in 0..count / 2 {
        let key = Value::decode(&mut body)?;
        entries.push((key, Value::decode(&mut body)?));
    }
    body.finish_compound("map")?;
    reader.absorb_allowance(&body);
    Ok(Map(entries))
}

/// An array: one constructor (format code, with descriptors in front of it), then the bodies (section 1.6.24).
fn array_body(reader: &mut Reader<'_>, code: u8) -> Result<Array, DecodeError> {
    let (mut body, count) = reader.compound_body(code)?;
    let mut descriptors = Vec::new();
    let mut element_code = body.code()?;
    while element_code == format::DESCRIBED {
        body.descend()?;
        descriptors.push(Value::decode(&mut body)?);
        element_code = body.code()?;
    }
    if format::is_zero_width(element_code) {
        body.charge_zero_width(count)?;
    }
    let mut elements = Vec::new();
    for _ in 0..count {
        elements.push(value_body(&mut body, element_code)?);
    }
    body.finish_compound("array")?;
    reader.absorb_allowance(&body);
    Ok(Array::from_uniform(descriptors, elements))
}

/// Reads a field that holds one symbol or an array of symbols (part 1, section 1.4, `multiple="true"`).
pub(crate) fn symbols(reader: &mut Reader<'_>) -> Result<Vec<Symbol>, DecodeError> {
    let code = reader.peek_code()?;
    if !matches!(code, format::ARRAY_8 | format::ARRAY_32) {
        return Ok(vec![Symbol::decode(reader)?]);
    }
    let (mut body, count) = reader.code().and_then(|code| reader.compound_body(code))?;
    let element_code = body.code()?;
    let mut symbols = Vec::new();
    for _ in 0..count {
        match element_code {
            format::SYMBOL_8 | format::SYMBOL_32 => {
                symbols.push(Symbol::from_ascii(body.symbol_body(element_code)?));
            }
            _ => return Err(body.unexpected("an array of symbols", element_code)),
        }
    }
    body.finish_compound("array")?;
    Ok(symbols)
}
