//! Sources that want to break the parser.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::naive::Message;
use super::random::message;
use crate::{MAX_LENGTH, MAX_NESTING, Selector};

/// Runs `check` where little stack is left.
fn on_a_small_stack(check: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(check).unwrap().join().unwrap();
}

#[test]
fn depth_is_bounded() {
    on_a_small_stack(|| {
        let nested = |depth| format!("{}a{}", "(1 <> a AND NOT b OR ".repeat(depth), ")".repeat(depth));
        let selector = Selector::parse(&nested(MAX_NESTING)).unwrap();
        assert_eq!(selector.evaluate(&Message::default()), None);
        let error = Selector::parse(&nested(MAX_NESTING + 1)).unwrap_err();
        assert_eq!(error.column, 21 * MAX_NESTING + 1);
        assert!(error.message.contains("nested"));
        assert!(Selector::parse(&"(".repeat(MAX_LENGTH)).is_err());
    });
}

#[test]
fn length_alone_does_not_deepen_the_tree() {
    on_a_small_stack(|| {
        for (start, repeated) in [
            ("a", " AND a"),
            ("a", " OR a"),
            ("a = 1", "-1"),
            ("a = 1", "/1"),
            ("a = 1 AND a", "=-+-a AND a"),
        ] {
            let mut source = start.to_owned();
            while source.len() + repeated.len() <= MAX_LENGTH {
                source.push_str(repeated);
            }
            let selector = Selector::parse(&source).unwrap();
            assert_eq!(selector.evaluate(&Message::default()), None);
        }
        let nots = format!("{}a", "NOT ".repeat(4000));
        assert_eq!(Selector::parse(&nots).unwrap().evaluate(&Message::default()), None);
        let signs = format!("{}1 = 1", "-".repeat(16_000));
        assert_eq!(Selector::parse(&signs).unwrap().evaluate(&Message::default()), Some(true));
    });
}

#[test]
fn too_long_a_source_is_refused() {
    let source = format!("a = '{}'", "x".repeat(MAX_LENGTH - 6));
    assert_eq!(source.len(), MAX_LENGTH);
    assert!(Selector::parse(&source).is_ok());
    let error = Selector::parse(&format!("{source} ")).unwrap_err();
    assert!(error.message.contains("16384 bytes"));
}

/// Pieces of the language in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "b",
        "\"x y\"",
        "'t'",
        "'%_'",
        "''",
        "1",
        "0x1F",
        "1.5e3",
        "9223372036854775808",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "NULL",
        "TRUE",
        "FALSE",
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "LIKE",
        "IN",
        "IS",
        "ESCAPE",
        "'",
        "\"",
        ".",
        "é",
        "JMSType",
        "JMSFoo",
        "\0",
        "😀",
    ];
    vec(select(pieces), 0..14).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn no_source_makes_it_panic(source in prop_oneof![1 => any::<String>(), 3 => soup()], message in message()) {
        match Selector::parse(&source) {
            Ok(selector) => {
                prop_assert_eq!(selector.matches(&message), selector.evaluate(&message) == Some(true));
            }
            Err(error) => {
                prop_assert!((1..=source.chars().count() + 1).contains(&error.column), "{}", error);
                prop_assert!(!error.message.is_empty());
            }
        }
    }
}
