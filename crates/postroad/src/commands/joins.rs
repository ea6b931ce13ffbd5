//! `postroad join` (joins-and-interest 10.2).

use super::api::{Answer, Api, ApiArgs, Path};
use super::failure::{Failure, Outcome};
use super::print::{self, Column, cut, member};
use super::store_settings::{AnySettings, members};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

/// Joins: what arrives in a channel goes to another channel or queue too
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad join create orders orders.eu --filter \"region = 'EU'\"
  postroad join create orders audit --archive
  postroad join create left right --both
  postroad join list orders
  postroad join pause 'orders->orders.eu'
  postroad join delete 'orders->orders.eu' --drain")]
pub(crate) struct JoinCommand {
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a join and print its name; the same again changes nothing
    Create(Creation),
    /// Change settings; those that are not named stay as they are
    Alter {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        settings: Settings,
        /// Pass only events that match this selector; an empty one means all
        #[arg(long, value_name = "SELECTOR")]
        filter: Option<String>,
        #[command(flatten)]
        any: AnySettings,
    },
    /// Show the settings and state of one
    Show(Name),
    /// List all, or those at one channel or queue
    List {
        /// Only joins from or to this channel or queue
        store: Option<String>,
        /// Only those that end there
        #[arg(long = "in", requires = "store", conflicts_with = "outgoing")]
        incoming: bool,
        /// Only those that begin there
        #[arg(long = "out", requires = "store")]
        outgoing: bool,
    },
    /// Stop forwarding; events wait
    Pause(Name),
    /// Forward again, beginning with what waits
    Resume(Name),
    /// Delete one; prints how many events it had not forwarded
    Delete {
        #[command(flatten)]
        name: Name,
        /// Forward what waits first
        #[arg(long)]
        drain: bool,
    },
}

#[derive(Debug, Args)]
struct Name {
    /// The join's name
    name: String,
}

#[derive(Debug, Args)]
struct Creation {
    /// The channel that is read
    source: String,
    /// The channel or queue that is written
    destination: String,
    /// A name, if not SOURCE->DESTINATION
    #[arg(long, conflicts_with = "both")]
    name: Option<String>,
    /// Make the join back as well
    #[arg(long)]
    both: bool,
    /// Pass only events that match this selector
    #[arg(long, value_name = "SELECTOR")]
    filter: Option<String>,
    /// Record every arrival in a queue, repetitions too
    #[arg(long)]
    archive: bool,
    /// Where to begin: new, all, or an event id
    #[arg(long, value_name = "new|all|ID")]
    start: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    any: AnySettings,
}

#[derive(Debug, Args, Serialize)]
struct Settings {
    /// How many stores may lie between, 0 to 255
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_hops: Option<i64>,
    /// Repeat a purge of the source at the destination
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    propagate_purge: Option<bool>,
    /// The destination may be made later
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_missing: Option<bool>,
    /// Do not send events back to where they have been
    #[arg(long, value_name = "BOOL")]
    split_horizon: Option<bool>,
    /// While the destination is full: hold events, or let publishers wait too
    #[arg(long, value_name = "POLICY", value_parser = ["hold", "backpressure"])]
    on_block: Option<String>,
}

const JOIN: &[Column] = &[
    ("JOIN", |j| member(j, "name")),
    ("SOURCE", |j| member(j, "source")),
    ("DESTINATION", |j| member(j, "destination")),
    ("STATE", |j| state(j)),
    ("LAG", |j| member(j, "lag_events")),
    ("FORWARDED", |j| member(j, "forwarded_total")),
    ("HOPS", |j| member(j, "max_hops")),
    ("FILTER", |j| cut(&member(j, "filter"), 40)),
];

fn state(join: &Value) -> String {
    match join.get("reason").and_then(Value::as_str).unwrap_or_default() {
        "" => member(join, "state"),
        reason => format!("{} ({})", member(join, "state"), print::harmless(reason)),
    }
}

impl JoinCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let api = self.api.connect()?;
        match self.verb {
            Verb::Create(creation) => creation.run(&api),
            Verb::Alter { name, settings, filter, any } => {
                let mut body = members(&settings);
                any.add_to(&mut body);
                if let Some(filter) = filter {
                    let filter = if filter.is_empty() { Value::Null } else { filter.into() };
                    body.insert("filter".to_owned(), filter);
                }
                done(&api, &api.patch(&path(&name), body)?.body, "altered")
            }
            Verb::Show(name) => {
                let join = api.get(&path(&name))?;
                if api.json {
                    return print::json(&join);
                }
                print::resource(&join, &["name", "source", "destination", "state", "reason", "lag_events"])
            }
            Verb::List { store, incoming, outgoing } => list(&api, store.as_deref(), incoming, outgoing),
            Verb::Pause(name) => {
                done(&api, &api.post(&path(&name).word("pause"), Map::new())?.body, "paused")
            }
            Verb::Resume(name) => {
                done(&api, &api.post(&path(&name).word("resume"), Map::new())?.body, "resumed")
            }
            Verb::Delete { name, drain } => {
                let answer = api.delete(&path(&name).flag("drain", drain))?;
                let left = format!("deleted, {} not forwarded", member(&answer, "not_forwarded"));
                done(&api, &answer, &left)
            }
        }
    }
}

fn path(name: &Name) -> Path {
    Path::of("joins").name(&name.name)
}

fn done(api: &Api, answer: &Value, what: &str) -> Outcome {
    if api.json {
        return print::json(answer);
    }
    print::line(&format!("join '{}' {what}", member(answer, "name")))
}

fn list(api: &Api, store: Option<&str>, incoming: bool, outgoing: bool) -> Outcome {
    let path = Path::of("joins");
    let path = store.iter().fold(path, |path, store| path.query("store", store));
    let mut items = api.list(&path)?;
    let ends = |join: &Value, end: &str| join.get(end).and_then(Value::as_str) == store;
    items.retain(|join| (!incoming || ends(join, "destination")) && (!outgoing || ends(join, "source")));
    if api.json {
        return print::json_items(items);
    }
    print::table(JOIN, &items, "no joins")
}

impl Creation {
    fn run(self, api: &Api) -> Outcome {
        let mut body = members(&self.settings);
        body.extend(self.name.map(|name| ("name".to_owned(), name.into())));
        body.extend(self.filter.map(|filter| ("filter".to_owned(), filter.into())));
        body.extend(self.start.map(|start| ("start".to_owned(), start_value(start))));
        if self.archive {
            body.insert("archive".to_owned(), true.into());
        }
        self.any.add_to(&mut body);
        let joins = create(api, &body, &self.source, &self.destination, self.both)?;
        if api.json {
            return match <[Value; 1]>::try_from(joins) {
                Ok([join]) => print::json(&join),
                Err(joins) => print::json_items(joins),
            };
        }
        joins.iter().try_for_each(|join| print::line(&member(join, "name")))
    }
}

/// An event id is a number in JSON, everything else is text.
pub(crate) fn start_value(text: String) -> Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
}

/// One join, or both directions; if the second can't be made the first goes again (JOIN-5).
fn create(
    api: &Api,
    body: &Map<String, Value>,
    source: &str,
    destination: &str,
    both: bool,
) -> Outcome<Vec<Value>> {
    let make = |from: &str, to: &str| -> Outcome<Answer> {
        let mut body = body.clone();
        body.insert("source".to_owned(), from.into());
        body.insert("destination".to_owned(), to.into());
        api.post(&Path::of("joins"), body)
    };
    let there = make(source, destination)?;
    if !both {
        return Ok(vec![there.body]);
    }
    match make(destination, source) {
        Ok(back) => Ok(vec![there.body, back.body]),
        Err(failure) => {
            if there.created {
                api.delete(&Path::of("joins").name(&member(&there.body, "name"))).map_err(|_| {
                    Failure::failed(format!(
                        "only one of both joins was made: '{}'",
                        member(&there.body, "name")
                    ))
                    .with_advice("delete it, or make the other one")
                })?;
            }
            Err(failure)
        }
    }
}
