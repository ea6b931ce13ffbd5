//! Delayed delivery: what waits, when it comes, and how it goes otherwise (QU-8, QU-9).

use super::Draft;
use super::broker::Broker;
use super::histories::config;
use super::script::{check, check_with, continue_with};
use crate::ProducerTarget;
use crate::admin::StoreKind;
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::settings::BrokerSettings;
use postroad_testkit::proves;
use proptest::prelude::*;

#[test]
fn a_delayed_message_is_an_event_when_it_is_due() {
    check(
        "queue q
         consume A q
         publish q a{delay=100} b{until=1000050} c
         got A = c
         scheduled q = b a
         stored q = c
         view q scheduled=2 depth=1 last_event_id=1
         wait 49
         got A =
         wait 1
         got A = b
         wait 50
         got A = a
         ack A a b c
         view q scheduled=0 depth=0 last_event_id=3 bytes=0",
    );
    // A time that is over, and one that is now, are as good as none; the time goes before the delay.
    check(
        "queue q
         publish q a{until=1} b{delay=0} c{until=1000000} d{until=5,delay=100} e{delay=100,until=1000200}
         stored q = a b c d
         wait 199
         stored q = a b c d
         wait 1
         stored q = a b c d e",
    );
    proves("QU-8");
}

#[test]
fn events_get_their_ids_when_they_are_due() {
    // T17: m1 with a delay of 2 s at t0, m2 at t0 + 1 s.
    check(
        "channel c
         object c::d start_event_id=0
         consume A c::d
         publish c m1{delay=2000}
         wait 1000
         publish c m2
         got A = m2
         wait 500
         ack A m2
         owed c::d =
         detach A
         wait 500
         stored c = m2 m1
         owed c::d = m1
         consume A c::d
         got A = m1",
    );
    proves("objects:T17");
}

#[test]
fn whoever_is_there_at_the_due_time_gets_it() {
    check(
        "channel c retention=interest
         publish c early{delay=100} late{delay=200}
         view c scheduled=2
         wait 100
         stored c =
         view c scheduled=1 last_event_id=0
         consume A c durable=S
         consume V c
         wait 100
         got A = late
         got V = late
         view c scheduled=0 last_event_id=1",
    );
    // Also who does not want what its own client publishes.
    check(
        "channel c
         publish c a{delay=100} by=X
         consume A c conn=X durable=S no_local
         consume B c
         wait 100
         got B = a
         got A =",
    );
}

#[test]
fn what_waits_survives_a_restart_and_what_is_in_memory_goes() {
    check(
        "queue q
         channel r type=reliable
         publish q a{delay=300} b{delay=100,mem} c{delay=200} d{delay=5000}
         publish r x{delay=100}
         scheduled q = b c a d
         crash
         scheduled q = c a d
         scheduled r =
         wait 250
         stored q = c
         restart
         scheduled q = a d
         wait 50
         stored q = c a
         cancel q 4
         crash
         scheduled q =
         cancel q 4 => SCHEDULED_NOT_FOUND
         publish q e{delay=5} f{delay=5,mem}
         scheduled q = e f",
    );
    // What was due while the broker was away comes in the order of its times.
    check(
        "queue q
         sync off
         publish q a{delay=300} b{delay=100} c{delay=200}
         sync on
         crash
         wait 1000
         publish q d
         stored q = b c a d",
    );
}

#[test]
fn numbers_are_never_given_again() {
    let mut broker =
        check("queue q\npublish q a{delay=50} b{delay=50,mem}\nwait 60\ncrash\npublish q c{delay=50}");
    let numbers = |broker: &mut Broker| -> Vec<u64> {
        broker.scheduled(StoreKind::Queue, "q").unwrap().iter().map(|item| item.number).collect()
    };
    assert_eq!(numbers(&mut broker), [65_538]);
    continue_with(&mut broker, "cancel q 65538\ncrash\npublish q d{delay=50}");
    assert_eq!(numbers(&mut broker), [65_539]);
}

#[test]
fn nothing_is_confirmed_or_seen_before_it_is_durable() {
    check(
        "queue q
         consume A q
         sync off
         publish q a{delay=10}
         wait 20
         got A =
         crash
         scheduled q =
         stored q =",
    );
    let mut broker = check("queue q\nconsume A q\nsync off\npublish q a{delay=10}");
    broker.sync();
    continue_with(&mut broker, "wait 10\ngot A =\nsync 1\ngot A = a");
    // A store that has become one for memory gives a message out when it can't come again.
    check(
        "channel c type=mixed
         consume A c
         publish c a{delay=10}
         channel c type=reliable
         sync off
         wait 10
         got A =
         sync on
         got A = a
         crash
         scheduled c =",
    );
}

#[test]
fn life_counts_from_sending() {
    check(
        "queue grave
         queue q expiry_queue=grave
         publish q long{delay=100,ttl=150} short{delay=100,ttl=50}
         scheduled q = short long
         wait 49
         stored grave =
         wait 1
         stored grave = short
         wait 50
         stored q = long
         wait 50
         stored q =
         stored grave = short long
         view q expired_total=2",
    );
    check(
        "queue q\npublish q a{delay=100,ttl=50}\nwait 50\nstored q =\nview q expired_total=1 bytes=0 scheduled=0",
    );
    // A ttl of the store counts from the time at which the event is there.
    check("channel c ttl=50\npublish c a{delay=100}\nwait 149\nstored c = a\nwait 1\nstored c =");
}

#[test]
fn what_expires_waits_for_room_where_it_goes() {
    check(
        "queue grave capacity=1
         queue DLQ capacity=1
         publish grave x
         publish DLQ y
         queue q expiry_queue=grave
         publish q a{delay=200,ttl=50}
         wait 100
         scheduled q = a
         crash
         wait 1
         scheduled q = a
         purge grave
         wait 30000
         scheduled q =
         stored grave = a
         view q expired_total=1",
    );
}

#[test]
fn what_waits_counts_in_the_capacity() {
    check(
        "queue q capacity=2
         publish q a{delay=100} b
         publish q c => QUEUE_FULL
         publish q c{delay=5} => QUEUE_FULL
         wait 100
         stored q = b a
         publish q c => QUEUE_FULL",
    );
    check(
        "channel c capacity=2 honour_capacity=false
         publish c a b{delay=100} c d
         stored c = d
         scheduled c = b
         publish c e{delay=100}
         publish c f => STORE_FULL
         cancel c 1
         publish c f
         stored c = f
         wait 100
         stored c = f e",
    );
    let settings = BrokerSettings { max_scheduled: 2, ..Broker::settings() };
    check_with(
        settings,
        "queue p
         queue q
         publish q a{delay=50} b
         publish p a{delay=100}
         publish q c{delay=5} => LIMIT_REACHED
         publish q d
         wait 50
         publish q c{delay=5}
         delete p
         publish q d{delay=5}
         publish q e{delay=5} => LIMIT_REACHED",
    );
}

#[test]
fn a_repeated_message_id_is_recognised_at_once() {
    check(
        "channel a publisher_dedupe=message-id
         queue archive
         join a->archive archive=true
         publish a m{id=X,delay=100} n{id=X} o{id=X,delay=5}
         stored a =
         view a scheduled=1 deduplicated_total=2
         crash
         publish a p{id=X}
         view a deduplicated_total=1
         stored archive =
         wait 100
         publish a q{id=X}
         stored a = m
         stored archive = m q",
    );
}

/// What is recognised follows from the settings at the time of each event, however the broker started.
#[test]
fn a_message_id_is_forgotten_where_it_is_not_recognised_when_it_is_due() {
    check(
        "channel a publisher_dedupe=message-id
         publish a m{id=X,delay=100}
         channel a publisher_dedupe=off
         wait 100
         channel a publisher_dedupe=message-id
         restart
         view a last_event_id=1",
    );
}

#[test]
fn purges_and_deletions_take_what_waits() {
    let settings = BrokerSettings { job_batch: 2, ..Broker::settings() };
    check_with(
        settings.clone(),
        "queue q
         publish q 1..7
         publish q 8{delay=100} 9{delay=200} a{delay=300} b{delay=400} c{delay=500,mem}
         purge q 1..3
         stored q = 4..7
         scheduled q = 8 9 a b c
         purge q filter=\"x = 1\"
         scheduled q = 8 9 a b c
         purge q
         stored q =
         view q scheduled=0 bytes=0
         crash
         view q scheduled=0 bytes=0",
    );
    check_with(
        settings,
        "channel c
         publish c 1{delay=100} 2{delay=200} 3{delay=300} 4{delay=400} 5{delay=500,mem}
         delete c
         view broker messages=0 jobs=[]
         channel c
         scheduled c =",
    );
}

#[test]
fn what_comes_due_during_a_purge_goes_with_it() {
    let settings = BrokerSettings { job_batch: 1, ..Broker::settings() };
    let mut broker = Broker::with(settings);
    continue_with(&mut broker, "queue q\npublish q 1 2 3 4{delay=10} 5{delay=10} 6{delay=10}");
    let purge = crate::admin::Request::PurgeStore {
        kind: StoreKind::Queue,
        name: "q".into(),
        selection: crate::admin::Selection::default(),
    };
    broker.handle(crate::Command::Admin { reply: 5_000, request: Box::new(purge) });
    broker.now.wall += 10;
    broker.now.mono += 10;
    broker.run();
    continue_with(&mut broker, "stored q =\nscheduled q =\nview q last_event_id=3 scheduled=0");
    assert_eq!(broker.replies[&5_000], Ok(crate::admin::Response::Purged { purged: 6 }));
}

#[test]
fn a_queue_that_waits_for_messages_is_not_empty() {
    let mut broker = Broker::new();
    let target = ProducerTarget::Temporary(crate::Lifetime::OnNoMessages);
    let producer = broker.producer("P", target).unwrap();
    let message = Draft { annotations: vec![("x-opt-delivery-delay", Value::Int(50))], ..Draft::new("a") };
    broker.publish(&producer, message.incoming());
    let key = broker.producers[&producer].key.unwrap();
    broker.send(crate::Command::CloseProducer { producer: key });
    assert_eq!(broker.engine.message_bytes(), message.incoming().message.len() as u64);
    broker.wait(60);
    assert!(broker.engine.message_bytes() > 0, "it is there to be taken");
    broker.cut("P");
    assert_eq!(broker.engine.message_bytes(), 0);
}

#[test]
fn a_full_disk_lets_it_wait() {
    check(
        "queue q
         publish q a{delay=100}
         disk full
         publish q b{delay=100} => DISK_FULL
         wait 500
         stored q =
         scheduled q = a
         disk free
         wait 1000
         stored q = a",
    );
}

#[test]
fn dead_letters_and_joined_events_are_not_delayed_again() {
    check(
        "channel a
         queue q max_delivery_attempts=1
         join a->q
         publish a m{delay=100}
         wait 100
         stored q = m
         consume A q
         got A = m
         fail A m
         stored DLQ = m",
    );
}

#[test]
fn publish_keys_count_when_it_is_due() {
    check_with(
        BrokerSettings { cache: 0, ..Broker::settings() },
        "channel k publish_keys=[{\"name\":\"k\"}]
         publish k a{k=1,delay=100} b{k=1} c{k=2}
         stored k = b c
         wait 100
         stored k = c a",
    );
}

#[test]
fn a_clock_that_is_set_back_does_not_hold_messages_for_ever() {
    let mut broker = Broker::new();
    broker.set_clock(|_| 3_600_000_000);
    continue_with(&mut broker, "queue q\npublish q a{delay=60000}");
    broker.set_clock(|wall| wall + 30_000);
    broker.wait(1);
    broker.set_clock(|wall| wall - 3_600_000);
    broker.wait(1);
    // Time goes on at half its pace.
    continue_with(&mut broker, "wait 50000\nstored q =\nwait 15000\nstored q = a");
}

/// What a message of a random history is: its delay, whether it is kept on disk, and its life.
type Sent = (Option<u64>, bool, Option<u32>);

proptest! {
    #![proptest_config(config(60))]

    /// Against the simplest model: what is due is sorted by its time, and by its turn of sending.
    #[test]
    fn the_order_is_that_of_the_due_times(
        sent in prop::collection::vec((prop::option::weighted(0.7, 1..500u64), any::<bool>(), prop::option::weighted(0.2, 1..500u32)), 1..40),
        waits in prop::collection::vec(0..60u64, 40),
        crash_at in 0..40usize,
        cached: bool,
    ) {
        let settings = BrokerSettings { cache: if cached { 1 << 30 } else { 0 }, ..Broker::settings() };
        let mut broker = Broker::with(settings);
        continue_with(&mut broker, "queue q");
        let mut model: Vec<(u64, usize, Sent)> = Vec::new();
        for (number, (message, wait)) in sent.iter().zip(&waits).enumerate() {
            let &(delay, durable, ttl) = message;
            let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
            let producer = broker.producer("P", target).unwrap();
            let annotation = delay.map(|ms| ("x-opt-delivery-delay", Value::Ulong(ms)));
            let annotations = annotation.into_iter().collect();
            let draft = Draft { nondurable: !durable, ttl, annotations, ..Draft::new(&number.to_string()) };
            broker.publish(&producer, draft.incoming());
            model.push((broker.now.wall + delay.unwrap_or(0), number, *message));
            if number == crash_at {
                broker.crash();
                model.retain(|(_, _, (_, durable, _))| *durable);
            }
            broker.wait(*wait);
        }
        broker.wait(1_000);
        model.sort_unstable();
        // Whatever has a life is over by now.
        model.retain(|(_, _, (_, _, ttl))| ttl.is_none());
        let wanted: Vec<String> = model.iter().map(|(_, number, _)| number.to_string()).collect();
        continue_with(&mut broker, &format!("stored q = {}\nscheduled q =", wanted.join(" ")));
    }
}
