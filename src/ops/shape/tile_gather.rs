//! Gather within a tile, and histogram.

use crate::dtype::DType;
use crate::element::{ByteSized, Int};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Type};
use crate::ops::create::construct::extents;
use crate::ops::support::axis::Axis;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record, with_location};

impl Trace {
    fn gather_along(
        &mut self,
        place: Place,
        tile: ValueHandle,
        dtype: DType,
        axis: usize,
        index: ValueHandle,
    ) -> ValueHandle {
        self.at(place);
        let (own, result) = (self.shape(tile), self.shape(index));
        let ty = Type::tile(dtype, result.as_slice());
        let (Some(source), Some(positions)) = (self.check_usable(tile, place), self.check_usable(index, place)) else {
            return self.poison(ty);
        };
        let fits = axis < own.len() && (0..own.len()).all(|d| d == axis || own[d] == result[d]);
        if !fits {
            let message = format!("`gather` along axis {axis} of a tile of shape {own:?} by positions of {result:?}");
            let way_out = "the extents along the other axes must be equal: use `broadcast_to`";
            return self.fail(place, ty, message, &[way_out]);
        }
        if !self.admits(place, Effect::Pure, own.len()) {
            return self.poison(ty);
        }
        let value = self.put(Opcode::Gather, &[source, positions], vec![Attr::Dim(axis as u32)], dtype, &result);
        self.raw(value)
    }

    fn histogram(&mut self, place: Place, numbers: ValueHandle, bins: usize) -> ValueHandle {
        self.at(place);
        let shape = extents([bins]);
        if !self.legal_shape(place, "histogram", &shape) {
            return self.poison(Type::tile(DType::I32, [1]));
        }
        let ty = Type::tile(DType::I32, shape.as_slice());
        let Some(numbers) = self.check_usable(numbers, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, 1) {
            return self.poison(ty);
        }
        let value = self.put(Opcode::Histogram, &[numbers], vec![], DType::I32, &shape);
        self.raw(value)
    }
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Gathers the elements at these positions along an axis: element `[i, j]` of
    /// `x.gather(1, index)` is element `[i, index[i, j]]` of `x`. Positions outside of the tile are
    /// clamped. The extents of `index` along the other axes are those of the tile.
    ///
    /// The ptx back end uses shuffles between the threads that hold the elements, or shared memory.
    /// On the tileir back end the cost is proportional to the product of the two extents along the
    /// axis. [`Array::gather`](crate::Array::gather) reads tables from memory.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, ids: Array<i32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [4]).gather(0, ids.load(0, [8])));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0.5, 1.5, 2.5, 3.5], [4])?;
    /// let ids = device.array(&[3, 3, 0, 1, 2, -1, 9, 0], [8])?;
    /// let mut y = device.zeros([8])?;
    /// ct::launch(kernel, 1, (&x, &ids, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3.5, 3.5, 0.5, 1.5, 2.5, 0.5, 3.5, 0.5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn gather<I: Int>(self, axis: impl Axis, index: Tile<I, R>) -> Tile<T, R> {
        let axis = axis.axis(R);
        let place = caller_location();
        let index = with_location(place, || index.cast_saturating::<i32>());
        Tile::from_raw(record(|t| t.gather_along(place, self.raw(), T::DTYPE, axis, index.raw())))
    }
}

impl<I: Int, const R: usize> Tile<I, R> {
    /// The number of elements equal to each number from 0 to `bins - 1`. Other elements are not
    /// counted.
    ///
    /// The ptx back end counts in the shared memory of the tile block. The tileir back end compares
    /// each element with each number. [`atomic_add`](crate::ArrayMut::atomic_add) adds the counts
    /// of many tiles in memory.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<u8, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.load(0, [8]).histogram(4));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0u8, 3, 3, 1, 9, 3, 0, 255], [8])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, 1, 0, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn histogram(self, bins: usize) -> Tile<i32, 1> {
        let place = caller_location();
        let numbers = with_location(place, || self.cast_saturating::<i32>());
        Tile::from_raw(record(|t| t.histogram(place, numbers.raw(), bins)))
    }
}
