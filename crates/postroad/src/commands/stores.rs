//! `postroad channel` and `postroad queue`.

use super::api::{Api, ApiArgs, Path};
use super::events::{BrowseArgs, PurgeArgs, number};
use super::failure::{Failure, Outcome};
use super::print::{self, Column, bytes, member};
use super::scheduled::ScheduledArgs;
use super::store_settings::{
    AnySettings, ChannelSettings, OwnSettings, QueueSettings, StoreSettings, members,
};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

/// Channels: stored, ordered streams of events that many can read
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad channel create orders --retention interest
  postroad channel create rates/eur --ttl 1h --publish-key ISIN
  postroad channel alter orders --capacity 1000000
  postroad channel browse orders --filter \"region = 'EU'\" --max 10
  postroad channel purge orders --range ..1000
  postroad channel delete orders --cascade")]
pub(crate) struct ChannelCommand {
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    verb: Verb<ChannelSettings>,
}

/// Queues: each message waits until one consumer takes it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad queue create jobs --redelivery-delay 5s --max-delivery-attempts 3
  postroad queue alter jobs --expiry-queue EXPIRED
  postroad queue list
  postroad queue browse jobs --max 10
  postroad queue scheduled jobs --cancel 7
  postroad queue purge jobs --all
  postroad queue delete jobs --force")]
pub(crate) struct QueueCommand {
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    verb: Verb<QueueSettings>,
}

#[derive(Debug, Subcommand)]
enum Verb<S: Args> {
    /// Define one; what exists with the same settings is left as it is
    Create(Definition<S>),
    /// Change settings; those that are not named stay as they are
    Alter(Definition<S>),
    /// Show the settings and state of one
    Show(Name),
    /// List all
    List,
    /// Delete one, with everything in it
    Delete(Deletion),
    /// Remove events
    Purge {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        which: PurgeArgs,
    },
    /// Look at events without taking them
    Browse {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        which: BrowseArgs,
    },
    /// Look at messages that wait for their delivery time, or cancel some
    Scheduled {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        which: ScheduledArgs,
    },
}

#[derive(Debug, Args)]
struct Name {
    /// The name
    name: String,
}

#[derive(Debug, Args)]
struct Definition<S: Args> {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    common: StoreSettings,
    #[command(flatten)]
    own: S,
    #[command(flatten)]
    any: AnySettings,
}

#[derive(Debug, Args)]
struct Deletion {
    #[command(flatten)]
    name: Name,
    /// Delete the joins from and to it as well
    #[arg(long)]
    cascade: bool,
    /// Detach its consumers
    #[arg(long)]
    force: bool,
}

/// What tells the two kinds of store apart for people.
struct Kind {
    word: &'static str,
    collection: &'static str,
    columns: &'static [Column],
}

const CHANNEL: Kind = Kind {
    word: "channel",
    collection: "channels",
    columns: &[
        ("CHANNEL", |s| member(s, "name")),
        ("TYPE", |s| member(s, "type")),
        ("RETENTION", |s| member(s, "retention")),
        ("EVENTS", |s| member(s, "depth")),
        ("SCHEDULED", |s| member(s, "scheduled")),
        ("SIZE", |s| bytes(number(s, "bytes"))),
        ("FIRST", |s| member(s, "first_event_id")),
        ("LAST", |s| member(s, "last_event_id")),
        ("CONSUMERS", |s| member(s, "consumers")),
        ("MADE BY", |s| member(s, "made_by")),
    ],
};

const QUEUE: Kind = Kind {
    word: "queue",
    collection: "queues",
    columns: &[
        ("QUEUE", |s| member(s, "name")),
        ("TYPE", |s| member(s, "type")),
        ("MESSAGES", |s| member(s, "depth")),
        ("SCHEDULED", |s| member(s, "scheduled")),
        ("SIZE", |s| bytes(number(s, "bytes"))),
        ("IN DELIVERY", |s| member(s, "in_delivery")),
        ("STRANDED", |s| member(s, "stranded")),
        ("CONSUMERS", |s| member(s, "consumers")),
        ("MADE BY", |s| member(s, "made_by")),
    ],
};

impl ChannelCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        self.verb.run(&self.api.connect()?, &CHANNEL)
    }
}

impl QueueCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        self.verb.run(&self.api.connect()?, &QUEUE)
    }
}

impl<S: OwnSettings> Verb<S> {
    fn run(self, api: &Api, kind: &Kind) -> Outcome {
        let path = |name: &Name| Path::of(kind.collection).name(&name.name);
        match self {
            Self::Create(definition) => definition.run(Define::Create, api, kind),
            Self::Alter(definition) => definition.run(Define::Alter, api, kind),
            Self::Show(name) => show(api, &path(&name)),
            Self::List => list(api, kind),
            Self::Delete(deletion) => {
                let path =
                    path(&deletion.name).flag("cascade", deletion.cascade).flag("force", deletion.force);
                let answer = api.delete(&path)?;
                if api.json {
                    return print::json(&answer);
                }
                print::line(&format!("{} '{}' deleted", kind.word, member(&answer, "name")))
            }
            Self::Purge { name, which } => which.run(api, &path(&name).word("purge")),
            Self::Browse { name, which } => which.run(api, path(&name).word("browse")),
            Self::Scheduled { name, which } => which.run(api, &path(&name).word("scheduled")),
        }
    }
}

fn show(api: &Api, path: &Path) -> Outcome {
    let resource = api.get(path)?;
    if api.json {
        return print::json(&resource);
    }
    print::resource(&resource, &["name", "kind", "type", "made_by", "depth", "bytes", "consumers"])
}

fn list(api: &Api, kind: &Kind) -> Outcome {
    let items = api.list(&Path::of(kind.collection))?;
    if api.json {
        return print::json_items(items);
    }
    print::table(kind.columns, &items, &format!("no {}", kind.collection))
}

#[derive(Clone, Copy)]
enum Define {
    Create,
    Alter,
}

impl<S: OwnSettings> Definition<S> {
    fn run(self, verb: Define, api: &Api, kind: &Kind) -> Outcome {
        let mut body = members(&self.common);
        body.extend(self.own.members()?);
        self.any.add_to(&mut body);
        let name = self.name.name;
        let path = Path::of(kind.collection).name(&name);
        let (answer, done) = match verb {
            Define::Alter => (api.patch(&path, body)?.body, "altered"),
            Define::Create => match api.find(&path)? {
                None => (api.put(&path, body)?.body, "created"),
                Some(held) => (unchanged(held, &body, &name, kind)?, "exists already"),
            },
        };
        if api.json {
            return print::json(&answer);
        }
        print::warnings(&answer);
        print::line(&format!("{} '{}' {done}", kind.word, member(&answer, "name")))
    }
}

/// What exists is no reason to fail as long as it is what was asked for; nobody's settings are overwritten.
fn unchanged(held: Value, wanted: &Map<String, Value>, name: &str, kind: &Kind) -> Outcome<Value> {
    let shown_as = |field: &str| match field {
        "first_event_id" => "configured_first_event_id".to_owned(),
        other => other.to_owned(),
    };
    let differs = |field: &str, value: &Value| !value.is_null() && held.get(shown_as(field)) != Some(value);
    let differences: Vec<&str> = wanted
        .iter()
        .filter(|(field, value)| differs(field, value))
        .map(|(field, _)| field.as_str())
        .collect();
    if differences.is_empty() {
        return Ok(held);
    }
    let what =
        format!("{} '{name}' exists with another {} [STORE_EXISTS]", kind.word, differences.join(", "));
    Err(Failure::failed(what)
        .with_advice(format!("change it with 'postroad {} alter {name} ...'", kind.word)))
}
