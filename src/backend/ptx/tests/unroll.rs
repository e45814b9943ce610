//! Unrolled loops: schedule, and mutations that the verifier rejects.

use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{Schedule, Step};
use crate::ir::{HintValue, Hints, hint_key};

/// A kernel with unrolled iterations.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("unrolled".to_owned(), copies(Some(1), 4), no_copies())
}

/// Returns options without pipeline stages.
fn no_copies() -> CompileOptions {
    CompileOptions { num_stages: Some(1), ..CompileOptions::default() }
}

/// Returns schedules with other unroll factors, each with a description of the change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let Step::For(plan) = step else { continue };
            let mut add = |what, rounds| {
                let mut changed = schedule.clone();
                let Step::For(plan) = &mut changed.sequences[body][at] else { return };
                plan.unroll = Some(rounds);
                mutants.push((what, changed));
            };
            add("a loop without an iteration", 0);
            add("more iterations than the limit", 1 << 20);
            if plan.cp_async.is_some() || plan.pingpong.is_some() || !plan.carried_mmas.is_empty() {
                add("unrolling of a loop with carried work", 2);
            }
        }
    }
    mutants
}

/// Returns a kernel that copies tiles in a loop of step `step`, with a hint for `rounds` unrolled
/// iterations.
fn copies(step: Option<i64>, rounds: i64) -> Module {
    let mut k = Kernel::new("copies");
    let arrays = [(); 2].map(|()| k.array(DType::F32, 1, true));
    let [x, y] = arrays.map(|array| k.partition(&array, &[256], &[0]));
    let other = k.param(Type::scalar(DType::I32));
    let (zero, count) = (k.index(0), k.index(64));
    let step = step.map_or(other, |step| k.index(step));
    let wish =
        Attr::Hints(Hints(vec![("default".to_owned(), vec![(hint_key::UNROLL.to_owned(), HintValue::Int(rounds))])]));
    let int = k.tile(DType::I32, &[]);
    let body = k.b.begin_block(&[int]);
    let index = k.b.module.block(body).args[0];
    let tile = k.load(x, &[index]);
    k.store(tile, y, &[index]);
    k.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::For, &[&[zero], &[count], &[step], &[]], vec![wish], vec![body], &[]);
    k.finish()
}

#[test]
fn iterations_are_unrolled_if_requested_and_possible() {
    for (step, requested, rounds) in [
        (Some(1), 4, Some(4)),
        (Some(3), 2, Some(2)),
        (Some(1), 1, Some(1)),
        (Some(1), 5000, None),
        (Some(1 << 30), 4, None),
        (None, 4, None),
        (None, 1, Some(1)),
    ] {
        let kernel = ("copies".to_owned(), copies(step, requested), no_copies());
        each_schedule_of(vec![kernel], |name, _, _, schedule| {
            let mut steps = schedule.sequences.iter().flatten();
            let found = steps.find_map(|step| if let Step::For(plan) = step { Some(plan.unroll) } else { None });
            assert_eq!(found, Some(rounds), "{name}: {requested} iterations, step {step:?}");
        });
    }
}
