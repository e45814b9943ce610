//! Atomic operations on one element.

use super::directed_rounding;
use crate::dtype::DType;
use crate::ir::{AtomicMode, Rounding};
use crate::types::float_codec;

/// An atomic operation on one element.
#[derive(Clone, Copy)]
pub(crate) struct Update {
    mode: AtomicMode,
    dtype: DType,
    /// Subnormal f32 operands and results of an addition become zero of the same sign.
    flush: bool,
}

impl Update {
    /// Creates the operation on an element in memory of all tile blocks, or in memory of the block
    /// (`private`). PTX ISA, `atom` and `red`: `.add.f32` flushes subnormal numbers in global
    /// memory, and keeps them in shared memory.
    pub fn new(mode: AtomicMode, dtype: DType, private: bool) -> Update {
        Update { mode, dtype, flush: mode == AtomicMode::AddF && dtype == DType::F32 && !private }
    }

    /// Returns the new pattern from the old one and the operand.
    pub fn apply(self, old: u64, operand: u64) -> u64 {
        let Update { mode, dtype, flush } = self;
        if !flush {
            return combine(mode, dtype, old, operand);
        }
        flushed(combine(mode, dtype, flushed(old), flushed(operand)))
    }
}

/// Returns an f32 pattern, or the zero of its sign if the number is subnormal.
fn flushed(bits: u64) -> u64 {
    if f32::from_bits(bits as u32).is_subnormal() { bits & 1 << 31 } else { bits }
}

/// Returns the new pattern from the old one and the operand, without flushing.
fn combine(mode: AtomicMode, dtype: DType, old: u64, operand: u64) -> u64 {
    // Integers are i32 or i64. After the shift, their sign bit is that of the word.
    let up = 64 - dtype.bits();
    let signed = |bits: u64| (bits << up) as i64;
    match mode {
        AtomicMode::And => old & operand,
        AtomicMode::Or => old | operand,
        AtomicMode::Xor => old ^ operand,
        AtomicMode::Add => old.wrapping_add(operand),
        AtomicMode::AddF => {
            directed_rounding::add(float_codec::decode(dtype, old), float_codec::decode(dtype, operand))
                .round(dtype, Rounding::NearestEven)
        }
        AtomicMode::Max => {
            if signed(old) >= signed(operand) {
                old
            } else {
                operand
            }
        }
        AtomicMode::Min => {
            if signed(old) <= signed(operand) {
                old
            } else {
                operand
            }
        }
        AtomicMode::UMax => old.max(operand),
        AtomicMode::UMin => old.min(operand),
        AtomicMode::Xchg => operand,
    }
}
