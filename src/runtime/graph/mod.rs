//! Graphs: launches and copies that are recorded once and replayed as a whole, many times.
//!
//! **Safety.** Recorded work contains addresses. Its arrays must be alive and unused by conflicting
//! work at each replay. A graph therefore holds them as a value ([`GraphResource`]) that its
//! closure receives for recording. After the closure, each allocation that the work uses is looked
//! up in this value. After a change of the value the graph is recorded again.
//!
//! **Order.** During recording nothing is queued, and no stream waits for another one. The driver
//! captures the work on a private stream. A replay is ordered after earlier uses of the arrays, as
//! a launch is, and is a use of each of them.

mod exec;
pub(crate) mod recorder;
mod resources;
#[cfg(test)]
mod tests;

use crate::util::collect::CollectVec as _;
use std::fmt;

use self::exec::Exec;
use super::array::memory::Memory;
use super::array::red_zones;
use super::array::stream_order::Access;
use super::device::device::Device;
use super::device::gpu::{Gpu, GpuStream};
use super::device::stream::Stream;
use crate::error::{Diagnostic, Error, Location, Result};
use crate::kernel::refuse_nested;
use recorder::{Node, Recorded, Used, Work};
pub use resources::GraphResource;

/// The closure that records the work of a graph.
type Recorder<'f, S> = Box<dyn FnMut(&mut S) -> Result<()> + Send + 'f>;

/// Recorded launches and copies that are replayed as a whole.
///
/// On a GPU, a graph is a CUDA graph: a replay is one call of the driver for all contents of the
/// graph. On the cpu device, the work is executed in sequence, with the parameters of the
/// recording.
///
/// # Recording
/// [`Graph::capture`] calls a closure with the state of the graph: arrays, and numbers for its
/// launches. During the call nothing is queued. These operations of the calling thread become work
/// of the graph, each ordered after the previous one:
/// * launches ([`launch`](fn@crate::launch), [`Launch`](crate::Launch),
///   [`CompiledKernel`](crate::CompiledKernel), stores of whole arrays into others),
/// * copies between arrays of one device (`copy_from_array`, without gaps).
///
/// Kernels that are not compiled yet are compiled during the call, before the driver captures
/// anything. Streams that launches name are ignored. A
/// [`programmatic_dependent_launch`](crate::Launch::programmatic_dependent_launch) may start before
/// the end of the preceding kernel of the graph.
///
/// The graph keeps the code of its kernels. The state must contain the arrays that the kernels use.
/// During recording, no arrays can be made, and no elements can be copied from or to the host.
///
/// # Threads of a rayon pool
/// On a thread of a rayon pool, a closure that waits for rayon (`join`, `scope`, a parallel
/// iterator, `yield_now`) lets its thread execute other tasks of the pool. Their work does not
/// belong to the graph. On such a thread:
/// * A launch or copy belongs to the graph if it uses an array that the graph holds uniquely: by
///   value or by `&mut`. A launch that only reads arrays which the graph holds by `&` cannot be
///   recorded.
/// * Any other launch, copy or replay is executed at once. The closure is then called again, up to
///   eight times, until no such work occurs. After that, the result is an error with the place of
///   that work, which is most likely in the closure itself.
/// * New arrays, and copies between the host and other arrays, are made as usual.
///
/// # Changes of the state
/// Numbers that the closure passes to launches, addresses, extents and grids remain as recorded.
/// After [`Graph::state_mut`] the next replay records again and updates the existing graph. If the
/// driver cannot update it, for example for a larger number of launches, the replay makes another
/// graph. A closure should therefore leave arrays in place: one that swaps two of them records
/// different work the next time.
///
/// ```
/// use cutlet as ct;
///
/// fn scale(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, factor: ct::Scalar<f32>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [64]) * factor);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, y, z) = (device.full([100], 3.0f32)?, device.zeros([100])?, device.zeros([100])?);
/// let mut graph = ct::Graph::capture((x, y, z, 2.0), |(x, y, z, factor)| {
///     ct::launch(scale, 2, (&*x, &mut *y, *factor))?;
///     ct::launch(scale, 2, (&*y, &mut *z, *factor))?;
///     x.copy_from_array(&z.view())
/// })?;
/// assert_eq!((graph.len(), graph.state().0.to_vec()?[0]), (3, 3.0)); // nothing has run yet
/// graph.replay()?;
/// graph.replay()?;
/// assert_eq!(graph.state().0.to_vec()?[0], 48.0);
///
/// graph.state_mut().3 = 10.0;
/// graph.replay()?;
/// assert_eq!(graph.state().0.to_vec()?[0], 4800.0);
/// let (x, ..) = graph.into_state();
/// # let _ = x;
/// # Ok::<(), ct::Error>(())
/// ```
///
/// A graph can also borrow arrays: a graph of `(&x, &mut y)` borrows them until it is dropped.
pub struct Graph<'f, S> {
    /// Declared before the resources that it uses: destroyed first.
    exec: Option<Exec>,
    nodes: Vec<Node>,
    /// The use of each allocation of the state, in the order of `GraphResource`.
    uses: Vec<Use>,
    device: Device,
    /// True if the state may have changed since the last recording.
    is_stale: bool,
    record: Recorder<'f, S>,
    state: S,
}

/// The maximum number of consecutive recordings that work of other tasks interrupts.
const MAX_RECORDINGS: usize = 8;

/// The use of an allocation by a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    Reads,
    Writes,
}

impl<'f, S: GraphResource> Graph<'f, S> {
    /// Records the launches and copies of the closure, without execution. The closure is called
    /// with `state` now, and again after a change of it. On a thread of a rayon pool it should not
    /// wait for rayon: see [`Graph`].
    ///
    /// # Errors
    /// * those of the closure;
    /// * [`Error::Argument`] for work on arrays that the graph does not hold, for work on two
    ///   devices, for no work at all, and within another recording;
    /// * [`Error::Argument`] on a thread of a rayon pool, for work that may belong to another task
    ///   (see [`Graph`]);
    /// * [`Error::Driver`] if earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let count = |x: ArrayMut<i32, 1>| x.store(0, x.load(0, [4]) + 1);
    /// let mut graph = ct::Graph::capture(&mut x, |x| (0..10).try_for_each(|_| ct::launch(count, 1, (&mut **x,))))?;
    /// graph.replay()?;
    /// drop(graph);
    /// assert_eq!(x.to_vec()?, [10; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn capture(state: S, record: impl FnMut(&mut S) -> Result<()> + Send + 'f) -> Result<Graph<'f, S>> {
        let (nodes, uses, record, device) = (Vec::new(), Vec::new(), Box::new(record), Device::cpu());
        let mut graph = Graph { exec: None, nodes, uses, device, is_stale: true, record, state };
        graph.update()?;
        Ok(graph)
    }

    /// Records again if the state may have changed. Otherwise the next replay would do so.
    ///
    /// # Errors
    /// As [`Graph::capture`]. After an error, the next replay records again.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<i32, 1>, value: Scalar<i32>| x.store(0, value.broadcast_to([4]));
    /// let x = ct::Device::cpu().zeros([4])?;
    /// let mut graph = ct::Graph::capture((x, 1), |(x, value)| ct::launch(fill, 1, (&mut *x, *value)))?;
    /// graph.state_mut().1 = 2;
    /// graph.update()?; // whatever there is to compile is compiled now
    /// graph.replay()?;
    /// assert_eq!(graph.state().0.to_vec()?, [2; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        if !self.is_stale {
            return Ok(());
        }
        let nodes = self.recorded()?;
        let device = device_of(&nodes)?;
        let uses = uses_of(&nodes, &self.state)?;
        if let Some(gpu) = device.as_gpu() {
            // SAFETY: the state has the arrays of the work, and each change of it leads to another
            // lookup.
            let queue = |stream: &GpuStream| unsafe { queue(&nodes, gpu, stream) };
            match self.exec.as_mut().filter(|_| self.device == device) {
                Some(exec) => exec.update(queue)?,
                None => self.exec = Some(Exec::new(gpu, queue)?),
            }
        } else {
            self.exec = None;
        }
        (self.nodes, self.uses, self.device, self.is_stale) = (nodes, uses, device, false);
        Ok(())
    }

    /// Returns the work that the closure records.
    #[track_caller]
    fn recorded(&mut self) -> Result<Vec<Node>> {
        for recordings_left in (0..MAX_RECORDINGS).rev() {
            let held = held(&self.state);
            let Recorded { nodes, at_once } = recorder::record(&held, || (self.record)(&mut self.state))?;
            // Arrays that the closure has moved into the state also belong to the graph.
            let held: Vec<Used> = self::held(&self.state).into_iter().filter(|used| used.writes).collect_vec();
            match at_once.iter().find(|work| recordings_left == 0 || work.writes(&held)) {
                Some(work) => return Err(work.refused()),
                None if at_once.is_empty() => return Ok(nodes),
                None => {}
            }
        }
        unreachable!("the last recording returns")
    }

    /// Executes the recorded work on the default stream of its device.
    ///
    /// # Errors
    /// As a launch of each kernel of the graph; as [`Graph::capture`] after a change of the state.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let double = |x: ArrayMut<i32, 1>| x.store(0, x.load(0, [4]) * 2);
    /// let mut graph = ct::Graph::capture(ct::Device::cpu().full([4], 1)?, |x| ct::launch(double, 1, (x,)))?;
    /// (0..5).try_for_each(|_| graph.replay())?;
    /// assert_eq!(graph.state().to_vec()?, [32; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn replay(&mut self) -> Result<()> {
        self.replay_in(None)
    }

    /// Executes the recorded work on a stream.
    ///
    /// # Errors
    /// As [`Graph::replay`]; [`Error::Argument`] for a stream of another device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (stream, x) = (ct::Device::cpu().stream()?, ct::Device::cpu().full([4], 1)?);
    /// let double = |x: ArrayMut<i32, 1>| x.store(0, x.load(0, [4]) * 2);
    /// let mut graph = ct::Graph::capture(x, |x| ct::launch(double, 1, (x,)))?;
    /// graph.replay_on(&stream)?;
    /// assert_eq!(graph.state().to_vec()?, [2; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn replay_on(&mut self, stream: &Stream) -> Result<()> {
        self.replay_in(Some(stream))
    }

    #[track_caller]
    fn replay_in(&mut self, stream: Option<&Stream>) -> Result<()> {
        refuse_nested(|| self.nodes.iter().find_map(Node::kernel).unwrap_or("replay").to_owned())?;
        recorder::refuse("a replay", "call the closure of that graph in the closure of this one")?;
        if recorder::is_on() {
            // On a thread of a pool. The arrays of the other graph are not arrays of this one.
            recorder::claim(&[], || "the replay of another graph".to_owned());
        }
        self.update()?;
        if let Some(stream) = stream
            && stream.device() != self.device
        {
            let (its, ours) = (stream.device(), self.device);
            return Err(Error::argument(format!(
                "the stream belongs to {its}, the arrays of this graph are on {ours}"
            )));
        }
        let (Some(gpu), Some(exec)) = (self.device.as_gpu(), &mut self.exec) else {
            // SAFETY: the used arrays were found in the state, which is borrowed uniquely. No other
            // work uses an array that is written, or writes one that is read.
            unsafe { run(&self.nodes) }?;
            return if red_zones::are_in_use() { self.check_zones() } else { Ok(()) };
        };
        let stream = stream.and_then(Stream::as_gpu).unwrap_or(gpu.default_stream());
        let (mut uses, mut ordered) = (self.uses.iter(), Ok(()));
        self.state.arrays(&mut |memory, _| {
            let how = uses.next().copied().unwrap_or(Use::None);
            if how != Use::None && ordered.is_ok() {
                ordered = memory.before_use(stream, Access::of(how == Use::Writes, memory.was_split()));
            }
        });
        ordered?;
        // SAFETY: the used arrays are in the state, and are freed in the order of its streams.
        unsafe { exec.launch(stream) }?;
        if red_zones::are_in_use() && !stream.is_captured()? { self.check_zones() } else { Ok(()) }
    }

    /// Waits for a replay, and compares the red zones of the arrays of the state.
    ///
    /// # Errors
    /// [`Error::Execution`] at the caller's location for the first array with a changed zone.
    /// Errors of the replay.
    #[cold]
    #[track_caller]
    fn check_zones(&self) -> Result<()> {
        let (place, mut number, mut result) = (Location::caller(), 0, Ok(None));
        self.state.arrays(&mut |memory, _| {
            if matches!(result, Ok(None)) {
                let found = memory.take_damage();
                result = found.map(|damage| damage.map(|damage| (number, memory.len(), damage)));
            }
            number += 1;
        });
        let Some((number, bytes, damage)) = result? else { return Ok(()) };
        let mut kernels: Vec<String> =
            self.nodes.iter().filter_map(Node::kernel).map(|name| format!("`{name}`")).collect_vec();
        kernels.dedup();
        let damage = damage.text(&format!("array {number} of its state"), bytes);
        let message = format!("the replay of a graph of the kernels {} wrote {damage}", kernels.join(", "));
        let note = "the arrays are counted from 0; launches without the graph name the kernel, and its stores without a \
                    bounds check";
        Err(Error::Execution(Diagnostic::new(message, Some(place)).note(note)))
    }

    /// Returns the state for reading. Reads of its arrays wait for the queued replays.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let one = |x: ArrayMut<i32, 1>| x.store(0, ct::ones([4]));
    /// let graph = ct::Graph::capture(ct::Device::cpu().zeros([4])?, |x| ct::launch(one, 1, (x,)))?;
    /// assert_eq!(graph.state().to_vec()?, [0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state for changes of elements, numbers or arrays. The next replay records again.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let double = |x: ArrayMut<i32, 1>| x.store(0, x.load(0, [4]) * 2);
    /// let mut graph = ct::Graph::capture(ct::Device::cpu().zeros([4])?, |x| ct::launch(double, 1, (x,)))?;
    /// graph.state_mut().copy_from(&[1, 2, 3, 4])?;
    /// graph.replay()?;
    /// assert_eq!(graph.state().to_vec()?, [2, 4, 6, 8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn state_mut(&mut self) -> &mut S {
        self.is_stale = true;
        &mut self.state
    }

    /// Drops the graph and returns its state.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let one = |x: ArrayMut<i32, 1>| x.store(0, ct::ones([4]));
    /// let mut graph = ct::Graph::capture(ct::Device::cpu().zeros([4])?, |x| ct::launch(one, 1, (x,)))?;
    /// graph.replay()?;
    /// let x: ct::DeviceArray<i32, 1> = graph.into_state();
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn into_state(self) -> S {
        self.state
    }
}

impl<S> Graph<'_, S> {
    /// Returns the number of launches and copies of the last recording.
    #[allow(clippy::len_without_is_empty)] // None is empty.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the device of the graph.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }
}

impl<S> fmt::Debug for Graph<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = |node: &Node| match &node.work {
            Work::Launch(launch) => launch.kernel().to_owned(),
            Work::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
        };
        write!(f, "Graph on {} of {:?}", self.device, self.nodes.iter().map(work).collect_vec())
    }
}

/// Returns the single device of recorded work.
#[track_caller]
fn device_of(nodes: &[Node]) -> Result<Device> {
    let Some(first) = nodes.first() else {
        return Err(Error::argument("a graph of nothing: its closure has launched and copied nothing on this thread"));
    };
    match nodes.iter().find(|node| node.device != first.device) {
        None => Ok(first.device),
        Some(other) => Err(Error::argument(format!(
            "a graph with work on {} and on {}: record one for each device",
            first.device, other.device
        ))),
    }
}

/// Returns the allocations of the state, in the order of `GraphResource`.
fn held(state: &impl GraphResource) -> Vec<Used> {
    let mut held = Vec::new();
    state.arrays(&mut |memory: &Memory, writable| held.push(memory.used(writable)));
    held
}

/// Returns the use of each allocation of the state by the work.
#[track_caller]
fn uses_of(nodes: &[Node], state: &impl GraphResource) -> Result<Vec<Use>> {
    let mut held: Vec<(Used, Use)> = self::held(state).into_iter().map(|used| (used, Use::None)).collect_vec();
    for node in nodes {
        for used in node.uses.iter().filter(|used| used.bytes > 0) {
            let fits = |(its, _): &&mut (Used, Use)| {
                its.address == used.address && its.bytes >= used.bytes && (its.writes || !used.writes)
            };
            let Some((_, how)) = held.iter_mut().find(fits) else { return Err(not_held(node, used)) };
            if used.writes || *how == Use::None {
                *how = if used.writes { Use::Writes } else { Use::Reads };
            }
        }
    }
    Ok(held.into_iter().map(|(_, how)| how).collect_vec())
}

#[cold]
#[track_caller]
fn not_held(node: &Node, used: &Used) -> Error {
    let who = match &node.work {
        Work::Launch(launch) => format!("kernel `{}`", launch.kernel()),
        Work::Copy { .. } => "a copy".into(),
    };
    let does = if used.writes { "writes" } else { "reads" };
    Error::argument(format!(
        "{who} {does} an array of {} bytes that the graph does not hold: give it to `Graph::capture` as a part of the state, \
         and take it from there in the closure",
        used.bytes
    ))
}

/// Executes the work on the cpu device.
///
/// # Safety
/// The arrays that the work uses are alive, and no other work conflicts with these uses.
unsafe fn run(nodes: &[Node]) -> Result<()> {
    nodes.iter().try_for_each(|node| match node.work {
        // SAFETY: guaranteed by the caller.
        Work::Launch(ref launch) => unsafe { launch.run(&node.uses) },
        Work::Copy { to, from, bytes } => {
            let [into, out] = [node.uses[0], node.uses[1]].map(|used| used.host_pointer());
            // SAFETY: in bounds, as checked at the recording, of two distinct live allocations.
            unsafe { into.add(to).copy_from_nonoverlapping(out.add(from), bytes) };
            Ok(())
        }
    })
}

/// Queues the work on a stream of a GPU.
///
/// # Safety
/// The arrays that the work uses are alive until the work is complete.
unsafe fn queue(nodes: &[Node], gpu: &'static Gpu, stream: &GpuStream) -> Result<()> {
    let mut after_kernel = false;
    nodes.iter().try_for_each(|node| match node.work {
        Work::Launch(ref launch) => {
            // A dependent launch, which may start before the end of its predecessor, needs a kernel
            // before it.
            let dependent = std::mem::replace(&mut after_kernel, true);
            // SAFETY: guaranteed by the caller.
            unsafe { launch.queue(stream, dependent) }
        }
        Work::Copy { to, from, bytes } => {
            after_kernel = false;
            let (to, from) = (node.uses[0].address + to as u64, node.uses[1].address + from as u64);
            // SAFETY: in bounds, as checked at the recording; the rest is guaranteed by the caller.
            unsafe { gpu.driver.copy_on_device(to, from, bytes, stream.raw) }
        }
    })
}
