//! The ends of links and sessions, from either side, and what they mean to subscriptions (AM-6, AM-7, AM-8).

use crate::door::Door;
use crate::links::{End, Held, Link, Wire};
use crate::refusal::{amqp_error, with_reason};
use postroad_amqp::{AttachReply, LinkId, SessionId};
use postroad_amqp_codec::AmqpError;
use postroad_amqp_codec::error::condition;
use postroad_engine::{CloseMode, Command, LinkNo};
use postroad_model::refusal::{Code, Refusal};

impl Door {
    /// A link about which the engine is being asked.
    pub(crate) fn asked(&mut self, no: LinkNo) -> Option<&mut Link> {
        self.links.get_mut(no).filter(|link| link.held == Held::Asked)
    }

    /// Refuses a link that the engine was not asked about.
    pub(crate) fn refuse(&mut self, id: LinkId, error: AmqpError) {
        self.report_bad_attach(&error);
        // Fails only once we have closed the connection.
        let _ = self.amqp.refuse_attach(id, error);
    }

    /// Answers the attach of a link that the engine now holds; whether it is attached. What the client has left already
    /// is answered and left again.
    pub(crate) fn answer_attach(
        &mut self,
        no: LinkNo,
        reply: AttachReply,
        commands: &mut Vec<Command>,
    ) -> bool {
        let Some(link) = self.links.get(no) else { return false };
        let wire = link.wire;
        let answered = match wire {
            Wire::Open | Wire::PeerDetached { .. } => self.amqp.accept_attach(link.id, reply),
            Wire::WeDetached | Wire::Gone => Ok(()),
        };
        match (wire, answered) {
            (Wire::Open, Ok(())) => return true,
            (Wire::Open, Err(error)) => {
                tracing::warn!(%error, "an attach can't be answered");
                let text = "the answer to the attach is larger than a frame of yours";
                self.detach_for(
                    no,
                    with_reason(condition::FRAME_SIZE_TOO_SMALL, "BAD_VALUE", text),
                    commands,
                );
            }
            _ => {
                let mode = link.left;
                self.leave(no, mode, commands);
            }
        }
        false
    }

    /// Tells the engine that the client has left; a link that the engine has not answered for is left then.
    fn leave(&mut self, no: LinkNo, mode: CloseMode, commands: &mut Vec<Command>) {
        let Some(link) = self.links.get_mut(no) else { return };
        // What was closed stays so, even if its session ends before the engine answers.
        if link.left != CloseMode::Close {
            link.left = mode;
        }
        let held = match (link.held, &link.end) {
            (Held::Producer(producer), _) => {
                commands.push(Command::CloseProducer { producer });
                Held::Closing
            }
            (Held::Consumer(taker), End::Consumer(consumer)) => {
                let default = consumer.default.clone();
                commands.push(Command::CloseConsumer { taker, mode, default });
                if let (Some(name), CloseMode::Detach) = (&consumer.durable, mode)
                    && consumer.ends.lingers()
                {
                    self.lingering.insert(name.clone(), (link.session, consumer.ends));
                }
                Held::Closing
            }
            (Held::Subscription, End::Lookup { name }) if mode == CloseMode::Close => {
                self.lingering.remove(name);
                let (conn, name) = (self.conn, name.clone());
                commands.push(Command::DeleteSubscription { conn, link: no, name });
                Held::Closing
            }
            (Held::Subscription, _) => Held::Gone,
            (held, _) => held,
        };
        link.held = held;
        if held == Held::Gone {
            self.answer_detach(no, None);
        }
    }

    /// Answers the client's detach, once the engine has let go of the link.
    fn answer_detach(&mut self, no: LinkNo, error: Option<AmqpError>) {
        self.flush_accepted();
        let Some(link) = self.links.get_mut(no) else { return };
        if let Wire::PeerDetached { closed } = link.wire {
            // An error always closes (part 2, section 2.6.5).
            let _ = self.amqp.detach(link.id, closed || error.is_some(), error);
            link.wire = Wire::Gone;
        }
        self.links.release(no);
    }

    /// Detaches a link by our own decision, and lets the engine know.
    pub(crate) fn detach_for(&mut self, no: LinkNo, error: AmqpError, commands: &mut Vec<Command>) {
        self.flush_accepted();
        let Some(link) = self.links.get_mut(no).filter(|link| link.wire == Wire::Open) else { return };
        link.wire = match self.amqp.detach(link.id, true, Some(error)) {
            Ok(()) => Wire::WeDetached,
            Err(_) => link.wire,
        };
        let mode = self.links.get(no).map_or(CloseMode::Detach, |link| link.mode_at_detach(false));
        self.leave(no, mode, commands);
    }

    /// The client detached a link, or answered our detach.
    pub(crate) fn on_detach(&mut self, id: LinkId, closed: bool, commands: &mut Vec<Command>) {
        let Some(no) = self.links.number(id) else { return };
        let Some(link) = self.links.get_mut(no) else { return };
        if link.wire == Wire::WeDetached {
            link.wire = Wire::Gone;
            self.links.release(no);
            return;
        }
        link.wire = Wire::PeerDetached { closed };
        let mode = link.mode_at_detach(closed);
        match link.held {
            Held::Gone => self.answer_detach(no, None),
            _ => self.leave(no, mode, commands),
        }
    }

    /// A link broke a rule, and is gone.
    pub(crate) fn on_link_failed(&mut self, id: LinkId, commands: &mut Vec<Command>) {
        if let Some(no) = self.links.number(id) {
            let mode = self.links.get(no).map_or(CloseMode::Detach, |link| link.mode_at_detach(false));
            self.drop_link(no, mode, commands);
        }
    }

    /// A session ended, with its links.
    pub(crate) fn on_end(&mut self, session: SessionId, commands: &mut Vec<Command>) {
        for no in self.links.of(Some(session)) {
            let mode = self.links.get(no).map_or(CloseMode::Detach, mode_at_end);
            self.drop_link(no, mode, commands);
        }
        let ended: Vec<String> = self
            .lingering
            .iter()
            .filter(|(_, (of, ends))| *of == session && ends.with_session())
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            self.lingering.remove(&name);
            self.expire_subscription(name, commands);
        }
    }

    fn drop_link(&mut self, no: LinkNo, mode: CloseMode, commands: &mut Vec<Command>) {
        let Some(link) = self.links.get_mut(no) else { return };
        link.wire = Wire::Gone;
        self.leave(no, mode, commands);
        self.links.release(no);
    }

    /// A consumer is detached that the engine has let go of: what that means to its subscription.
    fn leave_subscription(&mut self, no: LinkNo, commands: &mut Vec<Command>) {
        let Some(link) = self.links.get(no) else { return };
        let End::Consumer(consumer) = &link.end else { return };
        let Some(name) = consumer.durable.clone() else { return };
        if consumer.ends.lingers() {
            self.lingering.insert(name, (link.session, consumer.ends));
        } else if link.mode_at_detach(false) == CloseMode::Expire {
            self.expire_subscription(name, commands);
        }
    }

    /// A subscription whose link was detached before begins to expire: its policy says so.
    fn expire_subscription(&mut self, name: String, commands: &mut Vec<Command>) {
        commands.push(Command::ExpireSubscription { conn: self.conn, name });
    }

    /// The connection is over. Consumers of an orderly end leave with the default outcome (AM-14); of any other end the
    /// engine returns what they had by itself (AK-5), and sees to the subscriptions that expire with the connection.
    pub(crate) fn leave_all(&mut self, orderly: bool, commands: &mut Vec<Command>) {
        for no in self.links.of(None) {
            let Some(Link { held: Held::Consumer(taker), end: End::Consumer(consumer), .. }) =
                self.links.get(no)
            else {
                continue;
            };
            if orderly {
                let (taker, mode, default) = (*taker, consumer.ends.at_close(), consumer.default.clone());
                commands.push(Command::CloseConsumer { taker, mode, default });
            }
        }
        for (name, _) in std::mem::take(&mut self.lingering) {
            self.expire_subscription(name, commands);
        }
    }

    /// The engine has let go of a link that left.
    pub(crate) fn link_closed(&mut self, no: LinkNo) {
        self.let_go(no, None);
    }

    /// The engine refuses what a link asked for.
    pub(crate) fn link_refused(&mut self, no: LinkNo, refusal: &Refusal) {
        self.report_refused("a link", refusal);
        let error = amqp_error(refusal);
        let Some(link) = self.links.get_mut(no) else { return };
        if link.held == Held::Asked && link.wire == Wire::Open {
            let _ = self.amqp.refuse_attach(link.id, error);
            link.wire = Wire::WeDetached;
            link.held = Held::Gone;
            self.links.release(no);
            return;
        }
        if link.held == Held::Asked {
            link.held = Held::Closing;
        }
        self.let_go(no, Some(error));
    }

    fn let_go(&mut self, no: LinkNo, error: Option<AmqpError>) {
        // Anything else is an answer to a link that had the number before.
        let Some(link) = self.links.get_mut(no).filter(|link| link.held == Held::Closing) else { return };
        link.held = Held::Gone;
        self.answer_detach(no, error);
    }

    /// The engine ends a link. It has forgotten a consumer; a producer may still be there (README U-13).
    pub(crate) fn detach_link(&mut self, no: LinkNo, refusal: &Refusal, commands: &mut Vec<Command>) {
        self.flush_accepted();
        let Some(link) = self.links.get_mut(no) else { return };
        match link.held {
            Held::Asked | Held::Subscription | Held::Gone => return,
            Held::Producer(producer) => commands.push(Command::CloseProducer { producer }),
            // Another consumer has its subscription now.
            Held::Consumer(_) if refusal.code == Code::Stolen => {}
            Held::Consumer(_) => self.leave_subscription(no, commands),
            Held::Closing => {}
        }
        let Some(link) = self.links.get_mut(no) else { return };
        link.held = Held::Gone;
        self.report_detached(refusal);
        let error = amqp_error(refusal);
        let Some(link) = self.links.get_mut(no) else { return };
        if link.wire == Wire::Open {
            let _ = self.amqp.detach(link.id, true, Some(error));
            link.wire = Wire::WeDetached;
            self.links.release(no);
        } else {
            self.answer_detach(no, Some(error));
        }
    }
}

/// What the end of its session means to a link's subscription.
fn mode_at_end(link: &Link) -> CloseMode {
    match &link.end {
        End::Consumer(consumer) => consumer.ends.at_end(),
        _ => CloseMode::Detach,
    }
}
