//! Annotations that consumers added to messages which they gave back (outcome `modified`; AMQP part 3, section 3.4.5).
//! A message is shared by all stores and never changes, so what was added to it lies beside it, where its consumer had it
//! from: at the queue, or at the reader of the channel, whose other readers see nothing of it. It is merged in when the
//! message is sent again, and goes along where the queue's message goes, and where a dead letter goes.

use crate::effect::Step;
use crate::engine::Engine;
use crate::reader::{Owed, ReaderKey, Who};
use crate::store::Store;
use crate::taker::Source;
use bytes::Bytes;
use postroad_model::annotations::merge;
use postroad_model::id::{EventId, StoreKey};
use postroad_model::message::Message;
use postroad_model::refusal::{Code, Refusal};
use postroad_record::{Place, Record};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Bytes of them that a broker keeps at most.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes that those of one event take besides their own.
const OVERHEAD: u64 = 128;

/// What was added to one event.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    /// A message-annotations section.
    pub section: Bytes,
    /// The step that says so: the event is not sent again before that is durable.
    pub after: Step,
}

impl Added {
    const fn size(&self) -> u64 {
        self.section.len() as u64 + OVERHEAD
    }
}

/// What was added to the events of a store, or to those that a reader owes.
#[derive(Debug, Default)]
pub(crate) struct Annotated {
    events: BTreeMap<EventId, Added>,
}

impl Annotated {
    /// Of nothing.
    pub(crate) const fn new() -> Self {
        Self { events: BTreeMap::new() }
    }

    /// What was added to an event.
    #[must_use]
    pub(crate) fn get(&self, event: EventId) -> Option<&Added> {
        self.events.get(&event)
    }

    /// All events, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EventId, &Added)> {
        self.events.iter().map(|(&event, added)| (event, added))
    }

    /// The bytes that all of it takes.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.events.values().map(Added::size).sum()
    }

    /// Puts `added` in the place of what was there; the bytes that takes, and those that it took.
    fn put(&mut self, event: EventId, added: Added) -> (u64, u64) {
        let size = added.size();
        (size, self.events.insert(event, added).map_or(0, |before| before.size()))
    }

    /// Forgets an event; the bytes that are free.
    #[must_use]
    pub(crate) fn forget(&mut self, event: EventId) -> u64 {
        self.events.remove(&event).map_or(0, |added| added.size())
    }

    /// Forgets a range of events; the bytes that are free.
    #[must_use]
    pub(crate) fn forget_range(&mut self, first: EventId, last: EventId) -> u64 {
        let mut freed = 0;
        while let Some((&event, _)) = self.events.range(first..=last).next() {
            freed += self.forget(event);
        }
        freed
    }
}

impl Engine {
    /// A consumer adds annotations to messages that it gives back. After a refusal the rest have none of them.
    ///
    /// # Errors
    /// A refusal if a message would be larger than its store takes, or there is no room for more.
    pub(crate) fn annotate(
        &mut self,
        store: StoreKey,
        source: Source,
        closed: &[(u64, EventId)],
        added: &[u8],
    ) -> Result<(), Refusal> {
        for &(tag, event) in closed {
            let before = match source {
                Source::Queue => self.store(store).and_then(|store| store.annotated.get(event)),
                Source::Reader(reader) => {
                    let reader = self.readers.get(reader);
                    let Some(reader) = reader.filter(|r| r.owed().get(&event) == Some(&Owed::Delivered(tag)))
                    else {
                        continue;
                    };
                    reader.annotated.get(event)
                }
                Source::Browser { .. } => return Ok(()),
            };
            // The front door encoded it itself, so there is nothing that can't be read.
            let Ok(section) = merge(before.map(|before| &*before.section), added) else { return Ok(()) };
            if section.is_empty() {
                return Ok(());
            }
            let size = before.map_or(0, Added::size);
            self.check_annotated(store, event, &section, size)?;
            self.record_annotated(store, source, event, section);
        }
        Ok(())
    }

    /// Refuses annotations for which there is no room; those of this event take `before` bytes so far.
    fn check_annotated(
        &self,
        key: StoreKey,
        event: EventId,
        section: &[u8],
        before: u64,
    ) -> Result<(), Refusal> {
        let Some(store) = self.store(key) else { return Ok(()) };
        let Some(entry) = store.log.get(event) else { return Ok(()) };
        let name = &*store.name;
        if entry.on_disk {
            self.check_disk(name)?;
        }
        let (size, limit) =
            (self.bodies.size(entry.event.body) + section.len() as u64, self.size_limit(store));
        if size > limit {
            let text = format!(
                "with the annotations of the outcome the message has up to {size} bytes, '{name}' takes at most {limit}"
            );
            return Err(Refusal::new(Code::MsgTooBig, name, text));
        }
        let all = (self.annotated_bytes + section.len() as u64 + OVERHEAD).saturating_sub(before);
        if all > MAX_BYTES {
            let text = format!(
                "annotations of outcomes take {MAX_BYTES} bytes already, as much as they may: \
                 consume the messages that have them, or add less"
            );
            return Err(Refusal::new(Code::LimitReached, name, text));
        }
        Ok(())
    }

    fn record_annotated(&mut self, store: StoreKey, source: Source, event: EventId, annotations: Bytes) {
        let on_disk = self.store(store).and_then(|s| s.log.get(event)).is_some_and(|entry| entry.on_disk);
        let object = match source {
            Source::Queue | Source::Browser { .. } => {
                let place = Place::Store(store);
                return self.record(Record::Annotated { place, event, annotations }, on_disk);
            }
            Source::Reader(key) => match self.readers.get(key).map(|reader| reader.who) {
                Some(Who::Object(object)) => object,
                _ => return self.put_reader_annotated(key, event, annotations),
            },
        };
        let persistent = self.objects.get(&object).is_some_and(|object| object.settings.persistent);
        let place = Place::Object(object);
        self.record(Record::Annotated { place, event, annotations }, persistent && on_disk);
    }

    pub(crate) fn apply_annotated(&mut self, place: Place, event: EventId, section: Bytes) {
        let after = self.step_under_way();
        match place {
            Place::Store(key) => {
                let Some(store) = self.store_mut(key) else { return };
                if store.log.get(event).is_some() || store.spool.contains_key(&event) {
                    let (more, less) = store.annotated.put(event, Added { section, after });
                    self.annotated_bytes = (self.annotated_bytes + more).saturating_sub(less);
                }
            }
            Place::Object(object) => {
                let reader = self.objects.get(&object).map(|object| object.reader);
                if let Some(reader) = reader {
                    self.put_reader_annotated(reader, event, section);
                }
            }
        }
    }

    fn put_reader_annotated(&mut self, key: ReaderKey, event: EventId, section: Bytes) {
        let after = self.step_under_way();
        let Some(reader) = self.readers.get_mut(key) else { return };
        let (more, less) = reader.annotated.put(event, Added { section, after });
        self.annotated_bytes = (self.annotated_bytes + more).saturating_sub(less);
    }

    /// Bytes of annotations were freed.
    pub(crate) const fn freed_annotated(&mut self, bytes: u64) {
        self.annotated_bytes = self.annotated_bytes.saturating_sub(bytes);
    }

    /// A copy of an event was stored elsewhere: what was added to the event goes along, and what a reader's consumers
    /// added.
    pub(crate) fn copy_annotated(
        &mut self,
        (from, event): (StoreKey, EventId),
        by_reader: Option<&[u8]>,
        (to, copy): (StoreKey, EventId),
    ) {
        let there = self.store(from).and_then(|store| store.annotated.get(event));
        let annotations = match (there.map(|added| added.section.clone()), by_reader) {
            (None, None) => return,
            (Some(section), None) => section,
            // Both were merged from what could be read, so they can be.
            (section, Some(more)) => merge(section.as_deref(), more).unwrap_or_default(),
        };
        let on_disk = self.store(to).and_then(|s| s.log.get(copy)).is_some_and(|entry| entry.on_disk);
        self.record(Record::Annotated { place: Place::Store(to), event: copy, annotations }, on_disk);
    }

    /// What the consumers of a reader added to an event.
    pub(crate) fn added_at_reader(&self, key: ReaderKey, event: EventId) -> Option<&Added> {
        self.readers.get(key)?.annotated.get(event)
    }

    /// A message of a store with what was added to it there and where its consumer reads, and the step for which it waits.
    pub(crate) fn with_added(
        &self,
        message: &Message,
        store: &Store,
        event: EventId,
        source: Source,
    ) -> (Message, Step) {
        // Mostly nobody has added anything.
        if self.annotated_bytes == 0 {
            return (message.clone(), Step(0));
        }
        let at_reader = match source {
            Source::Reader(reader) => self.added_at_reader(reader, event),
            Source::Queue | Source::Browser { .. } => None,
        };
        let mut whole = Cow::Borrowed(message);
        let mut after = Step(0);
        for added in [store.annotated.get(event), at_reader].into_iter().flatten() {
            after = after.max(added.after);
            // Both were merged from what could be read: this fails for damage in memory only.
            if let Ok(annotated) = whole.annotated(&added.section) {
                whole = Cow::Owned(annotated);
            }
        }
        (whole.into_owned(), after)
    }
}
