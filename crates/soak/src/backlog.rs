//! A long backlog (`--backlog N`) that lies on a queue of its own all the time: nobody reads it before the end, and every
//! start has to find it. Then it is all there, in its order, each message once.

use bytes::Bytes;
use postroad_client::codec::Encode;
use postroad_client::codec::message::{Body, Header, Message, MessageId, Properties};
use postroad_client::codec::state::Outcome;
use postroad_client::{Client, SenderOptions};

use crate::audit;
use crate::books::Violation;
use crate::broker::Broker;

/// The queue.
pub(crate) const COLD: &str = "cold";

/// Bytes of a body.
const SIZE: usize = 100;

/// Messages that wait for their confirmation at most.
const WINDOW: u32 = 5_000;

/// Deliveries asked for at once.
const BATCH: u32 = 5_000;

/// Sends the messages, numbered from 0, until all are confirmed.
///
/// # Errors
/// [`Violation`] if the broker refuses one or ends the connection.
pub(crate) fn fill(broker: &Broker, messages: u64) -> Result<(), Violation> {
    if messages == 0 {
        return Ok(());
    }
    audit::on_a_connection(broker, async |client| {
        let options = SenderOptions { window: WINDOW, ..SenderOptions::default() };
        let sender = client.sender(COLD, options).await.map_err(|e| audit::failed(&e))?;
        let mut confirmed = 0;
        for number in 0..messages {
            let payload = [message(number)];
            while sender.try_send(&payload, false).map_err(|e| audit::failed(&e))?.is_none() {
                confirmed += taken(sender.outcomes().await.map_err(|e| audit::failed(&e))?)?;
            }
        }
        while confirmed < messages {
            confirmed += taken(sender.outcomes().await.map_err(|e| audit::failed(&e))?)?;
        }
        sender.close().await.map_err(|e| audit::failed(&e))
    })
}

/// Reads all of it and checks that it is what was sent.
///
/// # Errors
/// The first [`Violation`].
pub(crate) async fn check(client: &Client, messages: u64) -> Result<(), Violation> {
    let receiver = audit::attach(client, COLD).await?;
    let mut next = 0;
    loop {
        let deliveries = audit::drain(&receiver, BATCH).await?;
        if deliveries.is_empty() {
            break;
        }
        for delivery in &deliveries {
            let message = delivery.message().map_err(|e| Violation::new(format!("{COLD}: {e}")))?;
            let number = match message.properties.and_then(|properties| properties.message_id) {
                Some(MessageId::Ulong(number)) => number,
                other => {
                    return Err(Violation::new(format!(
                        "{COLD} holds a message that nobody sent: {other:?}"
                    )));
                }
            };
            if number != next || next == messages {
                let text = format!("{COLD} gives message {number} of {messages} where {next} was to come");
                return Err(Violation::new(text));
            }
            next += 1;
        }
        audit::accept(&receiver, &deliveries).await?;
    }
    if next == messages {
        return Ok(());
    }
    Err(Violation::new(format!("{COLD} ends with message {next} of {messages} confirmed ones")))
}

fn taken(outcomes: postroad_client::Outcomes) -> Result<u64, Violation> {
    match outcomes.outcome {
        Outcome::Accepted => Ok(outcomes.last - outcomes.first + 1),
        other => Err(Violation::new(format!("{COLD}: a message was not accepted: {other:?}"))),
    }
}

fn message(number: u64) -> Bytes {
    let message = Message {
        header: Some(Header { durable: true, ..Header::default() }),
        properties: Some(Properties { message_id: Some(MessageId::Ulong(number)), ..Properties::default() }),
        body: Body::Data(vec![Bytes::from_static(&[b'.'; SIZE])]),
        ..Message::default()
    };
    message.to_bytes()
}
