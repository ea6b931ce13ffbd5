//! The compiled form of a selector, and its evaluation.
//!
//! A [`Condition`] is TRUE (`Some(true)`), FALSE (`Some(false)`) or UNKNOWN (`None`); a [`Term`] has a [`Value`].
//! Evaluation allocates nothing. Its recursion is as deep as the tree, whose depth the parser bounds.

use std::cmp::Ordering;

use crate::like::Pattern;
use crate::value::{Properties, Value};

/// The name of a property or header field.
pub(crate) type Name = Box<str>;

/// A constant in the source.
#[derive(Debug)]
pub(crate) enum Literal {
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

/// What has a value.
#[derive(Debug)]
pub(crate) enum Term {
    Literal(Literal),
    Identifier(Name),
    /// A unary plus or minus; several are folded into one.
    Signed {
        negative: bool,
        operand: Box<Term>,
    },
    /// Additions and subtractions, or multiplications and divisions, from left to right.
    Chain {
        first: Box<Term>,
        rest: Box<[(Arithmetic, Term)]>,
    },
    /// A condition in parentheses, as an operand of `=` and `<>`.
    Condition(Box<Condition>),
}

/// The operators between numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// The operators that compare two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is true, false or unknown.
#[derive(Debug)]
pub(crate) enum Condition {
    Constant(bool),
    Identifier(Name),
    Not(Box<Condition>),
    /// Two or more, none of them an `And`.
    And(Box<[Condition]>),
    /// Two or more, none of them an `Or`.
    Or(Box<[Condition]>),
    Compare {
        left: Term,
        operator: Comparison,
        right: Term,
    },
    Between {
        negated: bool,
        terms: Box<BetweenTerms>,
    },
    /// The texts are sorted, and each is there once.
    In {
        name: Name,
        negated: bool,
        texts: Box<[Box<str>]>,
    },
    Like {
        name: Name,
        negated: bool,
        pattern: Box<Pattern>,
    },
    IsNull {
        name: Name,
        negated: bool,
    },
}

/// The operands of BETWEEN; apart, because they would make every other condition larger.
#[derive(Debug)]
pub(crate) struct BetweenTerms {
    pub(crate) value: Term,
    pub(crate) low: Term,
    pub(crate) high: Term,
}

impl Literal {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Long(value) => Value::Long(*value),
            Literal::Double(value) => Value::Double(*value),
            Literal::Text(value) => Value::Text(value),
        }
    }
}

impl Term {
    fn value<'v, P: Properties + ?Sized>(&'v self, properties: &'v P) -> Value<'v> {
        match self {
            Term::Literal(literal) => literal.value(),
            Term::Identifier(name) => properties.property(name),
            Term::Signed { negative, operand } => signed(*negative, operand.value(properties)),
            Term::Chain { first, rest } => {
                rest.iter().fold(first.value(properties), |left, (operator, right)| {
                    operator.apply(left, right.value(properties))
                })
            }
            Term::Condition(condition) => condition.evaluate(properties).map_or(Value::Null, Value::Bool),
        }
    }
}

fn signed(negative: bool, operand: Value<'_>) -> Value<'_> {
    match operand {
        Value::Null => Value::Null,
        Value::Long(value) => Value::Long(if negative { value.wrapping_neg() } else { value }),
        Value::Double(value) => Value::Double(if negative { -value } else { value }),
        Value::Bool(_) | Value::Text(_) | Value::Opaque => Value::Opaque,
    }
}

impl Arithmetic {
    /// NULL with anything is NULL; otherwise what is not two numbers has no value that anything is like.
    fn apply<'v>(self, left: Value<'_>, right: Value<'_>) -> Value<'v> {
        match (left, right) {
            (Value::Null, _) | (_, Value::Null) => Value::Null,
            (Value::Long(left), Value::Long(right)) => {
                self.exact(left, right).map_or(Value::Null, Value::Long)
            }
            _ => match (as_double(left), as_double(right)) {
                (Some(left), Some(right)) => Value::Double(self.approximate(left, right)),
                _ => Value::Opaque,
            },
        }
    }

    /// As on `long` in Java: overflow wraps, division truncates; `None` where Java would throw.
    fn exact(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Arithmetic::Add => Some(left.wrapping_add(right)),
            Arithmetic::Subtract => Some(left.wrapping_sub(right)),
            Arithmetic::Multiply => Some(left.wrapping_mul(right)),
            Arithmetic::Divide => (right != 0).then(|| left.wrapping_div(right)),
        }
    }

    fn approximate(self, left: f64, right: f64) -> f64 {
        match self {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            Arithmetic::Divide => left / right,
        }
    }
}

/// A number after Java's numeric promotion, which rounds a `long` to the nearest `double`.
pub(crate) fn as_double(value: Value<'_>) -> Option<f64> {
    match value {
        #[allow(clippy::cast_precision_loss)]
        Value::Long(value) => Some(value as f64),
        Value::Double(value) => Some(value),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::Opaque => None,
    }
}

impl Comparison {
    /// Unknown with NULL; false between values of unlike types, and for an order of what has none
    /// (Jakarta Messaging 3.1, 3.8.1.1).
    fn apply(self, left: Value<'_>, right: Value<'_>) -> Option<bool> {
        Some(match (left, right) {
            (Value::Null, _) | (_, Value::Null) => return None,
            (Value::Long(left), Value::Long(right)) => self.accepts(Some(left.cmp(&right))),
            (Value::Text(left), Value::Text(right)) => self.accepts_equality(left == right),
            (Value::Bool(left), Value::Bool(right)) => self.accepts_equality(left == right),
            _ => match (as_double(left), as_double(right)) {
                (Some(left), Some(right)) => self.accepts(left.partial_cmp(&right)),
                _ => false,
            },
        })
    }

    /// The order is `None` if one of the two is not a number (NaN), which is unequal to everything.
    fn accepts(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::NotEqual => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => order.is_some_and(Ordering::is_le),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }

    fn accepts_equality(self, equal: bool) -> bool {
        match self {
            Comparison::Equal => equal,
            Comparison::NotEqual => !equal,
            _ => false,
        }
    }
}

impl Condition {
    /// All of `parts`; conjunctions among them are opened.
    pub(crate) fn all(parts: Vec<Condition>) -> Condition {
        Condition::And(flattened(parts, |part| match part {
            Condition::And(inner) => Ok(inner),
            other => Err(other),
        }))
    }

    /// One of `parts`; disjunctions among them are opened.
    pub(crate) fn any(parts: Vec<Condition>) -> Condition {
        Condition::Or(flattened(parts, |part| match part {
            Condition::Or(inner) => Ok(inner),
            other => Err(other),
        }))
    }

    /// TRUE, FALSE or, as `None`, UNKNOWN.
    pub(crate) fn evaluate<P: Properties + ?Sized>(&self, properties: &P) -> Option<bool> {
        match self {
            Condition::Constant(value) => Some(*value),
            Condition::Identifier(name) => match properties.property(name) {
                Value::Bool(value) => Some(value),
                _ => None,
            },
            Condition::Not(inner) => inner.evaluate(properties).map(|value| !value),
            Condition::And(parts) => conjunction(parts, properties),
            Condition::Or(parts) => disjunction(parts, properties),
            Condition::Compare { left, operator, right } => {
                operator.apply(left.value(properties), right.value(properties))
            }
            Condition::Between { negated, terms } => {
                let BetweenTerms { value, low, high } = &**terms;
                between(value.value(properties), *negated, low.value(properties), high.value(properties))
            }
            Condition::In { name, negated, texts } => match properties.property(name) {
                Value::Null => None,
                Value::Text(value) => {
                    Some(texts.binary_search_by(|text| (**text).cmp(value)).is_ok() != *negated)
                }
                _ => Some(*negated),
            },
            Condition::Like { name, negated, pattern } => match properties.property(name) {
                Value::Null => None,
                Value::Text(value) => Some(pattern.matches(value) != *negated),
                _ => Some(false),
            },
            Condition::IsNull { name, negated } => {
                Some((properties.property(name) == Value::Null) != *negated)
            }
        }
    }
}

fn flattened(
    parts: Vec<Condition>,
    open: impl Fn(Condition) -> Result<Box<[Condition]>, Condition>,
) -> Box<[Condition]> {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match open(part) {
            Ok(inner) => flat.extend(inner),
            Err(part) => flat.push(part),
        }
    }
    flat.into_boxed_slice()
}

/// FALSE if one part is, else UNKNOWN if one part is, else TRUE (Jakarta Messaging 3.1, table 3-4).
pub(crate) fn conjunction<'c, P: Properties + ?Sized>(
    parts: impl IntoIterator<Item = &'c Condition>,
    properties: &P,
) -> Option<bool> {
    let mut result = Some(true);
    for part in parts {
        match part.evaluate(properties) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

/// TRUE if one part is, else UNKNOWN if one part is, else FALSE (Jakarta Messaging 3.1, table 3-5).
fn disjunction<P: Properties + ?Sized>(parts: &[Condition], properties: &P) -> Option<bool> {
    let mut result = Some(false);
    for part in parts {
        match part.evaluate(properties) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => result = None,
        }
    }
    result
}

/// `value >= low AND value <= high`; negated, `value < low OR value > high`.
fn between(value: Value<'_>, negated: bool, low: Value<'_>, high: Value<'_>) -> Option<bool> {
    let (below, above, decisive) = if negated {
        (Comparison::Less, Comparison::Greater, true)
    } else {
        (Comparison::GreaterOrEqual, Comparison::LessOrEqual, false)
    };
    match (below.apply(value, low), above.apply(value, high)) {
        (Some(left), Some(right)) => Some(if negated { left || right } else { left && right }),
        (Some(known), None) | (None, Some(known)) => (known == decisive).then_some(decisive),
        (None, None) => None,
    }
}
