//! Messages that wait for their delivery time, for operators: listed a page at a time, and cancelled (QU-9).

use super::excerpt::Budget;
use crate::admin::{Page, Response, StoreKind};
use crate::engine::Engine;
use postroad_model::id::WallMs;
use postroad_model::refusal::{Code, Refusal};
use postroad_record::Unscheduling;

/// Messages of one page at most.
const PAGE_ITEMS: usize = 256;

impl Engine {
    /// A page of them, in the order in which their time comes.
    pub(super) fn list_scheduled(
        &self,
        kind: StoreKind,
        name: &str,
        page: &Page,
    ) -> Result<Response, Refusal> {
        let key = self.store_key(kind, name)?;
        let (mut place, limit) = (begin(page, name)?, page.limit.clamp(1, PAGE_ITEMS));
        let (mut items, mut budget) = (Vec::new(), Budget::page());
        let Some(store) = self.store(key) else { return Ok(Response::Scheduled { items, next: None }) };
        for (number, scheduled) in store.schedule.after(place) {
            let message = self.look_at(scheduled.event.body);
            let is_over = message.is_none() && self.is_page_over(scheduled.event.body);
            if items.len() == limit || budget.is_spent() || is_over {
                return Ok(Response::Scheduled { items, next: Some(format!("{}-{}", place.0, place.1)) });
            }
            let view = self.scheduled_view(number, scheduled, message);
            budget.spend(view.bytes(), view.size);
            items.push(view);
            place = (scheduled.at, number);
        }
        Ok(Response::Scheduled { items, next: None })
    }

    /// Cancels one of them.
    pub(super) fn cancel_scheduled(
        &mut self,
        kind: StoreKind,
        name: &str,
        number: u64,
    ) -> Result<Response, Refusal> {
        let key = self.store_key(kind, name)?;
        if self.store(key).is_none_or(|store| store.schedule.get(number).is_none()) {
            let text = format!(
                "no message of '{name}' waits under the number {number}: it is stored, or was cancelled"
            );
            return Err(Refusal::new(Code::ScheduledNotFound, name, text));
        }
        self.unschedule(key, &[number], Unscheduling::Cancelled);
        Ok(Response::Cancelled { number })
    }
}

/// A page's cursor, as an earlier page gave it: the time and the number of its last message.
fn begin(page: &Page, object: &str) -> Result<(WallMs, u64), Refusal> {
    let Some(after) = &page.after else { return Ok((0, 0)) };
    let parts = after.split_once('-');
    let place = parts.and_then(|(at, number)| Some((at.parse().ok()?, number.parse().ok()?)));
    place.ok_or_else(|| {
        let text = "the cursor is none that a page gave as next: list from the beginning";
        Refusal::new(Code::BadValue, object, text)
    })
}
