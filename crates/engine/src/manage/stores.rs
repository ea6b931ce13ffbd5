//! Channels and queues for operators (5.1, DEL-4, FWD-3, SH-8).

use super::maker;
use crate::admin::{Response, Selection, StoreKind};
use crate::apply::first_id;
use crate::consumer::parse_selector;
use crate::engine::{Engine, Task};
use crate::store::Store;
use postroad_model::id::{EventId, JoinKey, StoreKey};
use postroad_model::name::{check_channel_name, check_queue_name, normalise_channel_name};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{ChannelSettings, QueueSettings, RedeliverySettings, StoreType};
use postroad_record::{Record, StoreDefinition, Work};

/// Largest capacity (5.1).
const MAX_CAPACITY: u32 = 2_147_483_646;

impl Engine {
    pub(super) fn put_channel(
        &mut self,
        name: &str,
        settings: ChannelSettings,
        configured: bool,
    ) -> Result<Response, Refusal> {
        let name = normalise_channel_name(name);
        check_channel_name(&name)?;
        let des = settings.dead_event_store.as_deref();
        check_store(&name, settings.capacity, des, settings.first_event_id)?;
        if settings.publish_keys.iter().any(|key| key.name.is_empty() || key.depth == 0) {
            let text = format!("a publish key of '{name}' needs a property name and a depth of at least 1");
            return Err(Refusal::new(Code::BadPublishKey, name, text));
        }
        let key = self.channels.get(name.as_str()).copied();
        self.put_store(key, &name, StoreDefinition::Channel(settings), configured)
    }

    pub(super) fn put_queue(
        &mut self,
        name: &str,
        settings: QueueSettings,
        configured: bool,
    ) -> Result<Response, Refusal> {
        check_queue_name(name)?;
        let des = settings.dead_event_store.as_deref();
        check_store(name, settings.capacity, des, settings.first_event_id)?;
        check_redelivery(name, &settings.redelivery)?;
        if settings.expiry_max > 0 && settings.expiry_min > settings.expiry_max {
            let text =
                format!("expiry_min of '{name}' is above its expiry_max: no message could have such a life");
            return Err(Refusal::new(Code::BadValue, name, text));
        }
        if settings.store_type == StoreType::Transient {
            let text = format!("queue '{name}' can't be transient: a queue stores what it takes");
            return Err(Refusal::new(Code::NotSupported, name, text));
        }
        let key = self.queues.get(name).copied();
        self.put_store(key, name, StoreDefinition::Queue(settings), configured)
    }

    fn put_store(
        &mut self,
        key: Option<StoreKey>,
        name: &str,
        definition: StoreDefinition,
        configured: bool,
    ) -> Result<Response, Refusal> {
        let made_by = maker(configured);
        let Some(key) = key else {
            self.check_disk(name)?;
            let key = self.create_store(name, definition, made_by, true);
            return self.store_response(key, true);
        };
        let Some(store) = self.store(key) else { return Err(gone(name)) };
        let held = store.definition();
        if first_id(&held) != first_id(&definition) && store.last_id() + 1 != first_id(&held) {
            let text = format!("first_event_id of '{name}' can't change after its first event");
            return Err(Refusal::new(Code::BadValue, name, text));
        }
        check_begin(store, first_id(&held), first_id(&definition))?;
        if held != definition || store.made_by != made_by {
            self.record(Record::StoreAltered { store: key, definition, made_by }, true);
            self.reconsider(key);
        }
        self.store_response(key, false)
    }

    /// New settings of a store act at once on what waits for it.
    fn reconsider(&mut self, key: StoreKey) {
        self.room_in(key);
        let is_queue = self.store(key).is_some_and(Store::is_queue);
        if is_queue {
            self.look_again_everywhere(key);
        }
        self.schedule(if is_queue { Task::Dispatch(key) } else { Task::Trim(key) });
        self.schedule(Task::Expire(key));
        self.schedule(Task::Evict(key));
    }

    pub(super) fn store_key(&self, kind: StoreKind, name: &str) -> Result<StoreKey, Refusal> {
        let found = match kind {
            StoreKind::Queue => self.queues.get(name),
            StoreKind::Channel => self.channels.get(normalise_channel_name(name).as_str()),
        };
        found.copied().ok_or_else(|| {
            let (code, kind) = match kind {
                StoreKind::Queue => (Code::UnknownQueue, "queue"),
                StoreKind::Channel => (Code::ChannelNotFound, "channel"),
            };
            Refusal::new(code, name, format!("there is no {kind} '{name}' on broker {}", self.settings.name))
        })
    }

    pub(super) fn show_store(&self, kind: StoreKind, name: &str) -> Result<Response, Refusal> {
        self.store_response(self.store_key(kind, name)?, false)
    }

    fn store_response(&self, key: StoreKey, created: bool) -> Result<Response, Refusal> {
        let view = self.store(key).map(|store| self.store_view(store, created));
        view.map(|view| Response::Store(Box::new(view))).ok_or_else(|| gone("store"))
    }

    pub(super) fn list_stores(&self, kind: StoreKind, after: Option<&str>, limit: usize) -> Response {
        let names = match kind {
            StoreKind::Queue => &self.queues,
            StoreKind::Channel => &self.channels,
        };
        let wanted = names.iter().filter(|(name, _)| after.is_none_or(|after| &***name > after));
        let stores =
            wanted.filter_map(|(_, &key)| self.store(key)).filter(|store| !Self::is_temporary(store));
        Response::Stores { items: self.store_views(&stores.take(limit).collect::<Vec<_>>()) }
    }

    pub(super) fn delete_store(
        &mut self,
        kind: StoreKind,
        name: &str,
        cascade: bool,
        force: bool,
    ) -> Result<Response, Refusal> {
        let key = self.store_key(kind, name)?;
        let joins = self.joins_at(key);
        if !joins.is_empty() && !cascade {
            let names: Vec<&str> =
                joins.iter().filter_map(|j| Some(self.joins.get(j)?.name.as_str())).collect();
            let text =
                format!("'{name}' takes part in joins ({}): delete them first, or cascade", names.join(", "));
            return Err(Refusal::new(Code::StoreInUse, name, text));
        }
        let consumers = self.takers_of(key).len();
        if consumers > 0 && !force && !cascade {
            let text = format!("'{name}' has {consumers} consumers: stop them first, or force");
            return Err(Refusal::new(Code::StoreInUse, name, text));
        }
        for join in joins {
            self.end_join(join);
        }
        let name = self.store(key).map_or_else(String::new, |s| s.name.to_string());
        self.delete_store_now(key);
        Ok(Response::Deleted { name })
    }

    /// The joins that read from a store or write to it.
    fn joins_at(&self, key: StoreKey) -> Vec<JoinKey> {
        let at = |join: &&crate::join::Join| {
            join.source == key || self.find_destination(&join.settings) == Some(key)
        };
        self.joins.values().filter(at).map(|join| join.key).collect()
    }

    /// Removes events that are there now; what a queue's consumers hold stays. The answer comes when it is done.
    pub(super) fn purge_store(
        &mut self,
        reply: u64,
        kind: StoreKind,
        name: &str,
        selection: Selection,
    ) -> Result<Option<Response>, Refusal> {
        let key = self.store_key(kind, name)?;
        parse_selector(selection.filter.as_deref())?;
        let Some(store) = self.store(key) else { return Err(gone(name)) };
        let (from, to) = selection_range(&selection, &store.name)?;
        let filter = selection.filter.filter(|text| !text.trim().is_empty());
        // What waits for its time has no event id, and nobody chooses by what is in it.
        let whole = selection.from.is_none() && selection.to.is_none() && filter.is_none();
        let scheduled = if whole { store.schedule.last_number() } else { 0 };
        let (to, durable) = (to.min(store.last_id()), store.owner.is_none());
        let repeats = |join: &&JoinKey| self.joins.get(join).is_some_and(|j| j.settings.propagate_purge);
        let joins = store.joins_out.iter().filter(repeats).copied().collect();
        self.begin_purge(reply, Work::Purge { store: key, from, to, filter, joins }, durable, scheduled)
    }
}

/// First and last id of a selection.
pub(super) fn selection_range(selection: &Selection, name: &str) -> Result<(EventId, EventId), Refusal> {
    let (from, to) = (selection.from.unwrap_or(0), selection.to.unwrap_or(EventId::MAX - 1));
    if from > to {
        let text = format!("the range {from}..{to} begins behind its end");
        return Err(Refusal::new(Code::IllegalState, name, text));
    }
    Ok((from, to.min(EventId::MAX - 1)))
}

fn check_store(name: &str, capacity: u32, des: Option<&str>, first: EventId) -> Result<(), Refusal> {
    if capacity > MAX_CAPACITY {
        let text = format!("the capacity of '{name}' is {capacity}, the limit is {MAX_CAPACITY}");
        return Err(Refusal::new(Code::BadCapacity, name, text));
    }
    if des == Some(name) {
        let text = format!("'{name}' can't be its own dead event store: name another one");
        return Err(Refusal::new(Code::DesSelf, name, text));
    }
    if first == 0 || first > EventId::MAX / 2 {
        let text = format!("first_event_id of '{name}' is {first}: it must be at least 1");
        return Err(Refusal::new(Code::BadValue, name, text));
    }
    Ok(())
}

/// Refuses ids below those from which its readers were told to begin: they would not see the events of these ids.
fn check_begin(store: &Store, held: EventId, new: EventId) -> Result<(), Refusal> {
    let readers = store.channel().map_or(0, |channel| channel.readers.all.len());
    if new >= held || readers == 0 {
        return Ok(());
    }
    let name = &store.name;
    let text = format!(
        "first_event_id of '{name}' can't become lower than {held}: {readers} subscriptions, named objects or joins \
         that read it begin there; end or delete them, and make them again after the change"
    );
    Err(Refusal::new(Code::BadValue, name.to_string(), text))
}

fn gone(name: &str) -> Refusal {
    Refusal::new(Code::IllegalState, name, format!("'{name}' is gone"))
}

/// What of redelivery settings makes no sense (AK-7).
pub(super) fn check_redelivery(name: &str, settings: &RedeliverySettings) -> Result<(), Refusal> {
    let (spread, multiplier) = (settings.redelivery_spread, settings.redelivery_multiplier);
    if !(0.0..=1.0).contains(&spread) {
        let text = format!("redelivery_spread of '{name}' is {spread}: it must be from 0 to 1");
        return Err(Refusal::new(Code::BadValue, name, text));
    }
    if !(multiplier.is_finite() && multiplier >= 0.0) {
        let text = format!("redelivery_multiplier of '{name}' is {multiplier}: it must be at least 0");
        return Err(Refusal::new(Code::BadValue, name, text));
    }
    Ok(())
}
