//! `remf`: the exact remainder of a truncating division.
//!
//! Computed on the integer mantissas: (m_x · 2^d) mod m_y, a few bits of d at a time. The loop has
//! one iteration per 8 (f32) or 11 (f64) powers of two between the operands.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;

/// Parameters of f32 or f64.
struct Shape {
    float: Ty,
    uint: Ty,
    bits: Ty,
    mantissa_bits: u32,
    exponent_mask: i64,
    bias: i64,
}

pub(super) fn single(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    let shape =
        Shape { float: Ty::F32, uint: Ty::U32, bits: Ty::B32, mantissa_bits: 23, exponent_mask: 0xff, bias: 127 };
    remainder(b, &shape, x, y)
}

pub(super) fn double(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    let shape =
        Shape { float: Ty::F64, uint: Ty::U64, bits: Ty::B64, mantissa_bits: 52, exponent_mask: 0x7ff, bias: 1023 };
    remainder(b, &shape, x, y)
}

fn remainder(b: &mut Builder, s: &Shape, x: Operand, y: Operand) -> Operand {
    let (class, float) = (s.bits.class(), s.float.class());
    let magnitude = |b: &mut Builder, v: Operand| {
        let v = b.fabs(s.float, v);
        b.bitcast(v, class)
    };
    let (ax, ay) = (magnitude(b, x), magnitude(b, y));
    // x if |x| < |y|; NaN for infinite x, zero y and NaNs; otherwise the loop replaces it.
    let infinity = s.exponent_mask << s.mantissa_bits;
    let result = b.fresh(float);
    let zero = b.fsub(s.float, x, x);
    let invalid = b.fmul(s.float, zero, if s.float == Ty::F32 { Operand::F32(f32::NAN) } else { f64::NAN.into() });
    let done = b.new_label();
    let finite = b.setp(Cmp::Lt, s.uint, ax, infinity);
    let number = b.setp(Cmp::Le, s.uint, ay, infinity);
    let nonzero = b.setp(Cmp::Ne, s.uint, ay, 0i64);
    let valid = b.and(Ty::Pred, finite, number);
    let valid = b.and(Ty::Pred, valid, nonzero).reg();
    b.select_to(result, valid, x, invalid);
    let smaller = b.setp(Cmp::Lt, s.uint, ax, ay);
    let invalid = b.not(Ty::Pred, valid);
    let skip = b.or(Ty::Pred, invalid, smaller).reg();
    b.bra_if(skip, false, done, false);
    let (mx, ex) = split(b, s, ax);
    let (my, ey) = split(b, s, ay);
    let rest = b.fresh(class);
    b.int_to(rest, IntOp::Rem, s.uint, mx, my);
    let distance = b.fresh(RegClass::B32);
    b.int_to(distance, IntOp::Sub, Ty::S32, ex, ey);
    let chunk = i64::from(s.bits.bits() - s.mantissa_bits - 1);
    let (again, finish) = (b.new_label(), b.new_label());
    b.emit_label(again);
    let over = b.setp(Cmp::Le, Ty::S32, distance, 0i64);
    b.bra_if(over, false, finish, false);
    let step = b.min(Ty::S32, distance, chunk);
    let shifted = b.shl(s.bits, rest, step);
    b.int_to(rest, IntOp::Rem, s.uint, shifted, my);
    b.int_to(distance, IntOp::Sub, Ty::S32, distance, step);
    b.bra(again, false);
    b.emit_label(finish);
    let value = b.cvt(s.float, s.uint, CvtRound::Rn, rest);
    let exponent = b.sub(Ty::S32, ey, s.bias + i64::from(s.mantissa_bits));
    let value = scale(b, s, value, exponent);
    b.float_to(result, FloatOp::CopySign, s.float, FloatMods::NONE, &[x, value]);
    b.emit_label(done);
    result.into()
}

/// Returns the integer mantissa and the exponent field (at least 1) of a finite magnitude.
fn split(b: &mut Builder, s: &Shape, magnitude: Operand) -> (Operand, Operand) {
    let field = b.shr(s.uint, magnitude, s.mantissa_bits);
    let hidden = 1i64 << s.mantissa_bits;
    let fraction = b.and(s.bits, magnitude, hidden - 1);
    let normal = b.setp(Cmp::Ne, s.uint, field, 0i64);
    let whole = b.or(s.bits, fraction, hidden);
    let mantissa = b.select(s.bits.class(), normal, whole, fraction);
    let field = match s.uint {
        Ty::U64 => b.cvt(Ty::U32, Ty::U64, CvtRound::None, field),
        _ => field,
    };
    let exponent = b.max(Ty::U32, field, 1i64);
    (mantissa, exponent)
}

/// Returns `value · 2^exponent` in two exact steps: the result is representable, 2^exponent may not
/// be.
fn scale(b: &mut Builder, s: &Shape, value: Operand, exponent: Operand) -> Operand {
    let first = b.shr(Ty::S32, exponent, 1i64);
    let second = b.sub(Ty::S32, exponent, first);
    let mut value = value;
    for part in [first, second] {
        let field = b.add(Ty::S32, part, s.bias);
        let power = match s.uint {
            Ty::U64 => {
                let high = b.shl(Ty::B32, field, 20i64);
                let bits = b.pack(0i64, high);
                b.bitcast(bits, RegClass::F64)
            }
            _ => {
                let bits = b.shl(Ty::B32, field, 23i64);
                b.bitcast(bits, RegClass::F32)
            }
        };
        value = b.fmul(s.float, value, power);
    }
    value
}
