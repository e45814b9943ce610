//! Assertions that failed on a GPU: notes that kernels leave in host memory, read whenever the host has waited.
//!
//! A kernel with assertions has a note of its own, as long as it is loaded; the first failure since the last look at it
//! is kept. The kernel claims the note (state 1), writes it and says so (state 2); the host reads it and frees it
//! (state 0).

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::driver::sys::CUdeviceptr;
use super::gpu::Gpu;
use crate::error::{Error, Result};

/// Words of a note; the host and the kernels of `backend::ptx` agree on what they mean.
pub(crate) type Note<'a> = &'a [u32];

/// What a complete note says.
const COMPLETE: u32 = 2;

/// The note of a kernel.
pub(crate) struct FailureNote {
    gpu: &'static Gpu,
    host: *mut AtomicU32,
    words: usize,
    /// The address that the kernel gets as a parameter.
    address: CUdeviceptr,
    explain: Box<dyn Fn(Note) -> Error + Send + Sync>,
}

// SAFETY: the note is memory of its own, read through atomics.
unsafe impl Send for FailureNote {}
// SAFETY: as above.
unsafe impl Sync for FailureNote {}

impl FailureNote {
    /// An empty note of so many words, the first of which is its state. `explain` says what a complete one means.
    ///
    /// # Errors
    /// [`Error::Driver`] when earlier work on the device failed.
    pub fn new(
        gpu: &'static Gpu,
        words: usize,
        explain: impl Fn(Note) -> Error + Send + Sync + 'static,
    ) -> Result<Arc<FailureNote>> {
        gpu.make_current()?;
        let mut host: *mut c_void = std::ptr::null_mut();
        let mut address: CUdeviceptr = 0;
        // SAFETY: the pointers are valid; what is allocated is written over its length, and freed once.
        unsafe {
            // Flags: for all contexts, mapped.
            gpu.driver.host_alloc(&mut host, words * 4, 1 | 2)?;
            std::ptr::write_bytes(host.cast::<u32>(), 0, words);
            if let Err(error) = gpu.driver.host_device_pointer(&mut address, host, 0) {
                let _ = gpu.driver.host_free(host);
                return Err(error);
            }
        }
        let note = Arc::new(FailureNote { gpu, host: host.cast(), words, address, explain: Box::new(explain) });
        gpu.failures.add(&note);
        Ok(note)
    }

    /// Where the address of the note on the GPU stands, for as long as this lives.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        (&raw const self.address).cast_mut().cast()
    }

    /// The failure that is noted, if there is one; the note is free again.
    fn take(&self) -> Option<Error> {
        // SAFETY: the words are allocated while this lives, and are only reached through atomics here.
        let words = unsafe { std::slice::from_raw_parts(self.host, self.words) };
        if words[0].load(Ordering::Acquire) != COMPLETE {
            return None;
        }
        let note: Vec<u32> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        words[0].store(0, Ordering::Release);
        Some((self.explain)(&note))
    }
}

impl Drop for FailureNote {
    fn drop(&mut self) {
        // The kernel is unloaded, and so has ended; nobody has looked at its note since.
        if let Some(error) = self.take() {
            self.gpu.failures.lost.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        }
        // SAFETY: allocated by this object, freed once. A failure means that the context is lost.
        let _ = self.gpu.make_current().and_then(|()| unsafe { self.gpu.driver.host_free(self.host.cast()) });
    }
}

/// The notes of all kernels on a GPU.
#[derive(Default)]
pub(crate) struct Failures {
    /// Has there ever been a kernel with assertions?
    any: AtomicBool,
    notes: Mutex<Vec<Weak<FailureNote>>>,
    /// Failures of kernels that are gone.
    lost: Mutex<Vec<Error>>,
}

impl Failures {
    fn add(&self, note: &Arc<FailureNote>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.retain(|note| note.strong_count() > 0);
        notes.push(Arc::downgrade(note));
        self.any.store(true, Ordering::Release);
    }

    /// What the host learns after it has waited for work: one failure of those that are noted.
    ///
    /// # Errors
    /// [`Error::Execution`] for an assertion that failed.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.any.load(Ordering::Acquire) { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&self) -> Result<()> {
        if let Some(error) = self.lost.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Err(error);
        }
        // Not under the lock: the last handle of a note may go here, and the note then locks what it is in.
        let notes: Vec<Arc<FailureNote>> =
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        notes.iter().find_map(|note| note.take()).map_or(Ok(()), Err)
    }
}
