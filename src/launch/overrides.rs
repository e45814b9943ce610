//! Options of all launches of a thread on the cpu device, which a property test sets.

use std::cell::Cell;

use crate::backend::cpu::{BlockOrder, Checks, Memory};
use crate::runtime::is_known_memory;
#[cfg(feature = "test")]
use crate::util::task::Scoped;

thread_local! {
    static CHECKS: Cell<Option<Checks>> = const { Cell::new(None) };
    static ORDER: Cell<BlockOrder> = const { Cell::new(BlockOrder::Grid) };
}

/// Returns the checks of launches of this thread that select none; `None`: those of the
/// environment.
pub(super) fn checks() -> Option<Checks> {
    CHECKS.get()
}

/// Returns the order in which tile blocks start.
pub(super) fn order() -> BlockOrder {
    ORDER.get()
}

/// Permits accesses by addresses that a kernel computes. Without checks of bounds they are to all
/// memory, with checks to the arrays of the cpu device. In a property test, whose kernel may be
/// wrong, they are only to memory of the launch.
///
/// # Safety
/// That of [`Memory::allow_any`].
pub(super) unsafe fn allow_computed(memory: &mut Memory, checks: Checks) {
    if CHECKS.get().is_some() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match checks.bounds {
            true => memory.allow_known(is_known_memory),
            false => memory.allow_any(),
        }
    }
}

/// Runs `body` with these checks and this order of tile blocks for all launches of the thread on
/// the cpu device.
#[cfg(feature = "test")]
pub(crate) fn with_overrides<X>(checks: Checks, order: BlockOrder, body: impl FnOnce() -> X) -> X {
    let _scoped = (Scoped::set(&CHECKS, Some(checks)), Scoped::set(&ORDER, order));
    body()
}
