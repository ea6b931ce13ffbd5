//! Writing what a broker adds to a message on the way out: annotations (part 3, section 3.2.3) and application properties
//! (section 3.2.5).

use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::{Encode, put_symbol};
use crate::format;
use crate::message::lookup::map_entries;
use crate::writer::{Buffer, Compound};
use std::collections::BTreeMap;

/// Appends a message-annotations section: the entries of an `existing` section as they are encoded, except those with
/// a key that is added, then the `added` entries in order. Keys must be ASCII. Nothing is written when there is no
/// entry at all.
///
/// # Errors
/// When `existing` is no map; then nothing is written.
pub fn write_message_annotations<'k, B, V, I>(
    out: &mut B,
    existing: Option<&[u8]>,
    added: I,
) -> Result<(), DecodeError>
where
    B: Buffer,
    V: Encode,
    I: IntoIterator<Item = (&'k str, V)> + Clone,
{
    write_section(out, descriptor::MESSAGE_ANNOTATIONS, existing, added, put_symbol)
}

/// Appends an application-properties section, as [`write_message_annotations`] does its own; keys are strings.
///
/// # Errors
/// When `existing` is no map; then nothing is written.
pub fn write_application_properties<'k, B, V, I>(
    out: &mut B,
    existing: Option<&[u8]>,
    added: I,
) -> Result<(), DecodeError>
where
    B: Buffer,
    V: Encode,
    I: IntoIterator<Item = (&'k str, V)> + Clone,
{
    write_section(out, descriptor::APPLICATION_PROPERTIES, existing, added, |out, key| key.encode(out))
}

/// Appends a message-annotations section: the entries of a `section` as they are encoded, except those with a key that is
/// among the `changes` too, then the changes, a later one with the same key instead of an earlier one (part 3, section
/// 3.4.5). Changes whose key is no text, or not one that `may_change`, are left out. Nothing is written when there is no
/// entry at all.
///
/// # Errors
/// When either is neither a map section nor a bare map; then nothing is written.
pub fn merge_message_annotations<B: Buffer>(
    out: &mut B,
    section: Option<&[u8]>,
    changes: &[u8],
    may_change: impl Fn(&str) -> bool,
) -> Result<(), DecodeError> {
    let mut places = BTreeMap::new();
    let mut changed: Vec<&[u8]> = Vec::new();
    for entry in map_entries(changes)? {
        let entry = entry?;
        let Some(key) = entry.key.as_str().filter(|key| may_change(key)) else { continue };
        let place = *places.entry(key).or_insert(changed.len());
        match changed.get_mut(place) {
            Some(earlier) => *earlier = entry.raw,
            None => changed.push(entry.raw),
        }
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for entry in section.map(map_entries).transpose()?.into_iter().flatten() {
        let entry = entry?;
        if !entry.key.as_str().is_some_and(|key| places.contains_key(key)) {
            kept.push(entry.raw);
        }
    }
    let written = kept.len() + changed.len();
    if written > 0 {
        out.push(format::DESCRIBED);
        descriptor::MESSAGE_ANNOTATIONS.encode(out);
        let compound = Compound::begin(out);
        kept.into_iter().chain(changed).for_each(|entry| out.put(entry));
        compound.end_map(out, u32::try_from(written * 2).unwrap_or(u32::MAX));
    }
    Ok(())
}

fn write_section<'k, B, V, I>(
    out: &mut B,
    descriptor: u64,
    existing: Option<&[u8]>,
    added: I,
    put_key: impl Fn(&mut B, &str),
) -> Result<(), DecodeError>
where
    B: Buffer,
    V: Encode,
    I: IntoIterator<Item = (&'k str, V)> + Clone,
{
    let start = out.len();
    out.push(format::DESCRIBED);
    descriptor.encode(out);
    let compound = Compound::begin(out);
    let written = match copy_entries(out, existing, &added) {
        Ok(count) => count + put_entries(out, added, put_key),
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    };
    if written == 0 {
        out.truncate(start);
    } else {
        compound.end_map(out, written * 2);
    }
    Ok(())
}

/// Copies the entries whose key is not added, and counts them.
fn copy_entries<'k, B, V, I>(out: &mut B, existing: Option<&[u8]>, added: &I) -> Result<u32, DecodeError>
where
    B: Buffer,
    I: IntoIterator<Item = (&'k str, V)> + Clone,
{
    let Some(section) = existing else { return Ok(0) };
    let mut copied = 0;
    for entry in map_entries(section)? {
        let entry = entry?;
        let replaced = |key: &str| added.clone().into_iter().any(|(new, _)| new == key);
        if !entry.key.as_str().is_some_and(replaced) {
            out.put(entry.raw);
            copied += 1;
        }
    }
    Ok(copied)
}

fn put_entries<'k, B, V, I>(out: &mut B, added: I, put_key: impl Fn(&mut B, &str)) -> u32
where
    B: Buffer,
    V: Encode,
    I: IntoIterator<Item = (&'k str, V)>,
{
    let mut count = 0;
    for (key, value) in added {
        put_key(out, key);
        value.encode(out);
        count += 1;
    }
    count
}
