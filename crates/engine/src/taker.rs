//! Takers: consumers attached to a queue, to a reader of a channel, or as browsers (DESIGN 7.6).

use crate::command::{ConnId, LinkNo};
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
    /// Deliveries without outcome.
    open: Unsettled,
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
    pub(crate) fn new(conn: ConnId, link: LinkNo, store: StoreKey, source: Source) -> Self {
        Self {
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
            open: Unsettled::default(),
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
        credit.min(u64::from(max_window).saturating_sub(self.open.count))
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
        if !self.presettled {
            self.open.push(tag, event);
        }
        tag
    }

    /// Takes the outcome of a range: the deliveries in it that were open, in order.
    pub(crate) fn close_range(&mut self, first: u64, last: u64) -> Vec<(u64, EventId)> {
        self.open.take(first, last)
    }

    /// Every delivery without outcome, oldest first; none is open afterwards.
    pub(crate) fn close_all(&mut self) -> Vec<(u64, EventId)> {
        self.open.take(0, u64::MAX)
    }
}

/// Deliveries without outcome, in the order of their numbers.
#[derive(Debug, Default)]
struct Unsettled {
    /// Each with its event; `None` where the outcome has come and that of an earlier one has not.
    entries: VecDeque<(u64, Option<EventId>)>,
    count: u64,
}

/// So many holes may always be there.
const HOLES: u64 = 64;

impl Unsettled {
    fn push(&mut self, tag: u64, event: EventId) {
        self.entries.push_back((tag, Some(event)));
        self.count += 1;
    }

    /// Where the first is that has this number or a higher one.
    fn find(&self, tag: u64) -> usize {
        let Some((first, _)) = self.entries.front() else { return 0 };
        // Most often none is missing in between.
        let dense = usize::try_from(tag.saturating_sub(*first)).unwrap_or(usize::MAX);
        match self.entries.get(dense) {
            Some((there, _)) if *there == tag => dense,
            _ => self.entries.partition_point(|(there, _)| *there < tag),
        }
    }

    /// Takes out what is there of a range.
    fn take(&mut self, first: u64, last: u64) -> Vec<(u64, EventId)> {
        let mut taken = Vec::new();
        let from = self.find(first);
        for (tag, event) in self.entries.range_mut(from..).take_while(|(tag, _)| *tag <= last) {
            taken.extend(event.take().map(|event| (*tag, event)));
        }
        self.count -= taken.len() as u64;
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
        }
        // One that stays open must not keep the places of all that come after it.
        if self.entries.len() as u64 > 2 * self.count + HOLES {
            self.entries.retain(|(_, event)| event.is_some());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taker() -> Taker {
        Taker::new(ConnId(1), LinkNo(0), StoreKey(0), Source::Queue)
    }

    #[test]
    fn outcomes_may_come_in_any_order_and_only_once() {
        let mut taker = taker();
        for event in 10..15 {
            taker.note_sent(event);
        }
        assert_eq!(taker.close_range(1, 2), [(1, 11), (2, 12)]);
        assert_eq!(taker.close_range(0, 2), [(0, 10)]);
        assert_eq!(taker.open.count, 2);
        assert_eq!(taker.close_all(), [(3, 13), (4, 14)]);
        assert_eq!(taker.close_range(0, u64::MAX), []);
        assert_eq!(taker.note_sent(20), 5);
        assert_eq!(taker.close_range(5, 5), [(5, 20)]);
    }

    #[test]
    fn one_that_stays_open_keeps_no_places_of_others() {
        let mut taker = taker();
        taker.note_sent(1);
        taker.note_sent(2);
        for tag in 2..10_000 {
            taker.note_sent(tag + 1);
            assert_eq!(taker.close_range(tag, tag), [(tag, tag + 1)]);
        }
        assert!(taker.open.entries.len() < 100);
        assert_eq!(taker.close_range(1, 9_999), [(1, 2)]);
        assert_eq!(taker.note_sent(20), 10_000);
        assert_eq!(taker.close_all(), [(0, 1), (10_000, 20)]);
    }

    #[test]
    fn the_window_is_credit_bounded_by_the_broker() {
        let mut taker = taker();
        taker.limit = 10;
        assert_eq!(taker.window(3), 3);
        taker.note_sent(1);
        taker.note_sent(2);
        assert_eq!(taker.window(3), 1);
        taker.close_range(0, 0);
        assert_eq!(taker.window(3), 2);
        assert_eq!(taker.window(100), 8);
    }
}
