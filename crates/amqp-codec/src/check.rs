//! Passing over a value as decoding it does, with every check and without keeping anything: a value in memory takes many
//! times its bytes, and what others send may be long.

use crate::decode_error::DecodeError;
use crate::format;
use crate::reader::Reader;

impl Reader<'_> {
    /// Reads one value of any type, as [`Value`](crate::Value) is decoded.
    ///
    /// # Errors
    /// Where decoding it would fail, and with the same error.
    pub fn check_value(&mut self) -> Result<(), DecodeError> {
        let code = self.code()?;
        check_body(self, code)
    }
}

/// The value whose format code has been read.
fn check_body(r: &mut Reader<'_>, code: u8) -> Result<(), DecodeError> {
    match code {
        format::DESCRIBED => {
            r.descend()?;
            r.check_value()?;
            r.check_value()?;
            r.ascend();
        }
        format::NULL => {}
        format::TRUE | format::FALSE | format::BOOLEAN => drop(r.bool_body(code)?),
        format::UINT | format::UINT_SMALL | format::UINT_0 => drop(r.u32_body(code)?),
        format::ULONG | format::ULONG_SMALL | format::ULONG_0 => drop(r.u64_body(code)?),
        format::UBYTE | format::BYTE | format::INT_SMALL | format::LONG_SMALL => drop(r.byte()?),
        format::USHORT | format::SHORT => drop(r.array::<2>()?),
        format::INT | format::FLOAT | format::DECIMAL32 => drop(r.array::<4>()?),
        format::LONG | format::DOUBLE | format::DECIMAL64 | format::TIMESTAMP => drop(r.array::<8>()?),
        format::DECIMAL128 | format::UUID => drop(r.array::<16>()?),
        format::CHAR => drop(r.char_body()?),
        format::BINARY_8 | format::BINARY_32 => drop(r.variable_body(code)?),
        format::STRING_8 | format::STRING_32 => drop(r.str_body(code)?),
        format::SYMBOL_8 | format::SYMBOL_32 => drop(r.symbol_body(code)?),
        format::LIST_0 | format::LIST_8 | format::LIST_32 => {
            let (body, count) = r.compound_body(code)?;
            check_elements(r, body, count, "list")?;
        }
        format::MAP_8 | format::MAP_32 => {
            let (body, count) = r.map_body(code)?;
            check_elements(r, body, count, "map")?;
        }
        format::ARRAY_8 | format::ARRAY_32 => check_array(r, code)?,
        _ => return Err(r.unknown_code(code)),
    }
    Ok(())
}

fn check_elements(
    reader: &mut Reader<'_>,
    mut body: Reader<'_>,
    count: u32,
    compound: &'static str,
) -> Result<(), DecodeError> {
    for _ in 0..count {
        body.check_value()?;
    }
    body.finish_compound(compound)?;
    reader.absorb_allowance(&body);
    Ok(())
}

/// An array: one constructor (format code, with descriptors in front of it), then the bodies (section 1.6.24).
fn check_array(reader: &mut Reader<'_>, code: u8) -> Result<(), DecodeError> {
    let (mut body, count) = reader.compound_body(code)?;
    let mut element_code = body.code()?;
    while element_code == format::DESCRIBED {
        body.descend()?;
        body.check_value()?;
        element_code = body.code()?;
    }
    if format::is_zero_width(element_code) {
        body.charge_zero_width(count)?;
    }
    for _ in 0..count {
        check_body(&mut body, element_code)?;
    }
    body.finish_compound("array")?;
    reader.absorb_allowance(&body);
    Ok(())
}
