//! Reductions: within a thread, across lanes by shuffles (`partials`), across warps through shared memory (`reduce_warps`).
//!
//! The elements along the axis are told apart by bits of its coordinate; each bit belongs to a
//! register bit, a lane bit or a warp bit, and each is reduced by one step that combines two halves: in the order that
//! the schedule's plan of reductions gives (`schedule/membar/reduction_steps`).

use super::partials::Partials;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::schedule::ReductionStep;
use crate::ir::OpId;
use crate::layout::Layout;

/// A reduction that has seen some of its slots; its combiner commutes.
pub struct RunningReduction {
    id: OpId,
    layout: Layout,
    axis: AxisBits,
    /// Slots of a piece differ in so many of the lowest register bits.
    piece_bits: usize,
    /// What is combined so far, one value an operand, in the slots that the bits off the axis tell apart.
    slots: Vec<Option<Vec<Operand>>>,
}

impl RunningReduction {
    /// The bits of a slot's number that are off the axis, side by side.
    fn kept_bits(&self, slot: usize) -> usize {
        let images = self.layout.register_images().iter().enumerate();
        let kept = images.filter(|&(_, &image)| self.axis.coordinate(image) == 0);
        kept.enumerate().map(|(to, (from, _))| (slot >> from & 1) << to).sum()
    }
}

impl Lowering<'_> {
    /// `reduce`.
    pub fn reduce(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let layout = self.context.inference.accesses[&id].clone();
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        let mut partials = self.no_partials(id, &layout);
        for &operand in &op.operands {
            partials.slots.push(self.get(operand, &layout)?.to_vec());
        }
        self.reduce_partials(id, partials, axis)
    }

    /// What is left to do of a reduction.
    fn reduce_partials(&mut self, id: OpId, mut partials: Partials, axis: AxisBits) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let (body, layout) = (op.regions[0], self.context.inference.accesses[&id].clone());
        let ordered = self.context.folds_in_order(id);
        let folds = self.context.folds(id, partials.images.clone(), axis);
        let done = self.extremes(body, &mut partials, &folds, axis, ordered)?;
        for fold in folds.into_iter().skip(done) {
            match fold {
                ReductionStep::WarpRedux(lanes) => drop(self.reduce_by_redux(body, &mut partials, lanes)),
                ReductionStep::Registers(coordinate) => self.reduce_registers(body, &mut partials, coordinate, axis)?,
                ReductionStep::LaneSplit(lane, coordinate) => {
                    self.share_lane(body, &mut partials, lane, coordinate, axis)?
                }
                ReductionStep::LaneShuffle(lane) => self.reduce_lane(body, &mut partials, lane, ordered)?,
                ReductionStep::CrossWarp(warps) => self.reduce_warps(body, &mut partials, &warps, ordered)?,
            }
        }
        let reduced = layout.reduce(op.dim() as usize).squeeze(op.dim() as usize);
        for (&result, slots) in op.results.iter().zip(partials.slots) {
            debug_assert_eq!(slots.len(), reduced.num_registers());
            self.tiles[result.index()] = Some(Tile { layout: reduced.clone(), slots: slots.into() });
        }
        Ok(())
    }

    /// A reduction whose operands come piece by piece, each of so many slots.
    pub fn begin_reduction(&self, id: OpId, piece: usize) -> RunningReduction {
        let layout = self.context.inference.accesses[&id].clone();
        let axis = AxisBits::of(layout.shape(), self.module.op(id).dim() as usize);
        let kept = layout.register_images().iter().filter(|&&image| axis.coordinate(image) == 0).count();
        RunningReduction { id, layout, axis, piece_bits: piece.ilog2() as usize, slots: vec![None; 1 << kept] }
    }

    /// Takes the operands' slots from `start` on, one list an operand.
    pub fn reduce_piece(&mut self, running: &mut RunningReduction, start: usize, values: Vec<Vec<Operand>>) -> Lowered {
        let body = self.module.op(running.id).regions[0];
        let axis = running.axis;
        let mut partials = self.no_partials(running.id, &running.layout);
        partials.images.register.truncate(running.piece_bits);
        partials.slots = values;
        let along: Vec<u32> =
            partials.images.register.iter().map(|&image| axis.coordinate(image)).filter(|&c| c != 0).collect();
        for coordinate in along {
            self.reduce_registers(body, &mut partials, coordinate, axis)?;
        }
        let first = running.kept_bits(start);
        for slot in 0..partials.slots[0].len() {
            let new = partials.at(slot);
            let combined = match running.slots[first | slot].take() {
                Some(earlier) => self.combine(body, &earlier, &new)?,
                None => new,
            };
            running.slots[first | slot] = Some(combined);
        }
        Ok(())
    }

    /// The pieces are all there.
    pub fn end_reduction(&mut self, running: RunningReduction) -> Lowered {
        let mut partials = self.no_partials(running.id, &running.layout);
        partials.images.keep_off(running.axis);
        let slots: Vec<Vec<Operand>> = running.slots.into_iter().flatten().collect();
        partials.slots = (0..partials.dtypes.len()).map(|of| slots.iter().map(|values| values[of]).collect()).collect();
        self.for_op(running.id, |lowering| lowering.reduce_partials(running.id, partials, running.axis))
    }
}
