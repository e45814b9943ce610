//! Epilogues on the host and in the kernel: traits, and arrays that are their arguments.

use std::slice::Iter;

use cutlet as ct;
use cutlet::element::Float;
use cutlet::kernel::IntoKernelArg;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut};

use super::{Place, Plain};
use crate::check::require;

/// An epilogue in the kernel.
pub trait Stage<S: Float> {
    /// Returns the values for a tile of sums.
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2>;

    /// Returns columns of `m` values, one for each row of a tile, which strips of its columns
    /// share.
    fn of_rows(&self, _place: Place, _m: usize) -> Vec<Tile<S, 2>> {
        Vec::new()
    }

    /// Returns the values for a strip of a tile, with the next columns of [`Stage::of_rows`].
    fn apply_strip(&self, sums: Tile<S, 2>, place: Place, _of_rows: &mut Iter<'_, Tile<S, 2>>) -> Tile<S, 2> {
        self.apply(sums, place)
    }

    /// Returns true if the values are the sums.
    fn is_plain(&self) -> bool {
        false
    }
}

/// Extents of a result before an epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Matrices of the batch, or groups of rows.
    pub batches: usize,
    /// Rows of a matrix, or of all groups.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// True for groups of rows.
    pub is_grouped: bool,
}

/// An epilogue on the host, with its arrays.
pub trait Epilogue<S: Float> {
    /// The epilogue in the kernel.
    type Kernel: Stage<S>;
    /// The argument of a launch.
    type Arg<'x>: IntoKernelArg<Self::Kernel>
    where
        Self: 'x;

    /// Returns the argument of a launch.
    fn arg(&mut self) -> Self::Arg<'_>;

    /// Checks the shapes of the arrays. Returns the extents of the result.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for other shapes.
    #[track_caller]
    fn check(&self, extents: Extents) -> ct::Result<Extents>;

    /// Returns true if the values are the sums.
    fn is_plain(&self) -> bool {
        false
    }

    /// Returns the number of columns of which a tile has a multiple.
    fn width(&self) -> usize {
        1
    }

    /// Returns the number of columns of sums for a column of the result.
    fn narrowing(&self) -> usize {
        1
    }
}

impl<S: Float> Stage<S> for Plain {
    fn apply(&self, sums: Tile<S, 2>, _place: Place) -> Tile<S, 2> {
        sums
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl<S: Float> Epilogue<S> for Plain {
    type Kernel = Plain;
    type Arg<'x> = ct::Constant<Plain>;

    fn arg(&mut self) -> ct::Constant<Plain> {
        ct::Constant(Plain)
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        Ok(extents)
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// An array or number of a stage: a view, a mutable view, a number of type f32, or a tuple of
/// arguments.
pub trait Argument {
    /// Its value in the kernel.
    type Kernel: Copy;
    /// The argument of a launch.
    type Arg<'x>: IntoKernelArg<Self::Kernel>
    where
        Self: 'x;

    /// Returns the argument of a launch.
    fn arg(&mut self) -> Self::Arg<'_>;

    /// Returns the extents of the array; none for numbers and tuples.
    fn extents(&self) -> Vec<usize> {
        Vec::new()
    }
}

impl<T: Element, const R: usize> Argument for DeviceView<'_, T, R> {
    type Kernel = Array<T, R>;
    type Arg<'x>
        = DeviceView<'x, T, R>
    where
        Self: 'x;

    fn arg(&mut self) -> DeviceView<'_, T, R> {
        *self
    }

    fn extents(&self) -> Vec<usize> {
        self.shape().to_vec()
    }
}

impl<'a, T: Element, const R: usize> Argument for DeviceViewMut<'a, T, R> {
    type Kernel = ArrayMut<T, R>;
    type Arg<'x>
        = &'x mut DeviceViewMut<'a, T, R>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        self
    }

    fn extents(&self) -> Vec<usize> {
        self.shape().to_vec()
    }
}

impl Argument for f32 {
    type Kernel = Scalar<f32>;
    type Arg<'x> = f32;

    fn arg(&mut self) -> f32 {
        *self
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))+) => {$(
        #[allow(clippy::unused_unit)]
        impl<$($name: Argument),*> Argument for ($($name,)*) {
            type Kernel = ($($name::Kernel,)*);
            type Arg<'x> = ($($name::Arg<'x>,)*) where Self: 'x;

            fn arg(&mut self) -> Self::Arg<'_> {
                ($(self.$index.arg(),)*)
            }
        }
    )+};
}
tuples! { () (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// Checks that an array has an element for each element of the result.
#[track_caller]
pub(super) fn check_matrix(name: &str, shape: &[usize], of: Extents) -> ct::Result<()> {
    let fits = match *shape {
        [rows, columns] => [rows, columns] == [of.rows, of.columns] && (of.batches == 1 || of.is_grouped),
        [batches, rows, columns] => [batches, rows, columns] == [of.batches, of.rows, of.columns] && !of.is_grouped,
        _ => false,
    };
    require(fits, || format!("{name} of shape {shape:?} for {}", text(of)))
}

/// Checks that an array has an element for each column of the result: a vector, or a row for each
/// matrix or group.
#[track_caller]
pub(super) fn check_columns(name: &str, shape: &[usize], of: Extents) -> ct::Result<()> {
    let fits = match *shape {
        [columns] => columns == of.columns,
        [batches, columns] => [batches, columns] == [of.batches, of.columns],
        _ => false,
    };
    require(fits, || format!("{name} of shape {shape:?} for {}", text(of)))
}

/// Checks that an array has an element for each row of the result: a vector, or a row for each
/// matrix.
#[track_caller]
pub(super) fn check_rows(name: &str, shape: &[usize], of: Extents) -> ct::Result<()> {
    let fits = match *shape {
        [rows] => rows == of.rows && (of.batches == 1 || of.is_grouped),
        [batches, rows] => [batches, rows] == [of.batches, of.rows] && !of.is_grouped,
        _ => false,
    };
    require(fits, || format!("{name} of shape {shape:?} for {}", text(of)))
}

/// Describes a result in messages.
pub(super) fn text(Extents { batches, rows, columns, is_grouped }: Extents) -> String {
    match (batches, is_grouped) {
        (1, false) => format!("a result of shape {:?}", [rows, columns]),
        (_, false) => format!("a result of shape {:?}", [batches, rows, columns]),
        (_, true) => format!("a result of shape {:?} in {batches} groups", [rows, columns]),
    }
}
