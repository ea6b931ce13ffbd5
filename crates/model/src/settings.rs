//! What an operator can set on a store, a named object or a join, with the defaults of the specification.
//!
//! The same types are read from the configuration file, from REST bodies and from the journal, so a
//! setting has one name everywhere. Durations are milliseconds, sizes are bytes.

use crate::id::WallMs;
use serde::{Deserialize, Serialize};

/// Where an address or a definition leads when it names no kind (ADR-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownKind {
    /// An unknown name means a queue.
    #[default]
    Queue,
    /// An unknown name means a topic.
    Topic,
}

/// How a channel keeps what is published to it (joins-and-interest 5.1, `type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreType {
    /// Every event is on disk, whatever the publisher said.
    Persistent,
    /// Events live in memory; their ids are never given again, also after a restart.
    Reliable,
    /// The publisher chooses for each event (durable or not).
    #[default]
    Mixed,
    /// Fan-out only: nothing is stored.
    Transient,
}

/// What removes an event from a channel (README U-10, RET-1 to RET-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retention {
    /// Only time-to-live, capacity and purge.
    #[default]
    Log,
    /// An event goes as soon as nobody needs it any more.
    Interest,
}

/// Whether a definition belongs to one broker or to its cluster (README U-15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Lives on this broker alone.
    #[default]
    Local,
    /// Replicated by consensus to every broker of the cluster.
    Cluster,
}

/// Whether two publishes of one application message are one event (DUP-11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublisherDedupe {
    /// Every publish is an event of its own.
    #[default]
    Off,
    /// A message-id seen within the window is a duplicate.
    MessageId,
}

/// What happens to a copy too old to be judged (DUP-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LateCopies {
    /// It is set aside with reason `DUPLICATE_UNDECIDABLE`.
    #[default]
    DeadLetter,
    /// It is stored, at the risk of a duplicate.
    Accept,
}

/// The duplicate window of a store (DUP-6, DUP-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DedupeSettings {
    /// Ids remembered at least, for each origin store.
    pub min_ids: u64,
    /// Milliseconds that an id is remembered at least.
    pub min_age: u64,
    /// What to do with a copy that can't be judged.
    pub late: LateCopies,
}

impl Default for DedupeSettings {
    fn default() -> Self {
        Self { min_ids: 16_777_216, min_age: 604_800_000, late: LateCopies::DeadLetter }
    }
}

/// "Keep only the newest `depth` events for each value of property `name`" (5.1, `publish_keys`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishKey {
    /// The property whose value is the key.
    pub name: String,
    /// How many events are kept for each value, at least 1.
    #[serde(default = "one")]
    pub depth: u32,
}

const fn one() -> u32 {
    1
}

/// Settings of a channel (joins-and-interest 5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelSettings {
    /// How events are kept.
    #[serde(rename = "type")]
    pub store_type: StoreType,
    /// Milliseconds that an event stays at most; 0 means for ever.
    pub ttl: u64,
    /// Events held at most; 0 means no limit.
    pub capacity: u32,
    /// Full: true refuses further publishes, false evicts the oldest event.
    pub honour_capacity: bool,
    /// What removes events.
    pub retention: Retention,
    /// Local channel or queue that takes what TTL or capacity removes before consumption.
    pub dead_event_store: Option<String>,
    /// Keys by which newer events replace older ones.
    pub publish_keys: Vec<PublishKey>,
    /// Local or cluster-wide.
    pub scope: Scope,
    /// The id that the first event gets, at least 1.
    pub first_event_id: u64,
    /// Whether a repeated message-id is a duplicate.
    pub publisher_dedupe: PublisherDedupe,
    /// Milliseconds that a message-id is remembered.
    pub publisher_dedupe_window: u64,
    /// The duplicate window.
    pub dedupe: DedupeSettings,
    /// Whether clients see where an event came from (DUP-13).
    pub expose_origin: bool,
    /// The largest message taken, in bytes; 0 means the broker's limit.
    pub max_message_size: u64,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            store_type: StoreType::default(),
            ttl: 0,
            capacity: 0,
            honour_capacity: true,
            retention: Retention::default(),
            dead_event_store: None,
            publish_keys: Vec::new(),
            scope: Scope::default(),
            first_event_id: 1,
            publisher_dedupe: PublisherDedupe::default(),
            publisher_dedupe_window: 600_000,
            dedupe: DedupeSettings::default(),
            expose_origin: true,
            max_message_size: 0,
        }
    }
}

/// How failed deliveries come back (named-objects 3.6), shared by queues and named objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RedeliverySettings {
    /// Attempts before a message is dead-lettered; -1 means never (AK-8).
    pub max_delivery_attempts: i32,
    /// Milliseconds before the first redelivery (AK-7).
    pub redelivery_delay: u64,
    /// Factor by which each further delay grows.
    pub redelivery_multiplier: f64,
    /// The longest delay in milliseconds; `None` means ten times `redelivery_delay`.
    pub max_redelivery_delay: Option<u64>,
    /// By what part of itself a delay is longer or shorter at random: 0 not at all, 1 up to nothing or twice.
    pub redelivery_spread: f64,
    /// Queue for dead letters; `None` means the broker's.
    pub dead_letter_queue: Option<String>,
    /// Dead letters go to `DLQ.<name>` instead.
    pub dead_letter_per_source: bool,
    /// An attempt counts as failed on disk from before it is made until it ends well (AK-10): costs a write for each
    /// delivery of a persistent message.
    pub persist_count_before_delivery: bool,
}

impl Default for RedeliverySettings {
    fn default() -> Self {
        Self {
            max_delivery_attempts: 10,
            redelivery_delay: 0,
            redelivery_multiplier: 1.0,
            max_redelivery_delay: None,
            redelivery_spread: 0.0,
            dead_letter_queue: None,
            dead_letter_per_source: false,
            persist_count_before_delivery: false,
        }
    }
}

impl RedeliverySettings {
    /// Milliseconds to wait before attempt number `failed + 1`, `failed` being the attempts so far (AK-7). `chance`
    /// decides where within the spread.
    #[must_use]
    pub fn delay_ms(&self, failed: u32, chance: u32) -> u64 {
        let delay = self.even_delay_ms(failed);
        let spread = self.redelivery_spread.clamp(0.0, 1.0);
        let part = f64::from(chance) / f64::from(u32::MAX) * 2.0 - 1.0;
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // far below 2^52 ms, never negative
        let spread = (delay as f64 * (1.0 + spread * part)) as u64;
        spread
    }

    /// The delay without its spread.
    fn even_delay_ms(&self, failed: u32) -> u64 {
        if self.redelivery_delay == 0 || failed == 0 {
            return 0;
        }
        let cap = self.max_redelivery_delay.unwrap_or_else(|| self.redelivery_delay.saturating_mul(10));
        let power = i32::try_from(failed - 1).unwrap_or(i32::MAX);
        #[allow(clippy::cast_precision_loss)] // delays are far below 2^52 ms
        let grown = self.redelivery_delay as f64 * self.redelivery_multiplier.max(0.0).powi(power);
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // clamped to `cap`, never negative
        let capped = grown.clamp(0.0, cap as f64) as u64;
        capped
    }
}

/// Settings of a queue (named-objects 3.12 and section 4; joins-and-interest 5.1 where it speaks of stores).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// How messages are kept; `transient` is refused on a queue.
    #[serde(rename = "type")]
    pub store_type: StoreType,
    /// Milliseconds that a message stays at most; 0 means for ever.
    pub ttl: u64,
    /// Messages held at most; 0 means no limit.
    pub capacity: u32,
    /// Full: true refuses further puts, false evicts the oldest message.
    pub honour_capacity: bool,
    /// Local channel or queue that takes what TTL or capacity removes.
    pub dead_event_store: Option<String>,
    /// Queue that takes expired messages (QU-6).
    pub expiry_queue: Option<String>,
    /// Milliseconds of life for messages that came without an expiry; 0 means none.
    pub expiry_default: u64,
    /// Without `expiry_default`: the shortest life of a message in milliseconds; 0 means that there is none.
    pub expiry_min: u64,
    /// Without `expiry_default`: the longest life of a message in milliseconds, also of one without an end; 0 means that
    /// there is none.
    pub expiry_max: u64,
    /// No message expires by the wish of its sender, or by the settings above.
    pub no_expiry: bool,
    /// One active consumer at a time (QU-3).
    pub exclusive: bool,
    /// Highest priority that is told apart, 0 to 9 (QU-7).
    pub max_priority: u8,
    /// Local or cluster-wide.
    pub scope: Scope,
    /// The id that the first message gets, at least 1.
    pub first_event_id: u64,
    /// Whether a repeated message-id is a duplicate.
    pub publisher_dedupe: PublisherDedupe,
    /// Milliseconds that a message-id is remembered.
    pub publisher_dedupe_window: u64,
    /// The duplicate window.
    pub dedupe: DedupeSettings,
    /// Whether clients see where a message came from (DUP-13).
    pub expose_origin: bool,
    /// The largest message taken, in bytes; 0 means the broker's limit.
    pub max_message_size: u64,
    /// Redelivery and dead letters.
    #[serde(flatten)]
    pub redelivery: RedeliverySettings,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            store_type: StoreType::default(),
            ttl: 0,
            capacity: 0,
            honour_capacity: true,
            dead_event_store: None,
            expiry_queue: None,
            expiry_default: 0,
            expiry_min: 0,
            expiry_max: 0,
            no_expiry: false,
            exclusive: false,
            max_priority: 9,
            scope: Scope::default(),
            first_event_id: 1,
            publisher_dedupe: PublisherDedupe::default(),
            publisher_dedupe_window: 600_000,
            dedupe: DedupeSettings::default(),
            expose_origin: true,
            max_message_size: 0,
            redelivery: RedeliverySettings::default(),
        }
    }
}

impl QueueSettings {
    /// When a message that comes at `now` expires, if its sender wants it to at `asked`; 0 means never, for both (QU-6).
    /// `no_expiry` goes before `expiry_default`, that before `expiry_min` and `expiry_max`.
    #[must_use]
    pub const fn expires_at(&self, now: WallMs, asked: WallMs) -> WallMs {
        if self.no_expiry {
            return 0;
        }
        if self.expiry_default > 0 {
            return if asked == 0 { now.saturating_add(self.expiry_default) } else { asked };
        }
        let (least, most) = (now.saturating_add(self.expiry_min), now.saturating_add(self.expiry_max));
        if self.expiry_max > 0 && (asked == 0 || asked > most) {
            return most;
        }
        if self.expiry_min > 0 && asked < least { least } else { asked }
    }
}

/// Where a new named object or join begins to read (NO-10, JOIN-9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The next event stored.
    #[default]
    New,
    /// The oldest event still held (written `all`, or 0 on a named object).
    Oldest,
    /// The first event with this id or a higher one.
    At(u64),
}

impl Serialize for Start {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            match self {
                Start::New => serializer.serialize_str("new"),
                Start::Oldest => serializer.serialize_str("all"),
                Start::At(id) => serializer.serialize_u64(*id),
            }
        } else {
            let coded = match self {
                Start::New => (0u8, 0u64),
                Start::Oldest => (1, 0),
                Start::At(id) => (2, *id),
            };
            coded.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Word(String),
        }
        if deserializer.is_human_readable() {
            return match Written::deserialize(deserializer)? {
                Written::Number(0) => Ok(Start::Oldest),
                Written::Number(id) => Ok(Start::At(id)),
                Written::Word(word) => word.parse().map_err(serde::de::Error::custom),
            };
        }
        match <(u8, u64)>::deserialize(deserializer)? {
            (0, _) => Ok(Start::New),
            (1, _) => Ok(Start::Oldest),
            (_, id) => Ok(Start::At(id)),
        }
    }
}

impl std::str::FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "new" => Ok(Start::New),
            "all" | "oldest" | "0" => Ok(Start::Oldest),
            _ => text
                .parse()
                .map(Start::At)
                .map_err(|_| format!("'{text}' is no start position: write new, all or an event id")),
        }
    }
}

/// The consumer model of a named object (named-objects 2). Only `exclusive` works in this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectType {
    /// One consumer at a time, in event-id order.
    #[default]
    Exclusive,
    /// Several consumers, each event to one of them.
    Shared,
    /// Several consumers, one batch at a time.
    Serial,
    /// Several consumers, only the first served.
    Priority,
}

/// What one acknowledgement finishes (EX-3, EX-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckPolicy {
    /// Acking event N finishes every lower event too.
    Cumulative,
    /// Acking event N finishes N alone.
    Individual,
}

/// What a second consumer of an exclusive object meets (EX-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takeover {
    /// It is refused.
    #[default]
    Refuse,
    /// It takes over; the old link is detached as stolen.
    Steal,
}

/// What an AMQP re-attach with another definition does to a durable (AM-11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDefinitionChange {
    /// The old object and its backlog go, a new one starts.
    #[default]
    Recreate,
    /// The attach is refused and the backlog kept.
    Refuse,
}

/// When a client's durable subscription begins to expire: the expiry policy of its terminus (AM-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpiryPolicy {
    /// Never: only its client or an operator ends it.
    #[default]
    Never,
    /// When its link is detached.
    LinkDetach,
    /// When its session ends.
    SessionEnd,
    /// When its connection closes.
    ConnectionClose,
}

/// Settings of a named object (named-objects section 4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedObjectSettings {
    /// The consumer model.
    #[serde(rename = "type")]
    pub object_type: ObjectType,
    /// Whether it survives a restart (NO-3).
    pub persistent: bool,
    /// Local or cluster-wide.
    pub scope: Scope,
    /// Where it begins when it is created.
    pub start_event_id: Start,
    /// The object's own selector.
    pub selector: Option<String>,
    /// Leaves out what the owner published itself (AM-10).
    pub no_local: bool,
    /// What an acknowledgement finishes; `None` means by owner (EX-4).
    pub ack_policy: Option<AckPolicy>,
    /// What a second consumer meets.
    pub consumer_takeover: Takeover,
    /// What another definition from a client does.
    pub on_definition_change: OnDefinitionChange,
    /// When a client's subscription begins to expire.
    pub expiry_policy: ExpiryPolicy,
    /// Seconds that it then waits for a consumer before it goes.
    pub expiry_timeout: u32,
    /// Redelivery and dead letters.
    #[serde(flatten)]
    pub redelivery: RedeliverySettings,
}

impl Default for NamedObjectSettings {
    fn default() -> Self {
        Self {
            object_type: ObjectType::default(),
            persistent: true,
            scope: Scope::default(),
            start_event_id: Start::default(),
            selector: None,
            no_local: false,
            ack_policy: None,
            consumer_takeover: Takeover::default(),
            on_definition_change: OnDefinitionChange::default(),
            expiry_policy: ExpiryPolicy::default(),
            expiry_timeout: 0,
            redelivery: RedeliverySettings::default(),
        }
    }
}

/// What a join does while its destination can't take (5.2, `on_block`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBlock {
    /// The source goes on; events wait.
    #[default]
    Hold,
    /// Publishers to the source wait too.
    Backpressure,
}

/// Whether a join forwards always or only for another one (ORD-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinRole {
    /// Forwards.
    #[default]
    Active,
    /// Forwards only while the join named in `standby_for` does not.
    Standby,
}

/// Settings of a join (joins-and-interest 5.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinSettings {
    /// The local channel that is read.
    pub source: String,
    /// `store[@place]`; compulsory.
    pub destination: String,
    /// How many stores may lie between (HOP-1); 0 to 255.
    pub max_hops: u8,
    /// Selector; only matching events pass.
    pub filter: Option<String>,
    /// Records every arrival in a queue (ARC-1 to ARC-5).
    pub archive: bool,
    /// A purge of the source is repeated at the destination (FWD-3).
    pub propagate_purge: bool,
    /// Link to use, or `auto`.
    pub via: String,
    /// Where forwarding begins.
    pub start: Start,
    /// The destination may be missing at creation (FWD-5).
    pub allow_missing: bool,
    /// False means paused.
    pub enabled: bool,
    /// Leaves out stores already on the event's path (LOOP-3).
    pub split_horizon: bool,
    /// What a blocked destination does to publishers.
    pub on_block: OnBlock,
    /// Active or standby.
    pub role: JoinRole,
    /// The join that a standby stands in for.
    pub standby_for: Option<String>,
    /// Milliseconds that the primary must be down before a standby forwards.
    pub standby_delay: u32,
    /// Events per step.
    pub batch: u32,
    /// Unsettled events at most.
    pub in_flight: u32,
}

impl Default for JoinSettings {
    fn default() -> Self {
        Self {
            source: String::new(),
            destination: String::new(),
            max_hops: 10,
            filter: None,
            archive: false,
            propagate_purge: false,
            via: String::from("auto"),
            start: Start::default(),
            allow_missing: false,
            enabled: true,
            split_horizon: true,
            on_block: OnBlock::default(),
            role: JoinRole::default(),
            standby_for: None,
            standby_delay: 5_000,
            batch: 100,
            in_flight: 1_000,
        }
    }
}

/// What a definition starts from, wherever it is made (`[defaults.channel]`, `[defaults.queue]`, `[defaults.named_object]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Defaults {
    /// What every channel starts from.
    pub channel: ChannelSettings,
    /// What every queue starts from.
    pub queue: QueueSettings,
    /// What every native named object starts from.
    pub named_object: NamedObjectSettings,
}

/// Settings of the broker as the engine needs them (joins-and-interest 5.3, addressing 4, topics 4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokerSettings {
    /// The broker's own name, unique in its network.
    pub name: String,
    /// The queue for dead letters (DLQ-1).
    pub dead_letter_queue: String,
    /// What an address without a kind that names nothing means.
    pub unknown_kind: UnknownKind,
    /// The largest message taken, in bytes.
    pub max_message_size: u64,
    /// Deliveries that one consumer may have unsettled at most (QU-4).
    pub max_window: u32,
    /// Queues are made when first used, if their name matches one of these patterns (RES-L13).
    pub auto_create_queues: Vec<String>,
    /// Channels are made when first used, likewise.
    pub auto_create_channels: Vec<String>,
    /// What stores that are made when first used start from.
    pub defaults: Defaults,
    /// Events held for joins beyond what the source shows, at most (FWD-2).
    pub spool_max_events: u64,
    /// Bytes of them, at most.
    pub spool_max_bytes: u64,
    /// Messages of all stores that may wait for their delivery time (QU-9); each takes 200 to 400 bytes of memory.
    pub max_scheduled: u64,
    /// Bytes of messages in memory above which producers get no more credit; consumers go on.
    pub memory: u64,
    /// Events that one piece of a purge or of a deletion removes at most (DESIGN 7.7).
    pub job_batch: u32,
    /// Bytes of messages on disk that are kept in memory too; the others are read when they are needed.
    pub cache: u64,
    /// Longest topic string in bytes (TT-2).
    pub max_topic_bytes: usize,
    /// Most levels of a topic string (TT-2).
    pub max_levels: usize,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            name: String::from("postroad"),
            dead_letter_queue: String::from("DLQ"),
            unknown_kind: UnknownKind::default(),
            max_message_size: 100 * 1024 * 1024,
            max_window: 5_000,
            auto_create_queues: Vec::new(),
            auto_create_channels: Vec::new(),
            defaults: Defaults::default(),
            spool_max_events: 1_000_000,
            spool_max_bytes: 1024 * 1024 * 1024,
            max_scheduled: 1_000_000,
            memory: 2 * 1024 * 1024 * 1024,
            job_batch: 256,
            cache: 32 * 1024 * 1024,
            max_topic_bytes: 10_240,
            max_levels: 128,
        }
    }
}
