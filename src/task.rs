//! State of a thread that holds while a function of the user runs, and tasks that are no part of that function.
//!
//! A thread of a rayon pool that waits (`join`, `scope`, a parallel iterator, `yield_now`) runs other tasks of the pool on
//! its stack. State in thread locals holds for these tasks as well, although they are no part of the function that waits.
//! Each user of [`Scoped`] states how it separates the function from the tasks:
//!
//! * a trace (`tile::context`): a launch inside of a kernel is a task, and sets the trace aside;
//! * a recording (`runtime::recording`): a use of an array that the graph alone has belongs to the function;
//! * a limit of time (`runtime::deadline`): it does not apply while the function runs, only before and after.

use std::cell::Cell;
use std::thread::LocalKey;

/// Returns true if this thread runs other tasks while a function waits.
#[inline]
pub(crate) fn may_interrupt() -> bool {
    rayon_core::current_thread_index().is_some()
}

/// A value of a thread local for the life of this object. The value before it returns at its end, also by a panic.
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
