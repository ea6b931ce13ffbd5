//! The message-ids that a store has seen lately, for `publisher_dedupe = "message-id"` (DUP-11).

use postroad_model::id::{EventId, WallMs};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Message-ids within a window of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageIds {
    seen: BTreeMap<Arc<str>, Seen>,
    by_age: VecDeque<(WallMs, Arc<str>)>,
}

/// What a message-id became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The event.
    pub(crate) event: EventId,
    /// When.
    pub(crate) at: WallMs,
    /// Whether the event was on disk.
    pub(crate) durable: bool,
}

impl MessageIds {
    /// The event that this message-id became, if it was seen within the window before `now`.
    #[must_use]
    pub(crate) fn find(&self, message_id: &str, now: WallMs, window_ms: u64) -> Option<EventId> {
        let seen = self.seen.get(message_id)?;
        (now.saturating_sub(seen.at) <= window_ms).then_some(seen.event)
    }

    /// Remembers a message-id, and forgets those that are older than the window.
    pub(crate) fn remember(&mut self, message_id: &str, seen: Seen, window_ms: u64) {
        if self.seen.get(message_id).is_some_and(|known| *known == seen || known.at > seen.at) {
            // A checkpoint says it twice: by itself and with the event.
            return;
        }
        let message_id: Arc<str> = Arc::from(message_id);
        self.by_age.push_back((seen.at, message_id.clone()));
        self.seen.insert(message_id, seen);
        while let Some((seen_at, _)) = self.by_age.front() {
            if seen.at.saturating_sub(*seen_at) <= window_ms {
                return;
            }
            let Some((seen_at, old)) = self.by_age.pop_front() else { return };
            // It may have come again since: then its newer entry stands further back.
            if self.seen.get(&old).is_some_and(|latest| latest.at == seen_at) {
                self.seen.remove(&old);
            }
        }
    }

    /// Those that became events on disk no longer than the window before `now`, oldest first.
    pub(crate) fn durable(&self, now: WallMs, window_ms: u64) -> impl Iterator<Item = (&str, Seen)> + '_ {
        self.by_age.iter().filter_map(move |(at, id)| {
            let seen = *self.seen.get(id)?;
            let counts = seen.durable && seen.at == *at && now.saturating_sub(seen.at) <= window_ms;
            counts.then_some((&**id, seen))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_forgotten_after_the_window() {
        let seen = |event, at| Seen { event, at, durable: true };
        let mut ids = MessageIds::default();
        ids.remember("x", seen(1, 1_000), 500);
        assert_eq!(ids.find("x", 1_500, 500), Some(1));
        assert_eq!(ids.find("x", 1_501, 500), None);
        ids.remember("y", seen(2, 2_000), 500);
        assert_eq!(ids.seen.len(), 1, "x is gone from memory too");
        assert_eq!(ids.durable(2_100, 500).collect::<Vec<_>>(), [("y", seen(2, 2_000))]);
    }
}
