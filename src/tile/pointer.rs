//! Pointers inside kernels.

use std::marker::PhantomData;

use super::handle::Handle;
use super::trace::ValueHandle;
use crate::sealed::Sealed;

/// The address of an element of type `T` in device memory. `Copy`: a handle.
///
/// The operations and their purpose are in [`pointer`](crate::pointer).
///
/// ```
/// # use cutlet::doctest::*;
/// fn second(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let first: ct::Ptr<i32> = x.pointer();
///     // SAFETY: launched with two elements.
///     y.store_scalar(0, unsafe { first.offset(1).load() });
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2], [2])?, ct::Device::cpu().zeros([1])?);
/// ct::launch(second, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct Ptr<T> {
    raw: ValueHandle,
    element: PhantomData<T>,
}

/// A tile of addresses of elements of type `T`, with `N` axes. `Copy`: a handle.
///
/// The operations and their purpose are in [`pointer`](crate::pointer).
///
/// ```
/// # use cutlet::doctest::*;
/// fn both(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     // SAFETY: launched with two elements.
///     let all: ct::PtrTile<i32, 1> = unsafe { x.pointer().offset(0..2) };
///     // SAFETY: as above.
///     y.store(0, unsafe { all.load() });
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2], [2])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(both, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct PtrTile<T, const N: usize> {
    raw: ValueHandle,
    element: PhantomData<T>,
}

macro_rules! pointer_handle {
    ($([$($generics:tt)*] $ty:ty, $name:ident;)+) => {$(
        impl<$($generics)*> Clone for $ty {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($generics)*> Copy for $ty {}

        impl<$($generics)*> Sealed for $ty {}
        impl<$($generics)*> Handle for $ty {
            fn raw(self) -> ValueHandle {
                self.raw
            }
            fn from_raw(raw: ValueHandle) -> Self {
                $name { raw, element: PhantomData }
            }
        }
    )+};
}
pointer_handle! { [T] Ptr<T>, Ptr; [T, const N: usize] PtrTile<T, N>, PtrTile; }
