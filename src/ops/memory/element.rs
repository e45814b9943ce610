//! Single elements of arrays, by element index: loads, stores and atomics with scalar results.

use std::marker::PhantomData;

use super::element_index::{Component, GatherIndex, Placed};
use super::gather_scatter::{GatherOptions, ScatterOptions};
use crate::element::ByteSized;
use crate::ir::Type;
use crate::ops::atomic::atomic_rmw::{AtomicAdd, AtomicBits, AtomicMinMax, AtomicOptions, AtomicXchg, example};
use crate::ops::support::operand::Operand;
use crate::tile::{Array, ArrayMut, Handle, Scalar, caller_location, record};

/// One element of an array, by its element index.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn pick(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
///     let entry: ct::ops::Entry<f32, 2> = x.entry((1, ct::bid(0)));
///     y.entry(ct::bid(0)).store(entry.load());
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1.0, 2.0, 3.0, 4.0], [2, 2])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(pick, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3.0, 4.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Entry<T, const R: usize> {
    array: Array<T, R>,
    index: [Component; R],
    element: PhantomData<T>,
}

/// One element of an array that this kernel may also write, by its element index.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn double(x: ArrayMut<f32, 1>) {
///     let entry: ct::ops::EntryMut<f32, 1> = x.entry(ct::bid(0));
///     entry.store(entry.load() * 2.0);
/// }
///
/// let mut x = ct::Device::cpu().array(&[1.0, 2.0], [2])?;
/// ct::launch(double, 2, (&mut x,))?;
/// assert_eq!(x.to_vec()?, [2.0, 4.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EntryMut<T, const R: usize> {
    array: ArrayMut<T, R>,
    index: [Component; R],
    element: PhantomData<T>,
}

macro_rules! entries {
    ($array:ident $entry:ident) => {
        impl<T: ByteSized, const R: usize> $array<T, R> {
            /// The element at an element index of scalars and numbers, to be loaded, stored and changed. Outside of the
            /// array it reads as zero and cannot be written.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// fn tickets(counter: ArrayMut<i32, 1>, mine: ArrayMut<i32, 1>) {
            ///     let ticket = counter.entry(0).atomic_add(1);
            ///     mine.entry(ct::bid(0)).store(ticket);
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let (mut counter, mut mine) = (device.zeros([1])?, device.zeros([5])?);
            /// ct::launch(tickets, 5, (&mut counter, &mut mine))?;
            /// let mut tickets = mine.to_vec()?;
            /// tickets.sort();
            /// assert_eq!(tickets, [0, 1, 2, 3, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn entry(self, index: impl GatherIndex<R, 0>) -> $entry<T, R> {
                $entry { array: self, index: index.components(), element: PhantomData }
            }
        }

        impl<T: ByteSized, const R: usize> $entry<T, R> {
            /// The element; zero outside of the array.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn last(x: ArrayMut<i32, 1>) {
            ///     let n = x.extent(0);
            ///     x.entry(0).store(x.entry(n - 1).load() + x.entry(n).load()); // the second one is 0
            /// }
            ///
            /// let mut x = ct::Device::cpu().array(&[1, 2, 3], [3])?;
            /// ct::launch(last, 1, (&mut x,))?;
            /// assert_eq!(x.to_vec()?, [3, 2, 3]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn load(self) -> Scalar<T> {
                self.load_with(GatherOptions::new())
            }

            /// The element with mask, padding, order and bounds check as stated.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn outside(x: ArrayMut<i32, 1>) {
            ///     x.entry(0).store(x.entry(7).load_with(ct::GatherOptions::new().padding(-1)));
            /// }
            ///
            /// let mut x = ct::Device::cpu().zeros([3])?;
            /// ct::launch(outside, 1, (&mut x,))?;
            /// assert_eq!(x.to_vec()?, [-1, 0, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn load_with(self, options: GatherOptions<T, 0>) -> Scalar<T> {
                Scalar::from_raw(self.array.gather_with(Placed(self.index), options).raw())
            }
        }
    };
}
entries!(Array Entry);
#[cfg(not(doctest))] // the examples are the same
entries!(ArrayMut EntryMut);

/// An operand as the scalar that it is or becomes.
#[track_caller]
fn scalar_of<T: ByteSized>(value: impl Operand<Scalar<T>>) -> Scalar<T> {
    let (place, source) = (caller_location(), value.source());
    Scalar::from_raw(record(|t| {
        t.at(place);
        match t.scalar(place, source, T::DTYPE) {
            Some(value) => t.raw(value),
            None => t.poison(Type::scalar(T::DTYPE)),
        }
    }))
}

impl<T: ByteSized, const R: usize> EntryMut<T, R> {
    /// Writes the element; does nothing outside of the array.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn fill(x: ArrayMut<i32, 2>) {
    ///     x.entry((ct::bid(0), ct::bid(1))).store(ct::bid(0) * 10 + ct::bid(1));
    /// }
    ///
    /// let mut x = ct::Device::cpu().zeros([2, 2])?;
    /// ct::launch(fill, [2, 2], (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [0, 1, 10, 11]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store(self, value: impl Operand<Scalar<T>>) {
        self.store_with(value, ScatterOptions::new());
    }

    /// Writes the element with mask, order and bounds check as stated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn ready(flag: ArrayMut<i32, 1>) {
    ///     flag.entry(0).store_with(1, ct::ScatterOptions::new().release(ct::Scope::Device));
    /// }
    ///
    /// let mut flag = ct::Device::cpu().zeros([1])?;
    /// ct::launch(ready, 1, (&mut flag,))?;
    /// assert_eq!(flag.to_vec()?, [1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store_with(self, value: impl Operand<Scalar<T>>, options: ScatterOptions<0>) {
        self.array.scatter_with(Placed(self.index), scalar_of::<T>(value), options);
    }
}

macro_rules! atomics {
    ($($bound:ident $name:ident $with:ident $after:literal;)+) => {$(
        impl<T: $bound, const R: usize> EntryMut<T, R> {
            #[doc = concat!("[`ArrayMut::", stringify!($name), "`] of this element.")]
            ///
            #[doc = example!("x: ArrayMut<i32, 1>", "let old = x.entry(1).", stringify!($name), "(3);"; $after)]
            #[track_caller]
            pub fn $name(self, value: impl Operand<Scalar<T>>) -> Scalar<T> {
                self.$with(value, AtomicOptions::new())
            }

            #[doc = concat!("[`ArrayMut::", stringify!($with), "`] of this element.")]
            ///
            #[doc = example!(
                "x: ArrayMut<i32, 1>", "let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);\n    ",
                "let old = x.entry(1).", stringify!($with), "(3, options);"; $after
            )]
            #[track_caller]
            pub fn $with(self, value: impl Operand<Scalar<T>>, options: AtomicOptions<0>) -> Scalar<T> {
                Scalar::from_raw(self.array.$with(Placed(self.index), scalar_of::<T>(value), options).raw())
            }
        }
    )+};
}
atomics! {
    AtomicAdd atomic_add atomic_add_with "9";
    AtomicAdd atomic_sub atomic_sub_with "3";
    AtomicMinMax atomic_max atomic_max_with "6";
    AtomicMinMax atomic_min atomic_min_with "3";
    AtomicBits atomic_and atomic_and_with "2";
    AtomicBits atomic_or atomic_or_with "7";
    AtomicBits atomic_xor atomic_xor_with "5";
    AtomicXchg atomic_xchg atomic_xchg_with "3";
}

impl<T: AtomicXchg, const R: usize> EntryMut<T, R> {
    /// [`ArrayMut::atomic_cas`] of this element.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn win(winner: ArrayMut<i32, 1>) {
    ///     let _before = winner.entry(0).atomic_cas(-1, ct::bid(0));
    /// }
    ///
    /// let mut winner = ct::Device::cpu().full([1], -1)?;
    /// ct::launch(win, 8, (&mut winner,))?;
    /// assert!((0..8).contains(&winner.to_vec()?[0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn atomic_cas(self, expected: impl Operand<Scalar<T>>, desired: impl Operand<Scalar<T>>) -> Scalar<T> {
        self.atomic_cas_with(expected, desired, AtomicOptions::new())
    }

    /// [`ArrayMut::atomic_cas_with`] of this element.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn win(winner: ArrayMut<i32, 1>) {
    ///     let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);
    ///     let _before = winner.entry(0).atomic_cas_with(-1, ct::bid(0), options);
    /// }
    ///
    /// let mut winner = ct::Device::cpu().full([1], -1)?;
    /// ct::launch(win, 8, (&mut winner,))?;
    /// assert!((0..8).contains(&winner.to_vec()?[0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn atomic_cas_with(
        self,
        expected: impl Operand<Scalar<T>>,
        desired: impl Operand<Scalar<T>>,
        options: AtomicOptions<0>,
    ) -> Scalar<T> {
        let index = Placed(self.index);
        Scalar::from_raw(
            self.array.atomic_cas_with(index, scalar_of::<T>(expected), scalar_of::<T>(desired), options).raw(),
        )
    }
}
