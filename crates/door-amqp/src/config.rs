//! What a door is told about its broker and what it allows its clients.

use crate::staging::Staging;
use postroad_amqp::{AcceptSasl, Config};
use postroad_amqp_codec::{Fields, Symbol};
use std::sync::Arc;

/// The connection capability under which messages may name their own address (AM-1).
pub(crate) const ANONYMOUS_RELAY: Symbol = Symbol::from_static("ANONYMOUS-RELAY");
/// The connection capability under which messages may say when they are to be delivered (AM-1, QU-8).
pub(crate) const DELAYED_DELIVERY: Symbol = Symbol::from_static("DELAYED_DELIVERY");
/// The connection capability that makes a client id the client's alone (AM-2).
pub(crate) const SOLE_CONNECTION: Symbol = Symbol::from_static("sole-connection-for-container");

/// The settings of an AMQP front door; shared by its connections.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// The broker's name: the container-id that clients see, and `dl-by` on dead letters.
    pub broker: String,
    /// The broker's version, for people.
    pub version: String,
    /// Which SASL mechanisms are offered, and whether a client may come without SASL.
    pub sasl: AcceptSasl,
    /// The largest frame that a client may send, in bytes.
    pub max_frame_size: u32,
    /// The highest channel number: one less than the sessions of a connection.
    pub channel_max: u16,
    /// The highest handle: one less than the links of a session.
    pub handle_max: u32,
    /// After how many milliseconds without a byte a client counts as gone; `None`: never.
    pub idle_timeout_ms: Option<u32>,
    /// Within how many milliseconds a client must have opened the connection; `None`: no limit.
    pub open_timeout_ms: Option<u32>,
    /// The largest message taken on links whose store sets no lower limit, in bytes; 0 is taken as the default.
    pub max_message_size: u64,
    /// Room for messages of which pieces are still to come, of all connections together. Each of them may take a
    /// quarter, or one message of the largest size.
    pub staging: Arc<Staging>,
    /// How dead letters are shown.
    pub dead_letters: DeadLetterView,
}

/// What a delivered copy of a dead letter shows besides its header in annotations (DLQ-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterView {
    /// The header as application properties, too: JMS clients see no annotations.
    pub expose_properties: bool,
    /// What another broker's programs look for.
    pub compat: Option<DeadLetterCompat>,
}

/// Whose names for the place that a dead letter comes from are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterCompat {
    /// `x-opt-ORIG-ADDRESS` and `x-opt-ORIG-QUEUE`.
    Artemis,
}

/// Bytes of unfinished messages where nothing else is said.
const DEFAULT_STAGING: u64 = 1024 * 1024 * 1024;

/// The largest message where nothing else is said, in bytes.
const DEFAULT_MAX_MESSAGE_SIZE: u64 = 100 * 1024 * 1024;

impl Default for DoorConfig {
    /// A broker named `postroad` that lets anybody in, with the limits of [`postroad_amqp::Config`].
    fn default() -> Self {
        let limits = Config::default();
        Self {
            broker: String::from("postroad"),
            version: String::from(env!("CARGO_PKG_VERSION")),
            sasl: AcceptSasl { anonymous: true, plain: true, skip: true },
            max_frame_size: limits.max_frame_size,
            channel_max: limits.channel_max,
            handle_max: limits.handle_max,
            idle_timeout_ms: limits.idle_timeout_ms,
            open_timeout_ms: limits.open_timeout_ms,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            staging: Arc::new(Staging::new(DEFAULT_STAGING)),
            dead_letters: DeadLetterView::default(),
        }
    }
}

impl DoorConfig {
    /// What the protocol engine is set up with.
    pub(crate) fn protocol(&self) -> Config {
        let mut properties = Fields::new();
        properties.insert("product", "Postroad");
        properties.insert("version", self.version.as_str());
        Config {
            container_id: self.broker.clone(),
            max_frame_size: self.max_frame_size,
            channel_max: self.channel_max,
            handle_max: self.handle_max,
            idle_timeout_ms: self.idle_timeout_ms,
            open_timeout_ms: self.open_timeout_ms,
            offered_capabilities: vec![ANONYMOUS_RELAY, DELAYED_DELIVERY],
            properties,
            ..Config::default()
        }
    }

    /// The room of one connection for unfinished messages.
    pub(crate) fn connection_staging(&self) -> Arc<Staging> {
        let limit = (self.staging.limit() / 4).max(self.message_limit(None));
        Arc::new(Staging::part_of(Arc::clone(&self.staging), limit))
    }

    /// The limit that a link tells its sender, in bytes: that of its store, or the door's. Never none, since it bounds
    /// what is put together from pieces.
    pub(crate) fn message_limit(&self, of_store: Option<u64>) -> u64 {
        match (of_store.unwrap_or(0), self.max_message_size) {
            (0, 0) => DEFAULT_MAX_MESSAGE_SIZE,
            (0, own) => own,
            (store, _) => store,
        }
    }
}
