//! Annotations that consumers add to messages which they give back (AMQP part 3, section 3.4.5).

use super::script::{check, continue_with};
use crate::Settlement;
use postroad_testkit::proves;

#[test]
fn who_gets_a_message_next_sees_what_was_added() {
    check(
        "queue q
         consume A q
         publish q 1 2
         got A = 1 2
         release A 1 note=first
         got A = 1[note=first]
         fail A 1 note=second who=A
         got A = 1[note=second;who=A]*1
         release A 1
         got A = 1[note=second;who=A]*1
         consume B q browse
         got B = 1[note=second;who=A]*1 2
         ack A 1 2
         publish q 3
         got A = 3",
    );
    proves("AK-2");
}

#[test]
fn what_was_added_outlives_a_crash_and_a_checkpoint() {
    let mut broker = check(
        "queue q
         channel c
         object c::d start_event_id=0
         publish q 1 2{mem}
         publish c 5 6
         consume A q
         consume D c::d
         got A = 1 2
         got D = 5 6
         release A 1 note=kept
         release A 2 note=lost
         fail D 5 note=kept
         got A = 1[note=kept] 2[note=lost]
         got D = 5[note=kept]*1
         crash
         consume A q
         consume D c::d
         got A = 1[note=kept]*1
         got D = 5[note=kept]*1 6*1
         fail A 1 more=there
         fail D 6 more=there
         restart
         consume A q
         consume D c::d
         got A = 1[note=kept;more=there]*2
         got D = 5[note=kept]*2 6[more=there]*2",
    );
    assert!(broker.engine.annotated_bytes > 0);
    continue_with(
        &mut broker,
        "ack A 1
         ack D 5 6
         crash
         consume A q
         consume D c::d
         got A =
         got D =",
    );
    assert_eq!(broker.engine.annotated_bytes, 0, "what is done leaves nothing behind");
}

#[test]
fn each_reader_of_a_channel_has_its_own() {
    let broker = check(
        "channel c
         object c::one
         object c::two
         consume A c::one
         consume B c::two
         consume V c
         publish c 1
         got A = 1
         got B = 1
         got V = 1
         release A 1 by=A
         fail V 1 by=V
         got A = 1[by=A]
         got V = 1[by=V]*1
         release B 1
         got B = 1
         ack A 1
         ack B 1
         ack V 1",
    );
    assert_eq!(broker.engine.annotated_bytes, 0);
}

#[test]
fn what_was_added_goes_where_the_message_goes() {
    check(
        "queue DLQ
         queue late
         queue q max_delivery_attempts=2
         queue short expiry_queue=late
         channel c
         object c::d
         consume A q
         consume S short
         consume D c::d
         publish q 1 2
         publish short 3{ttl=50}
         publish c 4
         got A = 1 2
         got S = 3
         got D = 4
         fail A 1 try=one
         got A = 1[try=one]*1
         fail A 1 try=two
         reject A 2
         release S 3 seen=S
         got S = 3[seen=S]
         detach S
         wait 100
         consume L late
         got L = 3[seen=S]
         refuse D 4 why=no
         consume X DLQ
         got X = 1[try=two] 2 4[why=no]
         crash
         consume X DLQ
         got X = 1[try=two]*1 2*1 4[why=no]*1",
    );
}

#[test]
fn a_join_takes_what_was_added_to_a_dead_letter_along() {
    check(
        "channel dead
         channel beyond
         queue q expiry_queue=dead
         join dead->beyond
         consume V beyond
         consume A q
         publish q 1{ttl=50}
         got A = 1
         release A 1 seen=A
         got A = 1[seen=A]
         detach A
         wait 100
         got V = 1[seen=A]",
    );
}

#[test]
fn the_broker_s_own_annotations_are_not_for_consumers() {
    check(
        "queue q
         consume A q
         publish q 1
         got A = 1
         release A 1 x-opt-postroad-dl-reason=FORGED note=a note=b
         got A = 1[note=b]
         release A 1 x-opt-postroad-dl-reason=FORGED
         got A = 1[note=b]",
    );
    proves("ENV-3");
}

#[test]
fn more_than_fits_is_refused_and_the_message_comes_back_as_it_was() {
    let mut broker = check(
        "queue q max_message_size=400
         queue r
         consume A q
         consume B r credit=2
         publish q 1 2
         publish r 3 4
         got A = 1 2
         got B = 3 4",
    );
    let large = |length: usize| Settlement::Modified {
        failed: true,
        undeliverable_here: false,
        annotations: Some(super::noted(&[&format!("note={}", "x".repeat(length))])),
    };
    broker.settle("A", 0, 0, large(400));
    continue_with(
        &mut broker,
        "ended A = MSG_TOO_BIG
         consume A q
         got A = 1*1 2*1",
    );
    // All that the broker keeps of them has a bound.
    broker.settle("B", 0, 0, large(9 << 20));
    broker.settle("B", 1, 1, large(9 << 20));
    continue_with(
        &mut broker,
        "ended B = LIMIT_REACHED
         purge r 1..1
         consume C r
         got C = 4*1
         fail C 4 note=fits
         got C = 4[note=fits]*2
         ack C 4",
    );
    assert_eq!(broker.engine.annotated_bytes, 0);
}

#[test]
fn a_full_disk_takes_no_annotations() {
    check(
        "queue q
         consume A q
         publish q 1 2{mem}
         got A = 1 2
         disk full
         release A 1 note=x
         ended A = DISK_FULL
         disk free
         consume A q
         got A = 1 2*1",
    );
}
