//! Random joins and publishes, with pauses, partial syncs and crashes, against a naive model: what was confirmed is kept
//! once in every store to which the joins lead it, and nowhere else.

use super::Draft;
use super::broker::{Broker, Fate};
use super::histories::config;
use super::script::continue_with;
use crate::admin::{Request, Selection, StoreKind};
use crate::{Command, ProducerTarget};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

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
            let _ = writeln!(script, "{kind} n{node}");
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
                broker.restart_clean(false);
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
    let name = format!("n{node}");
    let events = broker.browse(|page| {
        let (name, selection) = (name.clone(), Selection::default());
        Request::BrowseStore { kind, name, selection, page }
    });
    events.unwrap().into_iter().map(|event| (event.body.unwrap_or_default(), event.origin)).collect()
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
