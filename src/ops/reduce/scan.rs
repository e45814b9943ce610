//! Scans: each element is combined with all preceding ones along an axis.
//!
//! The scans of the IR are inclusive. An exclusive scan operates on pairs (exclusive prefix,
//! inclusive prefix). The ranges `(e1, i1)` and `(e2, i2)` combine to `(i1 · e2, i1 · i2)`, which
//! is associative if `·` is.

use super::combiner::{ByOp, Fold};
use super::reduce::{limits, rank, untyped};
use crate::element::{ByteSized, Element, Number};
use crate::ir::{Attr, Literal, Opcode, Overflow, Rounding, Sign};
use crate::ops::elementwise::arithmetic::sign;
use crate::ops::support::axis::Axis;
use crate::ops::support::tile_set::TileSet;
use crate::tile::{Handle, Region, Scalar, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Options of a scan: its direction, and whether the result includes the element itself.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn sums(x: Array<i32, 1>, y: ArrayMut<i32, 2>) {
///     let x = x.load(0, [4]);
///     let options = ct::ScanOptions::new();
///     let rows = [options, options.exclusive(), options.reverse(), options.reverse().exclusive()];
///     for (i, options) in rows.into_iter().enumerate() {
///         y.store((i, 0), x.cumsum_with(0, options).unsqueeze(0));
///     }
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1, 2, 3, 4], [4])?;
/// let mut y = device.zeros([4, 4])?;
/// ct::launch(sums, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 3, 6, 10, 0, 1, 3, 6, 10, 9, 7, 4, 9, 7, 4, 0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanOptions {
    reverse: bool,
    exclusive: bool,
}

impl ScanOptions {
    /// Inclusive scan from the first element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2, 3, 4]).cumsum_with(0, ct::ScanOptions::new()).eq(ct::astile([1, 3, 6, 10])));
    /// # });
    /// ```
    #[must_use]
    pub fn new() -> ScanOptions {
        ScanOptions::default()
    }

    /// Scans from the last element: each element is combined with all following ones.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().reverse();
    /// ct::assert!(ct::astile([1, 2, 3, 4]).cumsum_with(0, options).eq(ct::astile([10, 9, 7, 4])));
    /// # });
    /// ```
    #[must_use]
    pub fn reverse(self) -> ScanOptions {
        ScanOptions { reverse: true, ..self }
    }

    /// Excludes the element itself: the first result is the identity.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().exclusive();
    /// ct::assert!(ct::astile([1, 2, 3, 4]).cumsum_with(0, options).eq(ct::astile([0, 1, 3, 6])));
    /// # });
    /// ```
    #[must_use]
    pub fn exclusive(self) -> ScanOptions {
        ScanOptions { exclusive: true, ..self }
    }
}

/// Scans recorded values.
fn scanned(fold: &Fold<'_>, sources: &[ValueHandle], axis: usize, options: ScanOptions) -> Vec<ValueHandle> {
    if !options.exclusive {
        return fold.scan(sources, axis, options.reverse);
    }
    let count = sources.len();
    let starts = record(|t| {
        t.at(fold.place);
        let each = sources.iter().zip(&fold.identities);
        each.map(|(&source, identity)| filled(t, source, identity)).collect_vec()
    });
    let pairs = |accumulators: &[ValueHandle], elements: &[ValueHandle]| {
        let before = &accumulators[count..];
        let mut both = (fold.combine)(before, &elements[..count]);
        both.extend((fold.combine)(before, &elements[count..]));
        both
    };
    let identities = fold.identities.repeat(2);
    let paired = Fold { place: fold.place, name: fold.name, region: fold.region, identities, combine: &pairs };
    let mut results = paired.scan(&[&starts, sources].concat(), axis, options.reverse);
    results.truncate(count);
    results
}

/// A tile of the shape of another one, with the identity in every element.
fn filled(t: &mut Trace, source: ValueHandle, identity: &Literal) -> ValueHandle {
    let shape = t.shape(source);
    let value = t.splat(identity.dtype, identity.bits, &shape);
    t.raw(value)
}

/// Combines each element of one tile, or of several tiles at once, with all preceding ones along an
/// axis: [`scan_with`] with default options.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// y[i] = a[i] * y[i - 1] + b[i], for all i at once.
/// fn recurrence(a: Array<i32, 1>, b: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let maps = (a.load(0, [4]), b.load(0, [4]));
///     let (_, value) = ct::scan(maps, 0, (1, 0), |(a1, b1), (a2, b2)| (a1 * a2, a2 * b1 + b2));
///     y.store(0, value);
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b) = (device.array(&[2, 3, 1, -1], [4])?, device.array(&[1, 1, 5, 0], [4])?);
/// let mut y = device.zeros([4])?;
/// ct::launch(recurrence, 1, (&a, &b, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 4, 9, -9]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn scan<X: TileSet>(
    tiles: X,
    axis: impl Axis,
    identity: X::Identity,
    combine: impl Fn(X::Elements, X::Elements) -> X::Elements,
) -> X {
    scan_with(tiles, axis, identity, combine, ScanOptions::new())
}

/// Combines each element of one tile, or of several tiles at once, with all preceding ones along an
/// axis.
///
/// * `tiles` is a tile, or a tuple or array of tiles of one shape. The results have that shape.
/// * `combine(accumulator, element)` receives one element of each tile. The accumulator is that of
///   the elements already scanned, also in a reversed scan. `combine` may contain elementwise
///   operations on scalars, including scalars from outside.
/// * `combine` must be associative and need not be commutative. `identity` must be neutral for it.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (x, back) = (ct::astile([1, 2, 3, 4]), ct::ScanOptions::new().reverse());
/// let largest = ct::scan_with(x, 0, i32::MIN, |a, b| a.max(b), back);
/// ct::assert!(largest.eq(4));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn scan_with<X: TileSet>(
    tiles: X,
    axis: impl Axis,
    identity: X::Identity,
    combine: impl Fn(X::Elements, X::Elements) -> X::Elements,
    options: ScanOptions,
) -> X {
    let place = caller_location();
    let region = Region { what: "the closure of `scan`", place, scalar_only: true };
    let (mut raws, mut identities) = (Vec::new(), Vec::new());
    tiles.raws(&mut raws);
    X::identities(identity, &mut identities);
    let combine = untyped::<X>(&combine);
    let fold = Fold { place, name: "scan", region, identities, combine: &combine };
    let axis = axis.axis(rank(&raws));
    X::unflatten(&mut scanned(&fold, &raws, axis, options).into_iter())
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Combines each element with all preceding ones along an axis. [`scan_with`] accepts several
    /// tiles at once.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn any_before(x: Tile<bool, 1>) -> Tile<bool, 1> {
    ///     x.scan(0, false, |before, x| before | x)
    /// }
    ///
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
    /// ct::assert!(any_before(ct::astile([false, true, false, false])).eq(ct::astile([false, true, true, true])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn scan(self, axis: impl Axis, identity: T, combine: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Self {
        scan_with(self, axis, identity, combine, ScanOptions::new())
    }

    /// [`scan`](Tile::scan) with options: reversed, or without the element itself.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().exclusive();
    /// let before = ct::astile([false, true, false, false]).scan_with(0, false, |a, b| a | b, options);
    /// ct::assert!(before.eq(ct::astile([false, false, true, true])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn scan_with(
        self,
        axis: impl Axis,
        identity: T,
        combine: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>,
        options: ScanOptions,
    ) -> Self {
        scan_with(self, axis, identity, combine, options)
    }
}

/// A scan with a body of one op.
#[track_caller]
fn scan_by<T: Element, const R: usize>(
    tile: Tile<T, R>,
    axis: usize,
    options: ScanOptions,
    by: ByOp<'_, T>,
) -> Tile<T, R> {
    Tile::from_raw(by.fold("the body of a scan", |fold| scanned(fold, &[tile.raw()], axis, options)[0]))
}

const NEAREST: &[Attr] = &[Attr::Rounding(Rounding::NearestEven)];
const WRAP: &[Attr] = &[Attr::Overflow(Overflow::None)];

impl<T: Number, const R: usize> Tile<T, R> {
    /// Cumulative sum along an axis, in the element type itself; integers wrap.
    ///
    /// The grouping of float additions is unspecified, but equal in every execution of one compiled
    /// kernel; their order is that of the elements. A NaN or infinity affects only the following
    /// elements.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn sums(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    ///     y.store((0, 0), x.load((0, 0), [2, 4]).cumsum(1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1.0f32, 2.0, 3.0, 4.0, 0.5, -0.5, f32::INFINITY, 1.0], [2, 4])?;
    /// let mut y = device.zeros([2, 4])?;
    /// ct::launch(sums, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1.0, 3.0, 6.0, 10.0, 0.5, 0.0, f32::INFINITY, f32::INFINITY]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cumsum(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        self.cumsum_with(axis, ScanOptions::new())
    }

    /// [`cumsum`](Tile::cumsum) with options. In an exclusive scan the first result is 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().exclusive();
    /// ct::assert!(ct::ones::<i32, 1>([4]).cumsum_with(0, options).eq(ct::arange(0..4)));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cumsum_with(self, axis: impl Axis, options: ScanOptions) -> Self {
        let axis = axis.axis(R);
        let (code, attrs) = if T::DTYPE.is_float() { (Opcode::AddF, NEAREST) } else { (Opcode::AddI, WRAP) };
        scan_by(self, axis, options, ByOp { name: "cumsum", code, attrs, identity: T::from_f64(0.0) })
    }

    /// Cumulative product along an axis, in the element type itself; integers wrap.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2, 3, 4]).cumprod(0).eq(ct::astile([1, 2, 6, 24])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cumprod(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        self.cumprod_with(axis, ScanOptions::new())
    }

    /// [`cumprod`](Tile::cumprod) with options. In an exclusive scan the first result is 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().exclusive();
    /// ct::assert!(ct::astile([1, 2, 3, 4]).cumprod_with(0, options).eq(ct::astile([1, 1, 2, 6])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cumprod_with(self, axis: impl Axis, options: ScanOptions) -> Self {
        let axis = axis.axis(R);
        let (code, attrs) = if T::DTYPE.is_float() { (Opcode::MulF, NEAREST) } else { (Opcode::MulI, WRAP) };
        scan_by(self, axis, options, ByOp { name: "cumprod", code, attrs, identity: T::from_f64(1.0) })
    }

    /// Cumulative maximum along an axis. A NaN is ignored; if all elements so far are NaN, the
    /// result is NaN or -∞.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 3, 2, 4]).cummax(0).eq(ct::astile([1, 3, 3, 4])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cummax(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        self.cummax_with(axis, ScanOptions::new())
    }

    /// [`cummax`](Tile::cummax) with options. In an exclusive scan the first result is the smallest
    /// value of the type (-∞ for floats).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().reverse();
    /// ct::assert!(ct::astile([1, 3, 2, 1]).cummax_with(0, options).eq(ct::astile([3, 3, 2, 1])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cummax_with(self, axis: impl Axis, options: ScanOptions) -> Self {
        let axis = axis.axis(R);
        let (code, attrs) = extreme::<T>(Opcode::MaxF, Opcode::MaxI);
        scan_by(self, axis, options, ByOp { name: "cummax", code, attrs, identity: limits::<T>().0 })
    }

    /// Cumulative minimum along an axis. A NaN is ignored; if all elements so far are NaN, the
    /// result is NaN or +∞.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3, 1, 2, 0]).cummin(0).eq(ct::astile([3, 1, 1, 0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cummin(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        self.cummin_with(axis, ScanOptions::new())
    }

    /// [`cummin`](Tile::cummin) with options. In an exclusive scan the first result is the largest
    /// value of the type (+∞ for floats).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let options = ct::ScanOptions::new().reverse();
    /// ct::assert!(ct::astile([3, 1, 2, 4]).cummin_with(0, options).eq(ct::astile([1, 1, 2, 4])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cummin_with(self, axis: impl Axis, options: ScanOptions) -> Self {
        let axis = axis.axis(R);
        let (code, attrs) = extreme::<T>(Opcode::MinF, Opcode::MinI);
        scan_by(self, axis, options, ByOp { name: "cummin", code, attrs, identity: limits::<T>().1 })
    }
}

/// Opcode and attributes of a maximum or minimum.
fn extreme<T: Element>(float: Opcode, int: Opcode) -> (Opcode, &'static [Attr]) {
    match (T::DTYPE.is_float(), sign::<T>()) {
        (true, _) => (float, &[]),
        (false, Sign::Signed) => (int, &[Attr::Sign(Sign::Signed)]),
        (false, Sign::Unsigned) => (int, &[Attr::Sign(Sign::Unsigned)]),
    }
}
