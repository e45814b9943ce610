//! Simulated schedules of many kernels have the results of the interpreter; mutated schedules have
//! faults.

mod explored;
mod launch;

use std::collections::BTreeMap;

use self::launch::Launch;
use super::ScheduleSimulator;
use super::warp::warp_groups;
use crate::backend::cpu::{Program, RunOptions};
use crate::backend::ptx::schedule::{KernelInfo, Schedule};
use crate::backend::ptx::tests::schedules::{each_schedule_of, kernels, mutants, roles_instead};
use crate::backend::ptx::tests::sync::{barriers, mma_order, mma_waits};
use crate::backend::ptx::tests::{data_partition, matmul, optimizations};
use crate::backend::ptx::{CompileOptions, OptimizationSet, Scheduled};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{BlockId, Module};

/// Extremes and two random orders.
const ORDERS: [u64; 5] = [0, 1, 2, 3, 4];

fn run(info: &KernelInfo<'_>, body: BlockId, schedule: &Schedule, launch: &Launch, orders: &[u64]) -> Result<()> {
    let scheduled = Scheduled { context: info, body, schedule, maps: Vec::new() };
    let memory = launch.memory();
    ScheduleSimulator { scheduled: &scheduled }.check(launch.grid, &launch.params, &memory, orders)
}

/// Returns the sampling interval of schedules: `CUTLET_SCHEDULES` as in the suite, else `usual`.
fn every(usual: usize) -> usize {
    let wish = std::env::var("CUTLET_SCHEDULES").ok().and_then(|text| text.parse().ok());
    wish.unwrap_or(usual).max(1)
}

type Kernels = Vec<(String, Module, CompileOptions)>;

/// Calls `look` with the schedules of kernels with short loops, each with a launch.
fn each(mut kernels: Kernels, mut look: impl FnMut(&str, &KernelInfo<'_>, BlockId, &Schedule, &Launch)) {
    kernels.iter_mut().for_each(|(_, module, _)| launch::shorten(module));
    each_schedule_of(kernels, |name, info, body, schedule| {
        if let Some(launch) = Launch::find(info.module, body) {
            look(name, info, body, schedule, &launch);
        }
    });
}

#[test]
fn schedules_equal_their_kernels() {
    let (mut count, mut streamed) = (0, 0);
    let mut failed = Vec::new();
    let sample = kernels().into_iter().step_by(every(15)).collect();
    each(sample, |name, info, body, schedule, launch| {
        // A kernel that the interpreter rejects has no launch.
        let program = Program::compile(info.module).unwrap();
        if program.run(launch.grid, &launch.params, &launch.memory(), &RunOptions::default()).is_err() {
            return;
        }
        count += 1;
        streamed += usize::from(schedule.warp_spec.is_some());
        if let Err(error) = run(info, body, schedule, launch, &ORDERS) {
            failed.push(format!("{name}: {error}\n{}", schedule.to_text(info.module)));
        }
    });
    assert!(failed.is_empty(), "{} of {count} schedules: {}", failed.len(), failed.join("\n"));
    assert!(count > 6 && streamed > 0, "{count} schedules, {streamed} of which stream");
}

/// For each optimization the schedule of a kernel whose code it changes.
#[test]
fn schedules_without_an_optimization_equal_their_kernels() {
    let (all, mut kernels) = (optimizations::all(), Kernels::new());
    for &(optimization, name) in optimizations::CHANGED.iter().step_by(every(20)) {
        let (name, module, options) = all.iter().find(|(kernel, ..)| kernel == name).unwrap();
        let optimizations = OptimizationSet::ALL.without(optimization);
        let options = CompileOptions { optimizations, ..*options };
        kernels.push((format!("{name} without {}", optimization.key()), module.clone(), options));
    }
    let (mut count, mut failed) = (0, Vec::new());
    each(kernels, |name, info, body, schedule, launch| {
        let program = Program::compile(info.module).unwrap();
        let runs = program.run(launch.grid, &launch.params, &launch.memory(), &RunOptions::default()).is_ok();
        count += usize::from(runs);
        if let Some(error) = run(info, body, schedule, launch, &ORDERS).err().filter(|_| runs) {
            failed.push(format!("{name}: {error}\n{}", schedule.to_text(info.module)));
        }
    });
    assert!(failed.is_empty(), "{} of {count} schedules: {}", failed.len(), failed.join("\n"));
    assert!(count > 0);
}

#[test]
fn data_partitions_together_equal_the_whole_kernel() {
    let mut plain = matmul(DType::F16, DType::F32, [192, 64, 32]);
    let mut whole = data_partition::whole(192);
    for module in [&mut plain, &mut whole] {
        launch::shorten(module);
        let divided = crate::pass::data_partition::run(module, 3).unwrap();
        let launch = Launch::find(module, module.entries[0].body).unwrap();
        let after = |module: &Module| {
            let memory = launch.memory();
            let program = Program::compile(module).unwrap();
            program.run(launch.grid, &launch.params, &memory, &RunOptions::default()).unwrap();
            memory.contents()
        };
        let before = launch.memory().contents();
        let (wanted, found) = (after(module), after(&divided));
        assert!(wanted != before && wanted == found, "{divided}");
    }
}

/// Returns schedules without one order wait or order arrive each.
fn without_order_barriers(schedule: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            if step.order_point().is_some() {
                let mut changed = schedule.clone();
                changed.sequences[body].remove(at);
                all.push(changed);
            }
        }
    }
    all
}

#[test]
fn groups_execute_separately_in_their_order() {
    let mut changes = 0;
    each(mma_order::kernels(), |name, info, body, schedule, launch| {
        assert_eq!(schedule.has_named_order_barriers(), name.ends_with("sm_90a"), "{name}");
        if !schedule.has_named_order_barriers() {
            return;
        }
        assert_eq!(warp_groups::count(info, body, schedule), 2, "{name}");
        run(info, body, schedule, launch, &ORDERS).unwrap();
        for mutant in without_order_barriers(schedule) {
            changes += 1;
            run(info, body, &mutant, launch, &ORDERS).unwrap_err();
        }
    });
    assert_eq!(changes, 4);
}

/// Mutations without an effect in a simulation. Threads of one partition are simulated as one.
/// Sizes, alignment, early or repeated operations and the order of code have no effect. Rows are
/// irrelevant with one panel.
const ONLY_THE_CHECKER_SEES: &[&str] = &[
    "a panel has other rows",
    "a stage is kept longer",
    "a stage is too small",
    "an inner tile is a live-out",
    "a tile that is fetched is loaded",
    "a wait is done twice",
    "branches are called quiet",
    "more stages than fit",
    "pieces are larger than the tile",
    "pieces are of three slots",
    "no barrier at the head",
];

/// Mutations with one instance for each step.
const MANY: &[&str] = &["a step is dropped", "a step is done twice", "a step follows its use", "nothing is done"];

#[test]
fn changed_schedules_do_something_else() {
    let small = matmul(DType::F16, DType::F32, [64, 64, 32]);
    let few = vec![("product".to_owned(), small, CompileOptions::default())];
    let (kernels, some) = if every(2) == 1 { (kernels(), 1) } else { (few, 5) };
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut missed: BTreeMap<&str, String> = BTreeMap::new();
    each(kernels, |name, info, body, schedule, launch| {
        if run(info, body, schedule, launch, &[0]).is_err() {
            return;
        }
        let steps = [false, true].into_iter().flat_map(|waits| mutants(info, schedule, waits));
        let mut of_kind: BTreeMap<&str, usize> = BTreeMap::new();
        for (what, mutant) in steps.chain(roles_instead(schedule)) {
            let number = of_kind.entry(what).or_default();
            *number += 1;
            if MANY.contains(&what) && !number.is_multiple_of(some) {
                continue;
            }
            let count = seen.entry(what).or_default();
            count[1] += 1;
            match run(info, body, &mutant, launch, &ORDERS[..4]) {
                Err(_) => count[0] += 1,
                Ok(()) => drop(missed.entry(what).or_insert_with(|| name.to_owned())),
            }
        }
    });
    for (what, [has_side_effects, all]) in &seen {
        let example = missed.get(what).map_or("", String::as_str);
        println!("{what}: {has_side_effects} of {all} noticed {example}");
    }
    assert!(seen.len() > 30, "kinds of changes: {seen:?}");
    for (what, [has_side_effects, _]) in seen {
        assert!(has_side_effects > 0 || ONLY_THE_CHECKER_SEES.contains(&what), "{what}: never noticed");
    }
}

/// Mutations that cause races between threads of one partition in shared memory. The order of
/// accesses to arrays by barriers is checked by the verifier alone.
const OF_THREADS: &[&str] =
    &["a barrier is left out", "a barrier, or a step before it, is too late", "an unwritten place is read"];

#[test]
fn missing_barriers_are_noticed() {
    let kernels = if every(2) == 1 { kernels() } else { barriers::modules().into_iter().map(plain).collect() };
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    each(kernels, |_, info, body, schedule, launch| {
        if run(info, body, schedule, launch, &[0]).is_err() {
            return;
        }
        for (what, mutant) in barriers::mutants(schedule).into_iter().filter(|(what, _)| OF_THREADS.contains(what)) {
            let count = seen.entry(what).or_default();
            count[1] += 1;
            count[0] += usize::from(run(info, body, &mutant, launch, &[0]).is_err());
        }
    });
    seen.iter().for_each(|(what, [has_side_effects, all])| println!("{what}: {has_side_effects} of {all} noticed"));
    let [has_side_effects, all] = seen["a barrier is left out"];
    assert!(all > 1 && 2 * has_side_effects >= all && seen["an unwritten place is read"][0] > 0, "{seen:?}");
}

#[test]
fn overwritten_operands_of_mmas_are_noticed() {
    let planted = [
        "no wait for MMAs before the barrier",
        "products land one group too few",
        "slots are too small",
        "a barrier is left out",
    ];
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    each(mma_waits::operand_kernels(), |name, info, body, schedule, launch| {
        run(info, body, schedule, launch, &ORDERS).unwrap();
        for (what, mutant) in barriers::mutants(schedule).into_iter().filter(|(what, _)| planted.contains(what)) {
            *seen.entry(what).or_default() += 1;
            let found = run(info, body, &mutant, launch, &[0]);
            assert!(found.is_err(), "{name}: {what}:\n{}", mutant.to_text(info.module));
        }
    });
    assert_eq!(seen.len(), planted.len(), "{seen:?}");
}

fn plain(module: Module) -> (String, Module, CompileOptions) {
    ("barriers".to_owned(), module, CompileOptions::default())
}
