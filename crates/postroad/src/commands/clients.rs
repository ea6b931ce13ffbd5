//! The commands of clients: they talk AMQP 1.0 to any broker, ours or not.

mod bench;
mod browse;
mod connect;
mod failure;
mod parse;
mod receive;
mod send;
mod show;

use std::future::Future;
use std::process::ExitCode;

use clap::Subcommand;
use postroad_client::NodeKind;

use failure::{Failure, failed};

/// Commands that are clients of a broker.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Send messages to an address, and say what the broker answered
    ///
    /// Examples:
    ///   postroad send orders 'hello'
    ///   postroad send orders --count 1000 --size 1024 --rate 200
    ///   echo 'from a pipe' | postroad send orders - --property region=EU
    #[command(verbatim_doc_comment)]
    Send(send::SendArgs),
    /// Receive messages from an address, print and acknowledge them
    ///
    /// Examples:
    ///   postroad receive orders --count 1
    ///   postroad receive orders --timeout 5s --json
    ///   postroad receive prices --durable mine --client-id desk-7 --selector "region = 'EU'"
    #[command(verbatim_doc_comment)]
    Receive(receive::ReceiveArgs),
    /// Print the messages of a queue or channel and leave them there
    ///
    /// Example:
    ///   postroad browse orders --count 20
    #[command(verbatim_doc_comment)]
    Browse(browse::BrowseArgs),
    /// As `send`, to a topic: every subscriber gets the message
    ///
    /// Example:
    ///   postroad publish prices/eu '42' --property currency=EUR
    #[command(verbatim_doc_comment)]
    Publish(send::SendArgs),
    /// As `receive`, from a topic
    ///
    /// It gets what is published from now on, or since the durable subscription was left.
    ///
    /// Example:
    ///   postroad subscribe prices/eu --durable mine --client-id desk-7
    #[command(verbatim_doc_comment)]
    Subscribe(receive::ReceiveArgs),
    /// Put a broker under load and measure throughput, latency and its CPU time
    ///
    /// With --rate every message has a time at which it is due, and latency counts from then, so a broker that stalls
    /// is not measured less often while it stalls. Without --rate the window of each producer is kept full.
    ///
    /// Examples:
    ///   postroad bench --producers 2 --consumers 2 --duration 10s
    ///   postroad bench --rate 20000 --non-persistent --pid "$(pidof postroad)"
    #[command(verbatim_doc_comment)]
    Bench(bench::BenchArgs),
}

impl ClientCommand {
    /// Runs the command. Exit codes: 0 done, 1 refused or failed, 2 bad usage, 3 could not reach the broker.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Send(args) => block_on(args.run(None)),
            Self::Publish(args) => block_on(args.run(Some(NodeKind::Topic))),
            Self::Receive(args) => block_on(args.run(None)),
            Self::Subscribe(args) => block_on(args.run(Some(NodeKind::Topic))),
            Self::Browse(args) => block_on(args.run()),
            Self::Bench(args) => args.run(),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        }
    }
}

/// Runs a command on a runtime of its own, on this thread.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    runtime()?.block_on(command)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed(format!("no runtime could be started: {error}"), "try again"))
}
