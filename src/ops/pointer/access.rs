//! Loads and stores through pointers.

use crate::element::Whole;
use crate::ops::gather::{GatherOptions, ScatterOptions, load_from, store_to};
use crate::ops::operand::Operand;
use crate::ops::places::Target;
use crate::tile::{Handle, Ptr, PtrTile, Scalar, Tile};

macro_rules! accesses {
    ($([$($generics:tt)*] $ty:ty, $rank:expr, $values:ty;)+) => {$(
        impl<T: Whole, $($generics)*> $ty {
            /// What is there.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer).
            #[track_caller]
            #[must_use]
            pub unsafe fn load(self) -> $values {
                // SAFETY: the caller's promise.
                unsafe { self.load_with(GatherOptions::new()) }
            }

            /// What is there, with mask, padding, order and hints as stated. (There are no bounds to be checked.)
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer), where the mask is true.
            #[track_caller]
            #[must_use]
            pub unsafe fn load_with(self, options: GatherOptions<T, { $rank }>) -> $values {
                Handle::from_raw(load_from("load", Target::Pointers(self.raw()), options))
            }

            /// Writes there. Of several values for one element one is written; which one is open.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer).
            #[track_caller]
            pub unsafe fn store(self, value: impl Operand<$values>) {
                // SAFETY: the caller's promise.
                unsafe { self.store_with(value, ScatterOptions::new()) };
            }

            /// Writes there, with mask, order and hints as stated. (There are no bounds to be checked.)
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer), where the mask is true.
            #[track_caller]
            pub unsafe fn store_with(self, value: impl Operand<$values>, options: ScatterOptions<{ $rank }>) {
                store_to("store", T::DTYPE, Target::Pointers(self.raw()), value.source(), options);
            }
        }
    )+};
}
accesses! {
    [] Ptr<T>, 0, Scalar<T>;
    [const N: usize] PtrTile<T, N>, N, Tile<T, N>;
}
