//! A page of the table of bodies, hot and cold.

use crate::leaf::{Freeze, Frozen};
use postroad_model::id::BodyId;
use postroad_model::message::Message;
use postroad_record::{
    BodyPlace, PAGE, StoredBody, put_bodies, put_column, take_bodies, take_column, take_lengths,
};

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

/// A body that was taken out of its page.
pub(crate) struct Taken {
    /// It.
    pub body: Body,
    /// Nothing is left in the page.
    pub is_empty: bool,
    /// The page has numbers that were not given yet.
    pub can_grow: bool,
}

impl BodyPage {
    /// Takes a body out of a slot.
    pub(crate) fn take(&mut self, at: usize) -> Option<Taken> {
        let body = self.slots.get_mut(at)?.take()?;
        self.busy -= u32::from(body.is_busy());
        self.live -= 1;
        Some(Taken { body, is_empty: self.live == 0, can_grow: self.slots.len() < PAGE })
    }

    fn live(&self) -> impl Iterator<Item = &Body> + Clone {
        self.slots.iter().flatten()
    }

    /// The bodies with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (BodyId, &Body)> {
        // The last number that there is has none behind it.
        (self.first..=u64::MAX).zip(&self.slots).filter_map(|(id, body)| Some((BodyId(id), body.as_ref()?)))
    }

    /// The bodies that lie in the journal, as a checkpoint keeps them.
    pub(crate) fn stored(&self) -> Vec<StoredBody> {
        self.numbered().filter_map(|(id, body)| body.stored(id)).collect()
    }
}

/// What a start needs of a page that lies cold. It meets every page, so it makes none of them hot (ADR 0005).
pub(crate) struct ColdCounts {
    /// The numbers of the bodies, ascending.
    ids: Vec<u64>,
    lengths: Vec<u64>,
    holders: Vec<u64>,
    durable_holders: Vec<u64>,
}

impl ColdCounts {
    /// The counts of a page.
    pub(crate) fn of(frozen: &Frozen) -> Self {
        // Invariant: these bytes were made by `freeze`, or were read back with success before they were kept.
        let (ids, lengths) = take_lengths(&mut &*frozen.bytes).expect("a frozen page reads back");
        // A page of a checkpoint ends with the durable columns: nobody has held its bodies yet.
        let mut rest = frozen.bytes.get(frozen.durable..).unwrap_or_default();
        let mut column = || take_column(&mut rest, ids.len()).unwrap_or_else(|| vec![0; ids.len()]);
        let (holders, durable_holders) = (column(), column());
        Self { ids, lengths, holders, durable_holders }
    }

    /// One more event on disk holds this body: its bytes in all, 0 if it is not there.
    pub(crate) fn hold(&mut self, id: BodyId) -> u64 {
        let Ok(at) = self.ids.binary_search(&id.0) else { return 0 };
        self.holders[at] += 1;
        self.durable_holders[at] += 1;
        self.lengths[at]
    }

    /// The bodies that no event holds.
    pub(crate) fn unheld(&self) -> Vec<BodyId> {
        let with = self.ids.iter().zip(&self.holders);
        with.filter(|&(_, &holders)| holders == 0).map(|(&id, _)| BodyId(id)).collect()
    }

    /// Writes the counts into their page.
    pub(crate) fn put_into(self, frozen: &mut Frozen) {
        let mut bytes = frozen.bytes[..frozen.durable].to_vec();
        put_column(self.holders.into_iter(), &mut bytes);
        put_column(self.durable_holders.into_iter(), &mut bytes);
        frozen.bytes = bytes.into_boxed_slice();
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(bodies: &[(u64, u32, u32)]) -> BodyPage {
        let mut page = BodyPage { slots: Vec::with_capacity(PAGE), ..BodyPage::default() };
        page.slots.resize_with(PAGE, || None);
        for &(at, length, holders) in bodies {
            let stored = StoredBody { id: BodyId(at), length, annotations: 0, place: BodyPlace::default() };
            let body = Body { holders, durable_holders: holders / 2, ..Body::at(&stored) };
            page.live += u32::from(page.slots[slot(at)].replace(body).is_none());
        }
        page
    }

    proptest! {
        #[test]
        fn a_cold_page_counts_as_a_hot_one(
            bodies in prop::collection::vec((0u64..512, any::<u32>(), 0u32..3), 1..100),
            held in prop::collection::vec(0u64..512, 0..100),
            from_checkpoint in any::<bool>(),
        ) {
            let mut frozen = page(&bodies).freeze().expect("every body lies in the journal");
            if from_checkpoint {
                frozen.bytes = frozen.bytes[..frozen.durable].into();
            }
            let mut hot = BodyPage::thaw(&frozen);
            let mut counts = ColdCounts::of(&frozen);
            for id in held {
                let body = hot.slots.get_mut(slot(id)).and_then(Option::as_mut);
                let length = body.map_or(0, |body| {
                    body.holders += 1;
                    body.durable_holders += 1;
                    u64::from(body.length)
                });
                prop_assert_eq!(counts.hold(BodyId(id)), length);
            }
            let unheld = hot.numbered().filter(|(_, body)| body.holders == 0).map(|(id, _)| id);
            prop_assert_eq!(counts.unheld(), unheld.collect::<Vec<_>>());
            counts.put_into(&mut frozen);
            prop_assert_eq!(Some(frozen), hot.freeze());
        }
    }
}
