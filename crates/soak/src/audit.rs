//! What is left when the load is over: every message once, where it belongs, and nothing else.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use postroad_client::{Client, Credit, Delivery, Error, Receiver};
use tokio::runtime::Builder;

use crate::backlog;
use crate::books::{Books, StreamBook, Violation};
use crate::broker::{Broker, FOLLOWED, JOINED, UNREAD};
use crate::clients::Shared;
use crate::consumer::receiver_options;
use crate::follower::address;
use crate::mark::{Place, Received};

/// How long joins may take to carry what is left.
const SETTLED: Duration = Duration::from_secs(60);

/// Deliveries asked for at once.
const BATCH: u32 = 500;

/// Checks every store.
///
/// # Errors
/// The first [`Violation`].
pub(crate) fn check_all(broker: &Broker, shared: &Shared, backlog: u64) -> Result<(), Violation> {
    let mut books = shared.books();
    on_a_connection(broker, async |client| {
        check_work(&client, &mut books).await?;
        check_stream(&client, &books).await?;
        check_joined(&client, &books).await?;
        backlog::check(&client, backlog).await
    })?;
    // Everybody has what they need of it, so nothing is kept (RET-1).
    let began = Instant::now();
    loop {
        match broker.depth(Place::Live.name())? {
            0 => return Ok(()),
            _ if began.elapsed() < SETTLED => std::thread::sleep(Duration::from_millis(20)),
            depth => return Err(Violation::new(format!("live keeps {depth} events that nobody needs"))),
        }
    }
}

/// Checks that nothing comes any more from where everything was acknowledged.
///
/// # Errors
/// The first [`Violation`].
pub(crate) fn check_empty(broker: &Broker) -> Result<(), Violation> {
    on_a_connection(broker, async |client| {
        let objects = [(Place::Stream, FOLLOWED), (Place::Stream, UNREAD), (Place::Live, FOLLOWED)];
        let objects = objects.map(|(place, object)| address(place, object));
        let queues = [Place::Work.name(), JOINED, backlog::COLD].map(str::to_owned);
        for address in queues.iter().chain(&objects) {
            let receiver = attach(&client, address).await?;
            if let Some(delivery) = drain(&receiver, 1).await?.first() {
                let mark = Received::read(delivery)?.mark;
                let text = format!("{address}: {mark} was acknowledged, confirmed, and came after a crash");
                return Err(Violation::new(text));
            }
        }
        Ok(())
    })
}

/// All that consumers were sent and did not keep has come back to the queue and was accepted.
async fn check_work(client: &Client, books: &mut Books) -> Result<(), Violation> {
    let session = books.work.begin();
    let receiver = attach(client, Place::Work.name()).await?;
    loop {
        let deliveries = drain(&receiver, BATCH).await?;
        if deliveries.is_empty() {
            break;
        }
        for delivery in &deliveries {
            let received = Received::read(delivery)?;
            books.work.delivered(session, &received)?;
            books.work.accepting(received.mark);
        }
        accept(&receiver, &deliveries).await?;
    }
    let missing = books.work.missing(&books.published);
    match missing.first() {
        None => Ok(()),
        Some(mark) => Err(Violation::new(format!("{mark} was confirmed and is lost"))),
    }
}

/// The channel holds every message once, in order, with the event ids that its follower saw.
async fn check_stream(client: &Client, books: &Books) -> Result<(), Violation> {
    let mut unread = StreamBook::new(Place::Stream);
    unread.begin();
    let receiver = attach(client, &address(Place::Stream, UNREAD)).await?;
    loop {
        let deliveries = drain(&receiver, BATCH).await?;
        for delivery in &deliveries {
            let received = Received::read(delivery)?;
            let id = unread.delivered(&received)?;
            let seen = books.stream.event_id(received.mark);
            if seen != Some(id) {
                let text = format!("{} is event {id}, but its follower saw {seen:?}", received.mark);
                return Err(Violation::new(text));
            }
            unread.acknowledging(id);
        }
        if deliveries.is_empty() {
            break;
        }
        accept(&receiver, &deliveries).await?;
    }
    if unread.is_complete(&books.published) {
        return Ok(());
    }
    let (sent, came) = (books.published.row(Place::Stream), unread.counts());
    Err(Violation::new(format!("stream holds {came:?} of {sent:?} confirmed messages")))
}

/// The queue behind the joins holds every message of both channels once, with the identity that it got there.
async fn check_joined(client: &Client, books: &Books) -> Result<(), Violation> {
    let receiver = attach(client, JOINED).await?;
    let mut found = HashSet::new();
    let expected = books.published.count(Place::Stream) + books.published.count(Place::Live);
    let mut since = Instant::now();
    loop {
        let deliveries = drain(&receiver, BATCH).await?;
        for delivery in &deliveries {
            check_one_joined(&Received::read(delivery)?, books, &mut found)?;
        }
        let complete = u64::try_from(found.len()) == Ok(expected);
        if !deliveries.is_empty() {
            accept(&receiver, &deliveries).await?;
            since = Instant::now();
        } else if complete {
            return Ok(());
        } else if since.elapsed() > SETTLED {
            let text = format!("{JOINED} got {} of {expected} messages over its joins", found.len());
            return Err(Violation::new(text));
        } else {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn check_one_joined(
    received: &Received,
    books: &Books,
    found: &mut HashSet<crate::mark::Mark>,
) -> Result<(), Violation> {
    let mark = received.mark;
    let source = match mark.place {
        Place::Stream => books.stream.event_id(mark),
        Place::Live => books.live.event_id(mark),
        Place::Work => None,
    };
    if received.origin_id != source {
        let text = format!("{JOINED}: {mark} came with origin id {:?}, not {source:?}", received.origin_id);
        return Err(Violation::new(text));
    }
    if found.insert(mark) {
        return Ok(());
    }
    Err(Violation::new(format!("{JOINED} holds {mark} twice")))
}

/// Does something on a connection of its own.
///
/// # Errors
/// What that gives; [`Violation`] if the connection can't be made, or ends.
pub(crate) fn on_a_connection(
    broker: &Broker,
    check: impl AsyncFnOnce(Client) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Violation::new(format!("no runtime for the last checks: {e}")))?;
    runtime.block_on(async {
        let client = Client::connect(&broker.options("auditor")).await.map_err(|e| failed(&e))?;
        check(client.clone()).await?;
        client.close().await.map_err(|e| failed(&e))
    })
}

pub(crate) fn failed(error: &Error) -> Violation {
    Violation::new(format!("the auditor's connection was cut off: {error}"))
}

/// A receiver that asks for what it wants.
pub(crate) async fn attach(client: &Client, address: &str) -> Result<Receiver, Violation> {
    client.receiver(address, receiver_options(Credit::Manual)).await.map_err(|e| failed(&e))
}

/// What the broker has to give now, up to so many.
pub(crate) async fn drain(receiver: &Receiver, most: u32) -> Result<Vec<Delivery>, Violation> {
    receiver.drain(most).map_err(|e| failed(&e))?;
    let mut deliveries = Vec::new();
    let all = async {
        while receiver.recv_many(&mut deliveries, most as usize).await? > 0 {}
        Ok(())
    };
    answered(receiver, "end a drain", all).await?;
    Ok(deliveries)
}

/// Gives the broker the time that any answer may take.
async fn answered(
    receiver: &Receiver,
    what: &str,
    answer: impl Future<Output = Result<(), Error>>,
) -> Result<(), Violation> {
    match tokio::time::timeout(SETTLED, answer).await {
        Ok(answer) => answer.map_err(|e| failed(&e)),
        Err(_) => {
            let address = receiver.address().unwrap_or_default();
            Err(Violation::new(format!(
                "{address}: the broker did not {what} within {} s",
                SETTLED.as_secs()
            )))
        }
    }
}

/// Accepts deliveries that follow each other, and waits until the broker has confirmed.
pub(crate) async fn accept(receiver: &Receiver, deliveries: &[Delivery]) -> Result<(), Violation> {
    let (Some(first), Some(last)) = (deliveries.first(), deliveries.last()) else { return Ok(()) };
    receiver.accept(first.number..=last.number).map_err(|e| failed(&e))?;
    let confirmed = async {
        let mut next = first.number;
        while next <= last.number {
            next = next.max(receiver.settled().await?.end() + 1);
        }
        Ok(())
    };
    answered(receiver, "confirm", confirmed).await
}
