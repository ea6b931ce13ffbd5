//! Random histories of a broker with something of everything: replay and snapshots give the same durable state, and a
//! second run gives the same effects.

use super::Draft;
use super::broker::Broker;
use super::script::{attempt, continue_with};
use crate::admin::{Request, Selection, StoreKind};
use crate::command::{CloseMode, ConsumerSource, ConsumerSpec, Settlement};
use crate::{Command, ProducerTarget};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::settings::{BrokerSettings, Start};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

/// `POSTROAD_CASES_FACTOR` makes long runs of them, with other seeds.
pub(super) fn config(cases: u32) -> Config {
    let factor: u32 =
        std::env::var("POSTROAD_CASES_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed = 0x0e6e + u64::from(factor) - 1;
    Config {
        cases: cases * factor,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    }
}

/// A world with something of everything.
pub(super) const WORLD: &str = "
    channel a publisher_dedupe=message-id
    channel b retention=interest
    channel c capacity=6 honour_capacity=false dead_event_store=grave
    channel k publish_keys=[{\"name\":\"k\",\"depth\":2}]
    channel r type=reliable
    queue grave
    queue q max_delivery_attempts=3 redelivery_delay=20
    queue p type=persistent capacity=8 expiry_queue=grave persist_count_before_delivery=true
    queue archive
    object b::o
    object b::s selector=\"k = 1\"
    object c::o ack_policy=individual persist_count_before_delivery=true
    object k::o start_event_id=0
    join a->b
    join b->c max_hops=3
    join c->a split_horizon=false
    join a->k filter=\"k = 1\"
    join k->p
    join a->p max_hops=0
    join k->r
    join r->q
    join c->archive name=c->archive archive=true";

const STORES: [&str; 9] = ["a", "b", "c", "k", "r", "grave", "q", "p", "archive"];
const SOURCES: [&str; 11] = ["b::o", "b::s", "c::o", "k::o", "a", "b", "c", "q", "p", "archive", "grave"];
const JOINS: [&str; 9] = ["a->b", "b->c", "c->a", "a->k", "k->p", "a->p", "k->r", "r->q", "c->archive"];

#[derive(Clone, Debug)]
pub(super) enum Op {
    Publish { store: usize, draft: (bool, i64, Option<u8>, Option<u32>), delay: Option<i64> },
    Consume { slot: usize, source: usize, credit: u64, how: u8 },
    Credit { slot: usize, more: u64, drain: bool },
    Settle { slot: usize, back: u64, count: u64, outcome: u8 },
    Leave { slot: usize, how: u8 },
    Join { join: usize, what: u8 },
    Purge { store: usize, from: u64, count: u64 },
    PurgeAll { store: usize },
    Cancel { store: usize, number: u64 },
    PurgeObject { object: usize, from: u64, count: u64 },
    Alter { what: u8 },
    Remake { store: usize },
    Wait(u64),
    Sync(usize),
    Crash,
    Restart,
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let draft =
        (any::<bool>(), 0..3i64, prop::option::weighted(0.3, 0..4u8), prop::option::weighted(0.2, 1..200u32));
    prop_oneof![
        12 => (0..STORES.len(), draft, prop::option::weighted(0.3, 0..300i64))
            .prop_map(|(store, draft, delay)| Op::Publish { store, draft, delay }),
        4 => (0..4usize, 0..SOURCES.len(), 0..6u64, any::<u8>())
            .prop_map(|(slot, source, credit, how)| Op::Consume { slot, source, credit, how }),
        3 => (0..4usize, 0..9u64, any::<bool>()).prop_map(|(slot, more, drain)| Op::Credit { slot, more, drain }),
        8 => (0..4usize, 0..5u64, 0..4u64, 0..6u8)
            .prop_map(|(slot, back, count, outcome)| Op::Settle { slot, back, count, outcome }),
        2 => (0..4usize, 0..3u8).prop_map(|(slot, how)| Op::Leave { slot, how }),
        3 => (0..JOINS.len(), 0..6u8).prop_map(|(join, what)| Op::Join { join, what }),
        1 => (0..STORES.len(), 0..20u64, 0..9u64).prop_map(|(store, from, count)| Op::Purge { store, from, count }),
        1 => (0..STORES.len()).prop_map(|store| Op::PurgeAll { store }),
        1 => (0..STORES.len(), 1..9u64).prop_map(|(store, number)| Op::Cancel { store, number }),
        1 => (0..4usize, 0..20u64, 0..9u64)
            .prop_map(|(object, from, count)| Op::PurgeObject { object, from, count }),
        1 => (0..8u8).prop_map(|what| Op::Alter { what }),
        1 => (0..STORES.len()).prop_map(|store| Op::Remake { store }),
        2 => (1..400u64).prop_map(Op::Wait),
        3 => (0..6usize).prop_map(Op::Sync),
        1 => Just(Op::Crash),
        1 => Just(Op::Restart),
    ]
}

pub(super) fn play(broker: &mut Broker, op: &Op, number: usize) {
    match op {
        Op::Publish { store, draft, delay } => publish(broker, STORES[*store], draft, *delay, number),
        Op::Consume { slot, source, credit, how } => {
            broker.cut(&slot.to_string());
            let spec = spec(SOURCES[*source], *how);
            let _ = broker.consume(&slot.to_string(), &slot.to_string(), spec, *credit);
        }
        Op::Credit { slot, more, drain } => {
            let sent = broker.consumers.get(&slot.to_string()).map_or(0, |c| c.got.len() as u64);
            broker.credit(&slot.to_string(), sent + more, *drain);
        }
        Op::Settle { slot, back, count, outcome } => {
            let sent = broker.consumers.get(&slot.to_string()).map_or(0, |c| c.got.len() as u64);
            let first = sent.saturating_sub(*back + 1);
            broker.settle(&slot.to_string(), first, first + count, settlement(*outcome));
        }
        Op::Leave { slot, how: 0 } => broker.cut(&slot.to_string()),
        Op::Leave { slot, how } => {
            let mode = if *how == 1 { CloseMode::Detach } else { CloseMode::Close };
            broker.close(&slot.to_string(), mode);
        }
        Op::Join { join, what } => change_join(broker, JOINS[*join], *what),
        Op::Purge { store, from, count } => {
            let (kind, name) = kind_of(STORES[*store]);
            let selection = range(*from, *count);
            let _ = broker.ask(Request::PurgeStore { kind, name, selection });
        }
        Op::PurgeAll { store } => {
            let (kind, name) = kind_of(STORES[*store]);
            let _ = broker.ask(Request::PurgeStore { kind, name, selection: Selection::default() });
        }
        Op::Cancel { store, number } => {
            let (kind, name) = kind_of(STORES[*store]);
            let _ = broker.ask(Request::CancelScheduled { kind, name, number: *number });
        }
        Op::PurgeObject { object, from, count } => {
            let (channel, name) = SOURCES[*object].split_once("::").unwrap();
            let (channel, name) = (channel.to_owned(), name.to_owned());
            let selection = range(*from, *count);
            let _ = broker.ask(Request::PurgeObject { channel, owner: None, name, selection });
        }
        Op::Alter { what } => alter(broker, *what),
        Op::Remake { store } => remake(broker, STORES[*store]),
        Op::Wait(ms) => broker.wait(*ms),
        Op::Sync(0) => broker.sync(),
        Op::Sync(steps) => broker.sync_some(*steps),
        Op::Crash => broker.crash(),
        Op::Restart => broker.restart_clean(false),
    }
}

fn publish(
    broker: &mut Broker,
    store: &str,
    draft: &(bool, i64, Option<u8>, Option<u32>),
    delay: Option<i64>,
    number: usize,
) {
    let &(nondurable, k, id, ttl) = draft;
    let draft = Draft {
        nondurable,
        ttl,
        id: id.map(|id| id.to_string()),
        properties: vec![("k".into(), Value::Long(k))],
        annotations: delay.map(|ms| ("x-opt-delivery-delay", Value::Long(ms))).into_iter().collect(),
        ..Draft::new(&number.to_string())
    };
    let target = ProducerTarget::Address(Address::parse(store, None).unwrap());
    let Ok(producer) = broker.producer("pub", target) else { return };
    // Before the producer is confirmed there is nobody to publish.
    if broker.producers[&producer].key.is_some() {
        broker.publish(&producer, draft.incoming());
    }
}

fn spec(source: &str, how: u8) -> ConsumerSpec {
    ConsumerSpec {
        source: ConsumerSource::Address(Address::parse(source, None).unwrap()),
        selector: (how & 3 == 3).then(|| "k = 1 OR k = 2".to_owned()),
        no_local: false,
        browse: how & 0x0c == 0x0c,
        presettled: how & 0x70 == 0x70,
        durable: (how & 0x80 != 0 && !source.contains("::")).then(|| "S".to_owned()),
        expiry: crate::Expiry::default(),
        start: (how & 1 == 1).then_some(Start::Oldest),
        priority: i32::from(how & 1),
    }
}

pub(super) fn settlement(outcome: u8) -> Settlement {
    match outcome {
        0..=2 => Settlement::Accepted,
        3 => Settlement::Released,
        4 => Settlement::Modified {
            failed: true,
            undeliverable_here: false,
            annotations: Some(super::noted(&["note=seen"])),
        },
        _ => Settlement::Rejected { reason: None },
    }
}

fn change_join(broker: &mut Broker, join: &str, what: u8) {
    let name = join.to_owned();
    let request = match what {
        0 => Request::EnableJoin { name, enabled: false },
        1 | 2 => Request::EnableJoin { name, enabled: true },
        3 => Request::DeleteJoin { name, drain: false },
        what => {
            let key = broker.engine.join_names.get(join);
            let Some(held) = key.and_then(|key| broker.engine.joins.get(key)) else {
                let archive = if join.ends_with("archive") { "archive=true" } else { "" };
                return attempt(broker, &format!("join {join} name={join} start=all {archive}"));
            };
            let filter = (what == 4).then(|| "k > 0".to_owned());
            let settings = postroad_model::settings::JoinSettings { filter, ..held.settings.clone() };
            Request::AlterJoin { name, settings }
        }
    };
    let _ = broker.ask(request);
}

fn alter(broker: &mut Broker, what: u8) {
    let line = match what {
        0 => "channel c capacity=3 honour_capacity=false dead_event_store=grave",
        1 => "channel c ttl=100",
        2 => "queue q max_priority=3",
        3 => "queue p type=reliable",
        4 => "queue p type=persistent capacity=8",
        5 => "channel k publish_keys=[{\"name\":\"z\"},{\"name\":\"k\"}]",
        6 => "channel r type=mixed",
        _ => "channel b retention=log",
    };
    attempt(broker, line);
}

/// Deletes a store with all that hangs on it, and makes it anew while its events are yet to go.
fn remake(broker: &mut Broker, store: &str) {
    let (kind, name) = kind_of(store);
    let request = Request::DeleteStore { kind, name, cascade: true, force: true };
    let now = broker.now;
    broker.engine.handle(now, Command::Admin { reply: 0, request: Box::new(request) });
    let makes = |line: &&str| line.split(' ').nth(1) == Some(store);
    let line = WORLD.lines().map(str::trim).find(makes);
    attempt(broker, line.unwrap_or_default());
}

fn kind_of(store: &str) -> (StoreKind, String) {
    let queue = ["grave", "q", "p", "archive"].contains(&store);
    (if queue { StoreKind::Queue } else { StoreKind::Channel }, store.to_owned())
}

const fn range(from: u64, count: u64) -> Selection {
    Selection { from: Some(from), to: Some(from + count), filter: None }
}

/// Plays a history; the broker syncs nothing by itself.
fn history(ops: &[Op], pieces: usize, cache: u64) -> Broker {
    let settings = BrokerSettings { job_batch: 2, cache, ..Broker::settings() };
    let mut broker = Broker::with(settings);
    broker.pieces = pieces;
    continue_with(&mut broker, WORLD);
    (broker.auto_sync, broker.hasty) = (false, true);
    for (number, op) in ops.iter().enumerate() {
        play(&mut broker, op, number);
    }
    broker
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn replay_and_snapshots_give_the_same_state(ops in prop::collection::vec(op(), 1..80), cached: bool) {
        let mut broker = history(&ops, 1, if cached { 1 << 30 } else { 0 });
        broker.check_digest();
        // The broker still works, and comes to the same state after a restart from its journal.
        (broker.auto_sync, broker.hasty) = (true, false);
        broker.crash();
        broker.wait(60_000);
        broker.check_digest();
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn a_second_run_gives_the_same_effects(ops in prop::collection::vec(op(), 1..60), pieces in 2..50usize) {
        let (one, two) = (history(&ops, 1, 1 << 30), history(&ops, pieces, 1 << 30));
        prop_assert_eq!(&one.seen_steps, &two.seen_steps);
        prop_assert_eq!(&one.seen_effects, &two.seen_effects);
        prop_assert_eq!(one.digest(), two.digest());
    }
}
