//! Publishing into a channel with three joins, until all copies are stored, and into one without. Postroad alone: no
//! peer has joins.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::{self, Load};
use super::servers::Running;
use super::table::{Row, count};
use super::{Bench, Role};
use crate::run;

/// How long the copies may take after the last confirm.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where copies arrive, and by which noun of the command line they are asked for.
const COPIES: [(&str, &str); 2] = [("channel", "joined.true"), ("queue", "joined.archive")];

/// Measures it.
pub(crate) fn measure(bench: &Bench) -> Result<Row, String> {
    let what = "publish through 3 joins (true, false, archive), until all copies are stored";
    println!("\n{what}");
    let messages = bench.joined_messages();
    let server = bench.server(Role::Postroad);
    let alone = bench.with(server, |running| fill(bench, running, "plain", messages))?;
    let joined = bench.with(server, |running| {
        let load = fill(bench, running, "joined", messages)?;
        let done = Instant::now();
        wait_for_copies(bench, running, messages)?;
        Ok((load, done.elapsed().as_secs_f64()))
    })?;
    let mut row = Row::new(what);
    match (alone, joined) {
        (Ok(alone), Ok((joined, behind))) => {
            #[expect(clippy::cast_precision_loss, reason = "a count below 2^53 is exact")]
            let rate = |seconds: f64| messages as f64 / seconds;
            let seconds = |load: &Load| load.number("/seconds").unwrap_or(f64::NAN);
            let (without, with) = (rate(seconds(&alone)), rate(seconds(&joined) + behind));
            row.limit = format!("without joins: {}/s", count(without));
            row.cells.insert(server.name(), format!("{}/s", count(with)));
            row.of_limit = Some(with / without);
            row.goal("half of the rate without joins", Some(with >= without / 2.0));
            row.reports.insert("without joins", alone.report);
            row.reports.insert("with joins", joined.report);
        }
        (Err(error), _) | (_, Err(error)) => {
            row.cells.insert(server.name(), format!("can't: {error}"));
        }
    }
    println!("  {:<10} {}, {}", server.name(), row.cells[server.name()], row.limit);
    Ok(row)
}

fn fill(bench: &Bench, running: &Running, channel: &str, messages: u64) -> Result<Load, String> {
    let messages = messages.to_string();
    let options = ["--topic", "--consumers", "0", "--window", "1000", "--messages", &messages];
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let load = load::run(&bench.programs, running, channel, &options, PATIENCE)?;
    match load.complaint {
        Some(complaint) => Err(complaint),
        None => Ok(load),
    }
}

/// Waits until every destination has all of it.
fn wait_for_copies(bench: &Bench, running: &Running, messages: u64) -> Result<(), String> {
    let http = running.http.ok_or("the broker has no address for operators")?;
    let deadline = Instant::now() + PATIENCE;
    for (noun, name) in COPIES {
        while depth(bench, http, noun, name)? < messages {
            if Instant::now() > deadline {
                return Err(format!("{name} does not get its copies"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

fn depth(bench: &Bench, http: u16, noun: &str, name: &str) -> Result<u64, String> {
    let mut show = Command::new(&bench.programs.postroad);
    show.args([noun, "show", name, "--json", "--url", &format!("http://127.0.0.1:{http}")]);
    let shown: Value = serde_json::from_str(&run::output(&mut show)?).map_err(|e| format!("{name}: {e}"))?;
    shown["depth"].as_u64().ok_or_else(|| format!("{name} does not say how much it holds"))
}
