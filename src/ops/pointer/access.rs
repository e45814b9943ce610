//! Loads and stores through pointers.

use crate::element::ByteSized;
use crate::ops::memory::element_index::Target;
use crate::ops::memory::gather_scatter::{GatherOptions, ScatterOptions, load_from, store_to};
use crate::ops::support::operand::Operand;
use crate::tile::{Handle, Ptr, PtrTile, Scalar, Tile};

macro_rules! accesses {
    ($([$($generics:tt)*] $ty:ty, $rank:tt, $values:ty;)+) => {$(
        impl<T: ByteSized, $($generics)*> $ty {
            /// Loads the elements at the addresses.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer).
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn ends(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     let first = x.pointer();
            ///     // SAFETY: launched with four elements.
            ///     let (all, last) = unsafe { (first.offset(0..4).load(), first.offset(3).load()) };
            ///     y.store(0, all + last);
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(ends, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [5, 6, 7, 8]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub unsafe fn load(self) -> $values {
                // SAFETY: the caller's promise.
                unsafe { self.load_with(GatherOptions::new()) }
            }

            /// Loads elements with options, as [`Self::load`]. No bounds are checked.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer), where the mask is true.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn head(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     let i = ct::arange(0..4);
            ///     let options = ct::GatherOptions::new().mask(i.lt(x.extent(0))).padding(-1);
            ///     // SAFETY: the mask keeps inside of the array.
            ///     y.store(0, unsafe { x.pointer().offset(i).load_with(options) });
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3], [3])?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(head, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 2, 3, -1]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub unsafe fn load_with(self, options: GatherOptions<T, $rank>) -> $values {
                Handle::from_raw(load_from("load", Target::Pointers(self.raw()), options))
            }

            /// Stores values at the addresses. Of several values for one element an unspecified one
            /// is written.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer).
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn fill(y: ArrayMut<i32, 1>) {
            ///     // SAFETY: launched with four elements.
            ///     unsafe { y.pointer().offset(0..4).store(7) };
            /// }
            ///
            /// let mut y = ct::Device::cpu().zeros([4])?;
            /// ct::launch(fill, 1, (&mut y,))?;
            /// assert_eq!(y.to_vec()?, [7; 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub unsafe fn store(self, value: impl Operand<$values>) {
                // SAFETY: the caller's promise.
                unsafe { self.store_with(value, ScatterOptions::new()) };
            }

            /// Stores values with options, as [`Self::store`]. No bounds are checked.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer), where the mask is true.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn fill(y: ArrayMut<i32, 1>) {
            ///     let i = ct::arange(0..4);
            ///     // SAFETY: the mask keeps inside of the array.
            ///     unsafe { y.pointer().offset(i).store_with(i, ct::ScatterOptions::new().mask(i.lt(y.extent(0)))) };
            /// }
            ///
            /// let mut y = ct::Device::cpu().zeros([3])?;
            /// ct::launch(fill, 1, (&mut y,))?;
            /// assert_eq!(y.to_vec()?, [0, 1, 2]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub unsafe fn store_with(self, value: impl Operand<$values>, options: ScatterOptions<$rank>) {
                store_to("store", T::DTYPE, Target::Pointers(self.raw()), value.source(), options);
            }
        }
    )+};
}
accesses! {
    [] Ptr<T>, 0, Scalar<T>;
    [const N: usize] PtrTile<T, N>, N, Tile<T, N>;
}
