//! Messages through the relays, by the client.

#![allow(clippy::unwrap_used)]

use postroad_bench::{Relay, Storing};
use postroad_client::codec::message::{Body, Message};
use postroad_client::codec::performative::SenderSettleMode;
use postroad_client::codec::state::Outcome;
use postroad_client::codec::{Encode, Value};
use postroad_client::{Client, ConnectOptions, Credit, ReceiverOptions, SenderOptions};

fn message(number: u64) -> Message {
    Message { body: Body::Value(Value::Ulong(number)), ..Message::default() }
}

async fn start(storing: &Storing) -> ConnectOptions {
    let relay = Relay::listen("127.0.0.1:0", storing).await.unwrap();
    let port = relay.port().unwrap();
    tokio::spawn(relay.serve(|error| panic!("{error}")));
    ConnectOptions::new(format!("127.0.0.1:{port}").parse().unwrap())
}

async fn goes_through(storing: &Storing) {
    let options = start(storing).await;
    let (one, two) = tokio::join!(Client::connect(&options), Client::connect(&options));
    let (consumer, producer) = (one.unwrap(), two.unwrap());
    let credit = ReceiverOptions { credit: Credit::Auto(20), ..ReceiverOptions::default() };
    let receiver = consumer.receiver("any", credit).await.unwrap();
    let sender = producer.sender("any", SenderOptions::default()).await.unwrap();
    for number in 0..100 {
        assert_eq!(sender.send(&message(number)).await, Ok(Outcome::Accepted));
        let delivery = receiver.recv().await.unwrap().unwrap();
        assert_eq!(delivery.message().unwrap(), message(number));
        receiver.accept(number..=number).unwrap();
    }
    sender.close().await.unwrap();
    producer.close().await.unwrap();
    receiver.close().await.unwrap();
    consumer.close().await.unwrap();
}

#[tokio::test]
async fn the_forwarder_copies() {
    goes_through(&Storing::No).await;
}

#[tokio::test]
async fn the_joined_one_stores_and_copies() {
    let folder = tempfile::tempdir().unwrap();
    goes_through(&Storing::In(folder.path().to_owned())).await;
    let size: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(size > 0);
}

#[tokio::test]
async fn a_producer_without_a_consumer_goes_on() {
    let options = start(&Storing::No).await;
    let client = Client::connect(&options).await.unwrap();
    let settled = SenderOptions { settle_mode: SenderSettleMode::Settled, ..SenderOptions::default() };
    let sender = client.sender("any", settled).await.unwrap();
    for number in 0..5000 {
        sender.ready().await.unwrap();
        assert_eq!(sender.try_send(&[message(number).to_bytes()], true), Ok(Some(number)));
    }
    sender.close().await.unwrap();
    client.close().await.unwrap();
}
