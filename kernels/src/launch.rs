//! Launches of kernels, or their inspection for a target without a device.

use std::cell::{Cell, RefCell};
use std::thread::LocalKey;

use cutlet as ct;
use cutlet::aot::Format;
use cutlet::kernel::{Kernel, KernelArgs};
use cutlet::{Stream, Target};

use crate::inspect::{Inspected, Subject};

/// An inspection in progress on a thread.
struct Inspection {
    target: Target,
    subject: Subject,
    kernels: Vec<Inspected>,
}

thread_local! {
    static INSPECTION: RefCell<Option<Inspection>> = const { RefCell::new(None) };
}

/// Multiprocessors of an H100 SXM and of an H200, which inspections assume (NVIDIA's data sheet).
const NUM_MULTIPROCESSORS: usize = 132;

/// Returns the target of the code of launches on a stream. None: the interpreter.
pub fn target(stream: &Stream) -> Option<Target> {
    INSPECTION.with_borrow(|inspection| inspection.as_ref().map(|one| one.target)).or_else(|| stream.device().target())
}

/// Returns true while calls of this thread are inspected.
pub fn is_inspected() -> bool {
    INSPECTION.with_borrow(Option::is_some)
}

/// Returns the number of multiprocessors of the device of a stream.
#[allow(dead_code, reason = "kernels are added one by one")]
pub fn num_multiprocessors(stream: &Stream) -> usize {
    match INSPECTION.with_borrow(Option::is_some) {
        true => NUM_MULTIPROCESSORS,
        false => stream.device().num_multiprocessors(),
    }
}

thread_local! {
    static OVERLAPPED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call. Each kernel of this crate that the thread launches in it may start while the
/// preceding kernel of the stream is in progress (programmatic dependent launch, on Hopper and
/// later). It waits for the end of that kernel before its first access of memory. The time between
/// two kernels of a graph is shorter, the results are the same.
///
/// ```
/// use cutlet as ct;
/// use cutlet_kernels::{overlapped, softmax};
///
/// let device = ct::Device::cpu();
/// let x = device.zeros::<f32, 2>([1, 4])?;
/// let (mut y, mut z) = (device.zeros([1, 4])?, device.zeros([1, 4])?);
/// let stream = device.default_stream();
/// overlapped(|| {
///     softmax(&stream, x.view(), y.view_mut())?;
///     softmax(&stream, y.view(), z.view_mut())
/// })?;
/// assert_eq!(z.to_vec()?, [0.25; 4]);
/// # Ok::<(), ct::Error>(())
/// ```
pub fn overlapped<R>(call: impl FnOnce() -> R) -> R {
    scoped(&OVERLAPPED, call)
}

/// Runs a call with a flag, which is restored also after a panic.
fn scoped<R>(flag: &'static LocalKey<Cell<bool>>, call: impl FnOnce() -> R) -> R {
    struct Restore(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(flag, flag.replace(true));
    call()
}

/// Returns true in a call of [`overlapped`].
pub fn is_overlapped() -> bool {
    OVERLAPPED.get()
}

thread_local! {
    static INVARIANT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call. The kernels of this crate that the thread launches in it have tiles and parts of
/// sums that are independent of the batch: a row, token, sequence or matrix of the batch has the
/// same bits alone and among others.
///
/// The batch of each function, and the functions with this property outside of such a call, are in
/// the table of promises of the crate's README. Shapes other than the batch, element types,
/// alignment of arrays and the device are those of both calls.
///
/// ```
/// use cutlet as ct;
/// use cutlet_kernels::{batch_invariant, matmul};
///
/// let device = ct::Device::cpu();
/// let weights = device.from_fn([64, 32], |[i, j]| (i * 7 + j * 3) as f32 * 0.01)?;
/// let x = device.from_fn([5, 64], |[i, j]| ((i + j) % 9) as f32 * 0.1)?;
/// let (mut all, mut one) = (device.zeros::<f32, 2>([5, 32])?, device.zeros::<f32, 2>([1, 32])?);
/// let stream = device.default_stream();
/// batch_invariant(|| {
///     matmul().launch(&stream, x.view(), weights.view(), all.view_mut())?;
///     matmul().launch(&stream, x.slice(0, 3..4)?, weights.view(), one.view_mut())
/// })?;
/// assert_eq!(one.to_vec()?, all.to_vec()?[3 * 32..4 * 32]);
/// # Ok::<(), ct::Error>(())
/// ```
pub fn batch_invariant<R>(call: impl FnOnce() -> R) -> R {
    scoped(&INVARIANT, call)
}

/// Returns true in a call of [`batch_invariant`].
pub fn is_batch_invariant() -> bool {
    INVARIANT.get()
}

/// Returns the extent of a batch that the host may select tiles by: `invariant` in a call of
/// [`batch_invariant`].
pub fn of_batch(extent: usize, invariant: usize) -> usize {
    if is_batch_invariant() { invariant } else { extent }
}

/// Launches that may be inspected.
pub trait Run {
    /// Launches a kernel. In an inspection, the kernel is compiled for its target instead.
    fn run<K, A, P>(&self, kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>;
}

impl Run for ct::Launch<'_> {
    #[track_caller]
    fn run<K, A, P>(&self, kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let Some((target, subject)) = INSPECTION.with_borrow(|i| i.as_ref().map(|i| (i.target, i.subject))) else {
            return match is_overlapped() {
                false => self.launch(kernel, args),
                true => dependent(*self).launch(kernel, args),
            };
        };
        let name = std::any::type_name::<K>().to_owned();
        let inspected = match subject {
            Subject::Code => {
                let exported = self.export(kernel, args, target, Format::Ptx)?;
                Inspected { name, ptx: exported.bytes, threads: exported.threads, model: 0.0, schedule: String::new() }
            }
            Subject::Plan => {
                let plan = self.plans(kernel, args, target, false)?.into_iter().next();
                let (model, schedule) = plan.map_or((0.0, String::new()), |plan| (plan.model, plan.schedule));
                Inspected { name, ptx: Vec::new(), threads: 0, model, schedule }
            }
        };
        INSPECTION.with_borrow_mut(|i| i.as_mut().map(|i| i.kernels.push(inspected)));
        Ok(())
    }
}

#[allow(unsafe_code, reason = "kernels wait")]
fn dependent(launch: ct::Launch<'_>) -> ct::Launch<'_> {
    // SAFETY: a kernel without a wait of its own waits at its start. The one kernel that accesses
    // memory before its wait (`products::vector`) does so by permission of its caller.
    unsafe { launch.programmatic_dependent_launch() }
}

/// Runs a call, and returns the kernels that it launches.
pub fn inspect(target: Target, subject: Subject, call: impl FnOnce() -> ct::Result<()>) -> ct::Result<Vec<Inspected>> {
    let outer = INSPECTION.replace(Some(Inspection { target, subject, kernels: Vec::new() }));
    let done = call();
    let inspection = INSPECTION.replace(outer);
    done.map(|()| inspection.map(|one| one.kernels).unwrap_or_default())
}
