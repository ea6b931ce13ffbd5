//! The index against a scan of all selectors.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::config;
use super::naive::{Expr, Message, Owned, Printer};
use super::random::{condition, message, name, text};
use crate::{Selector, SelectorIndex};

fn selector(source: &str) -> Selector {
    Selector::parse(source).unwrap()
}

fn found(index: &SelectorIndex<u32>, message: &Message) -> Vec<u32> {
    let mut out = vec![u32::MAX];
    index.matches(message, &mut out);
    assert_eq!(index.any(message), !out.is_empty());
    out
}

fn region(value: &str) -> Message {
    Message::of([("region", Owned::Text(value.into())), ("weight", Owned::Long(9))])
}

#[test]
fn cost_does_not_grow_with_selectors_that_do_not_match() {
    let mut index = SelectorIndex::new();
    for i in 0..10_000 {
        index.insert(&selector(&format!("region = 'r{i}' AND weight > 5")), i);
        index.insert(
            &selector(&format!("weight BETWEEN 1 AND 20 AND region IN ('s{i}', 'r{i}')")),
            i + 10_000,
        );
    }
    let message = region("r77");
    assert_eq!(found(&index, &message), [77, 10_077]);
    message.lookups.set(0);
    index.matches(&message, &mut Vec::new());
    assert_eq!(message.lookups.get(), 3, "one for the region, one for each weight");

    let elsewhere = region("nowhere");
    assert_eq!(found(&index, &elsewhere), []);
    elsewhere.lookups.set(0);
    assert!(!index.any(&elsewhere));
    assert_eq!(elsewhere.lookups.get(), 1);
}

#[test]
fn equal_selectors_that_cannot_be_filed_are_evaluated_once() {
    let mut index = SelectorIndex::new();
    for i in 0..100 {
        assert!(index.insert(&selector("weight > 5"), i));
    }
    assert!(!index.insert(&selector("weight > 5"), 7), "the pair is there");
    let message = region("r");
    assert_eq!(found(&index, &message).len(), 100);
    message.lookups.set(0);
    assert!(index.any(&message));
    assert_eq!((message.lookups.get(), index.len()), (1, 100));
}

#[test]
fn numbers_are_found_whatever_their_type() {
    let mut index = SelectorIndex::new();
    let beyond = (1_i64 << 53) + 1;
    index.insert(&selector("n = 3"), 1);
    index.insert(&selector("3.0 = n"), 2);
    index.insert(&selector(&format!("n = {beyond}")), 3);
    index.insert(&selector("n = -0.0"), 4);
    let n = |value| found(&index, &Message::of([("n", value)]));
    assert_eq!(n(Owned::Long(3)), [1, 2]);
    assert_eq!(n(Owned::Double(3.0)), [1, 2]);
    assert_eq!(n(Owned::Long(beyond)), [3]);
    assert_eq!(n(Owned::Long(beyond - 1)), [], "the same as a double, but not equal");
    assert_eq!(n(Owned::Long(0)), [4]);
    assert_eq!(n(Owned::Double(f64::NAN)), []);
    assert_eq!(n(Owned::Text("3".into())), []);
}

#[test]
fn a_key_under_several_selectors_comes_once_and_leaves_no_trace() {
    let mut index = SelectorIndex::new();
    let sources = ["region = 'x'", "region IN ('x', 'y')", "weight = 9", "weight > 1", "gone = TRUE"];
    for source in sources {
        assert!(index.insert(&selector(source), 1));
    }
    assert_eq!(found(&index, &region("x")), [1]);
    for source in sources {
        assert!(index.remove(&selector(source), &1) && !index.remove(&selector(source), &1));
    }
    assert!(index.is_empty());
    assert_eq!(index.len(), 0);
    let message = region("x");
    assert_eq!(found(&index, &message), []);
    assert_eq!(message.lookups.get(), 0);
}

/// Random conditions, most of them with an equality among what they join.
fn source() -> impl Strategy<Value = String> {
    let equal = prop_oneof![
        3 => text().prop_map(Owned::Text),
        3 => (0..3_i64).prop_map(Owned::Long),
        1 => Just(Owned::Double(1.0)),
        1 => Just(Owned::Long((1 << 53) + 1)),
        1 => any::<bool>().prop_map(Owned::Bool),
    ];
    let equality = (name(), equal)
        .prop_map(|(name, value)| {
            Expr::Compare("=", Box::new(Expr::Name(name)), Box::new(Expr::Literal(value)))
        })
        .boxed();
    let both = (condition(), equality.clone(), any::<bool>()).prop_map(|(other, equality, first)| {
        let (left, right) = if first { (equality, other) } else { (other, equality) };
        Expr::And(Box::new(left), Box::new(right))
    });
    (prop_oneof![2 => equality, 3 => both, 1 => condition()], any::<u32>())
        .prop_map(|(expression, seed)| Printer::print(&expression, seed))
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn the_index_finds_what_a_scan_finds(
        sources in vec(source(), 1..12),
        changes in vec((any::<prop::sample::Index>(), 0..4_u32, prop::bool::weighted(0.7)), 1..40),
        messages in vec(message(), 1..12),
    ) {
        let selectors: Vec<Selector> = sources.iter().map(|source| selector(source)).collect();
        let mut index = SelectorIndex::new();
        let mut pairs = BTreeSet::new();
        for (which, key, insert) in changes {
            let selector = which.get(&selectors);
            if insert {
                prop_assert_eq!(index.insert(selector, key), pairs.insert((selector.clone(), key)));
            } else {
                prop_assert_eq!(index.remove(selector, &key), pairs.remove(&(selector.clone(), key)));
            }
            prop_assert_eq!(index.len(), pairs.len());
        }
        for message in messages {
            let matching = pairs.iter().filter(|(selector, _)| selector.matches(&message)).map(|(_, key)| *key);
            let expected: Vec<u32> = matching.collect::<BTreeSet<u32>>().into_iter().collect();
            prop_assert_eq!(found(&index, &message), expected, "{:?} on {:?}", pairs, message);
        }
    }
}
