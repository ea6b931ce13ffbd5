//! The messages: each says in its message-id which one it is, and its body follows from that.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use postroad_client::Delivery;
use postroad_client::codec::message::{Body, Header, Message, MessageId, Properties};
use postroad_client::codec::{Encode, Value};

use crate::books::Violation;
use crate::random::Random;

/// How many producers there are.
pub(crate) const PRODUCERS: usize = 3;

/// Where producers send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The queue that the consumers share.
    Work,
    /// The channel that keeps everything.
    Stream,
    /// The channel that keeps what somebody still needs.
    Live,
}

impl Place {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Work, Self::Stream, Self::Live];

    /// The name of the queue or channel.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Stream => "stream",
            Self::Live => "live",
        }
    }
}

/// Which message: the `number`th, from 1, that a producer sends to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    /// Where it was sent to.
    pub(crate) place: Place,
    /// Who sent it.
    pub(crate) producer: usize,
    /// Its number, from 1.
    pub(crate) number: u64,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.place.name(), self.producer, self.number)
    }
}

impl FromStr for Mark {
    type Err = Violation;

    fn from_str(text: &str) -> Result<Self, Violation> {
        let parsed = || {
            let mut parts = text.split('/');
            let (place, producer, number) = (parts.next()?, parts.next()?, parts.next()?);
            let place = Place::ALL.into_iter().find(|known| known.name() == place)?;
            let producer = producer.parse().ok().filter(|producer| *producer < PRODUCERS)?;
            let number = number.parse().ok().filter(|number| *number > 0)?;
            parts.next().is_none().then_some(Self { place, producer, number })
        };
        parsed()
            .ok_or_else(|| Violation::new(format!("a message came that nobody sent: message-id {text:?}")))
    }
}

impl Mark {
    /// The encoded message.
    pub(crate) fn message(self) -> Bytes {
        let id = MessageId::String(self.to_string());
        let message = Message {
            header: Some(Header { durable: true, ..Header::default() }),
            properties: Some(Properties { message_id: Some(id), ..Properties::default() }),
            body: Body::Data(vec![self.body()]),
            ..Message::default()
        };
        message.to_bytes()
    }

    /// Mostly small, some of several pages, a few of several frames.
    fn body(self) -> Bytes {
        let actor = ((self.place as u64) << 8) | self.producer as u64;
        let mut random = Random::new(self.number, actor);
        let words = match random.between(0, 999) {
            0..=1 => random.between(10_000, 20_000),
            2..=20 => random.between(500, 3_000),
            _ => random.between(1, 60),
        };
        (0..words).flat_map(|_| random.next().to_be_bytes()).collect()
    }
}

/// A message that came back, as far as anything is to be checked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Which one it is.
    pub(crate) mark: Mark,
    /// Whether it came flagged as redelivered: its count of failed deliveries is not 0 (AK-4).
    pub(crate) redelivered: bool,
    /// Its event id in the channel it was read from.
    pub(crate) event_id: Option<u64>,
    /// Its event id in the store that took it first.
    pub(crate) origin_id: Option<u64>,
}

impl Received {
    /// Reads a delivery.
    ///
    /// # Errors
    /// [`Violation`] if it is none of our messages, or not as it was sent.
    pub(crate) fn read(delivery: &Delivery) -> Result<Self, Violation> {
        let message =
            delivery.message().map_err(|e| Violation::new(format!("a delivery is no message: {e}")))?;
        let id = message.properties.as_ref().and_then(|properties| properties.message_id.clone());
        let Some(MessageId::String(id)) = id else {
            return Err(Violation::new(format!("a message came that nobody sent: message-id {id:?}")));
        };
        let mark: Mark = id.parse()?;
        let same = matches!(&message.body, Body::Data(parts) if parts.concat() == mark.body());
        if !same {
            return Err(Violation::new(format!("{mark} came with another body than it was sent with")));
        }
        let annotation = |name: &str| match message.message_annotations.as_ref()?.get(name) {
            Some(Value::Ulong(number)) => Some(*number),
            _ => None,
        };
        Ok(Self {
            mark,
            redelivered: message.header.is_some_and(|header| header.delivery_count > 0),
            event_id: annotation("x-opt-postroad-event-id"),
            origin_id: annotation("x-opt-postroad-origin-id"),
        })
    }
}

#[cfg(test)]
mod tests {
    use postroad_client::codec::Decode;
    use postroad_client::codec::performative::DeliveryTag;

    use super::*;

    fn delivery(payload: Bytes) -> Delivery {
        Delivery { number: 0, tag: DeliveryTag::from_number(0), format: 0, settled: false, payload }
    }

    #[test]
    fn a_message_is_recognised() {
        let mark = Mark { place: Place::Live, producer: 2, number: 77 };
        let received = Received::read(&delivery(mark.message())).unwrap();
        assert_eq!(received, Received { mark, redelivered: false, event_id: None, origin_id: None });
    }

    #[test]
    fn a_strange_or_damaged_message_is_a_violation() {
        for id in ["", "work/0", "work/0/0", "work/3/1", "other/0/1", "work/0/1/2"] {
            assert!(id.parse::<Mark>().is_err(), "{id}");
        }
        let mark = Mark { place: Place::Work, producer: 0, number: 1 };
        let mut message = Message::decode_all(&mark.message()).unwrap();
        message.body = Body::Data(vec![Bytes::from_static(b"other")]);
        assert!(Received::read(&delivery(message.to_bytes())).is_err());
    }
}
