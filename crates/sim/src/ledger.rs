//! The naive model: what the durable records say, kept in the simplest way, by code that shares nothing with the engine
//! but the records' types.

use crate::messages::Messages;
use postroad_model::id::{BodyId, EventId, JobKey, JoinKey, ObjectKey, Origin, StoreKey, StoreUid};
use postroad_model::settings::{
    AckPolicy, ChannelSettings, JoinRole, JoinSettings, NamedObjectSettings, QueueSettings, Retention,
    StoreType,
};
use postroad_record::{Owner, Place, Record, Removal, StoreDefinition, StoredEvent, Work};
use std::collections::{BTreeMap, BTreeSet};

/// An event that is stored.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which message it holds.
    pub number: u64,
    /// Who took it first.
    pub origin: Origin,
    /// The event as it was recorded.
    pub stored: StoredEvent,
}

impl Event {
    /// A copy on a dead-letter queue, in a dead event store or in an archive: exempt from "each origin once".
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.stored.extra.as_ref().is_some_and(|e| e.dead.is_some() || e.archived)
    }
}

/// When something happened to a message in a store, by the number of the step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// It was first stored.
    pub stored: u64,
    /// It was first taken to wait for its delivery time; 0 if never.
    pub scheduled: u64,
    /// It was last removed; 0 if never.
    pub removed: u64,
    /// How often it was taken as published here.
    pub published: u32,
}

/// A message that waits for its delivery time.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Which message.
    pub number: u64,
    /// When its time comes.
    pub due: u64,
    /// What it becomes then.
    pub stored: StoredEvent,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Store {
    /// Its name.
    pub name: String,
    /// Kind and settings.
    pub definition: StoreDefinition,
    /// Identities with the first event id under each.
    pub identities: Vec<(EventId, StoreUid)>,
    /// The highest event id recorded.
    pub last: EventId,
    /// What it holds.
    pub events: BTreeMap<EventId, Event>,
    /// What waits for its delivery time, by number.
    pub waiting: BTreeMap<u64, Waiting>,
    /// The highest number recorded.
    pub last_number: u64,
    /// Every origin that it has taken.
    pub origins: BTreeSet<Origin>,
    /// What became of each message here.
    pub fates: BTreeMap<u64, Fate>,
    /// Counted attempts of its events (queues).
    pub attempts: BTreeMap<EventId, (u32, u32)>,
    /// Its definition was changed since it was made.
    pub altered: bool,
    /// The shortest time to live that it had before, in milliseconds; 0 if it had none.
    pub former_ttl: u64,
}

/// A named object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its channel.
    pub store: StoreKey,
    /// Its owner's client id; `None` for a native one.
    pub owner: Option<String>,
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: NamedObjectSettings,
    /// The lowest event that it owes.
    pub low: EventId,
    /// Finished above it.
    pub done: BTreeSet<EventId>,
}

impl Object {
    /// Whether an acknowledgement finishes lower events too (EX-4).
    #[must_use]
    pub fn is_cumulative(&self) -> bool {
        match self.settings.ack_policy {
            Some(policy) => policy == AckPolicy::Cumulative,
            None => self.owner.is_none(),
        }
    }

    /// Whether its own client published an event that it therefore leaves out (AM-10).
    #[must_use]
    pub fn leaves_out(&self, event: &Event) -> bool {
        let publisher = event.stored.extra.as_ref().and_then(|extra| extra.publisher.as_ref());
        self.settings.no_local && self.owner.is_some() && publisher == self.owner.as_ref()
    }

    /// Whether it has finished an event.
    #[must_use]
    pub fn has_finished(&self, id: EventId) -> bool {
        id < self.low || self.done.contains(&id)
    }
}

/// A join.
#[derive(Clone, Debug)]
pub struct Join {
    /// Its name.
    pub name: String,
    /// The source channel.
    pub source: StoreKey,
    /// Its settings.
    pub settings: JoinSettings,
    /// The highest source event settled.
    pub cursor: u64,
    /// Every filter that it has had.
    pub filters: Vec<Option<String>>,
}

/// A purge that goes on.
#[derive(Clone, Debug)]
pub struct Purge {
    /// Of which store.
    pub store: StoreKey,
    /// Its first and last event.
    pub range: (EventId, EventId),
    /// Only what matches.
    pub filter: Option<String>,
}

/// The state that the records make.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Stores that exist.
    pub stores: BTreeMap<StoreKey, Store>,
    /// The store of each identity that was ever given.
    pub of_uid: BTreeMap<StoreUid, StoreKey>,
    /// Names of stores, also of those that are gone.
    pub names: BTreeMap<String, StoreKey>,
    /// Messages by body.
    pub bodies: BTreeMap<BodyId, u64>,
    /// Named objects that exist.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// Joins that exist.
    pub joins: BTreeMap<JoinKey, Join>,
    /// Purges of stores that go on: store, first and last event, filter.
    pub purges: BTreeMap<JobKey, Purge>,
    /// Source and destination of every join there ever was, with the most hops that it ever allowed.
    pub edges: BTreeMap<(StoreKey, String), u8>,
    /// How many joins there ever were from a source to a destination that forward at the same time.
    pub parallel: BTreeMap<(StoreKey, String), u32>,
    /// Dead letters that were ever recorded: destination, event, named object.
    pub dead: BTreeSet<(String, EventId, Option<String>)>,
    /// A number of a body was given to another message, so that the records do not make sense without the checkpoints
    /// between them.
    pub reused: bool,
    /// Bodies of messages whose time has come in a step.
    released: (u64, BTreeSet<BodyId>),
    /// Steps applied.
    pub steps: u64,
}

impl Store {
    /// The queue's settings, if it is one.
    #[must_use]
    pub const fn queue(&self) -> Option<&QueueSettings> {
        match &self.definition {
            StoreDefinition::Queue(settings) => Some(settings),
            StoreDefinition::Channel(_) => None,
        }
    }

    /// The channel's settings, if it is one.
    #[must_use]
    pub const fn channel(&self) -> Option<&ChannelSettings> {
        match &self.definition {
            StoreDefinition::Channel(settings) => Some(settings),
            StoreDefinition::Queue(_) => None,
        }
    }

    /// How it keeps events.
    #[must_use]
    pub fn store_type(&self) -> StoreType {
        self.queue()
            .map_or_else(|| self.channel().map_or(StoreType::Mixed, |c| c.store_type), |q| q.store_type)
    }

    /// Whether it puts a message on disk.
    #[must_use]
    pub fn keeps_on_disk(&self, durable: bool) -> bool {
        match self.store_type() {
            StoreType::Persistent => true,
            StoreType::Mixed => durable,
            StoreType::Reliable | StoreType::Transient => false,
        }
    }

    /// Whether events go when nobody needs them.
    #[must_use]
    pub fn keeps_by_interest(&self) -> bool {
        self.channel()
            .is_some_and(|c| c.retention == Retention::Interest || c.store_type == StoreType::Transient)
    }

    /// Milliseconds that an event stays; 0 for ever.
    #[must_use]
    pub fn ttl(&self) -> u64 {
        self.queue().map_or_else(|| self.channel().map_or(0, |c| c.ttl), |q| q.ttl)
    }

    /// Events held at most, and whether further ones are refused then.
    #[must_use]
    pub fn capacity(&self) -> (u32, bool) {
        match &self.definition {
            StoreDefinition::Queue(q) => (q.capacity, q.honour_capacity),
            StoreDefinition::Channel(c) => (c.capacity, c.honour_capacity),
        }
    }

    /// When an event leaves by time; `None` for never.
    #[must_use]
    pub fn leaves_at(&self, event: &StoredEvent) -> Option<u64> {
        let own = Some(event.expires).filter(|&at| at > 0);
        let store = Some(self.ttl()).filter(|&ms| ms > 0).map(|ms| event.arrived + ms);
        [own, store].into_iter().flatten().min()
    }

    /// Whether this identity was ever its own.
    #[must_use]
    pub fn was(&self, uid: StoreUid) -> bool {
        self.identities.iter().any(|&(_, own)| own == uid)
    }

    /// Whether it has an origin, taken or given.
    #[must_use]
    pub fn has_taken(&self, origin: Origin) -> bool {
        self.was(origin.store) || self.origins.contains(&origin)
    }
}

impl Ledger {
    /// The event that a record stores: its message and its origin.
    ///
    /// # Errors
    /// If its body was never recorded.
    pub fn event(&self, store: &Store, stored: &StoredEvent) -> Result<Event, String> {
        let number = self.bodies.get(&stored.body).copied();
        let number = number.ok_or_else(|| format!("event {} of {} has no body", stored.id, store.name))?;
        let given = stored.extra.as_ref().and_then(|extra| extra.origin);
        let uid = store.identities.iter().rev().find(|(first, _)| *first <= stored.id).map(|&(_, uid)| uid);
        let origin = given.unwrap_or(Origin { store: uid.unwrap_or_default(), event: stored.id });
        Ok(Event { number, origin, stored: stored.clone() })
    }

    /// Applies the records of one step.
    ///
    /// # Errors
    /// What makes no sense in them.
    pub fn apply_step(&mut self, records: &[Record], messages: &Messages) -> Result<(), String> {
        self.steps += 1;
        records.iter().try_for_each(|record| self.apply(record, messages))
    }

    /// Applies one record.
    ///
    /// # Errors
    /// What makes no sense in it.
    pub fn apply(&mut self, record: &Record, messages: &Messages) -> Result<(), String> {
        match record {
            Record::Body { id, annotations, bytes } => {
                let number = messages.read_stored(bytes.clone(), *annotations)?;
                // A body is written again where nothing on disk held it any more. Its number may go to another message
                // then, if a start did not see that it had been given.
                let before = self.bodies.insert(*id, number);
                let holds = |store: &Store| {
                    store.events.values().any(|e| e.stored.body == *id)
                        || store.waiting.values().any(|w| w.stored.body == *id)
                };
                if before.is_some_and(|before| before != number) {
                    if self.stores.values().any(holds) {
                        return Err(format!("body {} is now message {number}", id.0));
                    }
                    self.reused = true;
                }
            }
            Record::Stored { store, event } => self.apply_stored(*store, event)?,
            Record::Scheduled { store, number, due, event } => {
                self.apply_scheduled(*store, *number, *due, event)?;
            }
            Record::Unscheduled { store, numbers, .. } => self.apply_unscheduled(*store, numbers),
            Record::Removed { store, ids, why, .. } => self.apply_removed(*store, ids, *why),
            Record::Attempted { place: Place::Store(store), event, failed, counted } => {
                if let Some(store) = self.stores.get_mut(store) {
                    store.attempts.insert(*event, (*failed, *counted));
                }
            }
            Record::OriginTaken { store, origin, .. } => {
                if let Some(store) = self.stores.get_mut(store) {
                    store.origins.insert(*origin);
                }
            }
            Record::BudgetRaised { store, event, budget, .. } => {
                let found = self.stores.get_mut(store).and_then(|s| s.events.get_mut(event));
                if let Some(extra) = found.and_then(|e| e.stored.extra.as_mut()) {
                    extra.budget = *budget;
                }
            }
            other => self.apply_definition(other),
        }
        Ok(())
    }

    fn apply_stored(&mut self, key: StoreKey, stored: &StoredEvent) -> Result<(), String> {
        let Some(store) = self.stores.get(&key) else { return Err(format!("store {} is unknown", key.0)) };
        let event = self.event(store, stored)?;
        if let Some(dead) = stored.extra.as_ref().and_then(|e| e.dead.as_ref()) {
            self.dead.insert((dead.dest.clone(), dead.event_id, dead.named_object.clone()));
        }
        let (step, waited) = (self.steps, self.has_released(stored.body));
        let Some(store) = self.stores.get_mut(&key) else { return Ok(()) };
        store.last = store.last.max(stored.id);
        let fate = store.fates.entry(event.number).or_default();
        fate.stored = if fate.stored == 0 { step } else { fate.stored };
        let joined = stored.extra.as_ref().is_some_and(|e| e.origin.is_some());
        // What waited was counted when it was taken.
        fate.published += u32::from(!joined && !waited);
        if !event.is_exempt() {
            store.origins.insert(event.origin);
        }
        store.events.insert(stored.id, event);
        Ok(())
    }

    fn apply_scheduled(
        &mut self,
        key: StoreKey,
        number: u64,
        due: u64,
        stored: &StoredEvent,
    ) -> Result<(), String> {
        let message = self.bodies.get(&stored.body).copied();
        let message = message.ok_or_else(|| format!("number {number} of store {} has no body", key.0))?;
        let step = self.steps;
        let Some(store) = self.stores.get_mut(&key) else { return Ok(()) };
        let fate = store.fates.entry(message).or_default();
        fate.scheduled = if fate.scheduled == 0 { step } else { fate.scheduled };
        fate.published += 1;
        store.last_number = store.last_number.max(number);
        store.waiting.insert(number, Waiting { number: message, due, stored: stored.clone() });
        Ok(())
    }

    fn apply_unscheduled(&mut self, key: StoreKey, numbers: &[(u64, u64)]) {
        let step = self.steps;
        let Some(store) = self.stores.get_mut(&key) else { return };
        for &(first, last) in numbers {
            let gone: Vec<u64> = store.waiting.range(first..=last).map(|(&number, _)| number).collect();
            for number in gone {
                let Some(waiting) = store.waiting.remove(&number) else { continue };
                if self.released.0 != step {
                    self.released = (step, BTreeSet::new());
                }
                self.released.1.insert(waiting.stored.body);
            }
        }
    }

    /// Whether a message waits no more since a record of the present step.
    #[must_use]
    pub fn has_released(&self, body: BodyId) -> bool {
        self.released.0 == self.steps && self.released.1.contains(&body)
    }

    fn apply_removed(&mut self, key: StoreKey, ids: &[(EventId, EventId)], _why: Removal) {
        let step = self.steps;
        let Some(store) = self.stores.get_mut(&key) else { return };
        for &(first, last) in ids {
            let gone: Vec<EventId> = store.events.range(first..=last).map(|(&id, _)| id).collect();
            for id in gone {
                let Some(event) = store.events.remove(&id) else { continue };
                store.fates.entry(event.number).or_default().removed = step;
                store.attempts.remove(&id);
            }
        }
    }

    fn apply_definition(&mut self, record: &Record) {
        match record {
            Record::StoreCreated { store, uid, name, definition, .. } => {
                self.create_store(*store, *uid, name, definition);
            }
            Record::StoreAltered { store, definition, .. } => {
                if let Some(store) = self.stores.get_mut(store) {
                    let ttls = [store.former_ttl, store.ttl()].into_iter().filter(|&ttl| ttl > 0);
                    store.former_ttl = ttls.min().unwrap_or(0);
                    store.definition = definition.clone();
                    store.altered = true;
                }
            }
            Record::StoreDeleted { store } | Record::JobStarted { work: Work::Delete { store }, .. } => {
                self.stores.remove(store);
                self.objects.retain(|_, object| object.store != *store);
            }
            Record::JobStarted { job, work: Work::Purge { store, from, to, filter, .. } } => {
                let purge = Purge { store: *store, range: (*from, *to), filter: filter.clone() };
                self.purges.insert(*job, purge);
            }
            Record::JobEnded { job } => drop(self.purges.remove(job)),
            Record::StoreUidRenewed { store: key, uid, from } => {
                self.of_uid.insert(*uid, *key);
                if let Some(store) = self.stores.get_mut(key) {
                    store.identities.push((*from, *uid));
                }
            }
            Record::JoinCreated { join, name, source, settings, cursor, .. } => {
                self.draw_edge(*source, settings);
                let way = (*source, settings.destination.clone());
                // The one standby of a join on the same way takes turns with it; a second one goes beside the first.
                let mut others =
                    self.joins.values().filter(|j| (j.source, &j.settings.destination) == (way.0, &way.1));
                let takes_turns = settings.role == JoinRole::Standby
                    && others.clone().all(|other| other.settings.role == JoinRole::Active)
                    && others.any(|other| Some(&other.name) == settings.standby_for.as_ref());
                *self.parallel.entry(way).or_default() += u32::from(!takes_turns);
                let filters = vec![settings.filter.clone()];
                let (name, settings) = (name.clone(), settings.clone());
                self.joins.insert(*join, Join { name, source: *source, settings, cursor: *cursor, filters });
            }
            Record::JoinAltered { join, settings, .. } => {
                if let Some(join) = self.joins.get_mut(join) {
                    join.settings = settings.clone();
                    join.filters.push(settings.filter.clone());
                    let source = join.source;
                    self.draw_edge(source, settings);
                }
            }
            Record::JoinDeleted { join } => self.delete_join(*join),
            Record::JoinMoved { join, cursor } => {
                if let Some(join) = self.joins.get_mut(join) {
                    join.cursor = join.cursor.max(*cursor);
                }
            }
            other => self.apply_object(other),
        }
    }

    fn create_store(&mut self, key: StoreKey, uid: StoreUid, name: &str, definition: &StoreDefinition) {
        let first = match definition {
            StoreDefinition::Queue(settings) => settings.first_event_id,
            StoreDefinition::Channel(settings) => settings.first_event_id,
        };
        self.of_uid.insert(uid, key);
        self.names.insert(name.to_owned(), key);
        let store = Store {
            name: name.to_owned(),
            definition: definition.clone(),
            identities: vec![(first.max(1), uid)],
            last: first.max(1) - 1,
            events: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_number: 0,
            origins: BTreeSet::new(),
            fates: BTreeMap::new(),
            attempts: BTreeMap::new(),
            altered: false,
            former_ttl: 0,
        };
        self.stores.insert(key, store);
    }

    fn draw_edge(&mut self, source: StoreKey, settings: &JoinSettings) {
        let hops = self.edges.entry((source, settings.destination.clone())).or_default();
        *hops = (*hops).max(settings.max_hops);
    }

    fn apply_object(&mut self, record: &Record) {
        match record {
            Record::ObjectCreated { object, store, owner, name, settings, low, .. } => {
                let owner = match owner {
                    Owner::Native => None,
                    Owner::Client(id) => Some(id.clone()),
                };
                let made = Object {
                    store: *store,
                    owner,
                    name: name.clone(),
                    settings: settings.clone(),
                    low: *low,
                    done: BTreeSet::new(),
                };
                self.objects.insert(*object, made);
            }
            Record::ObjectAltered { object, settings } => {
                if let Some(object) = self.objects.get_mut(object) {
                    object.settings = settings.clone();
                }
            }
            Record::ObjectDeleted { object } => drop(self.objects.remove(object)),
            Record::ObjectMoved { object, low, done } => {
                if let Some(object) = self.objects.get_mut(object) {
                    object.low = object.low.max(*low);
                    for &(first, last) in done {
                        object.done.extend(first..=last);
                    }
                    object.done = object.done.split_off(&object.low);
                }
            }
            _ => {}
        }
    }

    /// A join goes; its standbys begin where it stopped, and are past what it let through and kept back.
    fn delete_join(&mut self, key: JoinKey) {
        let Some(gone) = self.joins.remove(&key) else { return };
        let heirs = self.joins.values_mut();
        for heir in heirs.filter(|join| join.settings.standby_for.as_ref() == Some(&gone.name)) {
            heir.cursor = heir.cursor.max(gone.cursor);
            heir.filters.extend(gone.filters.iter().cloned());
        }
    }

    /// The join that a standby stands in for, if it exists.
    #[must_use]
    pub fn primary_of(&self, join: &Join) -> Option<&Join> {
        let name = join.settings.standby_for.as_ref()?;
        self.joins.values().find(|primary| primary.name == *name)
    }

    /// The store of this name that exists.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Store> {
        self.stores.get(self.names.get(name)?)
    }

    /// The named object that exists under this owner and name on this channel.
    #[must_use]
    pub fn object(&self, channel: &str, owner: Option<&str>, name: &str) -> Option<&Object> {
        let store = self.names.get(channel)?;
        self.objects.values().find(|o| o.store == *store && o.owner.as_deref() == owner && o.name == name)
    }
}
