//! What a thread launches and copies while it records a graph: noted here instead of being queued.
//!
//! A closure is run between two looks at the list of its thread; launches ([`note`] with what `launch` makes of them) and
//! copies between arrays add to it. Knows bytes and streams, no kernel.
//!
//! **Tasks of a rayon pool.** While the closure waits for rayon, its thread runs tasks that are no part of it (see
//! [`crate::task`]). On a thread of a pool, [`claim`] therefore goes by the arrays:
//!
//! * The graph has some arrays alone, by value or by a unique borrow. Only the closure can reach these, so work on them
//!   is work of the graph.
//! * All other work runs at once, as without a recording. A task may have queued it, or the closure by mistake. The
//!   recording lists it, and the graph records again: work of the closure is then there again, and is an error.

use std::cell::{Cell, RefCell};

use crate::error::{Diagnostic, Error, Location, Result};
use crate::runtime::device::device::Device;
use crate::runtime::device::gpu::GpuStream;
use crate::task::{Scoped, may_interrupt};

/// One piece of work of a graph.
pub(crate) struct Node {
    pub device: Device,
    pub work: Work,
    pub uses: Vec<Used>,
}

impl Node {
    /// The name of its kernel.
    pub fn kernel(&self) -> Option<&str> {
        match &self.work {
            Work::Launch(launch) => Some(launch.kernel()),
            Work::Copy { .. } => None,
        }
    }
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

/// What the closure of a graph did.
#[derive(Default)]
pub(crate) struct Recorded {
    /// Work of the graph.
    pub nodes: Vec<Node>,
    /// Work that ran at once, because nothing shows that it belongs to the graph.
    pub at_once: Vec<AtOnce>,
}

/// Work that ran while a graph was recorded, and is no part of the graph.
pub(crate) struct AtOnce {
    /// The work, for messages: ``kernel `f` ``.
    what: String,
    place: Location,
    uses: Vec<Used>,
}

impl AtOnce {
    /// Returns true if it writes one of these allocations.
    pub fn writes(&self, held: &[Used]) -> bool {
        self.uses.iter().any(|used| used.writes && used.bytes > 0 && held.iter().any(|h| h.address == used.address))
    }

    /// The error of a graph whose recordings all have such work.
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

/// A recording under way.
struct Open {
    /// The arrays that its graph has alone.
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
    /// The innermost last: more than one only on a thread of a pool.
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// Does this thread record a graph?
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.get()
}

/// The recording that work belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Claimed(usize);

/// The recording of this thread that work on these allocations belongs to. `None`: the work runs at once, and the
/// recordings list it. `what`: the work, for messages.
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

/// An error about something that is no work of a graph, if this thread records one. On a thread of a pool it is allowed: it
/// uses no array of the graph, so it changes nothing for the graph.
#[inline]
#[track_caller]
pub(crate) fn refuse(what: &str, way_out: &str) -> Result<()> {
    if is_on() && !may_interrupt() { Err(no_work(what, way_out)) } else { Ok(()) }
}

/// An error about a use of an allocation that is no work of a graph, if this thread records one. On a thread of a pool it is
/// an error only for an array that the graph has alone.
#[inline]
#[track_caller]
pub(crate) fn refuse_use(used: impl Fn() -> Used, what: &str, way_out: &str) -> Result<()> {
    if is_on() && is_of_graph(&used()) { Err(no_work(what, way_out)) } else { Ok(()) }
}

/// Returns true if the use of an allocation on this thread, which records a graph, is one of the closure of the graph.
pub(crate) fn is_of_graph(used: &Used) -> bool {
    !may_interrupt() || OPEN.with_borrow(|open| open.iter().any(|one| one.has(used)))
}

#[cold]
#[track_caller]
fn no_work(what: &str, way_out: &str) -> Error {
    Error::argument(format!("{what} is no work of a graph: {way_out}"))
}

/// What a closure does. `held`: the allocations of the state of the graph; as `writes` where the graph has them alone.
///
/// # Errors
/// Those of the closure; [`Error::Argument`] within another recording, except on a thread of a pool.
#[track_caller]
pub(crate) fn record(held: &[Used], work: impl FnOnce() -> Result<()>) -> Result<Recorded> {
    /// Ends the recording, also by a panic.
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
    let alone = held.iter().filter(|used| used.writes && used.bytes > 0).copied().collect();
    let end = OPEN.with_borrow_mut(|open| {
        open.push(Open { alone, recorded: Recorded::default() });
        End(open.len() - 1)
    });
    let _on = Scoped::set(&IS_ON, true);
    work()?;
    Ok(end.recorded())
}
