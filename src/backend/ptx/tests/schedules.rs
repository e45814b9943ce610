//! Schedules: as text and back, and what the checker says when something is left out, put elsewhere or changed.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use super::clusters::PAIRS;
use super::waits::{Between, dependent_products};
use super::*;
use crate::backend::ptx::form::build_with;
use crate::backend::ptx::lower;
use crate::backend::ptx::schedule::{
    CarriedMma, ConsumerWait, KernelInfo, MmaGroup, MmaWait, Schedule, Step, WarpSpecialization,
};
use crate::ir::{BlockId, OpId};
use crate::pass;

/// Shows the schedule of a kernel to `look`, if it can be lowered.
fn planned(
    module: &Module,
    target: Target,
    options: &CompileOptions,
    look: &mut dyn FnMut(&KernelInfo<'_>, BlockId, &Schedule),
) {
    let Ok(Some(apart)) = pass::split_extents(module, true).map(|cut| cut.or_else(|| Some(module.clone()))) else {
        return;
    };
    let entry = &apart.entries[0];
    build_with(&apart, entry, target, options, &mut |module, entry, inference| {
        let lowering = lower::lowered(module, entry, inference, "k", options);
        let problems = lowering.problems();
        // A kernel that is refused has no schedule; one whose schedule the verifier refuses is a defect.
        if let Some(problem) = problems.iter().find(|problem| problem.message.contains("a defect of this crate")) {
            panic!("{problem}\n{}", lowering.schedule().to_text(module));
        }
        if problems.is_empty() {
            look(lowering.context(), entry.body, lowering.schedule());
        }
    });
}

/// The kernels of `tests/data/golden`, and of other tests here.
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
            kernels.push((name, module, plain));
        }
    }
    assert!(kernels.len() > 20, "golden kernels");
    kernels.extend(products::modules().into_iter().map(|module| ("product".to_owned(), module, plain)));
    kernels.extend(clusters::modules().into_iter().map(|module| ("pair".to_owned(), module, PAIRS)));
    kernels.push(("teams".to_owned(), clusters::tiles_in_turn(), clusters::TEAMS));
    for tile in [1024, 1 << 14] {
        kernels.push((format!("vadd {tile}"), large(tile), plain));
    }
    kernels.push(("copies ahead".to_owned(), sums(), plain));
    kernels.push(("lookups".to_owned(), lookups(), plain));
    for keys in [128, 96] {
        kernels.push((format!("products that depend, {keys}"), dependent_products(Between::Nothing, keys), plain));
    }
    let behind = [strips::gelu(DType::F16), strips::gelu(DType::F32), strips::norm()];
    kernels.extend(behind.map(|module| ("work behind a product".to_owned(), module, plain)));
    let branches = [Between::Branch, Between::Meeting].map(|between| dependent_products(between, 128));
    kernels.extend(branches.map(|module| ("branch beside products".to_owned(), module, plain)));
    kernels.push(("products in both directions".to_owned(), waits::turned_products(None), plain));
    kernels.push(("endless loop".to_owned(), waits::product_of_endless_loop(), plain));
    kernels.push(("branch".to_owned(), products::sums_in_a_branch(), plain));
    kernels.push(("a computed operand".to_owned(), waits::product_beside_a_computed_one(), plain));
    kernels.extend([("counts".to_owned(), combined::counts(false), plain), rounds::kernel()]);
    kernels.extend([ahead::kernel(), stores::kernel(), beside::kernel(), lent::kernel(), bands::kernel()]);
    kernels.extend(turns::kernels().into_iter().chain(riders::kernels()));
    kernels.extend(super::meetings::modules().into_iter().map(|module| ("meetings".to_owned(), module, plain)));
    kernels
}

/// A sum of two vectors by tiles of so many elements.
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

/// Sums over tiles of a loop.
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
    let place = k.op(Opcode::AddI, &[args[0], i]);
    let tile = k.load(x, &[place]);
    let sum = k.op(Opcode::AddF, &[args[1], tile]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[i]);
    k.finish()
}

/// Elements of the tiles of a loop by their positions, added up; and how often each position is asked for.
fn lookups() -> Module {
    let mut k = Kernel::new("lookups");
    let (table, places) = (k.array(DType::F32, 2, true), k.array(DType::I32, 2, true));
    let (sums, counts) = (k.array(DType::F32, 2, true), k.array(DType::I32, 1, true));
    let [x, at, y] = [table, places, sums].map(|array| k.partition(&array, &[16, 64], &[0, 1]));
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

fn each_schedule(look: impl FnMut(&str, &KernelInfo<'_>, BlockId, &Schedule)) {
    each_schedule_of(kernels(), look);
}

/// Shows the schedules of kernels, for old machines and new ones.
pub fn each_schedule_of(
    kernels: Vec<(String, Module, CompileOptions)>,
    mut look: impl FnMut(&str, &KernelInfo<'_>, BlockId, &Schedule),
) {
    for (name, module, options) in kernels {
        for target in [Target::SM_80, Target::SM_90A] {
            planned(&module, target, &options, &mut |context, body, schedule| {
                look(&format!("{name} for {target}"), context, body, schedule);
            });
        }
    }
}

#[test]
fn text_says_all_of_a_schedule() {
    let (mut count, mut words) = (0, HashSet::new());
    each_schedule(|name, context, _, schedule| {
        let text = schedule.to_text(context.module);
        let back = Schedule::parse(&text, schedule.warp_spec.clone()).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        assert_eq!((&back.partitions, &back.sequences), (&schedule.partitions, &schedule.sequences), "{name}:\n{text}");
        assert_eq!(back.to_text(context.module), text, "{name}");
        words.extend(text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)));
        words.extend(text.contains("slots a piece gives %").then(|| "a strip that gives".to_owned()));
        let lines = ["land all", "meet always", "multiply in turn"].into_iter();
        words.extend(lines.filter(|line| text.lines().any(|other| other.trim().starts_with(*line))).map(str::to_owned));
        count += 1;
    });
    assert!(count > 80, "{count} schedules");
    let steps = [
        "let", "do", "own", "send", "boxes", "outbox", "combine", "multiply", "fill", "take", "strip", "for", "if",
        "ahead", "orbit", "copy", "rounds",
    ];
    let waits = ["await", "land", "leave", "turn", "pass", "dealt"];
    let within = ["bring", "write", "read", "access", "parts", "drain", "meet"];
    for word in steps.into_iter().chain(waits).chain(within).chain([
        "a strip that gives",
        "land all",
        "meet always",
        "multiply in turn",
    ]) {
        assert!(words.contains(word), "no schedule has a step `{word}`: {words:?}");
    }
}

/// Changed schedules, each with what was changed: of steps that are waits, or of all others. What is only slower, or the
/// same, is not among them.
pub fn mutants(context: &KernelInfo<'_>, schedule: &Schedule, waits: bool) -> Vec<(&'static str, Schedule)> {
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
                Step::Advance(_) | Step::Produce(_) | Step::ConsumerRelease(_) => "a step of a ring is dropped",
                Step::ConsumerWait(_) | Step::MmaWait(_) => "a wait is dropped",
                Step::OrderWait(_) | Step::OrderArrive(_) => "a turn is not taken, or never ends",
                _ => "a step is dropped",
            };
            change(kind, &|steps| drop(steps.remove(at)));
            let kind = if waits { "a wait is done twice" } else { "a step is done twice" };
            change(kind, &|steps| steps.insert(at, steps[at].clone()));
            // Behind the next step, with what that does within.
            let mut rest = schedule.sequences[body][at + 1..].iter().zip(at + 1..);
            let next = rest.find(|(next, _)| !matches!(next, Step::Sub(_)));
            if let Some((_, place)) = next.filter(|(next, _)| needs(context, schedule, next, step)) {
                let kind = if waits { "a wait comes too late" } else { "a step comes after what needs it" };
                change(kind, &|steps| {
                    let step = steps.remove(at);
                    steps.insert(place, step);
                });
            }
            if let Step::Mma(plan) = step
                && let [first, rest @ ..] = &plan.ops[..]
                && rest.iter().any(|&id| reads_stage_of(context, schedule, id, &plan.releases))
            {
                let single = MmaGroup { releases: plan.releases.clone(), ..MmaGroup::of(*first) };
                let rest = rest.iter().map(|&id| Step::Mma(Box::new(MmaGroup::of(id))));
                let parts: Vec<Step> = [Step::Mma(Box::new(single))].into_iter().chain(rest).collect();
                change("stages come back before the last product", &|steps| {
                    steps.splice(at..=at, parts.clone());
                });
            }
            for (what, other) in instead(context, step) {
                change(what, &|steps| steps[at] = other.clone());
            }
        }
    }
    mutants
}

/// Steps that are wrong in place of this one.
fn instead(context: &KernelInfo<'_>, step: &Step) -> Vec<(&'static str, Step)> {
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
        Step::MmaWait(land) => lands_instead(context, land, &mut |what, land| others.push((what, Step::MmaWait(land)))),
        Step::Mma(plan) => products_instead(context, plan, &mut |what, plan| {
            others.push((what, Step::Mma(Box::new(plan))));
        }),
        &Step::Exec(id) | &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) | &Step::PrivatizedAtomic(id) => {
            others.push(("nothing is done", Step::Deferred(id)))
        }
        Step::TmaStore(send) => others.push(("nothing is done", Step::Deferred(send.op))),
        &Step::Deferred(id) if context.module.op(id).code == Opcode::LoadView => {
            others.push(("a tile that is fetched is loaded", Step::Exec(id)));
        }
        Step::StripMine(strip) => strips::instead(context, strip, &mut |what, strip| {
            others.push((what, Step::StripMine(Rc::new(strip))));
        }),
        Step::If { op, arms, pure: false } => {
            others.push(("branches are called quiet", Step::If { op: *op, arms: arms.clone(), pure: true }));
        }
        Step::For(step) => {
            let mut with = |what, change: &dyn Fn(&mut crate::backend::ptx::schedule::For)| {
                let mut changed = step.clone();
                change(&mut changed);
                others.push((what, Step::For(changed)));
            };
            for at in 0..step.carried_mmas.len() {
                with("a product carries no stage", &|step| step.carried_mmas[at].releases = vec![7]);
                with("a product adds to another value", &|step| step.carried_mmas[at].accumulators[0] += 1);
                with("a sum is not carried", &|step| step.carried_mmas[at].accumulators.clear());
                if step.carried_mmas[at].accumulators.len() > 1 {
                    with("sums change places", &|step| step.carried_mmas[at].accumulators.swap(0, 1));
                }
            }
            if let Some(CarriedMma { accumulators: carried, releases: gives, .. }) = step.carried_mmas.first().cloned()
            {
                let other = context.module.block(context.module.entries[0].body).ops[0];
                with("another op is in orbit", &|step| {
                    step.carried_mmas[0] =
                        CarriedMma { mma: other, accumulators: carried.clone(), releases: gives.clone() };
                });
            }
            if step.epilogue.is_some() {
                with("nothing is waited for on the way out", &|step| step.epilogue = None);
            }
            if step.pingpong.is_some() {
                with("no iterations are dealt", &|step| step.pingpong = None);
            }
            for at in 0..step.pingpong.as_ref().map_or(0, |deal| deal.stages_per_iteration.len()) {
                with("a stage more is skipped", &|step| {
                    step.pingpong.as_mut().unwrap().stages_per_iteration[at].fixed += 1
                });
                with("a loop is not skipped", &|step| {
                    step.pingpong.as_mut().unwrap().stages_per_iteration[at].per_iteration_of.clear()
                });
            }
            let Some(ahead) = &step.cp_async else { return others };
            let mut with_ahead = |what, change: &dyn Fn(&mut crate::backend::ptx::schedule::CpAsyncPlan)| {
                let mut changed = crate::backend::ptx::schedule::CpAsyncPlan::clone(ahead);
                change(&mut changed);
                with(what, &|step| step.cp_async = Some(Rc::new(changed.clone())));
            };
            with_ahead("one stage", &|ahead| ahead.stages = 1);
            with_ahead("more stages than fit", &|ahead| ahead.stages = 1 << 14);
            with_ahead("stages do not begin where they should", &|ahead| ahead.stage_bytes -= 1);
            with_ahead("stages are too small", &|ahead| ahead.stage_bytes -= ahead.stage_bytes.min(1024));
            with_ahead("a tile begins elsewhere", &|ahead| ahead.copies[0].smem_offset += 1024);
            with_ahead("threads do not meet at the head", &|ahead| ahead.barrier_at_head = !ahead.barrier_at_head);
            with_ahead("threads' elements for operands", &|ahead| {
                ahead.copies[0].thread_private = !ahead.copies[0].thread_private
            });
            if ahead.async_mma {
                with_ahead("products need not land", &|ahead| ahead.async_mma = false);
            }
            with_ahead("a piece is not copied", &|ahead| {
                let pieces = &mut ahead.copies[0].accesses;
                pieces.truncate(pieces.len() - 1);
            });
            with_ahead("nothing is copied", &|ahead| drop(ahead.copies.pop()));
            if !ahead.address_ops.is_empty() {
                with_ahead("an index is not computed", &|ahead| {
                    ahead.address_ops.truncate(ahead.address_ops.len() - 1)
                });
            }
            with("no copies ahead", &|step| step.cp_async = None);
        }
        _ => {}
    }
    others
}

/// Waits for products that are wrong in place of this one.
fn lands_instead(context: &KernelInfo<'_>, land: &MmaWait, add: &mut dyn FnMut(&'static str, MmaWait)) {
    add("more products run on", MmaWait { pending: land.pending + 1, ..*land });
    if land.pending > 0 {
        add("fewer products run on", MmaWait { pending: land.pending - 1, ..*land });
        add("a stage is kept longer", MmaWait { sunk: true, ..*land });
    }
    add(
        "the product of another iteration",
        MmaWait { from_previous_iteration: !land.from_previous_iteration, ..*land },
    );
    let other = context.module.block(context.module.entries[0].body).ops[0];
    add("a wait for another op", MmaWait { mma: other, ..*land });
}

/// Rings and channels that are wrong in place of these.
pub fn roles_instead(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let Some(roles) = &schedule.warp_spec else { return mutants };
    let mut with = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let mut changed = WarpSpecialization::clone(roles);
        change(&mut changed);
        mutants.push((what, Schedule { warp_spec: Some(Rc::new(changed)), ..schedule.clone() }));
    };
    for (at, channel) in roles.channels.iter().enumerate() {
        with("a stage is too small", &|roles| roles.channels[at].stage_bytes -= 1024);
        with("a ring has no stages", &|roles| roles.pipelines[channel.pipeline].num_stages = 0);
        with("stages of a ring are too small", &|roles| roles.pipelines[channel.pipeline].stage_bytes -= 1024);
        let in_orbit = |orbit: &CarriedMma| orbit.releases.contains(&(at as u32));
        let mut steps = schedule.sequences.iter().flatten();
        if roles.pipelines[channel.pipeline].num_stages > 1
            && steps.any(|step| matches!(step, Step::For(step) if step.carried_mmas.iter().any(in_orbit)))
        {
            with("a ring has one stage, and two are held", &|roles| roles.pipelines[channel.pipeline].num_stages = 1);
        }
        for load in 0..channel.loads.len() {
            with("a tile stands elsewhere", &|roles| roles.channels[at].loads[load].smem_offset += channel.stage_bytes);
            if channel.loads[load].boxes.is_empty() {
                with("a neighbour stands elsewhere", &|roles| roles.channels[at].loads[load].smem_offset += 1024);
            }
            with("other bytes are announced", &|roles| roles.channels[at].loads[load].bytes += 16);
            with("a panel has other rows", &|roles| roles.channels[at].loads[load].panel_rows += 8);
            with("a load is of another channel", &|roles| {
                let WarpSpecialization { operand_channel: members, aux_channel: riders, .. } = roles;
                let load = &channel.loads[load].load;
                *members.get_mut(load).or_else(|| riders.get_mut(load)).expect("a load that is streamed") += 1;
            });
            for place in 0..channel.loads[load].boxes.len() {
                with("a box is left out", &|roles| drop(roles.channels[at].loads[load].boxes.remove(place)));
                with("a box stands elsewhere", &|roles| roles.channels[at].loads[load].boxes[place].smem_offset += 128);
                with("a box brings another part", &|roles| roles.channels[at].loads[load].boxes[place].coord[0] += 8);
            }
        }
    }
    mutants
}

/// Groups of products that are wrong in place of this one.
fn products_instead(context: &KernelInfo<'_>, plan: &MmaGroup, add: &mut dyn FnMut(&'static str, MmaGroup)) {
    let mut with = |what, change: &dyn Fn(&mut MmaGroup)| {
        let mut changed = plan.clone();
        change(&mut changed);
        add(what, changed);
    };
    if let Some(&first) = plan.releases.first() {
        with("a product gives nothing back", &|plan| plan.releases.clear());
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
        let module = context.module;
        if module.op(this).operands[0] != module.op(before).operands[0] {
            with("products of different operands are one instruction", &|plan| plan.issue[at].extends_n = true);
        }
        if module.op(this).operands[2] == module.op(before).results[0] {
            with("a product adds to what is not there yet", &|plan| plan.issue.swap(at - 1, at));
        }
    }
}

/// All that a step does, also in its bodies.
fn all_ops(schedule: &Schedule, step: &Step) -> Vec<OpId> {
    let mut ops = match step {
        &Step::Deferred(id) | &Step::Exec(id) | &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) => vec![id],
        &Step::PrivatizedAtomic(id) | &Step::End(id) => vec![id],
        Step::TmaStore(send) => vec![send.op],
        Step::Mma(plan) => plan.ops.clone(),
        &Step::If { op, .. } => vec![op],
        Step::StripMine(strip) => strip.ops().collect(),
        Step::For(step) => vec![step.op],
        Step::Loop(step) => vec![step.op],
        Step::Advance(_) | Step::Produce(_) | Step::ConsumerRelease(_) | Step::ConsumerWait(_) | Step::MmaWait(_) => {
            Vec::new()
        }
        Step::OrderWait(_) | Step::OrderArrive(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => Vec::new(),
        Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => Vec::new(),
    };
    for &body in step.bodies() {
        ops.extend(schedule.steps(body).iter().flat_map(|step| all_ops(schedule, step)));
    }
    ops
}

/// Does a product read a stage of one of these channels?
fn reads_stage_of(context: &KernelInfo<'_>, schedule: &Schedule, id: OpId, channels: &[u32]) -> bool {
    let Some(roles) = &schedule.warp_spec else { return false };
    let loads = context.module.op(id).operands.iter().filter_map(|&value| context.source_load(value));
    let mut behind = loads.filter_map(|load| roles.operand_channel.get(&load));
    behind.any(|&channel| channels.contains(&(channel as u32)))
}

/// Does a step need another one that comes before it?
fn needs(context: &KernelInfo<'_>, schedule: &Schedule, late: &Step, early: &Step) -> bool {
    let module = context.module;
    let of_channel = |channel: u32, step: &Step| {
        let reads = |id: &OpId| {
            let multiplies = matches!(module.op(*id).code, Opcode::MmaF | Opcode::MmaI);
            multiplies && reads_stage_of(context, schedule, *id, &[channel])
        };
        all_ops(schedule, step).iter().any(reads)
    };
    match (early, late) {
        (&Step::Advance(channel), Step::ConsumerWait(wait)) => return channel == wait.channel,
        (&Step::Advance(channel), late) => return of_channel(channel, late),
        (Step::ConsumerWait(wait), late) => return of_channel(wait.channel, late),
        (Step::MmaWait(_), late) => return !late.is_wait(),
        (Step::Mma(_), Step::MmaWait(_)) => return true,
        (early, Step::ConsumerRelease(channels)) => return channels.iter().any(|&channel| of_channel(channel, early)),
        _ => {}
    }
    // Of the agent that loads, loops carry only what it needs.
    let is_loaders =
        schedule.partitions.len() > 1 && matches!(late, Step::For(_) | Step::Loop(_) | Step::If { .. } | Step::End(_));
    let made: HashSet<Value> = all_ops(schedule, early).iter().flat_map(|&id| module.op(id).results.clone()).collect();
    let tiles = |value: &&Value| !matches!(module.ty(**value), Type::Token);
    let reads = |id: &OpId| module.op(*id).operands.iter().filter(tiles).any(|value| made.contains(value));
    !is_loaders && all_ops(schedule, late).iter().any(reads)
}

#[test]
fn the_checker_refuses_every_change() {
    let mut seen: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut missed = Vec::new();
    each_schedule(|name, context, body, schedule| {
        context.verify_schedule(body, schedule).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        let steps: usize = schedule.sequences.iter().map(Vec::len).sum();
        let changed = mutants(context, schedule, false).into_iter().step_by(1 + steps / 200);
        let waits = mutants(context, schedule, true);
        let others =
            [meetings::mutants, stores::mutants, combined::mutants, rounds::mutants, turns::mutants, riders::mutants];
        let others = others.into_iter().flat_map(|mutants| mutants(schedule));
        for (what, mutant) in changed.chain(waits).chain(roles_instead(schedule)).chain(others) {
            let count = seen.entry(what).or_default();
            count[1] += 1;
            match context.verify_schedule(body, &mutant) {
                Err(_) => count[0] += 1,
                Ok(()) => missed.push(format!("{name}: {what}:\n{}", mutant.to_text(context.module))),
            }
        }
    });
    for (what, [refused, all]) in &seen {
        println!("{what}: {refused} of {all} refused");
    }
    assert!(seen.len() > 15, "kinds of changes: {seen:?}");
    assert!(missed.is_empty(), "{} changes are not noticed; the first one: {}", missed.len(), missed[0]);
}
