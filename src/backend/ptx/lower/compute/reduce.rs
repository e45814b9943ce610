//! Reductions: thread, warp, CTA (Triton `ReduceOpToLLVM`).
//!
//! Elements along the axis differ in bits of their coordinate. Each bit belongs to the register,
//! lane or warp number, and one step combines the two halves of each bit. The order of the steps is
//! planned by `schedule/requirements/reduction_steps`.

use super::reduce_lanes::ReductionPartials;
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::schedule::ReductionStep;
use crate::ir::OpId;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// A reduction over strip iterations. Its combiner is commutative.
pub struct StripReduction {
    id: OpId,
    layout: Layout,
    axis: AxisBits,
    /// Number of the lowest register bits in which the registers of a strip iteration differ.
    strip_bits: usize,
    /// Accumulated values, one for each operand, by the register bits off the axis.
    regs: Vec<Option<Vec<Operand>>>,
}

impl StripReduction {
    /// Returns the register bits off the axis, compressed to adjacent bits.
    fn kept_bits(&self, register: usize) -> usize {
        let bases = self.layout.register_bases().iter().enumerate();
        let kept = bases.filter(|&(_, &basis)| self.axis.coordinate(basis) == 0);
        kept.enumerate().map(|(to, (from, _))| (register >> from & 1) << to).sum()
    }
}

impl Lowering<'_> {
    /// Lowers `reduce`.
    pub fn reduce(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let layout = self.info.inference.op_layouts[&id].clone();
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        let mut partials = self.empty_partials(id, &layout);
        partials.regs = self.operands()?.iter().map(|regs| regs.to_vec()).collect_vec();
        self.emit_reduction_steps(id, partials, axis)
    }

    /// Lowers the remaining steps of a reduction.
    fn emit_reduction_steps(&mut self, id: OpId, mut partials: ReductionPartials, axis: AxisBits) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let (body, layout) = (op.regions[0], self.info.inference.op_layouts[&id].clone());
        let ordered = self.info.is_ordered_reduction(id);
        let folds = self.info.reduction_steps(id, partials.bases.clone(), axis);
        let done = self.reduce_minmax3(body, &mut partials, &folds, axis, ordered)?;
        for fold in folds.into_iter().skip(done) {
            match fold {
                ReductionStep::WarpRedux(lanes) => drop(self.reduce_by_redux(body, &mut partials, lanes)),
                ReductionStep::Registers(coordinate) => self.reduce_registers(body, &mut partials, coordinate, axis)?,
                ReductionStep::LaneSplit(lane, coordinate) => {
                    self.split_lane(body, &mut partials, lane, coordinate, axis)?
                }
                ReductionStep::LaneShuffle(lane) => self.reduce_lane(body, &mut partials, lane, ordered)?,
                ReductionStep::CrossWarp(rows) => self.reduce_warps(body, &mut partials, &rows, ordered)?,
            }
        }
        let reduced = layout.reduce(op.dim() as usize).squeeze(op.dim() as usize);
        for (&result, regs) in op.results.iter().zip(partials.regs) {
            debug_assert_eq!(regs.len(), reduced.num_registers());
            self.values.define(result, Tile { layout: reduced.clone(), regs: regs.into() });
        }
        Ok(())
    }

    /// Begins a reduction whose operands are computed by strip iterations of `strip_registers`
    /// registers.
    pub fn begin_strip_reduction(&self, id: OpId, strip_registers: usize) -> StripReduction {
        let layout = self.info.inference.op_layouts[&id].clone();
        let axis = AxisBits::of(layout.shape(), self.module.op(id).dim() as usize);
        let kept = layout.register_bases().iter().filter(|&&basis| axis.coordinate(basis) == 0).count();
        StripReduction { id, layout, axis, strip_bits: strip_registers.ilog2() as usize, regs: vec![None; 1 << kept] }
    }

    /// Accumulates the registers of a strip iteration from `start` on, one list for each operand.
    pub fn reduce_strip(&mut self, running: &mut StripReduction, start: usize, values: Vec<Vec<Operand>>) -> Lowered {
        let body = self.module.op(running.id).regions[0];
        let axis = running.axis;
        let mut partials = self.empty_partials(running.id, &running.layout);
        partials.bases.register.truncate(running.strip_bits);
        partials.regs = values;
        let along: Vec<u32> =
            partials.bases.register.iter().map(|&basis| axis.coordinate(basis)).filter(|&c| c != 0).collect_vec();
        for coordinate in along {
            self.reduce_registers(body, &mut partials, coordinate, axis)?;
        }
        let first = running.kept_bits(start);
        for slot in 0..partials.regs[0].len() {
            let new = partials.at(slot);
            let combined = match running.regs[first | slot].take() {
                Some(earlier) => self.combine(body, &earlier, &new)?,
                None => new,
            };
            running.regs[first | slot] = Some(combined);
        }
        Ok(())
    }

    /// Completes a reduction after the last strip iteration.
    pub fn end_strip_reduction(&mut self, running: StripReduction) -> Lowered {
        let mut partials = self.empty_partials(running.id, &running.layout);
        partials.bases.keep_off(running.axis);
        let regs: Vec<Vec<Operand>> = running.regs.into_iter().flatten().collect_vec();
        partials.regs =
            (0..partials.dtypes.len()).map(|of| regs.iter().map(|values| values[of]).collect_vec()).collect_vec();
        self.for_op(running.id, |lowering| lowering.emit_reduction_steps(running.id, partials, running.axis))
    }
}
