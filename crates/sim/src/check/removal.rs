//! Nothing is lost: whatever leaves a store has a reason that the clients, the clock, the settings or an operator gave
//! (README U-1, RET-1 to RET-6, QU-6, AK-2).

use super::{View, Violation};
use crate::client::{Place, lets_through};
use crate::ledger::{Event, Store};
use postroad_model::id::{EventId, StoreKey};
use postroad_record::{Record, Removal};

/// The queue from which consumers take settled deliveries: what is lost there is lost by their own wish.
pub const AT_MOST_ONCE: &str = "fire";

/// Checks events that are about to leave a store.
///
/// # Errors
/// The broken promise.
pub fn check(
    view: &View<'_>,
    key: StoreKey,
    ids: &[(EventId, EventId)],
    why: Removal,
) -> Result<(), Violation> {
    let Some(store) = view.ledger.stores.get(&key) else { return Ok(()) };
    for &(first, last) in ids {
        for (&id, event) in store.events.range(first..=last) {
            if let Some(text) = fault(view, key, store, id, event, why) {
                let text = format!("message {} (event {id}) leaves '{}': {text}", event.number, store.name);
                return Err(Violation::new("nothing lost", text));
            }
        }
    }
    Ok(())
}

/// Why an event may not leave for this reason.
fn fault(
    view: &View<'_>,
    key: StoreKey,
    store: &Store,
    id: EventId,
    event: &Event,
    why: Removal,
) -> Option<String> {
    let name = &store.name;
    let holds = match why {
        Removal::Consumed => {
            name == AT_MOST_ONCE || view.shadow.has_accepted(&Place::Queue(name.clone()), event.number)
        }
        Removal::Expired => store.leaves_at(&event.stored).is_some_and(|at| at <= view.wall),
        Removal::Purged => view.shadow.purged.contains(name) || copies_a_purge(view, event),
        Removal::Evicted => matches!(store.capacity(), (capacity, false) if capacity > 0),
        Removal::Replaced => is_replaced(view, store, id, event),
        Removal::DeadLettered => is_dead_lettered(view, name, id, event),
        Removal::Unneeded => return needed_by(view, key, id, event),
    };
    (!holds).then(|| format!("{why:?} is not true"))
}

/// A join repeats purges, and the store that it comes from was purged (FWD-3).
fn copies_a_purge(view: &View<'_>, event: &Event) -> bool {
    let from = event.stored.extra.as_ref().and_then(|extra| extra.path.last());
    let source = from.and_then(|uid| view.ledger.of_uid.get(uid)).and_then(|key| view.ledger.stores.get(key));
    source.is_some_and(|source| view.shadow.purged.contains(&source.name))
}

fn is_replaced(view: &View<'_>, store: &Store, id: EventId, event: &Event) -> bool {
    let Some(keys) = store.channel().map(|c| &c.publish_keys).filter(|keys| !keys.is_empty()) else {
        return false;
    };
    let Some(own) = view.messages.get(event.number).map(|sent| sent.key) else { return false };
    let depth = keys.iter().map(|key| key.depth as usize).min().unwrap_or(1);
    let newer = store
        .events
        .range(id + 1..)
        .filter(|(_, e)| view.messages.get(e.number).is_some_and(|sent| sent.key == own));
    // Events that are only in memory replace too, and are not seen here.
    newer.count() >= depth || !store.keeps_on_disk(false)
}

/// The copy on the dead-letter queue stands in the same step (DESIGN 7.2).
fn is_dead_lettered(view: &View<'_>, name: &str, id: EventId, event: &Event) -> bool {
    view.step.iter().any(|record| match record {
        Record::Stored { event: copy, .. } => {
            let dead = copy.extra.as_ref().and_then(|extra| extra.dead.as_ref());
            copy.body == event.stored.body && dead.is_some_and(|d| d.dest == name && d.event_id == id)
        }
        _ => false,
    })
}

/// Who still needs an event of a channel that is kept by interest (RET-2, RET-3).
fn needed_by(view: &View<'_>, key: StoreKey, id: EventId, event: &Event) -> Option<String> {
    for object in view.ledger.objects.values().filter(|o| o.store == key && o.settings.persistent) {
        let wants = lets_through(object.settings.selector.as_deref(), view.messages, event.number);
        let store = view.ledger.stores.get(&key);
        // Who passed an event whose time was over does not need it again when the store gives it more time after all.
        let former = store.map_or(0, |store| store.former_ttl);
        let former = (former > 0).then_some(event.stored.arrived + former);
        let expired = [store.and_then(|s| s.leaves_at(&event.stored)), former].into_iter().flatten().min();
        if wants
            && !object.leaves_out(event)
            && !object.has_finished(id)
            && expired.is_none_or(|at| at > view.wall)
        {
            return Some(format!("named object '{}' still needs it (it is at {})", object.name, object.low));
        }
    }
    for join in view.ledger.joins.values().filter(|j| j.source == key && !j.settings.archive) {
        let wants = join.filters.iter().all(|f| lets_through(f.as_deref(), view.messages, event.number));
        // A standby needs nothing while its primary is there, and begins where that one stopped.
        if wants && join.cursor < id && view.ledger.primary_of(join).is_none() {
            return Some(format!("join '{}' still needs it (it is at {})", join.name, join.cursor));
        }
    }
    None
}
