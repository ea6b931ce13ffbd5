//! Browsers: consumers that look at a queue without taking (QU-2).

use crate::command::TakerKey;
use crate::dispatch::From;
use crate::effect::{Annotations, Delivery, Effect};
use crate::engine::{Engine, Task};
use crate::log::{Entry, Hold};
use crate::store::Store;
use crate::taker::Source;
use postroad_model::id::{EventId, StoreKey};
use postroad_record::StoredEvent;
use std::sync::Arc;

/// Messages that one task looks at for a browser at most.
const LOOKS_PER_TASK: usize = 512;

impl Engine {
    /// Sends a browser what it may have; whether there is more to do.
    pub(crate) fn feed_browser(&mut self, key: TakerKey) -> bool {
        for _ in 0..LOOKS_PER_TASK {
            let Some(taker) = self.takers.get(key) else { return false };
            let Source::Browser { level, passed, up_to } = taker.source else { return false };
            let store = taker.store;
            // No pass over the queue for priorities that nothing in it has.
            let queue = self.store(store).and_then(Store::queue);
            let used = |level: &u8| queue.is_some_and(|queue| queue.has_level(*level));
            let (level, passed) = match (0..=level).rev().find(used).unwrap_or(0) {
                lower if lower < level => (lower, 0),
                level => (level, passed),
            };
            let next = self.store(store).and_then(|s| s.log.first_from(passed + 1)).map(|e| &e.event);
            let (source, found) = match (next.filter(|event| event.id <= up_to), level.checked_sub(1)) {
                (Some(event), _) => {
                    let here = self.store(store).and_then(Store::queue).map(|q| q.level(event.priority));
                    let source = Source::Browser { level, passed: event.id, up_to };
                    (source, (here == Some(level)).then_some(event.id))
                }
                (None, Some(level)) => (Source::Browser { level, passed: 0, up_to }, None),
                (None, None) => {
                    self.finish_drain(key);
                    return false;
                }
            };
            if let Some(id) = found
                && !self.is_at_hand(store, id, Task::Browse(key))
            {
                return false;
            }
            let wanted = found.filter(|&id| self.taker_wants(key, store, id) && !self.is_lost(store, id));
            if wanted.is_some() && !self.has_window(key) {
                self.finish_drain(key);
                return false;
            }
            if let Some(taker) = self.takers.get_mut(key) {
                taker.source = source;
            }
            if let Some(id) = wanted {
                self.send_to_browser(key, store, id);
            }
        }
        true
    }

    fn send_to_browser(&mut self, key: TakerKey, store: StoreKey, id: EventId) {
        let Some(taker) = self.takers.get_mut(key) else { return };
        let tag = taker.sent;
        taker.sent += 1;
        let (conn, link, settled, before) = (taker.conn, taker.link, taker.presettled, taker.after);
        let source = taker.source;
        let Some(store) = self.store(store) else { return };
        let Some(entry) = store.log.get(id) else { return };
        let Some(message) = self.bodies.get(entry.event.body) else { return };
        let (message, added) = self.with_added(message, store, id, source);
        let mut annotations = self.annotations(store, &entry.event, From::Queue { failed: 0 });
        annotations.in_delivery = entry.hold == Hold::Delivered;
        let delivery = Delivery {
            conn,
            link,
            tag,
            message,
            durable: entry.event.durable,
            priority: entry.event.priority,
            ttl_ms: ttl_left(store, entry, self.now.wall),
            delivery_count: entry.failed,
            settled,
            annotations,
        };
        let bytes = delivery.message.len();
        let after = entry.after.max(before).max(added);
        if let Some(taker) = self.takers.get_mut(key) {
            taker.after = after;
        }
        self.emit(after, Effect::Deliver(Box::new(delivery)));
        self.note_on_the_way(key, bytes);
    }

    /// What the broker adds to a delivery (DUP-13, CH-3, DLQ-3, ARC-3).
    pub(crate) fn annotations(&self, store: &Store, event: &StoredEvent, from: From) -> Annotations {
        let extra = event.extra.as_deref();
        let channel = (!store.is_queue()).then(|| (store.name.clone(), event.id));
        let origin = store.expose_origin().then(|| {
            let origin = store.origin_of(event);
            let name =
                extra.and_then(|e| e.origin_store.as_deref()).map_or_else(|| store.name.clone(), Arc::from);
            (self.place.clone(), name, origin.event)
        });
        let skipped = match from {
            From::Object { object, .. } => self.objects.get(&object).map_or(0, |o| o.skipped_untold),
            From::Queue { .. } | From::Volatile { .. } => 0,
        };
        Annotations {
            channel,
            origin,
            archive_duplicate: extra.is_some_and(|e| e.archive_duplicate),
            in_delivery: false,
            events_skipped: (skipped > 0).then_some(skipped),
            dead: extra.and_then(|e| e.dead.clone()),
        }
    }
}

/// Milliseconds of life left; `None` means no limit.
pub(crate) fn ttl_left(store: &Store, entry: &Entry, now: u64) -> Option<u32> {
    let leaves = store.leaves_at(&entry.event);
    (leaves != 0).then(|| u32::try_from(leaves.saturating_sub(now)).unwrap_or(u32::MAX))
}
