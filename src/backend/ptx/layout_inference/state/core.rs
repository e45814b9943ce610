//! State of the inference of one kernel, and its basic operations: set, propagate, request.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::super::analysis::adjacent_operands::Beside;
use super::super::analysis::axis_info::PointerContiguity;
use super::super::analysis::butterfly_chain::ButterflyChains;
use super::super::analysis::permutation::{as_axes, inverse};
use crate::backend::ptx::mma::MmaPlan;
use crate::backend::ptx::plan::extract_groups::ExtractGroups;
use crate::ir::{Module, OpId, Opcode, Type, Value};
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
    /// Ranges and divisibility of its integers and addresses.
    pub facts: Rc<IntRanges>,
    /// Target that the code is for.
    pub target: Target,
    /// Warps of a tile block.
    pub num_warps: usize,
    pub(in super::super) layouts: Vec<Option<Layout>>,
    pub(in super::super) sources: Vec<Option<ValueOrigin>>,
    /// Layout in which an access touches memory, by op.
    pub accesses: HashMap<OpId, Layout>,
    /// Plans of the matrix products, or why there is none.
    pub products: HashMap<OpId, Result<MmaPlan, String>>,
    /// Coalesced layouts by tile shape and order, shared by all accesses of that form.
    pub(in super::super) blocked: HashMap<(Vec<i64>, Vec<usize>), usize>,
    /// Accesses through pointers that run along an axis.
    pub pointer_contiguity: HashMap<OpId, PointerContiguity>,
    /// Values that are computed when such an access asks for them.
    pub(in super::super) deferred: HashSet<Value>,
    /// Tiles that are taken apart into halves again and again.
    pub(in super::super) halves: ButterflyChains,
}

/// Layouts of an entry together with its module, and the state of the analysis that infers them.
pub struct Inference<'m> {
    pub(in super::super) module: &'m Module,
    pub(in super::super) result: Layouts,
    /// Values whose layout is nobody's choice.
    pub(in super::super) unanchored: HashSet<Value>,
    /// The layouts in which such values are used.
    pub(in super::super) requested_layouts: HashMap<Value, Layout>,
    /// Tiles that are taken apart.
    pub(in super::super) extract_groups: ExtractGroups<'m>,
    /// Right operands of products that are made side by side.
    pub(in super::super) beside: Beside,
    /// How often a value got another layout than it had.
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
    pub fn start(module: &'m Module, facts: Rc<IntRanges>, target: Target, num_warps: u32) -> Inference<'m> {
        let layouts = Layouts {
            facts,
            target,
            num_warps: num_warps as usize,
            layouts: vec![None; module.num_values()],
            sources: vec![None; module.num_values()],
            accesses: HashMap::new(),
            products: HashMap::new(),
            blocked: HashMap::new(),
            pointer_contiguity: HashMap::new(),
            deferred: HashSet::new(),
            halves: ButterflyChains::default(),
        };
        Inference::new(module, layouts)
    }

    fn new(module: &'m Module, result: Layouts) -> Inference<'m> {
        Inference {
            module,
            result,
            unanchored: HashSet::new(),
            requested_layouts: HashMap::new(),
            extract_groups: ExtractGroups::default(),
            beside: Beside::default(),
            changes: 0,
        }
    }

    /// Returns the layouts without their module.
    pub fn into_layouts(self) -> Layouts {
        self.result
    }

    /// The module.
    pub fn module(&self) -> &'m Module {
        self.module
    }

    /// Number of elements of a tile value.
    pub fn num_elements(&self, value: Value) -> usize {
        self.module.shape(value).iter().product::<i64>() as usize
    }

    /// The kind of a tile value.
    pub fn source(&self, value: Value) -> ValueOrigin {
        if let Some(source) = self.sources.get(value.index()).copied().flatten() {
            return source;
        }
        self.compute_source(value)
    }

    pub fn compute_source(&self, value: Value) -> ValueOrigin {
        let Some(op) = self.module.defining_op(value) else { return ValueOrigin::Register };
        if self.deferred.contains(&value) {
            return ValueOrigin::Rematerialized;
        }
        let op = self.module.op(op);
        match op.code {
            Opcode::Constant | Opcode::Iota => ValueOrigin::Rematerialized,
            Opcode::Assume => ValueOrigin::View,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute => {
                let uniform = self.num_elements(op.operands[0]) == 1 && self.num_elements(value) > 1;
                if uniform || self.source(op.operands[0]) == ValueOrigin::Rematerialized {
                    ValueOrigin::Rematerialized
                } else {
                    ValueOrigin::View
                }
            }
            code if code.is_elementwise()
                && self.num_elements(value) > 1
                && op.operands.iter().all(|&v| self.source(v) == ValueOrigin::Rematerialized) =>
            {
                ValueOrigin::Rematerialized
            }
            _ => ValueOrigin::Register,
        }
    }

    /// The layout of a concrete value.
    pub fn layout(&self, value: Value) -> Option<&Layout> {
        self.layouts[value.index()].as_ref()
    }

    pub fn set(&mut self, value: Value, layout: Layout) {
        debug_assert_eq!(layout.shape(), self.module.shape(value));
        let known = &mut self.result.layouts[value.index()];
        if known.as_ref().is_none_or(|known| !known.is_same(&layout)) {
            self.changes += 1;
        }
        *known = Some(layout);
    }

    /// The layout in which a tile value is there without moving data; `None` if any will do.
    pub fn natural(&self, value: Value) -> Option<Layout> {
        let shape = self.module.shape(value);
        if self.num_elements(value) == 1 {
            return Some(Layout::replicated(shape, self.num_warps));
        }
        match self.source(value) {
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

    /// The layout that the operand of a virtual op needs so that its result has layout `wanted`.
    pub fn demand(&self, op: OpId, wanted: &Layout) -> Layout {
        let op = self.module.op(op);
        let shape = self.module.shape(op.operands[0]);
        match op.code {
            Opcode::Broadcast => wanted.project(shape),
            Opcode::Reshape => wanted.reshape(shape),
            Opcode::Permute => wanted.permute(&inverse(&as_axes(op.permutation()))),
            _ => wanted.clone(),
        }
    }

    /// The layout for a value that has none: as the accesses of its shape have it, else row-major.
    pub fn default_layout(&self, value: Value) -> Layout {
        let shape = self.module.shape(value);
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let bytes = match self.module.ty(value) {
            Type::Tile { elem, .. } => elem.dtype().map_or(8, |d| d.storage_bits().div_ceil(8)) as usize,
            _ => 8,
        };
        let vector = self.blocked.get(&(shape.to_vec(), order.clone())).copied().unwrap_or(16 / bytes.clamp(1, 16));
        self.blocked_layout(shape, &order, vector, 1)
    }

    /// Natural layout, or the default one.
    pub fn natural_or_default(&self, value: Value) -> Layout {
        self.natural(value).unwrap_or_else(|| self.default_layout(value))
    }

    pub fn blocked_layout(&self, shape: &[i64], order: &[usize], vector: usize, least: usize) -> Layout {
        let elements = shape.iter().product::<i64>() as usize;
        let each = (elements / (self.num_warps * 32)).max(1);
        Layout::blocked(shape, order, vector.min(each).max(least), self.num_warps)
    }

    /// The layout in which an elementwise op computes: that of its largest operand that has one.
    pub fn elementwise_layout(&self, operands: &[Value]) -> Option<Layout> {
        let mut best: Option<(usize, Layout)> = None;
        for &operand in operands {
            let Some(layout) = self.natural(operand) else { continue };
            let weight = layout.num_elements() / layout.replication();
            if best.as_ref().is_none_or(|(w, _)| weight > *w) {
                best = Some((weight, layout));
            }
        }
        best.map(|(_, layout)| layout)
    }
}
