//! The messages themselves, each held once however many stores hold it (DESIGN 7.2).

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use postroad_model::id::BodyId;
use postroad_model::message::Message;

/// A message and how many events hold it.
#[derive(Debug)]
struct Body {
    message: Message,
    holders: u32,
    /// Those holders that are on disk themselves. Once there is none, a restart would not find the bytes again.
    durable_holders: u32,
    /// The bytes are in the journal, and nothing has freed them there.
    on_disk: bool,
}

/// All messages, by their broker-wide number.
#[derive(Debug)]
pub(crate) struct Bodies {
    // Never iterated where order can be seen, so a hash map is safe; its seed is fixed all the same.
    by_id: HashMap<BodyId, Body, FixedState>,
    next: u64,
    bytes: u64,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { by_id: HashMap::with_hasher(FixedState::with_seed(0x706f_7374)), next: 1, bytes: 0 }
    }
}

impl Bodies {
    /// The number for the next message.
    pub(crate) const fn next_id(&mut self) -> BodyId {
        let id = BodyId(self.next);
        self.next += 1;
        id
    }

    /// Keeps a message that no event holds yet. `on_disk` says that its bytes are in the journal.
    pub(crate) fn insert(&mut self, id: BodyId, message: Message, on_disk: bool) {
        self.next = self.next.max(id.0.saturating_add(1));
        if let Some(body) = self.by_id.get_mut(&id) {
            body.on_disk |= on_disk;
            return;
        }
        self.bytes += message.len() as u64;
        self.by_id.insert(id, Body { message, holders: 0, durable_holders: 0, on_disk });
    }

    /// Another event holds it; `durable` if that event is on disk.
    pub(crate) fn hold(&mut self, id: BodyId, durable: bool) {
        if let Some(body) = self.by_id.get_mut(&id) {
            body.holders += 1;
            body.durable_holders += u32::from(durable);
        }
    }

    /// An event let it go; the last one frees it.
    pub(crate) fn release(&mut self, id: BodyId, durable: bool) {
        let Some(body) = self.by_id.get_mut(&id) else { return };
        body.holders = body.holders.saturating_sub(1);
        body.durable_holders = body.durable_holders.saturating_sub(u32::from(durable));
        body.on_disk &= body.durable_holders > 0;
        if body.holders == 0 {
            self.bytes -= body.message.len() as u64;
            self.by_id.remove(&id);
        }
    }

    /// Forgets what no event holds: bytes that were read back though what held them is gone.
    pub(crate) fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.by_id.retain(|_, body| {
            if body.holders == 0 {
                *bytes -= body.message.len() as u64;
            }
            body.holders > 0
        });
    }

    /// The message.
    #[must_use]
    pub(crate) fn get(&self, id: BodyId) -> Option<&Message> {
        self.by_id.get(&id).map(|body| &body.message)
    }

    /// Whether its bytes are in the journal.
    #[must_use]
    pub(crate) fn on_disk(&self, id: BodyId) -> bool {
        self.by_id.get(&id).is_some_and(|body| body.on_disk)
    }

    /// Its bytes are in the journal now.
    pub(crate) fn mark_on_disk(&mut self, id: BodyId) {
        if let Some(body) = self.by_id.get_mut(&id) {
            body.on_disk = true;
        }
    }

    /// How many messages there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The messages that events on disk hold, in ascending order.
    pub(crate) fn durable(&self) -> Vec<BodyId> {
        let held = self.by_id.iter().filter(|(_, body)| body.durable_holders > 0);
        let mut ids: Vec<BodyId> = held.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Their bytes.
    #[must_use]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}
