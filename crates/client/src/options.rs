//! How to connect, send and receive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postroad_amqp_codec::map::Fields;
use postroad_amqp_codec::performative::{ReceiverSettleMode, SenderSettleMode};
use postroad_amqp_codec::symbol::Symbol;

use crate::url::Url;

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Where the broker is, and who we are there.
    pub url: Url,
    /// Our name (part 2, section 2.7.1, container-id): for a broker, the owner of durable subscriptions.
    pub container_id: String,
    /// Refuse to share the container id with another connection (the capability `sole-connection-for-container`).
    pub sole_container: bool,
    /// Start with the plain AMQP header, with no SASL at all.
    pub skip_sasl: bool,
    /// How long connecting, logging in and every other question may take.
    pub timeout: Duration,
    /// The largest frame that the broker may send, in bytes.
    pub max_frame_size: u32,
    /// How many transfer frames the broker may send ahead.
    pub incoming_window: u32,
    /// How many deliveries beyond its credit the broker may send on each link before the connection is given up: for
    /// brokers that count wrong.
    pub excess_credit: u32,
    /// After how long without a byte from the broker the connection is given up.
    pub idle_timeout: Option<Duration>,
}

impl ConnectOptions {
    /// The usual: a made-up container id, 10 seconds, frames of 64 KiB.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            url,
            container_id: fresh_name("postroad-client"),
            sole_container: false,
            skip_sasl: false,
            timeout: Duration::from_secs(10),
            max_frame_size: 65_536,
            incoming_window: 2048,
            excess_credit: 0,
            idle_timeout: Some(Duration::from_secs(60)),
        }
    }
}

/// A name that no other part of this process has, and hardly another process.
pub(crate) fn fresh_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{:x}-{:x}-{number}", std::process::id(), since_epoch.as_nanos())
}

/// What kind of node an address names, as a capability of the terminus (the `queue` and `topic` of JMS mappings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Each message goes to one consumer.
    Queue,
    /// Each message goes to every subscriber.
    Topic,
}

impl NodeKind {
    pub(crate) const fn capability(self) -> Symbol {
        match self {
            Self::Queue => Symbol::from_static("queue"),
            Self::Topic => Symbol::from_static("topic"),
        }
    }
}

/// How to send.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The name of the link; `None` for one of our making.
    pub name: Option<String>,
    /// What the address names.
    pub kind: Option<NodeKind>,
    /// Let the broker make a node for this link; then the address is not used.
    pub dynamic: bool,
    /// How many deliveries may wait for their outcome to be taken, beside the credit of the broker; at least 1.
    pub window: u32,
    /// Whether deliveries are sent settled, unsettled, or either.
    pub settle_mode: SenderSettleMode,
    /// More capabilities of the target.
    pub capabilities: Vec<Symbol>,
    /// Properties of the link.
    pub properties: Option<Fields>,
}

impl Default for SenderOptions {
    /// Any kind of node, 1,000 deliveries ahead, settled or not.
    fn default() -> Self {
        Self {
            name: None,
            kind: None,
            dynamic: false,
            window: 1000,
            settle_mode: SenderSettleMode::Mixed,
            capabilities: Vec::new(),
            properties: None,
        }
    }
}

/// Who gives credit for more deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// The link does, whenever half of this many have been taken.
    Auto(u32),
    /// The user does, with [`crate::Receiver::grant`].
    Manual,
}

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// The name of the link; `None` for one of our making. With `durable` that is the name.
    pub name: Option<String>,
    /// What the address names.
    pub kind: Option<NodeKind>,
    /// Let the broker make a node for this link; then the address is not used.
    pub dynamic: bool,
    /// Credit.
    pub credit: Credit,
    /// Only messages that this selector chooses (the filter `jms-selector`).
    pub selector: Option<String>,
    /// Not what this connection has sent (the filter `no-local`).
    pub no_local: bool,
    /// The name of a durable subscription, which stays when the link is detached.
    pub durable: Option<String>,
    /// Look at messages and leave them where they are (part 3, section 3.5.7).
    pub copy: bool,
    /// Whether the broker sends settled, unsettled, or either.
    pub settle_mode: SenderSettleMode,
    /// Whether deliveries are settled at once, or after the broker has settled.
    pub receiver_settle_mode: ReceiverSettleMode,
    /// The largest message that is taken, in bytes.
    pub max_message_size: u64,
    /// More capabilities of the source.
    pub capabilities: Vec<Symbol>,
    /// Properties of the link.
    pub properties: Option<Fields>,
}

impl Default for ReceiverOptions {
    /// Any kind of node, 100 deliveries ahead, messages up to 64 MiB.
    fn default() -> Self {
        Self {
            name: None,
            kind: None,
            dynamic: false,
            credit: Credit::Auto(100),
            selector: None,
            no_local: false,
            durable: None,
            copy: false,
            settle_mode: SenderSettleMode::Mixed,
            receiver_settle_mode: ReceiverSettleMode::First,
            max_message_size: 64 << 20,
            capabilities: Vec::new(),
            properties: None,
        }
    }
}
