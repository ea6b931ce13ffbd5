//! The events of one store, by id: a list of fixed pages, so that a lookup is two array steps and a page that nobody
//! uses lies cold as a whole (DESIGN 7.8, ADR 0005).

use crate::effect::Step;
use crate::event_page::EventPage;
use crate::leaf::{Frozen, Leaf, Pages};
use postroad_model::id::EventId;
use postroad_model::refusal::Code;
use postroad_record::{PAGE as SLOTS, PageError, PagedEvent, StoredEvent, take_events};

const PAGE: u64 = SLOTS as u64;
/// Hot pages of a store that are kept: where it is filled, where it is read, where it is acknowledged.
const HOT_PAGES: usize = 4;

/// What a queue does with a message just now. Channels leave it at `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// May be delivered.
    Ready,
    /// With a consumer.
    Delivered,
    /// Waits for its redelivery delay, until this monotonic time in milliseconds.
    Delayed(u64),
    /// Could not be dead-lettered, for this reason; waits for room there (AK-8).
    Blocked(Code),
}

/// An event with what is known of it while the broker runs.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The durable facts.
    pub event: StoredEvent,
    /// Whether it is on disk, whatever the store's settings say now.
    pub on_disk: bool,
    /// It may leave the broker once this step is durable.
    pub after: Step,
    /// Failed attempts (queues; named objects keep their own).
    pub failed: u32,
    /// Attempts that count toward the limit (AK-5).
    pub counted: u32,
    /// What a queue does with it.
    pub hold: Hold,
}

/// Events in ascending id, with holes.
#[derive(Debug)]
pub(crate) struct EventLog {
    pages: Pages<EventPage>,
    len: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { pages: Pages::new(HOT_PAGES), len: 0 }
    }
}

impl EventLog {
    /// How many events there are.
    #[must_use]
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Adds an event; its id must be above all that were added before.
    pub(crate) fn push(&mut self, entry: Entry) {
        let id = entry.event.id;
        self.begin_page(id / PAGE);
        let is_new = self.pages.make(id / PAGE).put(index(id), entry);
        self.len += u64::from(is_new);
    }

    /// Adds a page of events that a checkpoint kept; their ids must be above all that were added before. The events, in
    /// order.
    ///
    /// # Errors
    /// [`PageError`] if the bytes are no page, or the events do not belong into one.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<Vec<PagedEvent>, PageError> {
        let mut rest = bytes;
        let events = take_events(&mut rest)?;
        let Some(number) = events.first().map(|paged| paged.event.id / PAGE) else { return Ok(events) };
        let ascending = events.windows(2).all(|pair| pair[0].event.id < pair[1].event.id);
        let together = events.last().is_some_and(|paged| paged.event.id / PAGE == number);
        let durable = bytes.len() - rest.len();
        let frozen = || Frozen { bytes: bytes[..durable].into(), durable, all_on_disk: true };
        if !ascending || !together || !self.pages.push(number, frozen) {
            return Err(PageError::MISPLACED);
        }
        self.len += events.len() as u64;
        Ok(events)
    }

    /// The page with this number comes next, if it is not the last one: that one can't grow any more.
    fn begin_page(&mut self, number: u64) {
        let Some(last) = self.pages.last().filter(|&last| last < number) else { return };
        if self.pages.look_hot(last).is_some_and(|page| page.live == 0) {
            self.pages.remove(last);
        }
        self.pages.cool();
    }

    /// The event with this id.
    #[must_use]
    pub(crate) fn get(&self, id: EventId) -> Option<&Entry> {
        self.pages.look(id / PAGE)?.slots.get(index(id))?.as_ref()
    }

    /// The event with this id, to change what is known of it.
    pub(crate) fn get_mut(&mut self, id: EventId) -> Option<&mut Entry> {
        self.pages.change(id / PAGE)?.slots.get_mut(index(id))?.as_mut()
    }

    /// Takes an event out.
    pub(crate) fn remove(&mut self, id: EventId) -> Option<Entry> {
        let number = id / PAGE;
        let page = self.pages.change(number)?;
        let entry = page.take(index(id))?;
        let (is_empty, can_grow) = (page.live == 0, page.slots.len() < SLOTS);
        self.len -= 1;
        // The last page stays while it can still grow, so that a queue that is drained as fast as it is filled
        // does not allocate a page for each message.
        if is_empty && !(can_grow && self.pages.last() == Some(number)) {
            self.pages.remove(number);
        }
        Some(entry)
    }

    /// The first event with this id or a higher one.
    #[must_use]
    pub(crate) fn first_from(&self, id: EventId) -> Option<&Entry> {
        self.pages.from(id / PAGE).find_map(|(number, page)| {
            let from = if number == id / PAGE { index(id) } else { 0 };
            page.slots.get(from.max(page.low)..)?.iter().find_map(Option::as_ref)
        })
    }

    /// The oldest event.
    #[must_use]
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.first_from(0)
    }

    /// The events from an id on, in ascending order.
    pub(crate) fn from(&self, id: EventId) -> impl Iterator<Item = &Entry> {
        std::iter::successors(self.first_from(id), |entry| self.first_from(entry.event.id + 1))
    }

    /// Shows every event in ascending id. Cold pages stay cold.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Entry)) {
        for leaf in self.leaves() {
            leaf.peek(|page| page.slots.iter().flatten().for_each(&mut visit));
        }
    }

    /// How many events there are with this id or a higher one. Cold pages stay cold.
    pub(crate) fn len_from(&self, id: EventId) -> u64 {
        let above = self.pages.leaves(id / PAGE).count();
        let below = self.pages.leaves(0).count() - above;
        if below >= above {
            return self.count_from(id, |_| true);
        }
        // The page with the id is one of those above.
        let lower = self.leaves().take(below + 1).map(|leaf| {
            leaf.peek(|page| page.slots.iter().flatten().filter(|entry| entry.event.id < id).count())
        });
        self.len - lower.sum::<usize>() as u64
    }

    /// How many events with this id or a higher one are counted. Cold pages stay cold.
    pub(crate) fn count_from(&self, id: EventId, counts: impl Fn(&Entry) -> bool) -> u64 {
        let counted = self.pages.leaves(id / PAGE).map(|(_, leaf)| {
            leaf.peek(|page| {
                let entries = page.slots.iter().flatten();
                entries.filter(|entry| entry.event.id >= id && counts(entry)).count()
            })
        });
        counted.sum::<usize>() as u64
    }

    /// The pages that hold events, in ascending order.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf<EventPage>> {
        self.pages.leaves(0).map(|(_, leaf)| leaf)
    }

    /// How many events there are in a page.
    pub(crate) fn live_in(&self, page: u64) -> u32 {
        self.pages.leaf(page).map_or(0, |leaf| leaf.peek(|page| page.live))
    }

    /// The page in which an event lies.
    pub(crate) const fn page_of(id: EventId) -> u64 {
        id / PAGE
    }

    /// The events in a page, ascending.
    pub(crate) fn in_page(&self, page: u64) -> impl Iterator<Item = &Entry> {
        self.pages.look(page).into_iter().flat_map(|page| page.slots.iter().flatten())
    }

    /// Whether a page holds nothing.
    pub(crate) fn is_empty_page(&self, page: u64) -> bool {
        // One that lies cold holds something, else it would have been removed.
        self.pages.leaf(page).is_none_or(|_| self.pages.look_hot(page).is_some_and(|page| page.live == 0))
    }

    /// Cools pages that nobody uses.
    pub(crate) fn cool(&mut self) {
        self.pages.cool();
    }
}

/// The slot of an id within its page.
const fn index(id: EventId) -> usize {
    #[allow(clippy::cast_possible_truncation)] // below PAGE
    let slot = (id % PAGE) as usize;
    slot
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use postroad_model::id::BodyId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    pub(crate) fn entry(id: EventId, priority: u8) -> Entry {
        let event = StoredEvent {
            id,
            body: BodyId(id),
            arrived: 0,
            expires: 0,
            priority,
            durable: true,
            extra: None,
        };
        Entry { event, on_disk: true, after: Step(0), failed: 0, counted: 0, hold: Hold::Ready }
    }

    proptest! {
        #[test]
        fn behaves_as_an_ordered_map(
            start in prop_oneof![Just(1u64), Just(1_000_000u64)],
            gaps in prop::collection::vec(prop_oneof![8 => Just(1u64), 1 => 2u64..5_000], 1..400),
            removals in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        ) {
            let (mut log, mut model) = (EventLog::default(), BTreeMap::new());
            let mut id = start;
            for gap in gaps {
                id += gap;
                log.push(entry(id, 4));
                model.insert(id, ());
            }
            for at in removals {
                let Some(&id) = model.keys().nth(at.index(model.len().max(1))) else { continue };
                prop_assert!(log.remove(id).is_some());
                model.remove(&id);
                prop_assert!(log.get(id).is_none());
            }
            prop_assert_eq!(log.len(), model.len() as u64);
            let mut ids = Vec::new();
            log.for_each(|e| ids.push(e.event.id));
            prop_assert_eq!(&ids, &model.keys().copied().collect::<Vec<_>>());
            for probe in (start..id + 3).step_by(97) {
                let found = log.first_from(probe).map(|e| e.event.id);
                prop_assert_eq!(found, model.range(probe..).next().map(|(id, ())| *id));
                prop_assert_eq!(log.len_from(probe), model.range(probe..).count() as u64);
            }
            log.push(entry(id + 1, 4));
            prop_assert_eq!(log.len(), model.len() as u64 + 1);
        }
    }
}
