//! Coalesced layouts of view accesses (Triton `Coalesce`).
//!
//! A thread accesses 16 bytes if alignment and contiguity are proved; adjacent threads access
//! adjacent elements. Accesses of one tile shape in a kernel share a layout.

use super::{Inference, as_axes};
use crate::dtype::DType;
use crate::ir::{Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;
use crate::pass::IntRanges;

/// Widest access of a thread in bytes.
pub const VECTOR_BYTES: usize = 16;

/// A run of memory of at least this many bytes that neighbouring lanes touch together is efficient:
/// a sector, which is written without being read.
pub(super) const RUN_BYTES: usize = 32;

/// What is known of a view before code exists: the tensor view's op and the tile's place in it.
pub struct ViewShape {
    /// The `make_tensor_view`.
    pub tensor: OpId,
    /// Element type.
    pub elem: DType,
    /// Tile extents.
    pub tile: Vec<i64>,
    /// Elements from one tile to the next.
    pub steps: Vec<i64>,
    /// Tensor dimension of each tile dimension.
    pub dim_map: Vec<usize>,
    /// Largest power of two that is known to divide the position of a tile's first element.
    starts: Vec<u64>,
    /// The tile dimension whose elements lie at listed positions; the others count elements then.
    pub sparse: Option<usize>,
}

impl ViewShape {
    /// Follows a view of tiles to the tensor view that it cuts.
    pub fn of(module: &Module, view: Value) -> Option<ViewShape> {
        let (tile, steps, tensor_type, dim_map, sparse) = match module.ty(view) {
            Type::PartitionView { tile, view, dim_map, .. } => (tile, tile.clone(), view, as_axes(dim_map), None),
            Type::StridedView { tile, traversal, view, dim_map, .. } => {
                (tile, traversal.clone(), view, as_axes(dim_map), None)
            }
            Type::GatherScatterView { tile, view, sparse_dim, .. } => {
                (tile, vec![1; tile.len()], view, (0..tile.len()).collect(), Some(*sparse_dim as usize))
            }
            Type::Tile { .. } | Type::TensorView { .. } | Type::Token => return None,
        };
        let Type::TensorView { elem, .. } = module.type_of(*tensor_type) else { return None };
        let make = module.op(module.defining_op(view)?);
        let tensor = module.defining_op(make.operands[0])?;
        Some(ViewShape {
            tensor,
            elem: *elem,
            tile: tile.iter().map(|&e| i64::from(e)).collect(),
            steps: steps.iter().map(|&e| i64::from(e)).collect(),
            dim_map,
            sparse,
            starts: steps.iter().map(|&step| 1 << step.trailing_zeros()).collect(),
        })
    }

    /// As [`ViewShape::of`], for tiles at this index.
    pub fn at(module: &Module, facts: &IntRanges, view: Value, index: &[Value]) -> Option<ViewShape> {
        let mut shape = ViewShape::of(module, view)?;
        for (axis, (start, &index)) in shape.starts.iter_mut().zip(index).enumerate() {
            if shape.sparse != Some(axis) {
                *start = start.saturating_mul(facts.divisor(index).max(1));
            }
        }
        Some(shape)
    }

    /// The layout of the list of positions in which each thread holds those of its elements, where
    /// these have `layout`.
    pub fn list_layout(&self, layout: &Layout) -> Option<Layout> {
        let axis = self.sparse?;
        let mut thin = vec![1; self.tile.len()];
        thin[axis] = self.tile[axis];
        Some(layout.project(&thin).reshape(&[self.tile[axis]]))
    }

    /// Do tiles begin with whole bytes along `axis`?
    pub fn begins_whole(&self, axis: usize) -> bool {
        self.starts[axis] >= self.least_vector() as u64
    }

    /// Largest power of two that is known to divide the position along `axis` of a tile's first
    /// element.
    pub fn start_divisor(&self, axis: usize) -> u64 {
        self.starts[axis]
    }

    /// Do tiles lie side by side, so that each element belongs to one place in one tile?
    pub fn is_partition(&self) -> bool {
        self.sparse.is_none() && self.tile == self.steps
    }

    /// The value of the stride of tensor dimension `dim`, or its constant.
    pub fn stride(&self, module: &Module, dim: usize) -> Result<i64, Value> {
        dynamic(module, self.tensor, dim, true)
    }

    /// The value of the extent of tensor dimension `dim`, or its constant.
    pub fn extent(&self, module: &Module, dim: usize) -> Result<i64, Value> {
        dynamic(module, self.tensor, dim, false)
    }

    /// Largest power of two that is known to divide the stride of tensor dimension `dim`. Elements
    /// that share a byte come in whole bytes.
    pub fn stride_divisor(&self, module: &Module, facts: &IntRanges, dim: usize) -> u64 {
        divisor_of(facts, self.stride(module, dim)).max(self.least_vector() as u64)
    }

    /// Largest power of two that is known to divide the extent of tensor dimension `dim`.
    pub fn extent_divisor(&self, module: &Module, facts: &IntRanges, dim: usize) -> u64 {
        divisor_of(facts, self.extent(module, dim)).max(self.least_vector() as u64)
    }

    /// Elements of the smallest access: 2 where two share a byte.
    pub fn least_vector(&self) -> usize {
        if self.elem.storage_bits() < 8 { 2 } else { 1 }
    }

    /// Elements that one aligned access along `axis` (a tile dimension of stride 1) may cover.
    pub fn vector(&self, module: &Module, facts: &IntRanges, axis: usize) -> usize {
        let start = usize::try_from(self.starts[axis]).unwrap_or(usize::MAX);
        self.vector_if_aligned(module, facts, axis).min(start.max(self.least_vector()))
    }

    /// As [`ViewShape::vector`], if tiles began at multiples of it.
    pub fn vector_if_aligned(&self, module: &Module, facts: &IntRanges, axis: usize) -> usize {
        let size = self.elem.storage_bits().div_ceil(8) as usize;
        let base = module.op(self.tensor).group(0)[0];
        let mut vector = VECTOR_BYTES.min(facts.divisor(base) as usize) / size.max(1);
        for (other, &dim) in self.dim_map.iter().enumerate() {
            if other != axis {
                vector = vector.min(self.stride_divisor(module, facts, dim) as usize);
            }
        }
        vector.max(self.least_vector()).min(self.tile[axis] as usize)
    }
}

/// The tile that an op stores to a view, or reduces into it.
pub fn stored(op: &Op) -> Value {
    if op.code == Opcode::AtomicRedView { op.group(2)[0] } else { op.group(0)[0] }
}

fn dynamic(module: &Module, tensor: OpId, dim: usize, stride: bool) -> Result<i64, Value> {
    let op = module.op(tensor);
    let Type::TensorView { shape, strides, .. } = module.ty(op.results[0]) else { unreachable!("a tensor view") };
    let list = if stride { strides } else { shape };
    match list[dim] {
        Some(constant) => Ok(constant),
        None => {
            let position = list[..dim].iter().filter(|e| e.is_none()).count();
            Err(op.group(if stride { 2 } else { 1 })[position])
        }
    }
}

fn divisor_of(facts: &IntRanges, value: Result<i64, Value>) -> u64 {
    match value {
        Ok(constant) => 1 << constant.trailing_zeros().min(62),
        Err(value) => facts.divisor(value),
    }
}

/// The tile dimension whose tensor dimension has constant stride 1 (the innermost of several).
pub fn contiguous_axis(module: &Module, view: &ViewShape) -> Option<usize> {
    (0..view.tile.len())
        .rev()
        .filter(|&axis| view.stride(module, view.dim_map[axis]) == Ok(1))
        .max_by_key(|&a| view.tile[a])
}

/// Tile dimensions from the fastest in memory to the slowest, as far as it is known.
fn memory_order(module: &Module, view: &ViewShape) -> Vec<usize> {
    let fastest = contiguous_axis(module, view);
    let mut order: Vec<usize> = fastest.into_iter().collect();
    // The rest as the array has it: later dimensions are faster.
    let mut rest: Vec<usize> = (0..view.tile.len()).filter(|a| Some(*a) != fastest).collect();
    rest.sort_by_key(|&axis| std::cmp::Reverse(view.dim_map[axis]));
    order.extend(rest);
    order
}

impl Inference<'_> {
    /// Finds the widest access for each (tile shape, memory order), then a layout for every load.
    pub(super) fn collect_accesses(&mut self) {
        let module = self.module;
        let mut found = Vec::new();
        for &id in self.regions.ops() {
            let op = module.op(id);
            let (view, index) = match op.code {
                Opcode::LoadView => (op.group(0)[0], op.group(1)),
                Opcode::StoreView => (op.group(1)[0], op.group(2)),
                Opcode::AtomicRedView => (op.group(0)[0], op.group(1)),
                _ => continue,
            };
            let Some(view) = ViewShape::at(module, &self.facts, view, index) else { continue };
            let order = memory_order(module, &view);
            let vector = contiguous_axis(module, &view).map_or(1, |axis| view.vector(module, &self.facts, axis));
            let least = view.least_vector();
            found.push((id, view.tile, order, vector, least));
        }
        for (_, tile, order, vector, _) in &found {
            let widest = self.blocked.entry((tile.clone(), order.clone())).or_insert(1);
            *widest = (*widest).max(*vector);
        }
        for (id, tile, order, _, least) in found {
            let vector = self.blocked[&(tile.clone(), order.clone())];
            let layout = self.blocked_layout(&tile, &order, vector, least);
            self.accesses.insert(id, layout);
        }
    }

    /// A store, or a reduction into an array, keeps the layout of its value where that makes
    /// efficient accesses.
    pub(super) fn store(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let value = stored(op);
        let Some(layout) = self.natural(value) else { return };
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let Some(view) = ViewShape::at(module, &self.facts, view, index) else { return };
        let size = view.elem.storage_bits().div_ceil(8) as usize;
        let coalesced = &self.accesses[&id];
        if self.is_chosen(value) {
            self.accesses.insert(id, layout);
            return;
        }
        let enough = RUN_BYTES.min(self.run_length(&view, coalesced) * size);
        if self.run_length(&view, &layout) * size >= enough {
            self.accesses.insert(id, layout);
        }
    }

    /// The layout in which an access to `view` takes its list of positions.
    pub(super) fn list_in(&self, id: OpId, view: Value) -> Option<Layout> {
        ViewShape::of(self.module, view)?.list_layout(self.accesses.get(&id)?)
    }

    /// Elements of the contiguous run of memory that the lanes of a warp touch with one vector
    /// each.
    pub fn run_length(&self, view: &ViewShape, layout: &Layout) -> usize {
        let Some(axis) = contiguous_axis(self.module, view) else { return 1 };
        let inner: i64 = view.tile[axis + 1..].iter().product();
        let extent = view.tile[axis];
        let mut run = layout.vector_len(axis).min(view.vector(self.module, &self.facts, axis)) as i64;
        while run < extent && layout.lane_images().contains(&((run * inner) as u32)) {
            run *= 2;
        }
        run as usize
    }
}
