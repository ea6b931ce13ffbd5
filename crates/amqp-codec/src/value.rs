//! Any AMQP value as an owned tree (part 1).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use crate::map::{Fields, Map};
use crate::symbol::Symbol;

/// An AMQP value of any type (part 1, sections 1.2 and 1.6).
///
/// Equality and order are total: values of different types are never equal and are ordered by type; floating-point
/// numbers are compared by the IEEE 754 total order, so that a NaN equals itself and `-0.0` is not `0.0`; decimals are
/// compared as bytes.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// The absence of a value.
    #[default]
    Null,
    /// `boolean`.
    Bool(bool),
    /// `ubyte`: 8 bits, unsigned.
    Ubyte(u8),
    /// `ushort`: 16 bits, unsigned.
    Ushort(u16),
    /// `uint`: 32 bits, unsigned.
    Uint(u32),
    /// `ulong`: 64 bits, unsigned.
    Ulong(u64),
    /// `byte`: 8 bits, signed.
    Byte(i8),
    /// `short`: 16 bits, signed.
    Short(i16),
    /// `int`: 32 bits, signed.
    Int(i32),
    /// `long`: 64 bits, signed.
    Long(i64),
    /// `float`: IEEE 754 binary32.
    Float(f32),
    /// `double`: IEEE 754 binary64.
    Double(f64),
    /// `decimal32`: IEEE 754, kept as the bytes of its encoding.
    Decimal32([u8; 4]),
    /// `decimal64`: IEEE 754, kept as the bytes of its encoding.
    Decimal64([u8; 8]),
    /// `decimal128`: IEEE 754, kept as the bytes of its encoding.
    Decimal128([u8; 16]),
    /// `char`: one Unicode character.
    Char(char),
    /// `timestamp`: milliseconds since the Unix epoch.
    Timestamp(i64),
    /// `uuid`: 16 bytes, RFC 4122.
    Uuid([u8; 16]),
    /// `binary`.
    Binary(Bytes),
    /// `string`: UTF-8.
    String(String),
    /// `symbol`: ASCII.
    Symbol(Symbol),
    /// `list`.
    List(Vec<Value>),
    /// `map`, in its order.
    Map(Map),
    /// `array`.
    Array(Array),
    /// A described value.
    Described(Box<Described>),
}

/// A point in time: milliseconds since the Unix epoch (part 1, section 1.6.17). The type of composite fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A value with a descriptor that says what it means (part 1, section 1.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Described {
    /// A `symbol` or a `ulong` in everything that the specification defines; any value is allowed.
    pub descriptor: Value,
    /// The value that is described.
    pub value: Value,
}

impl Described {
    /// Whether the descriptor is this code or this name: every descriptor of the specification has both forms
    /// (part 1, section 1.4).
    #[must_use]
    pub fn is(&self, code: u64, name: &str) -> bool {
        match &self.descriptor {
            Value::Ulong(found) => *found == code,
            Value::Symbol(found) => found == name,
            _ => false,
        }
    }
}

/// An array: elements of one type (part 1, section 1.6.24).
///
/// Descriptors are part of the one constructor that all elements share, so they are held once, outermost first. An
/// array without elements does not remember the type of the elements that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Array {
    descriptors: Vec<Value>,
    elements: Vec<Value>,
}

/// The elements of an array were not all of one type, or were described one by one (part 1, section 1.6.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the elements of an array are of one type, and share their descriptor")]
pub struct MixedArray;

impl Array {
    /// An array of these elements.
    ///
    /// # Errors
    /// [`MixedArray`] when the elements are not of one type, or are of type [`Value::Described`].
    pub fn new(elements: Vec<Value>) -> Result<Self, MixedArray> {
        Self::described(Vec::new(), elements)
    }

    /// An array whose elements share these descriptors, outermost first.
    ///
    /// # Errors
    /// [`MixedArray`] when the elements are not of one type, or are of type [`Value::Described`].
    pub fn described(descriptors: Vec<Value>, elements: Vec<Value>) -> Result<Self, MixedArray> {
        let rank = elements.first().map(Value::rank);
        let uniform = elements.iter().all(|e| Some(e.rank()) == rank && !matches!(e, Value::Described(_)));
        if uniform { Ok(Self { descriptors, elements }) } else { Err(MixedArray) }
    }

    /// For elements that were read with one constructor.
    pub(crate) fn from_uniform(descriptors: Vec<Value>, elements: Vec<Value>) -> Self {
        Self { descriptors, elements }
    }

    /// The descriptors that all elements share, outermost first.
    #[must_use]
    pub fn descriptors(&self) -> &[Value] {
        &self.descriptors
    }

    /// The elements, without descriptors.
    #[must_use]
    pub fn elements(&self) -> &[Value] {
        &self.elements
    }
}

impl Value {
    /// A described value.
    #[must_use]
    pub fn described(descriptor: impl Into<Value>, value: impl Into<Value>) -> Self {
        Self::Described(Box::new(Described { descriptor: descriptor.into(), value: value.into() }))
    }

    /// Whether this is [`Value::Null`].
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The text of a string or a symbol.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Symbol(symbol) => Some(symbol.as_str()),
            _ => None,
        }
    }

    /// The value of a boolean.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The value of any signed or unsigned integer that `i64` can hold.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::Ubyte(n) => Some(n.into()),
            Self::Ushort(n) => Some(n.into()),
            Self::Uint(n) => Some(n.into()),
            Self::Ulong(n) => i64::try_from(n).ok(),
            Self::Byte(n) => Some(n.into()),
            Self::Short(n) => Some(n.into()),
            Self::Int(n) => Some(n.into()),
            Self::Long(n) => Some(n),
            _ => None,
        }
    }

    /// The value of any signed or unsigned integer that `u64` can hold.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Ulong(n) => Some(n),
            _ => self.as_i64().and_then(|n| u64::try_from(n).ok()),
        }
    }

    /// The value without its descriptors, if it has any.
    #[must_use]
    pub fn undescribed(&self) -> &Value {
        let mut value = self;
        while let Self::Described(described) = value {
            value = &described.value;
        }
        value
    }

    /// The place of the type in the order of types.
    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Ubyte(_) => 2,
            Self::Ushort(_) => 3,
            Self::Uint(_) => 4,
            Self::Ulong(_) => 5,
            Self::Byte(_) => 6,
            Self::Short(_) => 7,
            Self::Int(_) => 8,
            Self::Long(_) => 9,
            Self::Float(_) => 10,
            Self::Double(_) => 11,
            Self::Decimal32(_) => 12,
            Self::Decimal64(_) => 13,
            Self::Decimal128(_) => 14,
            Self::Char(_) => 15,
            Self::Timestamp(_) => 16,
            Self::Uuid(_) => 17,
            Self::Binary(_) => 18,
            Self::String(_) => 19,
            Self::Symbol(_) => 20,
            Self::List(_) => 21,
            Self::Map(_) => 22,
            Self::Array(_) => 23,
            Self::Described(_) => 24,
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Ubyte(a), Self::Ubyte(b)) => a.cmp(b),
            (Self::Ushort(a), Self::Ushort(b)) => a.cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(b),
            (Self::Ulong(a), Self::Ulong(b)) => a.cmp(b),
            (Self::Byte(a), Self::Byte(b)) => a.cmp(b),
            (Self::Short(a), Self::Short(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Long(a), Self::Long(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Double(a), Self::Double(b)) => a.total_cmp(b),
            (Self::Decimal32(a), Self::Decimal32(b)) => a.cmp(b),
            (Self::Decimal64(a), Self::Decimal64(b)) => a.cmp(b),
            (Self::Decimal128(a), Self::Decimal128(b)) | (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Char(a), Self::Char(b)) => a.cmp(b),
            (Self::Binary(a), Self::Binary(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Symbol(a), Self::Symbol(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => a.cmp(b),
            (Self::Map(a), Self::Map(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.cmp(b),
            (Self::Described(a), Self::Described(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Self::Null => {}
            Self::Bool(v) => v.hash(state),
            Self::Ubyte(v) => v.hash(state),
            Self::Ushort(v) => v.hash(state),
            Self::Uint(v) => v.hash(state),
            Self::Ulong(v) => v.hash(state),
            Self::Byte(v) => v.hash(state),
            Self::Short(v) => v.hash(state),
            Self::Int(v) => v.hash(state),
            Self::Long(v) | Self::Timestamp(v) => v.hash(state),
            Self::Float(v) => v.to_bits().hash(state),
            Self::Double(v) => v.to_bits().hash(state),
            Self::Decimal32(v) => v.hash(state),
            Self::Decimal64(v) => v.hash(state),
            Self::Decimal128(v) | Self::Uuid(v) => v.hash(state),
            Self::Char(v) => v.hash(state),
            Self::Binary(v) => v.hash(state),
            Self::String(v) => v.hash(state),
            Self::Symbol(v) => v.hash(state),
            Self::List(v) => v.hash(state),
            Self::Map(v) => v.hash(state),
            Self::Array(v) => v.hash(state),
            Self::Described(v) => v.hash(state),
        }
    }
}

/// Conversions from the types that have one obvious AMQP type.
macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

value_from! {
    bool => Bool, u8 => Ubyte, u16 => Ushort, u32 => Uint, u64 => Ulong, i8 => Byte, i16 => Short, i32 => Int,
    i64 => Long, f32 => Float, f64 => Double, char => Char, Bytes => Binary, String => String, Symbol => Symbol,
    Vec<Value> => List, Map => Map, Array => Array,
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Self {
        Self::Timestamp(time.0)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Map(fields.0.into_iter().map(|(key, value)| (Self::Symbol(key), value)).collect())
    }
}
