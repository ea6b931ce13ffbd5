//! Effects on their way out: each waits until what it promises is durable, and those of one connection go out in the order
//! in which they came (DESIGN 7.4). This is passed hundreds of thousands of times a second: an effect is moved once or
//! twice, and found by an index.

use crate::conn_ids::place_of;
use postroad_engine::admin::Response;
use postroad_engine::{ConnId, Effect, Step, Wanted};
use postroad_model::refusal::Refusal;
use std::collections::VecDeque;

/// The answer to an operator's request.
#[derive(Debug)]
pub struct Reply {
    /// The number that [`Shell::ask`](crate::Shell::ask) gave.
    pub number: u64,
    /// What came of it.
    pub result: Result<Response, Refusal>,
}

/// A connection with whatever the owner keeps for it.
#[derive(Debug)]
struct Conn<R> {
    id: ConnId,
    route: R,
    /// May go out.
    ready: Vec<Effect>,
    /// Waits, a list for each turn that is waited for, in order.
    held: VecDeque<Held>,
    /// Effects that went out last time, as a guess of how many the next list takes.
    usual: usize,
}

/// Effects of one connection that wait for the same turn.
#[derive(Debug)]
struct Held {
    until: Step,
    effects: Vec<Effect>,
}

/// A turn whose steps are not all durable, and who waits for it. Its steps reach the disk in one batch, so the last one
/// stands for all of them.
#[derive(Debug)]
struct Turn {
    last: Step,
    /// Places of connections.
    conns: Vec<u32>,
    replies: Vec<Reply>,
}

/// All effects that have not gone out.
#[derive(Debug)]
pub(crate) struct Outbox<R> {
    /// By place.
    conns: Vec<Option<Conn<R>>>,
    open: usize,
    turns: VecDeque<Turn>,
    durable: Step,
    /// Places of connections with effects ready.
    to_send: Vec<u32>,
    replies: VecDeque<Reply>,
    /// Messages to be read from the journal.
    loads: Vec<Wanted>,
}

impl<R> Default for Outbox<R> {
    fn default() -> Self {
        Self {
            conns: Vec::new(),
            open: 0,
            turns: VecDeque::new(),
            durable: Step(0),
            to_send: Vec::new(),
            replies: VecDeque::new(),
            loads: Vec::new(),
        }
    }
}

impl<R> Outbox<R> {
    /// From here on effects for this connection are kept.
    pub(crate) fn register(&mut self, id: ConnId, route: R) {
        let place = place_of(id) as usize;
        if self.conns.len() <= place {
            self.conns.resize_with(place + 1, || None);
        }
        let conn = Conn { id, route, ready: Vec::new(), held: VecDeque::new(), usual: 0 };
        if self.conns[place].replace(conn).is_none() {
            self.open += 1;
        }
    }

    /// Forgets a connection and what waits for it.
    pub(crate) fn unregister(&mut self, id: ConnId) {
        let found = self.conns.get_mut(place_of(id) as usize);
        let found = found.filter(|conn| conn.as_ref().is_some_and(|conn| conn.id == id));
        if found.is_some_and(|conn| conn.take().is_some()) {
            self.open -= 1;
        }
    }

    /// Connections that are registered.
    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// The registered connections.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.conns.iter().flatten().map(|conn| conn.id).collect()
    }

    /// The effects that come now are those of a turn whose last step is this one.
    pub(crate) fn begin_turn(&mut self, last: Step) {
        self.turns.push_back(Turn { last, conns: Vec::new(), replies: Vec::new() });
    }

    /// Takes an effect that may go out once the step `after` is durable.
    pub(crate) fn take(&mut self, after: Step, effect: Effect) {
        match effect.conn() {
            Some(id) => self.take_for(id, after, effect),
            None => self.take_own(after, effect),
        }
    }

    fn take_for(&mut self, id: ConnId, after: Step, effect: Effect) {
        let place = place_of(id);
        let conn = self.conns.get_mut(place as usize).and_then(Option::as_mut);
        // Of a connection that is gone nobody waits for anything.
        let Some(conn) = conn.filter(|conn| conn.id == id) else { return };
        if after <= self.durable && conn.held.is_empty() {
            if conn.ready.is_empty() {
                self.to_send.push(place);
            }
            conn.ready.push(effect);
            return;
        }
        if let Some(held) = conn.held.back_mut().filter(|held| held.until >= after) {
            held.effects.push(effect);
            return;
        }
        let turn = turn_of(&mut self.turns, after);
        turn.conns.push(place);
        let mut effects = Vec::with_capacity(conn.usual);
        effects.push(effect);
        conn.held.push_back(Held { until: turn.last, effects });
    }

    /// An effect that is for no connection: what concerns the owner or the shell itself has its place here.
    fn take_own(&mut self, after: Step, effect: Effect) {
        match effect {
            Effect::AdminReply { reply: number, result } => {
                let reply = Reply { number, result: *result };
                if after <= self.durable {
                    self.replies.push_back(reply);
                } else {
                    turn_of(&mut self.turns, after).replies.push(reply);
                }
            }
            // What is to be read is durable already.
            Effect::Load { wanted } => self.loads.extend(wanted),
            _ => {}
        }
    }

    /// The messages that are to be read from the journal.
    pub(crate) fn take_loads(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.loads)
    }

    /// Everything up to this step is durable: what waited for no more than that may go out.
    pub(crate) fn release(&mut self, durable: Step) {
        self.durable = durable;
        while let Some(turn) = self.turns.pop_front_if(|turn| turn.last <= durable) {
            self.replies.extend(turn.replies);
            for place in turn.conns {
                let Some(conn) = self.conns.get_mut(place as usize).and_then(Option::as_mut) else {
                    continue;
                };
                while let Some(mut held) = conn.held.pop_front_if(|held| held.until <= durable) {
                    if conn.ready.is_empty() {
                        self.to_send.push(place);
                        conn.ready = held.effects;
                    } else {
                        conn.ready.append(&mut held.effects);
                    }
                }
            }
        }
    }

    /// Hands out what is ready, a list for each connection.
    pub(crate) fn send_ready(&mut self, mut send: impl FnMut(ConnId, &R, Vec<Effect>)) {
        for place in self.to_send.drain(..) {
            if let Some(conn) = self.conns.get_mut(place as usize).and_then(Option::as_mut)
                && !conn.ready.is_empty()
            {
                let effects = std::mem::take(&mut conn.ready);
                conn.usual = effects.len();
                send(conn.id, &conn.route, effects);
            }
        }
    }

    /// The next answer that an operator may be given.
    pub(crate) fn take_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// The answer of this number, whether or not it is durable.
    pub(crate) fn take_reply_early(&mut self, number: u64) -> Option<Reply> {
        if let Some(at) = self.replies.iter().position(|reply| reply.number == number) {
            return self.replies.remove(at);
        }
        self.turns.iter_mut().find_map(|turn| {
            let at = turn.replies.iter().position(|reply| reply.number == number)?;
            Some(turn.replies.remove(at))
        })
    }
}

/// The turn that a step belongs to which is not durable.
fn turn_of(turns: &mut VecDeque<Turn>, step: Step) -> &mut Turn {
    // Mostly it is the latest; the others are those whose steps are being written.
    let earlier = turns.len().saturating_sub(1);
    let is_latest = turns.get(earlier.wrapping_sub(1)).is_none_or(|turn| turn.last < step);
    let at = if is_latest { earlier } else { turns.partition_point(|turn| turn.last < step) };
    turns.get_mut(at).expect("every step that is not durable is one of a turn that waits")
}
