//! Launches of kernels, or their inspection for a target without a device.

use std::cell::RefCell;

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
            return self.launch(kernel, args);
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

/// Runs a call, and returns the kernels that it launches.
pub fn inspect(target: Target, subject: Subject, call: impl FnOnce() -> ct::Result<()>) -> ct::Result<Vec<Inspected>> {
    let outer = INSPECTION.replace(Some(Inspection { target, subject, kernels: Vec::new() }));
    let done = call();
    let inspection = INSPECTION.replace(outer);
    done.map(|()| inspection.map(|one| one.kernels).unwrap_or_default())
}
