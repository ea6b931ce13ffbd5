//! The model: expressions as they are written, evaluated word for word as the specification describes them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{Properties, Value};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Owned {
    Null,
    Bool(bool),
    Long(i64),
    Double(f64),
    Text(String),
    Opaque,
}

/// A message that counts how often it is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) properties: BTreeMap<String, Owned>,
    pub(super) lookups: Cell<usize>,
}

impl Message {
    pub(super) fn of<const N: usize>(properties: [(&str, Owned); N]) -> Message {
        let properties = properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Message { properties, lookups: Cell::new(0) }
    }
}

impl Properties for Message {
    fn property(&self, identifier: &str) -> Value<'_> {
        self.lookups.set(self.lookups.get() + 1);
        match self.properties.get(identifier) {
            None | Some(Owned::Null) => Value::Null,
            Some(Owned::Bool(value)) => Value::Bool(*value),
            Some(Owned::Long(value)) => Value::Long(*value),
            Some(Owned::Double(value)) => Value::Double(*value),
            Some(Owned::Text(value)) => Value::Text(value),
            Some(Owned::Opaque) => Value::Opaque,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Literal(Owned),
    Name(String),
    Sign(char, Box<Expr>),
    Arithmetic(char, Box<Expr>, Box<Expr>),
    Compare(&'static str, Box<Expr>, Box<Expr>),
    Between(bool, Box<Expr>, Box<Expr>, Box<Expr>),
    In(bool, String, Vec<String>),
    Like(bool, String, String, Option<char>),
    IsNull(bool, String),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
}

/// Three-valued logic as an order: FALSE < UNKNOWN < TRUE, so that AND is the least, OR the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    False,
    Unknown,
    True,
}

use Truth::{False, True, Unknown};

impl Truth {
    fn of(value: bool) -> Truth {
        if value { True } else { False }
    }

    fn not(self) -> Truth {
        match self {
            False => True,
            Unknown => Unknown,
            True => False,
        }
    }
}

impl Expr {
    pub(super) fn evaluate(&self, message: &Message) -> Option<bool> {
        match self.truth(message) {
            True => Some(true),
            False => Some(false),
            Unknown => None,
        }
    }

    fn truth(&self, message: &Message) -> Truth {
        let boxed = |e: &Expr| Box::new(e.clone());
        match self {
            Expr::Not(inner) => inner.truth(message).not(),
            Expr::And(left, right) => left.truth(message).min(right.truth(message)),
            Expr::Or(left, right) => left.truth(message).max(right.truth(message)),
            Expr::Compare(operator, left, right) => {
                compare(operator, &left.value(message), &right.value(message))
            }
            Expr::Between(false, value, low, high) => {
                let (low, high) = (boxed(low), boxed(high));
                Expr::And(
                    Box::new(Expr::Compare(">=", value.clone(), low)),
                    Box::new(Expr::Compare("<=", value.clone(), high)),
                )
                .truth(message)
            }
            Expr::Between(true, value, low, high) => {
                let (low, high) = (boxed(low), boxed(high));
                Expr::Or(
                    Box::new(Expr::Compare("<", value.clone(), low)),
                    Box::new(Expr::Compare(">", value.clone(), high)),
                )
                .truth(message)
            }
            Expr::In(negated, name, texts) => {
                let equals = |text: &String| Expr::Literal(Owned::Text(text.clone()));
                let one = |text| {
                    compare("=", &Expr::Name(name.clone()).value(message), &equals(text).value(message))
                };
                let any = texts.iter().map(one).max().unwrap();
                if *negated { any.not() } else { any }
            }
            Expr::Like(negated, name, pattern, escape) => match Expr::Name(name.clone()).value(message) {
                Owned::Null => Unknown,
                Owned::Text(text) => {
                    let (text, pattern): (Vec<char>, Vec<char>) =
                        (text.chars().collect(), pattern.chars().collect());
                    Truth::of(like(&text, &pattern, *escape) != *negated)
                }
                _ => False,
            },
            Expr::IsNull(negated, name) => {
                Truth::of((Expr::Name(name.clone()).value(message) == Owned::Null) != *negated)
            }
            Expr::Name(_) | Expr::Literal(_) => match self.value(message) {
                Owned::Bool(value) => Truth::of(value),
                _ => Unknown,
            },
            Expr::Sign(..) | Expr::Arithmetic(..) => unreachable!("no condition"),
        }
    }

    fn value(&self, message: &Message) -> Owned {
        match self {
            Expr::Literal(value) => value.clone(),
            Expr::Name(name) => message.properties.get(name).cloned().unwrap_or(Owned::Null),
            Expr::Sign('+', operand) => arithmetic('+', &Owned::Long(0), &operand.value(message)),
            Expr::Sign(_, operand) => arithmetic('*', &Owned::Long(-1), &operand.value(message)),
            Expr::Arithmetic(operator, left, right) => {
                arithmetic(*operator, &left.value(message), &right.value(message))
            }
            condition => match condition.truth(message) {
                True => Owned::Bool(true),
                False => Owned::Bool(false),
                Unknown => Owned::Null,
            },
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn double(value: &Owned) -> Option<f64> {
    match value {
        Owned::Long(value) => Some(*value as f64),
        Owned::Double(value) => Some(*value),
        _ => None,
    }
}

fn arithmetic(operator: char, left: &Owned, right: &Owned) -> Owned {
    if *left == Owned::Null || *right == Owned::Null {
        return Owned::Null;
    }
    if let (Owned::Long(left), Owned::Long(right)) = (left, right) {
        let (left, right) = (i128::from(*left), i128::from(*right));
        let exact = match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            _ if right == 0 => return Owned::Null,
            _ => left / right,
        };
        #[allow(clippy::cast_possible_truncation)]
        return Owned::Long(exact as i64);
    }
    let (Some(left), Some(right)) = (double(left), double(right)) else { return Owned::Opaque };
    Owned::Double(match operator {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        _ => left / right,
    })
}

fn compare(operator: &str, left: &Owned, right: &Owned) -> Truth {
    let by_order = |less: bool, equal: bool, greater: bool| {
        Truth::of(match operator {
            "=" => equal,
            "<>" => !equal,
            "<" => less,
            "<=" => less || equal,
            ">" => greater,
            _ => greater || equal,
        })
    };
    match (left, right) {
        (Owned::Null, _) | (_, Owned::Null) => Unknown,
        (Owned::Long(left), Owned::Long(right)) => by_order(left < right, left == right, left > right),
        (Owned::Text(_), Owned::Text(_)) | (Owned::Bool(_), Owned::Bool(_)) => match operator {
            "=" => Truth::of(left == right),
            "<>" => Truth::of(left != right),
            _ => False,
        },
        _ => match (double(left), double(right)) {
            (Some(left), Some(right)) => by_order(left < right, left == right, left > right),
            _ => False,
        },
    }
}

fn like(text: &[char], pattern: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [c, literal, rest @ ..] if Some(*c) == escape => {
            text.first() == Some(literal) && like(&text[1..], rest, escape)
        }
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| like(&text[skipped..], rest, escape)),
        [c, rest @ ..] => text.first().is_some_and(|t| *c == '_' || c == t) && like(&text[1..], rest, escape),
    }
}

/// Writes expressions as selectors, with parentheses where they are needed; spelling varies with the seed.
pub(super) struct Printer {
    seed: u32,
    out: String,
}

impl Printer {
    pub(super) fn print(expression: &Expr, seed: u32) -> String {
        let mut printer = Printer { seed, out: String::new() };
        printer.at_least(expression, 0);
        printer.out
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.seed >> 16).is_multiple_of(one_in)
    }

    fn at_least(&mut self, expression: &Expr, level: u8) {
        if level_of(expression) < level || self.chance(12) {
            self.out.push('(');
            self.bare(expression);
            self.out.push(')');
        } else {
            self.bare(expression);
        }
    }

    fn word(&mut self, word: &str) {
        let word = if self.chance(2) { word.to_lowercase() } else { word.to_owned() };
        let blank = if self.chance(6) { "\n\t" } else { " " };
        write!(self.out, " {word}{blank}").unwrap();
    }

    fn negatable(&mut self, negated: bool, word: &str) {
        if negated {
            self.word("NOT");
        }
        self.word(word);
    }

    fn name(&mut self, name: &str) {
        let quoted = self.chance(5);
        if quoted { write!(self.out, "\"{name}\"").unwrap() } else { self.out.push_str(name) }
    }

    fn text(&mut self, text: &str) {
        write!(self.out, "'{}'", text.replace('\'', "''")).unwrap();
    }

    fn literal(&mut self, literal: &Owned) {
        match literal {
            Owned::Bool(value) => self.word(if *value { "TRUE" } else { "FALSE" }),
            Owned::Long(value) if *value >= 0 && self.chance(4) => write!(self.out, "0x{value:x}L").unwrap(),
            Owned::Long(value) => write!(self.out, "{value}").unwrap(),
            Owned::Double(value) => write!(self.out, "{value:?}").unwrap(),
            Owned::Text(text) => self.text(text),
            Owned::Null | Owned::Opaque => unreachable!("no literal"),
        }
    }

    fn bare(&mut self, expression: &Expr) {
        let level = level_of(expression);
        match expression {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Name(name) => self.name(name),
            Expr::Sign(sign, operand) => {
                write!(self.out, "{sign} ").unwrap();
                self.at_least(operand, level);
            }
            Expr::Arithmetic(operator, left, right) => {
                self.at_least(left, level);
                write!(self.out, " {operator} ").unwrap();
                self.at_least(right, level + 1);
            }
            Expr::Compare(operator, left, right) => {
                self.at_least(left, 4);
                self.out.push_str(operator);
                self.at_least(right, 4);
            }
            Expr::Between(negated, value, low, high) => {
                self.at_least(value, 4);
                self.negatable(*negated, "BETWEEN");
                self.at_least(low, 4);
                self.word("AND");
                self.at_least(high, 4);
            }
            Expr::In(negated, name, texts) => self.list(*negated, name, texts),
            Expr::Like(negated, name, pattern, escape) => {
                self.name(name);
                self.negatable(*negated, "LIKE");
                self.text(pattern);
                if let Some(escape) = escape {
                    self.word("ESCAPE");
                    self.text(&escape.to_string());
                }
            }
            Expr::IsNull(negated, name) => {
                self.name(name);
                self.word("IS");
                self.negatable(*negated, "NULL");
            }
            Expr::Not(inner) => {
                self.word("NOT");
                self.at_least(inner, level);
            }
            Expr::And(left, right) | Expr::Or(left, right) => {
                self.at_least(left, level);
                self.word(if matches!(expression, Expr::And(..)) { "AND" } else { "OR" });
                self.at_least(right, level + 1);
            }
        }
    }

    fn list(&mut self, negated: bool, name: &str, texts: &[String]) {
        self.name(name);
        self.negatable(negated, "IN");
        for (position, text) in texts.iter().enumerate() {
            self.out.push(if position == 0 { '(' } else { ',' });
            self.text(text);
        }
        self.out.push(')');
    }
}

/// The level of precedence, from the loosest.
fn level_of(expression: &Expr) -> u8 {
    match expression {
        Expr::Or(..) => 0,
        Expr::And(..) => 1,
        Expr::Not(..) => 2,
        Expr::Compare(..) | Expr::Between(..) | Expr::In(..) | Expr::Like(..) | Expr::IsNull(..) => 3,
        Expr::Arithmetic('+' | '-', ..) => 4,
        Expr::Arithmetic(..) => 5,
        Expr::Sign(..) => 6,
        Expr::Literal(Owned::Long(value)) if *value < 0 => 6,
        Expr::Literal(Owned::Double(value)) if value.is_sign_negative() => 6,
        Expr::Literal(_) | Expr::Name(_) => 7,
    }
}
