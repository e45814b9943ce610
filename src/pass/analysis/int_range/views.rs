//! Range analysis of views: tiles that exceed the array, and indices inside of the index space.

use super::table::{Extent, IntRanges, ViewInfo};
use crate::ir::{Def, Flag, Module, Op, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// Returns the op that describes the array of a view, through `assume` ops.
pub(super) fn array_op(module: &Module, mut view: Value) -> Option<&Op> {
    loop {
        let op = module.op(module.defining_op(view)?);
        match op.code {
            Opcode::Assume => view = op.operands[0],
            Opcode::MakeTensorView => return Some(op),
            _ => return None,
        }
    }
}

/// Returns the extents of a tensor view, by tensor dimension.
pub(super) fn extents(module: &Module, view: Value) -> Option<Vec<Extent>> {
    let op = array_op(module, view)?;
    let Type::TensorView { shape, .. } = module.ty(op.results[0]) else { return None };
    let mut dynamic = op.group(1).iter();
    shape.iter().map(|e| e.map(Extent::Constant).or_else(|| dynamic.next().copied().map(Extent::Dynamic))).collect()
}

impl ViewInfo {
    /// Returns the properties of the result of an op that makes a view of tiles. Gather/scatter
    /// views have none, since their indices are element positions.
    pub fn new(ranges: &IntRanges, module: &Module, op: &Op) -> Option<ViewInfo> {
        let (tile, dim_map, steps) = match module.ty(op.results[0]) {
            Type::PartitionView { tile, dim_map, .. } => (tile, dim_map, tile),
            Type::StridedView { tile, dim_map, traversal, .. } => (tile, dim_map, traversal),
            _ => return None,
        };
        let along = extents(module, op.operands[0])?;
        let wide = |list: &[i32]| list.iter().map(|&v| i64::from(v)).collect::<Vec<i64>>();
        let (tile, steps) = (wide(tile), wide(steps));
        let extents: Vec<Extent> = dim_map.iter().map(|&d| along[d as usize]).collect_vec();
        // If the steps divide the extent, the last tile starts one step before the end.
        let covers = (0..tile.len()).map(|d| tile[d] <= steps[d] && is_multiple(ranges, extents[d], steps[d]));
        let covers = covers.collect_vec();
        Some(ViewInfo { extents, tile, steps, covers })
    }

    /// Returns the minimum number of tiles along a dimension, if it is known.
    pub fn min_count(&self, ranges: &IntRanges, dim: usize) -> Option<i64> {
        let least = match *self.extents.get(dim)? {
            Extent::Constant(extent) => extent,
            Extent::Dynamic(value) => ranges.range(value)?.lo,
        };
        (least >= 0).then(|| (least as u64).div_ceil(self.steps[dim] as u64) as i64)
    }
}

fn is_multiple(ranges: &IntRanges, extent: Extent, step: i64) -> bool {
    match extent {
        Extent::Constant(extent) => extent % step == 0,
        Extent::Dynamic(value) => match ranges.constant(value) {
            Some(extent) => extent % step == 0,
            None => (step as u64).is_power_of_two() && ranges.divisor(value) >= step as u64,
        },
    }
}

/// Returns true if `index` is the counter of a `for` whose upper bound is at most the number of
/// tiles along `dim`.
pub(super) fn counts_to_end(ranges: &IntRanges, module: &Module, view: &ViewInfo, dim: usize, index: Value) -> bool {
    let Def::Arg(block, 0) = module.def(index) else { return false };
    let Some(owner) = module.block(block).parent.map(|id| module.op(id)) else { return false };
    if owner.code != Opcode::For {
        return false;
    }
    let upper = owner.operands[1];
    // A signed comparison, or an upper bound that is not negative as a signed integer.
    let signed = !owner.flag(Flag::UnsignedCmp) || ranges.range(upper).is_some_and(|r| r.lo >= 0);
    signed && is_at_most_count(ranges, module, view, dim, upper)
}

/// Returns true if this value is the number of tiles of an equal view, or a minimum with it.
fn is_at_most_count(ranges: &IntRanges, module: &Module, view: &ViewInfo, dim: usize, value: Value) -> bool {
    let Def::Result(id, position) = module.def(value) else { return false };
    let op = module.op(id);
    match op.code {
        Opcode::MinI => op.operands.iter().any(|&v| {
            let nonnegative = op.operands.iter().all(|&w| ranges.range(w).is_some_and(|r| r.lo >= 0));
            nonnegative && is_at_most_count(ranges, module, view, dim, v)
        }),
        Opcode::GetIndexSpaceShape => ranges.views.get(&op.operands[0]).is_some_and(|other| {
            let at = position as usize;
            other.extents.get(at) == view.extents.get(dim)
                && other.steps.get(at) == view.steps.get(dim)
                && view.tile.get(dim).is_some()
        }),
        _ => false,
    }
}
