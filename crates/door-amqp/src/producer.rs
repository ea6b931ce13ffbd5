//! Links on which the client sends: attach, transfers put together, outcomes told as ranges.

use crate::door::Door;
use crate::dynamic;
use crate::links::{End, Held, Link, Wire};
use crate::refusal::{amqp_error, invalid_field, not_implemented};
use crate::source::kind_of;
use crate::staging::{Pieces, Staging};
use postroad_amqp::{AttachReply, Event, LinkId, SessionId};
use postroad_amqp_codec::AmqpError;
use postroad_amqp_codec::message::Sections;
use postroad_amqp_codec::performative::{Attach, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy};
use postroad_engine::{Command, LinkNo, ProducerKey, ProducerTarget, Publication, Resolved};
use postroad_model::address::Address;
use postroad_model::message::Incoming;
use postroad_model::refusal::{Code, Refusal};
use std::collections::VecDeque;
use std::sync::Arc;

/// A link on which the client sends.
#[derive(Debug)]
pub(crate) struct Producer {
    source: Option<Source>,
    target: Target,
    snd_settle_mode: SenderSettleMode,
    /// Deliveries that the engine allows in all.
    limit: u64,
    /// Deliveries that the engine never saw, since they were aborted or refused here: its limit does not count them.
    unseen: u64,
    /// The largest message that its store takes, in bytes.
    max_message_size: u64,
    /// Deliveries that have begun.
    begun: u64,
    /// Large messages that the engine has not answered for: while there are some, the client is given no credit.
    large: VecDeque<u64>,
    /// A message of which more pieces are to come.
    partial: Option<Partial>,
    /// The operator was told that a message was refused.
    told: bool,
}

/// The first pieces of a message.
#[derive(Debug)]
struct Partial {
    /// Why the message is refused once it is complete.
    refused: Option<AmqpError>,
    pieces: Pieces,
}

/// A message of so many bytes is large: the next one of its link is taken once it is stored, since credit counts
/// messages, not bytes.
const LARGE: usize = 1024 * 1024;

/// What came of a piece.
enum Taken {
    /// More pieces are to come.
    Part,
    /// More pieces are to come of a message that has just become large.
    Large,
    /// The message is whole.
    Whole(Box<Incoming>),
    /// It is refused, and over.
    Refused(AmqpError),
    /// It is going to be larger than its store takes.
    TooLarge(AmqpError),
}

/// One piece of a delivery, as the protocol engine tells it.
#[derive(Debug)]
pub(crate) struct Piece {
    link: LinkId,
    delivery: u64,
    format: u32,
    settled: bool,
    transactional: bool,
    payload: bytes::Bytes,
    more: bool,
    aborted: bool,
}

impl Piece {
    /// The piece in a transfer event; `None` for any other event.
    pub(crate) fn of(event: Event) -> Option<Self> {
        match event {
            Event::Transfer {
                link,
                delivery,
                message_format: format,
                settled,
                state,
                payload,
                more,
                aborted,
                ..
            } => {
                let transactional = matches!(state.as_deref(), Some(DeliveryState::Transactional { .. }));
                Some(Self { link, delivery, format, settled, transactional, payload, more, aborted })
            }
            _ => None,
        }
    }

    fn fault(&self) -> Option<AmqpError> {
        if self.format != 0 {
            let text = format!("message format {} is not offered: send AMQP messages, format 0", self.format);
            return Some(not_implemented(&text));
        }
        self.transactional.then(|| not_implemented("transactions are not offered: send outside of one"))
    }
}

/// Deliveries of one link that were accepted one after another and are yet to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedRun {
    link: LinkNo,
    first: u64,
    last: u64,
}

impl Producer {
    /// What the client asks for, and what it will be told.
    fn read(attach: &Attach) -> Result<(ProducerTarget, Self), AmqpError> {
        let target = match &attach.target {
            Some(TargetKind::Target(target)) => target,
            Some(TargetKind::Coordinator(_)) => {
                return Err(not_implemented("transactions are not offered by this version"));
            }
            None => return Err(invalid_field("target", "the link has no target")),
        };
        let wanted = match &target.address {
            _ if target.dynamic => {
                let properties = target.dynamic_node_properties.as_ref();
                ProducerTarget::Temporary(dynamic::read(&target.capabilities, properties)?)
            }
            None => ProducerTarget::PerMessage,
            Some(address) => {
                let parsed = Address::parse(address, kind_of(&target.capabilities));
                ProducerTarget::Address(parsed.map_err(|refusal| amqp_error(&refusal))?)
            }
        };
        let producer = Self {
            source: attach.source.clone(),
            // Nothing of a target outlives its link here: its store is defined apart from it.
            target: Target {
                durable: TerminusDurability::None,
                expiry_policy: TerminusExpiryPolicy::LinkDetach,
                timeout: 0,
                dynamic_node_properties: match &wanted {
                    ProducerTarget::Temporary(lifetime) => Some(dynamic::properties(*lifetime)),
                    ProducerTarget::Address(_) | ProducerTarget::PerMessage => None,
                },
                ..target.clone()
            },
            snd_settle_mode: attach.snd_settle_mode,
            limit: 0,
            unseen: 0,
            max_message_size: 0,
            begun: 0,
            large: VecDeque::new(),
            partial: None,
            told: false,
        };
        Ok((wanted, producer))
    }

    fn reply(&mut self, resolved: Option<Resolved>, max_message_size: u64) -> AttachReply {
        if let (true, Some(resolved)) = (self.target.dynamic, resolved) {
            self.target.address = Some(resolved.address);
        }
        self.max_message_size = max_message_size;
        AttachReply {
            source: self.source.take(),
            target: Some(TargetKind::Target(std::mem::take(&mut self.target))),
            snd_settle_mode: self.snd_settle_mode,
            max_message_size: Some(max_message_size),
            ..AttachReply::default()
        }
    }

    /// Takes a piece.
    fn take(&mut self, piece: &Piece, staging: &Arc<Staging>) -> Taken {
        self.begun = self.begun.max(piece.delivery + 1);
        match self.partial.take() {
            None if piece.more => self.take_first(piece, staging),
            None => match piece.fault() {
                Some(error) => Taken::Refused(error),
                None => Taken::of(Incoming::parse(&piece.payload)),
            },
            Some(partial) => self.take_next(piece, partial),
        }
    }

    /// The first of several pieces may show that the rest is in vain.
    fn take_first(&mut self, piece: &Piece, staging: &Arc<Staging>) -> Taken {
        let announced = Sections::announced_len(&piece.payload);
        if announced > self.max_message_size {
            return Taken::TooLarge(too_large(announced, self.max_message_size));
        }
        let refused = piece
            .fault()
            .or_else(|| Incoming::check_first_part(&piece.payload).err().map(|refusal| amqp_error(&refusal)));
        self.take_next(piece, Partial { refused, pieces: Pieces::new(Arc::clone(staging)) })
    }

    fn take_next(&mut self, piece: &Piece, mut partial: Partial) -> Taken {
        let before = partial.pieces.len();
        if partial.refused.is_none() && !partial.pieces.add(&piece.payload) {
            partial.refused = Some(no_room());
        }
        if piece.more {
            let large = before < LARGE && partial.pieces.len() >= LARGE;
            self.partial = Some(partial);
            return if large { Taken::Large } else { Taken::Part };
        }
        match partial.refused {
            Some(error) => Taken::Refused(error),
            None => Taken::of(Incoming::parse_owned(&partial.pieces.join())),
        }
    }

    /// How many deliveries the client may begin in all.
    fn open_limit(&self) -> u64 {
        let large = self.partial.as_ref().is_some_and(|partial| partial.pieces.len() >= LARGE);
        if large || !self.large.is_empty() { self.begun } else { self.limit.saturating_add(self.unseen) }
    }
}

impl Taken {
    fn of(parsed: Result<Incoming, Refusal>) -> Self {
        match parsed {
            Ok(message) => Self::Whole(Box::new(message)),
            Err(refusal) => Self::Refused(amqp_error(&refusal)),
        }
    }
}

fn too_large(announced: u64, limit: u64) -> AmqpError {
    let text = format!("the message has at least {announced} bytes, the link takes at most {limit}");
    amqp_error(&Refusal::new(Code::MsgTooBig, "message", text))
}

fn no_room() -> AmqpError {
    let text = "the broker holds as much of unfinished messages as it may: send it again later";
    amqp_error(&Refusal::new(Code::LimitReached, "message", text))
}

impl Door {
    /// The client attaches to send.
    pub(crate) fn attach_producer(
        &mut self,
        id: LinkId,
        session: SessionId,
        attach: &Attach,
        commands: &mut Vec<Command>,
    ) {
        match Producer::read(attach) {
            Ok((target, producer)) => {
                let link = self.links.insert(Link::new(id, session, End::Producer(Box::new(producer))));
                commands.push(Command::OpenProducer { conn: self.conn, link, target });
            }
            Err(error) => self.refuse(id, error),
        }
    }

    /// The engine has a producer for a link.
    pub(crate) fn producer_opened(
        &mut self,
        no: LinkNo,
        key: ProducerKey,
        resolved: Option<Resolved>,
        credit: u64,
        commands: &mut Vec<Command>,
    ) {
        // What was accepted of a link that had the number before must not be told of this one.
        self.flush_accepted();
        let max = self.config.message_limit(resolved.as_ref().map(|resolved| resolved.max_message_size));
        let Some(link) = self.asked(no) else { return };
        link.held = Held::Producer(key);
        let id = link.id;
        let End::Producer(producer) = &mut link.end else { return };
        producer.limit = credit;
        let reply = producer.reply(resolved, max);
        if self.answer_attach(no, reply, commands) {
            // Fails only for a link that the client has detached meanwhile: its detach is yet to be read.
            let _ = self.amqp.flow_receiver(id, credit, false);
        }
    }

    /// The engine lets a producer send more, or takes credit back.
    pub(crate) fn producer_credit(&mut self, no: LinkNo, limit: u64) {
        if let Some((_, producer)) = self.links.get_mut(no).and_then(Link::producer_mut) {
            producer.limit = limit;
        }
        self.tell_credit(no);
    }

    /// Tells the client how much it may send.
    fn tell_credit(&mut self, no: LinkNo) {
        let Some(link) = self.links.get_mut(no) else { return };
        let id = link.id;
        let Some((_, producer)) = link.producer_mut() else { return };
        let limit = producer.open_limit();
        let _ = self.amqp.flow_receiver(id, limit, false);
    }

    /// A piece of a message came.
    pub(crate) fn transfer(&mut self, piece: &Piece, commands: &mut Vec<Command>) {
        let Some(no) = self.links.number(piece.link) else { return };
        let Some(link) = self.links.get_mut(no).filter(|link| link.wire == Wire::Open) else { return };
        let Some((key, producer)) = link.producer_mut() else { return };
        if piece.aborted {
            producer.partial = None;
            self.pass_over(no);
            return;
        }
        let (tag, settled) = (piece.delivery, piece.settled);
        match producer.take(piece, &self.staging) {
            Taken::Part => {}
            Taken::Large => self.tell_credit(no),
            Taken::Whole(message) => {
                if message.message.len() >= LARGE {
                    self.large_message(no, tag, settled);
                }
                commands.push(Command::Publish { producer: key, tag, message, settled });
            }
            Taken::Refused(error) if settled => {
                self.report_rejected(&error);
                self.detach_for(no, error, commands);
            }
            Taken::Refused(error) => {
                self.reject(no, tag, error);
                self.pass_over(no);
            }
            Taken::TooLarge(error) => {
                self.report_rejected(&error);
                self.detach_for(no, error, commands);
            }
        }
    }

    /// A large message goes to the engine: nothing follows it on its link before the answer, if there will be one.
    fn large_message(&mut self, no: LinkNo, tag: u64, settled: bool) {
        if let Some((_, producer)) = self.links.get_mut(no).and_then(Link::producer_mut)
            && !settled
        {
            producer.large.push_back(tag);
            self.sends_large = true;
        }
        self.tell_credit(no);
    }

    /// The engine has answered for a message of a connection that has sent large ones.
    fn large_answered(&mut self, no: LinkNo, first: u64, last: u64) {
        let Some((_, producer)) = self.links.get_mut(no).and_then(Link::producer_mut) else { return };
        let before = producer.large.len();
        producer.large.retain(|large| !(first..=last).contains(large));
        if producer.large.len() < before {
            self.tell_credit(no);
        }
    }

    /// A delivery was dealt with here: the client gets its credit back, which the engine would not give.
    fn pass_over(&mut self, no: LinkNo) {
        if let Some((_, producer)) = self.links.get_mut(no).and_then(Link::producer_mut) {
            producer.unseen += 1;
        }
        self.tell_credit(no);
    }

    /// The engine has stored a message, or refused it.
    pub(crate) fn published(&mut self, no: LinkNo, (first, last): (u64, u64), outcome: &Publication) {
        match outcome {
            Publication::Accepted => self.accept(no, first, last),
            Publication::Refused(refusal) => {
                for tag in first..=last {
                    self.reject(no, tag, amqp_error(refusal));
                }
            }
        }
        if self.sends_large {
            self.large_answered(no, first, last);
        }
    }

    /// Notes accepted deliveries; what follows on is told as one range.
    fn accept(&mut self, link: LinkNo, first: u64, last: u64) {
        match &mut self.accepted {
            Some(run) if run.link == link && run.last.checked_add(1) == Some(first) => run.last = last,
            _ => {
                self.flush_accepted();
                self.accepted = Some(AcceptedRun { link, first, last });
            }
        }
    }

    /// Tells the range that was held back.
    pub(crate) fn flush_accepted(&mut self) {
        let Some(run) = self.accepted.take() else { return };
        let Some(link) = self.links.get_mut(run.link) else { return };
        let id = link.id;
        if link.producer_mut().is_some() {
            let state = Some(DeliveryState::Accepted);
            let _ = self.amqp.settle_incoming(id, run.first, run.last, state, true);
        }
    }

    fn reject(&mut self, no: LinkNo, tag: u64, error: AmqpError) {
        self.flush_accepted();
        let Some(link) = self.links.get_mut(no) else { return };
        let id = link.id;
        if let Some((_, producer)) = link.producer_mut() {
            if !std::mem::replace(&mut producer.told, true) {
                self.report_rejected(&error);
            }
            let state = Some(DeliveryState::Rejected { error: Some(error) });
            let _ = self.amqp.settle_incoming(id, tag, tag, state, true);
        }
    }
}
