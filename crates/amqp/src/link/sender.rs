//! The sending end of a link: credit in, deliveries out (part 2, sections 2.6.7 and 2.6.12).

use std::collections::VecDeque;

use bytes::Bytes;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Flow, ReceiverSettleMode, Transfer};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::TargetKind;

use crate::connection::Connection;
use crate::delivery::Ledger;
use crate::error::ApiMisuse;
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::link::{Half, Link, LinkEnd};
use crate::output::{Outbox, Payload, Place};
use crate::serial::Serial;
use crate::session::Session;
use crate::settlement::encoded_len;

/// The most bytes that the state on a transfer may take: with it the head of a transfer fits into the smallest frame
/// that every peer takes.
const MAX_STATE: usize = 256;

/// What is said about a delivery when it is sent (part 2, section 2.7.5).
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// The tag: unique among the link's unsettled deliveries.
    pub tag: DeliveryTag,
    /// The format of the message; 0 is an AMQP message.
    pub message_format: u32,
    /// Send it settled: no outcome will come.
    pub settled: bool,
    /// The state at our end; a transaction to which the delivery belongs (part 4, section 4.4.1).
    pub state: Option<DeliveryState>,
    /// How the receiver is to settle it, if it differs from the link.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// The receiver need not hurry with the outcome.
    pub batchable: bool,
    /// The payload is only the first piece: [`Connection::send_more`] follows.
    pub more: bool,
}

/// The state of a sending link.
#[derive(Debug)]
pub(crate) struct SenderLink {
    /// The delivery count before the first delivery.
    first_count: Serial,
    /// How many deliveries drains have skipped: the delivery count is `first_count + sent + skipped`.
    skipped: u64,
    /// How many deliveries the user has given us: the number of the next one.
    accepted: u64,
    /// How many of them have been written, at least in part.
    sent: u64,
    /// How many deliveries the peer allows in all; counts like `sent`.
    limit: u64,
    /// The highest limit that the user was told since the last drain: up to there deliveries are taken and, should the
    /// peer have lowered its credit meanwhile, kept.
    told: u64,
    /// The peer's drain flag.
    drain: bool,
    /// The user has answered a drain; it goes out behind the queue.
    drained: bool,
    /// Credit that came before we had answered the attach.
    early: bool,
    available: u32,
    /// The peer's limit; 0 for none.
    max_message_size: u64,
    /// Messages go to a transaction coordinator.
    coordinator: bool,
    /// Deliveries that wait for the window of the session, or for their next piece.
    queue: VecDeque<Queued>,
    /// In the session's ring.
    waiting: bool,
    /// Something could not be written when it was given to us; the user is told when it is.
    blocked: bool,
    pub(crate) unsettled: Ledger<u64>,
}

/// A delivery that is not wholly written.
#[derive(Debug)]
struct Queued {
    head: Head,
    chunks: Vec<Bytes>,
    place: Place,
}

/// What is known of a delivery while it is being written.
#[derive(Debug)]
struct Head {
    /// The next transfer frame.
    transfer: Transfer,
    number: u64,
    /// Its id, once its first frame is written.
    id: Option<u64>,
    /// Bytes so far, all pieces.
    size: u64,
    /// All pieces are here.
    complete: bool,
}

/// Why writing a delivery stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It is wholly written.
    Done,
    /// The session window is closed.
    Window,
    /// The next piece has to come.
    Piece,
}

impl SenderLink {
    pub(crate) fn new(first_id: u32) -> Self {
        Self {
            first_count: Serial::new(first_id),
            skipped: 0,
            accepted: 0,
            sent: 0,
            limit: 0,
            told: 0,
            drain: false,
            drained: false,
            early: false,
            available: 0,
            max_message_size: 0,
            coordinator: false,
            queue: VecDeque::new(),
            waiting: false,
            blocked: false,
            unsettled: Ledger::new(),
        }
    }

    /// Takes over what the peer's attach says.
    pub(crate) fn attached(&mut self, attach: &Attach) {
        self.max_message_size = attach.max_message_size.unwrap_or(0);
    }

    /// Fills in our attach.
    pub(crate) fn attaching(&mut self, attach: &mut Attach) {
        attach.initial_delivery_count = Some(self.first_count.get());
        self.coordinator = matches!(attach.target, Some(TargetKind::Coordinator(_)));
    }

    /// Forgets everything that was to be sent; how many bytes of payload waited.
    pub(crate) fn silence(&mut self, id: LinkId, session: &mut Session) -> u64 {
        let waited = self.queue.iter().map(Queued::waiting).sum();
        self.queue = VecDeque::new();
        self.drained = false;
        if std::mem::take(&mut self.waiting) {
            session.ring.retain(|link| *link != id);
        }
        self.unsettled.clear(|_, id| session.outgoing.settle(id, id, |_, _| {}));
        waited
    }

    /// The delivery count as the wire has it.
    fn count(&self) -> Serial {
        self.first_count.plus(Serial::of(self.sent.wrapping_add(self.skipped)).get())
    }

    /// Takes over the receiver's credit: its delivery count and what it allows beyond (part 2, section 2.6.7). A count
    /// that is absent is the first one. A count before the first one uses credit up like any other that lies behind.
    fn take_flow(&mut self, flow: &Flow) {
        let position = self.sent.saturating_add(self.skipped);
        let ahead = match flow.delivery_count {
            Some(count) => i64::from(Serial::new(count).since(self.count())),
            None => i64::try_from(position).map_or(i64::MIN, |position| -position),
        };
        let credit = i64::from(flow.link_credit.unwrap_or(0));
        let limit = position.saturating_add_signed(ahead.saturating_add(credit));
        self.limit = limit.saturating_sub(self.skipped);
        self.told = self.told.max(self.limit);
        self.drain = flow.drain;
    }

    /// Our part of a flow frame.
    pub(crate) fn flow(&self, flow: &mut Flow) {
        let queued = self.accepted - self.sent;
        flow.delivery_count = Some(self.count().get());
        flow.link_credit = Some(saturate(self.limit.saturating_sub(self.sent)));
        flow.available = Some(saturate(queued.saturating_add(self.available.into())));
        flow.drain = self.drain;
    }

    /// Lets go of the credit that is left (part 2, section 2.6.7).
    fn skip_to_limit(&mut self) {
        self.skipped += self.limit.saturating_sub(self.sent);
        self.limit = self.sent;
        self.told = self.sent;
        self.drained = false;
    }
}

fn saturate(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Connection {
    /// A sending link: sends a delivery, or its first piece. Returns its number on the link; numbers count from 0.
    ///
    /// It needs credit (see [`Event::Credit`]): its number has to be below the limit. While the session's window is
    /// closed deliveries wait inside, no more of them than there is credit; [`Connection::waiting`] tells how many, and
    /// [`Event::Sendable`] when none are left.
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`], [`ApiMisuse::WrongRole`], [`ApiMisuse::NotAttached`], [`ApiMisuse::NoCredit`],
    /// [`ApiMisuse::DeliveryOpen`] while another delivery waits for pieces, [`ApiMisuse::MessageTooLarge`] for the
    /// peer, [`ApiMisuse::FrameTooLarge`] for a state of more than 256 bytes.
    pub fn send(&mut self, link: LinkId, delivery: &Delivery, payload: &[Bytes]) -> Result<u64, ApiMisuse> {
        if delivery.state.as_ref().is_some_and(|state| encoded_len(state) > MAX_STATE) {
            return Err(ApiMisuse::FrameTooLarge);
        }
        let (session_id, _) = self.sender_for(link)?;
        let own_max = self.own_max_frame_size();
        let Self { sessions, links, out, peer, waiting_bytes, .. } = self;
        let session = sessions.get_mut(session_id.0).ok_or(ApiMisuse::SessionGone)?;
        let found = links.get_mut(link.0).ok_or(ApiMisuse::LinkGone)?;
        let handle = found.output_handle;
        let LinkEnd::Sender(sender) = &mut found.end else { return Err(ApiMisuse::WrongRole) };
        if sender.accepted >= sender.told {
            return Err(ApiMisuse::NoCredit);
        }
        if sender.queue.back().is_some_and(|last| !last.head.complete) {
            return Err(ApiMisuse::DeliveryOpen);
        }
        let size = payload_len(payload);
        sender.check_size(size)?;
        let mut head = Head::new(handle, sender.accepted, size, delivery);
        sender.accepted += 1;
        let number = head.number;
        let mut progress = Progress::Window;
        let mut payload = Payload::new(payload, Place::default());
        if sender.queue.is_empty() && number < sender.limit {
            let mut wire = Wire { session, out, max: peer.max_frame_size.min(own_max), link };
            progress = wire.write(sender, &mut head, &mut payload);
        }
        if progress != Progress::Done {
            sender.blocked |= progress == Progress::Window;
            *waiting_bytes += payload.left() as u64;
            sender.queue.push_back(Queued { head, chunks: payload.rest(), place: Place::default() });
            sender.wait(session, link);
        }
        Ok(number)
    }

    /// A sending link: the next piece of a delivery that was sent with `more`; the last one unless `more` is set again.
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`], [`ApiMisuse::WrongRole`]; [`ApiMisuse::NoDeliveryOpen`] when no delivery waits for
    /// pieces; [`ApiMisuse::MessageTooLarge`] for the peer: then abort it.
    pub fn send_more(&mut self, link: LinkId, payload: &[Bytes], more: bool) -> Result<(), ApiMisuse> {
        let (session, sender) = self.sender_for(link)?;
        let last = sender.queue.back().filter(|last| !last.head.complete).ok_or(ApiMisuse::NoDeliveryOpen)?;
        let size = last.head.size.saturating_add(payload_len(payload));
        sender.check_size(size)?;
        if let Some(last) = sender.queue.back_mut() {
            last.head.size = size;
            last.head.complete = !more;
            last.add(payload);
        }
        self.waiting_bytes += payload_len(payload);
        self.resume(session, link);
        Ok(())
    }

    /// A sending link: gives up a delivery that was sent with `more` and is not complete. It counts as settled (part 2,
    /// section 2.7.5, aborted).
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`], [`ApiMisuse::WrongRole`]; [`ApiMisuse::NoDeliveryOpen`].
    pub fn abort(&mut self, link: LinkId) -> Result<(), ApiMisuse> {
        let (session, sender) = self.sender_for(link)?;
        let last = sender.queue.back_mut().filter(|last| !last.head.complete);
        let last = last.ok_or(ApiMisuse::NoDeliveryOpen)?;
        last.head.complete = true;
        last.head.transfer.aborted = true;
        let dropped = last.waiting();
        (last.chunks, last.place) = (Vec::new(), Place::default());
        self.waiting_bytes -= dropped;
        self.resume(session, link);
        Ok(())
    }

    /// A sending link: answers a drain. The credit that is left is let go: the delivery count goes up to the limit and
    /// the receiver is told, behind the deliveries that still wait (part 2, section 2.6.7). The limit is then the number
    /// of deliveries sent.
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`], [`ApiMisuse::WrongRole`], [`ApiMisuse::NotAttached`].
    pub fn drained(&mut self, link: LinkId) -> Result<(), ApiMisuse> {
        let (session, sender) = self.sender_for(link)?;
        sender.drained = true;
        if sender.queue.is_empty() {
            sender.skip_to_limit();
            self.flow_due(session, link);
        }
        Ok(())
    }

    /// A sending link: tells the receiver how many messages wait for credit, when it is next told anything (part 2,
    /// section 2.6.7, available).
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`], [`ApiMisuse::WrongRole`], [`ApiMisuse::NotAttached`].
    pub fn set_available(&mut self, link: LinkId, messages: u32) -> Result<(), ApiMisuse> {
        self.sender_for(link)?.1.available = messages;
        Ok(())
    }

    /// A sending link: how many of its deliveries are not wholly written, since the session's window is closed, or
    /// their next piece has to come; 0 also when the link is gone.
    #[must_use]
    pub fn waiting(&self, link: LinkId) -> usize {
        match self.links.get(link.0).map(|link| &link.end) {
            Some(LinkEnd::Sender(sender)) => sender.queue.len(),
            _ => 0,
        }
    }

    /// A sending link: whether a delivery would go out at once, having credit and an open window.
    #[must_use]
    pub fn can_send(&self, link: LinkId) -> bool {
        let Some(link) = self.links.get(link.0).filter(|link| link.is_usable()) else { return false };
        let LinkEnd::Sender(sender) = &link.end else { return false };
        let open = self.sessions.get(link.session.0).is_some_and(|session| session.remote_window > 0);
        open && link.remote == Half::Attached && sender.queue.is_empty() && sender.accepted < sender.limit
    }

    /// A sending link that is attached at both ends, and its session.
    fn sender_for(&mut self, link: LinkId) -> Result<(SessionId, &mut SenderLink), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        let found = self.links.get_mut(link.0).ok_or(ApiMisuse::LinkGone)?;
        let Link { session, local, remote, end, .. } = found;
        let LinkEnd::Sender(sender) = end else { return Err(ApiMisuse::WrongRole) };
        match (*local, *remote) {
            (Half::Attached, Half::Attached) => Ok((*session, sender)),
            (Half::Detached, _) | (_, Half::Detached) => Err(ApiMisuse::LinkGone),
            _ => Err(ApiMisuse::NotAttached),
        }
    }

    /// The receiver's flow frame for a link on which we send.
    pub(crate) fn on_credit(&mut self, link: LinkId, session: SessionId, flow: Flow) {
        let Some(found) = self.links.get_mut(link.0) else { return };
        let answered = found.local == Half::Attached;
        let LinkEnd::Sender(sender) = &mut found.end else { return };
        sender.take_flow(&flow);
        if !answered {
            sender.early = true;
            return;
        }
        let (limit, drain) = (sender.limit, sender.drain);
        if let Some(session) = self.sessions.get_mut(session.0)
            && !sender.queue.is_empty()
        {
            sender.wait(session, link);
        }
        let properties = flow.properties.map(Box::new);
        self.events.push_back(Event::Credit { link, limit, drain, properties });
        if flow.echo {
            self.flow_due(session, link);
        }
    }

    /// Tells the user of credit that came before its answer.
    pub(crate) fn tell_early_credit(&mut self, link: LinkId) {
        if let Some(LinkEnd::Sender(sender)) = self.links.get_mut(link.0).map(|link| &mut link.end)
            && std::mem::take(&mut sender.early)
        {
            let (limit, drain) = (sender.limit, sender.drain);
            self.events.push_back(Event::Credit { link, limit, drain, properties: None });
        }
    }

    /// Goes on with a link that has something new to write.
    fn resume(&mut self, session: SessionId, link: LinkId) {
        if let Some(LinkEnd::Sender(sender)) = self.links.get_mut(link.0).map(|link| &mut link.end)
            && let Some(session) = self.sessions.get_mut(session.0)
        {
            sender.wait(session, link);
        }
        self.pump(session);
    }

    /// Writes deliveries that wait, one of each link in turn, as far as the session's window goes.
    pub(crate) fn pump(&mut self, id: SessionId) {
        while let Some(session) = self.session_mut(id).filter(|session| session.remote_window > 0) {
            let Some(link) = session.ring.pop_front() else { return };
            self.pump_link(id, link);
        }
    }

    /// Writes the first of a link's waiting deliveries.
    fn pump_link(&mut self, id: SessionId, link: LinkId) {
        let own_max = self.own_max_frame_size();
        let Self { sessions, links, out, peer, events, waiting_bytes, .. } = self;
        let Some(session) = sessions.get_mut(id.0) else { return };
        let Some(LinkEnd::Sender(sender)) = links.get_mut(link.0).map(|link| &mut link.end) else { return };
        sender.waiting = false;
        let Some(mut queued) = sender.queue.pop_front() else { return };
        if queued.head.id.is_none() && sender.sent >= sender.limit {
            // The peer took its credit back: the next flow that gives some puts the link into the ring again.
            sender.blocked = true;
            sender.queue.push_front(queued);
            return;
        }
        let Queued { head, chunks, place } = &mut queued;
        let mut payload = Payload::new(chunks, *place);
        let before = payload.left();
        let mut wire = Wire { session, out, max: peer.max_frame_size.min(own_max), link };
        let progress = wire.write(sender, head, &mut payload);
        *waiting_bytes -= (before - payload.left()) as u64;
        *place = payload.place();
        if progress != Progress::Done {
            queued.forget_written();
            sender.queue.push_front(queued);
        }
        let blocked =
            progress == Progress::Window || (progress == Progress::Done && !sender.queue.is_empty());
        if std::mem::replace(&mut sender.blocked, blocked) && !blocked {
            events.push_back(Event::Sendable { link });
        }
        if progress != Progress::Piece && !sender.queue.is_empty() {
            sender.wait(session, link);
        }
        if sender.queue.is_empty() && sender.drained {
            sender.skip_to_limit();
            self.flow_due(id, link);
        }
    }
}

impl SenderLink {
    fn check_size(&self, size: u64) -> Result<(), ApiMisuse> {
        match self.max_message_size {
            limit if limit > 0 && size > limit => Err(ApiMisuse::MessageTooLarge),
            _ => Ok(()),
        }
    }

    /// Puts the link at the end of the session's ring, unless it is in there.
    fn wait(&mut self, session: &mut Session, link: LinkId) {
        if !std::mem::replace(&mut self.waiting, true) {
            session.ring.push_back(link);
        }
    }
}

impl Head {
    fn new(handle: u32, number: u64, size: u64, delivery: &Delivery) -> Self {
        let transfer = Transfer {
            handle,
            delivery_tag: Some(delivery.tag),
            message_format: Some(delivery.message_format),
            settled: Some(delivery.settled),
            rcv_settle_mode: delivery.rcv_settle_mode,
            state: delivery.state.clone(),
            batchable: delivery.batchable,
            ..Transfer::default()
        };
        Self { transfer, number, id: None, size, complete: !delivery.more }
    }

    /// What a transfer says that continues the delivery (part 2, section 2.7.5).
    fn go_on(&mut self) {
        let Transfer { handle, delivery_id, aborted, .. } = self.transfer;
        self.transfer = Transfer { handle, delivery_id, aborted, ..Transfer::default() };
    }
}

impl Queued {
    /// Bytes of payload that are not written.
    fn waiting(&self) -> u64 {
        Payload::new(&self.chunks, self.place).left() as u64
    }

    fn add(&mut self, payload: &[Bytes]) {
        self.chunks.extend(payload.iter().filter(|chunk| !chunk.is_empty()).cloned());
    }

    /// Lets go of the chunks that are written.
    fn forget_written(&mut self) {
        self.chunks = Payload::new(&self.chunks, self.place).rest();
        self.place = Place::default();
    }
}

/// Where the transfers of a session are written.
struct Wire<'a> {
    session: &'a mut Session,
    out: &'a mut Outbox,
    /// The smaller max-frame-size of the two peers: no message holds up the others for longer than it has to.
    max: u32,
    link: LinkId,
}

impl Wire<'_> {
    /// Writes as much of a delivery as the window allows.
    fn write(&mut self, sender: &mut SenderLink, head: &mut Head, payload: &mut Payload<'_>) -> Progress {
        if sender.coordinator {
            // A discharge must not overtake the outcomes that it makes final.
            self.session.write_disposition(self.out, self.max);
        }
        loop {
            if payload.left() == 0 && !head.complete {
                return Progress::Piece;
            }
            if self.session.remote_window == 0 {
                return Progress::Window;
            }
            self.number(sender, head);
            head.transfer.more = !head.complete;
            self.out.transfer(self.session.channel, self.max, &mut head.transfer, payload);
            self.session.remote_window -= 1;
            self.session.next_outgoing = self.session.next_outgoing.next();
            if !head.transfer.more {
                return Progress::Done;
            }
            head.go_on();
        }
    }

    /// Gives a delivery its id with its first frame; takes an aborted one out of the books.
    fn number(&mut self, sender: &mut SenderLink, head: &mut Head) {
        match head.id {
            None => {
                let id = self.session.next_delivery;
                self.session.next_delivery += 1;
                sender.sent += 1;
                head.id = Some(id);
                head.transfer.delivery_id = Some(Serial::of(id).get());
                if head.transfer.settled != Some(true) && !head.transfer.aborted {
                    self.session.outgoing.push(id, self.link);
                    sender.unsettled.push(head.number, id);
                }
            }
            Some(id) if head.transfer.aborted => {
                sender.unsettled.settle(head.number, head.number, |_, _| {});
                self.session.outgoing.settle(id, id, |_, _| {});
            }
            Some(_) => {}
        }
    }
}

fn payload_len(payload: &[Bytes]) -> u64 {
    payload.iter().map(|chunk| chunk.len() as u64).sum()
}
