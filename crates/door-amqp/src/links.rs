//! The links of one connection: their state at the peer, their state in the engine, and the numbers of both.

use crate::consumer::Consumer;
use crate::producer::Producer;
use postroad_amqp::{LinkId, SessionId};
use postroad_engine::{CloseMode, LinkNo, ProducerKey, TakerKey};

/// One link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) session: SessionId,
    pub(crate) wire: Wire,
    pub(crate) held: Held,
    pub(crate) end: End,
    /// How it was left, to be told to the engine if that has yet to answer. Its session may live on.
    pub(crate) left: CloseMode,
}

/// How far the peer and we have come with the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// The peer has attached; nobody has detached.
    Open,
    /// The peer has detached and waits for our detach.
    PeerDetached {
        /// It was a close.
        closed: bool,
    },
    /// We have detached and wait for the peer's.
    WeDetached,
    /// Both have, or the session or the connection went.
    Gone,
}

/// What the engine holds for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It has been asked, and has not answered.
    Asked,
    /// A producer.
    Producer(ProducerKey),
    /// A consumer.
    Consumer(TakerKey),
    /// Nothing, but the subscription that was looked up exists (AM-7).
    Subscription,
    /// It has been told of the end, and has not answered.
    Closing,
    /// Nothing.
    Gone,
}

/// What the link is for.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer sends.
    Producer(Box<Producer>),
    /// The peer receives.
    Consumer(Box<Consumer>),
    /// The peer looks a durable subscription of this name up, to end it (AM-7).
    Lookup {
        /// The name.
        name: String,
    },
    /// Nothing more: the engine is done with it, and the peer has yet to detach. It need never do so, so that nothing
    /// that it said of the link is kept.
    Over,
}

impl Link {
    pub(crate) fn new(id: LinkId, session: SessionId, end: End) -> Self {
        Self { id, session, wire: Wire::Open, held: Held::Asked, end, left: CloseMode::Detach }
    }

    pub(crate) fn producer_mut(&mut self) -> Option<(ProducerKey, &mut Producer)> {
        match (self.held, &mut self.end) {
            (Held::Producer(key), End::Producer(producer)) => Some((key, producer)),
            _ => None,
        }
    }

    pub(crate) fn consumer_mut(&mut self) -> Option<(TakerKey, &mut Consumer)> {
        match (self.held, &mut self.end) {
            (Held::Consumer(key), End::Consumer(consumer)) => Some((key, consumer)),
            _ => None,
        }
    }

    /// What a detach by the peer means to its consumer's subscription (AM-6).
    pub(crate) fn mode_at_detach(&self, closed: bool) -> CloseMode {
        match &self.end {
            End::Consumer(consumer) => consumer.ends.at_detach(closed),
            _ if closed => CloseMode::Close,
            _ => CloseMode::Detach,
        }
    }
}

/// The links of a connection, in dense numbers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Links {
    slots: Vec<Option<Link>>,
    free: Vec<u32>,
    /// By the slot of the protocol engine's link.
    numbers: Vec<Option<(LinkId, LinkNo)>>,
}

impl Links {
    /// Adds a link.
    pub(crate) fn insert(&mut self, link: Link) -> LinkNo {
        let id = link.id;
        let no = match self.free.pop() {
            Some(no) => no,
            None => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(slot) = self.slots.get_mut(no as usize) {
            *slot = Some(link);
        }
        if self.numbers.len() <= id.index() {
            self.numbers.resize(id.index() + 1, None);
        }
        if let Some(number) = self.numbers.get_mut(id.index()) {
            *number = Some((id, LinkNo(no)));
        }
        LinkNo(no)
    }

    /// The number of a link of the protocol engine, unless it was refused before it got one.
    pub(crate) fn number(&self, id: LinkId) -> Option<LinkNo> {
        let (found, no) = (*self.numbers.get(id.index())?)?;
        (found == id).then_some(no)
    }

    pub(crate) fn get(&self, no: LinkNo) -> Option<&Link> {
        self.slots.get(no.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, no: LinkNo) -> Option<&mut Link> {
        self.slots.get_mut(no.0 as usize)?.as_mut()
    }

    /// The numbers of all links of a session, or of all links.
    pub(crate) fn of(&self, session: Option<SessionId>) -> Vec<LinkNo> {
        let links = self.slots.iter().zip(0..).filter_map(|(slot, no)| Some((slot.as_ref()?, LinkNo(no))));
        links.filter(|(link, _)| session.is_none_or(|s| link.session == s)).map(|(_, no)| no).collect()
    }

    /// Forgets a link that is gone on both sides; then its number may be used again. Of one that is gone in the engine only
    /// the number is kept.
    pub(crate) fn release(&mut self, no: LinkNo) {
        let Some(slot) = self.slots.get_mut(no.0 as usize) else { return };
        let Some(link) = slot else { return };
        if link.wire == Wire::Gone
            && let Some(number) = self.numbers.get_mut(link.id.index())
            && number.is_some_and(|(id, _)| id == link.id)
        {
            *number = None;
        }
        match (link.wire, link.held) {
            (Wire::Gone, Held::Gone) => {
                *slot = None;
                self.free.push(no.0);
            }
            (_, Held::Gone) => link.end = End::Over,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Door, DoorConfig};
    use bytes::BytesMut;
    use postroad_amqp_codec::frame::{ProtocolHeader, write_frame};
    use postroad_amqp_codec::performative::{Attach, Begin, Open, Role};
    use postroad_amqp_codec::terminus::{Source, Target, TargetKind};
    use postroad_engine::{ConnId, Effect};
    use postroad_model::refusal::{Code, Refusal};
    use std::sync::Arc;

    #[test]
    fn of_a_link_that_was_refused_nothing_is_kept_but_its_number() {
        let mut bytes = ProtocolHeader::AMQP.to_bytes().to_vec();
        write_frame(&mut bytes, 0, &Open { container_id: "a".into(), ..Open::default() }, 0);
        write_frame(&mut bytes, 0, &Begin { incoming_window: 1, ..Begin::default() }, 0);
        for (handle, role) in [(0, Role::Sender), (1, Role::Receiver)] {
            let address = Some(String::from("nowhere"));
            let attach = Attach {
                name: "l".into(),
                handle,
                role,
                source: Some(Source { address: address.clone(), ..Source::default() }),
                target: Some(TargetKind::Target(Target { address, ..Target::default() })),
                initial_delivery_count: (role == Role::Sender).then_some(0),
                ..Attach::default()
            };
            write_frame(&mut bytes, 0, &attach, 0);
        }
        let (conn, mut commands) = (ConnId(1), Vec::new());
        let mut door = Door::new(conn, Arc::new(DoorConfig::default()), String::new(), 0);
        door.input(0, &mut BytesMut::from(&bytes[..]), &mut commands);
        for link in [LinkNo(0), LinkNo(1)] {
            let refusal = Refusal::new(Code::UnknownQueue, "nowhere", "there is none");
            door.effect(Effect::LinkRefused { conn, link, refusal }, &mut commands);
            let left = door.links.get(link);
            assert!(matches!(left, Some(Link { wire: Wire::WeDetached, end: End::Over, .. })), "{left:?}");
        }
    }
}
