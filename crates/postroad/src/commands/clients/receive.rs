//! `receive` and `subscribe`.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, ValueEnum};
use postroad_client::{Credit, Delivery, NodeKind, Receiver, ReceiverOptions};

use super::connect::ConnectArgs;
use super::failure::{Failure, failed};
use super::parse;
use super::show::{self, Style};

/// What to receive, and what to do with it.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The queue, channel or topic.
    address: String,
    /// Stop after this many messages; without it, go on until --timeout or Ctrl-C.
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
    /// Stop when nothing has come for this long; with --count it is then a failure.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// What to tell the broker about each message.
    #[arg(long, value_enum, default_value_t = Ack::Accept)]
    ack: Ack,
    /// Only messages that this selector chooses, such as "region = 'EU' AND price > 10".
    #[arg(long)]
    selector: Option<String>,
    /// The name of a durable subscription, which stays when the command ends. Needs --client-id.
    #[arg(long, value_name = "NAME", requires = "client_id")]
    durable: Option<String>,
    /// Delete the durable subscription instead of receiving from it.
    #[arg(long, requires = "durable")]
    unsubscribe: bool,
    /// How many messages the broker may send ahead.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    prefetch: u32,
    /// Print header, properties and annotations too.
    #[arg(long, short = 'v')]
    verbose: bool,
    /// Print each message as a JSON object on a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What becomes of a message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ack {
    /// It is done: the broker forgets it.
    Accept,
    /// Back as if it had not been sent.
    Release,
    /// It is invalid.
    Reject,
}

/// Why receiving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Silence,
    Interrupted,
}

impl ReceiveArgs {
    pub(super) async fn run(self, kind: Option<NodeKind>) -> Result<(), Failure> {
        let client = self.connect.connect().await?;
        if let Some(name) = self.durable.as_deref().filter(|_| self.unsubscribe) {
            client.unsubscribe(name).await?;
            return Ok(client.close().await?);
        }
        let options = ReceiverOptions {
            kind,
            // With a count no more is taken than that.
            credit: if self.count.is_some() { Credit::Manual } else { Credit::Auto(self.prefetch) },
            selector: self.selector.clone(),
            durable: self.durable.clone(),
            ..ReceiverOptions::default()
        };
        let receiver = client.receiver(&self.address, options).await?;
        let result = self.receive(&receiver).await;
        let detached = match self.durable {
            Some(_) => receiver.detach().await,
            None => receiver.close().await,
        };
        let (received, end) = result?;
        detached?;
        client.close().await?;
        self.judge(received, end)
    }

    /// Prints what comes until the end; how many messages that were.
    async fn receive(&self, receiver: &Receiver) -> Result<(u64, End), Failure> {
        let style = Style::of(self.json, self.verbose);
        let (mut received, mut granted, mut batch) = (0_u64, 0_u64, Vec::new());
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        while self.count.is_none_or(|count| received < count) {
            granted += self.top_up(receiver, received, granted)?;
            let next = receiver.recv_many(&mut batch, 256);
            tokio::select! {
                got = next => drop(got?),
                () = silence(self.timeout) => return Ok((received, End::Silence)),
                _ = &mut interrupted => return Ok((received, End::Interrupted)),
            }
            print_all(&batch, style)?;
            self.acknowledge(receiver, &batch)?;
            received += u64::try_from(batch.len()).unwrap_or(u64::MAX);
            batch.clear();
        }
        Ok((received, End::Complete))
    }

    /// With a count: gives credit for what is missing, `prefetch` ahead at the most.
    fn top_up(&self, receiver: &Receiver, received: u64, granted: u64) -> Result<u64, Failure> {
        let Some(count) = self.count else { return Ok(0) };
        let wanted = count.min(received.saturating_add(self.prefetch.into()));
        let more = u32::try_from(wanted.saturating_sub(granted)).unwrap_or(u32::MAX);
        if more > 0 && (wanted == count || more > self.prefetch / 2) {
            receiver.grant(more)?;
            return Ok(more.into());
        }
        Ok(0)
    }

    fn acknowledge(&self, receiver: &Receiver, batch: &[Delivery]) -> Result<(), Failure> {
        let Some(range) = range_of(batch) else { return Ok(()) };
        match self.ack {
            Ack::Accept => receiver.accept(range)?,
            Ack::Release => receiver.release(range)?,
            Ack::Reject => receiver.reject(range, None)?,
        }
        Ok(())
    }

    fn judge(&self, received: u64, end: End) -> Result<(), Failure> {
        match (self.count, end) {
            (Some(count), End::Silence) => {
                let what = format!("only {received} of {} came from {}", show::messages(count), self.address);
                Err(failed(what, "wait longer with --timeout, or look with `postroad browse`"))
            }
            _ => Ok(()),
        }
    }
}

/// Ends when nothing has come for `timeout`; never without one.
async fn silence(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// The numbers of deliveries that came one after another.
pub(super) fn range_of(batch: &[Delivery]) -> Option<RangeInclusive<u64>> {
    Some(batch.first()?.number..=batch.last()?.number)
}

/// Prints and flushes, so that nothing is acknowledged that was not shown.
pub(super) fn print_all(batch: &[Delivery], style: Style) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    batch.iter().try_for_each(|delivery| show::print(&mut out, delivery, style))?;
    out.flush()
}
