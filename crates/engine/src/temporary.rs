//! Temporary queues: made by a link for itself, in memory only, gone with it or at the latest with its connection (ADR-9,
//! AMQP part 3, sections 3.5.9 and 3.5.10).

use crate::command::{ConnId, Lifetime, ProducerKey, TakerKey};
use crate::engine::{Engine, Task};
use postroad_model::id::StoreKey;
use postroad_model::settings::QueueSettings;
use postroad_record::{MadeBy, StoreDefinition};

/// What a temporary queue has besides what every queue has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temporary {
    lifetime: Lifetime,
    /// The link that made it, while that is attached.
    maker: Option<Maker>,
}

/// A link that made a temporary queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// It sends there.
    Producer(ProducerKey),
    /// It takes from there.
    Taker(TakerKey),
}

impl Engine {
    /// Creates a temporary queue for a link of a connection. Say which with [`Engine::made_by`].
    pub(crate) fn create_temporary(&mut self, conn: ConnId, lifetime: Lifetime) -> Option<StoreKey> {
        if !self.conns.contains_key(&conn) {
            return None;
        }
        let name = format!("$tmp.{}", base32(self.new_uid().0));
        let definition = StoreDefinition::Queue(QueueSettings::default());
        let store = self.create_store(&name, definition, MadeBy::FirstUse, false);
        if let Some(state) = self.store_mut(store) {
            state.owner = Some(conn);
            state.temporary = Some(Temporary { lifetime, maker: None });
        }
        if let Some(state) = self.conns.get_mut(&conn) {
            state.temporaries.insert(store);
        }
        Some(store)
    }

    /// The link that a temporary queue was made for.
    pub(crate) fn made_by(&mut self, store: StoreKey, maker: Maker) {
        if let Some(temporary) = self.store_mut(store).and_then(|s| s.temporary.as_mut()) {
            temporary.maker = Some(maker);
        }
    }

    /// A link left a store: if it made it, it goes, or goes when nothing is left that its lifetime waits for.
    pub(crate) fn link_left(&mut self, store: StoreKey, link: Maker) {
        let Some(temporary) = self.store_mut(store).and_then(|s| s.temporary.as_mut()) else { return };
        if temporary.maker == Some(link) {
            temporary.maker = None;
        }
        self.reap(store);
    }

    /// Something left a store that may outlive its maker no longer.
    pub(crate) fn reap_later(&mut self, store: StoreKey) {
        let orphan = |temporary: Temporary| temporary.maker.is_none();
        if self.store(store).and_then(|s| s.temporary).is_some_and(orphan) {
            self.schedule(Task::Reap(store));
        }
    }

    /// Deletes a temporary queue whose life is over.
    pub(crate) fn reap(&mut self, key: StoreKey) -> bool {
        let Some(store) = self.store(key) else { return false };
        let Some(Temporary { lifetime, maker: None }) = store.temporary else { return false };
        let linked = || !self.takers_of(key).is_empty() || !self.producers_of(key).is_empty();
        let holds = store.taken() > 0;
        let over = match lifetime {
            Lifetime::OnClose => true,
            Lifetime::OnNoLinks => !linked(),
            Lifetime::OnNoMessages => !holds,
            Lifetime::OnNoLinksOrMessages => !holds && !linked(),
        };
        if over {
            self.delete_store_now(key);
        }
        false
    }
}

/// 128 bits as 26 characters that no protocol treats specially.
fn base32(bytes: [u8; 16]) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut number = u128::from_be_bytes(bytes);
    let mut out = [0u8; 26];
    for place in out.iter_mut().rev() {
        *place = DIGITS[usize::try_from(number % 32).unwrap_or(0)];
        number /= 32;
    }
    String::from_utf8_lossy(&out).into_owned()
}
