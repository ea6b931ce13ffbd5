//! Hops and loops: an event never visits a store twice, comes over joins only, and never farther than its budget allows,
//! by a model that looks at every way (HOP-1, HOP-2, LOOP-2, LOOP-3).

use super::{View, Violation};
use crate::ledger::{Event, Ledger, Store};
use postroad_model::id::StoreKey;
use postroad_model::settings::StoreType;
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "hops and loops";
/// Stores that a path remembers at most (LOOP-3).
const PATH_LENGTH: usize = 32;

/// Checks an event that is about to be stored.
///
/// # Errors
/// The broken promise.
pub fn check(view: &View<'_>, key: StoreKey, store: &Store, event: &Event) -> Result<(), Violation> {
    let Some(extra) = event.stored.extra.as_ref().filter(|e| e.origin.is_some() && e.dead.is_none()) else {
        return Ok(());
    };
    if extra.path.is_empty() {
        return Ok(());
    }
    let number = event.number;
    let mut visited = BTreeSet::new();
    // What an archive records of a repeated arrival was refused at the end of its path: that was no visit.
    let visits = extra.path.len() - usize::from(extra.archive_duplicate);
    for uid in extra.path.iter().take(visits) {
        let Some(&key) = view.ledger.of_uid.get(uid) else {
            return Err(Violation::new(
                RULE,
                format!("message {number} came through {uid}, which no store ever was"),
            ));
        };
        // What is only in memory is forgotten with the process (DUP-5).
        let remembers = view.ledger.stores.get(&key).is_some_and(|s| s.store_type() != StoreType::Transient);
        if !visited.insert(key) && remembers {
            return Err(Violation::new(RULE, format!("message {number} came twice through store {}", key.0)));
        }
    }
    if !extra.archived && (extra.path.iter().any(|&uid| store.was(uid)) || store.was(event.origin.store)) {
        let text = format!("message {number} comes back to '{}', where it has been", store.name);
        return Err(Violation::new(RULE, text));
    }
    let Some(&begin) = view.ledger.of_uid.get(&event.origin.store) else {
        return Err(Violation::new(RULE, format!("message {number} has an origin that no store ever was")));
    };
    if extra.path.len() < PATH_LENGTH
        && extra.path.first().and_then(|uid| view.ledger.of_uid.get(uid)) != Some(&begin)
    {
        let text = format!("the path of message {number} does not begin at its origin");
        return Err(Violation::new(RULE, text));
    }
    let most = budgets(view.ledger, begin).get(&key).copied();
    let held = extra.budget.unwrap_or(u8::MAX);
    match most {
        Some(most) if held <= most => Ok(()),
        _ => {
            let text = format!(
                "message {number} reaches '{}' with a budget of {held}; over all joins there ever were {most:?} is the most",
                store.name
            );
            Err(Violation::new(RULE, text))
        }
    }
}

/// The largest budget with which an event of `begin` can be at each store, over the joins that there ever were.
#[must_use]
pub fn budgets(ledger: &Ledger, begin: StoreKey) -> BTreeMap<StoreKey, u8> {
    let mut best: BTreeMap<StoreKey, u8> = BTreeMap::new();
    loop {
        let mut changed = false;
        for ((source, destination), hops) in &ledger.edges {
            let Some(&to) = ledger.names.get(destination) else { continue };
            let beyond = if *source == begin {
                Some(*hops)
            } else {
                let left = best.get(source).and_then(|budget| budget.checked_sub(1));
                left.map(|left| left.min(*hops))
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
