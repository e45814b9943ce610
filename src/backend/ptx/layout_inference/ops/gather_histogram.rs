//! Layouts of `gather` along an axis and of `histogram`.

use super::super::layouts::lane_gather::line_aligned_layout;
use super::super::state::core::Inference;
use crate::ir::OpId;

impl Inference<'_> {
    /// Sets the layout of a `gather`: the source keeps its layout, and the result has that of the
    /// positions. If the positions have none, the lines of the result are aligned with the source.
    pub fn gather(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let (source, positions) = (op.operands[0], op.operands[1]);
        let held = self.natural_or_default(source).canonical();
        let wanted = self.natural(positions).map(|layout| layout.canonical());
        let layout = wanted.unwrap_or_else(|| line_aligned_layout(&held, module.shape(positions), op.dim() as usize));
        self.set(op.results[0], layout);
        self.accesses.insert(id, held);
    }

    /// Sets the layouts of a `histogram`. The source keeps its layout if all replicas are in other
    /// threads.
    pub fn histogram(&mut self, id: OpId) {
        let op = self.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let held = self.natural(source).map(|layout| layout.canonical()).filter(|layout| {
            let threads = layout.lane_bases().iter().chain(layout.warp_bases());
            layout.replication() == 1 << threads.filter(|&&basis| basis == 0).count()
        });
        let held = held.unwrap_or_else(|| self.default_layout(source));
        self.set(result, self.default_layout(result));
        self.accesses.insert(id, held);
    }
}
