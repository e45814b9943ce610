//! Schedules: kernels, and mutations that the verifier rejects.

mod hoisted_operands;
mod joined_operands;
mod operand_boxes;
mod prefetch;
mod ragged;
mod text;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use super::clusters::PAIRS;
use super::sync::mma_waits::{Between, dependent_products};
use super::*;
use crate::backend::ptx::lower;
use crate::backend::ptx::plan::kernel_plan::Plan;
use crate::backend::ptx::plan::planned_kernel::{PlannedKernel, Verification};
use crate::backend::ptx::schedule::{
    CarriedMma, ConsumerWait, CpAsyncPlan, For, KernelInfo, LoadPath, MmaGroup, MmaWait, Schedule, Step,
    WarpSpecialization,
};
use crate::ir::{BlockId, OpId};
use crate::pass;
use crate::util::test_sample::one_in;

/// Calls `visit` with the schedule of a kernel, if the kernel can be lowered.
fn planned(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    visit: &mut dyn FnMut(&KernelInfo<'_>, BlockId, &Schedule),
) {
    let Ok(Some(apart)) = pass::split_extents(module, true).map(|cut| cut.or_else(|| Some(module.clone()))) else {
        return;
    };
    let plan = Plan::new(Cow::Owned(apart), target, *options);
    let (module, body) = (&*plan.module, plan.entry().body);
    let kernel = PlannedKernel::scheduled(module, plan.layouts, options, Verification::EachPass);
    let lowering = lower::lower(kernel, &module.entries[0], "k");
    let problems = lowering.problems();
    // A rejected kernel has no schedule. A schedule that the verifier rejects is a defect.
    if let Some(problem) = problems.iter().find(|problem| problem.message.contains("internal error")) {
        panic!("{problem}\n{}", lowering.schedule().to_text(module));
    }
    if problems.is_empty() {
        visit(lowering.context(), body, lowering.schedule());
    }
}

/// Returns the kernels of `tests/data/golden` and of other tests.
pub fn kernels() -> Vec<(String, Module, CompileOptions)> {
    let plain = CompileOptions::default();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "mlir") && path.to_string_lossy().contains("_13.4"));
    paths.sort();
    let mut kernels = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let Ok(mut module) = Module::parse(&name, &text) else { continue };
        if module.entries.len() == 1 {
            pass::optimize(&mut module);
            let module = pass::expand_scaled_mma(&module, false).unwrap_or(module);
            kernels.push((name, module, plain));
        }
    }
    assert!(kernels.len() > 20, "golden kernels");
    kernels.extend(mma::modules().into_iter().map(|module| ("product".to_owned(), module, plain)));
    kernels.extend(clusters::modules().into_iter().map(|module| ("pair".to_owned(), module, PAIRS)));
    kernels.push(("pingpong".to_owned(), clusters::persistent_tiles(), clusters::PINGPONG_OPTIONS));
    for tile in [1024, 1 << 14] {
        kernels.push((format!("vadd {tile}"), large(tile), plain));
    }
    kernels.push(("multistage copies".to_owned(), sums(), plain));
    kernels.push(("lookups".to_owned(), lookups(), plain));
    for keys in [128, 96] {
        kernels.push((format!("products that depend, {keys}"), dependent_products(Between::Nothing, keys), plain));
    }
    let behind = [strip_mine::gelu(DType::F16), strip_mine::gelu(DType::F32), strip_mine::norm()];
    kernels.extend(behind.map(|module| ("epilogue of a product".to_owned(), module, plain)));
    let branches = [Between::Branch, Between::Barrier].map(|between| dependent_products(between, 128));
    kernels.extend(branches.map(|module| ("branch across products".to_owned(), module, plain)));
    kernels.push(("products in both directions".to_owned(), sync::mma_waits::turned_products(None), plain));
    kernels.push(("endless loop".to_owned(), sync::mma_waits::product_of_endless_loop(), plain));
    kernels.push(("branch".to_owned(), mma::sums_in_a_branch(), plain));
    kernels.push(("a computed operand".to_owned(), sync::mma_waits::product_after_a_computed_one(), plain));
    kernels.extend(sync::mma_waits::operand_kernels());
    kernels.extend([("counts".to_owned(), privatized::counts(false), plain), unroll::kernel()]);
    kernels.extend([
        cp_async::kernel(),
        cp_async::computed_kernel(),
        tma_store::kernel(),
        mma_overlap::kernel(),
        epilogue_smem_reuse::kernel(),
        data_partition::kernel(),
        ragged::kernel(),
        ragged::columns(),
    ]);
    kernels.extend(hoisted_operands::kernels());
    kernels.push(prefetch::kernel());
    kernels.extend(joined_operands::kernels());
    kernels.extend(operand_boxes::kernels());
    kernels.extend(sync::mma_order::kernels().into_iter().chain(aux_loads::kernels()));
    kernels.extend(super::sync::barriers::modules().into_iter().map(|module| ("barriers".to_owned(), module, plain)));
    kernels
}

/// Returns a sum of two vectors by tiles of `tile` elements.
fn large(tile: i32) -> Module {
    let mut k = Kernel::new("vadd");
    let arrays: Vec<ArrayParam> = (0..3).map(|_| k.array(DType::F32, 1, true)).collect();
    let i = k.bids()[0];
    let views: Vec<Value> = arrays.iter().map(|a| k.partition(a, &[tile], &[0])).collect();
    let (a, b) = (k.load(views[0], &[i]), k.load(views[1], &[i]));
    let sum = k.op(Opcode::AddF, &[a, b]);
    k.store(sum, views[2], &[i]);
    k.finish()
}

/// Returns sums over tiles of a loop.
fn sums() -> Module {
    let mut k = Kernel::new("sums");
    let arrays = [(); 2].map(|()| k.array(DType::F32, 1, true));
    let [x, y] = arrays.map(|array| k.partition(&array, &[1024], &[0]));
    let i = k.bids()[0];
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[1024]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[1024]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let index = k.op(Opcode::AddI, &[args[0], i]);
    let tile = k.load(x, &[index]);
    let sum = k.op(Opcode::AddF, &[args[1], tile]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[i]);
    k.finish()
}

/// Returns a loop that adds elements of tiles by position, and counts the positions.
fn lookups() -> Module {
    let mut k = Kernel::new("lookups");
    let (table, indices) = (k.array(DType::F32, 2, true), k.array(DType::I32, 2, true));
    let (sums, counts) = (k.array(DType::F32, 2, true), k.array(DType::I32, 1, true));
    let [x, at, y] = [table, indices, sums].map(|array| k.partition(&array, &[16, 64], &[0, 1]));
    let z = k.partition(&counts, &[128], &[0]);
    let i = k.bids()[0];
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let positions = k.load(at, &[i, zero]);
    let start = k.b.splat(DType::F32, 0, &[16, 64]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[16, 64]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let tile = k.load(x, &[args[0], i]);
    let found = k.b.simple(Opcode::Gather, &[tile, positions], vec![Attr::Dim(1)], state);
    let sum = k.op(Opcode::AddF, &[args[1], found]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[i, zero]);
    let ty = k.tile(DType::I32, &[128]);
    let flat = k.shaped(Opcode::Reshape, positions, &[1024], vec![]);
    let counted = k.b.simple(Opcode::Histogram, &[flat], vec![], ty);
    k.store(counted, z, &[i]);
    k.finish()
}

pub fn each_schedule(visit: impl FnMut(&str, &KernelInfo<'_>, BlockId, &Schedule)) {
    each_schedule_of(kernels(), visit);
}

/// Calls `visit` with the schedules of kernels, for sm_80 and sm_90a.
pub fn each_schedule_of(
    kernels: Vec<(String, Module, CompileOptions)>,
    mut visit: impl FnMut(&str, &KernelInfo<'_>, BlockId, &Schedule),
) {
    for (name, module, options) in kernels {
        for target in [Target::SM_80, Target::SM_90A] {
            planned(&module, target, &options, &mut |info, body, schedule| {
                visit(&format!("{name} for {target}"), info, body, schedule);
            });
        }
    }
}

/// Returns mutated schedules, each with a description of the change: of waits, or of all other
/// steps. Mutations that are only slower or equivalent are excluded.
pub fn mutants(info: &KernelInfo<'_>, schedule: &Schedule, waits: bool) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    for body in 0..schedule.sequences.len() {
        for at in 0..schedule.sequences[body].len() {
            let step = &schedule.sequences[body][at];
            if step.is_wait() != waits || matches!(step, Step::Sub(_) | Step::ConsumerTryWait(_)) {
                continue;
            }
            let mut change = |what, change: &dyn Fn(&mut Vec<Step>)| {
                let mut changed = schedule.clone();
                change(&mut changed.sequences[body]);
                mutants.push((what, changed));
            };
            let kind = match step {
                Step::Advance(_) | Step::Produce(_) | Step::ConsumerRelease(_) => "a step of a pipeline is dropped",
                Step::ConsumerWait(_) | Step::MmaWait(_) => "a wait is dropped",
                Step::OrderWait { .. } | Step::OrderArrive(_) => "a section has no wait or no arrive",
                _ => "a step is dropped",
            };
            change(kind, &|steps| drop(steps.remove(at)));
            let kind = if waits { "a wait is done twice" } else { "a step is done twice" };
            change(kind, &|steps| steps.insert(at, steps[at].clone()));
            // After the next step and its sub-steps.
            let mut rest = schedule.sequences[body][at + 1..].iter().zip(at + 1..);
            let next = rest.find(|(next, _)| !matches!(next, Step::Sub(_)));
            if let Some((_, target)) = next.filter(|(next, _)| needs(info, schedule, next, step)) {
                let kind = if waits { "a wait is too late" } else { "a step follows its use" };
                change(kind, &|steps| {
                    let step = steps.remove(at);
                    steps.insert(target, step);
                });
            }
            if let Step::Mma(plan) = step
                && let [first, rest @ ..] = &plan.ops[..]
                && rest.iter().any(|&id| reads_stage_of(info, schedule, id, &plan.releases))
            {
                let single = MmaGroup { releases: plan.releases.clone(), ..MmaGroup::single(*first) };
                let rest = rest.iter().map(|&id| Step::Mma(Box::new(MmaGroup::single(id))));
                let parts: Vec<Step> = [Step::Mma(Box::new(single))].into_iter().chain(rest).collect();
                change("stages come back before the last product", &|steps| {
                    steps.splice(at..=at, parts.clone());
                });
            }
            for (what, other) in instead(info, step) {
                change(what, &|steps| steps[at] = other.clone());
            }
        }
    }
    mutants
}

/// Schedules with changed steps: a sample, if there are many steps.
pub fn step_mutants(
    info: &KernelInfo<'_>,
    schedule: &Schedule,
) -> impl Iterator<Item = (&'static str, Schedule)> + use<> {
    let steps: usize = schedule.sequences.iter().map(Vec::len).sum();
    let changed = mutants(info, schedule, false).into_iter().step_by(1 + steps / 200);
    let others =
        [sync::barriers::mutants, tma_store::mutants, privatized::mutants, unroll::mutants, sync::mma_order::mutants];
    let others: Vec<_> = others.into_iter().flat_map(|mutants| mutants(schedule)).collect();
    changed.chain(mutants(info, schedule, true)).chain(others)
}

/// Returns wrong steps in place of this one.
fn instead(info: &KernelInfo<'_>, step: &Step) -> Vec<(&'static str, Step)> {
    let mut others: Vec<(&'static str, Step)> = Vec::new();
    match step {
        Step::Advance(channel) => others.push(("another channel", Step::Advance(channel + 1))),
        Step::Produce(channel) => others.push(("another channel", Step::Produce(channel + 1))),
        Step::ConsumerRelease(channels) => {
            others.push(("another channel", Step::ConsumerRelease(vec![channels[0] + 1])))
        }
        Step::ConsumerWait(wait) => {
            others.push((
                "tiles of another channel",
                Step::ConsumerWait(ConsumerWait { channel: wait.channel + 1, ..*wait }),
            ));
        }
        Step::MmaWait(mma_wait) => {
            lands_instead(info, mma_wait, &mut |what, mma_wait| others.push((what, Step::MmaWait(mma_wait))))
        }
        Step::Mma(plan) => products_instead(info, plan, &mut |what, plan| {
            others.push((what, Step::Mma(Box::new(plan))));
        }),
        &Step::Exec(id) | &Step::LocalLoad(id) | &Step::PrivatizedAtomic(id) => {
            others.push(("nothing is done", Step::Deferred(id)))
        }
        Step::TmaStore(tma_store) => others.push(("nothing is done", Step::Deferred(tma_store.op))),
        &Step::Deferred(id) if info.module.op(id).code == Opcode::LoadView => {
            others.push(("a tile that is fetched is loaded", Step::Exec(id)));
        }
        Step::StripMine(strip_mine) => strip_mine::instead(info, strip_mine, &mut |what, strip_mine| {
            others.push((what, Step::StripMine(Rc::new(strip_mine))));
        }),
        Step::If { op, arms, pure: false } => {
            others.push(("branches are called quiet", Step::If { op: *op, arms: arms.clone(), pure: true }));
        }
        Step::For(plan) => for_instead(info, plan, &mut |what, plan| others.push((what, Step::For(Box::new(plan))))),
        _ => {}
    }
    others
}

/// Loops that are wrong in place of this one.
fn for_instead(info: &KernelInfo<'_>, step: &For, add: &mut dyn FnMut(&'static str, For)) {
    let mut with = |what, change: &dyn Fn(&mut For)| {
        let mut changed = step.clone();
        change(&mut changed);
        add(what, changed);
    };
    for at in 0..step.carried_mmas.len() {
        with("a product carries no stage", &|step| step.carried_mmas[at].releases = vec![7]);
        with("a product adds to another value", &|step| step.carried_mmas[at].accumulators[0] += 1);
        with("a sum is not carried", &|step| step.carried_mmas[at].accumulators.clear());
        if step.carried_mmas[at].accumulators.len() > 1 {
            with("sums change places", &|step| step.carried_mmas[at].accumulators.swap(0, 1));
        }
    }
    if let Some(CarriedMma { accumulators: carried, releases, .. }) = step.carried_mmas.first().cloned() {
        let other = info.module.block(info.module.entries[0].body).ops[0];
        with("another MMA is carried", &|step| {
            step.carried_mmas[0] = CarriedMma { mma: other, accumulators: carried.clone(), releases: releases.clone() };
        });
    }
    if step.epilogue.is_some() {
        with("nothing is waited for on the way out", &|step| step.epilogue = None);
    }
    if step.pingpong.is_some() {
        with("no ping-pong", &|step| step.pingpong = None);
    }
    for at in 0..step.pingpong.as_ref().map_or(0, |pingpong| pingpong.stages_per_iteration.len()) {
        with("a stage more is skipped", &|step| step.pingpong.as_mut().unwrap().stages_per_iteration[at].direct += 1);
        with("a loop is not skipped", &|step| {
            step.pingpong.as_mut().unwrap().stages_per_iteration[at].per_trip_of.clear()
        });
    }
    let Some(cp_async) = &step.cp_async else { return };
    let mut with_cp_async = |what, change: &dyn Fn(&mut CpAsyncPlan)| {
        let mut changed = CpAsyncPlan::clone(cp_async);
        change(&mut changed);
        with(what, &|step| step.cp_async = Some(Rc::new(changed.clone())));
    };
    with_cp_async("one stage", &|cp_async| cp_async.stages = 1);
    with_cp_async("more stages than fit", &|cp_async| cp_async.stages = 1 << 14);
    with_cp_async("stages do not begin where they should", &|cp_async| cp_async.stage_bytes -= 1);
    with_cp_async("stages are too small", &|cp_async| cp_async.stage_bytes -= cp_async.stage_bytes.min(1024));
    with_cp_async("a tile begins elsewhere", &|cp_async| cp_async.copies[0].smem_offset += 1024);
    with_cp_async("no barrier at the head", &|cp_async| cp_async.barrier_at_head = !cp_async.barrier_at_head);
    with_cp_async("threads' elements for operands", &|cp_async| {
        cp_async.copies[0].thread_private = !cp_async.copies[0].thread_private
    });
    if cp_async.async_mma {
        with_cp_async("products need not land", &|cp_async| cp_async.async_mma = false);
    }
    with_cp_async("a piece is not copied", &|cp_async| {
        let pieces = &mut cp_async.copies[0].accesses;
        pieces.truncate(pieces.len() - 1);
    });
    with_cp_async("nothing is copied", &|cp_async| drop(cp_async.copies.pop()));
    if !cp_async.address_ops.is_empty() {
        with_cp_async("an index is not computed", &|cp_async| {
            cp_async.address_ops.truncate(cp_async.address_ops.len() - 1)
        });
    }
    with("no multistage copies", &|step| step.cp_async = None);
}

/// Adds wrong MMA waits in place of this one.
fn lands_instead(info: &KernelInfo<'_>, mma_wait: &MmaWait, add: &mut dyn FnMut(&'static str, MmaWait)) {
    add("more products run on", MmaWait { pending: mma_wait.pending + 1, ..*mma_wait });
    if mma_wait.pending > 0 {
        add("fewer products run on", MmaWait { pending: mma_wait.pending - 1, ..*mma_wait });
        add("a stage is kept longer", MmaWait { sunk: true, ..*mma_wait });
    }
    add(
        "the product of another iteration",
        MmaWait { from_previous_iteration: !mma_wait.from_previous_iteration, ..*mma_wait },
    );
    let other = info.module.block(info.module.entries[0].body).ops[0];
    add("a wait for another op", MmaWait { mma: other, ..*mma_wait });
}

/// Returns schedules with wrong pipelines and channels.
pub fn roles_instead(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let Some(warp_spec) = &schedule.warp_spec else { return mutants };
    let mut with = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let mut changed = WarpSpecialization::clone(warp_spec);
        change(&mut changed);
        mutants.push((what, Schedule { warp_spec: Some(Rc::new(changed)), ..schedule.clone() }));
    };
    for (at, channel) in warp_spec.channels.iter().enumerate() {
        with("a stage is too small", &|warp_spec| warp_spec.channels[at].stage_bytes -= 1024);
        with("a pipeline has no stages", &|warp_spec| warp_spec.pipelines[channel.pipeline].num_stages = 0);
        with("stages of a pipeline are too small", &|warp_spec| {
            warp_spec.pipelines[channel.pipeline].stage_bytes -= 1024
        });
        let is_released = |carried_mma: &CarriedMma| carried_mma.releases.contains(&(at as u32));
        // A loop that waits for all MMAs at its head holds one stage.
        let waits = |step: &For| step.cp_async.as_ref().is_some_and(|plan| plan.async_mma);
        let mut steps = schedule.sequences.iter().flatten();
        if warp_spec.pipelines[channel.pipeline].num_stages > 1
            && steps.any(
                |step| matches!(step, Step::For(step) if step.carried_mmas.iter().any(is_released) && !waits(step)),
            )
        {
            with("a pipeline has one stage, and two are held", &|warp_spec| {
                warp_spec.pipelines[channel.pipeline].num_stages = 1
            });
        }
        for load in 0..channel.loads.len() {
            with("a tile is at another offset", &|warp_spec| {
                warp_spec.channels[at].loads[load].smem_offset += channel.stage_bytes
            });
            if channel.loads[load].boxes.is_empty() {
                with("an adjacent tile is at another offset", &|warp_spec| {
                    warp_spec.channels[at].loads[load].smem_offset += 1024
                });
            }
            with("other bytes are announced", &|warp_spec| warp_spec.channels[at].loads[load].bytes += 16);
            with("a panel has other rows", &|warp_spec| warp_spec.channels[at].loads[load].panel_rows += 8);
            with("a load is of another channel", &|warp_spec| match warp_spec
                .load_paths
                .get_mut(&channel.loads[load].load)
                .expect("a TMA load")
            {
                LoadPath::TmaOperand { channel } | LoadPath::TmaAux { channel } => *channel += 1,
                LoadPath::Direct | LoadPath::CpAsync { .. } => unreachable!(),
            });
            for part in 0..channel.loads[load].boxes.len() {
                with("a box is left out", &|warp_spec| drop(warp_spec.channels[at].loads[load].boxes.remove(part)));
                with("a box is at another offset", &|warp_spec| {
                    warp_spec.channels[at].loads[load].boxes[part].smem_offset += 128
                });
                with("a box loads another part", &|warp_spec| {
                    warp_spec.channels[at].loads[load].boxes[part].coord[0] += 8
                });
            }
        }
    }
    mutants
}

/// Adds wrong MMA groups in place of this one.
fn products_instead(info: &KernelInfo<'_>, plan: &MmaGroup, add: &mut dyn FnMut(&'static str, MmaGroup)) {
    let mut with = |what, change: &dyn Fn(&mut MmaGroup)| {
        let mut changed = plan.clone();
        change(&mut changed);
        add(what, changed);
    };
    if let Some(&first) = plan.releases.first() {
        with("an MMA releases nothing", &|plan| plan.releases.clear());
        with("another channel", &|plan| plan.releases = vec![first + 1]);
        with("a stage is given back twice", &|plan| plan.releases.push(first));
    }
    with("a product is not issued", &|plan| plan.issue.truncate(plan.issue.len() - 1));
    with("a product is issued twice", &|plan| plan.issue.push(plan.issue[0]));
    with("a product is wider than nothing", &|plan| plan.issue[0].extends_n = true);
    if plan.ops.len() > 1 {
        with("a product of a group is left out", &|plan| {
            let last = plan.ops.len() - 1;
            plan.ops.pop();
            plan.issue.retain(|issue| issue.op != last);
        });
    }
    for at in 1..plan.issue.len() {
        let [before, this] = [at - 1, at].map(|at| plan.ops[plan.issue[at].op]);
        let module = info.module;
        if module.op(this).operands[0] != module.op(before).operands[0] {
            with("products of different operands are one instruction", &|plan| plan.issue[at].extends_n = true);
        }
        if module.op(this).operands[2] == module.op(before).results[0] {
            with("a product adds to what is not there yet", &|plan| plan.issue.swap(at - 1, at));
        }
    }
}

/// Returns all ops of a step, also in its sequences.
fn all_ops(schedule: &Schedule, step: &Step) -> Vec<OpId> {
    let mut ops = step.ops();
    for &body in step.sequences() {
        ops.extend(schedule.steps(body).iter().flat_map(|step| all_ops(schedule, step)));
    }
    ops
}

/// Returns true if an MMA reads a stage of one of these channels.
fn reads_stage_of(info: &KernelInfo<'_>, schedule: &Schedule, id: OpId, channels: &[u32]) -> bool {
    let Some(warp_spec) = &schedule.warp_spec else { return false };
    let loads = info.module.op(id).operands.iter().filter_map(|&value| info.source_load(value));
    let mut behind = loads.filter_map(|load| warp_spec.operand_channel(load));
    behind.any(|channel| channels.contains(&channel))
}

/// Returns true if a step depends on an earlier one.
fn needs(info: &KernelInfo<'_>, schedule: &Schedule, sunk: &Step, early: &Step) -> bool {
    let module = info.module;
    let of_channel = |channel: u32, step: &Step| {
        let reads = |id: &OpId| {
            let multiplies = module.op(*id).code.is_mma();
            multiplies && reads_stage_of(info, schedule, *id, &[channel])
        };
        all_ops(schedule, step).iter().any(reads)
    };
    match (early, sunk) {
        (&Step::Advance(channel), Step::ConsumerWait(wait)) => return channel == wait.channel,
        (&Step::Advance(channel), sunk) => return of_channel(channel, sunk),
        (Step::ConsumerWait(wait), sunk) => return of_channel(wait.channel, sunk),
        (Step::MmaWait(_), sunk) => return !sunk.is_wait(),
        (Step::Mma(_), Step::MmaWait(_)) => return true,
        (early, Step::ConsumerRelease(channels)) => return channels.iter().any(|&channel| of_channel(channel, early)),
        _ => {}
    }
    // Loops of the producer carry only values that it needs.
    let is_producer_op =
        schedule.partitions.len() > 1 && matches!(sunk, Step::For(_) | Step::Loop(_) | Step::If { .. } | Step::End(_));
    let made: HashSet<Value> = all_ops(schedule, early).iter().flat_map(|&id| module.op(id).results.clone()).collect();
    let tiles = |value: &&Value| !matches!(module.ty(**value), Type::Token);
    let reads = |id: &OpId| module.op(*id).operands.iter().filter(tiles).any(|value| made.contains(value));
    !is_producer_op && all_ops(schedule, sunk).iter().any(reads)
}

#[test]
fn all_cases_run_with_the_verifiers() {
    // Verifiers of IR and schedules are debug assertions.
    assert!(cfg!(debug_assertions) || one_in(2) > 1, "CUTLET_TESTS=all needs a build with debug assertions");
}

/// Number of consecutive mutants of a schedule of which one is verified.
const MUTANTS_EVERY: usize = 5;

#[test]
fn the_verifier_rejects_every_mutation() {
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let (mut missed, mut number) = (Vec::new(), 0);
    each_schedule(|name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        number += 1;
        let mutants = step_mutants(info, schedule).chain(roles_instead(schedule)).chain(aux_loads::mutants(schedule));
        let mutants = mutants.chain(clusters::mutants(info, schedule));
        for (what, mutant) in mutants.skip(number % MUTANTS_EVERY).step_by(MUTANTS_EVERY) {
            let count = seen.entry(what).or_default();
            count[1] += 1;
            match info.verify_schedule(body, &mutant) {
                Err(_) => count[0] += 1,
                Ok(()) => missed.push(format!("{name}: {what}:\n{}", mutant.to_text(info.module))),
            }
        }
    });
    for (what, [refused, all]) in &seen {
        println!("{what}: {refused} of {all} refused");
    }
    assert!(seen.len() > 15, "kinds of changes: {seen:?}");
    assert!(missed.is_empty(), "{} changes are not noticed; the first one: {}", missed.len(), missed[0]);
}
