//! The language as a table: the examples of Jakarta Messaging 3.1, section 3.8.1, and every rule of the crate's page.

use super::naive::{Message, Owned};
use crate::Selector;

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);
const UNKNOWN: Option<bool> = None;

fn text(value: &str) -> Owned {
    Owned::Text(value.into())
}

/// A message with one property of each type.
fn message() -> Message {
    Message::of([
        ("JMSType", text("car")),
        ("JMSDeliveryMode", text("PERSISTENT")),
        ("JMSPriority", Owned::Long(4)),
        ("color", text("blue")),
        ("weight", Owned::Long(2600)),
        ("price", Owned::Double(10.5)),
        ("sold", Owned::Bool(false)),
        ("new", Owned::Bool(true)),
        ("orders", text("2")),
        ("nan", Owned::Double(f64::NAN)),
        ("blob", Owned::Opaque),
        ("content-type", text("text/plain")),
        ("order", text("say \"hi\"")),
    ])
}

fn check(table: &[(&str, Option<bool>)]) {
    for (source, expected) in table {
        let selector = Selector::parse(source).unwrap();
        assert_eq!(selector.evaluate(&message()), *expected, "{source}");
        assert_eq!(selector.matches(&message()), *expected == TRUE, "{source}");
    }
}

#[test]
fn the_example_of_the_specification() {
    check(&[
        ("JMSType = 'car' AND color = 'blue' AND weight > 2500", TRUE),
        ("JMSDeliveryMode = 'PERSISTENT'", TRUE),
    ]);
}

#[test]
fn three_valued_logic() {
    for (and, or, left, right) in [
        (TRUE, TRUE, TRUE, TRUE),
        (FALSE, TRUE, TRUE, FALSE),
        (UNKNOWN, TRUE, TRUE, UNKNOWN),
        (FALSE, FALSE, FALSE, FALSE),
        (FALSE, UNKNOWN, FALSE, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ] {
        let word = |value| match value {
            TRUE => "new",
            FALSE => "sold",
            UNKNOWN => "missing",
        };
        let (left, right) = (word(left), word(right));
        for (a, b) in [(left, right), (right, left)] {
            check(&[(&format!("{a} AND {b}"), and), (&format!("{a} OR {b}"), or)]);
        }
    }
    check(&[("NOT new", FALSE), ("NOT sold", TRUE), ("NOT missing", UNKNOWN), ("not Not new", TRUE)]);
}

#[test]
fn precedence() {
    check(&[
        ("TRUE OR TRUE AND FALSE", TRUE),
        ("(TRUE OR TRUE) AND FALSE", FALSE),
        ("NOT FALSE AND FALSE", FALSE),
        ("NOT (FALSE AND FALSE)", TRUE),
        ("NOT weight = 1", TRUE),
        ("2 + 3 * 4 = 14", TRUE),
        ("(2 + 3) * 4 = 20", TRUE),
        ("10 - 4 - 3 = 3", TRUE),
        ("100 / 10 / 5 = 2", TRUE),
        ("-2 * -3 = 6", TRUE),
        ("5--2=7", TRUE),
        ("weight BETWEEN 1 AND 9000 AND sold", FALSE),
    ]);
}

#[test]
fn comparison_and_types() {
    check(&[
        ("price = 10.5 AND price >= 10 AND price < 11", TRUE),
        ("weight = 2600.0 AND 2.6e3 = weight", TRUE),
        ("color <> 'red'", TRUE),
        ("sold = FALSE AND new <> sold", TRUE),
        ("color = 1 OR color <> 1 OR 1 = color", FALSE),
        ("NOT (color = 1)", TRUE),
        ("orders > 1", FALSE),
        ("orders + 1 > 1 OR orders + 1 <= 1", FALSE),
        ("color > color", FALSE),
        ("weight = 'x' OR weight <> 'x' OR sold = 'false'", FALSE),
        ("'a' = 1", FALSE),
        ("'a' = 'a'", TRUE),
        ("blob = blob OR blob <> blob OR blob <> 1", FALSE),
        ("blob IS NOT NULL", TRUE),
        ("missing = 1 OR missing <> 1 OR missing > 1 OR missing = missing", UNKNOWN),
        ("missing + 1 = 1", UNKNOWN),
        ("nan = nan OR nan < 1 OR nan >= 1", FALSE),
        ("nan <> nan", TRUE),
        ("(weight > 1) = (price > 1)", TRUE),
        ("(missing > 1) = TRUE", UNKNOWN),
        ("color", UNKNOWN),
        ("NOT weight", UNKNOWN),
    ]);
}

#[test]
fn arithmetic_is_that_of_java() {
    check(&[
        ("7 / 2 = 3 AND -7 / 2 = -3 AND 7 / 2.0 = 3.5", TRUE),
        ("1 / 0 = 1 OR 1 / 0 <> 1", UNKNOWN),
        ("1 / 0.0 > 1e308 AND 1.0 / 0 > 1e308", TRUE),
        ("0.0 / 0 = 0.0 / 0", FALSE),
        ("9223372036854775807 + 1 = -9223372036854775808", TRUE),
        ("-9223372036854775808 / -1 = -9223372036854775808", TRUE),
        ("- -9223372036854775808 = -9223372036854775808", TRUE),
        ("9007199254740993 = 9007199254740992.0", TRUE),
        ("9007199254740993 = 9007199254740992", FALSE),
        ("0x10 = 16 AND 010 = 8 AND 0b11 = 3 AND 10L = 10 AND 1_0 = 10", TRUE),
        ("7. = 7 AND .5d = 5e-1 AND 1f = 1 AND 0x1p4 = 16", TRUE),
        ("0.1f = 0.1", FALSE),
        ("+weight = 2600 AND -weight < 0 AND - -weight = 2600", TRUE),
        ("+color = orders", FALSE),
    ]);
}

#[test]
fn between_in_like_and_null() {
    check(&[
        ("weight BETWEEN 2600 AND 2600", TRUE),
        ("weight NOT BETWEEN 2600 AND 2600", FALSE),
        ("weight BETWEEN 9 AND 1", FALSE),
        ("weight BETWEEN missing AND 1", FALSE),
        ("weight BETWEEN missing AND 9000", UNKNOWN),
        ("weight NOT BETWEEN missing AND 1", TRUE),
        ("color BETWEEN 1 AND 2 OR color NOT BETWEEN 1 AND 2", FALSE),
        ("color IN ('red', 'blue')", TRUE),
        ("color NOT IN ('red', 'blue')", FALSE),
        ("color not in ('red')", TRUE),
        ("missing IN ('a') OR missing NOT IN ('a')", UNKNOWN),
        ("weight IN ('a')", FALSE),
        ("weight NOT IN ('a')", TRUE),
        ("color LIKE 'b_u%'", TRUE),
        ("color NOT LIKE 'b_u%'", FALSE),
        ("color LIKE 'B%'", FALSE),
        ("color LIKE 'b!%' ESCAPE '!'", FALSE),
        ("missing LIKE '%' OR missing NOT LIKE '%'", UNKNOWN),
        ("weight LIKE '%' OR weight NOT LIKE '%'", FALSE),
        ("missing IS NULL AND color IS NOT NULL", TRUE),
        ("missing IS NOT NULL OR color IS NULL", FALSE),
        ("(color) IS NOT NULL", TRUE),
    ]);
}

#[test]
fn names_are_case_sensitive_keywords_are_not() {
    check(&[
        ("Color = 'blue'", UNKNOWN),
        ("color iN ('blue') aNd trUe oR fAlse", TRUE),
        ("\"content-type\" = 'text/plain'", TRUE),
        ("\"order\" LIKE 'say \"hi\"' AND \"weight\" > 1", TRUE),
        ("\"AND\" IS NULL", TRUE),
        ("_x IS NULL AND $y IS NULL AND été IS NULL AND 名前 IS NULL", TRUE),
        (" \t\r\n\x0cnew ", TRUE),
        ("color='blue'AND(new)", TRUE),
        ("JMSXGroupID IS NULL AND JMS_AMQP_TTL IS NULL", TRUE),
        ("color = 'bl''ue' OR color = ''", FALSE),
    ]);
}

#[test]
fn an_empty_selector_is_none() {
    assert_eq!(Selector::parse_optional("").unwrap(), None);
    assert_eq!(Selector::parse_optional(" \n").unwrap(), None);
    assert_eq!(Selector::parse_optional("new").unwrap().unwrap().source(), "new");
    assert!(Selector::parse_optional("(").is_err());
    assert_eq!(Selector::parse("").unwrap_err().column, 1);
}

#[test]
fn errors_give_the_column_and_the_way_out() {
    for (source, column, part) in [
        ("weight >", 9, "found the end where there should be a name"),
        ("weight = 5 5", 12, "found a number where there should be AND, OR or the end"),
        ("(weight = 5", 12, "there should be )"),
        ("color = 'red' OR", 17, "found the end"),
        ("a AND OR b", 7, "found OR"),
        ("5", 1, "compare it with something"),
        ("a AND 'x'", 7, "a text is not a condition"),
        ("a + 1", 1, "a number is not a condition"),
        ("color > 'red'", 9, "only = and <> compare"),
        ("color BETWEEN 'a' AND 'b'", 15, "BETWEEN works on numbers"),
        ("a > TRUE", 5, "works on numbers"),
        ("1 < a < 5", 7, "join them by AND"),
        ("a = b = c", 7, "one comparison cannot follow another"),
        ("a + 'x' = 1", 5, "+ works on numbers"),
        ("-'x' = 1", 2, "- works on numbers"),
        ("my-prop = 'x'", 1, "\"my-name\""),
        ("a.b.c = 1", 1, "\"a.b.c\""),
        ("a = NULL", 5, "IS NULL"),
        ("a <> null", 6, "IS NOT NULL"),
        ("a IS 5", 6, "NULL or NOT NULL"),
        ("a IS NOT TRUE", 10, "NULL behind IS NOT"),
        ("1 IS NULL", 1, "name of a property on its left"),
        ("a NOT 5", 7, "BETWEEN, IN or LIKE"),
        ("a IN ()", 7, "a text"),
        ("a IN (1, 2)", 7, "IN lists texts"),
        ("a IN 'x'", 6, "( and a list"),
        ("a IN ('x' 'y')", 11, ", or )"),
        ("'x' IN ('x')", 1, "name of a property"),
        ("a LIKE b", 8, "a pattern in single quotes"),
        ("a LIKE 'x' ESCAPE '!!'", 19, "exactly one character"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "escape character !"),
        ("a = NOT b", 5, "parentheses"),
        ("JMSDestination = 'q'", 1, "JMSPriority"),
        ("a = 9223372036854775808", 5, "minus"),
        ("a = 99999999999999999999", 5, "too large"),
        ("a = 'é' AND é = b = c", 19, "cannot follow"),
        ("NOT", 4, "found the end"),
        ("LIKE 'x'", 1, "found LIKE"),
        ("a b", 3, "found the identifier b"),
    ] {
        let error = Selector::parse(source).unwrap_err();
        assert_eq!(error.column, column, "{source}: {error}");
        assert!(error.message.contains(part), "{source}: {error}");
        assert_eq!(error.to_string(), format!("at column {column}: {}", error.message));
    }
}

#[test]
fn selectors_are_equal_by_their_source() {
    let selector = Selector::parse("a = 1").unwrap();
    assert_eq!(selector, selector.clone());
    assert_eq!(selector, Selector::parse("a = 1").unwrap());
    assert_ne!(selector, Selector::parse("a  = 1").unwrap());
    assert_eq!(format!("{selector:?} {selector}"), "Selector(\"a = 1\") a = 1");
}
