//! The `postroad` program: the broker, and everything to look after one from a terminal.
//!
//! What it knows: words on a command line, and how answers look to people (tables) and programs (`--json`). What
//! it must never know: how a broker works. `serve` hands over to `postroad-server`; operators' commands use the
//! REST interface and nothing else, but for `journal`, which reads the folder of a broker that does not run; clients'
//! commands speak AMQP like any client.

mod cli;
mod commands;

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
