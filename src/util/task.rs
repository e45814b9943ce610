//! Thread-local state during a function of the user, and its separation from tasks of a pool.
//!
//! A thread of a rayon pool that waits (`join`, `scope`, a parallel iterator, `yield_now`) runs
//! other tasks of the pool on its stack. Thread-local state applies to these tasks as well,
//! although they are not part of the waiting function. Each user of [`Scoped`] defines how it
//! separates the function from the tasks:
//!
//! * a trace (`tile::trace`): a launch inside of a kernel is a task, and suspends the trace;
//! * a recording (`runtime::graph::recorder`): a use of an array that only the graph owns belongs
//!   to the function;
//! * a time limit (`runtime::device::deadline`): it applies before and after the function, and not
//!   during it.

use std::cell::Cell;
use std::thread::LocalKey;

/// Returns true if this thread may run other tasks while a function waits.
#[inline]
pub(crate) fn may_interrupt() -> bool {
    rayon_core::current_thread_index().is_some()
}

/// Value of a thread-local for the lifetime of this object. The drop restores the previous value,
/// also after a panic.
pub(crate) struct Scoped<T: Copy + 'static> {
    key: &'static LocalKey<Cell<T>>,
    outer: T,
}

impl<T: Copy> Scoped<T> {
    /// Sets the value.
    pub fn set(key: &'static LocalKey<Cell<T>>, value: T) -> Scoped<T> {
        Scoped { key, outer: key.replace(value) }
    }
}

impl<T: Copy> Drop for Scoped<T> {
    fn drop(&mut self) {
        self.key.set(self.outer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static VALUE: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn values_nest_and_return_after_a_panic() {
        let outer = Scoped::set(&VALUE, 1);
        let caught = std::panic::catch_unwind(|| {
            let _inner = Scoped::set(&VALUE, 2);
            assert_eq!(VALUE.get(), 2);
            panic!("on purpose");
        });
        assert!(caught.is_err() && VALUE.get() == 1);
        drop(outer);
        assert_eq!(VALUE.get(), 0);
    }

    #[test]
    fn threads_of_a_pool_are_known() -> Result<(), rayon_core::ThreadPoolBuildError> {
        assert!(!may_interrupt());
        let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build()?;
        assert!(pool.install(may_interrupt));
        Ok(())
    }
}
