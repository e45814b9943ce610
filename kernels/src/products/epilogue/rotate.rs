//! Rotary position embedding of the results: heads of columns of queries and keys.

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Matrix, Place, Stage};
use crate::Pairs;
use crate::check::require;

/// Heads of columns that are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heads {
    /// Columns of a head: a power of two.
    pub dim: usize,
    /// Columns from here on are not rotated: values after queries and keys.
    pub end: usize,
    /// The columns that are rotated together.
    pub pairs: Pairs,
}

/// Rotates pairs of columns of each head. Cosines and sines have the shape (rows, dim / 2).
#[derive(Clone, Copy, Debug)]
pub struct Rotate<A, H> {
    pub(crate) angles: A,
    pub(crate) heads: H,
}
ct::impl_kernel_args!(Rotate<A, H> { angles, heads });

/// The rotation of heads by cosines and sines.
pub type Rotation<A> = Rotate<(A, A), Heads>;

impl<S: Float, A: Matrix> Stage<S> for Rotate<(A, A), Heads> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let Heads { dim, end, pairs } = self.heads;
        let ([m, n], half) = (sums.shape(), dim / 2);
        let at = Place { column: ct::scalar(0), ..place };
        let angle = |array: A| array.tile(at, [m, half]).cast::<S>().reshape([m, 1, half]);
        let (cos, sin) = (angle(self.angles.0), angle(self.angles.1));
        let (shape, axis) = match pairs {
            Pairs::Halves => ([m, n / dim, 2, half], 2),
            Pairs::Adjacent => ([m, n / dim, half, 2], 3),
        };
        let [x, y] = sums.reshape(shape).unstack(axis);
        let rotated = ct::stack([x * cos - y * sin, y * cos + x * sin], axis).reshape([m, n]);
        ct::select(place.column_indices(n).lt(end as i32), rotated, sums)
    }
}

impl<S: Float, A: Argument<Kernel: Matrix>> Epilogue<S> for Rotate<(A, A), Heads> {
    type Kernel = Rotate<(A::Kernel, A::Kernel), Heads>;
    type Arg<'x>
        = Rotate<(A::Arg<'x>, A::Arg<'x>), ct::Constant<Heads>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        let (cos, sin) = &mut self.angles;
        Rotate { angles: (cos.arg(), sin.arg()), heads: ct::Constant(self.heads) }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let Heads { dim, end, .. } = self.heads;
        let shapes = [self.angles.0.extents(), self.angles.1.extents()];
        let angles = [extents.rows, dim / 2];
        let fits = |shape: &Vec<usize>| *shape == angles || *shape == [extents.batches, angles[0], angles[1]];
        require(shapes.iter().all(fits), || format!("angles of shapes {shapes:?} for {}", text(extents)))?;
        require(dim.is_power_of_two() && (2..=256).contains(&dim), || format!("heads of {dim} columns"))?;
        require(end.is_multiple_of(dim), || format!("heads of {dim} columns up to column {end}"))?;
        Ok(extents)
    }

    fn width(&self) -> usize {
        self.heads.dim
    }
}
