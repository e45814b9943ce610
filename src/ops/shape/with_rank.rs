//! Changes of the rank of a tile by axes of extent 1.

use crate::dtype::DType;
use crate::element::Element;
use crate::ir::{Opcode, Type};
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Returns the extents with `rank` axes: leading axes of extent 1 are inserted, or axes of extent 1
/// are removed.
///
/// # Errors
/// The reason, if other axes would be removed, or if the choice of the axes of extent 1 is
/// ambiguous.
fn fitted(shape: &[i64], rank: usize) -> Result<Vec<i64>, &'static str> {
    let Some(surplus) = shape.len().checked_sub(rank) else {
        let ones = vec![1; rank - shape.len()];
        return Ok([ones.as_slice(), shape].concat());
    };
    let dropped = |order: &mut dyn Iterator<Item = usize>| {
        let gone: Vec<usize> = order.filter(|&d| shape[d] == 1).take(surplus).collect_vec();
        let kept = (0..shape.len()).filter(|d| !gone.contains(d)).map(|d| shape[d]);
        (gone.len() == surplus).then(|| kept.collect::<Vec<i64>>())
    };
    let (first, last) = (dropped(&mut (0..shape.len())), dropped(&mut (0..shape.len()).rev()));
    match (first, last) {
        (Some(first), Some(last)) if first == last => Ok(first),
        (Some(_), Some(_)) => Err("it is open which axes of extent 1 go: `.squeeze(axis)`, `.reshape(..)`"),
        _ => Err("only axes of extent 1 come and go: `.reshape(..)`, `.sum(axis)`"),
    }
}

impl Trace {
    /// Returns the extents with another number of axes, or `None` after an error.
    pub(crate) fn with_rank(&mut self, place: Place, name: &str, shape: &[i64], rank: usize) -> Option<Vec<i64>> {
        match fitted(shape, rank) {
            Ok(shape) => Some(shape),
            Err(way_out) => {
                let axes = if rank == 1 { "axis" } else { "axes" };
                let message = format!("`{name}` of shape {shape:?}, where {rank} {axes} are wanted");
                self.report(place, message, &[way_out]);
                None
            }
        }
    }

    /// Returns the same elements with other extents of the same product.
    pub(crate) fn refit(&mut self, place: Place, tile: ValueHandle, dtype: DType, shape: &[i64]) -> ValueHandle {
        if self.shape(tile) == shape {
            return tile;
        }
        self.at(place);
        match self.check_usable(tile, place) {
            Some(value) => {
                let value = self.put(Opcode::Reshape, &[value], vec![], dtype, shape);
                self.raw(value)
            }
            None => self.poison(Type::tile(dtype, shape)),
        }
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Returns the tile with another rank: leading axes of extent 1 are inserted, or axes of extent
    /// 1 are removed. The rank is inferred, as with `into()`.
    ///
    /// The launch returns an error if other axes would be removed, or if the choice of the axes of
    /// extent 1 is ambiguous (`[1, 4, 1]` as a matrix).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn sums(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    ///     let i = ct::bid(0);
    ///     y.store(i, x.load((i, 0), [2, 4]).sum(1).with_rank()); // [2, 1] as [2]
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.from_fn([4, 4], |[i, j]| (i + j) as f32)?, device.zeros([4])?);
    /// ct::launch(sums, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [6.0, 10.0, 14.0, 18.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn with_rank<const N: usize>(self) -> Tile<T, N> {
        let place = caller_location();
        Tile::from_raw(record(|t| {
            let shape = t.shape(self.raw());
            match t.with_rank(place, "with_rank", &shape, N) {
                Some(wanted) => t.refit(place, self.raw(), T::DTYPE, &wanted),
                None => t.poison(Type::tile(T::DTYPE, vec![1; N])),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn axes_of_extent_one_are_added_and_removed() {
        for (shape, rank, want) in [
            (&[4, 8][..], 2, Some(&[4, 8][..])),
            (&[8], 3, Some(&[1, 1, 8])),
            (&[], 2, Some(&[1, 1])),
            (&[4, 1], 1, Some(&[4])),
            (&[1, 4], 1, Some(&[4])),
            (&[1, 1], 1, Some(&[1])),
            (&[1, 1], 0, Some(&[])),
            (&[1, 4, 1], 1, Some(&[4])),
            (&[1, 4, 1, 8], 2, Some(&[4, 8])),
            (&[4, 1, 1], 2, Some(&[4, 1])),
            // [4, 1] or [1, 4].
            (&[1, 4, 1], 2, None),
            (&[4, 8], 1, None),
            (&[4, 1, 8], 1, None),
        ] {
            assert_eq!(fitted(shape, rank).ok().as_deref(), want, "{shape:?} to {rank} axes");
        }
    }
}
