//! Links on which the client receives: attach, credit and drain, deliveries, outcomes.

use crate::deliver;
use crate::door::Door;
use crate::links::{End, Held, Link, Wire};
use crate::refusal::{not_implemented, with_reason};
use crate::source::{self, Ends, Wanted, check_unshared, settlement, subscription_name};
use postroad_amqp::{ApiMisuse, AttachReply, Delivery as Sent, LinkId, SessionId};
use postroad_amqp_codec::error::condition;
use postroad_amqp_codec::performative::{Attach, DeliveryTag, SenderSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::terminus::{Source, TargetKind};
use postroad_engine::{Command, Delivery, LinkNo, Resolved, Settlement, TakerKey};
use postroad_model::settings::NamedObjectSettings;

/// A link on which the client receives.
#[derive(Debug)]
pub(crate) struct Consumer {
    /// What the client is told of its source when it is attached.
    source: Source,
    target: Option<TargetKind>,
    snd_settle_mode: SenderSettleMode,
    /// The outcome of deliveries that end without one (AM-14).
    pub(crate) default: Settlement,
    pub(crate) ends: Ends,
    /// The name of the durable subscription, if it is one.
    pub(crate) durable: Option<String>,
    drain: Drain,
}

/// A drain under way. The engine's answer is about the credit that it knew, so no other credit is passed on before it:
/// otherwise credit that came meanwhile would be let go, too, and numbers of deliveries would part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// The engine has been asked.
    Asked,
    /// The engine has nothing more, but deliveries wait for the session's window.
    Sending,
    /// The engine has been asked, and credit came since; whether it is to be drained too.
    Overtaken {
        limit: u64,
        drain: bool,
    },
}

impl Consumer {
    fn new(wanted: Wanted, attach: &Attach) -> Self {
        Self {
            durable: wanted.spec.durable,
            source: wanted.source,
            target: attach.target.clone(),
            snd_settle_mode: match attach.snd_settle_mode {
                SenderSettleMode::Settled => SenderSettleMode::Settled,
                // Nobody who leaves it open is sent what is settled already.
                SenderSettleMode::Unsettled | SenderSettleMode::Mixed => SenderSettleMode::Unsettled,
            },
            default: wanted.default,
            ends: wanted.ends,
            drain: Drain::No,
        }
    }

    fn reply(&mut self, resolved: Resolved) -> AttachReply {
        let mut source = std::mem::take(&mut self.source);
        source::resolve(&mut source, resolved);
        AttachReply {
            source: Some(source),
            target: self.target.take(),
            snd_settle_mode: self.snd_settle_mode,
            ..AttachReply::default()
        }
    }
}

impl Door {
    /// The client attaches to receive.
    pub(crate) fn attach_consumer(
        &mut self,
        id: LinkId,
        session: SessionId,
        attach: &Attach,
        commands: &mut Vec<Command>,
    ) {
        // Some libraries can't leave the source out: one that names nothing asks for nothing else.
        let asks = |source: &&Source| source.address.is_some() || source.dynamic;
        let Some(source) = attach.source.as_ref().filter(asks) else {
            return self.attach_lookup(id, session, attach, commands);
        };
        match source::read(attach, source) {
            Ok(wanted) => {
                let spec = Box::new(wanted.spec.clone());
                let consumer = Box::new(Consumer::new(wanted, attach));
                let link = self.links.insert(Link::new(id, session, End::Consumer(consumer)));
                commands.push(Command::OpenConsumer { conn: self.conn, link, spec });
            }
            Err(error) => self.refuse(id, error),
        }
    }

    /// An attach without a source asks for a durable subscription by its name (AM-7).
    fn attach_lookup(
        &mut self,
        id: LinkId,
        session: SessionId,
        attach: &Attach,
        commands: &mut Vec<Command>,
    ) {
        if let Err(error) = check_unshared(&attach.desired_capabilities) {
            return self.refuse(id, error);
        }
        let name = subscription_name(&attach.name).to_owned();
        let link = self.links.insert(Link::new(id, session, End::Lookup { name: name.clone() }));
        commands.push(Command::FindSubscription { conn: self.conn, link, name });
    }

    /// The engine has a consumer for a link.
    pub(crate) fn consumer_opened(
        &mut self,
        no: LinkNo,
        key: TakerKey,
        resolved: Resolved,
        commands: &mut Vec<Command>,
    ) {
        let Some(link) = self.asked(no) else { return };
        link.held = Held::Consumer(key);
        let End::Consumer(consumer) = &mut link.end else { return };
        let (reply, durable) = (consumer.reply(resolved), consumer.durable.clone());
        // Only now: an attach that is refused leaves its subscription as it was.
        if let Some(name) = durable {
            self.lingering.remove(&name);
        }
        self.answer_attach(no, reply, commands);
    }

    /// The engine knows the subscription that was asked for.
    pub(crate) fn subscription_found(
        &mut self,
        no: LinkNo,
        address: String,
        settings: &NamedObjectSettings,
        commands: &mut Vec<Command>,
    ) {
        let Some(link) = self.asked(no) else { return };
        link.held = Held::Subscription;
        let source = Some(source::of_subscription(address, settings));
        self.answer_attach(no, AttachReply { source, ..AttachReply::default() }, commands);
    }

    /// The client gave credit, took some back, or wants it used up (AM-15).
    pub(crate) fn credit(&mut self, id: LinkId, limit: u64, drain: bool, commands: &mut Vec<Command>) {
        let Some(no) = self.links.number(id) else { return };
        let Some((taker, consumer)) = self.links.get_mut(no).and_then(Link::consumer_mut) else { return };
        match consumer.drain {
            Drain::Asked | Drain::Overtaken { .. } => {
                consumer.drain = Drain::Overtaken { limit, drain };
                return;
            }
            // The engine has answered, and nothing but this credit would make it answer again.
            Drain::No | Drain::Sending => consumer.drain = if drain { Drain::Asked } else { Drain::No },
        }
        commands.push(Command::Credit { taker, limit, drain });
    }

    /// The engine has sent all that it has.
    pub(crate) fn drained(&mut self, no: LinkNo, commands: &mut Vec<Command>) {
        let Some(link) = self.links.get_mut(no) else { return };
        let id = link.id;
        let Some((taker, consumer)) = link.consumer_mut() else { return };
        match consumer.drain {
            Drain::Asked if self.amqp.waiting(id) > 0 => consumer.drain = Drain::Sending,
            Drain::Asked | Drain::Sending => {
                consumer.drain = Drain::No;
                let _ = self.amqp.drained(id);
            }
            Drain::Overtaken { limit, drain } => {
                consumer.drain = if drain { Drain::Asked } else { Drain::No };
                commands.push(Command::Credit { taker, limit, drain });
            }
            Drain::No => {}
        }
    }

    /// What waited for the session's window is written.
    pub(crate) fn sendable(&mut self, id: LinkId, commands: &mut Vec<Command>) {
        let Some(no) = self.links.number(id) else { return };
        let Some((_, consumer)) = self.links.get_mut(no).and_then(Link::consumer_mut) else { return };
        if consumer.drain == Drain::Sending {
            self.drained(no, commands);
        }
    }

    /// A message for a client.
    pub(crate) fn deliver(&mut self, delivery: &Delivery, commands: &mut Vec<Command>) {
        self.outgoing.take(delivery.message.len());
        let no = delivery.link;
        let Some(link) = self.links.get_mut(no).filter(|link| link.wire == Wire::Open) else { return };
        let id = link.id;
        let Some((taker, _)) = link.consumer_mut() else { return };
        let payload = deliver::payload(delivery, &self.config, &mut self.scratch);
        let head = Sent {
            tag: DeliveryTag::from_number(delivery.tag),
            settled: delivery.settled,
            ..Sent::default()
        };
        match self.amqp.send(id, &head, &payload) {
            Ok(number) => {
                debug_assert_eq!(number, delivery.tag, "deliveries are numbered alike on both sides");
            }
            Err(ApiMisuse::MessageTooLarge) => {
                self.skip_too_large(id, &head);
                // It must not come back to this consumer: it would be too large again.
                let outcome =
                    Settlement::Modified { failed: false, undeliverable_here: true, annotations: None };
                let (first, last) = (delivery.tag, delivery.tag);
                commands.push(Command::Settle { taker, first, last, outcome, confirm: false });
            }
            // The client has gone in frames that are yet to be looked at.
            Err(ApiMisuse::LinkGone | ApiMisuse::ConnectionGone | ApiMisuse::SessionGone) => {}
            Err(error) => {
                tracing::error!(%error, tag = delivery.tag, "a delivery can't be sent; its link is detached");
                let text = "the broker lost count of this link's credit: attach again";
                let error = with_reason(condition::INTERNAL_ERROR, "ILLEGAL_STATE", text);
                self.detach_for(no, error, commands);
            }
        }
    }

    /// A delivery that the client's limit forbids still has its number: it goes out empty, and given up.
    fn skip_too_large(&mut self, id: LinkId, head: &Sent) {
        let head = Sent { more: true, settled: false, ..head.clone() };
        if self.amqp.send(id, &head, &[]).is_ok() {
            let _ = self.amqp.abort(id);
        }
    }

    /// The client's outcome for a range of deliveries (AK-2).
    pub(crate) fn outcome(
        &mut self,
        id: LinkId,
        (first, last): (u64, u64),
        state: Option<&DeliveryState>,
        settled: bool,
        commands: &mut Vec<Command>,
    ) {
        let Some(no) = self.links.number(id) else { return };
        let Some((taker, consumer)) = self.links.get_mut(no).and_then(Link::consumer_mut) else { return };
        let outcome = match state {
            Some(DeliveryState::Transactional { .. } | DeliveryState::Declared { .. }) => {
                let error = not_implemented("transactions are not offered: settle outside of one");
                return self.detach_for(no, error, commands);
            }
            None | Some(DeliveryState::Received { .. }) if !settled => return,
            // Settled without an outcome: the source's default (AM-14).
            None | Some(DeliveryState::Received { .. } | DeliveryState::Other(_)) => consumer.default.clone(),
            Some(state) => settlement(state),
        };
        commands.push(Command::Settle { taker, first, last, outcome, confirm: !settled });
    }

    /// Outcomes are durable: now the deliveries are settled here, too.
    pub(crate) fn settled(&mut self, no: LinkNo, first: u64, last: u64, outcome: &Settlement) {
        let Some(link) = self.links.get_mut(no) else { return };
        let id = link.id;
        if link.consumer_mut().is_some() {
            let _ = self.amqp.settle_outgoing(id, first, last, Some(source::state(outcome)));
        }
    }
}
