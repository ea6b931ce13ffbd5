//! Receiving: credit, drain, deliveries, and settlement as ranges.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_amqp::{Event, LinkId};
use postroad_amqp_codec::message::Message;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, ReceiverSettleMode, Role};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{
    Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy, distribution_mode, outcome,
};
use postroad_amqp_codec::{AmqpError, Decode, DecodeError, Fields, Value};

use crate::client::Handle;
use crate::error::Error;
use crate::link::{Link, LinkEnd, LinkHandle, address_of};
use crate::options::{Credit, ReceiverOptions, fresh_name};
use crate::state::{State, symbol};

/// The descriptor of the selector filter, as brokers of the JMS mapping know it.
const SELECTOR_FILTER: (&str, u64) = ("jms-selector", 0x0000_468C_0000_0004);

/// The descriptor of the filter that leaves out what the same connection has sent.
const NO_LOCAL_FILTER: (&str, u64) = ("no-local", 0x0000_468C_0000_0003);

/// A link for receiving. Letting it go closes it without waiting; a durable subscription is only detached, and stays.
#[derive(Debug)]
pub struct Receiver {
    link: LinkHandle,
}

/// A message that came.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its number on the link, from 0.
    pub number: u64,
    /// The tag that the broker gave it.
    pub tag: DeliveryTag,
    /// The format of the message; 0 is an AMQP message (part 3, section 3.2.16).
    pub format: u32,
    /// The broker has settled it: no outcome is expected.
    pub settled: bool,
    /// The encoded message.
    pub payload: Bytes,
}

impl Delivery {
    /// The message as owned values.
    ///
    /// # Errors
    /// When the payload is no AMQP message.
    pub fn message(&self) -> Result<Message, DecodeError> {
        Message::decode_all(&self.payload)
    }
}

/// Our side of a receiving link.
#[derive(Debug, Default)]
pub(crate) struct ReceiverState {
    /// How many deliveries the broker may send in all.
    pub(crate) limit: u64,
    /// The broker was asked to use the credit up, and has not answered.
    pub(crate) draining: bool,
    /// It has; the user does not know yet.
    pub(crate) drained: bool,
    /// How many deliveries have come, those that were given up included.
    received: u64,
    /// How many of them the user has taken.
    taken: u64,
    /// What the link keeps granted by itself; 0 when the user gives credit.
    auto: u64,
    second: bool,
    /// What the broker has settled after us and nobody has asked for; collected only if `second`.
    settled: VecDeque<RangeInclusive<u64>>,
    queue: VecDeque<Delivery>,
    /// A delivery of which more pieces are to come.
    partial: Option<(Delivery, BytesMut)>,
}

impl ReceiverState {
    fn new(options: &ReceiverOptions) -> Self {
        let auto = match options.credit {
            Credit::Auto(count) => count.max(1).into(),
            Credit::Manual => 0,
        };
        let second = options.receiver_settle_mode == ReceiverSettleMode::Second;
        Self { auto, second, ..Self::default() }
    }

    /// The limit that is to be granted now, if it is time.
    fn due_limit(&self) -> Option<u64> {
        let wanted = self.taken + self.auto;
        let due =
            self.auto > 0 && !self.draining && wanted.saturating_sub(self.limit) >= self.auto.div_ceil(2);
        due.then_some(wanted)
    }

    /// Whether a drain is over: the broker has said so, or has nothing left to use.
    fn take_drained(&mut self) -> bool {
        if self.draining && self.received >= self.limit {
            self.draining = false;
            self.drained = true;
        }
        std::mem::take(&mut self.drained)
    }

    fn add(&mut self, delivery: Delivery) {
        self.received = delivery.number + 1;
        self.queue.push_back(delivery);
    }

    /// Keeps what the broker has settled, next to what it settled before.
    fn keep_settled(&mut self, first: u64, last: u64) {
        match self.settled.back_mut() {
            Some(back) if *back.end() + 1 == first => *back = *back.start()..=last,
            _ => self.settled.push_back(first..=last),
        }
    }

    fn give_up(&mut self, number: u64) {
        self.partial = None;
        self.received = number + 1;
        if self.queue.is_empty() {
            self.taken = self.received;
        }
    }
}

impl State {
    /// One piece of a delivery.
    pub(crate) fn on_transfer(&mut self, event: Event) {
        let Event::Transfer { link, delivery, tag, message_format, settled, payload, more, aborted, .. } =
            event
        else {
            return;
        };
        let Some(Link { end: LinkEnd::Receiver(receiver), waiters, .. }) = self.links.get_mut(&link) else {
            return;
        };
        if aborted {
            receiver.give_up(delivery);
            return self.top_up(link);
        }
        match receiver.partial.take() {
            Some((mut whole, mut bytes)) => {
                bytes.extend_from_slice(&payload);
                whole.settled |= settled;
                if more {
                    receiver.partial = Some((whole, bytes));
                    return;
                }
                whole.payload = bytes.freeze();
                receiver.add(whole);
            }
            None => {
                let tag = tag.unwrap_or_default();
                let mut whole = Delivery { number: delivery, tag, format: message_format, settled, payload };
                if more {
                    let first = std::mem::take(&mut whole.payload);
                    receiver.partial = Some((whole, BytesMut::from(first)));
                    return;
                }
                receiver.add(whole);
            }
        }
        waiters.wake();
    }

    /// The broker has settled a range of deliveries: with receiver-settle-mode second, its word that they are done.
    pub(crate) fn on_settled(&mut self, id: LinkId, first: u64, last: u64) {
        let Some(Link { end: LinkEnd::Receiver(receiver), waiters, .. }) = self.links.get_mut(&id) else {
            return;
        };
        if receiver.second {
            receiver.keep_settled(first, last);
            waiters.wake();
        }
    }

    fn receiver(&mut self, id: LinkId) -> Result<&mut ReceiverState, Error> {
        match self.links.get_mut(&id).map(|link| &mut link.end) {
            Some(LinkEnd::Receiver(receiver)) => Ok(receiver),
            _ => Err(Error::Closed),
        }
    }

    /// Gives the credit that the link gives by itself.
    fn top_up(&mut self, id: LinkId) {
        let Ok(receiver) = self.receiver(id) else { return };
        if let Some(limit) = receiver.due_limit() {
            receiver.limit = limit;
            let _ = self.connection.flow_receiver(id, limit, false);
            self.touch();
        }
    }

    /// Takes up to `max` deliveries that have come; `None` where the end of a drain has come instead.
    fn take(&mut self, id: LinkId, max: usize, into: &mut Vec<Delivery>) -> Result<Option<usize>, Error> {
        let receiver = self.receiver(id)?;
        let count = receiver.queue.len().min(max);
        into.extend(receiver.queue.drain(..count));
        if count == 0 && receiver.take_drained() {
            return Ok(None);
        }
        receiver.taken = receiver.queue.front().map_or(receiver.received, |next| next.number);
        self.top_up(id);
        if count == 0 {
            self.usable(id)?;
        }
        Ok(Some(count))
    }

    fn settle(&mut self, id: LinkId, range: &RangeInclusive<u64>, state: DeliveryState) -> Result<(), Error> {
        self.usable(id)?;
        let settled = !self.receiver(id)?.second;
        self.connection.settle_incoming(id, *range.start(), *range.end(), Some(state), settled)?;
        self.touch();
        Ok(())
    }
}

impl Receiver {
    pub(crate) async fn attach(
        handle: Arc<Handle>,
        address: &str,
        options: ReceiverOptions,
    ) -> Result<Self, Error> {
        let close_on_drop = options.durable.is_none();
        let end = LinkEnd::Receiver(ReceiverState::new(&options));
        let link = LinkHandle::attach(handle, attach(address, options), end, address, close_on_drop).await?;
        link.connection.shared.act(|state| state.top_up(link.id));
        Ok(Self { link })
    }

    /// The address of the node, as the broker states it: for a dynamic one the only way to know.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        address_of(&self.link.attach)
    }

    /// The source as the broker states it: which filters it honours, for one.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        self.link.attach.source.as_ref()
    }

    /// The next delivery; `None` when a [`drain`](Self::drain) is over and everything that came has been taken.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone. What had come before is given out first.
    pub async fn recv(&self) -> Result<Option<Delivery>, Error> {
        let mut one = Vec::with_capacity(1);
        self.recv_many(&mut one, 1).await?;
        Ok(one.pop())
    }

    /// Waits until something has come and appends it, up to `max` deliveries; how many. 0 when a
    /// [`drain`](Self::drain) is over and everything that came has been taken.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn recv_many(&self, into: &mut Vec<Delivery>, max: usize) -> Result<usize, Error> {
        let (id, max) = (self.link.id, max.max(1));
        let taken = self.link.connection.shared.until(Some(id), |state| match state.take(id, max, into)? {
            None => Ok(Some(0)),
            Some(0) => Ok(None),
            Some(count) => Ok(Some(count)),
        });
        taken.await
    }

    /// Lets the broker send this many deliveries more.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone.
    pub fn grant(&self, count: u32) -> Result<(), Error> {
        self.flow(count, false)
    }

    /// Lets the broker send this many deliveries more, and asks it to use its credit up: it sends what there is, gives
    /// the rest back, and then [`recv`](Self::recv) says `None` (part 2, section 2.6.7).
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone.
    pub fn drain(&self, count: u32) -> Result<(), Error> {
        self.flow(count, true)
    }

    fn flow(&self, count: u32, drain: bool) -> Result<(), Error> {
        self.link.connection.shared.act(|state| {
            state.usable(self.link.id)?;
            let receiver = state.receiver(self.link.id)?;
            receiver.limit = receiver.limit.max(receiver.received) + u64::from(count);
            receiver.draining = drain;
            receiver.drained = false;
            let limit = receiver.limit;
            state.connection.flow_receiver(self.link.id, limit, drain)?;
            state.touch();
            Ok(())
        })
    }

    /// Accepts deliveries, by their numbers. Those in the range that are settled already are passed over.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone.
    pub fn accept(&self, range: RangeInclusive<u64>) -> Result<(), Error> {
        self.settle(range, DeliveryState::Accepted)
    }

    /// Gives deliveries back as if they had not been sent (part 3, section 3.4.4).
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn release(&self, range: RangeInclusive<u64>) -> Result<(), Error> {
        self.settle(range, DeliveryState::Released)
    }

    /// Rejects deliveries as invalid (part 3, section 3.4.3).
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn reject(&self, range: RangeInclusive<u64>, error: Option<AmqpError>) -> Result<(), Error> {
        self.settle(range, DeliveryState::Rejected { error })
    }

    /// Gives deliveries back, as failed or not to be sent here again (part 3, section 3.4.5).
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn modify(
        &self,
        range: RangeInclusive<u64>,
        delivery_failed: bool,
        undeliverable_here: bool,
    ) -> Result<(), Error> {
        let state =
            DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations: None };
        self.settle(range, state)
    }

    /// Settles deliveries with any state.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn settle(&self, range: RangeInclusive<u64>, state: DeliveryState) -> Result<(), Error> {
        self.link.connection.shared.act(|shared| shared.settle(self.link.id, &range, state))
    }

    /// Waits for the broker to settle deliveries after us, and says which: only with
    /// [`receiver_settle_mode`](crate::ReceiverOptions::receiver_settle_mode) second (part 2, section 2.6.12). Every
    /// delivery is told once, so what is never asked for is kept.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone. What had come before is told first.
    pub async fn settled(&self) -> Result<RangeInclusive<u64>, Error> {
        let id = self.link.id;
        let told = self.link.connection.shared.until(Some(id), |state| {
            let range = state.receiver(id)?.settled.pop_front();
            if range.is_none() {
                state.usable(id)?;
            }
            Ok(range)
        });
        told.await
    }

    /// As [`settled`](Self::settled), without waiting.
    #[must_use]
    pub fn try_settled(&self) -> Option<RangeInclusive<u64>> {
        self.link.connection.shared.lock().receiver(self.link.id).ok()?.settled.pop_front()
    }

    /// Detaches and waits for the answer: a durable subscription stays.
    ///
    /// # Errors
    /// [`Error::LinkDetached`] with the broker's reason, [`Error::TimedOut`], or why the connection is gone.
    pub async fn detach(self) -> Result<(), Error> {
        self.link.detach(false).await
    }

    /// Closes and waits for the answer: a durable subscription is deleted.
    ///
    /// # Errors
    /// As [`detach`](Self::detach).
    pub async fn close(self) -> Result<(), Error> {
        self.link.detach(true).await
    }
}

fn attach(address: &str, options: ReceiverOptions) -> Attach {
    let max_message_size = options.max_message_size;
    let (snd_settle_mode, rcv_settle_mode) = (options.settle_mode, options.receiver_settle_mode);
    let properties = options.properties.clone();
    let name = options.durable.clone().or_else(|| options.name.clone());
    Attach {
        name: name.unwrap_or_else(|| fresh_name("receiver")),
        role: Role::Receiver,
        snd_settle_mode,
        rcv_settle_mode,
        source: Some(source(address, options)),
        target: Some(TargetKind::Target(Target::default())),
        max_message_size: Some(max_message_size),
        properties,
        ..Attach::default()
    }
}

fn source(address: &str, options: ReceiverOptions) -> Source {
    let filter = filters(&options);
    let mut capabilities = options.capabilities;
    capabilities.extend(options.kind.map(crate::options::NodeKind::capability));
    let (durable, expiry_policy) = match options.durable {
        Some(_) => (TerminusDurability::UnsettledState, TerminusExpiryPolicy::Never),
        None => (TerminusDurability::None, TerminusExpiryPolicy::SessionEnd),
    };
    Source {
        address: Some(address.to_owned()).filter(|_| !options.dynamic),
        durable,
        expiry_policy,
        dynamic: options.dynamic,
        distribution_mode: options.copy.then_some(distribution_mode::COPY),
        filter: Some(filter).filter(|filter| !filter.is_empty()),
        outcomes: vec![outcome::ACCEPTED, outcome::REJECTED, outcome::RELEASED, outcome::MODIFIED],
        capabilities,
        ..Source::default()
    }
}

fn filters(options: &ReceiverOptions) -> Fields {
    let mut filters = Fields::new();
    if let Some(selector) = &options.selector {
        let value = Value::described(Value::Ulong(SELECTOR_FILTER.1), selector.as_str());
        filters.insert(symbol(SELECTOR_FILTER.0), value);
    }
    if options.no_local {
        let value = Value::described(Value::Ulong(NO_LOCAL_FILTER.1), Value::List(Vec::new()));
        filters.insert(symbol(NO_LOCAL_FILTER.0), value);
    }
    filters
}
