//! One producer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_client::codec::performative::SenderSettleMode;
use postroad_client::codec::state::Outcome;
use postroad_client::{Client, NodeKind, Outcomes, Sender, SenderOptions};
use tokio::time::{sleep_until, timeout};

use super::super::failure::Failure;
use super::BenchArgs;
use super::payload::Template;
use super::plan::Plan;
use super::tally::Tally;

/// How many messages are sent before others get a turn.
const BURST: u32 = 128;

/// How long the last confirms may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a producer that is too far ahead looks whether it still is.
const LOOK: Duration = Duration::from_millis(1);

/// The runtime's clock has a tick of a millisecond: what is left of a wait after this is waited for awake.
const TICK: Duration = Duration::from_millis(2);

/// Waits until a moment, much more exactly than the runtime's timers: a message that leaves late because of the load
/// program would count against the broker.
async fn wait_until(moment: Instant) {
    if let Some(early) = moment.checked_sub(TICK).filter(|early| *early > Instant::now()) {
        sleep_until(early.into()).await;
    }
    while Instant::now() < moment {
        tokio::task::yield_now().await;
    }
}

/// A sending link with its connection.
#[derive(Debug)]
pub(super) struct Producer {
    client: Client,
    sender: Sender,
    args: Arc<BenchArgs>,
    number: u32,
}

/// When the deliveries without an outcome were due.
#[derive(Debug, Default)]
struct Unconfirmed {
    first: u64,
    due: VecDeque<Option<u64>>,
}

impl Unconfirmed {
    fn push(&mut self, due: u64) {
        self.due.push_back(Some(due));
    }

    fn take(&mut self, number: u64) -> Option<u64> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let due = self.due.get_mut(at)?.take();
        while self.due.front() == Some(&None) {
            self.due.pop_front();
            self.first += 1;
        }
        due
    }
}

/// A producer at work.
struct Work {
    plan: Arc<Plan>,
    template: Template,
    unconfirmed: Unconfirmed,
    tally: Tally,
    /// Nanoseconds between two messages, and the time of the first, where a rate is given.
    schedule: Option<(f64, f64)>,
    presettled: bool,
    /// Messages still to be sent, at most.
    left: u64,
    /// Messages that all producers together may be ahead of the consumers.
    ahead: u64,
}

impl Producer {
    pub(super) async fn attach(args: &Arc<BenchArgs>, number: u32) -> Result<Self, Failure> {
        let client = args.client("producer", number).await?;
        let settle_mode =
            if args.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let options = SenderOptions {
            kind: args.topic.then_some(NodeKind::Topic),
            window: args.window,
            settle_mode,
            ..SenderOptions::default()
        };
        let sender = client.sender(&args.address_for(number), options).await?;
        Ok(Self { client, sender, args: Arc::clone(args), number })
    }

    /// Sends until the measured time is over, then waits for what is not confirmed.
    pub(super) async fn run(self, plan: Arc<Plan>) -> Result<Tally, Failure> {
        let result = self.produce(&plan).await;
        plan.producer_done();
        match result {
            Ok(tally) => {
                let _ = self.client.close().await;
                Ok(tally)
            }
            Err(failure) => {
                plan.abort();
                Err(failure)
            }
        }
    }

    async fn produce(&self, plan: &Arc<Plan>) -> Result<Tally, Failure> {
        let args = &self.args;
        let mut work = Work {
            template: Template::new(plan.run, args.size, !args.non_persistent, None),
            plan: Arc::clone(plan),
            unconfirmed: Unconfirmed::default(),
            tally: Tally::default(),
            schedule: args.rate.map(|rate| {
                let gap = 1e9 / rate;
                (gap * f64::from(args.producers), gap * f64::from(self.number))
            }),
            presettled: args.presettled,
            left: args.share(self.number),
            ahead: args.ahead.unwrap_or(u64::MAX),
        };
        sleep_until(plan.start_time().into()).await;
        let (_, end) = plan.measured();
        while plan.now() < end && work.left > 0 && !plan.is_aborted() {
            work.burst(&self.sender)?;
            self.pause(&mut work).await?;
        }
        while self.sender.open() > 0 {
            let Ok(outcomes) = timeout(PATIENCE, self.sender.outcomes()).await else { break };
            work.confirmed(&outcomes?);
        }
        self.sender.flush().await?;
        Ok(work.tally)
    }

    /// Lets others work; waits where there is nothing to do.
    async fn pause(&self, work: &mut Work) -> Result<(), Failure> {
        let end = self.args.warmup() + self.args.duration();
        let next = work.next_due().map_or(end, |due| Duration::from_nanos(due).min(end));
        let early = work.next_due().is_some() && work.plan.start_time().elapsed() < next;
        // Unrated or late: as soon as there is room. Else at its time.
        let until = work.plan.start_time() + if early { next } else { end };
        if work.room_ahead() == 0 {
            // Consumers are behind: no moment tells when they have caught up, so a tick of the clock has to do.
            tokio::time::sleep(LOOK).await;
            return Ok(());
        }
        tokio::select! {
            biased;
            outcomes = self.sender.outcomes(), if !work.presettled => work.confirmed(&outcomes?),
            room = self.sender.ready(), if !early => {
                room?;
                tokio::task::yield_now().await;
            }
            () = wait_until(until) => {}
        }
        Ok(())
    }
}

impl Work {
    /// When the next message is due; `None` when it may go at any time.
    fn next_due(&self) -> Option<u64> {
        let (gap, first) = self.schedule?;
        #[expect(clippy::cast_precision_loss, reason = "a count below 2^53 is exact")]
        let due = first + gap * self.tally.sent_in_all as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of a run")]
        Some(due as u64)
    }

    /// Sends what is due and has room, not too much at once.
    fn burst(&mut self, sender: &Sender) -> Result<(), Failure> {
        while let Some(outcomes) = sender.try_outcomes() {
            self.confirmed(&outcomes);
        }
        let (now, mut count) = (self.plan.now(), 0);
        for _ in 0..u64::from(BURST).min(self.left).min(self.room_ahead()) {
            let due = self.next_due().unwrap_or(now);
            if due > now || sender.try_send(&self.template.stamped(due), self.presettled)?.is_none() {
                break;
            }
            count += 1;
            self.tally.sent_in_all += 1;
            if !self.presettled {
                self.unconfirmed.push(due);
            }
        }
        self.left -= count;
        self.plan.add_sent(count);
        if self.presettled && self.is_measured(now) {
            self.tally.sent += count;
        }
        Ok(())
    }

    /// How many more messages may be sent before consumers have caught up.
    fn room_ahead(&self) -> u64 {
        let (sent, received) = self.plan.progress();
        self.ahead.saturating_sub(sent.saturating_sub(received))
    }

    fn is_measured(&self, time: u64) -> bool {
        let (from, to) = self.plan.measured();
        (from..to).contains(&time)
    }

    fn confirmed(&mut self, outcomes: &Outcomes) {
        let now = self.plan.now();
        self.tally.last_confirm = now;
        for number in outcomes.first..=outcomes.last {
            let Some(due) = self.unconfirmed.take(number) else { continue };
            if outcomes.outcome != Outcome::Accepted {
                self.tally.refused += 1;
                continue;
            }
            self.tally.sent += u64::from(self.is_measured(now));
            if self.is_measured(due) {
                self.tally.record_confirm(now.saturating_sub(due));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirms_find_their_times_in_any_order() {
        let mut unconfirmed = Unconfirmed::default();
        (10..15).for_each(|due| unconfirmed.push(due));
        assert_eq!(unconfirmed.take(1), Some(11));
        assert_eq!((unconfirmed.first, unconfirmed.take(1)), (0, None));
        assert_eq!(unconfirmed.take(0), Some(10));
        assert_eq!((unconfirmed.first, unconfirmed.due.len()), (2, 3));
        assert_eq!((unconfirmed.take(0), unconfirmed.take(99)), (None, None));
    }
}
