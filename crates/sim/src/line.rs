//! A client's line: the byte pipes of one connection and the front door at their end, as the server's connection task
//! drives it.

use crate::random::Random;
use bytes::{Buf, BytesMut};
use postroad_amqp::{Connection, Output};
use postroad_door_amqp::{Door, DoorConfig};
use postroad_engine::{Command, ConnId, Effect};
use std::collections::VecDeque;
use std::sync::Arc;

/// One connection between its client's protocol engine and the core.
#[derive(Debug)]
pub struct Line {
    /// Its number.
    pub conn: ConnId,
    door: Door,
    /// On the way to the broker.
    up: BytesMut,
    /// Read by the broker, and not yet taken by the door.
    door_input: BytesMut,
    /// Given out by the door, and not yet written.
    door_output: Output,
    /// On the way to the client.
    down: BytesMut,
    client_input: BytesMut,
    /// The client's engine stopped for its events to be taken.
    client_stopped: bool,
    client_output: Output,
    /// What the core wants done.
    inbox: VecDeque<Vec<Effect>>,
}

impl Line {
    /// A line that was just accepted.
    #[must_use]
    pub fn new(conn: ConnId, config: &Arc<DoorConfig>, now_ms: u64) -> Self {
        Self {
            conn,
            door: Door::new(conn, Arc::clone(config), format!("pipe:{}", conn.0), now_ms),
            up: BytesMut::new(),
            door_input: BytesMut::new(),
            door_output: Output::new(),
            down: BytesMut::new(),
            client_input: BytesMut::new(),
            client_stopped: false,
            client_output: Output::new(),
            inbox: VecDeque::new(),
        }
    }

    /// Effects from the core.
    pub fn deliver(&mut self, effects: Vec<Effect>) {
        self.inbox.push_back(effects);
    }

    /// The broker's side: effects go in, some bytes come in, some go out. Commands are appended. Says whether anything moved.
    pub fn broker_side(&mut self, now_ms: u64, random: &mut Random, commands: &mut Vec<Command>) -> bool {
        let mut moved = false;
        let batches = self.inbox.len().min(random.index(4) + 1);
        for effects in self.inbox.drain(..batches) {
            moved = true;
            for effect in effects {
                self.door.effect(effect, commands);
            }
        }
        let taken = chunk(random, self.up.len());
        if taken > 0 {
            moved = true;
            self.door_input.extend_from_slice(&self.up.split_to(taken));
            self.door.input(now_ms, &mut self.door_input, commands);
        }
        if self.door.next_deadline().is_some_and(|at| at <= now_ms) {
            self.door.deadline(now_ms, commands);
        }
        if self.door_output.is_empty() {
            self.door.output(&mut self.door_output, commands);
        }
        let written = chunk(random, self.door_output.remaining());
        if written > 0 {
            moved = true;
            self.down.extend_from_slice(&self.door_output.copy_to_bytes(written));
        }
        moved
    }

    /// The client's side: some bytes come in, what is ready goes out. Says whether anything moved.
    pub fn client_side(&mut self, now_ms: u64, random: &mut Random, amqp: &mut Connection) -> bool {
        let mut moved = false;
        let taken = chunk(random, self.down.len());
        if taken > 0 {
            moved = true;
            self.client_input.extend_from_slice(&self.down.split_to(taken));
        }
        if taken > 0 || self.client_stopped {
            self.client_stopped = amqp.handle_input(now_ms, &mut self.client_input);
            moved |= self.client_stopped;
        }
        if amqp.next_deadline().is_some_and(|at| at <= now_ms) {
            amqp.handle_deadline(now_ms);
        }
        amqp.poll_output(&mut self.client_output);
        let written = self.client_output.remaining();
        if written > 0 {
            moved = true;
            self.up.extend_from_slice(&self.client_output.copy_to_bytes(written));
        }
        moved
    }

    /// Whether the broker has closed it and everything is written.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.door.is_closed() && self.door_output.is_empty()
    }

    /// The socket is gone.
    pub fn lost(&mut self, commands: &mut Vec<Command>) {
        self.door.lost(commands);
    }
}

/// How many of the bytes that are there go in one piece: mostly all, sometimes few.
fn chunk(random: &mut Random, there: usize) -> usize {
    if there == 0 || random.one_in(10) {
        return 0;
    }
    if random.one_in(3) { random.index(there) + 1 } else { there }
}
