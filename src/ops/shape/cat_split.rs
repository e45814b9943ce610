//! Concatenation and division of tiles: cat, stack, split, extract, insert, single elements.

use crate::dtype::DType;
use crate::element::{ByteSized, Element};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Overflow, Sign, Type, Value};
use crate::ops::create::construct::extents;
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::{Component, TileIndex};
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Source, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// A tile and its range along the axis of a `cat`.
struct Piece {
    start: i64,
    length: i64,
    value: Value,
}

impl Trace {
    fn cat(&mut self, place: Place, name: &str, tiles: &[ValueHandle], axis: usize, ty: &Type) -> ValueHandle {
        self.at(place);
        let (dtype, rank) = (ty.dtype(), ty.shape().len());
        let Some(&first) = tiles.first() else {
            return self.fail(place, ty.clone(), format!("`{name}` of no tiles"), &["it takes at least one"]);
        };
        let mut shape = self.shape(first);
        if axis >= rank {
            let message = format!("`{name}` along axis {} of tiles of shape {shape:?}", shown(axis));
            return self.fail(place, ty.clone(), message, &[AXES_COUNT]);
        }
        let mut pieces: Vec<Piece> = Vec::with_capacity(tiles.len());
        let mut total = 0;
        for &tile in tiles {
            let (own, usable) = (self.shape(tile), self.check_usable(tile, place));
            let Some(value) = usable else { return self.poison(Type::tile(dtype, vec![1; rank])) };
            if (0..rank).any(|d| d != axis && own[d] != shape[d]) {
                let message = format!("`{name}` along axis {axis} of tiles with shapes {shape:?} and {own:?}");
                let way_out = "the extents of the other axes must be equal";
                return self.fail(place, Type::tile(dtype, vec![1; rank]), message, &[way_out]);
            }
            pieces.push(Piece { start: total, length: own[axis], value });
            total += own[axis];
        }
        shape[axis] = total;
        if !self.legal_shape(place, name, &shape) || !self.admits(place, Effect::Pure, rank) {
            return self.poison(Type::tile(dtype, vec![1; rank]));
        }
        let value = self.in_a_row(&pieces, axis, dtype, &shape);
        self.raw(value)
    }

    /// Concatenates all pieces to a tile of this shape.
    fn in_a_row(&mut self, pieces: &[Piece], axis: usize, dtype: DType, shape: &[i64]) -> Value {
        let (mut made, mut whole): (i64, Option<Value>) = (0, None);
        while made < shape[axis] {
            let length = 1 << (shape[axis] - made).ilog2();
            let part = self.joined(pieces, axis, dtype, shape, made, length);
            made += length;
            whole = Some(match whole {
                None => part,
                Some(first) => {
                    let mut shape = shape.to_vec();
                    shape[axis] = made;
                    self.put(Opcode::Cat, &[first, part], vec![Attr::Dim(axis as u32)], dtype, &shape)
                }
            });
        }
        whole.expect("an extent of at least 1")
    }

    /// Concatenates tiles of one shape.
    pub(super) fn row_of(&mut self, tiles: &[Value], axis: usize, dtype: DType) -> Value {
        let mut shape = self.builder.module.shape(tiles[0]).to_vec();
        let length = shape[axis];
        let pieces = (0..).zip(tiles).map(|(n, &value)| Piece { start: n * length, length, value }).collect_vec();
        shape[axis] *= tiles.len() as i64;
        self.in_a_row(&pieces, axis, dtype, &shape)
    }

    /// Returns a range of the result of a `cat`, whose length is a power of two. The range is a
    /// part of one piece, or its halves are concatenated.
    fn joined(&mut self, pieces: &[Piece], axis: usize, dtype: DType, whole: &[i64], from: i64, length: i64) -> Value {
        let mut shape = whole.to_vec();
        shape[axis] = length;
        let holds = |piece: &&Piece| (piece.start..piece.start + piece.length).contains(&from);
        let piece = pieces.iter().find(holds).expect("pieces without gaps");
        let offset = from - piece.start;
        if offset + length <= piece.length && offset % length == 0 && piece.length % length == 0 {
            if length == piece.length {
                return piece.value;
            }
            let index: Vec<Value> = (0..shape.len())
                .map(|d| self.splat(DType::I32, if d == axis { (offset / length) as u64 } else { 0 }, &[]))
                .collect_vec();
            return self.block_of(piece.value, &index, dtype, &shape);
        }
        let half = length / 2;
        let halves = [from, from + half].map(|from| self.joined(pieces, axis, dtype, whole, from, half));
        self.put(Opcode::Cat, &halves, vec![Attr::Dim(axis as u32)], dtype, &shape)
    }

    /// Extracts one block of a tile.
    fn block_of(&mut self, value: Value, index: &[Value], dtype: DType, shape: &[i64]) -> Value {
        let ty = self.builder.module.intern(Type::tile(dtype, shape));
        self.emit(Opcode::Extract, &[&[value], index], vec![], vec![], &[ty])[0]
    }

    /// Returns the index of a block or element along each axis. Constants outside of the count of
    /// an axis are reported; other numbers are clamped.
    fn numbers(&mut self, place: Place, name: &str, index: &[Component], counts: &[i64]) -> Option<Vec<Value>> {
        let mut values = Vec::with_capacity(index.len());
        for (axis, (&component, &count)) in index.iter().zip(counts).enumerate() {
            let Component::Tiles(number) = component else {
                let message = format!("`{name}`: a position in elements along axis {axis}");
                self.report(place, message, &["parts of a tile are counted: without `ct::at`"]);
                return None;
            };
            let known = number.known();
            if let Some(number) = known.filter(|number| !(0..count).contains(number)) {
                let message = format!("`{name}`: number {number} along axis {axis}, where there are {count}");
                self.report(place, message, &["they are counted from 0"]);
                return None;
            }
            let value = self.index_scalar(place, number)?;
            values.push(match (known, count) {
                (Some(_), _) => value,
                (None, 1) => self.splat(DType::I32, 0, &[]),
                (None, _) => self.within(value, count),
            });
        }
        Some(values)
    }

    /// Clamps a number to the range from 0 to `count - 1`, as i32.
    fn within(&mut self, value: Value, count: i64) -> Value {
        let dtype = self.builder.module.dtype(value);
        let signed = || vec![Attr::Sign(Sign::Signed)];
        let ends = [0, count as u64 - 1].map(|end| self.splat(dtype, end, &[]));
        let raised = self.put(Opcode::MaxI, &[value, ends[0]], signed(), dtype, &[]);
        let value = self.put(Opcode::MinI, &[raised, ends[1]], signed(), dtype, &[]);
        match dtype {
            DType::I32 => value,
            _ => self.put(Opcode::TruncI, &[value], vec![Attr::Overflow(Overflow::None)], DType::I32, &[]),
        }
    }

    /// Returns the number of parts of this shape along each axis of a tile. Reports extents that
    /// are not divisible.
    fn counts(&mut self, place: Place, name: &str, whole: &[i64], part: &[i64]) -> Option<Vec<i64>> {
        if whole.iter().zip(part).any(|(w, p)| w % p != 0) {
            let message = format!("`{name}`: parts of shape {part:?} of a tile of shape {whole:?}");
            self.report(place, message, &["each extent of the part divides that of the tile"]);
            return None;
        }
        Some(whole.iter().zip(part).map(|(w, p)| w / p).collect_vec())
    }

    /// Returns the number of parts as [`Self::counts`] does. Along axes with a constant index, a
    /// rest may follow the last whole part.
    fn extract_counts(
        &mut self,
        place: Place,
        name: &str,
        index: &[Component],
        (whole, part): (&[i64], &[i64]),
    ) -> Option<Vec<i64>> {
        let is_known = |axis: usize| {
            let Some(Component::Tiles(number)) = index.get(axis) else { return false };
            name == "extract" && number.known().is_some() && part[axis] <= whole[axis]
        };
        let rests =
            (0..whole.len().min(part.len())).map(|axis| if is_known(axis) { whole[axis] % part[axis] } else { 0 });
        let rounded: Vec<i64> = rests.zip(whole).map(|(rest, whole)| whole - rest).collect_vec();
        self.counts(place, name, if rounded.len() == whole.len() { &rounded } else { whole }, part)
    }

    pub(crate) fn extract(
        &mut self,
        place: Place,
        name: &str,
        tile: ValueHandle,
        index: &[Component],
        dtype: DType,
        part: &[i64],
    ) -> ValueHandle {
        self.at(place);
        if !self.legal_shape(place, name, part) {
            return self.poison(Type::tile(dtype, vec![1; part.len()]));
        }
        let ty = Type::tile(dtype, part);
        let Some(value) = self.check_usable(tile, place) else { return self.poison(ty) };
        let whole = self.shape(tile);
        if !self.admits(place, Effect::Pure, part.len()) {
            return self.poison(ty);
        }
        let Some(counts) = self.extract_counts(place, name, index, (&whole, part)) else { return self.poison(ty) };
        let Some(index) = self.numbers(place, name, index, &counts) else { return self.poison(ty) };
        let block = if whole == part { value } else { self.block_of(value, &index, dtype, part) };
        self.raw(block)
    }

    fn insert(
        &mut self,
        place: Place,
        tile: ValueHandle,
        index: &[Component],
        part: ValueHandle,
        dtype: DType,
    ) -> ValueHandle {
        self.at(place);
        let (whole, shape) = (self.shape(tile), self.shape(part));
        let ty = Type::tile(dtype, whole.as_slice());
        let (Some(value), Some(source)) = (self.check_usable(tile, place), self.check_usable(part, place)) else {
            return self.poison(ty);
        };
        if !self.admits(place, Effect::Pure, whole.len()) {
            return self.poison(ty);
        }
        let Some(counts) = self.counts(place, "insert", &whole, &shape) else { return self.poison(ty) };
        let Some(index) = self.numbers(place, "insert", index, &counts) else { return self.poison(ty) };
        if whole == shape {
            return part;
        }
        let id = self.builder.module.intern(ty);
        let value = self.emit(Opcode::Insert, &[&[source], &[value], &index], vec![], vec![], &[id])[0];
        self.raw(value)
    }

    /// Returns a tile with one element replaced, by a select over its index.
    fn set(
        &mut self,
        place: Place,
        tile: ValueHandle,
        index: &[Component],
        element: Source,
        dtype: DType,
    ) -> ValueHandle {
        self.at(place);
        let shape = self.shape(tile);
        let ty = Type::tile(dtype, shape.as_slice());
        let Some(value) = self.check_usable(tile, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, shape.len()) {
            return self.poison(ty);
        }
        let Some(index) = self.numbers(place, "set", index, &shape) else { return self.poison(ty) };
        let Some(element) = self.scalar(place, element, dtype) else { return self.poison(ty) };
        let mut chosen: Option<Value> = None;
        for (axis, &position) in index.iter().enumerate().filter(|&(axis, _)| shape[axis] > 1) {
            let numbers = self.count_along(&shape, axis);
            let position = self.stretch(position, &shape);
            let (pred, order) = (CmpPred::Eq, CmpOrder::Ordered);
            let here =
                crate::ops::elementwise::compare::mask(self, pred, order, DType::I32, true, numbers, position, &shape);
            chosen = Some(match chosen {
                Some(others) => self.put(Opcode::AndI, &[others, here], vec![], DType::I1, &shape),
                None => here,
            });
        }
        let element = self.stretch(element, &shape);
        let value = match chosen {
            Some(chosen) => self.put(Opcode::Select, &[chosen, element, value], vec![], dtype, &shape),
            None => element,
        };
        self.raw(value)
    }
}

/// Concatenates any number of tiles along an axis. Only the extents of that axis may differ. Their
/// sum is a power of two.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn turned(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let [a, b] = x.load(0, [8]).split(0);
///     y.store(0, ct::cat([b, a], 0));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[0, 1, 2, 3, 4, 5, 6, 7], [8])?;
/// let mut y = device.zeros([8])?;
/// ct::launch(turned, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [4, 5, 6, 7, 0, 1, 2, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
#[doc(alias("concatenate", "concat"))]
pub fn cat<T: Element, const R: usize>(tiles: impl IntoIterator<Item = Tile<T, R>>, axis: impl Axis) -> Tile<T, R> {
    let axis = axis.axis(R);
    let place = caller_location();
    let tiles: Vec<ValueHandle> = tiles.into_iter().map(Handle::raw).collect_vec();
    let ty = Type::tile(T::DTYPE, vec![1; R]);
    Tile::from_raw(record(|t| t.cat(place, "cat", &tiles, axis, &ty)))
}

/// Tiles that can be stacked along a new axis: those with 1 to 5 axes.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn twice<X: ct::ops::Stack + Copy>(x: X) -> X::Stacked {
///     ct::stack([x, x], 0)
/// }
/// fn kernel(y: ArrayMut<i32, 2>) {
///     y.store((0, 0), twice(ct::astile([1, 2])));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2, 2])?;
/// ct::launch(kernel, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1, 2, 1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
pub trait Stack: Sealed + Sized {
    /// The tile with one more axis.
    type Stacked;
    #[doc(hidden)]
    #[track_caller]
    fn stacked(tiles: Vec<Self>, axis: impl Axis) -> Self::Stacked;
}

/// Concatenates tiles of one shape along a new axis. Their number is a power of two.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn pairs(x: Array<i32, 1>, y: ArrayMut<i32, 2>) {
///     let x = x.load(0, [4]);
///     y.store((0, 0), ct::stack([x, x * 10], 1));
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1, 2, 3, 4], [4])?;
/// let mut y = device.zeros([4, 2])?;
/// ct::launch(pairs, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 10, 2, 20, 3, 30, 4, 40]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn stack<X: Stack>(tiles: impl IntoIterator<Item = X>, axis: impl Axis) -> X::Stacked {
    X::stacked(tiles.into_iter().collect_vec(), axis)
}

macro_rules! stacks {
    ($($rank:literal $more:literal;)+) => {$(
        impl<T: Element> Stack for Tile<T, $rank> {
            type Stacked = Tile<T, $more>;
            fn stacked(tiles: Vec<Self>, axis: impl Axis) -> Tile<T, $more> {
                let (place, axis) = (caller_location(), axis.axis($more));
                let tiles: Vec<ValueHandle> = tiles.into_iter().map(|tile| tile.unsqueeze(axis).raw()).collect_vec();
                let ty = Type::tile(T::DTYPE, vec![1; $more]);
                Tile::from_raw(record(|t| t.cat(place, "stack", &tiles, axis.min($rank), &ty)))
            }
        }
        impl<T: Element> Tile<T, $more> {
            /// Splits the tile along an axis into tiles without that axis: the inverse of
            /// [`stack`](crate::stack). `N` is the extent of the axis.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// # on_cpu(|| {
            /// let [even, odd] = ct::astile([[1, 2], [3, 4]]).unstack(1);
            /// ct::assert!(even.eq(ct::astile([1, 3])) & odd.eq(ct::astile([2, 4])));
            /// # });
            /// ```
            #[track_caller]
            #[must_use]
            pub fn unstack<const N: usize>(self, axis: impl Axis) -> [Tile<T, $rank>; N] {
                let axis = axis.axis($more);
                let place = caller_location();
                let extent = self.shape().get(axis).copied();
                let extent = extent.filter(|_| !record(|t| t.is_poisoned(self.raw())));
                if let Some(extent) = extent.filter(|&extent| extent != N) {
                    let message = format!("`unstack` into {N} tiles along axis {axis} of extent {extent}");
                    record(|t| t.report(place, message, &["the number of tiles is the extent of the axis"]));
                    let part = without(self.shape(), axis);
                    return std::array::from_fn(|_| {
                        Tile::from_raw(record(|t| t.poison(Type::tile(T::DTYPE, part.as_slice()))))
                    });
                }
                self.split::<N>(axis).map(|part| part.squeeze(axis))
            }
        }
    )+};
}
stacks! {
    1 2;
    2 3;
    3 4;
    4 5;
    5 6;
}

fn without<const R: usize>(shape: [usize; R], axis: usize) -> Vec<i64> {
    shape.iter().enumerate().filter(|&(d, _)| d != axis).map(|(_, &extent)| extent as i64).collect_vec()
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Splits the tile into `N` equal parts along an axis. `N` is inferred from the pattern:
    /// `let [a, b] = x.split(1);`
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let [low, high] = ct::astile([1, 2, 3, 4]).split(0);
    /// ct::assert!((low + high).eq(ct::astile([4, 6])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn split<const N: usize>(self, axis: impl Axis) -> [Tile<T, R>; N] {
        let axis = axis.axis(R);
        let place = caller_location();
        let mut part = self.shape();
        let problem = match part.get(axis).copied() {
            None => Some((format!("`split` along axis {} of a tile of shape {part:?}", shown(axis)), AXES_COUNT)),
            Some(extent) if N == 0 || extent % N != 0 => {
                let message = format!("`split` into {N} parts along axis {axis} of a tile of shape {part:?}");
                Some((message, "the number of parts divides the extent"))
            }
            Some(_) => None,
        };
        if let Some((message, way_out)) = problem {
            record(|t| {
                if !t.is_poisoned(self.raw()) {
                    t.report(place, message, &[way_out]);
                }
            });
            return std::array::from_fn(|_| {
                Tile::from_raw(record(|t| t.poison(Type::tile(T::DTYPE, extents(part).as_slice()))))
            });
        }
        part[axis] /= N;
        std::array::from_fn(|number| {
            let index: [usize; R] = std::array::from_fn(|d| if d == axis { number } else { 0 });
            let index = index.components();
            Tile::from_raw(record(|t| t.extract(place, "split", self.raw(), &index, T::DTYPE, &extents(part))))
        })
    }

    /// Extracts a part of this shape. The index counts parts of that shape along each axis.
    ///
    /// Each extent of the part divides that of the tile, except along axes with a constant index:
    /// the first 512 of 576 columns are part 0. An index that is known only when the kernel runs is
    /// clamped to the nearest part.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn corner(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
    ///     let x = x.load((0, 0), [4, 4]);
    ///     y.store((0, 0), x.extract((ct::bid(0) + 1, 0), [2, 2]));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&(0..16).collect::<Vec<i32>>(), [4, 4])?;
    /// let mut y = device.zeros([2, 2])?;
    /// ct::launch(corner, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [8, 9, 12, 13]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn extract(self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<T, R> {
        let (place, index) = (caller_location(), index.components());
        Tile::from_raw(record(|t| t.extract(place, "extract", self.raw(), &index, T::DTYPE, &extents(shape))))
    }

    /// Returns the tile with a part replaced. The index counts parts of that shape, as in
    /// [`extract`](Tile::extract).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn replaced(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [8]);
    ///     y.store(0, x.insert(ct::bid(0) + 2, ct::full([2], -1)));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0, 1, 2, 3, 4, 5, 6, 7], [8])?;
    /// let mut y = device.zeros([8])?;
    /// ct::launch(replaced, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 2, 3, -1, -1, 6, 7]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn insert(self, index: impl TileIndex<R>, part: Tile<T, R>) -> Tile<T, R> {
        let (place, index) = (caller_location(), index.components());
        Tile::from_raw(record(|t| t.insert(place, self.raw(), &index, part.raw(), T::DTYPE)))
    }
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Returns one element. An index that is known only when the kernel runs is clamped to the
    /// nearest element.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn pick(x: Array<f32, 1>, at: Scalar<i32>, y: ArrayMut<f32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, x.set(0, x.get(at)));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1.0f32, 2.0, 3.0, 4.0], [4])?;
    /// let mut y = device.zeros([4])?;
    /// ct::launch(pick, 1, (&x, 2, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn get(self, index: impl TileIndex<R>) -> Scalar<T> {
        let (place, index) = (caller_location(), index.components());
        Tile::<T, R>::from_raw(record(|t| t.extract(place, "get", self.raw(), &index, T::DTYPE, &[1; R]))).item()
    }

    /// Returns the tile with one element replaced. The index is that of [`get`](Tile::get).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2, 3, 4]).set(ct::bid(0) + 1, 9).eq(ct::astile([1, 9, 3, 4])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn set(self, index: impl TileIndex<R>, value: impl Operand<Scalar<T>>) -> Tile<T, R> {
        let (place, index) = (caller_location(), index.components());
        Tile::from_raw(record(|t| t.set(place, self.raw(), &index, value.source(), T::DTYPE)))
    }
}
