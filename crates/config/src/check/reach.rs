//! How far events get over joins: loops (LOOP-1), and hop limits that cut something off (HOP-2).

use super::Store;
use crate::config::JoinDefinition;
use crate::diagnostic::{Code, Sink};
use crate::read::Defined;
use crate::source::Span;
use crate::value::quote;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Steps over joins that are followed for one file; beyond that nothing more is found, and nothing wrong is said.
const MAX_STEPS: usize = 4_000_000;

/// What an event from a client may still cross before its first join: more than any `max_hops` (HOP-2).
const UNLIMITED: u16 = u16::MAX;

/// Stores that a message about a loop names.
const NAMED: usize = 8;

/// A join as a step from a channel to a store.
pub(super) struct Edge {
    source: String,
    destination: Store,
    max_hops: u16,
    name: String,
    at: Span,
    pub(super) enabled: bool,
}

impl Edge {
    pub(super) fn new(source: String, destination: Store, join: &Defined<JoinDefinition>) -> Self {
        Self {
            source,
            destination,
            max_hops: u16::from(join.value.settings.max_hops),
            name: join.value.name.clone(),
            at: join.places.of("destination"),
            enabled: join.value.settings.enabled,
        }
    }
}

/// Warns of loops and of limits that keep events from a store to which the joins lead.
pub(super) fn check(edges: &[Edge], sink: &Sink<'_>) {
    let mut graph = Graph::new(edges);
    graph.report_loops(sink);
    graph.report_cuts(sink);
}

/// The joins as numbers. Channels and queues are the nodes; only channels have joins that leave them.
struct Graph<'e> {
    edges: &'e [Edge],
    /// From and to of each edge.
    ends: Vec<(usize, usize)>,
    /// For each node the edges that leave it.
    leaving: Vec<Vec<usize>>,
    steps_left: usize,
}

impl<'e> Graph<'e> {
    fn new(edges: &'e [Edge]) -> Self {
        let mut numbers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut number = |kind: &'static str, name: &'e str| {
            let next = numbers.len();
            *numbers.entry((kind, name)).or_insert(next)
        };
        let ends: Vec<_> = edges
            .iter()
            .map(|edge| {
                let from = number("channel", &edge.source);
                (from, number(edge.destination.kind(), edge.destination.name()))
            })
            .collect();
        let mut leaving = vec![Vec::new(); numbers.len()];
        for (edge, (from, _)) in ends.iter().enumerate() {
            if let Some(list) = leaving.get_mut(*from) {
                list.push(edge);
            }
        }
        Self { edges, ends, leaving, steps_left: MAX_STEPS }
    }

    /// The edges that leave a node, with where each leads; none once the steps are used up.
    fn steps(&mut self, node: usize) -> Vec<(usize, usize)> {
        let leaving = self.leaving.get(node).map_or(&[][..], Vec::as_slice);
        if leaving.len() > self.steps_left {
            self.steps_left = 0;
            return Vec::new();
        }
        self.steps_left -= leaving.len();
        leaving.iter().filter_map(|edge| Some((*edge, self.ends.get(*edge)?.1))).collect()
    }

    /// Nodes that are on a loop or behind one: what is left when nodes without a join into them are taken away.
    fn looping(&mut self) -> Vec<bool> {
        let mut into = vec![0_usize; self.leaving.len()];
        for (_, to) in &self.ends {
            if let Some(count) = into.get_mut(*to) {
                *count += 1;
            }
        }
        let mut left = vec![true; into.len()];
        let mut free: Vec<usize> = (0..into.len()).filter(|node| into.get(*node) == Some(&0)).collect();
        while let Some(node) = free.pop() {
            if let Some(left) = left.get_mut(node) {
                *left = false;
            }
            for (_, to) in self.steps(node) {
                if let Some(count) = into.get_mut(to) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        free.push(to);
                    }
                }
            }
        }
        left
    }

    /// The fewest joins that lead from one node to another.
    fn path(&mut self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut came_by: BTreeMap<usize, Option<usize>> = BTreeMap::from([(from, None)]);
        let mut waiting = VecDeque::from([from]);
        while let Some(node) = waiting.pop_front() {
            if node == to {
                break;
            }
            for (edge, next) in self.steps(node) {
                came_by.entry(next).or_insert_with(|| {
                    waiting.push_back(next);
                    Some(edge)
                });
            }
        }
        let mut path = Vec::new();
        let mut node = to;
        while let Some(edge) = *came_by.get(&node)? {
            path.push(edge);
            node = self.ends.get(edge)?.0;
        }
        path.reverse();
        Some(path)
    }

    fn report_loops(&mut self, sink: &Sink<'_>) {
        let looping = self.looping();
        let mut reported = vec![false; self.leaving.len()];
        for (edge, (from, to)) in self.ends.clone().into_iter().enumerate() {
            let candidate = looping.get(from) == Some(&true) && reported.get(from) == Some(&false);
            let Some(back) =
                Some((to, from)).filter(|_| candidate).and_then(|(to, from)| self.path(to, from))
            else {
                continue;
            };
            for node in
                back.iter().filter_map(|edge| self.ends.get(*edge)).map(|(from, _)| *from).chain([from])
            {
                if let Some(reported) = reported.get_mut(node) {
                    *reported = true;
                }
            }
            let first = self.edges.get(edge);
            let rest = back.iter().filter_map(|edge| self.edges.get(*edge));
            if let Some(first) = first {
                report_loop(first, rest, sink);
            }
        }
    }

    /// For every channel: where events published to it stop although the joins lead on.
    fn report_cuts(&mut self, sink: &Sink<'_>) {
        let mut cuts: BTreeMap<usize, (usize, Option<usize>, usize)> = BTreeMap::new();
        for origin in 0..self.leaving.len() {
            for (stopping, limit) in self.cuts_of(origin) {
                cuts.entry(stopping).or_insert((origin, limit, 0)).2 += 1;
            }
        }
        for (stopping, (origin, limit, origins)) in cuts {
            let name_of =
                |node: usize| self.leaving.get(node)?.first().and_then(|edge| self.edges.get(*edge));
            let (Some(stopping), Some(origin)) = (self.edges.get(stopping), name_of(origin)) else {
                continue;
            };
            report_cut(
                stopping,
                &origin.source,
                limit.and_then(|limit| self.edges.get(limit)),
                origins,
                sink,
            );
        }
    }

    /// Joins at which events from `origin` stop for good, and the join whose limit is used up there.
    fn cuts_of(&mut self, origin: usize) -> Vec<(usize, Option<usize>)> {
        // The largest budget wins wherever paths meet (HOP-6), so nodes are taken by falling budget.
        let mut best: BTreeMap<usize, (u16, Option<usize>)> = BTreeMap::new();
        let mut waiting = BinaryHeap::from([(UNLIMITED, origin, None)]);
        let mut stopped = Vec::new();
        while let Some((budget, node, limit)) = waiting.pop() {
            if best.contains_key(&node) {
                continue;
            }
            best.insert(node, (budget, limit));
            for (edge, next) in self.steps(node) {
                let max_hops = self.edges.get(edge).map_or(0, |edge| edge.max_hops);
                match budget.checked_sub(1) {
                    None => stopped.push((edge, next, limit)),
                    Some(left) if max_hops < left => waiting.push((max_hops, next, Some(edge))),
                    Some(left) => waiting.push((left, next, limit)),
                }
            }
        }
        stopped.retain(|(_, next, _)| !best.contains_key(next));
        stopped.into_iter().map(|(edge, _, limit)| (edge, limit)).collect()
    }
}

fn report_loop<'e>(first: &'e Edge, rest: impl Iterator<Item = &'e Edge>, sink: &Sink<'_>) {
    let stores: Vec<_> = std::iter::once(first).chain(rest).map(|edge| edge.source.as_str()).collect();
    let mut shown = stores.iter().take(NAMED).map(|name| quote(name)).collect::<Vec<_>>().join(" -> ");
    if stores.len() > NAMED {
        shown.push_str(" -> ...");
    }
    let message = format!("joins form a loop: {shown} -> {}", quote(&first.source));
    let advice =
        "that is allowed: every store takes an event once; if it is not meant, remove one of the joins";
    sink.warn(Code::JoinLoop, first.at, message, advice);
}

fn report_cut(stopping: &Edge, origin: &str, limit: Option<&Edge>, origins: usize, sink: &Sink<'_>) {
    let more = match origins {
        0 | 1 => String::new(),
        2 => String::from(" and to another channel"),
        more => format!(" and to {} other channels", more - 1),
    };
    let limit = limit.unwrap_or(stopping);
    let message = format!(
        "events published to {}{more} do not get over this join: max_hops = {} of join {} is used up at {}",
        quote(origin),
        limit.max_hops,
        quote(&limit.name),
        quote(&stopping.source),
    );
    let advice = format!(
        "raise max_hops of join {} if they should reach {}",
        quote(&limit.name),
        quote(stopping.destination.name())
    );
    sink.warn(Code::JoinHopLimit, stopping.at, message, advice);
}
