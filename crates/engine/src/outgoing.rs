//! What is on its way to the clients: a connection that does not read is sent no more than a bounded number of bytes,
//! whatever credit it gave (DESIGN 2).

use crate::command::{ConnId, TakerKey};
use crate::engine::{Engine, Task};
use crate::taker::Source;

/// Bytes of messages that may be on the way to one connection before its consumers are held: enough to keep a fast
/// reader busy while the next turn is made.
const HELD_FROM: i64 = 1024 * 1024;
/// They go on once so few are left.
const RELEASED_AT: i64 = HELD_FROM / 2;
/// A consumer's own count is added to its connection's when it has reached this, so that small messages cost no look
/// at the connection each.
const COUNTED_FROM: u64 = 16 * 1024;

impl Engine {
    /// Notes a message that was just sent to a consumer.
    pub(crate) fn note_on_the_way(&mut self, key: TakerKey, bytes: usize) {
        let Some(taker) = self.takers.get_mut(key) else { return };
        taker.uncounted += bytes as u64;
        if taker.uncounted >= COUNTED_FROM {
            self.count_on_the_way(key);
        }
    }

    /// Adds what a consumer was sent to the count of its connection, and holds that if it is too much.
    pub(crate) fn count_on_the_way(&mut self, key: TakerKey) {
        let Some(taker) = self.takers.get_mut(key) else { return };
        let (conn, bytes) = (taker.conn, std::mem::take(&mut taker.uncounted));
        let Some(state) = self.conns.get_mut(&conn) else { return };
        state.on_the_way = state.on_the_way.saturating_add_unsigned(bytes);
        if !state.held && state.on_the_way >= HELD_FROM {
            state.held = true;
            self.hold_consumers(conn, true);
        }
    }

    /// A connection has written so many bytes of messages to its socket.
    pub(crate) fn written(&mut self, conn: ConnId, bytes: u64) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        // What its consumers have not counted yet may be among it, so this can fall below zero for a while.
        state.on_the_way = state.on_the_way.saturating_sub_unsigned(bytes);
        if state.held && state.on_the_way <= RELEASED_AT {
            state.held = false;
            self.hold_consumers(conn, false);
        }
    }

    /// Stops or wakes all consumers of a connection. It happens once for many messages, so it may look at each.
    fn hold_consumers(&mut self, conn: ConnId, hold: bool) {
        let Some(state) = self.conns.get(&conn) else { return };
        let takers: Vec<TakerKey> = state.takers.iter().copied().collect();
        for key in takers {
            let Some(taker) = self.takers.get_mut(key) else { continue };
            taker.held = hold;
            let (store, source) = (taker.store, taker.source);
            self.note_window(key);
            if !hold {
                self.schedule(match source {
                    Source::Queue => Task::Dispatch(store),
                    Source::Reader(reader) => Task::Feed(reader),
                    Source::Browser { .. } => Task::Browse(key),
                });
            }
        }
    }
}
