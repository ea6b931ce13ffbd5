//! Why bytes could not be decoded, and where.

/// Input that is not what the specification allows: where it was found, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {kind}")]
pub struct DecodeError {
    /// The byte offset, counted from the start of the input (of the frame, for a frame).
    pub offset: usize,
    /// What is wrong there.
    pub kind: DecodeErrorKind,
}

/// What is wrong at the place that a [`DecodeError`] names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The input, or the compound value around this place, ends too early.
    #[error("expected {needed} more bytes, but only {left} are left")]
    Truncated {
        /// How many bytes the value needs.
        needed: usize,
        /// How many there are.
        left: usize,
    },
    /// A value of another type (part 1, section 1.6).
    #[error("expected {expected}, found format code {code:#04x}")]
    UnexpectedType {
        /// The type that belongs here.
        expected: &'static str,
        /// The format code that was found.
        code: u8,
    },
    /// A format code that the specification does not define (part 1, section 1.6).
    #[error("expected a format code, found {code:#04x}, which is not defined")]
    UnknownFormatCode {
        /// The code that was found.
        code: u8,
    },
    /// A string that is not UTF-8 (part 1, section 1.6.20).
    #[error("expected UTF-8 text in a string")]
    InvalidUtf8,
    /// A symbol that is not ASCII (part 1, section 1.6.21).
    #[error("expected ASCII text in a symbol")]
    InvalidSymbol,
    /// A `char` that is no Unicode character (part 1, section 1.6.16).
    #[error("expected a Unicode character, found {value:#x}")]
    InvalidChar {
        /// The number that was found.
        value: u32,
    },
    /// A number outside the choices or the range of its restricted type.
    #[error("expected {expected}, found {value}")]
    InvalidChoice {
        /// The restricted type.
        expected: &'static str,
        /// The number that was found.
        value: u64,
    },
    /// A symbol outside the choices of its restricted type.
    #[error("expected {expected}, found {name:?}")]
    UnknownName {
        /// The choices.
        expected: &'static str,
        /// The symbol that was found, cut to 64 characters.
        name: String,
    },
    /// A binary value longer than its type allows (delivery tags: part 2, section 2.8.7).
    #[error("expected {expected} of at most {limit} bytes, found {found}")]
    TooLong {
        /// The restricted type.
        expected: &'static str,
        /// The most bytes that are allowed.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// Values inside values, deeper than this decoder follows.
    #[error("values are nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest level.
        limit: u8,
    },
    /// An array claims more elements that take no bytes of their own than are read.
    #[error("an array claims {count} elements that take no bytes")]
    TooManyElements {
        /// The claimed number.
        count: u32,
    },
    /// The elements of a compound value do not fill its size (part 1, section 1.2).
    #[error("expected the {expected} to end here, but {left} bytes of its size are left")]
    SizeMismatch {
        /// The kind of value.
        expected: &'static str,
        /// How many bytes are left.
        left: usize,
    },
    /// A map with a key but no value (part 1, section 1.6.23).
    #[error("expected an even number of elements in a map, found {count}")]
    OddMap {
        /// The number of keys and values.
        count: u32,
    },
    /// A mandatory field is absent or null (part 1, section 1.4).
    #[error("expected a value in the mandatory field {field} of {composite}")]
    MissingField {
        /// The composite type.
        composite: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A described value of a type that does not belong here.
    #[error("expected {expected}, found a value with the descriptor {descriptor}")]
    UnexpectedDescriptor {
        /// The types that belong here.
        expected: &'static str,
        /// The descriptor that was found, as text.
        descriptor: String,
    },
    /// A message section out of its order, or a second one where only one may be (part 3, section 3.2).
    #[error("{section} section does not belong after what came before it")]
    SectionOrder {
        /// The section.
        section: &'static str,
    },
    /// A protocol header that is not one of AMQP's (part 2, section 2.2; part 5).
    #[error("expected a protocol header that starts with \"AMQP\" and names the protocol AMQP, TLS or SASL")]
    NotAmqp,
    /// A frame larger than the receiver allows (part 2, section 2.7.1).
    #[error("expected a frame of at most {limit} bytes, found one of {size}")]
    FrameTooLarge {
        /// The size that the frame states.
        size: u32,
        /// The most that is allowed.
        limit: u32,
    },
    /// A frame whose size or data offset cannot be (part 2, section 2.3.1).
    #[error(
        "expected a frame with a data offset of at least 2 words inside its size, found size {size} and offset {doff}"
    )]
    MalformedFrame {
        /// The size that the frame states, in bytes.
        size: u32,
        /// The data offset that the frame states, in 4-byte words.
        doff: u8,
    },
    /// A frame of a type that is not defined (part 2, section 2.3.1).
    #[error("expected a frame of type 0 (AMQP) or 1 (SASL), found type {frame_type}")]
    UnknownFrameType {
        /// The type that was found.
        frame_type: u8,
    },
    /// Bytes after a value where none belong.
    #[error("expected the end of the input, but {left} bytes are left")]
    TrailingBytes {
        /// How many bytes are left.
        left: usize,
    },
    /// A message larger than 4 GiB.
    #[error("a message of {size} bytes is larger than can be addressed")]
    MessageTooLarge {
        /// The size, in bytes.
        size: usize,
    },
}
