//! What must be true of everything that clients were told: the books that find a broken promise.

mod queue;
mod stream;

pub(crate) use queue::{QueueBook, SessionId};
pub(crate) use stream::StreamBook;

use crate::mark::{Mark, PRODUCERS, Place};

/// A promise that the broker broke; the text says which.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Violation(String);

impl Violation {
    /// What is wrong, as a sentence.
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}

/// All books.
#[derive(Debug)]
pub(crate) struct Books {
    /// What was sent and confirmed.
    pub(crate) published: Published,
    /// The queue with its consumers.
    pub(crate) work: QueueBook,
    /// The named object on the channel that keeps everything.
    pub(crate) stream: StreamBook,
    /// The named object on the channel that keeps what somebody still needs.
    pub(crate) live: StreamBook,
}

impl Books {
    pub(crate) fn new() -> Self {
        Self {
            published: Published::default(),
            work: QueueBook::default(),
            stream: StreamBook::new(Place::Stream),
            live: StreamBook::new(Place::Live),
        }
    }

    /// The book of the named object on a channel.
    ///
    /// # Errors
    /// [`Violation`] for the queue, which has none.
    pub(crate) fn object(&mut self, place: Place) -> Result<&mut StreamBook, Violation> {
        match place {
            Place::Stream => Ok(&mut self.stream),
            Place::Live => Ok(&mut self.live),
            Place::Work => Err(Violation::new("the queue has no named object".to_owned())),
        }
    }

    /// The broker is gone and all connections with it: a new life begins.
    pub(crate) fn crashed(&mut self) {
        self.work.crashed();
        self.stream.crashed();
        self.live.crashed();
    }

    /// A number that grows whenever anything happens.
    pub(crate) const fn progress(&self) -> u64 {
        let published = self.published.confirmed;
        published + self.work.progress() + self.stream.deliveries() + self.live.deliveries()
    }
}

/// What producers have sent.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The highest number of each producer in each place.
    last: [[u64; PRODUCERS]; 3],
    /// How many messages the broker has confirmed.
    pub(crate) confirmed: u64,
}

impl Published {
    /// A message is about to be sent, perhaps again.
    pub(crate) fn sending(&mut self, mark: Mark) {
        if let Some(last) = self.row_mut(mark.place).get_mut(mark.producer) {
            *last = mark.number.max(*last);
        }
    }

    /// The highest numbers, by producer.
    pub(crate) const fn row(&self, place: Place) -> [u64; PRODUCERS] {
        self.last[place as usize]
    }

    const fn row_mut(&mut self, place: Place) -> &mut [u64; PRODUCERS] {
        &mut self.last[place as usize]
    }

    /// How many messages were sent to a place.
    pub(crate) fn count(&self, place: Place) -> u64 {
        self.row(place).iter().sum()
    }

    /// Every message that was sent to a place.
    pub(crate) fn marks(&self, place: Place) -> impl Iterator<Item = Mark> {
        let rows = self.row(place).into_iter().enumerate();
        rows.flat_map(move |(producer, last)| (1..=last).map(move |number| Mark { place, producer, number }))
    }
}
