//! Stores and events as operators see them.

use crate::admin::{DeadLetterView, EventView, ScheduledView, SettingsView, StoreKind, StoreView};
use crate::engine::Engine;
use crate::log::Entry;
use crate::object::made_by_text;
use crate::schedule::Scheduled;
use crate::store::{Kind, Store};
use postroad_amqp_codec::message::{ValueRef, map_entries};
use postroad_amqp_codec::{Decode, Value};
use postroad_model::id::EventId;
use postroad_model::message::Message;
use postroad_record::DeadLetter;

/// Messages that an answer looks at to count the stranded ones: of a list, all its stores together.
const STRANDED_LOOKS: usize = 10_000;
/// Bytes of a body that a view shows.
const BODY_SHOWN: usize = 4_096;

impl Engine {
    pub(super) fn store_view(&self, store: &Store, created: bool) -> StoreView {
        self.view_of(store, created, STRANDED_LOOKS)
    }

    /// Several stores.
    pub(super) fn store_views(&self, stores: &[&Store]) -> Vec<StoreView> {
        let looks = STRANDED_LOOKS / stores.len().max(1);
        stores.iter().map(|store| self.view_of(store, false, looks)).collect()
    }

    fn view_of(&self, store: &Store, created: bool, looks: usize) -> StoreView {
        let (kind, settings, in_delivery) = match &store.kind {
            Kind::Queue(queue) => {
                (StoreKind::Queue, SettingsView::Queue(queue.settings.clone()), queue.delivered)
            }
            Kind::Channel(channel) => {
                let readers = channel.readers.all.iter().filter_map(|&r| self.readers.get(r));
                let held = readers.map(crate::reader::Reader::delivered).sum();
                (StoreKind::Channel, SettingsView::Channel(channel.settings.clone()), held)
            }
        };
        StoreView {
            name: store.name.to_string(),
            kind,
            created,
            store_uid: store.uid.to_string(),
            made_by: made_by_text(store.made_by),
            settings,
            depth: store.log.len(),
            bytes: store.bytes,
            first_event_id: store.log.first().map_or(0, |entry| entry.event.id),
            last_event_id: store.last_id(),
            consumers: self.consumer_count(store),
            in_delivery,
            stranded: self.stranded(store.key, looks),
            scheduled: store.schedule.len(),
            blocked: store.queue().map_or(store.unburied.len(), |queue| queue.blocked.len()),
            jobs: self.job_views(|job| job.store() == Some(store.key)),
            warnings: self.shares_its_name(store, kind).into_iter().collect(),
            counters: store.counters.clone(),
        }
    }

    /// A queue and a channel may have one name, but then an address without a kind means the queue (ADR-2, ADR-6).
    fn shares_its_name(&self, store: &Store, kind: StoreKind) -> Option<String> {
        let name = &store.name;
        match kind {
            StoreKind::Queue => self.channels.contains_key(name).then(|| {
                format!("a channel is named '{name}', too: an address without a kind means the queue")
            }),
            StoreKind::Channel => self.queues.contains_key(name).then(|| {
                format!("a queue is named '{name}', too: an address without a kind means the queue")
            }),
        }
    }

    pub(super) fn scheduled_view(
        &self,
        number: u64,
        scheduled: &Scheduled,
        message: Option<&Message>,
    ) -> ScheduledView {
        let event = &scheduled.event;
        ScheduledView {
            number,
            due: scheduled.due,
            taken: event.arrived,
            expires: event.expires,
            priority: event.priority,
            durable: event.durable,
            size: self.bodies.size(event.body),
            message_id: message.and_then(|m| m.message_id().map(value_text)),
            properties: message.map(properties).unwrap_or_default(),
            body: message.and_then(body_text),
        }
    }

    pub(super) fn event_view(&self, store: &Store, entry: &Entry, in_delivery: bool) -> EventView {
        let event = &entry.event;
        let extra = event.extra.as_deref();
        let message = self.look_at(event.body);
        let origin = store.origin_of(event);
        EventView {
            id: event.id,
            arrived: event.arrived,
            expires: event.expires,
            priority: event.priority,
            durable: event.durable,
            in_delivery,
            delivery_count: entry.failed,
            origin: format!("{}:{}", origin.store, origin.event),
            hop_budget: extra.and_then(|e| e.budget),
            size: self.bodies.size(event.body),
            dead_letter: extra.and_then(|e| e.dead.as_deref()).map(dead_letter_view),
            archive_duplicate: extra.is_some_and(|e| e.archive_duplicate),
            message_id: message.and_then(|m| m.message_id().map(value_text)),
            properties: message.map(properties).unwrap_or_default(),
            body: message.and_then(body_text),
        }
    }
}

fn dead_letter_view(dead: &DeadLetter) -> DeadLetterView {
    DeadLetterView {
        reason: dead.reason.clone(),
        dest: dead.dest.clone(),
        event_id: dead.event_id as EventId,
        named_object: dead.named_object.clone(),
        address: dead.address.clone(),
        component: dead.component.clone(),
        time: dead.time,
        count: dead.count,
        text: dead.text.clone(),
    }
}

fn properties(message: &Message) -> Vec<(String, String)> {
    let section = message.application_properties();
    let Ok(entries) = map_entries(section) else { return Vec::new() };
    entries
        .map_while(Result::ok)
        .filter_map(|entry| Some((entry.key.as_str()?.to_owned(), value_text(entry.value_ref().ok()?))))
        .collect()
}

fn value_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".into(),
        ValueRef::Bool(b) => b.to_string(),
        ValueRef::Int(n) | ValueRef::Timestamp(n) => n.to_string(),
        ValueRef::Uint(n) => n.to_string(),
        ValueRef::Float(x) => x.to_string(),
        ValueRef::Text(s) | ValueRef::Symbol(s) => s.to_owned(),
        ValueRef::Uuid(bytes) => uuid::Uuid::from_bytes(bytes).to_string(),
        ValueRef::Binary(bytes) => format!("{} bytes", bytes.len()),
        ValueRef::Other(raw) => format!("{} bytes encoded", raw.len()),
    }
}

/// The body, where it is text or bytes that read as text.
fn body_text(message: &Message) -> Option<String> {
    let body = message.body();
    if body.len() > BODY_SHOWN {
        return None;
    }
    let Value::Described(described) = Value::decode_all(body).ok()? else { return None };
    match described.value {
        Value::String(text) => Some(text.to_string()),
        Value::Binary(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}
