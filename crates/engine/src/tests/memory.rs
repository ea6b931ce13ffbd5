//! Memory as back-pressure: producers wait for credit while too much is held, consumers go on.

use super::Draft;
use super::broker::{Broker, Fate};
use crate::admin::Request;
use crate::{ConsumerSource, ConsumerSpec, ProducerTarget, Settlement};
use postroad_model::address::Address;
use postroad_model::refusal::Code;
use postroad_model::settings::{BrokerSettings, QueueSettings};

/// Messages sent before the test looks: more than half of a producer's window, so that credit was due.
const SENT: usize = 1_500;

#[test]
fn producers_get_no_credit_while_too_much_is_held() {
    let settings = BrokerSettings { name: "here".into(), memory: 50_000, ..BrokerSettings::default() };
    let mut broker = Broker::with(settings);
    let queue = Request::PutQueue { name: "q".into(), settings: QueueSettings::default(), configured: false };
    broker.ask(queue).unwrap();
    let target = || ProducerTarget::Address(Address::parse("q", None).unwrap());
    let producer = broker.producer("P", target()).unwrap();
    let before = broker.producers[&producer].credit;
    let mut tags = Vec::new();
    for n in 0..SENT {
        // What is on disk could leave memory.
        let draft = Draft { nondurable: true, ..Draft::new(&format!("{n:>100}")) };
        tags.push(broker.publish(&producer, draft.incoming()));
    }
    let taken = tags.iter().filter(|tag| matches!(broker.fate(&producer, **tag), Fate::Accepted)).count();
    let given = broker.producers[&producer].credit;
    assert!(given < before && given <= taken as u64, "its credit is taken back: {given} for {taken}");
    let refused = tags.iter().filter(|tag| {
        matches!(broker.fate(&producer, **tag), Fate::Refused(refusal) if refusal.code == Code::LimitReached)
    });
    assert_eq!(refused.count() + taken, SENT, "what comes in spite of that is refused");
    assert!(broker.engine.message_bytes() < 50_000 + 50_000 / 4 + 1_000);
    let late = broker.producer("late", target()).unwrap();
    assert_eq!(broker.producers[&late].credit, 0);

    let spec = ConsumerSpec::new(ConsumerSource::Address(Address::parse("q", None).unwrap()));
    broker.consume("C", "C", spec, 1_500).unwrap();
    broker.settle("C", 0, taken as u64, Settlement::Accepted);
    broker.run();
    assert!(broker.producers[&producer].credit > given, "room was made, and it waits on");
    assert!(broker.producers[&late].credit > 0);
}
