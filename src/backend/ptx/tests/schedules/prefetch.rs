//! Prefetches to L2 of tiles that the consumers load around the main loop.

use super::*;
use crate as ct;
use crate::backend::ptx::optimizations::{Optimization, OptimizationSet};
use crate::backend::ptx::schedule::{WarpRole, WarpSpecialization};
use crate::prelude::*;

/// Returns a persistent kernel with two prefetched tiles.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("prefetched tiles".to_owned(), scaled_with_residual(true), CompileOptions::default())
}

/// Returns a product whose left operand is one tile, scaled before the loop over the columns, and
/// whose sum gets a residual after the loop. `persistent`: a loop over the rows is around it.
fn scaled_with_residual(persistent: bool) -> Module {
    let kernel = move |(q, k): (Array<f16, 2>, Array<f16, 2>), r: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let tile = |i: Scalar<i32>| {
            let q = (q.load((i, 0), [64, 64]) * 0.125).cast::<f16>();
            let sum = ct::fold(..k.num_tiles(0, [64, 64]), ct::zeros::<f32, 2>([64, 64]), |sum, j| {
                ct::mma(q, k.load((j, 0), [64, 64]), sum)
            });
            y.store((i, 0), sum + r.load((i, 0), [64, 64]));
        };
        if persistent {
            ct::fold((ct::bid(0)..q.num_tiles(0, [64, 64])).step_by(ct::num_blocks(0)), (), |(), i| tile(i));
        } else {
            tile(ct::bid(0));
        }
    };
    let (q, r) = (ct::ArraySpec::<f16, 2>::new([4096, 64]), ct::ArraySpec::<f32, 2>::new([4096, 64]));
    let text = ct::inspect(kernel, ((q, q), r, r.mutable())).ir();
    Module::parse("prefetch", &text.unwrap()).unwrap()
}

/// Returns the number of prefetches of a kernel for sm_90a: steps, and instructions.
fn prefetches(module: &Module, options: &CompileOptions) -> (usize, usize) {
    let options = CompileOptions { schedule: true, ..*options };
    let compiled = compile(module, Target::SM_90A, &options).unwrap();
    let steps = compiled.schedule.lines().filter(|line| line.trim().starts_with("prefetch ")).count();
    (steps, compiled.text.matches("cp.async.bulk.prefetch.tensor").count())
}

#[test]
fn the_producer_prefetches_tiles_around_the_main_loop() {
    let options = CompileOptions::default();
    assert_eq!(prefetches(&scaled_with_residual(true), &options), (2, 2));
    // Producer and consumers reach the first tile of a block at the same time.
    assert_eq!(prefetches(&scaled_with_residual(false), &options), (1, 1));
    let optimizations = OptimizationSet::ALL.without(Optimization::PrefetchBoxes);
    assert_eq!(prefetches(&scaled_with_residual(true), &CompileOptions { optimizations, ..options }), (0, 0));
    check(&scaled_with_residual(true));
}

/// Returns schedules with a wrong prefetch, each with a description of the change.
fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let Some(warp_spec) = &schedule.warp_spec else { return mutants };
    let mut unplanned = WarpSpecialization::clone(warp_spec);
    unplanned.prefetches.clear();
    mutants.push(("no tile is planned", Schedule { warp_spec: Some(Rc::new(unplanned)), ..schedule.clone() }));
    for body in 0..schedule.sequences.len() {
        for at in 0..schedule.sequences[body].len() {
            let mut change = |what, change: &dyn Fn(&mut Schedule)| {
                let mut changed = schedule.clone();
                change(&mut changed);
                mutants.push((what, changed));
            };
            match schedule.sequences[body][at] {
                Step::Prefetch(_) => {
                    change("a prefetch precedes its index", &|schedule| {
                        let step = schedule.sequences[body].remove(at);
                        let producer = schedule.partition(WarpRole::Producer).expect("a producer").body;
                        schedule.sequences[producer.0 as usize].insert(0, step);
                    });
                    change("a tile is not prefetched", &|schedule| drop(schedule.sequences[body].remove(at)));
                }
                Step::Exec(load) if warp_spec.prefetches.contains_key(&load) => {
                    change("a consumer prefetches", &|schedule| {
                        schedule.sequences[body].insert(at, Step::Prefetch(load));
                    });
                }
                _ => {}
            }
        }
    }
    mutants
}

#[test]
fn wrong_prefetches_are_rejected() {
    let kernels = vec![kernel()];
    let mut kinds = HashSet::new();
    each_schedule_of(kernels, |name, info, body, schedule| {
        for (what, mutant) in mutants(schedule) {
            kinds.insert(what);
            let found = info.verify_schedule(body, &mutant);
            assert!(found.is_err(), "{name}: {what}:\n{}", mutant.to_text(info.module));
        }
    });
    assert_eq!(kinds.len(), 4, "{kinds:?}");
}
