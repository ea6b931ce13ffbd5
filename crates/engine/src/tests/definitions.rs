//! Joins that are defined again: which definition is the same, and what becomes of one that is not (JOIN-7).

use super::broker::Broker;
use super::script::{check, continue_with};
use crate::admin::{Request, Response};
use postroad_model::settings::JoinSettings;

#[test]
fn what_made_a_join_alters_it_too() {
    check(
        "channel orders
         channel orders.eu
         channel other
         join /orders->orders.eu@here name=x->y
         view x->y source=orders destination=orders.eu max_hops=10
         join /orders->orders.eu@here name=x->y
         join /orders->orders.eu@here name=x->y max_hops=3 => JOIN_EXISTS
         alter x->y source=/orders destination=orders.eu@here max_hops=3
         view x->y source=orders destination=orders.eu max_hops=3
         alter x->y destination=other@here => JOIN_EXISTS
         alter x->y destination=orders.eu@there => JOIN_EXISTS
         alter x->y source=other => JOIN_EXISTS
         crash
         join orders->orders.eu name=x->y max_hops=3
         publish orders 1
         stored orders.eu = 1",
    );
}

/// What a file says of the join `a->b`, applied; its settings then.
fn defined(broker: &mut Broker, max_hops: u8, enabled: Option<bool>) -> JoinSettings {
    let settings = JoinSettings {
        source: "a".into(),
        destination: "b@here".into(),
        max_hops,
        enabled: enabled.unwrap_or(true),
        ..JoinSettings::default()
    };
    match broker.ask(Request::DefineJoin { name: "a->b".into(), settings, enabled }) {
        Ok(Response::Join(view)) => view.settings,
        other => panic!("no join: {other:?}"),
    }
}

#[test]
fn a_file_that_says_nothing_of_enabled_leaves_it_as_it_is() {
    let mut broker = Broker::with(Broker::settings());
    continue_with(&mut broker, "channel a\nchannel b");
    let made = defined(&mut broker, 5, None);
    assert_eq!((made.destination.as_str(), made.max_hops, made.enabled), ("b", 5, true));
    continue_with(&mut broker, "pause a->b");
    assert!(!defined(&mut broker, 5, None).enabled, "the same again");
    let changed = defined(&mut broker, 6, None);
    assert_eq!((changed.max_hops, changed.enabled), (6, false), "a change of something else");
    continue_with(&mut broker, "crash\nview a->b max_hops=6 state=paused\npublish a 1\nstored b =");
    assert!(defined(&mut broker, 6, Some(true)).enabled);
    continue_with(&mut broker, "view a->b state=running\nstored b = 1");
    assert!(!defined(&mut broker, 6, Some(false)).enabled, "that alone");
    let changed = defined(&mut broker, 7, Some(false));
    assert_eq!((changed.max_hops, changed.enabled), (7, false));
    continue_with(&mut broker, "crash\nview a->b max_hops=7 state=paused made_by=configuration");
    assert!(!defined(&mut broker, 7, None).enabled);
}
