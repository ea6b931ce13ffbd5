//! What the simulated clients know, over all crashes: what they were told, what they have seen, what they have said.

use crate::client::Place;
use std::collections::{BTreeMap, BTreeSet};

/// What a consumer holds: an event of a channel by its id, a message of a queue by its number.
pub type Item = u64;

/// What the clients of one place have seen of one item.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// It came without a delivery count.
    pub unflagged: bool,
    /// It came back by the consumer's own word, so the next delivery need not count as a repetition.
    pub excused: bool,
    /// It came back at least once, for whatever reason.
    pub returned: bool,
}

/// What the clients know.
#[derive(Debug, Default)]
pub struct Shadow {
    /// Deliveries, by place and item.
    pub seen: BTreeMap<Place, BTreeMap<Item, Seen>>,
    /// Accepted outcomes that a client has sent.
    pub accepted: BTreeMap<Place, BTreeSet<Item>>,
    /// Rejections that a client has sent.
    pub rejected: BTreeMap<Place, BTreeSet<Item>>,
    /// Accepted outcomes that the broker has confirmed.
    pub confirmed: BTreeMap<Place, BTreeSet<Item>>,
    /// The messages to which consumers added a note.
    pub notes: BTreeMap<u64, BTreeSet<u64>>,
    /// Which message each event of a channel was, as its consumers saw it.
    pub identity: BTreeMap<(String, u64), u64>,
    /// Stores and named objects from which an operator has purged.
    pub purged: BTreeSet<String>,
    /// Numbers of waiting messages that an operator has cancelled, by store.
    pub cancelled: BTreeSet<(String, u64)>,
    /// Durable messages whose taking was confirmed.
    pub taken: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries that were repeated.
    pub repeated: u64,
}

impl Shadow {
    /// The broker goes on from another folder: what it did since that was copied is not its past any more.
    pub fn forget(&mut self) {
        let kept = std::mem::take(self);
        let Self { notes, purged, cancelled, taken, delivered, repeated, .. } = kept;
        *self = Self { notes, purged, cancelled, taken, delivered, repeated, ..Self::default() };
    }

    /// Whether any consumer of a place has accepted an item.
    #[must_use]
    pub fn has_accepted(&self, place: &Place, item: Item) -> bool {
        self.accepted.get(place).is_some_and(|items| items.contains(&item))
    }

    /// Whether a consumer of a place has accepted this item or a higher one.
    #[must_use]
    pub fn has_accepted_from(&self, place: &Place, item: Item) -> bool {
        self.accepted.get(place).is_some_and(|items| items.range(item..).next().is_some())
    }

    /// Whether any consumer of a place has rejected an item.
    #[must_use]
    pub fn has_rejected(&self, place: &Place, item: Item) -> bool {
        self.rejected.get(place).is_some_and(|items| items.contains(&item))
    }
}
