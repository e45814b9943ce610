//! Recording of the launches and copies of a thread for a graph, in place of queueing.
//!
//! A closure is executed between two reads of the list of its thread. Launches (by [`note`]) and
//! copies between arrays add to that list. This file handles bytes and streams, and no kernels.
//!
//! **Tasks of a rayon pool.** While the closure waits for rayon, its thread executes unrelated
//! tasks (see [`crate::util::task`]). On a thread of a pool, [`claim`] therefore decides by the
//! arrays:
//!
//! * The graph holds some arrays uniquely, by value or by a unique borrow. Only the closure can use
//!   these, so work on them belongs to the graph.
//! * All other work is executed at once, as without a recording. It is from a task, or by mistake
//!   from the closure. The recording lists it, and the graph records again: work of the closure
//!   then occurs again, and is an error.

use crate::util::collect::CollectVec as _;
use std::cell::{Cell, RefCell};

use crate::error::{Diagnostic, Error, Location, Result};
use crate::runtime::device::device::Device;
use crate::runtime::device::gpu::GpuStream;
use crate::util::task::{Scoped, may_interrupt};

/// One piece of work of a graph.
pub(crate) struct Node {
    pub device: Device,
    pub work: Work,
    pub uses: Vec<Used>,
}

impl Node {
    /// Returns the name of its kernel.
    pub fn kernel(&self) -> Option<&str> {
        match &self.work {
            Work::Launch(launch) => Some(launch.kernel()),
            Work::Copy { .. } => None,
        }
    }
}

/// The operation of a node.
pub(crate) enum Work {
    Launch(Box<dyn RecordedLaunch>),
    /// A copy of `bytes` bytes to the first of the used allocations, from the second one, at the
    /// second offset.
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
}

/// An allocation that work uses. The graph ensures that it is alive until the work is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub address: u64,
    pub bytes: usize,
    pub writes: bool,
}

impl Used {
    /// Returns the address of the first byte, for memory of the cpu device.
    pub fn host_pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

/// A launch with all values that it passes to the kernel, which it keeps loaded.
pub(crate) trait RecordedLaunch: Send {
    /// Returns the name of the kernel, for messages.
    fn kernel(&self) -> &str;

    /// Executes the launch on the cpu device.
    ///
    /// # Errors
    /// Those of the execution.
    ///
    /// # Safety
    /// The allocations are alive, and no other work conflicts with these uses.
    unsafe fn run(&self, uses: &[Used]) -> Result<()>;

    /// Queues the launch on a stream of its GPU. `dependent`: it may start before the end of the
    /// preceding kernel, if the launch permits that.
    ///
    /// # Errors
    /// [`Error::Driver`].
    ///
    /// # Safety
    /// The allocations are alive until the work is complete.
    unsafe fn queue(&self, stream: &GpuStream, dependent: bool) -> Result<()>;
}

/// The result of the closure of a graph.
#[derive(Default)]
pub(crate) struct Recorded {
    /// Work of the graph.
    pub nodes: Vec<Node>,
    /// Work that was executed at once, because it does not provably belong to the graph.
    pub at_once: Vec<AtOnce>,
}

/// Work that was executed during a recording and does not belong to the graph.
pub(crate) struct AtOnce {
    /// The work, for messages: ``kernel `f` ``.
    what: String,
    place: Location,
    uses: Vec<Used>,
}

impl AtOnce {
    /// Returns true if the work writes one of these allocations.
    pub fn writes(&self, held: &[Used]) -> bool {
        self.uses.iter().any(|used| used.writes && used.bytes > 0 && held.iter().any(|h| h.address == used.address))
    }

    /// Returns the error of a graph whose recordings all have such work.
    pub fn refused(&self) -> Error {
        let message = format!(
            "{} ran at once while a graph was recorded, and is no work of the graph: it uses no array that the graph has \
             alone, so it may be that of another task",
            self.what
        );
        let start = Diagnostic::new(message, Some(self.place.clone()));
        let of_closure = "if the closure of the graph does this: give the graph the arrays, by value or by `&mut`, and take \
                          them from its state";
        let of_task = "if another task does this: the closure waits for rayon (`join`, `scope`, a parallel iterator), whose \
                       thread runs other tasks meanwhile; wait before the recording, or record on a thread of no pool";
        Error::Argument(start.note(of_closure).note(of_task))
    }
}

/// A recording in progress.
struct Open {
    /// The arrays that the graph holds uniquely.
    alone: Vec<Used>,
    recorded: Recorded,
}

impl Open {
    fn has(&self, used: &Used) -> bool {
        used.bytes > 0 && self.alone.iter().any(|alone| alone.address == used.address)
    }
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// The recordings of the thread, the innermost last. More than one only on a thread of a pool.
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// Returns true if this thread records a graph.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.get()
}

/// The recording that work belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Claimed(usize);

/// Returns the recording of this thread to which work on these allocations belongs. `None`: the
/// work is executed at once, and the recordings list it. `what`: the work, for messages.
#[cold]
#[track_caller]
pub(crate) fn claim(uses: &[Used], what: impl FnOnce() -> String) -> Option<Claimed> {
    let place = Location::caller();
    OPEN.with_borrow_mut(|open| {
        if !may_interrupt() {
            return open.len().checked_sub(1).map(Claimed);
        }
        let found = open.iter().rposition(|one| uses.iter().any(|used| one.has(used)));
        if found.is_none() {
            let what = what();
            for one in open.iter_mut() {
                one.recorded.at_once.push(AtOnce { what: what.clone(), place: place.clone(), uses: uses.to_vec() });
            }
        }
        found.map(Claimed)
    })
}

/// Adds work to the recording that it belongs to.
#[cold]
pub(crate) fn note(claimed: Claimed, node: Node) {
    OPEN.with_borrow_mut(|open| open[claimed.0].recorded.nodes.push(node));
}

/// Returns an error for an operation that a graph cannot record, if this thread records one. On a
/// thread of a pool the operation is permitted: it uses no array of the graph, and so does not
/// affect the graph.
#[inline]
#[track_caller]
pub(crate) fn refuse(what: &str, way_out: &str) -> Result<()> {
    if is_on() && !may_interrupt() { Err(no_work(what, way_out)) } else { Ok(()) }
}

/// Returns an error for a use of an allocation that a graph cannot record, if this thread records
/// one. On a thread of a pool, only a use of an array that the graph holds uniquely is an error.
#[inline]
#[track_caller]
pub(crate) fn refuse_use(used: impl Fn() -> Used, what: &str, way_out: &str) -> Result<()> {
    if is_on() && is_of_graph(&used()) { Err(no_work(what, way_out)) } else { Ok(()) }
}

/// Returns true if the use of an allocation on this recording thread belongs to the closure of the
/// graph.
pub(crate) fn is_of_graph(used: &Used) -> bool {
    !may_interrupt() || OPEN.with_borrow(|open| open.iter().any(|one| one.has(used)))
}

#[cold]
#[track_caller]
fn no_work(what: &str, way_out: &str) -> Error {
    Error::argument(format!("{what} is no work of a graph: {way_out}"))
}

/// Records the work of a closure. `held`: the allocations of the state of the graph; `writes` for
/// those that the graph holds uniquely.
///
/// # Errors
/// Those of the closure; [`Error::Argument`] within another recording, except on a thread of a
/// pool.
#[track_caller]
pub(crate) fn record(held: &[Used], work: impl FnOnce() -> Result<()>) -> Result<Recorded> {
    /// A guard that ends the recording, also after a panic.
    struct End(usize);
    impl End {
        fn recorded(&self) -> Recorded {
            OPEN.with_borrow_mut(|open| open.drain(self.0..).next()).map(|open| open.recorded).unwrap_or_default()
        }
    }
    impl Drop for End {
        fn drop(&mut self) {
            drop(self.recorded());
        }
    }
    if is_on() && !may_interrupt() {
        return Err(Error::argument("a graph is no work of a graph: record it on its own"));
    }
    let alone = held.iter().filter(|used| used.writes && used.bytes > 0).copied().collect_vec();
    let end = OPEN.with_borrow_mut(|open| {
        open.push(Open { alone, recorded: Recorded::default() });
        End(open.len() - 1)
    });
    let _on = Scoped::set(&IS_ON, true);
    work()?;
    Ok(end.recorded())
}
