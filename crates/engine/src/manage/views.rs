//! Stores and events as operators see them.

use super::excerpt::Excerpt;
use crate::admin::{DeadLetterView, EventView, ScheduledView, SettingsView, StoreKind, StoreView};
use crate::engine::Engine;
use crate::log::Entry;
use crate::object::made_by_text;
use crate::schedule::Scheduled;
use crate::store::{Kind, Store};
use postroad_model::id::EventId;
use postroad_model::message::Message;
use postroad_record::DeadLetter;

/// Messages that an answer looks at to count the stranded ones: of a list, all its stores together.
const STRANDED_LOOKS: usize = 10_000;

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
        let excerpt = Excerpt::of(message);
        ScheduledView {
            number,
            due: scheduled.due,
            taken: event.arrived,
            expires: event.expires,
            priority: event.priority,
            durable: event.durable,
            size: self.bodies.size(event.body),
            message_id: excerpt.message_id,
            properties: excerpt.properties,
            body: excerpt.body,
            cut: excerpt.cut,
        }
    }

    pub(super) fn event_view(&self, store: &Store, entry: &Entry, in_delivery: bool) -> EventView {
        let event = &entry.event;
        let extra = event.extra.as_deref();
        let mut excerpt = Excerpt::of(self.look_at(event.body));
        let dead_letter =
            extra.and_then(|e| e.dead.as_deref()).map(|dead| dead_letter_view(dead, &mut excerpt));
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
            dead_letter,
            archive_duplicate: extra.is_some_and(|e| e.archive_duplicate),
            message_id: excerpt.message_id,
            properties: excerpt.properties,
            body: excerpt.body,
            cut: excerpt.cut,
        }
    }
}

fn dead_letter_view(dead: &DeadLetter, excerpt: &mut Excerpt) -> DeadLetterView {
    DeadLetterView {
        reason: dead.reason.clone(),
        dest: dead.dest.clone(),
        event_id: dead.event_id as EventId,
        named_object: dead.named_object.clone(),
        address: dead.address.as_deref().map(|address| excerpt.text(address)),
        component: dead.component.clone(),
        time: dead.time,
        count: dead.count,
        text: excerpt.text(&dead.text),
    }
}
