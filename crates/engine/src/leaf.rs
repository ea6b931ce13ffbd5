//! Tables of pages. A page is in use (*hot*: a structure) or not (*cold*: bytes); its table goes round the hot ones and cools
//! what was not used since it last came by. Nothing is read or written for it: cold pages stay in memory, they are only
//! much smaller (ADR 0005).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;

/// What can lie cold.
pub(crate) trait Freeze: Sized {
    /// The page as bytes; `None` if something in it must stay at hand.
    fn freeze(&self) -> Option<Frozen>;
    /// The page that these bytes are.
    fn thaw(frozen: &Frozen) -> Self;
}

/// A page as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// The durable columns, then those that only a running broker has.
    pub bytes: Box<[u8]>,
    /// How many of the bytes are durable columns.
    pub durable: usize,
    /// Everything in the page is on disk.
    pub all_on_disk: bool,
}

/// A page.
#[derive(Debug)]
pub(crate) struct Leaf<P> {
    hot: OnceCell<Box<P>>,
    /// The same as bytes, unless the hot form was changed.
    cold: Option<Frozen>,
    used: Cell<bool>,
}

impl<P> Default for Leaf<P> {
    fn default() -> Self {
        Self { hot: OnceCell::new(), cold: None, used: Cell::new(false) }
    }
}

impl<P: Freeze + Default> Leaf<P> {
    /// A page that was read back as bytes.
    fn of(frozen: Frozen) -> Self {
        Self { cold: Some(frozen), ..Self::default() }
    }

    /// The page, to look at. `became_hot` is called if it was cold.
    fn look(&self, became_hot: impl FnOnce()) -> &P {
        self.used.set(true);
        self.hot.get_or_init(|| {
            became_hot();
            Box::new(self.cold.as_ref().map_or_else(P::default, P::thaw))
        })
    }

    /// The page, to change it. `became_hot` is called if it was cold.
    fn change(&mut self, became_hot: impl FnOnce()) -> &mut P {
        self.look(became_hot);
        self.cold = None;
        // Invariant: `look` has filled it.
        self.hot.get_mut().expect("the page is hot")
    }

    /// Hands the page over to be looked at once, without making it hot.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&P) -> R) -> R {
        match (self.hot.get(), &self.cold) {
            (Some(page), _) => look(page),
            (None, Some(frozen)) => look(&P::thaw(frozen)),
            (None, None) => look(&P::default()),
        }
    }

    /// The page if it is hot.
    fn if_hot(&self) -> Option<&P> {
        self.hot.get().map(Box::as_ref)
    }

    /// The bytes if the page is cold.
    pub(crate) fn if_cold(&self) -> Option<&Frozen> {
        if self.hot.get().is_some() { None } else { self.cold.as_ref() }
    }

    /// The bytes if the page is cold, to change what only a running broker has of it.
    pub(crate) fn if_cold_mut(&mut self) -> Option<&mut Frozen> {
        if self.hot.get().is_some() { None } else { self.cold.as_mut() }
    }

    /// Its turn has come: a hot page that was not used since the last one becomes cold, if it can. Whether it is hot now.
    fn cool(&mut self) -> bool {
        let Some(page) = self.hot.get() else { return false };
        if self.used.replace(false) {
            return true;
        }
        if self.cold.is_none() {
            self.cold = page.freeze();
        }
        if self.cold.is_some() {
            self.hot.take();
        }
        self.cold.is_none()
    }
}

/// The pages of a table by number, those alone that hold something: mostly a run without gaps, so that a page is found
/// where its number says; but one old page costs nothing for all that went behind it.
#[derive(Debug)]
pub(crate) struct Pages<P> {
    /// Ascending by number.
    pages: VecDeque<(u64, Leaf<P>)>,
    hot: Hot,
    /// Hot pages that are kept.
    limit: usize,
}

/// The numbers of the hot pages, in the order of their turns. So it takes no time to find them among many cold ones: a
/// long backlog is filled and taken with few of its pages hot. Pages that are gone are passed when it is their turn.
#[derive(Debug, Default)]
struct Hot(RefCell<VecDeque<u64>>);

impl Hot {
    fn add(&self, number: u64) {
        // Nothing else is called while it is borrowed.
        self.0.borrow_mut().push_back(number);
    }
}

impl<P: Freeze + Default> Pages<P> {
    /// No pages, of which `limit` are kept hot.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { pages: VecDeque::new(), hot: Hot(RefCell::new(VecDeque::new())), limit }
    }

    /// Where the page is, or where it would be.
    fn find(&self, number: u64) -> Result<usize, usize> {
        let Some(&(last, _)) = self.pages.back() else { return Err(0) };
        if last <= number {
            return if last == number { Ok(self.pages.len() - 1) } else { Err(self.pages.len()) };
        }
        // Where there are no gaps, it lies as far from the end as its number says.
        let guess =
            usize::try_from(last - number).ok().and_then(|back| (self.pages.len() - 1).checked_sub(back));
        match guess.filter(|&at| self.pages.get(at).is_some_and(|&(found, _)| found == number)) {
            Some(at) => Ok(at),
            None => self.pages.binary_search_by_key(&number, |&(number, _)| number),
        }
    }

    /// The page with this number, to look at.
    pub(crate) fn look(&self, number: u64) -> Option<&P> {
        let at = self.find(number).ok()?;
        Some(self.pages[at].1.look(|| self.hot.add(number)))
    }

    /// The page with this number, hot or cold.
    pub(crate) fn leaf(&self, number: u64) -> Option<&Leaf<P>> {
        Some(&self.pages[self.find(number).ok()?].1)
    }

    /// The page with this number, if it is hot.
    pub(crate) fn look_hot(&self, number: u64) -> Option<&P> {
        let at = self.find(number).ok()?;
        self.pages[at].1.if_hot()
    }

    /// The page with this number, to change it.
    pub(crate) fn change(&mut self, number: u64) -> Option<&mut P> {
        let at = self.find(number).ok()?;
        Some(self.pages[at].1.change(|| self.hot.add(number)))
    }

    /// The page with this number, made if it is not there, to put something into.
    pub(crate) fn make(&mut self, number: u64) -> &mut P {
        let at = self.find(number).unwrap_or_else(|at| {
            self.pages.insert(at, (number, Leaf::default()));
            at
        });
        self.pages[at].1.change(|| self.hot.add(number))
    }

    /// Puts a page that was read back behind all others; false if it does not belong there.
    pub(crate) fn push(&mut self, number: u64, frozen: impl FnOnce() -> Frozen) -> bool {
        let is_last = self.pages.back().is_none_or(|&(last, _)| last < number);
        if is_last {
            self.pages.push_back((number, Leaf::of(frozen())));
        }
        is_last
    }

    /// Forgets the page with this number, which is empty.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Ok(at) = self.find(number) {
            self.pages.remove(at);
        }
    }

    /// The number of the last page.
    pub(crate) fn last(&self) -> Option<u64> {
        self.pages.back().map(|&(number, _)| number)
    }

    /// The pages from this number on, with their numbers, ascending.
    pub(crate) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &P)> {
        let at = self.find(number).unwrap_or_else(|at| at);
        self.pages.range(at..).map(|(number, leaf)| (*number, leaf.look(|| self.hot.add(*number))))
    }

    /// The pages from this number on with their numbers, whether they are hot or not, ascending.
    pub(crate) fn leaves(&self, number: u64) -> impl Iterator<Item = (u64, &Leaf<P>)> {
        let at = self.find(number).unwrap_or_else(|at| at);
        self.pages.range(at..).map(|(number, leaf)| (*number, leaf))
    }

    /// The page with this number, whether it is hot or not, to change it.
    pub(crate) fn leaf_mut(&mut self, number: u64) -> Option<&mut Leaf<P>> {
        let at = self.find(number).ok()?;
        Some(&mut self.pages[at].1)
    }

    /// Gives a few hot pages their turn, if there are more than are kept.
    pub(crate) fn cool(&mut self) {
        // Pages that can't be cooled must not hold up a turn of the engine.
        const TURNS: usize = 64;
        for _ in 0..TURNS {
            if self.hot.0.get_mut().len() <= self.limit {
                return;
            }
            let Some(number) = self.hot.0.get_mut().pop_front() else { return };
            if self.leaf_mut(number).is_some_and(Leaf::cool) {
                self.hot.0.get_mut().push_back(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A page that is one number.
    #[derive(Debug, Default, PartialEq)]
    struct One(u8);

    impl Freeze for One {
        fn freeze(&self) -> Option<Frozen> {
            // Odd ones stay hot.
            let bytes = self.0.is_multiple_of(2).then(|| vec![self.0].into_boxed_slice())?;
            Some(Frozen { bytes, durable: 1, all_on_disk: true })
        }

        fn thaw(frozen: &Frozen) -> Self {
            Self(frozen.bytes[0])
        }
    }

    proptest! {
        #[test]
        fn pages_are_found_by_number_hot_or_cold(
            ops in prop::collection::vec((0u64..40, 0u8..4, any::<u8>()), 1..200),
            offset in prop_oneof![Just(0u64), Just(u64::MAX - 100)],
        ) {
            let (mut pages, mut model) = (Pages::<One>::new(2), BTreeMap::new());
            for (number, op, value) in ops {
                let number = number + offset;
                match op {
                    0 | 1 => {
                        pages.make(number).0 = value;
                        model.insert(number, value);
                    }
                    2 => {
                        pages.remove(number);
                        model.remove(&number);
                    }
                    _ => pages.cool(),
                }
                prop_assert_eq!(pages.look(number).map(|page| page.0), model.get(&number).copied());
                let from: Vec<_> = pages.leaves(number).map(|(n, leaf)| (n, leaf.peek(|page| page.0))).collect();
                prop_assert_eq!(from, model.range(number..).map(|(&n, &v)| (n, v)).collect::<Vec<_>>());
            }
            for _ in 0..5 {
                pages.cool();
            }
            let stuck = model.values().filter(|value| *value % 2 == 1).count();
            prop_assert!(hot(&pages) <= stuck.max(2));
        }
    }

    fn hot(pages: &Pages<One>) -> usize {
        pages.pages.iter().filter(|(_, leaf)| leaf.if_hot().is_some()).count()
    }

    #[test]
    fn a_long_table_is_filled_with_few_pages_hot() {
        let mut pages = Pages::<One>::new(2);
        for number in 0..10_000 {
            pages.make(number).0 = 2;
            pages.cool();
            assert!(hot(&pages) <= 4, "{} of {number} pages", hot(&pages));
        }
    }
}
