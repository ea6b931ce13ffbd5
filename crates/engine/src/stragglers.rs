//! Stragglers: messages that outlive their neighbours in a segment of the journal. They are written again at its end, so
//! that one old message does not hold the disk space of thousands (DESIGN 2, "the journal").

use crate::engine::{Engine, Task};
use postroad_model::id::BodyId;
use std::collections::BTreeSet;

/// Bytes that one task writes again at most; it writes one message at least.
const BYTES_PER_TASK: u64 = 256 * 1024;

/// Segments that are being cleared.
#[derive(Debug, Default)]
pub(crate) struct Clearing {
    segments: BTreeSet<u64>,
    /// Every message below this one was looked at.
    at: BodyId,
}

impl Engine {
    /// Writes the messages that are still held in these segments again, bit by bit, so that after the next
    /// [`Engine::snapshot`] nothing needs the segments any more. Not before those that are being cleared are done with: a
    /// set that each snapshot replaces would be begun again and again, and never come to its end.
    pub fn clear_segments(&mut self, segments: BTreeSet<u64>) {
        if !segments.is_empty() && self.clearing.segments.is_empty() {
            self.clearing = Clearing { segments, at: BodyId(0) };
            self.schedule(Task::Clear);
        }
    }

    /// Moves some stragglers; whether there is more to do.
    pub(crate) fn move_stragglers(&mut self) -> bool {
        let mut bytes = 0;
        while bytes < BYTES_PER_TASK {
            let (found, at) = self.bodies.next_in(&self.clearing.segments, self.clearing.at);
            self.clearing.at = at;
            let Some(body) = found else {
                let is_over = self.bodies.is_beyond(at);
                if is_over {
                    self.clearing = Clearing::default();
                }
                return !is_over;
            };
            if !self.is_body_at_hand(body, Task::Clear) {
                return false;
            }
            if let Some((step, offset)) = self.encode_body(body) {
                self.bodies.write(body, step, offset, true);
                bytes += self.bodies.size(body);
            }
            self.clearing.at = BodyId(body.0 + 1);
        }
        true
    }
}
