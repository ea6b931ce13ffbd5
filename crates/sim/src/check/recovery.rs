//! A start brings back what was durable, to the byte, and nothing that was not written; the engine that replayed it has the
//! state that the naive model has (DESIGN 7.1, 7.2).

use super::Violation;
use crate::broker::Broker;
use crate::ledger::Ledger;
use postroad_engine::Now;
use postroad_engine::admin::{Request, Response, Selection, StoreKind};

const RULE: &str = "recovery";

/// Checks what was read back against what was written, of which the first `durable` steps were durable.
///
/// # Errors
/// The broken promise.
pub fn check_prefix(written: &[Vec<u8>], durable: u64, read: &[Vec<u8>]) -> Result<(), Violation> {
    if (read.len() as u64) < durable {
        let text = format!("{durable} steps were durable, {} came back", read.len());
        return Err(Violation::new(RULE, text));
    }
    for (at, payload) in read.iter().enumerate() {
        if written.get(at) != Some(payload) {
            return Err(Violation::new(
                RULE,
                format!("step {at} came back with other bytes than it was written with"),
            ));
        }
    }
    Ok(())
}

/// Compares what the engine shows with the naive model: every event on disk of every store, and every position.
///
/// # Errors
/// The difference.
pub fn check_state(broker: &mut Broker, ledger: &Ledger, now: Now) -> Result<(), Violation> {
    let problem = |text: String| Violation::new("state", text);
    for store in ledger.stores.values() {
        let kind = if store.queue().is_some() { StoreKind::Queue } else { StoreKind::Channel };
        let request = Request::BrowseStore {
            kind,
            name: store.name.clone(),
            selection: Selection::default(),
            limit: usize::MAX,
        };
        let Some(Ok(Response::Events { items })) = broker.ask(now, request) else {
            return Err(problem(format!("'{}' can't be browsed", store.name)));
        };
        let mut shown: Vec<u64> =
            items.iter().filter(|e| store.keeps_on_disk(e.durable)).map(|e| e.id).collect();
        shown.sort_unstable();
        let expected: Vec<u64> = store.events.keys().copied().collect();
        if shown != expected {
            let extra: Vec<_> = shown.iter().filter(|id| !expected.contains(id)).take(5).collect();
            let missing: Vec<_> = expected.iter().filter(|id| !shown.contains(id)).take(5).collect();
            let text = format!("'{}' shows events {extra:?} too many and {missing:?} too few", store.name);
            return Err(problem(text));
        }
        for event in &items {
            let number = store.events.get(&event.id).map(|known| format!("m{}", known.number));
            if number.is_some() && event.message_id != number {
                let text = format!(
                    "event {} of '{}' shows message {:?}, the records say {number:?}",
                    event.id, store.name, event.message_id
                );
                return Err(problem(text));
            }
            let attempts = store.attempts.get(&event.id).map_or(0, |&(failed, _)| failed);
            if store.queue().is_some()
                && store.keeps_on_disk(event.durable)
                && event.delivery_count < attempts
            {
                let text = format!(
                    "event {} of '{}' shows {} attempts, the records say {attempts}",
                    event.id, store.name, event.delivery_count
                );
                return Err(problem(text));
            }
        }
    }
    check_positions(broker, ledger, now)
}

fn check_positions(broker: &mut Broker, ledger: &Ledger, now: Now) -> Result<(), Violation> {
    let problem = |text: String| Violation::new("state", text);
    let Some(Ok(Response::Objects { items })) = broker.ask(now, Request::ListObjects { channel: None })
    else {
        return Err(problem("the named objects can't be listed".into()));
    };
    let persistent = items.iter().filter(|o| o.settings.persistent).count();
    if persistent != ledger.objects.values().filter(|o| o.settings.persistent).count() {
        return Err(problem(format!("{persistent} named objects are shown, the records made others")));
    }
    let Some(Ok(Response::Joins { items })) = broker.ask(now, Request::ListJoins { store: None }) else {
        return Err(problem("the joins can't be listed".into()));
    };
    if items.len() != ledger.joins.len() {
        let text = format!("{} joins are shown, the records made {}", items.len(), ledger.joins.len());
        return Err(problem(text));
    }
    Ok(())
}
