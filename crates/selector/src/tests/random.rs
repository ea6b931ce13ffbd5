//! Random selectors on random messages: the compiled form agrees with the naive evaluator.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::naive::{Expr, Message, Owned, Printer};
use crate::Selector;

/// Few names and values, so that comparisons often meet.
pub(super) fn name() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "c", "JMSType", "prix_€"]).prop_map(str::to_owned)
}

fn long() -> impl Strategy<Value = i64> {
    const EDGE: i64 = 1 << 53;
    prop_oneof![4 => -2..4_i64, 1 => select(vec![i64::MIN, i64::MAX, EDGE, EDGE + 1, -EDGE, EDGE - 1])]
}

/// Finite numbers, as literals can be.
fn double() -> impl Strategy<Value = f64> {
    select(vec![
        0.0,
        -0.0,
        1.0,
        1.5,
        -2.0,
        3.0,
        1e300,
        5e-324,
        9_007_199_254_740_992.0,
        9.223_372_036_854_776e18,
    ])
}

pub(super) fn text() -> impl Strategy<Value = String> {
    select(vec!["", "a", "ab", "abc", "b%", "é_", "it's", "1"]).prop_map(str::to_owned)
}

fn literal() -> impl Strategy<Value = Owned> {
    prop_oneof![
        any::<bool>().prop_map(Owned::Bool),
        long().prop_map(Owned::Long),
        double().prop_map(Owned::Double),
        text().prop_map(Owned::Text),
    ]
}

pub(super) fn message() -> impl Strategy<Value = Message> {
    let value = prop_oneof![
        6 => literal(),
        1 => select(vec![Owned::Null, Owned::Opaque, Owned::Double(f64::NAN), Owned::Double(f64::INFINITY)]),
    ];
    btree_map(name(), value, 0..6).prop_map(|properties| Message { properties, ..Message::default() })
}

fn boxed_name() -> impl Strategy<Value = Expr> {
    name().prop_map(Expr::Name)
}

fn number() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        3 => boxed_name(),
        2 => long().prop_map(|value| Expr::Literal(Owned::Long(value))),
        1 => double().prop_map(|value| Expr::Literal(Owned::Double(value))),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let sign = select(vec!['+', '-']);
        prop_oneof![
            1 => (sign, inner.clone()).prop_map(|(sign, e)| Expr::Sign(sign, Box::new(e))),
            4 => (select(vec!['+', '-', '*', '/']), inner.clone(), inner)
                .prop_map(|(operator, l, r)| Expr::Arithmetic(operator, Box::new(l), Box::new(r))),
        ]
    })
}

fn compare(operator: &'static str, (left, right): (Expr, Expr)) -> Expr {
    Expr::Compare(operator, Box::new(left), Box::new(right))
}

fn like() -> impl Strategy<Value = Expr> {
    let plain = "[ab%_é]{0,4}".prop_map(|pattern| (pattern, None));
    let escaped = vec(select(vec!["a", "%", "_", "!%", "!_", "!!"]), 0..4)
        .prop_map(|parts| (parts.concat(), Some('!')));
    (any::<bool>(), name(), prop_oneof![plain, escaped])
        .prop_map(|(negated, name, (pattern, escape))| Expr::Like(negated, name, pattern, escape))
}

fn predicate() -> impl Strategy<Value = Expr> {
    let equality = || select(vec!["=", "<>"]);
    let any_literal = || literal().prop_map(Expr::Literal);
    let mixed = prop_oneof![
        3 => (boxed_name(), any_literal()),
        1 => (any_literal(), boxed_name()),
        1 => (any_literal(), any_literal()),
        1 => (boxed_name(), boxed_name()),
    ];
    prop_oneof![
        1 => boxed_name(),
        1 => any::<bool>().prop_map(|value| Expr::Literal(Owned::Bool(value))),
        4 => (equality(), mixed).prop_map(|(operator, sides)| compare(operator, sides)),
        4 => (select(vec!["=", "<>", "<", "<=", ">", ">="]), (number(), number()))
            .prop_map(|(operator, sides)| compare(operator, sides)),
        2 => (any::<bool>(), number(), number(), number())
            .prop_map(|(negated, v, l, h)| Expr::Between(negated, Box::new(v), Box::new(l), Box::new(h))),
        2 => (any::<bool>(), name(), vec(text(), 1..4)).prop_map(|(negated, n, texts)| Expr::In(negated, n, texts)),
        2 => like(),
        1 => (any::<bool>(), name()).prop_map(|(negated, name)| Expr::IsNull(negated, name)),
    ]
}

/// Conditions that the parser takes: none that the types of their literals rule out.
pub(super) fn condition() -> impl Strategy<Value = Expr> {
    predicate().prop_recursive(4, 24, 2, |inner| {
        let two = || (inner.clone(), inner.clone());
        prop_oneof![
            1 => inner.clone().prop_map(|e| Expr::Not(Box::new(e))),
            2 => two().prop_map(|(l, r)| Expr::And(Box::new(l), Box::new(r))),
            2 => two().prop_map(|(l, r)| Expr::Or(Box::new(l), Box::new(r))),
            1 => (select(vec!["=", "<>"]), two()).prop_map(|(operator, sides)| compare(operator, sides)),
        ]
    })
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn compiled_selectors_agree_with_the_naive_evaluator(
        expression in condition(),
        messages in vec(message(), 1..6),
        seed in any::<u32>(),
    ) {
        let source = Printer::print(&expression, seed);
        let selector = Selector::parse(&source).map_err(|e| TestCaseError::fail(format!("{source}: {e}")))?;
        for message in messages {
            let expected = expression.evaluate(&message);
            prop_assert_eq!(selector.evaluate(&message), expected, "{} on {:?}", source, message);
            prop_assert_eq!(selector.matches(&message), expected == Some(true));
        }
    }
}
