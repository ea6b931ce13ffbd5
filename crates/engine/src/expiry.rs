//! Durable subscriptions that expire: what their client asked of its terminus (AM-6; AMQP part 3, sections 3.5.3 and
//! 3.5.6).

use crate::command::ConnId;
use crate::engine::{Engine, Task};
use crate::reader::{ReaderKey, Who};
use postroad_model::id::ObjectKey;
use postroad_model::settings::ExpiryPolicy;
use postroad_record::{MadeBy, Owner};

impl Engine {
    /// The time of a subscription begins to run, if it is one that expires. With no time it ends now.
    pub(crate) fn begin_expiry(&mut self, object: ObjectKey) {
        let now = self.now.mono;
        let Some(state) = self.objects.get_mut(&object) else { return };
        if state.settings.expiry_policy == ExpiryPolicy::Never || state.made_by != MadeBy::FirstUse {
            return;
        }
        state.unused_since = Some(now);
        self.lapse(object);
    }

    /// Ends a subscription that nobody has used for as long as it was to wait.
    pub(crate) fn lapse(&mut self, object: ObjectKey) -> bool {
        let now = self.now.mono;
        if self.consumer_of(object).is_some() {
            return false;
        }
        let Some(state) = self.objects.get(&object) else { return false };
        // Somebody was there, and left for a while.
        let Some(since) = state.unused_since else { return false };
        let due = since.saturating_add(u64::from(state.settings.expiry_timeout) * 1_000);
        if now >= due {
            tracing::info!(subscription = %state.name, "a durable subscription expired");
            self.delete_object_now(object);
        } else {
            self.wake_at(due, Task::Lapse(object));
        }
        false
    }

    /// The consumer of a reader is lost with its connection: that is the end of link and session, too.
    pub(crate) fn lost_with_connection(&mut self, reader: ReaderKey) {
        if let Some(Who::Object(object)) = self.readers.get(reader).map(|reader| reader.who) {
            self.begin_expiry(object);
        }
    }

    /// A subscription whose consumer left before begins to expire.
    pub(crate) fn expire_subscription(&mut self, conn: ConnId, name: &str) {
        let Some(client) = self.conns.get(&conn).map(|conn| conn.client.id.clone()) else { return };
        let found = self.find_object(postroad_model::id::StoreKey(0), &Owner::Client(client), name);
        if let Some(object) = found.filter(|object| self.consumer_of(*object).is_none()) {
            self.begin_expiry(object);
        }
    }

    /// After a start no connection of before is there any more: what expires has begun to.
    pub(crate) fn expire_after_start(&mut self) -> bool {
        let expiring = self.objects.values().filter(|o| o.settings.expiry_policy != ExpiryPolicy::Never);
        let keys: Vec<ObjectKey> = expiring.map(|object| object.key).collect();
        for key in keys.into_iter().filter(|key| self.consumer_of(*key).is_none()).collect::<Vec<_>>() {
            self.begin_expiry(key);
        }
        false
    }
}
