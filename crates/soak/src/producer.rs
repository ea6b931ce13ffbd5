//! A producer: sends to all three places at once, and whatever was not confirmed again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use postroad_client::codec::state::Outcome;
use postroad_client::{Client, Outcomes, Sender, SenderOptions};

use crate::books::Violation;
use crate::clients::{Actor, End, Identity, Shared, TICK};
use crate::control::Phase;
use crate::mark::{Mark, Place};
use crate::random::Random;

/// Messages of one producer in one place that wait for their confirmation at most.
const UNCONFIRMED: usize = 200;

/// One of the producers.
#[derive(Debug)]
pub(crate) struct Producer {
    identity: Identity,
    publishers: [Publisher; 3],
}

impl Producer {
    /// `number` is the producer's, as its messages carry it.
    pub(crate) fn new(identity: Identity, number: usize, seed: u64) -> Self {
        let publisher = |place: Place| Publisher::new(place, number, seed);
        Self { identity, publishers: Place::ALL.map(publisher) }
    }

    async fn work(&mut self, shared: &Shared) -> Result<(), End> {
        let client = Client::connect(&self.identity.options).await?;
        let [work, stream, live] = &mut self.publishers;
        let senders = tokio::try_join!(work.attach(&client), stream.attach(&client), live.attach(&client))?;
        shared.control.attached(self.identity.index);
        tokio::try_join!(
            work.publish(&senders.0, shared),
            stream.publish(&senders.1, shared),
            live.publish(&senders.2, shared),
        )?;
        client.close().await?;
        Ok(())
    }
}

impl Actor for Producer {
    async fn session(&mut self, shared: &Shared) -> End {
        self.work(shared).await.err().unwrap_or(End::Done)
    }
}

/// What one producer sends to one place.
#[derive(Debug)]
struct Publisher {
    place: Place,
    producer: usize,
    random: Random,
    /// The number of the newest message.
    last: u64,
    unconfirmed: BTreeSet<u64>,
    /// What is to be sent on this link, in order.
    waiting: VecDeque<u64>,
    /// The message of each delivery on this link.
    sent: HashMap<u64, u64>,
}

impl Publisher {
    fn new(place: Place, producer: usize, seed: u64) -> Self {
        let actor = 100 + 10 * producer as u64 + place as u64;
        Self {
            place,
            producer,
            random: Random::new(seed, actor),
            last: 0,
            unconfirmed: BTreeSet::new(),
            waiting: VecDeque::new(),
            sent: HashMap::new(),
        }
    }

    /// A new link: everything unconfirmed is to be sent again.
    async fn attach(&mut self, client: &Client) -> Result<Sender, End> {
        self.waiting = self.unconfirmed.iter().copied().collect();
        self.sent.clear();
        Ok(client.sender(self.place.name(), SenderOptions::default()).await?)
    }

    const fn mark(&self, number: u64) -> Mark {
        Mark { place: self.place, producer: self.producer, number }
    }

    /// Sends and hears of the outcomes, until the load is over and everything is confirmed.
    async fn publish(&mut self, sender: &Sender, shared: &Shared) -> Result<(), End> {
        loop {
            match shared.phase() {
                Phase::Load if self.random.happens(2) => return Err(End::Cut),
                Phase::Load => self.invent(),
                Phase::Finish if self.unconfirmed.is_empty() => return Ok(()),
                Phase::Finish => {}
                Phase::Stop => return Err(End::Done),
            }
            self.send(sender, shared)?;
            let pause = Duration::from_millis(self.random.between(0, 8)).max(Duration::from_micros(500));
            if let Ok(outcomes) = tokio::time::timeout(pause.min(TICK), sender.outcomes()).await {
                self.confirmed(&outcomes?, shared)?;
            }
            while let Some(outcomes) = sender.try_outcomes() {
                self.confirmed(&outcomes, shared)?;
            }
        }
    }

    /// Makes up a few new messages.
    fn invent(&mut self) {
        for _ in 0..self.random.between(0, 12) {
            if self.unconfirmed.len() < UNCONFIRMED {
                self.last += 1;
                self.unconfirmed.insert(self.last);
                self.waiting.push_back(self.last);
            }
        }
    }

    fn send(&mut self, sender: &Sender, shared: &Shared) -> Result<(), End> {
        while let Some(&number) = self.waiting.front() {
            let mark = self.mark(number);
            shared.books().published.sending(mark);
            let Some(delivery) = sender.try_send(&[mark.message()], false)? else { return Ok(()) };
            self.sent.insert(delivery, number);
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn confirmed(&mut self, outcomes: &Outcomes, shared: &Shared) -> Result<(), End> {
        for delivery in outcomes.first..=outcomes.last {
            let Some(number) = self.sent.remove(&delivery) else {
                let text = format!("delivery {delivery} to {} has two outcomes", self.place.name());
                return Err(Violation::new(text).into());
            };
            if outcomes.outcome != Outcome::Accepted {
                let text = format!("{} was not taken: {:?}", self.mark(number), outcomes.outcome);
                return Err(Violation::new(text).into());
            }
            if self.unconfirmed.remove(&number) {
                shared.books().published.confirmed += 1;
            }
        }
        Ok(())
    }
}
