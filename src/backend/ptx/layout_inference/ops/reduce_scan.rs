//! Layouts of reductions and scans.

use super::super::analysis::reduced_scan::reduced_axis;
use super::super::layouts::blocks::in_registers;
use super::super::layouts::scan_order::ScanOrder;
use super::super::state::core::Inference;
use crate::backend::ptx::optimizations::Optimization;
use crate::ir::OpId;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Cost of a store and a load of one element in shared memory, in instructions as in
/// [`ScanOrder::cost`].
const SMEM_ROUND_TRIP_COST: usize = 4;

/// Cost of the barriers of both conversions, in instructions.
const BARRIERS: usize = 40;

impl Inference<'_> {
    /// Sets the layout of a reduction: that of its operand without the reduced axis.
    pub fn reduce(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let axis = op.dim() as usize;
        let layout = self.elementwise_layout(&op.operands).unwrap_or_else(|| self.default_layout(op.operands[0]));
        let reduced = layout.reduce(axis).squeeze(axis);
        self.op_layouts.insert(id, layout);
        for &result in &op.results {
            self.set(result, reduced.clone());
        }
    }

    /// Sets the layout of a scan: that of its operands if it is cheap, else a layout with adjacent
    /// elements in each thread.
    pub fn scan(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let axis = op.dim() as usize;
        let natural = self.elementwise_layout(&op.operands);
        let natural = natural.unwrap_or_else(|| self.default_layout(op.operands[0])).canonical();
        let in_thread = self.layout_of_reduced_scan(id, natural.shape(), axis);
        let layout = match ScanOrder::of(&natural, axis).filter(ScanOrder::fits) {
            _ if in_thread.is_some() => in_thread.unwrap_or(natural),
            Some(order) if self.is_cheap(&order, &natural, axis) => natural,
            _ => self.contiguous_layout(natural.shape(), axis),
        };
        self.op_layouts.insert(id, layout.clone());
        for &result in &op.results {
            self.set(result, layout.clone());
        }
    }

    /// Returns the layout of a scan of unanchored operands whose results are reduced along another
    /// axis: all elements of the scanned axis in one thread, then elements of the reduced axis,
    /// whose other elements are in adjacent lanes.
    fn layout_of_reduced_scan(&self, id: OpId, shape: &[i64], axis: usize) -> Option<Layout> {
        let op = self.module.op(id);
        if !self.optimizations.contains(Optimization::ReducedScan) || !self.has_unanchored_operands_only(&op.operands) {
            return None;
        }
        let reduced = reduced_axis(self.module, &self.regions, &self.uses, id)?;
        let others = (0..shape.len()).rev().filter(|&other| other != axis && other != reduced);
        let order: Vec<usize> = std::iter::once(reduced).chain(others).chain([axis]).collect_vec();
        let elements = shape.iter().product::<i64>();
        let each = (elements / self.num_threads() as i64).max(1);
        let of_reduced = (each / shape[axis]).min(shape[reduced]);
        if of_reduced < 1 || each < shape[axis] {
            return None;
        }
        // The layout of a tile without the scanned axis, and this axis in registers.
        let mut rest = shape.to_vec();
        rest[axis] = 1;
        let rest = Layout::blocked(&rest, &order, of_reduced as usize, self.num_warps);
        Some(in_registers(&rest, axis, shape[axis]))
    }

    /// Returns true if the scan in `natural` costs at most two conversions more than the other one.
    fn is_cheap(&self, order: &ScanOrder, natural: &Layout, axis: usize) -> bool {
        let registers = natural.num_registers();
        let contiguous = self.contiguous_layout(natural.shape(), axis);
        let Some(other) = ScanOrder::of(&contiguous, axis) else { return true };
        let trips = SMEM_ROUND_TRIP_COST * (registers + contiguous.num_registers()) + BARRIERS;
        order.cost(registers) <= other.cost(contiguous.num_registers()) + trips
    }

    /// Returns the layout with adjacent elements of the axis in each thread, then in lanes and
    /// warps.
    fn contiguous_layout(&self, shape: &[i64], axis: usize) -> Layout {
        let order: Vec<usize> =
            std::iter::once(axis).chain((0..shape.len()).rev().filter(|&other| other != axis)).collect_vec();
        let elements = shape.iter().product::<i64>() as usize;
        let each = (elements / self.num_threads()).max(1);
        Layout::blocked(shape, &order, each, self.num_warps)
    }
}
