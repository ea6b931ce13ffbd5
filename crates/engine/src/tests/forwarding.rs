//! Joins: archives, full and missing destinations, what is held, deletion (joins-and-interest 3.6, 3.7, 3.9).

use super::script::{check, check_with, continue_with};
use postroad_model::settings::BrokerSettings;
use postroad_testkit::proves;

#[test]
fn an_archive_records_every_arrival() {
    check(
        "channel a
         queue q
         join a->q archive=true
         publish a 1..3
         stored q = 1..3",
    );
    proves("joins:A1");
    check(
        "channel a
         queue q
         join a->q archive=true filter=\"CCY = 'EUR'\"
         publish a 1{CCY=EUR} 2{CCY=USD} 3{CCY=EUR}
         stored q = 1 3",
    );
    proves("joins:A2");
    check(
        "channel a
         channel b
         channel c
         channel d
         queue q
         join a->b
         join a->c
         join b->d
         join c->d
         join d->q archive=true
         publish a 1
         stored d = 1
         stored q = 1 1",
    );
    proves("joins:A3");
    proves("ARC-2");
    proves("ARC-3");
    for (horizon, archived) in [(true, "1"), (false, "1 1")] {
        check(&format!(
            "channel c0
             channel c1
             queue q
             join c0->c1 split_horizon={horizon}
             join c1->c0 split_horizon={horizon}
             join c0->q archive=true
             publish c0 1
             stored q = {archived}"
        ));
    }
    proves("joins:A4");
    check(
        "channel a publisher_dedupe=message-id
         queue q
         join a->q archive=true
         publish a 1{id=X} 1{id=X}
         stored a = 1
         stored q = 1 1",
    );
    proves("joins:A7");
    proves("ARC-5");
}

#[test]
fn an_archive_marks_what_its_source_did_not_store() {
    let broker = check(
        "channel a publisher_dedupe=message-id
         queue q
         join a->q archive=true
         publish a 1{id=X} 1{id=X}
         consume C q
         got C = 1 1",
    );
    let marks: Vec<bool> =
        broker.consumers["C"].got.iter().map(|got| got.annotations.archive_duplicate).collect();
    assert_eq!(marks, [false, true]);
}

#[test]
fn an_archive_neither_loses_nor_doubles_over_a_crash() {
    check(
        "channel a
         queue q capacity=2
         join a->q archive=true
         publish a 1..4
         stored q = 1 2
         crash
         stored q = 1 2
         consume C q
         got C = 1 2
         ack C 1 2
         got C = 3 4
         ack C 3 4
         crash
         stored q =
         publish a 5{mem}
         crash
         publish a 6
         stored q = 6",
    );
    proves("ARC-4");
}

#[test]
fn arrival_numbers_that_an_archive_has_passed_are_not_given_again() {
    check(
        "channel a
         queue q
         join a->q name=a->q archive=true
         pause a->q
         publish a 1 2{mem}
         resume a->q
         stored q = 1 2
         crash
         publish a 3
         stored q = 1 3",
    );
    check(
        "channel a
         queue q
         queue r
         join a->q name=a->q archive=true
         publish a 1..5{mem}
         join a->r name=a->r archive=true
         crash
         publish a 6
         stored r = 6
         stored q = 6",
    );
}

#[test]
fn a_deleted_join_forwards_no_more() {
    check(
        "channel a
         channel b
         join a->b
         publish a 1
         delete a->b
         publish a 2
         stored a = 1 2
         stored b = 1",
    );
    proves("joins:D1");
    proves("DEL-1");
    check(
        "channel a
         queue b capacity=1
         join a->b
         publish a 1..51
         view a->b state=blocked reason=destination-full lag_events=50
         delete a->b left=50
         view a->b => JOIN_NOT_FOUND",
    );
    check(
        "channel a
         channel b
         join a->b
         pause a->b
         publish a 1..500
         delete a->b drain left=0
         stored b = 1..500",
    );
    proves("joins:D2");
    proves("DEL-2");
    check(
        "channel a
         channel b
         join a->b
         publish a 1..3
         delete a->b
         join a->b start=all
         stored b = 1..3
         view a->b duplicate_total=3",
    );
    proves("joins:D3");
    proves("DEL-3");
}

#[test]
fn a_full_destination_holds_the_join_and_loses_nothing() {
    check(
        "channel a
         queue b capacity=10
         join a->b
         publish a 1..15
         stored b = 1..10
         view a->b state=blocked reason=destination-full
         consume C b credit=5
         got C = 1..5
         ack C ..5
         stored b = 6..15
         view a->b state=running reason=\"\" lag_events=0
         credit C 100
         got C = 6..15",
    );
    proves("joins:E1");
}

#[test]
fn a_refused_event_is_laid_aside_and_the_join_goes_on() {
    check(
        "channel a dead_event_store=grave
         channel grave
         channel b max_message_size=200
         join a->b
         publish a 1 this-text-is-so-long-that-the-message-is-larger-than-two-hundred-bytes-and-that-is-not-easy-to-reach-with-a-text-but-here-we-are-at-last-or-nearly-so-let-us-go-on-for-a-little-while-until-it-is-certain 3
         stored b = 1 3
         view grave depth=1
         view a->b state=running dead_lettered_total=1 lag_events=0",
    );
    proves("joins:E2");
}

#[test]
fn a_join_waits_for_its_destination() {
    check(
        "channel a
         join a->b allow_missing=true
         publish a 1 2
         view a->b state=waiting reason=destination-missing
         channel b
         stored b = 1 2
         view a->b state=running
         join a->z name=a->z archive=true allow_missing=true
         publish a 3
         channel z
         publish a 4
         view a->z state=blocked reason=destination-kind
         queue z
         stored queue:z = 3 4",
    );
    proves("FWD-5");
}

#[test]
fn a_purge_is_repeated_only_where_that_was_asked_for() {
    check(
        "channel a
         channel b
         channel c
         join a->b propagate_purge=true
         join a->c
         publish a 1..4
         publish b x
         crash
         publish a 5
         purge a 2..3
         stored a = 1 4 5
         stored b = 1 4 x 5
         stored c = 1..5
         purge a
         stored b = x
         stored c = 1..5",
    );
    proves("FWD-3");
}

#[test]
fn events_that_leave_the_source_are_held_for_its_joins() {
    let settings = BrokerSettings { name: "here".into(), spool_max_events: 4, ..BrokerSettings::default() };
    check_with(
        settings.clone(),
        "channel a capacity=2 honour_capacity=false
         channel b
         join a->b
         pause a->b
         publish a 1..6
         stored a = 5 6
         view a->b lag_events=6
         publish a 7 => JOIN_SPOOL_FULL
         crash
         stored a = 5 6
         resume a->b
         stored b = 1..6
         publish a 7
         stored b = 1..7
         view broker messages=7",
    );
    check_with(
        settings.clone(),
        "channel a capacity=2 honour_capacity=false
         channel b
         join a->b filter=\"k = 1\"
         publish a 1..20         # filtered: nothing is held for the join
         stored a = 19 20
         view broker messages=2
         publish a x{k=1}
         stored b = x",
    );
    check_with(
        settings,
        "channel a publish_keys=[{\"name\":\"k\"}]
         channel b
         join a->b
         pause a->b
         publish a 1{k=1} 2{k=1} 3{k=2}
         stored a = 2 3
         purge a 3..3
         resume a->b
         stored b = 1 2",
    );
    proves("FWD-2");
}

/// A join at the tail looks at nothing, so its cursor stays: what its neighbours have passed is not held for it.
#[test]
fn what_is_held_for_joins_goes_when_the_last_of_them_has_passed() {
    let settings = BrokerSettings { name: "here".into(), spool_max_events: 4, ..BrokerSettings::default() };
    let script = |channel: &str, passes: &str| {
        format!(
            "channel a {channel}
             queue b
             queue c
             join a->b
             join a->c filter=\"x = 1\"
             pause a->b
             publish a 1{{k=1}} 2{{k=1}} 3{{k=1}} 4{{k=1}} 5{{k=1}}
             publish a 6{{k=1,mem}}
             publish a 7{{k=1,x=1,mem}} => JOIN_SPOOL_FULL
             {passes}
             publish a 7{{k=1,x=1,mem}} 8{{k=1}} 9{{k=1}} 10{{k=1}} 11{{k=1}} 12{{k=1}}
             stored c = 7
             crash
             publish a 13{{k=1,x=1}}
             stored c = 13         # 7 was only in memory"
        )
    };
    for passes in ["resume a->b\nstored b = 1..6", "delete a->b"] {
        check_with(settings.clone(), &script("capacity=2 honour_capacity=false", passes));
    }
    // By keys one more is held: the last one stands for those before it.
    let by_keys = script("publish_keys=[{\"name\":\"k\"}]", "resume a->b\nstored b = 1..6");
    let by_keys = by_keys.replace("publish a 6{k=1,mem}\n", "\n").replace("1..6", "1..5");
    check_with(settings, &by_keys);
    proves("FWD-2");
}

#[test]
fn an_unforwarded_event_is_kept_by_interest() {
    check(
        "channel a retention=interest
         channel b
         publish a 0
         stored a =
         join a->b
         pause a->b
         publish a 1..3
         stored a = 1..3
         crash
         stored a = 1..3
         resume a->b
         stored a =
         stored b = 1..3",
    );
}

#[test]
fn expired_events_are_not_forwarded() {
    check(
        "channel a ttl=1000 dead_event_store=grave
         channel grave
         channel b
         join a->b
         pause a->b
         publish a 1 2{ttl=50}
         wait 100
         resume a->b
         stored b = 1
         pause a->b
         publish a 3
         wait 2000
         resume a->b
         stored b = 1
         stored grave = 2 1 3",
    );
    proves("FWD-4");
}

#[test]
fn a_standby_takes_over_where_its_primary_stopped() {
    check(
        "channel a retention=interest
         queue d
         join a->d name=a->d
         join a->d name=s->d via=other role=standby standby_for=a->d standby_delay=5000
         publish a 1..3
         view s->d state=standby forwarded_total=0
         stored a =            # a standby pins nothing
         pause a->d
         publish a 4 5
         stored d = 1..3
         wait 4000
         stored d = 1..3
         wait 2000
         stored d = 1..5
         view s->d state=running forwarded_total=2
         resume a->d
         publish a 6
         stored d = 1..6
         stored a =
         wait 10000
         view s->d state=standby",
    );
    // Drained and deleted while its primary runs: it has nothing of its own to forward.
    check(
        "channel a
         queue d
         join a->d name=a->d filter=\"k = 1\"
         publish a 1{k=1} 2{k=2}
         join a->d name=s->d via=other role=standby standby_for=a->d start=oldest
         delete s->d drain
         stored d = 1
         publish a 3{k=1}
         stored d = 1 3",
    );
    // Made while its primary is behind: it begins there and not at the newest event, so that the order holds.
    check(
        "channel a
         queue d
         join a->d name=a->d
         publish a 1
         pause a->d
         publish a 2 3
         join a->d name=s->d via=other role=standby standby_for=a->d standby_delay=5000
         publish a 4
         wait 6000
         stored d = 1..4
         resume a->d
         publish a 5
         stored d = 1..5",
    );
    proves("ORD-3");
}

/// Deleted while it has something to offer again that has got further hops (the simulator's seed 60001912).
#[test]
fn a_standby_offers_again_what_its_primary_had_still_to_offer() {
    check(
        "channel s
         channel m
         channel c
         queue d capacity=1
         join s->c name=s->c max_hops=0
         join c->d name=c->d
         join c->d name=h->d via=other role=standby standby_for=c->d standby_delay=5000
         publish s 1
         stored c = 1
         stored d =
         publish d full
         join m->c name=m->c start=all
         join s->m name=s->m start=all
         stored m = 1
         delete c->d
         consume A d credit=1
         got A = full
         ack A full
         wait 60000
         credit A 2
         got A = 1",
    );
}

#[test]
fn a_blocked_join_holds_up_publishers_only_if_asked_to() {
    let script = |on_block: &str| {
        format!(
            "channel a
             queue b capacity=1
             join a->b on_block={on_block}
             publish a 1..3000
             consume C b"
        )
    };
    let broker = check(&script("hold"));
    assert!(broker.producers.values().next().unwrap().credit > 4_000);
    let mut broker = check(&script("backpressure"));
    assert!(broker.producers.values().next().unwrap().credit < 4_000, "no credit while it is blocked");
    continue_with(&mut broker, "delete a->b");
    assert!(broker.producers.values().next().unwrap().credit > 4_000, "released with the join");
    proves("FWD-1");
}

#[test]
fn a_forged_origin_means_nothing() {
    let mut broker = check("channel a\nchannel b\njoin a->b\npublish a 1");
    let uid = broker.engine.stores.iter().find(|s| &*s.name == "a").unwrap().uid;
    let mut origin = uid.0.to_vec();
    origin.extend_from_slice(&1u64.to_be_bytes());
    let forged = super::Draft {
        annotations: vec![("x-opt-postroad-origin", postroad_amqp_codec::Value::Binary(origin.into()))],
        ..super::Draft::new("2")
    };
    let name = broker.producers.keys().next().unwrap().clone();
    broker.publish(&name, forged.incoming());
    continue_with(&mut broker, "stored a = 1 2\nstored b = 1 2");
    proves("joins:P12");
    proves("DUP-10");
}

#[test]
fn a_full_disk_holds_joins_and_publishers() {
    check(
        "channel a
         channel b
         join a->b
         pause a->b
         publish a 1..3
         disk full
         publish a 4 => DISK_FULL
         resume a->b
         view a->b state=blocked reason=disk-full
         stored b =
         disk free
         wait 60000
         stored b = 1..3",
    );
}

/// Arrivals that were only in memory are gone after a restart: a join does not seem to be behind by them.
#[test]
fn arrivals_that_are_gone_are_no_lag() {
    check(
        "channel c type=transient
         queue q
         queue p
         join c->q archive=true name=c->early
         publish c 1..3
         stored q = 1 2 3
         join c->p archive=true name=c->late
         crash
         view c->early lag_events=0
         view c->late lag_events=0
         publish c 4
         stored p = 4
         view c->early lag_events=0",
    );
}

#[test]
fn repeated_arrivals_are_held_up_to_the_same_limit() {
    let settings = BrokerSettings { name: "here".into(), spool_max_events: 3, ..BrokerSettings::default() };
    check_with(
        settings.clone(),
        "channel a publisher_dedupe=message-id
         queue q
         join a->q name=archive archive=true
         pause archive
         publish a 1{id=X} 1{id=X} 1{id=X}
         publish a 1{id=X} => JOIN_SPOOL_FULL
         publish a 2{id=Y} => JOIN_SPOOL_FULL
         view a deduplicated_total=2 refused_total=2
         crash
         publish a 1{id=X} => JOIN_SPOOL_FULL
         resume archive
         stored q = 1 1 1
         disk full
         publish a 1{id=X} => DISK_FULL
         publish a 1{id=X,mem}
         disk free
         publish a 1{id=X}
         stored q = 1 1 1 1 1
         publish a 3{id=Z,delay=50} 3{id=Z} 3{id=Z} 3{id=Z} 3{id=Z}",
    );
    // What comes over a join waits where it would be kept.
    check_with(
        settings,
        "channel a
         channel b
         channel c
         queue q
         join a->b
         join a->c
         join b->c
         join c->q name=archive archive=true
         pause archive
         publish a 1 2
         stored c = 1 2
         view b->c state=blocked reason=destination-full duplicate_total=1
         resume archive
         wait 1000
         view b->c state=running duplicate_total=2
         stored q = 1 1 2 2",
    );
}
