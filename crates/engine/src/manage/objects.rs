//! Named objects for operators (NO-11, OP-1 to OP-3, OP-6, OP-7).

use super::maker;
use super::stores::{check_redelivery, selection_range};
use crate::admin::{Response, Selection, StoreKind};
use crate::consumer::parse_selector;
use crate::engine::Engine;
use crate::store::Store;
use crate::survey::Asked;
use postroad_model::id::ObjectKey;
use postroad_model::name::check_object_name;
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{ExpiryPolicy, NamedObjectSettings, ObjectType, Scope};
use postroad_record::{Owner, Work};

impl Engine {
    pub(super) fn create_native(
        &mut self,
        reply: u64,
        channel: &str,
        name: &str,
        settings: NamedObjectSettings,
        configured: bool,
    ) -> Result<Option<Response>, Refusal> {
        if self.queues.contains_key(channel) && !self.channels.contains_key(channel) {
            let text = format!("'{channel}' is a queue: named objects live on channels");
            return Err(Refusal::new(Code::ObjectNotAllowedHere, channel, text));
        }
        let store = self.store_key(StoreKind::Channel, channel)?;
        check_object_name(name)?;
        check_offered(name, &settings)?;
        check_redelivery(name, &settings.redelivery)?;
        parse_selector(settings.selector.as_deref())?;
        if let Some(key) = self.find_object(store, &Owner::Native, name) {
            return self.created_again(reply, key, name, &settings);
        }
        self.check_disk(name)?;
        let key = self
            .create_object(store, Owner::Native, name, settings, maker(configured))
            .ok_or_else(|| Refusal::new(Code::IllegalState, channel, "the channel is gone"))?;
        self.survey(reply, [key], Asked::One { created: true })
    }

    /// The same attributes again change nothing; others are refused, naming the differences (NO-11, ERR-3).
    fn created_again(
        &mut self,
        reply: u64,
        key: ObjectKey,
        name: &str,
        settings: &NamedObjectSettings,
    ) -> Result<Option<Response>, Refusal> {
        let held = self.objects.get(&key).map(|object| &object.settings);
        // Where it begins matters only at creation (NO-10).
        let same = held.is_some_and(|held| {
            let wanted = NamedObjectSettings { start_event_id: held.start_event_id, ..settings.clone() };
            *held == wanted
        });
        if same {
            return self.survey(reply, [key], Asked::One { created: false });
        }
        let held = self.objects.get(&key).map(|object| &object.settings);
        let differences = held.map_or_else(String::new, |held| differences(held, settings));
        let text = format!("named object '{name}' exists with other attributes: {differences}");
        Err(Refusal::new(Code::ObjectExists, name, text))
    }

    pub(super) fn object_key(
        &self,
        channel: &str,
        owner: Option<String>,
        name: &str,
    ) -> Result<ObjectKey, Refusal> {
        let store = self.store_key(StoreKind::Channel, channel)?;
        let owner = owner.map_or(Owner::Native, Owner::Client);
        let found = self.find_object(store, &owner, name);
        found.filter(|key| self.objects.get(key).is_some_and(|o| o.store == store)).ok_or_else(|| {
            let text = format!("channel '{channel}' has no named object '{name}'");
            Refusal::new(Code::ObjectNotFound, format!("{channel}::{name}"), text)
        })
    }

    pub(super) fn show_object(
        &mut self,
        reply: u64,
        channel: &str,
        owner: Option<String>,
        name: &str,
    ) -> Result<Option<Response>, Refusal> {
        let key = self.object_key(channel, owner, name)?;
        self.survey(reply, [key], Asked::One { created: false })
    }

    pub(super) fn list_objects(
        &mut self,
        reply: u64,
        channel: Option<&str>,
    ) -> Result<Option<Response>, Refusal> {
        let store = channel.map(|channel| self.store_key(StoreKind::Channel, channel)).transpose()?;
        let on_channel = self.objects.values().filter(|o| store.is_none_or(|store| o.store == store));
        let keys: Vec<ObjectKey> = on_channel.map(|object| object.key).collect();
        self.survey(reply, keys, Asked::List)
    }

    pub(super) fn delete_object(
        &mut self,
        channel: &str,
        owner: Option<String>,
        name: &str,
        force: bool,
    ) -> Result<Response, Refusal> {
        let key = self.object_key(channel, owner, name)?;
        if let Some(taker) = self.consumer_of(key)
            && !force
        {
            return Err(self.in_use(key, taker));
        }
        self.delete_object_now(key);
        Ok(Response::Deleted { name: name.to_owned() })
    }

    /// Records events of an object as finished (OP-2). What its consumer holds is finished too: its outcome will
    /// find nothing to do. The answer comes when it is done.
    pub(super) fn purge_object(
        &mut self,
        reply: u64,
        channel: &str,
        owner: Option<String>,
        name: &str,
        selection: Selection,
    ) -> Result<Option<Response>, Refusal> {
        let object = self.object_key(channel, owner, name)?;
        parse_selector(selection.filter.as_deref())?;
        let (from, to) = selection_range(&selection, name)?;
        let state = self.objects.get(&object);
        let last = state.and_then(|o| self.store(o.store)).map_or(0, Store::last_id);
        let durable = state.is_some_and(|o| o.settings.persistent);
        let filter = selection.filter.filter(|text| !text.trim().is_empty());
        self.begin_purge(reply, Work::PurgeObject { object, from, to: to.min(last), filter }, durable, 0)
    }
}

/// What this version offers (NO-4, types).
fn check_offered(name: &str, settings: &NamedObjectSettings) -> Result<(), Refusal> {
    if settings.object_type != ObjectType::Exclusive {
        let text = format!("named object '{name}': only type exclusive is offered by this version");
        return Err(Refusal::new(Code::NotSupported, name, text));
    }
    if settings.expiry_policy != ExpiryPolicy::Never || settings.expiry_timeout > 0 {
        let text = format!("named object '{name}' can't expire: only clients' durable subscriptions do");
        return Err(Refusal::new(Code::NotSupported, name, text));
    }
    if settings.scope == Scope::Cluster {
        let text = format!("named object '{name}' can't be cluster-wide: its channel is local");
        return Err(Refusal::new(Code::ObjectNotAllowedHere, name, text));
    }
    Ok(())
}

/// The attributes in which two definitions differ, as `name: held, wanted`.
fn differences(held: &NamedObjectSettings, wanted: &NamedObjectSettings) -> String {
    let (Ok(held), Ok(wanted)) = (serde_json::to_value(held), serde_json::to_value(wanted)) else {
        return String::new();
    };
    let (Some(held), Some(wanted)) = (held.as_object(), wanted.as_object()) else { return String::new() };
    let differ = held
        .iter()
        .filter(|(key, value)| key.as_str() != "start_event_id" && wanted.get(key.as_str()) != Some(value));
    let listed: Vec<String> = differ
        .map(|(key, value)| {
            let other = wanted.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string);
            format!("{key} is {value}, not {other}")
        })
        .collect();
    listed.join("; ")
}
