//! Reading encoded values from bytes that nobody has checked yet (part 1, sections 1.2 to 1.6).

use crate::composite::FieldReader;
use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::descriptor::Descriptor;
use crate::format;

/// How deep values may be nested: lists, maps, arrays and descriptors all count.
pub const MAX_DEPTH: u8 = 32;

/// Array elements that take no bytes, in all that one reader reads: a few bytes could claim any number of them. A number that
/// grew with the input would let a value be read that can't be read again where it stands alone.
const ZERO_WIDTH_ALLOWANCE: u32 = 4096;

/// A place in encoded bytes.
///
/// Reads are checked against the end of the input, or of the compound value that the reader was made for. What it
/// hands out is borrowed from the input. After an error the reader stands somewhere inside the value that failed.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    input: &'a [u8],
    position: usize,
    origin: usize,
    depth: u8,
    zero_width_left: u32,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `input`.
    #[must_use]
    pub const fn new(input: &'a [u8]) -> Self {
        Self::at(input, 0)
    }

    /// A reader at the start of `input`, whose errors count offsets from `origin` bytes before it.
    #[must_use]
    pub const fn at(input: &'a [u8], origin: usize) -> Self {
        Self { input, position: 0, origin, depth: 0, zero_width_left: ZERO_WIDTH_ALLOWANCE }
    }

    /// The offset of the next byte, as errors count it.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.origin.saturating_add(self.position)
    }

    /// How many bytes have been read.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// The bytes that have not been read.
    #[must_use]
    pub fn remaining(&self) -> &'a [u8] {
        self.input.get(self.position..).unwrap_or_default()
    }

    /// Whether everything has been read.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.position >= self.input.len()
    }

    /// Checks that everything has been read.
    ///
    /// # Errors
    /// [`DecodeErrorKind::TrailingBytes`].
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining().len() {
            0 => Ok(()),
            left => Err(self.error(DecodeErrorKind::TrailingBytes { left })),
        }
    }

    /// The format code of the next value, without reading it.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`] at the end.
    pub fn peek_code(&self) -> Result<u8, DecodeError> {
        self.remaining().first().copied().ok_or_else(|| self.truncated(1))
    }

    /// Reads a null, if that is what comes next.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`] at the end.
    pub fn take_null(&mut self) -> Result<bool, DecodeError> {
        let is_null = self.peek_code()? == format::NULL;
        self.position += usize::from(is_null);
        Ok(is_null)
    }

    /// Reads a `boolean` (section 1.6.2).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        let code = self.code()?;
        self.bool_body(code)
    }

    /// Reads a `ubyte` (section 1.6.3).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.expect_code(format::UBYTE, "ubyte")?;
        self.byte()
    }

    /// Reads a `ushort` (section 1.6.4).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.expect_code(format::USHORT, "ushort")?;
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Reads a `uint` (section 1.6.5).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        let code = self.code()?;
        self.u32_body(code)
    }

    /// Reads a `ulong` (section 1.6.6).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        let code = self.code()?;
        self.u64_body(code)
    }

    /// Reads a `byte` (section 1.6.7).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.expect_code(format::BYTE, "byte")?;
        Ok(i8::from_be_bytes(self.array()?))
    }

    /// Reads a `short` (section 1.6.8).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.expect_code(format::SHORT, "short")?;
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// Reads an `int` (section 1.6.9).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        let code = self.code()?;
        self.i32_body(code)
    }

    /// Reads a `long` (section 1.6.10).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        let code = self.code()?;
        self.i64_body(code)
    }

    /// Reads a `float` (section 1.6.11).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn f32(&mut self) -> Result<f32, DecodeError> {
        self.expect_code(format::FLOAT, "float")?;
        Ok(f32::from_be_bytes(self.array()?))
    }

    /// Reads a `double` (section 1.6.12).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.expect_code(format::DOUBLE, "double")?;
        Ok(f64::from_be_bytes(self.array()?))
    }

    /// Reads a `char` (section 1.6.16).
    ///
    /// # Errors
    /// When something else is there, too little, or a number that is no character.
    pub fn char(&mut self) -> Result<char, DecodeError> {
        self.expect_code(format::CHAR, "char")?;
        self.char_body()
    }

    /// Reads a `timestamp`: milliseconds since the Unix epoch (section 1.6.17).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn timestamp(&mut self) -> Result<i64, DecodeError> {
        self.expect_code(format::TIMESTAMP, "timestamp")?;
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads a `uuid` (section 1.6.18).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn uuid(&mut self) -> Result<[u8; 16], DecodeError> {
        self.expect_code(format::UUID, "uuid")?;
        self.array()
    }

    /// Reads a `binary` (section 1.6.19).
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let code = self.code()?;
        match code {
            format::BINARY_8 | format::BINARY_32 => self.variable_body(code),
            _ => Err(self.unexpected("binary", code)),
        }
    }

    /// Reads a `string` (section 1.6.20).
    ///
    /// # Errors
    /// When something else is there, too little, or no UTF-8.
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let code = self.code()?;
        match code {
            format::STRING_8 | format::STRING_32 => self.str_body(code),
            _ => Err(self.unexpected("string", code)),
        }
    }

    /// Reads a `symbol` (section 1.6.21).
    ///
    /// # Errors
    /// When something else is there, too little, or no ASCII.
    pub fn symbol(&mut self) -> Result<&'a str, DecodeError> {
        let code = self.code()?;
        match code {
            format::SYMBOL_8 | format::SYMBOL_32 => self.symbol_body(code),
            _ => Err(self.unexpected("symbol", code)),
        }
    }

    /// Reads the head of a `list` (section 1.6.22): a reader for its elements, and how many it claims. This reader
    /// goes on behind the list.
    ///
    /// # Errors
    /// When something else is there, too little, or the list lies too deep.
    pub fn list(&mut self) -> Result<(Reader<'a>, u32), DecodeError> {
        let code = self.code()?;
        match code {
            format::LIST_0 | format::LIST_8 | format::LIST_32 => self.compound_body(code),
            _ => Err(self.unexpected("list", code)),
        }
    }

    /// Reads the head of a `map` (section 1.6.23): a reader for its keys and values, and how many of both together
    /// it claims (an even number). This reader goes on behind the map.
    ///
    /// # Errors
    /// When something else is there, too little, an odd number is claimed, or the map lies too deep.
    pub fn map(&mut self) -> Result<(Reader<'a>, u32), DecodeError> {
        let code = self.code()?;
        match code {
            format::MAP_8 | format::MAP_32 => self.map_body(code),
            _ => Err(self.unexpected("map", code)),
        }
    }

    /// Reads the descriptor of a described value; the value comes next (section 1.2).
    ///
    /// # Errors
    /// When no described value is there, too little, or a descriptor that is neither a `ulong` nor a `symbol`.
    pub fn descriptor(&mut self) -> Result<Descriptor<'a>, DecodeError> {
        // As nearly all are encoded.
        if let [format::DESCRIBED, format::ULONG_SMALL, code, ..] = *self.remaining() {
            self.position += 3;
            return Ok(Descriptor::Code(code.into()));
        }
        self.expect_code(format::DESCRIBED, "a described value")?;
        match self.peek_code()? {
            format::SYMBOL_8 | format::SYMBOL_32 => Ok(Descriptor::Name(self.symbol()?)),
            _ => Ok(Descriptor::Code(self.u64()?)),
        }
    }

    /// Reads the head of a composite value (section 1.4): its descriptor, and a reader for its fields. This reader
    /// goes on behind the value.
    ///
    /// # Errors
    /// When something else is there, or too little.
    pub fn composite(&mut self) -> Result<(Descriptor<'a>, FieldReader<'a>), DecodeError> {
        let descriptor = self.descriptor()?;
        let (fields, count) = self.list()?;
        Ok((descriptor, FieldReader::new(fields, count)))
    }

    /// Passes over one value of any type without looking into it: the sizes of lists, maps and arrays are trusted
    /// as far as the input reaches.
    ///
    /// # Errors
    /// When too little is there, a code that is no format code, or descriptors nested too deep.
    pub fn skip_value(&mut self) -> Result<(), DecodeError> {
        match self.code()? {
            format::DESCRIBED => self.skip_described(),
            code => self.skip_body(code),
        }
    }

    /// Passes over a described value whose first byte has been read. Its descriptor may be described, and so may its value:
    /// that they nest counts, not how many there are, as it does where they are read.
    fn skip_described(&mut self) -> Result<(), DecodeError> {
        // Of each described value around the next byte: how many of its two parts are still to come.
        let mut parts = [0_u8; MAX_DEPTH as usize];
        parts[0] = 2;
        let mut depth = 1;
        while depth > 0 {
            let code = self.code()?;
            if code == format::DESCRIBED {
                let Some(next) = parts.get_mut(depth) else {
                    return Err(self.error(DecodeErrorKind::TooDeep { limit: MAX_DEPTH }));
                };
                *next = 2;
                depth += 1;
                continue;
            }
            self.skip_body(code)?;
            while let Some(left) = depth.checked_sub(1).and_then(|at| parts.get_mut(at)) {
                *left -= 1;
                if *left > 0 {
                    break;
                }
                depth -= 1;
            }
        }
        Ok(())
    }

    /// The position behind the next value, as its size says; `None` when it is of fixed width or its size is not there.
    pub(crate) fn announced_end(&self) -> Option<u64> {
        let mut reader = self.clone();
        let code = reader.code().ok().filter(|&code| code >= format::BINARY_8)?;
        let size = reader.size(code).ok()?;
        Some((reader.position() as u64).saturating_add(size as u64))
    }

    /// Reads the encoded bytes of one value of any type, as [`Reader::skip_value`] passes over it.
    ///
    /// # Errors
    /// As [`Reader::skip_value`].
    pub fn raw_value(&mut self) -> Result<&'a [u8], DecodeError> {
        let rest = self.remaining();
        let start = self.position;
        self.skip_value()?;
        Ok(rest.get(..self.position - start).unwrap_or_default())
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let bytes = self.remaining().get(..length).ok_or_else(|| self.truncated(length))?;
        self.position += length;
        Ok(bytes)
    }

    /// An error at the next byte.
    #[cold]
    #[must_use]
    pub const fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { offset: self.offset(), kind }
    }
}

/// The bodies of values whose format code has been read; arrays share one code among many bodies.
impl<'a> Reader<'a> {
    pub(crate) fn code(&mut self) -> Result<u8, DecodeError> {
        self.byte()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = self.peek_code()?;
        self.position += 1;
        Ok(byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.remaining().first_chunk::<N>().ok_or_else(|| self.truncated(N))?;
        self.position += N;
        Ok(*bytes)
    }

    pub(crate) fn bool_body(&mut self, code: u8) -> Result<bool, DecodeError> {
        match code {
            format::TRUE => Ok(true),
            format::FALSE => Ok(false),
            format::BOOLEAN => match self.byte()? {
                0 => Ok(false),
                1 => Ok(true),
                other => Err(self.invalid_choice("a boolean of 0 or 1", other.into())),
            },
            _ => Err(self.unexpected("boolean", code)),
        }
    }

    pub(crate) fn u32_body(&mut self, code: u8) -> Result<u32, DecodeError> {
        match code {
            format::UINT_0 => Ok(0),
            format::UINT_SMALL => Ok(self.byte()?.into()),
            format::UINT => Ok(u32::from_be_bytes(self.array()?)),
            _ => Err(self.unexpected("uint", code)),
        }
    }

    pub(crate) fn u64_body(&mut self, code: u8) -> Result<u64, DecodeError> {
        match code {
            format::ULONG_0 => Ok(0),
            format::ULONG_SMALL => Ok(self.byte()?.into()),
            format::ULONG => Ok(u64::from_be_bytes(self.array()?)),
            _ => Err(self.unexpected("ulong", code)),
        }
    }

    pub(crate) fn i32_body(&mut self, code: u8) -> Result<i32, DecodeError> {
        match code {
            format::INT_SMALL => Ok(i8::from_be_bytes(self.array()?).into()),
            format::INT => Ok(i32::from_be_bytes(self.array()?)),
            _ => Err(self.unexpected("int", code)),
        }
    }

    pub(crate) fn i64_body(&mut self, code: u8) -> Result<i64, DecodeError> {
        match code {
            format::LONG_SMALL => Ok(i8::from_be_bytes(self.array()?).into()),
            format::LONG => Ok(i64::from_be_bytes(self.array()?)),
            _ => Err(self.unexpected("long", code)),
        }
    }

    pub(crate) fn char_body(&mut self) -> Result<char, DecodeError> {
        let value = u32::from_be_bytes(self.array()?);
        char::from_u32(value).ok_or_else(|| self.error(DecodeErrorKind::InvalidChar { value }))
    }

    /// The bytes of a value whose size comes first, in one byte or in four as its code says.
    pub(crate) fn variable_body(&mut self, code: u8) -> Result<&'a [u8], DecodeError> {
        let size = self.size(code)?;
        self.take(size)
    }

    pub(crate) fn str_body(&mut self, code: u8) -> Result<&'a str, DecodeError> {
        let start = self.offset();
        let bytes = self.variable_body(code)?;
        std::str::from_utf8(bytes)
            .map_err(|_| DecodeError { offset: start, kind: DecodeErrorKind::InvalidUtf8 })
    }

    pub(crate) fn symbol_body(&mut self, code: u8) -> Result<&'a str, DecodeError> {
        let start = self.offset();
        let bytes = self.variable_body(code)?;
        match std::str::from_utf8(bytes) {
            Ok(text) if text.is_ascii() => Ok(text),
            _ => Err(DecodeError { offset: start, kind: DecodeErrorKind::InvalidSymbol }),
        }
    }

    /// The head of a list, map or array: a reader for its elements, one level deeper, and their claimed number.
    pub(crate) fn compound_body(&mut self, code: u8) -> Result<(Reader<'a>, u32), DecodeError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(DecodeErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        let size = if code == format::LIST_0 { 0 } else { self.size(code)? };
        let start = self.position;
        self.take(size)?;
        let input = self.input.get(..self.position).unwrap_or_default();
        let mut body = Reader { input, position: start, depth: self.depth + 1, ..self.clone() };
        let count = match code & 0xf0 {
            0x40 => 0,
            0xc0 | 0xe0 => body.byte()?.into(),
            _ => u32::from_be_bytes(body.array()?),
        };
        Ok((body, count))
    }

    pub(crate) fn map_body(&mut self, code: u8) -> Result<(Reader<'a>, u32), DecodeError> {
        let (body, count) = self.compound_body(code)?;
        if count % 2 == 1 { Err(body.error(DecodeErrorKind::OddMap { count })) } else { Ok((body, count)) }
    }

    /// Checks that the elements of a compound value fill its size.
    pub(crate) fn finish_compound(&self, expected: &'static str) -> Result<(), DecodeError> {
        match self.remaining().len() {
            0 => Ok(()),
            left => Err(self.error(DecodeErrorKind::SizeMismatch { expected, left })),
        }
    }

    /// One level deeper, for a value inside the one that is being read.
    pub(crate) fn descend(&mut self) -> Result<(), DecodeError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(DecodeErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Back from [`Reader::descend`].
    pub(crate) const fn ascend(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Charges array elements that take no bytes: they are the only values that a peer could claim for nothing.
    pub(crate) fn charge_zero_width(&mut self, count: u32) -> Result<(), DecodeError> {
        let left = self.zero_width_left.checked_sub(count);
        self.zero_width_left = left.ok_or_else(|| self.error(DecodeErrorKind::TooManyElements { count }))?;
        Ok(())
    }

    /// Takes back what a reader of a part has used of the allowance of the whole.
    pub(crate) const fn absorb_allowance(&mut self, part: &Reader<'_>) {
        self.zero_width_left = part.zero_width_left;
    }

    /// A type that was not expected, whose code has just been read.
    #[cold]
    pub(crate) const fn unexpected(&self, expected: &'static str, code: u8) -> DecodeError {
        let offset = self.offset().saturating_sub(1);
        DecodeError { offset, kind: DecodeErrorKind::UnexpectedType { expected, code } }
    }

    /// A number that its restricted type does not allow, which has just been read.
    #[cold]
    pub(crate) const fn invalid_choice(&self, expected: &'static str, value: u64) -> DecodeError {
        let offset = self.offset().saturating_sub(1);
        DecodeError { offset, kind: DecodeErrorKind::InvalidChoice { expected, value } }
    }

    fn expect_code(&mut self, wanted: u8, expected: &'static str) -> Result<(), DecodeError> {
        let code = self.code()?;
        if code == wanted { Ok(()) } else { Err(self.unexpected(expected, code)) }
    }

    /// The size in front of a body of variable width: codes `0xa_`, `0xc_` and `0xe_` have one byte, the others four.
    fn size(&mut self, code: u8) -> Result<usize, DecodeError> {
        if code & 0x10 == 0 {
            return Ok(self.byte()?.into());
        }
        let size = u32::from_be_bytes(self.array()?);
        usize::try_from(size).map_err(|_| self.truncated(usize::MAX))
    }

    fn skip_body(&mut self, code: u8) -> Result<(), DecodeError> {
        let size = match code >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa..=0xf => self.size(code)?,
            _ => return Err(self.unknown_code(code)),
        };
        self.take(size).map(|_| ())
    }

    #[cold]
    pub(crate) const fn unknown_code(&self, code: u8) -> DecodeError {
        let offset = self.offset().saturating_sub(1);
        DecodeError { offset, kind: DecodeErrorKind::UnknownFormatCode { code } }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        self.error(DecodeErrorKind::Truncated { needed, left: self.remaining().len() })
    }
}
