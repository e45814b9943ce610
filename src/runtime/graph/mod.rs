//! Graphs: launches and copies that are recorded once and queued as a whole, often.
//!
//! **What is safe here.** Recorded work has addresses in it, so the arrays have to be there, and nobody else may use them,
//! whenever it runs. A graph therefore holds them: as a value ([`GraphResource`]) that its closure gets for recording and that is
//! looked at, when the closure is done, for every allocation that was used. Whoever changes that value afterwards makes the
//! graph record anew.
//!
//! **Order.** While a closure is recorded nothing is queued and no stream waits for another. The driver captures the work
//! on a stream that nobody else knows. A replay comes behind what others do with the arrays, as a launch does, and is a
//! use of each of them.

mod exec;
pub(crate) mod recorder;
mod resources;
#[cfg(test)]
mod tests;

use std::fmt;

use self::exec::Exec;
use super::array::memory::Memory;
use super::device::device::Device;
use super::device::gpu::{Gpu, GpuStream};
use super::device::stream::Stream;
use crate::error::{Error, Result};
use crate::kernel::refuse_nested;
use recorder::{Node, Recorded, Used, Work};
pub use resources::GraphResource;

/// What records the work of a graph.
type Recorder<'f, S> = Box<dyn FnMut(&mut S) -> Result<()> + Send + 'f>;

/// Launches and copies that were recorded, and run as a whole as often as wanted.
///
/// On a GPU they are a CUDA graph: a replay is one call of the driver, whatever it contains. On the cpu device they are run
/// one after another, with the parameters that they were recorded with.
///
/// # Recording
/// [`Graph::capture`] calls a closure with what the graph holds: arrays, and numbers for its launches. While it runs,
/// nothing is queued: what this thread launches ([`launch`](fn@crate::launch), [`Launch`](crate::Launch),
/// [`CompiledKernel`](crate::CompiledKernel), whole arrays stored into others) and copies between arrays of one device
/// (`copy_from_array`, without gaps) becomes work of the graph, each behind the one before. Kernels are compiled then, if
/// they were not: before the driver captures anything. Streams that launches name do not matter. A
/// [`programmatic_dependent_launch`](crate::Launch::programmatic_dependent_launch) may start before the kernel in front of it
/// in the graph has ended.
///
/// The graph keeps the code of its kernels. The arrays that they use have to be among what it holds; new ones cannot be made
/// while it is recorded, nor can elements come from the host or go there.
///
/// # Threads of a rayon pool
/// On a thread of a rayon pool, a closure that waits for rayon (`join`, `scope`, a parallel iterator, `yield_now`) has its thread
/// run other tasks of the pool meanwhile. Their work is no work of the graph. There, a launch or copy belongs to the graph if
/// it uses an array that the graph has alone: by value or by `&mut`. Any other launch, copy and replay runs at once, and the
/// closure is called again, up to eight times, until no such work runs. After that it is an error with the place of that
/// work, which the closure itself then does, most likely. So on such a thread a launch that only reads arrays which the graph
/// holds by `&` cannot be recorded, and new arrays, and copies between the host and other arrays, are made as ever.
///
/// # Changing it
/// Numbers that the closure gave to launches, addresses, extents and grids stay as they were recorded. After
/// [`Graph::state_mut`] the next replay records again, and puts the changes into the graph that is there (where the driver
/// can; else, as for more launches than before, it makes another one). So closures do best to leave arrays where they are:
/// one that swaps two of them records something else the next time.
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
/// It may borrow arrays as well: a graph of `(&x, &mut y)` has them until it goes.
pub struct Graph<'f, S> {
    /// Before what it uses: destroyed first.
    exec: Option<Exec>,
    nodes: Vec<Node>,
    /// How the allocations of the state are used, in the order in which it shows them.
    uses: Vec<Use>,
    device: Device,
    /// Has somebody had the chance to change the state since?
    is_stale: bool,
    record: Recorder<'f, S>,
    state: S,
}

/// Most recordings in a row that other tasks interrupt with work of their own.
const MOST_RECORDINGS: usize = 8;

/// How a graph uses an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    Reads,
    Writes,
}

impl<'f, S: GraphResource> Graph<'f, S> {
    /// Records what the closure launches and copies, without running it. It gets `state` now, and again when that was
    /// changed. On a thread of a rayon pool it should not wait for rayon: see [`Graph`].
    ///
    /// # Errors
    /// Those of the closure; [`Error::Argument`] for work on arrays that the graph does not hold, for work on two devices,
    /// for none at all, and within another recording; on a thread of a rayon pool, for work that may be that of another task
    /// (see [`Graph`]); [`Error::Driver`] when earlier work on the device failed.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Records again, if the state may have changed; a replay would do it.
    ///
    /// # Errors
    /// As [`Graph::capture`]. The graph tries again then at the next replay.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
            // SAFETY: the state has what the work uses, and is not changed without another look at it.
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

    /// The work that the closure records.
    #[track_caller]
    fn recorded(&mut self) -> Result<Vec<Node>> {
        for recordings_left in (0..MOST_RECORDINGS).rev() {
            let held = held(&self.state);
            let Recorded { nodes, at_once } = recorder::record(&held, || (self.record)(&mut self.state))?;
            // Arrays that the closure has put into the state are its own, too.
            let held: Vec<Used> = self::held(&self.state).into_iter().filter(|used| used.writes).collect();
            match at_once.iter().find(|work| recordings_left == 0 || work.writes(&held)) {
                Some(work) => return Err(work.refused()),
                None if at_once.is_empty() => return Ok(nodes),
                None => {}
            }
        }
        unreachable!("the last recording returns")
    }

    /// Does the recorded work, on the default stream of its device.
    ///
    /// # Errors
    /// As a launch of each kernel in it; as [`Graph::capture`] after a change of the state.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Does the recorded work on a stream.
    ///
    /// # Errors
    /// As [`Graph::replay`]; [`Error::Argument`] for a stream of another device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
            // On a thread of a pool. What the other graph holds is none of this one's arrays.
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
            // SAFETY: what is used was found in the state, which is borrowed uniquely; so nobody else uses what is
            // written, or writes what is read.
            return unsafe { run(&self.nodes) };
        };
        let stream = stream.and_then(Stream::as_gpu).unwrap_or(gpu.default_stream());
        let (mut uses, mut ordered) = (self.uses.iter(), Ok(()));
        self.state.arrays(&mut |memory, _| {
            let how = uses.next().copied().unwrap_or(Use::None);
            if how != Use::None && ordered.is_ok() {
                ordered = memory.before_use(stream, how == Use::Writes);
            }
        });
        ordered?;
        // SAFETY: what is used is in the state, and freed in the order of its streams.
        unsafe { exec.launch(stream) }
    }

    /// What it holds, to look at: after a replay that is queued, arrays answer when it is done.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let one = |x: ArrayMut<i32, 1>| x.store(0, ct::ones([4]));
    /// let graph = ct::Graph::capture(ct::Device::cpu().zeros([4])?, |x| ct::launch(one, 1, (x,)))?;
    /// assert_eq!(graph.state().to_vec()?, [0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// What it holds, to change: other elements, other numbers, other arrays. The next replay records again.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// What it held; the graph goes.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
    /// Launches and copies in it, as they were recorded last.
    #[allow(clippy::len_without_is_empty)] // None is empty.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The device that it runs on.
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
        write!(f, "Graph on {} of {:?}", self.device, self.nodes.iter().map(work).collect::<Vec<_>>())
    }
}

/// The one device of recorded work.
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

/// The allocations of the state, in the order in which it shows them.
fn held(state: &impl GraphResource) -> Vec<Used> {
    let mut held = Vec::new();
    state.arrays(&mut |memory: &Memory, writable| held.push(memory.used(writable)));
    held
}

/// How the work uses the allocations of the state.
#[track_caller]
fn uses_of(nodes: &[Node], state: &impl GraphResource) -> Result<Vec<Use>> {
    let mut held: Vec<(Used, Use)> = self::held(state).into_iter().map(|used| (used, Use::None)).collect();
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
    Ok(held.into_iter().map(|(_, how)| how).collect())
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

/// Does the work on the cpu device.
///
/// # Safety
/// What it uses is there, and nobody else uses it in a way that conflicts.
unsafe fn run(nodes: &[Node]) -> Result<()> {
    nodes.iter().try_for_each(|node| match node.work {
        // SAFETY: promised by the caller.
        Work::Launch(ref launch) => unsafe { launch.run(&node.uses) },
        Work::Copy { to, from, bytes } => {
            let [into, out] = [node.uses[0], node.uses[1]].map(|used| used.host_pointer());
            // SAFETY: in bounds as checked when it was recorded, of two allocations, which are there.
            unsafe { into.add(to).copy_from_nonoverlapping(out.add(from), bytes) };
            Ok(())
        }
    })
}

/// Queues the work on a stream of a GPU.
///
/// # Safety
/// What it uses is there until the work is done.
unsafe fn queue(nodes: &[Node], gpu: &'static Gpu, stream: &GpuStream) -> Result<()> {
    let mut after_kernel = false;
    nodes.iter().try_for_each(|node| match node.work {
        Work::Launch(ref launch) => {
            // There has to be a kernel in front of one that may start before that one's end.
            let dependent = std::mem::replace(&mut after_kernel, true);
            // SAFETY: promised by the caller.
            unsafe { launch.queue(stream, dependent) }
        }
        Work::Copy { to, from, bytes } => {
            after_kernel = false;
            let (to, from) = (node.uses[0].address + to as u64, node.uses[1].address + from as u64);
            // SAFETY: in bounds as checked when it was recorded; else promised by the caller.
            unsafe { gpu.driver.copy_on_device(to, from, bytes, stream.raw) }
        }
    })
}
