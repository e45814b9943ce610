//! Atomic operations through pointers.

use crate::element::ByteSized;
use crate::ops::atomic::atomic_rmw::{
    AtomicAdd, AtomicBits, AtomicMinMax, AtomicOptions, AtomicXchg, Deed, atomic_on, example,
};
use crate::ops::memory::element_index::Target;
use crate::ops::support::operand::Operand;
use crate::tile::{Handle, Ptr, PtrTile, Scalar, Tile};

macro_rules! atomics {
    ([$($generics:tt)*] $ty:ty, $rank:expr, $values:ty, $offset:literal, $first:literal;
     $($bound:ident $deed:ident $name:ident $with:ident $after:literal;)+) => {
        impl<T: ByteSized, $($generics)*> $ty {
            $(
                #[doc = concat!("[`ArrayMut::", stringify!($name), "`](crate::ArrayMut::", stringify!($name), ")")]
                /// of what is there.
                ///
                #[doc = example!(
                    "x: ArrayMut<i32, 1>", "// SAFETY: launched with two elements.\n    let old = unsafe { x.pointer().offset(",
                    $offset, ").", stringify!($name), "(3) }", $first, ";"; $after
                )]
                ///
                /// # Safety
                /// The contract of [`pointer`](crate::pointer).
                #[track_caller]
                pub unsafe fn $name(self, value: impl Operand<$values>) -> $values
                where
                    T: $bound,
                {
                    // SAFETY: the caller's promise.
                    unsafe { self.$with(value, AtomicOptions::new()) }
                }

                #[doc = concat!("[`ArrayMut::", stringify!($with), "`](crate::ArrayMut::", stringify!($with), ")")]
                /// of what is there. (There are no bounds to be checked.)
                ///
                #[doc = example!(
                    "x: ArrayMut<i32, 1>", "let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);\n    ",
                    "// SAFETY: launched with two elements.\n    let old = unsafe { x.pointer().offset(", $offset, ").",
                    stringify!($with), "(3, options) }", $first, ";"; $after
                )]
                ///
                /// # Safety
                /// The contract of [`pointer`](crate::pointer), where the mask is true.
                #[track_caller]
                pub unsafe fn $with(
                    self,
                    value: impl Operand<$values>,
                    options: AtomicOptions<{ $rank }>,
                ) -> $values
                where
                    T: $bound,
                {
                    let target = Target::Pointers(self.raw());
                    let old =
                        atomic_on::<T, { $rank }>(stringify!($name), target, Deed::$deed, value.source(), options);
                    Handle::from_raw(old)
                }
            )+
        }

        impl<T: AtomicXchg, $($generics)*> $ty {
            /// [`ArrayMut::atomic_cas`](crate::ArrayMut::atomic_cas) of what is there.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer).
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn win(winner: ArrayMut<i32, 1>) {
            ///     // SAFETY: launched with an array of one element.
            ///     let _before = unsafe { winner.pointer().atomic_cas(-1, ct::bid(0)) };
            /// }
            ///
            /// let mut winner = ct::Device::cpu().full([1], -1)?;
            /// ct::launch(win, 8, (&mut winner,))?;
            /// assert!((0..8).contains(&winner.to_vec()?[0]));
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub unsafe fn atomic_cas(self, expected: impl Operand<$values>, desired: impl Operand<$values>) -> $values {
                // SAFETY: the caller's promise.
                unsafe { self.atomic_cas_with(expected, desired, AtomicOptions::new()) }
            }

            /// [`ArrayMut::atomic_cas_with`](crate::ArrayMut::atomic_cas_with) of what is there. (There are no bounds to
            /// be checked.)
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer), where the mask is true.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn win(winner: ArrayMut<i32, 1>) {
            ///     let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);
            ///     // SAFETY: launched with an array of one element.
            ///     let _before = unsafe { winner.pointer().atomic_cas_with(-1, ct::bid(0), options) };
            /// }
            ///
            /// let mut winner = ct::Device::cpu().full([1], -1)?;
            /// ct::launch(win, 8, (&mut winner,))?;
            /// assert!((0..8).contains(&winner.to_vec()?[0]));
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            pub unsafe fn atomic_cas_with(
                self,
                expected: impl Operand<$values>,
                desired: impl Operand<$values>,
                options: AtomicOptions<{ $rank }>,
            ) -> $values {
                let (target, deed) = (Target::Pointers(self.raw()), Deed::Cas(expected.source()));
                let old = atomic_on::<T, { $rank }>("atomic_cas", target, deed, desired.source(), options);
                Handle::from_raw(old)
            }
        }
    };
}

macro_rules! for_both {
    ($($deeds:tt)+) => {
        atomics! { [] Ptr<T>, 0, Scalar<T>, "1", ""; $($deeds)+ }
        atomics! { [const N: usize] PtrTile<T, N>, N, Tile<T, N>, "1..2", ".item()"; $($deeds)+ }
    };
}
for_both! {
    AtomicAdd Add atomic_add atomic_add_with "9";
    AtomicAdd Sub atomic_sub atomic_sub_with "3";
    AtomicMinMax Max atomic_max atomic_max_with "6";
    AtomicMinMax Min atomic_min atomic_min_with "3";
    AtomicBits And atomic_and atomic_and_with "2";
    AtomicBits Or atomic_or atomic_or_with "7";
    AtomicBits Xor atomic_xor atomic_xor_with "5";
    AtomicXchg Xchg atomic_xchg atomic_xchg_with "3";
}
