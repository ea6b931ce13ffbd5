//! The result, for people and programs.

use std::io::{self, Write};

use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};

use super::super::failure::{Failure, failed};
use super::BenchArgs;
use super::payload;
use super::process::Usage;
use super::tally::Tally;

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
const fn real(count: u64) -> f64 {
    count as f64
}

/// Prints the result; a failure when messages are missing or were refused.
pub(super) fn report(args: &BenchArgs, tally: &Tally, usage: &Usage) -> Result<(), Failure> {
    let result = Figures::new(args, tally, usage);
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", result.to_json())?;
    } else {
        result.print(&mut out)?;
    }
    if tally.refused > 0 {
        let what = format!("{} messages were not accepted", tally.refused);
        return Err(failed(what, "look at the broker's limits: messages were refused or given back"));
    }
    match result.missing {
        0 => Ok(()),
        missing => {
            let what = format!("{missing} messages had not come when nothing had come for 10 seconds");
            Err(failed(what, "look whether other consumers took them, or the broker fell behind"))
        }
    }
}

/// Figures from counts.
struct Figures<'a> {
    args: &'a BenchArgs,
    tally: &'a Tally,
    usage: &'a Usage,
    seconds: f64,
    /// Messages that count for the CPU time: received ones, or sent ones where nobody receives.
    messages: u64,
    missing: u64,
}

impl<'a> Figures<'a> {
    fn new(args: &'a BenchArgs, tally: &'a Tally, usage: &'a Usage) -> Self {
        let copies = match (args.consumers, args.topic) {
            (0, _) => 0,
            (consumers, true) => u64::from(consumers / args.addresses),
            (_, false) => 1,
        };
        let expected = (tally.sent_in_all - tally.refused.min(tally.sent_in_all)) * copies;
        Self {
            args,
            tally,
            usage,
            seconds: match args.messages {
                None => args.duration.as_secs_f64(),
                Some(_) => real(tally.last_confirm.max(tally.last_receipt)) / 1e9,
            },
            messages: if args.consumers > 0 { tally.received } else { tally.sent },
            missing: expected.saturating_sub(tally.received_in_all),
        }
    }

    fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { real(count) / self.seconds } else { 0.0 }
    }

    fn cpu_per_message(&self, seconds: Option<f64>) -> Option<f64> {
        Some(seconds? * 1e6 / real(self.messages.max(1)))
    }

    fn to_json(&self) -> Json {
        let args = self.args;
        json!({
            "broker": args.connect.broker(), "address": args.address, "topic": args.topic,
            "addresses": args.addresses, "producers": args.producers, "consumers": args.consumers,
            "size": args.size, "persistent": !args.non_persistent, "presettled": args.presettled, "excess_credit": args.excess_credit, "ahead": args.ahead,
            "window": args.window, "credit": args.credit, "target_rate": args.rate, "threads": args.threads,
            "seconds": self.seconds,
            "sent": self.tally.sent, "received": self.tally.received,
            "sent_per_second": self.rate(self.tally.sent),
            "received_per_second": self.rate(self.tally.received),
            "refused": self.tally.refused, "missing": self.missing, "of_older_runs": self.tally.strange,
            "latency_us": percentiles(&self.tally.latency), "confirm_us": percentiles(&self.tally.confirm),
            "broker_cpu_us_per_message": self.cpu_per_message(self.usage.broker),
            "broker_cores": self.cores(self.usage.broker),
            "load_cpu_us_per_message": self.cpu_per_message(self.usage.own),
            "load_cores": self.cores(self.usage.own),
            "broker_bytes_written": self.usage.written, "bytes_written_per_byte_sent": self.written_per_sent(),
            "idle": args.idle,
            "broker_memory": {
                "before": self.usage.memory.before, "attached": self.usage.memory.attached,
                "after": self.usage.memory.after,
            },
        })
    }

    /// What the broker wrote to disk for each byte of the messages that it confirmed.
    fn written_per_sent(&self) -> Option<f64> {
        let sent = self.tally.sent * payload::encoded_len(self.args.size) as u64;
        Some(real(self.usage.written?) / real(sent)).filter(|ratio| ratio.is_finite())
    }

    fn cores(&self, seconds: Option<f64>) -> Option<f64> {
        Some(seconds? / self.usage.seconds).filter(|cores| cores.is_finite())
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let args = self.args;
        let kind = if args.non_persistent { "non-persistent" } else { "persistent" };
        let settled = if args.presettled { ", settled" } else { "" };
        writeln!(
            out,
            "{} producers, {} consumers, {} bytes, {kind}{settled}, {:.0} s at {}",
            args.producers,
            args.consumers,
            args.size,
            self.seconds,
            args.connect.broker()
        )?;
        writeln!(out, "  sent      {:>10.0} msg/s", self.rate(self.tally.sent))?;
        writeln!(out, "  received  {:>10.0} msg/s", self.rate(self.tally.received))?;
        print_latency(out, "latency", &self.tally.latency)?;
        print_latency(out, "confirm", &self.tally.confirm)?;
        for (name, seconds) in [("broker", self.usage.broker), ("load", self.usage.own)] {
            if let (Some(micros), Some(cores)) = (self.cpu_per_message(seconds), self.cores(seconds)) {
                writeln!(out, "  CPU {name:<6}{micros:>9.2} us per message, {cores:.2} cores")?;
            }
        }
        if let Some(ratio) = self.written_per_sent() {
            writeln!(out, "  disk      {ratio:>10.2} bytes written by the broker per byte sent")?;
        }
        if let (Some(before), Some(after)) = (self.usage.memory.before, self.usage.memory.after) {
            let mib = |bytes: u64| real(bytes) / f64::from(1 << 20);
            writeln!(out, "  memory    {:>10.1} MiB before, {:.1} MiB at the end", mib(before), mib(after))?;
        }
        if self.tally.strange > 0 {
            writeln!(out, "  {} messages of older runs were received too", self.tally.strange)?;
        }
        Ok(())
    }
}

fn micros(nanos: u64) -> f64 {
    real(nanos) / 1000.0
}

fn percentiles(histogram: &Histogram<u64>) -> Json {
    if histogram.is_empty() {
        return Json::Null;
    }
    let at = |percentile| micros(histogram.value_at_percentile(percentile));
    json!({
        "p50": at(50.0), "p90": at(90.0), "p99": at(99.0), "p99.9": at(99.9), "max": micros(histogram.max()),
        "mean": histogram.mean() / 1000.0,
    })
}

fn print_latency(out: &mut impl Write, name: &str, histogram: &Histogram<u64>) -> io::Result<()> {
    if histogram.is_empty() {
        return Ok(());
    }
    let at = |percentile| micros(histogram.value_at_percentile(percentile)) / 1000.0;
    let max = micros(histogram.max()) / 1000.0;
    writeln!(
        out,
        "  {name}   p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, max {max:.2} ms",
        at(50.0),
        at(99.0),
        at(99.9)
    )
}
