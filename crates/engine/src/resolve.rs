//! From an address to a store (ADR-6, RES-B1, RES-B2, RES-L1, RES-L2, RES-L13, RES-L14), and use for the first time.

use crate::engine::Engine;
use postroad_model::address::{Address, Kind};
use postroad_model::id::StoreKey;
use postroad_model::name::{
    check_name_length, check_queue_name, check_topic, normalise_channel_name, queue_pattern_matches, shorten,
    topic_pattern_matches,
};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{ChannelSettings, Retention, UnknownKind};
use postroad_record::{MadeBy, Record, StoreDefinition};

/// What an address is resolved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To send there.
    Put,
    /// To consume or browse.
    Get,
}

impl Engine {
    /// The store that an address means, made now if it may be made by first use (README U-11).
    pub(crate) fn resolve(&mut self, address: &Address, intent: Intent) -> Result<StoreKey, Refusal> {
        if let Some(broker) = &address.broker
            && **broker != *self.settings.name
        {
            return Err(elsewhere(broker, address, intent));
        }
        if address.object.is_some() {
            // Only channels have named objects, whatever capability the client wrote (AM-17).
            let channel = normalise_channel_name(&address.name);
            if self.queues.contains_key(address.name.as_str())
                && !self.channels.contains_key(channel.as_str())
            {
                let shown = shorten(&address.name);
                let text = format!("'{shown}' is a queue: named objects live on channels");
                return Err(Refusal::new(Code::ObjectNotAllowedHere, shown, text));
            }
            return self.resolve_channel(&channel, intent);
        }
        match address.kind {
            Some(Kind::Queue) => self.resolve_queue(&address.name),
            Some(Kind::Channel) => self.resolve_channel(&normalise_channel_name(&address.name), intent),
            Some(Kind::Topic) => self.resolve_channel(&address.name, intent),
            None => self.resolve_unhinted(&address.name, intent),
        }
    }

    fn resolve_unhinted(&mut self, name: &str, intent: Intent) -> Result<StoreKey, Refusal> {
        if let Some(&key) = self.queues.get(name) {
            return Ok(key);
        }
        if let Some(&key) = self.channels.get(normalise_channel_name(name).as_str()) {
            return Ok(key);
        }
        match self.settings.unknown_kind {
            UnknownKind::Queue => self.resolve_queue(name),
            UnknownKind::Topic => self.resolve_channel(name, intent),
        }
    }

    fn resolve_queue(&mut self, name: &str) -> Result<StoreKey, Refusal> {
        if let Some(&key) = self.queues.get(name) {
            return Ok(key);
        }
        let wanted = self.settings.auto_create_queues.iter().any(|p| queue_pattern_matches(p, name));
        if wanted && !name.starts_with('$') {
            check_queue_name(name)?;
            self.check_disk(name)?;
            let definition = StoreDefinition::Queue(self.settings.defaults.queue.clone());
            return Ok(self.create_store(name, definition, MadeBy::FirstUse, true));
        }
        let shown = shorten(name);
        let hint = if self.channels.contains_key(name) { "; a channel has that name" } else { "" };
        let text =
            format!("there is no queue '{shown}' on broker {}{hint}: create it first", self.settings.name);
        Err(Refusal::new(Code::UnknownQueue, shown, text))
    }

    fn resolve_channel(&mut self, name: &str, intent: Intent) -> Result<StoreKey, Refusal> {
        if let Some(&key) = self.channels.get(name) {
            return Ok(key);
        }
        if intent == Intent::Get && name.split('/').any(|level| matches!(level, "+" | "#")) {
            let text =
                format!("'{}' is a filter with wildcards, which AMQP can't subscribe to yet", shorten(name));
            return Err(Refusal::new(Code::NotSupported, shorten(name), text));
        }
        check_topic(name, self.settings.max_topic_bytes, self.settings.max_levels)?;
        let wanted = self.settings.auto_create_channels.iter().any(|p| topic_pattern_matches(p, name));
        if wanted {
            // Its name is its topic string (CH-1), so it may hold whatever a topic may (TT-2).
            check_name_length(name)?;
            self.check_disk(name)?;
            // Made by first use it keeps only what somebody waits for, so that nothing piles up unseen (U-10).
            let defaults = self.settings.defaults.channel.clone();
            let settings = ChannelSettings { retention: Retention::Interest, ..defaults };
            return Ok(self.create_store(name, StoreDefinition::Channel(settings), MadeBy::FirstUse, true));
        }
        let shown = shorten(name);
        let hint = if self.queues.contains_key(name) { "; a queue has that name" } else { "" };
        let text =
            format!("there is no channel '{shown}' on broker {}{hint}: create it first", self.settings.name);
        Err(Refusal::new(Code::ChannelNotFound, shown, text))
    }

    /// Creates a store; a temporary one is in memory only.
    pub(crate) fn create_store(
        &mut self,
        name: &str,
        definition: StoreDefinition,
        made_by: MadeBy,
        durable: bool,
    ) -> StoreKey {
        let store = self.free_stores.pop().unwrap_or_else(|| self.stores.next_key());
        let uid = self.new_uid();
        let record = Record::StoreCreated { store, uid, name: name.to_owned(), definition, made_by };
        self.record(record, durable);
        self.join_destination_appeared();
        store
    }

    /// The address under which clients reach a store again.
    pub(crate) fn address_of(&self, store: StoreKey) -> String {
        let Some(store) = self.store(store) else { return String::new() };
        if store.owner.is_some() {
            return format!("{}@{}", store.name, self.settings.name);
        }
        store.name.to_string()
    }
}

fn elsewhere(broker: &str, address: &Address, intent: Intent) -> Refusal {
    let (name, broker) = (shorten(&address.name), shorten(broker));
    match intent {
        Intent::Put => {
            let text = format!("no link leads to broker '{broker}', so '{name}@{broker}' can't be reached");
            Refusal::new(Code::UnknownBroker, format!("{name}@{broker}"), text)
        }
        Intent::Get => {
            let text = format!("'{name}' is on broker '{broker}': connect there to consume from it");
            Refusal::new(Code::NotLocal, format!("{name}@{broker}"), text)
        }
    }
}
