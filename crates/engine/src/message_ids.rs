//! The message-ids that a store has seen lately, for `publisher_dedupe = "message-id"` (DUP-11).

use postroad_model::id::{EventId, WallMs};
use std::collections::{BTreeMap, VecDeque};

/// Message-ids within a window of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageIds {
    seen: BTreeMap<String, (EventId, WallMs)>,
    by_age: VecDeque<(WallMs, String)>,
}

impl MessageIds {
    /// The event that this message-id became, if it was seen within the window before `now`.
    #[must_use]
    pub(crate) fn find(&self, message_id: &str, now: WallMs, window_ms: u64) -> Option<EventId> {
        let &(event, at) = self.seen.get(message_id)?;
        (now.saturating_sub(at) <= window_ms).then_some(event)
    }

    /// Remembers a message-id, and forgets those that are older than the window.
    pub(crate) fn remember(&mut self, message_id: String, event: EventId, at: WallMs, window_ms: u64) {
        self.by_age.push_back((at, message_id.clone()));
        self.seen.insert(message_id, (event, at));
        while let Some((seen_at, _)) = self.by_age.front() {
            if at.saturating_sub(*seen_at) <= window_ms {
                return;
            }
            let Some((seen_at, old)) = self.by_age.pop_front() else { return };
            // It may have come again since: then its newer entry stands further back.
            if self.seen.get(&old).is_some_and(|&(_, latest)| latest == seen_at) {
                self.seen.remove(&old);
            }
        }
    }

    /// How many are remembered.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none is.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_forgotten_after_the_window() {
        let mut ids = MessageIds::default();
        ids.remember("x".into(), 1, 1_000, 500);
        assert_eq!(ids.find("x", 1_500, 500), Some(1));
        assert_eq!(ids.find("x", 1_501, 500), None);
        ids.remember("y".into(), 2, 2_000, 500);
        assert_eq!(ids.len(), 1, "x is gone from memory too");
    }
}
