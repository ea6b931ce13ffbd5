//! Which events of a channel have which values of its publish keys (5.1), so that a newer one can replace them.

use postroad_model::id::EventId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The values of publish keys. An event has the keys that the channel had when it was stored.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// For each key and value the events that have it, oldest first.
    holders: BTreeMap<(String, String), VecDeque<EventId>>,
    /// What each event has.
    of_events: BTreeMap<EventId, Vec<(String, String)>>,
}

impl Keys {
    /// An event has these values.
    pub(crate) fn add(&mut self, event: EventId, values: Vec<(String, String)>) {
        for value in &values {
            self.holders.entry(value.clone()).or_default().push_back(event);
        }
        self.of_events.insert(event, values);
    }

    /// An event left the channel.
    pub(crate) fn remove(&mut self, event: EventId) {
        if self.of_events.is_empty() {
            return;
        }
        for value in self.of_events.remove(&event).unwrap_or_default() {
            let Some(holders) = self.holders.get_mut(&value) else { continue };
            holders.retain(|&holder| holder != event);
            if holders.is_empty() {
                self.holders.remove(&value);
            }
        }
    }

    /// The events that have a value of a key, oldest first.
    pub(crate) fn holders(&self, value: &(String, String)) -> impl ExactSizeIterator<Item = EventId> + '_ {
        self.holders.get(value).map(|holders| holders.iter().copied()).unwrap_or_default()
    }

    /// The channel has only these keys now.
    pub(crate) fn keep_only(&mut self, names: &BTreeSet<&str>) {
        self.holders.retain(|(name, _), _| names.contains(name.as_str()));
        for values in self.of_events.values_mut() {
            values.retain(|(name, _)| names.contains(name.as_str()));
        }
        self.of_events.retain(|_, values| !values.is_empty());
    }

    /// Every event that has values, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EventId, &Vec<(String, String)>)> {
        self.of_events.iter().map(|(&event, values)| (event, values))
    }
}
