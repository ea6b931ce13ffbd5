//! `send` and `publish`.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use postroad_client::codec::message::{Body, Header, Message, MessageId, Properties};
use postroad_client::codec::state::Outcome;
use postroad_client::codec::value::Timestamp;
use postroad_client::codec::{AmqpError, Encode, Map, Symbol, Value};
use postroad_client::{NodeKind, Sender, SenderOptions};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::connect::ConnectArgs;
use super::failure::{Failure, failed, usage};
use super::{parse, show};

/// What to send, where and how often.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The queue, channel or topic.
    address: String,
    /// The text; `-` reads it from standard input.
    body: Option<String>,
    /// How many messages to send.
    #[arg(long, short = 'n', default_value_t = 1)]
    count: u64,
    /// Send bodies of this many bytes instead of a text.
    #[arg(long, value_name = "BYTES", conflicts_with = "body")]
    size: Option<usize>,
    /// With `-`: every line of standard input is a message.
    #[arg(long, conflicts_with = "count")]
    lines: bool,
    /// An application property; may be repeated. Numbers, true and false have that type, 'quoted' text is a string.
    #[arg(long, short = 'p', value_name = "KEY=VALUE", value_parser = parse::property)]
    property: Vec<(String, Value)>,
    /// The message survives a restart of the broker; this is the default.
    #[arg(long, overrides_with = "non_durable")]
    durable: bool,
    /// The message may be lost when the broker stops.
    #[arg(long, overrides_with = "durable")]
    non_durable: bool,
    /// How urgent the message is, 0 to 9.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// How long the message lives.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    ttl: Option<Duration>,
    /// The message id; with several messages, their number is appended.
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// What the message is about.
    #[arg(long)]
    subject: Option<String>,
    /// The address to answer to.
    #[arg(long, value_name = "ADDRESS")]
    reply_to: Option<String>,
    /// The id of the message that this one answers.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The MIME type of the body; the body is then sent as bytes.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Messages per second; as fast as possible without it.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How many messages may wait for the broker's answer.
    #[arg(long, default_value_t = 1000)]
    window: u32,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What became of the messages.
#[derive(Debug, Default)]
struct Tally {
    accepted: u64,
    rejected: u64,
    /// Released or modified: not taken, but not invalid either.
    returned: u64,
    /// The first reason for a rejection.
    reason: Option<AmqpError>,
}

impl Tally {
    fn add(&mut self, count: u64, outcome: Outcome) {
        match outcome {
            Outcome::Accepted => self.accepted += count,
            Outcome::Rejected { error } => {
                self.rejected += count;
                if self.reason.is_none() {
                    self.reason = error;
                }
            }
            _ => self.returned += count,
        }
    }

    const fn total(&self) -> u64 {
        self.accepted + self.rejected + self.returned
    }
}

impl SendArgs {
    pub(super) async fn run(self, kind: Option<NodeKind>) -> Result<(), Failure> {
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(usage("a rate of nothing sends nothing", "give --rate a number above 0"));
        }
        let mut bodies = self.bodies()?;
        let client = self.connect.connect().await?;
        let options = SenderOptions { kind, window: self.window, ..SenderOptions::default() };
        let sender = client.sender(&self.address, options).await?;
        let start = Instant::now();
        let mut tally = Tally::default();
        self.send_all(&sender, &mut bodies, &mut tally).await?;
        let seconds = start.elapsed().as_secs_f64();
        sender.close().await?;
        client.close().await?;
        self.report(&tally, seconds)
    }

    /// Sends everything, as many ahead as the window allows, and waits for all outcomes.
    async fn send_all(&self, sender: &Sender, bodies: &mut Bodies, tally: &mut Tally) -> Result<(), Failure> {
        let (start, mut sent, mut shown) = (Instant::now(), 0_u64, Instant::now());
        let mut next = bodies.next();
        while next.is_some() || tally.total() < sent {
            let due = self.due(start, sent);
            if let Some(body) = &next
                && due.is_none_or(|due| due <= Instant::now())
                && sender.try_send(&[self.message(body, sent).to_bytes()], false)?.is_some()
            {
                sent += 1;
                next = bodies.next();
                continue;
            }
            // Nothing may be sent: the window is full, or it is not time yet.
            let waits = next.is_some() && due.is_some_and(|due| due > Instant::now());
            tokio::select! {
                outcomes = sender.outcomes() => {
                    let outcomes = outcomes?;
                    tally.add(outcomes.last - outcomes.first + 1, outcomes.outcome);
                }
                ready = sender.ready(), if next.is_some() && !waits => drop(ready?),
                () = sleep_until(due.unwrap_or(start)), if waits => {}
            }
            self.progress(&mut shown, tally.total());
        }
        Ok(())
    }

    /// When message `number` is to be sent.
    fn due(&self, start: Instant, number: u64) -> Option<Instant> {
        #[expect(clippy::cast_precision_loss, reason = "a count below 2^53 is exact")]
        let offset = self.rate.map(|rate| number as f64 / rate)?;
        start.checked_add(Duration::try_from_secs_f64(offset).ok()?)
    }

    fn progress(&self, shown: &mut Instant, done: u64) {
        if self.json || shown.elapsed() < Duration::from_secs(1) || !io::stderr().is_terminal() {
            return;
        }
        *shown = Instant::now();
        let _ = write!(io::stderr(), "\r{done} of {} sent ", self.count);
    }

    fn bodies(&self) -> Result<Bodies, Failure> {
        let one = |body: Bytes| Bodies { left: self.count, body, lines: VecDeque::new() };
        if let Some(size) = self.size {
            return Ok(one(vec![b'x'; size].into()));
        }
        let Some(text) = self.body.clone() else {
            if self.lines {
                return Err(usage("--lines needs a body", "write `-` for the body"));
            }
            return Ok(one(Bytes::new()));
        };
        if text != "-" {
            return Ok(one(text.into_bytes().into()));
        }
        let mut input = Vec::new();
        io::stdin().read_to_end(&mut input)?;
        if !self.lines {
            return Ok(one(input.into()));
        }
        let lines = input.split(|byte| *byte == b'\n').map(Bytes::copy_from_slice);
        let mut lines: VecDeque<_> = lines.collect();
        if lines.back().is_some_and(Bytes::is_empty) {
            lines.pop_back();
        }
        Ok(Bodies { left: 0, body: Bytes::new(), lines })
    }

    fn message(&self, body: &Bytes, number: u64) -> Message {
        let header = Header {
            durable: !self.non_durable,
            priority: self.priority.unwrap_or(Header::DEFAULT_PRIORITY),
            ttl: self.ttl.map(|ttl| u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX)),
            ..Header::default()
        };
        let mut properties = Map::new();
        self.property.iter().for_each(|(key, value)| properties.insert(key.as_str(), value.clone()));
        Message {
            header: Some(header),
            properties: Some(self.properties(number)),
            application_properties: Some(properties).filter(|properties| !properties.is_empty()),
            body: self.body_of(body),
            ..Message::default()
        }
    }

    /// Text as a value, as other clients send text; bytes as data.
    fn body_of(&self, body: &Bytes) -> Body {
        match std::str::from_utf8(body) {
            Ok(text) if self.content_type.is_none() && self.size.is_none() => Body::Value(text.into()),
            _ => Body::Data(vec![body.clone()]),
        }
    }

    fn properties(&self, number: u64) -> Properties {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let one = self.count == 1 && !self.lines;
        let id = self.message_id.as_ref().map(|id| if one { id.clone() } else { format!("{id}-{number}") });
        Properties {
            message_id: id.map(MessageId::String),
            subject: self.subject.clone(),
            reply_to: self.reply_to.clone(),
            correlation_id: self.correlation_id.clone().map(MessageId::String),
            content_type: self.content_type.as_deref().and_then(|kind| Symbol::new(kind).ok()),
            creation_time: Some(Timestamp(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))),
            ..Properties::default()
        }
    }

    fn report(&self, tally: &Tally, seconds: f64) -> Result<(), Failure> {
        let fields = json!({
            "address": self.address, "broker": self.connect.broker(), "accepted": tally.accepted,
            "rejected": tally.rejected, "returned": tally.returned, "seconds": seconds,
        });
        let text = format!("sent {} to {} in {seconds:.3} s", show::messages(tally.accepted), self.address);
        if self.json || tally.accepted == tally.total() {
            show::summary(&mut io::stdout().lock(), self.json, &fields, &text)?;
        }
        if tally.accepted == tally.total() {
            return Ok(());
        }
        let reason = tally.reason.as_ref().map_or_else(
            || "the broker gave them back".to_owned(),
            |error| error.description.clone().unwrap_or_else(|| error.condition.as_str().to_owned()),
        );
        let (all, refused) = (show::messages(tally.total()), tally.total() - tally.accepted);
        let what = format!("{refused} of {all} not taken by {}: {reason}", self.address);
        Err(failed(what, "correct what the broker names, and send again what was not taken"))
    }
}

/// What is still to be sent.
#[derive(Debug)]
struct Bodies {
    left: u64,
    body: Bytes,
    lines: VecDeque<Bytes>,
}

impl Bodies {
    fn next(&mut self) -> Option<Bytes> {
        if let Some(line) = self.lines.pop_front() {
            return Some(line);
        }
        self.left = self.left.checked_sub(1)?;
        Some(self.body.clone())
    }
}
