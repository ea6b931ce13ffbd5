//! Several paths between two stores: each event once, whenever the broker dies, and however late a path is (3.5).

use super::broker::Broker;
use super::script::{check, continue_with};
use postroad_record::{Ids, Record, decode_step};
use postroad_testkit::proves;

const DIAMOND: &str = "
    channel a
    channel b
    channel c
    channel d
    join a->b
    join a->c
    join b->d
    join c->d";

fn texts(first: u64, last: u64) -> String {
    (first..=last).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
}

/// Publishes through a diamond, lets `synced` steps reach the disk, and dies; whether there was more to sync.
fn dies_after(events: u64, synced: usize) -> bool {
    let mut broker = Broker::new();
    continue_with(&mut broker, DIAMOND);
    continue_with(&mut broker, "pause a->b\npause a->c");
    continue_with(&mut broker, &format!("publish a 1..{events}"));
    broker.auto_sync = false;
    continue_with(&mut broker, "sync off");
    broker.hasty = true;
    continue_with(&mut broker, "resume a->b\nresume a->c");
    broker.sync_some(synced);
    let more = !broker.unsynced.is_empty();
    broker.crash();
    (broker.auto_sync, broker.hasty) = (true, false);
    let all = texts(1, events);
    continue_with(
        &mut broker,
        &format!("sync on\nresume a->b\nresume a->c\nstored b = {all}\nstored c = {all}\nstored d = {all}"),
    );
    more
}

#[test]
fn whenever_the_broker_dies_each_event_arrives_once() {
    // Between the append and the settlement of any event: after each of the steps that there are.
    let mut synced = 0;
    while dies_after(250, synced) {
        synced += 1;
    }
    assert!(synced > 5, "only {synced} moments");
    for synced in [1, 7, 13] {
        dies_after(1_000, synced);
    }
    proves("joins:P4");
}

#[test]
fn a_path_that_is_very_late_adds_nothing() {
    // More events than a cache of the latest ones would hold, over the border of two blocks of 65,536 ids.
    let begin = DIAMOND.replace("channel a", "channel a first_event_id=64000");
    let mut broker = check(&format!("{begin}\npause a->c\npublish a 1..3000"));
    continue_with(&mut broker, "view d depth=3000\npurge d\nresume a->c\nview c depth=3000\nview d depth=0");
    continue_with(&mut broker, "view c->d duplicate_total=3000\ncrash\nview d depth=0");
    // What `d` remembers of them: a run in each of the two blocks.
    let mut known = Vec::new();
    broker.engine.snapshot(&mut |piece| {
        let records = decode_step(piece).unwrap();
        known.extend(records.into_iter().filter_map(|record| match record {
            Record::OriginsKnown { store, known, .. } => Some((store, known)),
            _ => None,
        }));
    });
    let d = broker.engine.channels["d"];
    let of_d: Vec<_> = known.into_iter().filter(|(store, _)| *store == d).collect();
    assert_eq!(of_d.len(), 1, "{of_d:?}");
    let known = &of_d[0].1;
    let runs: Vec<_> = known.blocks.iter().map(|block| (block.number, block.ids.clone())).collect();
    assert_eq!(known.full, []);
    assert_eq!(runs, [(0, Ids::Run(64_000, 65_535)), (1, Ids::Run(0, 1_463))]);
    proves("DUP-4");
}

#[test]
fn priority_does_not_reorder_a_join() {
    check(
        "channel a
         channel b
         queue q max_priority=0
         join a->b
         join a->q
         publish a 1{prio=1} 2{prio=9} 3{prio=4} 4{prio=9}
         stored b = 1..4
         stored q = 1..4",
    );
    proves("ORD-4");
}
