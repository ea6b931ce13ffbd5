//! Which events a purge or a browse means, and how events are shown.

use super::api::{Api, Path};
use super::failure::Outcome;
use super::print::{self, Column, bytes, cut, member, time};
use super::values::id_range;
use clap::{ArgGroup, Args};
use serde_json::{Map, Value};

/// Characters of a body or of properties that a table shows.
pub(crate) const SHOWN: usize = 60;

/// Which events to remove.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct PurgeArgs {
    /// All of them
    #[arg(long, group = "which", conflicts_with_all = ["id", "range", "filter"])]
    all: bool,
    /// The event with this id
    #[arg(long, group = "which", value_name = "ID", conflicts_with = "range")]
    id: Option<u64>,
    /// Those with ids from A to B, both included; either may be left out
    #[arg(long, group = "which", value_name = "A..B", value_parser = id_range)]
    range: Option<(Option<u64>, Option<u64>)>,
    /// Those that match this selector
    #[arg(long, group = "which", value_name = "SELECTOR")]
    filter: Option<String>,
}

impl PurgeArgs {
    /// Removes them and says how many there were.
    pub(crate) fn run(self, api: &Api, path: &Path) -> Outcome {
        let (from, to) = self.range.unwrap_or((self.id, self.id));
        let members = [("from", from.map(Value::from)), ("to", to.map(Value::from))];
        let mut body = Map::new();
        for (name, value) in members.into_iter().chain([("filter", self.filter.map(Value::from))]) {
            body.extend(value.map(|value| (name.to_owned(), value)));
        }
        let answer = api.post(path, body)?.body;
        if api.json {
            return print::json(&answer);
        }
        print::line(&format!("{} removed", member(&answer, "purged")))
    }
}

/// Which events to look at.
#[derive(Debug, Args)]
pub(crate) struct BrowseArgs {
    /// Only ids from this one on
    #[arg(long, value_name = "ID")]
    from: Option<u64>,
    /// Only ids up to this one
    #[arg(long, value_name = "ID")]
    to: Option<u64>,
    /// Only what matches this selector
    #[arg(long, value_name = "SELECTOR")]
    filter: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    max: u32,
}

impl BrowseArgs {
    /// One event.
    pub(crate) const fn one(id: u64) -> Self {
        Self { from: Some(id), to: Some(id), filter: None, max: 1 }
    }

    /// The path with these as parameters.
    pub(crate) fn on(&self, mut path: Path) -> Path {
        for (name, id) in [("from", self.from), ("to", self.to)] {
            if let Some(id) = id {
                path = path.query(name, &id.to_string());
            }
        }
        if let Some(filter) = &self.filter {
            path = path.query("filter", filter);
        }
        path
    }

    /// At most so many.
    pub(crate) const fn max(&self) -> usize {
        self.max as usize
    }

    /// Shows them.
    pub(crate) fn run(&self, api: &Api, path: Path) -> Outcome {
        let events = api.first(&self.on(path), self.max())?;
        if api.json {
            return print::json_items(events);
        }
        print::table(EVENT, &events, "no events")
    }
}

const EVENT: &[Column] = &[
    ("ID", |e| member(e, "id")),
    ("ARRIVED", |e| time(number(e, "arrived"))),
    ("PRIO", |e| member(e, "priority")),
    ("TRIES", |e| member(e, "delivery_count")),
    ("SIZE", |e| bytes(number(e, "size"))),
    ("MESSAGE ID", |e| cut(&member(e, "message_id"), 40)),
    ("PROPERTIES", |e| cut(&properties(e), SHOWN)),
    ("BODY", |e| cut(&member(e, "body"), SHOWN)),
];

/// A number of an item, 0 if it has none.
pub(crate) fn number(item: &Value, name: &str) -> u64 {
    item.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// Application properties in one line.
pub(crate) fn properties(event: &Value) -> String {
    let Some(members) = event.get("properties").and_then(Value::as_object) else { return "-".to_owned() };
    let written: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}={}", print::harmless(name), print::shown(value)))
        .collect();
    if written.is_empty() { "-".to_owned() } else { written.join(" ") }
}
