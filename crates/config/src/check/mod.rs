//! What a file as a whole must satisfy: names that are unique and lead somewhere, joins that can work,
//! listeners that nobody opens to the world by accident.

mod joins;
mod names;
mod reach;
mod security;
mod stores;

use crate::diagnostic::Sink;
use crate::load::Options;
use crate::read::Draft;
use postroad_model::address::{Address, Kind};
use postroad_model::name::{normalise_channel_name, queue_pattern_matches, topic_pattern_matches};
use std::collections::BTreeSet;

/// Checks a whole file.
pub(crate) fn draft(draft: &Draft, options: &Options, sink: &Sink<'_>) {
    let directory = Directory::new(draft);
    names::check(draft, sink);
    stores::check(draft, &directory, sink);
    let edges = joins::check(draft, &directory, options.stores_elsewhere, sink);
    reach::check(&edges, sink);
    security::check(draft, options.allow_open_remote, sink);
}

/// A store that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Store {
    Channel(String),
    Queue(String),
}

impl Store {
    fn name(&self) -> &str {
        match self {
            Self::Channel(name) | Self::Queue(name) => name,
        }
    }

    /// "channel" or "queue".
    fn kind(&self) -> &'static str {
        match self {
            Self::Channel(_) => "channel",
            Self::Queue(_) => "queue",
        }
    }
}

/// What a reference leads to.
enum Found {
    /// A store that the file defines, or the broker's own dead-letter queue.
    Here(Store),
    /// Nothing here, but first use would make it.
    MadeByUse(Store),
    /// Nothing.
    Nowhere,
    /// A store at another broker.
    Elsewhere(String),
    /// The text is no address.
    Malformed(String),
}

/// The stores that the file defines.
struct Directory<'d> {
    channels: BTreeSet<&'d str>,
    queues: BTreeSet<&'d str>,
    draft: &'d Draft,
}

impl<'d> Directory<'d> {
    fn new(draft: &'d Draft) -> Self {
        let channels = draft.channels.iter().map(|defined| defined.channel.value.name.as_str()).collect();
        let defined = draft.queues.iter().map(|defined| defined.value.name.as_str());
        let own = draft.config.broker.dead_letter_queue.as_str();
        Self { channels, queues: defined.chain(std::iter::once(own)).collect(), draft }
    }

    fn has_queue(&self, name: &str) -> bool {
        self.queues.contains(name)
    }

    fn has_channel(&self, name: &str) -> bool {
        self.channels.contains(name)
    }

    /// Where a written store leads (ADR-6, README U-8): where both exist the queue, unless it says `channel://`.
    fn find(&self, written: &str) -> Found {
        let address = match Address::parse(written, None) {
            Ok(address) => address,
            Err(refusal) => return Found::Malformed(refusal.message),
        };
        if let Some(broker) = address.broker.filter(|broker| *broker != self.draft.config.broker.name) {
            return Found::Elsewhere(broker);
        }
        if address.object.is_some() {
            return Found::Malformed(String::from("'::' names a named object, which is no store"));
        }
        let channel = normalise_channel_name(&address.name);
        let queue = address.name;
        let (may_be_queue, may_be_channel) = match address.kind {
            Some(Kind::Queue) => (true, false),
            Some(Kind::Channel | Kind::Topic) => (false, true),
            None => (true, true),
        };
        if may_be_queue && self.has_queue(&queue) {
            return Found::Here(Store::Queue(queue));
        }
        if may_be_channel && self.has_channel(&channel) {
            return Found::Here(Store::Channel(channel));
        }
        let broker = &self.draft.config.broker;
        if may_be_queue
            && broker.auto_create_queues.iter().any(|pattern| queue_pattern_matches(pattern, &queue))
        {
            return Found::MadeByUse(Store::Queue(queue));
        }
        let patterns = &broker.auto_create_channels;
        if may_be_channel && patterns.iter().any(|pattern| topic_pattern_matches(pattern, &channel)) {
            return Found::MadeByUse(Store::Channel(channel));
        }
        Found::Nowhere
    }
}

/// "did you mean" with the nearest defined name, to be put behind an advice.
fn near<'n>(sink: &Sink<'_>, written: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    if sink.is_full() {
        return String::new();
    }
    match crate::suggest::nearest(written, names) {
        Some(name) => format!("; did you mean '{name}'?"),
        None => String::new(),
    }
}
