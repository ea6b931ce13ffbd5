//! The events of one store, by id: a list of fixed pages, so that a lookup is two array steps and a page can
//! later leave memory as a whole (DESIGN 7.8).

use crate::effect::Step;
use postroad_model::id::EventId;
use postroad_model::refusal::Code;
use postroad_record::StoredEvent;
use std::collections::VecDeque;

const PAGE: u64 = 1_024;
const SLOTS: usize = 1_024;

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

#[derive(Debug)]
struct Page {
    live: u32,
    /// No slot below this one is used.
    low: usize,
    slots: Vec<Option<Entry>>,
}

/// Events in ascending id, with holes.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// Number of the first page in `pages`.
    base: u64,
    pages: VecDeque<Option<Box<Page>>>,
    len: u64,
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
        let number = id / PAGE;
        if self.pages.is_empty() {
            self.base = number;
        }
        // Ids only grow, so the page is the last one or beyond it.
        while self.base + (self.pages.len() as u64) <= number {
            self.pages.push_back(None);
        }
        let Some(slot) = self.pages.back_mut() else { return };
        let page = slot.get_or_insert_with(|| Box::new(Page { live: 0, low: 0, slots: Vec::new() }));
        let at = index(id);
        if page.live == 0 {
            page.low = at;
        }
        if page.slots.len() <= at {
            page.slots.resize_with(at + 1, || None);
        }
        if page.slots[at].replace(entry).is_none() {
            page.live += 1;
            self.len += 1;
        }
    }

    /// The event with this id.
    #[must_use]
    pub(crate) fn get(&self, id: EventId) -> Option<&Entry> {
        self.page(id / PAGE)?.slots.get(index(id))?.as_ref()
    }

    /// The event with this id, to change what is known of it.
    pub(crate) fn get_mut(&mut self, id: EventId) -> Option<&mut Entry> {
        let at = usize::try_from((id / PAGE).checked_sub(self.base)?).ok()?;
        self.pages.get_mut(at)?.as_mut()?.slots.get_mut(index(id))?.as_mut()
    }

    /// Takes an event out.
    pub(crate) fn remove(&mut self, id: EventId) -> Option<Entry> {
        let at = usize::try_from((id / PAGE).checked_sub(self.base)?).ok()?;
        let slot = self.pages.get_mut(at)?;
        let page = slot.as_mut()?;
        let slot = index(id);
        let entry = page.slots.get_mut(slot)?.take()?;
        page.live -= 1;
        self.len -= 1;
        if slot == page.low {
            let next = page.slots.iter().skip(slot).position(Option::is_some);
            page.low = next.map_or(page.slots.len(), |ahead| slot + ahead);
        }
        let full_size = page.slots.len() == SLOTS;
        let is_last = at + 1 == self.pages.len();
        // The last page stays while it can still grow, so that a queue that is drained as fast as it is filled
        // does not allocate a page for each message.
        if self.pages[at].as_ref().is_some_and(|p| p.live == 0) && (full_size || !is_last) {
            self.pages[at] = None;
            while let Some(None) = self.pages.front() {
                self.pages.pop_front();
                self.base += 1;
            }
        }
        Some(entry)
    }

    /// The first event with this id or a higher one.
    #[must_use]
    pub(crate) fn first_from(&self, id: EventId) -> Option<&Entry> {
        let start = (id / PAGE).max(self.base);
        let skip = usize::try_from(start - self.base).ok()?;
        let mut from = if start == id / PAGE { index(id) } else { 0 };
        for page in self.pages.iter().skip(skip) {
            if let Some(page) = page {
                let found = page.slots.iter().skip(from.max(page.low)).find_map(Option::as_ref);
                if found.is_some() {
                    return found;
                }
            }
            from = 0;
        }
        None
    }

    /// The oldest event.
    #[must_use]
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.first_from(0)
    }

    /// Every event in ascending id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.pages.iter().flatten().flat_map(|page| page.slots.iter().filter_map(Option::as_ref))
    }

    fn page(&self, number: u64) -> Option<&Page> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.pages.get(at)?.as_deref()
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
            let ids: Vec<_> = log.iter().map(|e| e.event.id).collect();
            prop_assert_eq!(&ids, &model.keys().copied().collect::<Vec<_>>());
            for probe in (start..id + 3).step_by(97) {
                let found = log.first_from(probe).map(|e| e.event.id);
                prop_assert_eq!(found, model.range(probe..).next().map(|(id, ())| *id));
            }
            log.push(entry(id + 1, 4));
            prop_assert_eq!(log.len(), model.len() as u64 + 1);
        }
    }
}
