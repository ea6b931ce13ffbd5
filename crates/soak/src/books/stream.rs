//! A named object of one consumer: every event once, in order, from where it was acknowledged.

use super::{Published, Violation};
use crate::mark::{Mark, PRODUCERS, Place, Received};

/// An event that has come.
#[derive(Clone, Copy, Debug)]
struct Event {
    id: u64,
    /// If it comes again it comes flagged, whatever else happens.
    must_flag: bool,
    /// The life of the broker in which it was given back as if it had not been sent.
    released: Option<u64>,
}

/// A consumer's link, from attach to its end.
#[derive(Debug, Default)]
struct Session {
    /// The event that came last.
    last: Option<u64>,
    /// The number that each producer's next message must have.
    next: [u64; PRODUCERS],
}

/// The book of one named object. Acknowledgements are cumulative (EX-3).
#[derive(Debug)]
pub(crate) struct StreamBook {
    place: Place,
    /// What has come of each producer: number n stands at n - 1. The channel keeps each producer's order, so event
    /// ids rise.
    events: [Vec<Event>; PRODUCERS],
    newest: u64,
    /// The highest event of which an acknowledgement was sent.
    acknowledged: u64,
    /// The highest event of which an acknowledgement was confirmed.
    confirmed: u64,
    session: Session,
    life: u64,
    deliveries: u64,
    redeliveries: u64,
}

impl StreamBook {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            events: Default::default(),
            newest: 0,
            acknowledged: 0,
            confirmed: 0,
            session: Session::default(),
            life: 0,
            deliveries: 0,
            redeliveries: 0,
        }
    }

    /// The consumer has attached.
    pub(crate) fn begin(&mut self) {
        self.session = Session::default();
    }

    pub(crate) const fn crashed(&mut self) {
        self.life += 1;
    }

    /// Deliveries so far.
    pub(crate) const fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Deliveries of events that had been delivered before.
    pub(crate) const fn redeliveries(&self) -> u64 {
        self.redeliveries
    }

    /// The event id of a message that has come.
    pub(crate) fn event_id(&self, mark: Mark) -> Option<u64> {
        let index = usize::try_from(mark.number.checked_sub(1)?).ok()?;
        self.events.get(mark.producer)?.get(index).map(|event| event.id)
    }

    /// An event has come. Returns its id.
    ///
    /// # Errors
    /// [`Violation`] if it must not come, or not now, or not like this.
    pub(crate) fn delivered(&mut self, received: &Received) -> Result<u64, Violation> {
        let mark = received.mark;
        let id = received.event_id.ok_or_else(|| self.wrong(mark, "came without an event id"))?;
        if mark.place != self.place {
            return Err(self.wrong(mark, "came from a channel that it was not sent to"));
        }
        self.in_order(mark, id)?;
        self.deliveries += 1;
        if self.event_id(mark).is_some() {
            self.again(received, id)?;
        } else {
            self.for_the_first_time(received, id)?;
        }
        self.session.last = Some(id);
        Ok(id)
    }

    fn wrong(&self, mark: Mark, what: &str) -> Violation {
        Violation::new(format!("named object on {}: {mark} {what}", self.place.name()))
    }

    /// Each event follows on the one before; the first one follows on what was acknowledged.
    fn in_order(&mut self, mark: Mark, id: u64) -> Result<(), Violation> {
        match self.session.last {
            Some(last) if id <= last => {
                return Err(self.wrong(mark, &format!("(event {id}) came behind event {last}")));
            }
            Some(_) => {}
            None => self.starts_at(mark, id)?,
        }
        let expected = self.session.next.get(mark.producer).copied().unwrap_or_default();
        if mark.number != expected {
            return Err(self.wrong(mark, &format!("came where number {expected} was due")));
        }
        if let Some(next) = self.session.next.get_mut(mark.producer) {
            *next += 1;
        }
        Ok(())
    }

    fn starts_at(&mut self, mark: Mark, id: u64) -> Result<(), Violation> {
        if id <= self.confirmed {
            let what = format!("(event {id}) came again after event {} was acknowledged", self.confirmed);
            return Err(self.wrong(mark, &what));
        }
        let before = |events: &Vec<Event>, id: u64| events.partition_point(|event| event.id < id);
        let owed = self.acknowledged + 1;
        if self.events.iter().any(|events| before(events, owed) < before(events, id)) {
            let what = format!("(event {id}) came first; nobody acknowledged beyond {}", self.acknowledged);
            return Err(self.wrong(mark, &what));
        }
        let counts = self.events.each_ref().map(|events| before(events, id));
        // What was said of this event or beyond did not arrive, or a crash has taken it back.
        self.acknowledged = self.acknowledged.min(id.saturating_sub(1));
        self.session.next = counts.map(|count| u64::try_from(count).unwrap_or(u64::MAX).saturating_add(1));
        Ok(())
    }

    fn for_the_first_time(&mut self, received: &Received, id: u64) -> Result<(), Violation> {
        if id <= self.newest {
            let what = format!("is new but has event id {id}; {} was there before", self.newest);
            return Err(self.wrong(received.mark, &what));
        }
        self.newest = id;
        if let Some(events) = self.events.get_mut(received.mark.producer) {
            events.push(Event { id, must_flag: true, released: None });
        }
        Ok(())
    }

    fn again(&mut self, received: &Received, id: u64) -> Result<(), Violation> {
        self.redeliveries += 1;
        let (mark, life) = (received.mark, self.life);
        let Some(event) = self.event_mut(mark) else { return Ok(()) };
        let known = event.id;
        let must_flag = event.must_flag || event.released.is_some_and(|released| released != life);
        event.must_flag = true;
        event.released = None;
        if known != id {
            let what = format!("is stored twice: it came with event ids {known} and {id}");
            return Err(self.wrong(mark, &what));
        }
        if must_flag && !received.redelivered {
            return Err(self.wrong(mark, "came again without its redelivered flag"));
        }
        Ok(())
    }

    fn event_mut(&mut self, mark: Mark) -> Option<&mut Event> {
        let index = usize::try_from(mark.number.checked_sub(1)?).ok()?;
        self.events.get_mut(mark.producer)?.get_mut(index)
    }

    /// The consumer is about to give an event back, which had come flagged or not, as if it had not been sent.
    pub(crate) fn releasing(&mut self, mark: Mark, redelivered: bool) {
        let life = self.life;
        if let Some(event) = self.event_mut(mark) {
            event.must_flag = redelivered;
            event.released = Some(life);
        }
    }

    /// The consumer is about to acknowledge everything up to an event.
    pub(crate) fn acknowledging(&mut self, id: u64) {
        self.acknowledged = self.acknowledged.max(id);
    }

    /// The broker has settled after an acknowledgement.
    pub(crate) fn confirmed(&mut self, id: u64) {
        self.confirmed = self.confirmed.max(id);
    }

    /// Whether everything that was sent has come, and was acknowledged.
    pub(crate) fn is_complete(&self, published: &Published) -> bool {
        self.counts() == published.row(self.place) && self.acknowledged == self.newest
    }

    /// How many events have come, by producer.
    pub(crate) fn counts(&self) -> [u64; PRODUCERS] {
        self.events.each_ref().map(|events| u64::try_from(events.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(producer: usize, number: u64, id: u64) -> Received {
        let mark = Mark { place: Place::Stream, producer, number };
        Received { mark, redelivered: false, event_id: Some(id), origin_id: None }
    }

    fn again(producer: usize, number: u64, id: u64) -> Received {
        Received { redelivered: true, ..event(producer, number, id) }
    }

    /// A book in which events 1 (0/1), 2 (1/1) and 4 (0/2) have come.
    fn three() -> StreamBook {
        let mut book = StreamBook::new(Place::Stream);
        book.begin();
        for received in [event(0, 1, 1), event(1, 1, 2), event(0, 2, 4)] {
            book.delivered(&received).unwrap();
        }
        book
    }

    #[test]
    fn events_come_in_order_and_without_gaps() {
        assert!(three().delivered(&event(1, 2, 3)).is_err(), "behind event 4");
        assert!(three().delivered(&event(1, 3, 5)).is_err(), "1/2 is missing");
        assert!(three().delivered(&again(0, 2, 5)).is_err(), "twice");
        assert_eq!(three().delivered(&event(1, 2, 5)), Ok(5));
    }

    #[test]
    fn a_consumer_goes_on_where_it_acknowledged() {
        let mut book = three();
        book.acknowledging(2);
        book.begin();
        assert_eq!(book.delivered(&again(0, 2, 4)), Ok(4));
        assert_eq!(book.delivered(&event(1, 2, 6)), Ok(6));
    }

    #[test]
    fn an_acknowledgement_that_is_not_confirmed_may_be_lost() {
        let mut book = three();
        book.acknowledging(2);
        book.crashed();
        book.begin();
        assert_eq!(book.delivered(&again(1, 1, 2)), Ok(2));
        assert_eq!(book.delivered(&again(0, 2, 4)), Ok(4));
    }

    #[test]
    fn an_acknowledgement_that_was_lost_counts_no_more() {
        let mut book = three();
        book.acknowledging(4);
        book.crashed();
        book.begin();
        assert_eq!(book.delivered(&again(0, 1, 1)), Ok(1));
        book.begin();
        assert!(book.delivered(&again(0, 2, 4)).is_err(), "it was not acknowledged again");
    }

    #[test]
    fn a_confirmed_acknowledgement_holds() {
        let mut book = three();
        book.acknowledging(2);
        book.confirmed(2);
        book.crashed();
        book.begin();
        assert!(book.delivered(&again(1, 1, 2)).is_err());
    }

    #[test]
    fn nothing_is_skipped_at_the_start() {
        let mut book = three();
        book.acknowledging(1);
        book.begin();
        assert!(book.delivered(&again(0, 2, 4)).is_err(), "event 2 is owed");
    }

    #[test]
    fn what_was_delivered_comes_flagged() {
        let mut book = three();
        book.begin();
        assert!(book.delivered(&event(0, 1, 1)).is_err());
        let mut book = three();
        book.releasing(event(0, 1, 1).mark, false);
        book.begin();
        assert_eq!(book.delivered(&event(0, 1, 1)), Ok(1));
        book.releasing(event(0, 1, 1).mark, false);
        book.crashed();
        book.begin();
        assert!(book.delivered(&event(0, 1, 1)).is_err(), "after a crash it is flagged");
    }

    #[test]
    fn one_message_has_one_event() {
        let mut book = three();
        book.begin();
        assert!(book.delivered(&again(0, 1, 3)).is_err());
        let mut book = three();
        book.acknowledging(4);
        book.begin();
        assert!(book.delivered(&event(2, 1, 3)).is_err(), "an event id that was passed");
    }

    #[test]
    fn everything_sent_must_come() {
        let mut book = three();
        let mut published = Published::default();
        for received in [event(0, 2, 0), event(1, 1, 0)] {
            published.sending(received.mark);
        }
        assert!(!book.is_complete(&published), "nothing is acknowledged");
        book.acknowledging(4);
        assert!(book.is_complete(&published));
        published.sending(event(2, 1, 0).mark);
        assert!(!book.is_complete(&published));
    }
}
