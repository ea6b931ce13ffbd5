//! Maps that keep their order: any key (part 1, section 1.6.23), and symbol keys (part 2, section 2.8.13).

use crate::symbol::Symbol;
use crate::value::Value;

/// An AMQP map: entries in the order in which they were written (that order is part of the value, section 1.6.23).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map(pub Vec<(Value, Value)>);

impl Map {
    /// A map without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of the first entry whose key is a string or a symbol with this text.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// Sets the value of a key, in place if the key is there, else as the last entry.
    pub fn insert(&mut self, key: impl Into<Value>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((key, value)),
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(Value, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// The `fields` type: a map with symbol keys (part 2, section 2.8.13). Filter sets (part 3, section 3.5.8) and node
/// properties (section 3.5.9) have the same form.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fields(pub Vec<(Symbol, Value)>);

impl Fields {
    /// A map without entries.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of the first entry with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Sets the value of a key, in place if the key is there, else as the last entry.
    pub fn insert(&mut self, key: impl Into<Symbol>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((key, value)),
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Symbol, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(Symbol, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Symbol, Value)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
