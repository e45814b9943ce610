//! State of the inference of one kernel, and its basic operations: set, propagate, request.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::super::analysis::adjacent_operands::AdjacentOperands;
use super::super::analysis::axis_info::PointerContiguity;
use super::super::analysis::butterfly_chain::ButterflyChains;
use super::super::analysis::permutation::{as_axes, inverse};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::mma::MmaPlan;
use crate::backend::ptx::optimizations::OptimizationSet;
use crate::backend::ptx::plan::extract_groups::ExtractGroups;
use crate::ir::{Module, OpId, Opcode, RegionTree, Type, Uses, Value};
use crate::layout::Layout;
use crate::pass::IntRanges;
use crate::target::Target;

/// Origin of the registers of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Computed at each use, in any layout.
    Rematerialized,
    /// Renamed elements of an operand.
    View,
    /// Computed once, in one layout.
    Register,
}

/// Layouts of an entry, without the module that they belong to.
pub struct Layouts {
    /// Regions of its ops.
    pub regions: Rc<RegionTree>,
    /// Uses of its values.
    pub uses: Rc<Uses>,
    /// Ranges and divisibility of its integers and addresses.
    pub int_ranges: Rc<IntRanges>,
    /// Target that the code is for.
    pub target: Target,
    /// Number of warps of a CTA.
    pub num_warps: usize,
    /// Enabled optimizations.
    pub optimizations: OptimizationSet,
    /// Layout of each register value, by index of the value.
    pub(in super::super) layouts: Vec<Option<Layout>>,
    /// Origin of each tile value, by index of the value.
    pub(in super::super) origins: Vec<Option<ValueOrigin>>,
    /// Access layout of each op that has one: the layout in which it accesses memory, or uses its
    /// operands.
    pub op_layouts: FxHashMap<OpId, Layout>,
    /// Plan of each MMA, or the reason for its absence.
    pub mma_plans: FxHashMap<OpId, Result<MmaPlan, String>>,
    /// Elements of the widest access, by tile shape and memory order.
    pub(in super::super) blocked: FxHashMap<(Vec<i64>, Vec<usize>), usize>,
    /// Accesses through pointers whose addresses are contiguous along an axis.
    pub pointer_contiguity: FxHashMap<OpId, PointerContiguity>,
    /// Values that are computed at these accesses.
    pub(in super::super) deferred: FxHashSet<Value>,
    /// Tiles that are halved repeatedly, and their layouts.
    pub(in super::super) butterfly_chains: ButterflyChains,
}

/// Layouts of an entry together with its module, and the state of the analysis that infers them.
pub struct Inference<'m> {
    pub(in super::super) module: &'m Module,
    pub(in super::super) result: Layouts,
    /// Values whose layout no anchor determines.
    pub(in super::super) unanchored: FxHashSet<Value>,
    /// Layouts of the first uses of unanchored values; empty in the first propagation.
    pub(in super::super) requested_layouts: FxHashMap<Value, Layout>,
    /// Tiles of which many blocks are extracted.
    pub(in super::super) extract_groups: ExtractGroups<'m>,
    /// Right operands of MMAs with the same left operand.
    pub(in super::super) adjacent_operands: AdjacentOperands,
    /// Number of changes of layouts, to detect that a walk changes nothing.
    pub(in super::super) changes: usize,
}

impl Deref for Inference<'_> {
    type Target = Layouts;

    fn deref(&self) -> &Layouts {
        &self.result
    }
}

impl DerefMut for Inference<'_> {
    fn deref_mut(&mut self) -> &mut Layouts {
        &mut self.result
    }
}

impl Layouts {
    /// Returns the layouts together with the module that they were inferred for.
    pub fn of(self, module: &Module) -> Inference<'_> {
        debug_assert_eq!(self.layouts.len(), module.num_values());
        Inference::new(module, self)
    }
}

impl<'m> Inference<'m> {
    /// Returns the state without layouts.
    pub fn empty(
        module: &'m Module,
        (regions, uses, int_ranges): (Rc<RegionTree>, Rc<Uses>, Rc<IntRanges>),
        (target, num_warps): (Target, u32),
        optimizations: OptimizationSet,
    ) -> Inference<'m> {
        let layouts = Layouts {
            regions,
            uses,
            int_ranges,
            target,
            num_warps: num_warps as usize,
            optimizations,
            layouts: vec![None; module.num_values()],
            origins: vec![None; module.num_values()],
            op_layouts: FxHashMap::default(),
            mma_plans: FxHashMap::default(),
            blocked: FxHashMap::default(),
            pointer_contiguity: FxHashMap::default(),
            deferred: FxHashSet::default(),
            butterfly_chains: ButterflyChains::default(),
        };
        Inference::new(module, layouts)
    }

    fn new(module: &'m Module, result: Layouts) -> Inference<'m> {
        Inference {
            module,
            result,
            unanchored: FxHashSet::default(),
            requested_layouts: FxHashMap::default(),
            extract_groups: ExtractGroups::default(),
            adjacent_operands: AdjacentOperands::default(),
            changes: 0,
        }
    }

    /// Returns the layouts without their module.
    pub fn into_layouts(self) -> Layouts {
        self.result
    }

    /// Returns the module.
    pub fn module(&self) -> &'m Module {
        self.module
    }

    /// Returns the number of elements of a tile value.
    pub fn num_elements(&self, value: Value) -> usize {
        self.module.shape(value).iter().product::<i64>() as usize
    }

    /// Returns the origin of a tile value.
    pub fn origin(&self, value: Value) -> ValueOrigin {
        if let Some(source) = self.origins.get(value.index()).copied().flatten() {
            return source;
        }
        self.compute_origin(value)
    }

    /// Returns the origin of a tile value by its op and the origins of its operands.
    pub fn compute_origin(&self, value: Value) -> ValueOrigin {
        let Some(op) = self.module.defining_op(value) else { return ValueOrigin::Register };
        if self.deferred.contains(&value) {
            return ValueOrigin::Rematerialized;
        }
        let op = self.module.op(op);
        match op.code {
            Opcode::Constant | Opcode::Iota => ValueOrigin::Rematerialized,
            Opcode::Assume => ValueOrigin::View,
            code if code.is_shape_alias() => {
                let uniform = self.num_elements(op.operands[0]) == 1 && self.num_elements(value) > 1;
                if uniform || self.origin(op.operands[0]) == ValueOrigin::Rematerialized {
                    ValueOrigin::Rematerialized
                } else {
                    ValueOrigin::View
                }
            }
            code if code.is_elementwise()
                && self.num_elements(value) > 1
                && op.operands.iter().all(|&v| self.origin(v) == ValueOrigin::Rematerialized) =>
            {
                ValueOrigin::Rematerialized
            }
            _ => ValueOrigin::Register,
        }
    }

    /// Returns the layout of a register value.
    pub fn layout(&self, value: Value) -> Option<&Layout> {
        self.layouts[value.index()].as_ref()
    }

    /// Sets the layout of a value.
    pub fn set(&mut self, value: Value, layout: Layout) {
        debug_assert_eq!(layout.shape(), self.module.shape(value));
        let known = &mut self.result.layouts[value.index()];
        if known.as_ref().is_none_or(|known| !known.is_same(&layout)) {
            self.changes += 1;
        }
        *known = Some(layout);
    }

    /// Returns the layout in which a tile value is available without a conversion. `None` for a
    /// rematerialized value, and for a value without a layout so far.
    pub fn natural(&self, value: Value) -> Option<Layout> {
        let shape = self.module.shape(value);
        if self.num_elements(value) == 1 {
            return Some(Layout::replicated(shape, self.num_warps));
        }
        match self.origin(value) {
            ValueOrigin::Rematerialized => None,
            ValueOrigin::Register => self.layouts[value.index()].clone(),
            ValueOrigin::View => {
                let op = self.module.op(self.module.defining_op(value)?);
                let source = self.natural(op.operands[0])?;
                match op.code {
                    Opcode::Reshape => Some(source.reshape(shape)),
                    Opcode::Permute => Some(source.permute(&as_axes(op.permutation()))),
                    Opcode::Assume | Opcode::WithLayout => Some(source),
                    _ => None,
                }
            }
        }
    }

    /// Returns the layout of the operand of a view or rematerialized op for a result in layout
    /// `required` (backward propagation through the op).
    pub fn demand(&self, op: OpId, required: &Layout) -> Layout {
        let op = self.module.op(op);
        match op.code {
            Opcode::Broadcast => required.project(self.module.shape(op.operands[0])),
            Opcode::Reshape => required.reshape(self.module.shape(op.operands[0])),
            Opcode::Permute => required.permute(&inverse(&as_axes(op.permutation()))),
            _ => required.clone(),
        }
    }

    /// Returns the layout of the registers of a value that is not computed at its use.
    pub fn own_layout(&self, value: Value) -> Layout {
        self.layout(value).cloned().unwrap_or_else(|| self.default_layout(value))
    }

    /// Returns the layout of a value without a layout: that of accesses of its shape, else
    /// row-major with 16 bytes per thread.
    pub fn default_layout(&self, value: Value) -> Layout {
        let shape = self.module.shape(value);
        let order: Vec<usize> = (0..shape.len()).rev().collect_vec();
        let bytes = match self.module.ty(value) {
            Type::Tile { elem, .. } => elem.dtype().map_or(8, |d| d.storage_bits().div_ceil(8)) as usize,
            _ => 8,
        };
        let vector = self.blocked.get(&(shape.to_vec(), order.clone())).copied().unwrap_or(16 / bytes.clamp(1, 16));
        self.blocked_layout(shape, &order, vector, 1)
    }

    /// Returns the natural layout, or else the default one.
    pub fn natural_or_default(&self, value: Value) -> Layout {
        self.natural(value).unwrap_or_else(|| self.default_layout(value))
    }

    /// Returns the number of threads of the warps that share a tile.
    pub fn num_threads(&self) -> usize {
        self.num_warps * WARP_SIZE as usize
    }

    /// Returns the blocked layout (Triton) of a shape with `vector` elements per access, at least
    /// `least`. `order` has the axes from the fastest to the slowest.
    pub fn blocked_layout(&self, shape: &[i64], order: &[usize], vector: usize, least: usize) -> Layout {
        let elements = shape.iter().product::<i64>() as usize;
        let each = (elements / self.num_threads()).max(1);
        Layout::blocked(shape, order, vector.min(each).max(least), self.num_warps)
    }
}
