//! The messages themselves, each held once however many stores hold it (DESIGN 7.2): in memory, in the journal, or both.
//!
//! A body gets its number when it comes in. Once its step is appended it has a place in the journal; once that is
//! durable its bytes may leave memory, and do when those in memory together are above a budget: first those that were
//! read back and used, then the oldest of channels (what is read from a channel is mostly new), then the newest of
//! queues (what is taken from a queue is the oldest). Numbers are dense, so the table is a list of pages.

use crate::body_page::{Body, BodyPage, ColdCounts, Taken, slot};
use crate::effect::Step;
use crate::leaf::{Frozen, Leaf, Pages};
use postroad_model::id::BodyId;
use postroad_model::message::Message;
use postroad_record::{BodyPlace, FramePlace, PAGE, PageError, StoredBody, take_bodies};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Hot pages that are kept.
const HOT_PAGES: usize = 32;
/// Bytes that a body in memory takes besides its own.
const OVERHEAD: u64 = 256;
/// Ids that the lists of what is in memory may have besides two for each body there.
const SLACK: usize = 1_024;

/// What there is of a message just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Its bytes are in memory.
    Here,
    /// Its bytes are in the journal only.
    Away,
    /// Its bytes can't be had: damaged, or never there.
    Lost,
}

/// What is live of one segment of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentUse {
    /// Messages that lie there.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A body whose step is not durable yet.
#[derive(Debug)]
struct Fresh {
    id: BodyId,
    step: Step,
    in_queue: bool,
}

/// All messages, by their broker-wide number.
#[derive(Debug)]
pub(crate) struct Bodies {
    pages: Pages<BodyPage>,
    next: u64,
    len: usize,
    /// Bytes of all messages.
    bytes: u64,
    /// Bytes of those in memory.
    resident: u64,
    /// How many are in memory.
    resident_count: u64,
    /// Written, and their steps not appended yet; the number is that of the byte in the step's payload.
    unplaced: VecDeque<(Step, BodyId, u32)>,
    /// Written again at another place, which is not durable yet.
    moved: VecDeque<(Step, BodyId, BodyPlace)>,
    /// Written, and not durable yet.
    fresh: VecDeque<Fresh>,
    /// In memory and durable, in the order in which they came: those that queues took, and the others.
    of_queues: VecDeque<BodyId>,
    of_channels: VecDeque<BodyId>,
    /// Read back, in the order in which they were.
    read_back: VecDeque<BodyId>,
    segments: BTreeMap<u64, SegmentUse>,
    /// Nothing is forgotten while records are read back: a later one may hold it again.
    pub(crate) replaying: bool,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            pages: Pages::new(HOT_PAGES),
            next: 1,
            len: 0,
            bytes: 0,
            resident: 0,
            resident_count: 0,
            unplaced: VecDeque::new(),
            moved: VecDeque::new(),
            fresh: VecDeque::new(),
            of_queues: VecDeque::new(),
            of_channels: VecDeque::new(),
            read_back: VecDeque::new(),
            segments: BTreeMap::new(),
            replaying: false,
        }
    }
}

impl Bodies {
    /// The number for the next message.
    pub(crate) const fn next_id(&mut self) -> BodyId {
        let id = BodyId(self.next);
        self.next += 1;
        id
    }

    /// Keeps a message that came in and that no event holds yet.
    pub(crate) fn insert(&mut self, id: BodyId, message: Message) {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let annotations = message.annotations_len();
        self.bytes += u64::from(length);
        self.came(message.len());
        let body = Body {
            message: Some(message),
            length,
            annotations,
            holders: 0,
            durable_holders: 0,
            written: false,
            place: None,
            loading: false,
            pinned: false,
            lost: false,
        };
        self.put(id, body);
    }

    /// A body is read back from the journal, where its bytes stay. One that was known lies there now.
    pub(crate) fn restore(&mut self, stored: &StoredBody) {
        self.settle_in(stored.place.frame.segment, 1, u64::from(stored.length));
        let known = self.change(stored.id, |body| {
            let before = body.place.replace(stored.place);
            (body.length, before)
        });
        match known {
            Some((length, Some(before))) => self.leave(before.frame.segment, length),
            Some((_, None)) => {}
            None => {
                self.bytes += u64::from(stored.length);
                self.put(stored.id, Body::at(stored));
            }
        }
    }

    /// A page of bodies that a checkpoint kept. It lies cold at once where it belongs behind all others.
    ///
    /// # Errors
    /// [`PageError`] if the bytes are no page.
    pub(crate) fn restore_page(&mut self, page: &[u8]) -> Result<(), PageError> {
        let mut rest = page;
        let bodies = take_bodies(&mut rest)?;
        let (Some(first), Some(last)) = (bodies.first(), bodies.last()) else { return Ok(()) };
        let ascending = bodies.windows(2).all(|pair| pair[0].id < pair[1].id);
        let together = number(first.id) == number(last.id);
        let durable = page.len() - rest.len();
        let frozen = || Frozen { bytes: page[..durable].into(), durable, all_on_disk: true };
        if !ascending || !together || !self.pages.push(number(first.id), frozen) {
            bodies.iter().for_each(|body| self.restore(body));
            return Ok(());
        }
        self.next = self.next.max(last.id.0.saturating_add(1));
        self.len += bodies.len();
        for together in bodies.chunk_by(|one, next| one.place.frame.segment == next.place.frame.segment) {
            let bytes = together.iter().map(|body| u64::from(body.length)).sum();
            self.bytes += bytes;
            self.settle_in(together[0].place.frame.segment, together.len() as u64, bytes);
        }
        Ok(())
    }

    /// Events on disk hold these bodies, as [`Self::hold`]. The bytes of all of them.
    pub(crate) fn hold_restored(&mut self, bodies: &[BodyId]) -> u64 {
        let mut bytes = 0;
        for together in bodies.chunk_by(|one, next| number(*one) == number(*next)) {
            let leaf = self.pages.leaf_mut(number(together[0]));
            match leaf.and_then(Leaf::if_cold_mut) {
                Some(frozen) => {
                    let mut counts = ColdCounts::of(frozen);
                    bytes += together.iter().map(|&body| counts.hold(body)).sum::<u64>();
                    counts.put_into(frozen);
                }
                None => bytes += together.iter().map(|&body| self.hold(body, true)).sum::<u64>(),
            }
        }
        bytes
    }

    /// Another event holds it; `durable` if that event is on disk. Its bytes in all.
    pub(crate) fn hold(&mut self, id: BodyId, durable: bool) -> u64 {
        let Some(body) = self.body_mut(id) else { return 0 };
        body.holders += 1;
        body.durable_holders += u32::from(durable);
        u64::from(body.length)
    }

    /// An event let it go; the last one frees it. Its bytes in all.
    pub(crate) fn release(&mut self, id: BodyId, durable: bool) -> u64 {
        let Some(page) = self.pages.change(number(id)) else { return 0 };
        let Some(body) = page.slots.get_mut(slot(id.0)).and_then(Option::as_mut) else { return 0 };
        body.holders = body.holders.saturating_sub(1);
        body.durable_holders = body.durable_holders.saturating_sub(u32::from(durable));
        let (left, length) = (body.holders, body.length);
        if left == 0 && !self.replaying {
            let taken = page.take(slot(id.0));
            self.forget(id, taken);
        }
        u64::from(length)
    }

    /// Forgets what no event holds: bodies that were read back though what held them is gone.
    pub(crate) fn sweep(&mut self) {
        let numbers: Vec<u64> = self.pages.leaves(0).map(|(number, _)| number).collect();
        let is_unheld = |page: &BodyPage| {
            let unheld = page.numbered().filter(|(_, body)| body.holders == 0);
            unheld.map(|(id, _)| id).collect::<Vec<_>>()
        };
        for number in numbers {
            let unheld = self.pages.leaf_mut(number).map(|leaf| match leaf.if_cold() {
                Some(frozen) => ColdCounts::of(frozen).unheld(),
                None => leaf.peek(is_unheld),
            });
            for id in unheld.unwrap_or_default() {
                self.remove(id);
            }
            self.cool();
        }
    }

    /// What there is of it.
    #[must_use]
    pub(crate) fn sight(&self, id: BodyId) -> Sight {
        match self.body(id) {
            Some(Body { message: Some(_), .. }) => Sight::Here,
            Some(body) if !body.lost && body.place.is_some() => Sight::Away,
            _ => Sight::Lost,
        }
    }

    /// Whether its bytes are being read.
    #[must_use]
    pub(crate) fn is_loading(&self, id: BodyId) -> bool {
        self.body(id).is_some_and(|body| body.loading)
    }

    /// The message, if it is in memory.
    #[must_use]
    pub(crate) fn get(&self, id: BodyId) -> Option<&Message> {
        // Nothing on a cold page is in memory.
        self.pages.look_hot(number(id))?.slots.get(slot(id.0))?.as_ref()?.message.as_ref()
    }

    /// Its bytes in all, 0 if it is not there.
    #[must_use]
    pub(crate) fn size(&self, id: BodyId) -> u64 {
        self.body(id).map_or(0, |body| u64::from(body.length))
    }

    /// Whether its bytes are in the journal.
    #[must_use]
    pub(crate) fn on_disk(&self, id: BodyId) -> bool {
        self.body(id).is_some_and(|body| body.written)
    }

    /// Its record stands in a step, its bytes from this byte of the payload on; `in_queue` says that a queue takes it.
    pub(crate) fn write(&mut self, id: BodyId, step: Step, at: u32, in_queue: bool) {
        let before = self.change(id, |body| std::mem::replace(&mut body.written, true));
        self.unplaced.push_back((step, id, at));
        // What is written again is in a list already, and two entries would count as two bodies.
        if before == Some(false) {
            self.fresh.push_back(Fresh { id, step, in_queue });
        }
    }

    /// The payload of a step lies here.
    pub(crate) fn placed(&mut self, step: Step, frame: FramePlace) {
        while let Some((_, id, at)) = self.unplaced.pop_front_if(|(of, ..)| *of <= step) {
            let place = BodyPlace { frame, at };
            let first = |body: &mut Body| {
                let is_first = body.place.is_none();
                if is_first {
                    body.place = Some(place);
                }
                (is_first, body.length)
            };
            match self.change(id, first) {
                Some((true, length)) => self.settle_in(frame.segment, 1, u64::from(length)),
                // It can be read from its new place when that is durable; till then it is where it was.
                Some((false, _)) => self.moved.push_back((step, id, place)),
                None => {}
            }
        }
    }

    fn finish_moves(&mut self, durable: Step) {
        while let Some((_, id, place)) = self.moved.pop_front_if(|(step, ..)| *step <= durable) {
            let found = self.change(id, |body| (body.length, body.place.replace(place)));
            let Some((length, before)) = found else { continue };
            self.settle_in(place.frame.segment, 1, u64::from(length));
            if let Some(before) = before {
                self.leave(before.frame.segment, length);
            }
        }
    }

    /// Every step up to this one is durable: the bytes of their bodies may leave memory.
    pub(crate) fn became_durable(&mut self, step: Step) {
        self.finish_moves(step);
        while let Some(fresh) = self.fresh.pop_front_if(|fresh| fresh.step <= step) {
            let list = if fresh.in_queue { &mut self.of_queues } else { &mut self.of_channels };
            list.push_back(fresh.id);
        }
        // What was taken as fast as it came leaves at once.
        let run = |list: &VecDeque<BodyId>| list.iter().take_while(|id| self.get(**id).is_none()).count();
        let (of_queues, of_channels) = (run(&self.of_queues), run(&self.of_channels));
        self.of_queues.drain(..of_queues);
        self.of_channels.drain(..of_channels);
        self.tidy_lists();
    }

    /// What was taken must not fill the lists, also where something that stays is in front of it. At least half of a list
    /// goes when it is looked through, so that no message pays for more than two looks.
    fn tidy_lists(&mut self) {
        let resident = usize::try_from(self.resident_count).unwrap_or(usize::MAX);
        let most = resident.saturating_mul(2).saturating_add(SLACK);
        let mut lists = [&mut self.of_queues, &mut self.of_channels, &mut self.read_back].map(std::mem::take);
        for list in lists.iter_mut().filter(|list| list.len() > most) {
            list.retain(|id| self.get(*id).is_some());
        }
        [self.of_queues, self.of_channels, self.read_back] = lists;
    }

    /// Lets bytes leave memory until those there take no more than `budget`, as far as they may.
    pub(crate) fn evict(&mut self, budget: u64) {
        while self.resident + self.resident_count * OVERHEAD > budget {
            let next = if self.read_back.len() as u64 * 2 > self.resident_count {
                self.read_back.pop_front()
            } else {
                None
            };
            let next = next.or_else(|| self.of_channels.pop_front());
            let next = next.or_else(|| self.of_queues.pop_back());
            let Some(id) = next.or_else(|| self.read_back.pop_front()) else { break };
            let evicted = self.change(id, |body| {
                if body.pinned {
                    return Err(());
                }
                // What is durable has a place; should that not be so, its bytes stay.
                let evicted = body.place.and_then(|_| body.message.take());
                Ok(evicted.map_or(0, |message| message.len()))
            });
            match evicted {
                Some(Ok(length)) if length > 0 => self.went(length),
                Some(Err(())) => {
                    // It is needed at once, and so is what was read after it.
                    self.read_back.push_back(id);
                    break;
                }
                _ => {}
            }
        }
        self.cool();
    }

    /// Where its bytes are to be read, if they are not in memory and not under way; they are now.
    pub(crate) fn begin_load(&mut self, id: BodyId) -> Option<(BodyPlace, u32)> {
        let away = |body: &mut Body| {
            let place = body.place.filter(|_| body.message.is_none() && !body.loading && !body.lost)?;
            body.loading = true;
            Some((place, body.length))
        };
        self.change(id, away).flatten()
    }

    /// Its bytes were read, or can't be; `pin` keeps them until [`Self::unpin`]. Whether the body is still there.
    pub(crate) fn loaded(&mut self, id: BodyId, message: Option<Message>, pin: bool) -> bool {
        let length = message.as_ref().map_or(0, Message::len);
        let taken = self.change(id, |body| {
            body.loading = false;
            if body.message.is_some() {
                return false;
            }
            body.lost = message.is_none();
            body.pinned = pin && message.is_some();
            body.message = message;
            body.message.is_some()
        });
        if taken == Some(true) {
            self.came(length);
            self.read_back.push_back(id);
        }
        taken.is_some()
    }

    /// How long its annotations are, and where its bytes lie now; `None` if it is gone.
    pub(crate) fn whereabouts(&self, id: BodyId) -> Option<(u32, Option<BodyPlace>)> {
        self.body(id).map(|body| (body.annotations, body.place))
    }

    /// Its bytes are not being read any more.
    pub(crate) fn give_up_load(&mut self, id: BodyId) {
        self.change(id, |body| body.loading = false);
    }

    /// The work that it was kept for had its turn.
    pub(crate) fn unpin(&mut self, id: BodyId) {
        self.change(id, |body| body.pinned = false);
    }

    /// How many messages there are.
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Their bytes.
    #[must_use]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of those in memory.
    #[must_use]
    pub(crate) const fn resident(&self) -> u64 {
        self.resident
    }

    /// How many ids the lists of what is in memory have.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.of_queues.len() + self.of_channels.len() + self.read_back.len()
    }

    /// How many are in memory.
    #[cfg(test)]
    pub(crate) const fn resident_count(&self) -> u64 {
        self.resident_count
    }

    /// What is live of each segment.
    pub(crate) const fn segments(&self) -> &BTreeMap<u64, SegmentUse> {
        &self.segments
    }

    /// The first body from `from` on that lies in one of these segments, and how far was looked: a few pages at most.
    pub(crate) fn next_in(&self, segments: &BTreeSet<u64>, from: BodyId) -> (Option<BodyId>, BodyId) {
        const PAGES: usize = 16;
        let lies_there = |body: &Body| {
            body.place.is_some_and(|place| segments.contains(&place.frame.segment)) && !body.lost
        };
        let mut looked = BodyId(self.next);
        for (count, (number, leaf)) in self.pages.leaves(number(from)).enumerate() {
            if count == PAGES {
                looked = BodyId(number * PAGE as u64);
                break;
            }
            let of_page = |page: &BodyPage| {
                page.numbered().find(|(id, body)| *id >= from && lies_there(body)).map(|(id, _)| id)
            };
            if let Some(found) = leaf.peek(of_page) {
                return (Some(found), found);
            }
        }
        (None, looked)
    }

    /// Whether there is no body from this one on.
    pub(crate) fn is_beyond(&self, id: BodyId) -> bool {
        id.0 >= self.next
    }

    /// The pages that hold bodies, in ascending order.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf<BodyPage>> {
        self.pages.leaves(0).map(|(_, leaf)| leaf)
    }

    fn came(&mut self, length: usize) {
        self.resident += length as u64;
        self.resident_count += 1;
    }

    fn went(&mut self, length: usize) {
        self.resident -= length as u64;
        self.resident_count -= 1;
    }

    fn settle_in(&mut self, segment: u64, messages: u64, bytes: u64) {
        let used = self.segments.entry(segment).or_default();
        used.messages += messages;
        used.bytes += bytes;
    }

    fn leave(&mut self, segment: u64, length: u32) {
        let Some(used) = self.segments.get_mut(&segment) else { return };
        used.messages = used.messages.saturating_sub(1);
        // What a journal that no broker wrote says of a message twice need not be the same.
        used.bytes = used.bytes.saturating_sub(u64::from(length));
        if used.messages == 0 {
            self.segments.remove(&segment);
        }
    }

    fn body(&self, id: BodyId) -> Option<&Body> {
        self.pages.look(number(id))?.slots.get(slot(id.0))?.as_ref()
    }

    /// The body, to change what makes it no busier and no less busy.
    fn body_mut(&mut self, id: BodyId) -> Option<&mut Body> {
        self.pages.change(number(id))?.slots.get_mut(slot(id.0))?.as_mut()
    }

    /// Changes a body, and keeps count of the busy ones of its page.
    fn change<R>(&mut self, id: BodyId, change: impl FnOnce(&mut Body) -> R) -> Option<R> {
        let page = self.pages.change(number(id))?;
        let body = page.slots.get_mut(slot(id.0))?.as_mut()?;
        let before = body.is_busy();
        let result = change(body);
        page.busy = page.busy + u32::from(body.is_busy()) - u32::from(before);
        Some(result)
    }

    fn put(&mut self, id: BodyId, body: Body) {
        self.next = self.next.max(id.0.saturating_add(1));
        // The last page can't grow any more once there is another.
        let last = self.pages.last().filter(|&last| last < number(id));
        if let Some(last) = last
            && self.pages.look_hot(last).is_some_and(|page| page.live == 0)
        {
            self.pages.remove(last);
        }
        let page = self.pages.make(number(id));
        let at = slot(id.0);
        page.first = id.0 - at as u64;
        if page.slots.len() <= at {
            page.slots.resize_with(at + 1, || None);
        }
        page.live += 1;
        page.busy += u32::from(body.is_busy());
        page.slots[at] = Some(body);
        self.len += 1;
    }

    fn remove(&mut self, id: BodyId) {
        let taken = self.pages.change(number(id)).and_then(|page| page.take(slot(id.0)));
        self.forget(id, taken);
    }

    /// Counts a body no more that was taken out of its page, nor keeps the page if that is empty.
    fn forget(&mut self, id: BodyId, taken: Option<Taken>) {
        let Some(Taken { body, is_empty, can_grow }) = taken else { return };
        // The last page stays while it can still grow, so that bodies that go as fast as they come allocate nothing.
        if is_empty && !(can_grow && self.pages.last() == Some(number(id))) {
            self.pages.remove(number(id));
        }
        self.len -= 1;
        self.bytes = self.bytes.saturating_sub(u64::from(body.length));
        if let Some(message) = &body.message {
            self.went(message.len());
        }
        if let Some(place) = body.place {
            self.leave(place.frame.segment, body.length);
        }
    }

    /// Cools pages that nobody uses.
    pub(crate) fn cool(&mut self) {
        self.pages.cool();
    }
}

/// The number of a body's page.
const fn number(id: BodyId) -> u64 {
    id.0 / PAGE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_that_there_is_has_none_behind_it() {
        let frame = FramePlace { segment: 1, offset: 0, length: 100 };
        let place = BodyPlace { frame, at: 0 };
        let mut bodies = Bodies::default();
        bodies.restore(&StoredBody { id: BodyId(u64::MAX), annotations: 0, length: 9, place });
        bodies.sweep();
        assert_eq!(bodies.bytes(), 0);
    }

    #[test]
    fn a_length_that_changes_counts_below_nothing() {
        let frame = FramePlace { segment: 1, offset: 0, length: 100 };
        let stored =
            |length| StoredBody { id: BodyId(1), annotations: 0, length, place: BodyPlace { frame, at: 0 } };
        let mut bodies = Bodies::default();
        bodies.restore(&stored(50));
        bodies.restore(&stored(5));
        bodies.hold(BodyId(1), true);
        bodies.release(BodyId(1), true);
        assert_eq!((bodies.bytes(), bodies.segments().len()), (0, 0));
    }
}
