//! Channels: where their event ids begin.

use super::script::check;

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
