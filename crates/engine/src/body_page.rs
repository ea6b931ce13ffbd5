//! A page of the table of bodies, hot and cold.

use crate::leaf::{Freeze, Frozen};
use postroad_model::id::BodyId;
use postroad_model::message::Message;
use postroad_record::{BodyPlace, PAGE, StoredBody, put_bodies, put_column, take_bodies, take_column};

/// A message, where its bytes are, and how many events hold it.
#[derive(Debug)]
pub(crate) struct Body {
    /// Its bytes, if they are in memory.
    pub message: Option<Message>,
    /// Bytes in all.
    pub length: u32,
    /// Bytes of the message-annotations section.
    pub annotations: u32,
    /// Events that hold it.
    pub holders: u32,
    /// Those of them that are on disk.
    pub durable_holders: u32,
    /// Its record was made: it has a place in the journal or is about to get one.
    pub written: bool,
    /// Where it lies, once its step was appended.
    pub place: Option<BodyPlace>,
    /// Its bytes are being read.
    pub loading: bool,
    /// Work that waited for it has not had its turn yet, so it stays in memory.
    pub pinned: bool,
    /// Its bytes could not be read: they are damaged.
    pub lost: bool,
}

/// Bodies with neighbouring numbers.
#[derive(Debug, Default)]
pub(crate) struct BodyPage {
    /// The number of its first body.
    pub first: u64,
    /// By number within the page.
    pub slots: Vec<Option<Body>>,
    /// How many there are.
    pub live: u32,
    /// How many can't be left to the journal just now: in memory, or without a place.
    pub busy: u32,
}

impl Body {
    /// Whether it can't be left to the journal just now.
    pub(crate) const fn is_busy(&self) -> bool {
        self.message.is_some() || self.place.is_none() || self.loading || self.lost
    }

    /// The body as a checkpoint keeps it, if it has a place.
    pub(crate) fn stored(&self, id: BodyId) -> Option<StoredBody> {
        let place = self.place?;
        Some(StoredBody { id, length: self.length, annotations: self.annotations, place })
    }

    /// A body that lies in the journal.
    pub(crate) const fn at(stored: &StoredBody) -> Self {
        Self {
            message: None,
            length: stored.length,
            annotations: stored.annotations,
            holders: 0,
            durable_holders: 0,
            written: true,
            place: Some(stored.place),
            loading: false,
            pinned: false,
            lost: false,
        }
    }
}

impl BodyPage {
    fn live(&self) -> impl Iterator<Item = &Body> + Clone {
        self.slots.iter().flatten()
    }

    /// The bodies with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (BodyId, &Body)> {
        (self.first..).zip(&self.slots).filter_map(|(id, body)| Some((BodyId(id), body.as_ref()?)))
    }

    /// The bodies that lie in the journal, as a checkpoint keeps them.
    pub(crate) fn stored(&self) -> Vec<StoredBody> {
        self.numbered().filter_map(|(id, body)| body.stored(id)).collect()
    }
}

/// The slot of a body within its page.
pub(crate) const fn slot(id: u64) -> usize {
    #[allow(clippy::cast_possible_truncation)] // below PAGE
    let slot = (id % PAGE as u64) as usize;
    slot
}

impl Freeze for BodyPage {
    fn freeze(&self) -> Option<Frozen> {
        if self.busy > 0 {
            return None;
        }
        let mut bytes = Vec::new();
        put_bodies(self.stored().into_iter(), &mut bytes);
        let durable = bytes.len();
        put_column(self.live().map(|body| u64::from(body.holders)), &mut bytes);
        put_column(self.live().map(|body| u64::from(body.durable_holders)), &mut bytes);
        Some(Frozen { bytes: bytes.into_boxed_slice(), durable, all_on_disk: true })
    }

    fn thaw(frozen: &Frozen) -> Self {
        let mut rest = &*frozen.bytes;
        // Invariant: these bytes were made by `freeze`, or were read back with success before they were kept.
        let bodies = take_bodies(&mut rest).expect("a frozen page reads back");
        let mut holders = take_column(&mut rest, bodies.len()).unwrap_or_default().into_iter();
        let mut durable = take_column(&mut rest, bodies.len()).unwrap_or_default().into_iter();
        let mut page = Self::default();
        for stored in &bodies {
            let at = slot(stored.id.0);
            page.first = stored.id.0 - at as u64;
            if page.slots.len() <= at {
                page.slots.resize_with(at + 1, || None);
            }
            let mut body = Body::at(stored);
            let narrow =
                |count: Option<u64>| count.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
            body.holders = narrow(holders.next());
            body.durable_holders = narrow(durable.next());
            page.live += 1;
            page.slots[at] = Some(body);
        }
        page
    }
}
