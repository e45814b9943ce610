//! Queries on the layouts, for lowering functions of this folder and for later stages.

use super::super::analysis::axis_info::{AxisInfoAnalysis, AxisPattern};
use super::super::analysis::user_layout::{LANE_BITS, completed};
use super::super::analysis::view_shape::{ViewShape, contiguous_axis};
use super::core::Inference;
use crate::ir::{Op, OpId, Opcode, Value};
use crate::layout::Layout;

impl Inference<'_> {
    /// Returns the number of 32-bit words of a tile value in one thread.
    pub fn words_of(&self, value: Value) -> u32 {
        let bits = self.module.dtype(value).storage_bits().min(32);
        (self.natural_or_default(value).num_registers() as u32 * bits).div_ceil(32)
    }

    /// Returns true if the op is an asynchronous MMA.
    pub fn is_async_mma(&self, id: OpId) -> bool {
        matches!(self.mma_plans.get(&id), Some(Ok(plan)) if plan.is_asynchronous())
    }

    /// Returns the layout in which an access to `view` reads its list of positions.
    pub fn index_list_layout(&self, id: OpId, view: Value) -> Option<Layout> {
        ViewShape::of(self.module, view)?.list_layout(self.op_layouts.get(&id)?)
    }

    /// Returns the number of contiguous elements that the lanes of a warp access with one vector
    /// each.
    pub fn run_length(&self, view: &ViewShape, layout: &Layout) -> usize {
        let Some(axis) = contiguous_axis(self.module, view) else { return 1 };
        let inner: i64 = view.tile[axis + 1..].iter().product();
        let extent = view.tile[axis];
        let mut run = layout.vector_len(axis).min(view.vector(self.module, &self.int_ranges, axis)) as i64;
        while run < extent && layout.lane_bases().contains(&((run * inner) as u32)) {
            run *= 2;
        }
        run as usize
    }

    /// Returns true if the operands of a `cat` are registers of each thread.
    pub fn joins_registers(&self, id: OpId) -> bool {
        self.butterfly_chains.register_joins.contains(&id)
    }

    /// Returns true if a mask is constant in each aligned group of `length` elements.
    pub fn is_same_in_groups(&self, value: Value, axis: usize, length: usize) -> bool {
        length < 2
            || AxisInfoAnalysis::new(self.module, &self.int_ranges).along(value, axis, length as u64).pattern
                == AxisPattern::Constant
    }

    /// Returns the layout of a `with_layout`, if its number of threads is that of the CTA.
    pub fn chosen(&self, op: &Op) -> Option<Layout> {
        let layout = op.distribution()?;
        let shape = self.module.shape(op.results[0]);
        if layout.is_partial() {
            return Some(completed(shape, &layout.slots, self.num_warps).canonical());
        }
        if layout.num_threads() != 32 * self.num_warps as u64 {
            return None;
        }
        let (lanes, warps) = layout.threads.split_at(LANE_BITS);
        Some(Layout::new(shape, layout.slots.to_vec(), lanes.to_vec(), warps.to_vec()).canonical())
    }

    /// Returns true if a tile, or the tile that it is a view of, has a layout of the user.
    pub fn has_user_layout(&self, mut value: Value) -> bool {
        while let Some(id) = self.module.defining_op(value) {
            let op = self.module.op(id);
            match op.code {
                Opcode::WithLayout => return self.chosen(op).is_some(),
                code if code.is_bijective_alias() => value = op.operands[0],
                _ => return false,
            }
        }
        false
    }
}
