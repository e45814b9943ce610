//! Transfer functions: the state of the result of an integer op from the states of its operands.

use super::lattice::{RangeState, corners, two_power};
use crate::dtype::DType;
use crate::ir::{CmpPred, ConstData, Op, Opcode, Overflow, Rounding, Sign};

/// Returns the signed interpretation of the low bits of an integer.
pub(super) fn signed(bits: u64, width: u32) -> i64 {
    ((bits << (64 - width)) as i64) >> (64 - width)
}

/// Returns the state of the elements of a constant.
pub(super) fn constant(data: &ConstData, width: u32) -> RangeState {
    match data {
        ConstData::Splat(bits) => RangeState::constant_state(signed(*bits, width), width),
        ConstData::Dense(all) => {
            let each = all.iter().map(|&bits| RangeState::constant_state(signed(bits, width), width));
            each.reduce(RangeState::join).unwrap_or_else(|| RangeState::any(width))
        }
    }
}

/// Returns the state of an op with one operand, `None` for ops without a rule.
pub(super) fn unary(op: &Op, a: RangeState, to: DType) -> Option<RangeState> {
    let bits = to.bits();
    let no_overflow = matches!(op.overflow(), Overflow::Nsw | Overflow::Nw);
    Some(match op.code {
        Opcode::NegI => RangeState::constant_state(0, bits).sub(a, no_overflow),
        Opcode::AbsI => {
            let (lo, hi) = a.wide();
            let least = if lo > 0 { lo } else { (-hi).max(0) };
            RangeState::wrapped(least, hi.abs().max(lo.abs()), a.div, bits)
        }
        Opcode::ExtI if op.sign() == Sign::Signed => RangeState::wrapped(a.lo.into(), a.hi.into(), a.div, bits),
        Opcode::ExtI => {
            let (lo, hi) = a.unsigned();
            RangeState::wrapped(lo, hi, a.div, bits)
        }
        Opcode::TruncI => {
            let (lo, hi) = a.wide();
            if no_overflow {
                RangeState::without_overflow(lo, hi, a.div, bits)
            } else {
                RangeState::wrapped(lo, hi, a.div, bits)
            }
        }
        Opcode::Bitcast | Opcode::IntToPtr | Opcode::PtrToInt | Opcode::PtrToPtr if a.bits == bits => a,
        _ => return None,
    })
}

/// Returns the state of an op with two operands of one type, `None` for ops without a rule.
pub(super) fn binary(op: &Op, a: RangeState, b: RangeState) -> Option<RangeState> {
    let bits = a.bits;
    let no_overflow = matches!(op.overflow(), Overflow::Nsw | Overflow::Nw);
    let both_nonnegative = a.is_nonnegative() && b.is_nonnegative();
    let plain = op.sign() == Sign::Signed || both_nonnegative;
    let div = a.div.min(b.div);
    Some(match op.code {
        Opcode::AddI => a.add(b, no_overflow),
        Opcode::SubI => a.sub(b, no_overflow),
        Opcode::MulI => a.mul(b, no_overflow),
        Opcode::MaxI if plain => RangeState::wrapped(a.lo.max(b.lo).into(), a.hi.max(b.hi).into(), div, bits),
        Opcode::MinI if plain => RangeState::wrapped(a.lo.min(b.lo).into(), a.hi.min(b.hi).into(), div, bits),
        Opcode::MaxI | Opcode::MinI => a.join(b),
        Opcode::AndI => and(a, b),
        Opcode::OrI | Opcode::XorI if both_nonnegative => {
            let least = if op.code == Opcode::OrI { a.lo.max(b.lo) } else { 0 };
            let top = (a.hi | b.hi) as u64;
            RangeState::wrapped(least.into(), i128::from(u64::MAX >> top.leading_zeros().min(63)), div, bits)
        }
        Opcode::OrI | Opcode::XorI => RangeState::divisible(div, bits),
        Opcode::ShlI => shift_left(a, b, no_overflow),
        Opcode::ShrI => shift_right(op.sign(), a, b),
        Opcode::DivI => divide(op, a, b),
        Opcode::RemI => remainder(op.sign(), a, b),
        Opcode::MulHiI if both_nonnegative => {
            let ((al, ah), (bl, bh)) = (a.wide(), b.wide());
            RangeState::wrapped((al * bl) >> bits, (ah * bh) >> bits, 1, bits)
        }
        Opcode::CmpI => compare(op, a, b),
        _ => return None,
    })
}

fn and(a: RangeState, b: RangeState) -> RangeState {
    // Trailing zeros of either operand remain.
    let div = a.div.max(b.div);
    let tops = [a, b].into_iter().filter(|k| k.is_nonnegative()).map(|k| k.hi);
    match tops.min() {
        Some(hi) => RangeState::wrapped(0, hi.into(), div, a.bits),
        None => RangeState::divisible(div, a.bits),
    }
}

fn shift_left(a: RangeState, amount: RangeState, no_overflow: bool) -> RangeState {
    let width = i64::from(a.bits);
    if amount.lo < 0 || amount.lo >= width {
        // The amount is unsigned. A shift by at least the width returns 0.
        let all_out = amount.lo >= width || amount.hi < 0;
        return if all_out { RangeState::constant_state(0, a.bits) } else { RangeState::divisible(a.div, a.bits) };
    }
    let div = a.div.saturating_mul(1 << amount.lo.min(62)).min(super::lattice::MAX_DIVISOR);
    if amount.hi >= width {
        return RangeState::divisible(div, a.bits);
    }
    let amounts = (i128::from(amount.lo), i128::from(amount.hi));
    let (lo, hi) = corners(a.wide(), amounts, |x, s| x << s.min(63));
    a.ranged(lo, hi, div, no_overflow)
}

fn shift_right(sign: Sign, a: RangeState, amount: RangeState) -> RangeState {
    let width = i64::from(a.bits);
    let exact = amount.constant().filter(|s| (0..width).contains(s));
    let div = exact.map_or(1, |s| (a.div >> s).max(1));
    // 0 is a multiple of all divisors.
    let div = if a.constant() == Some(0) { a.div } else { div };
    let (least, most) = match exact {
        Some(s) => (s, s),
        None if (0..width).contains(&amount.lo) => (amount.lo, amount.hi.min(width)),
        None => (0, width),
    };
    if sign == Sign::Signed || a.is_nonnegative() {
        // A shift by the width returns the sign bit, like a shift by the width minus 1.
        let amounts = (i128::from(least), i128::from(most));
        let (lo, hi) = corners(a.wide(), amounts, |x, s| x >> s);
        return RangeState::wrapped(lo, hi, div, a.bits);
    }
    let (_, hi) = a.unsigned();
    if least == 0 { RangeState::divisible(div, a.bits) } else { RangeState::wrapped(0, hi >> least, div, a.bits) }
}

fn divide(op: &Op, a: RangeState, b: RangeState) -> RangeState {
    let plain = op.sign() == Sign::Signed || (a.is_nonnegative() && b.is_nonnegative());
    if b.lo < 1 || !plain {
        return RangeState::any(a.bits);
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
    RangeState::wrapped(lo, hi, div, a.bits)
}

fn remainder(sign: Sign, a: RangeState, b: RangeState) -> RangeState {
    if b.lo < 1 {
        return RangeState::any(a.bits);
    }
    let (div, most) = (a.div.min(b.div), i128::from(b.hi) - 1);
    let ((lo, hi), divisor) = (a.wide(), i128::from(b.lo));
    if sign == Sign::Unsigned && !a.is_nonnegative() {
        return RangeState::wrapped(0, most, div, a.bits);
    }
    if lo >= 0 && hi < divisor {
        return a;
    }
    let least = if lo >= 0 { 0 } else { (-most).max(lo) };
    let most = if hi < 0 { 0 } else { most.min(hi) };
    RangeState::wrapped(least, most, div, a.bits)
}

/// Returns the result of a comparison if the ranges decide it. True is -1 as a signed i1.
fn compare(op: &Op, a: RangeState, b: RangeState) -> RangeState {
    let ((al, ah), (bl, bh)) = match op.sign() {
        Sign::Signed => (a.wide(), b.wide()),
        Sign::Unsigned => (a.unsigned(), b.unsigned()),
    };
    // Two numbers differ if one is a constant with fewer trailing zeros than the divisor of the
    // other one.
    let (offset_a, offset_b) = (a.constant().map(|v| two_power(v.into())), b.constant().map(|v| two_power(v.into())));
    let odd_one = |state: RangeState, power: Option<u64>| power.is_some_and(|p| p < state.div);
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
        Some(answer) => RangeState::constant_state(-i64::from(answer), 1),
        None => RangeState::any(1),
    }
}
