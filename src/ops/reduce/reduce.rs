//! Reductions along one or several axes. The reduced axes remain, with extent 1.
//!
//! **Order.** `reduce(axis, identity, |acc, x| …)` passes the accumulator first and the element
//! second, like `Iterator::fold`. The body in the IR has pairs of element and accumulator instead.
//!
//! The closure must be associative and need not be commutative. Adjacent ranges of elements are
//! combined, with the earlier range on the left. The order along several axes is row-major.
//! `identity` must be neutral; it may be combined at any position, or never. The grouping of the
//! elements is unspecified, but equal in every execution of one compiled kernel.

use super::combiner::{ByOp, Fold};
use crate::element::{Bits, ByteSized, Element, Float, Int, Number};
use crate::ir::{Attr, Flag, Opcode, Overflow, Rounding};
use crate::ops::elementwise::arithmetic::sign;
use crate::ops::support::axis::Axis;
use crate::ops::support::float_mode::FloatMode;
use crate::ops::support::tile_set::TileSet;
use crate::sealed::Sealed;
use crate::tile::{Handle, Region, Scalar, Tile, ValueHandle, caller_location};
use crate::util::collect::CollectVec as _;

/// The axes of a reduction: one (`1`, `-1` for the last one), several (`[0, 2]`) or all (`..`).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let x = ct::astile([[[1, 2], [3, 4]]]);
/// ct::assert!(x.sum(2).eq(ct::astile([[[3], [7]]])) & x.sum(-1).eq(x.sum(2)));
/// ct::assert!(x.sum([0, 1]).eq(ct::astile([[[4, 6]]])) & x.sum(..).eq(10));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no axes",
    note = "one axis (`1`, `-1` for the last one), several (`[0, 2]`) or all (`..`)"
)]
pub trait Axes: Sealed {
    #[doc(hidden)]
    fn axes(self, rank: usize) -> Vec<usize>;
}

macro_rules! host_axes {
    ($($host:ty)+) => {$(
        impl Axes for $host {
            fn axes(self, rank: usize) -> Vec<usize> {
                vec![self.axis(rank)]
            }
        }
        impl<const N: usize> Axes for [$host; N] {
            fn axes(self, rank: usize) -> Vec<usize> {
                self.iter().map(|axis| axis.axis(rank)).collect_vec()
            }
        }
    )+};
}
host_axes!(usize i32 isize);
impl Axes for std::ops::RangeFull {
    fn axes(self, rank: usize) -> Vec<usize> {
        (0..rank).collect_vec()
    }
}

/// A reduction with a body of one op.
#[track_caller]
fn reduce_by<T: Element, const R: usize>(
    name: &'static str,
    tile: Tile<T, R>,
    axes: impl Axes,
    identity: T,
    code: Opcode,
    attrs: &[Attr],
) -> Tile<T, R> {
    let by = ByOp { name, code, attrs, identity };
    Tile::from_raw(by.fold("the body of a reduction", |fold| fold.reduce(&[tile.raw()], axes.axes(R))[0]))
}

const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);
const WRAP: Attr = Attr::Overflow(Overflow::None);

/// The smallest and the largest value of a type, including infinities.
pub(super) fn limits<T: Element>() -> (T, T) {
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
    /// The sum along axes, accumulated in `T`. [`sum_as`](Tile::sum_as) accumulates f16 and bf16 in
    /// f32.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn row_mean(x: Tile<f32, 2>) -> Tile<f32, 2> {
    ///     x.sum(1) / x.shape()[1] as f32 // shape [rows, 1]
    /// }
    ///
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
    /// ct::assert!(row_mean(ct::astile([[1.0, 2.0], [3.0, 5.0]])).eq(ct::astile([[1.5], [4.0]])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sum(self, axes: impl Axes) -> Self {
        let zero = T::from_f64(0.0);
        match T::DTYPE.is_float() {
            true => reduce_by("sum", self, axes, zero, Opcode::AddF, &[NEAREST]),
            false => reduce_by("sum", self, axes, zero, Opcode::AddI, &[WRAP]),
        }
    }

    /// The product along axes, accumulated in `T`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1, 2], [3, 4]]).prod(1).eq(ct::astile([[2], [12]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn prod(self, axes: impl Axes) -> Self {
        let one = T::from_f64(1.0);
        match T::DTYPE.is_float() {
            true => reduce_by("prod", self, axes, one, Opcode::MulF, &[NEAREST]),
            false => reduce_by("prod", self, axes, one, Opcode::MulI, &[WRAP]),
        }
    }

    /// The largest element along axes. A NaN is ignored; if all elements are NaN, the result is -∞
    /// or NaN. `a.max(b)` is the larger of the elements of two tiles.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1.0f32, f32::NAN], [3.0, 4.0]]).reduce_max(1).eq(ct::astile([[1.0], [4.0]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_max(self, axes: impl Axes) -> Self {
        let least = limits::<T>().0;
        match T::DTYPE.is_float() {
            true => reduce_by("reduce_max", self, axes, least, Opcode::MaxF, &[]),
            false => reduce_by("reduce_max", self, axes, least, Opcode::MaxI, &[Attr::Sign(sign::<T>())]),
        }
    }

    /// The smallest element along axes. A NaN is ignored; if all elements are NaN, the result is +∞
    /// or NaN. `a.min(b)` is the smaller of the elements of two tiles.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1, 2], [3, 4]]).reduce_min(0).eq(ct::astile([[1, 2]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_min(self, axes: impl Axes) -> Self {
        let largest = limits::<T>().1;
        match T::DTYPE.is_float() {
            true => reduce_by("reduce_min", self, axes, largest, Opcode::MinF, &[]),
            false => reduce_by("reduce_min", self, axes, largest, Opcode::MinI, &[Attr::Sign(sign::<T>())]),
        }
    }
}

impl<T: Float, const R: usize> Tile<T, R> {
    /// The largest element along axes, or NaN if any element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).reduce_max_nan(0).isnan());
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_max_nan(self, axes: impl Axes) -> Self {
        let attrs = [Attr::Flag(Flag::PropagateNan)];
        reduce_by("reduce_max_nan", self, axes, limits::<T>().0, Opcode::MaxF, &attrs)
    }

    /// The smallest element along axes, or NaN if any element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).reduce_min_nan(0).isnan());
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_min_nan(self, axes: impl Axes) -> Self {
        let attrs = [Attr::Flag(Flag::PropagateNan)];
        reduce_by("reduce_min_nan", self, axes, limits::<T>().1, Opcode::MinF, &attrs)
    }
}

impl<const R: usize> Tile<bool, R> {
    /// Returns true if any element along the axes is true.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[true, false], [false, false]]).any(1).eq(ct::astile([[true], [false]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn any(self, axes: impl Axes) -> Self {
        reduce_by("any", self, axes, false, Opcode::OrI, &[])
    }

    /// Returns true if all elements along the axes are true.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[true, false], [true, true]]).all(1).eq(ct::astile([[false], [true]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn all(self, axes: impl Axes) -> Self {
        reduce_by("all", self, axes, true, Opcode::AndI, &[])
    }

    /// The number of true elements along the axes.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn positive(x: Array<f32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.load(0, [4]).gt(0.0).count(0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1.0f32, -1.0, 0.0, 5.0], [4])?;
    /// let mut y = device.zeros([1])?;
    /// ct::launch(positive, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn count(self, axes: impl Axes) -> Tile<i32, R> {
        self.sum_as::<i32>(axes)
    }
}

impl<T: Float, const R: usize> Tile<T, R> {
    /// [`sum`](Tile::sum) with the rounding and flushing of `mode` in its additions.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, 1e-9]).sum_with(0, Rounding::PosInf).gt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sum_with(self, axes: impl Axes, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().of_addition::<T>(caller_location(), "sum_with");
        reduce_by("sum_with", self, axes, T::from_f64(0.0), Opcode::AddF, &attrs)
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// The sum along axes, accumulated in `U`. Each element is first converted by
    /// [`cast`](Tile::cast).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn row_sums(x: Array<f16, 2>, y: ArrayMut<f32, 2>) {
    ///     y.store((0, 0), x.load((0, 0), [2, 4]).sum_as::<f32>(1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.full([2, 4], f16::from_f32(40000.0))?;
    /// let mut y = device.zeros([2, 1])?;
    /// ct::launch(row_sums, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [160000.0; 2]); // more than an f16 holds
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sum_as<U: Number>(self, axes: impl Axes) -> Tile<U, R> {
        self.cast::<U>().sum(axes)
    }

    /// The product along axes, accumulated in `U`. Each element is first converted by
    /// [`cast`](Tile::cast).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([200u8, 200]).prod_as::<i32>(0).eq(40_000));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn prod_as<U: Number>(self, axes: impl Axes) -> Tile<U, R> {
        self.cast::<U>().prod(axes)
    }
}

impl<T: Int, const R: usize> Tile<T, R> {
    /// The exclusive or of all elements along axes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0b1100u8, 0b1010]).reduce_xor(0).eq(0b0110));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_xor(self, axes: impl Axes) -> Self {
        reduce_by("reduce_xor", self, axes, T::from_bits(0), Opcode::XorI, &[])
    }

    /// The bitwise and of all elements along axes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0b1100u8, 0b1010]).reduce_and(0).eq(0b1000));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_and(self, axes: impl Axes) -> Self {
        reduce_by("reduce_and", self, axes, T::from_bits(ones::<T>()), Opcode::AndI, &[])
    }

    /// The bitwise or of all elements along axes.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn bits(x: Array<u32, 1>, y: ArrayMut<u32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, ct::cat([x.reduce_or(0), x.reduce_and(0), x.reduce_xor(0), x.reduce_max(0)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0b1001u32, 0b1011, 0b1101, 0b1000], [4])?;
    /// let mut y = device.zeros([4])?;
    /// ct::launch(bits, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0b1111, 0b1000, 0b0111, 0b1101]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce_or(self, axes: impl Axes) -> Self {
        reduce_by("reduce_or", self, axes, T::from_bits(0), Opcode::OrI, &[])
    }
}

/// The bit pattern with all bits of `T` set.
fn ones<T: Bits>() -> u64 {
    u64::MAX >> (64 - T::DTYPE.bits())
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Combines the elements along axes with a function of accumulator and element.
    /// [`reduce`](crate::reduce) accepts several tiles at once.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn bits_in_any(x: Tile<u32, 2>) -> Tile<u32, 2> {
    ///     x.reduce(1, 0, |acc, x| acc | x)
    /// }
    ///
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
    /// ct::assert!(bits_in_any(ct::astile([[1, 2], [4, 4]])).eq(ct::astile([[3], [4]])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reduce(self, axes: impl Axes, identity: T, combine: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Self {
        reduce_axes(self, axes.axes(R), identity, combine)
    }
}

/// The number of axes of the first tile.
pub(super) fn rank(raws: &[ValueHandle]) -> usize {
    crate::tile::record(|t| t.shape(raws[0]).len())
}

#[track_caller]
fn reduce_axes<X: TileSet>(
    tiles: X,
    axes: Vec<usize>,
    identity: X::Identity,
    combine: impl Fn(X::Elements, X::Elements) -> X::Elements,
) -> X {
    let place = caller_location();
    let region = Region { what: "the closure of `reduce`", place, scalar_only: true };
    let (mut raws, mut identities) = (Vec::new(), Vec::new());
    tiles.raws(&mut raws);
    X::identities(identity, &mut identities);
    let combine = untyped::<X>(&combine);
    let fold = Fold { place, name: "reduce", region, identities, combine: &combine };
    X::unflatten(&mut fold.reduce(&raws, axes).into_iter())
}

/// Adapter of the user's closure to recorded values.
pub(super) fn untyped<X: TileSet>(
    combine: &impl Fn(X::Elements, X::Elements) -> X::Elements,
) -> impl Fn(&[ValueHandle], &[ValueHandle]) -> Vec<ValueHandle> {
    move |accumulators, elements| {
        let of = |raws: &[ValueHandle]| X::elements(&mut raws.iter().copied());
        let mut combined = Vec::with_capacity(elements.len());
        X::yields(combine(of(accumulators), of(elements)), &mut combined);
        combined
    }
}

/// Combines the elements of one tile, or of several tiles at once, along axes.
///
/// * `tiles` is a tile, or a tuple or array of tiles of one shape. A tuple has up to 8 elements and
///   may be nested.
/// * `axes` is one axis, an array of axes, or `..`.
/// * `combine(accumulator, element)` receives one element of each tile, in the structure of
///   `tiles`. It is traced once and may contain elementwise operations on scalars, including
///   scalars from outside.
/// * `combine` must be **associative and need not be commutative**. Elements are combined in their
///   order, which is row-major along several axes, with the earlier ones on the left.
/// * `identity` must be neutral for `combine`.
///
/// The reduced axes remain, with extent 1.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// The largest element of each row and its column; of equal ones the last.
/// fn last_largest(x: Array<i32, 2>, value: ArrayMut<i32, 2>, column: ArrayMut<i32, 2>) {
///     let x = x.load((0, 0), [2, 4]);
///     let columns = ct::indices([2, 4], 1);
///     let (v, c) = ct::reduce((x, columns), 1, (i32::MIN, -1), |(va, ca), (vb, cb)| {
///         let later = vb.ge(va);
///         (later.select(vb, va), later.select(cb, ca))
///     });
///     value.store((0, 0), v);
///     column.store((0, 0), c);
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[3, 9, 9, 1, -5, -7, -5, -6], [2, 4])?;
/// let (mut value, mut column) = (device.zeros([2, 1])?, device.zeros([2, 1])?);
/// ct::launch(last_largest, 1, (&x, &mut value, &mut column))?;
/// assert_eq!((value.to_vec()?, column.to_vec()?), (vec![9, -5], vec![2, 2]));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn reduce<X: TileSet>(
    tiles: X,
    axes: impl Axes,
    identity: X::Identity,
    combine: impl Fn(X::Elements, X::Elements) -> X::Elements,
) -> X {
    let mut raws = Vec::new();
    tiles.raws(&mut raws);
    reduce_axes(tiles, axes.axes(rank(&raws)), identity, combine)
}
