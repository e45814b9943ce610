//! Devices: GPUs through the driver, and the host as the cpu device.
//!
//! A GPU is opened once per process and stays open: its primary context is retained, shared with
//! every other user of it in the process (the CUDA runtime, cudarc), and never reset here.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use super::driver::Driver;
use super::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};
use super::stream::{GpuStream, Stream, StreamKind};
use crate::error::{Error, Result};
use crate::target::Target;

/// Where arrays live and kernels run: one GPU, or the host.
///
/// ```
/// let device = cutlet::Device::cpu();
/// assert_eq!(device.target(), None);
/// assert_eq!(device.zeros::<f32, 1>([3])?.to_vec()?, [0.0; 3]);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Device(Kind);

#[derive(Clone, Copy)]
enum Kind {
    Cpu,
    Gpu(&'static Gpu),
}

/// Which back end runs a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The interpreter on the host; its arrays live on [`Device::cpu`].
    Cpu,
    /// Generated PTX on a GPU; its arrays live on [`Device::gpu`].
    Ptx,
    /// Tile IR bytecode on a GPU, compiled by the driver or by `tileiras`; its arrays live on
    /// [`Device::gpu`].
    TileIr,
}

impl Backend {
    /// What the environment variable `CUTLET_BACKEND` (`cpu`, `ptx` or `tileir`) asks for, if it is set.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other value.
    pub fn from_env() -> Result<Option<Backend>> {
        match std::env::var("CUTLET_BACKEND") {
            Err(_) => Ok(None),
            Ok(name) if name.is_empty() => Ok(None),
            Ok(name) => match name.parse() {
                Ok(backend) => Ok(Some(backend)),
                Err(message) => Err(Error::argument(format!("CUTLET_BACKEND: {message}"))),
            },
        }
    }
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Backend, String> {
        match name {
            "cpu" => Ok(Backend::Cpu),
            "ptx" => Ok(Backend::Ptx),
            "tileir" => Ok(Backend::TileIr),
            _ => Err(format!("unknown back end `{name}`: expected cpu, ptx or tileir")),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Cpu => "cpu",
            Backend::Ptx => "ptx",
            Backend::TileIr => "tileir",
        })
    }
}

impl Device {
    /// The device of the back end that `CUTLET_BACKEND` names; else the first GPU; else the cpu
    /// device, said once on stderr.
    ///
    /// # Errors
    /// [`Error::NoDevice`] when `CUTLET_BACKEND=ptx` and there is no GPU, [`Error::Argument`] for a
    /// value of that variable that is no back end.
    pub fn first() -> Result<Device> {
        match Backend::from_env()? {
            Some(Backend::Cpu) => Ok(Device::cpu()),
            Some(Backend::Ptx | Backend::TileIr) => Device::gpu(0),
            None => Ok(Device::gpu(0).unwrap_or_else(|error| {
                static SAID: Once = Once::new();
                SAID.call_once(|| eprintln!("cutlet: no GPU ({error}); kernels run on the cpu back end"));
                Device::cpu()
            })),
        }
    }

    /// The host. Kernels are interpreted there, and a launch returns when its work is done.
    pub fn cpu() -> Device {
        Device(Kind::Cpu)
    }

    /// The GPU with this number, in the driver's order (`CUDA_VISIBLE_DEVICES` applies).
    ///
    /// # Errors
    /// [`Error::NoDevice`] when there is no driver or no such GPU, [`Error::Driver`] when it cannot
    /// be opened.
    pub fn gpu(ordinal: usize) -> Result<Device> {
        static OPEN: Mutex<BTreeMap<usize, &'static Gpu>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = open.get(&ordinal) {
            return Ok(Device(Kind::Gpu(gpu)));
        }
        let gpu = Gpu::open(ordinal)?;
        open.insert(ordinal, gpu);
        Ok(Device(Kind::Gpu(gpu)))
    }

    /// Number of GPUs; 0 without a driver.
    pub fn num_gpus() -> usize {
        let count = Driver::get().and_then(|driver| {
            let mut count: c_int = 0;
            // SAFETY: the pointer is valid and the driver is initialised.
            unsafe { driver.device_count(&mut count) }?;
            Ok(count)
        });
        count.map_or(0, |count| usize::try_from(count).unwrap_or(0))
    }

    pub(crate) fn of(gpu: &'static Gpu) -> Device {
        Device(Kind::Gpu(gpu))
    }

    pub(crate) fn as_gpu(&self) -> Option<&'static Gpu> {
        match self.0 {
            Kind::Cpu => None,
            Kind::Gpu(gpu) => Some(gpu),
        }
    }

    /// What code is generated for on this device; `None` on the cpu device.
    pub fn target(&self) -> Option<Target> {
        self.as_gpu().map(|gpu| gpu.target)
    }

    /// The kind of back end that runs kernels on this device: [`Backend::Cpu`], or for GPUs
    /// [`Backend::Ptx`], also where launches go through Tile IR.
    pub fn backend(&self) -> Backend {
        match self.0 {
            Kind::Cpu => Backend::Cpu,
            Kind::Gpu(_) => Backend::Ptx,
        }
    }

    /// The marketing name of a GPU, `cpu` for the host.
    pub fn name(&self) -> &str {
        self.as_gpu().map_or("cpu", |gpu| &gpu.name)
    }

    /// Multiprocessors of a GPU; worker threads of the cpu device.
    pub fn num_multiprocessors(&self) -> usize {
        match self.0 {
            Kind::Cpu => rayon::current_num_threads(),
            Kind::Gpu(gpu) => gpu.multiprocessors,
        }
    }

    /// The stream of launches and copies that name no other.
    pub fn default_stream(&self) -> Stream {
        self.default_stream_ref().clone()
    }

    pub(crate) fn default_stream_ref(&self) -> &'static Stream {
        static CPU: Stream = Stream(StreamKind::Cpu);
        match self.0 {
            Kind::Cpu => &CPU,
            Kind::Gpu(gpu) => gpu.default_stream.get().expect("set when the GPU was opened"),
        }
    }

    /// A new stream.
    ///
    /// # Errors
    /// [`Error::Driver`] when earlier work on the device failed.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream(match self.0 {
            Kind::Cpu => StreamKind::Cpu,
            Kind::Gpu(gpu) => StreamKind::Gpu(Arc::new(GpuStream::new(gpu)?)),
        }))
    }

    /// Waits until all work on this device is done.
    ///
    /// # Errors
    /// [`Error::Driver`] when some of this work failed.
    pub fn synchronize(&self) -> Result<()> {
        match self.0 {
            Kind::Cpu => Ok(()),
            Kind::Gpu(gpu) => {
                gpu.make_current()?;
                // SAFETY: the context is current.
                unsafe { gpu.driver.context_synchronize() }
            }
        }
    }

    /// A number that tells devices of this process apart: 0 for the cpu device.
    pub(crate) fn id(&self) -> u64 {
        self.as_gpu().map_or(0, |gpu| gpu.ordinal as u64 + 1)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Cpu => f.write_str("Device(cpu)"),
            Kind::Gpu(gpu) => write!(f, "Device({}: {}, {})", gpu.ordinal, gpu.name, gpu.target),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Cpu => f.write_str("the cpu device"),
            Kind::Gpu(gpu) => write!(f, "GPU {} ({})", gpu.ordinal, gpu.name),
        }
    }
}

/// An open GPU.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    pub(crate) context: CUcontext,
    /// Memory pool of this crate; `None` where the device has no pools.
    pub(crate) pool: Option<CUmemoryPool>,
    ordinal: usize,
    name: String,
    target: Target,
    multiprocessors: usize,
    /// Cycles of a multiprocessor in a second.
    clock: f64,
    /// Bytes that memory moves in a second.
    memory_rate: f64,
    default_stream: OnceLock<Stream>,
}

// SAFETY: context and pool are driver handles, valid on every thread for the life of the process.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    fn open(ordinal: usize) -> Result<&'static Gpu> {
        let driver = Driver::get()?;
        let count = Device::num_gpus();
        if ordinal >= count {
            return Err(Error::NoDevice(format!("there is no GPU {ordinal}: the driver finds {count}")));
        }
        let mut device: CUdevice = 0;
        let mut context: CUcontext = std::ptr::null_mut();
        let mut name = [0 as std::ffi::c_char; 128];
        // SAFETY: pointers are valid, the name has room for 128 bytes and ends with NUL.
        let name = unsafe {
            driver.device_get(&mut device, ordinal as c_int)?;
            driver.device_name(name.as_mut_ptr(), name.len() as c_int, device)?;
            driver.primary_context_retain(&mut context, device)?;
            driver.context_set_current(context)?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let attribute = |which: CUdevice_attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: the pointer is valid.
            unsafe { driver.device_attribute(&mut value, which as u32, device) }?;
            Ok(value.max(0) as u32)
        };
        use CUdevice_attribute::*;
        let arch = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        if arch < 80 {
            return Err(Error::NoDevice(format!(
                "GPU {ordinal} ({name}) is sm_{arch}; sm_80 is the least that is supported"
            )));
        }
        let wish = std::env::var("CUTLET_TARGET").unwrap_or_default();
        let pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0;
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu {
            driver,
            context,
            pool: if pools { Some(create_pool(driver, ordinal)?) } else { None },
            ordinal,
            name,
            target: chosen_target(Target { arch, accelerated: arch >= 90 }, &wish)?,
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            clock: f64::from(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?) * 1e3,
            // Clocks are in kHz; data moves on both edges.
            memory_rate: 2e3
                * f64::from(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?)
                * f64::from(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)? / 8),
            default_stream: OnceLock::new(),
        }));
        let stream = Arc::new(GpuStream::new(gpu)?);
        gpu.default_stream.get_or_init(|| Stream(StreamKind::Gpu(stream)));
        Ok(gpu)
    }

    /// Cycles that all multiprocessors together have in a second.
    pub(crate) fn cycle_rate(&self) -> f64 {
        self.clock * self.multiprocessors as f64
    }

    /// Bytes that memory moves in a second.
    pub(crate) fn memory_rate(&self) -> f64 {
        self.memory_rate
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    /// What tells drivers apart: the CUDA version, and the build where the system says it.
    /// Latest CUDA version that the driver supports: 13010 for 13.1.
    pub(crate) fn driver_version(&self) -> Result<i32> {
        self.driver.version()
    }

    pub(crate) fn driver_identity(&self) -> Result<String> {
        let build = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        Ok(format!("{} {build}", self.driver.version()?))
    }

    pub(crate) fn default_stream(&self) -> &Arc<GpuStream> {
        match self.default_stream.get() {
            Some(Stream(StreamKind::Gpu(stream))) => stream,
            _ => unreachable!("set when the GPU was opened"),
        }
    }

    /// Makes this GPU's context the calling thread's; cheap when it already is.
    #[inline]
    pub(crate) fn make_current(&self) -> Result<()> {
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

/// A pool that keeps what is freed, so that a loop which allocates does not go to the system.
fn create_pool(driver: &Driver, ordinal: usize) -> Result<CUmemoryPool> {
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
        driver.pool_create(&mut pool, &props)?;
        let which = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
        driver.pool_set_attribute(pool, which, (&raw mut threshold).cast())?;
    }
    Ok(pool)
}

/// What code is generated for on a GPU: what it is itself, or the older target that `CUTLET_TARGET` wishes for.
fn chosen_target(own: Target, wish: &str) -> Result<Target> {
    if wish.is_empty() {
        return Ok(own);
    }
    let target: Target = wish.parse().map_err(|error| Error::argument(format!("CUTLET_TARGET: {error}")))?;
    match target.arch <= own.arch && (!target.accelerated || target.arch == own.arch) {
        true => Ok(target),
        false => Err(Error::argument(format!("CUTLET_TARGET is {target}, whose code does not run on {own}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_an_older_target_can_be_asked_for() {
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
