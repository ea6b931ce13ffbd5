//! Many selectors over one stream of messages.

use std::borrow::Borrow;
use std::hash::Hash;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::selector::{Key, Selector, number_key};
use crate::value::{Properties, Value};

/// Many selectors over one stream of messages: finds those that match without visiting those that do not.
///
/// A selector that is `identifier = constant` or `identifier IN (...)`, or has such a condition among those that
/// it joins by AND, is filed under the identifier and the constant. A message costs one look-up for each distinct
/// identifier that selectors are filed under, however many they are, and one evaluation of what is left of each
/// selector found there. All other selectors are evaluated for every message, equal ones once.
///
/// `K` says whose selector it is. Cloning a key should be cheap.
#[derive(Clone, Debug)]
pub struct SelectorIndex<K> {
    /// Sorted by name.
    identifiers: Vec<Filed<K>>,
    others: Groups<K>,
    len: usize,
}

/// What is filed under one identifier.
#[derive(Clone, Debug)]
struct Filed<K> {
    name: Box<str>,
    texts: Table<Box<str>, K>,
    /// By [`number_key`].
    numbers: Table<u64, K>,
    false_: Groups<K>,
    true_: Groups<K>,
}

/// Its order is never seen. The seed is fixed: whoever could make selectors collide here could as well present
/// selectors that cannot be filed at all.
type Table<T, K> = HashMap<T, Groups<K>, FixedState>;

fn reseeded<T: Eq + std::hash::Hash, K>(table: Table<T, K>, seed: u64) -> Table<T, K> {
    let mut other = Table::with_hasher(FixedState::with_seed(seed));
    other.extend(table);
    other
}

/// Distinct selectors, sorted, each with those who have it.
#[derive(Clone, Debug)]
struct Groups<K>(Vec<Group<K>>);

#[derive(Clone, Debug)]
struct Group<K> {
    selector: Selector,
    /// Sorted, each there once, never empty.
    keys: Vec<K>,
}

impl<K> Default for SelectorIndex<K> {
    fn default() -> SelectorIndex<K> {
        SelectorIndex { identifiers: Vec::new(), others: Groups(Vec::new()), len: 0 }
    }
}

impl<K: Ord + Clone> SelectorIndex<K> {
    /// An index without selectors. Allocates nothing.
    #[must_use]
    pub fn new() -> SelectorIndex<K> {
        SelectorIndex::default()
    }

    /// Gives the hash tables another seed. Nothing that can be seen may change by it, which is what a simulator tries.
    pub fn reseed(&mut self, seed: u64) {
        for filed in &mut self.identifiers {
            filed.texts = reseeded(std::mem::take(&mut filed.texts), seed);
            filed.numbers = reseeded(std::mem::take(&mut filed.numbers), seed);
        }
    }

    /// Adds the pair of `selector` and `key`; `false` if it was there already.
    pub fn insert(&mut self, selector: &Selector, key: K) -> bool {
        let added = match selector.key() {
            None => self.others.insert(selector, key),
            Some(Key::Text(name, text)) => insert_in(&mut self.filed(name).texts, text.into(), selector, key),
            Some(Key::Texts(name, texts)) => {
                let table = &mut self.filed(name).texts;
                let mut added = false;
                for text in texts {
                    added |= insert_in(table, text.clone(), selector, key.clone());
                }
                added
            }
            Some(Key::Number(name, number)) => {
                insert_in(&mut self.filed(name).numbers, number, selector, key)
            }
            Some(Key::Bool(name, value)) => self.filed(name).truth(value).insert(selector, key),
        };
        self.len += usize::from(added);
        added
    }

    /// Removes the pair of `selector` and `key`; `false` if it was not there.
    pub fn remove(&mut self, selector: &Selector, key: &K) -> bool {
        let removed = match selector.key() {
            None => self.others.remove(selector, key),
            Some(Key::Text(name, text)) => {
                self.unfile(name, |filed| remove_from(&mut filed.texts, text, selector, key))
            }
            Some(Key::Texts(name, texts)) => self.unfile(name, |filed| {
                let mut removed = false;
                for text in texts {
                    removed |= remove_from(&mut filed.texts, &**text, selector, key);
                }
                removed
            }),
            Some(Key::Number(name, number)) => {
                self.unfile(name, |filed| remove_from(&mut filed.numbers, &number, selector, key))
            }
            Some(Key::Bool(name, value)) => {
                self.unfile(name, |filed| filed.truth(value).remove(selector, key))
            }
        };
        self.len -= usize::from(removed);
        removed
    }

    /// Puts into `out` the keys whose selectors match, in ascending order and each once; what `out` held is gone.
    ///
    /// Allocates nothing but what `out` needs to grow.
    pub fn matches<P: Properties + ?Sized>(&self, properties: &P, out: &mut Vec<K>) {
        out.clear();
        for group in self.candidates(properties) {
            if group.selector.matches_beyond_key(properties) {
                out.extend_from_slice(&group.keys);
            }
        }
        for group in self.others.0.iter().filter(|group| group.selector.matches(properties)) {
            out.extend_from_slice(&group.keys);
        }
        out.sort_unstable();
        out.dedup();
    }

    /// Whether at least one selector matches. Stops at the first; allocates nothing.
    pub fn any<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        self.candidates(properties).any(|group| group.selector.matches_beyond_key(properties))
            || self.others.0.iter().any(|group| group.selector.matches(properties))
    }

    /// Puts every key into `out`, in ascending order and each once; what `out` held is gone.
    pub fn keys(&self, out: &mut Vec<K>) {
        out.clear();
        let filed = self.identifiers.iter().flat_map(Filed::all);
        for group in filed.chain([&self.others]).flat_map(|groups| &groups.0) {
            out.extend_from_slice(&group.keys);
        }
        out.sort_unstable();
        out.dedup();
    }

    /// The number of pairs of a selector and a key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no selector.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The selectors that are filed under the values of this message.
    fn candidates<'i, P: Properties + ?Sized>(
        &'i self,
        properties: &'i P,
    ) -> impl Iterator<Item = &'i Group<K>> {
        self.identifiers
            .iter()
            .filter_map(|filed| filed.under(properties.property(&filed.name)))
            .flat_map(|g| &g.0)
    }

    /// The place for what is filed under `name`, made if it is not there.
    fn filed(&mut self, name: &str) -> &mut Filed<K> {
        let position = match self.identifiers.binary_search_by(|filed| (*filed.name).cmp(name)) {
            Ok(position) => position,
            Err(position) => {
                self.identifiers.insert(position, Filed::new(name));
                position
            }
        };
        self.identifiers.get_mut(position).expect("the place was found or made just now")
    }

    /// Removes something under `name`, and its place if that was the last thing there.
    fn unfile(&mut self, name: &str, remove: impl FnOnce(&mut Filed<K>) -> bool) -> bool {
        let Ok(position) = self.identifiers.binary_search_by(|filed| (*filed.name).cmp(name)) else {
            return false;
        };
        let Some(filed) = self.identifiers.get_mut(position) else { return false };
        let removed = remove(filed);
        if filed.is_empty() {
            self.identifiers.remove(position);
        }
        removed
    }
}

impl<K> Filed<K> {
    fn new(name: &str) -> Filed<K> {
        Filed {
            name: name.into(),
            texts: Table::default(),
            numbers: Table::default(),
            false_: Groups(Vec::new()),
            true_: Groups(Vec::new()),
        }
    }

    fn under(&self, value: Value<'_>) -> Option<&Groups<K>> {
        match value {
            Value::Text(text) => self.texts.get(text),
            Value::Long(_) | Value::Double(_) => self.numbers.get(&number_key(value)?),
            Value::Bool(true) => Some(&self.true_),
            Value::Bool(false) => Some(&self.false_),
            Value::Null | Value::Opaque => None,
        }
    }

    /// Everything that is filed here, in no order that could be relied on.
    fn all(&self) -> impl Iterator<Item = &Groups<K>> {
        self.texts.values().chain(self.numbers.values()).chain([&self.false_, &self.true_])
    }

    fn truth(&mut self, value: bool) -> &mut Groups<K> {
        if value { &mut self.true_ } else { &mut self.false_ }
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty()
            && self.numbers.is_empty()
            && self.false_.0.is_empty()
            && self.true_.0.is_empty()
    }
}

fn insert_in<T: Hash + Eq, K: Ord + Clone>(
    table: &mut Table<T, K>,
    value: T,
    selector: &Selector,
    key: K,
) -> bool {
    table.entry(value).or_insert_with(|| Groups(Vec::new())).insert(selector, key)
}

fn remove_from<T, Q, K>(table: &mut Table<T, K>, value: &Q, selector: &Selector, key: &K) -> bool
where
    T: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
    K: Ord + Clone,
{
    let Some(groups) = table.get_mut(value) else { return false };
    let removed = groups.remove(selector, key);
    if groups.0.is_empty() {
        table.remove(value);
    }
    removed
}

impl<K: Ord + Clone> Groups<K> {
    fn insert(&mut self, selector: &Selector, key: K) -> bool {
        match self.0.binary_search_by(|group| group.selector.cmp(selector)) {
            Err(position) => {
                self.0.insert(position, Group { selector: selector.clone(), keys: vec![key] });
                true
            }
            Ok(position) => self.0.get_mut(position).is_some_and(|group| group.insert(key)),
        }
    }

    fn remove(&mut self, selector: &Selector, key: &K) -> bool {
        let Ok(position) = self.0.binary_search_by(|group| group.selector.cmp(selector)) else {
            return false;
        };
        let Some(group) = self.0.get_mut(position) else { return false };
        let Ok(place) = group.keys.binary_search(key) else { return false };
        group.keys.remove(place);
        if group.keys.is_empty() {
            self.0.remove(position);
        }
        true
    }
}

impl<K: Ord + Clone> Group<K> {
    fn insert(&mut self, key: K) -> bool {
        let Err(place) = self.keys.binary_search(&key) else { return false };
        self.keys.insert(place, key);
        true
    }
}
