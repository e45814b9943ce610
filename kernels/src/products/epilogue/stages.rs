//! Stages with an array or a number: bias, residual, gate, scales.

use std::slice::Iter;

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::{check_columns, check_matrix, check_rows};
use super::{Argument, Columns, Epilogue, Extents, Matrix, Place, Rows, Stage};

/// Two stages, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Then<First, Second> {
    pub(crate) first: First,
    pub(crate) second: Second,
}
ct::impl_kernel_args!(Then<First, Second> { first, second });

impl<S: Float, First: Stage<S>, Second: Stage<S>> Stage<S> for Then<First, Second> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let values = self.first.apply(sums, place);
        self.second.apply(values, narrowed(place, [sums, values]))
    }

    fn of_rows(&self, place: Place, m: usize) -> Vec<Tile<S, 2>> {
        [self.first.of_rows(place, m), self.second.of_rows(place, m)].concat()
    }

    fn apply_strip(&self, sums: Tile<S, 2>, place: Place, of_rows: &mut Iter<'_, Tile<S, 2>>) -> Tile<S, 2> {
        let values = self.first.apply_strip(sums, place, of_rows);
        self.second.apply_strip(values, narrowed(place, [sums, values]), of_rows)
    }
}

/// Returns the position of the values of a stage, which may have fewer columns than its sums.
fn narrowed<S: Float>(place: Place, [sums, values]: [Tile<S, 2>; 2]) -> Place {
    let narrowing = sums.shape()[1] / values.shape()[1];
    let [rows, columns] = place.extents;
    let columns = if narrowing > 1 { columns / narrowing as i32 } else { columns };
    Place { extents: [rows, columns], ..place }
}

impl<S: Float, First: Epilogue<S>, Second: Epilogue<S>> Epilogue<S> for Then<First, Second> {
    type Kernel = Then<First::Kernel, Second::Kernel>;
    type Arg<'x>
        = Then<First::Arg<'x>, Second::Arg<'x>>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        Then { first: self.first.arg(), second: self.second.arg() }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        self.second.check(self.first.check(extents)?)
    }

    fn width(&self) -> usize {
        // Widths are powers of two: the larger one is a multiple of the other.
        self.first.width().max(self.second.width() * self.first.narrowing())
    }

    fn narrowing(&self) -> usize {
        self.first.narrowing() * self.second.narrowing()
    }
}

macro_rules! stages {
    ($($(#[$doc:meta])+ $name:ident of $kind:ident by $load:ident checked $check:ident $called:literal: |$x:ident, $y:ident| $value:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name<A> {
            pub(crate) array: A,
        }
        ct::impl_kernel_args!($name<A> { array });

        impl<S: Float, A: $kind> Stage<S> for $name<A> {
            fn apply(&self, $x: Tile<S, 2>, place: Place) -> Tile<S, 2> {
                let $y = stages!(@load $load, self.array, place, $x).cast::<S>();
                $value
            }
        }

        impl<S: Float, A: Argument<Kernel: $kind>> Epilogue<S> for $name<A> {
            type Kernel = $name<A::Kernel>;
            type Arg<'x> = $name<A::Arg<'x>> where Self: 'x;

            fn arg(&mut self) -> Self::Arg<'_> {
                $name { array: self.array.arg() }
            }

            fn check(&self, extents: Extents) -> ct::Result<Extents> {
                $check($called, &self.array.extents(), extents)?;
                Ok(extents)
            }
        }
    )+};
    (@load tile, $array:expr, $place:ident, $x:ident) => { $array.tile($place, $x.shape()) };
    (@load columns, $array:expr, $place:ident, $x:ident) => { $array.columns($place, $x.shape()[1]) };
    (@load rows, $array:expr, $place:ident, $x:ident) => { $array.rows($place, $x.shape()[0]) };
}

stages! {
    /// Adds a number for each column.
    Bias of Columns by columns checked check_columns "a bias": |x, y| x + y;
    /// Adds a matrix.
    Residual of Matrix by tile checked check_matrix "a residual": |x, y| x + y;
    /// Multiplies with a matrix.
    Gate of Matrix by tile checked check_matrix "a gate": |x, y| x * y;
    /// Multiplies with a number for each row.
    ScaleRows of Rows by rows checked check_rows "scales of rows": |x, y| x * y;
    /// Multiplies with a number for each column.
    ScaleColumns of Columns by columns checked check_columns "scales of columns": |x, y| x * y;
}

/// Multiplies with a number.
#[derive(Clone, Copy, Debug)]
pub struct Scale<A> {
    pub(crate) factor: A,
}
ct::impl_kernel_args!(Scale<A> { factor });

impl<S: Float> Stage<S> for Scale<Scalar<f32>> {
    fn apply(&self, sums: Tile<S, 2>, _place: Place) -> Tile<S, 2> {
        sums * self.factor.cast::<S>()
    }
}

impl<S: Float> Epilogue<S> for Scale<f32> {
    type Kernel = Scale<Scalar<f32>>;
    type Arg<'x> = Scale<f32>;

    fn arg(&mut self) -> Scale<f32> {
        *self
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        Ok(extents)
    }
}
