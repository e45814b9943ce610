//! Arrays inside kernels: handles of a pointer, extents and strides, which the launch passes.

use std::marker::PhantomData;
use std::ops::Deref;

/// A read-only array in device memory with elements of type `T` and `R` dimensions.
///
/// The launch makes it from a shared reference to a device array. `Copy`: a handle.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [4]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([6], 2.0f32)?, ct::Device::cpu().zeros([6])?);
/// ct::launch(copy, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2.0; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Array<T, const R: usize> {
    pub(crate) handle: ArrayHandle,
    element: PhantomData<T>,
}

/// A writable array in device memory with elements of type `T` and `R` dimensions.
///
/// The launch makes it from a unique reference to a device array. `Copy`: a handle. Tile blocks are
/// executed at the same time in any order: two of them must not write the same element.
///
/// It dereferences to an [`Array`] of the same memory, as `&mut [T]` does to `&[T]`: loads,
/// gathers, extents and strides are methods of [`Array`].
///
/// ```
/// # use cutlet::doctest::*;
/// fn double(x: ArrayMut<f32, 1>) {
///     x.store(ct::bid(0), x.load(ct::bid(0), [4]) * 2.0);
/// }
///
/// let mut x = ct::Device::cpu().full([6], 2.0f32)?;
/// ct::launch(double, 2, (&mut x,))?;
/// assert_eq!(x.to_vec()?, [4.0; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArrayMut<T, const R: usize> {
    array: Array<T, R>,
}

/// Index into the list of arrays of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayHandle {
    pub trace: u64,
    pub index: u32,
}

impl<T, const R: usize> Deref for ArrayMut<T, R> {
    type Target = Array<T, R>;

    fn deref(&self) -> &Array<T, R> {
        &self.array
    }
}

impl<T, const R: usize> Array<T, R> {
    pub(crate) fn from_handle(handle: ArrayHandle) -> Self {
        Array { handle, element: PhantomData }
    }
}

impl<T, const R: usize> ArrayMut<T, R> {
    pub(crate) fn from_handle(handle: ArrayHandle) -> Self {
        ArrayMut { array: Array::from_handle(handle) }
    }
}
