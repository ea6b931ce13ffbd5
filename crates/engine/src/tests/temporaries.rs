//! Temporary queues live as long as the link that made them, or as its client asked (ADR-9).

use super::Draft;
use super::broker::{Broker, Fate};
use crate::admin::{Request, StoreKind};
use crate::command::{CloseMode, Command, ConsumerSource, ConsumerSpec, Settlement};
use crate::{ConnId, Lifetime, LinkNo, ProducerTarget};
use postroad_model::address::Address;
use postroad_model::settings::QueueSettings;
use postroad_testkit::proves;

/// A consumer `A` of client `a` on a temporary queue of its own; the queue's address.
fn made_by_consumer(broker: &mut Broker, lifetime: Lifetime) -> String {
    broker.consume("A", "a", ConsumerSpec::new(ConsumerSource::Temporary(lifetime)), 0).unwrap();
    broker.consumers["A"].resolved.as_ref().unwrap().address.clone()
}

/// Another consumer, on an address.
fn consume(broker: &mut Broker, name: &str, client: &str, address: &str) -> bool {
    let source = ConsumerSource::Address(Address::parse(address, None).unwrap());
    broker.consume(name, client, ConsumerSpec::new(source), 100).is_ok()
}

/// Sends to an address over an anonymous producer; whether it was accepted.
fn reaches(broker: &mut Broker, address: &str) -> bool {
    let producer = broker.producer("replier", ProducerTarget::PerMessage).unwrap();
    let draft = Draft { to: Some(address.to_owned()), ..Draft::new("reply") };
    let tag = broker.publish(&producer, draft.incoming());
    broker.fate(&producer, tag) == Fate::Accepted
}

/// Queues that there are besides the dead-letter queue.
fn queues(broker: &Broker) -> usize {
    broker.engine.queues.len() - 1
}

#[test]
fn a_temporary_queue_goes_with_the_consumer_that_made_it() {
    for mode in [CloseMode::Close, CloseMode::Detach] {
        let mut broker = Broker::new();
        let address = made_by_consumer(&mut broker, Lifetime::OnClose);
        assert!(address.starts_with("$tmp.") && address.ends_with("@here"), "{address}");
        assert!(reaches(&mut broker, &address));
        assert!(consume(&mut broker, "B", "a", &address), "another consumer of its connection");
        broker.close("A", mode);
        assert_eq!(broker.consumers["B"].ended.as_ref().unwrap().code.as_str(), "DELETED");
        assert!(!reaches(&mut broker, &address));
        assert_eq!((queues(&broker), broker.engine.message_bytes()), (0, 0));
    }
    proves("ADR-9");
}

#[test]
fn a_temporary_queue_goes_with_the_producer_that_made_it() {
    let mut broker = Broker::new();
    let target = ProducerTarget::Temporary(Lifetime::OnClose);
    let name = broker.producer("a", target).unwrap();
    let address = broker.producers[&name].resolved.as_ref().unwrap().address.clone();
    assert!(consume(&mut broker, "A", "a", &address));
    assert!(!consume(&mut broker, "B", "b", &address), "it is a's alone");
    assert!(reaches(&mut broker, &address));
    broker.close("A", CloseMode::Close);
    assert!(reaches(&mut broker, &address), "its consumer left, its maker did not");
    let producer = broker.producers[&name].key.unwrap();
    broker.send(Command::CloseProducer { producer });
    assert!(!reaches(&mut broker, &address));
}

#[test]
fn a_temporary_queue_goes_with_a_consumer_that_the_broker_throws_out() {
    let mut broker = Broker::new();
    let address = made_by_consumer(&mut broker, Lifetime::OnClose);
    broker.credit("A", 10, false);
    assert!(reaches(&mut broker, &address));
    assert!(consume(&mut broker, "B", "a", &address), "another consumer of its connection");
    let large = format!("note={}", "x".repeat(17 << 20));
    let (failed, undeliverable_here) = (false, false);
    let annotations = Some(super::noted(&[&large]));
    broker.settle("A", 0, 0, Settlement::Modified { failed, undeliverable_here, annotations });
    let ended = |consumer: &str| broker.consumers[consumer].ended.as_ref().unwrap().code.as_str();
    assert_eq!((ended("A"), ended("B")), ("LIMIT_REACHED", "DELETED"));
    assert_eq!((queues(&broker), broker.engine.message_bytes()), (0, 0));
    assert!(!reaches(&mut broker, &address));
    // Where an operator deletes it, its maker is thrown out, too.
    let address = made_by_consumer(&mut broker, Lifetime::OnClose);
    let (name, cascade, force) = (address.split('@').next().unwrap().to_owned(), false, true);
    broker.ask(Request::DeleteStore { kind: StoreKind::Queue, name, cascade, force }).unwrap();
    assert_eq!(queues(&broker), 0);
    proves("ADR-9");
}

#[test]
fn other_lifetimes_are_kept_as_asked() {
    use Lifetime::{OnNoLinks, OnNoLinksOrMessages, OnNoMessages};
    // What is left when its maker is gone: another consumer, a message. Does it live on? And without the consumer?
    let cases = [
        (OnNoLinks, (true, false), [true, false]),
        (OnNoLinks, (false, true), [false, false]),
        (OnNoMessages, (true, false), [false, false]),
        (OnNoMessages, (false, true), [true, true]),
        (OnNoLinksOrMessages, (true, false), [true, false]),
        (OnNoLinksOrMessages, (false, true), [true, true]),
        (OnNoLinksOrMessages, (false, false), [false, false]),
    ];
    for (lifetime, (consumer, message), lives) in cases {
        let mut broker = Broker::new();
        let address = made_by_consumer(&mut broker, lifetime);
        if message {
            assert!(reaches(&mut broker, &address));
        }
        if consumer {
            assert!(consume(&mut broker, "B", "a", &address));
        }
        broker.close("A", CloseMode::Close);
        assert_eq!(queues(&broker) == 1, lives[0], "{lifetime:?} {consumer} {message}");
        broker.close("B", CloseMode::Close);
        assert_eq!(queues(&broker) == 1, lives[1], "{lifetime:?} {consumer} {message}");
        broker.cut("a");
        assert_eq!(queues(&broker), 0, "it never outlives its connection");
    }
}

#[test]
fn the_last_message_and_the_last_sender_end_it_where_they_are_what_it_waits_for() {
    let mut broker = Broker::new();
    let address = made_by_consumer(&mut broker, Lifetime::OnNoMessages);
    assert!(reaches(&mut broker, &address));
    broker.close("A", CloseMode::Close);
    assert!(consume(&mut broker, "B", "a", &address));
    assert_eq!(queues(&broker), 1);
    broker.settle("B", 0, 0, Settlement::Accepted);
    assert_eq!(queues(&broker), 0);
    assert_eq!(broker.consumers["B"].ended.as_ref().unwrap().code.as_str(), "DELETED");

    let address = made_by_consumer(&mut broker, Lifetime::OnNoLinks);
    let target = ProducerTarget::Address(Address::parse(&address, None).unwrap());
    broker.producer("sender", target).unwrap();
    broker.close("A", CloseMode::Close);
    assert_eq!(queues(&broker), 1, "another connection still sends there");
    broker.cut("sender");
    assert_eq!(queues(&broker), 0);
}

#[test]
fn temporary_queues_without_end_cost_no_memory() {
    let mut broker = Broker::new();
    let conn = ConnId(broker.conn("a"));
    let mut most = 0;
    for number in 0..1_000 {
        let link = LinkNo(number);
        let target = ProducerTarget::Temporary(Lifetime::OnClose);
        broker.send(Command::OpenProducer { conn, link, target });
        most = most.max(broker.engine.stores.next_key().0);
        let producer = broker.engine.conns[&conn].producers.first().copied().unwrap();
        broker.send(Command::CloseProducer { producer });
    }
    assert!(most < 5, "{most} places for stores");
    assert!(broker.engine.conns[&conn].temporaries.is_empty());
}

/// A client may send an attach behind an open that is refused.
#[test]
fn a_consumer_of_a_connection_that_is_not_there_is_refused() {
    let (mut broker, queue) = (Broker::new(), "q".to_owned());
    let settings = QueueSettings::default();
    broker.ask(Request::PutQueue { name: queue.clone(), settings, configured: false }).unwrap();
    let takers = |broker: &Broker| broker.engine.stores.iter().map(|store| store.takers.len()).sum::<usize>();
    assert!(consume(&mut broker, "A", "a", &queue));
    assert_eq!(takers(&broker), 1);
    let source = ConsumerSource::Address(Address::parse(&queue, None).unwrap());
    let spec = Box::new(ConsumerSpec::new(source));
    broker.send(Command::OpenConsumer { conn: ConnId(99), link: LinkNo(0), spec });
    assert_eq!(takers(&broker), 1);
}
