//! A compiled selector.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::SyntaxError;
use crate::parser;
use crate::tree::{Comparison, Condition, Literal, Name, Term, as_double, conjunction};
use crate::value::{Properties, Value};

/// The longest source that [`Selector::parse`] takes, in bytes of UTF-8: 16 KiB.
pub const MAX_LENGTH: usize = 16 * 1024;

/// A selector that is parsed, checked and compiled.
///
/// Cloning shares the compiled form. Two selectors are equal if their sources are, character by character; their
/// order and their hash are those of the sources too.
#[derive(Clone)]
pub struct Selector {
    compiled: Arc<Compiled>,
}

struct Compiled {
    source: Box<str>,
    /// All must be TRUE for a message to match; there is at least one.
    conjuncts: Box<[Condition]>,
    /// The conjunct under which an index finds this selector.
    entry: Option<Entry>,
}

/// One conjunct that is an equality of an identifier and constants.
struct Entry {
    position: usize,
    /// Whether every message that the index finds under this conjunct fulfils it.
    exact: bool,
}

/// Where an index files a selector: the identifier, and what it must be equal to.
pub(crate) enum Key<'s> {
    /// One of these texts, each there once.
    Texts(&'s str, &'s [Box<str>]),
    Text(&'s str, &'s str),
    /// As [`number_key`] gives it.
    Number(&'s str, u64),
    Bool(&'s str, bool),
}

impl Selector {
    /// Parses, checks and compiles `source`, a selector of Jakarta Messaging 3.1, section 3.8.1.1.
    ///
    /// # Errors
    ///
    /// If the source is longer than [`MAX_LENGTH`], nested deeper than [`MAX_NESTING`](crate::MAX_NESTING), empty,
    /// or not a selector. For the place where an empty selector means none, see [`Selector::parse_optional`].
    pub fn parse(source: &str) -> Result<Selector, SyntaxError> {
        if source.len() > MAX_LENGTH {
            return Err(SyntaxError::new(1, format!("the selector is longer than {MAX_LENGTH} bytes")));
        }
        let conjuncts = match parser::parse(source)? {
            Condition::And(parts) => parts,
            condition => Box::new([condition]),
        };
        let entry = entry(&conjuncts);
        Ok(Selector { compiled: Arc::new(Compiled { source: source.into(), conjuncts, entry }) })
    }

    /// Like [`Selector::parse`], but an empty or blank source is no selector: `None`, which takes every message
    /// (Jakarta Messaging 3.1, 3.8.1.1).
    ///
    /// # Errors
    ///
    /// If the source is neither blank nor a selector.
    pub fn parse_optional(source: &str) -> Result<Option<Selector>, SyntaxError> {
        if source.bytes().all(|b| b.is_ascii_whitespace()) {
            Ok(None)
        } else {
            Selector::parse(source).map(Some)
        }
    }

    /// The source, as it was given.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.compiled.source
    }

    /// Whether a message with these properties passes: only TRUE does, FALSE and UNKNOWN do not (FIL-2).
    ///
    /// Allocates nothing.
    pub fn matches<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        self.compiled.conjuncts.iter().all(|condition| condition.evaluate(properties) == Some(true))
    }

    /// TRUE, FALSE or, as `None`, UNKNOWN (Jakarta Messaging 3.1, 3.8.1.2).
    ///
    /// Allocates nothing.
    pub fn evaluate<P: Properties + ?Sized>(&self, properties: &P) -> Option<bool> {
        conjunction(&self.compiled.conjuncts, properties)
    }

    /// Where an index can file this selector so that only messages that fulfil the key, or nearly do, find it.
    pub(crate) fn key(&self) -> Option<Key<'_>> {
        key_of(self.compiled.conjuncts.get(self.compiled.entry.as_ref()?.position)?)
    }

    /// [`Selector::matches`] for a message that an index found under [`Selector::key`].
    pub(crate) fn matches_beyond_key<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        let known = self.compiled.entry.as_ref().filter(|entry| entry.exact).map(|entry| entry.position);
        let mut conjuncts = self.compiled.conjuncts.iter().enumerate();
        conjuncts.all(|(position, condition)| {
            Some(position) == known || condition.evaluate(properties) == Some(true)
        })
    }
}

/// The number under which an index files every value that is equal to `value`; `None` for what equals no number.
///
/// Equal numbers have equal keys, also a `long` and a `double`. The converse fails only for two unequal `long`s
/// that round to the same `double`, at 2^53 and beyond.
pub(crate) fn number_key(value: Value<'_>) -> Option<u64> {
    let number = as_double(value).filter(|number| !number.is_nan())?;
    // Adding zero turns -0.0 into 0.0, to which it is equal.
    Some((number + 0.0).to_bits())
}

/// Chooses the conjunct to file a selector under: texts tell messages apart best, booleans least.
fn entry(conjuncts: &[Condition]) -> Option<Entry> {
    let ranked = conjuncts.iter().enumerate().filter_map(|(position, condition)| {
        let (rank, exact) = match key_of(condition)? {
            Key::Texts(..) | Key::Text(..) => (0, true),
            Key::Number(..) => (1, is_exact(condition)),
            Key::Bool(..) => (2, true),
        };
        Some((rank, Entry { position, exact }))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| entry)
}

/// Whether every value with the same key as this equality's constant is equal to it.
fn is_exact(condition: &Condition) -> bool {
    match equality(condition) {
        Some((_, Literal::Long(value))) => value.unsigned_abs() < 1 << 53,
        _ => true,
    }
}

fn key_of(condition: &Condition) -> Option<Key<'_>> {
    if let Condition::In { name, negated: false, texts } = condition {
        return Some(Key::Texts(name, texts));
    }
    let (name, literal) = equality(condition)?;
    Some(match literal {
        Literal::Text(text) => Key::Text(name, text),
        Literal::Bool(value) => Key::Bool(name, *value),
        Literal::Long(_) | Literal::Double(_) => Key::Number(name, number_key(literal.value())?),
    })
}

/// The two sides of `identifier = literal`, in whichever order they stand.
fn equality(condition: &Condition) -> Option<(&Name, &Literal)> {
    match condition {
        Condition::Compare { left, operator: Comparison::Equal, right } => match (left, right) {
            (Term::Identifier(name), Term::Literal(literal))
            | (Term::Literal(literal), Term::Identifier(name)) => Some((name, literal)),
            _ => None,
        },
        _ => None,
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.source()).finish()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled) || self.source() == other.source()
    }
}

impl Eq for Selector {}

impl PartialOrd for Selector {
    fn partial_cmp(&self, other: &Selector) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selector {
    fn cmp(&self, other: &Selector) -> Ordering {
        self.source().cmp(other.source())
    }
}

impl Hash for Selector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source().hash(state);
    }
}
