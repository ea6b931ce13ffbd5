//! Runs the simulator from the command line: `postroad-sim [--seed N] [--operations N] [--runs N]`.
#![allow(clippy::print_stdout, reason = "a command talks to its user on standard output")]

use postroad_sim::broker::Sabotage;
use postroad_sim::run::{Outcome, Plan, run};
use std::process::ExitCode;

const USAGE: &str = "\
usage: postroad-sim [--seed N] [--operations N] [--runs N] [--twin] [--keep-going] [--trace N] [--sabotage early|mark]

  --seed N         the first seed (default 1); each further run takes the next one
  --operations N   operations of a run (default 2000)
  --runs N         runs (default 1)
  --twin           every run twice: both must see the same
  --keep-going     go on after a violation
  --trace N        lines of the trace to show for a violation (default 60)
  --sabotage BUG   put a bug back on purpose, to see it found
";

struct Arguments {
    seed: u64,
    operations: u64,
    runs: u64,
    twin: bool,
    keep_going: bool,
    sabotage: Sabotage,
    trace: usize,
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprint!("{text}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut total = [0_u64; 9];
    let mut broken = 0_u64;
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.runs) {
        let plan = Plan {
            seed,
            operations: arguments.operations,
            sabotage: arguments.sabotage,
            calm: false,
            trace: arguments.trace,
        };
        let outcome = run(&plan);
        let tally = outcome.tally;
        let numbers = [
            tally.operations,
            tally.crashes,
            tally.stops,
            tally.damages,
            tally.confirmed,
            tally.delivered,
            tally.steps,
            tally.checkpoints,
            tally.restores,
        ];
        total.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        let same = !arguments.twin || run(&plan).digest == outcome.digest;
        if outcome.violation.is_some() || !same {
            tell(seed, &outcome, same);
            broken += 1;
            if !arguments.keep_going {
                break;
            }
        }
    }
    let [operations, crashes, stops, damages, confirmed, delivered, steps, checkpoints, restores] = total;
    println!(
        "{operations} operations, {crashes} crashes, {stops} clean stops, {checkpoints} starts at a checkpoint, {restores} on \
         another folder, {damages} damages reported, {confirmed} durable \
         messages confirmed, {delivered} deliveries, {steps} steps, {broken} violations"
    );
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(seed: u64, outcome: &Outcome, same: bool) {
    if let Some((violation, trace)) = &outcome.violation {
        for line in trace {
            println!("{line}");
        }
        println!(
            "seed {seed}: VIOLATION of '{}' after {} operations: {}",
            violation.rule, outcome.tally.operations, violation.text
        );
    }
    if !same {
        println!("seed {seed}: VIOLATION of 'twin run': the same seed gave another run");
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seed: 1,
        operations: 2_000,
        runs: 1,
        twin: false,
        keep_going: false,
        sabotage: Sabotage::None,
        trace: 60,
    };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().unwrap_or_default();
            value.parse::<u64>().map_err(|_| format!("{word} takes a number, not '{value}'"))
        };
        match word.as_str() {
            "--seed" => arguments.seed = number()?,
            "--operations" => arguments.operations = number()?,
            "--runs" => arguments.runs = number()?,
            "--trace" => arguments.trace = usize::try_from(number()?).unwrap_or(60),
            "--twin" => arguments.twin = true,
            "--keep-going" => arguments.keep_going = true,
            "--sabotage" => {
                arguments.sabotage = match words.next().as_deref() {
                    Some("early") => Sabotage::EarlyEffects,
                    Some("mark") => Sabotage::NoSentMark,
                    other => return Err(format!("there is no sabotage {other:?}")),
                }
            }
            other => return Err(format!("there is no option {other}")),
        }
    }
    Ok(arguments)
}
