//! Everything that a connection tells its user, on one page.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use postroad_amqp_codec::performative::{Attach, Begin, DeliveryTag, Open, ReceiverSettleMode};
use postroad_amqp_codec::state::DeliveryState;
use postroad_amqp_codec::{AmqpError, Fields};

use crate::error::{Error, PeerMisbehaved};
use crate::ids::{LinkId, SessionId};

/// What happened. Poll with [`crate::Connection::poll_event`] until it returns `None`.
///
/// Order: events come in the order of the frames that caused them. After `Detach`, `LinkFailed`, `End`,
/// `SessionFailed`, `Close` or `Failed` no event names the link, the session or any of its links, or anything, again
/// (an index may come back, under a new id). Deliveries are numbered per link from 0, without holes, in both
/// directions; credit limits count in the same numbers.
#[derive(Debug)]
pub enum Event {
    /// SASL: the peer asks to be let in without a name. Answer with `sasl_outcome`; until then no input is taken.
    SaslAnonymous {
        /// What it says about itself; never proved.
        trace: String,
    },
    /// SASL: the peer names itself. Answer with `sasl_outcome`; until then no input is taken.
    SaslPlain {
        /// Whom it wants to act as; empty for itself.
        authzid: String,
        /// The user.
        user: String,
        /// The password.
        password: Password,
    },
    /// The peer opened the connection. The accepting side answers with `open` or `refuse_open`; for the initiating
    /// side this is the answer.
    RemoteOpen(Box<Open>),
    /// The peer began a session; it has been answered.
    RemoteBegin {
        /// The new session.
        session: SessionId,
        /// The frame.
        begin: Box<Begin>,
    },
    /// The peer answered our `begin`.
    Begun {
        /// The session.
        session: SessionId,
        /// The frame.
        begin: Box<Begin>,
    },
    /// The peer attached a link. Answer with `accept_attach` or `refuse_attach`, now or later.
    RemoteAttach {
        /// The new link. We are at its other end: where `attach.role` is receiver, we send.
        link: LinkId,
        /// Its session.
        session: SessionId,
        /// The frame.
        attach: Box<Attach>,
    },
    /// The peer answered our `attach`. Where its terminus (source if it sends, target if it receives) is null it has
    /// refused, and `Detach` follows (part 2, section 2.6.3).
    Attached {
        /// The link.
        link: LinkId,
        /// The frame.
        attach: Box<Attach>,
    },
    /// A receiving link: a piece of a delivery, as it came in one frame. Pieces of one delivery follow each other on
    /// their link. One that stops short of its last piece, since the link was detached, was not delivered.
    Transfer {
        /// The link.
        link: LinkId,
        /// The number of the delivery on this link.
        delivery: u64,
        /// The tag, with the first piece only.
        tag: Option<DeliveryTag>,
        /// The format of the message; 0 is an AMQP message (part 3, section 3.2.16).
        message_format: u32,
        /// The sender has settled it: no outcome is expected (with any piece, for the whole delivery).
        settled: bool,
        /// How the sender wants this delivery to be settled, if it differs from the link.
        rcv_settle_mode: Option<ReceiverSettleMode>,
        /// The state at the sender; a transaction to which the delivery belongs (part 4, section 4.4.1).
        state: Option<Box<DeliveryState>>,
        /// The bytes, as they came; a slice of the input buffer.
        payload: Bytes,
        /// More pieces follow.
        more: bool,
        /// The sender gave up: forget the delivery. It counts as settled.
        aborted: bool,
    },
    /// A sending link: the peer's credit.
    Credit {
        /// The link.
        link: LinkId,
        /// How many deliveries the peer allows on this link, counted from its start. It can go down.
        limit: u64,
        /// The peer wants the credit used up: send what there is, then call `drained`.
        drain: bool,
        /// What the peer added to the flow state.
        properties: Option<Box<Fields>>,
    },
    /// A sending link: everything that had to wait inside for the session's window is written.
    Sendable {
        /// The link.
        link: LinkId,
    },
    /// A receiving link: the sender's side of the flow state.
    SenderFlow {
        /// The link.
        link: LinkId,
        /// How many deliveries are still allowed in all: the limit that was given, less what the sender let go.
        limit: u64,
        /// How many messages wait for credit, if the sender says so.
        available: Option<u32>,
        /// The sender had nothing more to send and let the rest of its credit go.
        drained: bool,
    },
    /// A sending link: the receiver's outcome for a range of deliveries. Before a delivery is settled its outcome is told
    /// once, and so is every kind of state on the way to it, however often the receiver says them.
    Outcome {
        /// The link.
        link: LinkId,
        /// The first delivery.
        first: u64,
        /// The last delivery; all between were unsettled, and now have this outcome.
        last: u64,
        /// The outcome, or a state on the way to it.
        state: Option<Arc<DeliveryState>>,
        /// The receiver has settled: nothing more is to be done. Otherwise, once the state is an outcome, call
        /// `settle_outgoing`.
        settled: bool,
    },
    /// A receiving link: the sender's state for a range of deliveries; as often as [`Event::Outcome`].
    SenderState {
        /// The link.
        link: LinkId,
        /// The first delivery.
        first: u64,
        /// The last delivery; all between were unsettled.
        last: u64,
        /// The state at the sender.
        state: Option<Arc<DeliveryState>>,
        /// The sender has settled, so the deliveries are forgotten here too.
        settled: bool,
    },
    /// The peer detached. If we had not, answer with `detach`; else this is the answer.
    Detach {
        /// The link.
        link: LinkId,
        /// The link was closed, not only detached (part 2, section 2.6.6).
        closed: bool,
        /// Why, if by an error.
        error: Option<AmqpError>,
    },
    /// The peer broke a rule on a link, and has been told by a closing `detach`. There is nothing to answer.
    LinkFailed {
        /// The link.
        link: LinkId,
        /// The rule.
        error: PeerMisbehaved,
    },
    /// The peer ended a session, with all its links. It has been answered, or this is the answer.
    End {
        /// The session.
        session: SessionId,
        /// Why, if by an error.
        error: Option<AmqpError>,
    },
    /// The peer broke a rule in a session, and has been told by `end`. All its links are gone.
    SessionFailed {
        /// The session.
        session: SessionId,
        /// The rule.
        error: PeerMisbehaved,
    },
    /// The peer closed the connection. It has been answered, or this is the answer. The last event.
    Close {
        /// Why, if by an error.
        error: Option<AmqpError>,
    },
    /// The connection failed, by a fault of the peer or for want of a common protocol; what the peer has to be told
    /// is in the output. The last event.
    Failed(Error),
}

/// A password; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub(crate) String);

impl Password {
    /// The password itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}
