//! Tile indices: components that count tiles, and components that count elements.

use crate::dtype::DType;
use crate::element::{Element, Int};
use crate::ir::{Attr, Opcode, Overflow, Sign, Value};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Source, Tile, Trace};

/// An integer of an index, with its signedness.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    source: Source,
    dtype: DType,
    sign: Sign,
}

/// The result for a u64 above i64::MAX.
#[derive(Clone, Copy)]
enum Beyond {
    /// i64::MAX, which is outside of each array.
    Saturates,
    /// The low 64 bits.
    Wraps,
}

/// A component of a tile index, by its unit.
#[derive(Clone, Copy, Debug)]
pub enum Component {
    /// Tiles.
    Tiles(Number),
    /// Elements: the first one of the tile.
    Elements(Number),
    /// The position of each element of the tile along this axis.
    Sparse(Number),
}

impl Number {
    pub(crate) fn of<I: Element>(source: Source) -> Number {
        Number { source, dtype: I::DTYPE, sign: if I::SIGNED { Sign::Signed } else { Sign::Unsigned } }
    }

    pub(crate) fn host(number: i64) -> Number {
        match i32::try_from(number) {
            Ok(small) => Number::of::<i32>(Source::Literal(small.to_bits())),
            Err(_) => Number::of::<i64>(Source::Literal(number.to_bits())),
        }
    }

    /// An i64 beyond i32; the largest numbers are outside of all arrays also in i64.
    fn extent(number: usize) -> Number {
        match i32::try_from(number) {
            Ok(_) => Number::of::<i32>(Source::Extent(number)),
            Err(_) => Number::host(i64::try_from(number).unwrap_or(i64::MAX)),
        }
    }

    /// Twice this number.
    pub(crate) fn doubled(self, t: &mut Trace, place: Place) -> Option<Number> {
        match self.known().and_then(|host| host.checked_mul(2)) {
            Some(product) => Some(Number::host(product)),
            None => {
                let product = t.scaled_index(place, self, 2)?;
                Some(Number::of::<i64>(Source::Value(t.raw(product))))
            }
        }
    }

    /// The number, if it is a host value; i64::MAX for a u64 above that.
    pub fn known(self) -> Option<i64> {
        match self.source {
            Source::Literal(bits) => Some(match (self.dtype, self.sign) {
                (DType::I32, Sign::Signed) => (bits as u32 as i32).into(),
                (DType::I32, Sign::Unsigned) => (bits as u32).into(),
                (_, Sign::Signed) => bits as i64,
                (_, Sign::Unsigned) => i64::try_from(bits).unwrap_or(i64::MAX),
            }),
            Source::Extent(extent) => i64::try_from(extent).ok(),
            Source::Value(_) => None,
        }
    }
}

/// One component of a tile index: an integer (i32, i64 or usize), a `Scalar` of any integer type, a
/// one-element tile of integers, or [`at`] for one that counts elements.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>, from: impl ct::ops::IntoIndex) {
///     y.store(0, x.load([from], [2]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(|x, y| copy(x, y, 1), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3, 4]);
/// ct::launch(|x, y| copy(x, y, ct::at(ct::bid(0) + 1)), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile index",
    note = "an index is an integer, a `Scalar` of an integer, or `ct::at(position)` to count elements instead of tiles"
)]
pub trait IntoIndex: Sealed + Copy {
    #[doc(hidden)]
    fn component(self) -> Component;
}

impl IntoIndex for i32 {
    fn component(self) -> Component {
        Component::Tiles(Number::host(self.into()))
    }
}
impl IntoIndex for i64 {
    fn component(self) -> Component {
        Component::Tiles(Number::host(self))
    }
}
impl IntoIndex for usize {
    fn component(self) -> Component {
        Component::Tiles(Number::extent(self))
    }
}
#[diagnostic::do_not_recommend]
impl<I: Int> IntoIndex for Scalar<I> {
    fn component(self) -> Component {
        Component::Tiles(Number::of::<I>(Source::Value(self.raw())))
    }
}
#[diagnostic::do_not_recommend]
impl<I: Int, const R: usize> IntoIndex for Tile<I, R> {
    fn component(self) -> Component {
        Component::Tiles(Number::of::<I>(Source::Value(self.raw())))
    }
}
impl Sealed for At {}
impl IntoIndex for At {
    fn component(self) -> Component {
        self.0
    }
}

/// A component of a tile index that counts elements; made by [`at`].
///
/// ```
/// # use cutlet::doctest::*;
/// fn shifted(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let from: ct::ops::At = ct::at(1);
///     y.store(0, x.load(from, [2]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(shifted, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct At(Component);

/// Counts elements instead of tiles, along one axis of a tile index.
///
/// A number or scalar is the position of the tile's first element, also outside of the array. A
/// tile with one axis holds the position of each element of the tile along this axis. At most one
/// component of an index is such a tile, and the other axes remain dense. Elements outside of the
/// array are padding of a load, and a store does not write them. If two positions of a store are
/// equal, one of the two elements is stored.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // The sum of each element and its neighbour on the left.
/// fn pairs(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let first = ct::bid(0) * 4;
///     y.store(ct::bid(0), x.load(ct::at(first), [4]) + x.load(ct::at(first - 1), [4]));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1, 2, 3, 4, 5, 6], [6])?;
/// let mut y = device.zeros([6])?;
/// ct::launch(pairs, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 3, 5, 7, 9, 11]);
///
/// // Rows of a table.
/// fn rows(table: Array<i32, 2>, ids: Array<i64, 1>, out: ArrayMut<i32, 2>) {
///     let ids = ids.load(0, [4]);
///     out.store((0, 0), table.load((ct::at(ids), 0), [4, 2]));
/// }
///
/// let (table, ids) = (device.array(&[1, 2, 3, 4, 5, 6], [3, 2])?, device.array(&[2, 0, 9, 2], [4])?);
/// let mut out = device.zeros([4, 2])?;
/// ct::launch(rows, 1, (&table, &ids, &mut out))?;
/// assert_eq!(out.to_vec()?, [5, 6, 1, 2, 0, 0, 5, 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[must_use]
pub fn at(position: impl Position) -> At {
    At(position.position())
}

/// A position in elements: an integer (i32, i64 or usize), a `Scalar`, or a [`Tile`] with one axis,
/// of integers.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn from(x: Array<i32, 1>, y: ArrayMut<i32, 1>, position: impl ct::ops::Position) {
///     y.store(0, x.load(ct::at(position), [2]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(|x, y| from(x, y, -1), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [0, 1]);
/// ct::launch(|x, y| from(x, y, ct::astile([3, 0])), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [4, 1]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element position",
    note = "a position is an integer, a `Scalar` or a `Tile` with one axis, of integers"
)]
pub trait Position: Sealed + Copy {
    #[doc(hidden)]
    fn position(self) -> Component;
}

impl Position for i32 {
    fn position(self) -> Component {
        Component::Elements(Number::host(self.into()))
    }
}
impl Position for i64 {
    fn position(self) -> Component {
        Component::Elements(Number::host(self))
    }
}
impl Position for usize {
    fn position(self) -> Component {
        Component::Elements(Number::extent(self))
    }
}
#[diagnostic::do_not_recommend]
impl<I: Int> Position for Scalar<I> {
    fn position(self) -> Component {
        Component::Elements(Number::of::<I>(Source::Value(self.raw())))
    }
}
#[diagnostic::do_not_recommend]
impl<I: Int> Position for Tile<I, 1> {
    fn position(self) -> Component {
        Component::Sparse(Number::of::<I>(Source::Value(self.raw())))
    }
}

/// A tile index of `R` components: an array `[i, j]`, a tuple `(i, 0)` where the types differ, or
/// for `R = 1` the component itself.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<i32, 2>, y: ArrayMut<i32, 2>, from: impl ct::ops::TileIndex<2>) {
///     y.store((0, 0), x.load(from, [1, 2]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([1, 2])?);
/// ct::launch(|x, y| copy(x, y, [1, 0]), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3, 4]);
/// ct::launch(|x, y| copy(x, y, (ct::bid(0), 0)), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index of {R} components",
    note = "write `[i, j]`, or `(i, 0)` where scalars and host numbers are mixed"
)]
pub trait TileIndex<const R: usize>: Sealed + Copy {
    #[doc(hidden)]
    fn components(self) -> [Component; R];
}

impl<I: IntoIndex, const R: usize> TileIndex<R> for [I; R] {
    fn components(self) -> [Component; R] {
        self.map(I::component)
    }
}

macro_rules! single_index {
    ($([$($generics:tt)*] $ty:ty;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> TileIndex<1> for $ty {
            fn components(self) -> [Component; 1] {
                [self.component()]
            }
        }
    )+};
}
single_index! { [I: Int] Scalar<I>; [I: Int, const N: usize] Tile<I, N>; [] i32; [] i64; [] usize; [] At; }

/// Tuples that are an index: rank, and name and place of each component.
macro_rules! each_tuple {
    ($each:ident) => {
        $each! {
            1: A 0;
            2: A 0, B 1;
            3: A 0, B 1, C 2;
            4: A 0, B 1, C 2, D 3;
            5: A 0, B 1, C 2, D 3, E 4;
            6: A 0, B 1, C 2, D 3, E 4, F 5;
            7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
            8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
        }
    };
}
pub(crate) use each_tuple;

macro_rules! tuple_index {
    ($($rank:literal: $($name:ident $index:tt),+;)+) => {$(
        impl<$($name: IntoIndex),+> TileIndex<$rank> for ($($name,)+) {
            fn components(self) -> [Component; $rank] {
                [$(self.$index.component()),+]
            }
        }
    )+};
}
each_tuple! { tuple_index }

impl Component {
    /// Returns the number of the component, in its unit.
    pub(crate) fn number(self) -> Number {
        match self {
            Component::Tiles(number) | Component::Elements(number) | Component::Sparse(number) => number,
        }
    }
}

impl Trace {
    /// A component as an i32 or i64 scalar: [`Trace::index_width`]. `None` after a problem.
    pub(crate) fn index_scalar(&mut self, place: Place, number: Number) -> Option<Value> {
        let value = self.scalar(place, number.source, number.dtype)?;
        Some(self.index_width(value, number, Beyond::Saturates))
    }

    /// The first element of the tile of this number, as [`Trace::index_scalar`]. The product is
    /// computed in i64. It saturates: a number whose product does not fit i64 is outside of each
    /// array.
    pub(crate) fn scaled_index(&mut self, place: Place, number: Number, step: i64) -> Option<Value> {
        if let Some(product) = number.known().and_then(|host| step.checked_mul(host)) {
            return self.index_scalar(place, Number::host(product));
        }
        let index = self.index_scalar(place, number)?;
        let index = if number.dtype == DType::I64 { self.scalable(index, number.sign, step) } else { index };
        Some(self.scaled(index, step))
    }

    /// As [`Trace::scaled_index`] in i64, with the low 64 bits of number and product: for a
    /// sequence whose period is a power of two.
    pub(crate) fn periodic_index(&mut self, place: Place, number: Number, step: i64) -> Option<Value> {
        if let Some(product) = number.known().and_then(|host| step.checked_mul(host)) {
            let index = self.index_scalar(place, Number::host(product))?;
            return Some(self.as_width(index, DType::I64));
        }
        let value = self.scalar(place, number.source, number.dtype)?;
        let index = self.index_width(value, number, Beyond::Wraps);
        Some(self.scaled(index, step))
    }

    /// The product with a step, in i64.
    fn scaled(&mut self, index: Value, step: i64) -> Value {
        let wide = self.as_width(index, DType::I64);
        match step {
            1 => wide,
            _ => {
                let step = self.splat(DType::I64, step as u64, &[]);
                self.put(Opcode::MulI, &[wide, step], vec![Attr::Overflow(Overflow::None)], DType::I64, &[])
            }
        }
    }

    /// An i64 scalar, limited to numbers whose product with a positive step fits i64.
    fn scalable(&mut self, index: Value, sign: Sign, step: i64) -> Value {
        if step <= 1 {
            return index;
        }
        let most = i64::MAX / step;
        let limited = |t: &mut Trace, code, value, end: i64| {
            let end = t.splat(DType::I64, end as u64, &[]);
            t.put(code, &[value, end], vec![Attr::Sign(Sign::Signed)], DType::I64, &[])
        };
        let index = limited(self, Opcode::MinI, index, most);
        // An unsigned number is not negative here.
        if sign == Sign::Signed { limited(self, Opcode::MaxI, index, -most) } else { index }
    }

    /// Emits `count` positions from a start on, in its type.
    pub(crate) fn positions_from(&mut self, start: Value, count: i64) -> Value {
        let dtype = self.builder.module.dtype(start);
        let numbers = self.put(Opcode::Iota, &[], vec![], DType::I32, &[count]);
        let numbers = if dtype == DType::I32 { numbers } else { self.extended(numbers, Sign::Unsigned, dtype) };
        let start = self.stretch(start, &[count]);
        self.put(Opcode::AddI, &[start, numbers], vec![Attr::Overflow(Overflow::None)], dtype, &[count])
    }

    /// A list of positions as an i32 or i64 tile: [`Trace::index_width`]. `None` after a problem.
    pub(crate) fn index_tile(&mut self, place: Place, number: Number) -> Option<Value> {
        self.list(place, number, Beyond::Saturates)
    }

    /// A list of positions in a sequence whose period is a power of two: as [`Trace::index_tile`],
    /// with the low 64 bits of each.
    pub(crate) fn periodic_list(&mut self, place: Place, number: Number) -> Option<Value> {
        self.list(place, number, Beyond::Wraps)
    }

    fn list(&mut self, place: Place, number: Number, beyond: Beyond) -> Option<Value> {
        let value = match number.source {
            Source::Value(raw) => self.check_usable(raw, place)?,
            other => self.scalar(place, other, number.dtype)?,
        };
        Some(self.index_width(value, number, beyond))
    }

    /// Integers of an index, extent, step or bound in the width of the IR: the same numbers as
    /// signed i32 or i64. All conversions of the user's integers to indices are this one. The IR
    /// has no integers above i64::MAX: `beyond` is the result for these.
    fn index_width(&mut self, value: Value, number: Number, beyond: Beyond) -> Value {
        match (number.dtype.bits(), number.sign, beyond) {
            (32 | 64, Sign::Signed, _) | (64, Sign::Unsigned, Beyond::Wraps) => value,
            (64, Sign::Unsigned, Beyond::Saturates) => {
                let shape = self.builder.module.shape(value).to_vec();
                let most = self.splat(DType::I64, i64::MAX as u64, &shape);
                self.put(Opcode::MinI, &[value, most], vec![Attr::Sign(Sign::Unsigned)], DType::I64, &shape)
            }
            (32, Sign::Unsigned, _) => self.extended(value, Sign::Unsigned, DType::I64),
            (_, sign, _) => self.extended(value, sign, DType::I32),
        }
    }
}
