//! Random histories: replay and snapshots give the same durable state, a second run gives the same effects, and what
//! was confirmed is kept once wherever the joins lead it.

use super::Draft;
use super::broker::{Broker, Fate};
use super::script::{attempt, continue_with};
use crate::admin::{Request, Response, Selection, StoreKind};
use crate::command::{CloseMode, ConsumerSource, ConsumerSpec, Settlement};
use crate::{Command, ConnId, LinkNo, ProducerKey, ProducerTarget, TakerKey};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::settings::Start;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use std::collections::{BTreeMap, BTreeSet};

/// `POSTROAD_CASES_FACTOR` makes long runs of them, with other seeds.
fn config(cases: u32) -> Config {
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
const WORLD: &str = "
    channel a publisher_dedupe=message-id
    channel b retention=interest
    channel c capacity=6 honour_capacity=false dead_event_store=grave
    channel k publish_keys=[{\"name\":\"k\",\"depth\":2}]
    channel r type=reliable
    queue grave
    queue q max_delivery_attempts=3 redelivery_delay=20
    queue p type=persistent capacity=8 expiry_queue=grave
    queue archive
    object b::o
    object b::s selector=\"k = 1\"
    object c::o ack_policy=individual
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
enum Op {
    Publish { store: usize, draft: (bool, i64, Option<u8>, Option<u32>) },
    Consume { slot: usize, source: usize, credit: u64, how: u8 },
    Credit { slot: usize, more: u64, drain: bool },
    Settle { slot: usize, back: u64, count: u64, outcome: u8 },
    Leave { slot: usize, how: u8 },
    Join { join: usize, what: u8 },
    Purge { store: usize, from: u64, count: u64 },
    PurgeObject { object: usize, from: u64, count: u64 },
    Alter { what: u8 },
    Wait(u64),
    Sync(usize),
    Crash,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let draft =
        (any::<bool>(), 0..3i64, prop::option::weighted(0.3, 0..4u8), prop::option::weighted(0.2, 1..200u32));
    prop_oneof![
        12 => (0..STORES.len(), draft).prop_map(|(store, draft)| Op::Publish { store, draft }),
        4 => (0..4usize, 0..SOURCES.len(), 0..6u64, any::<u8>())
            .prop_map(|(slot, source, credit, how)| Op::Consume { slot, source, credit, how }),
        3 => (0..4usize, 0..9u64, any::<bool>()).prop_map(|(slot, more, drain)| Op::Credit { slot, more, drain }),
        8 => (0..4usize, 0..5u64, 0..4u64, 0..6u8)
            .prop_map(|(slot, back, count, outcome)| Op::Settle { slot, back, count, outcome }),
        2 => (0..4usize, 0..3u8).prop_map(|(slot, how)| Op::Leave { slot, how }),
        3 => (0..JOINS.len(), 0..6u8).prop_map(|(join, what)| Op::Join { join, what }),
        1 => (0..STORES.len(), 0..20u64, 0..9u64).prop_map(|(store, from, count)| Op::Purge { store, from, count }),
        1 => (0..4usize, 0..20u64, 0..9u64)
            .prop_map(|(object, from, count)| Op::PurgeObject { object, from, count }),
        1 => (0..8u8).prop_map(|what| Op::Alter { what }),
        2 => (1..400u64).prop_map(Op::Wait),
        3 => (0..6usize).prop_map(Op::Sync),
        1 => Just(Op::Crash),
        1 => Just(Op::Restart),
    ]
}

fn play(broker: &mut Broker, op: &Op, number: usize) {
    match op {
        Op::Publish { store, draft } => publish(broker, STORES[*store], draft, number),
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
        Op::PurgeObject { object, from, count } => {
            let (channel, name) = SOURCES[*object].split_once("::").unwrap();
            let (channel, name) = (channel.to_owned(), name.to_owned());
            let selection = range(*from, *count);
            let _ = broker.ask(Request::PurgeObject { channel, owner: None, name, selection });
        }
        Op::Alter { what } => alter(broker, *what),
        Op::Wait(ms) => broker.wait(*ms),
        Op::Sync(0) => broker.sync(),
        Op::Sync(steps) => broker.sync_some(*steps),
        Op::Crash => broker.crash(),
        Op::Restart => broker.restart_clean(),
    }
}

fn publish(broker: &mut Broker, store: &str, draft: &(bool, i64, Option<u8>, Option<u32>), number: usize) {
    let &(nondurable, k, id, ttl) = draft;
    let draft = Draft {
        nondurable,
        ttl,
        id: id.map(|id| id.to_string()),
        properties: vec![("k".into(), Value::Long(k))],
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
        start: (how & 1 == 1).then_some(Start::Oldest),
        priority: i32::from(how & 1),
    }
}

fn settlement(outcome: u8) -> Settlement {
    match outcome {
        0..=2 => Settlement::Accepted,
        3 => Settlement::Released,
        4 => Settlement::Modified { failed: true, undeliverable_here: false },
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

fn kind_of(store: &str) -> (StoreKind, String) {
    let queue = ["grave", "q", "p", "archive"].contains(&store);
    (if queue { StoreKind::Queue } else { StoreKind::Channel }, store.to_owned())
}

const fn range(from: u64, count: u64) -> Selection {
    Selection { from: Some(from), to: Some(from + count), filter: None }
}

/// Plays a history; the broker syncs nothing by itself.
fn history(ops: &[Op], pieces: usize) -> Broker {
    let mut broker = Broker::new();
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
    fn replay_and_snapshots_give_the_same_state(ops in prop::collection::vec(op(), 1..80)) {
        let mut broker = history(&ops, 1);
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
        let (one, two) = (history(&ops, 1), history(&ops, pieces));
        prop_assert_eq!(&one.seen_steps, &two.seen_steps);
        prop_assert_eq!(&one.seen_effects, &two.seen_effects);
        prop_assert_eq!(one.engine.digest(), two.engine.digest());
    }
}

/// Stores and joins of which everything that must come of a publish is known.
#[derive(Clone, Debug)]
struct Net {
    /// Source, destination, hop limit, filter `k <> n`; the last store is a queue.
    joins: Vec<(usize, usize, u8, Option<i64>)>,
    split_horizon: bool,
}

const NODES: usize = 5;

fn net() -> impl Strategy<Value = Net> {
    let join = (0..NODES - 1, 0..NODES, 0..4u8, prop::option::weighted(0.3, 0..3i64));
    (prop::collection::vec(join, 1..9), any::<bool>()).prop_map(|(joins, split_horizon)| {
        let mut seen = BTreeSet::new();
        let joins = joins.into_iter().filter(|&(s, d, ..)| s != d && seen.insert((s, d))).collect();
        Net { joins, split_horizon }
    })
}

impl Net {
    fn define(&self) -> String {
        let mut script = String::new();
        for node in 0..NODES {
            let kind = if node + 1 == NODES { "queue" } else { "channel" };
            script += &format!("{kind} n{node}\n");
        }
        for (source, destination, hops, filter) in &self.joins {
            let filter = filter.map_or_else(String::new, |n| format!("filter=\"k <> {n}\""));
            let horizon = self.split_horizon;
            script +=
                &format!("join n{source}->n{destination} max_hops={hops} split_horizon={horizon} {filter}\n");
        }
        script
    }

    /// Every store that a message reaches, by trying every way with its budget.
    fn reach(&self, origin: usize, k: i64) -> BTreeSet<usize> {
        let mut best: BTreeMap<usize, u32> = BTreeMap::from([(origin, u32::MAX)]);
        loop {
            let mut changed = false;
            for &(source, destination, hops, filter) in &self.joins {
                let Some(&budget) = best.get(&source) else { continue };
                if budget == 0 || filter == Some(k) {
                    continue;
                }
                let left = (budget - 1).min(u32::from(hops));
                if best.get(&destination).is_none_or(|&known| known < left) {
                    best.insert(destination, left);
                    changed = true;
                }
            }
            if !changed {
                return best.into_keys().collect();
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Publish { node: usize, k: i64, nondurable: bool },
    Pause(usize, bool),
    Sync(usize),
    Crash,
    Restart,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        10 => (0..NODES, 0..3i64, prop::bool::weighted(0.2))
            .prop_map(|(node, k, nondurable)| Deed::Publish { node, k, nondurable }),
        4 => (0..9usize, any::<bool>()).prop_map(|(join, on)| Deed::Pause(join, on)),
        4 => (0..9usize).prop_map(Deed::Sync),
        1 => Just(Deed::Crash),
        1 => Just(Deed::Restart),
    ]
}

/// What was published: the message, its node, `k`, and whether it must be there.
struct Sent {
    text: String,
    node: usize,
    k: i64,
    nondurable: bool,
    producer: String,
    tag: u64,
    confirmed: bool,
}

fn do_deed(broker: &mut Broker, net: &Net, deed: &Deed, sent: &mut Vec<Sent>) {
    match deed {
        Deed::Publish { node, k, nondurable } => {
            let text = format!("m{}", sent.len());
            let draft = Draft {
                nondurable: *nondurable,
                properties: vec![("k".into(), Value::Long(*k))],
                ..Draft::new(&text)
            };
            let target = ProducerTarget::Address(Address::parse(&format!("n{node}"), None).unwrap());
            let producer = broker.producer("pub", target).unwrap();
            let tag = broker.publish(&producer, draft.incoming());
            let (node, k, nondurable) = (*node, *k, *nondurable);
            sent.push(Sent { text, node, k, nondurable, producer, tag, confirmed: false });
        }
        Deed::Pause(join, enabled) => {
            let Some((source, destination, ..)) = net.joins.get(*join) else { return };
            let name = format!("n{source}->n{destination}");
            broker.send(Command::Admin {
                reply: 1,
                request: Box::new(Request::EnableJoin { name, enabled: *enabled }),
            });
        }
        Deed::Sync(steps) => broker.sync_some(*steps),
        Deed::Crash | Deed::Restart => {
            if matches!(deed, Deed::Crash) {
                broker.crash();
            } else {
                broker.restart_clean();
            }
            // What was not confirmed before never will be: its producer is gone.
            sent.iter_mut().for_each(|message| message.producer = String::new());
        }
    }
}

/// Notes what has been confirmed so far: a crash does not take that back.
fn note_confirmed(broker: &Broker, sent: &mut [Sent]) {
    for message in sent.iter_mut().filter(|message| !message.confirmed) {
        let fates = broker.producers.get(&message.producer).map(|p| &p.fates);
        let fate = fates.and_then(|fates| fates.get(usize::try_from(message.tag).unwrap()));
        message.confirmed = fate == Some(&Fate::Accepted);
    }
}

/// The messages of each node in the order of their ids, and the origin of each.
fn contents(broker: &mut Broker, node: usize) -> Vec<(String, String)> {
    let kind = if node + 1 == NODES { StoreKind::Queue } else { StoreKind::Channel };
    let (name, selection, limit) = (format!("n{node}"), Selection::default(), usize::MAX);
    match broker.ask(Request::BrowseStore { kind, name, selection, limit }) {
        Ok(Response::Events { items }) => {
            items.into_iter().map(|event| (event.body.unwrap_or_default(), event.origin)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn check_net(net: &Net, deeds: &[Deed]) -> Result<(), TestCaseError> {
    let mut broker = Broker::new();
    continue_with(&mut broker, &net.define());
    (broker.auto_sync, broker.hasty) = (false, true);
    let mut sent: Vec<Sent> = Vec::new();
    for deed in deeds {
        do_deed(&mut broker, net, deed, &mut sent);
        if matches!(deed, Deed::Sync(_) | Deed::Publish { .. }) {
            note_confirmed(&broker, &mut sent);
        }
    }
    broker.sync();
    note_confirmed(&broker, &mut sent);
    (broker.auto_sync, broker.hasty) = (true, false);
    for join in 0..net.joins.len() {
        do_deed(&mut broker, net, &Deed::Pause(join, true), &mut sent);
    }
    broker.check_digest();
    let nodes: Vec<Vec<(String, String)>> = (0..NODES).map(|node| contents(&mut broker, node)).collect();
    for (node, held) in nodes.iter().enumerate() {
        let origins: BTreeSet<&String> = held.iter().map(|(_, origin)| origin).collect();
        prop_assert_eq!(origins.len(), held.len(), "n{} holds an origin twice: {:?}", node, held);
    }
    for message in &sent {
        let expected = net.reach(message.node, message.k);
        let holds = |node: &usize| nodes[*node].iter().any(|(text, _)| *text == message.text);
        let found: BTreeSet<usize> = (0..NODES).filter(holds).collect();
        let text = &message.text;
        prop_assert!(found.is_subset(&expected), "{} is in {:?}, may be in {:?}", text, found, expected);
        if message.confirmed && !message.nondurable {
            prop_assert_eq!(found, expected, "{} was confirmed", text);
        } else if !message.nondurable && found.contains(&message.node) {
            prop_assert_eq!(found, expected, "{} was stored", text);
        }
    }
    check_order(net, &sent, &nodes)
}

/// Where only one way leads from a node, messages keep their order on it (ORD-2).
fn check_order(net: &Net, sent: &[Sent], nodes: &[Vec<(String, String)>]) -> Result<(), TestCaseError> {
    for (source, destination, _, _) in &net.joins {
        let ways_in = net.joins.iter().filter(|(_, d, ..)| d == destination).count();
        let into_source = net.joins.iter().any(|(_, d, ..)| d == source);
        if ways_in != 1 || into_source {
            continue;
        }
        let number = |text: &String| sent.iter().position(|m| m.text == *text && m.node == *source);
        let order: Vec<usize> = nodes[*destination].iter().filter_map(|(text, _)| number(text)).collect();
        prop_assert!(order.is_sorted(), "n{} to n{}: {:?}", source, destination, order);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn what_was_confirmed_is_kept_once_wherever_it_leads(
        net in net(),
        deeds in prop::collection::vec(deed(), 1..60),
    ) {
        check_net(&net, &deeds)?;
    }
}

/// Commands as nobody in their right mind would send them.
fn wild() -> impl Strategy<Value = Command> {
    let key = || (0..6u32, 0..4u32);
    let number = || prop_oneof![0..5u64, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()];
    let name =
        || prop_oneof![Just("b"), Just("q"), Just("b::o"), Just("S"), Just("a->b"), Just(""), Just("%@::")];
    let taker = move || key().prop_map(|(index, generation)| TakerKey { index, generation });
    let conn = || (0..8u64).prop_map(ConnId);
    let link = || (0..3u32).prop_map(LinkNo);
    let selection = move || {
        (prop::option::of(number()), prop::option::of(number())).prop_map(|(from, to)| Selection {
            from,
            to,
            filter: None,
        })
    };
    prop_oneof![
        (taker(), number(), any::<bool>()).prop_map(|(taker, limit, drain)| Command::Credit {
            taker,
            limit,
            drain
        }),
        (taker(), number(), number(), 0..6u8, any::<bool>()).prop_map(
            |(taker, first, last, outcome, confirm)| {
                Command::Settle { taker, first, last, outcome: settlement(outcome), confirm }
            }
        ),
        (taker(), 0..6u8).prop_map(|(taker, outcome)| {
            Command::CloseConsumer { taker, mode: CloseMode::Close, default: settlement(outcome) }
        }),
        key().prop_map(|(index, generation)| Command::CloseProducer {
            producer: ProducerKey { index, generation }
        }),
        (key(), number(), any::<bool>()).prop_map(|((index, generation), tag, settled)| Command::Publish {
            producer: ProducerKey { index, generation },
            tag,
            message: Box::new(Draft::new("wild").incoming()),
            settled,
        }),
        conn().prop_map(|conn| Command::Disconnect { conn }),
        (conn(), link(), name()).prop_map(|(conn, link, name)| {
            let name = name.to_owned();
            Command::FindSubscription { conn, link, name }
        }),
        (conn(), link(), name()).prop_map(|(conn, link, name)| {
            let name = name.to_owned();
            Command::DeleteSubscription { conn, link, name }
        }),
        (conn(), link()).prop_map(|(conn, link)| Command::OpenProducer {
            conn,
            link,
            target: ProducerTarget::Temporary
        }),
        (name(), selection(), any::<bool>()).prop_map(|(name, selection, queue)| {
            let kind = if queue { StoreKind::Queue } else { StoreKind::Channel };
            let request = Request::PurgeStore { kind, name: name.to_owned(), selection };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), selection()).prop_map(|(name, selection)| {
            let (channel, name) = ("b".to_owned(), name.to_owned());
            let request = Request::PurgeObject { channel, owner: None, name, selection };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), any::<bool>()).prop_map(|(name, drain)| {
            let request = Request::DeleteJoin { name: name.to_owned(), drain };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), any::<bool>(), any::<bool>()).prop_map(|(name, cascade, force)| {
            let (kind, name) = (StoreKind::Channel, name.to_owned());
            Command::Admin {
                reply: 7,
                request: Box::new(Request::DeleteStore { kind, name, cascade, force }),
            }
        }),
    ]
}

#[derive(Clone, Debug)]
enum Any {
    Sane(Op),
    Wild(std::rc::Rc<std::cell::RefCell<Option<Command>>>),
}

fn anything() -> impl Strategy<Value = Any> {
    let wild = wild().prop_map(|command| Any::Wild(std::rc::Rc::new(std::cell::RefCell::new(Some(command)))));
    prop_oneof![op().prop_map(Any::Sane), wild]
}

proptest! {
    #![proptest_config(Config { max_shrink_iters: 0, ..config(150) })]

    #[test]
    fn no_command_can_make_it_panic(ops in prop::collection::vec(anything(), 1..80)) {
        let mut broker = Broker::new();
        continue_with(&mut broker, WORLD);
        broker.auto_sync = false;
        for (number, op) in ops.iter().enumerate() {
            match op {
                Any::Sane(op) => play(&mut broker, op, number),
                Any::Wild(command) => {
                    if let Some(command) = command.take() {
                        broker.send(command);
                    }
                }
            }
        }
        broker.check_digest();
    }
}
