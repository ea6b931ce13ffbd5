//! Message selectors: the conditions by which consumers, joins and routes choose messages.
//!
//! The language is that of Jakarta Messaging 3.1, section 3.8.1 (the JMS selector), whole. A [`Selector`] is parsed,
//! checked and compiled once; [`Selector::matches`] then evaluates it against one message without allocating. A
//! [`SelectorIndex`] holds the selectors of many takers of one stream and finds the matching ones without
//! visiting the rest.
//!
//! This crate knows the language and nothing else. It must never know what a message, a queue or a protocol is:
//! it sees a message only through [`Properties`], which the engine implements on encoded bytes. It has no clock, no
//! I/O, no threads, and no input, however hostile, makes it panic, recurse without bound or take exponential time.
//!
//! # The language, where the specification leaves room
//!
//! | question | answer here |
//! | --- | --- |
//! | type mismatch in a comparison | FALSE, also for `<>`; UNKNOWN if one side is NULL (3.8.1.1) |
//! | `<`, `>`, `BETWEEN`, arithmetic on a text or boolean literal or on a condition | refused when presented |
//! | the same on a property that turns out not to be a number | the comparison is FALSE |
//! | a calculation compared with a text or boolean literal | refused: it is a name with a hyphen, most likely |
//! | a property that is no boolean, where a condition is expected | UNKNOWN, also behind NOT |
//! | `a NOT IN (...)`, `a` not a text | TRUE, because it stands for `NOT (a = ... OR ...)` |
//! | `a [NOT] LIKE ...`, `a` not a text | FALSE |
//! | division by zero | UNKNOWN between exact numbers; as IEEE 754 has it between approximate ones |
//! | overflow of exact numbers | wraps, as in Java |
//! | `long` and `double` | the `long` is rounded to a `double`, as in Java: beyond 2^53 neighbours are equal |
//! | NaN | unequal to everything, in no order with anything |
//! | exact literals | decimal, hexadecimal, octal and binary, `_` between digits, `L`; always 64 bits |
//! | approximate literals | as in Java, also hexadecimal ones; `f` rounds to single precision first |
//! | `a = b = c` | refused: say what is meant by AND or parentheses |
//! | ESCAPE | the character must stand before `%`, `_` or itself |
//! | names | `JMS...` only as the six header fields, `JMSX...` and `JMS_...` |
//! | an empty selector | none: [`Selector::parse_optional`]; [`Selector::parse`] refuses it |
//!
//! **Our extension:** a name that is no Java identifier, or is a reserved word, is written in double quotes:
//! `"content-type" = 'text/plain'`, `"a.b" > 5`, `"order" IS NULL`; a double quote within is doubled.
//!
//! **Limits:** 16 KiB of source ([`MAX_LENGTH`]), 64 parentheses within each other ([`MAX_NESTING`]), and in LIKE,
//! between two `%`, 128 characters if `_` is among them.
//!
//! # Example
//!
//! ```
//! use postroad_selector::{Properties, Selector, Value};
//!
//! struct Car;
//! impl Properties for Car {
//!     fn property(&self, identifier: &str) -> Value<'_> {
//!         match identifier {
//!             "JMSType" => Value::Text("car"),
//!             "weight" => Value::Long(2600),
//!             _ => Value::Null,
//!         }
//!     }
//! }
//!
//! let selector = Selector::parse("JMSType = 'car' AND weight > 2500")?;
//! assert!(selector.matches(&Car));
//! assert_eq!(Selector::parse("color = 'blue'")?.evaluate(&Car), None);
//! assert_eq!(Selector::parse("weight >").unwrap_err().column, 9);
//! # Ok::<(), postroad_selector::SyntaxError>(())
//! ```

mod error;
mod identifier;
mod index;
mod lexer;
mod like;
mod number;
mod parser;
mod selector;
#[cfg(test)]
mod tests;
mod tree;
mod value;

pub use error::SyntaxError;
pub use index::SelectorIndex;
pub use parser::MAX_NESTING;
pub use selector::{MAX_LENGTH, Selector};
pub use value::{Properties, Value};
