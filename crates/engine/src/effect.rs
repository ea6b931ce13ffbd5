//! Everything that the engine asks of the world, on one page. Nobody does anything that is not in here.
//!
//! Each effect carries the step that must be durable before it may be performed (DESIGN 7.4). For one link the
//! effects are to be performed in the order in which they came.

use crate::admin;
use crate::command::{ConnId, LinkNo, ProducerKey, Settlement, TakerKey};
use postroad_model::id::BodyId;
use postroad_model::message::Message;
use postroad_model::refusal::Refusal;
use postroad_model::settings::NamedObjectSettings;
use postroad_record::BodyPlace;
use std::sync::Arc;

/// The number of a step since the broker started; 0 waits for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(pub u64);

/// The effects and the bytes of one turn. Reused from turn to turn.
#[derive(Debug, Default)]
pub struct Output {
    /// The steps of the turn, in order: each goes into the journal as one frame.
    pub steps: Vec<StepBytes>,
    /// What to do, and after which step.
    pub effects: Vec<(Step, Effect)>,
    /// Empty buffers for steps to come.
    spare: Vec<Vec<u8>>,
}

/// So many buffers are kept for steps to come.
const SPARE_BUFFERS: usize = 256;
/// A buffer that has grown beyond this is not kept, so that a few large messages leave nothing behind.
const SPARE_BYTES: usize = 16 << 10;

impl Output {
    /// Gives the buffer of a step that was appended back: the engine that gets this output again writes a later step into it.
    pub fn reuse(&mut self, mut payload: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && payload.capacity() <= SPARE_BYTES {
            payload.clear();
            self.spare.push(payload);
        }
    }

    /// An empty buffer for a step.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}

impl Output {
    /// Deliveries `first` to `last` of a producer are accepted. Such answers go together as far as one follows another.
    pub(crate) fn accept(&mut self, after: Step, conn: ConnId, link: LinkNo, (first, to): (u64, u64)) {
        let outcome = Publication::Accepted;
        if let Some((
            waits,
            Effect::Published { conn: of, link: on, last, outcome: Publication::Accepted, .. },
        )) = self.effects.last_mut()
            && (*of, *on) == (conn, link)
            && last.checked_add(1) == Some(first)
        {
            *waits = after.max(*waits);
            *last = to;
            return;
        }
        self.effects.push((after, Effect::Published { conn, link, first, last: to, outcome }));
    }

    /// Takes everything out of another output, which came right behind this one.
    pub fn append(&mut self, later: &mut Self) {
        self.steps.append(&mut later.steps);
        let mut effects = later.effects.drain(..);
        // Only the first of them can go together with the last one here.
        match effects.next() {
            Some((after, Effect::Published { conn, link, first, last, outcome: Publication::Accepted })) => {
                self.accept(after, conn, link, (first, last));
            }
            Some(first) => self.effects.push(first),
            None => {}
        }
        self.effects.extend(effects);
    }
}

/// The records of one step, encoded.
#[derive(Debug)]
pub struct StepBytes {
    /// Its number.
    pub step: Step,
    /// The payload of its frame.
    pub payload: Vec<u8>,
}

/// What a delivery is made of besides the message.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The connection.
    pub conn: ConnId,
    /// The link.
    pub link: LinkNo,
    /// The dense number of this delivery on its link, from 0.
    pub tag: u64,
    /// The message, shared with the store.
    pub message: Message,
    /// Header: asked to be kept.
    pub durable: bool,
    /// Header: 0 to 9.
    pub priority: u8,
    /// Header: milliseconds of life left; `None` means no limit.
    pub ttl_ms: Option<u32>,
    /// Header: earlier failed attempts (AK-4).
    pub delivery_count: u32,
    /// Finished when sent.
    pub settled: bool,
    /// Annotations that the broker adds.
    pub annotations: Annotations,
}

/// What the broker adds to a delivery as message annotations, all `x-opt-postroad-*` (README U-7).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// `channel` and `event-id`: where the event lies (CH-3).
    pub channel: Option<(Arc<str>, u64)>,
    /// `origin-place`, `origin-store` and `origin-id` (DUP-13).
    pub origin: Option<(Arc<str>, Arc<str>, u64)>,
    /// `archive-duplicate` (ARC-3).
    pub archive_duplicate: bool,
    /// `in-delivery`: a browser sees a message that a consumer holds (QU-2).
    pub in_delivery: bool,
    /// `events-skipped` (RET-6).
    pub events_skipped: Option<u64>,
    /// The dead-letter header (DLQ-3).
    pub dead: Option<Box<postroad_record::DeadLetter>>,
}

/// The answer to a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Stored, durably where that was asked for.
    Accepted,
    /// Not stored.
    Refused(Arc<Refusal>),
}

/// What a link reads or writes, told back to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The address, as the client should use it again (the broker's own for a temporary queue).
    pub address: String,
    /// Whether it is a queue; else a channel.
    pub is_queue: bool,
    /// The largest message taken, in bytes.
    pub max_message_size: u64,
}

/// A message whose bytes are to be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its broker-wide number.
    pub body: BodyId,
    /// Where its bytes lie; that is durable.
    pub place: BodyPlace,
    /// How many there are.
    pub length: u32,
}

/// One thing to be done outside.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read messages back from the journal, in any order, and answer with `Command::Loaded`.
    Load {
        /// Which.
        wanted: Vec<Wanted>,
    },
    /// The connection may go on.
    Connected {
        /// Which.
        conn: ConnId,
    },
    /// The connection must be refused (AM-2).
    ConnectRefused {
        /// Which.
        conn: ConnId,
        /// Why.
        refusal: Refusal,
    },
    /// A producer may send up to `credit` deliveries.
    ProducerOpened {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// The producer's key.
        producer: ProducerKey,
        /// Where it sends; `None` for an anonymous producer.
        resolved: Option<Resolved>,
        /// Deliveries that it may ever send so far.
        credit: u64,
    },
    /// A producer may now send up to this many deliveries, counted from its attach; fewer than before when credit is
    /// taken back.
    ProducerCredit {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// The new limit.
        limit: u64,
    },
    /// The outcome of publishes, one after another on their link.
    Published {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// The first delivery's number.
        first: u64,
        /// The last delivery's number.
        last: u64,
        /// The outcome of each.
        outcome: Publication,
    },
    /// A consumer is attached.
    ConsumerOpened {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// The consumer's key.
        taker: TakerKey,
        /// What it reads.
        resolved: Resolved,
    },
    /// A consumer or producer can't be attached, or a subscription can't be found or deleted.
    LinkRefused {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// Why.
        refusal: Refusal,
    },
    /// A message for a consumer.
    Deliver(Box<Delivery>),
    /// The outcomes of these deliveries are durable.
    Settled {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// First delivery number.
        first: u64,
        /// Last delivery number.
        last: u64,
        /// The outcome of each.
        outcome: Settlement,
    },
    /// Nothing more can be sent now to a consumer that drains.
    Drained {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
    },
    /// A consumer or producer that left is gone; its link number is free.
    LinkClosed {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
    },
    /// A link must end: its store was deleted, another consumer took over, a pre-settled message was refused.
    DetachLink {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// Why.
        refusal: Refusal,
    },
    /// A durable subscription that was asked for (AM-7).
    SubscriptionFound {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
        /// Its channel.
        address: String,
        /// Its settings.
        settings: Box<NamedObjectSettings>,
    },
    /// A durable subscription is deleted.
    SubscriptionDeleted {
        /// The connection.
        conn: ConnId,
        /// The link.
        link: LinkNo,
    },
    /// The answer to an operator.
    AdminReply {
        /// From the request.
        reply: u64,
        /// What came of it.
        result: Box<Result<admin::Response, Refusal>>,
    },
}

impl Effect {
    /// The connection that it is for; `None` for an operator's answer and for what is asked of the journal.
    #[must_use]
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Connected { conn }
            | Self::ConnectRefused { conn, .. }
            | Self::ProducerOpened { conn, .. }
            | Self::ProducerCredit { conn, .. }
            | Self::Published { conn, .. }
            | Self::ConsumerOpened { conn, .. }
            | Self::LinkRefused { conn, .. }
            | Self::Settled { conn, .. }
            | Self::Drained { conn, .. }
            | Self::LinkClosed { conn, .. }
            | Self::DetachLink { conn, .. }
            | Self::SubscriptionFound { conn, .. }
            | Self::SubscriptionDeleted { conn, .. } => Some(*conn),
            Self::Deliver(delivery) => Some(delivery.conn),
            Self::AdminReply { .. } | Self::Load { .. } => None,
        }
    }
}
