//! One name, one thing.

use crate::diagnostic::{Code, Sink};
use crate::read::Draft;
use crate::source::Span;
use crate::value::quote;
use std::collections::BTreeMap;

/// Reports second definitions of a name, and names shared by a queue and a channel (ADR-2).
pub(super) fn check(draft: &Draft, sink: &Sink<'_>) {
    let channels = draft.channels.iter().map(|defined| &defined.channel);
    let channels = channels.map(|channel| (channel.value.name.as_str(), channel.places.of("name")));
    let channels = unique(sink, "channel", channels);
    let queues = draft.queues.iter().map(|queue| (queue.value.name.as_str(), queue.places.of("name")));
    let queues = unique(sink, "queue", queues);
    let joins = draft.joins.iter().map(|join| (join.value.name.as_str(), join.places.of("name")));
    unique(sink, "join", joins);
    let users = draft.users.iter().map(|user| (user.value.name.as_str(), user.places.of("name")));
    unique(sink, "user", users);
    for defined in &draft.channels {
        let objects = defined.objects.iter();
        let objects = objects.map(|object| (object.value.name.as_str(), object.places.of("name")));
        unique(sink, "named object of this channel", objects);
    }
    for (name, at) in &queues {
        if channels.contains_key(name) {
            let message = format!("{} is both a queue and a channel", quote(name));
            let advice =
                format!("an address without a kind means the queue; channel://{name} means the channel");
            sink.warn(Code::NameTaken, *at, message, advice);
        }
    }
}

/// Reports every name that was there before, and gives where each was first.
fn unique<'n>(
    sink: &Sink<'_>,
    what: &str,
    names: impl Iterator<Item = (&'n str, Span)>,
) -> BTreeMap<&'n str, Span> {
    let mut first: BTreeMap<&str, Span> = BTreeMap::new();
    for (name, at) in names {
        let earlier = *first.entry(name).or_insert(at);
        if earlier != at {
            let line = sink.source.position(earlier.start).line;
            let message = format!("there is already a {what} {}, in line {line}", quote(name));
            sink.error(Code::NameTaken, at, message, "give one of them another name, or remove it");
        }
    }
    first
}
