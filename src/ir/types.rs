//! Types of IR values. Interned in a [`super::Module`]; a [`TypeId`] is compared like a number.

use crate::dtype::DType;

/// Handle of an interned [`Type`] of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

/// Largest number of elements of one tile.
pub const MAX_TILE_ELEMENTS: u64 = 1 << 24;

/// An extent of a tile is the sum of at most so many powers of two. Tile IR itself has one: see [`apart`](crate::pass::apart).
pub const MOST_EXTENT_PARTS: u32 = 3;

/// Regions that may be nested in the body of an entry: text and bytecode are read by functions that call themselves, and
/// what the verifier accepts has to be readable.
pub(crate) const MAX_NESTING: usize = 256;

/// Most tile blocks of a grid along each axis: what CUDA allows. Back ends may run less.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Which memory a pointer may point to (bytecode 13.4 and later).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum PtrAttr {
    None,
    Unicast,
    Multicast,
}

/// Element of a tile: a number or an address in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Elem {
    Num(DType),
    Ptr { pointee: DType, attr: Option<PtrAttr> },
}

impl Elem {
    /// The number type, if it is one.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Elem::Num(dtype) => Some(dtype),
            Elem::Ptr { .. } => None,
        }
    }
}

/// What a load reads outside of the array.
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

/// A type. Extents are in elements; `None` in a tensor view is a run-time value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Type {
    /// A tile value; rank 0 is a scalar. Extents are sums of at most [`MOST_EXTENT_PARTS`] powers of two.
    Tile { elem: Elem, shape: Vec<i64> },
    /// A described array in global memory; strides in elements.
    TensorView { elem: DType, shape: Vec<Option<i64>>, strides: Vec<Option<i64>>, ptr_attr: Option<PtrAttr> },
    /// A tensor view cut into tiles; tile dimension d lies along tensor dimension `dim_map[d]`.
    PartitionView { tile: Vec<i32>, view: TypeId, dim_map: Vec<i32>, padding: Option<Padding> },
    /// As a partition view, but tile i starts at element `i * traversal[d]`. An index may be negative: the part of the
    /// tile that lies in the array is accessed, the rest is outside.
    StridedView { tile: Vec<i32>, traversal: Vec<i32>, view: TypeId, dim_map: Vec<i32>, padding: Option<Padding> },
    /// One dimension indexed element by element, the rest dense.
    GatherScatterView { tile: Vec<i32>, view: TypeId, sparse_dim: u32, padding: Option<Padding> },
    /// Ordering between memory operations; no run-time value.
    Token,
}

impl Type {
    /// A tile of numbers.
    pub fn tile(dtype: DType, shape: impl Into<Vec<i64>>) -> Type {
        Type::Tile { elem: Elem::Num(dtype), shape: shape.into() }
    }

    /// A rank-0 tile of a number.
    pub fn scalar(dtype: DType) -> Type {
        Type::tile(dtype, [])
    }

    /// A rank-0 tile of a pointer.
    pub fn ptr(pointee: DType) -> Type {
        Type::Tile { elem: Elem::Ptr { pointee, attr: None }, shape: Vec::new() }
    }

    /// Element and shape of a tile type.
    pub fn as_tile(&self) -> Option<(Elem, &[i64])> {
        match self {
            Type::Tile { elem, shape } => Some((*elem, shape)),
            _ => None,
        }
    }

    /// Shape of a tile type; panics on other types (an invariant of verified modules).
    pub fn shape(&self) -> &[i64] {
        self.as_tile().expect("a tile type").1
    }

    /// Number type of a tile type; panics on other types (an invariant of verified modules).
    pub fn dtype(&self) -> DType {
        self.as_tile().and_then(|(elem, _)| elem.dtype()).expect("a tile of numbers")
    }
}
