//! An event as it is stored: the broker's facts beside the message, never inside it.

use crate::dead_letter::DeadLetter;
use postroad_model::id::{BodyId, EventId, Origin, StoreUid, WallMs};
use serde::{Deserialize, Serialize};

/// One event of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its number in the store.
    pub id: EventId,
    /// The message that it holds.
    pub body: BodyId,
    /// When it came, in wall-clock milliseconds.
    pub arrived: WallMs,
    /// When the sender's time for it is over; 0 means never.
    pub expires: WallMs,
    /// 0 to 9.
    pub priority: u8,
    /// Whether the sender asked for it to be kept.
    pub durable: bool,
    /// What most events do not have.
    pub extra: Option<Box<Extra>>,
}

/// Facts that only some events have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// Who took it first; `None` means this store, under its present identity (DUP-2).
    pub origin: Option<Origin>,
    /// Name of the origin store, for people (DUP-13).
    pub origin_store: Option<String>,
    /// Further stores that it may cross; `None` means unlimited (HOP-2).
    pub budget: Option<u8>,
    /// Stores that it came through, oldest first, at most 32 (LOOP-3).
    pub path: Vec<StoreUid>,
    /// Generation beyond the first (README U-2).
    pub generation: u32,
    /// Client id of the publisher, where a subscription asks for no-local (AM-10).
    pub publisher: Option<String>,
    /// The key under which a repeated message-id is recognised (DUP-11).
    pub message_id: Option<String>,
    /// Why it lies on a dead-letter queue or in a dead event store (DLQ-3).
    pub dead: Option<Box<DeadLetter>>,
    /// A copy that an archive join recorded: exempt from "each origin once" (ARC-4).
    pub archived: bool,
    /// An archived copy of an arrival that repeated an event (ARC-3).
    pub archive_duplicate: bool,
}

impl Extra {
    /// Whether there is nothing in it, so that it need not be kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
