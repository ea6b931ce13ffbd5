//! The format codes of the primitive types (part 1, section 1.6).

pub(crate) const DESCRIBED: u8 = 0x00;
pub(crate) const NULL: u8 = 0x40;
pub(crate) const TRUE: u8 = 0x41;
pub(crate) const FALSE: u8 = 0x42;
pub(crate) const BOOLEAN: u8 = 0x56;
pub(crate) const UBYTE: u8 = 0x50;
pub(crate) const USHORT: u8 = 0x60;
pub(crate) const UINT: u8 = 0x70;
pub(crate) const UINT_SMALL: u8 = 0x52;
pub(crate) const UINT_0: u8 = 0x43;
pub(crate) const ULONG: u8 = 0x80;
pub(crate) const ULONG_SMALL: u8 = 0x53;
pub(crate) const ULONG_0: u8 = 0x44;
pub(crate) const BYTE: u8 = 0x51;
pub(crate) const SHORT: u8 = 0x61;
pub(crate) const INT: u8 = 0x71;
pub(crate) const INT_SMALL: u8 = 0x54;
pub(crate) const LONG: u8 = 0x81;
pub(crate) const LONG_SMALL: u8 = 0x55;
pub(crate) const FLOAT: u8 = 0x72;
pub(crate) const DOUBLE: u8 = 0x82;
pub(crate) const DECIMAL32: u8 = 0x74;
pub(crate) const DECIMAL64: u8 = 0x84;
pub(crate) const DECIMAL128: u8 = 0x94;
pub(crate) const CHAR: u8 = 0x73;
pub(crate) const TIMESTAMP: u8 = 0x83;
pub(crate) const UUID: u8 = 0x98;
pub(crate) const BINARY_8: u8 = 0xa0;
pub(crate) const BINARY_32: u8 = 0xb0;
pub(crate) const STRING_8: u8 = 0xa1;
pub(crate) const STRING_32: u8 = 0xb1;
pub(crate) const SYMBOL_8: u8 = 0xa3;
pub(crate) const SYMBOL_32: u8 = 0xb3;
pub(crate) const LIST_0: u8 = 0x45;
pub(crate) const LIST_8: u8 = 0xc0;
pub(crate) const LIST_32: u8 = 0xd0;
pub(crate) const MAP_8: u8 = 0xc1;
pub(crate) const MAP_32: u8 = 0xd1;
pub(crate) const ARRAY_8: u8 = 0xe0;
pub(crate) const ARRAY_32: u8 = 0xf0;

/// Whether elements of this code take no bytes of their own in an array.
pub(crate) const fn is_zero_width(code: u8) -> bool {
    code & 0xf0 == 0x40
}
