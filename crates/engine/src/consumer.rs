//! Consumers: attach, credit, outcomes, detach, loss (named-objects 3.3, 3.6, 3.9).

use crate::command::{CloseMode, ConnId, ConsumerSource, ConsumerSpec, Expiry, LinkNo, Settlement, TakerKey};
use crate::effect::{Effect, Resolved};
use crate::engine::{Engine, Task};
use crate::reader::{Position, Reader, ReaderKey, Who};
use crate::resolve::Intent;
use crate::store::Store;
use crate::taker::{Source, Taker};
use crate::temporary::Maker;
use postroad_model::address::Address;
use postroad_model::id::{EventId, ObjectKey, StoreKey};
use postroad_model::name::check_object_name;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{NamedObjectSettings, OnDefinitionChange, Takeover};
use postroad_record::{MadeBy, Owner, Record};
use postroad_selector::Selector;

/// What a consumer is attached to, decided before anything changes.
enum Place {
    Queue,
    Browser,
    Volatile,
    Object(ObjectKey),
}

impl Engine {
    pub(crate) fn open_consumer(&mut self, conn: ConnId, link: LinkNo, spec: &ConsumerSpec) {
        match self.try_open_consumer(conn, link, spec) {
            Ok((taker, resolved)) => {
                // What was created for it must be on disk before the client builds on it.
                let after = self.latest_step();
                self.emit(after, Effect::ConsumerOpened { conn, link, taker, resolved });
            }
            Err(refusal) => self.refuse_link(conn, link, refusal),
        }
    }

    fn try_open_consumer(
        &mut self,
        conn: ConnId,
        link: LinkNo,
        spec: &ConsumerSpec,
    ) -> Result<(TakerKey, Resolved), Refusal> {
        // One that was refused may have sent this before it knew.
        self.conns.get(&conn).ok_or_else(connection_gone)?;
        let selector = parse_selector(spec.selector.as_deref())?;
        let (store, address) = match &spec.source {
            ConsumerSource::Temporary(lifetime) => {
                let store = self.create_temporary(conn, *lifetime).ok_or_else(connection_gone)?;
                (store, None)
            }
            ConsumerSource::Address(address) => (self.resolve(address, Intent::Get)?, Some(address.clone())),
        };
        self.check_temporary_owner(store, conn)?;
        let place = self.place_of(conn, store, address.as_ref(), spec, selector.as_ref())?;
        let taker = self.attach(conn, link, store, &place, spec, selector);
        if let ConsumerSource::Temporary(_) = spec.source {
            self.made_by(store, Maker::Taker(taker));
        }
        Ok((taker, self.resolved_for(store, address.as_ref())))
    }

    fn place_of(
        &mut self,
        conn: ConnId,
        store: StoreKey,
        address: Option<&Address>,
        spec: &ConsumerSpec,
        selector: Option<&Selector>,
    ) -> Result<Place, Refusal> {
        let is_queue = self.store(store).is_some_and(Store::is_queue);
        let native = address.and_then(|a| a.object.clone());
        if is_queue && (native.is_some() || spec.durable.is_some()) {
            let name = self.address_of(store);
            let text = format!("'{name}' is a queue: it has no named objects, every consumer takes from it");
            return Err(Refusal::new(Code::ObjectNotAllowedHere, name, text));
        }
        if is_queue {
            return Ok(if spec.browse { Place::Browser } else { Place::Queue });
        }
        if let Some(name) = native {
            return self.native_object(store, &name).map(Place::Object);
        }
        match &spec.durable {
            Some(name) => self.durable_object(conn, store, name, spec, selector).map(Place::Object),
            None => Ok(Place::Volatile),
        }
    }

    /// A native object must exist and be free, or let itself be taken over (EX-1, EX-5).
    fn native_object(&mut self, store: StoreKey, name: &str) -> Result<ObjectKey, Refusal> {
        let channel = self.address_of(store);
        let key = self.find_object(store, &Owner::Native, name).ok_or_else(|| {
            let text = format!("channel '{channel}' has no named object '{name}': create it first");
            Refusal::new(Code::ObjectNotFound, format!("{channel}::{name}"), text)
        })?;
        self.take_over(key)?;
        Ok(key)
    }

    fn take_over(&mut self, key: ObjectKey) -> Result<(), Refusal> {
        let Some(taker) = self.consumer_of(key) else { return Ok(()) };
        let steal = self.objects.get(&key).is_some_and(|o| o.settings.consumer_takeover == Takeover::Steal);
        if !steal {
            return Err(self.in_use(key, taker));
        }
        let name = self.objects.get(&key).map_or_else(String::new, |o| o.name.clone());
        let text = format!("another consumer took over named object '{name}'");
        self.throw_out(taker, Refusal::new(Code::Stolen, name, text));
        Ok(())
    }

    /// A client's durable subscription is created by its first consumer, and again by one with another definition
    /// (AM-5, AM-11, AM-18).
    fn durable_object(
        &mut self,
        conn: ConnId,
        store: StoreKey,
        name: &str,
        spec: &ConsumerSpec,
        selector: Option<&Selector>,
    ) -> Result<ObjectKey, Refusal> {
        let client = self.conns.get(&conn).ok_or_else(connection_gone)?.client.id.clone();
        if client.is_empty() {
            let text =
                "a durable subscription needs a client id (container-id): without one nobody finds it again";
            return Err(Refusal::new(Code::ClientIdRequired, name, text));
        }
        check_object_name(name)?;
        let owner = Owner::Client(client);
        let wanted = NamedObjectSettings {
            selector: selector.map(|s| s.source().to_owned()),
            no_local: spec.no_local,
            start_event_id: spec.start.unwrap_or_default(),
            expiry_policy: spec.expiry.policy,
            expiry_timeout: spec.expiry.timeout,
            ..NamedObjectSettings::default()
        };
        if let Some(key) = self.find_object(store, &owner, name) {
            if self.same_definition(key, store, &wanted) {
                self.take_over(key)?;
                self.change_expiry(key, spec.expiry);
                return Ok(key);
            }
            self.redefine(key)?;
        }
        self.check_disk(name)?;
        self.create_object(store, owner, name, wanted, MadeBy::FirstUse).ok_or_else(connection_gone)
    }

    fn same_definition(&self, key: ObjectKey, store: StoreKey, wanted: &NamedObjectSettings) -> bool {
        self.objects.get(&key).is_some_and(|object| {
            object.store == store
                && object.settings.selector == wanted.selector
                && object.settings.no_local == wanted.no_local
        })
    }

    /// How a subscription expires is what its present terminus says.
    fn change_expiry(&mut self, key: ObjectKey, expiry: Expiry) {
        let Some(object) = self.objects.get(&key) else { return };
        let settings = NamedObjectSettings {
            expiry_policy: expiry.policy,
            expiry_timeout: expiry.timeout,
            ..object.settings.clone()
        };
        if settings != object.settings {
            let durable = settings.persistent;
            self.record(Record::ObjectAltered { object: key, settings }, durable);
        }
    }

    /// Another topic, selector or no-local: the old object and its backlog go, unless it is in use or protected.
    fn redefine(&mut self, key: ObjectKey) -> Result<(), Refusal> {
        let Some(object) = self.objects.get(&key) else { return Ok(()) };
        let name = object.name.clone();
        let protected = object.settings.on_definition_change == OnDefinitionChange::Refuse
            || object.made_by == MadeBy::Configuration;
        if self.consumer_of(key).is_some() || protected {
            let why = if protected { "it is protected from that" } else { "it has a consumer" };
            let text =
                format!("durable subscription '{name}' has another topic, selector or no-local, and {why}");
            return Err(Refusal::new(Code::ObjectKindConflict, name, text));
        }
        tracing::warn!(subscription = %name, "a durable subscription was defined anew; its backlog is dropped");
        self.delete_object_now(key);
        Ok(())
    }

    fn attach(
        &mut self,
        conn: ConnId,
        link: LinkNo,
        store: StoreKey,
        place: &Place,
        spec: &ConsumerSpec,
        selector: Option<Selector>,
    ) -> TakerKey {
        let source = match place {
            Place::Queue => Source::Queue,
            Place::Browser => {
                let up_to = self.store(store).map_or(0, Store::last_id);
                let level = self.store(store).and_then(Store::queue).map_or(0, |q| q.level(u8::MAX));
                Source::Browser { level, passed: 0, up_to }
            }
            Place::Volatile => Source::Reader(self.volatile_reader(conn, store, spec, selector.clone())),
            Place::Object(object) => match self.objects.get(object) {
                Some(object) => Source::Reader(object.reader),
                None => Source::Queue,
            },
        };
        let own_filter = match place {
            Place::Queue | Place::Browser => selector,
            // On a native object the consumer brings its own filter; else the reader has it.
            Place::Object(object) if self.is_native(*object) => selector,
            Place::Volatile | Place::Object(_) => None,
        };
        let held = self.conns.get(&conn).is_some_and(|state| state.held);
        let mut taker = Taker::new(conn, link, store, source);
        taker.filter = own_filter;
        taker.presettled = spec.presettled;
        taker.held = held;
        let key: TakerKey = self.takers.insert(|_| taker);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.takers.insert(key);
        }
        if let Some(store) = self.store_mut(store) {
            store.takers.insert(key);
        }
        match source {
            Source::Queue => {
                let queue = self.store_mut(store).and_then(|s| s.queue_mut());
                let turn = queue.map(|queue| queue.rings.attach(key, spec.priority));
                if let Some(taker) = self.takers.get_mut(key) {
                    taker.turn = turn;
                }
            }
            Source::Reader(reader) => {
                if let Some(reader) = self.readers.get_mut(reader) {
                    reader.taker = Some(key);
                }
                if let Place::Object(object) = place
                    && let Some(object) = self.objects.get_mut(object)
                {
                    object.unused_since = None;
                }
                self.schedule(Task::Feed(reader));
            }
            Source::Browser { .. } => {}
        }
        key
    }

    fn is_native(&self, object: ObjectKey) -> bool {
        self.objects.get(&object).is_some_and(|o| o.owner == Owner::Native)
    }

    /// A private subscription that ends with its consumer and begins with the next event.
    fn volatile_reader(
        &mut self,
        conn: ConnId,
        store: StoreKey,
        spec: &ConsumerSpec,
        selector: Option<Selector>,
    ) -> ReaderKey {
        let own = self.conns.get(&conn).map(|c| c.client.id.clone()).filter(|_| spec.no_local);
        let begin = self.store(store).map_or(1, |s| s.next_id);
        let no_local = usize::from(own.is_some());
        let key = self.readers.insert(|_| {
            let mut reader = Reader::new(store, Who::Volatile, Position::Behind(begin));
            reader.begin = begin;
            reader.filter = selector;
            reader.no_local = own;
            reader
        });
        if let Some(channel) = self.store_mut(store).and_then(|s| s.channel_mut()) {
            channel.readers.all.insert(key);
            channel.readers.no_local += no_local;
        }
        self.reach_tail(key);
        key
    }

    fn resolved_for(&self, store: StoreKey, address: Option<&Address>) -> Resolved {
        let mut resolved = self.resolved(store);
        if let Some(object) = address.and_then(|a| a.object.as_deref()) {
            resolved.address = format!("{}::{object}", resolved.address);
        }
        resolved
    }

    /// Only its own connection consumes from a temporary queue.
    fn check_temporary_owner(&self, store: StoreKey, conn: ConnId) -> Result<(), Refusal> {
        match self.store(store).and_then(|s| s.owner) {
            Some(owner) if owner != conn => {
                let name = self.address_of(store);
                let text = format!("'{name}' is a temporary queue of another connection");
                Err(Refusal::new(Code::NotAuthorized, name, text))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn credit(&mut self, key: TakerKey, limit: u64, drain: bool) {
        let max_window = self.settings.max_window;
        let Some(taker) = self.takers.get_mut(key) else { return };
        taker.limit = limit;
        taker.drain = drain;
        let (store, source, window) = (taker.store, taker.source, taker.window(max_window));
        match source {
            Source::Queue => {
                if let Some(queue) = self.store_mut(store).and_then(|s| s.queue_mut()) {
                    queue.note_credit(key, window, drain);
                }
                self.note_window(key);
                self.schedule(Task::Dispatch(store));
            }
            Source::Reader(reader) => self.schedule(Task::Feed(reader)),
            Source::Browser { .. } => self.schedule(Task::Browse(key)),
        }
    }

    pub(crate) fn settle(
        &mut self,
        key: TakerKey,
        first: u64,
        last: u64,
        outcome: Settlement,
        confirm: bool,
    ) {
        let before = self.step_done();
        let Some(taker) = self.takers.get_mut(key) else { return };
        let closed = taker.close_range(first, last);
        let (conn, link) = (taker.conn, taker.link);
        let mut refused = None;
        if !closed.is_empty() {
            self.note_window(key);
            refused = self.apply_outcome(key, &closed, &outcome).err();
        }
        if confirm {
            let after = self.step_since(before);
            self.emit(after, Effect::Settled { conn, link, first, last, outcome });
        }
        if let Some(refusal) = refused {
            self.throw_out(key, refusal);
        }
    }

    /// The outcome takes place even if what it adds to the messages is refused. It may take several steps, each of them
    /// with the whole outcome of some messages.
    fn apply_outcome(
        &mut self,
        key: TakerKey,
        closed: &[(u64, EventId)],
        outcome: &Settlement,
    ) -> Result<(), Refusal> {
        let Some(taker) = self.takers.get(key) else { return Ok(()) };
        let (store, source) = (taker.store, taker.source);
        let at_once = match outcome {
            Settlement::Accepted | Settlement::Released => closed.len(),
            // Each may become a dead letter, and then its message may go to disk.
            Settlement::Modified { .. } | Settlement::Rejected { .. } => 1,
        };
        let mut annotated = Ok(());
        for closed in closed.chunks(at_once.max(1)) {
            self.end_long_step();
            if let (Ok(()), Settlement::Modified { annotations: Some(added), .. }) = (&annotated, outcome) {
                annotated = self.annotate(store, source, closed, added);
            }
            match source {
                Source::Queue => self.settle_in_queue(store, key, closed, outcome),
                Source::Reader(reader) => self.settle_for_reader(reader, closed, outcome),
                Source::Browser { .. } => {}
            }
        }
        annotated
    }

    pub(crate) fn close_consumer(&mut self, key: TakerKey, mode: CloseMode, default: &Settlement) {
        let before = self.step_done();
        let Some(taker) = self.takers.get_mut(key) else { return };
        let closed = taker.close_all();
        let (conn, link, source, store) = (taker.conn, taker.link, taker.source, taker.store);
        if let Err(refusal) = self.apply_outcome(key, &closed, default) {
            tracing::warn!(%refusal, "the annotations of a default outcome are left out");
        }
        self.remove_taker(key);
        self.link_left(store, Maker::Taker(key));
        if let Source::Reader(reader) = source {
            match mode {
                CloseMode::Detach => {}
                CloseMode::Close => self.end_subscription(reader),
                CloseMode::Expire => self.lost_with_connection(reader),
            }
        }
        let after = self.step_since(before);
        self.emit(after, Effect::LinkClosed { conn, link });
    }

    /// A closed (not merely detached) consumer ends the durable subscription of its client (AM-6); never a native
    /// object (AM-17), nor one that the configuration defines (OP-10).
    fn end_subscription(&mut self, reader: ReaderKey) {
        let Some(Who::Object(object)) = self.readers.get(reader).map(|r| r.who) else { return };
        let Some(state) = self.objects.get(&object) else { return };
        if matches!(state.owner, Owner::Client(_)) && state.made_by == MadeBy::FirstUse {
            self.delete_object_now(object);
        }
    }

    /// A connection was lost: all goes back counted as failed, but only the oldest toward the limit (AK-5).
    pub(crate) fn lose_consumer(&mut self, key: TakerKey) {
        let Some(taker) = self.takers.get_mut(key) else { return };
        let closed = taker.close_all();
        let (store, source) = (taker.store, taker.source);
        for (at, &(tag, id)) in closed.iter().enumerate() {
            let failed = Some(at == 0);
            self.end_long_step();
            match source {
                Source::Queue => self.return_to_queue(store, id, failed),
                Source::Reader(reader) => self.return_to_reader(reader, tag, id, failed),
                Source::Browser { .. } => {}
            }
        }
        self.remove_taker(key);
    }

    /// Detaches a consumer by the broker's own decision.
    pub(crate) fn throw_out(&mut self, key: TakerKey, refusal: Refusal) {
        let Some(taker) = self.takers.get(key) else { return };
        let (conn, link, store) = (taker.conn, taker.link, taker.store);
        let (after, before) = (taker.after, self.step_done());
        self.lose_consumer(key);
        self.link_left(store, Maker::Taker(key));
        let after = after.max(self.step_since(before));
        self.emit(after, Effect::DetachLink { conn, link, refusal });
    }

    fn remove_taker(&mut self, key: TakerKey) {
        // What it was sent is still to be written.
        self.count_on_the_way(key);
        let Some(taker) = self.takers.remove(key) else { return };
        if let Some(conn) = self.conns.get_mut(&taker.conn) {
            conn.takers.remove(&key);
        }
        if let Some(store) = self.store_mut(taker.store) {
            store.takers.remove(&key);
        }
        match taker.source {
            Source::Queue => {
                if let Some(queue) = self.store_mut(taker.store).and_then(|s| s.queue_mut()) {
                    queue.draining.remove(&key);
                    if let Some(turn) = taker.turn {
                        queue.rings.detach(turn);
                    }
                }
                self.consumer_left(taker.store);
                self.schedule(Task::Dispatch(taker.store));
            }
            Source::Reader(reader) => self.leave_reader(reader, key),
            Source::Browser { .. } => {}
        }
    }

    fn leave_reader(&mut self, key: ReaderKey, taker: TakerKey) {
        let Some(reader) = self.readers.get(key) else { return };
        if reader.taker != Some(taker) {
            return;
        }
        if reader.who == Who::Volatile {
            self.drop_reader(key);
            return;
        }
        if !reader.passed.is_empty() && reader.position == Position::Tail {
            self.leave_tail(key);
        }
        if let Some(reader) = self.readers.get_mut(key) {
            reader.forget_consumer();
        }
        self.list_need(key);
        self.schedule(Task::Feed(key));
    }
}

/// The selector of a consumer; blank means none.
pub(crate) fn parse_selector(text: Option<&str>) -> Result<Option<Selector>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    Selector::parse_optional(text).map_err(|error| {
        let message = format!("the selector does not parse {error}");
        Refusal::new(Code::FilterSyntax, postroad_model::name::shorten(text), message)
    })
}

fn connection_gone() -> Refusal {
    Refusal::new(Code::IllegalState, "connection", "the connection is gone")
}
