//! Channels: where their event ids begin, and what selectors see of their events.

use super::Draft;
use super::script::{check, continue_with};
use postroad_amqp_codec::Value;
use postroad_testkit::proves;

/// Readers begin at an id, and would miss the events of lower ones.
#[test]
fn ids_do_not_begin_below_where_readers_do() {
    for (reader, end) in [
        ("object c::r", "crash\ndelete c::r"),
        ("consume R c", "cut R"),
        ("consume R c conn=X durable=S", "crash\nconsume R c conn=X durable=S\nclose R"),
        ("join c->d name=c->r", "crash\npause c->r\ndelete c->r"),
    ] {
        check(&format!(
            "channel c first_event_id=100
             channel d
             channel c first_event_id=50
             {reader}
             channel c first_event_id=49 => BAD_VALUE
             channel c first_event_id=100
             channel c first_event_id=99 => BAD_VALUE
             channel c first_event_id=100 ttl=1000000
             view c last_event_id=99
             {end}
             channel c first_event_id=1
             publish c 1
             view c last_event_id=1"
        ));
    }
    check(
        "channel c first_event_id=100 retention=interest
         object c::d
         consume A c::d
         channel c first_event_id=1 retention=interest => BAD_VALUE
         channel c first_event_id=200 retention=interest
         publish c 1
         got A = 1
         ack A 1
         stored c =",
    );
}

#[test]
fn a_property_that_can_not_be_compared_is_there_all_the_same() {
    let mut broker = check("channel a\nqueue there\nqueue not\nqueue like");
    continue_with(&mut broker, "join a->there filter=\"p IS NOT NULL\"");
    continue_with(&mut broker, "join a->not filter=\"p IS NULL\"");
    continue_with(&mut broker, "join a->like filter=\"p = 1 OR p <> 1 OR p LIKE '%'\"\npublish a none");
    let producer = broker.producers.keys().next().unwrap().clone();
    let values = [
        ("binary", Value::Binary(vec![1].into())),
        ("uuid", Value::Uuid([7; 16])),
        ("char", Value::Char('x')),
        ("large", Value::Ulong(u64::MAX)),
        ("null", Value::Null),
    ];
    for (text, value) in values {
        let draft = Draft { properties: vec![("p".into(), value)], ..Draft::new(text) };
        broker.publish(&producer, draft.incoming());
    }
    let seen = "stored there = binary uuid char large\nstored not = none null\nstored like =";
    continue_with(&mut broker, seen);
    proves("FIL-2");
}
