//! The settings of channels and queues as options (joins-and-interest 5.1, named-objects 4).

use super::failure::{Failure, Outcome};
use super::values::{duration_ms, key_value, size_bytes};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

/// What both kinds of store have.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Settings")]
pub(crate) struct StoreSettings {
    /// How events are kept
    #[arg(long = "type", value_name = "TYPE", value_parser = ["persistent", "reliable", "mixed", "transient"])]
    #[serde(rename = "type")]
    store_type: Option<String>,
    /// How long an event stays at most; 0 for ever
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    ttl: Option<u64>,
    /// Events held at most; 0 for no limit
    #[arg(long, value_name = "EVENTS")]
    capacity: Option<u64>,
    /// When full: true refuses what comes, false drops the oldest
    #[arg(long, value_name = "BOOL")]
    honour_capacity: Option<bool>,
    /// A channel or queue that takes what time or capacity removes
    #[arg(long, value_name = "STORE")]
    dead_event_store: Option<String>,
    /// The id of the first event
    #[arg(long, value_name = "ID")]
    first_event_id: Option<u64>,
    /// Whether a repeated message-id is a duplicate
    #[arg(long, value_name = "MODE", value_parser = ["off", "message-id"])]
    publisher_dedupe: Option<String>,
    /// How long a message-id is remembered
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    publisher_dedupe_window: Option<u64>,
    /// Whether clients see where an event came from
    #[arg(long, value_name = "BOOL")]
    expose_origin: Option<bool>,
    /// The largest message taken; 0 for the broker's limit
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    max_message_size: Option<u64>,
}

/// What only channels have.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Settings")]
pub(crate) struct ChannelSettings {
    /// What removes events: log (only time, capacity and purge) or interest (also that nobody needs them)
    #[arg(long, value_parser = ["log", "interest"])]
    retention: Option<String>,
    /// Keep only the newest events for each value of a property, DEPTH of them (default 1); repeatable
    #[arg(long = "publish-key", value_name = "PROPERTY[:DEPTH]")]
    #[serde(skip)]
    publish_keys: Vec<String>,
}

/// What only queues have.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Settings")]
pub(crate) struct QueueSettings {
    /// A queue that takes expired messages
    #[arg(long, value_name = "QUEUE")]
    expiry_queue: Option<String>,
    /// The life of messages that come without an expiry; 0 for no end
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    expiry_default: Option<u64>,
    /// The shortest life of a message, where there is no --expiry-default; 0 for no such bound
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    expiry_min: Option<u64>,
    /// The longest life of a message, where there is no --expiry-default; 0 for no such bound
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    expiry_max: Option<u64>,
    /// Let no message expire, whatever its sender says
    #[arg(long, value_name = "BOOL")]
    no_expiry: Option<bool>,
    /// One active consumer at a time
    #[arg(long, value_name = "BOOL")]
    exclusive: Option<bool>,
    /// The highest priority that is told apart, 0 to 9
    #[arg(long, value_name = "N")]
    max_priority: Option<u8>,
    #[command(flatten)]
    #[serde(flatten)]
    redelivery: RedeliverySettings,
}

/// How failed deliveries come back; queues and named objects have them.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "Settings")]
pub(crate) struct RedeliverySettings {
    /// Deliveries that may fail before a message is dead-lettered; -1 for no end
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_delivery_attempts: Option<i64>,
    /// The wait before a failed message is delivered again
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    redelivery_delay: Option<u64>,
    /// By how much each further wait grows
    #[arg(long, value_name = "FACTOR")]
    redelivery_multiplier: Option<f64>,
    /// The longest wait
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    max_redelivery_delay: Option<u64>,
    /// By what part of itself a wait is longer or shorter at random, 0 to 1
    #[arg(long, value_name = "PART")]
    redelivery_spread: Option<f64>,
    /// The queue for dead letters from here, if not the broker's
    #[arg(long, value_name = "QUEUE")]
    dead_letter_queue: Option<String>,
    /// Give the dead letters from here a queue of their own, DLQ.NAME
    #[arg(long, value_name = "BOOL")]
    dead_letter_per_source: Option<bool>,
    /// Count an attempt as failed on disk before it is made: costs a write for each delivery
    #[arg(long, value_name = "BOOL")]
    persist_count_before_delivery: Option<bool>,
}

/// Any setting by its name in the manual.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct AnySettings {
    /// Set what has no option of its own, e.g. --set 'dedupe={"late":"accept"}'; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, Value)>,
    /// Bring back a setting's default; repeatable
    #[arg(long = "unset", value_name = "KEY")]
    unset: Vec<String>,
}

/// What was said, as members of a body.
pub(crate) fn members(settings: &impl Serialize) -> Map<String, Value> {
    let mut members = match serde_json::to_value(settings) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    members.retain(|_, value| !value.is_null());
    members
}

/// The settings that only one kind of store has.
pub(crate) trait OwnSettings: Args {
    /// What was said, as members of a body.
    fn members(&self) -> Outcome<Map<String, Value>>;
}

impl OwnSettings for QueueSettings {
    fn members(&self) -> Outcome<Map<String, Value>> {
        Ok(members(self))
    }
}

impl OwnSettings for ChannelSettings {
    fn members(&self) -> Outcome<Map<String, Value>> {
        let mut said = members(self);
        if !self.publish_keys.is_empty() {
            let keys: Outcome<Vec<Value>> = self.publish_keys.iter().map(|key| publish_key(key)).collect();
            said.insert("publish_keys".to_owned(), keys?.into());
        }
        Ok(said)
    }
}

fn publish_key(written: &str) -> Outcome<Value> {
    let Some((name, depth)) = written.rsplit_once(':') else {
        return Ok(serde_json::json!({ "name": written, "depth": 1 }));
    };
    let depth: u32 = depth.parse().map_err(|_| {
        Failure::usage(format!("'{written}' is no publish key"))
            .with_advice("write --publish-key PROPERTY or --publish-key PROPERTY:DEPTH, such as ISIN:5")
    })?;
    Ok(serde_json::json!({ "name": name, "depth": depth }))
}

impl AnySettings {
    /// Adds what was said to the members of a body.
    pub(crate) fn add_to(self, members: &mut Map<String, Value>) {
        members.extend(self.set);
        members.extend(self.unset.into_iter().map(|key| (key, Value::Null)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publish_keys_have_a_depth() {
        assert_eq!(publish_key("ISIN").unwrap(), serde_json::json!({ "name": "ISIN", "depth": 1 }));
        assert_eq!(publish_key("a:b:5").unwrap(), serde_json::json!({ "name": "a:b", "depth": 5 }));
        assert!(publish_key("a:b").is_err());
    }
}
