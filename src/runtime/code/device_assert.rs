//! Failures that kernels on a GPU report: notes in host memory, which the host reads after each
//! wait.
//!
//! Each kernel that reports failures has one note while it is loaded. The note keeps the first
//! failure since the host last read it. The kernel claims a part of the note, writes it and marks
//! it complete. The host reads the note and sets it to 0.

use crate::util::collect::CollectVec as _;
use std::ffi::c_void;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::pending_asserts::Noted;
use crate::error::{Error, Result};
use crate::runtime::device::deferred_release::Handle;
use crate::runtime::device::gpu::Gpu;
use crate::runtime::driver::sys::CUdeviceptr;

/// The words of a note. `backend::ptx` defines their meaning for host and kernels.
pub(crate) type Note<'a> = &'a [u32];

/// The note of a kernel.
pub(crate) struct FailureNote {
    gpu: &'static Gpu,
    host: *mut AtomicU32,
    words: usize,
    /// The words that are 0 without a failure.
    states: Vec<usize>,
    /// The address that is a parameter of the kernel.
    address: CUdeviceptr,
    explain: Box<dyn Fn(Note) -> Option<Error> + Send + Sync + UnwindSafe + RefUnwindSafe>,
}

// SAFETY: the note is a separate allocation, accessed through atomics.
unsafe impl Send for FailureNote {}
// SAFETY: as above.
unsafe impl Sync for FailureNote {}

impl FailureNote {
    /// Makes an empty note of `words` words. The words `states` are 0 without a failure. `explain`
    /// converts a complete note to an error.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    pub fn new(
        gpu: &'static Gpu,
        words: usize,
        states: Vec<usize>,
        explain: impl Fn(Note) -> Option<Error> + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Result<Arc<FailureNote>> {
        gpu.make_current()?;
        let mut host: *mut c_void = std::ptr::null_mut();
        let mut address: CUdeviceptr = 0;
        // SAFETY: the pointers are valid; the allocation is initialized over its whole length, and
        // freed once.
        unsafe {
            // Flags: for all contexts, mapped.
            gpu.driver.host_alloc(&mut host, words * 4, 1 | 2)?;
            std::ptr::write_bytes(host.cast::<u32>(), 0, words);
            if let Err(error) = gpu.driver.host_device_pointer(&mut address, host, 0) {
                let _ = gpu.driver.host_free(host);
                return Err(error);
            }
        }
        let note = Arc::new(FailureNote { gpu, host: host.cast(), words, states, address, explain: Box::new(explain) });
        let noted: Weak<FailureNote> = Arc::downgrade(&note);
        gpu.failures.add(noted);
        Ok(note)
    }

    /// Returns a pointer to the address of the note on the GPU, valid during the life of this
    /// object.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        (&raw const self.address).cast_mut().cast()
    }
}

impl Noted for FailureNote {
    fn take(&self) -> Option<Error> {
        // SAFETY: the words are allocated while this object lives, and are only accessed through
        // atomics here.
        let words = unsafe { std::slice::from_raw_parts(self.host, self.words) };
        if self.states.iter().all(|&state| words[state].load(Ordering::Acquire) == 0) {
            return None;
        }
        let note: Vec<u32> = words.iter().map(|word| word.load(Ordering::Acquire)).collect_vec();
        let error = (self.explain)(&note)?;
        words.iter().rev().for_each(|word| word.store(0, Ordering::Release));
        Some(error)
    }
}

impl Drop for FailureNote {
    fn drop(&mut self) {
        // The kernel is unloaded, so it has ended (or is stuck). Its note has not been read since.
        if let Some(error) = self.take() {
            self.gpu.failures.keep(error);
        }
        let (gpu, host) = (self.gpu, Handle::new(self.host));
        gpu.leftovers.release(move || {
            gpu.make_current()?;
            // A kernel that could not be unloaded may still be running.
            gpu.synchronize_context()?;
            // SAFETY: allocated by this object, freed once, and no kernel writes it any more.
            unsafe { gpu.driver.host_free(host.raw().cast()) }
        });
    }
}
