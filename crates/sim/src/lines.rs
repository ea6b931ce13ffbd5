//! The lines of a world: connections that come and go, bytes in both directions, and what clients see at their ends.

use crate::broker::Input;
use crate::check::{Violation, delivery, schedule};
use crate::client::{Client, Held, Place, Saw};
use crate::line::Line;
use crate::world::World;
use postroad_amqp::LinkId;

impl World {
    /// Connects a client.
    pub fn connect(&mut self, seat: usize) {
        let first_id = if self.random.one_in(2) { 0 } else { u32::MAX - 20 };
        let Some(place) = self.seats.get_mut(seat).filter(|seat| seat.live.is_none()) else { return };
        let conn = self.conns.take();
        if let Some(broker) = &mut self.broker {
            broker.push(Input::Register(conn));
        }
        let client = Client::new(&place.id, self.now.mono, first_id);
        place.live = Some((client, Line::new(conn, &self.door, self.now.mono)));
        self.note(|| format!("client-{seat} connects as {}", conn.0));
    }

    /// Moves bytes of one connection in both directions; says whether anything moved.
    ///
    /// # Errors
    /// A broken promise.
    pub fn carry(&mut self, seat: usize) -> Result<bool, Violation> {
        let mut commands = Vec::new();
        let mono = self.now.mono;
        let Some((client, line)) = self.seats.get_mut(seat).and_then(|s| s.live.as_mut()) else {
            return Ok(false);
        };
        let mut moved = line.client_side(mono, &mut self.random, &mut client.amqp);
        moved |= line.broker_side(mono, &mut self.random, &mut commands);
        let over = line.is_over();
        moved |= !commands.is_empty();
        if let Some(broker) = self.broker.as_mut().filter(|_| !commands.is_empty()) {
            broker.push(Input::Commands(commands));
        }
        let gone = self.listen(seat)?;
        if over || gone {
            self.lose(seat);
        }
        Ok(moved)
    }

    /// The address of one of the temporary queues that there are.
    pub fn temporary_queue(&mut self) -> Option<String> {
        let live = self.seats.iter().filter_map(|seat| seat.live.as_ref());
        let made: Vec<String> =
            live.flat_map(|(client, _)| client.receivers.iter().filter_map(|r| r.made.clone())).collect();
        self.random.pick(&made).cloned()
    }

    /// A connection is gone: the broker learns it, the client has what it has.
    pub fn lose(&mut self, seat: usize) {
        let Some((client, mut line)) = self.seats.get_mut(seat).and_then(|s| s.live.take()) else { return };
        self.note(|| format!("client-{seat} is cut off"));
        if let Some(broker) = &mut self.broker {
            let mut commands = Vec::new();
            line.lost(&mut commands);
            broker.push(Input::Commands(commands));
            broker.push(Input::Unregister(line.conn));
        }
        self.conns.give_back(line.conn);
        for (place, held, orderly) in client.end() {
            self.returned(&place, &held, orderly);
        }
    }

    pub(crate) fn lose_all(&mut self) {
        for seat in 0..self.seats.len() {
            let Some((client, _)) = self.seats.get_mut(seat).and_then(|s| s.live.take()) else { continue };
            for (place, held, orderly) in client.end() {
                self.returned(&place, &held, orderly);
            }
        }
    }

    /// Deliveries go back without an outcome. After an orderly detach they are released, if the broker got that far.
    pub fn returned(&mut self, place: &Place, held: &[Held], orderly: bool) {
        for held in held {
            if let Some(item) = delivery::item(place, held)
                && let Some(seen) = self.shadow.seen.get_mut(place).and_then(|seen| seen.get_mut(&item))
            {
                seen.returned = true;
                seen.excused |= orderly;
            }
        }
    }

    // ---- what clients see ----

    /// Takes in what a client learned; says whether its connection is over.
    fn listen(&mut self, seat: usize) -> Result<bool, Violation> {
        let mut over = false;
        let first = self.messages.len();
        let live = self.seats.get_mut(seat).and_then(|seat| seat.live.as_mut());
        for receiver in live.into_iter().flat_map(|(client, _)| &mut client.receivers) {
            if receiver.attached {
                receiver.since.get_or_insert(first);
            }
        }
        while let Some(saw) =
            self.seats.get_mut(seat).and_then(|s| s.live.as_mut()).and_then(|(c, _)| c.poll())
        {
            match saw {
                Saw::Confirmed { number, store } => self.confirmed(number, &store)?,
                Saw::Refused { number } => {
                    self.mix(number);
                    self.note(|| format!("message {number} is refused"));
                }
                Saw::Delivered { link, delivery, payload, settled } => {
                    self.delivered(seat, link, delivery, &payload, settled)?;
                }
                Saw::AckConfirmed { place, held, accepted } => self.ack_confirmed(&place, &held, accepted)?,
                Saw::LinkGone { place, held, orderly } => {
                    if let Some(place) = place {
                        self.returned(&place, &held, orderly);
                    }
                }
                Saw::Over => over = true,
            }
        }
        Ok(over)
    }

    fn confirmed(&mut self, number: u64, store: &str) -> Result<(), Violation> {
        self.mix(number.wrapping_mul(3));
        self.note(|| format!("message {number} is confirmed by {store}"));
        let durable = self.durable();
        let counted = delivery::check_confirmed(&self.ledger, &self.messages, number, store, durable)?;
        self.tally.confirmed += u64::from(counted);
        Ok(())
    }

    fn delivered(
        &mut self,
        seat: usize,
        link: LinkId,
        number: u64,
        payload: &[u8],
        settled: bool,
    ) -> Result<(), Violation> {
        let received = self.messages.read(payload).map_err(|text| Violation::new("content", text))?;
        let resent = self.messages.get(received.number).is_some_and(|sent| sent.resent);
        delivery::check_note(&self.shadow, &received)?;
        let durable = self.durable();
        self.mix(received.number << 8 | u64::from(received.delivery_count));
        let found = self.seats.get_mut(seat).and_then(|s| s.live.as_mut());
        let leaving = found.as_ref().is_some_and(|(client, _)| client.is_leaving(link));
        let Some(receiver) = found.and_then(|(client, _)| client.receiver(link)) else { return Ok(()) };
        let place = receiver.wanted.place.clone();
        let since = receiver.since.filter(|_| receiver.wanted.no_local);
        if since.is_some_and(|since| since <= received.number)
            && let Some(sent) = self.messages.get(received.number)
        {
            delivery::check_no_local(&place, seat, received.number, sent)?;
        }
        if let Place::Queue(name) | Place::Volatile(name) | Place::Object(name, ..) = &place
            && !delivery::may_repeat(name)
        {
            let delay = self.messages.get(received.number).and_then(|sent| sent.delay);
            schedule::check_delivered(delay, received.number, self.latest.wall)?;
        }
        let held = Held { number: received.number, event: received.event };
        if !settled {
            receiver.held.insert(number, held);
        }
        let fresh = delivery::item(&place, &held)
            .is_some_and(|item| !self.shadow.seen.get(&place).is_some_and(|seen| seen.contains_key(&item)));
        if let (true, Some(event)) = (fresh, received.event) {
            if event <= receiver.highest {
                let text = format!("event {event} of {place:?} came behind event {}", receiver.highest);
                return Err(Violation::new("order of one consumer", text));
            }
            receiver.highest = event;
        }
        self.note(|| {
            format!(
                "client-{seat} gets message {} of {place:?} (event {:?}, count {})",
                received.number, received.event, received.delivery_count
            )
        });
        delivery::check_delivered(&mut self.shadow, &self.ledger, &place, &received, resent, durable)?;
        if leaving {
            self.returned(&place, &[held], true);
        }
        Ok(())
    }

    fn ack_confirmed(&mut self, place: &Place, held: &Held, accepted: bool) -> Result<(), Violation> {
        let durable = self.durable();
        let item = delivery::item(place, held).filter(|_| accepted);
        let resent = self.messages.get(held.number).is_some_and(|sent| sent.resent);
        let Some(item) = item.filter(|_| !resent) else { return Ok(()) };
        self.note(|| format!("the acknowledgement of message {} of {place:?} is confirmed", held.number));
        let on_disk = self.messages.get(held.number).is_some_and(|sent| sent.durable);
        if on_disk {
            delivery::check_ack_confirmed(&self.ledger, place, held, durable)?;
        }
        self.shadow.confirmed.entry(place.clone()).or_default().insert(item);
        Ok(())
    }
}
