//! Named objects: broker-side memory of where a subscriber is (named-objects 3.1, 3.3). Exclusive ones.

use crate::admin::{ConsumerView, ObjectView};
use crate::command::{ConnId, LinkNo, TakerKey};
use crate::effect::{Effect, Step};
use crate::engine::{Engine, Task};
use crate::ranges::push_id;
use crate::reader::{Owed, Position, ReaderKey, Who};
use crate::store::Store;
use crate::tally::Tally;
use postroad_model::id::{EventId, ObjectKey, StoreKey};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{AckPolicy, NamedObjectSettings, Start};
use postroad_record::{IdRange, MadeBy, Owner, Record};
use std::fmt::Write as _;

/// A named object.
#[derive(Debug)]
pub(crate) struct Object {
    /// Its number.
    pub key: ObjectKey,
    /// Its channel.
    pub store: StoreKey,
    /// Who owns it.
    pub owner: Owner,
    /// Its name in its owner's space.
    pub name: String,
    /// Its settings.
    pub settings: NamedObjectSettings,
    /// The first event that it was to have when it was created.
    pub begin: EventId,
    /// The lowest event still owed, as it is on disk.
    pub low: EventId,
    /// Who made it.
    pub made_by: MadeBy,
    /// Owed events that were removed before they were delivered (RET-6).
    pub skipped: u64,
    /// Skipped events that the consumer has not been told of.
    pub skipped_untold: u64,
    /// Deliveries up to this id may have been sent.
    pub sent_up_to: EventId,
    /// The step of that mark: what it covers leaves when it is durable.
    pub marked: Step,
    /// The mark as the last run left it.
    pub sent_before_start: EventId,
    /// Its position.
    pub reader: ReaderKey,
    /// Since when it waits for a consumer before it expires, monotonic milliseconds (AM-6).
    pub unused_since: Option<u64>,
    /// Events dead-lettered since the start.
    pub dead_lettered: u64,
    /// Deliveries sent again since the start.
    pub redelivered: u64,
    /// What it owes of pages that it has not come to, as far as that was counted.
    pub tally: Tally,
}

/// What makes a named object one of a kind (NO-7): native names are unique on a channel, a client's in the client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    /// The channel of a native object.
    pub store: Option<StoreKey>,
    /// Who owns it.
    pub owner: Owner,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// The identity of an object.
    #[must_use]
    pub(crate) fn new(store: StoreKey, owner: &Owner, name: &str) -> Self {
        let store = matches!(owner, Owner::Native).then_some(store);
        Self { store, owner: owner.clone(), name: name.to_owned() }
    }
}

impl Object {
    /// A new object.
    #[allow(clippy::too_many_arguments)] // the fields of its record, in their order
    #[must_use]
    pub(crate) const fn new(
        key: ObjectKey,
        store: StoreKey,
        owner: Owner,
        name: String,
        settings: NamedObjectSettings,
        low: EventId,
        made_by: MadeBy,
        reader: ReaderKey,
    ) -> Self {
        Self {
            key,
            store,
            owner,
            name,
            settings,
            begin: low,
            low,
            made_by,
            skipped: 0,
            skipped_untold: 0,
            sent_up_to: 0,
            marked: Step(0),
            sent_before_start: 0,
            reader,
            unused_since: None,
            dead_lettered: 0,
            redelivered: 0,
            tally: Tally::new(),
        }
    }

    /// Whether attempts count as failed on disk before they are made (AK-10).
    #[must_use]
    pub(crate) const fn counts_ahead(&self) -> bool {
        self.settings.persistent && self.settings.redelivery.persist_count_before_delivery
    }

    /// What one acknowledgement finishes (EX-4).
    #[must_use]
    pub(crate) fn ack_policy(&self) -> AckPolicy {
        self.settings.ack_policy.unwrap_or(match self.owner {
            Owner::Native => AckPolicy::Cumulative,
            Owner::Client(_) => AckPolicy::Individual,
        })
    }

    /// `owner/name` with separators and control characters percent-encoded (NO-7).
    #[must_use]
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", encode(&self.owner_text()), encode(&self.name))
    }

    /// `native` or `client:ID`.
    #[must_use]
    pub(crate) fn owner_text(&self) -> String {
        match &self.owner {
            Owner::Native => "native".into(),
            Owner::Client(id) => format!("client:{id}"),
        }
    }
}

fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '/' || c == '%' || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Invariant: writing to a String can't fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

impl Engine {
    pub(crate) fn insert_object(&mut self, object: Object) {
        self.next_object = self.next_object.max(object.key.0 + 1);
        let no_local = self.readers.get(object.reader).is_some_and(|reader| reader.no_local.is_some());
        if let Some(channel) = self.store_mut(object.store).and_then(|s| s.channel_mut()) {
            channel.readers.all.insert(object.reader);
            channel.readers.no_local += usize::from(no_local);
        }
        let name = ObjectName::new(object.store, &object.owner, &object.name);
        self.object_names.insert(name, object.key);
        let (key, reader) = (object.key, object.reader);
        self.objects.insert(key, object);
        if !self.replaying {
            self.list_need(reader);
        }
    }

    pub(crate) fn drop_object(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.remove(&key) else { return };
        self.jobs.retain(|_, job| job.object() != Some(key));
        self.object_names.remove(&ObjectName::new(object.store, &object.owner, &object.name));
        self.drop_reader(object.reader);
    }

    /// Takes a reader out of its channel.
    pub(crate) fn drop_reader(&mut self, key: ReaderKey) {
        self.leave_tail(key);
        let Some(reader) = self.readers.remove(key) else { return };
        self.freed_annotated(reader.annotated.bytes());
        let Some(channel) = self.store_mut(reader.store).and_then(|s| s.channel_mut()) else { return };
        if channel.readers.all.remove(&key) {
            channel.readers.no_local -= usize::from(reader.no_local.is_some());
        }
        channel.readers.list(key, reader.listed, None, matches!(reader.who, Who::Join(_)));
        if channel.keeps_by_interest() {
            self.schedule(Task::Trim(reader.store));
        }
    }

    /// The object with this identity.
    pub(crate) fn find_object(&self, store: StoreKey, owner: &Owner, name: &str) -> Option<ObjectKey> {
        self.object_names.get(&ObjectName::new(store, owner, name)).copied()
    }

    /// Creates a named object that does not exist yet.
    pub(crate) fn create_object(
        &mut self,
        store: StoreKey,
        owner: Owner,
        name: &str,
        settings: NamedObjectSettings,
        made_by: MadeBy,
    ) -> Option<ObjectKey> {
        let channel = self.store(store)?;
        let low = match settings.start_event_id {
            Start::New => channel.next_id,
            Start::Oldest => channel.log.first().map_or(channel.next_id, |e| e.event.id),
            Start::At(id) => id.max(1),
        };
        let object = ObjectKey(self.next_object);
        let durable = settings.persistent;
        let name = name.to_owned();
        self.record(Record::ObjectCreated { object, store, owner, name, settings, low, made_by }, durable);
        // Without a consumer it moves past what it does not want, so that it does not hold it (EX-6).
        let reader = self.objects.get(&object)?.reader;
        self.schedule(Task::Feed(reader));
        Some(object)
    }

    /// Finishes deliveries for a reader; what that finishes for a named object becomes durable.
    pub(crate) fn finish_for_reader(&mut self, key: ReaderKey, closed: &[(u64, EventId)]) {
        let Some(reader) = self.readers.get(key) else { return };
        let Who::Object(object) = reader.who else {
            if let Some(reader) = self.readers.get_mut(key) {
                let mut freed = 0;
                for (_, id) in closed {
                    reader.forgive(*id);
                    reader.attempts.remove(id);
                    freed += reader.annotated.forget(*id);
                }
                self.freed_annotated(freed);
            }
            self.list_need(key);
            return;
        };
        let cumulative = self.objects.get(&object).map(Object::ack_policy) == Some(AckPolicy::Cumulative);
        let finished = self.take_finished(key, closed, cumulative);
        self.move_object(object, key, &finished);
    }

    /// Takes what an acknowledgement finishes out of what the reader owes, ascending.
    fn take_finished(&mut self, key: ReaderKey, closed: &[(u64, EventId)], cumulative: bool) -> Vec<EventId> {
        let Some(reader) = self.readers.get_mut(key) else { return Vec::new() };
        let mut finished: Vec<EventId> = closed.iter().map(|&(_, id)| id).collect();
        // Cumulative: everything at or below it, but nothing that came back since and is out again (EX-4).
        let upper = closed.iter().copied().filter(|&(tag, _)| tag != u64::MAX).max_by_key(|&(_, id)| id);
        if let (true, Some((tag, upper))) = (cumulative, upper) {
            let lower = reader.owed().range(..=upper);
            finished.extend(
                lower.filter(|(_, o)| matches!(o, Owed::Delivered(t) if *t <= tag)).map(|(&id, _)| id),
            );
            let passed: Vec<IdRange> = reader.passed.iter().filter(|&(first, _)| first <= upper).collect();
            for (first, last) in passed {
                finished.extend(first..=last.min(upper));
            }
            reader.passed.trim_below(upper + 1);
        }
        finished.sort_unstable();
        finished.dedup();
        for &id in &finished {
            reader.forgive(id);
        }
        finished
    }

    /// Records the new position of an object after `finished` events, ascending.
    pub(crate) fn move_object(&mut self, object: ObjectKey, key: ReaderKey, finished: &[EventId]) {
        let Some(reader) = self.readers.get(key) else { return };
        let Some(store) = self.store(reader.store) else { return };
        let offered = store.channel().map_or(0, |c| c.offered);
        let low = reader.lowest_need().unwrap_or(offered + 1);
        let mut done: Vec<IdRange> = Vec::new();
        for &id in finished.iter().filter(|&&id| id >= low) {
            push_id(&mut done, id);
        }
        // What is gone may come back with a crash that takes back its removal.
        let on_disk = |id: &EventId| store.log.get(*id).map_or(*id < store.durable_next, |e| e.on_disk);
        let Some(state) = self.objects.get(&object) else { return };
        let (persistent, before) = (state.settings.persistent, state.low);
        // What expired is passed without being finished, and is on disk until it is removed.
        let passes_some = || {
            let mut at = before;
            while let Some(entry) = store.log.first_from(at).filter(|entry| entry.event.id < low) {
                if entry.on_disk {
                    return true;
                }
                at = entry.event.id + 1;
            }
            false
        };
        let durable = persistent && (finished.iter().any(on_disk) || passes_some());
        self.record(Record::ObjectMoved { object, low, done }, durable);
        self.list_need(key);
    }

    /// Events, ascending, leave the channel by time or capacity before these objects were done with them (RET-6). What an
    /// object misses of them is one record: thousands of objects may be behind.
    pub(crate) fn note_skipped(&mut self, store: StoreKey, ids: &[EventId]) {
        let Some(&last) = ids.last() else { return };
        let behind: Vec<ReaderKey> = self.readers_behind(store, last).collect();
        for key in behind {
            let Some(reader) = self.readers.get(key) else { continue };
            let Who::Object(object) = reader.who else { continue };
            let missed = match reader.position {
                Position::Behind(at) if reader.wants_all() => ids.len() - ids.partition_point(|&id| id < at),
                _ => ids.iter().filter(|&&id| self.is_missed(key, id)).count(),
            };
            let Some(state) = self.objects.get(&object).filter(|_| missed > 0) else { continue };
            let (total, durable) = (state.skipped + missed as u64, state.settings.persistent);
            self.record(Record::ObjectSkipped { object, total }, durable);
        }
    }

    /// The readers of a channel that may need an event at or below `last`.
    pub(crate) fn readers_behind(
        &self,
        store: StoreKey,
        last: EventId,
    ) -> impl Iterator<Item = ReaderKey> + '_ {
        let channel = self.store(store).and_then(Store::channel);
        let needs =
            channel.map(|channel| channel.readers.needs.range(..(last.saturating_add(1), ReaderKey::FIRST)));
        needs.into_iter().flatten().map(|&(_, key)| key)
    }

    /// How many readers must be asked about each event that leaves, up to `last`.
    pub(crate) fn asked_for_each(&self, store: StoreKey, last: EventId) -> usize {
        let readers = self.readers_behind(store, last).filter_map(|key| self.readers.get(key));
        readers.filter(|reader| !reader.wants_all()).count()
    }

    /// Whether a reader misses an event that leaves: it has still to look at it, or is to send it again.
    fn is_missed(&self, key: ReaderKey, id: EventId) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        let waits = matches!(reader.position, Position::Behind(at) if at <= id) && !reader.done.contains(id);
        let owed = matches!(reader.owed().get(&id), Some(Owed::Returned(_))) || reader.passed.contains(id);
        (waits && self.reader_matches(key, id) && !self.is_own(key, id)) || owed
    }

    /// Forgets a durable subscription or native object, and detaches its consumer.
    pub(crate) fn delete_object_now(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key) else { return };
        let durable = object.settings.persistent;
        let name = object.name.clone();
        self.abandon_jobs(&name, |job| job.object() == Some(key));
        let Some(object) = self.objects.get(&key) else { return };
        if let Some(taker) = self.readers.get(object.reader).and_then(|r| r.taker) {
            let text = format!("named object '{name}' was deleted");
            self.throw_out(taker, Refusal::new(Code::Deleted, name, text));
        }
        self.record(Record::ObjectDeleted { object: key }, durable);
    }

    /// The durable subscription of a client, for a null-source attach (AM-7).
    pub(crate) fn find_subscription(&mut self, conn: ConnId, link: LinkNo, name: &str) {
        match self.subscription(conn, name) {
            Ok(key) => {
                let Some(object) = self.objects.get(&key) else { return };
                let address = self.store(object.store).map_or_else(String::new, |s| s.name.to_string());
                let settings = Box::new(object.settings.clone());
                self.emit(self.latest_step(), Effect::SubscriptionFound { conn, link, address, settings });
            }
            Err(refusal) => self.refuse_link(conn, link, refusal),
        }
    }

    /// Deletes a durable subscription of a client; refused while it has a consumer (AM-7).
    pub(crate) fn delete_subscription(&mut self, conn: ConnId, link: LinkNo, name: &str) {
        let found = self.subscription(conn, name).and_then(|key| match self.consumer_of(key) {
            Some(taker) => Err(self.in_use(key, taker)),
            None => Ok(key),
        });
        match found {
            Ok(key) => {
                self.delete_object_now(key);
                self.emit(self.step_under_way(), Effect::SubscriptionDeleted { conn, link });
            }
            Err(refusal) => self.refuse_link(conn, link, refusal),
        }
    }

    fn subscription(&self, conn: ConnId, name: &str) -> Result<ObjectKey, Refusal> {
        let client = self.conns.get(&conn).map_or_else(String::new, |c| c.client.id.clone());
        let owner = Owner::Client(client.clone());
        // A client's names do not depend on a channel.
        self.find_object(StoreKey(0), &owner, name).ok_or_else(|| {
            let text = format!("client id '{client}' has no durable subscription named '{name}'");
            Refusal::new(Code::ObjectNotFound, name, text)
        })
    }

    /// The attached consumer of an object.
    pub(crate) fn consumer_of(&self, key: ObjectKey) -> Option<TakerKey> {
        self.readers.get(self.objects.get(&key)?.reader)?.taker
    }

    /// The refusal that names who uses an object (ERR-1).
    pub(crate) fn in_use(&self, key: ObjectKey, taker: TakerKey) -> Refusal {
        let name = self.objects.get(&key).map_or_else(String::new, |o| o.name.clone());
        let holder = self.takers.get(taker).and_then(|t| self.conns.get(&t.conn)).map(|c| &c.client);
        let by = holder.map_or_else(String::new, |c| format!(" by client '{}' at {}", c.id, c.address));
        let text = format!("named object '{name}' is in use{by}: it takes one consumer at a time");
        Refusal::new(Code::ObjectInUse, name, text)
    }

    /// An object as operators see it, with the events that it owes (SH-10).
    pub(crate) fn object_view(&self, key: ObjectKey, created: bool, backlog: u64) -> Option<ObjectView> {
        let object = self.objects.get(&key)?;
        let reader = self.readers.get(object.reader)?;
        let store = self.store(object.store)?;
        let offered = store.channel()?.offered;
        let low = reader.lowest_need().unwrap_or(offered + 1);
        Some(ObjectView {
            id: object.id(),
            name: object.name.clone(),
            owner: object.owner_text(),
            channel: store.name.to_string(),
            created,
            created_by: made_by_text(object.made_by),
            settings: object.settings.clone(),
            last_event_id: low.saturating_sub(1),
            outstanding_events: -1,
            backlog,
            in_delivery: reader.delivered(),
            skipped_events: object.skipped,
            redelivered: object.redelivered,
            dead_lettered: object.dead_lettered,
            consumers: reader.taker.and_then(|t| self.consumer_view(t)).into_iter().collect(),
            jobs: self.job_views(|job| job.object() == Some(key)),
        })
    }

    pub(crate) fn consumer_view(&self, key: TakerKey) -> Option<ConsumerView> {
        let taker = self.takers.get(key)?;
        let client = &self.conns.get(&taker.conn)?.client;
        Some(ConsumerView {
            client_id: client.id.clone(),
            address: client.address.clone(),
            window: taker.window(self.settings.max_window),
        })
    }

    /// Whether a reader owes an event that is stored: it holds it, or has still to look at it.
    pub(crate) fn reader_owes(&self, key: ReaderKey, id: EventId) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        if reader.owed().contains_key(&id) || reader.passed.contains(id) {
            return true;
        }
        let ahead = matches!(reader.position, Position::Behind(at) if id >= at);
        ahead && !reader.done.contains(id) && self.reader_matches(key, id) && !self.is_own(key, id)
    }

    /// Whether an event is one that the reader is to have.
    pub(crate) fn reader_matches(&self, key: ReaderKey, id: EventId) -> bool {
        let Some(reader) = self.readers.get(key) else { return false };
        let Some(entry) = self.store(reader.store).and_then(|s| s.log.get(id)) else { return false };
        let Some(filter) = &reader.filter else { return true };
        // Where the message is not in memory only those come here who can't wait for it: it counts as wanted.
        let Some(message) = self.bodies.get(entry.event.body) else { return true };
        filter.matches(&crate::view::View { message, event: &entry.event })
    }
}

/// The word for who made a definition.
pub(crate) const fn made_by_text(made_by: MadeBy) -> &'static str {
    match made_by {
        MadeBy::Broker => "broker",
        MadeBy::Configuration => "configuration",
        MadeBy::Operator => "operator",
        MadeBy::FirstUse => "first-use",
    }
}
