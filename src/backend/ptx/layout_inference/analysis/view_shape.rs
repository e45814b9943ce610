//! View shapes: tile, steps and strides of a view before code exists, and the widest access.

use super::permutation::as_axes;
use crate::dtype::DType;
use crate::ir::{Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;
use crate::pass::IntRanges;
use crate::util::collect::CollectVec as _;

/// Widest access of a thread in bytes.
pub const VECTOR_BYTES: usize = 16;

/// Minimum number of contiguous bytes of an efficient access of adjacent lanes: one sector of the
/// L2 cache, which is written without a read.
pub const RUN_BYTES: usize = 32;

/// Shape of a view: the op of the tensor view, the tile, and its alignment in the array.
pub struct ViewShape {
    /// The `make_tensor_view`.
    pub tensor: OpId,
    /// Element type.
    pub elem: DType,
    /// Tile extents.
    pub tile: Vec<i64>,
    /// Number of elements between the starts of adjacent tiles.
    pub steps: Vec<i64>,
    /// Tensor dimension of each tile dimension.
    pub dim_map: Vec<usize>,
    /// Largest known power of two that divides the position of the first element of a tile.
    starts: Vec<u64>,
    /// Tile dimension whose positions are a list. Indices of the other dimensions are in elements.
    pub sparse: Option<usize>,
}

impl ViewShape {
    /// Returns the shape of a view of tiles.
    pub fn of(module: &Module, view: Value) -> Option<ViewShape> {
        let (tile, steps, tensor_type, dim_map, sparse) = match module.ty(view) {
            Type::PartitionView { tile, view, dim_map, .. } => (tile, tile.clone(), view, as_axes(dim_map), None),
            Type::StridedView { tile, traversal, view, dim_map, .. } => {
                (tile, traversal.clone(), view, as_axes(dim_map), None)
            }
            Type::GatherScatterView { tile, view, sparse_dim, .. } => {
                (tile, vec![1; tile.len()], view, (0..tile.len()).collect_vec(), Some(*sparse_dim as usize))
            }
            Type::Tile { .. } | Type::TensorView { .. } | Type::Token => return None,
        };
        let Type::TensorView { elem, .. } = module.type_of(*tensor_type) else { return None };
        let make = module.op(module.defining_op(view)?);
        let tensor = module.defining_op(make.operands[0])?;
        Some(ViewShape {
            tensor,
            elem: *elem,
            tile: tile.iter().map(|&e| i64::from(e)).collect_vec(),
            steps: steps.iter().map(|&e| i64::from(e)).collect_vec(),
            dim_map,
            sparse,
            starts: steps.iter().map(|&step| 1 << step.trailing_zeros()).collect_vec(),
        })
    }

    /// Returns the shape of a view for the tile at an index.
    pub fn at(module: &Module, int_ranges: &IntRanges, view: Value, index: &[Value]) -> Option<ViewShape> {
        let mut shape = ViewShape::of(module, view)?;
        for (axis, (start, &index)) in shape.starts.iter_mut().zip(index).enumerate() {
            if shape.sparse != Some(axis) {
                *start = start.saturating_mul(int_ranges.divisor(index).max(1));
            }
        }
        Some(shape)
    }

    /// Returns the layout of the list of positions in which each thread holds the positions of its
    /// elements, for elements in `layout`.
    pub fn list_layout(&self, layout: &Layout) -> Option<Layout> {
        let axis = self.sparse?;
        let mut extents = vec![1; self.tile.len()];
        extents[axis] = self.tile[axis];
        Some(layout.project(&extents).reshape(&[self.tile[axis]]))
    }

    /// Returns true if tiles start at whole bytes along `axis`.
    pub fn begins_whole(&self, axis: usize) -> bool {
        self.starts[axis] >= self.min_vector() as u64
    }

    /// Returns the largest known power of two that divides the position along `axis` of the first
    /// element of a tile.
    pub fn start_divisor(&self, axis: usize) -> u64 {
        self.starts[axis]
    }

    /// Returns true if tiles are disjoint: each element is in at most one tile.
    pub fn has_disjoint_tiles(&self) -> bool {
        self.sparse.is_none() && self.tile.iter().zip(&self.steps).all(|(tile, step)| tile <= step)
    }

    /// Returns the stride of tensor dimension `dim`: a constant or a value.
    pub fn stride(&self, module: &Module, dim: usize) -> Result<i64, Value> {
        tensor_stride(module, self.tensor, dim)
    }

    /// Returns the extent of tensor dimension `dim`: a constant or a value.
    pub fn extent(&self, module: &Module, dim: usize) -> Result<i64, Value> {
        dynamic(module, self.tensor, dim, false)
    }

    /// Returns the largest known power of two that divides the stride of tensor dimension `dim`. A
    /// stride is a whole number of bytes also for elements that share a byte.
    pub fn stride_divisor(&self, module: &Module, int_ranges: &IntRanges, dim: usize) -> u64 {
        divisor_of(int_ranges, self.stride(module, dim)).max(self.min_vector() as u64)
    }

    /// Returns the largest known power of two that divides the extent of tensor dimension `dim`.
    pub fn extent_divisor(&self, module: &Module, int_ranges: &IntRanges, dim: usize) -> u64 {
        divisor_of(int_ranges, self.extent(module, dim)).max(self.min_vector() as u64)
    }

    /// Returns the number of elements of the smallest access: 2 if two share a byte.
    pub fn min_vector(&self) -> usize {
        if self.elem.storage_bits() < 8 { 2 } else { 1 }
    }

    /// Returns the maximum number of elements of an aligned access along `axis`, a tile dimension
    /// of stride 1.
    pub fn vector(&self, module: &Module, int_ranges: &IntRanges, axis: usize) -> usize {
        let start = usize::try_from(self.starts[axis]).unwrap_or(usize::MAX);
        self.vector_if_aligned(module, int_ranges, axis).min(start.max(self.min_vector()))
    }

    /// Returns [`ViewShape::vector`] for tiles that start at multiples of the result.
    pub fn vector_if_aligned(&self, module: &Module, int_ranges: &IntRanges, axis: usize) -> usize {
        let size = self.elem.storage_bits().div_ceil(8) as usize;
        let base = module.op(self.tensor).group(0)[0];
        let mut vector = VECTOR_BYTES.min(int_ranges.divisor(base) as usize) / size.max(1);
        for (other, &dim) in self.dim_map.iter().enumerate() {
            if other != axis {
                vector = vector.min(self.stride_divisor(module, int_ranges, dim) as usize);
            }
        }
        vector.max(self.min_vector()).min(self.tile[axis] as usize)
    }
}

/// Returns the tile that an op stores to a view, or combines with it.
pub fn stored(op: &Op) -> Value {
    if op.code == Opcode::AtomicRedView { op.group(2)[0] } else { op.group(0)[0] }
}

/// Returns the stride of dimension `dim` of a tensor view: a constant or a value.
pub fn tensor_stride(module: &Module, tensor: OpId, dim: usize) -> Result<i64, Value> {
    dynamic(module, tensor, dim, true)
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

fn divisor_of(int_ranges: &IntRanges, value: Result<i64, Value>) -> u64 {
    match value {
        Ok(constant) => 1 << constant.trailing_zeros().min(62),
        Err(value) => int_ranges.divisor(value),
    }
}

/// Returns the tile dimension whose tensor dimension has constant stride 1. Of several ones, it is
/// the one of the largest extent.
pub fn contiguous_axis(module: &Module, view: &ViewShape) -> Option<usize> {
    (0..view.tile.len())
        .rev()
        .filter(|&axis| view.stride(module, view.dim_map[axis]) == Ok(1))
        .max_by_key(|&a| view.tile[a])
}
