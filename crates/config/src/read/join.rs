//! `[[join]]`.

use super::stores::start;
use super::{Defined, check_name, selector, set, set_some};
use crate::config::JoinDefinition;
use crate::diagnostic::Code;
use crate::table::Table;
use crate::value::quote;
use postroad_model::address::{Address, Kind};
use postroad_model::name;
use postroad_model::settings::JoinSettings;

/// Reads a join (joins-and-interest 5.2). One without source or destination is reported and left out.
pub(super) fn join(mut table: Table<'_>, own_name: &str) -> Option<Defined<JoinDefinition>> {
    let written = table.text("name");
    let source = table.text("source");
    let destination = table.text("destination");
    if !table.has("source") {
        table.missing(Code::MissingKey, "source", "\"the channel that is read\"");
    }
    if !table.has("destination") {
        table.missing(Code::JoinNoDestination, "destination", "\"the channel or queue that is filled\"");
    }
    let mut settings = JoinSettings::default();
    forwarding(&mut table, &mut settings);
    running(&mut table, &mut settings);
    let enabled = table.boolean("enabled");
    set(&mut settings.enabled, enabled);
    let (sink, at) = (table.sink, table.at);
    let places = table.finish();
    settings.source = plain_source(&source?.value, own_name);
    settings.destination = destination?.value;
    let (name, at) = match written {
        Some(name) => (name.value, name.span),
        None => (format!("{}->{}", settings.source, settings.destination), at),
    };
    check_name(sink, at, name::check_object_name(&name));
    Some(Defined { value: JoinDefinition { name, settings, enabled }, places })
}

/// The name of the channel in the one form of CH-2, if the text names a channel of this broker; else as written.
fn plain_source(written: &str, own_name: &str) -> String {
    match Address::parse(written, None) {
        Ok(Address { kind: None | Some(Kind::Channel), name, broker, object: None, .. })
            if broker.as_deref().is_none_or(|broker| broker == own_name) =>
        {
            name::normalise_channel_name(&name)
        }
        _ => written.to_owned(),
    }
}

/// What passes, and how far.
fn forwarding(table: &mut Table<'_>, settings: &mut JoinSettings) {
    set(&mut settings.max_hops, table.integer_or("max_hops", 0..=u8::MAX, Code::JoinBadHops));
    set_some(&mut settings.filter, selector(table, "filter"));
    set(&mut settings.archive, table.boolean("archive"));
    set(&mut settings.propagate_purge, table.boolean("propagate_purge"));
    set(&mut settings.start, start(table, "start"));
    set(&mut settings.split_horizon, table.boolean("split_horizon"));
    if let Some(via) = table.text("via").filter(|via| via.value != "auto") {
        let message =
            format!("links are not supported by this version, so a join can't go via {}", quote(&via.value));
        table.sink.error(Code::NotSupported, via.span, message, "write via = \"auto\", or leave it out");
    }
}

/// When it runs, and what it does when it can't.
fn running(table: &mut Table<'_>, settings: &mut JoinSettings) {
    set(&mut settings.allow_missing, table.boolean("allow_missing"));
    set(&mut settings.on_block, table.word("on_block"));
    set(&mut settings.role, table.word("role"));
    set_some(&mut settings.standby_for, table.text("standby_for").map(|name| name.value));
    if let Some(delay) = table.duration("standby_delay") {
        match u32::try_from(delay) {
            Ok(delay) => settings.standby_delay = delay,
            Err(_) => {
                let at = table.place("standby_delay");
                table.bad_value("standby_delay", at, "is too long", "write at most 49 days");
            }
        }
    }
    set(&mut settings.batch, table.integer("batch", 1..=100_000));
    set(&mut settings.in_flight, table.integer("in_flight", 1..=1_000_000));
}
