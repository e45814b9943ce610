//! Pointers inside kernels.

use std::marker::PhantomData;

use super::context::Raw;
use super::handle::sealed::Handle;

/// The address of an element of type `T` in device memory. `Copy`: a handle.
///
/// What can be done with it, and what for: [`pointer`](crate::pointer).
#[derive(Debug)]
pub struct Ptr<T> {
    raw: Raw,
    element: PhantomData<T>,
}

/// A tile of addresses of elements of type `T`, with `N` axes. `Copy`: a handle.
///
/// What can be done with it, and what for: [`pointer`](crate::pointer).
#[derive(Debug)]
pub struct PtrTile<T, const N: usize> {
    raw: Raw,
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

        impl<$($generics)*> Handle for $ty {
            fn raw(self) -> Raw {
                self.raw
            }
            fn from_raw(raw: Raw) -> Self {
                $name { raw, element: PhantomData }
            }
        }
    )+};
}
pointer_handle! { [T] Ptr<T>, Ptr; [T, const N: usize] PtrTile<T, N>, PtrTile; }
