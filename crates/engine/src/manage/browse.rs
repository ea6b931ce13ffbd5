//! Browsing for operators, a page at a time: what a page costs does not grow with the store (DESIGN 7.7, OP-1, QU-2).

use super::excerpt::Budget;
use crate::admin::{Page, Response, Selection, StoreKind};
use crate::consumer::parse_selector;
use crate::engine::Engine;
use crate::log::{Entry, Hold};
use crate::reader::Owed;
use crate::store::Store;
use crate::view::View;
use postroad_model::id::EventId;
use postroad_model::refusal::{Code, Refusal};
use postroad_selector::Selector;

/// Events of one page at most.
const PAGE_ITEMS: usize = 256;
/// Events that one page looks at at most.
const PAGE_LOOKS: usize = 4_096;

/// Where a page begins: in the order of delivery, so by priority first (QU-7). Channels have one level.
#[derive(Clone, Copy)]
struct Place {
    level: u8,
    at: EventId,
}

impl Engine {
    pub(super) fn browse_store(
        &self,
        kind: StoreKind,
        name: &str,
        selection: &Selection,
        page: &Page,
    ) -> Result<Response, Refusal> {
        let key = self.store_key(kind, name)?;
        let filter = parse_selector(selection.filter.as_deref())?;
        let range = super::stores::selection_range(selection, name)?;
        let Some(store) = self.store(key) else { return Ok(nothing()) };
        let first = Place { level: store.queue().map_or(0, |queue| queue.level(u8::MAX)), at: 0 };
        let begin = begin(page, name)?.unwrap_or(first);
        let (entries, next) =
            look_through(store, range, begin, page.limit, |entry| self.look_for(&filter, entry));
        let held = |entry: &Entry| entry.hold == Hold::Delivered;
        Ok(self.page_of(store, entries, next, held))
    }

    pub(super) fn browse_object(
        &self,
        channel: &str,
        owner: Option<String>,
        name: &str,
        selection: &Selection,
        page: &Page,
    ) -> Result<Response, Refusal> {
        let key = self.object_key(channel, owner, name)?;
        let filter = parse_selector(selection.filter.as_deref())?;
        let (from, to) = super::stores::selection_range(selection, name)?;
        let begin = begin(page, name)?.unwrap_or(Place { level: 0, at: 0 });
        let Some(object) = self.objects.get(&key) else { return Ok(nothing()) };
        let (Some(store), Some(reader)) = (self.store(object.store), self.readers.get(object.reader)) else {
            return Ok(nothing());
        };
        let from = from.max(reader.lowest_need().unwrap_or(u64::MAX));
        let (entries, next) = look_through(store, (from, to), begin, page.limit, |entry| {
            if self.reader_owes(object.reader, entry.event.id) {
                self.look_for(&filter, entry)
            } else {
                Look::Pass
            }
        });
        let held = |entry: &Entry| matches!(reader.owed().get(&entry.event.id), Some(Owed::Delivered(_)));
        Ok(self.page_of(store, entries, next, held))
    }

    /// The views of these events, as far as there is room for them in a page.
    fn page_of(
        &self,
        store: &Store,
        entries: Vec<&Entry>,
        mut next: Option<Place>,
        held: impl Fn(&Entry) -> bool,
    ) -> Response {
        let (mut items, mut budget) = (Vec::new(), Budget::page());
        for entry in entries {
            if budget.is_spent() {
                let level = store.queue().map_or(0, |queue| queue.level(entry.event.priority));
                next = Some(Place { level, at: entry.event.id });
                break;
            }
            let view = self.event_view(store, entry, held(entry));
            budget.spend(view.bytes(), view.size);
            items.push(view);
        }
        Response::Events { items, next: next.map(text) }
    }

    /// Whether an event is to be shown. One whose message must be read first ends the page, unless this is the first try:
    /// then the request is carried out again with it.
    fn look_for(&self, filter: &Option<Selector>, entry: &Entry) -> Look {
        let message = self.look_at(entry.event.body);
        match (message, filter) {
            (None, _) if self.is_page_over(entry.event.body) => Look::Stop,
            (Some(message), Some(filter)) if !filter.matches(&View { message, event: &entry.event }) => {
                Look::Pass
            }
            _ => Look::Take,
        }
    }
}

/// What becomes of an event that a page looks at.
enum Look {
    Take,
    Pass,
    /// The next page begins here.
    Stop,
}

/// Up to a page of events of a store between two ids, in the order of delivery, and where the next page begins.
fn look_through(
    store: &Store,
    (from, to): (EventId, EventId),
    begin: Place,
    limit: usize,
    judge: impl Fn(&Entry) -> Look,
) -> (Vec<&Entry>, Option<Place>) {
    let limit = limit.clamp(1, PAGE_ITEMS);
    let (mut entries, mut looks) = (Vec::new(), 0);
    let Place { mut level, mut at } = begin;
    at = at.max(from);
    loop {
        let used = store.queue().is_none_or(|queue| queue.has_level(level));
        while let Some(entry) = store.log.first_from(at).filter(|entry| used && entry.event.id <= to) {
            if entries.len() == limit || looks == PAGE_LOOKS {
                return (entries, Some(Place { level, at }));
            }
            let here = store.queue().is_none_or(|queue| queue.level(entry.event.priority) == level);
            match if here { judge(entry) } else { Look::Pass } {
                Look::Take => entries.push(entry),
                Look::Pass => {}
                Look::Stop => return (entries, Some(Place { level, at })),
            }
            at = entry.event.id + 1;
            looks += 1;
        }
        let Some(lower) = level.checked_sub(1) else { return (entries, None) };
        (level, at) = (lower, from);
    }
}

/// A page's cursor, as an earlier page gave it.
fn begin(page: &Page, object: &str) -> Result<Option<Place>, Refusal> {
    let Some(after) = &page.after else { return Ok(None) };
    let parts = after.split_once('-');
    let place =
        parts.and_then(|(level, at)| Some(Place { level: level.parse().ok()?, at: at.parse().ok()? }));
    match place.filter(|place| place.level <= 9) {
        Some(place) => Ok(Some(place)),
        None => {
            let text = "the cursor is none that a page gave as next: browse from the beginning";
            Err(Refusal::new(Code::BadValue, object, text))
        }
    }
}

fn text(place: Place) -> String {
    format!("{}-{}", place.level, place.at)
}

const fn nothing() -> Response {
    Response::Events { items: Vec::new(), next: None }
}
