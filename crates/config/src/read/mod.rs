//! From TOML tables to a [`Draft`]: every value typed and in range, nothing yet compared with anything else.

mod broker;
mod join;
mod listener;
mod stores;

use crate::config::{
    ChannelDefinition, Config, JoinDefinition, Listener, NamedObjectDefinition, QueueDefinition, User,
};
use crate::diagnostic::{Code, Sink};
use crate::source::{Located, Span, offset_in_string};
use crate::table::{Places, Table};
use crate::value::quote;
use postroad_model::refusal::Refusal;
use postroad_selector::Selector;

/// Tables of features that exist and are not part of this version.
const LATER: &[&str] = &[
    "network",
    "interest",
    "cluster",
    "mqtt",
    "stomp",
    "queued_pubsub",
    "alias",
    "remote",
    "broker_alias",
    "transmission_queue",
    "link",
    "zone",
    "topic",
    "stream",
    "authority",
    "policy",
    "dlq_rule",
    "template",
    "virtual_topic",
    "composite",
];

/// A definition and where its keys were written.
pub(crate) struct Defined<T> {
    pub(crate) value: T,
    pub(crate) places: Places,
}

/// A channel with the places of its named objects.
pub(crate) struct DefinedChannel {
    pub(crate) channel: Defined<ChannelDefinition>,
    pub(crate) objects: Vec<Defined<NamedObjectDefinition>>,
}

/// A whole file as it was read. `config` has no definitions yet.
pub(crate) struct Draft {
    pub(crate) config: Config,
    pub(crate) security: Places,
    pub(crate) listeners: Vec<Defined<Listener>>,
    pub(crate) channels: Vec<DefinedChannel>,
    pub(crate) queues: Vec<Defined<QueueDefinition>>,
    pub(crate) joins: Vec<Defined<JoinDefinition>>,
    pub(crate) users: Vec<Defined<User>>,
}

impl Draft {
    /// The configuration, once nothing was found against it.
    pub(crate) fn into_config(self) -> Config {
        let mut config = self.config;
        config.listeners = self.listeners.into_iter().map(|defined| defined.value).collect();
        if config.listeners.is_empty() {
            config.listeners = Listener::loopback();
        }
        config.channels = self.channels.into_iter().map(with_objects).collect();
        config.queues = self.queues.into_iter().map(|defined| defined.value).collect();
        config.joins = self.joins.into_iter().map(|defined| defined.value).collect();
        config.users = self.users.into_iter().map(|defined| defined.value).collect();
        config
    }
}

fn with_objects(defined: DefinedChannel) -> ChannelDefinition {
    let mut channel = defined.channel.value;
    channel.named_objects = defined.objects.into_iter().map(|object| object.value).collect();
    channel
}

/// Reads a whole file.
pub(crate) fn document(mut root: Table<'_>, broker_name: &str) -> Draft {
    let mut config = Config::with_file(broker_name);
    if let Some(table) = root.table("broker", "[broker]") {
        broker::broker(table, &mut config);
    }
    if let Some(table) = root.table("auto_create", "[auto_create]") {
        broker::auto_create(table, &mut config.broker);
    }
    if let Some(table) = root.table("defaults", "[defaults]") {
        stores::defaults(table, &mut config.broker.defaults);
    }
    if let Some(table) = root.table("storage", "[storage]") {
        broker::storage(table, &mut config.storage);
    }
    if let Some(table) = root.table("limits", "[limits]") {
        broker::limits(table, &mut config.limits, &mut config.broker);
    }
    if let Some(table) = root.table("log", "[log]") {
        broker::log(table, &mut config.log);
    }
    let users: Vec<_> = root.tables("user", "[[user]]").into_iter().filter_map(broker::user).collect();
    let security = root.table("security", "[security]");
    let security = broker::security(security, !users.is_empty(), &mut config.security);
    let listeners =
        root.tables("listener", "[[listener]]").into_iter().filter_map(listener::listener).collect();
    let defaults = &config.broker.defaults;
    let channels = root.tables("channel", "[[channel]]");
    let channels = channels.into_iter().filter_map(|table| stores::channel(table, defaults)).collect();
    let queues = root.tables("queue", "[[queue]]");
    let queues = queues.into_iter().filter_map(|table| stores::queue(table, defaults)).collect();
    let own_name = config.broker.name.as_str();
    let joins = root.tables("join", "[[join]]");
    let joins = joins.into_iter().filter_map(|table| join::join(table, own_name)).collect();
    root.unsupported(LATER);
    root.finish();
    Draft { config, security, listeners, channels, queues, joins, users }
}

/// Overwrites a setting if a value was read.
fn set<T>(setting: &mut T, read: Option<T>) {
    if let Some(value) = read {
        *setting = value;
    }
}

/// Likewise for a setting that may be absent.
fn set_some<T>(setting: &mut Option<T>, read: Option<T>) {
    if read.is_some() {
        *setting = read;
    }
}

/// Reports what the model says against a name.
fn check_name(sink: &Sink<'_>, at: Span, checked: Result<(), Refusal>) {
    if let Err(refusal) = checked {
        sink.error(Code::BadName, at, refusal.message, "");
    }
}

/// A selector that parses. A fault is reported at its place inside the text.
fn selector(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let text = table.text(key)?;
    if let Err(error) = Selector::parse(&text.value) {
        let at = inside(table.sink, &text, error.column.saturating_sub(1));
        let message = format!("the selector in '{key}' does not parse: {error}");
        table.sink.error(Code::FilterSyntax, at, message, format!("the selector is {}", quote(&text.value)));
    }
    Some(text.value)
}

/// The place in the file of character number `index` (from 0) of a text.
fn inside(sink: &Sink<'_>, text: &Located<String>, index: usize) -> Span {
    let raw = sink.source.slice(text.span);
    let start = text.span.start + offset_in_string(raw, index).unwrap_or(0);
    Span { start, end: start + 1 }
}
