//! Tables of arrays inside kernels.

use std::marker::PhantomData;

use super::context::Raw;
use crate::kernel::ArrayFacts;

/// Arrays in device memory with elements of type `T` and `R` dimensions each, to be chosen from when the kernel runs;
/// read only. Made by the launch from an [`ArrayTable`](crate::ArrayTable). `Copy`: a handle.
#[derive(Debug)]
pub struct Arrays<T, const R: usize> {
    pub(crate) handle: TableHandle,
    element: PhantomData<T>,
}

/// [`Arrays`] that this kernel may also write. Made by the launch from an [`ArrayTableMut`](crate::ArrayTableMut).
/// `Copy`: a handle.
#[derive(Debug)]
pub struct ArraysMut<T, const R: usize> {
    pub(crate) handle: TableHandle,
    element: PhantomData<T>,
}

/// What a table is in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHandle {
    /// Where its words are: for each array the distance in bytes from the first one, extents, strides; as i64.
    pub words: Raw,
    /// The address of the first array.
    pub first: Raw,
    /// The number of arrays, as i32.
    pub count: Raw,
    /// What the launch knows of all of them.
    pub facts: ArrayFacts,
}

macro_rules! table_handle {
    ($($name:ident)+) => {$(
        impl<T, const R: usize> Clone for $name<T, R> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T, const R: usize> Copy for $name<T, R> {}

        impl<T, const R: usize> $name<T, R> {
            pub(crate) fn from_handle(handle: TableHandle) -> Self {
                $name { handle, element: PhantomData }
            }
        }
    )+};
}
table_handle!(Arrays ArraysMut);
