//! A queue with competing consumers: nothing lost, nothing twice at once, nothing again without its flag.

use std::collections::{BTreeSet, HashMap};

use super::{Published, Violation};
use crate::mark::{Mark, Place, Received};

/// A consumer's link, from attach to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(u64);

/// How the latest delivery of a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latest {
    /// It has not, or its link was lost first.
    Out(SessionId),
    /// Given back as if it had not been sent, in that life of the broker.
    Released(u64),
    /// Given back as failed.
    Failed,
}

/// How far accepting a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    No,
    /// Said, but not confirmed: a crash may have taken it back.
    Said,
    /// Confirmed: it is never to be seen again (AK-11).
    Confirmed,
}

#[derive(Debug)]
struct Entry {
    latest: Latest,
    accepted: Accepted,
    /// It came flagged before, so it does for ever.
    flagged: bool,
    origin_id: Option<u64>,
}

/// The book of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueBook {
    entries: HashMap<Mark, Entry>,
    /// By event id, so that no two messages have one.
    owners: HashMap<u64, Mark>,
    sessions: BTreeSet<SessionId>,
    next_session: u64,
    /// How often the broker has crashed.
    life: u64,
    /// Messages that somebody has accepted.
    accepted: u64,
    deliveries: u64,
    redeliveries: u64,
}

impl QueueBook {
    /// A consumer has attached.
    pub(crate) fn begin(&mut self) -> SessionId {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(session);
        session
    }

    /// A consumer is about to leave, or was cut off: what it has is free to go to others.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(crate) fn crashed(&mut self) {
        self.sessions.clear();
        self.life += 1;
    }

    /// Deliveries so far.
    pub(crate) const fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Deliveries of messages that had been delivered before.
    pub(crate) const fn redeliveries(&self) -> u64 {
        self.redeliveries
    }

    pub(crate) const fn progress(&self) -> u64 {
        self.deliveries + self.accepted
    }

    /// A message has come.
    ///
    /// # Errors
    /// [`Violation`] if it must not come, or not like this.
    pub(crate) fn delivered(&mut self, session: SessionId, received: &Received) -> Result<(), Violation> {
        let mark = received.mark;
        if mark.place != Place::Work {
            return Err(Violation::new(format!("{mark} came out of the queue work")));
        }
        self.identified(received)?;
        self.deliveries += 1;
        let Some(entry) = self.entries.get_mut(&mark) else {
            let latest = Latest::Out(session);
            let (flagged, origin_id) = (received.redelivered, received.origin_id);
            self.entries.insert(mark, Entry { latest, accepted: Accepted::No, flagged, origin_id });
            return Ok(());
        };
        self.redeliveries += 1;
        if entry.accepted == Accepted::Confirmed {
            return Err(Violation::new(format!("{mark} was accepted, confirmed, and delivered again")));
        }
        if entry.origin_id != received.origin_id {
            let ids = (entry.origin_id, received.origin_id);
            return Err(Violation::new(format!("{mark} is stored twice: it came with origin ids {ids:?}")));
        }
        let must_flag = match entry.latest {
            Latest::Out(other) if self.sessions.contains(&other) => {
                return Err(Violation::new(format!("{mark} is out at one consumer and came to another")));
            }
            Latest::Out(_) | Latest::Failed => true,
            Latest::Released(life) => entry.flagged || life != self.life,
        };
        if must_flag && !received.redelivered {
            let how = entry.latest;
            return Err(Violation::new(format!("{mark} came again without its redelivered flag ({how:?})")));
        }
        entry.latest = Latest::Out(session);
        entry.flagged |= received.redelivered;
        if entry.accepted == Accepted::Said {
            // That did not arrive, or a crash has taken it back.
            entry.accepted = Accepted::No;
            self.accepted -= 1;
        }
        Ok(())
    }

    /// One event id belongs to one message.
    fn identified(&mut self, received: &Received) -> Result<(), Violation> {
        let (mark, Some(id)) = (received.mark, received.origin_id) else { return Ok(()) };
        let owner = *self.owners.entry(id).or_insert(mark);
        if owner == mark {
            return Ok(());
        }
        Err(Violation::new(format!("{mark} came with origin id {id}, which is that of {owner}")))
    }

    /// A consumer is about to accept.
    pub(crate) fn accepting(&mut self, mark: Mark) {
        if let Some(entry) = self.entries.get_mut(&mark)
            && entry.accepted == Accepted::No
        {
            entry.accepted = Accepted::Said;
            self.accepted += 1;
        }
    }

    /// The broker has settled after an accept.
    pub(crate) fn confirmed(&mut self, mark: Mark) {
        if let Some(entry) = self.entries.get_mut(&mark) {
            entry.accepted = Accepted::Confirmed;
        }
    }

    /// A consumer is about to give a message back as if it had not been sent.
    pub(crate) fn releasing(&mut self, mark: Mark) {
        self.given_back(mark, Latest::Released(self.life));
    }

    /// A consumer is about to give a message back as failed.
    pub(crate) fn failing(&mut self, mark: Mark) {
        self.given_back(mark, Latest::Failed);
    }

    fn given_back(&mut self, mark: Mark, how: Latest) {
        if let Some(entry) = self.entries.get_mut(&mark) {
            entry.latest = how;
        }
    }

    /// Whether everything that was sent has been accepted by somebody.
    pub(crate) fn is_complete(&self, published: &Published) -> bool {
        self.accepted >= published.count(Place::Work)
    }

    /// Some messages that nobody has accepted.
    pub(crate) fn missing(&self, published: &Published) -> Vec<Mark> {
        let accepted = |mark: &Mark| self.entries.get(mark).is_some_and(|e| e.accepted != Accepted::No);
        published.marks(Place::Work).filter(|mark| !accepted(mark)).take(10).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(number: u64, redelivered: bool) -> Received {
        let mark = Mark { place: Place::Work, producer: 0, number };
        Received { mark, redelivered, event_id: None, origin_id: Some(number) }
    }

    /// A book with message 1 out at a consumer.
    fn one_out() -> (QueueBook, SessionId, Mark) {
        let mut book = QueueBook::default();
        let session = book.begin();
        book.delivered(session, &received(1, false)).unwrap();
        (book, session, received(1, false).mark)
    }

    #[test]
    fn what_is_out_comes_to_nobody_else() {
        let (mut book, _, _) = one_out();
        let other = book.begin();
        assert!(book.delivered(other, &received(1, true)).is_err());
    }

    #[test]
    fn what_was_out_comes_flagged() {
        let (mut book, session, _) = one_out();
        book.end(session);
        let other = book.begin();
        assert!(book.delivered(other, &received(1, false)).is_err());
        assert_eq!(book.delivered(other, &received(1, true)), Ok(()));
    }

    #[test]
    fn a_release_leaves_no_flag_unless_the_broker_crashes() {
        let (mut book, session, mark) = one_out();
        book.releasing(mark);
        assert_eq!(book.delivered(session, &received(1, false)), Ok(()));
        book.releasing(mark);
        book.crashed();
        let session = book.begin();
        assert!(book.delivered(session, &received(1, false)).is_err());
        assert_eq!(book.delivered(session, &received(1, true)), Ok(()));
        book.releasing(mark);
        assert!(book.delivered(session, &received(1, false)).is_err(), "a flag stays");
    }

    #[test]
    fn a_failure_leaves_a_flag() {
        let (mut book, session, mark) = one_out();
        book.failing(mark);
        assert!(book.delivered(session, &received(1, false)).is_err());
        assert_eq!(book.delivered(session, &received(1, true)), Ok(()));
    }

    #[test]
    fn a_confirmed_accept_is_the_end() {
        let (mut book, session, mark) = one_out();
        book.accepting(mark);
        book.end(session);
        let session = book.begin();
        assert_eq!(book.delivered(session, &received(1, true)), Ok(()), "it was not confirmed");
        assert_eq!(book.accepted, 0);
        book.accepting(mark);
        book.confirmed(mark);
        book.crashed();
        let session = book.begin();
        assert!(book.delivered(session, &received(1, true)).is_err());
    }

    #[test]
    fn one_message_has_one_identity() {
        let (mut book, session, mark) = one_out();
        book.failing(mark);
        let twin = Received { origin_id: Some(9), ..received(1, true) };
        assert!(book.delivered(session, &twin).is_err());
        let heir = Received { origin_id: Some(1), ..received(2, false) };
        assert!(book.delivered(session, &heir).is_err());
    }

    #[test]
    fn what_nobody_accepts_is_missing() {
        let (mut book, _, mark) = one_out();
        let mut published = Published::default();
        published.sending(mark);
        assert!(!book.is_complete(&published));
        assert_eq!(book.missing(&published), [mark]);
        book.accepting(mark);
        assert!(book.is_complete(&published));
        assert_eq!(book.missing(&published), []);
    }
}
