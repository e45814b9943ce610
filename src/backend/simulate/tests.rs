//! Schedules of many kernels run as their kernels do; and schedules that were changed do not.

mod launch;

use std::collections::BTreeMap;

use self::launch::Launch;
use super::Simulation;
use crate::backend::cpu::{Program, RunOptions};
use crate::backend::ptx::Scheduled;
use crate::backend::ptx::schedule::{Context, Schedule};
use crate::backend::ptx::tests::schedules::{each_schedule_of, kernels, mutants, roles_instead};
use crate::error::Result;
use crate::ir::BlockId;
use crate::sample::one_in;

/// Extremes, and two orders by chance.
const ORDERS: [u64; 5] = [0, 1, 2, 3, 4];

fn run(context: &Context<'_>, body: BlockId, schedule: &Schedule, launch: &Launch, orders: &[u64]) -> Result<()> {
    let scheduled = Scheduled { context, body, schedule, maps: Vec::new() };
    let memory = launch.memory();
    Simulation { scheduled: &scheduled }.check(launch.grid, &launch.params, &memory, orders)
}

/// Shows the schedules of kernels that do little, each with a launch.
fn each(mut look: impl FnMut(&str, &Context<'_>, BlockId, &Schedule, &Launch)) {
    let mut kernels = kernels();
    kernels.iter_mut().for_each(|(_, module, _)| launch::shorten(module));
    each_schedule_of(kernels, |name, context, body, schedule| {
        if let Some(launch) = Launch::of(context.module, body) {
            look(name, context, body, schedule, &launch);
        }
    });
}

#[test]
fn schedules_do_what_their_kernels_do() {
    let (mut number, mut count, mut streamed) = (0, 0, 0);
    let mut failed = Vec::new();
    each(|name, context, body, schedule, launch| {
        number += 1;
        if number % one_in(4) != 0 {
            return;
        }
        // What the interpreter does not run is no launch.
        let program = Program::compile(context.module).unwrap();
        if program.run(launch.grid, &launch.params, &launch.memory(), &RunOptions::default()).is_err() {
            return;
        }
        count += 1;
        streamed += usize::from(schedule.roles.is_some());
        if let Err(error) = run(context, body, schedule, launch, &ORDERS) {
            failed.push(format!("{name}: {error}\n{}", schedule.to_text(context.module)));
        }
    });
    assert!(failed.is_empty(), "{} of {count} schedules: {}", failed.len(), failed.join("\n"));
    assert!(count > 15 && streamed > 3, "{count} schedules, {streamed} of which stream");
}

/// Changes that no run can tell: of room and alignment, of sizes of pieces, of what is done too early or twice, of how code stands.
const ONLY_THE_CHECKER_SEES: &[&str] = &[
    "a stage is kept longer",
    "a stage is too small",
    "a strip gives what only stands inside",
    "a tile that is fetched is loaded",
    "a wait is done twice",
    "branches are called quiet",
    "more stages than fit",
    "pieces are larger than the tile",
    "pieces are of three slots",
];

#[test]
fn changed_schedules_do_something_else() {
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut missed: BTreeMap<&str, String> = BTreeMap::new();
    let mut number = 0;
    each(|name, context, body, schedule, launch| {
        if run(context, body, schedule, launch, &[0]).is_err() {
            return;
        }
        let steps = [false, true].into_iter().flat_map(|waits| mutants(context, schedule, waits));
        let changed = steps.chain(roles_instead(schedule));
        for (what, mutant) in changed {
            number += 1;
            if number % one_in(40) != 0 {
                continue;
            }
            let count = seen.entry(what).or_default();
            count[1] += 1;
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run(context, body, &mutant, launch, &[0, 1, 2, 3])
            }));
            match outcome {
                Ok(Err(_)) => count[0] += 1,
                Ok(Ok(())) => drop(missed.entry(what).or_insert_with(|| name.to_owned())),
                Err(_) => panic!("{name}: {what}: panics\n{}", mutant.to_text(context.module)),
            }
        }
    });
    for (what, [noticed, all]) in &seen {
        let example = missed.get(what).map_or("", String::as_str);
        println!("{what}: {noticed} of {all} noticed {example}");
    }
    for (what, [noticed, all]) in seen {
        assert!(noticed > 0 || all < 3 || ONLY_THE_CHECKER_SEES.contains(&what), "{what}: never noticed");
    }
}
