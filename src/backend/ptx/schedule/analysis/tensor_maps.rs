//! Tensor maps: the views that TMA can transfer, with their boxes.
//!
//! A view with tiles at equal steps qualifies if its array is a parameter of the entry, which the
//! launch can describe. The assumptions of the launch must cover every array of that form. The
//! address and all strides but one are multiples of 16 bytes; the other stride is 1.
//!
//! A box begins at a multiple of 16 bytes. Another coordinate along the contiguous dimension is an
//! illegal instruction. Conditions on the numbers of one launch (an extent of 0, for example) are
//! checked by the launch, which has another kernel for these cases.
//!
//! The array may be a slice between run-time numbers along one axis (`ragged_slices`). Along the
//! contiguous axis both numbers are multiples of 16 bytes.
//!
//! In shared memory the contiguous dimension of a box is innermost. The other dimensions follow
//! from the last to the first.

use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::tensor_map::{Dim, GRAIN, L2Promotion, MAX_RANK, MapElement, Number, Swizzle, TensorMap};
use crate::dtype::DType;
use crate::ir::{Padding, Type, Value};

/// Maximum number of elements between consecutive tiles that begin at a multiple of 16 bytes. With
/// it, the coordinate of the first such tile after the longest array fits in 32 bits.
const MAX_STEP: i64 = 1 << 24;

/// First architecture with TMA.
pub const FIRST_ARCH: u32 = 90;

/// A view, and the index of a tile of it.
type At<'a> = (Value, &'a [Value]);

/// A tensor map, or the reason why TMA does not support the array or view.
type MapResult = Result<TensorMap, &'static str>;

const NO_TILES: &str = "the view has no tiles at equal steps";
const NOT_CONTIGUOUS: &str = "no dimension is contiguous";
const TOO_LARGE: &str = "the tile does not consist of boxes within the limits of TMA";

impl KernelInfo<'_> {
    /// Returns the tensor map for loads of the tile of a view at an index. `boxes`: extents in the
    /// order of the tile's dimensions. `round_tf32`: TMA rounds f32 to tf32.
    ///
    /// # Errors
    /// The reason why TMA cannot load the tile.
    pub fn tma_map(&self, at: At<'_>, boxes: &[i64], swizzle: Swizzle, round_tf32: bool) -> MapResult {
        let (Type::PartitionView { padding, .. } | Type::StridedView { padding, .. }) = self.module.ty(at.0) else {
            return Err(NO_TILES);
        };
        if !matches!(padding, None | Some(Padding::Zero)) {
            return Err("TMA pads with zeros alone");
        }
        self.map_of(at, boxes, swizzle, &|dtype| map_element(dtype, round_tf32))
    }

    /// Returns the tensor map of a store, as [`KernelInfo::tma_map`]. Padding is irrelevant. TMA
    /// writes whole units of 16 bytes, so the array must not end inside one. `adds`: the store is
    /// an atomic addition.
    ///
    /// # Errors
    /// The reason why TMA cannot store the tile.
    pub fn tma_store_map(&self, at: At<'_>, boxes: &[i64], swizzle: Swizzle, adds: bool) -> MapResult {
        let map =
            self.map_of(at, boxes, swizzle, &|dtype| if adds { added(dtype) } else { map_element(dtype, false) })?;
        // Each element belongs to one tile, so stores of different warps do not overlap.
        let shape = ViewShape::of(self.module, at.0).ok_or(NO_TILES)?;
        if shape.tile.iter().zip(&shape.steps).any(|(tile, step)| tile > step) {
            return Err("the tiles overlap");
        }
        let fastest = shape.dim_map[contiguous_axis(self.module, &shape).ok_or(NOT_CONTIGUOUS)?];
        let whole =
            shape.extent_divisor(self.module, &self.inference.int_ranges, fastest) * u64::from(map.element.bytes());
        if !whole.is_multiple_of(GRAIN) {
            return Err("the contiguous extent of the array is no known multiple of 16 bytes");
        }
        Ok(map)
    }

    fn map_of(
        &self,
        (view, index): At<'_>,
        boxes: &[i64],
        swizzle: Swizzle,
        element: &dyn Fn(DType) -> Option<MapElement>,
    ) -> MapResult {
        let module = self.module;
        if !self.options.tma || self.inference.target.arch < FIRST_ARCH {
            return Err("TMA is disabled, or the target has none");
        }
        let int_ranges = &self.inference.int_ranges;
        let shape = ViewShape::at(module, int_ranges, view, index).filter(|shape| shape.sparse.is_none());
        let shape = shape.ok_or(NO_TILES)?;
        let element = element(shape.elem).ok_or("TMA does not support the element type")?;
        let (fastest, bytes) = (contiguous_axis(module, &shape).ok_or(NOT_CONTIGUOUS)?, u64::from(element.bytes()));
        if !(shape.start_divisor(fastest).min(GRAIN) * bytes).is_multiple_of(GRAIN) {
            return Err("a tile may begin at an address that is no multiple of 16 bytes");
        }
        if whole_indices(shape.steps[fastest], element.bytes()) * shape.steps[fastest] > MAX_STEP {
            return Err("tiles that begin at multiples of 16 bytes have a distance of more than 2^24 elements");
        }
        let slice = self.ragged_slice(shape.tensor);
        let base = slice.map_or(module.op(shape.tensor).group(0)[0], |slice| slice.base);
        if shape.tile.len() > MAX_RANK {
            return Err("the tile has more than 5 dimensions");
        }
        if !int_ranges.divisor(base).is_multiple_of(GRAIN) {
            return Err("the address of the array is no known multiple of 16");
        }
        let (mut dims, mut ragged) = (Vec::new(), None);
        for axis in box_order(shape.tile.len(), fastest) {
            let dim = shape.dim_map[axis];
            let stride = self.number(shape.stride(module, dim)).ok_or("the kernel computes a stride of the array")?;
            let aligned = shape.stride_divisor(module, int_ranges, dim) * bytes;
            if !dims.is_empty() && !aligned.is_multiple_of(GRAIN) {
                return Err("a stride of the array is no known multiple of 16 bytes");
            }
            let mut extent = shape.extent(module, dim);
            if let Some(slice) = slice.filter(|slice| slice.dim == dim) {
                // A box that begins before the slice would contain other rows of the array.
                let first =
                    index.get(axis).and_then(|&index| int_ranges.range(index)).map_or(i64::MIN, |range| range.lo);
                let mut ends = slice.begin.into_iter().chain([slice.length]);
                let is_whole = |end| (int_ranges.divisor(end).min(GRAIN) * bytes).is_multiple_of(GRAIN);
                if axis == fastest && !ends.all(is_whole) {
                    return Err("the ends of the slice are no known multiples of 16 bytes");
                }
                if shape.steps[axis] < shape.tile[axis] && first < 0 {
                    return Err("a tile may begin before the slice");
                }
                (extent, ragged) = (Err(slice.extent), Some(dims.len()));
            }
            let extent = self.number(extent).ok_or("the kernel computes an extent of the array")?;
            dims.push(Dim { extent, stride, boxed: u32::try_from(boxes[axis]).map_err(|_| TOO_LARGE)? });
        }
        let base = self.entry_param(base).ok_or("the array is no parameter of the kernel")?;
        let map = TensorMap { base, dims, element, swizzle, promotion: L2Promotion::default(), ragged };
        if map.is_possible() { Ok(map) } else { Err(TOO_LARGE) }
    }

    /// Returns a constant, or a number that the launch passes.
    fn number(&self, value: Result<i64, Value>) -> Option<Number> {
        match value {
            Ok(constant) => Some(Number::Constant(constant)),
            Err(value) => {
                let bytes = self.module.dtype(value).storage_bits() / 8;
                Some(Number::Param { index: self.entry_param(value)?, bytes })
            }
        }
    }
}

/// Returns the distance, in tile indices, of tiles that begin at a multiple of 16 bytes. `step`:
/// elements between tiles; `bytes`: bytes of an element.
pub fn whole_indices(step: i64, bytes: u32) -> i64 {
    let grain = GRAIN as i64 / i64::from(bytes);
    grain / grain.min(1 << step.trailing_zeros().min(4))
}

/// Returns the dimensions of a tile in the order of its box in shared memory, innermost first.
pub fn box_order(rank: usize, fastest: usize) -> impl Iterator<Item = usize> {
    std::iter::once(fastest).chain((0..rank).rev().filter(move |&axis| axis != fastest))
}

fn map_element(dtype: DType, round_tf32: bool) -> Option<MapElement> {
    match dtype.storage_bits() {
        32 if round_tf32 => Some(MapElement::Tf32),
        _ if round_tf32 => None,
        8 => Some(MapElement::U8),
        16 => Some(MapElement::U16),
        32 => Some(MapElement::U32),
        64 => Some(MapElement::U64),
        // Several elements share a byte.
        _ => None,
    }
}

/// Returns the element type of a TMA store that adds to the array.
pub fn added(dtype: DType) -> Option<MapElement> {
    match dtype {
        DType::I32 => Some(MapElement::U32),
        DType::F32 => Some(MapElement::F32),
        DType::F16 => Some(MapElement::F16),
        DType::BF16 => Some(MapElement::BF16),
        _ => None,
    }
}
