//! Stochastic rounding of f32 to shorter types: a number between two neighbours of the type becomes
//! the farther one from zero with the probability of its relative distance to the other one.
//!
//! The rounding works on the bits of f32, with integer ops alone, so that results are equal on all
//! back ends and targets.

use crate::dtype::DType;
use crate::element::{AnyFloat, CastTo, bf16, f8e4m3fn, f8e5m2, f16, tf32};
use crate::ir::{Attr, CmpPred, Opcode, Rounding, Value};
use crate::ops::support::expr_builder::ExprBuilder;
use crate::ops::support::operand::{elementwise, value};
use crate::tile::{Tile, Trace, caller_location, with_location};
use crate::types::packed_formats::{Narrow, NarrowFormat};

/// Mantissa bits of f32.
const MANTISSA: i64 = 23;
/// Exponent bias of f32.
const BIAS: i64 = 127;
/// Bits of infinity.
const INFINITY: u64 = 0x7f80_0000;

/// Numbers that a value is rounded to.
#[derive(Clone, Copy, Debug)]
enum Grid {
    /// Floats with these mantissa bits, and the exponent of the smallest normal number.
    Float { mantissa: i64, least: i64 },
    /// Whole numbers.
    Integer,
}

impl Grid {
    fn of<U: StochasticFloat>() -> Grid {
        Grid::Float { mantissa: U::MANTISSA, least: U::MIN_EXPONENT }
    }
}

/// Element types that [`Tile::cast_stochastic`] rounds to: f16, bf16, tf32, f8e4m3fn, f8e5m2.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn rounded<U: ct::random::StochasticFloat>(x: Tile<f32, 1>, bits: Tile<u32, 1>) -> Tile<U, 1>
/// where
///     f32: ct::element::CastTo<U>,
/// {
///     x.cast_stochastic::<U>(bits)
/// }
/// ct::assert!(rounded::<bf16>(ct::astile([1.5, 2.0]), ct::full([2], u32::MAX)).cast::<f32>().eq(ct::astile([1.5, 2.0])));
/// # });
/// ```
pub trait StochasticFloat: AnyFloat {
    /// Mantissa bits.
    #[doc(hidden)]
    const MANTISSA: i64;
    /// Exponent of the smallest normal number.
    #[doc(hidden)]
    const MIN_EXPONENT: i64;
}

macro_rules! floats {
    ($($name:ident $mantissa:literal $least:literal;)+) => {$(
        impl StochasticFloat for $name {
            const MANTISSA: i64 = $mantissa;
            const MIN_EXPONENT: i64 = $least;
        }
    )+};
}
floats! {
    f16 10 -14;
    bf16 7 -126;
    tf32 10 -126;
    f8e4m3fn 3 -6;
    f8e5m2 2 -14;
}

impl<const R: usize> Tile<f32, R> {
    /// Converts to a shorter float type with stochastic rounding.
    ///
    /// A number x between two neighbours a and b of the type, with |a| < |b|, becomes b with the
    /// probability (x - a) / (b - a), else a. `bits` has 32 random bits for each element, for
    /// example those of [`Philox::bits`](crate::random::Philox::bits). The mean of many results is
    /// hence x.
    ///
    /// The result is defined exactly and is the same on all back ends and targets:
    ///
    /// * With f the whole part of 2³² (x - a) / (b - a), the result is b if f + `bits` is at least
    ///   2³², else a. Numbers of the type are unchanged.
    /// * Subnormal numbers of the type are such neighbours, too.
    /// * A result beyond the largest number of the type becomes that of [`cast`](Tile::cast).
    ///   Infinities and NaNs become those of `cast`.
    ///
    /// For stores, the converted tile is stored. NVIDIA's `cvt.rs` of sm_100 has fewer random bits
    /// and other results.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<bf16, 1>) {
    ///     let bits = ct::random::Philox::new(42, 0).bits(ct::bid(0), [1024]);
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [1024]).cast_stochastic::<bf16>(bits));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// // 1 + 2^-10: an eighth of the way from 1 to the next bf16.
    /// let (x, mut y) = (device.full([4096], 1.0009765625f32)?, device.zeros([4096])?);
    /// ct::launch(kernel, 4, (&x, &mut y))?;
    /// let mean = y.to_vec()?.iter().map(|x| x.to_f64()).sum::<f64>() / 4096.0;
    /// assert!((mean - 1.0009765625).abs() < 2e-4, "{mean}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_stochastic<U: StochasticFloat>(self, bits: Tile<u32, R>) -> Tile<U, R>
    where
        f32: CastTo<U>,
    {
        let place = caller_location();
        with_location(place, || self.rounded_to(Grid::of::<U>(), "cast_stochastic", bits).cast::<U>())
    }

    /// Rounds to a narrow type as [`cast_stochastic`](Tile::cast_stochastic), for packed arrays.
    ///
    /// Larger numbers become the largest number, and NaN becomes that of
    /// [`cast_narrow`](Tile::cast_narrow).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// use cutlet::packed::i4;
    /// let x = ct::astile([2.25f32, 2.25, -2.25, 100.0]);
    /// let bits = ct::astile([0xc000_0000u32, 0xbfff_ffff, u32::MAX, 0]);
    /// let y = x.cast_narrow_stochastic::<i4>(bits).cast::<i32>();
    /// ct::assert!(y.eq(ct::astile([3, 2, -3, 7])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_narrow_stochastic<F: Narrow>(self, bits: Tile<u32, R>) -> crate::packed::NarrowTile<F, R> {
        let place = caller_location();
        let grid = match F::FORMAT {
            NarrowFormat::Int(_) | NarrowFormat::UInt(_) => Grid::Integer,
            NarrowFormat::Float { exponent, mantissa } => {
                Grid::Float { mantissa: mantissa.into(), least: 2 - (1 << (exponent - 1)) }
            }
            NarrowFormat::Element(DType::F8E5M2) => Grid::of::<f8e5m2>(),
            NarrowFormat::Element(_) => Grid::of::<f8e4m3fn>(),
        };
        with_location(place, || self.rounded_to(grid, "cast_narrow_stochastic", bits).cast_narrow::<F>())
    }

    /// Returns the numbers of a grid that the elements are rounded to, as f32.
    fn rounded_to(self, grid: Grid, name: &str, bits: Tile<u32, R>) -> Tile<f32, R> {
        elementwise(caller_location(), name, &[value(self), value(bits)], |t, v, shape| match grid {
            Grid::Float { mantissa, least } => {
                let word = t.put(Opcode::Bitcast, &[v[0]], vec![], DType::I32, shape);
                let rounded =
                    to_floats(&mut ExprBuilder::new(t, DType::I32, false, shape), word, v[1], mantissa, least);
                t.put(Opcode::Bitcast, &[rounded], vec![], DType::F32, shape)
            }
            Grid::Integer => to_integers(t, v[0], v[1], shape),
        })
    }
}

/// Rounds the bits of f32 to floats of fewer bits.
fn to_floats(c: &mut ExprBuilder<'_>, word: Value, random: Value, mantissa: i64, least: i64) -> Value {
    let constants = [0x7fff_ffff, 0x8000_0000, INFINITY].map(|bits| c.bits(bits));
    let [all_but_sign, sign_bit, infinity] = constants;
    let (magnitude, sign) = (c.and(word, all_but_sign), c.and(word, sign_bit));
    let dropped = MANTISSA - mantissa;
    // Exponent field at which one more bit is dropped than of normal results.
    let last = least + BIAS - 1;
    let (fraction, down, step) = match last {
        ..=0 => {
            // The subnormal numbers are those of f32, which have the same spacing in their fields.
            let up = c.bits((32 - dropped) as u64);
            let (kept, step) = (c.bits(!((1u64 << dropped) - 1)), c.bits(1 << dropped));
            (c.shl(magnitude, up), c.and(magnitude, kept), step)
        }
        _ => in_parts(c, magnitude, dropped, last),
    };
    let sum = c.addi(fraction, random);
    let carries = c.is(CmpPred::Lt, sum, fraction);
    let up = c.addi(down, step);
    let rounded = c.select(carries, up, down);
    let is_number = c.is(CmpPred::Lt, magnitude, infinity);
    let rounded = c.select(is_number, rounded, magnitude);
    c.or(rounded, sign)
}

/// For a magnitude, returns the dropped fraction of 2³², the bits of the number below, and their
/// distance from those of the number above. Below the exponent field `last`, each step drops one
/// more bit than `dropped`.
fn in_parts(c: &mut ExprBuilder<'_>, magnitude: Value, dropped: i64, last: i64) -> (Value, Value, Value) {
    let numbers = [0, 1, MANTISSA, 31, 32, dropped, last + dropped + 1, last + 1].map(|n| c.bits(n as u64));
    let [zero, one, mantissa, most, word, dropped, sum, normal] = numbers;
    let exponent = c.shr(magnitude, mantissa);
    let is_normal = c.is(CmpPred::Ge, exponent, normal);
    let of_subnormal = c.subi(sum, exponent);
    let count = c.select(is_normal, dropped, of_subnormal);
    // Bits below the leading one are dropped: a carry increments the exponent field.
    let is_less = c.is(CmpPred::Gt, count, mantissa);
    let within = c.select(is_less, mantissa, count);
    let up = c.subi(word, within);
    let fraction = c.shl(magnitude, up);
    let kept = c.shr(magnitude, within);
    let kept = c.shl(kept, within);
    let step = c.shl(one, within);
    // The number is less than the smallest one: its leading one is dropped, too.
    let (field, leading) = (c.bits((1 << MANTISSA) - 1), c.bits(1 << MANTISSA));
    let significand = c.and(magnitude, field);
    let significand = c.or(significand, leading);
    let is_far = c.is(CmpPred::Gt, count, word);
    let (left, right) = (c.subi(word, count), c.subi(count, word));
    let left = c.select(is_far, zero, left);
    let right = c.select(is_far, right, zero);
    let is_beyond = c.is(CmpPred::Gt, right, most);
    let right = c.select(is_beyond, most, right);
    let small = c.shl(significand, left);
    let small = c.shr(small, right);
    // The smallest number is 2 to the power of that exponent, at which all bits but one are
    // dropped.
    let smallest = c.subi(sum, mantissa);
    let smallest = c.shl(smallest, mantissa);
    let fraction = c.select(is_less, small, fraction);
    let kept = c.select(is_less, zero, kept);
    let step = c.select(is_less, smallest, step);
    (fraction, kept, step)
}

/// Rounds f32 to whole numbers.
fn to_integers(t: &mut Trace, x: Value, random: Value, shape: &[i64]) -> Value {
    let mut c = ExprBuilder::new(t, DType::F32, true, shape);
    let size = c.abs(x);
    let below = c.floor(size);
    // Exact: at most 24 bits. The difference is NaN for infinities and NaNs.
    let part = c.sub(size, below);
    let scale = c.number(4294967296.0);
    let part = c.mul(part, scale);
    let attrs = vec![Attr::Sign(crate::ir::Sign::Unsigned), Attr::Rounding(Rounding::IntToZero)];
    let fraction = t.put(Opcode::FToI, &[part], attrs, DType::I32, shape);
    let mut words = ExprBuilder::new(t, DType::I32, false, shape);
    let sum = words.addi(fraction, random);
    let carries = words.is(CmpPred::Lt, sum, fraction);
    let mut c = ExprBuilder::new(t, DType::F32, true, shape);
    let one = c.number(1.0);
    let above = c.add(below, one);
    let rounded = c.select(carries, above, below);
    c.with_sign_of(rounded, x)
}
