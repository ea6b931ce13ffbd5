//! Publishing: a client's message becomes an event of one store, or is refused (DUP-2, FWD-1, 5.1).

use crate::command::{ConnId, LinkNo, ProducerKey, ProducerTarget};
use crate::effect::{Effect, Publication, Resolved, Step};
use crate::engine::{Engine, Task};
use crate::queue::Queue;
use crate::resolve::Intent;
use crate::store::Store;
use crate::temporary::Maker;
use postroad_model::address::{Address, Options};
use postroad_model::id::{BodyId, EventId, StoreKey, WallMs};
use postroad_model::message::Incoming;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::PublisherDedupe;
use postroad_record::{Extra, Place, Record, Removal, StoredEvent};
use std::sync::Arc;

/// Deliveries that a producer may have unanswered: its link credit.
const PRODUCER_WINDOW: u64 = 2_048;
/// The same, while consumers make up for what waits.
const SLOW_WINDOW: u64 = 256;
/// Ids that one durable reservation covers (DESIGN 7.4).
const RESERVED_IDS: u64 = 65_536;

/// An attached producer.
#[derive(Debug)]
pub(crate) struct Producer {
    key: ProducerKey,
    conn: ConnId,
    link: LinkNo,
    /// The store; `None` for an anonymous producer.
    store: Option<StoreKey>,
    /// Header overrides of its address (ADR-8).
    options: Options,
    received: u64,
    granted: u64,
}

impl Producer {
    /// The store that it sends to; `None` for an anonymous producer.
    pub(crate) const fn store(&self) -> Option<StoreKey> {
        self.store
    }
}

/// What an event is, besides its message and its place.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) durable: bool,
    pub(crate) priority: u8,
    pub(crate) expires: WallMs,
    /// It was on disk where it comes from, and is not to leave it, whatever its sender said.
    pub(crate) stays_on_disk: bool,
}

impl Facts {
    /// The facts of an event that goes on to another store.
    pub(crate) const fn of(event: &StoredEvent) -> Self {
        Self {
            durable: event.durable,
            priority: event.priority,
            expires: event.expires,
            stays_on_disk: false,
        }
    }
}

impl Engine {
    pub(crate) fn open_producer(&mut self, conn: ConnId, link: LinkNo, target: &ProducerTarget) {
        let (store, options) = match self.producer_store(conn, target) {
            Ok(found) => found,
            Err(refusal) => return self.refuse_link(conn, link, refusal),
        };
        let short = self.bodies.resident() > self.settings.memory;
        let granted = if short { 0 } else { PRODUCER_WINDOW };
        let producer =
            self.producers.insert(|key| Producer { key, conn, link, store, options, received: 0, granted });
        let Some(state) = self.conns.get_mut(&conn) else {
            self.producers.remove(producer);
            return;
        };
        state.producers.insert(producer);
        if let Some(store) = store.and_then(|store| self.store_mut(store)) {
            store.producers.insert(producer);
        }
        if let (ProducerTarget::Temporary(_), Some(store)) = (target, store) {
            self.made_by(store, Maker::Producer(producer));
        }
        if short {
            self.starved.insert(producer);
        }
        let resolved = store.map(|store| self.resolved(store));
        // A store that was made for it must be on disk before the client learns of it.
        let after = self.step_under_way();
        let credit = granted;
        self.emit(after, Effect::ProducerOpened { conn, link, producer, resolved, credit });
    }

    fn producer_store(
        &mut self,
        conn: ConnId,
        target: &ProducerTarget,
    ) -> Result<(Option<StoreKey>, Options), Refusal> {
        match target {
            ProducerTarget::PerMessage => Ok((None, Options::default())),
            ProducerTarget::Temporary(lifetime) => {
                Ok((self.create_temporary(conn, *lifetime), Options::default()))
            }
            ProducerTarget::Address(address) if address.object.is_some() => {
                let text = format!("'{address}' is a named object: publish to its channel");
                Err(Refusal::new(Code::ObjectNotAllowedHere, address.name.clone(), text))
            }
            ProducerTarget::Address(address) => {
                Ok((Some(self.resolve(address, Intent::Put)?), address.options.clone()))
            }
        }
    }

    /// What a link is told of the store it is attached to.
    pub(crate) fn resolved(&self, store: StoreKey) -> Resolved {
        let max_message_size = self.store(store).map_or(0, |s| self.size_limit(s));
        let is_queue = self.store(store).is_some_and(Store::is_queue);
        Resolved { address: self.address_of(store), is_queue, max_message_size }
    }

    pub(crate) fn close_producer(&mut self, key: ProducerKey) {
        if let Some(producer) = self.close_producer_quietly(key) {
            self.emit(Step(0), Effect::LinkClosed { conn: producer.conn, link: producer.link });
            if let Some(store) = producer.store {
                self.link_left(store, Maker::Producer(key));
            }
        }
    }

    /// Forgets a producer.
    pub(crate) fn close_producer_quietly(&mut self, key: ProducerKey) -> Option<Producer> {
        let producer = self.producers.remove(key)?;
        if let Some(conn) = self.conns.get_mut(&producer.conn) {
            conn.producers.remove(&key);
        }
        if let Some(store) = producer.store.and_then(|store| self.store_mut(store)) {
            store.producers.remove(&key);
        }
        Some(producer)
    }

    /// The producers attached to a store, with their links.
    pub(crate) fn producers_of(&self, store: StoreKey) -> Vec<(ProducerKey, ConnId, LinkNo)> {
        let keys = self.store(store).into_iter().flat_map(|store| &store.producers);
        let producers = keys.filter_map(|key| self.producers.get(*key));
        producers.map(|p| (p.key, p.conn, p.link)).collect()
    }

    /// Takes a message from a producer.
    pub(crate) fn publish(&mut self, key: ProducerKey, tag: u64, message: Incoming, settled: bool) {
        let Some(producer) = self.producers.get_mut(key) else { return };
        producer.received += 1;
        let (conn, link) = (producer.conn, producer.link);
        let (store, options) = (producer.store, producer.options.clone());
        let spare = (settled && self.may_not_arrive(store, &message)).then(|| message.clone());
        let outcome = self.publish_to(conn, store, options, message);
        let outcome = match (outcome, spare) {
            (Err(refusal), Some(message)) if self.keep_unresolved(conn, store, &message, &refusal) => {
                Ok(Step(0))
            }
            (outcome, _) => outcome,
        };
        // The outcome waits for what it promises; a refusal for nothing.
        let after = outcome.as_ref().map_or(Step(0), |promised| self.step_under_way().max(*promised));
        match outcome {
            Ok(_) if settled => {}
            Ok(_) => self.emit_accepted(after, conn, link, tag),
            // The sender has no answer to look at: only the link's end can tell it (README U-13).
            Err(refusal) if settled => self.emit(Step(0), Effect::DetachLink { conn, link, refusal }),
            Err(refusal) => {
                let outcome = Publication::Refused(Arc::new(refusal));
                self.emit(Step(0), Effect::Published { conn, link, first: tag, last: tag, outcome });
            }
        }
        if let Some(store) = store {
            self.note_arrival(store);
        }
        self.replenish(key, after);
    }

    /// Keeps a settled message that can't go where its sender wanted; whether it is kept (RES-10).
    fn keep_unresolved(
        &mut self,
        conn: ConnId,
        store: Option<StoreKey>,
        message: &Incoming,
        refusal: &Refusal,
    ) -> bool {
        let address = match store {
            Some(store) => self.address_of(store),
            None => message.to.clone().unwrap_or_default(),
        };
        self.dead_letter_unresolved(conn, &address, message, refusal)
    }

    /// Whether a message's own address, or its size, may be a reason to refuse it.
    fn may_not_arrive(&self, store: Option<StoreKey>, message: &Incoming) -> bool {
        let size = message.message.len() as u64;
        store.and_then(|store| self.store(store)).is_none_or(|store| self.check_size(store, size).is_err())
    }

    /// Gives a producer credit again, once what it sent is safe: that is the back-pressure.
    pub(crate) fn replenish(&mut self, key: ProducerKey, after: Step) {
        let store = self.producers.get(key).and_then(|producer| producer.store);
        if store.is_some_and(|store| self.is_backpressured(store) || self.is_behind(store)) {
            return;
        }
        let slow = store.is_some_and(|store| self.is_catching_up(store));
        let short = self.bodies.resident() > self.settings.memory;
        let Some(producer) = self.producers.get_mut(key) else { return };
        if short {
            // What it was given and has not used is taken back: its size is not known.
            if producer.granted > producer.received {
                producer.granted = producer.received;
                let (conn, link, limit) = (producer.conn, producer.link, producer.received);
                self.emit(Step(0), Effect::ProducerCredit { conn, link, limit });
            }
            self.starved.insert(key);
            return;
        }
        let window = if slow { SLOW_WINDOW } else { PRODUCER_WINDOW };
        let limit = producer.received + window;
        if limit.saturating_sub(producer.granted) < window / 2 {
            return;
        }
        producer.granted = limit;
        let effect = Effect::ProducerCredit { conn: producer.conn, link: producer.link, limit };
        self.emit(after, effect);
    }

    /// Gives the producers that memory held up their credit again, once consumers have made some room.
    pub(crate) fn feed_starved(&mut self) {
        let memory = self.settings.memory;
        if self.starved.is_empty() || self.bodies.resident() > memory - memory / 8 {
            return;
        }
        for producer in std::mem::take(&mut self.starved) {
            self.replenish(producer, Step(0));
        }
    }

    /// Publishes, and says for which earlier step the answer must wait besides the one under way.
    fn publish_to(
        &mut self,
        conn: ConnId,
        store: Option<StoreKey>,
        options: Options,
        message: Incoming,
    ) -> Result<Step, Refusal> {
        let (key, options) = match store {
            Some(key) => (key, options),
            None => {
                let address = relay_address(&message)?;
                (self.resolve(&address, Intent::Put)?, address.options)
            }
        };
        let outcome = self.publish_into(conn, key, &options, message);
        if outcome.is_err() {
            self.count(key, |c| c.refused_total += 1);
        }
        outcome
    }

    fn publish_into(
        &mut self,
        conn: ConnId,
        key: StoreKey,
        options: &Options,
        message: Incoming,
    ) -> Result<Step, Refusal> {
        let Some(store) = self.store(key) else {
            let text = "the queue or channel was deleted: attach again";
            return Err(Refusal::new(Code::Deleted, String::new(), text));
        };
        self.check_size(store, message.message.len() as u64)?;
        self.check_memory(store)?;
        let facts = self.facts(store, options, &message);
        if let Some(first) = self.repeats(store, &message) {
            if first > 0 {
                self.check_repeated_arrival(store, facts.durable)?;
            }
            return Ok(self.take_repeated(key, first, &facts, message));
        }
        let later = self.due_later(&message);
        if later.is_some() {
            self.check_schedule(store)?;
        }
        let values = match later {
            // It replaces something when it is due, and takes room until then.
            Some(_) => Vec::new(),
            None => {
                let event = self.event(store.next_id, BodyId(0), &facts, None);
                self.values_for_room(store, Some(&message.message), &event)
            }
        };
        self.make_room(key, store.keeps_on_disk(facts.durable), &values)?;
        if let Some(due) = later {
            self.take_for_later(conn, key, due, &facts, message);
            return Ok(Step(0));
        }
        let Some(store) = self.store(key) else { return Ok(Step(0)) };
        if !self.is_needed(store) {
            // Nobody waits for it (RET-2): accepted, not stored.
            return Ok(Step(0));
        }
        // Only where a reader leaves out what its own client published (AM-10).
        let named = store.channel().is_some_and(|channel| channel.readers.no_local > 0);
        let extra = self.publish_extra(conn, store, &message, named);
        self.prove_identity(key);
        let body = self.bodies.next_id();
        self.bodies.insert(body, message.message);
        self.store_event(key, body, &facts, extra);
        Ok(Step(0))
    }

    pub(crate) fn facts(&self, store: &Store, options: &Options, message: &Incoming) -> Facts {
        let ttl = options.expiry_ms.or(message.ttl_ms.map(u64::from));
        let by_ttl = ttl.filter(|&ms| ms > 0).map(|ms| self.now.wall.saturating_add(ms));
        let by_sender = [by_ttl, message.absolute_expiry.filter(|&at| at > 0)].into_iter().flatten().min();
        let asked = by_sender.unwrap_or(0);
        let expires = store.queue().map_or(asked, |q| q.settings.expires_at(self.now.wall, asked));
        Facts {
            durable: options.durable.unwrap_or(message.durable),
            priority: options.priority.unwrap_or(message.priority).min(9),
            expires,
            stays_on_disk: false,
        }
    }

    /// The event that this message repeats, if the store recognises repeated message-ids (DUP-11).
    fn repeats(&self, store: &Store, message: &Incoming) -> Option<EventId> {
        if store.publisher_dedupe() != PublisherDedupe::MessageId {
            return None;
        }
        let id = message.message_id.as_deref()?;
        store.message_ids.find(id, self.now.wall, store.publisher_dedupe_window())
    }

    /// A repeated publish is accepted and not stored; the store's archives record it (ARC-3, ARC-5). The answer must
    /// not overtake the first one, which may still be on its way to the disk.
    fn take_repeated(&mut self, key: StoreKey, first: EventId, facts: &Facts, message: Incoming) -> Step {
        self.count(key, |c| c.deduplicated_total += 1);
        // What it repeats may wait for its time: then nothing has arrived yet that it could be a second arrival of.
        if first > 0 && self.has_archive(key) {
            let body = self.bodies.next_id();
            self.bodies.insert(body, message.message);
            let event = self.event(first, body, facts, None);
            self.record_arrival(key, event, true);
        }
        self.store(key).map_or(Step(0), |store| store.last_after)
    }

    /// What only some publishes carry; `named` says that the client is to be known.
    pub(crate) fn publish_extra(
        &self,
        conn: ConnId,
        store: &Store,
        message: &Incoming,
        named: bool,
    ) -> Option<Box<Extra>> {
        let dedupes = store.publisher_dedupe() == PublisherDedupe::MessageId;
        let message_id = message.message_id.as_ref().filter(|_| dedupes).cloned();
        let publisher = named.then(|| self.conns.get(&conn)).flatten();
        if message_id.is_none() && publisher.is_none() {
            return None;
        }
        let publisher = publisher.map(|conn| conn.client.id.clone());
        Some(Box::new(Extra { message_id, publisher, ..Extra::default() }))
    }

    /// Whether anybody can ever want an event of this store.
    pub(crate) fn is_needed(&self, store: &Store) -> bool {
        store.channel().is_none_or(|channel| {
            !channel.keeps_by_interest()
                || !channel.readers.all.is_empty()
                || !store.joins_out.is_empty()
                || !store.archives_out.is_empty()
        })
    }

    /// Stores an event under the next id, and wakes whoever reads the store. The message must be among the bodies.
    pub(crate) fn store_event(
        &mut self,
        key: StoreKey,
        body: BodyId,
        facts: &Facts,
        extra: Option<Box<Extra>>,
    ) -> EventId {
        let Some(store) = self.store(key) else { return 0 };
        let id = store.next_id;
        let durable = store.keeps_on_disk(facts.durable || facts.stays_on_disk);
        let numbered_in_memory = !durable && store.owner.is_none() && id >= store.reserved_below;
        if numbered_in_memory {
            self.record(Record::IdsReserved { store: key, below: id + RESERVED_IDS }, true);
            let step = self.step_under_way();
            if let Some(store) = self.store_mut(key) {
                store.last_after = store.last_after.max(step);
            }
        }
        if durable {
            let in_queue = self.store(key).is_some_and(Store::is_queue);
            self.write_body(body, in_queue);
            self.mark_ahead(key, id);
        }
        let event = self.event(id, body, facts, extra);
        let leaves = self.store(key).map_or(0, |store| store.leaves_at(&event));
        let arrival = self.has_archive(key).then(|| event.clone());
        let values = self.publish_key_values(key, &event);
        let replaced = self.store(key).map_or_else(Vec::new, |store| store.replaced_by(&values));
        if !values.is_empty() {
            self.record(Record::Keyed { store: key, event: id, values }, durable);
        }
        self.record(Record::Stored { store: key, event }, durable);
        if let Some(event) = arrival {
            self.record_arrival(key, event, false);
        }
        if !replaced.is_empty() {
            self.take_out(key, &replaced, Removal::Replaced);
        }
        if leaves != 0 {
            self.watch_expiry(key, leaves);
        }
        let is_queue = self.store(key).is_some_and(Store::is_queue);
        self.schedule(if is_queue { Task::Dispatch(key) } else { Task::FanOut(key) });
        id
    }

    /// The event that a message becomes.
    pub(crate) fn event(
        &self,
        id: EventId,
        body: BodyId,
        facts: &Facts,
        extra: Option<Box<Extra>>,
    ) -> StoredEvent {
        StoredEvent {
            id,
            body,
            arrived: self.now.wall,
            expires: facts.expires,
            priority: facts.priority,
            durable: facts.durable,
            extra,
        }
    }

    /// Writes the bytes of a message into the step under way, once. `in_queue` says that a queue takes it.
    pub(crate) fn write_body(&mut self, body: BodyId, in_queue: bool) {
        if self.bodies.on_disk(body) {
            return;
        }
        if let Some((step, at)) = self.encode_body(body) {
            self.bodies.write(body, step, at, in_queue);
        }
    }

    /// Moves the sent mark of a queue ahead in a step that is synced anyway (DESIGN 7.4). With a backlog the message
    /// is not sent now, and the delivery marks it.
    fn mark_ahead(&mut self, key: StoreKey, id: EventId) {
        let Some(store) = self.store(key) else { return };
        if id <= store.sent_up_to {
            return;
        }
        let ahead = store.queue().filter(|queue| queue.ready.is_empty()).map_or(0, Queue::window);
        if ahead > 0 {
            let up_to = id + ahead.min(1_024) - 1;
            self.record(Record::Sent { place: Place::Store(key), up_to }, true);
        }
    }

    /// Gives the store a new identity where the last start does not prove the old one (DUP-3).
    pub(crate) fn prove_identity(&mut self, key: StoreKey) {
        if self.store(key).is_some_and(|store| !store.identity_proved) {
            let (uid, from) = (self.new_uid(), self.store(key).map_or(0, |store| store.next_id));
            self.record(Record::StoreUidRenewed { store: key, uid, from }, true);
        }
    }

    /// The largest message that a store takes, in bytes.
    pub(crate) fn size_limit(&self, store: &Store) -> u64 {
        match store.max_message_size() {
            0 => self.settings.max_message_size,
            own => own.min(self.settings.max_message_size),
        }
    }

    /// Refuses what comes although the credit was taken back, once that is too much.
    fn check_memory(&self, store: &Store) -> Result<(), Refusal> {
        let (held, memory) = (self.bodies.resident(), self.settings.memory);
        if held <= memory.saturating_add(memory / 4) {
            return Ok(());
        }
        let text = format!(
            "the broker holds messages of {held} bytes, more than its memory of {memory}: send again when consumers \
             have taken some"
        );
        Err(Refusal::new(Code::LimitReached, store.name.to_string(), text))
    }

    /// Refuses a message above the limit.
    pub(crate) fn check_size(&self, store: &Store, size: u64) -> Result<(), Refusal> {
        let limit = self.size_limit(store);
        if size <= limit {
            return Ok(());
        }
        let text = format!("the message has {size} bytes, '{}' takes at most {limit}", store.name);
        Err(Refusal::new(Code::MsgTooBig, store.name.to_string(), text))
    }
}

/// The address that a message of an anonymous producer names.
fn relay_address(message: &Incoming) -> Result<Address, Refusal> {
    let Some(to) = message.to.as_deref() else {
        let text = "an anonymous producer must name an address in the message's 'to' property";
        return Err(Refusal::new(Code::BadAddress, String::new(), text));
    };
    let address = Address::parse(to, message.to_kind)?;
    if address.object.is_some() {
        let text = format!("'{address}' is a named object: publish to its channel");
        return Err(Refusal::new(Code::ObjectNotAllowedHere, address.name, text));
    }
    Ok(address)
}
