//! Layouts of `gather` along an axis, of `histogram` and of `ranks`.

use super::super::analysis::user_layout::LANE_BITS;
use super::super::layouts::lane_gather::line_aligned_layout;
use super::super::state::core::Inference;
use crate::ir::OpId;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

impl Inference<'_> {
    /// Sets the layout of a `gather`: the source keeps its layout, and the result has that of the
    /// positions. If the positions have none, the lines of the result are aligned with the source.
    pub fn gather(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let (source, positions) = (op.operands[0], op.operands[1]);
        let source_layout = self.natural_or_default(source).canonical();
        let required = self.natural(positions).map(|layout| layout.canonical());
        let layout =
            required.unwrap_or_else(|| line_aligned_layout(&source_layout, module.shape(positions), op.dim() as usize));
        self.set(op.results[0], layout);
        self.op_layouts.insert(id, source_layout);
    }

    /// Sets the layouts of a `histogram`. The source keeps its layout if all replicas are in other
    /// threads.
    pub fn histogram(&mut self, id: OpId) {
        let op = self.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let source_layout = self.natural(source).map(|layout| layout.canonical()).filter(|layout| {
            let threads = layout.lane_bases().iter().chain(layout.warp_bases());
            layout.replication() == 1 << threads.filter(|&&basis| basis == 0).count()
        });
        let source_layout = source_layout.unwrap_or_else(|| self.default_layout(source));
        self.set(result, self.default_layout(result));
        self.op_layouts.insert(id, source_layout);
    }

    /// Sets the layout of `ranks`: adjacent elements are in adjacent lanes, and each warp has a
    /// range of elements.
    pub fn ranks(&mut self, id: OpId) {
        let op = self.module.op(id);
        let layout = in_ranges(self.module.shape(op.results[0]), self.num_warps).canonical();
        self.set(op.results[0], layout.clone());
        self.op_layouts.insert(id, layout);
    }
}

/// Returns the layout of a tile of rank 1 with a range of elements in each warp. Replicas are the
/// highest bits of lanes and warps.
fn in_ranges(shape: &[i64], num_warps: usize) -> Layout {
    let bits: Vec<u32> = (0..shape[0].trailing_zeros()).map(|bit| 1 << bit).collect_vec();
    let (mut lanes, rest) = (bits.clone(), bits.get(LANE_BITS..).unwrap_or_default());
    lanes.resize(LANE_BITS, 0);
    let warp_bits = num_warps.trailing_zeros() as usize;
    let (registers, warps) = rest.split_at(rest.len().saturating_sub(warp_bits));
    let mut warps = warps.to_vec();
    warps.resize(warp_bits, 0);
    Layout::new(shape, registers.to_vec(), lanes, warps)
}
