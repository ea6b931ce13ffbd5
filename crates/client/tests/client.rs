//! The client against a toy broker.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod support;

use bytes::Bytes;
use postroad_client::codec::message::{Body, Message};
use postroad_client::codec::performative::{ReceiverSettleMode, SenderSettleMode};
use postroad_client::codec::state::{DeliveryState, Outcome};
use postroad_client::codec::{Encode, Value};
use postroad_client::{Client, Credit, Error, NodeKind, ReceiverOptions, SenderOptions};
use support::{connect, options, start};

fn message(text: &str) -> Message {
    Message { body: Body::Value(Value::from(text)), ..Message::default() }
}

#[tokio::test]
async fn a_message_goes_round() {
    let (address, toy) = start().await;
    let client = connect(address).await;
    assert_eq!(client.peer().container_id, "toy");
    let sender = client.sender("q", SenderOptions::default()).await.unwrap();
    assert_eq!(sender.send(&message("hello")).await, Ok(Outcome::Accepted));
    let receiver = client.receiver("q", ReceiverOptions::default()).await.unwrap();
    let delivery = receiver.recv().await.unwrap().unwrap();
    assert_eq!(delivery.message().unwrap(), message("hello"));
    receiver.accept(delivery.number..=delivery.number).unwrap();
    receiver.close().await.unwrap();
    sender.close().await.unwrap();
    client.close().await.unwrap();
    assert_eq!(toy.lock().unwrap().settled, [(0, 0, DeliveryState::Accepted)]);
    assert_eq!(client.failed().await, Error::Closed);
}

#[tokio::test]
async fn many_messages_in_order_with_small_windows() {
    let (address, toy) = start().await;
    let client = connect(address).await;
    let sender = client.sender("q", SenderOptions { window: 7, ..SenderOptions::default() }).await.unwrap();
    let credit = ReceiverOptions { credit: Credit::Auto(5), ..ReceiverOptions::default() };
    let receiver = client.receiver("q", credit).await.unwrap();
    let sending = async {
        let (mut sent, mut confirmed) = (0, 0);
        while confirmed < 500 {
            let payload = [message(&sent.to_string()).to_bytes()];
            if sent < 500 && sender.try_send(&payload, false).unwrap().is_some() {
                assert!(sender.open() <= 7);
                sent += 1;
                continue;
            }
            let outcomes = sender.outcomes().await.unwrap();
            assert_eq!((outcomes.first, outcomes.outcome), (confirmed, Outcome::Accepted));
            confirmed = outcomes.last + 1;
        }
        assert_eq!(sender.open(), 0);
    };
    let receiving = async {
        let (mut all, mut next) = (Vec::new(), 0);
        while next < 500 {
            receiver.recv_many(&mut all, 64).await.unwrap();
            for delivery in all.drain(..) {
                assert_eq!(delivery.number, next);
                assert_eq!(delivery.message().unwrap(), message(&next.to_string()));
                next += 1;
            }
            receiver.accept(0..=next - 1).unwrap();
        }
    };
    tokio::join!(sending, receiving);
    client.close().await.unwrap();
    let settled: u64 = toy.lock().unwrap().settled.iter().map(|(first, last, _)| last - first + 1).sum();
    assert_eq!(settled, 500);
}

#[tokio::test]
async fn outcomes_reach_those_who_wait_for_them() {
    let (address, _toy) = start().await;
    let client = connect(address).await;
    let sender = client.sender("odd", SenderOptions::default()).await.unwrap();
    let (a, b, c) = (message("a"), message("b"), message("c"));
    let waited = async { tokio::join!(sender.send(&a), sender.send(&b)) };
    let (waited, ()) = tokio::join!(waited, async {
        assert_eq!(sender.try_send(&[c.to_bytes()], false), Ok(Some(2)));
        let outcomes = sender.outcomes().await.unwrap();
        assert_eq!((outcomes.first, outcomes.last, outcomes.outcome), (2, 2, Outcome::Accepted));
    });
    assert_eq!(waited, (Ok(Outcome::Accepted), Ok(Outcome::Released)));
    let sender = client.sender("reject", SenderOptions::default()).await.unwrap();
    assert!(matches!(sender.send(&a).await, Ok(Outcome::Rejected { error: Some(_) })));
}

#[tokio::test]
async fn large_messages_come_whole() {
    let (address, _toy) = start().await;
    let client = connect(address).await;
    let body = Bytes::from(vec![7; 1_000_000]);
    let large = Message { body: Body::Data(vec![body]), ..Message::default() };
    let sender = client.sender("q", SenderOptions::default()).await.unwrap();
    assert_eq!(sender.max_message_size(), Some(1 << 20));
    assert_eq!(sender.send(&large).await, Ok(Outcome::Accepted));
    let receiver = client.receiver("q", ReceiverOptions::default()).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap().message().unwrap(), large);
    let too_large = Message { body: Body::Data(vec![Bytes::from(vec![7; 2_000_000])]), ..Message::default() };
    assert_eq!(sender.send(&too_large).await, Err(Error::TooLarge));
    assert_eq!(sender.send(&message("still here")).await, Ok(Outcome::Accepted));
}

#[tokio::test]
async fn settled_messages_are_all_written_before_the_link_closes() {
    let (address, toy) = start().await;
    let client = connect(address).await;
    let options = SenderOptions { settle_mode: SenderSettleMode::Settled, ..SenderOptions::default() };
    let sender = client.sender("q", options).await.unwrap();
    for number in 0..50 {
        sender.send_settled(&message(&number.to_string())).await.unwrap();
    }
    sender.close().await.unwrap();
    client.close().await.unwrap();
    assert_eq!(toy.lock().unwrap().queues["q"].len(), 50);
}

#[tokio::test]
async fn a_drain_ends() {
    let (address, _toy) = start().await;
    let client = connect(address).await;
    let sender = client.sender("q", SenderOptions::default()).await.unwrap();
    for number in 0..3 {
        sender.send(&message(&number.to_string())).await.unwrap();
    }
    let manual = ReceiverOptions { credit: Credit::Manual, ..ReceiverOptions::default() };
    let receiver = client.receiver("q", manual).await.unwrap();
    for (credit, expected) in [(2, 2), (5, 1), (5, 0)] {
        receiver.drain(credit).unwrap();
        let mut got = 0;
        while receiver.recv().await.unwrap().is_some() {
            got += 1;
        }
        assert_eq!(got, expected);
    }
    sender.send(&message("more")).await.unwrap();
    receiver.grant(1).unwrap();
    assert!(receiver.recv().await.unwrap().is_some());
}

#[tokio::test]
async fn every_way_to_settle_is_told() {
    let (address, toy) = start().await;
    let client = connect(address).await;
    let sender = client.sender("q", SenderOptions::default()).await.unwrap();
    let second =
        ReceiverOptions { receiver_settle_mode: ReceiverSettleMode::Second, ..ReceiverOptions::default() };
    let receiver = client.receiver("q", second).await.unwrap();
    for _ in 0..4 {
        sender.send(&message("x")).await.unwrap();
        receiver.recv().await.unwrap();
    }
    receiver.accept(0..=0).unwrap();
    receiver.release(1..=1).unwrap();
    receiver.reject(2..=2, None).unwrap();
    receiver.modify(3..=3, true, false).unwrap();
    let mut next = 0;
    while next < 4 {
        let range = receiver.settled().await.unwrap();
        assert_eq!(*range.start(), next);
        next = range.end() + 1;
    }
    assert_eq!(receiver.try_settled(), None);
    receiver.close().await.unwrap();
    let modified = DeliveryState::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        message_annotations: None,
    };
    let rejected = DeliveryState::Rejected { error: None };
    let expected = [DeliveryState::Accepted, DeliveryState::Released, rejected, modified];
    let settled: Vec<_> = toy.lock().unwrap().settled.iter().map(|(_, _, state)| state.clone()).collect();
    assert_eq!(settled, expected);
}

#[tokio::test]
async fn attach_says_what_the_options_say() {
    let (address, toy) = start().await;
    let client = connect(address).await;
    let options = ReceiverOptions {
        kind: Some(NodeKind::Topic),
        selector: Some("a = 1".to_owned()),
        no_local: true,
        durable: Some("sub".to_owned()),
        copy: true,
        ..ReceiverOptions::default()
    };
    let receiver = client.receiver("t", options).await.unwrap();
    let attach = toy.lock().unwrap().attached[0].clone();
    let source = attach.source.unwrap();
    assert_eq!(attach.name, "sub");
    assert_eq!(source.capabilities, ["topic"]);
    assert_eq!(source.filter.as_ref().unwrap().len(), 2);
    assert_eq!(source.expiry_policy.as_str(), "never");
    receiver.detach().await.unwrap();
    assert_eq!(client.unsubscribe("sub").await, Ok(()));
    assert!(matches!(client.unsubscribe("sub").await, Err(Error::LinkRefused { .. })));
    let dynamic = SenderOptions { dynamic: true, ..SenderOptions::default() };
    assert_eq!(client.sender("", dynamic).await.unwrap().address(), Some("made-up"));
}

#[tokio::test]
async fn refusals_carry_the_reason() {
    let (address, _toy) = start().await;
    let client = connect(address).await;
    let error = client.sender("nowhere", SenderOptions::default()).await.unwrap_err();
    assert_eq!(error.peer().unwrap().condition, "amqp:not-found");
    assert_eq!(error.to_string(), "the broker refused nowhere: no such queue (amqp:not-found)");
    let sender = client.sender("kick", SenderOptions::default()).await.unwrap();
    assert!(matches!(sender.send(&message("x")).await, Err(Error::LinkDetached(_))));
    assert!(matches!(sender.ready().await, Err(Error::LinkDetached(_))));
    let sender = client.sender("crash", SenderOptions::default()).await.unwrap();
    assert!(matches!(sender.send(&message("x")).await, Err(Error::ConnectionClosed(_))));
    let error = client.failed().await;
    assert_eq!(error.peer().unwrap().condition, "amqp:connection:forced");
    assert!(client.sender("q", SenderOptions::default()).await.is_err());
}

#[tokio::test]
async fn logins() {
    let (address, _toy) = start().await;
    let mut options = options(address);
    options.url.user = Some("alice".to_owned());
    options.url.password = Some("secret".to_owned());
    Client::connect(&options).await.unwrap().close().await.unwrap();
    options.url.password = None;
    assert!(matches!(Client::connect(&options).await, Err(Error::Login { .. })));
    options.skip_sasl = true;
    Client::connect(&options).await.unwrap();
    options.container_id = "unwanted".to_owned();
    assert!(matches!(Client::connect(&options).await, Err(Error::ConnectionClosed(_))));
}

#[tokio::test]
async fn nobody_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = options(address);
    options.timeout = std::time::Duration::from_millis(50);
    assert!(matches!(Client::connect(&options).await, Err(Error::TimedOut { .. })));
    drop(listener);
    assert!(Client::connect(&options).await.unwrap_err().is_unreachable());
}
