//! A spin lock in memory: at most one tile block holds it at a time.

use crate::ops::control::loops::while_loop;
use crate::ops::memory::element::EntryMut;
use crate::ops::memory::memory_order::Scope;
use crate::ops::{AtomicOptions, ScatterOptions};
use crate::tile::{caller_location, with_location};

/// A lock: an element of an array, 0 if it is free and 1 if a tile block holds it. The array is
/// zeroed before kernels use it.
///
/// Accesses of a tile block that holds the lock happen before those of the next holder: ordinary
/// loads and stores suffice. Two locks that are acquired in different orders may deadlock.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn add(lock: ArrayMut<i32, 1>, sums: ArrayMut<f32, 1>) {
///     ct::Lock::new(lock.entry(0)).with(|| {
///         sums.store(0, sums.load(0, [4]) + ct::arange_from(4, 0.0, 1.0));
///     });
/// }
///
/// let device = ct::Device::cpu();
/// let (mut lock, mut sums) = (device.zeros([1])?, device.zeros([4])?);
/// ct::launch(add, 50, (&mut lock, &mut sums))?;
/// assert_eq!(sums.to_vec()?, [0.0, 50.0, 100.0, 150.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lock<const R: usize> {
    entry: EntryMut<i32, R>,
}

impl<const R: usize> Lock<R> {
    /// Makes a lock of an element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn add(lock: ArrayMut<i32, 1>, sum: ArrayMut<i32, 1>) {
    ///     ct::Lock::new(lock.entry(0)).with(|| sum.store(0, sum.load(0, [1]) + 1));
    /// }
    ///
    /// let (mut lock, mut sum) = (ct::Device::cpu().zeros([1])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(add, 20, (&mut lock, &mut sum))?;
    /// assert_eq!(sum.to_vec()?, [20]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new(entry: EntryMut<i32, R>) -> Lock<R> {
        Lock { entry }
    }

    /// Waits until the lock is free, acquires it, runs `body`, and releases it.
    ///
    /// A body that ends the kernel ([`return_if`](crate::return_if)) does not release the lock.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn numbered(lock: ArrayMut<i32, 1>, next: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let mine = ct::Lock::new(lock.entry(0)).with(|| {
    ///         let mine = next.load_scalar(0);
    ///         next.store_scalar(0, mine + 1);
    ///         mine
    ///     });
    ///     y.store_scalar(mine, 1);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (mut lock, mut next, mut y) = (device.zeros([1])?, device.zeros([1])?, device.zeros([9])?);
    /// ct::launch(numbered, 9, (&mut lock, &mut next, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1; 9]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn with<S>(self, body: impl FnOnce() -> S) -> S {
        self.take();
        let result = body();
        self.give_back();
        result
    }

    /// Waits until the lock is free, and acquires it: all accesses of earlier holders have
    /// happened.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn add(lock: ArrayMut<i32, 1>, sum: ArrayMut<i32, 1>) {
    ///     let lock = ct::Lock::new(lock.entry(0));
    ///     lock.take();
    ///     sum.store(0, sum.load(0, [1]) + 1);
    ///     lock.give_back();
    /// }
    ///
    /// let (mut lock, mut sum) = (ct::Device::cpu().zeros([1])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(add, 20, (&mut lock, &mut sum))?;
    /// assert_eq!(sum.to_vec()?, [20]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn take(self) {
        let acquire = AtomicOptions::new().acquire(Scope::Device);
        with_location(caller_location(), || {
            while_loop((), |()| self.entry.atomic_cas_with(0, 1, acquire).ne(0), |()| ())
        });
    }

    /// Releases the lock: all accesses of this tile block happen before those of the next holder.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// // The host makes the lock in the locked state.
    /// fn open(lock: ArrayMut<i32, 1>) {
    ///     ct::Lock::new(lock.entry(0)).give_back();
    /// }
    ///
    /// let mut lock = ct::Device::cpu().full([1], 1)?;
    /// ct::launch(open, 1, (&mut lock,))?;
    /// assert_eq!(lock.to_vec()?, [0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn give_back(self) {
        self.entry.store_with(0, ScatterOptions::new().release(Scope::Device));
    }
}
