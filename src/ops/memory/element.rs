//! Single elements of arrays, by element index: loads and stores of scalars.

use std::ops::Deref;

use super::element_index::{Component, GatherIndex, Target};
use super::gather_scatter::{GatherOptions, ScatterOptions, load_from, store_to};
use crate::element::ByteSized;
use crate::ops::support::operand::Operand;
use crate::tile::{Array, ArrayMut, Handle, Scalar};

/// One element of an array, by its element index.
///
/// ```
/// # use cutlet::doctest::*;
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
}

/// One element of an array that this kernel may also write, by its element index. It dereferences
/// to an [`Entry`], which has the methods that load.
///
/// ```
/// # use cutlet::doctest::*;
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
    entry: Entry<T, R>,
}

impl<T, const R: usize> Deref for EntryMut<T, R> {
    type Target = Entry<T, R>;

    fn deref(&self) -> &Entry<T, R> {
        &self.entry
    }
}

macro_rules! entries {
    ($array:ident $entry:ident, $make:path) => {
        impl<T: ByteSized, const R: usize> $array<T, R> {
            /// Returns the element at an element index of scalars and numbers, for loads, stores
            /// and atomics. Outside of the array it reads as zero and is not written.
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
                $make(Entry { array: Array::from_handle(self.handle), index: index.components() })
            }
        }
    };
}
entries!(Array Entry, std::convert::identity);
entries!(ArrayMut EntryMut, EntryMut::of);

impl<T: ByteSized, const R: usize> Entry<T, R> {
    pub(crate) fn target(&self) -> Target<'_> {
        Target::Elements { array: self.array.handle, index: &self.index }
    }

    /// Loads the element; zero outside of the array.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
    pub fn load(&self) -> Scalar<T> {
        self.load_with(GatherOptions::new())
    }

    /// Loads the element with options, as [`Self::load`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
    pub fn load_with(&self, options: GatherOptions<T, 0>) -> Scalar<T> {
        Scalar::from_raw(load_from("gather", self.target(), options))
    }
}

impl<T: ByteSized, const R: usize> EntryMut<T, R> {
    fn of(entry: Entry<T, R>) -> Self {
        EntryMut { entry }
    }

    /// Stores the element. Outside of the array nothing is written.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Stores the element with options, as [`Self::store`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
        store_to("scatter", T::DTYPE, self.target(), value.source(), options);
    }
}
