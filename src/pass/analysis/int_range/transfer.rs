//! What an integer op makes of what is known about its operands.

use super::lattice::{Known, corners, two_power};
use crate::dtype::DType;
use crate::ir::{CmpPred, ConstData, Op, Opcode, Overflow, Rounding, Sign};

/// The signed reading of an integer's low bits.
pub(super) fn signed(bits: u64, width: u32) -> i64 {
    ((bits << (64 - width)) as i64) >> (64 - width)
}

/// Facts about the elements of a constant.
pub(super) fn constant(data: &ConstData, width: u32) -> Known {
    match data {
        ConstData::Splat(bits) => Known::exactly(signed(*bits, width), width),
        ConstData::Dense(all) => {
            let each = all.iter().map(|&bits| Known::exactly(signed(bits, width), width));
            each.reduce(Known::join).unwrap_or_else(|| Known::any(width))
        }
    }
}

/// One operand. `None` for ops that this has no rule for.
pub(super) fn unary(op: &Op, a: Known, to: DType) -> Option<Known> {
    let bits = to.bits();
    let promise = matches!(op.overflow(), Overflow::Nsw | Overflow::Nw);
    Some(match op.code {
        Opcode::NegI => Known::exactly(0, bits).sub(a, promise),
        Opcode::AbsI => {
            let (lo, hi) = a.wide();
            let least = if lo > 0 { lo } else { (-hi).max(0) };
            Known::wrapped(least, hi.abs().max(lo.abs()), a.div, bits)
        }
        Opcode::ExtI if op.sign() == Sign::Signed => Known::wrapped(a.lo.into(), a.hi.into(), a.div, bits),
        Opcode::ExtI => {
            let (lo, hi) = a.unsigned();
            Known::wrapped(lo, hi, a.div, bits)
        }
        Opcode::TruncI => {
            let (lo, hi) = a.wide();
            if promise { Known::promised(lo, hi, a.div, bits) } else { Known::wrapped(lo, hi, a.div, bits) }
        }
        Opcode::Bitcast | Opcode::IntToPtr | Opcode::PtrToInt | Opcode::PtrToPtr if a.bits == bits => a,
        _ => return None,
    })
}

/// Two operands of one type.
pub(super) fn binary(op: &Op, a: Known, b: Known) -> Option<Known> {
    let bits = a.bits;
    let promise = matches!(op.overflow(), Overflow::Nsw | Overflow::Nw);
    let both_nonnegative = a.is_nonnegative() && b.is_nonnegative();
    let plain = op.sign() == Sign::Signed || both_nonnegative;
    let div = a.div.min(b.div);
    Some(match op.code {
        Opcode::AddI => a.add(b, promise),
        Opcode::SubI => a.sub(b, promise),
        Opcode::MulI => a.mul(b, promise),
        Opcode::MaxI if plain => Known::wrapped(a.lo.max(b.lo).into(), a.hi.max(b.hi).into(), div, bits),
        Opcode::MinI if plain => Known::wrapped(a.lo.min(b.lo).into(), a.hi.min(b.hi).into(), div, bits),
        Opcode::MaxI | Opcode::MinI => a.join(b),
        Opcode::AndI => and(a, b),
        Opcode::OrI | Opcode::XorI if both_nonnegative => {
            let least = if op.code == Opcode::OrI { a.lo.max(b.lo) } else { 0 };
            let top = (a.hi | b.hi) as u64;
            Known::wrapped(least.into(), i128::from(u64::MAX >> top.leading_zeros().min(63)), div, bits)
        }
        Opcode::OrI | Opcode::XorI => Known::divisible(div, bits),
        Opcode::ShlI => shift_left(a, b, promise),
        Opcode::ShrI => shift_right(op.sign(), a, b),
        Opcode::DivI => divide(op, a, b),
        Opcode::RemI => remainder(op.sign(), a, b),
        Opcode::MulHiI if both_nonnegative => {
            let ((al, ah), (bl, bh)) = (a.wide(), b.wide());
            Known::wrapped((al * bl) >> bits, (ah * bh) >> bits, 1, bits)
        }
        Opcode::CmpI => compare(op, a, b),
        _ => return None,
    })
}

fn and(a: Known, b: Known) -> Known {
    // Zeros at the low end of either stay.
    let div = a.div.max(b.div);
    let tops = [a, b].into_iter().filter(|k| k.is_nonnegative()).map(|k| k.hi);
    match tops.min() {
        Some(hi) => Known::wrapped(0, hi.into(), div, a.bits),
        None => Known::divisible(div, a.bits),
    }
}

fn shift_left(a: Known, amount: Known, promise: bool) -> Known {
    let width = i64::from(a.bits);
    if amount.lo < 0 || amount.lo >= width {
        // Read as unsigned, and by the width or more everything is shifted out.
        let all_out = amount.lo >= width || amount.hi < 0;
        return if all_out { Known::exactly(0, a.bits) } else { Known::divisible(a.div, a.bits) };
    }
    let div = a.div.saturating_mul(1 << amount.lo.min(62)).min(super::lattice::MAX_DIVISOR);
    if amount.hi >= width {
        return Known::divisible(div, a.bits);
    }
    let amounts = (i128::from(amount.lo), i128::from(amount.hi));
    let (lo, hi) = corners(a.wide(), amounts, |x, s| x << s.min(63));
    a.ranged(lo, hi, div, promise)
}

fn shift_right(sign: Sign, a: Known, amount: Known) -> Known {
    let width = i64::from(a.bits);
    let exact = amount.constant().filter(|s| (0..width).contains(s));
    let div = exact.map_or(1, |s| (a.div >> s).max(1));
    // Zero has all divisors.
    let div = if a.constant() == Some(0) { a.div } else { div };
    let (least, most) = match exact {
        Some(s) => (s, s),
        None if (0..width).contains(&amount.lo) => (amount.lo, amount.hi.min(width)),
        None => (0, width),
    };
    if sign == Sign::Signed || a.is_nonnegative() {
        // Shifting by the width leaves the sign, as shifting by all but one does.
        let amounts = (i128::from(least), i128::from(most));
        let (lo, hi) = corners(a.wide(), amounts, |x, s| x >> s);
        return Known::wrapped(lo, hi, div, a.bits);
    }
    let (_, hi) = a.unsigned();
    if least == 0 { Known::divisible(div, a.bits) } else { Known::wrapped(0, hi >> least, div, a.bits) }
}

fn divide(op: &Op, a: Known, b: Known) -> Known {
    let plain = op.sign() == Sign::Signed || (a.is_nonnegative() && b.is_nonnegative());
    if b.lo < 1 || !plain {
        return Known::any(a.bits);
    }
    let quotient = |x: i128, y: i128| match op.rounding() {
        Rounding::NegInf => x.div_euclid(y),
        Rounding::PosInf => -((-x).div_euclid(y)),
        _ => x / y,
    };
    let (lo, hi) = corners(a.wide(), b.wide(), quotient);
    // Exact division by a power of two.
    let div = match b.constant() {
        Some(y) if (y as u64).is_power_of_two() && a.div >= y as u64 => a.div / y as u64,
        _ => 1,
    };
    Known::wrapped(lo, hi, div, a.bits)
}

fn remainder(sign: Sign, a: Known, b: Known) -> Known {
    if b.lo < 1 {
        return Known::any(a.bits);
    }
    let (div, most) = (a.div.min(b.div), i128::from(b.hi) - 1);
    let ((lo, hi), divisor) = (a.wide(), i128::from(b.lo));
    if sign == Sign::Unsigned && !a.is_nonnegative() {
        return Known::wrapped(0, most, div, a.bits);
    }
    if lo >= 0 && hi < divisor {
        return a;
    }
    let least = if lo >= 0 { 0 } else { (-most).max(lo) };
    let most = if hi < 0 { 0 } else { most.min(hi) };
    Known::wrapped(least, most, div, a.bits)
}

/// A comparison that the ranges decide; true is -1 as a signed i1.
fn compare(op: &Op, a: Known, b: Known) -> Known {
    let ((al, ah), (bl, bh)) = match op.sign() {
        Sign::Signed => (a.wide(), b.wide()),
        Sign::Unsigned => (a.unsigned(), b.unsigned()),
    };
    // A sum of different lowest bits shows two numbers different.
    let (offset_a, offset_b) = (a.constant().map(|v| two_power(v.into())), b.constant().map(|v| two_power(v.into())));
    let odd_one = |known: Known, power: Option<u64>| power.is_some_and(|p| p < known.div);
    let differ = ah < bl || bh < al || odd_one(a, offset_b) || odd_one(b, offset_a);
    let equal = al == ah && bl == bh && al == bl;
    let less = if ah < bl { Some(true) } else { (al >= bh).then_some(false) };
    let less_equal = if ah <= bl { Some(true) } else { (al > bh).then_some(false) };
    let decided = match op.cmp_pred() {
        CmpPred::Eq => {
            if equal {
                Some(true)
            } else {
                differ.then_some(false)
            }
        }
        CmpPred::Ne => {
            if differ {
                Some(true)
            } else {
                equal.then_some(false)
            }
        }
        CmpPred::Lt => less,
        CmpPred::Le => less_equal,
        CmpPred::Gt => less_equal.map(|v| !v),
        CmpPred::Ge => less.map(|v| !v),
    };
    match decided {
        Some(answer) => Known::exactly(-i64::from(answer), 1),
        None => Known::any(1),
    }
}
