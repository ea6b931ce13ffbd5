//! What clients see: a confirmed message is on disk; a delivery is on disk, has the event that it always had, is flagged
//! if it was there before, never comes after its acknowledgement was confirmed, and comes in order (DESIGN 7.4; AK-10,
//! CH-3, ORD-1).

use super::Violation;
use crate::client::{Held, Place};
use crate::ledger::{Fate, Ledger};
use crate::messages::{Messages, Received, Sent};
use crate::shadow::{Item, Shadow};

/// How a store is named whose contents may hold one message several times.
#[must_use]
pub fn may_repeat(name: &str) -> bool {
    name.starts_with("DLQ") || name.starts_with("grave") || name.starts_with("archive")
}

/// What identifies a delivery at its place.
#[must_use]
pub fn item(place: &Place, held: &Held) -> Option<Item> {
    match place {
        Place::Queue(name) if !may_repeat(name) => Some(held.number),
        Place::Object(..) => held.event,
        _ => None,
    }
}

/// What was added to a message is what one of its consumers added (AMQP part 3, section 3.4.5).
///
/// # Errors
/// What came with it that nobody gave.
pub fn check_note(shadow: &Shadow, received: &Received) -> Result<(), Violation> {
    let Some(note) = received.note else { return Ok(()) };
    if shadow.notes.get(&note).is_some_and(|numbers| numbers.contains(&received.number)) {
        return Ok(());
    }
    let text = format!("message {} came with note {note}, which nobody gave it", received.number);
    Err(Violation::new("annotations", text))
}

/// A client was told that its message is taken: it must be in a step that is durable, which are those up to `durable`.
///
/// # Errors
/// The broken promise.
pub fn check_confirmed(
    ledger: &Ledger,
    messages: &Messages,
    number: u64,
    store: &str,
    durable: u64,
) -> Result<bool, Violation> {
    let Some(sent) = messages.get(number) else { return Ok(false) };
    let Some(target) = ledger.named(store) else { return Ok(false) };
    if !target.keeps_on_disk(sent.durable) || target.keeps_by_interest() || target.altered {
        return Ok(false);
    }
    let taken = |fate: &Fate| if fate.scheduled == 0 { fate.stored } else { fate.scheduled };
    match target.fates.get(&number).map(taken) {
        Some(stored) if stored <= durable => Ok(true),
        Some(stored) => {
            let text = format!(
                "message {number} was confirmed by '{store}' in step {stored}, but only {durable} steps are durable"
            );
            Err(Violation::new("confirmed is durable", text))
        }
        None => {
            let text = format!("message {number} was confirmed by '{store}' and is not there");
            Err(Violation::new("nothing lost", text))
        }
    }
}

/// A consumer's acknowledgement was confirmed: the removal must be durable.
///
/// # Errors
/// The broken promise.
pub fn check_ack_confirmed(
    ledger: &Ledger,
    place: &Place,
    held: &Held,
    durable: u64,
) -> Result<(), Violation> {
    let (Place::Queue(name), Some(_)) = (place, item(place, held)) else { return Ok(()) };
    let fate = ledger.named(name).and_then(|store| store.fates.get(&held.number));
    match fate {
        Some(fate) if fate.removed == 0 || fate.removed > durable => {
            let text = format!(
                "the acknowledgement of message {} of '{name}' was confirmed; it was removed in step {}, {durable} are durable",
                held.number, fate.removed
            );
            Err(Violation::new("confirmed is durable", text))
        }
        _ => Ok(()),
    }
}

/// A message came to a consumer that leaves out what its own client publishes, and that was there before it was sent
/// (AM-10).
///
/// # Errors
/// The broken promise.
pub fn check_no_local(place: &Place, seat: usize, number: u64, sent: &Sent) -> Result<(), Violation> {
    let (Place::Volatile(channel) | Place::Object(channel, _, _)) = place else { return Ok(()) };
    // Over joins it may have come where nobody asked who published it.
    if sent.resent || sent.by != (seat, channel.clone()) {
        return Ok(());
    }
    let text = format!("message {number} of {place:?} came back to the client that published it");
    Err(Violation::new("no local", text))
}

/// A message came to a consumer; notes it.
///
/// # Errors
/// The broken promise.
pub fn check_delivered(
    shadow: &mut Shadow,
    ledger: &Ledger,
    place: &Place,
    received: &Received,
    resent: bool,
    durable: u64,
) -> Result<(), Violation> {
    let held = Held { number: received.number, event: received.event };
    let (Place::Queue(name) | Place::Browser(name) | Place::Volatile(name) | Place::Object(name, _, _)) =
        place
    else {
        shadow.delivered += 1;
        return Ok(());
    };
    let store = ledger.named(name);
    if let Some(store) = store.filter(|store| store.keeps_on_disk(received.durable)) {
        let fate = store.fates.get(&received.number);
        if fate.is_none_or(|fate| fate.stored > durable) && !may_repeat(name) && !resent {
            let text = format!("message {} came from '{name}' before it was durable", received.number);
            return Err(Violation::new("delivered is durable", text));
        }
    }
    if let Some(event) = received.event {
        let known = *shadow.identity.entry((name.clone(), event)).or_insert(received.number);
        if known != received.number {
            let text =
                format!("event {event} of '{name}' was message {known}, and is now {}", received.number);
            return Err(Violation::new("an event id means one event", text));
        }
    }
    shadow.delivered += 1;
    shadow.repeated += u64::from(received.delivery_count > 0);
    match item(place, &held) {
        Some(item) if !resent => check_repeated(shadow, place, item, received),
        _ => Ok(()),
    }
}

fn check_repeated(
    shadow: &mut Shadow,
    place: &Place,
    item: Item,
    received: &Received,
) -> Result<(), Violation> {
    let entry = shadow.seen.entry(place.clone()).or_default().entry(item).or_default();
    // Of two consumers the second may look first, and acknowledge: then the first attempt comes late.
    let is_late = received.delivery_count == 0 && !entry.unflagged;
    if !is_late && shadow.confirmed.get(place).is_some_and(|items| items.contains(&item)) {
        let text = format!(
            "message {} of {place:?} came again after its acknowledgement was confirmed",
            received.number
        );
        return Err(Violation::new("confirmed acknowledgements", text));
    }
    if received.delivery_count == 0 {
        if entry.unflagged && !entry.excused {
            let text = format!(
                "message {} of {place:?} came again without a delivery count (it had been returned: {})",
                received.number, entry.returned
            );
            return Err(Violation::new("redelivered is flagged", text));
        }
        entry.unflagged = true;
        // A flagged one in between may have overtaken the one that was excused.
        entry.excused = false;
    }
    Ok(())
}
