//! What an address means where the message enters (ADR-1, RES, TT-1).

use super::Draft;
use super::broker::Broker;
use super::script::{check, check_with};
use crate::{ConsumerSource, ConsumerSpec, ProducerTarget};
use postroad_model::address::Address;
use postroad_model::settings::BrokerSettings;
use postroad_testkit::proves;

/// A broker named `here`, on which queues `made.*` and all channels are made by first use.
fn making() -> BrokerSettings {
    BrokerSettings {
        name: "here".into(),
        auto_create_queues: vec!["made.*".into()],
        auto_create_channels: vec!["#".into()],
        ..BrokerSettings::default()
    }
}

fn reading(address: Address) -> ConsumerSpec {
    ConsumerSpec::new(ConsumerSource::Address(address))
}

#[test]
fn a_queue_may_be_named_with_its_broker_or_without() {
    check(
        "queue q
         publish q 1
         publish q@here 2
         publish queue://here/q 3
         publish queue:///q 4
         publish queue://q 5
         publish * 6{to=q@here}
         stored q = 1..6
         consume A q@here credit=6
         got A = 1..6
         publish q@there 7 => UNKNOWN_BROKER
         publish queue://there/q 7 => UNKNOWN_BROKER
         consume B q@there => NOT_LOCAL
         consume B queue://there/q browse => NOT_LOCAL",
    );
    for id in ["ADR-1", "RES-B1", "RES-B2", "RES-L1"] {
        proves(id);
    }
}

#[test]
fn what_has_the_name_decides_where_the_address_has_no_kind() {
    check(
        "channel c
         channel both
         queue both
         publish c 1
         publish both 2
         stored c = 1
         stored queue:both = 2
         stored both =
         publish queue:///c 3 => UNKNOWN_QUEUE
         publish none 3 => UNKNOWN_QUEUE
         publish none@here 3 => UNKNOWN_QUEUE",
    );
    proves("RES-L2");
    proves("RES-L14");
}

#[test]
fn a_queue_is_made_by_first_use_only_where_a_pattern_says_so() {
    check_with(
        making(),
        "publish made.1 1
         publish made.2@here 2
         stored made.1 = 1
         stored made.2 = 2
         publish made.a.b 3 => UNKNOWN_QUEUE
         publish other 3 => UNKNOWN_QUEUE
         crash
         stored made.1 = 1",
    );
    proves("RES-L13");
}

#[test]
fn the_levels_and_letters_of_a_topic_string_are_all_told_apart() {
    let shapes = ["a", "/a", "a/", "a//b", "a/b", "A", "a b", " a"];
    let mut broker = Broker::with(making());
    let address = |shape: &str| Address::parse(&format!("topic://{shape}"), None).unwrap();
    for shape in shapes {
        broker.consume(shape, "reader", reading(address(shape)), 10).unwrap();
    }
    for shape in shapes {
        let producer = broker.producer("writer", ProducerTarget::Address(address(shape))).unwrap();
        broker.publish(&producer, Draft::new(shape).incoming());
    }
    for shape in shapes {
        let got: Vec<&str> = broker.consumers[shape].got.iter().map(|got| got.text.as_str()).collect();
        assert_eq!(got, [shape]);
    }
    assert_eq!(broker.engine.channels.len(), shapes.len());
    proves("TT-1");
}

#[test]
fn what_is_made_by_first_use_starts_from_the_defaults() {
    let mut settings = making();
    settings.defaults.queue.capacity = 1;
    settings.defaults.channel.capacity = 2;
    check_with(
        settings,
        "publish made.q 1
         publish made.q 2 => QUEUE_FULL
         consume A topic://made credit=0
         publish topic://made 1..2
         publish topic://made 3 => STORE_FULL",
    );
}
