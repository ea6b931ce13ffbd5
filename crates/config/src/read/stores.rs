//! `[[channel]]`, `[[channel.named_object]]`, `[[queue]]`, and `[defaults]`, which has the same keys.

use super::{Defined, DefinedChannel, check_name, selector, set, set_some};
use crate::config::{ChannelDefinition, NamedObjectDefinition, QueueDefinition};
use crate::diagnostic::Code;
use crate::source::Located;
use crate::table::Table;
use crate::value::quote;
use postroad_model::name;
use postroad_model::settings::Defaults;
use postroad_model::settings::{
    ChannelSettings, DedupeSettings, NamedObjectSettings, ObjectType, PublishKey, QueueSettings,
    RedeliverySettings, Scope, Start, StoreType,
};

/// The largest capacity (joins-and-interest 5.1).
const MAX_CAPACITY: u32 = 2_147_483_646;

/// Keys of a channel that belong to interest propagation.
const CHANNEL_LATER: &[&str] = &["can_send", "can_receive", "interest_filter", "relay", "relay_max_hops"];

/// Keys of a queue that are not part of this version.
const QUEUE_LATER: &[&str] = &[
    "retention",
    "publish_keys",
    "can_send",
    "can_receive",
    "group_buckets",
    "default_bind",
    "auto_delete",
    "max_consumers",
    "consumers_before_dispatch",
    "delay_before_dispatch",
    "window",
    "max_window",
    "on_full",
];

/// Keys of a named object that are not part of this version.
const OBJECT_LATER: &[&str] = &[
    "filter_binding",
    "window",
    "max_window",
    "serial_window",
    "max_consumers",
    "consumers_before_dispatch",
    "delay_before_dispatch",
    "expiry_queue",
    "max_inactive",
    "stale_alarm_after",
    "max_backlog_bytes",
    "on_full",
];

/// Reads `[defaults]`.
pub(super) fn defaults(mut table: Table<'_>, defaults: &mut Defaults) {
    if let Some(mut channel) = table.table("channel", "[defaults.channel]") {
        channel_settings(&mut channel, &mut defaults.channel);
        channel.finish();
    }
    if let Some(mut queue) = table.table("queue", "[defaults.queue]") {
        queue_settings(&mut queue, &mut defaults.queue);
        queue.finish();
    }
    if let Some(mut object) = table.table("named_object", "[defaults.named_object]") {
        object_settings(&mut object, &mut defaults.named_object);
        object.finish();
    }
    table.finish();
}

/// Reads `[[channel]]` (joins-and-interest 5.1). A channel without a name is reported and left out.
pub(super) fn channel(mut table: Table<'_>, defaults: &Defaults) -> Option<DefinedChannel> {
    let written = name_of(&mut table, "orders");
    let mut settings = defaults.channel.clone();
    channel_settings(&mut table, &mut settings);
    let objects = table.tables("named_object", "[[channel.named_object]]");
    let objects = objects.into_iter().filter_map(|object| named_object(object, defaults)).collect();
    let sink = table.sink;
    let places = table.finish();
    let written = written?;
    let name = name::normalise_channel_name(&written.value);
    check_name(sink, written.span, name::check_channel_name(&name));
    let value = ChannelDefinition { name, settings, named_objects: Vec::new() };
    Some(DefinedChannel { channel: Defined { value, places }, objects })
}

/// Reads `[[channel.named_object]]` (named-objects 4).
fn named_object(mut table: Table<'_>, defaults: &Defaults) -> Option<Defined<NamedObjectDefinition>> {
    let written = name_of(&mut table, "billing");
    let mut settings = defaults.named_object.clone();
    object_settings(&mut table, &mut settings);
    let sink = table.sink;
    let places = table.finish();
    let written = written?;
    check_name(sink, written.span, name::check_object_name(&written.value));
    Some(Defined { value: NamedObjectDefinition { name: written.value, settings }, places })
}

/// Reads `[[queue]]` (named-objects 3.12 and 4, joins-and-interest 5.1).
pub(super) fn queue(mut table: Table<'_>, defaults: &Defaults) -> Option<Defined<QueueDefinition>> {
    let written = name_of(&mut table, "jobs");
    let mut settings = defaults.queue.clone();
    queue_settings(&mut table, &mut settings);
    let sink = table.sink;
    let places = table.finish();
    let written = written?;
    check_name(sink, written.span, name::check_queue_name(&written.value));
    Some(Defined { value: QueueDefinition { name: written.value, settings }, places })
}

fn name_of(table: &mut Table<'_>, example: &str) -> Option<Located<String>> {
    let name = table.text("name");
    if !table.has("name") {
        table.missing(Code::MissingKey, "name", &format!("\"{example}\""));
    }
    name
}

fn channel_settings(table: &mut Table<'_>, settings: &mut ChannelSettings) {
    set(&mut settings.store_type, table.word("type"));
    set(&mut settings.ttl, table.duration("ttl"));
    set(&mut settings.capacity, table.integer_or("capacity", 0..=MAX_CAPACITY, Code::BadCapacity));
    set(&mut settings.honour_capacity, table.boolean("honour_capacity"));
    set(&mut settings.retention, table.word("retention"));
    set_some(&mut settings.dead_event_store, text_of(table, "dead_event_store"));
    if table.has("publish_keys") {
        settings.publish_keys = publish_keys(table);
    }
    set(&mut settings.scope, scope(table));
    set(&mut settings.first_event_id, table.integer("first_event_id", 1..=u64::MAX >> 1));
    set(&mut settings.publisher_dedupe, table.word("publisher_dedupe"));
    set(&mut settings.publisher_dedupe_window, table.duration("publisher_dedupe_window"));
    dedupe(table, &mut settings.dedupe);
    set(&mut settings.expose_origin, table.boolean("expose_origin"));
    set(&mut settings.max_message_size, table.size("max_message_size", 0..=1 << 30));
    table.unsupported(CHANNEL_LATER);
}

fn queue_settings(table: &mut Table<'_>, settings: &mut QueueSettings) {
    if let Some(kind) = table.word("type") {
        settings.store_type = kind;
        if kind == StoreType::Transient {
            let at = table.place("type");
            table.bad_value(
                "type",
                at,
                "can't be transient",
                "a queue keeps what waits; write \"reliable\" for memory",
            );
        }
    }
    set(&mut settings.ttl, table.duration("ttl"));
    set(&mut settings.capacity, table.integer_or("capacity", 0..=MAX_CAPACITY, Code::BadCapacity));
    set(&mut settings.honour_capacity, table.boolean("honour_capacity"));
    set_some(&mut settings.dead_event_store, text_of(table, "dead_event_store"));
    set_some(&mut settings.expiry_queue, queue_name(table, "expiry_queue"));
    set(&mut settings.expiry_default, table.duration("expiry_default"));
    set(&mut settings.expiry_min, table.duration("expiry_min"));
    set(&mut settings.expiry_max, table.duration("expiry_max"));
    if settings.expiry_max > 0 && settings.expiry_min > settings.expiry_max {
        let advice = "no message could have such a life: lower expiry_min, or raise expiry_max";
        table.bad_value("expiry_min", table.place("expiry_min"), "is above expiry_max", advice);
    }
    set(&mut settings.no_expiry, table.boolean("no_expiry"));
    set(&mut settings.exclusive, table.boolean("exclusive"));
    set(&mut settings.max_priority, table.integer("max_priority", 0..=9));
    set(&mut settings.scope, scope(table));
    set(&mut settings.first_event_id, table.integer("first_event_id", 1..=u64::MAX >> 1));
    set(&mut settings.publisher_dedupe, table.word("publisher_dedupe"));
    set(&mut settings.publisher_dedupe_window, table.duration("publisher_dedupe_window"));
    dedupe(table, &mut settings.dedupe);
    set(&mut settings.expose_origin, table.boolean("expose_origin"));
    set(&mut settings.max_message_size, table.size("max_message_size", 0..=1 << 30));
    redelivery(table, &mut settings.redelivery);
    table.unsupported(QUEUE_LATER);
}

fn object_settings(table: &mut Table<'_>, settings: &mut NamedObjectSettings) {
    if let Some(kind) = table.word("type") {
        settings.object_type = kind;
        if kind != ObjectType::Exclusive {
            let message = "only named objects of type exclusive are supported by this version";
            table.sink.error(Code::NotSupported, table.place("type"), message, "write type = \"exclusive\"");
        }
    }
    set(&mut settings.persistent, table.boolean("persistent"));
    set(&mut settings.scope, scope(table));
    if let Some(start) = start(table, "start_event_id") {
        settings.start_event_id = start;
    }
    set_some(&mut settings.selector, selector(table, "selector"));
    set(&mut settings.no_local, table.boolean("no_local"));
    set_some(&mut settings.ack_policy, table.word("ack_policy"));
    set(&mut settings.consumer_takeover, table.word("consumer_takeover"));
    set(&mut settings.on_definition_change, table.word("on_definition_change"));
    redelivery(table, &mut settings.redelivery);
    table.unsupported(OBJECT_LATER);
}

/// Reads what queues and named objects say about failed deliveries (named-objects 3.6).
fn redelivery(table: &mut Table<'_>, settings: &mut RedeliverySettings) {
    set(&mut settings.max_delivery_attempts, attempts(table));
    set(&mut settings.redelivery_delay, table.duration("redelivery_delay"));
    set(&mut settings.redelivery_multiplier, table.number("redelivery_multiplier", 0.0));
    set_some(&mut settings.max_redelivery_delay, table.duration("max_redelivery_delay"));
    set_some(&mut settings.dead_letter_queue, queue_name(table, "dead_letter_queue"));
    set(&mut settings.dead_letter_per_source, table.boolean("dead_letter_per_source"));
    set(&mut settings.persist_count_before_delivery, table.boolean("persist_count_before_delivery"));
    set(&mut settings.redelivery_spread, table.number_between("redelivery_spread", 0.0..=1.0));
}

/// At least one attempt, or -1 for no end (AK-8).
fn attempts(table: &mut Table<'_>) -> Option<i32> {
    let attempts = table.integer("max_delivery_attempts", -1..=i32::MAX)?;
    if attempts == 0 {
        let advice = "write how often a message is tried, or -1 for no end";
        table.bad_value("max_delivery_attempts", table.place("max_delivery_attempts"), "can't be 0", advice);
        return None;
    }
    Some(attempts)
}

/// Reads `dedupe = { min_ids, min_age, late }` (DUP-6, DUP-7).
fn dedupe(table: &mut Table<'_>, settings: &mut DedupeSettings) {
    let Some(mut window) = table.table("dedupe", "'dedupe'") else { return };
    set(&mut settings.min_ids, window.integer("min_ids", 1..=1 << 40));
    set(&mut settings.min_age, window.duration("min_age"));
    set(&mut settings.late, window.word("late"));
    window.finish();
}

/// Reads `publish_keys = [{ name, depth }]`; a key without a name or depth is refused (`BAD_PUBLISH_KEY`).
fn publish_keys(table: &mut Table<'_>) -> Vec<PublishKey> {
    let mut keys: Vec<PublishKey> = Vec::new();
    for mut entry in table.tables("publish_keys", "publish_keys = [{ name = \"ISIN\", depth = 1 }]") {
        let property = entry.text("name");
        let depth = entry.integer_or("depth", 1..=u32::MAX, Code::BadPublishKey);
        let (sink, at) = (entry.sink, entry.at);
        let places = entry.finish();
        match property {
            Some(property) if property.value.is_empty() => {
                let message = "a publish key has an empty name";
                sink.error(Code::BadPublishKey, property.span, message, "name the property that is the key");
            }
            Some(property) if keys.iter().any(|key| key.name == property.value) => {
                let message = format!("the publish key {} is there twice", quote(&property.value));
                sink.error(Code::BadPublishKey, property.span, message, "keep one of them");
            }
            Some(property) => keys.push(PublishKey { name: property.value, depth: depth.unwrap_or(1) }),
            None if !places.has("name") => {
                sink.error(Code::BadPublishKey, at, "a publish key has no name", "write name = \"PROPERTY\"");
            }
            None => {}
        }
    }
    keys
}

/// Local or cluster-wide (README U-15); there are no clusters yet.
fn scope(table: &mut Table<'_>) -> Option<Scope> {
    let scope = table.word("scope")?;
    if scope == Scope::Cluster {
        let message = "clusters are not supported by this version";
        table.sink.error(Code::NotSupported, table.place("scope"), message, "write scope = \"local\"");
        return None;
    }
    Some(scope)
}

/// `new`, `all` or an event id (NO-10, JOIN-9).
pub(super) fn start(table: &mut Table<'_>, key: &'static str) -> Option<Start> {
    let written = table.text_or_integer(key)?;
    let start = written.value.parse();
    if start.is_err() {
        let why = format!("can't be {}", quote(&written.value));
        table.bad_value(key, written.span, &why, "write \"new\", \"all\" or an event id");
    }
    start.ok()
}

fn text_of(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    table.text(key).map(|text| text.value)
}

fn queue_name(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let written = table.text(key)?;
    check_name(table.sink, written.span, name::check_queue_name(&written.value));
    Some(written.value)
}
