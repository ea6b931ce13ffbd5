//! Dispositions: outcomes in and out, as ranges (part 2, sections 2.6.12 and 2.7.6).

use std::sync::Arc;

use postroad_amqp_codec::Encode;
use postroad_amqp_codec::performative::{Disposition, Role};
use postroad_amqp_codec::state::DeliveryState;

use crate::connection::Connection;
use crate::delivery::Ranges;
use crate::error::{ApiMisuse, Fault, PeerMisbehaved};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::link::LinkEnd;
use crate::output::Outbox;
use crate::serial::Serial;
use crate::session::Session;

/// A disposition that is held back until output is polled, since the next one may continue it.
#[derive(Debug)]
pub(crate) struct PendingDisposition {
    role: Role,
    first: u64,
    last: u64,
    settled: bool,
    state: Option<DeliveryState>,
}

impl PendingDisposition {
    fn goes_on_with(&self, next: &Self) -> bool {
        let follows = self.last.checked_add(1) == Some(next.first);
        follows && (self.role, self.settled) == (next.role, next.settled) && self.state == next.state
    }
}

/// Deliveries of one link that follow each other in a session: ids.
#[derive(Debug)]
pub(crate) struct Run {
    link: LinkId,
    first: u64,
    last: u64,
}

/// The states that nearly every disposition carries, shared instead of allocated.
#[derive(Debug)]
pub(crate) struct CommonStates {
    accepted: Arc<DeliveryState>,
    released: Arc<DeliveryState>,
}

impl CommonStates {
    pub(crate) fn new() -> Self {
        Self { accepted: Arc::new(DeliveryState::Accepted), released: Arc::new(DeliveryState::Released) }
    }

    fn share(&self, state: DeliveryState) -> Arc<DeliveryState> {
        match state {
            DeliveryState::Accepted => Arc::clone(&self.accepted),
            DeliveryState::Released => Arc::clone(&self.released),
            other => Arc::new(other),
        }
    }
}

/// The room that a disposition needs beside its state, in bytes; also the room for a transfer beside its state.
const FRAME_OVERHEAD: usize = 128;

impl Connection {
    /// A receiving link: tells the sender the state of deliveries `first..=last`, and settles them if `settled` (part
    /// 2, section 2.6.12). Deliveries in the range that are settled already are passed over. What follows on with the
    /// same state, also on other links of the session, goes out as one frame.
    ///
    /// Details of a state that are too large for a frame of the peer (the description and information of an error,
    /// message annotations) are left out.
    ///
    /// # Errors
    /// [`ApiMisuse::ConnectionGone`]; [`ApiMisuse::LinkGone`]; [`ApiMisuse::WrongRole`] on a sending link.
    pub fn settle_incoming(
        &mut self,
        link: LinkId,
        first: u64,
        last: u64,
        state: Option<DeliveryState>,
        settled: bool,
    ) -> Result<(), ApiMisuse> {
        self.settle_own(link, Role::Receiver, (first, last), state, settled)
    }

    /// A sending link: settles deliveries `first..=last`, with the state that they have at our end; used after an
    /// [`Event::Outcome`] that was not settled, or to give up waiting for one (part 2, section 2.6.12).
    ///
    /// # Errors
    /// [`ApiMisuse::ConnectionGone`]; [`ApiMisuse::LinkGone`]; [`ApiMisuse::WrongRole`] on a receiving link.
    pub fn settle_outgoing(
        &mut self,
        link: LinkId,
        first: u64,
        last: u64,
        state: Option<DeliveryState>,
    ) -> Result<(), ApiMisuse> {
        self.settle_own(link, Role::Sender, (first, last), state, true)
    }

    fn settle_own(
        &mut self,
        link: LinkId,
        role: Role,
        (first, last): (u64, u64),
        state: Option<DeliveryState>,
        settled: bool,
    ) -> Result<(), ApiMisuse> {
        if self.local_closed {
            return Err(ApiMisuse::ConnectionGone);
        }
        let max = self.peer.max_frame_size;
        let state = state.map(|state| fit(state, max));
        let Self { links, sessions, out, .. } = self;
        let found = links.get_mut(link.0).filter(|found| found.is_usable()).ok_or(ApiMisuse::LinkGone)?;
        let id = found.session;
        let session = sessions.get_mut(id.0).ok_or(ApiMisuse::LinkGone)?;
        let unsettled = match (&mut found.end, role) {
            (LinkEnd::Receiver(receiver), Role::Receiver) => &mut receiver.unsettled,
            (LinkEnd::Sender(sender), Role::Sender) => &mut sender.unsettled,
            _ => return Err(ApiMisuse::WrongRole),
        };
        let mut ranges = Ranges::default();
        let mut dispose = |range: Option<(u64, u64)>| {
            if let Some((first, last)) = range {
                let next = PendingDisposition { role, first, last, settled, state: state.clone() };
                session.dispose(next, out, max);
            }
        };
        if settled {
            unsettled.settle(first, last, |_, id| dispose(ranges.add(id)));
        } else {
            unsettled.visit(first, last, |_, id| dispose(ranges.add(id)));
        }
        dispose(ranges.finish());
        self.touch(id);
        Ok(())
    }

    /// Writes the disposition that is held back.
    pub(crate) fn flush_disposition(&mut self, id: SessionId) {
        if self.local_closed {
            return;
        }
        let max = self.peer.max_frame_size;
        if let Some(session) = self.sessions.get_mut(id.0).filter(|session| !session.ended) {
            session.write_disposition(&mut self.out, max);
        }
    }

    pub(crate) fn on_disposition(&mut self, id: SessionId, frame: Disposition) -> Result<(), Fault> {
        if self.session_mut(id).is_none() {
            return Ok(());
        }
        let mut runs = std::mem::take(&mut self.runs);
        if let Some(session) = self.sessions.get_mut(id.0) {
            collect_runs(session, &frame, &mut runs)?;
        }
        let state = frame.state.map(|state| self.states.share(state));
        for run in runs.drain(..) {
            self.settle_run(&run, frame.role.opposite(), state.as_ref(), frame.settled);
        }
        self.runs = runs;
        Ok(())
    }

    /// Tells the user what the peer has said about one run.
    fn settle_run(&mut self, run: &Run, role: Role, state: Option<&Arc<DeliveryState>>, settled: bool) {
        let Some(link) = self.links.get_mut(run.link.0) else { return };
        let unsettled = match &mut link.end {
            LinkEnd::Sender(sender) => &mut sender.unsettled,
            LinkEnd::Receiver(receiver) => &mut receiver.unsettled,
        };
        let mut ranges = Ranges::default();
        let events = &mut self.events;
        let mut tell = |range: Option<(u64, u64)>| {
            let Some((first, last)) = range else { return };
            let (link, state) = (run.link, state.cloned());
            if role == Role::Receiver {
                events.push_back(Event::SenderState { link, first, last, state, settled });
                return;
            }
            let before = events.back_mut();
            if !before.is_some_and(|event| extend_last(event, link, (first, last), state.as_ref(), settled)) {
                events.push_back(Event::Outcome { link, first, last, state, settled });
            }
        };
        if settled {
            unsettled.settle_values(run.first, run.last, |number, _| tell(ranges.add(number)));
        } else {
            let mark = state.map_or(0, |state| mark_of(state));
            unsettled.mark_values(run.first, run.last, mark, |number, _| tell(ranges.add(number)));
        }
        tell(ranges.finish());
    }
}

impl Session {
    /// Lengthens the disposition that is held back, or writes it and holds back the next.
    fn dispose(&mut self, next: PendingDisposition, out: &mut Outbox, max: u32) {
        if next.settled {
            let ledger = if next.role == Role::Receiver { &mut self.incoming } else { &mut self.outgoing };
            ledger.settle(next.first, next.last, |_, _| {});
        }
        match &mut self.disposition {
            Some(held) if held.goes_on_with(&next) => held.last = next.last,
            _ => {
                self.write_disposition(out, max);
                self.disposition = Some(next);
            }
        }
    }

    /// Writes the disposition that is held back, in a frame of at most `max` bytes.
    pub(crate) fn write_disposition(&mut self, out: &mut Outbox, max: u32) {
        let Some(held) = self.disposition.take() else { return };
        let frame = Disposition {
            role: held.role,
            first: Serial::of(held.first).get(),
            last: (held.last != held.first).then(|| Serial::of(held.last).get()),
            settled: held.settled,
            state: held.state,
            batchable: false,
        };
        if out.frame(self.channel, max, &frame).is_err() {
            // Only a state that the specification does not define, and that nobody can shorten, is so large.
            let _ = out.frame(self.channel, max, &Disposition { state: None, ..frame });
        }
    }
}

/// Finds the unsettled deliveries that a disposition is about, grouped by link; settles them in the session.
fn collect_runs(session: &mut Session, frame: &Disposition, runs: &mut Vec<Run>) -> Result<(), Fault> {
    let length = frame.last.map_or(0, |last| Serial::new(last).since(Serial::new(frame.first)));
    let length = u64::try_from(length).map_err(|_| PeerMisbehaved::DispositionReversed)?;
    if !frame.settled && frame.state.is_none() {
        // It says nothing.
        return Ok(());
    }
    let (first, ledger) = match frame.role {
        Role::Sender => (session.incoming_id(frame.first), &mut session.incoming),
        Role::Receiver => (Serial::new(frame.first).nearest(session.next_delivery), &mut session.outgoing),
    };
    let add = |id, link| match runs.last_mut() {
        Some(run) if run.link == link => run.last = id,
        _ => runs.push(Run { link, first: id, last: id }),
    };
    let last = first.saturating_add(length);
    if frame.settled {
        ledger.settle(first, last, add);
    } else {
        ledger.visit(first, last, add);
    }
    Ok(())
}

/// The mark of a delivery whose user knows this state, though it is not settled. An outcome is final, so that a second
/// one says no more than the first: without marks a peer could repeat a small frame about everything that is unsettled.
fn mark_of(state: &DeliveryState) -> u8 {
    match state {
        DeliveryState::Accepted
        | DeliveryState::Rejected { .. }
        | DeliveryState::Released
        | DeliveryState::Modified { .. } => 1,
        DeliveryState::Received { .. } => 1 << 1,
        DeliveryState::Declared { .. } => 1 << 2,
        DeliveryState::Transactional { .. } => 1 << 3,
        DeliveryState::Other(_) => 1 << 4,
    }
}

/// Lets an outcome that follows on lengthen the event before it. States are compared by identity, which finds the
/// common ones.
fn extend_last(
    event: &mut Event,
    for_link: LinkId,
    (first, to): (u64, u64),
    for_state: Option<&Arc<DeliveryState>>,
    for_settled: bool,
) -> bool {
    let Event::Outcome { link, last, state, settled, .. } = event else { return false };
    let same_state = match (state.as_ref(), for_state) {
        (Some(state), Some(for_state)) => Arc::ptr_eq(state, for_state),
        (None, None) => true,
        _ => false,
    };
    let follows = *link == for_link && *settled == for_settled && last.checked_add(1) == Some(first);
    if follows && same_state {
        *last = to;
    }
    follows && same_state
}

/// The state, or as much of it as a frame of `max` bytes can hold.
pub(crate) fn fit(state: DeliveryState, max: u32) -> DeliveryState {
    if matches!(state, DeliveryState::Accepted | DeliveryState::Released) || encoded_len(&state) <= room(max)
    {
        return state;
    }
    match state {
        DeliveryState::Rejected { error: Some(mut error) } => {
            error.info = None;
            if encoded_len(&error) > room(max) {
                error.description = None;
            }
            DeliveryState::Rejected { error: Some(error) }
        }
        DeliveryState::Modified { delivery_failed, undeliverable_here, .. } => {
            DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations: None }
        }
        other => other,
    }
}

/// The room for a state in a frame of `max` bytes.
pub(crate) fn room(max: u32) -> usize {
    (max as usize).saturating_sub(FRAME_OVERHEAD)
}

pub(crate) fn encoded_len(value: &impl Encode) -> usize {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes.len()
}
