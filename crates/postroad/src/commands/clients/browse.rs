//! `browse`.

use std::time::Duration;

use clap::Args;
use postroad_client::codec::performative::SenderSettleMode;
use postroad_client::codec::terminus::distribution_mode::COPY;
use postroad_client::{Credit, Receiver, ReceiverOptions};

use super::connect::ConnectArgs;
use super::failure::{Failure, failed};
use super::parse;
use super::receive::{print_all, range_of};
use super::show::Style;

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct BrowseArgs {
    /// The queue or channel.
    address: String,
    /// How many messages to print at the most.
    #[arg(long, short = 'n', default_value_t = 1000, value_name = "N")]
    count: u32,
    /// Only messages that this selector chooses.
    #[arg(long)]
    selector: Option<String>,
    /// Stop when the broker says nothing for this long.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse::duration)]
    timeout: Duration,
    /// Print header, properties and annotations too.
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Print each message as a JSON object on a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// How many messages are asked for at once.
const BATCH: u32 = 200;

impl BrowseArgs {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.connect().await?;
        let options = ReceiverOptions {
            credit: Credit::Manual,
            selector: self.selector.clone(),
            copy: true,
            settle_mode: SenderSettleMode::Settled,
            ..ReceiverOptions::default()
        };
        let receiver = client.receiver(&self.address, options).await?;
        if receiver.source().is_none_or(|source| source.distribution_mode != Some(COPY)) {
            let what = format!("the broker does not let {} be browsed", self.address);
            return Err(failed(what, "browse a queue or a channel; use `receive --ack release` else"));
        }
        self.browse(&receiver).await?;
        receiver.close().await?;
        Ok(client.close().await?)
    }

    async fn browse(&self, receiver: &Receiver) -> Result<(), Failure> {
        let mut left = self.count;
        while left > 0 {
            let asked = left.min(BATCH);
            receiver.drain(asked)?;
            let got = self.batch(receiver).await?;
            if got < asked {
                break;
            }
            left -= asked;
        }
        Ok(())
    }

    /// Prints what comes until the drain is over; how many messages that were.
    async fn batch(&self, receiver: &Receiver) -> Result<u32, Failure> {
        let (mut got, mut batch) = (0, Vec::new());
        loop {
            let next = tokio::time::timeout(self.timeout, receiver.recv_many(&mut batch, 256));
            // A broker that does not answer a drain has nothing more.
            let Ok(count) = next.await else { return Ok(got) };
            if count? == 0 {
                return Ok(got);
            }
            print_all(&batch, Style::of(self.json, self.verbose))?;
            if batch.iter().any(|delivery| !delivery.settled)
                && let Some(range) = range_of(&batch)
            {
                receiver.release(range)?;
            }
            got += u32::try_from(batch.len()).unwrap_or(u32::MAX);
            batch.clear();
        }
    }
}
