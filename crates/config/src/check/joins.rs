//! Joins: both ends exist and are of the right kind (joins-and-interest 3.1, 3.7).

use super::reach::Edge;
use super::{Directory, Found, Store, near};
use crate::config::JoinDefinition;
use crate::diagnostic::{Code, Sink};
use crate::read::{Defined, Draft};
use crate::value::quote;
use postroad_model::address::{Address, Kind};
use postroad_model::name::normalise_channel_name;
use postroad_model::settings::JoinRole;
use std::collections::BTreeMap;

/// Checks every join; gives those that lead from channel to channel or queue, for the checks of the whole.
pub(super) fn check(
    draft: &Draft,
    directory: &Directory<'_>,
    stores_elsewhere: bool,
    sink: &Sink<'_>,
) -> Vec<Edge> {
    let checker = Checker { draft, directory, stores_elsewhere, sink };
    let mut seen = BTreeMap::new();
    let mut edges = Vec::new();
    for join in &draft.joins {
        checker.standby(join);
        let source = checker.source(join);
        let destination = checker.destination(join);
        let (Some(source), Some(destination)) = (source, destination) else { continue };
        if destination == Store::Channel(source.clone()) {
            let message = format!("a join can't lead from channel {} to itself", quote(&source));
            sink.error(Code::JoinSelf, join.places.of("destination"), message, "name another destination");
            continue;
        }
        let key = (source.clone(), destination.clone(), join.value.settings.archive);
        if let Some(first) = seen.insert(key, join.value.name.as_str()) {
            let message = format!("join {} has the same source and destination", quote(first));
            let advice = "keep one of them; joins with other filters need other destinations";
            sink.error(Code::JoinExists, join.places.of("destination"), message, advice);
            continue;
        }
        edges.push(Edge::new(source, destination, join));
    }
    edges.retain(|edge| edge.enabled);
    edges
}

struct Checker<'c> {
    draft: &'c Draft,
    directory: &'c Directory<'c>,
    stores_elsewhere: bool,
    sink: &'c Sink<'c>,
}

impl Checker<'_> {
    /// The source is a channel of this broker (JOIN-2, README U-8); its name without a kind means the channel.
    fn source(&self, join: &Defined<JoinDefinition>) -> Option<String> {
        let written = join.value.settings.source.as_str();
        let at = join.places.of("source");
        let address = match Address::parse(written, None) {
            Ok(address) => address,
            Err(refusal) => {
                self.sink.error(Code::BadName, at, refusal.message, "name a channel");
                return None;
            }
        };
        let name = normalise_channel_name(&address.name);
        let elsewhere =
            address.broker.as_ref().is_some_and(|broker| *broker != self.draft.config.broker.name);
        let is_queue = address.kind == Some(Kind::Queue)
            || (address.kind.is_none()
                && !self.directory.has_channel(&name)
                && self.directory.has_queue(&address.name));
        if is_queue {
            let message = format!("the source of a join can't be a queue, and {} is one", quote(written));
            let advice = "publish to a channel, and join it to this queue and to the destination";
            self.sink.error(Code::JoinSourceIsQueue, at, message, advice);
            return None;
        }
        if elsewhere {
            let message = format!("the source {} is at another broker", quote(written));
            self.sink.error(
                Code::JoinSourceNotFound,
                at,
                message,
                "define the join at the broker that has its source",
            );
            return None;
        }
        if !self.directory.has_channel(&name) {
            let patterns = &self.draft.config.broker.auto_create_channels;
            let made =
                patterns.iter().any(|pattern| postroad_model::name::topic_pattern_matches(pattern, &name));
            let near = near(self.sink, &name, self.directory.channels.iter().copied());
            self.absent(Code::JoinSourceNotFound, made, "source", join, &near);
        }
        Some(name)
    }

    /// The destination is a channel or queue; for an archive join a queue (ARC-1).
    fn destination(&self, join: &Defined<JoinDefinition>) -> Option<Store> {
        let settings = &join.value.settings;
        let written = settings.destination.as_str();
        let at = join.places.of("destination");
        match self.directory.find(written) {
            Found::Here(Store::Channel(name)) if settings.archive => {
                let message = format!("an archive join needs a queue, and {} is a channel", quote(&name));
                let advice = "define a queue for the archive, or remove archive = true";
                self.sink.error(Code::ArchiveNeedsQueue, at, message, advice);
                None
            }
            Found::Here(store) => Some(store),
            Found::MadeByUse(_) | Found::Nowhere if settings.allow_missing => None,
            Found::MadeByUse(store) => {
                self.absent(Code::JoinDestNotFound, true, "destination", join, "");
                Some(store)
            }
            Found::Nowhere => {
                let names = self.directory.channels.iter().chain(&self.directory.queues).copied();
                self.absent(
                    Code::JoinDestNotFound,
                    false,
                    "destination",
                    join,
                    &near(self.sink, written, names),
                );
                None
            }
            Found::Elsewhere(broker) => {
                let message = format!(
                    "links are not supported by this version, so a join can't lead to broker {}",
                    quote(&broker)
                );
                let advice =
                    format!("name a store of this broker, which is '{}'", self.draft.config.broker.name);
                self.sink.error(Code::NotSupported, at, message, advice);
                None
            }
            Found::Malformed(why) => {
                self.sink.error(Code::BadName, at, why, "name a channel or queue");
                None
            }
        }
    }

    /// An end that this file does not define; a warning if first use may make it.
    fn absent(&self, code: Code, made_by_use: bool, key: &str, join: &Defined<JoinDefinition>, near: &str) {
        let settings = &join.value.settings;
        let written = if key == "source" { &settings.source } else { &settings.destination };
        let message = format!("the {key} {} is not defined in this file", quote(written));
        let at = join.places.of(key);
        if made_by_use {
            let advice = "the join works once first use has made it; better define it";
            self.sink.warn(code, at, message, advice);
        } else if self.stores_elsewhere {
            self.sink.warn(code, at, message, "it must be in the broker's data; better define it here");
        } else {
            let also = if key == "source" { "" } else { ", or write allow_missing = true" };
            self.sink.error(code, at, message, format!("define it{also}{near}"));
        }
    }

    /// A standby names its primary, and only a standby does (ORD-3).
    fn standby(&self, join: &Defined<JoinDefinition>) {
        let settings = &join.value.settings;
        match (settings.role, &settings.standby_for) {
            (JoinRole::Standby, None) => {
                let message = "a standby join names the join that it stands in for";
                let advice = "write standby_for = \"the other join's name\"";
                self.sink.error(Code::MissingKey, join.places.of("role"), message, advice);
            }
            (JoinRole::Active, Some(_)) => {
                let message = "'standby_for' does nothing while 'role' is active";
                self.sink.warn(
                    Code::Conflict,
                    join.places.of("standby_for"),
                    message,
                    "write role = \"standby\"",
                );
            }
            (_, Some(primary)) if *primary == join.value.name => {
                let message = "a join can't stand in for itself";
                self.sink.error(Code::Conflict, join.places.of("standby_for"), message, "name another join");
            }
            (_, Some(primary)) if !self.draft.joins.iter().any(|other| other.value.name == *primary) => {
                let message = format!("there is no join {} in this file", quote(primary));
                let names = self.draft.joins.iter().map(|other| other.value.name.as_str());
                let advice =
                    format!("name the join that it stands in for{}", near(self.sink, primary, names));
                self.sink.error(Code::JoinNotFound, join.places.of("standby_for"), message, advice);
            }
            _ => {}
        }
    }
}
