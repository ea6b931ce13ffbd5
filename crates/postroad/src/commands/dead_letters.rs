//! `postroad dlq`: what could not be delivered, and why (DLQ-3).

use super::api::{Api, ApiArgs, Path};
use super::events::{BrowseArgs, number};
use super::failure::{Failure, Outcome};
use super::print::{self, Column, cut, member, time};
use clap::{Args, Subcommand};
use serde_json::Value;

/// Where dead letters go unless the configuration says otherwise.
const DEFAULT_QUEUE: &str = "DLQ";

/// Dead letters: messages that could not be delivered
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad dlq list
  postroad dlq list --queue DLQ.jobs
  postroad dlq show 17")]
pub(crate) struct DeadLetterCommand {
    #[command(flatten)]
    api: ApiArgs,
    /// The queue that holds them
    #[arg(long, global = true, value_name = "QUEUE", default_value = DEFAULT_QUEUE)]
    queue: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List them, with the reason of each
    List(BrowseArgs),
    /// Show everything about one
    Show {
        /// Its id in the queue
        id: u64,
    },
}

const DEAD_LETTER: &[Column] = &[
    ("ID", |e| member(e, "id")),
    ("DIED", |e| time(number(header(e), "time"))),
    ("REASON", |e| member(header(e), "reason")),
    ("FROM", |e| source(header(e))),
    ("EVENT", |e| member(header(e), "event_id")),
    ("TIMES", |e| member(header(e), "count")),
    ("WHY", |e| cut(&member(header(e), "text"), 60)),
];

fn header(event: &Value) -> &Value {
    event.get("dead_letter").unwrap_or(&Value::Null)
}

/// Where it was going: a store, or the named object that owed it.
fn source(header: &Value) -> String {
    match header.get("named_object").and_then(Value::as_str) {
        Some(object) => format!("{}::{}", member(header, "dest"), print::harmless(object)),
        None => member(header, "dest"),
    }
}

impl DeadLetterCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let api = self.api.connect()?;
        let path = Path::of("queues").name(&self.queue).word("browse");
        match self.verb {
            Verb::List(which) => list(&api, &which.on(path), which.max(), &self.queue),
            Verb::Show { id } => {
                let mut found = api.list(&BrowseArgs::one(id).on(path))?;
                let Some(event) = found.pop() else {
                    return Err(Failure::failed(format!("queue '{}' has no message {id}", self.queue))
                        .with_advice("'postroad dlq list' shows what there is"));
                };
                if api.json {
                    return print::json(&event);
                }
                print::resource(&event, &["id", "dead_letter", "arrived", "message_id", "properties", "body"])
            }
        }
    }
}

fn list(api: &Api, path: &Path, max: usize, queue: &str) -> Outcome {
    // The broker makes the queue with the first dead letter.
    let found = api.find_first(path, max)?;
    if found.is_none() && queue != DEFAULT_QUEUE {
        return Err(Failure::failed(format!("there is no queue '{queue}' [UNKNOWN_QUEUE]"))
            .with_advice("'postroad queue list' shows what there is"));
    }
    let items = found.unwrap_or_default();
    if api.json {
        return print::json_items(items);
    }
    print::table(DEAD_LETTER, &items, "no dead letters")
}
