//! How long messages of a queue live, and how long failed ones wait (QU-6, AK-7).

use super::script::check;
use postroad_testkit::proves;

#[test]
fn settings_bound_the_life_of_messages_in_the_order_that_artemis_has() {
    // Between the two bounds a message has the life that its sender wants.
    check(
        "queue q expiry_min=100 expiry_max=1000
         publish q none short{ttl=10} long{ttl=5000} between{ttl=500}
         wait 90
         stored q = none short long between
         wait 20
         stored q = none long between
         wait 400
         stored q = none long
         wait 480
         stored q = none long
         wait 20
         stored q =",
    );
    // With one bound alone a message without an end has it.
    check(
        "queue q expiry_min=100\npublish q none long{ttl=500}\nwait 110\nstored q = long\nwait 400\nstored q =",
    );
    check(
        "queue q expiry_max=100\npublish q none short{ttl=10}\nwait 20\nstored q = none\nwait 90\nstored q =",
    );
    // A default goes before the bounds, and only for messages without an end.
    check(
        "queue q expiry_default=100 expiry_max=10
         publish q none long{ttl=500}
         wait 90
         stored q = none long
         wait 20
         stored q = long",
    );
    // And no_expiry before all.
    check(
        "queue q no_expiry=true expiry_default=10 expiry_max=10
         publish q none short{ttl=10}
         wait 100000
         stored q = none short",
    );
    check("queue q expiry_min=2 expiry_max=1 => BAD_VALUE");
    proves("QU-6");
}

#[test]
fn redelivery_delays_are_spread_as_far_as_was_asked() {
    let script = |waits: u64, expected: &str| {
        format!(
            "queue q redelivery_delay=1000 redelivery_spread=0.5 max_delivery_attempts=-1
             consume A q
             publish q 1..20
             got A = 1..20
             fail A 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
             wait {waits}
             {expected}"
        )
    };
    check(&script(499, "got A ="));
    let broker = check(&script(1_000, ""));
    let came = broker.consumers["A"].got.len() - 20;
    assert!((1..20).contains(&came), "{came} of 20 came after the even delay");
    let broker = check(&script(1_501, ""));
    assert_eq!(broker.consumers["A"].got.len(), 40);
    check("queue q redelivery_spread=1.5 => BAD_VALUE");
    check("channel c\nobject c::o redelivery_spread=-1 => BAD_VALUE");
    check(
        "channel c
         object c::o redelivery_delay=1000 redelivery_spread=0.5
         consume A c::o
         publish c 1
         got A = 1
         fail A 1
         wait 499
         got A =
         wait 1002
         got A = 1*1",
    );
    proves("AK-7");
}
