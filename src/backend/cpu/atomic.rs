//! What atomic operations do to one element.

use super::exact;
use crate::codec;
use crate::dtype::DType;
use crate::ir::{AtomicMode, Rounding};

/// The new pattern from the old one and the operand's.
pub(super) fn combine(mode: AtomicMode, dtype: DType, old: u64, operand: u64) -> u64 {
    // Integers are i32 or i64: shifted up, their sign is the word's.
    let up = 64 - dtype.bits();
    let signed = |bits: u64| (bits << up) as i64;
    match mode {
        AtomicMode::And => old & operand,
        AtomicMode::Or => old | operand,
        AtomicMode::Xor => old ^ operand,
        AtomicMode::Add => old.wrapping_add(operand),
        AtomicMode::AddF => {
            exact::add(codec::decode(dtype, old), codec::decode(dtype, operand)).round(dtype, Rounding::NearestEven)
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
