//! The largest value of groups of columns, and its column: the first pass of a greedy choice,
//! without a second read of logits.

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Place, Stage};
use crate::check::require;

/// Stores the largest value of each group of adjacent columns and the first column that has it:
/// arrays of f32 and i32 of shape (groups, rows).
#[derive(Clone, Copy, Debug)]
pub struct Largest<A, K> {
    /// Values and columns.
    pub(crate) arrays: A,
    /// Columns of a group.
    pub(crate) group: K,
}
ct::impl_kernel_args!(Largest<A, K> { arrays, group });

impl<S: Float> Stage<S> for Largest<(ArrayMut<f32, 2>, ArrayMut<i32, 2>), usize> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let ([m, n], group) = (sums.shape(), self.group);
        let columns = place.column_indices(n);
        let x = ct::select(columns.lt(place.extents[1]), sums.cast::<f32>(), f32::NEG_INFINITY);
        let (x, columns) = (x.reshape([m, n / group, group]), columns.reshape([1, n / group, group]));
        let largest = x.reduce_max(2);
        let first = ct::select(x.eq(largest), columns, i32::MAX).reduce_min(2);
        let at = (place.column, place.row);
        self.arrays.0.store(at, largest.reshape([m, n / group]).transpose());
        self.arrays.1.store(at, first.reshape([m, n / group]).transpose());
        sums
    }
}

impl<S, A, B> Epilogue<S> for Largest<(A, B), usize>
where
    S: Float,
    A: Argument<Kernel = ArrayMut<f32, 2>>,
    B: Argument<Kernel = ArrayMut<i32, 2>>,
{
    type Kernel = Largest<(ArrayMut<f32, 2>, ArrayMut<i32, 2>), usize>;
    type Arg<'x>
        = Largest<(A::Arg<'x>, B::Arg<'x>), ct::Constant<usize>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        Largest { arrays: (self.arrays.0.arg(), self.arrays.1.arg()), group: ct::Constant(self.group) }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let (shapes, group) = ([self.arrays.0.extents(), self.arrays.1.extents()], self.group);
        require(group.is_power_of_two(), || format!("groups of {group} columns: a power of two"))?;
        let expected = [extents.columns.div_ceil(group), extents.rows];
        let fits = shapes.iter().all(|shape| *shape == expected) && extents.batches == 1 && !extents.is_grouped;
        require(fits, || format!("largest values of shapes {shapes:?}, not {expected:?}, for {}", text(extents)))?;
        Ok(extents)
    }

    fn width(&self) -> usize {
        self.group
    }
}
