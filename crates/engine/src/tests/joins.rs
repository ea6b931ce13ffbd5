//! Joins: routes, hop counts, loops, several paths, filters (joins-and-interest 3.1 to 3.5, 6).

use super::Draft;
use super::broker::Broker;
use super::paging::publish_unworked;
use super::script::{check, continue_with};
use postroad_amqp_codec::Value;
use postroad_testkit::proves;
use std::fmt::Write as _;

/// `c0` to `cN` joined in sequence.
fn chain(last: u32, first_join: &str) -> String {
    let mut script = String::new();
    for n in 0..=last {
        let _ = writeln!(script, "channel c{n}");
    }
    for n in 0..last {
        let _ = writeln!(script, "join c{n}->c{} {}", n + 1, if n == 0 { first_join } else { "" });
    }
    script
}

/// One `stored` line a store of the chain.
fn stored(stores: std::ops::RangeInclusive<u32>, what: &str) -> String {
    stores.map(|n| format!("stored c{n} = {what}\n")).collect()
}

#[test]
fn a_join_routes_without_any_action_of_a_client() {
    check(
        "channel a
         channel b
         queue q
         join a->b
         join a->q
         publish a 1..3
         stored b = 1..3
         stored q = 1..3
         publish b 4           # one-way
         stored a = 1..3",
    );
    proves("JOIN-1");
    proves("JOIN-5");
}

#[test]
fn the_hop_count_says_how_many_stores_lie_between() {
    check(&format!("{}publish c0 1\n{}{}", chain(9, "max_hops=5"), stored(0..=6, "1"), stored(7..=9, "")));
    check(&format!(
        "{}publish c0 1\nview c6->c7 hop_stopped_total=1 dead_lettered_total=0 state=running",
        chain(9, "max_hops=5")
    ));
    proves("joins:H1");
    proves("HOP-1");
    proves("HOP-2");
    proves("HOP-3");
}

#[test]
fn the_default_is_ten_stores_between() {
    check(&format!("{}publish c0 1\n{}", chain(9, ""), stored(0..=9, "1")));
    proves("joins:H2");
    check(&format!("{}publish c0 1\n{}{}", chain(12, ""), stored(0..=11, "1"), stored(12..=12, "")));
    proves("joins:H3");
}

#[test]
fn the_smallest_hop_count_on_the_way_counts() {
    check(&format!("{}publish c0 1\n{}{}", chain(2, "max_hops=0"), stored(0..=1, "1"), stored(2..=2, "")));
    proves("joins:H4");
    check(&format!(
        "{}pause c1->c2\nalter c1->c2 max_hops=1 enabled=true\npublish c0 1\n{}{}",
        chain(4, ""),
        stored(0..=3, "1"),
        stored(4..=4, "")
    ));
    proves("joins:H5");
    check(&format!("{}publish c3 1\n{}{}", chain(9, "max_hops=5"), stored(0..=2, ""), stored(3..=9, "1")));
    proves("joins:H6");
}

#[test]
fn the_hop_budget_survives_a_restart() {
    check(&format!(
        "{}pause c3->c4\npublish c0 1\ncrash\nresume c3->c4\n{}{}",
        chain(9, "max_hops=5"),
        stored(0..=6, "1"),
        stored(7..=9, "")
    ));
    proves("joins:H7");
}

#[test]
fn reach_does_not_depend_on_which_path_was_faster() {
    let script = "channel c0
         channel c1
         channel c2
         channel x
         channel y
         join c0->c1
         join c1->c2
         join c2->x
         join c0->x max_hops=0
         join x->y
         pause c2->x
         publish c0 1
         stored x = 1
         stored y =
         view x->y hop_stopped_total=1
         resume c2->x
         stored x = 1
         stored y = 1
         view c2->x duplicate_total=1
         crash
         publish c0 2
         stored x = 1 2
         stored y = 1 2";
    check(script);
    proves("joins:H8");
    proves("HOP-6");
}

#[test]
fn what_is_filtered_out_consumes_no_budget() {
    check(
        "channel a
         channel b
         channel c
         join a->b max_hops=0 filter=\"k = 1\"
         join b->c
         publish a 1{k=2} 2{k=1}
         stored b = 2
         stored c =
         view b->c hop_stopped_total=1
         view a->b filtered_total=1 forwarded_total=1",
    );
    proves("HOP-5");
}

#[test]
fn a_loop_ends_at_the_first_store_that_knows_the_event() {
    let pair = "channel c0
         channel c1
         join c0->c1
         join c1->c0
         ";
    check(&format!("{pair}publish c0 1\nstored c0 = 1\nstored c1 = 1"));
    proves("joins:L1");
    check(&format!("{pair}publish c1 1\nstored c0 = 1\nstored c1 = 1"));
    proves("joins:L2");
    check(
        "channel a
         channel b
         channel c
         join a->b
         join b->c
         join c->a
         publish a 1..100
         publish b 101..200
         publish c 201..300
         view a depth=300
         view b depth=300
         view c depth=300",
    );
    proves("joins:L3");
    check(
        "channel a
         channel b
         join a->b filter=\"color = 'red'\"
         join b->a
         publish a 1{color=red} 2{color=blue}
         publish b 3{color=blue}
         stored a = 1 2 3
         stored b = 1 3",
    );
    proves("joins:L4");
    check(
        "channel c0
         channel c1
         join c0->c1 split_horizon=false
         join c1->c0 split_horizon=false
         publish c0 1
         stored c0 = 1
         stored c1 = 1
         view c1->c0 duplicate_total=1 split_horizon_total=0",
    );
    proves("joins:L5");
    proves("LOOP-1");
    proves("LOOP-3");
}

#[test]
fn a_loop_stays_quiet_over_a_crash() {
    for mem in ["", "{mem}"] {
        check(&format!(
            "channel c0
             channel c1
             join c0->c1 split_horizon=false
             join c1->c0 split_horizon=false
             publish c0 1..20{mem}
             view c0 depth=20
             crash
             publish c1 21..40{mem}
             view c0 depth={depth}
             view c1 depth={depth}",
            depth = if mem.is_empty() { 40 } else { 20 }
        ));
    }
}

#[test]
fn several_paths_deliver_once() {
    let diamond = "channel a
         channel b
         channel c
         channel d
         join a->b
         join a->c
         join b->d
         join c->d
         ";
    check(&format!(
        "{diamond}publish a 1..1000\nview a depth=1000\nview b depth=1000\nview c depth=1000\nview d depth=1000"
    ));
    let broker = &mut check(&format!("{diamond}publish a 1..1000"));
    let views = ["b->d", "c->d"].map(|join| {
        let request = crate::admin::Request::ShowJoin { name: join.into() };
        let view = serde_json::to_value(broker.ask(request).unwrap()).unwrap();
        view["duplicate_total"].as_u64().unwrap()
    });
    assert_eq!(views.iter().sum::<u64>(), 1_000);
    proves("joins:P3");
    proves("DUP-1");
    proves("DUP-8");
}

#[test]
fn a_late_copy_is_recognised_whatever_became_of_the_first() {
    let two_ways = "channel a
         channel b
         join a->b
         join b->d allow_missing=true
         join a->d allow_missing=true
         pause b->d
         ";
    check(&format!(
        "queue d\n{two_ways}publish a 1
         consume C d
         got C = 1
         ack C 1
         stored d =
         crash
         wait 600000
         resume b->d
         view b->d duplicate_total=1
         stored d ="
    ));
    proves("joins:P5");
    proves("DUP-5");
    check(&format!(
        "channel d ttl=1000\n{two_ways}publish a 1
         wait 5000
         view d depth=0 expired_total=1
         resume b->d
         view b->d duplicate_total=1
         view d depth=0 expired_total=1"
    ));
    proves("joins:P6");
    check(
        "channel a
         channel b
         channel d
         join a->d filter=\"color = 'red'\"
         join a->b
         join b->d
         publish a 1{color=red} 2{color=blue}
         view d depth=2",
    );
    proves("joins:P7");
}

#[test]
fn a_store_made_again_is_another_origin() {
    check(
        "channel a
         channel d
         join a->d
         publish a 1
         delete a => STORE_IN_USE
         delete a cascade
         view a->d => JOIN_NOT_FOUND
         channel a
         join a->d
         publish a 2
         view a last_event_id=1
         stored d = 1 2",
    );
    proves("joins:P8");
    proves("DEL-4");
}

#[test]
fn a_message_id_sent_twice_is_one_event_only_if_asked_for() {
    check(
        "channel a
         channel d
         join a->d
         publish a 1{id=X} 1{id=X}
         stored a = 1 1
         stored d = 1 1",
    );
    check(
        "channel a publisher_dedupe=message-id
         channel d
         join a->d
         publish a 1{id=X} 1{id=X} 2{id=Y} 3
         stored a = 1 2 3
         stored d = 1 2 3
         view a deduplicated_total=1
         crash
         publish a 1{id=X}
         stored a = 1 2 3
         wait 600001
         publish a 4{id=X}
         stored a = 1 2 3 4",
    );
    proves("joins:P9");
    proves("DUP-11");
}

#[test]
fn what_can_not_be_judged_is_set_aside() {
    let script = "channel a
         channel d dead_event_store=grave dedupe={\"min_ids\":1000,\"min_age\":1000}
         channel grave
         join a->d
         publish a 1 m{mem}
         stored d = 1 m
         restart              # numbers in memory are never given again: the next id is above 65,536
         publish a 2{mem}
         wait 2000
         publish a 3
         restart
         publish a 4{mem}
         wait 2000
         publish a 5
         join a->d name=late->d via=other start=all
         stored grave = 1
         view d undecidable_total=1
         view late->d state=running";
    let broker = &mut check(script);
    let request = crate::admin::Request::BrowseStore {
        kind: crate::admin::StoreKind::Channel,
        name: "grave".into(),
        selection: crate::admin::Selection::default(),
        page: crate::admin::Page { after: None, limit: 9 },
    };
    let events = serde_json::to_value(broker.ask(request).unwrap()).unwrap();
    assert_eq!(events["items"][0]["dead_letter"]["reason"], "DUPLICATE_UNDECIDABLE", "{events:#}");
    proves("joins:P10");
    proves("DUP-7");
}

#[test]
fn what_was_forgotten_stays_so_over_a_restart() {
    for restart in ["", "restart", "restart checkpoint"] {
        let script = format!(
            "channel a
             queue d dead_event_store=grave dedupe={{\"min_ids\":1000,\"min_age\":1000}}
             channel grave
             join a->d
             consume A d
             publish a 1..5 m{{mem}}
             ack A 1 2 4 5 m
             restart         # the next id is above 65,536
             publish a 6{{mem}}
             wait 2000
             publish a 7
             restart
             publish a 8{{mem}}
             wait 2000
             publish a 9     # now the block of the first ones is forgotten, while 3 is still there
             consume B d
             ack B 7 8 9
             cut B
             stored d = 3
             {restart}
             join a->d name=late->d via=other start=all
             stored d = 3
             stored grave = 1..5
             view d undecidable_total=5"
        );
        check(&script);
    }
    proves("DUP-7");
}

#[test]
fn joins_are_checked_when_they_are_made() {
    check(
        "queue q
         channel a
         channel b
         join q->a => JOIN_SOURCE_IS_QUEUE
         join a->a => JOIN_SELF
         join x->a => JOIN_SOURCE_NOT_FOUND
         join a->x => JOIN_DEST_NOT_FOUND
         join a->b@far => LINK_MISSING
         join a->b archive=true => ARCHIVE_NEEDS_QUEUE
         join a->b filter=\"x =\" => FILTER_SYNTAX
         view broker joins=0",
    );
    proves("joins:J1");
    proves("joins:A8");
    proves("JOIN-2");
    proves("JOIN-8");
    proves("ARC-1");
    check(
        "channel a
         channel b
         join a->b
         view a->b max_hops=10 filter=null archive=false start=new state=running
         join a-> => JOIN_NO_DESTINATION
         join a->b
         view broker joins=1
         join a->b max_hops=3 => JOIN_EXISTS",
    );
    proves("joins:J2");
    proves("JOIN-3");
    proves("JOIN-7");
    proves("HOP-4");
}

#[test]
fn a_join_begins_where_it_is_told() {
    check(
        "channel a
         channel new
         channel all
         channel from
         publish a 1..3
         join a->new
         join a->all start=all
         join a->from start=3
         publish a 4
         stored new = 4
         stored all = 1..4
         stored from = 3 4",
    );
    proves("JOIN-9");
}

#[test]
fn a_filter_lets_only_matching_events_pass() {
    check(
        "channel a
         channel b
         queue q
         join a->b filter=\"region = 'EU'\"
         join a->q filter=\"region = 'US'\"
         publish a 1{region=EU} 2{region=US} 3{region=ASIA} 4
         stored a = 1..4
         stored b = 1
         stored q = 2
         view a->b filtered_total=3 forwarded_total=1
         view a->q filtered_total=3 forwarded_total=1",
    );
    proves("joins:J3");
    proves("FIL-1");
    proves("FIL-2");
    check(
        "channel local/rates
         channel eur/rates
         join /local/rates->/eur/rates filter=\"CCY = 'EUR'\"
         publish local/rates 1{CCY=EUR} 2{CCY=USD}
         stored local/rates = 1 2
         stored eur/rates = 1",
    );
    proves("joins:A6");
}

#[test]
fn a_changed_filter_holds_for_later_events() {
    check(
        "channel a
         channel b
         join a->b filter=\"k = 1\"
         pause a->b
         publish a 1{k=1} 2{k=2}
         alter a->b filter=\"k = 2\"
         publish a 3{k=1} 4{k=2}
         alter a->b filter=\"k = 3\"
         publish a 5{k=2} 6{k=3}
         crash
         resume a->b
         stored b = 1 4 6
         publish a 7{k=1} 8{k=3}
         stored b = 1 4 6 8
         alter a->b filter=\"k = 1\"
         publish a 9{k=1}
         stored b = 1 4 6 8 9",
    );
    // What was stored and not offered yet when the filter changed is the old filter's.
    let mut broker = Broker::new();
    continue_with(&mut broker, "channel c\n channel b\n join c->b filter=\"k = 1\"");
    let one = Draft { properties: vec![("k".into(), Value::Long(1))], ..Draft::new("x") };
    publish_unworked(&mut broker, &vec![one; 200]);
    continue_with(
        &mut broker,
        "alter c->b filter=\"k = 2\"
         view b last_event_id=200
         publish c y{k=1} z{k=2}
         view b last_event_id=201",
    );
    proves("FIL-4");
}

#[test]
fn a_changed_filter_of_an_archive_holds_nothing_in_its_source() {
    check(
        "channel a retention=interest
         queue q
         join a->q name=x->y archive=true
         alter x->y filter=\"k = 1\"
         publish a 1{k=1} 2{k=2}
         stored q = 1
         stored a =
         crash
         alter x->y filter=\"k = 2\"
         publish a 3{k=1} 4{k=2}
         stored q = 1 4
         stored a =",
    );
    proves("FIL-4");
}

/// Their event ids have nothing to do with each other.
/// Also where its primary has stopped before: what that has passed over it does not bring.
#[test]
fn a_standby_begins_where_its_primary_is() {
    check(
        "channel a
         queue d
         join a->d name=x->p filter=\"k = 1\"
         publish a 1{k=1} 2{k=2} 3{k=1}
         stored d = 1 3
         pause x->p
         wait 1000
         join a->d name=x->s start=oldest role=standby standby_for=x->p standby_delay=100
         wait 1000
         stored d = 1 3
         publish a 4
         wait 1000
         stored d = 1 3 4",
    );
    proves("ORD-3");
}

#[test]
fn a_standby_stands_in_only_for_a_join_of_its_own_source() {
    check(
        "channel a
         channel b
         queue d
         join a->d name=x->s role=standby standby_for=x->p standby_delay=100
         join b->d name=x->p           # made later: no primary of it
         publish b 1..1000
         publish a A B
         view x->s state=running forwarded_total=2
         pause x->p
         wait 1000
         publish a C
         view d depth=1003
         pause x->s
         publish a D
         delete x->p
         crash
         resume x->s
         publish a E
         view x->s forwarded_total=2 lag_events=0
         view d depth=1005",
    );
    check(
        "channel a
         channel b
         queue d
         join b->d name=x->p
         join a->d name=x->s role=standby standby_for=x->p => BAD_VALUE
         join a->d name=x->s
         alter x->s role=standby standby_for=x->p => BAD_VALUE
         alter x->s role=standby standby_for=x->s => BAD_VALUE
         join a->d name=x->t role=standby standby_for=x->t => BAD_VALUE
         publish b 1..10
         publish a A
         pause x->p
         wait 10000
         view x->s state=running forwarded_total=1",
    );
    proves("ORD-3");
}
