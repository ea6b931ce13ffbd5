//! Queues: competition, order, attempts, expiry, browsing, capacity (named-objects 3.6, 3.12; joins-and-interest 5.1).

use super::broker::Broker;
use super::script::{check, check_with, continue_with};
use postroad_model::settings::BrokerSettings;
use postroad_testkit::proves;

#[test]
fn consumers_take_turns() {
    check(
        "queue q
         consume A q
         consume B q
         publish q 1..10
         got A = 1 3 5 7 9
         got B = 2 4 6 8 10
         ack A 3
         stored q = 1 2 4..10",
    );
    check(
        "queue q
         consume A q credit=1
         consume B q
         publish q 1..4
         got A = 1
         got B = 2 3 4",
    );
    check(
        "queue q
         consume A q
         consume B q priority=1 credit=2
         publish q 1..4
         got B = 1 2
         got A = 3 4",
    );
    proves("QU-1");
}

#[test]
fn higher_priority_goes_first() {
    check(
        "queue q
         publish q m1{prio=4} m2{prio=9} m3{prio=4} m4{prio=0} m5{prio=9}
         consume B q browse
         got B = m2 m5 m1 m3 m4
         view q depth=5
         consume A q
         got A = m2 m5 m1 m3 m4",
    );
    proves("objects:T16");
    proves("QU-7");
    check(
        "queue q max_priority=4
         publish q 1{prio=4} 2{prio=9} 3{prio=0}
         consume A q
         got A = 1 2 3",
    );
}

#[test]
fn a_browser_sees_what_was_there_and_takes_nothing() {
    let broker = check(
        "queue q
         publish q 1..3
         consume A q credit=1
         got A = 1
         consume B q browse credit=0
         publish q 4
         credit B 10 drain
         got B = 1..3
         drained B 1
         view q depth=4
         consume C q browse selector=\"a = 1\"
         got C =",
    );
    let held: Vec<bool> = broker.consumers["B"].got.iter().map(|got| got.annotations.in_delivery).collect();
    assert_eq!(held, [true, false, false]);
    proves("QU-2");
}

#[test]
fn attempts_are_counted_and_end() {
    check(
        "queue q max_delivery_attempts=3
         consume A q credit=1
         publish q 1
         got A = 1
         fail A 1
         credit A 2
         got A = 1*1
         fail A 1
         credit A 3
         got A = 1*2
         fail A 1
         stored q =
         stored DLQ = 1
         view q dead_lettered_total=1",
    );
    check(
        "queue q max_delivery_attempts=3
         publish q 1..10
         consume A q credit=10
         cut A
         consume A q credit=10
         got A = 1*1 2*1 3*1 4*1 5*1 6*1 7*1 8*1 9*1 10*1
         crash
         consume A q credit=10
         cut A
         consume A q credit=10
         cut A
         stored DLQ = 1
         stored q = 2..10",
    );
    proves("objects:T12");
    proves("AK-5");
}

#[test]
fn a_queue_goes_on_while_a_message_waits() {
    check(
        "queue q redelivery_delay=5000 redelivery_multiplier=2.0 max_redelivery_delay=15000
         consume A q
         publish q 1 2
         got A = 1 2
         fail A 1
         publish q 3
         got A = 3
         wait 4999
         got A =
         wait 1
         got A = 1*1
         fail A 1
         wait 10000
         got A = 1*2
         fail A 1
         wait 15000
         got A = 1*3",
    );
}

#[test]
fn expired_messages_are_not_delivered() {
    check(
        "queue q expiry_queue=E
         queue E
         publish q 1{ttl=100} 2
         wait 100
         stored q = 2
         stored E = 1
         view q expired_total=1
         consume A q
         got A = 2",
    );
    check(
        "queue q dead_event_store=E expiry_default=100
         queue E
         consume A q credit=1
         publish q 1 2 3{ttl=50}
         got A = 1
         wait 200
         stored q = 1          # not under its consumer
         stored E = 3 2
         release A 1
         stored q =
         stored E = 3 2 1
         publish q 4{ttl=50}
         credit A 10
         got A = 4",
    );
    check(
        "queue q
         publish q 1{ttl=100}
         crash
         wait 100
         stored q =",
    );
    proves("QU-6");
}

#[test]
fn a_selective_consumer_does_not_block_others() {
    check(
        "queue q
         consume A q selector=\"k = 1\"
         publish q 1 2{k=1} 3 4{k=1}
         got A = 2 4
         view q stranded=2
         ack A ..4
         consume B q
         got B = 1 3
         view q stranded=0
         release B 1
         got B = 1",
    );
    proves("QU-12");
}

#[test]
fn one_active_consumer_of_an_exclusive_queue() {
    check(
        "queue q exclusive=true
         consume A q
         consume B q
         publish q 1..3
         got A = 1..3
         got B =
         detach A
         got B = 1..3",
    );
    proves("QU-3");
}

#[test]
fn a_full_queue_refuses_or_forgets() {
    check(
        "queue q capacity=2
         publish q 1 2
         publish q 3 => QUEUE_FULL
         view q refused_total=1 depth=2",
    );
    check(
        "queue q capacity=2 honour_capacity=false dead_event_store=grave
         queue grave
         consume A q credit=1
         publish q 1..4
         got A = 1
         stored q = 1 4
         stored grave = 2 3
         view q evicted_total=2
         crash
         stored q = 1 4
         stored grave = 2 3",
    );
}

#[test]
fn a_dead_event_store_has_none_itself() {
    check(
        "channel a capacity=1 honour_capacity=false dead_event_store=b
         channel b capacity=1 honour_capacity=false dead_event_store=c
         channel c
         channel c dead_event_store=c => DES_SELF
         publish a 1..5
         stored a = 5
         stored b = 4
         stored c =",
    );
}

#[test]
fn newer_events_replace_older_ones_by_key() {
    let script = "channel c publish_keys=[{\"name\":\"ISIN\",\"depth\":2}]
         publish c 1{ISIN=A} 2{ISIN=B} 3{ISIN=A} 4{ISIN=A} 5 6{ISIN=B} 7{ISIN=B}
         stored c = 3..7
         crash
         stored c = 3..7
         publish c 8{ISIN=A}
         stored c = 4..8
         channel c publish_keys=[{\"name\":\"other\"},{\"name\":\"ISIN\"}]
         publish c 9{ISIN=A}
         stored c = 5..7 9
         crash
         publish c 10{ISIN=B,mem}
         stored c = 5 9 10
         crash
         stored c = 5 9";
    check(script);
}

#[test]
fn what_is_replaced_by_key_is_room_for_what_replaces_it() {
    let keys = "publish_keys=[{\"name\":\"k\"}]";
    check(&format!(
        "channel c capacity=2 {keys}
         publish c 1{{k=1}} 2{{k=2}}
         publish c 3{{k=2}}
         stored c = 1 3
         publish c 4{{k=3}} => STORE_FULL
         publish c 4 => STORE_FULL
         publish c 4{{k=1,delay=1000}} => STORE_FULL
         restart
         publish c 4{{k=1}}
         stored c = 3 4
         channel a
         join a->c
         publish a 5{{k=2}} 6{{k=3}} 7{{k=2}}
         stored c = 4 5
         view a->c state=blocked
         purge c 1..4
         stored c = 6 7
         crash
         stored c = 6 7"
    ));
    // The newest of another key is not evicted for it. What is replaced was not evicted.
    check(&format!(
        "queue grave
         channel c capacity=2 honour_capacity=false dead_event_store=grave {keys}
         publish c 1{{k=1}} 2{{k=2}} 3{{k=2}}
         stored c = 1 3
         stored grave =
         publish c 4{{k=3}}
         stored c = 3 4
         stored grave = 1
         channel c capacity=1 honour_capacity=false dead_event_store=grave {keys}
         publish c 5{{k=3}}
         stored c = 5
         stored grave = 1 3"
    ));
    // A dead event store, too. The key is what came with the dead letter.
    check(
        "channel grave capacity=2 publish_keys=[{\"name\":\"postroad_dl_dest\"}]
         queue q dead_event_store=grave
         queue r dead_event_store=grave
         publish q 1{ttl=50} 2{ttl=50}
         publish r 3{ttl=50} 4{ttl=50}
         wait 60
         stored grave = 2 4
         stored DLQ =",
    );
}

#[test]
fn what_cannot_be_dead_lettered_stays_and_is_tried_again() {
    check(
        "queue DLQ capacity=1
         queue q
         consume A q
         publish q 1..3
         reject A 1
         reject A 2
         stored DLQ = 1
         stored q = 2 3
         fail A 3
         got A = 1..3 3*1
         purge DLQ
         wait 30000
         stored DLQ = 2
         stored q = 3",
    );
}

#[test]
fn a_message_that_all_refuse_is_a_dead_letter() {
    check(
        "queue q
         consume A q
         consume B q
         publish q 1
         got A = 1
         refuse A 1
         got A =
         got B = 1
         refuse B 1
         stored q =
         stored DLQ = 1",
    );
    proves("AK-3");
}

#[test]
fn a_dead_letter_says_why() {
    let broker = check(
        "queue q
         consume A q
         publish q 1
         reject A 1
         consume D DLQ
         got D = 1",
    );
    let dead = broker.consumers["D"].got[0].annotations.dead.clone().unwrap();
    assert_eq!((dead.reason.as_str(), dead.dest.as_str(), dead.event_id), ("REJECTED", "q", 1));
    assert_eq!((dead.component.as_str(), dead.text.as_str()), ("queue:q", "because"));
    proves("AK-9");
}

#[test]
fn nothing_leaves_before_it_is_on_disk() {
    let broker = check(
        "queue q
         consume A q
         sync off
         publish q 1
         got A =
         sync 9
         got A = 1
         ack A 1",
    );
    assert!(broker.consumers["A"].confirmed.is_empty(), "an unsynced outcome is not confirmed");
    proves("AK-11");
}

#[test]
fn a_delivery_waits_for_the_mark_that_covers_it() {
    check(
        "queue q
         publish q 1..4
         consume A q credit=0
         consume B q credit=0
         sync off
         credit A 1            # marks ahead, also for B
         credit B 1
         got A =
         got B =
         crash
         sync on
         consume B q
         got B = 1..4          # neither had left, so none is flagged",
    );
    check(
        "queue q
         publish q 1..4
         consume A q credit=0
         consume B q credit=0
         credit A 1
         credit B 1
         crash
         consume C q
         got C = 1*1 2*1 3 4",
    );
}

#[test]
fn a_subscriber_gets_nothing_that_a_crash_could_take_back() {
    check(
        "channel c
         consume A c
         sync off
         publish c 1 2{mem} 3
         got A =
         sync 1
         got A = 1              # 2 needs no disk, but its id does
         sync 9
         got A = 2 3",
    );
}

#[test]
fn nonpersistent_messages_do_not_survive_and_their_ids_do_not_return() {
    check(
        "queue q
         publish q 1 2{mem} 3
         crash
         stored q = 1 3
         publish q 4{mem}
         consume A q
         got A = 1 3 4",
    );
    check(
        "channel c type=reliable
         publish c 1
         restart
         stored c =
         publish c 2
         view c last_event_id=65537",
    );
    check(
        "channel c type=persistent
         publish c 1{mem}
         crash
         stored c = 1
         channel c type=reliable
         purge c
         crash
         stored c =",
    );
}

#[test]
fn addresses_are_made_by_first_use_where_that_is_on() {
    let settings = BrokerSettings {
        name: "here".into(),
        auto_create_queues: vec![">".into()],
        auto_create_channels: vec!["#".into()],
        ..BrokerSettings::default()
    };
    check_with(
        settings,
        "publish q1 1
         stored q1 = 1
         publish * 2{to=q2} 3{to=topic://t}
         stored q2 = 2
         view t retention=interest made_by=first-use depth=0
         crash
         stored q2 = 2",
    );
    check("publish q1 1 => UNKNOWN_QUEUE");
}

#[test]
fn a_message_held_only_in_memory_is_written_when_a_store_on_disk_takes_it() {
    check(
        "channel a type=persistent
         channel m type=reliable
         channel p type=persistent
         join a->m
         join m->p
         pause m->p
         publish a 1
         purge a
         resume m->p
         stored p = 1
         crash
         stored p = 1",
    );
}

#[test]
fn consumers_that_passed_over_messages_are_told_once_of_all_that_come_back() {
    let mut broker = check(
        "queue q
         consume A q
         publish q 1..500{k=1} 501..600
         got A = 1..600
         consume S q selector=\"k = 1\"
         consume T q selector=\"k = 2\"
         publish q x{k=3}
         got A = x
         queue q
         detach A
         got S = 1..500
         release S ..500
         got S = 1..500",
    );
    let taker = |broker: &Broker, name: &str| broker.consumers[name].taker.unwrap();
    let passed = |broker: &Broker, name: &str| {
        broker.engine.takers.get(taker(broker, name)).unwrap().scanned.iter().max().copied().unwrap()
    };
    let before = passed(&broker, "T");
    assert!(before >= 500);
    let conn = crate::ConnId(broker.consumers["S"].conn);
    broker.handle(crate::Command::Disconnect { conn });
    assert_eq!(passed(&broker, "T"), before, "nobody is looked at for each message");
    broker.run();
    continue_with(&mut broker, "consume B q credit=1\ngot B = 1*1");
}
