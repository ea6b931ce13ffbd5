//! Positions move only over what is finished: a named object's over what its consumer has acknowledged, a join's over what
//! its destination has (EX-3, EX-4, JOIN-4, FWD-1).

use super::{View, Violation};
use crate::client::{Place, lets_through};
use crate::ledger::{Event, Join, Ledger, Object, Store};
use postroad_model::id::{EventId, JoinKey, ObjectKey};

/// Checks a named object that is about to move.
///
/// # Errors
/// The broken promise.
pub fn check_object(
    view: &View<'_>,
    key: ObjectKey,
    low: EventId,
    done: &[(EventId, EventId)],
) -> Result<(), Violation> {
    let Some(object) = view.ledger.objects.get(&key) else { return Ok(()) };
    let Some(store) = view.ledger.stores.get(&object.store) else { return Ok(()) };
    let below = store.events.range(object.low..low.max(object.low));
    let above = done.iter().flat_map(|&(first, last)| store.events.range(first..=last));
    for (&id, event) in below.chain(above) {
        if !object.has_finished(id) && !may_pass(view, store, object, id, event) {
            let text = format!(
                "named object '{}' of '{}' passes event {id} (message {}), which nobody has finished",
                object.name, store.name, event.number
            );
            return Err(Violation::new("positions", text));
        }
    }
    Ok(())
}

fn may_pass(view: &View<'_>, store: &Store, object: &Object, id: EventId, event: &Event) -> bool {
    let place = Place::Object(store.name.clone(), object.owner.clone(), object.name.clone());
    let acked = if object.is_cumulative() {
        view.shadow.has_accepted_from(&place, id)
    } else {
        view.shadow.has_accepted(&place, id)
    };
    acked
        || !lets_through(object.settings.selector.as_deref(), view.messages, event.number)
        || object.leaves_out(event)
        || store.leaves_at(&event.stored).is_some_and(|at| at <= view.wall)
        || view.ledger.dead.contains(&(store.name.clone(), id, Some(object.name.clone())))
        || view.shadow.purged.contains(&format!("{}::{}", store.name, object.name))
}

/// Checks a join that is about to move.
///
/// # Errors
/// The broken promise.
pub fn check_join(view: &View<'_>, key: JoinKey, cursor: u64) -> Result<(), Violation> {
    let Some(join) = view.ledger.joins.get(&key) else { return Ok(()) };
    let Some(source) = view.ledger.stores.get(&join.source) else { return Ok(()) };
    if join.settings.archive || cursor <= join.cursor {
        return Ok(());
    }
    let target = view.ledger.named(&join.settings.destination);
    for (&id, event) in source.events.range(join.cursor + 1..=cursor) {
        if !is_settled(view, join, source, target, id, event) {
            let text = format!(
                "join '{}' passes event {id} of '{}' (message {}), which '{}' does not have",
                join.name, source.name, event.number, join.settings.destination
            );
            return Err(Violation::new("joins lose nothing", text));
        }
    }
    Ok(())
}

fn is_settled(
    view: &View<'_>,
    join: &Join,
    source: &Store,
    target: Option<&Store>,
    id: EventId,
    event: &Event,
) -> bool {
    let extra = event.stored.extra.as_ref();
    let primary = view.ledger.primary_of(join);
    // What a primary has passed and offers again is its own affair.
    let by_primary = primary.is_some_and(|primary| id <= primary.cursor);
    let mut filters = join.filters.iter().chain(primary.into_iter().flat_map(|primary| &primary.filters));
    let filtered = filters.any(|f| !lets_through(f.as_deref(), view.messages, event.number));
    let expired = source.leaves_at(&event.stored).is_some_and(|at| at <= view.wall);
    let stopped = extra.is_some_and(|e| e.budget == Some(0));
    // What a purge under way is about to remove is not forwarded any more (FWD-2).
    let purged = view.ledger.purges.values().any(|purge| {
        purge.store == join.source
            && (purge.range.0..=purge.range.1).contains(&id)
            && lets_through(purge.filter.as_deref(), view.messages, event.number)
    });
    let Some(target) = target else { return filtered || expired || stopped || purged || by_primary };
    let known = target.has_taken(event.origin);
    // A destination that keeps it in memory leaves no record of it.
    let in_memory = !target.keeps_on_disk(event.stored.durable);
    let on_path = extra.is_some_and(|e| e.path.iter().any(|&uid| target.was(uid)));
    let dead = is_dead(view.ledger, join, source, id);
    filtered || expired || stopped || known || in_memory || on_path || dead || purged || by_primary
}

fn is_dead(ledger: &Ledger, join: &Join, source: &Store, id: EventId) -> bool {
    [&join.settings.destination, &source.name]
        .into_iter()
        .any(|name| ledger.dead.contains(&(name.clone(), id, None)))
}
