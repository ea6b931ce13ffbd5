//! Delayed delivery: nothing is an event before its time, and what waits goes only for a reason (QU-8, QU-9).

use super::{View, Violation, once};
use crate::ledger::{Event, Store, Waiting};
use postroad_model::annotations::Delay;
use postroad_model::id::StoreKey;
use postroad_record::{Record, StoredEvent, Unscheduling};

const RULE: &str = "delivery time";

/// Checks a message that is about to wait: until when its sender wanted.
///
/// # Errors
/// The broken promise.
pub fn check_scheduled(
    view: &View<'_>,
    key: StoreKey,
    number: u64,
    due: u64,
    event: &StoredEvent,
) -> Result<(), Violation> {
    let Some(store) = view.ledger.stores.get(&key) else {
        return Err(Violation::new(
            "records",
            format!("a message waits in store {}, which is not there", key.0),
        ));
    };
    if number <= store.last_number {
        let text = format!("'{}' gives number {number} after {}", store.name, store.last_number);
        return Err(Violation::new(RULE, text));
    }
    let sent = view.ledger.bodies.get(&event.body).and_then(|number| view.messages.get(*number));
    if let Some(&message) = view.ledger.bodies.get(&event.body) {
        once::check_repeated(view, store, message)?;
    }
    let wanted = sent.and_then(|sent| sent.delay).map(|delay| delay.due(event.arrived));
    if wanted == Some(due) {
        return Ok(());
    }
    let text =
        format!("number {number} of '{}' waits until {due}, and was to wait until {wanted:?}", store.name);
    Err(Violation::new(RULE, text))
}

/// Checks messages that are to wait no more.
///
/// # Errors
/// The broken promise.
pub fn check_unscheduled(
    view: &View<'_>,
    key: StoreKey,
    numbers: &[(u64, u64)],
    why: Unscheduling,
) -> Result<(), Violation> {
    let Some(store) = view.ledger.stores.get(&key) else { return Ok(()) };
    for &(first, last) in numbers {
        for (&number, waiting) in store.waiting.range(first..=last) {
            if !has_reason(view, key, store, number, waiting, why) {
                let text = format!(
                    "message {} (number {number}) of '{}' waits no more: {why:?} is not true",
                    waiting.number, store.name
                );
                return Err(Violation::new(RULE, text));
            }
        }
    }
    Ok(())
}

fn has_reason(
    view: &View<'_>,
    key: StoreKey,
    store: &Store,
    number: u64,
    waiting: &Waiting,
    why: Unscheduling,
) -> bool {
    let event = &waiting.stored;
    match why {
        Unscheduling::Due => {
            let becomes = |record: &Record| match record {
                Record::Stored { store, event: stored } => *store == key && stored.body == event.body,
                _ => false,
            };
            let may_vanish = store.keeps_by_interest() || !store.keeps_on_disk(event.durable);
            waiting.due <= view.wall && (may_vanish || view.step.iter().any(becomes))
        }
        Unscheduling::Expired => event.expires > 0 && event.expires <= view.wall,
        Unscheduling::Cancelled => view.shadow.cancelled.contains(&(store.name.clone(), number)),
        Unscheduling::Purged => view.shadow.purged.contains(&store.name),
    }
}

/// Checks an event that is about to be stored: its time must have come. Its own step says so, if it waited on disk.
///
/// # Errors
/// The broken promise.
pub fn check_stored(view: &View<'_>, store: &Store, event: &Event) -> Result<(), Violation> {
    let entered =
        event.stored.extra.as_ref().is_none_or(|extra| extra.origin.is_none() && extra.dead.is_none());
    let Some(delay) = view.messages.get(event.number).and_then(|sent| sent.delay).filter(|_| entered) else {
        return Ok(());
    };
    let is_early = match delay {
        Delay::Until(at) => at > view.wall,
        Delay::For(ms) => {
            let waits_on_disk = !store.altered && store.keeps_on_disk(event.stored.durable);
            ms > 0 && waits_on_disk && !view.ledger.has_released(event.stored.body)
        }
    };
    if is_early {
        let text = format!("'{}' stores message {} before its time ({delay:?})", store.name, event.number);
        return Err(Violation::new(RULE, text));
    }
    Ok(())
}

/// Checks a message that came to a consumer of a place where it was not laid out.
///
/// # Errors
/// The broken promise.
pub fn check_delivered(delay: Option<Delay>, number: u64, wall: u64) -> Result<(), Violation> {
    match delay {
        Some(Delay::Until(at)) if at > wall => {
            let text = format!("message {number} came at {wall}, and was not to come before {at}");
            Err(Violation::new(RULE, text))
        }
        _ => Ok(()),
    }
}
