//! Dead letters and dead event stores: where a message goes that can't go where it should (3.6, DLQ, 5.1).

use crate::command::ConnId;
use crate::engine::{Engine, Task};
use crate::log::Hold;
use crate::publish::Facts;
use crate::reader::{Owed, ReaderKey, Who};
use crate::store::Store;
use bytes::Bytes;
use postroad_model::address::{Address, Options};
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::message::Incoming;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::QueueSettings;
use postroad_record::{DeadLetter, Extra, MadeBy, Record, Removal, StoreDefinition, StoredEvent};

/// Milliseconds after which a blocked dead letter is tried again, should nothing make room before.
const RETRY_MS: u64 = 30_000;
/// What a dead letter says that was blocked before.
const RETRIED: &str = "dead-lettered after room was made";

/// Whether a refusal ends the link of a sender that gets no other answer (README U-13): it is for a right, for space or
/// for a bad topic, so the sender keeps the message. All others mean that the address does not resolve.
const fn ends_the_link(code: Code) -> bool {
    matches!(
        code,
        Code::NotAuthorized
            | Code::QueueFull
            | Code::StoreFull
            | Code::JoinSpoolFull
            | Code::DiskFull
            | Code::LimitReached
            | Code::BadTopic
    )
}

/// Whether an event is a dead letter because its time was over.
fn has_expired_before(event: &StoredEvent) -> bool {
    let dead = event.extra.as_ref().and_then(|extra| extra.dead.as_ref());
    dead.is_some_and(|dead| dead.reason == Code::Expired.as_str())
}

/// What a dead letter says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) code: Code,
    pub(crate) text: String,
    pub(crate) component: String,
    pub(crate) named_object: Option<String>,
    /// What the consumers of a reader added to the message; what those of a queue did is found there.
    pub(crate) annotations: Option<Bytes>,
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
        let cause = Cause { code, text: text.to_owned(), component, named_object: None, annotations: None };
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
        let annotations = self.added_at_reader(key, id).map(|added| added.section.clone());
        let cause = Cause { code, text: text.to_owned(), component, named_object, annotations };
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
        let size = self.bodies.size(event.body);
        let origin = self.store(source).filter(|_| event.id > 0).map(|s| s.origin_of(event));
        let before = event.extra.as_deref().cloned().unwrap_or_default();
        let dead = Some(Box::new(self.header(event, dest, cause)));
        let extra = Extra { origin: before.origin.or(origin), dead, ..before };
        // It does not expire there: evidence must not vanish (DLQ-4).
        let stays_on_disk = self.bodies.on_disk(event.body);
        let facts = Facts { expires: 0, stays_on_disk, ..Facts::of(event) };
        let copy = self.event(event.id, event.body, &facts, Some(Box::new(extra)));
        let Some(target) = self.store(grave) else { return false };
        let durable = target.keeps_on_disk(event.durable || stays_on_disk);
        let values = self.values_for_room(target, self.bodies.get(event.body), &copy);
        if self.check_size(target, size).is_err() || self.make_room(grave, durable, &values).is_err() {
            return false;
        }
        if origin.is_none() {
            // It was no event yet: it enters here.
            self.prove_identity(grave);
        }
        let copy = self.store_event(grave, event.body, &facts, copy.extra);
        self.copy_annotated((source, event.id), cause.annotations.as_deref(), (grave, copy));
        true
    }

    /// The dead-letter header of an event.
    fn header(&self, event: &StoredEvent, dest: &str, cause: &Cause) -> DeadLetter {
        let before = event.extra.as_ref().and_then(|extra| extra.dead.as_ref());
        DeadLetter {
            reason: cause.code.as_str().to_owned(),
            reason_code: cause.code.mq_code().unwrap_or(0),
            dest: dest.to_owned(),
            event_id: event.id,
            named_object: cause.named_object.clone(),
            address: None,
            component: cause.component.clone(),
            time: self.now.wall,
            count: before.map_or(0, |dead| dead.count) + 1,
            text: cause.text.clone(),
            expires: event.expires,
        }
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
        // What is blocked because its time was over is not found by expiry again.
        let leaves = if code == Code::Expired { 0 } else { store.show_to_expiry(id) };
        let name = store.name.clone();
        if let Some(queue) = store.queue_mut() {
            if queue.blocked.is_empty() {
                tracing::error!(queue = %name, message = id, "messages can't be dead-lettered: make room there");
            }
            queue.blocked.insert(id);
        }
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
        self.wake_at(self.now.mono.saturating_add(RETRY_MS), Task::Unblock(key));
    }

    /// An event whose time is over stays where it is, and is not delivered, because nothing can take it (5.1, QU-6).
    pub(crate) fn keep_expired(&mut self, key: StoreKey, id: EventId) {
        let Some(store) = self.store_mut(key) else { return };
        if store.is_queue() {
            return self.block(key, id, Code::Expired);
        }
        if store.unburied.is_empty() {
            tracing::error!(channel = %store.name, event = id, "expired events can't be laid out: make room there");
        }
        store.unburied.insert(id);
        self.wake_at(self.now.mono.saturating_add(RETRY_MS), Task::Unblock(key));
    }

    /// Tries again what could not be dead-lettered or laid out; whether there is more to try.
    pub(crate) fn unblock(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        let waiting = store.queue().map_or(&store.unburied, |queue| &queue.blocked);
        let waiting = waiting.range(store.retry_from..).copied();
        let most = waiting.clone().next().map_or(0, |first| self.removed_singly(key, first));
        let ids: Vec<EventId> = waiting.take(most).collect();
        let mut more = !ids.is_empty() || self.unblock_readers(key);
        let (mut next, by_keys) = (ids.first().copied().unwrap_or(0), self.lays_out_by_keys(key));
        for &id in &ids {
            if self.is_step_long() {
                break;
            }
            if by_keys && !self.is_at_hand(key, id, Task::Unblock(key)) {
                more = false;
                break;
            }
            self.try_again(key, id);
            next = id + 1;
        }
        if let Some(store) = self.store_mut(key) {
            store.retry_from = next;
        }
        more
    }

    fn try_again(&mut self, key: StoreKey, id: EventId) {
        let Some(store) = self.store(key) else { return };
        let Some(entry) = store.log.get(id) else { return };
        if let Hold::Blocked(code) = entry.hold
            && code != Code::Expired
        {
            self.dead_letter_from_queue(key, id, code, RETRIED);
        } else if !self.is_expired(key, id) {
            self.revive(key, id);
        } else if !self.expire_one(key, id) {
            self.keep_expired(key, id);
        }
    }

    /// An event that could not be laid out has its time after all: the settings of its store changed.
    fn revive(&mut self, key: StoreKey, id: EventId) {
        let Some(store) = self.store_mut(key) else { return };
        if store.is_queue() {
            return self.make_ready(key, id, 0);
        }
        store.unburied.remove(&id);
        let leaves = store.show_to_expiry(id);
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
    }

    /// Tries again what readers of a channel owe and could not be dead-lettered; whether a long step ended that.
    fn unblock_readers(&mut self, key: StoreKey) -> bool {
        let Some(channel) = self.store(key).and_then(Store::channel) else { return false };
        let readers: Vec<ReaderKey> = channel.readers.all.iter().copied().collect();
        for reader in readers {
            let blocked: Vec<(EventId, Code)> = self.readers.get(reader).map_or_else(Vec::new, |reader| {
                let code = |(&id, &owed): (&EventId, &Owed)| match owed {
                    Owed::Blocked(code) => Some((id, code)),
                    Owed::Delivered(_) | Owed::Returned(_) => None,
                };
                reader.owed().iter().filter_map(code).collect()
            });
            for (id, code) in blocked {
                if self.is_step_long() {
                    return true;
                }
                self.dead_letter_from_reader(reader, id, code, RETRIED);
            }
        }
        false
    }

    /// Puts an event that time or capacity removes where its store wants it: into its expiry queue, else its dead event
    /// store, unless it is one itself (5.1, QU-6). Where these can't take it the broker's dead-letter queue does. False
    /// if nothing can: then it must stay. What expires again goes to no expiry queue: two of them could be each other's,
    /// and it would never rest (DLQ-5).
    pub(crate) fn lay_out(&mut self, key: StoreKey, event: &StoredEvent, cause: &Cause) -> bool {
        let Some(store) = self.store(key) else { return true };
        let expiry_queue = store.expiry_queue().filter(|_| cause.code == Code::Expired);
        let is_wanted = expiry_queue.is_some() || store.dead_event_store().is_some();
        if !is_wanted || self.is_dead_event_store(store) {
            return true;
        }
        let expiry_queue = expiry_queue.filter(|_| !has_expired_before(event));
        let wanted = [expiry_queue, store.dead_event_store()].into_iter().flatten();
        let names: Vec<String> = wanted.map(str::to_owned).collect();
        let dest = store.name.to_string();
        for name in names {
            let grave = self.named_store(&name).filter(|&grave| grave != key);
            if grave.is_some_and(|grave| self.put_dead(grave, key, event, &dest, cause)) {
                return true;
            }
        }
        let grave = self.dead_letter_queue();
        grave != key && self.put_dead(grave, key, event, &dest, cause)
    }

    /// Whether a store is named as the dead event store of another. The name alone does not say it: a queue may share it
    /// with a channel (ADR-2).
    fn is_dead_event_store(&self, store: &Store) -> bool {
        self.graves.contains_key(&*store.name) && self.named_store(&store.name) == Some(store.key)
    }

    /// Whether events that time removes from a store go to a channel that tells them apart by publish keys: then their
    /// messages are read before. What an arrival evicts can't wait for that.
    pub(crate) fn lays_out_by_keys(&self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        let mut graves = [store.expiry_queue(), store.dead_event_store()].into_iter().flatten();
        graves.any(|name| {
            self.named_store(name).and_then(|key| self.store(key)).is_some_and(Store::has_publish_keys)
        })
    }

    /// A settled message that can't go where its sender wanted goes to the dead-letter queue: its sender has no answer
    /// to look at, and may have forgotten it (RES-10). False if it must not, or can't: refusals for a right, for space
    /// or for a bad topic end the link instead (README U-13).
    pub(crate) fn dead_letter_unresolved(
        &mut self,
        conn: ConnId,
        address: &str,
        message: &Incoming,
        refusal: &Refusal,
    ) -> bool {
        if ends_the_link(refusal.code) {
            return false;
        }
        let (grave, size) = (self.dead_letter_queue(), message.message.len() as u64);
        let Some(store) = self.store(grave) else { return false };
        let mut facts = self.facts(store, &Options::default(), message);
        let durable = store.keeps_on_disk(facts.durable);
        if self.check_size(store, size).is_err() || self.make_room(grave, durable, &[]).is_err() {
            return false;
        }
        self.prove_identity(grave);
        let client = self.conns.get(&conn).map_or("", |conn| conn.client.id.as_str());
        let dead = DeadLetter {
            reason: refusal.code.as_str().to_owned(),
            reason_code: refusal.code.mq_code().unwrap_or(0),
            dest: Address::parse(address, message.to_kind).map_or_else(|_| address.to_owned(), |a| a.name),
            event_id: 0,
            named_object: None,
            address: Some(address.to_owned()),
            component: format!("client:{client}"),
            time: self.now.wall,
            count: 1,
            text: refusal.message.clone(),
            expires: std::mem::take(&mut facts.expires),
        };
        let extra = Extra { dead: Some(Box::new(dead)), ..Extra::default() };
        let body = self.bodies.next_id();
        self.bodies.insert(body, message.message.clone());
        self.store_event(grave, body, &facts, Some(Box::new(extra)));
        true
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
            self.write_body(event.body, true);
        }
        self.record(Record::Arrived { store: key, arrival, event, duplicate }, durable);
        for join in joins {
            self.schedule(Task::Join(join));
        }
    }
}
