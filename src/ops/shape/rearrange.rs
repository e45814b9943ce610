//! Rearrangement and repetition of elements: flip, repeat, interleave.

use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Type, Value};
use crate::ops::create::construct::extents;
use crate::ops::reduce::reduce::Axes;
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// A shape in which one axis is split into rows of parts.
pub(crate) struct Rows {
    pub shape: Vec<i64>,
    /// The axis of the parts of a row. The axis of their elements follows.
    pub at: usize,
}

impl Rows {
    /// Rows of `parts` parts of `length` elements. All numbers are powers of two.
    pub fn of(shape: &[i64], axis: usize, parts: i64, length: i64) -> Rows {
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        // The preceding axes and the following axes are merged into one axis each, if all extents
        // are powers of two.
        let joint = shape.iter().all(|extent| extent.count_ones() == 1);
        let [before, after] = [before, after].map(|s| if joint { vec![s.iter().product()] } else { s.to_vec() });
        let rows = shape[axis] / (parts * length);
        match joint {
            true => Rows { shape: vec![before[0] * rows, parts, length * after[0]], at: 1 },
            false => Rows { shape: [&before[..], &[rows, parts, length], &after[..]].concat(), at: before.len() + 1 },
        }
    }

    /// The shape of one of two parts of each row.
    pub fn half(&self) -> Vec<i64> {
        let mut half = self.shape.clone();
        half[self.at] = 1;
        half
    }
}

impl Trace {
    /// Returns the value if it is usable. Reports an axis that does not exist.
    pub(crate) fn along(&mut self, place: Place, name: &str, tile: ValueHandle, axes: &[usize]) -> Option<Value> {
        self.at(place);
        // This check is the first: the shape of a poisoned tile is not one that the user has
        // written.
        let value = self.check_usable(tile, place)?;
        let shape = self.shape(tile);
        if let Some(axis) = axes.iter().find(|&&axis| axis >= shape.len()) {
            let message = format!("`{name}` along axis {} of a tile of shape {shape:?}", shown(*axis));
            self.report(place, message, &[AXES_COUNT]);
            return None;
        }
        self.admits(place, Effect::Pure, shape.len()).then_some(value)
    }

    pub(crate) fn reshaped_to(&mut self, value: Value, dtype: DType, shape: &[i64]) -> Value {
        match self.builder.module.shape(value) == shape {
            true => value,
            false => self.put(Opcode::Reshape, &[value], vec![], dtype, shape),
        }
    }

    /// Reverses the order of the blocks of an extent that is no power of two, and flips each block.
    fn flipped_in_blocks(&mut self, value: Value, dtype: DType, shape: &[i64], axis: usize) -> Value {
        let length = shape[axis] & shape[axis].wrapping_neg();
        let mut block = shape.to_vec();
        block[axis] = length;
        let ty = self.builder.module.intern(Type::tile(dtype, block.as_slice()));
        let blocks: Vec<Value> = (0..shape[axis] / length)
            .rev()
            .map(|number| {
                let index = |d: usize| if d == axis { number as u64 } else { 0 };
                let index: Vec<Value> = (0..shape.len()).map(|d| self.splat(DType::I32, index(d), &[])).collect_vec();
                let part = self.emit(Opcode::Extract, &[&[value], &index], vec![], vec![], &[ty])[0];
                self.flipped(part, dtype, &block, axis)
            })
            .collect_vec();
        self.row_of(&blocks, axis, dtype)
    }

    /// Exchanges halves, then halves of halves, and so on: each bit of the coordinate is
    /// complemented.
    fn flipped(&mut self, value: Value, dtype: DType, shape: &[i64], axis: usize) -> Value {
        if shape[axis].count_ones() > 1 {
            return self.flipped_in_blocks(value, dtype, shape, axis);
        }
        let mut value = value;
        let mut distance = 1;
        while distance < shape[axis] {
            value = self.halves_exchanged(value, dtype, shape, axis, distance);
            distance *= 2;
        }
        self.reshaped_to(value, dtype, shape)
    }

    /// Exchanges the halves of each row, which have `distance` elements. The result has an
    /// arbitrary shape with all elements in row-major order.
    fn halves_exchanged(&mut self, value: Value, dtype: DType, shape: &[i64], axis: usize, distance: i64) -> Value {
        let rows = Rows::of(shape, axis, 2, distance);
        let [first, second] = self.halves(value, dtype, &rows);
        self.of_halves([second, first], dtype, &rows)
    }

    /// The first and the second halves of all rows.
    pub(crate) fn halves(&mut self, value: Value, dtype: DType, rows: &Rows) -> [Value; 2] {
        let value = self.reshaped_to(value, dtype, &rows.shape);
        let part = self.builder.module.intern(Type::tile(dtype, rows.half()));
        [0, 1].map(|number| {
            let index = |d: usize| if d == rows.at { number } else { 0 };
            let index: Vec<Value> = (0..rows.shape.len()).map(|d| self.splat(DType::I32, index(d), &[])).collect_vec();
            self.emit(Opcode::Extract, &[&[value], &index], vec![], vec![], &[part])[0]
        })
    }

    /// Joins the halves to rows.
    pub(crate) fn of_halves(&mut self, halves: [Value; 2], dtype: DType, rows: &Rows) -> Value {
        self.put(Opcode::Cat, &halves, vec![Attr::Dim(rows.at as u32)], dtype, &rows.shape)
    }

    /// Repeats each extent `outer` times as a whole, and each element `inner` times in place.
    fn repeated(
        &mut self,
        place: Place,
        name: &str,
        tile: ValueHandle,
        dtype: DType,
        times: &[[i64; 2]],
    ) -> ValueHandle {
        let shape = self.shape(tile);
        let all = |counts: &dyn Fn(usize) -> [i64; 2]| -> Vec<i64> {
            (0..shape.len()).flat_map(|d| [counts(d)[0], shape[d], counts(d)[1]]).collect_vec()
        };
        let result: Vec<i64> =
            shape.iter().zip(times).map(|(e, [a, b])| e.saturating_mul(a.saturating_mul(*b))).collect_vec();
        if !self.legal_shape(place, name, &result) {
            return self.poison(Type::tile(dtype, vec![1; shape.len()]));
        }
        let ty = Type::tile(dtype, result.as_slice());
        let Some(value) = self.along(place, name, tile, &[]) else { return self.poison(ty) };
        let apart = self.reshaped_to(value, dtype, &all(&|_| [1, 1]));
        let stretched = self.stretch(apart, &all(&|d| times[d]));
        let value = self.reshaped_to(stretched, dtype, &result);
        self.raw(value)
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Reverses the elements along axes.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn backwards(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
    ///     y.store((0, 0), x.load((0, 0), [2, 4]).flip(1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0, 1, 2, 3, 4, 5, 6, 7], [2, 4])?;
    /// let mut y = device.zeros([2, 4])?;
    /// ct::launch(backwards, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3, 2, 1, 0, 7, 6, 5, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn flip(self, axes: impl Axes) -> Tile<T, R> {
        let (place, axes) = (caller_location(), axes.axes(R));
        Tile::from_raw(record(|t| {
            let shape = t.shape(self.raw());
            let Some(value) = t.along(place, "flip", self.raw(), &axes) else {
                return t.poison(Type::tile(T::DTYPE, shape));
            };
            let flipped = axes.iter().fold(value, |value, &axis| t.flipped(value, T::DTYPE, &shape, axis));
            t.raw(flipped)
        }))
    }

    /// Repeats the whole tile `times[d]` times along each axis `d`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 2>) {
    ///     let x = x.load(0, [2]);
    ///     y.store((0, 0), x.repeat([2]).unsqueeze(0)); // 1 2 1 2
    ///     y.store((1, 0), x.repeat_interleave(0, 2).unsqueeze(0)); // 1 1 2 2
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1, 2], [2])?;
    /// let mut y = device.zeros([2, 4])?;
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, 2, 1, 2, 1, 1, 2, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn repeat(self, times: [usize; R]) -> Tile<T, R> {
        let place = caller_location();
        let times: Vec<[i64; 2]> = extents(times).into_iter().map(|n| [n, 1]).collect_vec();
        Tile::from_raw(record(|t| t.repeated(place, "repeat", self.raw(), T::DTYPE, &times)))
    }

    /// Repeats each element `times` times in place along an axis.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2]).repeat_interleave(0, 2).eq(ct::astile([1, 1, 2, 2])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn repeat_interleave(self, axis: impl Axis, times: usize) -> Tile<T, R> {
        let axis = axis.axis(R);
        let (place, name) = (caller_location(), "repeat_interleave");
        Tile::from_raw(record(|t| {
            let shape = t.shape(self.raw());
            if t.along(place, name, self.raw(), &[axis]).is_none() {
                return t.poison(Type::tile(T::DTYPE, shape));
            }
            let times: Vec<[i64; 2]> =
                (0..R).map(|d| [1, if d == axis { extents([times])[0] } else { 1 }]).collect_vec();
            t.repeated(place, name, self.raw(), T::DTYPE, &times)
        }))
    }

    /// Interleaves the elements of two tiles along an axis: one of `self`, then one of `other`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, x.interleave(-x, 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1, 2, 3, 4], [4])?;
    /// let mut y = device.zeros([8])?;
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, -1, 2, -2, 3, -3, 4, -4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn interleave(self, other: Tile<T, R>, axis: impl Axis) -> Tile<T, R> {
        let axis = axis.axis(R);
        let (place, name) = (caller_location(), "interleave");
        Tile::from_raw(record(|t| {
            let (shape, second) = (t.shape(self.raw()), t.shape(other.raw()));
            let ty = Type::tile(T::DTYPE, shape.as_slice());
            let values = [self, other].map(|tile| t.along(place, name, tile.raw(), &[axis]));
            let [Some(a), Some(b)] = values else { return t.poison(ty) };
            if shape != second {
                let message = format!("`{name}` of tiles with shapes {shape:?} and {second:?}");
                return t.fail(place, ty, message, &["the shapes must be equal: use `broadcast_to`"]);
            }
            let mut result = shape.clone();
            result[axis] *= 2;
            if !t.legal_shape(place, name, &result) {
                return t.poison(ty);
            }
            let (mut apart, mut pairs) = (shape.clone(), shape);
            apart.insert(axis + 1, 1);
            pairs.insert(axis + 1, 2);
            let parts = [a, b].map(|value| t.reshaped_to(value, T::DTYPE, &apart));
            let joined = t.put(Opcode::Cat, &parts, vec![Attr::Dim(axis as u32 + 1)], T::DTYPE, &pairs);
            let value = t.reshaped_to(joined, T::DTYPE, &result);
            t.raw(value)
        }))
    }
}
