//! What channels, queues and named objects say about other stores and about the broker's limits.

use super::{Directory, Found, Store, near};
use crate::diagnostic::{Code, Sink};
use crate::read::Draft;
use crate::source::Span;
use crate::table::Places;
use crate::value::quote;

/// Checks dead event stores, dead-letter queues, expiry queues and sizes.
pub(super) fn check(draft: &Draft, directory: &Directory<'_>, sink: &Sink<'_>) {
    let checker = Checker { directory, sink, limit: draft.config.broker.max_message_size };
    for defined in &draft.channels {
        let channel = &defined.channel;
        let settings = &channel.value.settings;
        let own = Store::Channel(channel.value.name.clone());
        checker.dead_event_store(settings.dead_event_store.as_deref(), &own, &channel.places);
        checker.size(settings.max_message_size, &channel.places);
        for object in &defined.objects {
            let letters = object.value.settings.redelivery.dead_letter_queue.as_deref();
            checker.queue(letters, None, "dead_letter_queue", &object.places);
        }
    }
    for queue in &draft.queues {
        let settings = &queue.value.settings;
        let own = Store::Queue(queue.value.name.clone());
        let name = Some(queue.value.name.as_str());
        checker.dead_event_store(settings.dead_event_store.as_deref(), &own, &queue.places);
        checker.queue(
            settings.redelivery.dead_letter_queue.as_deref(),
            name,
            "dead_letter_queue",
            &queue.places,
        );
        checker.queue(settings.expiry_queue.as_deref(), name, "expiry_queue", &queue.places);
        checker.size(settings.max_message_size, &queue.places);
        if name == Some(draft.config.broker.dead_letter_queue.as_str()) {
            checker.dead_letters_stay(settings.ttl + settings.expiry_default > 0, &queue.places);
        }
    }
}

struct Checker<'c> {
    directory: &'c Directory<'c>,
    sink: &'c Sink<'c>,
    limit: u64,
}

impl Checker<'_> {
    /// A dead event store is another local store (joins-and-interest 5.1).
    fn dead_event_store(&self, written: Option<&str>, own: &Store, places: &Places) {
        let Some(written) = written else { return };
        let at = places.of("dead_event_store");
        match self.directory.find(written) {
            Found::Here(store) | Found::MadeByUse(store) if store == *own => {
                let message =
                    format!("{} {} can't be its own dead event store", own.kind(), quote(own.name()));
                self.sink.error(Code::DesSelf, at, message, "name another channel or queue");
            }
            Found::Here(_) => {}
            Found::MadeByUse(_) | Found::Nowhere => {
                let names = self.directory.channels.iter().chain(&self.directory.queues).copied();
                self.not_defined("dead_event_store", written, at, &near(self.sink, written, names));
            }
            Found::Elsewhere(broker) => {
                let message = format!("a dead event store is on this broker, not on {}", quote(&broker));
                self.sink.error(Code::BadValue, at, message, "name a channel or queue that is defined here");
            }
            Found::Malformed(why) => self.sink.error(Code::BadName, at, why, "name a channel or queue"),
        }
    }

    /// Dead-letter and expiry queues are other local queues; they may be made later, so absence is a warning.
    fn queue(&self, written: Option<&str>, own: Option<&str>, key: &str, places: &Places) {
        let Some(written) = written else { return };
        if own == Some(written) {
            let message = format!("queue {} can't be its own '{key}'", quote(written));
            self.sink.error(Code::Conflict, places.of(key), message, "name another queue");
        } else if !self.directory.has_queue(written) {
            let names = self.directory.queues.iter().copied();
            self.not_defined(key, written, places.of(key), &near(self.sink, written, names));
        }
    }

    fn not_defined(&self, key: &str, written: &str, at: Span, near: &str) {
        let message = format!("{} in '{key}' is not defined in this file", quote(written));
        let advice = format!("messages meant for it stay where they are until it exists{near}");
        self.sink.warn(Code::StoreNotFound, at, message, advice);
    }

    /// A store may only lower the broker's limit (joins-and-interest 5.3).
    fn size(&self, size: u64, places: &Places) {
        if size > self.limit {
            let message = format!("'max_message_size' is above the broker's, which is {} bytes", self.limit);
            let advice = "write a smaller size, or raise max_message_size in [broker]";
            self.sink.error(Code::BadValue, places.of("max_message_size"), message, advice);
        }
    }

    /// Evidence must not vanish (DLQ-1, DLQ-4).
    fn dead_letters_stay(&self, expires: bool, places: &Places) {
        if expires {
            let at = if places.has("ttl") { places.of("ttl") } else { places.of("expiry_default") };
            let message = "the broker's dead-letter queue can't have an expiry";
            self.sink.error(
                Code::BadDeadLetterQueue,
                at,
                message,
                "remove 'ttl' and 'expiry_default' from it",
            );
        }
    }
}
