//! Named objects of type exclusive, and what channels keep (named-objects 3.1 to 3.3, 5).

use super::script::{check, continue_with, subscription};
use postroad_testkit::proves;

#[test]
fn a_consumer_continues_where_it_stopped() {
    check(
        "channel c retention=interest
         object c::d start_event_id=0
         publish c 1..10
         consume A c::d credit=6
         got A = 1..6
         ack A 1 2 3 4
         view c::d last_event_id=4 backlog=6 in_delivery=2
         crash
         view c::d last_event_id=4
         stored c = 5..10
         consume B c::d credit=2
         got B = 5*1 6*1
         credit B 100
         got B = 7..10",
    );
    check(
        "channel c retention=interest
         object c::d start_event_id=0 persistent=false
         publish c 1..3
         crash
         consume A c::d => OBJECT_NOT_FOUND",
    );
    proves("objects:T2");
    proves("NO-1");
    proves("NO-2");
    proves("NO-3");
}

#[test]
fn attempts_may_be_counted_on_disk_before_they_are_made() {
    let script = "
         publish q 1..5
         consume A FROM credit=2
         got A = 1 2
         release A 2
         got A =
         credit A 3
         got A = 2
         crash
         consume B FROM
         got B = 1*1 2*1 3 4 5                   # no more than what was sent is flagged
         fail B 1
         got B = 1*2
         sync off
         ack B 3
         crash                                   # the acknowledgement was not on disk
         sync on
         consume C FROM
         got C = 1*3 2*2 3*1 4*1 5*1
         release C 1 2 3 4 5
         got C = 1*3 2*2 3*1 4*1 5*1";
    check(&format!("queue q persist_count_before_delivery=true {}", script.replace("FROM", "q")));
    check(&format!(
        "channel q\n object q::o persist_count_before_delivery=true {}",
        script.replace("FROM", "q::o")
    ));
    // Without it the count is written when an attempt fails, and more may be flagged after a crash.
    check(
        "queue q
         publish q 1..5
         consume A q credit=2
         got A = 1 2
         release A 2
         crash
         consume B q
         got B = 1*1 2*1 3 4 5",
    );
    proves("AK-10");
}

#[test]
fn one_consumer_at_a_time() {
    check(
        "channel c
         object c::d
         consume A c::d
         consume B c::d => OBJECT_IN_USE
         publish c 1
         got A = 1
         detach A
         consume B c::d
         got B = 1",
    );
    proves("objects:T3");
    proves("EX-1");
    proves("ERR-1");
    check(
        "channel c
         object c::d consumer_takeover=steal
         consume A c::d
         publish c 1
         consume B c::d
         ended A = STOLEN
         got B = 1*1",
    );
    proves("EX-5");
}

#[test]
fn retention_decides_what_stays() {
    for (retention, after_x, after_y, purged) in
        [("interest", "3..5", "", "4 5"), ("log", "1..5", "1..5", "1 4 5")]
    {
        let begin = format!(
            "channel c retention={retention}
             object c::x
             object c::y
             publish c 1..5
             consume X c::x
             ack X ..5
             consume Y c::y
             ack Y ..2
             stored c = {after_x}\n"
        );
        check(&format!("{begin}ack Y ..5\nstored c = {after_y}"));
        check(&format!("{begin}purge c 2..3\nstored c = {purged}\ncrash\nstored c = {purged}"));
    }
    proves("objects:T4");
    proves("RET-1");
    proves("RET-3");
    proves("RET-4");
}

#[test]
fn an_acknowledgement_finishes_all_below_but_what_was_returned() {
    let begin = "channel c retention=interest
         object c::d
         publish c 1{color=R} 2{color=B} 3{color=R} 4{color=B} 5{color=R} 6{color=B}
         consume A c::d selector=\"color = 'R'\"
         got A = 1 3 5
         ";
    check(&format!(
        "{begin}ack A 3
         view c::d last_event_id=3 backlog=3
         stored c = 4 5 6
         detach A
         consume B c::d
         got B = 4 5 6"
    ));
    check(&format!(
        "{begin}release A 1
         got A = 1
         ack A 3
         view c::d last_event_id=0
         stored c = 1..6
         ack A 1
         view c::d last_event_id=3
         stored c = 4..6"
    ));
    proves("objects:T5");
    proves("EX-3");
    proves("EX-4");
}

#[test]
fn events_come_in_the_order_of_their_ids() {
    check(
        "channel c
         object c::d
         consume A c::d credit=3
         publish c 1..6
         got A = 1 2 3
         fail A 2
         credit A 4
         got A = 2*1        # a returned event goes before anything newer
         cut A
         consume B c::d
         got B = 1*1 2*2 3*1 4 5 6",
    );
    proves("EX-2");
    proves("AK-4");
    proves("AK-6");
}

#[test]
fn backlog_is_exact() {
    check(
        "channel c
         object c::d
         publish c 1..7
         view c::d outstanding_events=-1 backlog=7 in_delivery=0
         consume A c::d credit=3
         view c::d outstanding_events=-1 backlog=7 in_delivery=3
         owed c::d = 1..7",
    );
    proves("SH-10");
}

#[test]
fn an_object_begins_where_it_is_told_once() {
    check(
        "channel c
         publish c 1..10
         object c::all start_event_id=0
         object c::four start_event_id=4
         object c::fifty start_event_id=50
         object c::new
         consume A c::all
         got A = 1..10
         consume F c::four
         got F = 4..10
         consume N c::new
         consume X c::fifty
         got X =
         publish c 11..49
         got N = 11..49
         got X =
         publish c 50..51
         got X = 50 51
         ack A ..6
         cut A
         object c::all start_event_id=0
         consume A c::all credit=1
         got A = 7*1
         object c::all selector=\"a = 1\" => OBJECT_EXISTS",
    );
    proves("objects:T8");
    proves("NO-10");
    proves("NO-11");
    proves("ERR-3");
}

#[test]
fn failed_attempts_end_in_the_dead_letter_queue() {
    check(
        "channel c
         object c::d max_delivery_attempts=3
         consume A c::d
         publish c 1 2
         got A = 1 2
         fail A 1
         got A = 1*1
         fail A 1
         got A = 1*2
         fail A 1
         got A =
         stored DLQ = 1
         view c::d dead_lettered=1 redelivered=2
         reject A 2
         stored DLQ = 1 2
         view c::d last_event_id=2 backlog=0
         crash
         stored DLQ = 1 2
         view c::d last_event_id=2 backlog=0",
    );
    proves("AK-2");
    proves("AK-8");
}

#[test]
fn attempts_survive_a_crash() {
    check(
        "channel c
         object c::d max_delivery_attempts=3
         consume A c::d
         publish c 1 2
         fail A 1
         fail A 1
         crash
         consume A c::d
         got A = 1*2 2*1
         fail A 1
         stored DLQ = 1",
    );
}

#[test]
fn a_failed_attempt_is_on_disk_before_the_next() {
    for (define, place) in [("channel c\n object c::d", "c::d"), ("queue c", "c")] {
        check(&format!(
            "{define}
             consume A {place}
             publish c 1
             got A = 1
             sync off
             fail A 1
             got A =
             sync 9
             got A = 1*1
             crash
             sync on
             consume A {place}
             got A = 1*1"
        ));
    }
}

#[test]
fn an_acknowledged_event_stays_so_if_a_crash_takes_back_its_removal() {
    let mut broker = check(
        "channel c publish_keys=[{\"name\":\"k\"}]
         object c::d
         consume A c::d
         publish c 1{k=x}
         got A = 1
         sync off
         publish c 2{k=x,mem}
         ack A 1",
    );
    assert!(broker.consumers["A"].confirmed.is_empty(), "the journal still holds event 1 and not its end");
    continue_with(&mut broker, "sync 9");
    assert_eq!(broker.consumers["A"].confirmed, [(0, 0)]);
    continue_with(&mut broker, "crash\nsync on\nconsume A c::d\ngot A =");
}

#[test]
fn an_ordered_object_waits_for_a_delayed_event() {
    check(
        "channel c
         object c::d redelivery_delay=5000 redelivery_multiplier=2.0 max_redelivery_delay=15000
         consume A c::d credit=1
         publish c 1 2
         got A = 1
         credit A 100
         got A = 2
         fail A 1
         publish c 3
         got A =
         wait 4999
         got A =
         wait 1
         got A = 1*1 3
         fail A 1
         wait 9999
         got A =
         wait 1
         got A = 1*2
         fail A 1
         wait 14999
         got A =
         wait 1
         got A = 1*3
         fail A 1
         wait 15000
         got A = 1*4",
    );
    proves("objects:T13");
    proves("AK-7");
}

#[test]
fn nothing_is_kept_that_nobody_needs() {
    check(
        "channel c retention=interest
         consume P c credit=1
         publish c 1..10
         got P = 1
         ack P 1
         stored c = 2..10
         credit P 100
         got P = 2..10
         ack P ..10
         stored c =
         detach P
         publish c 11
         stored c =
         view c last_event_id=10",
    );
    check(
        "channel c
         consume P c credit=1
         publish c 1..11
         ack P 1
         stored c = 1..11
         channel c capacity=5 honour_capacity=false
         publish c 12
         stored c = 8..12
         channel c ttl=1000
         wait 1000
         stored c =",
    );
    check("channel c\npublish c 1..11\npurge c\nstored c =");
    proves("objects:T19");
    proves("RET-2");
}

#[test]
fn a_full_channel_refuses_rather_than_lose() {
    check(
        "channel c retention=interest capacity=3
         object c::d
         publish c 1..3
         publish c 4 => STORE_FULL
         consume A c::d
         ack A ..1
         publish c 4
         stored c = 2..4",
    );
    proves("RET-5");
}

#[test]
fn an_object_that_was_overtaken_is_told_so() {
    let broker = check(
        "channel c capacity=3 honour_capacity=false
         object c::d
         publish c 1..3
         consume A c::d credit=1
         ack A 1
         cut A
         publish c 4..6
         view c::d skipped_events=2
         crash
         view c::d skipped_events=2
         consume A c::d
         got A = 4..6",
    );
    let told: Vec<_> = broker.consumers["A"].got.iter().map(|got| got.annotations.events_skipped).collect();
    assert_eq!(told, [Some(2), None, None]);
    proves("RET-6");
}

#[test]
fn a_selector_does_not_pin_what_it_does_not_want() {
    check(
        "channel c retention=interest
         object c::d selector=\"k = 1\"
         publish c 1..5
         stored c =
         view c::d last_event_id=5
         publish c 6{k=1} 7 8
         stored c = 6..8
         crash
         stored c = 6..8
         consume A c::d
         got A = 6
         ack A 6
         stored c =
         view c::d last_event_id=8
         publish c 9
         crash
         stored c =
         consume A c::d credit=1
         publish c x{k=1} y
         got A = x
         ack A x
         stored c =",
    );
    proves("EX-6");
}

#[test]
fn what_came_back_and_left_the_channel_pins_nothing() {
    let script = |leaves: &str| {
        format!(
            "channel c retention=interest
             consume A c durable=S selector=\"k = 1\" conn=X
             object c::o selector=\"k = 1\" redelivery_delay=5000000
             consume B c::o
             publish c 1{{k=1,ttl=50}} 2{{k=2}}
             got A = 1
             got B = 1
             cut X
             cut B
             stored c = 1 2
             {leaves}
             stored c =
             publish c 3..5{{k=2}}
             stored c =
             view c::o backlog=0 last_event_id=5
             crash
             stored c =
             view c::o backlog=0 last_event_id=5
             consume A c durable=S selector=\"k = 1\" conn=X
             publish c 6{{k=1}}
             got A = 6"
        )
    };
    check(&script("wait 100"));
    check(&script("purge c 1..1"));
    // With its consumer gone after the event.
    check(
        "channel c retention=interest
         object c::o selector=\"k = 1\"
         consume A c::o
         publish c 1{k=1,ttl=50} 2{k=2}
         got A = 1
         wait 100
         stored c = 2
         cut A
         stored c =
         publish c 3{k=2}
         stored c =",
    );
    // What the filter of its consumer passed over.
    check(
        "channel c retention=interest
         object c::o ack_policy=individual
         consume A c::o selector=\"k = 2\"
         publish c 1..3{k=1} 4{k=2} 5{k=1}
         got A = 4
         ack A 4
         stored c = 1..5
         purge c 1..3
         stored c = 5
         purge c 5..5
         publish c 6{k=2}
         got A = 6
         ack A 6
         stored c =
         view c::o backlog=0 last_event_id=6",
    );
    proves("EX-6");
}

#[test]
fn objects_are_purged_by_range_and_filter() {
    check(
        "channel c retention=interest
         object c::d
         publish c 1..6
         purge c::d 2..3
         stored c = 1..6
         purge c::d 1..1
         stored c = 4..6
         purge c::d filter=\"x = 1\"
         consume A c::d credit=1
         got A = 4
         purge c::d
         stored c =
         ack A 4
         view c::d backlog=0
         crash
         view c::d backlog=0
         consume A c::d
         got A =",
    );
    check(
        "channel c retention=interest
         object c::d
         publish c 1{k=1} 2 3{k=1} 4
         consume A c::d selector=\"k = 1\"
         got A = 1 3
         purge c::d 2..2
         purge c::d 4..4
         ack A 1
         detach A
         consume B c::d
         got B = 3",
    );
    proves("OP-2");
}

#[test]
fn deleting_an_object_frees_what_only_it_needed() {
    check(
        "channel c retention=interest
         object c::x
         object c::y
         publish c 1..3
         consume Y c::y
         ack Y ..2
         delete c::x
         stored c = 3
         delete c::y => OBJECT_IN_USE
         delete c::y force
         ended Y = DELETED
         stored c =
         crash
         stored c =",
    );
    proves("OP-6");
    proves("ERR-14");
}

#[test]
fn objects_are_independent() {
    check(
        "channel c
         object c::a
         object c::b
         publish c 1..3
         consume A c::a
         ack A ..3
         view c::a backlog=0
         view c::b backlog=3",
    );
    proves("NO-5");
    proves("NO-6");
}

#[test]
fn a_clients_subscription_lives_by_its_name() {
    let mut broker = check(
        "channel t retention=interest
         consume S t conn=cid durable=S
         detach S
         publish t 1..3
         consume S t conn=cid durable=S
         got S = 1..3
         consume S2 t conn=cid durable=S => OBJECT_IN_USE
         ack S 2
         view t::cid/S last_event_id=0 backlog=2
         detach S
         stored t = 1..3",
    );
    assert!(subscription(&mut broker, "cid", "S", false).contains("SubscriptionFound"));
    assert!(subscription(&mut broker, "other", "S", false).contains("ObjectNotFound"));
    continue_with(&mut broker, "consume S t conn=cid durable=S");
    assert!(subscription(&mut broker, "cid", "S", true).contains("ObjectInUse"));
    continue_with(&mut broker, "detach S");
    assert!(subscription(&mut broker, "cid", "S", true).contains("SubscriptionDeleted"));
    continue_with(&mut broker, "stored t =\ncrash\nview broker named_objects=0");
}

#[test]
fn another_definition_drops_the_backlog_unless_protected() {
    check(
        "channel t
         consume S t conn=cid durable=S
         detach S
         publish t 1..5
         consume S t conn=cid durable=S selector=\"a = 1\"
         got S =
         publish t 6{a=1} 7
         got S = 6
         close S
         view broker named_objects=0",
    );
    check(
        "channel t
         consume A t conn=cid durable=S
         consume B t conn=cid durable=S selector=\"a = 1\" => OBJECT_KIND_CONFLICT",
    );
}

#[test]
fn a_subscriber_may_leave_out_its_own_messages() {
    check(
        "channel t retention=interest
         consume A t conn=cid no_local
         consume D t conn=cid durable=D no_local
         publish t 1 2 by=cid
         publish t 3 by=other
         got A = 3
         got D = 3
         ack A 3
         ack D 3
         stored t =",
    );
}

#[test]
fn a_drain_ends_with_an_answer() {
    check(
        "channel c
         object c::d
         publish c 1..3
         consume A c::d credit=0
         credit A 2 drain
         got A = 1 2
         drained A 1
         credit A 10 drain
         got A = 3
         drained A 2
         publish c 4
         got A =
         credit A 11 drain
         got A = 4
         drained A 3",
    );
}

#[test]
fn a_subscription_waits_for_its_consumer_as_long_as_was_asked() {
    for (policy, leaves) in
        [("link-detach", "expire A"), ("session-end", "cut A"), ("connection-close", "cut A")]
    {
        let begin = format!(
            "channel c
             consume A c durable=S expiry={policy},10
             view c::A/S expiry_policy=\"{policy}\" expiry_timeout=10
             publish c 1
             got A = 1
             {leaves}
             publish c 2
             wait 9000\n"
        );
        // It comes back in time, and keeps what it has from then on.
        check(
            &format!(
                "{begin}
             consume A c durable=S expiry={policy},10
             got A = 1*1 2
             wait 60000
             {leaves}
             wait 9000
             owed c::A/S = 1 2
             wait 2000
             owed c::A/S => OBJECT_NOT_FOUND"
            )
            .replace(if leaves == "cut A" { "\u{0}" } else { "1*1" }, "1"),
        );
        check(&format!(
            "{begin}wait 2000\nowed c::A/S => OBJECT_NOT_FOUND\ncrash\nowed c::A/S => OBJECT_NOT_FOUND"
        ));
    }
    proves("AM-6");
    proves("NO-6");
}

#[test]
fn what_expires_with_its_connection_does_so_when_the_broker_starts_again() {
    for start in ["crash", "restart"] {
        check(&format!(
            "channel c
             object c::native
             consume A c durable=never expiry=never
             consume B c durable=short conn=A expiry=session-end
             consume C c durable=long conn=A expiry=connection-close,10
             publish c 1
             {start}
             owed c::A/never = 1
             owed c::native = 1
             owed c::A/long = 1
             owed c::A/short => OBJECT_NOT_FOUND
             wait 9000
             owed c::A/long = 1
             wait 2000
             owed c::A/long => OBJECT_NOT_FOUND
             owed c::A/never = 1"
        ));
    }
}

#[test]
fn how_a_subscription_expires_is_what_its_latest_consumer_asked() {
    check(
        "channel c
         consume A c durable=S expiry=never
         publish c 1
         got A = 1
         cut A
         wait 60000
         consume A c durable=S expiry=connection-close,1
         got A = 1*1
         crash
         view c::A/S expiry_policy=connection-close
         wait 2000
         owed c::A/S => OBJECT_NOT_FOUND
         object c::n expiry_policy=session-end => NOT_SUPPORTED",
    );
}
