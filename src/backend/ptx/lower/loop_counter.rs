//! Loop counters: their PTX types and the trip count of a `for`.

use super::Lowered;
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Cmp, Operand, Ty};
use crate::dtype::DType;

/// Returns the PTX type of a loop counter.
pub fn counter_type(dtype: DType, is_unsigned: bool) -> Lowered<Ty> {
    match (dtype, is_unsigned) {
        (DType::I32, false) => Ok(Ty::S32),
        (DType::I32, true) => Ok(Ty::U32),
        (DType::I64, false) => Ok(Ty::S64),
        (DType::I64, true) => Ok(Ty::U64),
        (other, _) => Err(format!("a loop counter of type {other}")),
    }
}

/// Returns the unsigned type of the same width.
pub fn unsigned(ty: Ty) -> Ty {
    match ty {
        Ty::S64 | Ty::U64 => Ty::U64,
        _ => Ty::U32,
    }
}

/// Returns the trip count of a loop from `start` to `end`: 0 if the range is empty.
pub fn num_iterations(b: &mut Builder, start: Operand, end: Operand, step: Operand, ty: Ty) -> Operand {
    let ty_unsigned = unsigned(ty);
    let some = b.setp(Cmp::Lt, ty, start, end);
    let span = b.sub(ty, end, start);
    let last = b.sub(ty, span, 1);
    let full = b.div(ty_unsigned, last, step);
    let count = b.add(ty, full, 1);
    b.select(ty.class(), some, count, 0)
}
