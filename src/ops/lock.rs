//! A lock in memory, which tile blocks take one after another.

use super::control::while_loop;
use super::entry::EntryMut;
use super::order::Scope;
use super::{AtomicOptions, ScatterOptions};
use crate::tile::{at_place, here};

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
    #[must_use]
    pub fn new(entry: EntryMut<i32, R>) -> Lock<R> {
        Lock { entry }
    }

    /// Waits until nobody has the lock, takes it, runs `body`, and gives it back.
    ///
    /// A body that ends the kernel ([`return_if`](crate::return_if)) keeps the lock.
    #[track_caller]
    pub fn with<S>(self, body: impl FnOnce() -> S) -> S {
        self.take();
        let result = body();
        self.give_back();
        result
    }

    /// Waits until nobody has the lock, and takes it: what those before did has happened.
    #[track_caller]
    pub fn take(self) {
        let acquire = AtomicOptions::new().acquire(Scope::Device);
        at_place(here(), || while_loop((), |()| self.entry.atomic_cas_with(0, 1, acquire).ne(0), |()| ()));
    }

    /// Gives the lock back: what this tile block did has happened for the next one that takes it.
    #[track_caller]
    pub fn give_back(self) {
        self.entry.store_with(0, ScatterOptions::new().release(Scope::Device));
    }
}
