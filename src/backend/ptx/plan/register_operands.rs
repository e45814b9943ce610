//! Left operands in registers: an operand that a loop with MMAs does not change is converted to the
//! registers of the MMAs before the loop.
//!
//! Examples are queries that are scaled, rotated or dequantized by threads. Without the conversion,
//! each iteration writes the operand to shared memory again, between two barriers.
//!
//! Loops in which threads load the left operand of another MMA into registers are excluded: ptxas
//! 13.0 allocates the same registers for both operands, so results are wrong from the second
//! iteration. ptxas 13.5 does not. Such loads are those of transposed operands of tf32. Operands of
//! 32 bits are excluded altogether.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::hardware::{REGISTERS_PER_SM, WARP_SIZE};
use super::super::layout_inference::{Inference, thread_bases};
use crate::ir::{Attr, Distribution, Module, OpId, Opcode, Value};
use crate::layout::Layout;
use crate::pass::manager;
use crate::util::sort;

/// Maximum number of registers of a thread for accumulators and operands, in a kernel with a
/// producer.
const MAX_REGISTERS: u32 = 208;
/// Registers of a thread for addresses, counters and small tiles.
const SPARE_REGISTERS: u32 = 40;

/// Converts left operands before loops. Returns true if there are any. `loaded`: also loaded ones,
/// which otherwise remain in their stage.
pub fn place_operands_in_registers(module: &mut Module, inference: &Inference<'_>, loaded: bool) -> bool {
    let required = required_operands(inference, loaded);
    if required.is_empty() {
        return false;
    }
    manager::apply("register_operands", module, |module| {
        let mut converted: FxHashMap<Value, Value> = FxHashMap::default();
        for (mma, layout) in &required {
            let value = module.op(*mma).operands[0];
            let copy = *converted.entry(value).or_insert_with(|| convert(module, inference, value, layout));
            module.op_mut(*mma).operands[0] = copy;
        }
    });
    true
}

/// Returns the MMAs whose left operands are to be in registers, with their layouts.
fn required_operands(inference: &Inference<'_>, loaded: bool) -> Vec<(OpId, Layout)> {
    let module = inference.module();
    let regions = &inference.regions;
    let threads = WARP_SIZE * inference.num_warps as u32;
    let most = (REGISTERS_PER_SM / threads).saturating_sub(SPARE_REGISTERS).min(MAX_REGISTERS);
    let mut required: Vec<(OpId, Layout)> = Vec::new();
    let mut mmas: Vec<OpId> = regions.ops().iter().copied().filter(|&id| inference.is_async_mma(id)).collect_vec();
    if loaded {
        // The smallest operands first, after the computed ones.
        let size = |id: &OpId| {
            let left = module.op(*id).operands[0];
            (is_loaded(module, left), inference.num_elements(left))
        };
        sort::by_key(&mut mmas, size);
    }
    for id in mmas {
        let Some(Ok(plan)) = inference.mma_plans.get(&id) else { continue };
        let (Some(layout), Some(parent)) = (&plan.a.registers, regions.enclosing_loop(id)) else { continue };
        let value = module.op(id).operands[0];
        let is_same_type = module.dtype(value) == plan.a.dtype && plan.a.dtype.storage_bits() == 16;
        let is_there = inference.natural(value).is_some_and(|natural| natural.is_same(layout));
        let is_before = is_computed_before(inference, value, parent)
            || loaded && is_loaded(module, value) && is_defined_before(inference, value, parent);
        if is_there || !is_same_type || !is_before {
            continue;
        }
        let loads_another = regions.nested(parent).iter().any(|other| {
            let plan = inference.mma_plans.get(other).and_then(|plan| plan.as_ref().ok());
            *other != id && plan.is_some_and(|plan| plan.effort().words > 0)
        });
        if loads_another {
            continue;
        }
        if registers_in_loop(inference, parent, (id, &required)) <= most
            && required.iter().all(|(_, known)| known.shape() != layout.shape() || known.is_same(layout))
        {
            required.push((id, layout.clone()));
        }
    }
    required
}

/// Returns the registers of a thread for the accumulators of all MMAs of a loop and for their left
/// operands: with those of `id` and of the `required` MMAs. MMAs that add to one accumulator share
/// its registers, and a left operand of several MMAs counts once.
fn registers_in_loop(inference: &Inference<'_>, parent: OpId, (id, required): (OpId, &[(OpId, Layout)])) -> u32 {
    let module = inference.module();
    let nested = inference.regions.nested(parent).iter();
    let planned = nested.filter_map(|other| Some((*other, inference.mma_plans.get(other)?.as_ref().ok()?)));
    let (mut registers, mut left_operands) = (0, FxHashSet::default());
    for (other, plan) in planned {
        let &[left, _, acc] = &module.op(other).operands[..] else { continue };
        let adds_to_another = module.defining_op(acc).is_some_and(|before| inference.mma_plans.contains_key(&before));
        if !adds_to_another {
            registers += plan.acc.num_registers() as u32;
        }
        let is_required = other == id || required.iter().any(|(mma, _)| *mma == other);
        if (is_required || !is_loaded(module, left)) && left_operands.insert(left) {
            // Warp groups that share rows have copies of a converted operand.
            let converted = plan.a.registers.as_ref().filter(|_| is_required && is_loaded(module, left));
            let words = converted.map(|layout| layout.num_registers() as u32 / 2);
            registers += words.unwrap_or_else(|| inference.words_of(left));
        }
    }
    registers
}

/// Returns true if threads compute a tile before a loop.
fn is_computed_before(inference: &Inference<'_>, value: Value, loop_op: OpId) -> bool {
    let module = inference.module();
    let Some(id) = module.defining_op(value) else { return false };
    !is_loaded(module, value) && module.op(id).code.is_elementwise() && !inference.regions.contains(loop_op, id)
}

/// Returns true if the op that defines a tile is before a loop.
fn is_defined_before(inference: &Inference<'_>, value: Value, loop_op: OpId) -> bool {
    inference.module().defining_op(value).is_some_and(|id| !inference.regions.contains(loop_op, id))
}

/// Returns true if a tile is a loaded one, or a view of it.
fn is_loaded(module: &Module, mut value: Value) -> bool {
    while let Some(id) = module.defining_op(value) {
        let op = module.op(id);
        match op.code {
            code if code.is_bijective_alias() => value = op.operands[0],
            code => return matches!(code, Opcode::LoadView | Opcode::LoadPtr),
        }
    }
    false
}

/// Inserts a conversion after the definition of a value.
fn convert(module: &mut Module, inference: &Inference<'_>, value: Value, layout: &Layout) -> Value {
    let (slots, threads) = (layout.register_bases().into(), thread_bases(layout).into());
    let attrs = vec![Attr::Distribution(Distribution { slots, threads })];
    let definition = module.defining_op(value).expect("a computed tile");
    let (ty, loc) = (module.ty_id(value), module.op(definition).loc);
    let id = module.add_op(Opcode::WithLayout, &[&[value]], attrs, vec![], &[ty], loc);
    let block = inference.regions.block_of(definition).expect("a block");
    let ops = &mut module.block_mut(block).ops;
    let at = ops.iter().position(|&op| op == definition).expect("the op is in its block");
    ops.insert(at + 1, id);
    module.op(id).results[0]
}
