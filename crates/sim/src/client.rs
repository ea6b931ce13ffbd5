//! A simulated client: a real AMQP engine in the initiating role, the links that it has, and what it learns from the
//! broker, told one by one.

use crate::messages::Messages;
use bytes::Bytes;
use postroad_amqp::{Config, Connection, Delivery, Event, InitiateSasl, LinkId, SessionId, SessionOptions};
use postroad_amqp_codec::performative::{Attach, DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{
    Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy, distribution_mode,
};
use postroad_amqp_codec::{Fields, Value};
use std::collections::{BTreeMap, VecDeque};

/// What a receiving link reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A queue.
    Queue(String),
    /// A queue, without taking.
    Browser(String),
    /// A channel, by a subscription that ends with its link.
    Volatile(String),
    /// A named object: its channel, its owner (`None`: native), its name.
    Object(String, Option<String>, String),
    /// A temporary queue that the link makes.
    Temporary,
}

/// How a receiving link is to be attached.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What it reads.
    pub place: Place,
    /// A selector on the colour.
    pub colour: Option<usize>,
    /// Deliveries come settled.
    pub presettled: bool,
    /// Outcomes are to be confirmed.
    pub second: bool,
    /// A new durable subscription begins with the oldest event.
    pub from_oldest: bool,
    /// What the same client published is left out.
    pub no_local: bool,
}

/// A link on which the client sends.
#[derive(Debug)]
pub struct Sender {
    /// The link.
    pub link: LinkId,
    /// Where it sends; `None` if each message says so itself.
    pub target: Option<String>,
    /// The broker has taken it.
    pub attached: bool,
    /// Message and store of each delivery without outcome.
    pub open: BTreeMap<u64, (u64, String)>,
}

/// A delivery that the client has and has not settled.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Which message.
    pub number: u64,
    /// Its event id, where it came from a channel.
    pub event: Option<u64>,
}

/// A link on which the client receives.
#[derive(Debug)]
pub struct Receiver {
    /// The link.
    pub link: LinkId,
    /// How it was attached.
    pub wanted: Wanted,
    /// The broker has taken it.
    pub attached: bool,
    /// The number of the first message that was made after the client knew that it was attached.
    pub since: Option<u64>,
    /// The address of a temporary queue, once it is known.
    pub made: Option<String>,
    /// Credit given in all.
    pub limit: u64,
    /// Deliveries begun.
    pub received: u64,
    /// Deliveries without outcome.
    pub held: BTreeMap<u64, Held>,
    /// Outcomes that wait for the broker's confirmation: whether accepted.
    pub unconfirmed: BTreeMap<u64, (Held, bool)>,
    /// The highest event that came for the first time on this link.
    pub highest: u64,
    partial: Vec<u8>,
}

/// What a client learns.
#[derive(Debug)]
pub enum Saw {
    /// A message is taken.
    Confirmed {
        /// Which.
        number: u64,
        /// By which store.
        store: String,
    },
    /// A message is refused.
    Refused {
        /// Which.
        number: u64,
    },
    /// A message came.
    Delivered {
        /// On which link.
        link: LinkId,
        /// Its number there.
        delivery: u64,
        /// The bytes.
        payload: Bytes,
        /// It is finished already.
        settled: bool,
    },
    /// Outcomes are confirmed.
    AckConfirmed {
        /// From where.
        place: Place,
        /// What, and whether it was accepted.
        held: Held,
        /// The outcome was accepted.
        accepted: bool,
    },
    /// A link is gone, orderly or not.
    LinkGone {
        /// What it read, if it was a receiver.
        place: Option<Place>,
        /// What it held then.
        held: Vec<Held>,
        /// Ended by the client's own wish, so that the default outcome holds.
        orderly: bool,
    },
    /// The connection is over.
    Over,
}

/// One client connection.
#[derive(Debug)]
pub struct Client {
    /// The protocol engine.
    pub amqp: Connection,
    session: Option<SessionId>,
    begun: bool,
    /// Links on which it sends.
    pub senders: Vec<Sender>,
    /// Links on which it receives.
    pub receivers: Vec<Receiver>,
    /// Receivers that are being detached by its own wish.
    leaving: Vec<Receiver>,
    closing: bool,
    saw: VecDeque<Saw>,
    next_name: u64,
    tag: u64,
}

impl Client {
    /// A client that opens its connection under this client id.
    #[must_use]
    pub fn new(id: &str, now_ms: u64, first_id: u32) -> Self {
        let config = Config {
            container_id: id.to_owned(),
            idle_timeout_ms: None,
            open_timeout_ms: None,
            first_id,
            ..Config::default()
        };
        Self {
            amqp: Connection::initiate(config, InitiateSasl::Skip, now_ms),
            session: None,
            begun: false,
            senders: Vec::new(),
            receivers: Vec::new(),
            leaving: Vec::new(),
            closing: false,
            saw: VecDeque::new(),
            next_name: 0,
            tag: 0,
        }
    }

    /// Whether links can be attached.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.begun && self.amqp.is_open()
    }

    /// The next thing that it learns.
    pub fn poll(&mut self) -> Option<Saw> {
        loop {
            if let Some(saw) = self.saw.pop_front() {
                return Some(saw);
            }
            let event = self.amqp.poll_event()?;
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::RemoteOpen(_) => self.session = self.amqp.begin(SessionOptions::default()).ok(),
            Event::Begun { .. } => self.begun = true,
            Event::Attached { link, attach } => self.on_attached(link, &attach),
            Event::Transfer { link, delivery, payload, more, settled, .. } => {
                self.on_transfer(link, delivery, &payload, more, settled);
            }
            Event::Outcome { link, first, last, state, settled } => {
                self.on_outcome(link, first, last, state.as_deref());
                if !settled {
                    let _ = self.amqp.settle_outgoing(link, first, last, None);
                }
            }
            Event::SenderState { link, first, last, settled: true, .. } => {
                self.on_confirmed(link, first, last);
            }
            Event::SenderFlow { link, limit, drained: true, .. } => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.link == link) {
                    receiver.limit = limit;
                }
            }
            Event::Detach { link, closed, .. } => {
                let _ = self.amqp.detach(link, closed, None);
                self.forget(link);
            }
            Event::LinkFailed { link, .. } => self.forget(link),
            Event::End { .. } | Event::SessionFailed { .. } | Event::Close { .. } | Event::Failed(_) => {
                self.begun = false;
                self.saw.push_back(Saw::Over);
            }
            _ => {}
        }
    }

    fn on_attached(&mut self, link: LinkId, attach: &Attach) {
        let refused = match attach.role {
            Role::Sender => attach.source.is_none(),
            Role::Receiver => attach.target.is_none(),
        };
        if refused {
            return;
        }
        if let Some(sender) = self.senders.iter_mut().find(|s| s.link == link) {
            sender.attached = true;
        }
        if let Some(receiver) = self.receivers.iter_mut().find(|r| r.link == link) {
            receiver.attached = true;
            if receiver.wanted.place == Place::Temporary {
                receiver.made = attach.source.as_ref().and_then(|source| source.address.clone());
            }
        }
    }

    fn on_transfer(&mut self, link: LinkId, delivery: u64, payload: &[u8], more: bool, settled: bool) {
        let found = self.receivers.iter_mut().chain(&mut self.leaving).find(|r| r.link == link);
        let Some(receiver) = found else { return };
        receiver.partial.extend_from_slice(payload);
        if more {
            return;
        }
        receiver.received = delivery + 1;
        let payload = Bytes::from(std::mem::take(&mut receiver.partial));
        self.saw.push_back(Saw::Delivered { link, delivery, payload, settled });
    }

    fn on_outcome(&mut self, link: LinkId, first: u64, last: u64, state: Option<&DeliveryState>) {
        let Some(sender) = self.senders.iter_mut().find(|s| s.link == link) else { return };
        for at in first..=last {
            let Some((number, store)) = sender.open.remove(&at) else { continue };
            self.saw.push_back(match state {
                Some(DeliveryState::Accepted) => Saw::Confirmed { number, store },
                _ => Saw::Refused { number },
            });
        }
    }

    fn on_confirmed(&mut self, link: LinkId, first: u64, last: u64) {
        let Some(receiver) = self.receivers.iter_mut().find(|r| r.link == link) else { return };
        for at in first..=last {
            if let Some((held, accepted)) = receiver.unconfirmed.remove(&at) {
                self.saw.push_back(Saw::AckConfirmed {
                    place: receiver.wanted.place.clone(),
                    held,
                    accepted,
                });
            }
        }
    }

    fn forget(&mut self, link: LinkId) {
        self.senders.retain(|s| s.link != link);
        if let Some(at) = self.leaving.iter().position(|r| r.link == link) {
            let receiver = self.leaving.swap_remove(at);
            self.gone(receiver, true);
        }
        if let Some(at) = self.receivers.iter().position(|r| r.link == link) {
            let receiver = self.receivers.swap_remove(at);
            self.gone(receiver, false);
        }
    }

    fn gone(&mut self, receiver: Receiver, orderly: bool) {
        let held = receiver.held.into_values().collect();
        self.saw.push_back(Saw::LinkGone { place: Some(receiver.wanted.place), held, orderly });
    }

    /// Whether a link, or the whole connection, is being left by the client's own wish: what still comes is released.
    #[must_use]
    pub fn is_leaving(&self, link: LinkId) -> bool {
        self.closing || self.leaving.iter().any(|r| r.link == link)
    }

    /// Closes the connection in order; returns what is held, which is released by that.
    pub fn close(&mut self) -> Vec<(Place, Vec<Held>)> {
        self.closing = self.amqp.close(None).is_ok();
        self.receivers.iter().map(|r| (r.wanted.place.clone(), r.held.values().copied().collect())).collect()
    }

    /// A receiver by its link, also one that is leaving.
    pub fn receiver(&mut self, link: LinkId) -> Option<&mut Receiver> {
        self.receivers.iter_mut().chain(&mut self.leaving).find(|r| r.link == link)
    }

    /// Attaches a sender; to an address, or to none.
    pub fn attach_sender(&mut self, target: Option<&str>) {
        let Some(session) = self.session else { return };
        let attach = Attach {
            name: self.link_name(),
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(TargetKind::Target(Target {
                address: target.map(str::to_owned),
                ..Target::default()
            })),
            ..Attach::default()
        };
        if let Ok(link) = self.amqp.attach(session, attach) {
            let target = target.map(str::to_owned);
            self.senders.push(Sender { link, target, attached: false, open: BTreeMap::new() });
        }
    }

    fn link_name(&mut self) -> String {
        self.next_name += 1;
        format!("link-{}", self.next_name)
    }

    /// Sends a message; false if there is no credit.
    pub fn send(&mut self, at: usize, number: u64, store: &str, bytes: Bytes, settled: bool) -> bool {
        self.tag += 1;
        let Some(sender) = self.senders.get_mut(at) else { return false };
        let delivery = Delivery { tag: DeliveryTag::from_number(self.tag), settled, ..Delivery::default() };
        match self.amqp.send(sender.link, &delivery, &[bytes]) {
            Ok(delivery) => {
                if !settled {
                    sender.open.insert(delivery, (number, store.to_owned()));
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Attaches a receiver.
    pub fn attach_receiver(&mut self, wanted: Wanted) {
        let Some(session) = self.session else { return };
        let mut source = Source::default();
        let mut properties = Fields::new();
        let mut name = self.link_name();
        match &wanted.place {
            Place::Queue(queue) => source.address = Some(queue.clone()),
            Place::Browser(queue) => {
                source.address = Some(queue.clone());
                source.distribution_mode = Some(distribution_mode::COPY);
            }
            Place::Volatile(channel) => source.address = Some(channel.clone()),
            Place::Temporary => source.dynamic = true,
            Place::Object(channel, None, object) => source.address = Some(format!("{channel}::{object}")),
            Place::Object(channel, Some(_), object) => {
                source.address = Some(channel.clone());
                source.durable = TerminusDurability::UnsettledState;
                source.expiry_policy = TerminusExpiryPolicy::Never;
                name.clone_from(object);
                if wanted.from_oldest {
                    properties.insert("start-event-id", 0_u64);
                }
            }
        }
        let mut filter = Fields::new();
        if let Some(colour) = wanted.colour {
            filter.insert("s", Value::described(0x0000_468C_0000_0004_u64, selector(colour).as_str()));
        }
        if wanted.no_local {
            filter.insert("n", Value::described(0x0000_468C_0000_0003_u64, Value::List(Vec::new())));
        }
        source.filter = (wanted.colour.is_some() || wanted.no_local).then_some(filter);
        let attach = Attach {
            name,
            role: Role::Receiver,
            snd_settle_mode: if wanted.presettled {
                SenderSettleMode::Settled
            } else {
                SenderSettleMode::Unsettled
            },
            rcv_settle_mode: if wanted.second {
                ReceiverSettleMode::Second
            } else {
                ReceiverSettleMode::First
            },
            source: Some(source),
            target: Some(TargetKind::Target(Target::default())),
            properties: Some(properties),
            ..Attach::default()
        };
        if let Ok(link) = self.amqp.attach(session, attach) {
            self.receivers.push(Receiver {
                link,
                wanted,
                attached: false,
                since: None,
                made: None,
                limit: 0,
                received: 0,
                held: BTreeMap::new(),
                unconfirmed: BTreeMap::new(),
                highest: 0,
                partial: Vec::new(),
            });
        }
    }

    /// Gives a receiver credit for `more` deliveries beyond those that came.
    pub fn credit(&mut self, at: usize, more: u64, drain: bool) {
        let Some(receiver) = self.receivers.get_mut(at) else { return };
        receiver.limit = receiver.received + more;
        let _ = self.amqp.flow_receiver(receiver.link, receiver.limit, drain);
    }

    /// Settles some held deliveries of a receiver with one outcome; returns what they were.
    pub fn settle(&mut self, at: usize, from: usize, count: usize, state: &DeliveryState) -> Vec<Held> {
        let Some(receiver) = self.receivers.get_mut(at) else { return Vec::new() };
        let numbers: Vec<u64> = receiver.held.keys().skip(from).take(count).copied().collect();
        let accepted = *state == DeliveryState::Accepted;
        let mut settled = Vec::new();
        for number in numbers {
            let Some(held) = receiver.held.remove(&number) else { continue };
            let second = receiver.wanted.second;
            let done = self.amqp.settle_incoming(receiver.link, number, number, Some(state.clone()), !second);
            if done.is_ok() && second {
                receiver.unconfirmed.insert(number, (held, accepted));
            }
            settled.push(held);
        }
        settled
    }

    /// Detaches or closes a receiver; returns what it holds, which is released by that.
    pub fn detach(&mut self, at: usize, closed: bool) -> Option<(Place, Vec<Held>)> {
        if at >= self.receivers.len() {
            return None;
        }
        let receiver = self.receivers.swap_remove(at);
        let _ = self.amqp.detach(receiver.link, closed, None);
        let held = (receiver.wanted.place.clone(), receiver.held.values().copied().collect());
        self.leaving.push(receiver);
        Some(held)
    }

    /// Detaches a sender.
    pub fn detach_sender(&mut self, at: usize) {
        if at < self.senders.len() {
            let sender = self.senders.swap_remove(at);
            let _ = self.amqp.detach(sender.link, true, None);
        }
    }

    /// Everything that the client held when its connection ended.
    pub fn end(self) -> Vec<(Place, Vec<Held>, bool)> {
        let lost = self.receivers.into_iter().map(|r| (r, false));
        let left = self.leaving.into_iter().map(|r| (r, true));
        lost.chain(left)
            .map(|(r, orderly)| (r.wanted.place, r.held.into_values().collect(), orderly))
            .collect()
    }
}

/// The selector for a colour.
#[must_use]
pub fn selector(colour: usize) -> String {
    format!("colour = '{}'", crate::messages::COLOURS.get(colour).copied().unwrap_or("none"))
}

/// Whether a selector that [`selector`] made lets a message through; text that it did not make lets everything.
#[must_use]
pub fn lets_through(filter: Option<&str>, messages: &Messages, number: u64) -> bool {
    let Some(filter) = filter else { return true };
    let Some(sent) = messages.get(number) else { return true };
    filter == selector(sent.colour)
}
