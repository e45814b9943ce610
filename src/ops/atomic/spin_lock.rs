//! A lock in memory, which tile blocks take one after another.

use crate::ops::control::loops::while_loop;
use crate::ops::memory::element::EntryMut;
use crate::ops::memory::memory_order::Scope;
use crate::ops::{AtomicOptions, ScatterOptions};
use crate::tile::{caller_location, with_location};

/// A lock: an element of an array, 0 where nobody has it and 1 where a tile block does. The array is zeroed before
/// kernels use it.
///
/// What one tile block did under the lock has happened for the next one that has it: ordinary loads and stores do. Two
/// locks that are taken in different orders may wait for each other for ever, as everywhere.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn add(lock: ArrayMut<i32, 1>, sums: ArrayMut<f32, 1>) {
///     ct::Lock::new(lock.entry(0)).with(|| {
///         sums.store(0, sums.load(0, [4]) + ct::arange(4, 0.0, 1.0));
///     });
/// }
///
/// let device = ct::Device::cpu();
/// let (mut lock, mut sums) = (device.zeros([1])?, device.zeros([4])?);
/// ct::launch(add, 50, (&mut lock, &mut sums))?;
/// assert_eq!(sums.to_vec()?, [0.0, 50.0, 100.0, 150.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Lock<const R: usize> {
    entry: EntryMut<i32, R>,
}

impl<const R: usize> Lock<R> {
    /// The lock that this element is.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Waits until nobody has the lock, takes it, runs `body`, and gives it back.
    ///
    /// A body that ends the kernel ([`return_if`](crate::return_if)) keeps the lock.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Waits until nobody has the lock, and takes it: what those before did has happened.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Gives the lock back: what this tile block did has happened for the next one that takes it.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // GraphResource by the host's choice from the start: the first launch gives it back.
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
