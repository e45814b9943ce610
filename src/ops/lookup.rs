//! Elements of a tile by index tiles, and how many elements there are of each number.

use super::construct::{arange, scalar, zeros};
use super::control::for_each;
use super::select;
use crate::element::{Int, Whole};
use crate::ir::Type;
use crate::tile::{Handle, Scalar, Tile, at_place, here, record};

/// Elements that are looked at in one turn of a loop.
const TURN: usize = 32;
/// Comparisons of a histogram in one turn.
const COMPARED: usize = 4096;

impl<T: Whole, const R: usize> Tile<T, R> {
    /// The elements at these positions along an axis: element `[i, j]` of `x.gather(1, index)` is element
    /// `[i, index[i, j]]` of `x`. Positions outside of the tile mean the nearest one inside. The extents of `index` along
    /// the other axes are those of the tile.
    ///
    /// The work grows with the product of the two extents along the axis; for tables from memory there is
    /// [`Array::gather`](crate::Array::gather).
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
    pub fn gather<I: Int>(self, axis: usize, index: Tile<I, R>) -> Tile<T, R> {
        let (place, own, result) = (here(), self.shape(), index.shape());
        let fits = axis < R && (0..R).all(|d| d == axis || own[d] == result[d]);
        if !fits {
            return Tile::from_raw(record(|t| {
                let message =
                    format!("`gather` along axis {axis} of a tile of shape {own:?} by positions of {result:?}");
                let way_out = "the extents along the other axes must be equal: use `broadcast_to`";
                t.fail(place, Type::tile(T::DTYPE, t.shape(index.raw())), message, &[way_out])
            }));
        }
        at_place(place, || gathered(self, axis, index))
    }
}

/// The elements at positions, in turns.
fn gathered<T: Whole, I: Int, const R: usize>(tile: Tile<T, R>, axis: usize, index: Tile<I, R>) -> Tile<T, R> {
    let (own, result) = (tile.shape(), index.shape());
    let count = own[axis];
    let turn = (1 << count.trailing_zeros()).min(TURN);
    let mut shape = own;
    shape[axis] = turn;
    let at = index.cast_saturating::<i32>().clamp(0, count - 1);
    let bits: Vec<Tile<bool, R>> = (0..turn.trailing_zeros()).map(|bit| ((at >> bit as i32) & 1).eq(1)).collect();
    let which = at >> turn.trailing_zeros() as i32;
    let take = |number: Scalar<i32>, found: Tile<T, R>| {
        let mut place = [scalar(0); R];
        place[axis] = number;
        let part = tile.extract(place, shape);
        let mut one = shape;
        one[axis] = 1;
        let element = |number: usize| {
            let mut place = [0; R];
            place[axis] = number;
            part.extract(place, one).broadcast_to(result)
        };
        // Each bit of the position halves what is left.
        let mut left: Vec<Tile<T, R>> = (0..turn).map(element).collect();
        for &bit in &bits {
            left = left.chunks(2).map(|pair| select(bit, pair[1], pair[0])).collect();
        }
        select(which.eq(number), left[0], found)
    };
    if count == turn {
        return take(scalar(0), zeros(result));
    }
    for_each(0..count / turn, zeros(result), take)
}

impl<I: Int, const R: usize> Tile<I, R> {
    /// How many elements there are of each number from 0 to before `bins`, a power of two. Others are not counted.
    ///
    /// Each element is compared with each number; where there are many, [`atomic_add`](crate::ArrayMut::atomic_add)
    /// counts them in memory.
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
        at_place(here(), || counted(self, bins))
    }
}

/// How many there are of each number, in turns.
fn counted<I: Int, const R: usize>(tile: Tile<I, R>, bins: usize) -> Tile<i32, 1> {
    let count = tile.len();
    let most = 1 << (COMPARED / bins.max(1)).max(1).ilog2();
    let turn = (1usize << count.trailing_zeros()).min(most);
    let all = tile.cast_saturating::<i32>().reshape([count]);
    let numbers = arange(bins, 0, 1).unsqueeze(0);
    let add = |turns: Tile<i32, 1>, part: Tile<i32, 1>| turns + part.unsqueeze(1).eq(numbers).count(0).reshape([bins]);
    if count == turn {
        return add(zeros([bins]), all);
    }
    for_each(0..count / turn, zeros([bins]), |number, counts| add(counts, all.extract(number, [turn])))
}
