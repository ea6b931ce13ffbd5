//! Sending: one message at a time with its outcome, or pipelined with outcomes as ranges.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use postroad_amqp::{Delivery, LinkId};
use postroad_amqp_codec::Encode;
use postroad_amqp_codec::message::Message;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Role, SenderSettleMode};
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::terminus::{Source, Target, TargetKind, outcome};

use crate::client::Handle;
use crate::error::Error;
use crate::link::{Link, LinkEnd, LinkHandle, address_of};
use crate::options::{SenderOptions, fresh_name};
use crate::state::State;

/// A link for sending. Letting it go closes it without waiting.
///
/// Deliveries are numbered from 0. With [`send`](Self::send) each outcome is awaited; with
/// [`try_send`](Self::try_send) outcomes are fetched from [`outcomes`](Self::outcomes), as ranges, and until they are
/// fetched they fill the window.
#[derive(Debug)]
pub struct Sender {
    link: LinkHandle,
}

/// The outcome of deliveries that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// The first delivery.
    pub first: u64,
    /// The last delivery.
    pub last: u64,
    /// What became of them. One that the broker does not state counts as released: nothing was promised.
    pub outcome: Outcome,
}

/// Our side of a sending link.
#[derive(Debug)]
pub(crate) struct SenderState {
    /// How many deliveries the broker allows in all.
    pub(crate) limit: u64,
    /// The number of the next delivery.
    pub(crate) next: u64,
    /// Deliveries whose outcome has not been taken.
    open: u64,
    window: u64,
    settled: bool,
    /// Deliveries whose sender waits for them alone.
    awaited: BTreeMap<u64, Awaited>,
    outcomes: VecDeque<Outcomes>,
}

#[derive(Debug, Default)]
struct Awaited {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl SenderState {
    fn new(options: &SenderOptions) -> Self {
        Self {
            limit: 0,
            next: 0,
            open: 0,
            window: options.window.max(1).into(),
            settled: options.settle_mode == SenderSettleMode::Settled,
            awaited: BTreeMap::new(),
            outcomes: VecDeque::new(),
        }
    }

    /// How many deliveries may be sent now.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.next).min(self.window.saturating_sub(self.open))
    }

    pub(crate) fn wake_awaited(&mut self) {
        self.awaited.values_mut().filter_map(|awaited| awaited.waker.take()).for_each(Waker::wake);
    }

    /// Keeps the outcome of a range for whoever waits for it.
    fn keep(&mut self, first: u64, last: u64, outcome: &Outcome) {
        let mut start = first;
        for (&number, awaited) in self.awaited.range_mut(first..=last) {
            awaited.outcome = Some(outcome.clone());
            awaited.waker.take().into_iter().for_each(Waker::wake);
            self.open = self.open.saturating_sub(1);
            push(&mut self.outcomes, start, number, outcome);
            start = number + 1;
        }
        push(&mut self.outcomes, start, last + 1, outcome);
    }
}

/// Adds the deliveries from `first` to the one before `end`.
fn push(outcomes: &mut VecDeque<Outcomes>, first: u64, end: u64, outcome: &Outcome) {
    if first >= end {
        return;
    }
    match outcomes.back_mut() {
        Some(back) if back.last + 1 == first && back.outcome == *outcome => back.last = end - 1,
        _ => outcomes.push_back(Outcomes { first, last: end - 1, outcome: outcome.clone() }),
    }
}

impl State {
    /// The broker's outcome for a range of deliveries; or a state on the way, which is passed over.
    pub(crate) fn on_outcome(
        &mut self,
        id: LinkId,
        (first, last): (u64, u64),
        state: Option<&DeliveryState>,
        settled: bool,
    ) {
        let Some(Link { end: LinkEnd::Sender(sender), waiters, .. }) = self.links.get_mut(&id) else {
            return;
        };
        let outcome = match state.cloned().map(DeliveryState::into_outcome) {
            Some(Some(outcome)) => outcome,
            _ if settled => Outcome::Released,
            _ => return,
        };
        sender.keep(first, last, &outcome);
        waiters.wake();
        if !settled {
            let _ = self.connection.settle_outgoing(id, first, last, Some(outcome.into()));
            self.touch();
        }
    }

    fn sender(&mut self, id: LinkId) -> Result<&mut SenderState, Error> {
        match &mut self.usable(id)?.end {
            LinkEnd::Sender(sender) => Ok(sender),
            LinkEnd::Receiver(_) => Err(Error::Closed),
        }
    }

    /// Sends a delivery if there is room.
    fn send(&mut self, id: LinkId, payload: &[Bytes], settled: bool) -> Result<Option<u64>, Error> {
        let sender = self.sender(id)?;
        if sender.room() == 0 {
            return Ok(None);
        }
        let settled = settled || sender.settled;
        let delivery =
            Delivery { tag: DeliveryTag::from_number(sender.next), settled, ..Delivery::default() };
        let number = self.connection.send(id, &delivery, payload)?;
        let sender = self.sender(id)?;
        sender.next = number + 1;
        sender.open += u64::from(!settled);
        self.touch();
        Ok(Some(number))
    }

    fn poll_awaited(&mut self, id: LinkId, number: u64, cx: &Context<'_>) -> Poll<Result<Outcome, Error>> {
        let sender = match self.links.get_mut(&id).map(|link| &mut link.end) {
            Some(LinkEnd::Sender(sender)) => sender,
            _ => return Poll::Ready(Err(Error::Closed)),
        };
        let Some(awaited) = sender.awaited.get_mut(&number) else { return Poll::Ready(Err(Error::Closed)) };
        if let Some(outcome) = awaited.outcome.take() {
            return Poll::Ready(Ok(outcome));
        }
        awaited.waker = Some(cx.waker().clone());
        match self.usable(id) {
            Ok(_) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Forgets that somebody waits for a delivery.
struct Waiting<'a> {
    handle: &'a Handle,
    id: LinkId,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.handle.shared.lock();
        if let Some(Link { end: LinkEnd::Sender(sender), .. }) = state.links.get_mut(&self.id) {
            sender.awaited.remove(&self.number);
        }
    }
}

impl Sender {
    pub(crate) async fn attach(
        handle: Arc<Handle>,
        address: &str,
        options: SenderOptions,
    ) -> Result<Self, Error> {
        let end = LinkEnd::Sender(SenderState::new(&options));
        let link = LinkHandle::attach(handle, attach(address, options), end, address, true).await?;
        Ok(Self { link })
    }

    /// The address of the node, as the broker states it: for a dynamic one the only way to know.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        address_of(&self.link.attach)
    }

    /// The largest message that the broker takes, in bytes.
    #[must_use]
    pub fn max_message_size(&self) -> Option<u64> {
        self.link.attach.max_message_size.filter(|size| *size > 0)
    }

    /// Sends a message and waits for its outcome.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::LinkDetached`]; or why the connection is gone.
    pub async fn send(&self, message: &Message) -> Result<Outcome, Error> {
        self.send_encoded(&[message.to_bytes()]).await
    }

    /// As [`send`](Self::send), with a message that is encoded already, in one or more parts.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_encoded(&self, payload: &[Bytes]) -> Result<Outcome, Error> {
        let (handle, id) = (&*self.link.connection, self.link.id);
        let (number, settled) = handle
            .shared
            .until(Some(id), |state| {
                let Some(number) = state.send(id, payload, false)? else { return Ok(None) };
                let sender = state.sender(id)?;
                if !sender.settled {
                    sender.awaited.insert(number, Awaited::default());
                }
                Ok(Some((number, sender.settled)))
            })
            .await?;
        if settled {
            return Ok(Outcome::Accepted);
        }
        let _waiting = Waiting { handle, id, number };
        poll_fn(|cx| handle.shared.lock().poll_awaited(id, number, cx)).await
    }

    /// Sends a message that is settled already, once there is room: it may be lost, and nobody will tell.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_settled(&self, message: &Message) -> Result<(), Error> {
        let (id, payload) = (self.link.id, [message.to_bytes()]);
        self.link.connection.shared.until(Some(id), |state| state.send(id, &payload, true)).await?;
        Ok(())
    }

    /// Waits until something can be sent, and says how many messages; at least one.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone.
    pub async fn ready(&self) -> Result<u64, Error> {
        let id = self.link.id;
        let shared = &self.link.connection.shared;
        shared.until(Some(id), |state| Ok(Some(state.sender(id)?.room()).filter(|room| *room > 0))).await
    }

    /// Sends an encoded message now; `None` when the broker's credit or the window is used up. Returns the number of
    /// the delivery. Nothing is written before the caller waits for something.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&self, payload: &[Bytes], settled: bool) -> Result<Option<u64>, Error> {
        self.link.connection.shared.act(|state| state.send(self.link.id, payload, settled))
    }

    /// Waits for outcomes of deliveries that [`try_send`](Self::try_send) has sent unsettled: the next range. One task
    /// at a time.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone: then what has no outcome is in doubt.
    pub async fn outcomes(&self) -> Result<Outcomes, Error> {
        let id = self.link.id;
        let shared = &self.link.connection.shared;
        shared
            .until(Some(id), |state| {
                // Outcomes that came before the end still count.
                let taken = take_outcomes(state, id);
                if taken.is_none() {
                    state.usable(id)?;
                }
                Ok(taken)
            })
            .await
    }

    /// The next range of outcomes, if there is one.
    #[must_use]
    pub fn try_outcomes(&self) -> Option<Outcomes> {
        take_outcomes(&mut self.link.connection.shared.lock(), self.link.id)
    }

    /// How many deliveries have no outcome yet, or one that was not taken.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.link.connection.shared.lock().sender(self.link.id).map_or(0, |sender| sender.open)
    }

    /// Waits until everything has been written to the socket's queue: nothing waits for the session window.
    ///
    /// # Errors
    /// [`Error::LinkDetached`], or why the connection is gone.
    pub async fn flush(&self) -> Result<(), Error> {
        let id = self.link.id;
        let flushed = self.link.connection.shared.until(Some(id), |state| {
            state.usable(id)?;
            Ok((state.connection.waiting(id) == 0).then_some(()))
        });
        flushed.await
    }

    /// Writes what waits, closes the link and waits for the answer. Outcomes that have not come are not waited for.
    ///
    /// # Errors
    /// [`Error::LinkDetached`] with the broker's reason, [`Error::TimedOut`], or why the connection is gone.
    pub async fn close(self) -> Result<(), Error> {
        self.flush().await?;
        self.link.detach(true).await
    }
}

fn take_outcomes(state: &mut State, id: LinkId) -> Option<Outcomes> {
    let link = state.links.get_mut(&id)?;
    let LinkEnd::Sender(sender) = &mut link.end else { return None };
    let taken = sender.outcomes.pop_front()?;
    sender.open = sender.open.saturating_sub(taken.last - taken.first + 1);
    link.waiters.wake();
    Some(taken)
}

fn attach(address: &str, options: SenderOptions) -> Attach {
    let mut capabilities = options.capabilities;
    capabilities.extend(options.kind.map(crate::options::NodeKind::capability));
    let address = Some(address.to_owned()).filter(|address| !options.dynamic && !address.is_empty());
    let target = Target { address, dynamic: options.dynamic, capabilities, ..Target::default() };
    let outcomes = vec![outcome::ACCEPTED, outcome::REJECTED, outcome::RELEASED, outcome::MODIFIED];
    Attach {
        name: options.name.unwrap_or_else(|| fresh_name("sender")),
        role: Role::Sender,
        snd_settle_mode: options.settle_mode,
        source: Some(Source { outcomes, ..Source::default() }),
        target: Some(TargetKind::Target(target)),
        properties: options.properties,
        ..Attach::default()
    }
}
