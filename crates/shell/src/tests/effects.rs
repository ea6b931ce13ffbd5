//! Effects wait for what they promise, and only for that; one connection's stay in order.

use super::{Broker, words};
use crate::ConnIds;
use postroad_engine::{Command, LinkNo, ProducerTarget};
use postroad_journal::MemDisk;
use postroad_model::address::Address;

fn refused_link(broker: &mut Broker, conn: postroad_engine::ConnId) {
    // An address that is none is refused at once: an effect that waits for nothing.
    let target = ProducerTarget::Address(Address::parse("nowhere", None).unwrap());
    broker.shell.handle(broker.now, Command::OpenProducer { conn, link: LinkNo(9), target });
}

#[test]
fn a_confirmation_waits_for_its_step_and_nothing_waits_for_others() {
    let mut broker = Broker::start(&MemDisk::new(), u64::MAX);
    broker.make_queue("q");
    let (_, producer) = broker.producer(1, "q");
    broker.publish(producer, 0, 10);
    broker.connect(2);
    broker.turn();
    assert_eq!(broker.take_sent(), [(2, words(&["connected"]))], "what waits for nothing goes at once");
    broker.sync();
    assert_eq!(broker.take_sent(), [(1, words(&["accepted 0"]))]);
}

#[test]
fn what_comes_behind_a_waiting_effect_of_its_connection_waits_too() {
    let mut broker = Broker::start(&MemDisk::new(), u64::MAX);
    broker.make_queue("q");
    let (conn, producer) = broker.producer(1, "q");
    broker.publish(producer, 0, 10);
    refused_link(&mut broker, conn);
    broker.turn();
    // A turn of its own, and still behind.
    refused_link(&mut broker, conn);
    broker.publish(producer, 1, 10);
    broker.turn();
    assert_eq!(broker.take_sent(), []);
    broker.sync();
    let all = ["accepted 0", "link refused", "link refused", "accepted 1"];
    assert_eq!(broker.take_sent(), [(1, words(&all))], "one list, in the order in which it came");
    refused_link(&mut broker, conn);
    broker.turn();
    assert_eq!(broker.take_sent(), [(1, words(&["link refused"]))], "nothing is left to wait for");
}

#[test]
fn an_effect_waits_for_no_later_turn_than_its_own() {
    let mut broker = Broker::start(&MemDisk::new(), u64::MAX);
    broker.make_queue("q");
    let (_, first) = broker.producer(1, "q");
    let (_, second) = broker.producer(2, "q");
    broker.publish(first, 0, 10);
    broker.turn();
    let lsn = broker.sync_quietly();
    broker.publish(second, 0, 10);
    broker.turn();
    broker.shell.became_durable(lsn);
    broker.pass_on();
    assert_eq!(broker.take_sent(), [(1, words(&["accepted 0"]))]);
    broker.sync();
    assert_eq!(broker.take_sent(), [(2, words(&["accepted 0"]))]);
}

#[test]
fn what_waits_for_a_connection_that_is_gone_does_not_reach_its_successor() {
    let mut broker = Broker::start(&MemDisk::new(), u64::MAX);
    broker.make_queue("q");
    let (conn, producer) = broker.producer(1, "q");
    broker.publish(producer, 0, 10);
    broker.turn();
    broker.shell.unregister(broker.now, conn);
    broker.ids.give_back(conn);
    let next = broker.connect(2);
    assert_eq!(broker.shell.connections(), 1);
    assert_ne!(next, conn);
    broker.turn();
    broker.sync();
    assert_eq!(broker.take_sent(), [(2, words(&["connected"]))]);
    broker.shell.unregister_all(broker.now).unwrap();
    assert_eq!(broker.shell.connections(), 0);
}

#[test]
fn numbers_of_connections_are_dense_and_never_come_twice() {
    let mut ids = ConnIds::default();
    let (a, b) = (ids.take(), ids.take());
    ids.give_back(a);
    let c = ids.take();
    assert_eq!((a.0, b.0), (0, 1));
    assert_eq!(c.0, 1 << 32, "the same place, another number");
    ids.give_back(b);
    ids.give_back(c);
    assert_eq!(ids.take().0, 2 << 32);
}
