//! Loop-invariant operands of MMAs: they are written to shared memory once, before the loop.

use super::*;
use crate as ct;
use crate::backend::ptx::schedule::{Buffer, HoistedOperand, SubStep};
use crate::prelude::*;

/// Returns kernels whose loops have loop-invariant operands: a computed matrix, also in nested
/// loops and in a persistent loop; a tile that is converted before the loop; and both at once.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let modules = [prefix_sums(), prefix_sums_of_blocks(), converted(), converted_and_computed()];
    let modules = modules.into_iter().map(|module| ("hoisted operands".to_owned(), module, CompileOptions::default()));
    modules.collect()
}

fn module(text: crate::Result<String>) -> Module {
    Module::parse("hoisted", &text.unwrap()).unwrap()
}

/// Returns the upper triangular matrix of ones.
fn upper<const N: usize>() -> Tile<f16, 2> {
    let index = ct::arange(0..N);
    let ones = ct::full::<f32, 2>([N, N], 1.0);
    ct::select(index.unsqueeze(1).le(index.unsqueeze(0)), ones, 0.0).cast()
}

/// Prefix sums of rows: each block of 64 columns by a triangular matrix.
fn prefix_sums() -> Module {
    let kernel = |x: Array<f16, 2>, y: ArrayMut<f32, 2>| {
        let _ = ct::fold(..x.num_tiles(1, [128, 64]), ct::zeros::<f32, 2>([128, 1]), |before, j| {
            let sums = ct::matmul(x.load((ct::bid(0), j), [128, 64]), upper::<64>()) + before;
            y.store((ct::bid(0), j), sums);
            sums.reduce_max(1)
        });
    };
    let (x, y) = (ct::ArraySpec::<f16, 2>::new([4096, 4096]), ct::ArraySpec::<f32, 2>::new([4096, 4096]));
    module(ct::inspect(kernel, (x, y.mutable())).ir())
}

/// The same, with rows in an outer loop.
fn prefix_sums_of_blocks() -> Module {
    let kernel = |x: Array<f16, 2>, y: ArrayMut<f32, 2>| {
        ct::fold(..x.num_tiles(0, [64, 64]), (), |(), i| {
            let _ = ct::fold(..x.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 1]), |before, j| {
                let sums = ct::matmul(x.load((i, j), [64, 64]), upper::<64>()) + before;
                y.store((i, j), sums);
                sums.reduce_max(1)
            });
        });
    };
    let (x, y) = (ct::ArraySpec::<f16, 2>::new([4096, 4096]), ct::ArraySpec::<f32, 2>::new([4096, 4096]));
    module(ct::inspect(kernel, (x, y.mutable())).ir())
}

/// A matrix multiplication with weights of i8 that are converted before the loop over the rows.
fn converted() -> Module {
    let kernel = |(x, w): (Array<f16, 2>, Array<i8, 2>), y: ArrayMut<f32, 2>| {
        let weights = w.load((0, ct::bid(0)), [64, 64]).cast::<f16>();
        ct::fold(..x.num_tiles(0, [64, 64]), (), |(), i| {
            y.store((i, ct::bid(0)), ct::matmul(x.load((i, 0), [64, 64]), weights));
        });
    };
    let (x, w) = (ct::ArraySpec::<f16, 2>::new([4096, 64]), ct::ArraySpec::<i8, 2>::new([64, 4096]));
    module(ct::inspect(kernel, ((x, w), ct::ArraySpec::<f32, 2>::new([4096, 4096]).mutable())).ir())
}

/// A converted and a computed right operand of one left operand, which the loop computes.
fn converted_and_computed() -> Module {
    let kernel = |(x, w): (Array<f16, 2>, Array<i8, 2>), y: ArrayMut<f32, 2>| {
        let weights = w.load((0, ct::bid(0)), [64, 64]).cast::<f16>();
        ct::fold(..x.num_tiles(0, [64, 64]), (), |(), i| {
            let rows = x.load((i, 0), [64, 64]);
            let mixed = ct::matmul(rows, weights);
            let sums = ct::matmul(rows, upper::<64>());
            y.store((i, ct::bid(0)), mixed + sums);
        });
    };
    let (x, w) = (ct::ArraySpec::<f16, 2>::new([4096, 64]), ct::ArraySpec::<i8, 2>::new([64, 4096]));
    module(ct::inspect(kernel, ((x, w), ct::ArraySpec::<f32, 2>::new([4096, 4096]).mutable())).ir())
}

/// Returns the operands that the loops of a schedule hoist.
fn hoisted(schedule: &Schedule) -> Vec<HoistedOperand> {
    schedule.sequences.iter().flatten().flat_map(Step::hoisted_operands).copied().collect()
}

#[test]
fn loops_write_no_invariant_operands() {
    let mut counts = Vec::new();
    each_schedule_of(kernels(), |name, _, _, schedule| {
        counts.push(hoisted(schedule).len());
        for step in schedule.sequences.iter().flatten().filter(|step| !step.hoisted_operands().is_empty()) {
            let steps: Vec<&Step> =
                step.sequences().iter().flat_map(|&body| schedule.steps_with_nested(body)).collect();
            let reads = steps.iter().filter(|step| matches!(step, Step::Sub(SubStep::StoredOperand { .. })));
            assert!(reads.count() >= step.hoisted_operands().len(), "{name}:\n{:?}", schedule.sequences);
        }
    });
    assert!(counts.iter().any(|&count| count > 0), "{counts:?}");
}

/// Returns schedules with a wrong hoisted operand, each with a description of the change.
fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let buffers = |steps: &[Step], at: usize| -> Vec<usize> {
        let writes = (0..at).rev().take_while(|&before| matches!(steps[before], Step::Sub(_)));
        writes.filter(|&before| matches!(steps[before], Step::Sub(SubStep::SmemWrite(_)))).collect()
    };
    for body in 0..schedule.sequences.len() {
        for at in 0..schedule.sequences[body].len() {
            let mut change = |what, change: &dyn Fn(&mut Vec<Step>)| {
                let mut changed = schedule.clone();
                change(&mut changed.sequences[body]);
                mutants.push((what, changed));
            };
            let step = &schedule.sequences[body][at];
            if let Step::For(plan) = step
                && let Some(&operand) = plan.hoisted_operands.first()
            {
                let mut with = |what, of: &dyn Fn(&mut Vec<HoistedOperand>)| {
                    let mut plan = plan.clone();
                    of(&mut plan.hoisted_operands);
                    change(what, &|steps| steps[at] = Step::For(plan.clone()));
                };
                with("an operand is not hoisted", &|hoisted| hoisted.truncate(hoisted.len() - 1));
                with("an operand is hoisted twice", &|hoisted| hoisted.push(operand));
                with("another value is hoisted", &|hoisted| hoisted[0].value = Value(0));
                with("the other side is hoisted", &|hoisted| hoisted[0].is_left = !operand.is_left);
                with("an operand of another op is hoisted", &|hoisted| hoisted[0].mma = OpId(0));
                for write in buffers(&schedule.sequences[body], at) {
                    change("an operand is not written", &|steps| drop(steps.remove(write)));
                }
            }
            // A buffer of a step of the loop overlaps the operand.
            if let Step::Sub(SubStep::StoredOperand { buffer, .. }) = *step {
                let write = Step::Sub(SubStep::SmemWrite(Buffer { bytes: 128, ..buffer }));
                change("an operand is overwritten", &|steps| steps.insert(at, write.clone()));
            }
        }
    }
    mutants
}

#[test]
fn wrong_hoisted_operands_are_rejected() {
    let mut kinds = HashSet::new();
    each_schedule_of(kernels(), |name, info, body, schedule| {
        for (what, mutant) in mutants(schedule) {
            kinds.insert(what);
            let found = info.verify_schedule(body, &mutant);
            assert!(found.is_err(), "{name}: {what}:\n{}", mutant.to_text(info.module));
        }
    });
    assert_eq!(kinds.len(), 7);
}
