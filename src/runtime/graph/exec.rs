//! Graphs of the driver: work that was captured on a stream, made ready to be queued as a whole.

use std::sync::PoisonError;

use crate::error::Result;
use crate::runtime::device::deferred_release::Handle;
use crate::runtime::device::gpu::{Gpu, GpuStream, StreamHandle};
use crate::runtime::driver::sys::{CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUstreamCaptureMode};

/// Work in the driver's form, not yet ready to be queued.
struct Captured {
    gpu: &'static Gpu,
    raw: CUgraph,
}

impl Drop for Captured {
    fn drop(&mut self) {
        let (gpu, graph) = (self.gpu, Handle::of(self.raw));
        // SAFETY: made by the end of a capture, destroyed once.
        gpu.leftovers.release(move || unsafe { gpu.driver.graph_destroy(graph.raw()) });
    }
}

impl Captured {
    /// What a closure queues on a stream. The stream is of its own, so that nobody else queues work there or waits for
    /// it; calls that other threads make at the same time do not matter to the capture.
    fn new(gpu: &'static Gpu, queue: impl FnOnce(&GpuStream) -> Result<()>) -> Result<Captured> {
        let stream = StreamHandle::new(gpu)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;
        let mut raw: CUgraph = std::ptr::null_mut();
        // To wait for a context breaks captures off in it, also from other threads.
        let _alone = gpu.capture.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream is alive and captures nothing yet.
        unsafe { gpu.driver.stream_begin_capture(stream.raw, mode) }?;
        let queued = queue(&stream);
        // SAFETY: the capture was begun by this thread, and the pointer is valid. It ends also where queueing failed.
        let ended = unsafe { gpu.driver.stream_end_capture(stream.raw, &mut raw) };
        let captured = (!raw.is_null()).then_some(Captured { gpu, raw });
        queued?;
        ended?;
        Ok(captured.expect("a graph of a capture that ended well"))
    }
}

/// Work that is ready to be queued.
pub(super) struct Exec {
    gpu: &'static Gpu,
    raw: CUgraphExec,
}

// SAFETY: a handle of the driver, used by one thread at a time: what changes or queues it takes it uniquely.
unsafe impl Send for Exec {}
// SAFETY: nothing is done with a shared one.
unsafe impl Sync for Exec {}

impl Exec {
    /// Captures what a closure queues.
    ///
    /// # Errors
    /// Those of the closure, and [`crate::Error::Driver`].
    pub fn new(gpu: &'static Gpu, queue: impl FnOnce(&GpuStream) -> Result<()>) -> Result<Exec> {
        gpu.make_current()?;
        Exec::of(&Captured::new(gpu, queue)?)
    }

    fn of(captured: &Captured) -> Result<Exec> {
        let mut raw: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the graph is alive and the pointer is valid.
        unsafe { captured.gpu.driver.graph_instantiate(&mut raw, captured.raw, 0) }?;
        Ok(Exec { gpu: captured.gpu, raw })
    }

    /// Does what a closure queues from now on; what was queued earlier is not touched.
    ///
    /// # Errors
    /// As [`Exec::new`]; it does what it did then.
    pub fn update(&mut self, queue: impl FnOnce(&GpuStream) -> Result<()>) -> Result<()> {
        self.gpu.make_current()?;
        let captured = Captured::new(self.gpu, queue)?;
        let mut info = CUgraphExecUpdateResultInfo {
            result: 0,
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        };
        // SAFETY: both are alive and the pointer is valid.
        if unsafe { self.gpu.driver.graph_exec_update(self.raw, captured.raw, &mut info) }.is_err() {
            // Another number or kind of work than before, which the driver does not put into this one.
            *self = Exec::of(&captured)?;
        }
        Ok(())
    }

    /// Queues the work on a stream.
    ///
    /// # Safety
    /// What the work uses is there until it is done.
    pub unsafe fn launch(&mut self, stream: &GpuStream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: promised by the caller; graph and stream are alive.
        unsafe { self.gpu.driver.graph_launch(self.raw, stream.raw) }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let (gpu, exec) = (self.gpu, Handle::of(self.raw));
        // SAFETY: made by this object, destroyed once; the driver lets work that was queued end first.
        gpu.leftovers
            .release(move || gpu.make_current().and_then(|()| unsafe { gpu.driver.graph_exec_destroy(exec.raw()) }));
    }
}
