//! Short runs with fixed seeds; long ones are `cargo xtask sim`.

use crate::broker::Sabotage;
use crate::run::{Plan, run};

const PLAN: Plan = Plan { seed: 1, operations: 400, sabotage: Sabotage::None, calm: false, trace: 60 };

/// Runs this history; a promise that is broken in it fails the test, with its trace.
#[track_caller]
fn keeps_its_promises(seed: u64, operations: u64) {
    if let Some((violation, trace)) = run(&Plan { seed, operations, ..PLAN }).violation {
        panic!("seed {seed}: {violation}\n{}", trace.join("\n"));
    }
}

#[test]
fn no_promise_is_broken() {
    for seed in 1..=8 {
        keeps_its_promises(seed, PLAN.operations);
    }
}

/// An idle broker moved stragglers and wrote checkpoints for ever, each of which made the other due.
#[test]
fn what_was_moved_is_not_moved_again_and_again() {
    for (seed, operations) in [(3_006_411, 600), (3_008_575, 600), (50_000_270, 2_000)] {
        keeps_its_promises(seed, operations);
    }
}

/// The segment behind a clean stop was passed over where its header was damaged, with what was durable in it.
#[test]
fn a_damaged_header_behind_a_clean_stop_is_reported() {
    keeps_its_promises(700_199, 1_500);
}

/// A store was given more time to live just when a subscriber had passed what had none left.
#[test]
fn what_had_expired_for_a_subscriber_is_needed_no_more() {
    keeps_its_promises(700_175, 1_500);
}

/// An event that became due kept a message-id that its store did not recognise any more.
#[test]
fn what_becomes_due_is_as_if_it_were_published_then() {
    keeps_its_promises(700_094, 1_500);
}

/// A broker that starts on a full disk has no place for the note that what it read back is synced.
#[test]
fn damage_is_not_looked_for_where_it_looks_like_a_torn_tail() {
    keeps_its_promises(700_006, 1_500);
}

/// A purge counted what became due under it only in memory.
#[test]
fn what_a_purge_takes_when_it_is_due_is_counted_on_disk() {
    keeps_its_promises(40_001_521, 1_000);
}

/// A join had one filter, another, and the first again, and a crash took the events that the second was for.
#[test]
fn a_filter_that_came_back_is_in_a_checkpoint_once() {
    keeps_its_promises(80_002_810, 2_000);
}

/// What was under way to a consumer whose object was taken over may come after the next one has acknowledged it.
#[test]
fn a_first_attempt_may_come_late() {
    keeps_its_promises(80_004_364, 1_400);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let plan = Plan { seed: 99, ..PLAN };
    assert_eq!(run(&plan).digest, run(&plan).digest);
}

/// Bugs that are put back on purpose are found, and soon: else all the silence above means nothing.
#[test]
fn what_is_sabotaged_is_found() {
    let rule_of = |sabotage: Sabotage| {
        let plans = (1..=20).map(|seed| Plan { seed, sabotage, ..PLAN });
        let found = plans.filter_map(|plan| run(&plan).violation).map(|(violation, _)| violation.rule).next();
        found.unwrap_or("nothing")
    };
    assert!(rule_of(Sabotage::EarlyEffects).ends_with("is durable"));
    assert_ne!(rule_of(Sabotage::NoSentMark), "nothing");
}
