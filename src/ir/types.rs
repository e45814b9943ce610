//! Types of IR values. They are interned in a [`super::Module`], so that types are equal if their
//! [`TypeId`]s are.

use crate::dtype::DType;

/// Handle of an interned [`Type`] of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

/// Maximum number of elements of one tile.
pub const MAX_TILE_ELEMENTS: u64 = 1 << 24;

/// Maximum number of powers of two whose sum is an extent of a tile. Tile IR itself allows one: see
/// [`split_extents`](fn@crate::pass::split_extents).
pub const MAX_EXTENT_PARTS: u32 = 3;

/// Maximum nesting depth of regions in the body of an entry. The parsers of text and bytecode are
/// recursive, and each module that the verifier accepts must be readable.
pub(crate) const MAX_NESTING: usize = 256;

/// Maximum number of tile blocks along each axis of a grid (CUDA). Back ends may support fewer.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Numbers of tile blocks of a cluster.
pub(crate) const CLUSTER_SIZES: [i64; 4] = [2, 4, 8, 16];

/// Memory to which a pointer may point (bytecode 13.4 and later).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum PtrAttr {
    None,
    Unicast,
    Multicast,
}

/// Element of a tile: a number, or an address in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Elem {
    Num(DType),
    Ptr { pointee: DType, attr: Option<PtrAttr> },
}

impl Elem {
    /// Returns the type of a number, `None` for an address.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Elem::Num(dtype) => Some(dtype),
            Elem::Ptr { .. } => None,
        }
    }
}

/// Value of loaded elements outside of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Padding {
    Zero,
    NegZero,
    NaN,
    PosInf,
    NegInf,
}

/// Type of a value. Extents are in elements. `None` in a tensor view is a run-time value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Type {
    /// Tile. Rank 0 is a scalar. Extents are sums of at most [`MAX_EXTENT_PARTS`] powers of two.
    Tile { elem: Elem, shape: Vec<i64> },
    /// Array in global memory. Strides are in elements.
    TensorView { elem: DType, shape: Vec<Option<i64>>, strides: Vec<Option<i64>>, ptr_attr: Option<PtrAttr> },
    /// Tensor view partitioned into tiles. Tile dimension d is along tensor dimension `dim_map[d]`.
    PartitionView { tile: Vec<i32>, view: TypeId, dim_map: Vec<i32>, padding: Option<Padding> },
    /// Tensor view whose tile i begins at element `i * traversal[d]`. An index may be negative: the
    /// elements of the tile inside of the array are accessed, the others are outside.
    StridedView { tile: Vec<i32>, traversal: Vec<i32>, view: TypeId, dim_map: Vec<i32>, padding: Option<Padding> },
    /// Tensor view with one dimension that is indexed by element, and dense other dimensions.
    GatherScatterView { tile: Vec<i32>, view: TypeId, sparse_dim: u32, padding: Option<Padding> },
    /// Order between memory operations, without a run-time value.
    Token,
}

impl Type {
    /// Makes the type of a tile of numbers.
    pub fn tile(dtype: DType, shape: impl Into<Vec<i64>>) -> Type {
        Type::Tile { elem: Elem::Num(dtype), shape: shape.into() }
    }

    /// Makes the type of a scalar number.
    pub fn scalar(dtype: DType) -> Type {
        Type::tile(dtype, [])
    }

    /// Makes the type of a scalar pointer.
    pub fn ptr(pointee: DType) -> Type {
        Type::Tile { elem: Elem::Ptr { pointee, attr: None }, shape: Vec::new() }
    }

    /// Returns element and shape of a tile type.
    pub fn as_tile(&self) -> Option<(Elem, &[i64])> {
        match self {
            Type::Tile { elem, shape } => Some((*elem, shape)),
            _ => None,
        }
    }

    /// Returns the shape of a tile type. Panics for other types (invariant of verified modules).
    pub fn shape(&self) -> &[i64] {
        self.as_tile().expect("a tile type").1
    }

    /// Returns the element type of a tile of numbers. Panics for other types (invariant of verified
    /// modules).
    pub fn dtype(&self) -> DType {
        self.as_tile().and_then(|(elem, _)| elem.dtype()).expect("a tile of numbers")
    }
}
