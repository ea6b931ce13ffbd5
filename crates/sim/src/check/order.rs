//! Events of one origin keep their order over one path: what comes from one source store of one origin store arrives in
//! the order of its event ids (ORD-1, ORD-2).

use super::{View, Violation};
use crate::ledger::{Event, Store};
use postroad_model::id::{EventId, StoreKey, StoreUid};
use std::collections::{BTreeMap, BTreeSet};

/// The highest origin event so far, for each destination, path and origin.
#[derive(Debug, Default)]
pub struct Order {
    highest: BTreeMap<(StoreKey, Vec<StoreUid>, StoreUid), EventId>,
    /// Something that lets old events come again is under way: nothing is compared until a join has moved on.
    relaxed: bool,
    /// Stores that several paths lead to, or led to once: what goes on from there has the order in which it came.
    mixed: BTreeSet<StoreKey>,
}

impl Order {
    /// Checks an event that is about to be stored, and notes it.
    ///
    /// # Errors
    /// The broken promise.
    pub fn check(
        &mut self,
        view: &View<'_>,
        key: StoreKey,
        event: &Event,
        store: &Store,
    ) -> Result<(), Violation> {
        let Some(extra) = event.stored.extra.as_ref().filter(|e| e.origin.is_some()) else { return Ok(()) };
        if has_parallel_joins(view, &extra.path, key) {
            self.mixed.insert(key);
            return Ok(());
        }
        let mut stations = extra.path.iter().filter_map(|uid| view.ledger.of_uid.get(uid));
        if event.is_exempt() || self.relaxed || stations.any(|store| self.mixed.contains(store)) {
            return Ok(());
        }
        let place = (key, extra.path.clone(), event.origin.store);
        let highest = self.highest.entry(place).or_default();
        if event.origin.event < *highest {
            let text = format!(
                "'{}' stores message {} (origin event {}) behind origin event {highest} of the same path",
                store.name, event.number, event.origin.event
            );
            return Err(Violation::new("order of one path", text));
        }
        *highest = event.origin.event;
        Ok(())
    }

    /// A join began, changed, or offers events again: from here on old events may follow newer ones.
    pub fn forget(&mut self) {
        self.highest.clear();
    }

    /// A join has moved on.
    pub const fn settle(&mut self) {
        self.relaxed = false;
    }
}

/// Several joins from one store to the next are several paths, which the records do not tell apart.
fn has_parallel_joins(view: &View<'_>, path: &[StoreUid], to: StoreKey) -> bool {
    let keys = path.iter().filter_map(|uid| view.ledger.of_uid.get(uid).copied());
    let stations: Vec<StoreKey> = keys.chain([to]).collect();
    stations.windows(2).any(|pair| {
        let [from, to] = pair else { return false };
        let Some(name) = view.ledger.stores.get(to).map(|store| &store.name) else { return true };
        let active = view.ledger.parallel.get(&(*from, name.clone())).is_some_and(|joins| *joins > 1);
        active || has_odd_standby(view, *from, name)
    })
}

/// A standby whose primary is not there, or not there any more, forwards like any other join; and what one with another filter
/// brings while the primary is stopped is not what that brings afterwards.
fn has_odd_standby(view: &View<'_>, from: StoreKey, to: &str) -> bool {
    let joins = || view.ledger.joins.values();
    let mut standbys = joins().filter(|join| join.source == from && join.settings.destination == to);
    standbys.any(|standby| {
        let filter = &standby.settings.filter;
        let is_there = |name: &str| joins().any(|join| join.name == name && join.settings.filter == *filter);
        standby.settings.standby_for.as_deref().is_some_and(|primary| !is_there(primary))
    })
}
