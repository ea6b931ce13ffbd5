//! Progress over joins: once nothing disturbs, a fresh message reaches exactly the stores that the joins and its budget
//! lead to (HOP-1, HOP-2, HOP-6, FIL-1, LOOP-1).

use super::Violation;
use crate::client::lets_through;
use crate::ledger::{Join, Ledger};
use crate::messages::Messages;
use postroad_model::id::StoreKey;
use std::collections::BTreeMap;

/// The stores that a message published into `begin` must reach, with the largest budget at each.
#[must_use]
pub fn reachable(
    ledger: &Ledger,
    messages: &Messages,
    begin: StoreKey,
    number: u64,
) -> BTreeMap<StoreKey, u8> {
    let mut best: BTreeMap<StoreKey, u8> = BTreeMap::new();
    loop {
        let mut changed = false;
        let active = |join: &&Join| !join.settings.archive && ledger.primary_of(join).is_none();
        for join in ledger.joins.values().filter(active) {
            let Some(&to) = ledger.names.get(&join.settings.destination) else { continue };
            let runs = join.settings.enabled && ledger.stores.contains_key(&to) && to != begin;
            if !runs || !lets_through(join.settings.filter.as_deref(), messages, number) {
                continue;
            }
            let beyond = if join.source == begin {
                Some(join.settings.max_hops)
            } else {
                let left = best.get(&join.source).and_then(|budget| budget.checked_sub(1));
                left.map(|left| left.min(join.settings.max_hops))
            };
            let Some(beyond) = beyond else { continue };
            if best.get(&to).is_none_or(|known| *known < beyond) {
                best.insert(to, beyond);
                changed = true;
            }
        }
        if !changed {
            return best;
        }
    }
}

/// Checks which stores took a message that was published into `begin`.
///
/// # Errors
/// The broken promise.
pub fn check(ledger: &Ledger, messages: &Messages, begin: StoreKey, number: u64) -> Result<(), Violation> {
    let expected = reachable(ledger, messages, begin, number);
    let Some(source) = ledger.stores.get(&begin) else { return Ok(()) };
    let origin = source.events.values().find(|event| event.number == number && !event.is_exempt());
    let Some(origin) = origin.map(|event| event.origin) else { return Ok(()) };
    for (key, store) in ledger.stores.iter().filter(|(key, _)| **key != begin) {
        let (took, must) = (store.origins.contains(&origin), expected.contains_key(key));
        if took == must || !store.keeps_on_disk(true) {
            continue;
        }
        let word = if took { "reached" } else { "did not reach" };
        let text = format!("the probe {number}, published to '{}', {word} '{}'", source.name, store.name);
        return Err(Violation::new("reach", text));
    }
    Ok(())
}
