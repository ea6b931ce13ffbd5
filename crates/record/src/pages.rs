//! Pages: many events of a store, or many bodies, as columns. What is cold lies in memory in this form, and
//! checkpoints write it (ADR 0005).

use crate::columns::{put_column, put_number, take_column, take_number};
use crate::{Extra, StoredEvent};
use postroad_model::id::{BodyId, Origin};
use serde::{Deserialize, Serialize};

/// Events or bodies in one page at most.
pub const PAGE: usize = 512;

/// Where a frame of the journal lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FramePlace {
    /// The number of its segment, never used twice.
    pub segment: u64,
    /// Bytes from the start of the segment to the frame's header.
    pub offset: u32,
    /// Bytes of its payload.
    pub length: u32,
}

/// Where the bytes of a message lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BodyPlace {
    /// In this frame.
    pub frame: FramePlace,
    /// From this byte of its payload on.
    pub at: u32,
}

/// A stored message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBody {
    /// Its broker-wide number.
    pub id: BodyId,
    /// Bytes in all.
    pub length: u32,
    /// Bytes of them that are the message-annotations section.
    pub annotations: u32,
    /// Where they lie.
    pub place: BodyPlace,
}

/// An event of a page, with what is durable of its failed attempts in a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct PagedEvent {
    /// The event.
    pub event: StoredEvent,
    /// Failed attempts.
    pub failed: u32,
    /// Attempts that count toward the limit (AK-5).
    pub counted: u32,
}

/// A page that can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of a checkpoint can't be read: {0}")]
pub struct PageError(&'static str);

impl PageError {
    /// The events belong into another page, or came before.
    pub const MISPLACED: Self = Self("its events belong elsewhere");
}

/// Appends a page of events: their count, a column for each field, then the extra facts.
///
/// # Panics
/// Never: the facts always have a byte form.
pub fn put_events<'a>(
    events: impl ExactSizeIterator<Item = (&'a StoredEvent, u32, u32)> + Clone,
    out: &mut Vec<u8>,
) {
    put_number(events.len() as u64, out);
    put_column(events.clone().map(|(event, ..)| event.id), out);
    put_column(events.clone().map(|(event, ..)| event.body.0), out);
    put_column(events.clone().map(|(event, ..)| event.arrived), out);
    put_column(events.clone().map(|(event, ..)| event.expires), out);
    put_column(events.clone().map(|(event, ..)| u64::from(event.priority)), out);
    put_column(events.clone().map(|(event, ..)| u64::from(event.durable)), out);
    put_column(events.clone().map(|(_, failed, _)| u64::from(failed)), out);
    put_column(events.clone().map(|(.., counted)| u64::from(counted)), out);
    put_extras(events.map(|(event, ..)| event.extra.as_deref()), out);
}

/// Extra facts of neighbours mostly differ in the event id of the origin and in the message-id: those have columns of
/// their own, and what is left is written once for all that have it.
fn put_extras<'a>(extras: impl Iterator<Item = Option<&'a Extra>> + Clone, out: &mut Vec<u8>) {
    let mut kinds: Vec<Extra> = Vec::new();
    let mut numbers = Vec::new();
    for extra in extras.clone() {
        let Some(extra) = extra else {
            numbers.push(0);
            continue;
        };
        let kind = kind_of(extra);
        // Most often it is the kind of the event before.
        let at = kinds.iter().rposition(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        numbers.push(at as u64 + 1);
    }
    put_column(numbers.into_iter(), out);
    put_number(kinds.len() as u64, out);
    for kind in &kinds {
        put_postcard(kind, out);
    }
    let with = extras.flatten();
    put_column(with.clone().filter_map(|extra| extra.origin).map(|origin| origin.event), out);
    for id in with.filter_map(|extra| extra.message_id.as_ref()) {
        put_postcard(id, out);
    }
}

/// The facts without what differs from event to event.
fn kind_of(extra: &Extra) -> Extra {
    Extra {
        origin: extra.origin.map(|origin| Origin { store: origin.store, event: 0 }),
        message_id: extra.message_id.as_ref().map(|_| String::new()),
        ..extra.clone()
    }
}

fn put_postcard<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    // Invariant: a Vec takes any number of bytes, and every field has a fixed or prefixed length.
    *out = postcard::to_extend(value, std::mem::take(out)).expect("facts always have a byte form");
}

/// Takes a page of events from the front.
///
/// # Errors
/// [`PageError`] if the bytes are none, or hold more events than a page may.
pub fn take_events(bytes: &mut &[u8]) -> Result<Vec<PagedEvent>, PageError> {
    let count = take_count(bytes)?;
    let mut column = |what| take_column(bytes, count).ok_or(PageError(what));
    let (ids, bodies) = (column("event ids")?, column("bodies")?);
    let (arrived, expires) = (column("times of arrival")?, column("times of expiry")?);
    let (priorities, durable) = (column("priorities")?, column("durability")?);
    let (failed, counted) = (column("attempts")?, column("counted attempts")?);
    let extras = take_extras(bytes, count)?;
    let mut events = Vec::with_capacity(count);
    for (at, extra) in extras.into_iter().enumerate() {
        events.push(PagedEvent {
            event: StoredEvent {
                id: ids[at],
                body: BodyId(bodies[at]),
                arrived: arrived[at],
                expires: expires[at],
                priority: narrow(priorities[at], "priorities")?,
                durable: durable[at] != 0,
                extra,
            },
            failed: narrow(failed[at], "attempts")?,
            counted: narrow(counted[at], "counted attempts")?,
        });
    }
    Ok(events)
}

fn take_extras(bytes: &mut &[u8], count: usize) -> Result<Vec<Option<Box<Extra>>>, PageError> {
    let wrong = PageError("extra facts");
    let numbers = take_column(bytes, count).ok_or(wrong)?;
    let kinds = take_number(bytes).ok_or(wrong)?;
    let mut known = Vec::new();
    for _ in 0..kinds {
        known.push(take_postcard::<Extra>(bytes).ok_or(wrong)?);
    }
    let mut extras = Vec::with_capacity(count);
    for number in numbers {
        let kind = match number.checked_sub(1) {
            None => None,
            Some(at) => Some(usize::try_from(at).ok().and_then(|at| known.get(at)).ok_or(wrong)?),
        };
        extras.push(kind.cloned().map(Box::new));
    }
    let origins = extras.iter().flatten().filter(|extra| extra.origin.is_some()).count();
    let origins = take_column(bytes, origins).ok_or(wrong)?;
    let with_origin = extras.iter_mut().flatten().filter_map(|extra| extra.origin.as_mut());
    for (origin, event) in with_origin.zip(origins) {
        origin.event = event;
    }
    for id in extras.iter_mut().flatten().filter_map(|extra| extra.message_id.as_mut()) {
        *id = take_postcard(bytes).ok_or(wrong)?;
    }
    Ok(extras)
}

/// Appends a page of bodies: their count, then a column for each field.
pub fn put_bodies(bodies: impl ExactSizeIterator<Item = StoredBody> + Clone, out: &mut Vec<u8>) {
    put_number(bodies.len() as u64, out);
    put_column(bodies.clone().map(|body| body.id.0), out);
    put_column(bodies.clone().map(|body| u64::from(body.length)), out);
    put_column(bodies.clone().map(|body| u64::from(body.annotations)), out);
    put_column(bodies.clone().map(|body| body.place.frame.segment), out);
    put_column(bodies.clone().map(|body| u64::from(body.place.frame.offset)), out);
    put_column(bodies.clone().map(|body| u64::from(body.place.frame.length)), out);
    put_column(bodies.map(|body| u64::from(body.place.at)), out);
}

/// Takes a page of bodies from the front.
///
/// # Errors
/// [`PageError`] if the bytes are none, or hold more bodies than a page may.
pub fn take_bodies(bytes: &mut &[u8]) -> Result<Vec<StoredBody>, PageError> {
    let count = take_count(bytes)?;
    let mut column = |what| take_column(bytes, count).ok_or(PageError(what));
    let (ids, lengths, annotations) = (column("body ids")?, column("lengths")?, column("annotations")?);
    let (segments, offsets) = (column("segments")?, column("offsets")?);
    let (frames, places) = (column("frames")?, column("places")?);
    let mut bodies = Vec::with_capacity(count);
    for at in 0..count {
        let frame = FramePlace {
            segment: segments[at],
            offset: narrow(offsets[at], "offsets")?,
            length: narrow(frames[at], "frames")?,
        };
        bodies.push(StoredBody {
            id: BodyId(ids[at]),
            length: narrow(lengths[at], "lengths")?,
            annotations: narrow(annotations[at], "annotations")?,
            place: BodyPlace { frame, at: narrow(places[at], "places")? },
        });
    }
    Ok(bodies)
}

/// The numbers and the lengths of the bodies of a page, the first two of its columns, for whoever needs no more.
///
/// # Errors
/// As [`take_bodies`].
pub fn take_lengths(bytes: &mut &[u8]) -> Result<(Vec<u64>, Vec<u64>), PageError> {
    let count = take_count(bytes)?;
    let mut column = |what| take_column(bytes, count).ok_or(PageError(what));
    Ok((column("body ids")?, column("lengths")?))
}

fn take_count(bytes: &mut &[u8]) -> Result<usize, PageError> {
    let count = take_number(bytes).and_then(|count| usize::try_from(count).ok());
    count.filter(|&count| count <= PAGE).ok_or(PageError("count"))
}

fn take_postcard<'a, T: Deserialize<'a>>(bytes: &mut &'a [u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

fn narrow<T: TryFrom<u64>>(value: u64, what: &'static str) -> Result<T, PageError> {
    T::try_from(value).map_err(|_| PageError(what))
}
