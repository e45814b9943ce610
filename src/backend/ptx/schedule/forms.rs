//! What steps of some forms ask for: strips, copies ahead, products that run on over a back edge.

use std::collections::HashSet;

use super::Context;
use super::ahead::{Ahead, Copy};
use super::checked::Checked;
use super::data::{For, Orbit, Part, Schedule, Step, Strip};
use super::streams::Roles;
use crate::backend::ptx::infer::Source;
use crate::ir::{Def, OpId, Opcode, Type, Value};

/// Bytes of the widest copy of a thread.
const COPY_BYTES: usize = 16;

fn fault(id: OpId, what: &str) -> Checked {
    Err(format!("op {} {what}", id.index()))
}

/// Does the op only name values, or give what is computed where it is used?
pub fn is_computed_where_used(context: &Context<'_>, id: OpId) -> bool {
    let op = context.module.op(id);
    let renames = matches!(op.code, Opcode::Constant | Opcode::Iota | Opcode::Assume)
        || matches!(op.code, Opcode::Broadcast | Opcode::Reshape | Opcode::Permute);
    renames || op.code.is_elementwise() && context.inference.source(op.results[0]) == Source::Free
}

/// May these ops be done piece by piece? What a piece makes is gone when the next one comes, and pieces come in any order.
pub fn strip(context: &Context<'_>, schedule: &Schedule, strip: &Strip) -> Checked {
    let module = context.module;
    let registers = schedule.layout(strip.layout).num_registers();
    if !strip.piece.is_power_of_two() || 2 * strip.piece > registers {
        return Err(format!("pieces of {} slots of {registers}", strip.piece));
    }
    let inside = strip.inside(module);
    let mut uses = std::collections::HashMap::new();
    let mut touches: Vec<(OpId, super::Touch)> = Vec::new();
    for (place, &(id, part)) in strip.parts.iter().enumerate() {
        let op = module.op(id);
        if part == Part::Before {
            if op.operands.iter().any(|operand| inside.contains(operand)) {
                return fault(id, "comes before the pieces that make what it reads");
            }
            continue;
        }
        for operand in op.operands.iter().filter(|operand| inside.contains(operand)) {
            *uses.entry(*operand).or_insert(0) += 1;
        }
        if part == Part::Name {
            continue;
        }
        if op.code == Opcode::Reduce && place + 1 < strip.parts.len() {
            return fault(id, "reduces pieces, and is not the last of them");
        }
        let numbers = op.results.iter().chain(&op.operands).filter(|&&value| is_tile(context, value));
        let count = schedule.layout(strip.layout).num_elements();
        if op.code != Opcode::Reduce && numbers.into_iter().any(|&value| context.inference.num_elements(value) != count)
        {
            return fault(id, "has other slots than the strip");
        }
        if let Some(touch) = context.access_of(id) {
            if let Some((other, _)) = touches.iter().find(|(_, other)| other.conflicts(&touch)) {
                return fault(id, &format!("may meet op {} at an element", other.index()));
            }
            touches.push((id, touch));
        }
    }
    let outside = |value: &&Value| {
        let all = context.use_counts[value.index()];
        all > uses.get(*value).copied().unwrap_or(0) && !matches!(module.ty(**value), Type::Token)
    };
    match inside.iter().find(outside) {
        Some(value) => Err(format!("%{} is used outside of its strip", value.index())),
        None => Ok(()),
    }
}

/// A tile of more than one element.
fn is_tile(context: &Context<'_>, value: Value) -> bool {
    matches!(context.module.ty(value), Type::Tile { .. }) && context.inference.num_elements(value) > 1
}

/// Can copies of this loop run ahead?
pub fn ahead(context: &Context<'_>, id: OpId, ahead: &Ahead, steps: &[Step]) -> Checked {
    if ahead.stages < 2 {
        return fault(id, "has copies ahead, and one stage");
    }
    indices(context, id, ahead)?;
    // What the copies and, for operands, the patterns of swizzles ask for.
    let align = if ahead.own { COPY_BYTES } else { ahead.align() as usize };
    let mut places = ahead.copies.iter().map(|copy| copy.offset).chain([ahead.stage_bytes]);
    if !places.all(|place| place.is_multiple_of(align)) {
        return fault(id, "has copies ahead that do not begin where they should");
    }
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for copy in &ahead.copies {
        let (load, bytes) = (copy.load, bytes_of(context, copy));
        let here = |step: &Step| *step == if ahead.own { Step::Own(load) } else { Step::Let(load) };
        if !steps.iter().any(here) || !context.is_steady(load) {
            return fault(load, "is copied ahead, and not read from its stage, or it may change");
        }
        let all = context.inference.accesses.get(&load).map_or(0, |layout| layout.num_registers());
        let mut slots: Vec<usize> = copy.pieces.iter().map(|piece| piece.slot).collect();
        slots.sort_unstable();
        if !slots.into_iter().eq((0..all).step_by(copy.run.max(1))) {
            return fault(load, "is copied in pieces that are not all of it");
        }
        let end = copy.offset + bytes;
        if end > ahead.stage_bytes || taken.iter().any(|&(from, to)| copy.offset < to && from < end) {
            return fault(load, "is copied to bytes of a stage that are not its own");
        }
        taken.push((copy.offset, end));
    }
    let lone = |step: &Step| matches!(step, Step::Multiply { op, .. } if runs_alone(context, *op));
    if steps.iter().any(lone) && !ahead.asynchronous {
        return fault(id, "fills stages that products may still be reading");
    }
    Ok(())
}

/// Are the ops that the indices of copies come from made of the counter and of what is outside of the loop?
fn indices(context: &Context<'_>, id: OpId, ahead: &Ahead) -> Checked {
    let module = context.module;
    let body = module.op(id).regions[0];
    let mut made: HashSet<Value> = HashSet::from([module.block(body).args[0]]);
    let loads = ahead.copies.iter().map(|copy| (copy.load, module.op(copy.load).group(1)));
    let slice = ahead.slice.iter().map(|&op| (op, &module.op(op).operands[..]));
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
fn bytes_of(context: &Context<'_>, copy: &Copy) -> usize {
    let bits = context.element_type(context.module.op(copy.load).results[0]).storage_bits() as usize;
    let thread = copy.thread.iter().fold(0, |all, image| all | image);
    let last = copy.pieces.iter().map(|piece| (thread | piece.xor) + piece.offset).max().unwrap_or(0);
    last as usize + copy.run * bits / 8
}

fn runs_alone(context: &Context<'_>, product: OpId) -> bool {
    matches!(context.inference.products.get(&product), Some(Ok(plan)) if plan.is_asynchronous())
}

/// May a product land in the next iteration?
pub fn orbit(context: &Context<'_>, schedule: &Schedule, step: &For, orbit: &Orbit) -> Checked {
    let module = context.module;
    let (op, id) = (module.op(orbit.product), orbit.product);
    let steps = schedule.steps(step.body);
    let given = steps.iter().find_map(|step| match step {
        Step::Multiply { op, gives } if *op == id => Some(gives),
        _ => None,
    });
    if given != Some(&orbit.gives) {
        return fault(id, "gives back other stages than the loop carries");
    }
    let args = &module.block(module.op(step.op).regions[0]).args;
    let exit = module.block(module.op(step.op).regions[0]).ops.last().map(|&exit| module.op(exit));
    let in_place = args.get(orbit.carried + 1) == op.operands.get(2)
        && exit.is_some_and(|exit| exit.operands.get(orbit.carried) == op.results.first());
    let values = op.operands.get(2).into_iter().chain(op.results.first());
    let alone = values.into_iter().all(|value| context.use_counts[value.index()] == 1);
    if in_place && alone && runs_alone(context, id) { Ok(()) } else { fault(id, "cannot land in the next iteration") }
}

/// Is there room for all stages?
pub fn fits(context: &Context<'_>, roles: Option<&Roles>, ahead: u32) -> Checked {
    let rings = roles.map_or(0, |roles| roles.rings.iter().map(|ring| ring.stages * ring.stage_bytes).sum());
    let (all, most) = (rings + ahead, context.inference.target.max_shared_bytes());
    if all <= most { Ok(()) } else { Err(format!("stages of {all} bytes in {most} of shared memory")) }
}
