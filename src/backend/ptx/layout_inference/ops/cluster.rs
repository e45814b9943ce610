//! Layouts of the exchange of tiles within a cluster.

use super::super::state::core::Inference;
use crate::ir::OpId;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

impl Inference<'_> {
    /// Sets the layouts of a `cluster_all_gather`. The source keeps its layout, and each thread
    /// holds the elements of all ranks at its own positions.
    pub fn cluster_all_gather(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let source_layout = self.natural_or_default(op.operands[0]).canonical();
        let elements = source_layout.num_elements() as u32;
        let shape = module.shape(op.results[0]);
        let ranks = (0..shape[0].ilog2()).map(|bit| elements << bit);
        let registers = source_layout.register_bases().iter().copied().chain(ranks).collect_vec();
        let layout =
            Layout::new(shape, registers, source_layout.lane_bases().to_vec(), source_layout.warp_bases().to_vec());
        self.set(op.results[0], layout);
        self.op_layouts.insert(id, source_layout);
    }
}
