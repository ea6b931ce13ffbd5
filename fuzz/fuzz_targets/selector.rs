//! Any text as a selector: refused, or it agrees with itself however it is asked.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use postroad_fuzz::frames::All;
use postroad_selector::{Properties, Selector, SelectorIndex, Value};

#[derive(Arbitrary, Debug)]
struct Case {
    message: Message,
    words: All<Word>,
}

#[derive(Arbitrary, Debug)]
struct Message([Owned; 4]);

/// A part of a selector's source.
#[derive(Arbitrary, Debug)]
enum Word {
    Known(u8),
    KnownThenName(u8, u8),
    Name(u8),
    /// The words behind it are another selector's.
    Next,
    Long(i64),
    Double(f64),
    Literal(String),
    Text(String),
}

#[derive(Arbitrary, Debug)]
enum Owned {
    Null,
    Bool(bool),
    Long(i8),
    Any(i64),
    Double(f64),
    Text(String),
    Opaque,
}

const KNOWN: [&str; 36] = [
    "AND", "OR", "NOT", "(", ")", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "BETWEEN", "IN",
    "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", ",", "''", "'a'", "'a%'", "'_'", "1", "0", "0x1F",
    "1e3", "2L", "1.5f", "'\\'", "'%'",
];
const NAMES: [&str; 6] = ["a", "b", "\"c-d\"", "JMSType", "JMSXGroupID", "JMSWhatever"];

impl Properties for Message {
    fn property(&self, identifier: &str) -> Value<'_> {
        let place = ["a", "b", "c-d", "JMSType"].iter().position(|name| *name == identifier);
        match place.and_then(|place| self.0.get(place)) {
            None | Some(Owned::Null) => Value::Null,
            Some(Owned::Bool(value)) => Value::Bool(*value),
            Some(Owned::Long(value)) => Value::Long((*value).into()),
            Some(Owned::Any(value)) => Value::Long(*value),
            Some(Owned::Double(value)) => Value::Double(*value),
            Some(Owned::Text(value)) => Value::Text(value),
            Some(Owned::Opaque) => Value::Opaque,
        }
    }
}

fn pick<'a>(words: &[&'a str], which: u8) -> &'a str {
    words[usize::from(which) % words.len()]
}

fn source(words: &[Word]) -> String {
    let words = words.iter().map(|word| match word {
        Word::Known(which) => pick(&KNOWN, *which).to_owned(),
        Word::KnownThenName(known, name) => format!("{} {}", pick(&KNOWN, *known), pick(&NAMES, *name)),
        Word::Name(which) => pick(&NAMES, *which).to_owned(),
        Word::Next => String::new(),
        Word::Long(value) => value.to_string(),
        Word::Double(value) => format!("{value:?}"),
        Word::Literal(text) => format!("'{}'", text.replace('\'', "''")),
        Word::Text(text) => text.clone(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fuzz_target!(|case: Case| {
    let mut index = SelectorIndex::default();
    let mut expected = Vec::new();
    for (key, words) in case.words.0.split(|word| matches!(word, Word::Next)).enumerate() {
        let text = source(words);
        match Selector::parse(&text) {
            Ok(selector) => {
                check(&selector, &case.message);
                index.insert(&selector, key);
                if selector.matches(&case.message) {
                    expected.push(key);
                }
            }
            Err(error) => {
                assert!(error.column > 0 && error.column <= text.chars().count() + 1, "{text}: {error}")
            }
        }
    }
    let mut found = Vec::new();
    index.matches(&case.message, &mut found);
    assert_eq!(found, expected);
});

fn check(selector: &Selector, message: &Message) {
    let value = selector.evaluate(message);
    assert_eq!(selector.matches(message), value == Some(true));
    let again = Selector::parse(&selector.to_string()).expect("what is printed can be parsed");
    assert_eq!((&again, again.evaluate(message)), (selector, value));
    // Parentheses around it can be too many, or too long.
    if let Ok(negated) = Selector::parse(&format!("NOT ({selector})")) {
        assert_eq!(negated.evaluate(message), value.map(|value| !value), "{negated}");
    }
    if let Ok(doubled) = Selector::parse(&format!("({selector}) AND ({selector}) OR ({selector})")) {
        assert_eq!(doubled.evaluate(message), value, "{doubled}");
    }
}
