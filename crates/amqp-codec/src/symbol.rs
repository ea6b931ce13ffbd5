//! Symbols: ASCII names from a constrained domain (part 1, section 1.6.21).

use std::borrow::Borrow;
use std::fmt;

use compact_str::CompactString;

/// An AMQP symbol.
///
/// Up to 24 bytes are held inline and constants are borrowed, so that cloning the symbols of the specification
/// never allocates.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(CompactString);

impl Symbol {
    /// A symbol that borrows a constant. The text must be ASCII: this is checked where symbols are decoded, and
    /// here it is up to the caller, whose text is in the source.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(CompactString::const_new(text))
    }

    /// A symbol with this text.
    ///
    /// # Errors
    /// [`NotAscii`] when the text has a character outside ASCII.
    pub fn new(text: &str) -> Result<Self, NotAscii> {
        if text.is_ascii() { Ok(Self(CompactString::new(text))) } else { Err(NotAscii) }
    }

    /// The text of the symbol.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// For text that the caller has checked to be ASCII.
    pub(crate) fn from_ascii(text: &str) -> Self {
        debug_assert!(text.is_ascii());
        Self(CompactString::new(text))
    }
}

/// A text was not ASCII, so it is no symbol (part 1, section 1.6.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a symbol holds ASCII characters only")]
pub struct NotAscii;

impl From<&'static str> for Symbol {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl AsRef<str> for Symbol {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Symbol {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.as_str())
    }
}
