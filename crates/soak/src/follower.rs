//! The consumer of a named object: follows a channel, and acknowledges from time to time.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use postroad_client::{Client, Credit, Delivery, Error, Receiver};

use crate::books::Violation;
use crate::broker::FOLLOWED;
use crate::clients::{Actor, End, Identity, Shared, TICK};
use crate::consumer::receiver_options;
use crate::control::Phase;
use crate::mark::{Mark, Place, Received};
use crate::random::Random;

/// How long the broker may take to notice that the consumer before us is gone.
const VACANT: Duration = Duration::from_secs(10);

/// An event that is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Owed {
    number: u64,
    id: u64,
    mark: Mark,
    redelivered: bool,
}

/// The consumer of the named object on one channel.
#[derive(Debug)]
pub(crate) struct Follower {
    identity: Identity,
    place: Place,
    random: Random,
    owed: VecDeque<Owed>,
    /// Acknowledgements that were not confirmed: the delivery, the event, and the first delivery that is meant.
    acknowledged: BTreeMap<u64, (u64, u64)>,
}

impl Follower {
    pub(crate) fn new(identity: Identity, place: Place, seed: u64) -> Self {
        let random = Random::new(seed, 300 + identity.index as u64);
        Self { identity, place, random, owed: VecDeque::new(), acknowledged: BTreeMap::new() }
    }

    async fn work(&mut self, shared: &Shared) -> Result<(), End> {
        let client = Client::connect(&self.identity.options).await?;
        let credit = u32::try_from(self.random.between(1, 120)).unwrap_or(1);
        let receiver = attach(&client, &address(self.place, FOLLOWED), credit).await?;
        shared.books().object(self.place)?.begin();
        shared.control.attached(self.identity.index);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                taken = receiver.recv_many(&mut batch, 32) => {
                    taken?;
                    for delivery in batch.drain(..) {
                        self.take(&delivery, shared)?;
                    }
                }
                range = receiver.settled() => {
                    for number in range? {
                        self.settled(number, &receiver, shared)?;
                    }
                }
                () = tokio::time::sleep(TICK) => {}
            }
            match shared.phase() {
                Phase::Load if self.random.happens(3) => return Err(End::Cut),
                Phase::Load if self.random.happens(3) => return self.leave(&client, shared).await,
                Phase::Load => self.acknowledge_by_chance(&receiver, shared)?,
                Phase::Finish => self.acknowledge(usize::MAX, &receiver, shared)?,
                Phase::Stop => {
                    self.leave(&client, shared).await?;
                    return Err(End::Done);
                }
            }
        }
    }

    fn take(&mut self, delivery: &Delivery, shared: &Shared) -> Result<(), End> {
        let received = Received::read(delivery)?;
        let id = shared.books().object(self.place)?.delivered(&received)?;
        let (mark, redelivered) = (received.mark, received.redelivered);
        self.owed.push_back(Owed { number: delivery.number, id, mark, redelivered });
        Ok(())
    }

    fn acknowledge_by_chance(&mut self, receiver: &Receiver, shared: &Shared) -> Result<(), End> {
        let many = self.owed.len();
        if many > 100 || self.random.happens(300) {
            let place = self.random.between(1, many.max(1) as u64);
            self.acknowledge(usize::try_from(place).unwrap_or(1), receiver, shared)?;
        }
        Ok(())
    }

    /// Acknowledges the first few events; half of the times the last of them alone is named, and the others follow when
    /// that is confirmed: for a cumulative acknowledgement there is no difference (EX-3).
    fn acknowledge(&mut self, count: usize, receiver: &Receiver, shared: &Shared) -> Result<(), End> {
        let count = count.min(self.owed.len());
        let events: Vec<Owed> = self.owed.drain(..count).collect();
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
        shared.books().object(self.place)?.acknowledging(last.id);
        let alone = self.random.happens(500);
        let named = if alone { last.number } else { first.number };
        self.acknowledged.insert(last.number, (last.id, if alone { first.number } else { last.number }));
        Ok(receiver.accept(named..=last.number)?)
    }

    /// The broker has settled: the word that we wait for, if we had acknowledged.
    fn settled(&mut self, number: u64, receiver: &Receiver, shared: &Shared) -> Result<(), End> {
        let Some((id, first)) = self.acknowledged.remove(&number) else { return Ok(()) };
        shared.books().object(self.place)?.confirmed(id);
        if first < number {
            receiver.accept(first..=number - 1)?;
        }
        Ok(())
    }

    /// Closes the connection in order: what has no outcome counts as released (AM-14).
    async fn leave(&mut self, client: &Client, shared: &Shared) -> Result<(), End> {
        {
            let mut books = shared.books();
            let book = books.object(self.place)?;
            for owed in &self.owed {
                book.releasing(owed.mark, owed.redelivered);
            }
        }
        Ok(client.close().await?)
    }
}

impl Actor for Follower {
    async fn session(&mut self, shared: &Shared) -> End {
        self.owed.clear();
        self.acknowledged.clear();
        self.work(shared).await.err().unwrap_or(End::Cut)
    }
}

/// The address of a named object.
pub(crate) fn address(place: Place, object: &str) -> String {
    format!("{}::{object}", place.name())
}

/// Attaches to a named object, once the broker has noticed that nobody else has it (EX-1).
async fn attach(client: &Client, address: &str, credit: u32) -> Result<Receiver, End> {
    let began = Instant::now();
    loop {
        match client.receiver(address, receiver_options(Credit::Auto(credit))).await {
            Err(Error::LinkRefused { error, .. }) if error.condition == "amqp:resource-locked" => {
                if began.elapsed() > VACANT {
                    let text = format!("{address} is still taken long after its consumer left: {error}");
                    return Err(Violation::new(text).into());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            other => return Ok(other?),
        }
    }
}
