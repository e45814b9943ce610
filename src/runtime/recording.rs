//! What a thread launches and copies while it records a graph: noted here instead of being queued.
//!
//! A closure is run between two looks at the list of its thread; launches ([`note`] with what `launch` makes of them) and
//! copies between arrays add to it. Knows bytes and streams, no kernel.

use std::cell::{Cell, RefCell};

use super::device::Device;
use super::gpu::GpuStream;
use crate::error::{Error, Result};

/// One piece of work of a graph.
pub(crate) struct Node {
    pub device: Device,
    pub work: Work,
    pub uses: Vec<Used>,
}

/// What is done.
pub(crate) enum Work {
    Launch(Box<dyn RecordedLaunch>),
    /// `bytes` bytes from the second of the allocations in use, from the second offset on, to the first.
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
}

/// An allocation that work uses. The graph sees to it that it is there when the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub address: u64,
    pub bytes: usize,
    pub writes: bool,
}

impl Used {
    /// The first byte, of memory of the cpu device.
    pub fn host_pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

/// A launch with everything that it passes to the kernel; keeps the kernel.
pub(crate) trait RecordedLaunch: Send {
    /// For people.
    fn kernel(&self) -> &str;

    /// Runs it on the cpu device.
    ///
    /// # Errors
    /// Those of running.
    ///
    /// # Safety
    /// The allocations are there, and nobody else uses them in a way that conflicts.
    unsafe fn run(&self, uses: &[Used]) -> Result<()>;

    /// Queues it on a stream of its GPU. `dependent`: it may start before the kernel in front of it has ended, if that was
    /// asked for.
    ///
    /// # Errors
    /// [`Error::Driver`].
    ///
    /// # Safety
    /// The allocations are there until the work is done.
    unsafe fn queue(&self, stream: &GpuStream, dependent: bool) -> Result<()>;
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static NODES: RefCell<Vec<Node>> = const { RefCell::new(Vec::new()) };
}

/// Does this thread record a graph?
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.get()
}

/// Adds work to the graph that this thread records.
#[cold]
pub(crate) fn note(node: Node) {
    NODES.with_borrow_mut(|nodes| nodes.push(node));
}

/// An error about something that is no work of a graph, if this thread records one.
#[inline]
#[track_caller]
pub(crate) fn refuse(what: &str, way_out: &str) -> Result<()> {
    if is_on() { Err(Error::argument(format!("{what} is no work of a graph: {way_out}"))) } else { Ok(()) }
}

/// What is launched and copied by a closure.
///
/// # Errors
/// Those of the closure; [`Error::Argument`] within another recording.
#[track_caller]
pub(crate) fn record(work: impl FnOnce() -> Result<()>) -> Result<Vec<Node>> {
    /// Ends the recording, also by a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            IS_ON.set(false);
            drop(NODES.take());
        }
    }
    if is_on() {
        return Err(Error::argument("a graph is no work of a graph: record it on its own"));
    }
    IS_ON.set(true);
    let _end = End;
    work()?;
    Ok(NODES.take())
}
