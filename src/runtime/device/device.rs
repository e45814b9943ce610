//! Devices: GPUs through the driver, and the host as the cpu device.

use std::fmt;
use std::sync::Once;

use super::gpu::Gpu;
use crate::backend::cpu;
use crate::error::{Error, Result};
use crate::runtime::driver::Driver;
use crate::target::Target;
use crate::util::{report, spelling};

/// A place of arrays and kernels: one GPU, or the host.
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

/// The back end that runs a kernel.
///
/// ```
/// # use cutlet::doctest::*;
/// assert_eq!(ct::Device::cpu().backend(), ct::Backend::Cpu);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The interpreter on the host, for arrays on [`Device::cpu`].
    Cpu,
    /// Generated PTX on a GPU, for arrays on [`Device::gpu`].
    Ptx,
    /// Tile IR bytecode on a GPU, compiled by the driver or by `tileiras`, for arrays on
    /// [`Device::gpu`].
    TileIr,
}

impl Backend {
    /// Returns the back end that the environment variable `CUTLET_BACKEND` names (`cpu`, `ptx` or
    /// `tileir`), if it is set.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other value.
    ///
    /// ```
    /// if let Some(backend) = cutlet::Backend::from_env()? {
    ///     println!("CUTLET_BACKEND asks for {backend}");
    /// }
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn from_env() -> Result<Option<Backend>> {
        spelling::check_environment();
        match std::env::var("CUTLET_BACKEND") {
            Err(_) => Ok(None),
            Ok(name) if name.is_empty() => Ok(None),
            Ok(name) => match name.parse() {
                Ok(backend) => Ok(Some(backend)),
                Err(message) => Err(Error::environment("CUTLET_BACKEND", &name, message)),
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
    /// Returns the device of the back end that `CUTLET_BACKEND` names, else the first GPU, else the
    /// cpu device, with one message on stderr.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if `CUTLET_BACKEND=ptx` and there is no GPU. [`Error::Argument`] if the
    /// value of that variable is no back end, or that of `CUTLET_TARGET` no target.
    /// [`Error::Driver`] in a child that was forked from a process that uses GPUs.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let device = ct::Device::first()?;
    /// println!("{} with {} multiprocessors", device.name(), device.num_multiprocessors());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn first() -> Result<Device> {
        if let Ok(wish) = std::env::var("CUTLET_TARGET")
            && !wish.is_empty()
        {
            // An error also if no code is generated for a GPU.
            wish.parse::<Target>().map_err(|problem| Error::environment("CUTLET_TARGET", &wish, problem))?;
        }
        match Backend::from_env()? {
            Some(Backend::Cpu) => Ok(Device::cpu()),
            Some(Backend::Ptx | Backend::TileIr) => Device::gpu(0),
            None => {
                // There is a GPU, which a child of a process that uses it cannot access.
                Driver::check_process()?;
                Ok(Device::gpu(0).unwrap_or_else(|error| {
                    static REPORTED: Once = Once::new();
                    REPORTED
                        .call_once(|| report::warning(&format!("no GPU ({error}); kernels run on the cpu back end")));
                    Device::cpu()
                }))
            }
        }
    }

    /// Returns the host. It interprets kernels, and a launch returns after its work is complete.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().array(&[1, 2, 3], [3])?;
    /// assert_eq!(x.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn cpu() -> Device {
        Device(Kind::Cpu)
    }

    /// Returns the GPU with this number, in the driver's order (`CUDA_VISIBLE_DEVICES` applies).
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver or no such GPU, [`Error::Driver`] if it cannot be
    /// opened.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let devices = (0..ct::Device::num_gpus()).map(ct::Device::gpu).collect::<ct::Result<Vec<_>>>()?;
    /// assert!(ct::Device::gpu(devices.len()).is_err());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn gpu(ordinal: usize) -> Result<Device> {
        Gpu::get(ordinal).map(Device::from_gpu)
    }

    /// Returns the number of GPUs; 0 without a driver.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// println!("{} GPUs", ct::Device::num_gpus());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn num_gpus() -> usize {
        Gpu::count()
    }

    pub(crate) fn from_gpu(gpu: &'static Gpu) -> Device {
        Device(Kind::Gpu(gpu))
    }

    pub(crate) fn as_gpu(&self) -> Option<&'static Gpu> {
        match self.0 {
            Kind::Cpu => None,
            Kind::Gpu(gpu) => Some(gpu),
        }
    }

    /// Returns the target of code for this device; `None` for the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert_eq!(ct::Device::cpu().target(), None);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn target(&self) -> Option<Target> {
        self.as_gpu().map(Gpu::target)
    }

    /// Returns the kind of back end of this device: [`Backend::Cpu`], or [`Backend::Ptx`] for GPUs,
    /// also if launches use Tile IR.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert_eq!(ct::Device::cpu().backend(), ct::Backend::Cpu);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn backend(&self) -> Backend {
        match self.0 {
            Kind::Cpu => Backend::Cpu,
            Kind::Gpu(_) => Backend::Ptx,
        }
    }

    /// Returns the marketing name of a GPU, or `cpu` for the host.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert!(!ct::Device::cpu().name().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.as_gpu().map_or("cpu", |gpu| &gpu.name)
    }

    /// Returns the number of multiprocessors of a GPU, or of worker threads of the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// // As many blocks as run at a time, each of which goes through many tiles.
    /// let blocks = ct::Device::cpu().num_multiprocessors().max(1);
    /// assert!(blocks >= 1);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn num_multiprocessors(&self) -> usize {
        match self.0 {
            Kind::Cpu => cpu::num_threads(),
            Kind::Gpu(gpu) => gpu.multiprocessors,
        }
    }

    /// Waits until all work on this device is complete.
    ///
    /// # Errors
    /// [`Error::Driver`] if some of this work failed, [`Error::Execution`] if an assertion in it
    /// failed, [`Error::Hung`] for waits beyond [`Hints::wait_limit`](crate::Hints::wait_limit).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let device = ct::Device::cpu();
    /// let x = device.full([4], 1.0f32)?;
    /// ct::launch(|x: Array<f32, 1>| ct::println!("{}", x.load(0, [4])), 1, (&x,))?;
    /// device.synchronize()?; // on a GPU: now the text is out, and what failed is an error here
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        match self.0 {
            Kind::Cpu => Ok(()),
            Kind::Gpu(gpu) => {
                gpu.make_current()?;
                gpu.synchronize_context()?;
                gpu.failures.check()
            }
        }
    }

    /// Returns a number that distinguishes the devices of this process: 0 for the cpu device.
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
            Kind::Gpu(gpu) => write!(f, "Device({}: {}, {})", gpu.ordinal, gpu.name, gpu.target()),
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
