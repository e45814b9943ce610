//! Sums of rows and of columns of the values. The order of the additions differs between launches.

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::{check_columns, check_rows};
use super::{Argument, Epilogue, Extents, Place, Stage};

/// Adds the sums of rows to a vector of f32.
#[derive(Clone, Copy, Debug)]
pub struct RowSums<A> {
    pub(crate) array: A,
}
ct::impl_kernel_args!(RowSums<A> { array });

impl<S: Float> Stage<S> for RowSums<ArrayMut<f32, 1>> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let [m, n] = sums.shape();
        // A bias or a function of the caller may be other than zero after the last column.
        let is_inside = place.column_indices(n).lt(place.extents[1]);
        let of_rows = ct::select(is_inside, sums.cast::<f32>(), 0.0).sum(1).reshape([m]);
        let array = place.group.map_or(self.array, |[begin, end]| self.array.slice(0, begin..end));
        array.atomic_store_add(place.row, of_rows);
        sums
    }
}

/// Adds the sums of columns to a vector of f32.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSums<A> {
    pub(crate) array: A,
}
ct::impl_kernel_args!(ColumnSums<A> { array });

impl<S: Float> Stage<S> for ColumnSums<ArrayMut<f32, 1>> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let [m, n] = sums.shape();
        let is_inside = place.row_indices(m).lt(place.extents[0]);
        let of_columns = ct::select(is_inside, sums.cast::<f32>(), 0.0).sum(0).reshape([n]);
        self.array.atomic_store_add(place.column, of_columns);
        sums
    }
}

macro_rules! arguments {
    ($($name:ident by $check:ident $called:literal;)+) => {$(
        impl<S: Float, A: Argument<Kernel = ArrayMut<f32, 1>>> Epilogue<S> for $name<A> {
            type Kernel = $name<ArrayMut<f32, 1>>;
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
}
arguments! {
    RowSums by check_rows "sums of rows";
    ColumnSums by check_columns "sums of columns";
}
