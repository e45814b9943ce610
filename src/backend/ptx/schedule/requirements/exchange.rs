//! Values that threads exchange: reductions, scans, gathers, histograms, blocks of tiles.

use super::reduction_steps::{LayoutBases, ReductionStep};
use super::requirement::{ExchangeRows, OpRequirements, Requirement, ScratchRounds, smem_element_bytes};
use crate::backend::ptx::layout_inference::{AxisBits, LaneGather, ScanOrder, block_layout, block_number};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

impl OpRequirements<'_, '_> {
    /// Adds the exchanges of a reduction of the remaining bases.
    pub fn reduction_exchanges(&mut self, layout: &Layout, left: LayoutBases) {
        let axis = AxisBits::of(layout.shape(), self.info.module.op(self.id).dim() as usize);
        for reduction_step in self.info.reduction_steps(self.id, left, axis) {
            if let ReductionStep::CrossWarp(rows) = reduction_step {
                self.exchange_rows(&rows);
            }
        }
    }

    /// Adds the exchange of rows, with a buffer for each operand.
    fn exchange_rows(&mut self, rows: &ExchangeRows) {
        let bytes = |&operand| rows.registers * rows.register_bytes(self.info.element_type(operand));
        let bytes = self.info.module.op(self.id).operands.iter().map(bytes);
        self.list.push(Requirement::SmemExchange(bytes.collect_vec()));
    }

    /// Adds the operands and the exchange of a scan.
    pub fn scan(&mut self, layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        let Some(order) = ScanOrder::of(layout, op.dim() as usize) else { return };
        self.operands(&op.operands, layout);
        if order.is_cross_warp() {
            let axis = AxisBits::of(layout.shape(), op.dim() as usize);
            self.exchange_rows(&ExchangeRows::of_scan(layout, axis, &order));
        }
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
