//! Identities: stores, events, origins, bodies.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of an event within one store. The first is 1; 0 means "before the first".
pub type EventId = u64;

/// Wall-clock time in milliseconds since 1970; 0 means "none" where a field says so.
pub type WallMs = u64;

/// The identity of a store: 128 random bits, made anew whenever event ids could otherwise be given twice (DUP-3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct StoreUid(pub [u8; 16]);

impl fmt::Debug for StoreUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StoreUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_bytes(self.0).fmt(f)
    }
}

/// Who first took a message from a client, and as which event (DUP-2, README U-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The store that took it.
    pub store: StoreUid,
    /// Its event id there.
    pub event: EventId,
}

impl Origin {
    /// The 24 bytes of the wire form: store id, then event id big-endian (DUP-13).
    #[must_use]
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.store.0);
        bytes[16..].copy_from_slice(&self.event.to_be_bytes());
        bytes
    }
}

/// A store's number within one broker's log; small, dense, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreKey(pub u32);

/// A named object's number within one broker's log; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey(pub u32);

/// A join's number within one broker's log; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JoinKey(pub u32);

/// A job's number within one broker's log; never given twice while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey(pub u32);

/// The broker-wide number of a stored message body; stores hold this, never a place (DESIGN 7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BodyId(pub u64);

/// A position in the journal; everything at or below the durable position is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lsn(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_travels_as_store_id_then_event_id() {
        let origin = Origin { store: StoreUid([7; 16]), event: 0x0102 };
        let bytes = origin.to_bytes();
        assert_eq!(bytes[..16], [7; 16]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
