//! Tensor maps: the description of an array for the TMA unit of sm_90, completed at each launch.
//!
//! A kernel that transfers boxes has a map of 128 bytes as a parameter. [`TensorMap::resolve`]
//! computes the arguments of the driver's encoder from the parameter words of the entry, or rejects
//! values that the hardware cannot describe. Limits are those of `cuTensorMapEncodeTiled`. The file
//! does not depend on the driver or on ops.

use super::hardware::MAX_TMA_BOX;
use crate::backend::ParamWord;

/// Size of a map in bytes.
pub const MAP_BYTES: u32 = 128;

/// Alignment of a map in bytes.
pub const MAP_ALIGN: u32 = 64;

/// The maximum number of dimensions of a map.
pub const MAX_RANK: usize = 5;

/// Addresses, strides and rows of a box are multiples of this number of bytes.
pub const GRAIN: u64 = 16;

/// The maximum extent of an array.
///
/// Coordinates have 32 bits. Below this bound, the start of a tile after the end of the array is
/// representable. So is each of its elements, since tiles have at most 2^24 elements.
pub const MAX_EXTENT: u64 = (1 << 31) - (1 << 25);

/// The number of dimensions that bound the rows of each box, after those of the array.
///
/// With stride `s` of the ragged dimension, they have the strides `s` and `2^34 - s` elements, and
/// the ragged dimension has the extent [`RAGGED_EXTENT`]. A box of rows from `row` on, of which
/// `left` exist, has the coordinates `RAGGED_EXTENT - left`, `row + left` and [`RAGGED_EXTENT`].
/// Its address is `row · s` modulo 2^64: the other terms are `2^64` elements together. Rows from
/// `left` on are outside of the map. Triton has such maps (`ragged_tma`).
///
/// The stride of the contiguous dimension is no multiple of 16 bytes. There the last two
/// coordinates count units of 16 bytes ([`ragged_unit`]). With `n` units in [`RAGGED_EXTENT`], the
/// strides are 16 bytes and `2^64 / n - 16` bytes.
pub const RAGGED_DIMS: usize = 2;

/// Extent of a ragged dimension, and the last coordinate of its boxes.
pub const RAGGED_EXTENT: u64 = 1 << 30;

/// Stride of the last dimension of ragged maps, in elements, plus that of the ragged dimension.
const RAGGED_STRIDE: u64 = 1 << 34;

/// Returns the elements in a unit of the last two coordinates of a ragged map. `dim`: the ragged
/// dimension; `bytes`: bytes of an element.
pub fn ragged_unit(dim: usize, bytes: u64) -> u64 {
    if dim == 0 { GRAIN / bytes } else { 1 }
}

/// Exclusive upper limit of strides, in bytes.
const MAX_STRIDE: u64 = 1 << 40;

/// Source of a number at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// A constant of the compiled code.
    Constant(i64),
    /// A parameter of the entry.
    Param {
        /// Position among the entry's parameters.
        index: u32,
        /// Width in bytes: 1, 2, 4 or 8.
        bytes: u32,
    },
}

impl Number {
    /// Returns the value at a launch with these parameter words.
    fn value(self, words: &[ParamWord]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Param { index, bytes } => {
                let unused = 64 - 8 * bytes;
                ((words[index as usize] << unused) as i64) >> unused
            }
        }
    }
}

/// One dimension of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Elements.
    pub extent: Number,
    /// Distance between consecutive elements in memory, in elements; 1 for the first dimension.
    pub stride: Number,
    /// Extent of the box.
    pub boxed: u32,
}

/// Element type of a TMA transfer. TMA copies bits, unless it rounds or adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapElement {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
    /// Eight bytes.
    U64,
    /// f32 in the array, rounded to tf32 when loaded.
    Tf32,
    /// f32 for additions.
    F32,
    /// f16 for additions.
    F16,
    /// bf16 for additions.
    BF16,
}

impl MapElement {
    /// Returns the size in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            MapElement::U8 => 1,
            MapElement::U16 | MapElement::F16 | MapElement::BF16 => 2,
            MapElement::U32 | MapElement::Tf32 | MapElement::F32 => 4,
            MapElement::U64 => 8,
        }
    }
}

/// Order of the 16-byte chunks of a box in shared memory: chunk `c` of the row at byte address `a`
/// is at chunk `c` XOR some bits of `a`, from bit 7 up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// No swizzle.
    #[default]
    None,
    /// Rows of 32 bytes: 1 bit.
    B32,
    /// Rows of 64 bytes: 2 bits.
    B64,
    /// Rows of 128 bytes: 3 bits.
    B128,
}

impl Swizzle {
    /// Returns the maximum bytes of a row of a box, which also determines the alignment of eight
    /// rows; `None`: any.
    pub fn span(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }

    /// Returns the swizzle whose rows have this number of bytes.
    pub fn from_span(bytes: u32) -> Option<Swizzle> {
        [Swizzle::B32, Swizzle::B64, Swizzle::B128].into_iter().find(|swizzle| swizzle.span() == Some(bytes))
    }
}

/// Bytes that an L2 miss fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum L2Promotion {
    /// The requested bytes.
    None,
    /// 64.
    B64,
    /// 128.
    #[default]
    B128,
    /// 256.
    B256,
}

/// A tensor map without the numbers of one launch. Elements outside of the array are read as zeros
/// and never written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// Position of the base address among the entry's parameters.
    pub base: u32,
    /// Dimensions, innermost first.
    pub dims: Vec<Dim>,
    /// Type of the elements.
    pub element: MapElement,
    /// Swizzle of a box in shared memory.
    pub swizzle: Swizzle,
    /// L2 promotion of loads.
    pub promotion: L2Promotion,
    /// The dimension whose rows are bounded at each box, not by the map ([`RAGGED_DIMS`]).
    pub ragged: Option<usize>,
}

/// The array of one launch, as arguments of the driver's encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedMap {
    /// The number of dimensions in use.
    pub rank: usize,
    /// Address of the first element.
    pub address: u64,
    /// Extents in elements, innermost first.
    pub extents: [u64; MAX_RANK],
    /// Strides in bytes, from the second dimension on.
    pub strides: [u64; MAX_RANK - 1],
    /// Extents of the box.
    pub boxes: [u32; MAX_RANK],
}

impl TensorMap {
    /// Returns the bytes of one box in shared memory.
    pub fn box_bytes(&self) -> u32 {
        self.dims.iter().map(|dim| dim.boxed).product::<u32>() * self.element.bytes()
    }

    /// Returns true if the hardware supports this kind of box.
    pub fn is_possible(&self) -> bool {
        let row = self.dims.first().map_or(0, |dim| u64::from(dim.boxed * self.element.bytes()));
        let rank = self.dims.len() + if self.ragged.is_some() { RAGGED_DIMS } else { 0 };
        (1..=MAX_RANK).contains(&rank)
            && self.ragged.is_none_or(|dim| dim < self.dims.len())
            && self.dims.iter().all(|dim| (1..=MAX_TMA_BOX).contains(&dim.boxed))
            && row.is_multiple_of(GRAIN)
            && self.swizzle.span().is_none_or(|span| row <= u64::from(span))
    }

    /// Returns the numbers for a launch with these parameter words. `None` for an array that no map
    /// can describe: empty, with an extent or a stride beyond the limits, or not aligned.
    pub fn resolve(&self, words: &[ParamWord]) -> Option<ResolvedMap> {
        let mut map = ResolvedMap {
            rank: self.dims.len(),
            address: words[self.base as usize],
            extents: [1; MAX_RANK],
            strides: [0; MAX_RANK - 1],
            boxes: [1; MAX_RANK],
        };
        if map.address == 0 || !map.address.is_multiple_of(GRAIN) {
            return None;
        }
        for (at, dim) in self.dims.iter().enumerate() {
            let extent = u64::try_from(dim.extent.value(words)).ok()?;
            let stride = u64::try_from(dim.stride.value(words)).ok()?.checked_mul(u64::from(self.element.bytes()))?;
            if !(1..=MAX_EXTENT).contains(&extent) {
                return None;
            }
            map.extents[at] = extent;
            map.boxes[at] = dim.boxed;
            if at > 0 {
                if !stride.is_multiple_of(GRAIN) || stride >= MAX_STRIDE {
                    return None;
                }
                map.strides[at - 1] = stride;
            } else if stride != u64::from(self.element.bytes()) {
                return None;
            }
        }
        match self.ragged {
            Some(dim) => map.with_ragged(dim, u64::from(self.element.bytes())),
            None => Some(map),
        }
    }

    /// Returns the parameters that the map depends on, once per use.
    pub fn parameters(&self) -> impl Iterator<Item = u32> {
        let index = |number: Number| match number {
            Number::Constant(_) => None,
            Number::Param { index, .. } => Some(index),
        };
        let dims = self.dims.iter().flat_map(move |dim| [dim.extent, dim.stride].into_iter().filter_map(index));
        std::iter::once(self.base).chain(dims)
    }
}

impl ResolvedMap {
    /// Returns the map with the dimensions that bound rows along `dim`.
    fn with_ragged(mut self, dim: usize, element_bytes: u64) -> Option<ResolvedMap> {
        let (stride, whole) = match dim {
            0 => (GRAIN, RAGGED_STRIDE * ragged_unit(dim, element_bytes)),
            _ => (self.strides[dim - 1], RAGGED_STRIDE * element_bytes),
        };
        let around = whole.checked_sub(stride).filter(|&around| around < MAX_STRIDE)?;
        self.extents[dim] = RAGGED_EXTENT;
        for (at, stride) in [(self.rank, stride), (self.rank + 1, around)] {
            // Each coordinate that is not negative is inside.
            self.extents[at] = 1 << 31;
            self.strides[at - 1] = stride;
        }
        self.rank += RAGGED_DIMS;
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the map of a matrix with pitch: parameters are address, rows, columns, row stride.
    fn matrix() -> TensorMap {
        let param = |index| Number::Param { index, bytes: 4 };
        TensorMap {
            base: 0,
            dims: vec![
                Dim { extent: param(2), stride: Number::Constant(1), boxed: 64 },
                Dim { extent: param(1), stride: param(3), boxed: 128 },
            ],
            element: MapElement::U16,
            swizzle: Swizzle::B128,
            promotion: L2Promotion::default(),
            ragged: None,
        }
    }

    #[test]
    fn ragged_rows_have_the_address_of_the_array() {
        let map = TensorMap { ragged: Some(1), ..matrix() };
        assert!(map.is_possible() && !TensorMap { ragged: Some(2), ..matrix() }.is_possible());
        let resolved = map.resolve(&[0x7000, 100, 72, 80]).unwrap();
        assert_eq!((resolved.rank, resolved.extents), (4, [72, RAGGED_EXTENT, 1 << 31, 1 << 31, 1]));
        assert_eq!(resolved.boxes, [64, 128, 1, 1, 1]);
        let address = |coords: [u64; 3]| {
            let terms = coords.iter().zip(resolved.strides).map(|(&at, stride)| at.wrapping_mul(stride));
            terms.fold(resolved.address, u64::wrapping_add)
        };
        for (row, left) in [(0u64, 100u64), (7, 93), (99, 1), (100, 0)] {
            assert_eq!(address([RAGGED_EXTENT - left, row + left, RAGGED_EXTENT]), 0x7000 + 160 * row);
        }
        let mut wide = map;
        wide.dims[1].stride = Number::Param { index: 3, bytes: 8 };
        assert!(wide.resolve(&[16, 1, 1, 1 << 34]).is_some() && wide.resolve(&[16, 1, 1, (1 << 34) + 8]).is_none());
        wide.dims = vec![wide.dims[0], wide.dims[1], wide.dims[1], wide.dims[1]];
        assert!(!wide.is_possible(), "six dimensions");
    }

    #[test]
    fn ragged_columns_count_units_of_sixteen_bytes() {
        for (element, bytes) in
            [(MapElement::U8, 1u64), (MapElement::U16, 2), (MapElement::F32, 4), (MapElement::U64, 8)]
        {
            let dims = [Dim { boxed: 16, ..matrix().dims[0] }, Dim { boxed: 128, ..matrix().dims[1] }];
            let map = TensorMap { ragged: Some(0), element, dims: dims.into(), swizzle: Swizzle::None, ..matrix() };
            assert!(map.is_possible());
            let resolved = map.resolve(&[0x7000, 100, 72, 80]).unwrap();
            assert_eq!((resolved.rank, resolved.extents), (4, [RAGGED_EXTENT, 100, 1 << 31, 1 << 31, 1]));
            assert!(resolved.strides[1..3].iter().all(|&stride| stride.is_multiple_of(GRAIN) && stride < MAX_STRIDE));
            let unit = ragged_unit(0, bytes);
            for (column, left) in [(0u64, 64u64), (16, 48), (160, 16), (64, 0)] {
                let coords = [3, (column + left) / unit, RAGGED_EXTENT / unit];
                let terms = coords.iter().zip(resolved.strides).map(|(&at, stride)| at.wrapping_mul(stride));
                let start = resolved.address.wrapping_add((RAGGED_EXTENT - left) * bytes);
                let address = terms.fold(start, u64::wrapping_add);
                assert_eq!(address, 0x7000 + bytes * (3 * 80 + column), "{element:?}");
            }
        }
    }

    #[test]
    fn numbers_are_read_from_the_parameter_words() {
        let map = matrix();
        // Bits above the width of a parameter are ignored.
        let resolved = map.resolve(&[0x7000, 100 | 1 << 40, 72, 80]).unwrap();
        assert_eq!((resolved.rank, resolved.address), (2, 0x7000));
        assert_eq!(resolved.extents, [72, 100, 1, 1, 1]);
        assert_eq!(resolved.strides, [160, 0, 0, 0]);
        assert_eq!(resolved.boxes, [64, 128, 1, 1, 1]);
        assert_eq!(map.parameters().collect::<Vec<_>>(), [0, 2, 1, 3]);
        assert_eq!(map.box_bytes(), 64 * 128 * 2);
    }

    #[test]
    fn arrays_beyond_the_limits_are_refused() {
        let map = matrix();
        let refused = |words: [u64; 4]| map.resolve(&words).is_none();
        assert!(!refused([16, 1, 1, 8]));
        assert!(refused([0, 1, 1, 8]), "no address");
        assert!(refused([8, 1, 1, 8]), "an address that is not aligned");
        assert!(refused([16, 0, 1, 8]), "empty");
        assert!(refused([16, u64::from(u32::MAX), 1, 8]), "a negative extent");
        assert!(refused([16, MAX_EXTENT + 1, 1, 8]), "too long");
        assert!(refused([16, 1, 1, 9]), "a stride that is not aligned");
        let mut wide = map.clone();
        wide.dims[1].stride = Number::Param { index: 3, bytes: 8 };
        assert!(wide.resolve(&[16, 1, 1, 1 << 38]).is_some());
        assert!(wide.resolve(&[16, 1, 1, 1 << 39]).is_none(), "a stride of 2^40 bytes");
    }

    #[test]
    fn boxes_beyond_the_limits_are_impossible() {
        let with = |change: &dyn Fn(&mut TensorMap)| {
            let mut map = matrix();
            change(&mut map);
            map.is_possible()
        };
        assert!(with(&|_| ()));
        assert!(!with(&|map| map.dims[0].boxed = 128), "a row longer than the swizzle's");
        assert!(with(&|map| (map.dims[0].boxed, map.swizzle) = (128, Swizzle::None)));
        assert!(!with(&|map| map.dims[0].boxed = 4), "8 bytes a row");
        assert!(!with(&|map| map.dims[1].boxed = 512));
        assert!(!with(&|map| map.dims = vec![map.dims[0]; 6]));
    }
}
