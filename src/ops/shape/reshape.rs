//! Changes of shape: reshape, broadcast, permute, transpose, squeeze, unsqueeze.
//!
//! The element order is row-major: the last axis is the fastest.

use crate::dtype::DType;
use crate::element::{ByteSized, Element};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Type, Value};
use crate::ops::create::construct::extents;
use crate::ops::memory::tile_access::is_permutation;
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Source, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

impl Trace {
    /// Checks the shape of the result, then records `body` on a usable value.
    fn reshaped(
        &mut self,
        place: Place,
        name: &str,
        source: ValueHandle,
        elem: DType,
        shape: &[i64],
        body: impl FnOnce(&mut Trace, Value) -> Option<Value>,
    ) -> ValueHandle {
        self.at(place);
        if !self.legal_shape(place, name, shape) {
            return self.poison(Type::tile(elem, vec![1; shape.len()]));
        }
        let ty = Type::tile(elem, shape);
        let Some(value) = self.check_usable(source, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, shape.len()) {
            return self.poison(ty);
        }
        match body(self, value) {
            Some(result) => self.raw(result),
            None => self.poison(ty),
        }
    }

    fn reshape(&mut self, place: Place, name: &str, source: ValueHandle, elem: DType, shape: &[i64]) -> ValueHandle {
        self.reshaped(place, name, source, elem, shape, |t, value| {
            let from = t.builder.module.shape(value).to_vec();
            let (have, want): (i64, i64) = (from.iter().product(), shape.iter().product());
            if have != want {
                let message = format!("`{name}` of shape {from:?} ({have} elements) to {shape:?} ({want} elements)");
                t.report(place, message, &["the number of elements stays; `broadcast_to` repeats elements"]);
                return None;
            }
            Some(if from == shape { value } else { t.put(Opcode::Reshape, &[value], vec![], elem, shape) })
        })
    }

    fn broadcast_to(&mut self, place: Place, source: ValueHandle, elem: DType, shape: &[i64]) -> ValueHandle {
        self.reshaped(place, "broadcast_to", source, elem, shape, |t, value| {
            let from = t.builder.module.shape(value).to_vec();
            if from.iter().zip(shape).any(|(&have, &want)| have != want && have != 1) {
                t.report(
                    place,
                    format!("`broadcast_to` of shape {from:?} to {shape:?}"),
                    &["only extents of 1 are stretched"],
                );
                return None;
            }
            Some(t.stretch(value, shape))
        })
    }

    fn permute(&mut self, place: Place, name: &str, source: ValueHandle, elem: DType, order: &[usize]) -> ValueHandle {
        let from = self.shape(source);
        if !is_permutation(order, from.len()) {
            let last = from.len().saturating_sub(1);
            let message = format!("`{name}`: {order:?} is not a permutation of the axes 0 to {last}");
            return self.fail(place, Type::tile(elem, from), message, &["name each axis of the tile once"]);
        }
        let shape: Vec<i64> = order.iter().map(|&axis| from[axis]).collect_vec();
        self.reshaped(place, name, source, elem, &shape, |t, value| {
            if order.iter().enumerate().all(|(d, &axis)| d == axis) {
                return Some(value);
            }
            let permutation = order.iter().map(|&axis| axis as i32).collect_vec();
            Some(t.put(Opcode::Permute, &[value], vec![Attr::Permutation(permutation)], elem, &shape))
        })
    }
}

/// An extent of [`Tile::reshape`]: a host number, or -1.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn columns<T: Element>(x: Tile<T, 1>, extent: impl ct::ops::ReshapeExtent) -> Tile<T, 2> {
///     x.reshape([extent.extent(), 1])
/// }
/// ct::assert!(columns(ct::astile([1, 2]), -1).eq(ct::astile([[1], [2]])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extent of a tile",
    note = "an extent is a number of the host (usize, i32 or i64); -1 keeps the number of elements"
)]
pub trait ReshapeExtent: Sealed + Copy {
    /// Returns the extent, or -1.
    fn extent(self) -> i64;
}
impl ReshapeExtent for usize {
    fn extent(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}
impl ReshapeExtent for i32 {
    fn extent(self) -> i64 {
        self.into()
    }
}
impl ReshapeExtent for i64 {
    fn extent(self) -> i64 {
        self
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Returns the same elements, in row-major order, in another shape with the same number of
    /// elements. One extent may be -1: it is the one that keeps the number of elements.
    /// [`flatten`](Tile::flatten) is `reshape([-1])`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2, 3, 4]).reshape([2, 2]).eq(ct::astile([[1, 2], [3, 4]])));
    /// ct::assert!(ct::astile([1, 2, 3, 4]).reshape([-1, 2]).eq(ct::astile([[1, 2], [3, 4]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reshape<const N: usize>(self, shape: [impl ReshapeExtent; N]) -> Tile<T, N> {
        let (place, mut shape) = (caller_location(), shape.map(ReshapeExtent::extent));
        if let Some(open) = shape.iter().position(|&extent| extent == -1) {
            shape[open] = 1;
            let count: i64 = record(|t| t.shape(self.raw()).iter().product());
            let rest = shape.iter().try_fold(1i64, |n, &extent| n.checked_mul(extent)).unwrap_or(0);
            shape[open] = if rest > 0 { (count / rest).max(1) } else { 1 };
        }
        Tile::from_raw(record(|t| t.reshape(place, "reshape", self.raw(), T::DTYPE, &shape)))
    }

    /// Broadcasts axes of extent 1 to the extents of `shape`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1], [2]]).broadcast_to([2, 2]).eq(ct::astile([[1, 1], [2, 2]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn broadcast_to(self, shape: [usize; R]) -> Tile<T, R> {
        let (place, shape) = (caller_location(), extents(shape));
        Tile::from_raw(record(|t| t.broadcast_to(place, self.raw(), T::DTYPE, &shape)))
    }

    /// Permutes the axes: axis `d` of the result is axis `order[d]` of `self`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::astile([[[1, 2]], [[3, 4]]]);
    /// ct::assert!(x.permute([1, 2, 0]).eq(ct::astile([[[1, 3], [2, 4]]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn permute(self, order: [usize; R]) -> Tile<T, R> {
        let place = caller_location();
        Tile::from_raw(record(|t| t.permute(place, "permute", self.raw(), T::DTYPE, &order)))
    }

    /// The elements in row-major order, as a tile with one axis: `reshape([-1])`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1, 2], [3, 4]]).flatten().eq(ct::astile([1, 2, 3, 4])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn flatten(self) -> Tile<T, 1> {
        let place = caller_location();
        Tile::from_raw(record(|t| {
            let count = t.shape(self.raw()).iter().product();
            t.reshape(place, "flatten", self.raw(), T::DTYPE, &[count])
        }))
    }

    /// Exchanges two axes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([[1, 2]]).swap_axes(0, 1).eq(ct::astile([[1], [2]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn swap_axes(self, first: impl Axis, second: impl Axis) -> Tile<T, R> {
        let (place, first, second) = (caller_location(), first.axis(R), second.axis(R));
        let mut order: [usize; R] = std::array::from_fn(|d| d);
        if first >= R || second >= R {
            let message = format!("`swap_axes({}, {})` of a tile with {R} axes", shown(first), shown(second));
            record(|t| t.report(place, message, &[AXES_COUNT]));
            return self;
        }
        order.swap(first, second);
        Tile::from_raw(record(|t| t.permute(place, "swap_axes", self.raw(), T::DTYPE, &order)))
    }

    /// Returns the element of a tile of one element, as a scalar. `Scalar::from(tile)` is
    /// equivalent.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2]).sum(0).item().eq(3));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn item(self) -> Scalar<T>
    where
        T: ByteSized,
    {
        let place = caller_location();
        Scalar::from_raw(record(|t| {
            t.at(place);
            let ty = Type::scalar(T::DTYPE);
            if !t.admits(place, Effect::Pure, 0) {
                return t.poison(ty);
            }
            match t.scalar(place, Source::Value(self.raw()), T::DTYPE) {
                Some(value) => t.raw(value),
                None => t.poison(ty),
            }
        }))
    }
}

impl<T: ByteSized, const R: usize> From<Tile<T, R>> for Scalar<T> {
    #[track_caller]
    fn from(tile: Tile<T, R>) -> Scalar<T> {
        tile.item()
    }
}

impl<T: Element> Scalar<T> {
    /// A tile with this value in every element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::bid(0).broadcast_to([2, 4]).eq(0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn broadcast_to<const R: usize>(self, shape: [usize; R]) -> Tile<T, R> {
        let (place, shape) = (caller_location(), extents(shape));
        Tile::from_raw(record(|t| t.broadcast_to(place, self.raw(), T::DTYPE, &shape)))
    }

    /// A tile of one element, with extent 1 along all axes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(7).to_tile::<2>().eq(ct::astile([[7]])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn to_tile<const R: usize>(self) -> Tile<T, R> {
        let place = caller_location();
        Tile::from_raw(record(|t| t.reshape(place, "to_tile", self.raw(), T::DTYPE, &[1; R])))
    }
}

/// Returns the axis if it exists. Reports it otherwise, and returns 0.
fn checked_axis(place: Place, name: &str, axis: usize, limit: usize, rank: usize) -> usize {
    if axis < limit {
        return axis;
    }
    let message = format!("`{name}`: axis {} of a tile with {rank} axes", shown(axis));
    record(|t| t.report(place, message, &[AXES_COUNT]));
    0
}

macro_rules! rank_changes {
    ($($rank:literal $less:literal $more:literal;)+) => {$(
        impl<T: Element> Tile<T, $rank> {
            /// Removes an axis of extent 1.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// # on_cpu(|| {
            /// ct::assert!(ct::astile([[1, 2]]).squeeze(0).eq(ct::astile([1, 2])));
            /// # });
            /// ```
            #[track_caller]
            #[must_use]
            pub fn squeeze(self, axis: impl Axis) -> Tile<T, $less> {
                let place = caller_location();
                let axis = checked_axis(place, "squeeze", axis.axis($rank), $rank, $rank);
                Tile::from_raw(record(|t| {
                    let mut shape = t.shape(self.raw());
                    if shape[axis] != 1 {
                        let message = format!("`squeeze({axis})` of shape {shape:?}: the extent is {}", shape[axis]);
                        shape.remove(axis);
                        let rest = Type::tile(T::DTYPE, shape);
                        return t.fail(place, rest, message, &["only an axis of extent 1 can be dropped"]);
                    }
                    shape.remove(axis);
                    t.reshape(place, "squeeze", self.raw(), T::DTYPE, &shape)
                }))
            }

            /// Inserts an axis of extent 1 at position `axis`.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// # on_cpu(|| {
            /// let (rows, columns) = (ct::astile([10, 20]).unsqueeze(1), ct::astile([1, 2]).unsqueeze(0));
            /// ct::assert!((rows + columns).eq(ct::astile([[11, 12], [21, 22]])));
            /// # });
            /// ```
            #[track_caller]
            #[must_use]
            pub fn unsqueeze(self, axis: impl Axis) -> Tile<T, $more> {
                let place = caller_location();
                let axis = checked_axis(place, "unsqueeze", axis.axis($more), $more, $rank);
                Tile::from_raw(record(|t| {
                    let mut shape = t.shape(self.raw());
                    shape.insert(axis, 1);
                    t.reshape(place, "unsqueeze", self.raw(), T::DTYPE, &shape)
                }))
            }
        }
    )+};
}
rank_changes! {
    1 0 2;
    2 1 3;
    3 2 4;
    4 3 5;
    5 4 6;
    6 5 7;
}

macro_rules! matrix_transpose {
    ($($rank:literal)+) => {$(
        impl<T: Element> Tile<T, $rank> {
            /// Exchanges the last two axes: transposes each matrix.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// # on_cpu(|| {
            /// ct::assert!(ct::astile([[1, 2], [3, 4]]).transpose().eq(ct::astile([[1, 3], [2, 4]])));
            /// # });
            /// ```
            #[track_caller]
            #[must_use]
            pub fn transpose(self) -> Tile<T, $rank> {
                let place = caller_location();
                let mut order: [usize; $rank] = std::array::from_fn(|d| d);
                order.swap($rank - 2, $rank - 1);
                Tile::from_raw(record(|t| t.permute(place, "transpose", self.raw(), T::DTYPE, &order)))
            }
        }
    )+};
}
matrix_transpose!(2 3 4);
