//! Messages that wait for their delivery time: shown, and cancelled.

use super::api::{Api, Path};
use super::events::{SHOWN, number, properties};
use super::failure::Outcome;
use super::print::{self, Column, bytes, cut, member, time};
use clap::Args;
use serde_json::Value;

/// What to do with them.
#[derive(Debug, Args)]
pub(crate) struct ScheduledArgs {
    /// Cancel the ones with these numbers instead of showing any
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',')]
    cancel: Vec<u64>,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with = "cancel")]
    max: u32,
}

impl ScheduledArgs {
    /// Shows them in the order in which their time comes, or cancels some.
    pub(crate) fn run(&self, api: &Api, path: &Path) -> Outcome {
        if self.cancel.is_empty() {
            return self.show(api, path);
        }
        let mut cancelled: Vec<Value> = Vec::new();
        for number in &self.cancel {
            cancelled.push(api.delete(&path.clone().word(&number.to_string()))?);
        }
        if api.json {
            return print::json_items(cancelled);
        }
        print::line(&format!("{} cancelled", cancelled.len()))
    }

    fn show(&self, api: &Api, path: &Path) -> Outcome {
        let messages = api.first(path, self.max as usize)?;
        if api.json {
            return print::json_items(messages);
        }
        print::table(SCHEDULED, &messages, "nothing waits")
    }
}

const SCHEDULED: &[Column] = &[
    ("NUMBER", |m| member(m, "number")),
    ("DUE", |m| time(number(m, "due"))),
    ("TAKEN", |m| time(number(m, "taken"))),
    ("PRIO", |m| member(m, "priority")),
    ("SIZE", |m| bytes(number(m, "size"))),
    ("MESSAGE ID", |m| cut(&member(m, "message_id"), 40)),
    ("PROPERTIES", |m| cut(&properties(m), SHOWN)),
    ("BODY", |m| cut(&member(m, "body"), SHOWN)),
];
