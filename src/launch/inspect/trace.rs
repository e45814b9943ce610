//! Traced launches: records of a kernel with time stamps, which the host reads after the launch.
//!
//! A traced kernel has a buffer of records while it is loaded. A launch that is read clears the
//! buffer, executes the kernel, waits for its end and converts the records to a trace. Readers are
//! `CUTLET_TRACE=FOLDER`, which writes files, and `Launch::launch_traced`. Other launches record
//! without a reader.

use std::cell::RefCell;
use std::ffi::{OsString, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::dump::Dump;
use crate::backend::ptx::{KernelStamps, MeasuredEvent, MeasuredTrace};
use crate::error::{Error, Result};
use crate::ir::Module;
use crate::runtime::{Access, Backend, Device, DeviceArray, Gpu, StreamHandle};

const VARIABLE: &str = "CUTLET_TRACE";

thread_local! {
    /// Trace of a launch that this thread collects.
    static COLLECTED: RefCell<Option<Vec<MeasuredTrace>>> = const { RefCell::new(None) };
}

/// Returns true if this thread collects the trace of a launch. Destructors of thread-locals may
/// launch.
fn is_collecting() -> bool {
    COLLECTED.try_with(|collected| collected.borrow().is_some()).unwrap_or(false)
}

/// Returns the folder that `CUTLET_TRACE` selects. The variable is read once.
#[inline]
pub(crate) fn folder() -> Option<&'static OsString> {
    static FOLDER: OnceLock<Option<OsString>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty())).as_ref()
}

/// Collection of the trace of a launch of this thread.
pub(crate) struct Collected {
    before: Option<Vec<MeasuredTrace>>,
}

impl Collected {
    /// Begins the collection.
    pub fn begin() -> Collected {
        Collected { before: COLLECTED.replace(Some(Vec::new())) }
    }

    /// Returns the trace of the launch since the begin.
    ///
    /// # Errors
    /// [`Error::Argument`] if no launch was executed.
    #[track_caller]
    pub fn trace(self) -> Result<MeasuredTrace> {
        let trace = COLLECTED.with_borrow_mut(|traces| traces.as_mut().and_then(Vec::pop));
        trace.ok_or_else(|| {
            Error::argument("this launch was not executed at once, so it has no trace: launch outside of a graph")
        })
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        COLLECTED.set(self.before.take());
    }
}

/// Rejects a back end without time stamps for a launch whose trace is collected.
///
/// # Errors
/// [`Error::Argument`] at the caller's location.
#[inline]
#[track_caller]
pub(crate) fn require_stamps(backend: Backend) -> Result<()> {
    if backend == Backend::Ptx || !is_collecting() {
        return Ok(());
    }
    Err(Error::argument(format!(
        "the {backend} back end places no time stamps: launch with `backend(Backend::Ptx)` and arrays on a GPU"
    )))
}

/// Records of the launches of a traced kernel.
pub(crate) struct LaunchTrace {
    stamps: KernelStamps,
    kernel: String,
    target: String,
    schedule: String,
    /// Steps of a CTA by the cost model.
    modelled: Vec<MeasuredEvent>,
    files: Dump,
    /// Address of the records, which is a parameter of the kernel.
    address: u64,
    records: Mutex<DeviceArray<u32, 1>>,
}

/// A traced launch that is read.
pub(crate) struct Traced<'a> {
    trace: &'a LaunchTrace,
    records: MutexGuard<'a, DeviceArray<u32, 1>>,
}

impl LaunchTrace {
    /// Allocates the records of a kernel. `schedule`: its text, whose lines the trace names.
    /// `modelled`: its steps by the cost model.
    ///
    /// # Errors
    /// Errors of the allocation.
    pub fn new(
        gpu: &'static Gpu,
        (kernel, module): (&str, &Module),
        stamps: KernelStamps,
        (schedule, modelled): (String, Vec<MeasuredEvent>),
    ) -> Result<Box<LaunchTrace>> {
        let records = Device::from_gpu(gpu).zeros::<u32, 1>([stamps.words()])?;
        let target = gpu.target().to_string();
        let files = Dump::to(folder().cloned(), VARIABLE, kernel, module, &schedule);
        let address = records.memory.address();
        let (kernel, records) = (kernel.to_owned(), Mutex::new(records));
        Ok(Box::new(LaunchTrace { stamps, kernel, target, schedule, modelled, files, address, records }))
    }

    /// Returns a pointer to the address of the records; without records, to the address 0.
    #[inline]
    pub fn address(trace: Option<&LaunchTrace>) -> *mut c_void {
        static NO_RECORDS: u64 = 0;
        let address: &u64 = trace.map_or(&NO_RECORDS, |trace| &trace.address);
        (&raw const *address).cast_mut().cast()
    }

    /// Prepares a launch on a stream: its records, and the launch if it is read. A launch that is
    /// captured records nothing.
    ///
    /// # Errors
    /// [`Error::Driver`] if earlier work on the device failed.
    #[cold]
    pub fn begin(&self, stream: &StreamHandle) -> Result<(Option<&LaunchTrace>, Option<Traced<'_>>)> {
        if stream.is_captured()? {
            return Ok((None, None));
        }
        if !self.files.is_wanted() && !is_collecting() {
            return Ok((Some(self), None));
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.memory.clear()?;
        records.memory.before_use(stream, Access::Write)?;
        Ok((Some(self), Some(Traced { trace: self, records })))
    }
}

impl Traced<'_> {
    /// Waits for the launch, and passes its trace to the readers.
    ///
    /// # Errors
    /// [`Error::Execution`] for wrong records; [`Error::Io`] for a file; errors of the launch.
    #[cold]
    pub fn end(self) -> Result<()> {
        let LaunchTrace { stamps, kernel, target, schedule, modelled, files, .. } = self.trace;
        let words = self.records.to_vec()?;
        drop(self.records);
        let mut trace = stamps.decode(kernel, target, &words)?;
        trace.modelled.clone_from(modelled);
        if files.is_wanted() {
            files.write("schedule", schedule.as_bytes())?;
            files.write("trace", trace.to_tsv().as_bytes())?;
            files.write("steps", trace.compare().to_string().as_bytes())?;
            files.write("svg", trace.timeline_svg().as_bytes())?;
            files.write("json", trace.trace_events_json().as_bytes())?;
        }
        let _ = COLLECTED.try_with(|collected| collected.borrow_mut().as_mut().map(|traces| traces.push(trace)));
        Ok(())
    }
}
