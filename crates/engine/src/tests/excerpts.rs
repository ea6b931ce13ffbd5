//! What a view shows of large messages, and how many of them one page holds (OP-1).

use super::Draft;
use super::broker::Broker;
use super::script::continue_with;
use crate::ProducerTarget;
use crate::admin::{EventView, Page, Request, Response, ScheduledView, Selection, StoreKind};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::settings::BrokerSettings;

/// A broker with a queue that holds these messages; with no cache it keeps nothing in memory that is on disk.
fn holding(cache: Option<u64>, drafts: &[Draft]) -> Broker {
    let settings = Broker::settings();
    let cache = cache.unwrap_or(settings.cache);
    let mut broker = Broker::with(BrokerSettings { cache, ..settings });
    continue_with(&mut broker, "queue q");
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let producer = broker.producer("P", target).unwrap();
    for draft in drafts {
        broker.publish(&producer, draft.incoming());
    }
    broker
}

fn browse(page: Page) -> Request {
    let (kind, name) = (StoreKind::Queue, "q".to_owned());
    Request::BrowseStore { kind, name, selection: Selection::default(), page }
}

/// The first page.
fn first(broker: &mut Broker) -> (Vec<EventView>, Option<String>) {
    match broker.ask(browse(Page { after: None, limit: usize::MAX })) {
        Ok(Response::Events { items, next }) => (items, next),
        other => panic!("no events: {other:?}"),
    }
}

fn scheduled(broker: &mut Broker) -> (Vec<ScheduledView>, Option<String>) {
    let page = Page { after: None, limit: usize::MAX };
    match broker.ask(Request::ListScheduled { kind: StoreKind::Queue, name: "q".into(), page }) {
        Ok(Response::Scheduled { items, next }) => (items, next),
        other => panic!("no list: {other:?}"),
    }
}

fn text(length: usize) -> Value {
    Value::String("x".repeat(length))
}

#[test]
fn a_view_shows_the_beginning_of_large_texts() {
    let small = Draft { properties: vec![("k".into(), text(4_096))], ..Draft::new(&"b".repeat(4_096)) };
    let large = Draft {
        id: Some("i".repeat(100_000)),
        properties: vec![("k".into(), text(1_000_000)), ("l".repeat(5_000), text(1))],
        // A character lies across the bound.
        ..Draft::new(&format!("{}\u{e9}{}", "b".repeat(4_095), "b".repeat(100_000)))
    };
    let many =
        Draft { properties: (0..1_000).map(|n| (n.to_string(), text(1))).collect(), ..Draft::new("m") };
    let long =
        Draft { properties: (0..100).map(|n| (n.to_string(), text(4_000))).collect(), ..Draft::new("n") };
    let (items, next) = first(&mut holding(None, &[small, large, many, long]));
    assert_eq!((items.len(), next), (4, None));
    let cut: Vec<bool> = items.iter().map(|item| item.cut).collect();
    assert_eq!(cut, [false, true, true, true]);
    let lengths = |item: &EventView| -> Vec<(usize, usize)> {
        item.properties.iter().map(|(key, value)| (key.len(), value.len())).collect()
    };
    assert_eq!(
        (lengths(&items[0]), items[0].body.as_ref().map(String::len)),
        (vec![(1, 4_096)], Some(4_096))
    );
    assert_eq!(lengths(&items[1]), [(1, 4_096), (4_096, 1)]);
    assert_eq!(items[1].message_id.as_ref().map(String::len), Some(4_096));
    assert_eq!(items[1].body, Some("b".repeat(4_095)));
    assert_eq!((items[2].properties.len(), items[2].body.as_deref()), (128, Some("m")));
    assert_eq!((items[3].properties.len(), items[3].body.as_deref()), (5, Some("n")));
}

#[test]
fn a_page_ends_where_its_events_become_large() {
    for cache in [None, Some(0)] {
        let draft = |n: u32| Draft {
            properties: vec![("k".into(), text(100_000))],
            priority: Some(u8::try_from(n % 10).unwrap()),
            ..Draft::new(&n.to_string())
        };
        let drafts: Vec<Draft> = (0..100).map(draft).collect();
        let mut broker = holding(cache, &drafts);
        let (items, next) = first(&mut broker);
        let bytes: usize = items.iter().map(EventView::bytes).sum();
        assert!(!items.is_empty() && bytes < 300_000 && next.is_some(), "{} have {bytes}", items.len());
        let all = broker.browse(browse).unwrap();
        let bodies: Vec<String> = all.into_iter().filter_map(|event| event.body).collect();
        let expected: Vec<String> =
            (0..10).rev().flat_map(|level| (0..10).map(move |n| (n * 10 + level).to_string())).collect();
        assert_eq!(bodies, expected);
    }
}

#[test]
fn a_page_of_what_waits_ends_likewise() {
    let draft = |n: u32| Draft {
        properties: vec![("k".into(), text(100_000))],
        annotations: vec![("x-opt-delivery-delay", Value::Uint(1_000))],
        ..Draft::new(&n.to_string())
    };
    let drafts: Vec<Draft> = (0..100).map(draft).collect();
    let mut broker = holding(None, &drafts);
    let (items, next) = scheduled(&mut broker);
    let bytes: usize = items.iter().map(ScheduledView::bytes).sum();
    assert!(!items.is_empty() && bytes < 300_000 && next.is_some(), "{} have {bytes}", items.len());
    assert!(items[0].cut);
    assert_eq!(broker.scheduled(StoreKind::Queue, "q").unwrap().len(), 100);
}
