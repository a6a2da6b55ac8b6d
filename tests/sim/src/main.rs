//! The command line of the simulator.
//!
//! Invariants:
//! - The exit code is 0 only if all seeds ran and passed. It is 2 for arguments that it does not understand, and 1
//!   otherwise.
//! - The last line says how many seeds passed and failed. The output depends only on the seeds, not on the threads.

use semel_sim::{Failure, Mutant, Plan, be_quiet, run, shrink, trace};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// The machines that run this have so many cores.
const THREADS: u64 = 2;
/// Only this many of a trace's last lines are printed.
const TRACE_LINES_MAX: usize = 120;

const USAGE: &str = "usage: npm run sim -- [--seeds N] [--from S] [--mutant NAME | --list-mutants]";

struct Arguments {
    seeds: u64,
    from: u64,
    mutant: Option<Mutant>,
    lists_mutants: bool,
}

fn main() -> ExitCode {
    match arguments() {
        Ok(Arguments { lists_mutants: true, .. }) => {
            Mutant::all().for_each(|mutant| say(mutant.name()));
            ExitCode::SUCCESS
        }
        Ok(arguments) => simulate(&arguments),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::*;
    let mut arguments = Arguments { seeds: 500, from: 0, mutant: None, lists_mutants: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seeds") => arguments.seeds = parser.value()?.parse()?,
            Long("from") => arguments.from = parser.value()?.parse()?,
            Long("mutant") => {
                let name = parser.value()?.string()?;
                let mutant = Mutant::named(&name).ok_or_else(|| format!("there is no mutant {name:?}"))?;
                arguments.mutant = Some(mutant);
            }
            Long("list-mutants") => arguments.lists_mutants = true,
            other => return Err(other.unexpected()),
        }
    }
    if arguments.seeds < 1 || arguments.from.checked_add(arguments.seeds).is_none() {
        return Err("--seeds must be at least 1, and the last seed a number of 64 bits".into());
    }
    if arguments.lists_mutants && arguments.mutant.is_some() {
        return Err("--mutant and --list-mutants don't go together".into());
    }
    Ok(arguments)
}

fn simulate(arguments: &Arguments) -> ExitCode {
    be_quiet();
    let &Arguments { seeds, from, mutant, .. } = arguments;
    let end = from + seeds;
    let (next, (sender, results)) = (AtomicU64::new(from), mpsc::channel());
    let (mut passed, mut failed) = (0, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send((seed, run(&Plan::of(seed), mutant).err())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, failure) in in_order(from, results) {
            match failure {
                None => passed += 1,
                Some(failure) => failed.push((seed, failure)),
            }
            // For a mutant, the first failure is enough.
            if mutant.is_some() && !failed.is_empty() {
                next.store(end, Ordering::Relaxed);
                break;
            }
        }
    });
    for (n, (seed, failure)) in failed.iter().enumerate() {
        match mutant {
            Some(mutant) => {
                say(format!("{} is found out by seed {seed}: {}: {}", mutant.name(), failure.kind, failure.what))
            }
            None => say(format!("seed {seed}: {}: {}", failure.kind, failure.what)),
        }
        if n == 0 {
            explain(*seed, mutant, failure);
        }
    }
    say(format!("seeds {from}..{end}: {passed} passed, {} failed", failed.len()));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the results in the order of their seeds.
fn in_order(
    from: u64,
    results: mpsc::Receiver<(u64, Option<Failure>)>,
) -> impl Iterator<Item = (u64, Option<Failure>)> {
    let (mut next, mut early) = (from, BTreeMap::new());
    std::iter::from_fn(move || {
        loop {
            if let Some(failure) = early.remove(&next) {
                next += 1;
                return Some((next - 1, failure));
            }
            let (seed, failure) = results.recv().ok()?;
            early.insert(seed, failure);
        }
    })
}

/// Prints how a seed failed, in a run that is as small as can be found.
fn explain(seed: u64, mutant: Option<Mutant>, failure: &Failure) {
    let (plan, smallest) = shrink::shrink(&Plan::of(seed), mutant, failure.clone());
    say(format!("a smaller run fails as well: {}\n{plan:#?}", smallest.what));
    let lines = trace(&plan, mutant);
    for line in lines.iter().skip(lines.len().saturating_sub(TRACE_LINES_MAX)) {
        say(line);
    }
    let with = mutant.map_or(String::new(), |mutant| format!(" --mutant {}", mutant.name()));
    say(format!("again: npm run sim -- --seeds 1 --from {seed}{with}"));
}

/// Prints a line. If the reader has left, having seen enough, the exit code still tells the result.
fn say(line: impl Display) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
