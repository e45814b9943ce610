//! An open GPU and the driver's objects on it: its context, its memory pool, streams and events.
//!
//! A GPU is opened once per process and remains open. Its primary context is retained, shared with
//! every other library in the process (the CUDA runtime, cudarc), and never reset here. The public
//! interface has devices and streams.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use super::deadline::Deadline;
use super::deferred_release::{Handle, Leftovers};
use crate::error::{Diagnostic, Error, Result};
use crate::runtime::array::stream_order::Queue;
use crate::runtime::code::pending_asserts::Failures;
use crate::runtime::driver::Driver;
use crate::runtime::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream, CUstream_flags,
};
use crate::target::Target;

/// An open GPU.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    pub(crate) context: CUcontext,
    /// The memory pool of this crate; `None` if the device has no pools.
    pub(crate) pool: Option<CUmemoryPool>,
    /// The number in the driver's order.
    pub(crate) ordinal: usize,
    /// The marketing name.
    pub(crate) name: String,
    target: Target,
    pub(crate) multiprocessors: usize,
    /// The clock of a multiprocessor, in cycles per second.
    clock: f64,
    /// The bandwidth of the memory, in bytes per second.
    memory_rate: f64,
    /// Resources that could not be released yet.
    pub(crate) leftovers: Leftovers,
    /// Assertions that failed.
    pub(crate) failures: Failures,
    default_stream: OnceLock<StreamHandle>,
    /// Locked for writing during a capture, which excludes waits for the whole context.
    pub(crate) capture: RwLock<()>,
}

// SAFETY: context and pool are driver handles, valid on every thread for the life of the process.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Returns the GPU with this number, and opens it at the first call.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver or no such GPU, [`Error::Driver`] if it cannot be
    /// opened.
    pub(crate) fn get(ordinal: usize) -> Result<&'static Gpu> {
        static OPEN: Mutex<BTreeMap<usize, &'static Gpu>> = Mutex::new(BTreeMap::new());
        // Before the lock, which another thread may have held during a fork.
        Driver::check_process()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = open.get(&ordinal) {
            return Ok(gpu);
        }
        let gpu = Gpu::open(ordinal)?;
        open.insert(ordinal, gpu);
        Ok(gpu)
    }

    /// Returns the number of GPUs; 0 without a driver.
    pub(crate) fn count() -> usize {
        let count = Driver::get().and_then(|driver| {
            let mut count: c_int = 0;
            // SAFETY: the pointer is valid and the driver is initialized.
            unsafe { driver.device_count(&mut count) }?;
            Ok(count)
        });
        count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
    }

    /// Returns the properties of a GPU without opening it, also of one that is too old to be
    /// opened.
    ///
    /// # Errors
    /// [`Error::NoDevice`] without a driver, [`Error::Driver`] if a query fails.
    pub(crate) fn query_properties(ordinal: usize) -> Result<Seen> {
        let driver = Driver::get()?;
        let (device, name) = named_device(driver, ordinal)?;
        let mut bytes = 0;
        // SAFETY: the pointer is valid.
        unsafe { driver.device_total_memory(&mut bytes, device) }?;
        use CUdevice_attribute::*;
        let attribute = |which| attribute_of(driver, device, which);
        Ok(Seen {
            name,
            arch: 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
                + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            memory_bytes: bytes as u64,
        })
    }

    fn open(ordinal: usize) -> Result<&'static Gpu> {
        let driver = Driver::get()?;
        let count = Gpu::count();
        if ordinal >= count {
            return Err(Error::NoDevice(format!("there is no GPU {ordinal}: the driver finds {count}")));
        }
        let (device, name) = named_device(driver, ordinal)?;
        let mut opening = Opening::new(driver, device)?;
        let context = opening.context;
        // SAFETY: the context is retained.
        unsafe { driver.context_set_current(context) }?;
        let attribute = |which| attribute_of(driver, device, which);
        use CUdevice_attribute::*;
        let arch = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if arch < 80 {
            return Err(Error::NoDevice(format!(
                "GPU {ordinal} ({name}) is sm_{arch}; sm_80 is the least that is supported"
            )));
        }
        let wish = std::env::var("CUTLET_TARGET").unwrap_or_default();
        let target = chosen_target(Target { arch, accelerated: arch >= 90 }, &wish)?;
        if attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0 {
            opening.create_pool(ordinal)?;
        }
        let multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        let clock = f64::from(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?) * 1e3;
        // Clocks are in kHz; data are transferred on both edges.
        let memory_rate = 2e3
            * f64::from(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?)
            * f64::from(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)? / 8);
        // The last step that can fail.
        let stream = new_stream(driver)?;
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu {
            driver,
            context,
            pool: opening.pool,
            ordinal,
            name,
            target,
            multiprocessors,
            clock,
            memory_rate,
            leftovers: Leftovers::default(),
            failures: Failures::default(),
            default_stream: OnceLock::new(),
            capture: RwLock::new(()),
        }));
        opening.done();
        gpu.default_stream.get_or_init(|| StreamHandle::from_stream(Arc::new(GpuStream::from_raw(gpu, stream, None))));
        Ok(gpu)
    }

    /// Returns the cycles per second of all multiprocessors together.
    pub(crate) fn cycle_rate(&self) -> f64 {
        self.clock * self.multiprocessors as f64
    }

    /// Returns the bandwidth of the memory, in bytes per second.
    pub(crate) fn memory_rate(&self) -> f64 {
        self.memory_rate
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// Returns the latest CUDA version that the driver supports: 13010 for 13.1.
    pub(crate) fn driver_version(&self) -> Result<i32> {
        self.driver.version()
    }

    /// Returns an identification of the driver: the CUDA version, and the build if the system
    /// reports it, as `13000 580.95.05`.
    pub(crate) fn driver_identity(&self) -> Result<String> {
        let version = self.driver.version()?;
        Ok(driver_build().map_or_else(|| version.to_string(), |build| format!("{version} {build}")))
    }

    /// Returns the stream of launches and copies that name no other one.
    #[inline]
    pub(crate) fn default_stream(&self) -> &StreamHandle {
        self.default_stream.get().expect("set when the GPU was opened")
    }

    /// Waits for all work of the context, which must be current. Not permitted while this thread
    /// captures.
    pub(crate) fn synchronize_context(&'static self) -> Result<()> {
        // The waiting thread holds the lock, even after the time limit of the calling one.
        let wait = || {
            let _no_capture = self.capture.read().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the context is current.
            unsafe { self.driver.context_synchronize() }
        };
        match Deadline::current() {
            None => wait(),
            Some(deadline) => {
                let work = move || {
                    self.make_current()?;
                    wait()
                };
                deadline.wait_in_thread("the work of a device", Box::new(work))
            }
        }
    }

    /// Makes this GPU's context current on the calling thread; cheap if it already is.
    #[inline]
    pub(crate) fn make_current(&self) -> Result<()> {
        Driver::check_process()?;
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: the pointer is valid; the context is never destroyed.
        unsafe {
            self.driver.context_get_current(&mut current)?;
            if current != self.context {
                self.driver.context_set_current(self.context)?;
            }
        }
        Ok(())
    }
}

/// The resources of a GPU that is being opened. A drop before the end releases all of them.
struct Opening {
    driver: &'static Driver,
    device: CUdevice,
    context: CUcontext,
    pool: Option<CUmemoryPool>,
    /// The previous context of this thread.
    before: CUcontext,
}

impl Opening {
    /// Retains the primary context of a device.
    fn new(driver: &'static Driver, device: CUdevice) -> Result<Opening> {
        let (mut context, mut before): (CUcontext, CUcontext) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the pointers are valid.
        unsafe {
            driver.context_get_current(&mut before)?;
            driver.primary_context_retain(&mut context, device)?;
        }
        Ok(Opening { driver, device, context, pool: None, before })
    }

    /// Makes a pool that retains freed memory, so that allocations in a loop do not call the
    /// system.
    fn create_pool(&mut self, ordinal: usize) -> Result<()> {
        let props = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal as c_int },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        let mut threshold = u64::MAX;
        // SAFETY: the pointers are valid; the release threshold is a 64-bit number of bytes.
        unsafe {
            self.driver.pool_create(&mut pool, &props)?;
            self.pool = Some(pool);
            let which = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
            self.driver.pool_set_attribute(pool, which, (&raw mut threshold).cast())
        }
    }

    /// Transfers all resources to an open GPU.
    fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // SAFETY: pool and context were made here, are released once, and have no other use. A
        // failure requires no action.
        unsafe {
            let _ = self.pool.map(|pool| self.driver.pool_destroy(pool));
            let _ = self.driver.context_set_current(self.before);
            let _ = self.driver.primary_context_release(self.device);
        }
    }
}

/// Makes a stream in the context of this thread.
fn new_stream(driver: &Driver) -> Result<CUstream> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer is valid. A non-blocking stream is not ordered with the legacy null
    // stream.
    unsafe { driver.stream_create(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32) }?;
    Ok(raw)
}

/// The properties of a GPU that is not open.
pub(crate) struct Seen {
    /// The marketing name.
    pub name: String,
    /// Compute capability: 90 for 9.0.
    pub arch: u32,
    pub multiprocessors: usize,
    pub memory_bytes: u64,
}

/// Returns the handle of a device, and its marketing name.
fn named_device(driver: &Driver, ordinal: usize) -> Result<(CUdevice, String)> {
    let mut device: CUdevice = 0;
    let mut name = [0 as std::ffi::c_char; 128];
    // SAFETY: pointers are valid, the buffer of the name has 128 bytes, and the name ends with NUL.
    unsafe {
        driver.device_get(&mut device, ordinal as c_int)?;
        driver.device_name(name.as_mut_ptr(), name.len() as c_int, device)?;
        Ok((device, CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()))
    }
}

/// Returns a property of a device; 0 for a negative value.
fn attribute_of(driver: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the pointer is valid.
    unsafe { driver.device_attribute(&mut value, which as u32, device) }?;
    Ok(value.max(0) as u32)
}

/// Returns the target of code for a GPU: its own one, or the older target that `CUTLET_TARGET`
/// names.
fn chosen_target(own: Target, wish: &str) -> Result<Target> {
    if wish.is_empty() {
        return Ok(own);
    }
    let target: Target = wish.parse().map_err(|error| Error::environment("CUTLET_TARGET", wish, error))?;
    match target.arch <= own.arch && (!target.accelerated || target.arch == own.arch) {
        true => Ok(target),
        false => Err(Error::environment("CUTLET_TARGET", wish, format!("code for it does not run on {own}"))),
    }
}

/// An object that keeps a resource of another library alive.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

/// A CUDA stream, destroyed with its last user unless it belongs to another library.
pub(crate) struct GpuStream {
    pub(crate) gpu: &'static Gpu,
    pub(crate) raw: CUstream,
    /// The owner of a stream of another library.
    owner: Option<Owner>,
    /// The number of handles through which work can be queued.
    handles: AtomicUsize,
}

// SAFETY: the driver's stream functions may be called from any thread.
unsafe impl Send for GpuStream {}
// SAFETY: as above.
unsafe impl Sync for GpuStream {}
// The owner is only dropped: no call reads a state that a panic has left.
impl UnwindSafe for GpuStream {}
impl RefUnwindSafe for GpuStream {}

impl GpuStream {
    fn new(gpu: &'static Gpu) -> Result<GpuStream> {
        gpu.make_current()?;
        gpu.leftovers.retry();
        Ok(GpuStream::from_raw(gpu, new_stream(gpu.driver)?, None))
    }

    fn from_raw(gpu: &'static Gpu, raw: CUstream, owner: Option<Owner>) -> GpuStream {
        GpuStream { gpu, raw, owner, handles: AtomicUsize::new(0) }
    }

    /// Returns true if the work of this stream is being captured.
    pub(crate) fn is_captured(&self) -> Result<bool> {
        self.gpu.make_current()?;
        let mut status = 0;
        // SAFETY: the stream is alive and the pointer is valid.
        unsafe { self.gpu.driver.stream_is_capturing(self.raw, &mut status) }?;
        Ok(status != 0)
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the stream is alive.
        match Deadline::current() {
            None => unsafe { self.gpu.driver.stream_synchronize(self.raw) }?,
            Some(deadline) => deadline
                .wait("the work of a stream", || Driver::is_done(unsafe { self.gpu.driver.stream_query(self.raw) }))?,
        }
        self.gpu.failures.check()
    }
}

/// Waiting would invalidate the capture, or add an unrelated stream to it.
#[cold]
fn other_stream_is_captured() -> Error {
    Error::Argument(Diagnostic::new(
        "an array goes from a stream that is being captured to one that is not, or the other way round: use it on the \
         captured stream before the capture begins and synchronise, or record the work with `Graph::capture`",
        None,
    ))
}

impl Queue for GpuStream {
    type Error = Error;

    fn wait_for(&self, other: &GpuStream) -> Result<()> {
        if std::ptr::eq(self, other) {
            return Ok(());
        }
        if self.is_captured()? != other.is_captured()? {
            return Err(other_stream_is_captured());
        }
        // An event of the GPU whose work it marks. Streams of any GPU may wait for it.
        let event = GpuEvent::new(other.gpu, false)?;
        event.record(other)?;
        self.gpu.make_current()?;
        event.hold_back(self)
    }

    fn is_open(&self) -> bool {
        // Pairs with the drop of a handle: all work of the handle is queued now.
        self.handles.load(Ordering::Acquire) > 0
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        let (gpu, stream) = (self.gpu, Handle::new(self.raw));
        // SAFETY: this object created the stream, and it has no other user. The driver completes
        // pending work first.
        gpu.leftovers
            .release(move || gpu.make_current().and_then(|()| unsafe { gpu.driver.stream_destroy(stream.raw()) }));
    }
}

/// The right to queue work on a stream. Memory that only records a stream has no handle.
pub(crate) struct StreamHandle(Arc<GpuStream>);

impl StreamHandle {
    /// Makes a stream.
    pub(crate) fn new(gpu: &'static Gpu) -> Result<StreamHandle> {
        Ok(StreamHandle::from_stream(Arc::new(GpuStream::new(gpu)?)))
    }

    /// Returns a stream of another library, kept alive by its owner.
    ///
    /// # Errors
    /// [`Error::Argument`] for a stream of another context than the primary one of this GPU.
    ///
    /// # Safety
    /// `raw` is a stream of this process, and remains one until the owner is dropped.
    pub(crate) unsafe fn foreign(gpu: &'static Gpu, raw: CUstream, owner: Owner) -> Result<StreamHandle> {
        gpu.make_current()?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the stream is alive and the pointer is valid.
        unsafe { gpu.driver.stream_context(raw, &mut context) }?;
        if context != gpu.context {
            return Err(Error::argument(format!(
                "the stream is of another context than the primary one of GPU {} ({})",
                gpu.ordinal, gpu.name
            )));
        }
        Ok(StreamHandle::from_stream(Arc::new(GpuStream::from_raw(gpu, raw, Some(owner)))))
    }

    /// Makes another handle of a stream.
    pub(crate) fn from_stream(stream: Arc<GpuStream>) -> StreamHandle {
        stream.handles.fetch_add(1, Ordering::Relaxed);
        StreamHandle(stream)
    }
}

impl Clone for StreamHandle {
    fn clone(&self) -> StreamHandle {
        StreamHandle::from_stream(self.0.clone())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::Release);
    }
}

impl Deref for StreamHandle {
    type Target = Arc<GpuStream>;

    #[inline]
    fn deref(&self) -> &Arc<GpuStream> {
        &self.0
    }
}

/// An event of the driver, destroyed with this object.
pub(crate) struct GpuEvent {
    pub(crate) gpu: &'static Gpu,
    pub(crate) raw: CUevent,
}

// SAFETY: the driver's event functions may be called from any thread.
unsafe impl Send for GpuEvent {}
// SAFETY: as above.
unsafe impl Sync for GpuEvent {}

impl GpuEvent {
    /// Makes an event that is not recorded yet.
    pub(crate) fn new(gpu: &'static Gpu, timing: bool) -> Result<GpuEvent> {
        gpu.make_current()?;
        let flags = if timing { 0 } else { CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid.
        unsafe { gpu.driver.event_create(&mut raw, flags) }?;
        Ok(GpuEvent { gpu, raw })
    }

    /// Records the event after the present work of a stream.
    pub(crate) fn record(&self, stream: &GpuStream) -> Result<()> {
        // SAFETY: event and stream are alive and of one context.
        unsafe { self.gpu.driver.event_record(self.raw, stream.raw) }
    }

    /// Waits for the event.
    pub(crate) fn wait(&self) -> Result<()> {
        self.gpu.make_current()?;
        // SAFETY: the event is alive.
        match Deadline::current() {
            None => unsafe { self.gpu.driver.event_synchronize(self.raw) },
            Some(deadline) => deadline
                .wait("the work of a stream", || Driver::is_done(unsafe { self.gpu.driver.event_query(self.raw) })),
        }
    }

    /// Makes later work on a stream wait for the event.
    pub(crate) fn hold_back(&self, stream: &GpuStream) -> Result<()> {
        // SAFETY: stream and event are alive; the driver keeps what it needs of a destroyed event.
        unsafe { stream.gpu.driver.stream_wait_event(stream.raw, self.raw, 0) }
    }
}

impl fmt::Debug for GpuEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.raw)
    }
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        let (gpu, event) = (self.gpu, Handle::new(self.raw));
        // SAFETY: created by this object, without another user.
        gpu.leftovers
            .release(move || gpu.make_current().and_then(|()| unsafe { gpu.driver.event_destroy(event.raw()) }));
    }
}

/// The build of the driver, as `580.95.05`, if the system reports it.
pub(crate) fn driver_build() -> Option<String> {
    // The line is `NVRM version: NVIDIA ... Kernel Module  580.95.05  ...`.
    let line = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_build = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_build).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_an_older_target_can_be_requested() {
        let own = Target::SM_90A;
        for (wish, chosen) in [("", Target::SM_90A), ("sm_80", Target::SM_80), ("sm_90a", Target::SM_90A)] {
            assert_eq!(chosen_target(own, wish).expect(wish), chosen);
        }
        for (wish, complaint) in
            [("sm_100", "does not run on sm_90a"), ("sm_90b", "unknown target"), ("80", "unknown target")]
        {
            let error = chosen_target(own, wish).expect_err(wish).to_string();
            assert!(error.contains("CUTLET_TARGET") && error.contains(complaint), "{error}");
        }
        let newer = Target { arch: 100, accelerated: true };
        assert!(chosen_target(newer, "sm_90a").is_err(), "code for sm_90a runs on that alone");
    }
}
