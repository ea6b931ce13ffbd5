//! Composite types: described lists whose elements are named fields (part 1, section 1.4).

use crate::decode::{Decode, symbols};
use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::descriptor::Descriptor;
use crate::encode::{Encode, encode_symbols};
use crate::format;
use crate::reader::Reader;
use crate::symbol::Symbol;
use crate::writer::{Buffer, Compound};

/// A composite type of the specification.
pub trait Composite: Sized {
    /// The numeric descriptor.
    const CODE: u64;

    /// The name of the type.
    const NAME: &'static str;

    /// Reads the fields in their order.
    ///
    /// # Errors
    /// When a field has another type, or a mandatory field is absent.
    fn decode_fields(fields: &mut FieldReader<'_>) -> Result<Self, DecodeError>;

    /// Writes the fields in their order.
    fn encode_fields<B: Buffer>(&self, fields: &mut FieldWriter<'_, B>);
}

/// Reads the fields of a composite in their order. Fields that are not there are null, and fields behind those that
/// the type defines are passed over.
#[derive(Clone, Debug)]
pub struct FieldReader<'a> {
    reader: Reader<'a>,
    left: u32,
}

impl<'a> FieldReader<'a> {
    /// For the list body that `reader` is limited to.
    pub(crate) const fn new(reader: Reader<'a>, count: u32) -> Self {
        Self { reader, left: count }
    }

    /// A field that may be absent.
    ///
    /// # Errors
    /// When the field has another type.
    pub fn optional<T: Decode>(&mut self) -> Result<Option<T>, DecodeError> {
        self.next(T::decode)
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// When the field has another type or is absent.
    pub fn mandatory<T: Decode>(
        &mut self,
        composite: &'static str,
        field: &'static str,
    ) -> Result<T, DecodeError> {
        let value = self.optional()?;
        value.ok_or_else(|| self.reader.error(DecodeErrorKind::MissingField { composite, field }))
    }

    /// A field that holds none, one or many symbols.
    ///
    /// # Errors
    /// When the field has another type.
    pub fn multiple(&mut self) -> Result<Vec<Symbol>, DecodeError> {
        Ok(self.next(symbols)?.unwrap_or_default())
    }

    /// Passes over the fields that the type does not define, and checks that the list ends where its size says.
    ///
    /// # Errors
    /// When the fields do not fill the list.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        while self.left > 0 {
            self.reader.skip_value()?;
            self.left -= 1;
        }
        self.reader.finish_compound("composite")
    }

    /// The offset of the next field, as errors count it.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.reader.offset()
    }

    fn next<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if self.reader.take_null()? { Ok(None) } else { read(&mut self.reader).map(Some) }
    }
}

/// Writes the fields of a composite in their order; null fields at the end are left out.
#[derive(Debug)]
pub struct FieldWriter<'b, B: Buffer> {
    out: &'b mut B,
    fields: u32,
    /// The end of the last field that is not null, and the number of fields up to there.
    kept: (usize, u32),
}

impl<B: Buffer> FieldWriter<'_, B> {
    /// A field that has a value.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self.out);
        self.fields += 1;
        self.kept = (self.out.len(), self.fields);
    }

    /// A field that may be absent.
    pub fn put_optional<T: Encode>(&mut self, value: Option<&T>) {
        match value {
            Some(value) => self.put(value),
            None => self.put_null(),
        }
    }

    /// A field that is left out when it has its default.
    pub fn put_unless<T: Encode + PartialEq>(&mut self, value: &T, default: &T) {
        if value == default { self.put_null() } else { self.put(value) }
    }

    /// A field that holds none, one or many symbols.
    pub fn put_multiple(&mut self, symbols: &[Symbol]) {
        if symbols.is_empty() {
            return self.put_null();
        }
        encode_symbols(symbols, self.out);
        self.fields += 1;
        self.kept = (self.out.len(), self.fields);
    }

    fn put_null(&mut self) {
        self.out.push(format::NULL);
        self.fields += 1;
    }
}

/// Writes a composite: its descriptor and its fields in the smallest list that holds them.
pub fn encode_composite<T: Composite, B: Buffer>(value: &T, out: &mut B) {
    encode_fields(T::CODE, out, |fields| value.encode_fields(fields));
}

/// Writes a composite whose fields come from a function.
pub fn encode_fields<B: Buffer>(code: u64, out: &mut B, write: impl FnOnce(&mut FieldWriter<'_, B>)) {
    out.push(format::DESCRIBED);
    code.encode(out);
    let compound = Compound::begin(out);
    let kept = (out.len(), 0);
    let mut fields = FieldWriter { out, fields: 0, kept };
    write(&mut fields);
    let FieldWriter { out, kept: (end, count), .. } = fields;
    out.truncate(end);
    compound.end_list(out, count);
}

/// Reads a composite of one type.
///
/// # Errors
/// When something else is there, or a field is wrong.
pub fn decode_composite<T: Composite>(reader: &mut Reader<'_>) -> Result<T, DecodeError> {
    let start = reader.offset();
    let (descriptor, fields) = reader.composite()?;
    if descriptor.code() != Some(T::CODE) {
        return Err(unexpected_descriptor(start, T::NAME, descriptor));
    }
    finish_composite(fields)
}

/// Reads the fields of a composite whose descriptor has been read.
pub(crate) fn finish_composite<T: Composite>(mut fields: FieldReader<'_>) -> Result<T, DecodeError> {
    let value = T::decode_fields(&mut fields)?;
    fields.finish()?;
    Ok(value)
}

/// A described value of a type that does not belong where it was found.
pub(crate) fn unexpected_descriptor(
    offset: usize,
    expected: &'static str,
    descriptor: Descriptor<'_>,
) -> DecodeError {
    let kind = DecodeErrorKind::UnexpectedDescriptor { expected, descriptor: descriptor.to_text() };
    DecodeError { offset, kind }
}

/// Declares a composite type as the specification's table does: one line a field, in order, with what an absent field
/// means. From that one table come the struct, its default, its decoder and its encoder.
///
/// A field is `mandatory`, `optional`, `multiple` (symbols) or has a default: `or(value)`.
macro_rules! composite {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $text:literal, $code:path {
            $($(#[$field_meta:meta])* $field:ident: $type:ty => $kind:ident $(($default:expr))?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)*
        }

        impl Default for $name {
            /// Optional fields absent, fields with a default at their default, mandatory fields empty or zero.
            fn default() -> Self {
                Self { $($field: $crate::composite::field_default!($kind $(($default))?),)* }
            }
        }

        impl $crate::composite::Composite for $name {
            const CODE: u64 = $code;
            const NAME: &'static str = $text;

            fn decode_fields(
                fields: &mut $crate::composite::FieldReader<'_>,
            ) -> Result<Self, $crate::DecodeError> {
                let _ = &fields;
                Ok(Self {
                    $($field: $crate::composite::field_decode!(fields, $text, $field, $kind $(($default))?),)*
                })
            }

            fn encode_fields<B: $crate::Buffer>(
                &self,
                fields: &mut $crate::composite::FieldWriter<'_, B>,
            ) {
                let _ = &fields;
                $($crate::composite::field_encode!(fields, self.$field, $kind $(($default))?);)*
            }
        }

        impl $crate::Decode for $name {
            fn decode(reader: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                $crate::composite::decode_composite(reader)
            }
        }

        impl $crate::Encode for $name {
            fn encode<B: $crate::Buffer>(&self, out: &mut B) {
                $crate::composite::encode_composite(self, out);
            }
        }
    };
}

macro_rules! field_default {
    (or($default:expr)) => {
        $default
    };
    ($kind:ident) => {
        Default::default()
    };
}

macro_rules! field_decode {
    ($fields:ident, $text:literal, $field:ident, mandatory) => {
        $fields.mandatory($text, stringify!($field))?
    };
    ($fields:ident, $text:literal, $field:ident, optional) => {
        $fields.optional()?
    };
    ($fields:ident, $text:literal, $field:ident, multiple) => {
        $fields.multiple()?
    };
    ($fields:ident, $text:literal, $field:ident, or($default:expr)) => {
        $fields.optional()?.unwrap_or($default)
    };
}

macro_rules! field_encode {
    ($fields:ident, $value:expr, mandatory) => {
        $fields.put(&$value)
    };
    ($fields:ident, $value:expr, optional) => {
        $fields.put_optional($value.as_ref())
    };
    ($fields:ident, $value:expr, multiple) => {
        $fields.put_multiple(&$value)
    };
    ($fields:ident, $value:expr, or($default:expr)) => {
        $fields.put_unless(&$value, &$default)
    };
}

pub(crate) use {composite, field_decode, field_default, field_encode};
