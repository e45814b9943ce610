//! Tile bounds: start coordinate and number of valid elements along each dimension.

use super::tensor_view::PartitionView;
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, RegClass, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::Value;

/// Bounds check of an element, relative to the coordinate of the thread (B32).
#[derive(Clone, Copy)]
pub enum BoundsCheck {
    /// Coordinates below this limit are inside.
    Below(Operand),
    /// Coordinates are inside if their sum with `from` is below `count`, as unsigned numbers. For
    /// tiles that may start before the array.
    Range { from: Operand, count: Operand },
    /// Positions of the index tile are compared with the extent.
    Indexed,
}

/// Bounds of a tile along a dimension.
pub struct TileBounds {
    /// Position of the first element.
    pub start: Operand,
    /// Number of elements before the array (B32), if there can be some.
    pub before: Option<Operand>,
    /// Number of elements from the start of the tile to the end of the array (B32), if it is
    /// checked. 0 for an index outside.
    pub remaining: Option<Operand>,
}

impl Lowering<'_> {
    /// Returns a tile index in the width of the view's index type.
    ///
    /// An index that does not fit becomes the greatest unsigned number, which is outside of every
    /// index space.
    pub fn index_operand(&mut self, index: Value, wide: bool) -> Lowered<Operand> {
        let dtype = self.module.dtype(index);
        let operand = self.scalar(index)?;
        let operand = repr::sign_extended(&mut self.b, dtype, operand);
        match (dtype, wide) {
            (DType::I64, true) => Ok(operand),
            (DType::I64, false) => {
                let fitting = self.b.min(Ty::U64, operand, i64::from(u32::MAX));
                Ok(self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), fitting))
            }
            (DType::I8 | DType::I16 | DType::I32, true) => {
                Ok(self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), operand))
            }
            (DType::I8 | DType::I16 | DType::I32, false) => Ok(operand),
            (other, _) => Err(format!("an index of type {other}")),
        }
    }

    /// Computes the bounds of the tile at an index, or of one that starts `shifted` elements before
    /// it.
    pub fn tile_bounds(
        &mut self,
        partition: &PartitionView,
        axis: usize,
        index: Value,
        checked: bool,
        shifted: usize,
    ) -> Lowered<TileBounds> {
        let tensor = &partition.tensor;
        let (signed, unsigned) = if tensor.wide { (Ty::S64, Ty::U64) } else { (Ty::S32, Ty::U32) };
        let reach = match self.info.inference.int_ranges.range(index) {
            Some(range) if range.lo >= 0 => 0,
            _ if !checked => 0,
            _ => partition.tiles_before(axis),
        };
        let index = match reach {
            0 => self.index_operand(index, tensor.wide)?,
            _ => self.signed_index(index, tensor.wide)?,
        };
        let start = self.b.mul(signed, index, partition.steps[axis]);
        let start = self.b.sub(signed, start, shifted as i64);
        if !checked {
            return Ok(TileBounds { start, before: None, remaining: None });
        }
        let extent = tensor.extents[partition.dim_map[axis]];
        let count = self.num_tiles(partition, axis);
        // Counted from the first tile that overlaps the array.
        let (from_first, count) = match reach {
            0 => (index, count),
            _ => (self.b.add(signed, index, reach), self.b.add(unsigned, count, reach)),
        };
        let valid = self.b.setp(Cmp::Lt, unsigned, from_first, count);
        let rem = self.b.sub(signed, extent, start);
        let rem = if tensor.wide {
            // A tile has at most 2^24 elements, so the number is clamped to 2^25.
            let clamped = self.b.min(Ty::S64, rem, 1i64 << 25);
            self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), clamped)
        } else {
            rem
        };
        let rem = self.b.select(RegClass::B32, valid, rem, 0);
        let before = (reach > 0).then(|| {
            let negative = self.b.sub(signed, 0, start);
            let before = self.b.max(signed, negative, 0);
            // Less than a tile, if the index is valid.
            let before = if tensor.wide { self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), before) } else { before };
            self.b.select(RegClass::B32, valid, before, 0)
        });
        Ok(TileBounds { start, before, remaining: Some(rem) })
    }

    /// Returns the bounds check of a thread with this coordinate in the tile.
    pub fn bounds_check(&mut self, rem: Operand, before: Option<Operand>, thread: Operand) -> BoundsCheck {
        match before {
            None => BoundsCheck::Below(self.b.sub(Ty::S32, rem, thread)),
            Some(before) => {
                let count = self.b.sub(Ty::S32, rem, before);
                BoundsCheck::Range { from: self.b.sub(Ty::S32, thread, before), count: self.b.max(Ty::S32, count, 0) }
            }
        }
    }

    /// Returns the number of elements inside from the start of the tile on (B32); 0 if it starts
    /// before the array.
    pub fn inside_from_start(&mut self, rem: Operand, before: Option<Operand>) -> Operand {
        match before {
            None => rem,
            Some(before) => {
                let starts_inside = self.b.setp(Cmp::Eq, Ty::S32, before, 0);
                self.b.select(RegClass::B32, starts_inside, rem, 0)
            }
        }
    }

    /// Returns a tile index in the width of the view's index type, as a signed number. An index
    /// that does not fit is saturated.
    fn signed_index(&mut self, index: Value, wide: bool) -> Lowered<Operand> {
        if self.module.dtype(index) != DType::I64 || wide {
            return self.index_operand(index, wide);
        }
        let operand = self.scalar(index)?;
        let low = self.b.max(Ty::S64, operand, i64::from(i32::MIN));
        let fitting = self.b.min(Ty::S64, low, i64::from(i32::MAX));
        Ok(self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), fitting))
    }
}
