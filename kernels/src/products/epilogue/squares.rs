//! RMS norm in two epilogues: the product that stores rows adds their squares, and the product that
//! reads them divides by the root of the mean. The weight of the norm is a factor of the inputs of
//! the second product's weights.

use std::slice::Iter;

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Place, Stage};
use crate::check::require;

/// Stores the sums of squares of groups of adjacent columns: an array of f32 of shape (groups,
/// rows).
#[derive(Clone, Copy, Debug)]
pub struct SquareSums<A, K> {
    pub(crate) array: A,
    /// Columns of a group.
    pub(crate) group: K,
}
ct::impl_kernel_args!(SquareSums<A, K> { array, group });

impl<S: Float> Stage<S> for SquareSums<ArrayMut<f32, 2>, usize> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let [m, n] = sums.shape();
        let x = sums.cast::<f32>().reshape([m, n / self.group, self.group]);
        let squares = (x * x).sum(2).reshape([m, n / self.group]);
        self.array.store((place.column, place.row), squares.transpose());
        sums
    }
}

impl<S: Float, A: Argument<Kernel = ArrayMut<f32, 2>>> Epilogue<S> for SquareSums<A, usize> {
    type Kernel = SquareSums<ArrayMut<f32, 2>, usize>;
    type Arg<'x>
        = SquareSums<A::Arg<'x>, ct::Constant<usize>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        SquareSums { array: self.array.arg(), group: ct::Constant(self.group) }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let (shape, group) = (self.array.extents(), self.group);
        require(group.is_power_of_two() && extents.columns.is_multiple_of(group), || {
            format!("groups of {group} columns of {}: a power of two that divides them", text(extents))
        })?;
        let expected = [extents.columns / group, extents.rows];
        let fits = shape == expected && extents.batches == 1 && !extents.is_grouped;
        require(fits, || format!("sums of squares of shape {shape:?}, not {expected:?}, for {}", text(extents)))?;
        Ok(extents)
    }

    fn width(&self) -> usize {
        self.group
    }
}

/// Divides each row by √(mean of squares + epsilon), from sums of squares of shape (groups, rows).
#[derive(Clone, Copy, Debug)]
pub struct NormalizeRows<A, F, K> {
    pub(crate) array: A,
    /// The inverse of the number of summands, and epsilon.
    pub(crate) numbers: F,
    /// Groups, rounded up to a power of two.
    pub(crate) groups: K,
}
ct::impl_kernel_args!(NormalizeRows<A, F, K> { array, numbers, groups });

impl<S: Float> Stage<S> for NormalizeRows<Array<f32, 2>, (Scalar<f32>, Scalar<f32>), usize> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        sums * self.of_rows(place, sums.shape()[0])[0]
    }

    fn of_rows(&self, place: Place, m: usize) -> Vec<Tile<S, 2>> {
        let squares = self.array.load((0, place.row), [self.groups, m]).sum(0).reshape([m, 1]);
        let (inverse, epsilon) = self.numbers;
        vec![(squares * inverse + epsilon).rsqrt().cast::<S>()]
    }

    fn apply_strip(&self, sums: Tile<S, 2>, place: Place, of_rows: &mut Iter<'_, Tile<S, 2>>) -> Tile<S, 2> {
        match of_rows.next() {
            Some(&factor) => sums * factor,
            None => self.apply(sums, place),
        }
    }
}

impl<S: Float, A: Argument<Kernel = Array<f32, 2>>> Epilogue<S> for NormalizeRows<A, (f32, f32), usize> {
    type Kernel = NormalizeRows<Array<f32, 2>, (Scalar<f32>, Scalar<f32>), usize>;
    type Arg<'x>
        = NormalizeRows<A::Arg<'x>, (f32, f32), ct::Constant<usize>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        NormalizeRows { array: self.array.arg(), numbers: self.numbers, groups: ct::Constant(self.groups) }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let shape = self.array.extents();
        let fits = shape.len() == 2 && shape[1] == extents.rows && extents.batches == 1 && !extents.is_grouped;
        require(fits && shape[0] <= 4096, || format!("sums of squares of shape {shape:?} for {}", text(extents)))?;
        Ok(extents)
    }
}
