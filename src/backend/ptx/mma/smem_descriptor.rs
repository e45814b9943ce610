//! Operands of `wgmma` in shared memory: swizzled rows in panels, and their matrix descriptors.
//!
//! A row has 32, 64 or 128 bytes and the swizzle of that span. Panels follow one another along the
//! contiguous axis. Descriptor fields: PTX ISA, "Asynchronous warpgroup level matrix instructions".

use super::super::hardware::MMA_K_BYTES;
use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::request::{OperandSpec, Panels};
use crate::layout::SharedLayout;

/// Bytes of k of one instruction.
pub(super) const STEP_BYTES: i64 = MMA_K_BYTES as i64;

/// Layout of one matrix in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SmemMatrix {
    /// Contiguous along k, otherwise along m or n.
    pub along_k: bool,
    /// Bytes of a swizzled row.
    pub swizzle_bytes: i64,
    /// Rows of a panel: the extent of m or n if contiguous along k, else of k.
    pub rows: i64,
    /// Bytes of an element.
    pub size: i64,
}

impl SmemMatrix {
    /// Returns the layout of an operand; `mn`: extent of m or n.
    pub fn new(spec: &OperandSpec, along_k: bool, mn: i64, k: i64) -> Option<SmemMatrix> {
        let size = i64::from(spec.dtype.storage_bits() / 8);
        let (row, rows) = if along_k { (k, mn) } else { (mn, k) };
        let swizzle_bytes = (row * size).min(if along_k { 128 } else { spec.max_swizzle_bytes });
        (swizzle_bytes >= 32 && rows >= 8).then_some(SmemMatrix { along_k, swizzle_bytes, rows, size })
    }

    /// Returns true if instructions can read it in place. Only 16-bit elements need not be
    /// contiguous along k.
    pub fn is_direct(&self) -> bool {
        self.along_k || self.size == 2
    }

    /// Returns the bytes of a swizzle pattern: eight rows, aligned to their size.
    pub fn pattern_bytes(&self) -> u32 {
        8 * self.swizzle_bytes as u32
    }

    /// Returns the constant fields of the low and the high word of the matrix descriptor: byte
    /// offsets in units of 16 bytes, and the swizzling mode.
    fn descriptor_constants(&self) -> (u32, u32) {
        let leading = if self.along_k { 1 } else { (self.rows * self.swizzle_bytes) as u32 >> 4 };
        let swizzle = match self.swizzle_bytes {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        (leading << 16, (self.pattern_bytes() >> 4) | (swizzle << 30))
    }

    /// Returns the bytes from the start of the matrix to step `step` of k.
    pub fn step(&self, step: i64) -> i64 {
        if self.along_k {
            let in_row = self.swizzle_bytes / STEP_BYTES;
            step / in_row * self.rows * self.swizzle_bytes + step % in_row * STEP_BYTES
        } else {
            step * (STEP_BYTES / self.size) * self.swizzle_bytes
        }
    }

    /// Returns the bytes from the start of the matrix to row or column `index` (a multiple of the
    /// panel width if that axis is contiguous).
    pub fn mn_offset(&self, index: i64) -> i64 {
        if self.along_k {
            index * self.swizzle_bytes
        } else {
            index * self.size / self.swizzle_bytes * self.rows * self.swizzle_bytes
        }
    }

    /// Returns true if the rows or columns can be divided into parts of `count`.
    pub fn divides(&self, count: i64) -> bool {
        self.along_k || count * self.size % self.swizzle_bytes == 0
    }

    /// Returns the panels that TMA must write; `mn`: extent of m or n.
    pub fn panels(&self, mn: i64, k: i64) -> Panels {
        let row = if self.along_k { k } else { mn };
        Panels {
            along_k: self.along_k,
            swizzle_bytes: self.swizzle_bytes,
            rows: self.rows,
            count: row * self.size / self.swizzle_bytes,
        }
    }

    /// Returns the offset of each element. `k_last`: k is the last dimension of the tile.
    pub fn layout(&self, shape: &[i64], k_last: bool) -> SharedLayout {
        let last = shape.len() - 1;
        let contiguous = if self.along_k == k_last { last } else { last - 1 };
        let strided = 2 * last - 1 - contiguous;
        let mut order = vec![contiguous, strided];
        order.extend(0..last - 1);
        let stride = if strided == last { 1 } else { shape[last] as u32 };
        let lanes = [stride, 2 * stride, 4 * stride];
        let row = self.swizzle_bytes / self.size;
        if self.swizzle_bytes == 128 || shape[contiguous] == row {
            return SharedLayout::swizzled(shape, &order, self.size as usize, 16, &lanes);
        }
        // Rows narrower than the extent: the panels are a separate axis.
        let mut parted = shape.to_vec();
        parted.splice(contiguous..=contiguous, [shape[contiguous] / row, row]);
        let after = |axis: usize| if axis > contiguous { axis + 1 } else { axis };
        let mut order = vec![contiguous + 1, after(strided), contiguous];
        order.extend(0..last - 1);
        let parted = SharedLayout::swizzled(&parted, &order, self.size as usize, 16, &lanes);
        SharedLayout { shape: shape.to_vec(), ..parted }
    }

    /// Emits the low word of the matrix descriptor of part `part` of a matrix: the matrix start
    /// address and the leading dimension byte offset. `address`: start address of the whole matrix;
    /// parts have `count` rows or columns.
    pub fn descriptor_low_word(&self, b: &mut Builder, address: Operand, part: Operand, count: i64) -> Operand {
        let part = b.mul(Ty::U32, part, self.mn_offset(count));
        let start_address = b.add(Ty::U32, address, part);
        let field = b.and(Ty::B32, start_address, 0x3ffffu32);
        let field = b.shr(Ty::U32, field, 4u32);
        b.or(Ty::B32, field, self.descriptor_constants().0)
    }

    /// Emits the matrix descriptor whose start address is `bytes` after that of this low word.
    pub fn matrix_descriptor(&self, b: &mut Builder, low_word: Operand, bytes: i64) -> Reg {
        let low = b.add(Ty::U32, low_word, (bytes >> 4) as u32);
        let low = b.reg(low, RegClass::B32);
        let high = b.reg(self.descriptor_constants().1, RegClass::B32);
        b.pack(low, high).reg()
    }
}
