//! What a store has taken of one origin store, as a checkpoint keeps it (DUP-4, DUP-6).

use crate::IdRange;
use bytes::Bytes;
use postroad_model::id::{EventId, WallMs};
use serde::{Deserialize, Serialize};

/// The ids taken of one origin store, in blocks of 65,536.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KnownOrigins {
    /// Numbers of the blocks of which every id was taken, as inclusive ranges.
    pub full: Vec<IdRange>,
    /// The other blocks, ascending.
    pub blocks: Vec<IdBlock>,
    /// The newest id taken.
    pub newest: EventId,
    /// Ids up to this one that are in no block can't be judged (DUP-7).
    pub forgotten_below: EventId,
}

/// The ids taken within one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdBlock {
    /// Its number: its first id divided by 65,536.
    pub number: u64,
    /// When an id of it was last taken.
    pub touched: WallMs,
    /// Which ids.
    pub ids: Ids,
}

/// Ids as offsets within a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ids {
    /// Every id from the first offset to the second.
    Run(u16, u16),
    /// A bitmap of 8,192 bytes; bit `n % 8` of byte `n / 8`, the lowest first, stands for offset `n`.
    Bits(Bytes),
}
