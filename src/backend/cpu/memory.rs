//! Host memory that a launch passed to its kernel: the regions that addresses are checked against.

/// A contiguous piece of host memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    base: *mut u8,
    bytes: usize,
    writable: bool,
}

/// The memory that a kernel may touch.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
}

// SAFETY: the regions are only dereferenced through atomics of element width, and whoever added them
// promised that they stay valid (see `Memory::add`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// No memory at all.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds `bytes` bytes from `base` on; kernels that store elsewhere than into writable regions fail.
    ///
    /// # Safety
    /// While a program runs with this memory, the bytes stay allocated and initialised; nobody else
    /// accesses them otherwise than atomically (nobody else writes them, if not `writable`).
    pub unsafe fn add(&mut self, base: *mut u8, bytes: usize, writable: bool) {
        self.regions.push(Region { base, bytes, writable });
        self.regions.sort_by_key(|r| r.base as usize);
    }
}
