//! Verifies single steps: strip-mined sequences, copies, MMAs, loop-carried MMAs, unrolling.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::MemoryEffect;
use crate::backend::ptx::schedule::ir::cp_async::{CpAsync, CpAsyncPlan};
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    CarriedMma, For, MmaGroup, Schedule, Step, StripMine, StripRole, WarpRole,
};
use crate::ir::{Def, Module, OpId, Opcode, Type, Value};
use crate::pass::accumulator_chains;
use crate::util::sort;

/// Bytes of the widest copy of a thread.
const COPY_BYTES: usize = 16;

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} {what}", id.index()))
}

/// Verifies a strip-mined sequence: strip iterations are independent, and later steps use live-out
/// tiles only.
pub fn verify_strip_mine(info: &KernelInfo<'_>, schedule: &Schedule, strip_mine: &StripMine) -> VerifyResult {
    let module = info.module;
    let registers = schedule.layout(strip_mine.layout).num_registers();
    if !strip_mine.registers_per_iteration.is_power_of_two() || 2 * strip_mine.registers_per_iteration > registers {
        return Err(format!("iterations of {} registers of {registers}", strip_mine.registers_per_iteration));
    }
    let inside = strip_mine.defined_tiles(module);
    let mut uses = rustc_hash::FxHashMap::default();
    let mut effects: Vec<(OpId, MemoryEffect)> = Vec::new();
    for (index, &(id, part)) in strip_mine.ops.iter().enumerate() {
        let op = module.op(id);
        if part == StripRole::Preheader {
            if op.operands.iter().any(|operand| inside.contains(operand)) {
                return fault(id, "is in the preheader, and reads a tile of the body");
            }
            continue;
        }
        for operand in op.operands.iter().filter(|operand| inside.contains(operand)) {
            *uses.entry(*operand).or_insert(0) += 1;
        }
        if part == StripRole::View {
            continue;
        }
        if op.code == Opcode::Reduce && index + 1 < strip_mine.ops.len() {
            return fault(id, "is a reduction, and not the last op");
        }
        let numbers = op.results.iter().chain(&op.operands).filter(|&&value| is_tile(info, value));
        let count = schedule.layout(strip_mine.layout).num_elements();
        if op.code != Opcode::Reduce && numbers.into_iter().any(|&value| info.inference.num_elements(value) != count) {
            return fault(id, "has other registers than the sequence");
        }
        if let Some(effect) = info.memory_effect_of(id) {
            if let Some((other, _)) = effects.iter().find(|(_, other)| other.may_race(&effect)) {
                return fault(id, &format!("may race with op {}", other.index()));
            }
            effects.push((id, effect));
        }
    }
    let leaves = |value: &&Value| {
        let all = info.uses.count(**value);
        all > uses.get(*value).copied().unwrap_or(0) && !matches!(module.ty(**value), Type::Token)
    };
    let left: FxHashSet<Value> =
        inside.iter().filter(leaves).map(|&value| through_views(strip_mine, module, value)).collect();
    if let Some(value) = left.iter().find(|value| !strip_mine.live_out.contains(value)) {
        return Err(format!("%{} is used after its strip-mined sequence, and is not live-out", value.index()));
    }
    for (at, value) in strip_mine.live_out.iter().enumerate() {
        if !left.contains(value) || strip_mine.live_out[..at].contains(value) {
            return Err(format!("%{} is live-out without a use, or twice", value.index()));
        }
    }
    Ok(())
}

/// Returns the tile that a strip-mined op computes, of which this value is a view of registers, or
/// the value itself.
fn through_views(strip_mine: &StripMine, module: &Module, mut value: Value) -> Value {
    let name = |value: Value| module.defining_op(value).filter(|&id| strip_mine.ops.contains(&(id, StripRole::View)));
    while let Some(id) = name(value) {
        value = module.op(id).operands[0];
    }
    value
}

/// Returns true if a value is a tile of more than one element.
fn is_tile(info: &KernelInfo<'_>, value: Value) -> bool {
    matches!(info.module.ty(value), Type::Tile { .. }) && info.inference.num_elements(value) > 1
}

/// Verifies the multistage copies of a loop.
pub fn verify_cp_async(info: &KernelInfo<'_>, id: OpId, plan: &CpAsyncPlan, steps: &[Step]) -> VerifyResult {
    // Invariant of `plan_cp_async`: every iteration ends at the end of its body.
    if info.regions.has_multiple_latches(id) {
        return fault(id, "has multistage copies, and an iteration may end early");
    }
    if plan.stages < 2 {
        return fault(id, "has multistage copies, and one stage");
    }
    if plan.barrier_at_head == plan.is_thread_private() {
        return fault(id, "has multistage copies, and lacks a barrier or has a redundant one");
    }
    verify_address_ops(info, id, plan)?;
    // Alignment for the copies and, for MMA operands, the swizzle pattern.
    let align = |own| if own { COPY_BYTES } else { plan.align() as usize };
    let offsets = plan.copies.iter().map(|copy| (copy.smem_offset, copy.thread_private));
    if !offsets
        .chain([(plan.stage_bytes, plan.is_thread_private())])
        .all(|(offset, own)| offset.is_multiple_of(align(own)))
    {
        return fault(id, "has misaligned multistage copies");
    }
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for copy in &plan.copies {
        let (load, bytes) = (copy.load, bytes_of(info, copy));
        let step = if copy.thread_private { Step::LocalLoad(load) } else { Step::Deferred(load) };
        if !steps.contains(&step) || !info.is_invariant_load(load) {
            return fault(load, "is copied, and not read from its stage, or its array is written");
        }
        if !has_readable_replicas(info, copy, plan.barrier_at_head) {
            return fault(load, "has a copy that some of its readers do not wait for");
        }
        let all = info.inference.op_layouts.get(&load).map_or(0, |layout| layout.num_registers());
        let mut registers: Vec<usize> = copy.accesses.iter().map(|access| access.register).collect_vec();
        sort::natural(&mut registers);
        if !registers.into_iter().eq((0..all).step_by(copy.vector.max(1))) {
            return fault(load, "is not copied completely");
        }
        let end = copy.smem_offset + bytes;
        if end > plan.stage_bytes || taken.iter().any(|&(from, to)| copy.smem_offset < to && from < end) {
            return fault(load, "is copied to bytes of another copy");
        }
        taken.push((copy.smem_offset, end));
    }
    let is_async = |id: &OpId| info.inference.is_async_mma(*id);
    let is_async_group = |step: &Step| matches!(step, Step::Mma(plan) if plan.ops.iter().any(is_async));
    // No MMA reads what threads copy for themselves.
    if steps.iter().any(is_async_group) && !plan.async_mma && !plan.is_thread_private() {
        return fault(id, "fills stages that MMAs may still read");
    }
    Ok(())
}

/// Verifies that the address ops of copies depend on the loop counter and on values from outside of
/// the loop only.
fn verify_address_ops(info: &KernelInfo<'_>, id: OpId, plan: &CpAsyncPlan) -> VerifyResult {
    let module = info.module;
    let body = module.op(id).regions[0];
    let mut made: FxHashSet<Value> = FxHashSet::from_iter([module.block(body).args[0]]);
    let loads = plan.copies.iter().map(|copy| (copy.load, &module.op(copy.load).operands[..]));
    let slice = plan.address_ops.iter().map(|&op| (op, &module.op(op).operands[..]));
    for (op, operands) in slice.chain(loads) {
        let inside = |value: &Value| match module.def(*value) {
            Def::Arg(block, _) => block == body,
            Def::Result(maker, _) => info.regions.block_of(maker) == Some(body),
        };
        let missing = operands
            .iter()
            .find(|value| inside(value) && !made.contains(value) && !matches!(module.ty(**value), Type::Token));
        if let Some(value) = missing {
            return fault(op, &format!("is an address op, and reads %{}", value.index()));
        }
        made.extend(&module.op(op).results);
    }
    Ok(())
}

/// Returns true if the threads that share a copy read the same elements at the same offset, and are
/// synchronized with the thread that copies.
fn has_readable_replicas(info: &KernelInfo<'_>, copy: &CpAsync, has_barrier: bool) -> bool {
    let Some(layout) = info.inference.op_layouts.get(&copy.load) else { return copy.replicas == 0 };
    let bases = layout.lane_bases().iter().chain(layout.warp_bases());
    let num_lanes = layout.lane_bases().len();
    let mut shared = bases.zip(&copy.thread_offsets).enumerate().filter(|(bit, _)| copy.replicas >> bit & 1 == 1);
    copy.replicas >> copy.thread_offsets.len() == 0
        && shared.all(|(bit, (&basis, &offset))| basis == 0 && offset == 0 && (has_barrier || bit < num_lanes))
}

/// Returns the bytes from the first to the last one that a copy writes.
fn bytes_of(info: &KernelInfo<'_>, copy: &CpAsync) -> usize {
    let bits = info.element_type(info.module.op(copy.load).results[0]).storage_bits() as usize;
    let thread = copy.thread_offsets.iter().fold(0, |all, basis| all | basis);
    let last = copy.accesses.iter().map(|access| (thread | access.xor) + access.offset).max().unwrap_or(0);
    last as usize + copy.vector * bits / 8
}

/// Verifies an MMA group. `fetched`: returns true for loads whose tiles are in stages.
/// `cp_async_bytes`: bytes of the multistage copies of the enclosing loops.
pub fn verify_mma_group(
    info: &KernelInfo<'_>,
    warp_spec: Option<&WarpSpecialization>,
    plan: &MmaGroup,
    (fetched, cp_async_bytes): (&dyn Fn(OpId) -> bool, u32),
) -> VerifyResult {
    let (module, ops) = (info.module, &plan.ops);
    let Some(last) = plan.last() else { return Err("a group without MMAs".to_owned()) };
    let mut issued: Vec<usize> = plan.issue.iter().map(|issue| issue.op).collect_vec();
    sort::natural(&mut issued);
    if !issued.into_iter().eq(0..ops.len()) {
        return fault(last, "is in a group that does not issue each MMA once");
    }
    for (at, issue) in plan.issue.iter().enumerate() {
        let id = ops[issue.op];
        let before = at.checked_sub(1).map(|before| ops[plan.issue[before].op]);
        if issue.extends_n && !before.is_some_and(|before| info.can_extend_n(before, id, warp_spec)) {
            return fault(id, "extends n of an MMA that it is not adjacent to");
        }
        let operands = &module.op(id).operands;
        let made = |value: &Value| module.defining_op(*value).filter(|maker| ops.contains(maker));
        if operands[..2].iter().any(|value| made(value).is_some()) {
            return fault(id, "reads a result of its own group");
        }
        if let Some(other) = made(&operands[2]) {
            let there = plan.issue[..at].iter().any(|before| ops[before.op] == other);
            if !there || info.uses.count(operands[2]) != 1 || !info.has_same_accumulator_layout(&[other, id]) {
                return fault(id, &format!("does not accumulate in place on op {}", other.index()));
            }
        }
    }
    if ops.len() == 1 {
        return Ok(());
    }
    if let Some(&id) = ops.iter().find(|&&id| !info.inference.is_async_mma(id)) {
        return fault(id, "is in a group, and is not asynchronous");
    }
    let is_there = |value: Value| info.source_load(value).is_some_and(fetched);
    verify_smem_capacity(info, warp_spec, cp_async_bytes + info.operand_bytes(ops, &is_there))
}

/// Verifies a loop-carried MMA.
pub fn verify_carried_mma(
    info: &KernelInfo<'_>,
    schedule: &Schedule,
    step: &For,
    carried: &CarriedMma,
) -> VerifyResult {
    let module = info.module;
    let id = carried.mma;
    let plan = schedule.steps(step.body).iter().find_map(|step| match step {
        Step::Mma(plan) if plan.last() == Some(id) => Some(plan),
        _ => None,
    });
    let Some(plan) = plan.filter(|plan| plan.releases == carried.releases) else {
        return fault(id, "releases other stages than the loop carries");
    };
    let body = module.op(step.op).regions[0];
    let args = &module.block(body).args;
    let exit = module.block(body).ops.last().map(|&exit| module.op(exit));
    let sums = accumulator_chains(module, &plan.ops);
    let is_carried = |(sum, &carried): (&Vec<OpId>, &usize)| {
        let start = module.op(sum[0]).operands[2];
        let end = module.op(sum[sum.len() - 1]).results[0];
        args.get(carried + 1) == Some(&start)
            && exit.is_some_and(|exit| exit.operands.get(carried) == Some(&end))
            && [start, end].iter().all(|&value| info.uses.count(value) == 1)
    };
    let is_async = plan.ops.iter().all(|&id| info.inference.is_async_mma(id));
    let right =
        is_async && sums.len() == carried.accumulators.len() && sums.iter().zip(&carried.accumulators).all(is_carried);
    if right { Ok(()) } else { fault(id, "cannot be loop-carried") }
}

/// Verifies unrolling.
pub fn verify_unroll(info: &KernelInfo<'_>, role: WarpRole, step: &For) -> VerifyResult {
    let plain = role != WarpRole::Producer
        && step.cp_async.is_none()
        && step.carried_mmas.is_empty()
        && step.pingpong.is_none();
    match step.unroll {
        None | Some(1) => Ok(()),
        Some(factor) if plain && info.can_unroll(step.op, factor) => Ok(()),
        Some(_) => fault(step.op, "cannot be unrolled"),
    }
}

/// Verifies that the stages of pipelines and multistage copies fit into shared memory.
pub fn verify_smem_capacity(
    info: &KernelInfo<'_>,
    warp_spec: Option<&WarpSpecialization>,
    cp_async_bytes: u32,
) -> VerifyResult {
    let pipelines = warp_spec.map_or(0, |warp_spec| {
        warp_spec.pipelines.iter().map(|pipeline| pipeline.num_stages * pipeline.stage_bytes).sum()
    });
    let (all, most) = (pipelines + cp_async_bytes, info.inference.target.max_shared_bytes());
    if all <= most { Ok(()) } else { Err(format!("stages of {all} bytes in {most} of shared memory")) }
}

impl KernelInfo<'_> {
    /// Verifies that the warps share each issued MMA as planned.
    pub fn verify_mma_partition(&self, schedule: &Schedule) -> VerifyResult {
        let planned = self.mma_partitions();
        if schedule.mma_partitions != planned {
            return Err(format!("MMAs are split as {:?} instead of {planned:?}", schedule.mma_partitions));
        }
        let mmas = schedule.sequences.iter().flatten().filter_map(|step| match step {
            Step::Mma(plan) => Some(&plan.ops),
            _ => None,
        });
        match mmas.flatten().find(|id| planned.iter().all(|(planned, _)| planned != *id)) {
            Some(id) => Err(format!("no warp has a part of MMA {}", id.index())),
            None => Ok(()),
        }
    }
}
