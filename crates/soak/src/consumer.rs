//! A consumer of the queue: accepts, gives back, holds, and leaves, by chance.

use std::collections::BTreeMap;

use postroad_client::codec::performative::ReceiverSettleMode;
use postroad_client::{Client, Credit, Delivery, Receiver, ReceiverOptions};

use crate::books::SessionId;
use crate::clients::{Actor, End, Identity, Shared, TICK};
use crate::control::Phase;
use crate::mark::{Mark, Place, Received};
use crate::random::Random;

/// Deliveries that a consumer holds without an outcome at most.
const HELD: usize = 40;

/// How a consumer attaches: it settles after the broker, so that it knows what the broker has made durable.
pub(crate) fn receiver_options(credit: Credit) -> ReceiverOptions {
    ReceiverOptions { credit, receiver_settle_mode: ReceiverSettleMode::Second, ..ReceiverOptions::default() }
}

/// One of the consumers.
#[derive(Debug)]
pub(crate) struct Consumer {
    identity: Identity,
    random: Random,
    /// Deliveries without an outcome.
    held: BTreeMap<u64, Mark>,
    /// Deliveries that were accepted and not confirmed.
    accepted: BTreeMap<u64, Mark>,
}

impl Consumer {
    pub(crate) fn new(identity: Identity, seed: u64) -> Self {
        let random = Random::new(seed, 200 + identity.index as u64);
        Self { identity, random, held: BTreeMap::new(), accepted: BTreeMap::new() }
    }

    async fn work(&mut self, shared: &Shared, session: SessionId) -> Result<(), End> {
        let client = Client::connect(&self.identity.options).await?;
        let credit = u32::try_from(self.random.between(1, 60)).unwrap_or(1);
        let options = receiver_options(Credit::Auto(credit));
        let receiver = client.receiver(Place::Work.name(), options).await?;
        shared.control.attached(self.identity.index);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                taken = receiver.recv_many(&mut batch, 16) => {
                    taken?;
                    for delivery in batch.drain(..) {
                        self.take(&delivery, &receiver, shared, session)?;
                    }
                }
                range = receiver.settled() => {
                    for number in range? {
                        self.settled(number, shared);
                    }
                }
                () = tokio::time::sleep(TICK) => {}
            }
            match shared.phase() {
                Phase::Load if self.random.happens(3) => return Err(End::Cut),
                Phase::Load if self.random.happens(3) => return self.leave(&client, shared, session).await,
                Phase::Load => {}
                Phase::Finish => self.accept_held(&receiver, shared)?,
                Phase::Stop => {
                    self.leave(&client, shared, session).await?;
                    return Err(End::Done);
                }
            }
        }
    }

    fn take(
        &mut self,
        delivery: &Delivery,
        receiver: &Receiver,
        shared: &Shared,
        session: SessionId,
    ) -> Result<(), End> {
        let received = Received::read(delivery)?;
        let (mark, number) = (received.mark, delivery.number);
        shared.books().work.delivered(session, &received)?;
        let choice = if shared.phase() == Phase::Load { self.random.between(0, 99) } else { 0 };
        match choice {
            0..82 => self.accept(number, mark, receiver, shared)?,
            82..88 => {
                shared.books().work.releasing(mark);
                receiver.release(number..=number)?;
            }
            88..92 => {
                shared.books().work.failing(mark);
                receiver.modify(number..=number, true, false)?;
            }
            _ => {
                self.held.insert(number, mark);
            }
        }
        if self.held.len() > HELD || self.random.happens(50) {
            // Out of order: what came first is accepted after what came later.
            if let Some((number, mark)) = self.held.pop_first() {
                self.accept(number, mark, receiver, shared)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, number: u64, mark: Mark, receiver: &Receiver, shared: &Shared) -> Result<(), End> {
        shared.books().work.accepting(mark);
        self.accepted.insert(number, mark);
        Ok(receiver.accept(number..=number)?)
    }

    fn accept_held(&mut self, receiver: &Receiver, shared: &Shared) -> Result<(), End> {
        while let Some((number, mark)) = self.held.pop_first() {
            self.accept(number, mark, receiver, shared)?;
        }
        Ok(())
    }

    /// The broker has settled: the word that we wait for, if we had accepted.
    fn settled(&mut self, number: u64, shared: &Shared) {
        if let Some(mark) = self.accepted.remove(&number) {
            shared.books().work.confirmed(mark);
        }
    }

    /// Closes the connection in order: what has no outcome counts as released (AM-14).
    async fn leave(&mut self, client: &Client, shared: &Shared, session: SessionId) -> Result<(), End> {
        {
            let mut books = shared.books();
            for mark in self.held.values() {
                books.work.releasing(*mark);
            }
            books.work.end(session);
        }
        Ok(client.close().await?)
    }
}

impl Actor for Consumer {
    async fn session(&mut self, shared: &Shared) -> End {
        let session = shared.books().work.begin();
        let result = self.work(shared, session).await;
        // Before the socket closes: then the broker gives to others what was out here.
        shared.books().work.end(session);
        self.held.clear();
        self.accepted.clear();
        result.err().unwrap_or(End::Cut)
    }
}
