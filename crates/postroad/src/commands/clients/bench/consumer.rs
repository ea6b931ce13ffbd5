//! One consumer.

use std::sync::Arc;
use std::time::Duration;

use postroad_client::codec::performative::SenderSettleMode;
use postroad_client::{Client, Credit, Delivery, NodeKind, Receiver, ReceiverOptions};
use tokio::time::timeout;

use super::super::failure::Failure;
use super::super::receive::range_of;
use super::BenchArgs;
use super::payload;
use super::plan::Plan;
use super::tally::Tally;

/// How many deliveries are taken at once.
const BATCH: usize = 512;

/// How often a waiting consumer looks whether all is over.
const LOOK: Duration = Duration::from_millis(100);

/// How long after the last message was sent, and after the last one came, more are waited for.
const PATIENCE_NANOS: u64 = 10_000_000_000;

/// A receiving link with its connection.
#[derive(Debug)]
pub(super) struct Consumer {
    client: Client,
    receiver: Receiver,
}

impl Consumer {
    pub(super) async fn attach(args: &Arc<BenchArgs>, number: u32) -> Result<Self, Failure> {
        let client = args.client("consumer", number).await?;
        let settle_mode =
            if args.presettled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
        let options = ReceiverOptions {
            kind: args.topic.then_some(NodeKind::Topic),
            credit: Credit::Auto(args.credit),
            settle_mode,
            ..ReceiverOptions::default()
        };
        let receiver = client.receiver(&args.address_for(number), options).await?;
        Ok(Self { client, receiver })
    }

    /// Receives until everything that was sent is here, or nothing comes any more.
    pub(super) async fn run(self, plan: Arc<Plan>) -> Result<Tally, Failure> {
        let (mut tally, mut batch) = (Tally::default(), Vec::with_capacity(BATCH));
        // Since when all is sent and nothing came.
        let mut quiet_since = None;
        while !plan.is_aborted() {
            match timeout(LOOK, self.receiver.recv_many(&mut batch, BATCH)).await {
                Ok(Ok(_)) => quiet_since = None,
                Ok(Err(error)) => {
                    plan.abort();
                    return Err(error.into());
                }
                Err(_) if plan.is_complete() => break,
                Err(_) => {
                    let now = plan.now();
                    if plan.is_sent() && now > *quiet_since.get_or_insert(now) + PATIENCE_NANOS {
                        break;
                    }
                    continue;
                }
            }
            count(&plan, &batch, &mut tally);
            if let Some(range) = range_of(&batch).filter(|_| batch.iter().any(|delivery| !delivery.settled)) {
                self.receiver.accept(range)?;
            }
            batch.clear();
        }
        let _ = self.receiver.close().await;
        let _ = self.client.close().await;
        Ok(tally)
    }
}

fn count(plan: &Plan, batch: &[Delivery], tally: &mut Tally) {
    let (now, (from, to)) = (plan.now(), plan.measured());
    let mut mine = 0;
    for delivery in batch {
        let Some(due) = payload::due(plan.run, &delivery.payload) else {
            tally.strange += 1;
            continue;
        };
        mine += 1;
        if (from..to).contains(&due) {
            tally.record_latency(now.saturating_sub(due));
        }
    }
    tally.received_in_all += mine;
    tally.last_receipt = now;
    if (from..to).contains(&now) {
        tally.received += mine;
    }
    plan.add_received(mine);
}
