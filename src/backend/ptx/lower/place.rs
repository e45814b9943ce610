//! Where a tile lies in its array along a dimension: its first element, and how much of it is inside.

use super::view::Partition;
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, RegClass, Ty};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::Value;

/// The elements of a tile that lie in the array, along a dimension and seen from the thread's coordinate (B32).
#[derive(Clone, Copy)]
pub enum Limit {
    /// Those before this one.
    Before(Operand),
    /// Those whose sum with `from` is, as an unsigned number, below `count`: of tiles that may begin before the array.
    Within { from: Operand, count: Operand },
    /// Those whose listed position is below the extent.
    Listed,
}

/// How a tile lies in the array along a dimension.
pub struct Place {
    /// Position of the first element.
    pub start: Operand,
    /// Elements of the tile before the array (B32), where there can be any.
    pub before: Option<Operand>,
    /// Elements from the start of the tile to the end of the array (B32), if that is checked; 0 for an index outside.
    pub rem: Option<Operand>,
}

impl Lowering<'_> {
    /// A tile index in the width of the view's index type. One that does not fit is outside of every index space, and
    /// so is the largest number, read as unsigned.
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

    /// How the tile at an index lies in the array along an axis, or one that begins `shifted` elements before it.
    pub fn place(
        &mut self,
        partition: &Partition,
        axis: usize,
        index: Value,
        checked: bool,
        shifted: usize,
    ) -> Lowered<Place> {
        let tensor = &partition.tensor;
        let (signed, unsigned) = if tensor.wide { (Ty::S64, Ty::U64) } else { (Ty::S32, Ty::U32) };
        let reach = match self.context.inference.facts.range(index) {
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
            return Ok(Place { start, before: None, rem: None });
        }
        let extent = tensor.extents[partition.dim_map[axis]];
        let count = self.num_tiles(partition, axis);
        // From the first tile on that reaches into the array.
        let (from_first, count) = match reach {
            0 => (index, count),
            _ => (self.b.add(signed, index, reach), self.b.add(unsigned, count, reach)),
        };
        let valid = self.b.setp(Cmp::Lt, unsigned, from_first, count);
        let rem = self.b.sub(signed, extent, start);
        let rem = if tensor.wide {
            // A tile has at most 2^24 elements: more than that inside is as good as 2^25 of them.
            let clamped = self.b.min(Ty::S64, rem, 1i64 << 25);
            self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), clamped)
        } else {
            rem
        };
        let rem = self.b.select(RegClass::B32, valid, rem, 0);
        let before = (reach > 0).then(|| {
            let negative = self.b.sub(signed, 0, start);
            let before = self.b.max(signed, negative, 0);
            // Less than a tile where the index is valid.
            let before = if tensor.wide { self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), before) } else { before };
            self.b.select(RegClass::B32, valid, before, 0)
        });
        Ok(Place { start, before, rem: Some(rem) })
    }

    /// The limit of the elements of a thread whose coordinate in the tile is `thread`.
    pub fn limit(&mut self, rem: Operand, before: Option<Operand>, thread: Operand) -> Limit {
        match before {
            None => Limit::Before(self.b.sub(Ty::S32, rem, thread)),
            Some(before) => {
                let count = self.b.sub(Ty::S32, rem, before);
                Limit::Within { from: self.b.sub(Ty::S32, thread, before), count: self.b.max(Ty::S32, count, 0) }
            }
        }
    }

    /// How many elements of the tile lie inside from its start on (B32): 0 where it starts before the array.
    pub fn inside_from_start(&mut self, rem: Operand, before: Option<Operand>) -> Operand {
        match before {
            None => rem,
            Some(before) => {
                let starts_inside = self.b.setp(Cmp::Eq, Ty::S32, before, 0);
                self.b.select(RegClass::B32, starts_inside, rem, 0)
            }
        }
    }

    /// A tile index in the width of the view's index type, as a signed number; one that does not fit is as far outside
    /// as there are numbers.
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
