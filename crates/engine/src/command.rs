//! What the world tells the engine. A front door turns its protocol into these and keeps no truth of its own.

use crate::admin;
use bytes::Bytes;
use postroad_model::address::Address;
use postroad_model::message::Incoming;
use postroad_model::settings::{ExpiryPolicy, Start};

/// A client connection, numbered by the server; never reused while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A link of one connection, numbered by its front door. A number may be reused once the engine has been told of
/// the close and has answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNo(pub u32);

/// A producer's place in the engine, given in [`crate::Effect::ProducerOpened`]. Stale keys are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerKey {
    /// The slot.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// A consumer's place in the engine, given in [`crate::Effect::ConsumerOpened`]. Stale keys are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakerKey {
    /// The slot.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Who a connection belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The client id (AMQP container-id).
    pub id: String,
    /// The authenticated user, `anonymous` if none.
    pub user: String,
    /// The peer's network address, for people.
    pub address: String,
    /// A second connection with the same client id is to be refused (AM-2).
    pub sole: bool,
}

/// How long a temporary queue lives: as long as the link that made it, and beyond that until this is so; never longer
/// than its connection (AMQP part 3, section 3.5.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// No longer.
    #[default]
    OnClose,
    /// No link sends to it or takes from it.
    OnNoLinks,
    /// It holds no message.
    OnNoMessages,
    /// Both.
    OnNoLinksOrMessages,
}

/// Where a producer sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerTarget {
    /// One address for all messages.
    Address(Address),
    /// Each message names its own in `to` (anonymous relay).
    PerMessage,
    /// A new temporary queue (ADR-9).
    Temporary(Lifetime),
}

/// Where a consumer reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerSource {
    /// A queue, channel, topic or native named object.
    Address(Address),
    /// A new temporary queue.
    Temporary(Lifetime),
}

/// How a durable subscription expires (AM-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// When that begins.
    pub policy: ExpiryPolicy,
    /// Seconds that it then waits for a consumer.
    pub timeout: u32,
}

/// How a consumer wants to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Where.
    pub source: ConsumerSource,
    /// Only what matches; the text of a selector.
    pub selector: Option<String>,
    /// Leaves out what the same client published (AM-10).
    pub no_local: bool,
    /// Looks without taking (QU-2).
    pub browse: bool,
    /// Deliveries are finished when sent.
    pub presettled: bool,
    /// A durable subscription of this name, owned by the client (AM-5).
    pub durable: Option<String>,
    /// How a durable expires.
    pub expiry: Expiry,
    /// Where a durable begins when it is created; `None` means `new`.
    pub start: Option<Start>,
    /// Consumer priority (AM-17).
    pub priority: i32,
}

impl ConsumerSpec {
    /// A consumer of `source` that takes every message and settles it, at priority 0.
    pub fn new(source: ConsumerSource) -> Self {
        Self {
            source,
            selector: None,
            no_local: false,
            browse: false,
            presettled: false,
            durable: None,
            expiry: Expiry::default(),
            start: None,
            priority: 0,
        }
    }
}

/// The outcome of a delivery, as its consumer says (AK-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Finished.
    Accepted,
    /// Back, not counted.
    Released,
    /// Back, counted if it failed, not to this consumer again if undeliverable here.
    Modified {
        /// Counts as a failed attempt.
        failed: bool,
        /// Not to be offered to this consumer again.
        undeliverable_here: bool,
        /// Annotations for whoever gets it next, as a map of AMQP (part 3, section 3.4.5).
        annotations: Option<Bytes>,
    },
    /// To the dead-letter queue at once.
    Rejected {
        /// The consumer's words, if it gave any.
        reason: Option<String>,
    },
}

/// How a consumer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// The consumer leaves, a durable subscription stays (detach).
    Detach,
    /// A durable subscription ends with it (close).
    Close,
    /// The consumer leaves, and a durable subscription begins to expire: its policy says so.
    Expire,
}

/// One thing that happened outside. Each is answered by effects; nothing is answered before it is durable.
#[derive(Clone, Debug)]
pub enum Command {
    /// A connection was opened. Answer: `Connected` or `ConnectRefused`.
    Connect {
        /// Its number.
        conn: ConnId,
        /// Whose it is.
        client: Client,
    },
    /// A connection ended, orderly or not: everything it had is returned (AK-5).
    Disconnect {
        /// Its number.
        conn: ConnId,
    },
    /// A producer attaches. Answer: `ProducerOpened` or `LinkRefused`.
    OpenProducer {
        /// On which connection.
        conn: ConnId,
        /// Under which number.
        link: LinkNo,
        /// Where it sends.
        target: ProducerTarget,
    },
    /// A producer sent a whole message. Answer: `Published`, unless it was settled.
    Publish {
        /// Which producer.
        producer: ProducerKey,
        /// The delivery's dense number on its link.
        tag: u64,
        /// The message and what the broker reads of it.
        message: Box<Incoming>,
        /// The sender has forgotten it; a refusal must end the link instead (README U-13).
        settled: bool,
    },
    /// A producer leaves. Answer: `LinkClosed`.
    CloseProducer {
        /// Which.
        producer: ProducerKey,
    },
    /// A consumer attaches. Answer: `ConsumerOpened` or `LinkRefused`.
    OpenConsumer {
        /// On which connection.
        conn: ConnId,
        /// Under which number.
        link: LinkNo,
        /// How.
        spec: Box<ConsumerSpec>,
    },
    /// A consumer may be sent deliveries up to this number. Answer to `drain`: `Drained`.
    Credit {
        /// Which consumer.
        taker: TakerKey,
        /// Deliveries that it ever takes, counted from its attach; may also fall.
        limit: u64,
        /// It wants what there is now, and then to be told that there is no more.
        drain: bool,
    },
    /// Outcomes of a range of deliveries. Answer: `Settled`, where the consumer waits for it.
    Settle {
        /// Which consumer.
        taker: TakerKey,
        /// First delivery number.
        first: u64,
        /// Last delivery number.
        last: u64,
        /// The outcome of each.
        outcome: Settlement,
        /// The consumer waits for the broker to settle.
        confirm: bool,
    },
    /// A connection has written so many bytes of the messages that it was sent ([`postroad_model::message::Message::len`]
    /// of each), or has dropped them. Without this its consumers are held at some point, so that a client that does not
    /// read takes bounded memory.
    Written {
        /// Which connection.
        conn: ConnId,
        /// Bytes since the last time.
        bytes: u64,
    },
    /// A consumer leaves; deliveries without outcome take `default`. Answer: `LinkClosed`.
    CloseConsumer {
        /// Which.
        taker: TakerKey,
        /// What it means to a durable subscription.
        mode: CloseMode,
        /// The source's default outcome (AM-14).
        default: Settlement,
    },
    /// Asks for a durable subscription of the client by name (AM-7). Answer: `SubscriptionFound` or `LinkRefused`.
    FindSubscription {
        /// On which connection.
        conn: ConnId,
        /// Under which link number the answer goes out.
        link: LinkNo,
        /// The subscription's name.
        name: String,
    },
    /// A durable subscription of the client, whose consumer left before, begins to expire. Not answered.
    ExpireSubscription {
        /// On which connection.
        conn: ConnId,
        /// The subscription's name.
        name: String,
    },
    /// Deletes a durable subscription of the client. Answer: `SubscriptionDeleted` or `LinkRefused`.
    DeleteSubscription {
        /// On which connection.
        conn: ConnId,
        /// Under which link number the answer goes out.
        link: LinkNo,
        /// The subscription's name.
        name: String,
    },
    /// Messages that were asked for were read.
    Loaded {
        /// Each that was asked for.
        loaded: Vec<crate::loading::Loaded>,
    },
    /// An operator's request. Answer: `AdminReply`.
    Admin {
        /// Goes into the answer.
        reply: u64,
        /// What is asked.
        request: Box<admin::Request>,
    },
}
