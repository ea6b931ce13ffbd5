//! Start, and the end of stores: what follows from a replayed journal, and what goes with a deleted store.

use crate::command::{ProducerKey, TakerKey};
use crate::effect::Effect;
use crate::engine::{Engine, Task};
use crate::reader::{Position, ReaderKey};
use crate::store::Store;
use crate::taker::Source;
use postroad_model::id::{JobKey, JoinKey, ObjectKey, StoreKey};
use postroad_model::refusal::{Code, Refusal};
use postroad_model::settings::{BrokerSettings, QueueSettings};
use postroad_record::{MadeBy, Place, Record, StoreDefinition};

impl Engine {
    /// The settings that a start brings; call it before the first command.
    pub fn configure(&mut self, settings: BrokerSettings) {
        self.place = settings.name.as_str().into();
        self.settings = settings;
    }

    /// Makes what every broker has: its id and its dead-letter queue (DLQ-1). Call it once, after
    /// [`Engine::recovered`]; its records are a step.
    pub fn found(&mut self) {
        if self.broker_id == [0; 16] {
            let id = self.new_uid().0;
            self.record(Record::BrokerCreated { id }, true);
        }
        self.dead_letter_queue();
        if std::mem::take(&mut self.crashed) {
            self.suspect_deliveries();
        }
        self.end_step();
    }

    /// Prepares an orderly stop, which the next start takes for a proof that no event was numbered since: stores whose
    /// identity this start did not prove, and that nobody published to, get a new one now (DUP-3). Its records are a step.
    pub fn prepare_stop(&mut self) {
        let stores: Vec<StoreKey> = self.all_stores().map(|store| store.key).collect();
        for store in stores {
            self.prove_identity(store);
        }
        self.end_step();
    }

    /// After a crash everything that may have been sent comes flagged redelivered, also after further clean stops
    /// (AK-10). What is stored from now on was not sent before.
    fn suspect_deliveries(&mut self) {
        let stores = self
            .all_stores()
            .map(|s| (Place::Store(s.key), s.sent_up_to.min(s.last_id()), s.sent_before_start));
        let objects = self.objects.values().map(|o| {
            let last = self.store(o.store).map_or(0, Store::last_id);
            (Place::Object(o.key), o.sent_up_to.min(last), o.sent_before_start)
        });
        let suspects: Vec<_> = stores.chain(objects).filter(|(_, up_to, known)| up_to > known).collect();
        for (place, up_to, _) in suspects {
            self.record(Record::Suspected { place, up_to }, true);
        }
    }

    /// The broker's dead-letter queue, made if it is not there.
    pub(crate) fn dead_letter_queue(&mut self) -> StoreKey {
        let name = self.settings.dead_letter_queue.clone();
        if let Some(&key) = self.queues.get(name.as_str()) {
            return key;
        }
        self.create_store(&name, StoreDefinition::Queue(QueueSettings::default()), MadeBy::Broker, true)
    }

    /// Puts readers where the journal says they are, and wakes everything that has something to do.
    pub(crate) fn resume_after_replay(&mut self) {
        let objects: Vec<(ReaderKey, u64)> = self.objects.values().map(|o| (o.reader, o.low)).collect();
        for (reader, low) in objects {
            self.place_reader(reader, low);
            self.schedule(Task::Feed(reader));
        }
        let joins: Vec<(JoinKey, ReaderKey, u64, bool)> =
            self.joins.values().map(|j| (j.key, j.reader, j.cursor, j.settings.archive)).collect();
        for (key, reader, cursor, archive) in joins {
            if !archive {
                self.place_reader(reader, cursor.saturating_add(1));
            }
            self.schedule(Task::Join(key));
        }
        let stores: Vec<(StoreKey, bool)> = self.all_stores().map(|s| (s.key, s.is_queue())).collect();
        for (key, is_queue) in stores {
            self.schedule(Task::Expire(key));
            self.schedule(Task::Due(key));
            self.schedule(if is_queue { Task::Dispatch(key) } else { Task::Trim(key) });
        }
        self.schedule(Task::LapseAll);
        let jobs: Vec<JobKey> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.schedule(Task::Job(job));
        }
    }

    fn place_reader(&mut self, key: ReaderKey, at: u64) {
        if let Some(reader) = self.readers.get_mut(key) {
            reader.position = Position::Behind(at);
        }
        self.list_need(key);
    }

    /// Removes a store with its objects and consumers; its joins have been dealt with.
    pub(crate) fn delete_store_now(&mut self, key: StoreKey) {
        let Some(store) = self.store(key) else { return };
        let (name, durable, is_queue) = (store.name.to_string(), store.owner.is_none(), store.is_queue());
        self.abandon_jobs(&name, |job| job.store() == Some(key));
        // Temporary queues go by the thousand, and each look at all objects would take as long as there are any.
        if !is_queue {
            let of_store = |object: &&crate::object::Object| object.store == key;
            let objects: Vec<ObjectKey> = self.objects.values().filter(of_store).map(|o| o.key).collect();
            for object in objects {
                self.delete_object_now(object);
            }
        }
        if let Some(store) = self.store_mut(key) {
            // The links that are thrown out now must not end a temporary queue a second time.
            store.temporary = None;
        }
        for taker in self.takers_of(key) {
            let text = format!("'{name}' was deleted");
            self.throw_out(taker, Refusal::new(Code::Deleted, name.clone(), text));
        }
        for (producer, conn, link) in self.producers_of(key) {
            self.close_producer_quietly(producer);
            let refusal = Refusal::new(Code::Deleted, name.clone(), format!("'{name}' was deleted"));
            self.emit(self.step_under_way(), Effect::DetachLink { conn, link, refusal });
        }
        let owner = self.store(key).and_then(|store| store.owner);
        if let Some(conn) = owner.and_then(|conn| self.conns.get_mut(&conn)) {
            conn.temporaries.remove(&key);
        }
        self.remove_store(key, durable);
    }

    /// Consumers of a store, of every kind.
    pub(crate) fn takers_of(&self, store: StoreKey) -> Vec<TakerKey> {
        self.store(store).map(|store| store.takers.iter().copied().collect()).unwrap_or_default()
    }

    /// Consumers that take or read, without browsers.
    pub(crate) fn consumer_count(&self, store: &Store) -> usize {
        match store.queue() {
            Some(queue) => queue.rings.all().count(),
            None => {
                let takers = store.takers.iter().filter_map(|key| self.takers.get(*key));
                takers.filter(|taker| !matches!(taker.source, Source::Browser { .. })).count()
            }
        }
    }

    /// Publishers that were held up for a store may go on.
    pub(crate) fn release_producers(&mut self, store: StoreKey) -> bool {
        let held: Vec<ProducerKey> = self.producers_of(store).into_iter().map(|(key, _, _)| key).collect();
        for producer in held {
            self.replenish(producer, self.step_under_way());
        }
        false
    }
}
