//! Layout inference: a register layout for each tile value.
//!
//! Input: a module with one entry, the target and the number of warps. Output: [`Layouts`], i.e. the
//! layouts of values and accesses, MMA plans, and contiguity of pointer accesses. Order:
//! 1. butterfly chains, pointer contiguity, extract groups and adjacent operands are collected;
//! 2. accesses get coalesced layouts (`coalesce`, `pointer_access`, `user_layout`);
//! 3. layouts are propagated forward through the ops;
//! 4. if values have no anchor, step 3 is repeated with the layouts that their uses request.
//!
//! Values have one of three origins ([`ValueOrigin`]):
//! * **rematerialized**: constants, index ranges, elementwise ops of these, and addresses of contiguous
//!   accesses. They are computed in the layout of each use and have no layout of their own;
//! * **view**: `broadcast`, `reshape`, `permute` and `assume`, which rename elements. The layout of the
//!   result determines that of the operand ([`Inference::demand`]) and vice versa
//!   ([`Inference::natural`]);
//! * **register**: all other values. They are computed once, in one layout.
//!
//! Anchors are coalesced accesses, MMAs, and layouts of the user. An elementwise op has the layout of
//! its largest operand, a reduction that of its operand without the reduced axis. A loop is walked
//! twice: first with unknown carried values, then with the layouts at the end of its body, so that the
//! back edge needs no conversion. A nested loop is walked once if the second walk changes nothing.
//!
//! An op without an anchored operand (a constant scaled by row, a deferred load) is *unanchored* and
//! has the layout that its first use requests. Remaining differences are converted at the use.
//!
//! The folder does not know schedules or instructions.

mod adjacent_operands;
mod axis_bits;
mod axis_info;
mod butterfly;
mod butterfly_chain;
mod cat_extract;
mod coalesce;
mod control_flow;
mod deferred_load;
mod gather;
mod mma_request;
mod pack;
mod pointer_access;
mod scan_order;
mod user_layout;

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

pub use axis_bits::{AxisBits, replica_bits, thread_images};
use axis_info::PointerContiguity;
pub use butterfly_chain::halved_bit;
pub use cat_extract::{block_layout, block_number, doubled, doubled_in_registers, in_order};
pub use coalesce::{ViewShape, contiguous_axis, stored};
pub use gather::{AxisLines, LaneGather};
pub use pack::{group_bits, grouped, packed_bits, parted, ratio};
pub use pointer_access::{mask_of, pointers_of};
pub use scan_order::{AxisBit, ScanOrder, axis_bits};
pub use user_layout::chosen_warps;

use super::mma::MmaPlan;
use super::plan::extract_groups::ExtractGroups;
use crate::ir::{BlockId, Entry, Module, OpId, Opcode, RegionTree, Type, Uses, Value};
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
    pub facts: Rc<IntRanges>,
    /// Target that the code is for.
    pub target: Target,
    /// Warps of a tile block.
    pub num_warps: usize,
    layouts: Vec<Option<Layout>>,
    sources: Vec<Option<ValueOrigin>>,
    /// Layout in which an access touches memory, by op.
    pub accesses: FxHashMap<OpId, Layout>,
    /// Plans of the matrix products, or why there is none.
    pub products: FxHashMap<OpId, Result<MmaPlan, String>>,
    /// Coalesced layouts by tile shape and order, shared by all accesses of that form.
    blocked: FxHashMap<(Vec<i64>, Vec<usize>), usize>,
    /// Accesses through pointers that run along an axis.
    pub pointer_contiguity: FxHashMap<OpId, PointerContiguity>,
    /// Values that are computed when such an access asks for them.
    deferred: FxHashSet<Value>,
    /// Tiles that are taken apart into halves again and again.
    halves: butterfly_chain::ButterflyChains,
}

/// Layouts of an entry together with its module, and the state of the analysis that infers them.
pub struct Inference<'m> {
    module: &'m Module,
    result: Layouts,
    /// Values whose layout is nobody's choice.
    unanchored: FxHashSet<Value>,
    /// The layouts in which such values are used.
    requested_layouts: FxHashMap<Value, Layout>,
    /// Tiles that are taken apart.
    extract_groups: ExtractGroups<'m>,
    /// Right operands of products that are made side by side.
    pub beside: adjacent_operands::Beside,
    /// How often a value got another layout than it had.
    changes: usize,
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
    /// Infers the layouts of an entry.
    pub fn run(module: &'m Module, entry: &Entry, target: Target, num_warps: u32) -> Inference<'m> {
        let facts = Rc::new(IntRanges::analyze(module, entry));
        let regions = Rc::new(RegionTree::new(module, entry.body));
        let uses = Rc::new(Uses::new(module, entry.body));
        let start = || Inference::start(module, (regions.clone(), uses.clone(), facts.clone()), target, num_warps);
        let mut inference = start();
        inference.infer(entry.body);
        let requested_layouts = inference.collect_requested_layouts();
        if requested_layouts.is_empty() {
            return inference;
        }
        let mut again = Inference { requested_layouts, ..start() };
        again.infer(entry.body);
        again
    }

    /// Returns the layouts without their module.
    pub fn into_layouts(self) -> Layouts {
        self.result
    }

    fn start(
        module: &'m Module,
        (regions, uses, facts): (Rc<RegionTree>, Rc<Uses>, Rc<IntRanges>),
        target: Target,
        num_warps: u32,
    ) -> Inference<'m> {
        let layouts = Layouts {
            regions,
            uses,
            facts,
            target,
            num_warps: num_warps as usize,
            layouts: vec![None; module.num_values()],
            sources: vec![None; module.num_values()],
            accesses: FxHashMap::default(),
            products: FxHashMap::default(),
            blocked: FxHashMap::default(),
            pointer_contiguity: FxHashMap::default(),
            deferred: FxHashSet::default(),
            halves: butterfly_chain::ButterflyChains::default(),
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
            beside: adjacent_operands::Beside::default(),
            changes: 0,
        }
    }

    /// Is this a product that runs on its own?
    pub fn runs_alone(&self, id: OpId) -> bool {
        matches!(self.products.get(&id), Some(Ok(plan)) if plan.is_asynchronous())
    }

    fn infer(&mut self, body: BlockId) {
        self.collect_pointer_runs();
        self.extract_groups = ExtractGroups::of(self.module, body);
        self.beside = adjacent_operands::Beside::of(self.module, body);
        self.collect_accesses();
        self.place_chosen_loads();
        self.place_pointer_runs();
        self.block(body);
    }

    /// For each value whose layout is nobody's choice that of its first use, where there is one.
    fn collect_requested_layouts(&self) -> FxHashMap<Value, Layout> {
        let mut requested_layouts = FxHashMap::default();
        let carried = self.carried_on();
        // What the end of a loop's body is used in is known when the uses of what the loop carries
        // are.
        let rounds = if carried.is_empty() { 1 } else { 2 };
        for &id in std::iter::repeat_n(self.regions.ops(), rounds).flat_map(|ops| ops.iter().rev()) {
            for (position, value) in self.module.op(id).operands.iter().enumerate() {
                if self.is_unanchored(*value)
                    && let Some(layout) = self.used_in(id, position, &requested_layouts, &carried)
                    && layout.shape() == self.module.shape(*value)
                {
                    requested_layouts.insert(*value, layout);
                }
            }
        }
        requested_layouts.retain(|value, layout| self.layout(*value).is_some_and(|own| !own.is_same(layout)));
        requested_layouts
    }

    /// The layout in which an op uses an operand, if it has one of its own.
    fn used_in(
        &self,
        id: OpId,
        position: usize,
        requested_layouts: &FxHashMap<Value, Layout>,
        carried: &[(Value, Value)],
    ) -> Option<Layout> {
        let op = self.module.op(id);
        let of = |value: Value| match self.unanchored.contains(&value) {
            true => requested_layouts.get(&value).cloned(),
            false => self.layout(value).cloned(),
        };
        match op.code {
            Opcode::For => {
                let carried = position.checked_sub(3)?;
                of(self.module.block(op.regions[0]).args[carried + 1])
            }
            Opcode::Continue => {
                let is_this = |&&(value, _): &&(Value, Value)| value == op.operands[position];
                of(carried.iter().find(is_this)?.1)
            }
            code if code.is_alias() => self.requested_through(id, requested_layouts),
            Opcode::Loop => of(self.module.block(op.regions[0]).args[position]),
            code if code.is_mma() && position == 2 => of(op.results[0]),
            Opcode::LoadView => self.list_in(id, op.group(0)[0]).filter(|_| position > 0),
            Opcode::Gather if position > 0 => of(op.results[0]),
            Opcode::Gather => self.accesses.get(&id).cloned(),
            Opcode::StoreView if position > 0 => self.list_in(id, op.group(1)[0]),
            Opcode::StoreView
            | Opcode::AtomicRedView
            | Opcode::Reduce
            | Opcode::Scan
            | Opcode::Histogram
            | Opcode::LoadPtr
            | Opcode::StorePtr => self.accesses.get(&id).cloned(),
            Opcode::WithLayout => self.chosen(op),
            code if code.is_elementwise() => of(op.results[0]),
            _ => None,
        }
    }

    /// The module.
    pub fn module(&self) -> &'m Module {
        self.module
    }

    /// Number of elements of a tile value.
    pub fn num_elements(&self, value: Value) -> usize {
        self.module.shape(value).iter().product::<i64>() as usize
    }

    /// 32-bit words of a tile value that a thread holds.
    pub fn words_of(&self, value: Value) -> u32 {
        let bits = self.module.dtype(value).storage_bits().min(32);
        (self.natural_or_default(value).num_registers() as u32 * bits).div_ceil(32)
    }

    /// The kind of a tile value.
    pub fn source(&self, value: Value) -> ValueOrigin {
        if let Some(source) = self.sources.get(value.index()).copied().flatten() {
            return source;
        }
        self.compute_source(value)
    }

    fn compute_source(&self, value: Value) -> ValueOrigin {
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

    fn set(&mut self, value: Value, layout: Layout) {
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
        match op.code {
            Opcode::Broadcast => wanted.project(self.module.shape(op.operands[0])),
            Opcode::Reshape => wanted.reshape(self.module.shape(op.operands[0])),
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

    fn blocked_layout(&self, shape: &[i64], order: &[usize], vector: usize, least: usize) -> Layout {
        let elements = shape.iter().product::<i64>() as usize;
        let each = (elements / (self.num_warps * 32)).max(1);
        Layout::blocked(shape, order, vector.min(each).max(least), self.num_warps)
    }

    /// The layout in which an elementwise op computes: that of its largest operand that has one.
    fn elementwise_layout(&self, operands: &[Value]) -> Option<Layout> {
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

    fn block(&mut self, block: BlockId) {
        let module = self.module;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            for &result in &op.results {
                if matches!(module.ty(result), Type::Tile { .. }) {
                    self.sources[result.index()] = Some(self.compute_source(result));
                }
            }
            self.op(id);
        }
    }

    fn op(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        match op.code {
            Opcode::For => self.for_loop(id),
            Opcode::Loop => self.endless_loop(id),
            Opcode::If => self.branches(id),
            Opcode::LoadView => {
                // Views that lowering does not know have no layout of their own.
                let layout = self.load(id);
                self.set(op.results[0], layout);
            }
            Opcode::StoreView | Opcode::AtomicRedView => self.store(id),
            Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => self.pointer_access(id),
            Opcode::Reduce => self.reduce(id),
            Opcode::Scan => self.scan(id),
            Opcode::Cat => self.cat(id),
            Opcode::Pack | Opcode::Unpack => self.repack(id),
            Opcode::Extract => self.extract(id),
            Opcode::Insert => self.insert(id),
            Opcode::Gather => self.gather(id),
            Opcode::Histogram => self.histogram(id),
            Opcode::WithLayout => self.with_layout(op),
            code if code.is_mma() => {
                let plan = self.plan_product(id);
                let layout = match &plan {
                    Ok(plan) => plan.acc.clone(),
                    Err(_) => self.default_layout(op.results[0]),
                };
                self.products.insert(id, plan);
                self.set(op.results[0], layout);
            }
            code if code.is_elementwise() => {
                let result = op.results[0];
                if self.source(result) == ValueOrigin::Register {
                    let layout = match self.elementwise_layout(&op.operands) {
                        Some(layout) if self.has_unanchored_operands_only(&op.operands) => {
                            self.unanchored.insert(result);
                            self.requested_layouts.get(&result).cloned().unwrap_or(layout)
                        }
                        Some(layout) => {
                            self.unanchored.remove(&result);
                            layout
                        }
                        None => self.unanchored_layout(result),
                    };
                    self.set(result, layout);
                }
            }
            _ => {
                // Scalars (block ids, shapes, …) are the same in every thread; views have no
                // registers.
                for &result in &op.results {
                    if matches!(module.ty(result), Type::Tile { .. }) && self.source(result) == ValueOrigin::Register {
                        let layout = self.default_layout(result);
                        self.set(result, layout);
                    }
                }
            }
        }
    }

    /// The layout of a value that no operand has a layout for.
    fn unanchored_layout(&mut self, value: Value) -> Layout {
        self.unanchored.insert(value);
        self.requested_layouts.get(&value).cloned().unwrap_or_else(|| self.default_layout(value))
    }

    fn reduce(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let axis = op.dim() as usize;
        let layout = self.elementwise_layout(&op.operands).unwrap_or_else(|| self.default_layout(op.operands[0]));
        let reduced = layout.reduce(axis).squeeze(axis);
        self.accesses.insert(id, layout);
        for &result in &op.results {
            self.set(result, reduced.clone());
        }
    }
}

/// A permutation attribute as axes.
pub fn as_axes(permutation: &[i32]) -> Vec<usize> {
    permutation.iter().map(|&axis| axis as usize).collect()
}

/// The inverse of a permutation.
pub fn inverse(permutation: &[usize]) -> Vec<usize> {
    let mut result = vec![0; permutation.len()];
    for (i, &axis) in permutation.iter().enumerate() {
        result[axis] = i;
    }
    result
}
