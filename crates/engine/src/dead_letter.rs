//! Dead letters and dead event stores: where a message goes that can't go where it should (3.6, DLQ, 5.1).

use crate::engine::{Engine, Task};
use crate::log::{Entry, Hold};
use crate::publish::Facts;
use crate::reader::{Owed, ReaderKey, Who};
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::refusal::Code;
use postroad_model::settings::QueueSettings;
use postroad_record::{DeadLetter, Extra, MadeBy, Record, Removal, StoreDefinition, StoredEvent};

/// Milliseconds after which a blocked dead letter is tried again, should nothing make room before.
const RETRY_MS: u64 = 30_000;

/// What a dead letter says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) code: Code,
    pub(crate) text: String,
    pub(crate) component: String,
    pub(crate) named_object: Option<String>,
}

impl Engine {
    /// Moves a delivered message of a queue to the dead-letter queue, in one step.
    pub(crate) fn dead_letter_from_queue(&mut self, key: StoreKey, id: EventId, code: Code, text: &str) {
        let Some(store) = self.store(key) else { return };
        let Some(queue) = store.queue() else { return };
        let component = format!("queue:{}", store.name);
        let redelivery = queue.settings.redelivery.clone();
        let target = redelivery.dead_letter_queue.or_else(|| {
            redelivery
                .dead_letter_per_source
                .then(|| format!("{}.{}", self.settings.dead_letter_queue, store.name))
        });
        let cause = Cause { code, text: text.to_owned(), component, named_object: None };
        if self.bury(key, id, target, &cause) {
            self.count(key, |c| c.dead_lettered_total += 1);
            self.take_out(key, &[id], Removal::DeadLettered);
        } else {
            self.block(key, id, code);
        }
    }

    /// Moves an event that a reader owes to the dead-letter queue; for other readers it stays.
    pub(crate) fn dead_letter_from_reader(&mut self, key: ReaderKey, id: EventId, code: Code, text: &str) {
        let Some(reader) = self.readers.get(key) else { return };
        let (store, who) = (reader.store, reader.who);
        let Who::Object(object) = who else {
            // A volatile subscription has no claim that outlives it: the copy is finished.
            return self.finish_for_reader(key, &[(u64::MAX, id)]);
        };
        let Some(state) = self.objects.get(&object) else { return };
        let redelivery = state.settings.redelivery.clone();
        let named_object = Some(state.name.clone());
        let name = self.store(store).map_or_else(String::new, |s| s.name.to_string());
        let target = redelivery.dead_letter_queue.or_else(|| {
            redelivery.dead_letter_per_source.then(|| format!("{}.{name}", self.settings.dead_letter_queue))
        });
        let component = format!("channel:{name}");
        let cause = Cause { code, text: text.to_owned(), component, named_object };
        if self.bury(store, id, target, &cause) {
            if let Some(state) = self.objects.get_mut(&object) {
                state.dead_lettered += 1;
            }
            self.count(store, |c| c.dead_lettered_total += 1);
            self.finish_for_reader(key, &[(u64::MAX, id)]);
        } else if let Some(reader) = self.readers.get_mut(key) {
            reader.owe(id, Owed::Blocked(code));
            self.wake_at(self.now.mono + RETRY_MS, Task::Unblock(store));
        }
    }

    /// Puts a copy of an event on a dead-letter queue (`None`: the broker's); false if that can't take it.
    pub(crate) fn bury(&mut self, key: StoreKey, id: EventId, target: Option<String>, cause: &Cause) -> bool {
        let Some(store) = self.store(key) else { return true };
        let Some(entry) = store.log.get(id) else { return true };
        let (event, name) = (entry.event.clone(), store.name.to_string());
        let target = target.unwrap_or_else(|| self.settings.dead_letter_queue.clone());
        let grave = self.grave(&target);
        if grave == key {
            // A dead letter that fails again stays where it is (DLQ-5).
            return false;
        }
        self.put_dead(grave, key, &event, &name, cause)
    }

    /// Stores a dead copy of an event of `source` in `grave`; false if there is no room.
    pub(crate) fn put_dead(
        &mut self,
        grave: StoreKey,
        source: StoreKey,
        event: &StoredEvent,
        dest: &str,
        cause: &Cause,
    ) -> bool {
        let size = self.bodies.get(event.body).map_or(0, postroad_model::message::Message::len) as u64;
        let Some(target) = self.store(grave) else { return false };
        let durable = target.keeps_on_disk(event.durable || self.bodies.on_disk(event.body));
        if self.check_size(target, size).is_err() || self.make_room(grave, durable).is_err() {
            return false;
        }
        let origin = self.store(source).map(|s| s.origin_of(event));
        let before = event.extra.as_deref().cloned().unwrap_or_default();
        let count = before.dead.as_ref().map_or(0, |dead| dead.count) + 1;
        let dead = DeadLetter {
            reason: cause.code.as_str().to_owned(),
            reason_code: cause.code.mq_code().unwrap_or(0),
            dest: dest.to_owned(),
            event_id: event.id,
            named_object: cause.named_object.clone(),
            address: None,
            component: cause.component.clone(),
            time: self.now.wall,
            count,
            text: cause.text.clone(),
            expires: event.expires,
        };
        let origin = before.origin.or(origin);
        let extra = Extra { origin, dead: Some(Box::new(dead)), ..before };
        // It does not expire there: evidence must not vanish (DLQ-4).
        let stays_on_disk = self.bodies.on_disk(event.body);
        let facts = Facts { expires: 0, stays_on_disk, ..Facts::of(event) };
        self.store_event(grave, event.body, &facts, Some(Box::new(extra)));
        true
    }

    /// The dead-letter queue of this name, made now if it is not there (AK-8: one always exists).
    fn grave(&mut self, name: &str) -> StoreKey {
        if let Some(&key) = self.queues.get(name) {
            return key;
        }
        self.create_store(name, StoreDefinition::Queue(QueueSettings::default()), MadeBy::Broker, true)
    }

    /// A message that can't be dead-lettered stays, and is not delivered (AK-8).
    fn block(&mut self, key: StoreKey, id: EventId, code: Code) {
        let Some(store) = self.store_mut(key) else { return };
        store.release_hold(id);
        let Some(entry) = store.log.get_mut(id) else { return };
        entry.hold = Hold::Blocked(code);
        let leaves = store.show_to_expiry(id);
        tracing::error!(queue = %store.name, message = id, "a message can't be dead-lettered: make room there");
        if let Some(queue) = store.queue_mut() {
            queue.blocked.insert(id);
        }
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
        self.wake_at(self.now.mono.saturating_add(RETRY_MS), Task::Unblock(key));
    }

    /// Tries again what could not be dead-lettered.
    pub(crate) fn unblock(&mut self, key: StoreKey) -> bool {
        let text = "dead-lettered after room was made";
        let Some(store) = self.store(key) else { return false };
        let hold = |id: &EventId| Some((*id, store.log.get(*id)?.hold));
        let in_queue: Vec<(EventId, Hold)> =
            store.queue().map(|q| q.blocked.iter().filter_map(hold).collect()).unwrap_or_default();
        let readers: Vec<ReaderKey> =
            store.channel().map(|c| c.readers.all.iter().copied().collect()).unwrap_or_default();
        for (id, hold) in in_queue {
            if let Hold::Blocked(code) = hold {
                self.dead_letter_from_queue(key, id, code, text);
            }
        }
        for reader in readers {
            let blocked: Vec<(EventId, Code)> = self.readers.get(reader).map_or_else(Vec::new, |reader| {
                let code = |(&id, &owed): (&EventId, &Owed)| match owed {
                    Owed::Blocked(code) => Some((id, code)),
                    Owed::Delivered(_) | Owed::Returned(_) => None,
                };
                reader.owed().iter().filter_map(code).collect()
            });
            for (id, code) in blocked {
                self.dead_letter_from_reader(reader, id, code, text);
            }
        }
        false
    }

    /// Puts an event that time or capacity removes into the store's dead event store, if it has one and is not one
    /// itself (5.1).
    pub(crate) fn lay_out(&mut self, key: StoreKey, entry: &Entry, cause: &Cause) {
        let Some(store) = self.store(key) else { return };
        let expiry_queue = store
            .queue()
            .and_then(|q| q.settings.expiry_queue.as_deref())
            .filter(|_| cause.code == Code::Expired);
        let Some(name) = expiry_queue.or_else(|| store.dead_event_store()) else { return };
        if self.graves.contains_key(&*store.name) {
            return;
        }
        let (dest, grave) = (store.name.to_string(), self.named_store(name));
        if !grave.is_some_and(|grave| self.put_dead(grave, key, &entry.event, &dest, cause)) {
            tracing::error!(store = %dest, event = entry.event.id, "the dead event store can't take an event");
        }
    }

    /// The queue of this name, else the channel (ADR-6).
    pub(crate) fn named_store(&self, name: &str) -> Option<StoreKey> {
        self.queues.get(name).or_else(|| self.channels.get(name)).copied()
    }

    /// Notes an arrival for the archive joins that read from the store (ARC-3).
    pub(crate) fn record_arrival(&mut self, key: StoreKey, event: StoredEvent, duplicate: bool) {
        let Some(store) = self.store(key) else { return };
        let (arrival, durable) = (store.next_arrival, store.keeps_on_disk(event.durable));
        let joins: Vec<JoinKey> = store.archives_out.iter().copied().collect();
        if durable {
            self.write_body(event.body);
        }
        self.record(Record::Arrived { store: key, arrival, event, duplicate }, durable);
        for join in joins {
            self.schedule(Task::Join(join));
        }
    }
}
