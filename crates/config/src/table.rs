//! Reading one TOML table key by key: types, ranges, unknown keys, all faults reported at once.

use crate::diagnostic::{Code, Sink};
use crate::source::{Located, Span};
use crate::suggest;
use crate::value::{self, quote};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table that is being read. Every key asked for becomes a known key; [`Table::finish`] reports the rest.
///
/// A reading method returns `None` both for an absent key and for a faulty value, which it has then reported.
pub(crate) struct Table<'t> {
    pub(crate) sink: &'t Sink<'t>,
    entries: &'t DeTable<'t>,
    /// As people write it: `[broker]`, `[[join]]`.
    title: String,
    pub(crate) at: Span,
    known: Vec<&'static str>,
    places: Places,
}

/// Where the keys of a table were written: the spans of their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    at: Span,
    keys: BTreeMap<&'static str, Span>,
}

impl Places {
    /// The value of a key, or the table itself if the key was not written.
    pub(crate) fn of(&self, key: &str) -> Span {
        self.keys.get(key).copied().unwrap_or(self.at)
    }

    /// Whether the key was written.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }
}

impl<'t> Table<'t> {
    pub(crate) fn new(
        sink: &'t Sink<'t>,
        entries: &'t DeTable<'t>,
        title: impl Into<String>,
        at: Span,
    ) -> Self {
        let places = Places { at, keys: BTreeMap::new() };
        Self { sink, entries, title: title.into(), at, known: Vec::new(), places }
    }

    /// Whether the key is written at all.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.get(key).is_some()
    }

    /// Where the value of a key that was asked for is written, or the table itself.
    pub(crate) fn place(&self, key: &str) -> Span {
        self.places.of(key)
    }

    fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        let value = self.entries.get(key)?;
        self.places.keys.insert(key, value.span().into());
        Some(value)
    }

    fn wrong_kind(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let kind = value.get_ref().type_str();
        let message = format!("'{key}' in {} takes {wanted}, not {} {kind}", self.title, article(kind));
        self.sink.error(Code::BadValue, value.span().into(), message, "");
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        let written = self.get(key)?;
        match written.get_ref() {
            DeValue::String(text) => Some(Located { value: text.to_string(), span: written.span().into() }),
            _ => {
                self.wrong_kind(key, written, "a text in quotes");
                None
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let written = self.get(key)?;
        let value = written.get_ref().as_bool();
        if value.is_none() {
            self.wrong_kind(key, written, "true or false");
        }
        value
    }

    /// A whole number within a range.
    pub(crate) fn integer<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + std::fmt::Display,
    {
        self.integer_or(key, range, Code::BadValue)
    }

    /// A whole number within a range; out of range has a code of its own.
    pub(crate) fn integer_or<T>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
        code: Code,
    ) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + std::fmt::Display,
    {
        let written = self.get(key)?;
        let Some(number) = written.get_ref().as_integer() else {
            self.wrong_kind(key, written, "a whole number");
            return None;
        };
        let wide = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let value = wide.and_then(|wide| T::try_from(wide).ok()).filter(|value| range.contains(value));
        if value.is_none() {
            let message = format!("'{key}' in {} can't be {}", self.title, quote(&number.to_string()));
            let advice = format!("write a whole number from {} to {}", range.start(), range.end());
            self.sink.error(code, written.span().into(), message, advice);
        }
        value
    }

    /// A number, whole or not, at least `least` and finite.
    pub(crate) fn number(&mut self, key: &'static str, least: f64) -> Option<f64> {
        self.number_where(key, |value| value >= least, &format!("that is at least {least}"))
    }

    /// A number, whole or not, within a range.
    pub(crate) fn number_between(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let bounds = format!("from {} to {}", range.start(), range.end());
        self.number_where(key, |value| range.contains(&value), &bounds)
    }

    fn number_where(&mut self, key: &'static str, holds: impl Fn(f64) -> bool, bounds: &str) -> Option<f64> {
        let written = self.get(key)?;
        let value: Option<f64> = match written.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => {
                self.wrong_kind(key, written, "a number");
                return None;
            }
        };
        let value = value.filter(|value| value.is_finite() && holds(*value));
        if value.is_none() {
            let message = format!("'{key}' in {} is out of range", self.title);
            let advice = format!("write a number {bounds}");
            self.sink.error(Code::BadValue, written.span().into(), message, advice);
        }
        value
    }

    /// A duration as milliseconds: `"5s"`, or a whole number of milliseconds.
    pub(crate) fn duration(&mut self, key: &'static str) -> Option<u64> {
        self.quantity(key, "a duration such as \"5s\"", value::duration_ms)
    }

    /// A size as bytes: `"64KiB"`, or a whole number of bytes.
    pub(crate) fn size(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let size = self.quantity(key, "a size such as \"64KiB\"", value::size_bytes)?;
        if range.contains(&size) {
            return Some(size);
        }
        let message = format!("'{key}' in {} can't be {size} bytes", self.title);
        let advice = format!("write a size from {} to {} bytes", range.start(), range.end());
        self.sink.error(Code::BadValue, self.places.of(key), message, advice);
        None
    }

    fn quantity(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: fn(&str) -> Result<u64, String>,
    ) -> Option<u64> {
        let written = self.get(key)?;
        let value = match written.get_ref() {
            DeValue::String(text) => read(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| format!("{} is out of range", quote(&number.to_string()))),
            _ => {
                self.wrong_kind(key, written, wanted);
                return None;
            }
        };
        if let Err(advice) = &value {
            let message = format!("'{key}' in {} takes {wanted}", self.title);
            self.sink.error(Code::BadValue, written.span().into(), message, advice.as_str());
        }
        value.ok()
    }

    /// A word of an enumeration, `-` and `_` alike.
    pub(crate) fn word<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        let text = self.text(key)?;
        match value::word(&text.value) {
            Ok(value) => Some(value),
            Err(words) => {
                let message = format!("'{key}' in {} can't be {}", self.title, quote(&text.value));
                let mut advice = format!("write one of: {}", words.join(", "));
                if let Some(near) = suggest::nearest(&text.value, words.iter().copied()) {
                    advice.push_str(&format!("; did you mean '{near}'?"));
                }
                self.sink.error(Code::BadValue, text.span, message, advice);
                None
            }
        }
    }

    /// A list of texts, or one text alone.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<Located<String>>> {
        let written = self.get(key)?;
        let items: &[Spanned<DeValue<'_>>] = match written.get_ref() {
            DeValue::Array(items) => items.as_ref(),
            DeValue::String(_) => std::slice::from_ref(written),
            _ => {
                self.wrong_kind(key, written, "a list of texts");
                return None;
            }
        };
        let mut texts = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => {
                    texts.push(Located { value: text.to_string(), span: item.span().into() });
                }
                _ => self.wrong_kind(key, item, "a list of texts"),
            }
        }
        Some(texts)
    }

    /// A text or a whole number, as text.
    pub(crate) fn text_or_integer(&mut self, key: &'static str) -> Option<Located<String>> {
        let written = self.get(key)?;
        let value = match written.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            _ => {
                self.wrong_kind(key, written, "a word or a whole number");
                return None;
            }
        };
        Some(Located { value, span: written.span().into() })
    }

    /// A table inside this one; `title` is what people call it.
    pub(crate) fn table(&mut self, key: &'static str, title: &str) -> Option<Table<'t>> {
        let written = self.get(key)?;
        match written.get_ref() {
            DeValue::Table(entries) => Some(Table::new(self.sink, entries, title, written.span().into())),
            _ => {
                self.wrong_kind(key, written, &format!("a table, {title}"));
                None
            }
        }
    }

    /// A list of tables inside this one, written `[[key]]` or `key = [{..}]`.
    pub(crate) fn tables(&mut self, key: &'static str, title: &str) -> Vec<Table<'t>> {
        let Some(written) = self.get(key) else { return Vec::new() };
        let Some(items) = written.get_ref().as_array() else {
            self.wrong_kind(key, written, &format!("a list of tables: write {title}"));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(entries) => {
                    tables.push(Table::new(self.sink, entries, title, item.span().into()));
                }
                _ => self.wrong_kind(key, item, &format!("a list of tables: write {title}")),
            }
        }
        tables
    }

    /// Keys of features that exist and are not part of this version: an error of its own for each that is written.
    pub(crate) fn unsupported(&mut self, keys: &[&'static str]) {
        for key in keys {
            self.known.push(key);
            if let Some((written, _)) = self.entries.get_key_value(*key) {
                let message = format!("'{key}' in {} is not supported by this version", self.title);
                self.sink.error(Code::NotSupported, written.span().into(), message, "remove it");
            }
        }
    }

    /// Reports an absent compulsory key.
    pub(crate) fn missing(&self, code: Code, key: &str, example: &str) {
        let message = format!("{} has no '{key}'", self.title);
        self.sink.error(code, self.at, message, format!("write {key} = {example}"));
    }

    /// Reports a faulty value that this type can't judge by itself.
    pub(crate) fn bad_value(&self, key: &str, span: Span, why: &str, advice: &str) {
        let message = format!("'{key}' in {} {why}", self.title);
        self.sink.error(Code::BadValue, span, message, advice);
    }

    /// Reports every key that was not asked for, and tells where the others are.
    pub(crate) fn finish(self) -> Places {
        for (key, _) in self.entries {
            let written = key.get_ref().as_ref();
            if !self.known.contains(&written) && !self.sink.is_full() {
                let message = format!("{} has no key {}", self.title, quote(written));
                let advice = suggest::advice(written, &self.known);
                self.sink.error(Code::UnknownKey, key.span().into(), message, advice);
            }
        }
        self.places
    }
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}
