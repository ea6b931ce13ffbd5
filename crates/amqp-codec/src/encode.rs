//! The smallest encoding of every type (part 1, section 1.6).

use bytes::Bytes;

use crate::format;
use crate::map::{Fields, Map};
use crate::symbol::Symbol;
use crate::value::{Array, Described, Timestamp, Value};
use crate::writer::{Buffer, Compound, saturate};

/// A type that can be written in its encoding.
pub trait Encode {
    /// Appends the encoded value.
    fn encode<B: Buffer>(&self, out: &mut B);

    /// The encoded value as bytes of its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode<B: Buffer>(&self, out: &mut B) {
        (**self).encode(out);
    }
}

impl Encode for bool {
    fn encode<B: Buffer>(&self, out: &mut B) {
        out.push(if *self { format::TRUE } else { format::FALSE });
    }
}

impl Encode for u32 {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match u8::try_from(*self) {
            Ok(0) => out.push(format::UINT_0),
            Ok(small) => out.put(&[format::UINT_SMALL, small]),
            Err(_) => put_fixed(out, format::UINT, self.to_be_bytes()),
        }
    }
}

impl Encode for u64 {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match u8::try_from(*self) {
            Ok(0) => out.push(format::ULONG_0),
            Ok(small) => out.put(&[format::ULONG_SMALL, small]),
            Err(_) => put_fixed(out, format::ULONG, self.to_be_bytes()),
        }
    }
}

impl Encode for i32 {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match i8::try_from(*self) {
            Ok(small) => put_fixed(out, format::INT_SMALL, small.to_be_bytes()),
            Err(_) => put_fixed(out, format::INT, self.to_be_bytes()),
        }
    }
}

impl Encode for i64 {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match i8::try_from(*self) {
            Ok(small) => put_fixed(out, format::LONG_SMALL, small.to_be_bytes()),
            Err(_) => put_fixed(out, format::LONG, self.to_be_bytes()),
        }
    }
}

macro_rules! encode_fixed {
    ($($type:ty => $code:path),* $(,)?) => {
        $(impl Encode for $type {
            fn encode<B: Buffer>(&self, out: &mut B) {
                put_fixed(out, $code, self.to_be_bytes());
            }
        })*
    };
}

encode_fixed! {
    u8 => format::UBYTE, u16 => format::USHORT, i8 => format::BYTE, i16 => format::SHORT,
    f32 => format::FLOAT, f64 => format::DOUBLE,
}

impl Encode for char {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_fixed(out, format::CHAR, u32::from(*self).to_be_bytes());
    }
}

impl Encode for str {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_variable(out, format::STRING_8, self.as_bytes());
    }
}

impl Encode for String {
    fn encode<B: Buffer>(&self, out: &mut B) {
        self.as_str().encode(out);
    }
}

impl Encode for Symbol {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_symbol(out, self.as_str());
    }
}

impl Encode for Bytes {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_binary(out, self);
    }
}

impl Encode for Timestamp {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_timestamp(out, self.0);
    }
}

impl Encode for Map {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let compound = Compound::begin(out);
        put_entries(out, self);
        compound.end_map(out, saturate(self.len() * 2));
    }
}

impl Encode for Fields {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let compound = Compound::begin(out);
        for (key, value) in &self.0 {
            key.encode(out);
            value.encode(out);
        }
        compound.end_map(out, saturate(self.len() * 2));
    }
}

impl Encode for Array {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let compound = Compound::begin(out);
        put_array_body(out, self);
        compound.end_array(out, saturate(self.elements().len()));
    }
}

impl Encode for Value {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Null => out.push(format::NULL),
            Self::Bool(v) => v.encode(out),
            Self::Ubyte(v) => v.encode(out),
            Self::Ushort(v) => v.encode(out),
            Self::Uint(v) => v.encode(out),
            Self::Ulong(v) => v.encode(out),
            Self::Byte(v) => v.encode(out),
            Self::Short(v) => v.encode(out),
            Self::Int(v) => v.encode(out),
            Self::Long(v) => v.encode(out),
            Self::Float(v) => v.encode(out),
            Self::Double(v) => v.encode(out),
            Self::Decimal32(v) => put_fixed(out, format::DECIMAL32, *v),
            Self::Decimal64(v) => put_fixed(out, format::DECIMAL64, *v),
            Self::Decimal128(v) => put_fixed(out, format::DECIMAL128, *v),
            Self::Char(v) => v.encode(out),
            Self::Timestamp(v) => put_timestamp(out, *v),
            Self::Uuid(v) => put_uuid(out, *v),
            Self::Binary(v) => v.encode(out),
            Self::String(v) => v.encode(out),
            Self::Symbol(v) => v.encode(out),
            Self::List(v) => v.as_slice().encode(out),
            Self::Map(v) => v.encode(out),
            Self::Array(v) => v.encode(out),
            Self::Described(v) => v.encode(out),
        }
    }
}

impl Encode for [Value] {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let compound = Compound::begin(out);
        self.iter().for_each(|element| element.encode(out));
        compound.end_list(out, saturate(self.len()));
    }
}

impl Encode for Described {
    fn encode<B: Buffer>(&self, out: &mut B) {
        out.push(format::DESCRIBED);
        self.descriptor.encode(out);
        self.value.encode(out);
    }
}

/// Appends a format code and a body of fixed width.
pub(crate) fn put_fixed<B: Buffer, const N: usize>(out: &mut B, code: u8, body: [u8; N]) {
    out.push(code);
    out.put(&body);
}

/// Appends a body of variable width behind an 8-bit or a 32-bit size; `small` is the code of the 8-bit form.
pub(crate) fn put_variable<B: Buffer>(out: &mut B, small: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(size) => out.put(&[small, size]),
        Err(_) => put_fixed(out, small | 0x10, saturate(body.len()).to_be_bytes()),
    }
    out.put(body);
}

/// Appends a `symbol`. The text must be ASCII.
pub(crate) fn put_symbol<B: Buffer>(out: &mut B, text: &str) {
    put_variable(out, format::SYMBOL_8, text.as_bytes());
}

/// Appends a `binary`.
pub(crate) fn put_binary<B: Buffer>(out: &mut B, bytes: &[u8]) {
    put_variable(out, format::BINARY_8, bytes);
}

/// Appends a `timestamp`: milliseconds since the Unix epoch.
pub(crate) fn put_timestamp<B: Buffer>(out: &mut B, milliseconds: i64) {
    put_fixed(out, format::TIMESTAMP, milliseconds.to_be_bytes());
}

/// Appends a `uuid`.
pub(crate) fn put_uuid<B: Buffer>(out: &mut B, uuid: [u8; 16]) {
    put_fixed(out, format::UUID, uuid);
}

/// Appends none, one or many symbols, as a field with `multiple="true"` holds them (part 1, section 1.4): many are
/// an array. One is an array too, since some peers read nothing else.
pub(crate) fn encode_symbols<B: Buffer>(symbols: &[Symbol], out: &mut B) {
    let compound = Compound::begin(out);
    let small = symbols.iter().all(|symbol| u8::try_from(symbol.as_str().len()).is_ok());
    out.push(if small { format::SYMBOL_8 } else { format::SYMBOL_32 });
    for symbol in symbols {
        put_sized(out, small, symbol.as_str().as_bytes());
    }
    compound.end_array(out, saturate(symbols.len()));
}

fn put_entries<B: Buffer>(out: &mut B, map: &Map) {
    for (key, value) in &map.0 {
        key.encode(out);
        value.encode(out);
    }
}

/// The size of a body in one byte or in four, then the body.
fn put_sized<B: Buffer>(out: &mut B, small: bool, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(size) if small => out.push(size),
        _ => out.put(&saturate(body.len()).to_be_bytes()),
    }
    out.put(body);
}

/// The constructor that all elements share, then their bodies (section 1.6.24).
fn put_array_body<B: Buffer>(out: &mut B, array: &Array) {
    for descriptor in array.descriptors() {
        out.push(format::DESCRIBED);
        descriptor.encode(out);
    }
    let code = element_code(array.elements());
    out.push(code);
    for element in array.elements() {
        put_element(out, code, element);
    }
}

/// The smallest format code that can hold every element.
fn element_code(elements: &[Value]) -> u8 {
    let all = |fits: fn(&Value) -> bool| elements.iter().all(fits);
    let fits_u8 = |value: &Value| value.as_u64().is_some_and(|n| u8::try_from(n).is_ok());
    let fits_i8 = |value: &Value| value.as_i64().is_some_and(|n| i8::try_from(n).is_ok());
    let short = |value: &Value| match value {
        Value::Binary(v) => v.len() <= 255,
        _ => value.as_str().is_some_and(|text| text.len() <= 255),
    };
    let either = |is_small: bool, small: u8, large: u8| if is_small { small } else { large };
    match elements.first() {
        None | Some(Value::Null | Value::Described(_)) => format::NULL,
        Some(Value::Bool(_)) => format::BOOLEAN,
        Some(Value::Ubyte(_)) => format::UBYTE,
        Some(Value::Ushort(_)) => format::USHORT,
        Some(Value::Uint(_)) => either(all(fits_u8), format::UINT_SMALL, format::UINT),
        Some(Value::Ulong(_)) => either(all(fits_u8), format::ULONG_SMALL, format::ULONG),
        Some(Value::Byte(_)) => format::BYTE,
        Some(Value::Short(_)) => format::SHORT,
        Some(Value::Int(_)) => either(all(fits_i8), format::INT_SMALL, format::INT),
        Some(Value::Long(_)) => either(all(fits_i8), format::LONG_SMALL, format::LONG),
        Some(Value::Float(_)) => format::FLOAT,
        Some(Value::Double(_)) => format::DOUBLE,
        Some(Value::Decimal32(_)) => format::DECIMAL32,
        Some(Value::Decimal64(_)) => format::DECIMAL64,
        Some(Value::Decimal128(_)) => format::DECIMAL128,
        Some(Value::Char(_)) => format::CHAR,
        Some(Value::Timestamp(_)) => format::TIMESTAMP,
        Some(Value::Uuid(_)) => format::UUID,
        Some(Value::Binary(_)) => either(all(short), format::BINARY_8, format::BINARY_32),
        Some(Value::String(_)) => either(all(short), format::STRING_8, format::STRING_32),
        Some(Value::Symbol(_)) => either(all(short), format::SYMBOL_8, format::SYMBOL_32),
        Some(Value::List(_)) => format::LIST_32,
        Some(Value::Map(_)) => format::MAP_32,
        Some(Value::Array(_)) => format::ARRAY_32,
    }
}

/// The body of an element, for the code that [`element_code`] chose.
fn put_element<B: Buffer>(out: &mut B, code: u8, element: &Value) {
    let small = code & 0x10 == 0;
    match element {
        Value::Null | Value::Described(_) => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Binary(v) => put_sized(out, small, v),
        Value::String(v) => put_sized(out, small, v.as_bytes()),
        Value::Symbol(v) => put_sized(out, small, v.as_str().as_bytes()),
        Value::List(v) => {
            let compound = Compound::begin(out);
            v.iter().for_each(|inner| inner.encode(out));
            compound.end_element(out, saturate(v.len()));
        }
        Value::Map(v) => {
            let compound = Compound::begin(out);
            put_entries(out, v);
            compound.end_element(out, saturate(v.len() * 2));
        }
        Value::Array(v) => {
            let compound = Compound::begin(out);
            put_array_body(out, v);
            compound.end_element(out, saturate(v.elements().len()));
        }
        _ => put_fixed_element(out, code, element),
    }
}

/// The body of an element of fixed width: the bytes behind the code of its full encoding, or the last of them when
/// the small code was chosen.
fn put_fixed_element<B: Buffer>(out: &mut B, code: u8, element: &Value) {
    match *element {
        Value::Uint(v) if code == format::UINT => out.put(&v.to_be_bytes()),
        Value::Ulong(v) if code == format::ULONG => out.put(&v.to_be_bytes()),
        Value::Int(v) if code == format::INT => out.put(&v.to_be_bytes()),
        Value::Long(v) if code == format::LONG => out.put(&v.to_be_bytes()),
        Value::Uint(v) => out.put(&v.to_be_bytes()[3..]),
        Value::Ulong(v) => out.put(&v.to_be_bytes()[7..]),
        Value::Int(v) => out.put(&v.to_be_bytes()[3..]),
        Value::Long(v) => out.put(&v.to_be_bytes()[7..]),
        Value::Ubyte(v) => out.push(v),
        Value::Ushort(v) => out.put(&v.to_be_bytes()),
        Value::Byte(v) => out.put(&v.to_be_bytes()),
        Value::Short(v) => out.put(&v.to_be_bytes()),
        Value::Float(v) => out.put(&v.to_be_bytes()),
        Value::Double(v) => out.put(&v.to_be_bytes()),
        Value::Decimal32(v) => out.put(&v),
        Value::Decimal64(v) => out.put(&v),
        Value::Decimal128(v) | Value::Uuid(v) => out.put(&v),
        Value::Char(v) => out.put(&u32::from(v).to_be_bytes()),
        Value::Timestamp(v) => out.put(&v.to_be_bytes()),
        _ => {}
    }
}
