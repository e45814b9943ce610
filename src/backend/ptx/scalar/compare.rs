//! Comparisons.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::{Unsupported, cast, repr};
use crate::dtype::DType;
use crate::ir::{CmpOrder, CmpPred, Op, Sign};

/// Lowers `cmpf`: false on NaN when ordered, true when unordered.
pub(super) fn cmpf(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    let ty = match dtype {
        DType::F32 => Ty::F32,
        DType::F64 => Ty::F64,
        DType::F16 => Ty::F16,
        DType::BF16 if b.target.arch >= 90 => Ty::BF16,
        DType::BF16 => {
            let wide = [cast::widen(b, dtype, x[0]), cast::widen(b, dtype, x[1])];
            return cmpf(b, op, DType::F32, &wide);
        }
        _ => return Err(Unsupported::new(op, dtype)),
    };
    use CmpPred::*;
    let cmp = match (op.cmp_pred(), op.cmp_order()) {
        (Eq, CmpOrder::Ordered) => Cmp::Eq,
        (Ne, CmpOrder::Ordered) => Cmp::Ne,
        (Lt, CmpOrder::Ordered) => Cmp::Lt,
        (Le, CmpOrder::Ordered) => Cmp::Le,
        (Gt, CmpOrder::Ordered) => Cmp::Gt,
        (Ge, CmpOrder::Ordered) => Cmp::Ge,
        (Eq, CmpOrder::Unordered) => Cmp::Equ,
        (Ne, CmpOrder::Unordered) => Cmp::Neu,
        (Lt, CmpOrder::Unordered) => Cmp::Ltu,
        (Le, CmpOrder::Unordered) => Cmp::Leu,
        (Gt, CmpOrder::Unordered) => Cmp::Gtu,
        (Ge, CmpOrder::Unordered) => Cmp::Geu,
    };
    Ok(b.setp(cmp, ty, x[0], x[1]).into())
}

/// Lowers `cmpi` of any width.
pub(super) fn cmpi(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Result<Operand, Unsupported> {
    if !dtype.is_int() {
        return Err(Unsupported::new(op, dtype));
    }
    let signed = op.sign() == Sign::Signed;
    if dtype == DType::I1 {
        return Ok(compare_bools(b, op.cmp_pred(), signed, x[0], x[1]));
    }
    let cmp = match op.cmp_pred() {
        CmpPred::Eq => Cmp::Eq,
        CmpPred::Ne => Cmp::Ne,
        CmpPred::Lt => Cmp::Lt,
        CmpPred::Le => Cmp::Le,
        CmpPred::Gt => Cmp::Gt,
        CmpPred::Ge => Cmp::Ge,
    };
    let extend = signed && !matches!(cmp, Cmp::Eq | Cmp::Ne);
    let (p, q) = match extend {
        true => (repr::sign_extended(b, dtype, x[0]), repr::sign_extended(b, dtype, x[1])),
        false => (x[0], x[1]),
    };
    let ty = match (dtype, signed) {
        (DType::I64, true) => Ty::S64,
        (DType::I64, false) => Ty::U64,
        (_, true) => Ty::S32,
        (_, false) => Ty::U32,
    };
    Ok(b.setp(cmp, ty, p, q).into())
}

/// Compares by truth tables; read as signed, true is -1 and therefore the smaller value.
fn compare_bools(b: &mut Builder, pred: CmpPred, signed: bool, p: Operand, q: Operand) -> Operand {
    let (p, q) = if signed { (q, p) } else { (p, q) };
    let not = |b: &mut Builder, x: Operand| b.not(Ty::Pred, x);
    match pred {
        CmpPred::Ne => b.xor(Ty::Pred, p, q),
        CmpPred::Eq => {
            let differ = b.xor(Ty::Pred, p, q);
            not(b, differ)
        }
        CmpPred::Lt => {
            let p = not(b, p);
            b.and(Ty::Pred, p, q)
        }
        CmpPred::Le => {
            let p = not(b, p);
            b.or(Ty::Pred, p, q)
        }
        CmpPred::Gt => {
            let q = not(b, q);
            b.and(Ty::Pred, p, q)
        }
        CmpPred::Ge => {
            let q = not(b, q);
            b.or(Ty::Pred, p, q)
        }
    }
}
