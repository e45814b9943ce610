//! Elementwise float ops on words of f16, bf16, f32 and f64 tiles.
//!
//! f16 and bf16 are computed in f32 and rounded once per op. For `+ - * / sqrt` this equals
//! rounding the exact result, because f32 has more than twice their precision. f32 and f64 are
//! computed in their own type.

use crate::util::collect::CollectVec as _;
use std::borrow::Cow;

use bytemuck::cast_slice;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::vec::HalfFloatVecExt;
use half::{bf16, f16};

use super::directed_rounding::Unrounded;
use crate::backend::cpu::interp::value::{Word, Words, map, zip, zip3};
use crate::dtype::DType;
use crate::ir::{CmpOrder, CmpPred, Rounding};
use crate::types::float_codec;

/// Rounding mode of an op, and its treatment of subnormal numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub rounding: Rounding,
    pub flush: bool,
}

impl Mode {
    /// Returns true if the arithmetic of the host has this rounding. `Approx` and `Full` permit any
    /// accuracy.
    fn is_nearest(self) -> bool {
        matches!(self.rounding, Rounding::NearestEven | Rounding::Approx | Rounding::Full)
    }
}

/// Returns the values of an f16, bf16 or f32 list.
pub(super) fn widen(dtype: DType, words: &Words) -> Cow<'_, [f32]> {
    match dtype {
        DType::F32 | DType::TF32 => Cow::Borrowed(cast_slice(u32::of(words))),
        DType::F16 => {
            let source: &[f16] = u16::of(words).reinterpret_cast();
            let mut out = vec![0.0; source.len()];
            source.convert_to_f32_slice(&mut out);
            Cow::Owned(out)
        }
        DType::BF16 => Cow::Owned(map(u16::of(words), |w| f32::from_bits((w as u32) << 16))),
        other => unreachable!("{other} is not computed in f32"),
    }
}

/// Rounds to nearest even.
pub(super) fn narrow(dtype: DType, values: Vec<f32>) -> Words {
    match dtype {
        DType::F32 => Words::W32(bytemuck::allocation::cast_vec(values)),
        DType::F16 => {
            let mut out = vec![f16::ZERO; values.len()];
            out.convert_from_f32_slice(&values);
            Words::W16(out.reinterpret_into())
        }
        DType::BF16 => Words::W16(map(&values, |v| bf16::from_f32(v).to_bits())),
        other => unreachable!("{other} is not computed in f32"),
    }
}

/// Returns the values of a list of any float type.
pub(crate) fn to_f64(dtype: DType, words: &Words) -> Cow<'_, [f64]> {
    match dtype {
        DType::F64 => Cow::Borrowed(cast_slice(u64::of(words))),
        DType::F32 | DType::TF32 | DType::F16 | DType::BF16 => Cow::Owned(map(&widen(dtype, words), |v| v as f64)),
        _ => Cow::Owned(map(u8::of(words), |w| float_codec::decode(dtype, w as u64))),
    }
}

/// Returns a list of the type's width from bit patterns, one per element.
pub(super) fn from_patterns(dtype: DType, patterns: impl Iterator<Item = u64>) -> Words {
    words_of(dtype, patterns.collect_vec())
}

fn words_of(dtype: DType, patterns: Vec<u64>) -> Words {
    use crate::backend::cpu::interp::value::{Width, with_width};
    with_width!(Width::of(dtype), W => W::list(map(&patterns, W::from_u64)))
}

fn double(values: Vec<f64>) -> Words {
    Words::W64(bytemuck::allocation::cast_vec(values))
}

fn flush_to_zero(values: &mut [f32]) {
    for value in values {
        if value.is_subnormal() {
            *value = 0f32.copysign(*value);
        }
    }
}

/// Returns f32 operands, with subnormal numbers flushed if the mode requires it.
fn operand(dtype: DType, words: &Words, mode: Mode) -> Cow<'_, [f32]> {
    let mut values = widen(dtype, words);
    if mode.flush {
        flush_to_zero(values.to_mut());
    }
    values
}

fn result(dtype: DType, mut values: Vec<f32>, mode: Mode) -> Words {
    if mode.flush {
        flush_to_zero(&mut values);
    }
    narrow(dtype, values)
}

/// Rounds exact results once.
fn rounded(dtype: DType, values: Vec<Unrounded>, mode: Mode) -> Words {
    let mut words = from_patterns(dtype, values.iter().map(|v| v.round(dtype, mode.rounding)));
    if mode.flush {
        flush_to_zero(bytemuck::cast_slice_mut(u32::of_mut(&mut words)));
    }
    words
}

/// Returns f64 operands, with subnormal numbers flushed if the mode requires it.
fn exact_operand(dtype: DType, words: &Words, mode: Mode) -> Cow<'_, [f64]> {
    if dtype == DType::F64 { to_f64(dtype, words) } else { Cow::Owned(map(&operand(dtype, words, mode), |v| v as f64)) }
}

/// Computes an op of one operand.
pub(crate) fn unary(
    dtype: DType,
    mode: Mode,
    x: &Words,
    single: impl Fn(f32) -> f32,
    double_: impl Fn(f64) -> f64,
) -> Words {
    match dtype {
        DType::F64 => double(map(&to_f64(dtype, x), double_)),
        _ => result(dtype, map(&operand(dtype, x, mode), single), mode),
    }
}

/// Computes an op of two operands.
pub(crate) fn binary(
    dtype: DType,
    mode: Mode,
    [x, y]: [&Words; 2],
    single: impl Fn(f32, f32) -> f32,
    double_: impl Fn(f64, f64) -> f64,
) -> Words {
    match dtype {
        DType::F64 => double(zip(&to_f64(dtype, x), &to_f64(dtype, y), double_)),
        _ => result(dtype, zip(&operand(dtype, x, mode), &operand(dtype, y, mode), single), mode),
    }
}

/// Computes a unary op with a rounding mode.
pub(crate) fn unary_rounded(
    dtype: DType,
    mode: Mode,
    x: &Words,
    single: impl Fn(f32) -> f32,
    double_: impl Fn(f64) -> f64,
    exact: impl Fn(f64) -> Unrounded,
) -> Words {
    if mode.is_nearest() {
        unary(dtype, mode, x, single, double_)
    } else {
        rounded(dtype, map(&exact_operand(dtype, x, mode), exact), mode)
    }
}

/// Computes a binary op with a rounding mode.
pub(crate) fn binary_rounded(
    dtype: DType,
    mode: Mode,
    [x, y]: [&Words; 2],
    single: impl Fn(f32, f32) -> f32,
    double_: impl Fn(f64, f64) -> f64,
    exact: impl Fn(f64, f64) -> Unrounded,
) -> Words {
    if mode.is_nearest() {
        binary(dtype, mode, [x, y], single, double_)
    } else {
        rounded(dtype, zip(&exact_operand(dtype, x, mode), &exact_operand(dtype, y, mode), exact), mode)
    }
}

/// Fused multiply-add: one rounding, in the element type.
pub(crate) fn fma(dtype: DType, mode: Mode, [x, y, z]: [&Words; 3]) -> Words {
    let nearest = mode.is_nearest();
    match dtype {
        DType::F64 if nearest => double(zip3(&to_f64(dtype, x), &to_f64(dtype, y), &to_f64(dtype, z), f64::mul_add)),
        DType::F32 if nearest => {
            let [x, y, z] = [x, y, z].map(|w| operand(dtype, w, mode));
            result(dtype, zip3(&x, &y, &z, f32::mul_add), mode)
        }
        _ => {
            let [x, y, z] = [x, y, z].map(|w| exact_operand(dtype, w, mode));
            rounded(dtype, zip3(&x, &y, &z, super::directed_rounding::fma), mode)
        }
    }
}

/// Clears or flips sign bits, also those of NaNs.
pub(crate) fn sign_bit(dtype: DType, x: &Words, flip: bool) -> Words {
    let sign = 1u64 << (dtype.bits() - 1);
    let apply = move |w: u64| if flip { w ^ sign } else { w & !sign };
    fn run<W: Word>(list: &[W], apply: impl Fn(u64) -> u64) -> Words {
        W::list(map(list, |w| W::from_u64(apply(w.to_u64()))))
    }
    crate::backend::cpu::interp::value::each_width!(x, list => run(list, apply))
}

/// The floats in which the ops compute.
pub(crate) trait Float: Copy + PartialOrd {
    const NAN: Self;

    fn is_nan(self) -> bool;

    fn is_sign_negative(self) -> bool;
}

macro_rules! floats {
    ($($name:ident)+) => {$(
        impl Float for $name {
            const NAN: $name = $name::NAN;

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_sign_negative(self) -> bool {
                self.is_sign_negative()
            }
        }
    )+};
}
floats!(f32 f64);

/// Compares; the result is 0 or 1 per element.
pub(crate) fn compare(dtype: DType, pred: CmpPred, order: CmpOrder, [x, y]: [&Words; 2]) -> Words {
    fn run<T: Float>(pred: CmpPred, unordered: bool, x: &[T], y: &[T]) -> Vec<u8> {
        let answer = |holds: fn(&T, &T) -> bool| {
            zip(x, y, |a, b| if a.is_nan() || b.is_nan() { unordered } else { holds(&a, &b) } as u8)
        };
        match pred {
            CmpPred::Eq => answer(T::eq),
            CmpPred::Ne => answer(T::ne),
            CmpPred::Lt => answer(T::lt),
            CmpPred::Le => answer(T::le),
            CmpPred::Gt => answer(T::gt),
            CmpPred::Ge => answer(T::ge),
        }
    }
    let unordered = order == CmpOrder::Unordered;
    Words::W8(match dtype {
        DType::F64 => run(pred, unordered, &to_f64(dtype, x), &to_f64(dtype, y)),
        _ => run(pred, unordered, &widen(dtype, x), &widen(dtype, y)),
    })
}

/// Returns the larger number; +0 is larger than -0. A NaN operand is the result, or is ignored.
pub(crate) fn max<T: Float>(a: T, b: T, propagate_nan: bool) -> T {
    if a.is_nan() || b.is_nan() {
        return nan_rule(a, b, propagate_nan);
    }
    if a > b || a == b && !a.is_sign_negative() { a } else { b }
}

/// Returns the smaller number; -0 is smaller than +0. A NaN operand is the result, or is ignored.
pub(crate) fn min<T: Float>(a: T, b: T, propagate_nan: bool) -> T {
    if a.is_nan() || b.is_nan() {
        return nan_rule(a, b, propagate_nan);
    }
    if a < b || a == b && a.is_sign_negative() { a } else { b }
}

fn nan_rule<T: Float>(a: T, b: T, propagate: bool) -> T {
    match (a.is_nan(), b.is_nan()) {
        (true, false) if !propagate => b,
        (false, true) if !propagate => a,
        _ => T::NAN,
    }
}

/// Computes `x` to a signed integer power, by element.
pub(crate) fn powi(dtype: DType, x: &Words, exponents: &[i64]) -> Words {
    let values = zip(&to_f64(dtype, x), exponents, |v, n| v.powi(n as i32));
    match dtype {
        DType::F64 => double(values),
        _ => narrow(dtype, map(&values, |v| v as f32)),
    }
}
