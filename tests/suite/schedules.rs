//! Selection of tests whose schedules are simulated, of the targets, and of the orders.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Result, anyhow, ensure};
use cutlet::Target;
use cutlet::backend::Hints;
use cutlet::backend::cpu::Memory;
use cutlet::backend::ptx::CompileOptions;
use cutlet::backend::schedule_sim::ScheduleSimulator;
use cutlet::ir::{Module, verify};

use crate::harness::Session;
use crate::ptxas::is_too_small;

/// With multistage copies, and with producers.
const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

/// Tests whose schedules are not simulated: output, grids with too many blocks, refused launches,
/// clusters, tests with their own launches, and products that take half a minute each.
const LEFT_OUT: [&str; 9] = [
    "print",
    "grid/",
    "cluster/",
    "example/",
    "array_expr/",
    "compared/",
    "require/",
    "product/rounded",
    "product/wide/f16 f16 f32",
];

/// Tests whose schedules have partitions and pipelines.
const STREAMED: [&str; 5] = ["product/", "random_product/", "dependent/", "extents_product/", "operand_forms/"];

/// Returns true if the simulator can run the schedules of this test.
pub fn may_be_simulated(name: &str) -> bool {
    !LEFT_OUT.iter().any(|part| name.starts_with(part))
}

/// Returns true if the schedules of this test are simulated: of every n-th test, with
/// `CUTLET_SCHEDULES` as n. By default it is every eighth of the tests with producers, and every
/// 32nd of the others.
pub fn are_simulated(name: &str) -> bool {
    let wish: Option<u64> = std::env::var("CUTLET_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let begins = |part: &&str| name.starts_with(*part);
    let every = wish.unwrap_or(if STREAMED.iter().any(begins) { 8 } else { 32 });
    // By the name, so that a part of the tests is a part of these.
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    may_be_simulated(name) && hasher.finish().is_multiple_of(every.max(1))
}

/// Runs the schedules of a module from the same memory, in the extreme orders and one by chance;
/// the memory is left as the last one leaves it.
pub fn simulate(module: &Module, hints: Hints, grid: [u32; 3], words: &[u64], memory: &Memory) -> Result<()> {
    verify(module).map_err(|problems| anyhow!("{}\n{module}", problems[0]))?;
    let before = ScheduleSimulator::contents(memory);
    let mut options = CompileOptions::default();
    (options.num_warps, options.occupancy, options.num_stages) = (hints.num_warps, hints.occupancy, hints.num_stages);
    (options.num_ctas, options.code_limit, options.tma) = (hints.num_ctas, hints.code_limit, module.globals.is_empty());
    let (repeatable, number) = (ScheduleSimulator::is_repeatable(module)?, module.num_ops());
    for at in 0..TARGETS.len() {
        let target = TARGETS[(at + number) % TARGETS.len()];
        let outcome = ScheduleSimulator::plan(module, target, &options, words, &mut |simulation| {
            // Only for a target that runs the kernel: else the memory of the other target would be
            // compared.
            ScheduleSimulator::restore(memory, &before);
            simulation.check(grid, words, memory, &[0, 1, 2, 3 + number as u64])
        });
        match outcome {
            Err(error) if is_too_small(target, &error) => {}
            // A repeated execution would repeat its effects.
            outcome if !repeatable => return Ok(outcome?),
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Checks that the schedule for Hopper has these texts.
pub fn says(session: Session, text: impl FnOnce() -> cutlet::Result<String>, wanted: &[&str]) -> Result<()> {
    if let Session::Assemble(Target::SM_90A, _) = session {
        let text = text()?;
        for wanted in wanted {
            ensure!(text.contains(wanted), "no `{wanted}`: {text}");
        }
    }
    Ok(())
}
