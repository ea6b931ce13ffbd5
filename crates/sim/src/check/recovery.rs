//! A start brings back what was durable, to the byte, and nothing that was not written; the engine that replayed it has the
//! state that the naive model has (DESIGN 7.1, 7.2).

use super::Violation;
use crate::broker::Broker;
use crate::ledger::Ledger;
use bytes::Bytes;
use postroad_engine::admin::{EventView, Page, Request, Response, Selection, StoreKind};
use postroad_engine::{Engine, Now};
use postroad_model::settings::BrokerSettings;
use postroad_record::{FramePlace, Record};
use postroad_shell::Use;
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "recovery";

/// Checks what was read back against what was written, of which the first `durable` steps were durable: the steps behind a
/// checkpoint that was made, or all of them. Says how many steps that are in all.
///
/// # Errors
/// The broken promise.
pub fn check_start(
    written: &[Vec<u8>],
    durable: u64,
    checkpoints: &Checkpoints,
    frames: &[(Use, Vec<u8>)],
) -> Result<usize, Violation> {
    let of = |wanted| frames.iter().filter(move |(used, _)| *used == wanted).map(|(_, payload)| payload);
    let steps: Vec<&Vec<u8>> = of(Use::Step).collect();
    if of(Use::Checkpoint).next().is_none() {
        return check_steps(written, durable, 0, &steps);
    }
    let bytes: Vec<u8> = of(Use::Checkpoint).flatten().copied().collect();
    let hash = hash(&bytes);
    let text = "the log begins with a checkpoint that was never made, or with a part of one";
    let mut checked = Err(Violation::new(RULE, text));
    // The state may have been the same after several steps: it is enough that one of them fits.
    for (_, before) in checkpoints.range((hash, 0)..=(hash, u64::MAX)) {
        let before = usize::try_from(*before).unwrap_or(usize::MAX);
        checked = checked.or_else(|_| check_steps(written, durable, before, &steps));
    }
    checked
}

/// The checkpoints that were made: a hash of the bytes of each, and how many steps it replaces.
pub type Checkpoints = BTreeSet<(u64, u64)>;

/// Checks the steps that were read behind the first `before`; says how many steps that are in all.
fn check_steps(
    written: &[Vec<u8>],
    durable: u64,
    before: usize,
    read: &[&Vec<u8>],
) -> Result<usize, Violation> {
    let steps = before + read.len();
    if (steps as u64) < durable {
        return Err(Violation::new(RULE, format!("{durable} steps were durable, {steps} came back")));
    }
    for (at, payload) in (before..).zip(read) {
        if written.get(at) != Some(*payload) {
            let text = format!("step {at} came back with other bytes than it was written with");
            return Err(Violation::new(RULE, text));
        }
    }
    Ok(steps)
}

/// A hash of bytes: of the pieces of a checkpoint, one behind the other.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, &byte| mix(hash, byte.into()))
}

/// Compares what the engine shows with the naive model: every event on disk of every store, and every position.
///
/// # Errors
/// The difference.
pub fn check_state(broker: &mut Broker, ledger: &Ledger, now: Now) -> Result<(), Violation> {
    let problem = |text: String| Violation::new("state", text);
    for store in ledger.stores.values() {
        let kind = if store.queue().is_some() { StoreKind::Queue } else { StoreKind::Channel };
        let Some(items) = browse(broker, kind, &store.name, now) else {
            return Err(problem(format!("'{}' can't be browsed", store.name)));
        };
        let shown: BTreeMap<u64, bool> =
            items.iter().map(|e| (e.id, store.keeps_on_disk(e.durable))).collect();
        let missing: Vec<u64> = store.events.keys().copied().filter(|id| !shown.contains_key(id)).collect();
        let on_disk = shown.iter().filter(|(_, on_disk)| **on_disk).map(|(&id, _)| id);
        let extra: Vec<u64> = on_disk.filter(|id| !store.events.contains_key(id)).collect();
        if !missing.is_empty() || !extra.is_empty() {
            let text = format!("'{}' shows events {extra:?} too many and {missing:?} too few", store.name);
            return Err(problem(text));
        }
        for event in &items {
            let number = store.events.get(&event.id).map(|known| format!("m{}", known.number));
            if number.is_some() && event.message_id != number {
                let text = format!(
                    "event {} of '{}' shows message {:?}, the records say {number:?}",
                    event.id, store.name, event.message_id
                );
                return Err(problem(text));
            }
            let attempts = store.attempts.get(&event.id).map_or(0, |&(failed, _)| failed);
            if store.queue().is_some()
                && store.keeps_on_disk(event.durable)
                && event.delivery_count < attempts
            {
                let text = format!(
                    "event {} of '{}' shows {} attempts, the records say {attempts}",
                    event.id, store.name, event.delivery_count
                );
                return Err(problem(text));
            }
        }
    }
    check_waiting(broker, ledger, now)?;
    check_positions(broker, ledger, now)
}

/// What waits for its delivery time on disk is listed, and nothing else that was to be on disk.
fn check_waiting(broker: &mut Broker, ledger: &Ledger, now: Now) -> Result<(), Violation> {
    for store in ledger.stores.values() {
        let kind = if store.queue().is_some() { StoreKind::Queue } else { StoreKind::Channel };
        let (mut shown, mut after) = (BTreeMap::new(), None);
        loop {
            let request = Request::ListScheduled {
                kind,
                name: store.name.clone(),
                page: Page { after, limit: usize::MAX },
            };
            let Some(Ok(Response::Scheduled { items, next })) = broker.ask(now, request) else {
                return Err(Violation::new(
                    "state",
                    format!("what waits in '{}' can't be listed", store.name),
                ));
            };
            let on_disk = items.into_iter().filter(|item| store.keeps_on_disk(item.durable));
            shown.extend(on_disk.map(|item| (item.number, (item.due, item.message_id.unwrap_or_default()))));
            if next.is_none() {
                break;
            }
            after = next;
        }
        let known = store.waiting.iter().map(|(&number, w)| (number, (w.due, format!("m{}", w.number))));
        let known: BTreeMap<_, _> = known.collect();
        if shown != known {
            let text = format!("'{}' shows {shown:?} as waiting, the records say {known:?}", store.name);
            return Err(Violation::new("state", text));
        }
    }
    Ok(())
}

fn check_positions(broker: &mut Broker, ledger: &Ledger, now: Now) -> Result<(), Violation> {
    let problem = |text: String| Violation::new("state", text);
    for object in ledger.objects.values().filter(|object| object.settings.persistent) {
        let Some(store) = ledger.stores.get(&object.store) else { continue };
        let (channel, owner, name) = (store.name.clone(), object.owner.clone(), object.name.clone());
        // Without an answer yet the events that it owes are being counted: it is there.
        if let Some(Err(refusal)) = broker.ask(now, Request::ShowObject { channel, owner, name }) {
            let text = format!("'{}' of '{}' can't be shown: {refusal}", object.name, store.name);
            return Err(problem(text));
        }
    }
    let Some(Ok(Response::Status(status))) = broker.ask(now, Request::Status) else {
        return Err(problem("the broker shows no status".into()));
    };
    if status.named_objects < ledger.objects.values().filter(|o| o.settings.persistent).count() {
        return Err(problem(format!(
            "{} named objects are counted, the records made more",
            status.named_objects
        )));
    }
    let Some(Ok(Response::Joins { items })) = broker.ask(now, Request::ListJoins { store: None }) else {
        return Err(problem("the joins can't be listed".into()));
    };
    if items.len() != ledger.joins.len() {
        let text = format!("{} joins are shown, the records made {}", items.len(), ledger.joins.len());
        return Err(problem(text));
    }
    Ok(())
}

/// All events that a store shows.
fn browse(broker: &mut Broker, kind: StoreKind, name: &str, now: Now) -> Option<Vec<EventView>> {
    let (mut events, mut after) = (Vec::new(), None);
    loop {
        let (selection, page) = (Selection::default(), Page { after, limit: usize::MAX });
        let request = Request::BrowseStore { kind, name: name.to_owned(), selection, page };
        let Some(Ok(Response::Events { items, next })) = broker.ask(now, request) else { return None };
        events.extend(items);
        if next.is_none() {
            return Some(events);
        }
        after = next;
    }
}

/// Replays what was written into a fresh engine (unless numbers of bodies were `reused`), and a snapshot of the running one into another: both must have its
/// digest (DESIGN 7.1).
///
/// # Errors
/// The broken promise.
pub fn check_replay(
    broker: &mut Broker,
    settings: &BrokerSettings,
    written: &[Vec<u8>],
    reused: bool,
    now: Now,
) -> Result<(), Violation> {
    let live = broker.engine().digest(&mut |wanted| broker.read(wanted));
    let steps: Vec<&[u8]> = written.iter().chain(&broker.fresh).map(Vec::as_slice).collect();
    if !reused {
        let engine = replayed(settings, &steps, now)?;
        if digest_of(&engine, &steps, broker) != live {
            let text = "replaying all steps does not give the state that made them";
            let found = difference(broker.engine(), &engine);
            return Err(Violation::new("replay digest", format!("{text}: {found}")));
        }
    }
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    broker.engine().snapshot(&mut |piece| pieces.push(piece.to_vec()));
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let engine = replayed(settings, &pieces, now)?;
    if digest_of(&engine, &pieces, broker) != live {
        let text = "replaying a snapshot does not give the state that it was made of";
        let found = difference(broker.engine(), &engine);
        return Err(Violation::new("snapshot digest", format!("{text}: {found}")));
    }
    Ok(())
}

/// What the records of two states have not in common, but for where messages lie: the first few of each.
fn difference(live: &Engine, replayed: &Engine) -> String {
    let records = |engine: &Engine| {
        let mut lines = BTreeSet::new();
        engine.snapshot(&mut |piece| {
            let records = postroad_record::decode_step(piece).unwrap_or_default();
            let told = records.iter().filter(|record| !matches!(record, Record::BodyPage { .. }));
            lines.extend(told.map(|record| format!("{record:?}")));
        });
        lines
    };
    let (live, replayed) = (records(live), records(replayed));
    let only = |of: &BTreeSet<String>, other: &BTreeSet<String>| {
        of.difference(other).take(3).cloned().collect::<Vec<_>>().join("; ")
    };
    format!("only live: [{}]; only replayed: [{}]", only(&live, &replayed), only(&replayed, &live))
}

/// The segment in which `digest_of` puts the frames that it replays. A journal has none with this number.
const REPLAYED: u64 = u64::MAX;

fn replayed(settings: &BrokerSettings, frames: &[&[u8]], now: Now) -> Result<Engine, Violation> {
    let mut engine = Engine::new(settings.clone(), [7; 16]);
    for (offset, payload) in (0..).zip(frames) {
        let frame = FramePlace { segment: REPLAYED, offset, length: 0 };
        engine.replay(payload, frame).map_err(|error| Violation::new("records", error.to_string()))?;
    }
    engine.recovered(true);
    engine.configure(settings.clone());
    // The digest leaves out what has expired, so both are to know the time; nothing is done in it.
    engine.run(now, 0);
    Ok(engine)
}

fn digest_of(engine: &Engine, frames: &[&[u8]], broker: &Broker) -> u64 {
    engine.digest(&mut |wanted| match wanted.place.frame.segment {
        REPLAYED => {
            let frame = frames.get(wanted.place.frame.offset as usize)?;
            let bytes = frame.get(wanted.place.at as usize..)?.get(..wanted.length as usize)?;
            Some(Bytes::copy_from_slice(bytes))
        }
        _ => broker.read(wanted),
    })
}
