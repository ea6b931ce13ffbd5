//! Nothing is stored twice: a store takes each origin once and gives each event id once; archives, dead-letter queues and
//! dead event stores excepted (DUP-4, ARC-4; DESIGN 3).

use super::{View, Violation};
use crate::ledger::{Event, Store};
use postroad_model::settings::PublisherDedupe;

const RULE: &str = "stored once";

/// Checks an event that is about to be stored.
///
/// # Errors
/// The broken promise.
pub fn check(view: &View<'_>, store: &Store, event: &Event) -> Result<(), Violation> {
    let (name, id, number) = (&store.name, event.stored.id, event.number);
    if id <= store.last {
        let text = format!("'{name}' gives id {id} to message {number}, but had given {} before", store.last);
        return Err(Violation::new(RULE, text));
    }
    let joined = event.stored.extra.as_ref().is_some_and(|e| e.origin.is_some());
    if joined && !event.is_exempt() && store.has_taken(event.origin) {
        let text =
            format!("'{name}' takes message {number} (origin {:?}) again, as event {id}", event.origin);
        return Err(Violation::new(RULE, text));
    }
    // What waited was looked at when it was taken.
    if joined || event.is_exempt() || view.ledger.has_released(event.stored.body) {
        return Ok(());
    }
    check_repeated(view, store, event.number)
}

/// Checks that a message that a client published is not taken a second time where repeated ones are recognised.
///
/// # Errors
/// The broken promise.
pub fn check_repeated(view: &View<'_>, store: &Store, number: u64) -> Result<(), Violation> {
    let name = &store.name;
    let dedupes = match (store.queue(), store.channel()) {
        (Some(q), _) => {
            q.publisher_dedupe == PublisherDedupe::MessageId && q.publisher_dedupe_window > view.wall
        }
        (_, Some(c)) => {
            c.publisher_dedupe == PublisherDedupe::MessageId && c.publisher_dedupe_window > view.wall
        }
        _ => false,
    };
    let before = store.fates.get(&number).map_or(0, |fate| fate.published);
    let resent = view.messages.get(number).is_some_and(|sent| sent.resent);
    if before > 0 && ((dedupes && !store.altered) || !resent) {
        let text = format!("'{name}' takes the published message {number} again");
        return Err(Violation::new(RULE, text));
    }
    Ok(())
}
