//! Verifies single steps: strip-mined sequences, copies, loop-carried MMAs, unrolling.

use std::collections::HashSet;

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

/// Bytes of the widest copy of a thread.
const COPY_BYTES: usize = 16;

fn fault(id: OpId, what: &str) -> VerifyResult {
    Err(format!("op {} {what}", id.index()))
}

/// May these ops be done piece by piece? What a piece makes is gone when the next one comes, and pieces come in any order.
pub fn strip(context: &KernelInfo<'_>, schedule: &Schedule, strip: &StripMine) -> VerifyResult {
    let module = context.module;
    let registers = schedule.layout(strip.layout).num_registers();
    if !strip.registers_per_iteration.is_power_of_two() || 2 * strip.registers_per_iteration > registers {
        return Err(format!("pieces of {} slots of {registers}", strip.registers_per_iteration));
    }
    let inside = strip.inside(module);
    let mut uses = std::collections::HashMap::new();
    let mut touches: Vec<(OpId, MemoryEffect)> = Vec::new();
    for (place, &(id, part)) in strip.ops.iter().enumerate() {
        let op = module.op(id);
        if part == StripRole::Preheader {
            if op.operands.iter().any(|operand| inside.contains(operand)) {
                return fault(id, "comes before the pieces that make what it reads");
            }
            continue;
        }
        for operand in op.operands.iter().filter(|operand| inside.contains(operand)) {
            *uses.entry(*operand).or_insert(0) += 1;
        }
        if part == StripRole::View {
            continue;
        }
        if op.code == Opcode::Reduce && place + 1 < strip.ops.len() {
            return fault(id, "reduces pieces, and is not the last of them");
        }
        let numbers = op.results.iter().chain(&op.operands).filter(|&&value| is_tile(context, value));
        let count = schedule.layout(strip.layout).num_elements();
        if op.code != Opcode::Reduce && numbers.into_iter().any(|&value| context.inference.num_elements(value) != count)
        {
            return fault(id, "has other slots than the strip");
        }
        if let Some(touch) = context.memory_effect_of(id) {
            if let Some((other, _)) = touches.iter().find(|(_, other)| other.conflicts(&touch)) {
                return fault(id, &format!("may meet op {} at an element", other.index()));
            }
            touches.push((id, touch));
        }
    }
    let leaves = |value: &&Value| {
        let all = context.use_counts[value.index()];
        all > uses.get(*value).copied().unwrap_or(0) && !matches!(module.ty(**value), Type::Token)
    };
    let left: HashSet<Value> = inside.iter().filter(leaves).map(|&value| whole(strip, module, value)).collect();
    if let Some(value) = left.iter().find(|value| !strip.live_out.contains(value)) {
        return Err(format!("%{} is used outside of its strip, which does not give it", value.index()));
    }
    for (at, value) in strip.live_out.iter().enumerate() {
        if !left.contains(value) || strip.live_out[..at].contains(value) {
            return Err(format!("%{} is given by a strip, and not asked for, or given twice", value.index()));
        }
    }
    Ok(())
}

/// The value that an op of a strip makes, and that this is, perhaps under another name from there.
fn whole(strip: &StripMine, module: &Module, mut value: Value) -> Value {
    let name = |value: Value| module.defining_op(value).filter(|&id| strip.ops.contains(&(id, StripRole::View)));
    while let Some(id) = name(value) {
        value = module.op(id).operands[0];
    }
    value
}

/// A tile of more than one element.
fn is_tile(context: &KernelInfo<'_>, value: Value) -> bool {
    matches!(context.module.ty(value), Type::Tile { .. }) && context.inference.num_elements(value) > 1
}

/// Can copies of this loop run ahead?
pub fn ahead(context: &KernelInfo<'_>, id: OpId, ahead: &CpAsyncPlan, steps: &[Step]) -> VerifyResult {
    // Invariant of `copies_ahead`: every iteration ends at the end of its body.
    if context.ends_early(context.module.op(id).regions[0]) {
        return fault(id, "has copies ahead, and an iteration may end early");
    }
    if ahead.stages < 2 {
        return fault(id, "has copies ahead, and one stage");
    }
    if ahead.barrier_at_head == ahead.is_thread_private() {
        return fault(id, "has copies ahead for all threads that do not meet, or for each that need not");
    }
    indices(context, id, ahead)?;
    // What the copies and, for operands, the patterns of swizzles ask for.
    let align = |own| if own { COPY_BYTES } else { ahead.align() as usize };
    let places = ahead.copies.iter().map(|copy| (copy.smem_offset, copy.thread_private));
    if !places
        .chain([(ahead.stage_bytes, ahead.is_thread_private())])
        .all(|(place, own)| place.is_multiple_of(align(own)))
    {
        return fault(id, "has copies ahead that do not begin where they should");
    }
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for copy in &ahead.copies {
        let (load, bytes) = (copy.load, bytes_of(context, copy));
        let here = |step: &Step| {
            *step == if copy.thread_private { Step::LocalLoadThreadPrivate(load) } else { Step::Deferred(load) }
        };
        if !steps.iter().any(here) || !context.is_invariant_load(load) {
            return fault(load, "is copied ahead, and not read from its stage, or it may change");
        }
        let all = context.inference.accesses.get(&load).map_or(0, |layout| layout.num_registers());
        let mut slots: Vec<usize> = copy.accesses.iter().map(|piece| piece.register).collect();
        slots.sort_unstable();
        if !slots.into_iter().eq((0..all).step_by(copy.vector.max(1))) {
            return fault(load, "is copied in pieces that are not all of it");
        }
        let end = copy.smem_offset + bytes;
        if end > ahead.stage_bytes || taken.iter().any(|&(from, to)| copy.smem_offset < to && from < end) {
            return fault(load, "is copied to bytes of a stage that are not its own");
        }
        taken.push((copy.smem_offset, end));
    }
    let alone = |id: &OpId| context.inference.runs_alone(*id);
    let lone = |step: &Step| matches!(step, Step::Mma(plan) if plan.ops.iter().any(alone));
    if steps.iter().any(lone) && !ahead.async_mma {
        return fault(id, "fills stages that products may still be reading");
    }
    Ok(())
}

/// Are the ops that the indices of copies come from made of the counter and of what is outside of the loop?
fn indices(context: &KernelInfo<'_>, id: OpId, ahead: &CpAsyncPlan) -> VerifyResult {
    let module = context.module;
    let body = module.op(id).regions[0];
    let mut made: HashSet<Value> = HashSet::from([module.block(body).args[0]]);
    let loads = ahead.copies.iter().map(|copy| (copy.load, module.op(copy.load).group(1)));
    let slice = ahead.address_ops.iter().map(|&op| (op, &module.op(op).operands[..]));
    for (op, operands) in slice.chain(loads) {
        let inside = |value: &Value| match module.def(*value) {
            Def::Arg(block, _) => block == body,
            Def::Result(maker, _) => context.op_blocks[maker.index()] == Some(body),
        };
        let missing = operands
            .iter()
            .find(|value| inside(value) && !made.contains(value) && !matches!(module.ty(**value), Type::Token));
        if let Some(value) = missing {
            return fault(op, &format!("is to run ahead, and reads %{}", value.index()));
        }
        made.extend(&module.op(op).results);
    }
    Ok(())
}

/// Bytes from the first to the last that a copy writes.
fn bytes_of(context: &KernelInfo<'_>, copy: &CpAsync) -> usize {
    let bits = context.element_type(context.module.op(copy.load).results[0]).storage_bits() as usize;
    let thread = copy.thread_offsets.iter().fold(0, |all, image| all | image);
    let last = copy.accesses.iter().map(|piece| (thread | piece.xor) + piece.offset).max().unwrap_or(0);
    last as usize + copy.vector * bits / 8
}

/// May these products be issued in this order, as one group? `fetched`: loads whose tiles are in stages; and bytes of the
/// stages of copies ahead.
pub fn together(
    context: &KernelInfo<'_>,
    roles: Option<&WarpSpecialization>,
    plan: &MmaGroup,
    (fetched, ahead): (&dyn Fn(OpId) -> bool, u32),
) -> VerifyResult {
    let (module, ops) = (context.module, &plan.ops);
    let Some(last) = plan.last() else { return Err("a group of no products".to_owned()) };
    let mut issued: Vec<usize> = plan.issue.iter().map(|issue| issue.op).collect();
    issued.sort_unstable();
    if !issued.into_iter().eq(0..ops.len()) {
        return fault(last, "is issued with others, and not each of them once");
    }
    for (at, issue) in plan.issue.iter().enumerate() {
        let id = ops[issue.op];
        let before = at.checked_sub(1).map(|before| ops[plan.issue[before].op]);
        if issue.extends_n && !before.is_some_and(|before| context.widens(before, id, roles)) {
            return fault(id, "is one instruction with the one before, and does not stand behind it");
        }
        let operands = &module.op(id).operands;
        let made = |value: &Value| module.defining_op(*value).filter(|maker| ops.contains(maker));
        if operands[..2].iter().any(|value| made(value).is_some()) {
            return fault(id, "multiplies what is made together with it");
        }
        if let Some(other) = made(&operands[2]) {
            let there = plan.issue[..at].iter().any(|before| ops[before.op] == other);
            if !there || context.use_counts[operands[2].index()] != 1 || !context.add_up_in_place(&[other, id]) {
                return fault(id, &format!("does not add up in place on op {}", other.index()));
            }
        }
    }
    if ops.len() == 1 {
        return Ok(());
    }
    if let Some(&id) = ops.iter().find(|&&id| !context.inference.runs_alone(id)) {
        return fault(id, "is issued with others, and does not run on its own");
    }
    let is_there = |value: Value| context.source_load(value).is_some_and(fetched);
    fits(context, roles, ahead + context.operand_bytes(ops, &is_there))
}

/// May products land in the next iteration?
pub fn orbit(context: &KernelInfo<'_>, schedule: &Schedule, step: &For, orbit: &CarriedMma) -> VerifyResult {
    let module = context.module;
    let id = orbit.mma;
    let plan = schedule.steps(step.body).iter().find_map(|step| match step {
        Step::Mma(plan) if plan.last() == Some(id) => Some(plan),
        _ => None,
    });
    let Some(plan) = plan.filter(|plan| plan.releases == orbit.releases) else {
        return fault(id, "gives back other stages than the loop carries");
    };
    let body = module.op(step.op).regions[0];
    let args = &module.block(body).args;
    let exit = module.block(body).ops.last().map(|&exit| module.op(exit));
    let sums = accumulator_chains(module, &plan.ops);
    let lands = |(sum, &carried): (&Vec<OpId>, &usize)| {
        let start = module.op(sum[0]).operands[2];
        let end = module.op(sum[sum.len() - 1]).results[0];
        args.get(carried + 1) == Some(&start)
            && exit.is_some_and(|exit| exit.operands.get(carried) == Some(&end))
            && [start, end].iter().all(|value| context.use_counts[value.index()] == 1)
    };
    let alone = plan.ops.iter().all(|&id| context.inference.runs_alone(id));
    let right = alone && sums.len() == orbit.accumulators.len() && sums.iter().zip(&orbit.accumulators).all(lands);
    if right { Ok(()) } else { fault(id, "cannot land in the next iteration") }
}

/// May so many rounds of a loop stand one after another?
pub fn rounds(context: &KernelInfo<'_>, acts: WarpRole, step: &For) -> VerifyResult {
    let plain = acts != WarpRole::Producer
        && step.cp_async.is_none()
        && step.carried_mmas.is_empty()
        && step.pingpong.is_none();
    match step.unroll {
        None | Some(1) => Ok(()),
        Some(rounds) if plain && context.can_write_out(step.op, rounds) => Ok(()),
        Some(_) => fault(step.op, "does not go on from one round right to the next"),
    }
}

/// Is there room for all stages?
pub fn fits(context: &KernelInfo<'_>, roles: Option<&WarpSpecialization>, ahead: u32) -> VerifyResult {
    let rings = roles.map_or(0, |roles| roles.pipelines.iter().map(|ring| ring.num_stages * ring.stage_bytes).sum());
    let (all, most) = (rings + ahead, context.inference.target.max_shared_bytes());
    if all <= most { Ok(()) } else { Err(format!("stages of {all} bytes in {most} of shared memory")) }
}
