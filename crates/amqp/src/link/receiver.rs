//! The receiving end of a link: credit out, deliveries in (part 2, sections 2.6.7 and 2.6.12).

use bytes::Bytes;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, Flow, Transfer};

use crate::connection::Connection;
use crate::delivery::Ledger;
use crate::error::{ApiMisuse, Fault, PeerMisbehaved};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::link::{Half, LinkEnd};
use crate::serial::Serial;
use crate::session::Session;

/// The most credit that is stated in one flow: more would reach the far half of the serial numbers.
const MAX_CREDIT: u64 = i32::MAX as u64;

/// The state of a receiving link.
#[derive(Debug)]
pub(crate) struct ReceiverLink {
    /// The sender's delivery count before its first delivery, once it has attached.
    first_count: Option<Serial>,
    /// How many deliveries the sender has skipped by drains; the delivery count is `first_count + received + skipped`.
    skipped: u64,
    /// How many deliveries have begun: the number of the next one.
    received: u64,
    /// How many deliveries the user allows in all; counts like `received`.
    limit: u64,
    /// The highest limit that was ever given, with what was skipped: what is in flight when credit is taken back is
    /// still welcome.
    given: u64,
    /// How many deliveries beyond that are let pass.
    excess: u64,
    drain: bool,
    /// Our limit on the size of messages, in bytes; 0 for none.
    max_message_size: u64,
    /// The delivery of which more pieces are to come.
    current: Option<Current>,
    pub(crate) unsettled: Ledger<u64>,
}

/// A delivery of which more pieces are to come.
#[derive(Clone, Copy, Debug)]
struct Current {
    number: u64,
    id: u64,
    tag: DeliveryTag,
    format: u32,
    settled: bool,
    /// Bytes so far.
    size: u64,
    /// A resumed delivery that we do not know: it is passed over (part 2, section 2.7.5, resume).
    ignored: bool,
}

impl ReceiverLink {
    pub(crate) const fn new(excess: u64) -> Self {
        Self {
            first_count: None,
            skipped: 0,
            received: 0,
            limit: 0,
            given: 0,
            excess,
            drain: false,
            max_message_size: 0,
            current: None,
            unsettled: Ledger::new(),
        }
    }

    /// Takes over what the peer's attach says. The delivery count must be there; a peer that refuses may leave it out.
    pub(crate) fn attached(&mut self, attach: &Attach) {
        self.first_count = Some(Serial::new(attach.initial_delivery_count.unwrap_or(0)));
    }

    /// Takes over what our attach says.
    pub(crate) fn attaching(&mut self, attach: &mut Attach) {
        attach.initial_delivery_count = None;
        self.max_message_size = attach.max_message_size.unwrap_or(0);
    }

    /// Forgets what was received and not settled.
    pub(crate) fn silence(&mut self, session: &mut Session) {
        self.current = None;
        self.unsettled.clear(|_, id| session.incoming.settle(id, id, |_, _| {}));
    }

    fn give(&mut self, limit: u64, drain: bool) {
        self.limit = limit.min(self.received.saturating_add(MAX_CREDIT));
        self.given = self.given.max(self.limit.saturating_add(self.skipped));
        self.drain = drain;
    }

    /// Our part of a flow frame.
    pub(crate) fn flow(&self, flow: &mut Flow) {
        let count = Serial::of(self.received.wrapping_add(self.skipped)).get();
        let credit = self.limit.saturating_sub(self.received);
        flow.delivery_count = self.first_count.map(|first| first.plus(count).get());
        flow.link_credit = Some(u32::try_from(credit).unwrap_or(u32::MAX));
        flow.drain = self.drain;
    }

    /// Takes over the sender's delivery count: what it went ahead of its deliveries, it has skipped (part 2, section
    /// 2.6.7).
    fn take_flow(&mut self, flow: &Flow) {
        let (Some(count), Some(first)) = (flow.delivery_count, self.first_count) else { return };
        let position = self.received.saturating_add(self.skipped);
        let count = Serial::new(count.wrapping_sub(first.get())).nearest(position);
        let skip = count.saturating_sub(position).min(self.limit.saturating_sub(self.received));
        self.skipped += skip;
        self.limit -= skip;
    }

    /// The delivery that a transfer belongs to: the current one, or a new one.
    fn current_for(
        &mut self,
        session: &mut Session,
        link: LinkId,
        transfer: &Transfer,
    ) -> Result<Current, Fault> {
        match self.current {
            Some(current) => current.check_goes_on(transfer).map(|()| current).map_err(Fault::from),
            None => self.begin_delivery(session, link, transfer),
        }
    }

    fn begin_delivery(
        &mut self,
        session: &mut Session,
        link: LinkId,
        transfer: &Transfer,
    ) -> Result<Current, Fault> {
        let wire_id = transfer.delivery_id.ok_or(PeerMisbehaved::DeliveryIdMissing)?;
        let tag = transfer.delivery_tag.ok_or(PeerMisbehaved::DeliveryTagMissing)?;
        let format = transfer.message_format.unwrap_or(0);
        let id = session.incoming_id(wire_id);
        if session.last_incoming.is_some_and(|last| id <= last) {
            return Err(PeerMisbehaved::DeliveryIdOutOfOrder { id: wire_id }.into());
        }
        session.last_incoming = Some(id);
        if self.received.saturating_add(self.skipped) >= self.given.saturating_add(self.excess) {
            return Err(Fault::Link(link, PeerMisbehaved::CreditExceeded));
        }
        let number = self.received;
        self.received += 1;
        let settled = transfer.settled == Some(true);
        if !settled && !transfer.resume && !transfer.aborted {
            session.incoming.push(id, link);
            self.unsettled.push(number, id);
        }
        let settled = settled || transfer.resume;
        Ok(Current { number, id, tag, format, settled, size: 0, ignored: transfer.resume })
    }

    /// Takes one transfer frame; returns what the user is told.
    fn take(
        &mut self,
        session: &mut Session,
        link: LinkId,
        mut transfer: Transfer,
        mut payload: Bytes,
    ) -> Result<Option<Event>, Fault> {
        let tag = transfer.delivery_tag.filter(|_| self.current.is_none());
        let mut current = self.current_for(session, link, &transfer)?;
        if current.ignored {
            transfer.aborted |= !transfer.more;
        }
        if (transfer.aborted || transfer.settled == Some(true)) && !current.settled {
            current.settled = true;
            self.unsettled.settle(current.number, current.number, |_, _| {});
            session.incoming.settle(current.id, current.id, |_, _| {});
        }
        if transfer.aborted {
            payload = Bytes::new();
        }
        current.size = current.size.saturating_add(payload.len() as u64);
        if self.max_message_size > 0 && current.size > self.max_message_size {
            let limit = self.max_message_size;
            return Err(Fault::Link(link, PeerMisbehaved::MessageTooLarge { limit }));
        }
        let more = transfer.more && !transfer.aborted;
        self.current = more.then_some(current);
        Ok((!current.ignored || transfer.aborted).then(|| current.event(link, tag, transfer, payload, more)))
    }
}

impl Current {
    /// What a further transfer repeats of the first one has to be the same (part 2, section 2.7.5).
    fn check_goes_on(&self, transfer: &Transfer) -> Result<(), PeerMisbehaved> {
        match (transfer.delivery_id, transfer.delivery_tag, transfer.message_format) {
            (Some(id), _, _) if Serial::of(self.id).get() != id => {
                Err(PeerMisbehaved::DeliveryIdChanged { id })
            }
            (_, Some(tag), _) if tag != self.tag => Err(PeerMisbehaved::DeliveryTagChanged),
            (_, _, Some(format)) if format != self.format => {
                Err(PeerMisbehaved::MessageFormatChanged { format })
            }
            _ => Ok(()),
        }
    }

    fn event(
        &self,
        link: LinkId,
        tag: Option<DeliveryTag>,
        transfer: Transfer,
        payload: Bytes,
        more: bool,
    ) -> Event {
        Event::Transfer {
            link,
            delivery: self.number,
            tag,
            message_format: self.format,
            settled: self.settled,
            rcv_settle_mode: transfer.rcv_settle_mode,
            state: transfer.state.map(Box::new),
            payload,
            more,
            aborted: transfer.aborted,
        }
    }
}

impl Connection {
    /// A receiving link: lets the sender send until it has sent `limit` deliveries in all, counted from the start of
    /// the link like delivery numbers; a lower limit than before takes credit back. `drain` asks the sender to use the
    /// credit up: what it cannot use it lets go, and [`Event::SenderFlow`] says so (part 2, section 2.6.7).
    ///
    /// At most 2^31 - 1 deliveries ahead are granted.
    ///
    /// # Errors
    /// [`ApiMisuse::LinkGone`]; [`ApiMisuse::NotAttached`] when the peer's attach was not answered;
    /// [`ApiMisuse::WrongRole`] on a sending link.
    pub fn flow_receiver(&mut self, link: LinkId, limit: u64, drain: bool) -> Result<(), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        let found = self.links.get_mut(link.0).ok_or(ApiMisuse::LinkGone)?;
        let LinkEnd::Receiver(receiver) = &mut found.end else { return Err(ApiMisuse::WrongRole) };
        match (found.local, found.remote) {
            (Half::Absent, _) => Err(ApiMisuse::NotAttached),
            (Half::Detached, _) | (_, Half::Detached) => Err(ApiMisuse::LinkGone),
            _ => {
                receiver.give(limit, drain);
                let session = found.session;
                self.flow_due(session, link);
                Ok(())
            }
        }
    }

    /// A flow frame of the peer for one of its links.
    pub(crate) fn on_link_flow(&mut self, session: SessionId, handle: u32, flow: Flow) -> Result<(), Fault> {
        let id = self.input_link(session, handle)?;
        let Some(link) = self.links.get_mut(id.0).filter(|link| link.local != Half::Detached) else {
            return Ok(());
        };
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            self.on_credit(id, session, flow);
            return Ok(());
        };
        receiver.take_flow(&flow);
        if link.local == Half::Attached {
            let (limit, drained) = (receiver.limit, flow.drain && receiver.limit <= receiver.received);
            self.events.push_back(Event::SenderFlow { link: id, limit, available: flow.available, drained });
            if flow.echo {
                self.flow_due(session, id);
            }
        }
        Ok(())
    }

    pub(crate) fn on_transfer(
        &mut self,
        session_id: SessionId,
        transfer: Transfer,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let Some(session) = self.session_mut(session_id) else { return Ok(()) };
        session.take_transfer()?;
        if session.flow_due {
            self.touch(session_id);
        }
        let id = self.input_link(session_id, transfer.handle)?;
        let Self { sessions, links, events, .. } = self;
        let Some(session) = sessions.get_mut(session_id.0) else { return Ok(()) };
        let Some(link) = links.get_mut(id.0).filter(|link| link.local != Half::Detached) else {
            return Ok(());
        };
        let LinkEnd::Receiver(receiver) = &mut link.end else {
            return Err(Fault::Link(id, PeerMisbehaved::TransferFromReceiver));
        };
        if let Some(event) = receiver.take(session, id, transfer, payload)? {
            events.push_back(event);
        }
        Ok(())
    }

    /// Notes that the peer has to be told the flow state of a link.
    pub(crate) fn flow_due(&mut self, session: SessionId, link: LinkId) {
        let Some(found) = self.links.get_mut(link.0).filter(|link| link.is_usable()) else { return };
        if !std::mem::replace(&mut found.flow_due, true)
            && let Some(session) = self.sessions.get_mut(session.0)
        {
            session.flows_due.push(link);
        }
        self.touch(session);
    }

    /// Writes the flow frame of a link.
    pub(crate) fn write_link_flow(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id.0).filter(|link| link.is_usable()) else { return };
        link.flow_due = false;
        let Some(session) = self.sessions.get_mut(link.session.0) else { return };
        let mut flow = session.flow();
        flow.handle = Some(link.output_handle);
        match &link.end {
            LinkEnd::Sender(sender) => sender.flow(&mut flow),
            LinkEnd::Receiver(receiver) => receiver.flow(&mut flow),
        }
        let id = session.id;
        // A flow frame without properties is smaller than the smallest that every peer takes.
        let _ = self.write_on(id, &flow);
    }
}
