//! A run from a seed: chaos, then healing; and the same run again, to see that it is the same.

use crate::broker::{Input, Sabotage};
use crate::catalogue::Catalogue;
use crate::check::Violation;
use crate::world::{Tally, World};
use crate::{faults, healing, workload};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Clients of a run.
const SEATS: usize = 5;

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed; everything follows from it.
    pub seed: u64,
    /// Operations of clients and operators before healing begins.
    pub operations: u64,
    /// A bug that is put back on purpose.
    pub sabotage: Sabotage,
    /// Nothing goes wrong.
    pub calm: bool,
    /// Lines of the trace that are shown for a broken promise.
    pub trace: usize,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Numbers.
    pub tally: Tally,
    /// A digest of everything that was seen.
    pub digest: u64,
    /// The first broken promise, with the end of the trace.
    pub violation: Option<(Violation, Vec<String>)>,
}

/// Runs a plan. A run that breaks a promise is run again with a trace.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let outcome = guarded(plan, 0);
    if outcome.violation.is_none() { outcome } else { guarded(plan, plan.trace) }
}

/// A run in which a panic is a broken promise as well.
fn guarded(plan: &Plan, trace: usize) -> Outcome {
    let mut world = None;
    let result = catch_unwind(AssertUnwindSafe(|| attempt(plan, trace, &mut world)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(Violation::new("no panic", text.unwrap_or_default()))
    });
    let (mut tally, mut digest, mut lines) = (Tally::default(), 0, Vec::new());
    if let Some(world) = &world {
        (tally, digest, lines) = (world.tally, world.digest, world.trace());
        tally.delivered = world.shadow.delivered;
        tally.repeated = world.shadow.repeated;
    }
    Outcome { tally, digest, violation: result.err().map(|violation| (violation, lines)) }
}

fn attempt(plan: &Plan, trace: usize, place: &mut Option<World>) -> Result<(), Violation> {
    let world = place.insert(World::new(plan.seed, SEATS, plan.sabotage, trace)?);
    let mut names = Catalogue::default();
    chaos(plan, world, &mut names)?;
    healing::heal(world)
}

fn chaos(plan: &Plan, world: &mut World, names: &mut Catalogue) -> Result<(), Violation> {
    define(world, names);
    while world.tally.operations < plan.operations {
        match world.random.below(100) {
            0..=34 => workload::operate(world, names),
            35..=64 => {
                let seat = world.random.index(world.seats.len());
                world.carry(seat)?;
            }
            65..=84 => {
                let (inputs, tasks) = (world.random.index(6), world.random.index(20));
                world.turn(inputs, tasks)?;
            }
            85..=95 => {
                world.disk_work()?;
            }
            96..=98 => {
                let ms =
                    if world.random.one_in(20) { world.random.below(2_000) } else { world.random.below(20) };
                world.now.mono += ms;
                world.now.wall += ms;
            }
            _ if !plan.calm && world.random.one_in(4) => faults::strike(world)?,
            _ => {}
        }
    }
    Ok(())
}

/// What there is at the beginning.
fn define(world: &mut World, names: &mut Catalogue) {
    let mut requests = names.special();
    for _ in 0..world.random.range(2, 4) {
        requests.push(names.queue(&mut world.random));
    }
    for _ in 0..world.random.range(2, 6) {
        requests.push(names.channel(&mut world.random));
    }
    for _ in 0..world.random.range(0, 9) {
        requests.extend(names.join(&mut world.random));
    }
    for _ in 0..world.random.range(0, 4) {
        requests.extend(names.object(&mut world.random));
    }
    if let Some(broker) = &mut world.broker {
        requests.into_iter().for_each(|request| broker.push(Input::Admin(Box::new(request))));
    }
}
