//! Sorting along an axis.

use super::sorting_network::Network;
use crate::element::{Element, Int, Number, bf16, f16};
use crate::ir::Sign;
use crate::ops::create::construct::{extents, indices};
use crate::ops::elementwise::arithmetic::sign;
use crate::ops::select;
use crate::ops::support::axis::Axis;
use crate::ops::support::tile_set::TileSet;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record, with_location};

/// Element types that can be sorted: all types with arithmetic.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn median<T: ct::ops::Sorted>(x: Tile<T, 1>) -> Scalar<T> {
///     x.sort(0).get(x.len() / 2)
/// }
/// ct::assert!(median(ct::astile([7, 1, 9, 3])).eq(7));
/// # });
/// ```
pub trait Sorted: Number {
    /// Integers in the order of the elements.
    #[doc(hidden)]
    type Key: Int;
    #[doc(hidden)]
    fn keys<const R: usize>(tile: Tile<Self, R>) -> Tile<Self::Key, R>;
    #[doc(hidden)]
    fn elements<const R: usize>(keys: Tile<Self::Key, R>) -> Tile<Self, R>;
}

macro_rules! integers {
    ($($name:ident)+) => {$(
        impl Sorted for $name {
            type Key = $name;
            fn keys<const R: usize>(tile: Tile<$name, R>) -> Tile<$name, R> {
                tile
            }
            fn elements<const R: usize>(keys: Tile<$name, R>) -> Tile<$name, R> {
                keys
            }
        }
    )+};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($name:ident $key:ident;)+) => {$(
        impl Sorted for $name {
            type Key = $key;
            fn keys<const R: usize>(tile: Tile<$name, R>) -> Tile<$key, R> {
                // NaNs of either sign are greater than all numbers.
                let tile = select(tile.isnan(), <$name as Element>::from_f64(f64::NAN), tile);
                turned_if_negative(tile.bitcast::<$key>())
            }
            fn elements<const R: usize>(keys: Tile<$key, R>) -> Tile<$name, R> {
                turned_if_negative(keys).bitcast::<$name>()
            }
        }
    )+};
}
floats! { f16 i16; bf16 i16; f32 i32; f64 i64; }

/// Complements all bits but the sign of negative floats, whose order is opposite to that of their
/// magnitudes.
fn turned_if_negative<K: Int, const R: usize>(keys: Tile<K, R>) -> Tile<K, R> {
    let bits = K::DTYPE.bits();
    let (last, others) = (K::from_bits(u64::from(bits) - 1), K::from_bits((1 << (bits - 1)) - 1));
    keys ^ ((keys >> last) & others)
}

/// Sorts keys in ascending order.
fn sorted<K: Int, const R: usize>(keys: Tile<K, R>, axis: usize) -> Tile<K, R> {
    if K::DTYPE.bits() < 32 {
        // The minimum and maximum of i32 are one instruction each.
        return sorted(keys.cast::<i32>(), axis).cast();
    }
    let mut tiles = [keys.raw()];
    record(|t| t.sort_together(&mut tiles, axis, sign::<K>(), false, None));
    Tile::from_raw(tiles[0])
}

/// Sorts keys in ascending order and returns their former positions. Equal keys remain in their
/// order. The tiles `carried` are permuted alike. With a `count`, the result has only the `count`
/// smallest keys.
fn numbered<K: Int, const R: usize>(
    keys: Tile<K, R>,
    carried: &mut [ValueHandle],
    axis: usize,
    count: Option<usize>,
) -> (Tile<K, R>, Tile<i32, R>) {
    let numbers = indices(keys.shape(), axis);
    if K::DTYPE.bits() <= 16 && keys.shape()[axis] <= 1 << 16 {
        // One i32 holds key and position. Its order is that of the keys, and of the positions among
        // equal keys.
        let least = if K::SIGNED { 0 } else { 1 << (K::DTYPE.bits() - 1) };
        let joint = (keys.cast::<i32>() - least) << 16 | numbers;
        let mut tiles = [&[joint.raw()], &carried[..]].concat();
        record(|t| t.sort_together(&mut tiles, axis, Sign::Signed, false, count));
        carried.copy_from_slice(&tiles[1..]);
        let joint = Tile::<i32, R>::from_raw(tiles[0]);
        return (((joint >> 16) + least).cast(), joint & 0xffff);
    }
    if K::DTYPE.bits() == 32 {
        // The same in one i64: one comparison of 64 bits instead of three.
        let high = if K::SIGNED { keys.cast::<i64>() } else { keys.cast::<i64>() - (1 << 31) };
        let joint = high << 32 | numbers.cast::<i64>();
        let mut tiles = [&[joint.raw()], &carried[..]].concat();
        record(|t| t.sort_together(&mut tiles, axis, Sign::Signed, false, count));
        carried.copy_from_slice(&tiles[1..]);
        let joint = Tile::<i64, R>::from_raw(tiles[0]);
        let high = joint >> 32;
        let keys = if K::SIGNED { high.cast() } else { (high + (1 << 31)).cast() };
        return (keys, (joint & 0xffff_ffff).cast());
    }
    let mut tiles = [&[keys.raw(), numbers.raw()], &carried[..]].concat();
    record(|t| t.sort_together(&mut tiles, axis, sign::<K>(), true, count));
    carried.copy_from_slice(&tiles[2..]);
    (Tile::from_raw(tiles[0]), Tile::from_raw(tiles[1]))
}

impl Trace {
    /// Sorts keys and the tiles that are permuted with them; see [`Network`].
    fn sort_together(&mut self, tiles: &mut [ValueHandle], axis: usize, sign: Sign, ties: bool, count: Option<usize>) {
        let (shape, place) = (self.shape(tiles[0]), caller_location());
        self.at(place);
        let Some(values) = tiles.iter().map(|&tile| self.check_usable(tile, place)).collect() else { return };
        let mut network = Network::new(self, values, &shape, axis, sign, ties);
        match count {
            Some(count) => network.smallest(extents([count])[0]),
            None => network.sort(),
        }
        for (tile, value) in tiles.iter_mut().zip(network.finish()) {
            *tile = self.raw(value);
        }
    }
}

/// Sorts keys along an axis in ascending order, as [`Tile::sort`], and permutes values alike. The
/// values are a tile, or a tuple or array of tiles, of the shape of the keys. Values of equal keys
/// remain in their order.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(keys: ArrayMut<f32, 1>, ids: ArrayMut<i32, 1>, halves: ArrayMut<f16, 1>) {
///     let values = (ids.load(0, [4]), halves.load(0, [4]));
///     let (sorted, (i, h)) = ct::sort_by_key(keys.load(0, [4]), values, 0);
///     keys.store(0, sorted);
///     ids.store(0, i);
///     halves.store(0, h);
/// }
///
/// let device = ct::Device::cpu();
/// let (mut keys, mut ids) = (device.array(&[2.0, 9.0, 2.0, -1.0], [4])?, device.array(&[10, 11, 12, 13], [4])?);
/// let mut halves = device.from_fn([4], |[i]| f16::from_f64(i as f64))?;
/// ct::launch(kernel, 1, (&mut keys, &mut ids, &mut halves))?;
/// assert_eq!(keys.to_vec()?, [-1.0, 2.0, 2.0, 9.0]);
/// assert_eq!(ids.to_vec()?, [13, 10, 12, 11]);
/// assert_eq!(halves.to_vec()?, [3.0, 0.0, 2.0, 1.0].map(f16::from_f64));
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn sort_by_key<T: Sorted, V: TileSet, const R: usize>(
    keys: Tile<T, R>,
    values: V,
    axis: impl Axis,
) -> (Tile<T, R>, V) {
    let axis = axis.axis(R);
    let (place, mut carried) = (caller_location(), Vec::new());
    values.raws(&mut carried);
    let fits =
        has_axis(place, "sort_by_key", keys, axis) && record(|t| t.has_shape_of_keys(place, keys.raw(), &carried));
    if !fits {
        return (keys, values);
    }
    let keys = with_location(place, || T::elements(numbered(T::keys(keys), &mut carried, axis, None).0));
    (keys, V::unflatten(&mut carried.into_iter()))
}

impl Trace {
    /// Reports values whose shape differs from that of the keys.
    fn has_shape_of_keys(&mut self, place: Place, keys: ValueHandle, values: &[ValueHandle]) -> bool {
        let shape = self.shape(keys);
        let Some(other) = values.iter().map(|&value| self.shape(value)).find(|other| *other != shape) else {
            return true;
        };
        let message = format!("`sort_by_key`: values of shape {other:?} with keys of shape {shape:?}");
        self.report(place, message, &["each key has one value: use `broadcast_to`"]);
        false
    }
}

/// Reports an axis that does not exist, or whose extent is no power of two.
#[track_caller]
fn has_axis<K: Number, const R: usize>(place: Place, name: &str, tile: Tile<K, R>, axis: usize) -> bool {
    record(|t| {
        let shape = t.shape(tile.raw());
        t.along(place, name, tile.raw(), &[axis]).is_some() && t.power_along(place, name, &shape, axis)
    })
}

impl<T: Sorted, const R: usize> Tile<T, R> {
    /// Sorts the elements along an axis in ascending order. The order is total: -0 precedes +0, and
    /// NaNs are last.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 2>, at: ArrayMut<i32, 2>) {
    ///     let x = x.load(0, [8]);
    ///     y.store((0, 0), ct::stack([x.sort(0), x.sort_descending(0)], 0));
    ///     at.store((0, 0), x.argsort(0).unsqueeze(0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[3.0, -1.0, 2.0, 3.0, 0.5, -7.0, f32::INFINITY, 2.0], [8])?;
    /// let (mut y, mut at) = (device.zeros([2, 8])?, device.zeros([1, 8])?);
    /// ct::launch(kernel, 1, (&x, &mut y, &mut at))?;
    /// let sorted = [-7.0, -1.0, 0.5, 2.0, 2.0, 3.0, 3.0, f32::INFINITY];
    /// assert_eq!(y.to_vec()?[..8], sorted);
    /// assert!(y.to_vec()?[8..].iter().eq(sorted.iter().rev()));
    /// assert_eq!(at.to_vec()?, [5, 1, 4, 2, 7, 0, 3, 6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sort(self, axis: impl Axis) -> Tile<T, R> {
        let axis = axis.axis(R);
        if !has_axis(caller_location(), "sort", self, axis) {
            return self;
        }
        with_location(caller_location(), || T::elements(sorted(T::keys(self), axis)))
    }

    /// Sorts the elements in the reverse order of [`sort`](Tile::sort).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2, 3, 1, 4]).sort_descending(0).eq(ct::astile([4, 3, 2, 1])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sort_descending(self, axis: impl Axis) -> Tile<T, R> {
        let axis = axis.axis(R);
        if !has_axis(caller_location(), "sort_descending", self, axis) {
            return self;
        }
        with_location(caller_location(), || T::elements(!sorted(!T::keys(self), axis)))
    }

    /// The positions along the axis of the elements of [`sort`](Tile::sort). Equal elements remain
    /// in their order.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2, 3, 1, 2]).argsort(0).eq(ct::astile([2, 0, 3, 1])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argsort(self, axis: impl Axis) -> Tile<i32, R> {
        let axis = axis.axis(R);
        if !has_axis(caller_location(), "argsort", self, axis) {
            return indices(self.shape(), 0);
        }
        with_location(caller_location(), || numbered(T::keys(self), &mut [], axis, None).1)
    }

    /// The positions of the elements of [`sort_descending`](Tile::sort_descending). Equal elements
    /// remain in their order.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2, 3, 1, 2]).argsort_descending(0).eq(ct::astile([1, 0, 3, 2])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn argsort_descending(self, axis: impl Axis) -> Tile<i32, R> {
        let axis = axis.axis(R);
        if !has_axis(caller_location(), "argsort_descending", self, axis) {
            return indices(self.shape(), 0);
        }
        with_location(caller_location(), || numbered(!T::keys(self), &mut [], axis, None).1)
    }

    /// The `k` largest elements along an axis, in descending order, and their positions. Equal
    /// elements remain in their order; a NaN is greater than all numbers. `k` is a power of two and
    /// at most the extent.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let (largest, at) = x.load(0, [8]).top_k(0, 2);
    ///     y.store(0, ct::cat([largest, at], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[3, 1, 4, 1, 5, 9, 2, 9], [8])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [9, 9, 5, 7]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn top_k(self, axis: impl Axis, k: usize) -> (Tile<T, R>, Tile<i32, R>) {
        let axis = axis.axis(R);
        if !has_axis(caller_location(), "top_k", self, axis) {
            return (self, indices(self.shape(), 0));
        }
        with_location(caller_location(), || {
            let mut shape = self.shape();
            if !k.is_power_of_two() || k > shape[axis] {
                let numbers = indices(shape, axis);
                shape[axis] = k;
                return (self.extract([0; R], shape), numbers.extract([0; R], shape));
            }
            let (keys, numbers) = numbered(!T::keys(self), &mut [], axis, Some(k));
            (T::elements(!keys), numbers)
        })
    }
}
