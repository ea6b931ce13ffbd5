//! Takers: consumers attached to a queue, to a reader of a channel, or as browsers (DESIGN 7.6).

use crate::command::{ConnId, LinkNo, TakerKey};
use crate::effect::Step;
use crate::reader::ReaderKey;
use crate::ready::PRIORITIES;
use crate::rings::Turn;
use postroad_model::id::{EventId, StoreKey};
use postroad_selector::Selector;
use std::collections::{BTreeSet, VecDeque};

/// What a taker takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A queue: competes with the other takers.
    Queue,
    /// A reader of a channel: a volatile subscription or a named object.
    Reader(ReaderKey),
    /// Looks at a queue as it was when it attached, without taking: once over it for each priority, highest first.
    Browser {
        /// The priority that it looks for.
        level: u8,
        /// At that priority it has looked at everything up to this id.
        passed: EventId,
        /// The newest message when it attached.
        up_to: EventId,
    },
}

/// An attached consumer.
#[derive(Debug)]
pub(crate) struct Taker {
    /// Its own key.
    pub key: TakerKey,
    /// The connection.
    pub conn: ConnId,
    /// The link.
    pub link: LinkNo,
    /// The store.
    pub store: StoreKey,
    /// What it takes from.
    pub source: Source,
    /// The consumer's own filter.
    pub filter: Option<Selector>,
    /// Its turn among the consumers of a queue.
    pub turn: Option<Turn>,
    /// It stands among those of them that have window.
    pub listed_open: bool,
    /// Deliveries it may ever have been sent.
    pub limit: u64,
    /// Deliveries sent.
    pub sent: u64,
    /// It wants to hear when nothing more can be sent.
    pub drain: bool,
    /// Deliveries are finished when sent.
    pub presettled: bool,
    /// Too much is on the way to its connection.
    pub held: bool,
    /// Bytes sent that its connection has not counted yet.
    pub uncounted: u64,
    /// Deliveries from `first_open` on; `None` where the outcome came.
    open: VecDeque<Option<EventId>>,
    first_open: u64,
    open_count: u64,
    /// What its latest delivery waits for; later ones wait at least as long, so that a link keeps its order.
    pub after: Step,
    /// Messages that it will not be offered again (AK-2).
    pub refused: BTreeSet<EventId>,
    /// With a filter: at each priority the ready ids up to here do not match.
    pub scanned: [EventId; PRIORITIES],
}

impl Taker {
    /// A taker without credit.
    #[must_use]
    pub(crate) fn new(key: TakerKey, conn: ConnId, link: LinkNo, store: StoreKey, source: Source) -> Self {
        Self {
            key,
            conn,
            link,
            store,
            source,
            filter: None,
            turn: None,
            listed_open: false,
            limit: 0,
            sent: 0,
            drain: false,
            presettled: false,
            held: false,
            uncounted: 0,
            open: VecDeque::new(),
            first_open: 0,
            open_count: 0,
            after: Step(0),
            refused: BTreeSet::new(),
            scanned: [0; PRIORITIES],
        }
    }

    /// Deliveries that may be sent now.
    #[must_use]
    pub(crate) fn window(&self, max_window: u32) -> u64 {
        if self.held {
            return 0;
        }
        let credit = self.limit.saturating_sub(self.sent);
        if self.presettled || matches!(self.source, Source::Browser { .. }) {
            return credit;
        }
        credit.min(u64::from(max_window).saturating_sub(self.open_count))
    }

    /// Whether it takes only some messages, so that it must be asked about each.
    #[must_use]
    pub(crate) fn is_selective(&self) -> bool {
        self.filter.is_some() || !self.refused.is_empty()
    }

    /// A message came back: it may match after all, or be lower than what was looked at.
    pub(crate) fn look_again(&mut self, level: u8, id: EventId) {
        if let Some(scanned) = self.scanned.get_mut(usize::from(level)) {
            *scanned = (*scanned).min(id - 1);
        }
    }

    /// Notes a delivery and gives its dense number.
    pub(crate) fn note_sent(&mut self, event: EventId) -> u64 {
        let tag = self.sent;
        self.sent += 1;
        if self.presettled {
            self.first_open = self.sent;
        } else {
            if self.open.is_empty() {
                self.first_open = tag;
            }
            self.open.push_back(Some(event));
            self.open_count += 1;
        }
        tag
    }

    /// Takes the outcome of a range: the deliveries in it that were open, in order.
    pub(crate) fn close_range(&mut self, first: u64, last: u64) -> Vec<(u64, EventId)> {
        let mut closed = Vec::new();
        let end = self.first_open + self.open.len() as u64;
        for tag in first.max(self.first_open)..end.min(last.saturating_add(1)) {
            closed.extend(self.close(tag).map(|event| (tag, event)));
        }
        closed
    }

    /// Takes the outcome of one delivery, if it was open.
    pub(crate) fn close(&mut self, tag: u64) -> Option<EventId> {
        let at = usize::try_from(tag.checked_sub(self.first_open)?).ok()?;
        let event = self.open.get_mut(at)?.take()?;
        self.open_count -= 1;
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.first_open += 1;
        }
        Some(event)
    }

    /// Every delivery without outcome, oldest first; none is open afterwards.
    pub(crate) fn close_all(&mut self) -> Vec<(u64, EventId)> {
        self.close_range(0, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taker() -> Taker {
        let key = TakerKey { index: 0, generation: 0 };
        Taker::new(key, ConnId(1), LinkNo(0), StoreKey(0), Source::Queue)
    }

    #[test]
    fn outcomes_may_come_in_any_order_and_only_once() {
        let mut taker = taker();
        for event in 10..15 {
            taker.note_sent(event);
        }
        assert_eq!(taker.close_range(1, 2), [(1, 11), (2, 12)]);
        assert_eq!(taker.close_range(0, 2), [(0, 10)]);
        assert_eq!(taker.open_count, 2);
        assert_eq!(taker.close_all(), [(3, 13), (4, 14)]);
        assert_eq!(taker.close_range(0, u64::MAX), []);
        assert_eq!(taker.note_sent(20), 5);
        assert_eq!(taker.close_range(5, 5), [(5, 20)]);
    }

    #[test]
    fn the_window_is_credit_bounded_by_the_broker() {
        let mut taker = taker();
        taker.limit = 10;
        assert_eq!(taker.window(3), 3);
        taker.note_sent(1);
        taker.note_sent(2);
        assert_eq!(taker.window(3), 1);
        taker.close(0);
        assert_eq!(taker.window(3), 2);
        assert_eq!(taker.window(100), 8);
    }
}
