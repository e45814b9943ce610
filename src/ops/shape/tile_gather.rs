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
    /// Gathers the elements at these positions along an axis: element `(i, j)` of
    /// `x.gather(1, index)` is element `(i, index[i, j])` of `x`. Positions outside of the tile are
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

/// Largest number of bins of `ranks`.
const MAX_BINS: usize = 4096;

impl Trace {
    fn ranks(&mut self, place: Place, numbers: ValueHandle, bins: usize) -> ValueHandle {
        self.at(place);
        let shape = self.shape(numbers);
        let ty = Type::tile(DType::I32, shape.as_slice());
        let Some(value) = self.check_usable(numbers, place) else { return self.poison(ty) };
        if !(1..=MAX_BINS).contains(&bins) {
            let message = format!("`ranks` of {bins} bins");
            return self.fail(place, ty, message, &[&format!("the number of bins is 1 to {MAX_BINS}")]);
        }
        if !self.power_along(place, "ranks", &shape, 0) || !self.admits(place, Effect::Pure, 1) {
            return self.poison(ty);
        }
        let value = self.put(Opcode::Ranks, &[value], vec![Attr::NumElem(bins as u64)], DType::I32, &shape);
        self.raw(value)
    }
}

impl<I: Int> Tile<I, 1> {
    /// The rank of each element among the equal ones, and the number of elements equal to each
    /// number from 0 to `bins - 1`.
    ///
    /// The rank is the number of earlier elements with the same number, so that equal elements
    /// remain in their order. Elements outside of 0 to `bins - 1` have rank 0 and are not counted.
    /// `bins` is 1 to 4096, and the extent of the tile is a power of two. The place of an element
    /// in the sorted tile is the exclusive sum of the counts at its number, plus its rank. Radix
    /// sort, the order of tokens of a mixture of experts, and compaction use such places.
    ///
    /// The ptx back end finds equal elements within a warp by ballots or `match.any`, and counts
    /// for each warp in shared memory. The tileir back end compares each element with each other
    /// one. The method is that of CUB's `BlockRadixRankMatch`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<u8, 1>, rank: ArrayMut<i32, 1>, counts: ArrayMut<i32, 1>) {
    ///     let (ranks, all) = x.load(0, [8]).ranks(4);
    ///     rank.store(0, ranks);
    ///     counts.store(0, all);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0u8, 3, 3, 1, 9, 3, 0, 255], [8])?;
    /// let (mut rank, mut counts) = (device.zeros([8])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut rank, &mut counts))?;
    /// assert_eq!(rank.to_vec()?, [0, 0, 1, 0, 0, 2, 1, 0]);
    /// assert_eq!(counts.to_vec()?, [2, 1, 0, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// The launch returns an error with this source location if `bins` or the extent is none of
    /// these.
    #[track_caller]
    #[must_use]
    pub fn ranks(self, bins: usize) -> (Tile<i32, 1>, Tile<i32, 1>) {
        let place = caller_location();
        let numbers = with_location(place, || self.cast_saturating::<i32>());
        let rank = Tile::from_raw(record(|t| t.ranks(place, numbers.raw(), bins)));
        (rank, Tile::from_raw(record(|t| t.histogram(place, numbers.raw(), bins))))
    }
}
