//! Values that threads exchange: reductions, scans, gathers, histograms, blocks of tiles.

use super::reduction_steps::{LayoutBases, ReductionStep};
use super::requirement::{OpRequirements, Requirement, ScratchRounds, smem_element_bytes};
use crate::backend::ptx::layout_inference::{
    AxisBits, LaneGather, ScanOrder, block_layout, block_number, thread_bases,
};
use crate::layout::Layout;

impl OpRequirements<'_, '_> {
    /// Adds the exchanges of a reduction of the remaining bases.
    pub fn reduction_steps(&mut self, layout: &Layout, mut left: LayoutBases) {
        let info = self.info;
        let op = info.module.op(self.id);
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        for reduction_step in info.reduction_steps(self.id, left.clone(), axis) {
            left.reduce(&reduction_step, axis);
            let ReductionStep::CrossWarp(warps) = &reduction_step else { continue };
            let rows = 1usize << left.lane.iter().chain(&left.warp).filter(|&&basis| basis != 0).count();
            let registers = 1usize << left.register.len();
            let parts = 1usize << warps.len();
            let bytes = |&operand| registers * rows * parts * smem_element_bytes(info.element_type(operand));
            self.list.push(Requirement::SmemExchange(op.operands.iter().map(bytes).collect()));
        }
    }

    /// Adds the operands and the exchange of a scan.
    pub fn scan(&mut self, layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        let axis = op.dim() as usize;
        let Some(order) = ScanOrder::of(layout, axis) else { return };
        self.operands(&op.operands, layout);
        if !order.is_cross_warp() {
            return;
        }
        let axis = AxisBits::of(layout.shape(), axis);
        let off = |basis: &&u32| **basis != 0 && axis.coordinate(**basis) == 0;
        let rows = 1usize << thread_bases(layout).iter().filter(off).count();
        let of_registers = layout.register_bases().iter().filter(|&&basis| axis.coordinate(basis) == 0).count();
        let row = |&operand| smem_element_bytes(info.element_type(operand)) << order.outer.len();
        let bytes = op.operands.iter().map(|operand| (row(operand) * rows) << of_registers);
        self.list.push(Requirement::SmemExchange(bytes.collect()));
    }

    /// Adds the operand of an `extract`, and the redistribution of a block that some warps hold.
    pub fn extract(&mut self, layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        let value = op.results[0];
        self.operand(op.operands[0], layout);
        let part = info.module.shape(value);
        let moves = |&basis: &u32| (0..part.len()).any(|axis| block_number(layout, part, basis, axis) != 0);
        if layout.warp_bases().iter().any(moves) {
            let source_layout = block_layout(layout, part).canonical();
            let required = info.inference.layout(value).cloned().unwrap_or_else(|| source_layout.clone());
            self.list.push(Requirement::Redistribute { value, source_layout, required });
        }
    }

    /// Adds the operands of an `insert`.
    pub fn insert(&mut self, layout: &Layout) {
        let op = self.info.module.op(self.id);
        let (source, destination) = (op.group(0)[0], op.group(1)[0]);
        self.operand(source, &block_layout(layout, self.info.module.shape(source)).canonical());
        self.operand(destination, layout);
    }

    /// Adds the operands of a gather, and the buffer if lanes do not exchange the elements.
    pub fn gather(&mut self, source_layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        let Some(layout) = info.inference.layout(op.results[0]) else { return };
        self.operand(op.operands[0], source_layout);
        self.operand(op.operands[1], layout);
        let dtype = info.element_type(op.operands[0]);
        let words = dtype.storage_bits().div_ceil(32) as usize;
        let handing = LaneGather::of(source_layout, layout, op.dim() as usize);
        if !handing.is_some_and(|handing| handing.pays(words, source_layout.num_registers())) {
            let (count, bytes) = (source_layout.num_elements(), smem_element_bytes(dtype));
            self.list.push(Requirement::Rounds(ScratchRounds::Elements { count, bytes }));
        }
    }

    /// Adds the operand and the buffer of an exchange within the cluster.
    pub fn cluster_all_gather(&mut self, source_layout: &Layout) {
        let source = self.info.module.op(self.id).operands[0];
        self.operand(source, source_layout);
        let (count, bytes) = (source_layout.num_elements(), smem_element_bytes(self.info.element_type(source)));
        self.list.push(Requirement::Rounds(ScratchRounds::Elements { count, bytes }));
    }

    /// Adds the operand and the buffer of ranks.
    pub fn ranks(&mut self, layout: &Layout) {
        let op = self.info.module.op(self.id);
        self.operand(op.operands[0], layout);
        let (count, warps) = (op.bins().next_power_of_two(), layout.num_warps());
        self.list.push(Requirement::Rounds(ScratchRounds::WarpBins { count, warps }));
    }

    /// Adds the operand and the buffer of a histogram.
    pub fn histogram(&mut self, source_layout: &Layout) {
        let op = self.info.module.op(self.id);
        let Some(layout) = self.info.inference.layout(op.results[0]) else { return };
        self.operand(op.operands[0], source_layout);
        let (count, elements) = (layout.num_elements(), source_layout.num_elements());
        self.list.push(Requirement::Rounds(ScratchRounds::Bins { count, elements }));
    }
}
