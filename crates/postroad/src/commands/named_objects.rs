//! `postroad named-object` (named-objects 9).

use super::api::{Api, ApiArgs, Path};
use super::events::{BrowseArgs, PurgeArgs};
use super::failure::Outcome;
use super::joins::start_value;
use super::print::{self, Column, cut, member};
use super::store_settings::{AnySettings, RedeliverySettings, members};
use clap::{ArgAction, Args, Subcommand};
use serde::Serialize;

/// Named objects: the broker's memory of where a subscriber is
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad named-object create orders billing --selector \"region = 'EU'\" --start all
  postroad named-object list --channel orders
  postroad named-object browse orders billing --max 10
  postroad named-object purge orders billing --id 17
  postroad named-object delete orders billing
  postroad named-object delete orders nightly --owner client:reports --force")]
pub(crate) struct NamedObjectCommand {
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make one; the same again changes nothing
    Create(Box<Creation>),
    /// List all, also those that clients made (durable subscriptions)
    List {
        /// Only those of this channel
        #[arg(long)]
        channel: Option<String>,
        /// Only those of this owner: native, or client:ID
        #[arg(long)]
        owner: Option<String>,
    },
    /// Show the settings and state of one
    Show(Key),
    /// Delete one, with its place in the channel
    Delete {
        #[command(flatten)]
        key: Key,
        /// Detach its consumer
        #[arg(long)]
        force: bool,
    },
    /// Record events as finished
    Purge {
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        which: PurgeArgs,
    },
    /// Look at the events that it owes
    Browse {
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        which: BrowseArgs,
    },
}

#[derive(Debug, Args)]
struct Key {
    /// Its channel
    channel: String,
    /// Its name
    name: String,
    /// Whose it is: client:ID for a durable subscription
    #[arg(long, value_name = "OWNER", default_value = "native")]
    owner: String,
}

#[derive(Debug, Args)]
struct Creation {
    /// Its channel
    channel: String,
    /// Its name
    name: String,
    #[command(flatten)]
    settings: Settings,
    /// Where it begins: new, all, or an event id
    #[arg(long, value_name = "new|all|ID")]
    start: Option<String>,
    /// Forget it when the broker restarts
    #[arg(long, overrides_with = "persistent", action = ArgAction::SetTrue)]
    no_persistent: bool,
    /// Keep it when the broker restarts (the default)
    #[arg(long, action = ArgAction::SetTrue)]
    persistent: bool,
    /// Leave out what its own consumer published
    #[arg(long)]
    no_local: bool,
    #[command(flatten)]
    redelivery: RedeliverySettings,
    #[command(flatten)]
    any: AnySettings,
}

#[derive(Debug, Args, Serialize)]
struct Settings {
    /// How consumers share it
    #[arg(long = "type", value_name = "TYPE", value_parser = ["exclusive", "shared", "serial", "priority"])]
    #[serde(rename = "type")]
    object_type: Option<String>,
    /// Only events that match
    #[arg(long)]
    selector: Option<String>,
    /// local or cluster
    #[arg(long, value_parser = ["local", "cluster"])]
    scope: Option<String>,
    /// What an acknowledgement finishes: every lower event too, or the one alone
    #[arg(long, value_name = "POLICY", value_parser = ["cumulative", "individual"])]
    ack_policy: Option<String>,
    /// What a second consumer meets
    #[arg(long, value_name = "POLICY", value_parser = ["refuse", "steal"])]
    consumer_takeover: Option<String>,
}

const OBJECT: &[Column] = &[
    ("CHANNEL", |o| member(o, "channel")),
    ("NAME", |o| member(o, "name")),
    ("OWNER", |o| member(o, "owner")),
    ("TYPE", |o| member(o, "type")),
    ("BACKLOG", |o| member(o, "backlog")),
    ("IN DELIVERY", |o| member(o, "in_delivery")),
    ("FINISHED TO", |o| member(o, "last_event_id")),
    ("CONSUMERS", |o| member(o, "consumers")),
    ("SELECTOR", |o| cut(&member(o, "selector"), 40)),
];

impl Key {
    fn path(&self) -> Path {
        if self.owner == "native" {
            return native(&self.channel).name(&self.name);
        }
        Path::of("subscriptions").name(&self.channel).name(&self.owner).name(&self.name)
    }
}

fn native(channel: &str) -> Path {
    Path::of("channels").name(channel).word("named-objects")
}

impl NamedObjectCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let api = self.api.connect()?;
        match self.verb {
            Verb::Create(creation) => creation.run(&api),
            Verb::List { channel, owner } => list(&api, channel, owner),
            Verb::Show(key) => {
                let object = api.get(&key.path())?;
                if api.json {
                    return print::json(&object);
                }
                print::resource(&object, &["channel", "name", "owner", "type", "backlog", "last_event_id"])
            }
            Verb::Delete { key, force } => {
                let answer = api.delete(&key.path().flag("force", force))?;
                if api.json {
                    return print::json(&answer);
                }
                print::line(&format!("named object '{}' of channel '{}' deleted", key.name, key.channel))
            }
            Verb::Purge { key, which } => which.run(&api, &key.path().word("purge")),
            Verb::Browse { key, which } => which.run(&api, key.path().word("events")),
        }
    }
}

fn list(api: &Api, channel: Option<String>, owner: Option<String>) -> Outcome {
    let parameters = [("channel", channel), ("owner", owner)];
    let path = parameters.iter().fold(Path::of("named-objects"), |path, (name, value)| match value {
        Some(value) => path.query(name, value),
        None => path,
    });
    let items = api.list(&path)?;
    if api.json {
        return print::json_items(items);
    }
    print::table(OBJECT, &items, "no named objects")
}

impl Creation {
    fn run(self, api: &Api) -> Outcome {
        let mut body = members(&self.settings);
        body.extend(members(&self.redelivery));
        body.extend(self.start.map(|start| ("start_event_id".to_owned(), start_value(start))));
        if self.no_persistent {
            body.insert("persistent".to_owned(), false.into());
        }
        if self.no_local {
            body.insert("no_local".to_owned(), true.into());
        }
        self.any.add_to(&mut body);
        let answer = api.put(&native(&self.channel).name(&self.name), body)?;
        if api.json {
            return print::json(&answer.body);
        }
        let done = if answer.created { "created" } else { "exists already" };
        print::line(&format!("named object '{}' of channel '{}' {done}", self.name, self.channel))
    }
}
