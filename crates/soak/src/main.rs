//! Soaks: a built broker under load for as long as you like, with what must not happen to it made to happen.
//!
//! **What it is.** `postroad-soak kill` runs producers, consumers and followers of named objects against a broker
//! process, kills that in the middle of everything, starts it again on the same data, and goes on. Every client writes
//! into books what the broker has promised it; a promise that is broken ends the run with exit code 1 and the seed.
//! The seed decides what clients do and when the broker is killed; what that meets inside differs from run to run.
//!
//! - `kill`: the rounds; `audit`: what must be left at the end; `backlog`: a long one that lies there meanwhile;
//! - `producer`, `consumer`, `follower`: the clients; `clients`: what they share; `control`: in step with the kills;
//! - `books`: the promises; `mark`: the messages; `broker`: the process; `neighbour`: a busy disk; `random`: chance.
//!
//! **What it knows.** What a client may rely on, whatever happens to the broker (the specification's named-objects 3.6
//! and joins-and-interest 3.5), and how the broker is configured.
//!
//! **What it must never know.** How the broker works inside. It links none of the broker's crates but the client.
#![allow(clippy::print_stdout, reason = "a command talks to its user on standard output")]

mod audit;
mod backlog;
mod books;
mod broker;
mod clients;
mod consumer;
mod control;
mod follower;
mod kill;
mod mark;
mod neighbour;
mod producer;
mod random;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use kill::{Plan, Summary};

/// What a run proves that ends without a broken promise.
const PROVED: [&str; 5] = ["AK-10", "AK-11", "DUP-5", "DUP-11", "EX-3"];

#[derive(Parser)]
#[command(about = "Puts a built broker under load and under stress")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rounds of load, each ended by killing the broker as `kill -9` does
    Kill(Kill),
}

#[derive(Args)]
struct Kill {
    /// The broker's program
    #[arg(long, value_name = "FILE", default_value = "target/debug/postroad")]
    broker: PathBuf,
    /// Where the broker's data goes; a real disk, or nothing is proved
    #[arg(long, value_name = "FOLDER", default_value = "target/soak")]
    dir: PathBuf,
    /// How often the broker is killed
    #[arg(long, value_name = "N", default_value_t = 50)]
    rounds: u32,
    /// What decides chance; taken from the clock if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Messages that lie on a queue of their own all the time
    #[arg(long, value_name = "N", default_value_t = 0)]
    backlog: u64,
    /// Keep data and log, also if nothing went wrong
    #[arg(long)]
    keep_data: bool,
}

fn main() -> ExitCode {
    let Command::Kill(kill) = Arguments::parse().command;
    let seed = kill.seed.unwrap_or_else(seed_of_the_clock);
    let folder = kill.dir.join(format!("kill-{seed}-{}", std::process::id()));
    let (binary, rounds, backlog) = (kill.broker, kill.rounds, kill.backlog);
    let plan = Plan { binary, folder: absolute(&folder), rounds, seed, backlog };
    println!("soak kill: {} rounds, seed {seed}, data in {}", plan.rounds, folder.display());
    match kill::run(&plan) {
        Ok(summary) => {
            report(&plan, &summary);
            if !kill.keep_data {
                let _ = std::fs::remove_dir_all(&folder);
            }
            PROVED.into_iter().for_each(postroad_testkit::proves);
            println!("test result: ok. 1 passed; 0 failed");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!(
                "VIOLATION with seed {seed} (data and log are kept in {}): {violation}",
                folder.display()
            );
            println!("test result: FAILED. 0 passed; 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn seed_of_the_clock() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// The broker is started in this folder, whatever its own is.
fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

fn report(plan: &Plan, summary: &Summary) {
    let Summary { messages, deliveries, redeliveries, recoveries } = summary;
    println!("{} kills, {messages} messages confirmed, none lost, none stored twice", plan.rounds + 1);
    println!(
        "{deliveries} deliveries, {redeliveries} of them again, and each of those flagged as it must be"
    );
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    println!(
        "recovery: {:.1} ms at least, {:.1} ms in the middle, {:.1} ms at most",
        millis(recoveries.first()),
        millis(recoveries.get(recoveries.len() / 2)),
        millis(recoveries.last()),
    );
}
