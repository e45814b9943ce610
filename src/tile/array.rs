//! Arrays inside kernels: handles of a pointer, extents and strides, which the launch passes.

use std::marker::PhantomData;

/// A read-only array in device memory with elements of type `T` and `R` dimensions.
///
/// The launch makes it from a shared reference to a device array. `Copy`: a handle.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [4]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([6], 2.0f32)?, ct::Device::cpu().zeros([6])?);
/// ct::launch(copy, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2.0; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct Array<T, const R: usize> {
    pub(crate) handle: ArrayHandle,
    element: PhantomData<T>,
}

/// A writable array in device memory with elements of type `T` and `R` dimensions.
///
/// The launch makes it from a unique reference to a device array. `Copy`: a handle. Tile blocks are
/// executed at the same time in any order: two of them must not write the same element.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn double(x: ArrayMut<f32, 1>) {
///     x.store(ct::bid(0), x.load(ct::bid(0), [4]) * 2.0);
/// }
///
/// let mut x = ct::Device::cpu().full([6], 2.0f32)?;
/// ct::launch(double, 2, (&mut x,))?;
/// assert_eq!(x.to_vec()?, [4.0; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct ArrayMut<T, const R: usize> {
    pub(crate) handle: ArrayHandle,
    element: PhantomData<T>,
}

/// Index into the list of arrays of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayHandle {
    pub trace: u64,
    pub index: u32,
}

macro_rules! array_handle {
    ($name:ident) => {
        impl<T, const R: usize> Clone for $name<T, R> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T, const R: usize> Copy for $name<T, R> {}

        impl<T, const R: usize> $name<T, R> {
            pub(crate) fn from_handle(handle: ArrayHandle) -> Self {
                $name { handle, element: PhantomData }
            }
        }
    };
}
array_handle!(Array);
array_handle!(ArrayMut);
