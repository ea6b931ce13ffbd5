//! A page of the events of a store, hot and cold.

use crate::effect::Step;
use crate::leaf::{Freeze, Frozen};
use crate::log::{Entry, Hold};
use postroad_model::refusal::Code;
use postroad_record::{PAGE, PagedEvent, put_column, put_events, take_column, take_events};

/// Events with neighbouring ids.
#[derive(Debug, Default)]
pub(crate) struct EventPage {
    /// No slot below this one is used.
    pub low: usize,
    /// By id within the page.
    pub slots: Vec<Option<Entry>>,
    /// How many there are.
    pub live: u32,
}

impl EventPage {
    /// Puts an event into a slot; false if one was replaced.
    pub(crate) fn put(&mut self, at: usize, entry: Entry) -> bool {
        if self.live == 0 {
            self.low = at;
        }
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.low = self.low.min(at);
        let is_new = self.slots[at].replace(entry).is_none();
        self.live += u32::from(is_new);
        is_new
    }

    /// Takes an event out of a slot.
    pub(crate) fn take(&mut self, at: usize) -> Option<Entry> {
        let entry = self.slots.get_mut(at)?.take()?;
        self.live -= 1;
        if at == self.low {
            let next = self.slots.iter().skip(at).position(Option::is_some);
            self.low = next.map_or(self.slots.len(), |ahead| at + ahead);
        }
        Some(entry)
    }

    /// Writes the events that are on disk as a checkpoint keeps them; false if there are none.
    pub(crate) fn put_durable(&self, out: &mut Vec<u8>) -> bool {
        let durable: Vec<&Entry> = self.slots.iter().flatten().filter(|entry| entry.on_disk).collect();
        put_entries(&durable, out);
        !durable.is_empty()
    }
}

fn put_entries(entries: &[&Entry], out: &mut Vec<u8>) {
    put_events(entries.iter().map(|entry| (&entry.event, entry.failed, entry.counted)), out);
}

impl Entry {
    /// An event as a checkpoint kept it.
    pub(crate) fn restored(paged: PagedEvent) -> Self {
        let PagedEvent { event, failed, counted } = paged;
        Self { event, on_disk: true, after: Step(0), failed, counted, hold: Hold::Ready }
    }
}

impl Hold {
    fn to_numbers(self) -> (u64, u64) {
        match self {
            Self::Ready => (0, 0),
            Self::Delivered => (1, 0),
            Self::Delayed(due) => (2, due),
            Self::Blocked(code) => {
                let at = Code::ALL.iter().position(|&known| known == code);
                // Invariant: the list has every code.
                (3, at.expect("every code is in the list") as u64)
            }
        }
    }

    fn of_numbers(kind: u64, value: u64) -> Self {
        match kind {
            1 => Self::Delivered,
            2 => Self::Delayed(value),
            3 => {
                let code = usize::try_from(value).ok().and_then(|at| Code::ALL.get(at).copied());
                // Invariant: the number was made from a code of this list.
                Self::Blocked(code.expect("the number of a code"))
            }
            _ => Self::Ready,
        }
    }
}

impl Freeze for EventPage {
    fn freeze(&self) -> Option<Frozen> {
        let entries: Vec<&Entry> = self.slots.iter().flatten().collect();
        let mut bytes = Vec::new();
        put_entries(&entries, &mut bytes);
        let durable = bytes.len();
        put_column(entries.iter().map(|entry| u64::from(entry.on_disk)), &mut bytes);
        put_column(entries.iter().map(|entry| entry.after.0), &mut bytes);
        put_column(entries.iter().map(|entry| entry.hold.to_numbers().0), &mut bytes);
        put_column(entries.iter().map(|entry| entry.hold.to_numbers().1), &mut bytes);
        let all_on_disk = entries.iter().all(|entry| entry.on_disk);
        Some(Frozen { bytes: bytes.into_boxed_slice(), durable, all_on_disk })
    }

    fn thaw(frozen: &Frozen) -> Self {
        let mut rest = &*frozen.bytes;
        // Invariant: these bytes were made by `freeze`, or were read back with success before they were kept.
        let events = take_events(&mut rest).expect("a frozen page reads back");
        let count = events.len();
        // A page of a checkpoint ends with the durable columns: then every event is as it was restored.
        let mut column = || take_column(&mut rest, count);
        let running = column().zip(column()).zip(column().zip(column()));
        let mut page = Self { slots: Vec::with_capacity(PAGE), ..Self::default() };
        for (at, event) in events.into_iter().enumerate() {
            let mut entry = Entry::restored(event);
            if let Some(((on_disk, after), (kinds, values))) = &running {
                entry.on_disk = on_disk[at] != 0;
                entry.after = Step(after[at]);
                entry.hold = Hold::of_numbers(kinds[at], values[at]);
            }
            let slot = entry.event.id % PAGE as u64;
            #[allow(clippy::cast_possible_truncation)] // below PAGE
            page.put(slot as usize, entry);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::entry;
    use proptest::prelude::*;

    fn any_hold() -> impl Strategy<Value = Hold> {
        prop_oneof![
            Just(Hold::Ready),
            Just(Hold::Delivered),
            any::<u64>().prop_map(Hold::Delayed),
            prop::sample::select(Code::ALL).prop_map(Hold::Blocked),
        ]
    }

    proptest! {
        #[test]
        fn a_page_is_the_same_after_it_lay_cold(
            events in prop::collection::btree_map(0..PAGE as u64, (any_hold(), any::<bool>(), any::<u64>()), 0..200),
        ) {
            let mut page = EventPage::default();
            for (&id, &(hold, on_disk, after)) in &events {
                let entry = Entry { hold, on_disk, after: Step(after), ..entry(id, 4) };
                page.put(usize::try_from(id).unwrap(), entry);
            }
            let thawed = EventPage::thaw(&page.freeze().unwrap());
            let shown = |page: &EventPage| format!("{:?}", page.slots.iter().flatten().collect::<Vec<_>>());
            prop_assert_eq!(shown(&thawed), shown(&page));
            let first = events.keys().next().map(|&id| usize::try_from(id).unwrap());
            prop_assert!(first.is_none_or(|first| thawed.low == first));
        }
    }
}
