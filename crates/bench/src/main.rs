//! `postroad-limits`: the three limit programs on the command line.
//!
//! **What it is.** Options in, one limit program of the library run, a line of figures out.
//!
//! **What it knows.** The command line. **What it must never know.** How a limit program works: that is the library's.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use postroad_bench::{LimitError, Relay, Storing, WriterOptions, WriterReport, write};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What no broker on this machine can beat. See docs/benchmarks.md.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy AMQP frames from producers to consumers, and nothing else.
    Forwarder {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:5672")]
        listen: String,
    },
    /// Copy AMQP frames, each batch appended and synced before it is confirmed and passed on.
    Joined {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:5672")]
        listen: String,
        /// The folder of the journal.
        #[arg(long, value_name = "FOLDER")]
        data_dir: PathBuf,
    },
    /// Append and sync, batch after batch.
    Writer {
        /// The folder of the journal.
        #[arg(long, value_name = "FOLDER")]
        data_dir: PathBuf,
        /// Bytes of each message.
        #[arg(long, default_value_t = 1100)]
        size: usize,
        /// Messages that are synced together.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        batch: u32,
        /// Seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), LimitError> {
    match command {
        Command::Forwarder { listen } => relay(&listen, &Storing::No),
        Command::Joined { listen, data_dir } => relay(&listen, &Storing::In(data_dir)),
        Command::Writer { data_dir, size, batch, seconds, json } => {
            let duration = Duration::from_secs(seconds);
            let report = write(&WriterOptions { folder: data_dir, size, batch, duration })?;
            print(&report, json);
            Ok(())
        }
    }
}

fn relay(listen: &str, storing: &Storing) -> Result<(), LimitError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| LimitError::Io { what: "starting", source })?;
    runtime.block_on(async {
        let relay = Relay::listen(listen, storing).await?;
        let _ = writeln!(io::stdout(), "listening on port {}", relay.port()?);
        relay.serve(complain).await
    })
}

fn complain(error: &LimitError) {
    // Where standard error is gone nobody wants to know.
    let _ = writeln!(io::stderr(), "{error}");
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
fn print(report: &WriterReport, json: bool) {
    let at = |percentile| report.latency.value_at_percentile(percentile) as f64 / 1e6;
    let (messages, syncs) = (report.messages as f64 / report.seconds, report.syncs as f64 / report.seconds);
    let (p50, p99, p999, max) = (at(50.0), at(99.0), at(99.9), report.latency.max() as f64 / 1e6);
    let text = if json {
        format!(
            "{{\"messages_per_second\":{messages:.1},\"syncs_per_second\":{syncs:.1},\
             \"safe_us\":{{\"p50\":{:.1},\"p99\":{:.1},\"p99.9\":{:.1},\"max\":{:.1}}}}}",
            p50 * 1e3,
            p99 * 1e3,
            p999 * 1e3,
            max * 1e3
        )
    } else {
        format!(
            "{messages:.0} msg/s, {syncs:.0} syncs/s; append to safe: p50 {p50:.2} ms, p99 {p99:.2} ms, \
             p99.9 {p999:.2} ms, max {max:.2} ms"
        )
    };
    let _ = writeln!(io::stdout(), "{text}");
}
