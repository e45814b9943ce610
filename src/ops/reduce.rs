//! Reductions along one or several axes. The reduced axes stay, with extent 1.
//!
//! **Order of the closure's arguments.** `reduce(axis, identity, |acc, x| …)` gets the accumulator first and
//! the element second, as `Iterator::fold` does. (The IR's body has them as pairs element, accumulator.) The
//! closure must be associative and commutative and `identity` neutral for it: elements are combined in an
//! unspecified order, the same on every run of one compiled kernel, and the identity may come in anywhere.

use super::arithmetic::sign;

use crate::element::{Element, Float, Number, Whole};
use crate::ir::table::Effect;
use crate::ir::{Attr, Flag, Literal, Opcode, Overflow, Rounding, Type, Value};
use crate::tile::{Handle, Place, Raw, Region, Scalar, Tile, here, in_region, record};

/// The axes of a reduction: one (`1`), several (`[0, 2]`) or all (`..`).
pub trait Axes {
    #[doc(hidden)]
    fn axes(self, rank: usize) -> Vec<usize>;
}

impl Axes for usize {
    fn axes(self, _rank: usize) -> Vec<usize> {
        vec![self]
    }
}
impl<const N: usize> Axes for [usize; N] {
    fn axes(self, _rank: usize) -> Vec<usize> {
        self.to_vec()
    }
}
impl Axes for std::ops::RangeFull {
    fn axes(self, rank: usize) -> Vec<usize> {
        (0..rank).collect()
    }
}

/// What combines an accumulator with an element: a recorded closure of the user, or one op.
type Combine<'a> = &'a dyn Fn(Raw, Raw) -> Raw;

/// One reduction: where, in whose words, of what.
struct Reduction<'a> {
    place: Place,
    name: &'static str,
    region: Region,
    identity: Literal,
    combine: Combine<'a>,
}

impl Reduction<'_> {
    /// Checks, reduces axis after axis (the last one first), restores the axes with extent 1.
    fn record(&self, source: Raw, axes: Vec<usize>) -> Raw {
        let dtype = self.identity.dtype;
        let shape = record(|t| t.shape(source));
        let kept: Vec<i64> = (0..shape.len()).map(|d| if axes.contains(&d) { 1 } else { shape[d] }).collect();
        let ty = Type::tile(dtype, kept.as_slice());
        let start = record(|t| {
            t.at(self.place);
            if let Some(axis) = axes.iter().find(|&&axis| axis >= shape.len()) {
                let message = format!("`{}` along axis {axis} of a tile of shape {shape:?}", self.name);
                t.report(self.place, message, &["axes are counted from 0"]);
                return None;
            }
            if let Some(axis) = axes.iter().find(|&&axis| axes.iter().filter(|&&other| other == axis).count() > 1) {
                let message = format!("`{}` along axes {axes:?} names axis {axis} more than once", self.name);
                t.report(self.place, message, &["`..` stands for all axes"]);
                return None;
            }
            let usable = t.usable(source, self.place)?;
            t.admits(self.place, Effect::Region, shape.len()).then_some(usable)
        });
        let Some(start) = start else { return record(|t| t.poison(ty)) };
        let mut order = axes;
        order.sort_unstable_by(|a, b| b.cmp(a));
        let reduced = order.into_iter().try_fold(start, |value, axis| self.along(value, axis));
        record(|t| {
            let Some(value) = reduced else { return t.poison(ty) };
            let value = match t.builder.module.shape(value) == kept {
                true => value,
                false => t.put(Opcode::Reshape, &[value], vec![], dtype, &kept),
            };
            t.raw(value)
        })
    }

    /// One `reduce` op; `None` after a problem in the body.
    fn along(&self, value: Value, axis: usize) -> Option<Value> {
        let dtype = self.identity.dtype;
        let (element, accumulator) = record(|t| {
            let scalar = t.builder.module.intern(Type::scalar(dtype));
            let args = t.open(self.region, &[scalar, scalar]);
            (t.raw(args[0]), t.raw(args[1]))
        });
        let combined = in_region(|| (self.combine)(accumulator, element));
        record(|t| {
            t.at(self.place);
            let combined = t.usable(combined, self.place);
            if let Some(combined) = combined {
                t.emit(Opcode::Yield, &[&[combined]], vec![], vec![], &[]);
            }
            let body = t.close();
            combined?;
            let mut shape = t.builder.module.shape(value).to_vec();
            shape.remove(axis);
            let ty = t.builder.module.intern(Type::tile(dtype, shape));
            let attrs = vec![Attr::Dim(axis as u32), Attr::Identities(vec![self.identity])];
            Some(t.emit(Opcode::Reduce, &[&[value]], attrs, vec![body], &[ty])[0])
        })
    }
}

/// A reduction whose body is one op.
#[track_caller]
fn reduce_by<T: Element, const R: usize>(
    name: &'static str,
    tile: Tile<T, R>,
    axes: impl Axes,
    identity: T,
    code: Opcode,
    attrs: &[Attr],
) -> Tile<T, R> {
    let place = here();
    let combine = |acc: Raw, element: Raw| {
        record(|t| {
            // In the order of the body's arguments; the ops are commutative.
            let operands = [element, acc].map(|raw| t.usable(raw, place).expect("arguments of the body"));
            let value = t.put(code, &operands, attrs.to_vec(), T::DTYPE, &[]);
            t.raw(value)
        })
    };
    let region = Region { what: "the body of a reduction", place, scalar_only: true };
    let identity = Literal { dtype: T::DTYPE, bits: identity.to_bits() };
    let reduction = Reduction { place, name, region, identity, combine: &combine };
    Tile::from_raw(reduction.record(tile.raw(), axes.axes(R)))
}

const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);
const WRAP: Attr = Attr::Overflow(Overflow::None);

/// The smallest and the largest value of a type, infinities included.
fn limits<T: Element>() -> (T, T) {
    match (T::DTYPE.is_float(), T::SIGNED) {
        (true, _) => (T::from_f64(f64::NEG_INFINITY), T::from_f64(f64::INFINITY)),
        (false, true) => {
            let least = 1u64 << (T::DTYPE.bits() - 1);
            (T::from_bits(least), T::from_bits(least - 1))
        }
        (false, false) => (T::from_bits(0), T::from_bits(u64::MAX)),
    }
}

impl<T: Number, const R: usize> Tile<T, R> {
    /// The sum along axes, accumulated in `T` itself: cast f16 and bf16 to f32 first where that matters.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn row_mean(x: Tile<f32, 2>) -> Tile<f32, 2> {
    ///     x.sum(1) / x.shape()[1] as f32 // shape [rows, 1]
    /// }
    /// ```
    #[track_caller]
    pub fn sum(self, axes: impl Axes) -> Self {
        let zero = T::from_f64(0.0);
        match T::DTYPE.is_float() {
            true => reduce_by("sum", self, axes, zero, Opcode::AddF, &[NEAREST]),
            false => reduce_by("sum", self, axes, zero, Opcode::AddI, &[WRAP]),
        }
    }

    /// The product along axes, accumulated in `T` itself.
    #[track_caller]
    pub fn prod(self, axes: impl Axes) -> Self {
        let one = T::from_f64(1.0);
        match T::DTYPE.is_float() {
            true => reduce_by("prod", self, axes, one, Opcode::MulF, &[NEAREST]),
            false => reduce_by("prod", self, axes, one, Opcode::MulI, &[WRAP]),
        }
    }

    /// The largest element along axes. A NaN is ignored; where there are only NaNs the result is -∞ or NaN.
    /// (`a.max(b)` is the larger of two tiles' elements.)
    #[track_caller]
    pub fn reduce_max(self, axes: impl Axes) -> Self {
        let least = limits::<T>().0;
        match T::DTYPE.is_float() {
            true => reduce_by("reduce_max", self, axes, least, Opcode::MaxF, &[]),
            false => reduce_by("reduce_max", self, axes, least, Opcode::MaxI, &[Attr::Sign(sign::<T>())]),
        }
    }

    /// The smallest element along axes. A NaN is ignored; where there are only NaNs the result is +∞ or NaN.
    /// (`a.min(b)` is the smaller of two tiles' elements.)
    #[track_caller]
    pub fn reduce_min(self, axes: impl Axes) -> Self {
        let largest = limits::<T>().1;
        match T::DTYPE.is_float() {
            true => reduce_by("reduce_min", self, axes, largest, Opcode::MinF, &[]),
            false => reduce_by("reduce_min", self, axes, largest, Opcode::MinI, &[Attr::Sign(sign::<T>())]),
        }
    }
}

impl<T: Float, const R: usize> Tile<T, R> {
    /// The largest element along axes; NaN where there is one.
    #[track_caller]
    pub fn reduce_max_nan(self, axes: impl Axes) -> Self {
        let attrs = [Attr::Flag(Flag::PropagateNan)];
        reduce_by("reduce_max_nan", self, axes, limits::<T>().0, Opcode::MaxF, &attrs)
    }

    /// The smallest element along axes; NaN where there is one.
    #[track_caller]
    pub fn reduce_min_nan(self, axes: impl Axes) -> Self {
        let attrs = [Attr::Flag(Flag::PropagateNan)];
        reduce_by("reduce_min_nan", self, axes, limits::<T>().1, Opcode::MinF, &attrs)
    }
}

impl<const R: usize> Tile<bool, R> {
    /// Is any element along the axes true?
    #[track_caller]
    pub fn any(self, axes: impl Axes) -> Self {
        reduce_by("any", self, axes, false, Opcode::OrI, &[])
    }

    /// Are all elements along the axes true?
    #[track_caller]
    pub fn all(self, axes: impl Axes) -> Self {
        reduce_by("all", self, axes, true, Opcode::AndI, &[])
    }
}

impl<T: Whole, const R: usize> Tile<T, R> {
    /// Combines the elements along axes with a function of accumulator and element.
    ///
    /// `combine` is traced once; it must be associative and commutative, and `identity` neutral for it. It takes
    /// only elementwise operations on scalars (also on scalars from outside).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn bits_in_any(x: Tile<u32, 2>) -> Tile<u32, 2> {
    ///     x.reduce(1, 0, |acc, x| acc | x)
    /// }
    /// ```
    #[track_caller]
    pub fn reduce(self, axes: impl Axes, identity: T, combine: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Self {
        let place = here();
        let untyped = |acc: Raw, x: Raw| combine(Scalar::from_raw(acc), Scalar::from_raw(x)).raw();
        let region = Region { what: "the closure of `reduce`", place, scalar_only: true };
        let identity = Literal { dtype: T::DTYPE, bits: identity.to_bits() };
        let reduction = Reduction { place, name: "reduce", region, identity, combine: &untyped };
        Tile::from_raw(reduction.record(self.raw(), axes.axes(R)))
    }
}
