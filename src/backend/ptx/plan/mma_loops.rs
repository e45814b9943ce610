//! Loops with MMAs: rewrites loop-carried values so that work is independent of the MMAs in
//! flight.
//!
//! * Sums over an axis are carried as the partial sums of each thread
//!   (`pass::thread_local_reduction`), and reduced after the loop.
//! * An MMA that depends on another one moves into the next iteration
//!   (`pass::pipeline_dependent_mma`; FlashAttention-3, Shah et al. 2024).
//! * Left operands that a loop does not change are converted to registers before it
//!   (`register_operands`).
//!
//! The rewriting needs layouts. Layouts of the new module are inferred again.

use rustc_hash::FxHashSet;

use super::super::Optimization;
use super::super::layout_inference::{AxisBits, Inference, thread_bases};
use super::register_operands::place_operands_in_registers;
use crate::ir::{Distribution, Entry, Module, OpId, Opcode};
use crate::pass;

/// Returns the module with other loop-carried values, or `None` if no loop changes. `loaded`: left
/// operands in registers may be loaded ones.
pub fn rewrite_mma_loops(module: &Module, entry: &Entry, inference: &Inference<'_>, loaded: bool) -> Option<Module> {
    let is_async = |id: OpId| inference.is_async_mma(id);
    let count = inference.mma_plans.keys().filter(|&&id| is_async(id)).count();
    if count == 0 {
        return None;
    }
    let candidates = reductions_of_mma_blocks(module, entry, &is_async);
    let mut module = module.clone();
    let enabled = inference.optimizations;
    let mut any =
        enabled.contains(Optimization::RegisterOperands) && place_operands_in_registers(&mut module, inference, loaded);
    any |= enabled.contains(Optimization::ThreadLocalReduction)
        && pass::thread_local_reduction(&mut module, &|id| candidates.contains(&id).then(|| shared(inference, id))?);
    any |= count > 1
        && enabled.contains(Optimization::PipelineDependentMma)
        && pass::pipeline_dependent_mma(&mut module, &is_async);
    any.then(|| {
        pass::optimize(&mut module);
        module
    })
}

/// Returns the reductions that are in one block with an asynchronous MMA.
fn reductions_of_mma_blocks(module: &Module, entry: &Entry, is_async: &dyn Fn(OpId) -> bool) -> FxHashSet<OpId> {
    let mut candidates = FxHashSet::default();
    let mut pending = vec![entry.body];
    while let Some(block) = pending.pop() {
        let ops = &module.block(block).ops;
        pending.extend(ops.iter().flat_map(|&id| &module.op(id).regions));
        if ops.iter().any(|&id| is_async(id)) {
            candidates.extend(ops.iter().filter(|&&id| module.op(id).code == Opcode::Reduce));
        }
    }
    candidates
}

/// Returns how threads share the axis of a reduction. `None` if an element has several threads or
/// an unusual layout, or if each thread has the whole axis.
fn shared(inference: &Inference<'_>, id: OpId) -> Option<pass::ReductionDistribution> {
    let layout = inference.op_layouts.get(&id)?;
    let dim = inference.module().op(id).dim() as usize;
    let axis = AxisBits::of(layout.shape(), dim);
    let along = |bases: &[u32]| bases.iter().map(|&basis| axis.coordinate(basis)).fold(0, |all, bits| all | bits);
    let (own, others) = (along(layout.register_bases()), along(&thread_bases(layout)));
    let bases = layout.bases();
    let bits = bases.iter().filter(|&&basis| basis != 0).count();
    let plain = bases.iter().all(|basis| basis.count_ones() <= 1) && 1 << bits == layout.num_elements();
    if !plain || own & others != 0 || others == 0 {
        return None;
    }
    let axes = axes_of(others, layout.shape()[dim]);
    let mut shape = layout.shape().to_vec();
    shape.splice(dim..=dim, axes.iter().map(|part| part.extent));
    let local = (0..axes.len()).rev().filter(|&part| !axes[part].is_shared);
    let each = local.fold(layout.reshape(&shape), |each, part| each.reduce(dim + part).squeeze(dim + part));
    let (slots, threads) = (each.register_bases().into(), thread_bases(&each).into());
    let crosses_warps = along(layout.warp_bases()) != 0;
    Some(pass::ReductionDistribution { axes, crosses_warps, layout: Distribution { slots, threads } })
}

/// Returns the runs of bits of an axis that threads share, or do not share; the outermost first.
fn axes_of(shared_bits: u32, extent: i64) -> Vec<pass::ReductionAxis> {
    let mut axes: Vec<pass::ReductionAxis> = Vec::new();
    for bit in (0..extent.trailing_zeros()).rev() {
        let is_shared = shared_bits >> bit & 1 == 1;
        match axes.last_mut() {
            Some(axis) if axis.is_shared == is_shared => axis.extent *= 2,
            _ => axes.push(pass::ReductionAxis { extent: 2, is_shared }),
        }
    }
    axes
}
