//! `[broker]`, `[auto_create]`, `[storage]`, `[limits]`, `[log]`, `[security]`, `[[user]]`.

use super::{Defined, check_name, set};
use crate::config::{
    Config, LimitSettings, LogSettings, Password, SecurityMode, SecuritySettings, StorageSettings, User,
};
use crate::diagnostic::Code;
use crate::source::Located;
use crate::table::{Places, Table};
use crate::value::quote;
use postroad_model::name;
use postroad_model::settings::BrokerSettings;
use std::path::PathBuf;

/// Keys of `[broker]` that belong to routing, links and topics.
const BROKER_LATER: &[&str] = &[
    "default_xmitq",
    "routing",
    "arrival_rename",
    "max_hops",
    "divert",
    "group_refresh",
    "topic_tree_life",
    "wildcard_auth",
    "dedupe_memory",
    "join_retry_min",
    "join_retry_max",
];

/// Reads `[broker]` (addressing 4; joins-and-interest 5.3; topics-and-streams 4).
pub(super) fn broker(mut table: Table<'_>, config: &mut Config) {
    if let Some(written) = table.text("name") {
        check_broker_name(&table, &written);
        config.broker.name = written.value;
    }
    if let Some(folder) = table.text("data_dir") {
        if folder.value.is_empty() {
            table.bad_value("data_dir", folder.span, "is empty", "write the path of a folder");
        }
        config.data_dir = PathBuf::from(folder.value);
    }
    if let Some(queue) = table.text("dead_letter_queue") {
        check_name(table.sink, queue.span, name::check_queue_name(&queue.value));
        config.broker.dead_letter_queue = queue.value;
    }
    set(&mut config.dead_letters.expose_properties, table.boolean("dlq_expose_properties"));
    set(&mut config.dead_letters.compat, table.word("dlq_compat"));
    let broker = &mut config.broker;
    set(&mut broker.unknown_kind, table.word("unknown_kind"));
    set(&mut broker.max_message_size, table.size("max_message_size", 1..=1 << 30));
    set(&mut broker.max_window, table.integer("max_window", 1..=65_535));
    set(&mut broker.spool_max_events, table.integer("spool_max_events", 1..=u64::from(u32::MAX)));
    set(&mut broker.spool_max_bytes, table.size("spool_max_bytes", 1..=1 << 50));
    set(&mut broker.max_scheduled, table.integer("max_scheduled", 1..=u64::from(u32::MAX)));
    set(&mut broker.max_topic_bytes, table.integer("max_topic_bytes", 1..=65_535));
    set(&mut broker.max_levels, table.integer("max_levels", 1..=1_024));
    table.unsupported(BROKER_LATER);
    table.finish();
}

/// Broker names: 1 to 64 bytes of `A-Z a-z 0-9 . _ - / %` (ADR-3).
fn check_broker_name(table: &Table<'_>, written: &Located<String>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/%".contains(c);
    if !(1..=64).contains(&written.value.len()) || !written.value.chars().all(allowed) {
        let message = format!("{} can't be the name of a broker", quote(&written.value));
        table.sink.error(Code::BadName, written.span, message, "write 1 to 64 of A-Z a-z 0-9 . _ - / %");
    }
}

/// Reads `[auto_create]` (RES-L13, README U-11): off unless `enabled`; then everything unless patterns say less.
pub(super) fn auto_create(mut table: Table<'_>, broker: &mut BrokerSettings) {
    let enabled = table.boolean("enabled").unwrap_or(false);
    let queues = patterns(&mut table, "match", '.', "*", ">");
    let channels = patterns(&mut table, "channels", '/', "+", "#");
    if enabled {
        let everything = queues.is_none() && channels.is_none();
        let all = |pattern: &str| if everything { vec![pattern.to_owned()] } else { Vec::new() };
        broker.auto_create_queues = queues.unwrap_or_else(|| all(">"));
        broker.auto_create_channels = channels.unwrap_or_else(|| all("#"));
    }
    let (sink, at) = (table.sink, table.at);
    let places = table.finish();
    if !enabled && (places.has("match") || places.has("channels")) {
        let message = "the patterns of [auto_create] do nothing while 'enabled' is not true";
        sink.warn(Code::Conflict, at, message, "write enabled = true, or remove the patterns");
    }
}

/// Patterns by levels (README U-9): `one` stands for a level, `rest` only at the end.
fn patterns(
    table: &mut Table<'_>,
    key: &'static str,
    separator: char,
    one: &str,
    rest: &str,
) -> Option<Vec<String>> {
    let written = table.texts(key)?;
    for pattern in &written {
        let mut levels = pattern.value.split(separator).peekable();
        while let Some(level) = levels.next() {
            let wild = level == one || (level == rest && levels.peek().is_none());
            let plain = !level.is_empty() && !level.contains(one) && !level.contains(rest);
            if !wild && !plain {
                let why = format!("can't hold {}", quote(&pattern.value));
                let advice = format!(
                    "levels are split by '{separator}'; '{one}' stands for a whole level, '{rest}' for the rest and comes last"
                );
                table.bad_value(key, pattern.span, &why, &advice);
                break;
            }
        }
    }
    Some(written.into_iter().map(|pattern| pattern.value).collect())
}

/// Reads `[storage]`.
pub(super) fn storage(mut table: Table<'_>, storage: &mut StorageSettings) {
    set(&mut storage.segment_size, table.size("segment_size", 1 << 20..=1 << 30));
    set(&mut storage.checkpoint_every, table.size("checkpoint_every", 1 << 20..=1 << 40));
    table.finish();
}

/// Reads `[limits]`.
pub(super) fn limits(mut table: Table<'_>, limits: &mut LimitSettings, broker: &mut BrokerSettings) {
    set(&mut limits.max_connections, table.integer("max_connections", 1..=1_000_000));
    set(&mut limits.max_sessions, table.integer("max_sessions", 1..=u16::MAX));
    set(&mut limits.max_links, table.integer("max_links", 1..=1_000_000));
    // 512 bytes is the least that AMQP 1.0 part 2.7.1 allows.
    let frame = table.size("max_frame_size", 512..=1 << 30);
    set(&mut limits.max_frame_size, frame.and_then(|size| u32::try_from(size).ok()));
    set(&mut limits.idle_timeout, at_least_one(&mut table, "idle_timeout"));
    set(&mut limits.login_timeout, at_least_one(&mut table, "login_timeout"));
    set(&mut broker.memory, table.size("memory", 1 << 20..=1 << 50));
    set(&mut broker.cache, table.size("cache", 1 << 20..=1 << 50));
    table.finish();
}

fn at_least_one(table: &mut Table<'_>, key: &'static str) -> Option<u64> {
    let duration = table.duration(key)?;
    if duration == 0 {
        let at = table.place(key);
        table.bad_value(key, at, "can't be 0", "write how long to wait, such as \"30s\"");
        return None;
    }
    Some(duration)
}

/// Reads `[log]`.
pub(super) fn log(mut table: Table<'_>, log: &mut LogSettings) {
    set(&mut log.level, table.word("level"));
    table.finish();
}

/// Reads `[security]`; without `mode` logins are demanded as soon as there are users.
pub(super) fn security(table: Option<Table<'_>>, users: bool, security: &mut SecuritySettings) -> Places {
    if users {
        security.mode = SecurityMode::Secure;
    }
    let Some(mut table) = table else { return Places::default() };
    set(&mut security.mode, table.word("mode"));
    set(&mut security.allow_open_remote, table.boolean("allow_open_remote"));
    table.finish()
}

/// Reads `[[user]]`.
pub(super) fn user(mut table: Table<'_>) -> Option<Defined<User>> {
    let written = table.text("name");
    let plain = table.text("password");
    let variable = table.text("password_env");
    let file = table.text("password_file");
    table.unsupported(&["groups", "roles", "password_hash"]);
    match &written {
        Some(login) => check_name(table.sink, login.span, name::check_object_name(&login.value)),
        None if !table.has("name") => table.missing(Code::MissingKey, "name", "\"the login name\""),
        None => {}
    }
    let given = [&plain, &variable, &file].into_iter().flatten();
    if let Some(empty) = given.clone().find(|given| given.value.is_empty()) {
        table.bad_value("password", empty.span, "is empty", "write the password, or where it is");
    }
    if given.count() > 1 {
        let message = "[[user]] has more than one password";
        let advice = "keep one of 'password', 'password_env' and 'password_file'";
        table.sink.error(Code::Conflict, table.at, message, advice);
    }
    let password = plain
        .map(|text| Password::Plain(text.value))
        .or_else(|| variable.map(|text| Password::Environment(text.value)))
        .or_else(|| file.map(|text| Password::File(PathBuf::from(text.value))));
    if password.is_none() && !["password", "password_env", "password_file"].iter().any(|key| table.has(key)) {
        table.missing(Code::MissingKey, "password_file", "\"a file that holds the password\"");
    }
    let places = table.finish();
    let value = User { name: written?.value, password: password? };
    Some(Defined { value, places })
}
