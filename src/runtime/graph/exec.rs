//! Graphs of the driver: work that was captured on a stream, as an executable graph.

use std::sync::PoisonError;

use crate::error::Result;
use crate::runtime::device::deferred_release::Handle;
use crate::runtime::device::gpu::{Gpu, GpuStream, StreamHandle};
use crate::runtime::driver::sys::{CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUstreamCaptureMode};

/// Captured work, not yet executable.
struct Captured {
    gpu: &'static Gpu,
    raw: CUgraph,
}

impl Drop for Captured {
    fn drop(&mut self) {
        let (gpu, graph) = (self.gpu, Handle::new(self.raw));
        // SAFETY: made by the end of a capture, destroyed once.
        gpu.leftovers.release(move || unsafe { gpu.driver.graph_destroy(graph.raw()) });
    }
}

impl Captured {
    /// Captures the work that a closure queues on a stream. The stream is private, so no other work
    /// is queued there and no other code waits for it. Simultaneous calls of other threads do not
    /// affect the capture.
    fn new(gpu: &'static Gpu, queue: impl FnOnce(&GpuStream) -> Result<()>) -> Result<Captured> {
        let stream = StreamHandle::new(gpu)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;
        let mut raw: CUgraph = std::ptr::null_mut();
        // A wait for a context invalidates captures in it, also from other threads.
        let _alone = gpu.capture.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream is alive and captures nothing yet.
        unsafe { gpu.driver.stream_begin_capture(stream.raw, mode) }?;
        let queued = queue(&stream);
        // SAFETY: this thread began the capture, and the pointer is valid. The capture ends also
        // after an error.
        let ended = unsafe { gpu.driver.stream_end_capture(stream.raw, &mut raw) };
        let captured = (!raw.is_null()).then_some(Captured { gpu, raw });
        queued?;
        ended?;
        Ok(captured.expect("a graph of a capture that ended well"))
    }
}

/// An executable graph.
pub(super) struct Exec {
    gpu: &'static Gpu,
    raw: CUgraphExec,
}

// SAFETY: a handle of the driver, used by one thread at a time: updates and launches borrow it
// uniquely.
unsafe impl Send for Exec {}
// SAFETY: a shared reference permits no operation.
unsafe impl Sync for Exec {}

impl Exec {
    /// Captures the work that a closure queues.
    ///
    /// # Errors
    /// Those of the closure, and [`crate::Error::Driver`].
    pub fn new(gpu: &'static Gpu, queue: impl FnOnce(&GpuStream) -> Result<()>) -> Result<Exec> {
        gpu.make_current()?;
        Exec::from_captured(&Captured::new(gpu, queue)?)
    }

    fn from_captured(captured: &Captured) -> Result<Exec> {
        let mut raw: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the graph is alive and the pointer is valid.
        unsafe { captured.gpu.driver.graph_instantiate(&mut raw, captured.raw, 0) }?;
        Ok(Exec { gpu: captured.gpu, raw })
    }

    /// Replaces the work by that of a closure. Work that was queued earlier is not affected.
    ///
    /// # Errors
    /// As [`Exec::new`]. After an error the work is the previous one.
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
            // Work of another number or kind, with which the driver cannot update this graph.
            *self = Exec::from_captured(&captured)?;
        }
        Ok(())
    }

    /// Queues the work on a stream.
    ///
    /// # Safety
    /// The arrays of the work are alive until it is complete.
    pub unsafe fn launch(&mut self, stream: &GpuStream) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: guaranteed by the caller; graph and stream are alive.
        unsafe { self.gpu.driver.graph_launch(self.raw, stream.raw) }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let (gpu, exec) = (self.gpu, Handle::new(self.raw));
        // SAFETY: made by this object, destroyed once; the driver completes queued work first.
        gpu.leftovers
            .release(move || gpu.make_current().and_then(|()| unsafe { gpu.driver.graph_exec_destroy(exec.raw()) }));
    }
}
