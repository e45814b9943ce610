//! Report on the environment of kernels, for bug reports: driver, devices, tools and cache.

use crate::util::collect::CollectVec as _;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use crate::backend::{cpu, tileir};
use crate::cache::disk::DiskCache;
use crate::error::Result;
use crate::launch::compile::tileir_route::{TileIrAssembler, assemblers, driver_compiles};
use crate::launch::options::gpu_backend;
use crate::runtime::{Backend, Device, Driver, Gpu, Seen, driver_build};
use crate::target::Target;

/// Environment variables that affect execution. The report has those that are set.
const VARIABLES: [&str; 11] = [
    "CUDA_VISIBLE_DEVICES",
    "CUTLET_BACKEND",
    "CUTLET_CACHE",
    "CUTLET_CACHE_BYTES",
    "CUTLET_CACHE_DIR",
    "CUTLET_COMPILE_SECONDS",
    "CUTLET_DISABLE",
    "CUTLET_PTXAS",
    "CUTLET_TARGET",
    "CUTLET_TILEIR",
    "CUTLET_TILEIRAS",
];

/// Report of [`doctor`] on driver, devices, tools and cache. `Display` writes about a dozen lines.
///
/// A missing part is an `Err` with the reason, and the remedy if there is one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DoctorReport {
    /// Version of this crate.
    pub version: &'static str,
    /// Operating system and processor.
    pub platform: String,
    /// CUDA version of the driver, and its build if the system reports it.
    pub driver: Result<String, String>,
    /// GPUs in the driver's order.
    pub gpus: Vec<Result<GpuCheck, String>>,
    /// Back ends: the method of execution, or the reason of its absence.
    pub backends: Vec<(Backend, Result<String, String>)>,
    /// Default back end of launches, or the reason of their failure.
    pub chosen: Result<Backend, String>,
    /// Cache of compiled kernels.
    pub cache: Result<CacheCheck, String>,
    /// Paths of assemblers by name. Only `tileiras` can be required, by the tileir back end.
    pub assemblers: Vec<(&'static str, Result<String, String>)>,
    /// Environment variables that affect execution, and their values.
    pub environment: Vec<(&'static str, String)>,
}

/// Properties of a GPU in a [`DoctorReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuCheck {
    /// Marketing name.
    pub name: String,
    /// Target of its code.
    pub target: Target,
    /// Number of multiprocessors.
    pub multiprocessors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Properties of the folder of compiled kernels in a [`DoctorReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCheck {
    /// Path of the folder, which may not exist yet.
    pub folder: PathBuf,
    /// Number of kernels in it.
    pub kernels: usize,
    /// Total size of the kernels in bytes.
    pub bytes: u64,
    /// Limit of the total size in bytes.
    pub limit_bytes: u64,
}

/// Reports the environment of kernels: driver, GPUs, back ends, cache, assemblers.
///
/// It works on any machine, and opens the first GPU if there is one. Print the report and add it to
/// a bug report; `cargo run --example doctor` prints it.
///
/// ```
/// let checkup = cutlet::doctor();
/// assert!(checkup.to_string().lines().count() > 5);
/// let (cpu, runs) = &checkup.backends[0];
/// assert!(*cpu == cutlet::Backend::Cpu && runs.is_ok());
/// ```
#[must_use]
pub fn doctor() -> DoctorReport {
    let driver = Driver::get().map_err(|error| error.to_string());
    let tileiras = tileiras();
    let set = |name| std::env::var_os(name).map(|value| (name, value.to_string_lossy().into_owned()));
    DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        platform: platform(),
        driver: driver.and_then(|driver| driver.version().map_err(|error| error.to_string())).map(driver_text),
        gpus: (0..Gpu::count()).map(|ordinal| gpu_check(Gpu::query_properties(ordinal))).collect_vec(),
        backends: backends(&tileiras),
        chosen: chosen(),
        cache: cache(DiskCache::from_env()),
        assemblers: vec![("tileiras", tileiras), ("ptxas", ptxas())],
        environment: VARIABLES.into_iter().filter_map(set).collect_vec(),
    }
}

/// Returns the operating system, the architecture, and the name of the processor if it is
/// reported.
fn platform() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(String::new(), |(_, name)| format!(", {name}"));
    format!("{} {}{name}", std::env::consts::OS, std::env::consts::ARCH)
}

fn driver_text(version: i32) -> String {
    let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    match driver_build() {
        Some(build) => format!("{build}, {cuda}"),
        None => cuda,
    }
}

fn gpu_check(seen: Result<Seen>) -> Result<GpuCheck, String> {
    let Seen { name, arch, multiprocessors, memory_bytes } = seen.map_err(|error| error.to_string())?;
    let target = Target { arch, accelerated: arch >= 90 };
    Ok(GpuCheck { name, target, multiprocessors, memory_bytes })
}

fn backends(tileiras: &Result<String, String>) -> Vec<(Backend, Result<String, String>)> {
    let gpu = Gpu::get(0);
    let why = |error: &crate::Error| error.to_string();
    let ptx = match &gpu {
        Ok(gpu) => Ok(format!("code for {}, assembled by the driver", gpu.target())),
        Err(error) => Err(why(error)),
    };
    let requested = std::env::var("CUTLET_TILEIR").ok();
    let tileir = gpu.and_then(|gpu| assemblers(gpu.target(), gpu.driver_version()?, requested.as_deref()));
    let tileir = match tileir {
        Ok((ways, _)) if ways[0] == TileIrAssembler::Driver => Ok("compiled by the driver".to_owned()),
        Ok((_, reasons)) => tileiras
            .as_ref()
            .map(|_| "compiled by tileiras".to_owned())
            .map_err(|missing| reasons.iter().chain([missing]).map(String::as_str).collect_vec().join("; ")),
        Err(error) => Err(why(&error)),
    };
    let threads = Ok(format!("interpreted by {} threads", cpu::num_threads()));
    vec![(Backend::Cpu, threads), (Backend::Ptx, ptx), (Backend::TileIr, tileir)]
}

/// Returns the default back end on the device of [`Device::first`], without messages on standard
/// error.
fn chosen() -> Result<Backend, String> {
    let asked = Backend::from_env().map_err(|error| error.to_string())?;
    match (asked, Device::gpu(0)) {
        (Some(Backend::Cpu), _) | (None, Err(_)) => Ok(Backend::Cpu),
        (Some(_), Err(error)) => Err(error.to_string()),
        (_, Ok(device)) => Ok(gpu_backend(asked, || device.as_gpu().is_some_and(driver_compiles))),
    }
}

fn cache(cache: Option<DiskCache>) -> Result<CacheCheck, String> {
    let cache = cache.ok_or("kept nowhere: CUTLET_CACHE is off, or there is no home folder")?;
    let folder = cache.folder().to_owned();
    if folder.exists() && !cache.is_own() {
        return Err(format!(
            "{} is not used: it belongs to another user or can be written by others (chmod 700, or CUTLET_CACHE_DIR)",
            folder.display()
        ));
    }
    let entries = cache.entries();
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    Ok(CacheCheck { folder, kernels: entries.len(), bytes, limit_bytes: cache.limit_bytes() })
}

fn tileiras() -> Result<String, String> {
    let mut assembler = tileir::Assembler::find().map_err(|error| error.to_string())?;
    assembler.time_limit = Duration::from_secs(10);
    let text = assembler.identity().map_err(|error| error.to_string())?;
    let version = text.lines().find(|line| line.contains("release")).or_else(|| text.lines().last());
    Ok(format!("{} ({})", assembler.path().display(), version.unwrap_or_default().trim()))
}

fn ptxas() -> Result<String, String> {
    let named = std::env::var_os("CUTLET_PTXAS").filter(|path| !path.is_empty()).map(PathBuf::from);
    match named.or_else(|| tileir::find_program("ptxas")) {
        Some(path) if path.is_file() => Ok(path.display().to_string()),
        Some(path) => Err(format!("CUTLET_PTXAS names {}, which is no file", path.display())),
        None => Err("not found, and only needed by the tests of cutlet".into()),
    }
}

/// Writes a line of the report, or the first one of several, with its subject in a column.
fn line(f: &mut Formatter<'_>, what: &str, text: impl Display) -> fmt::Result {
    writeln!(f, "{what:<11} {text}")
}

impl Display for DoctorReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "cutlet", format_args!("{} on {}", self.version, self.platform))?;
        line(f, "driver", self.driver.as_ref().unwrap_or_else(|why| why))?;
        for (ordinal, gpu) in self.gpus.iter().enumerate() {
            match gpu {
                Ok(gpu) => line(f, &format!("GPU {ordinal}"), gpu)?,
                Err(why) => line(f, &format!("GPU {ordinal}"), why)?,
            }
        }
        if self.gpus.is_empty() {
            line(f, "GPUs", "none")?;
        }
        for (backend, runs) in &self.backends {
            let mark = if self.chosen == Ok(*backend) { "; launches that choose nothing go here" } else { "" };
            match runs {
                Ok(how) => line(f, &backend.to_string(), format_args!("runs: {how}{mark}"))?,
                Err(why) => line(f, &backend.to_string(), format_args!("does not run: {why}{mark}"))?,
            }
        }
        if let Err(why) = &self.chosen {
            line(f, "launches", format_args!("fail if they choose nothing: {why}"))?;
        }
        match &self.cache {
            Ok(cache) => line(f, "cache", cache)?,
            Err(why) => line(f, "cache", why)?,
        }
        for (name, place) in &self.assemblers {
            line(f, name, place.as_ref().unwrap_or_else(|why| why))?;
        }
        for (name, value) in &self.environment {
            line(f, "environment", format_args!("{name}={value}"))?;
        }
        Ok(())
    }
}

impl Display for GpuCheck {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let gibibytes = self.memory_bytes as f64 / f64::from(1 << 30);
        write!(f, "{}, {}, {} multiprocessors, {gibibytes:.1} GiB", self.name, self.target, self.multiprocessors)?;
        if self.target.arch < 80 { f.write_str("; too old: sm_80 is the least") } else { Ok(()) }
    }
}

impl Display for CacheCheck {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (has, most) = (mebibytes(self.bytes), mebibytes(self.limit_bytes));
        write!(f, "{}: {} kernels, {has:.1} of {most:.0} MiB", self.folder.display(), self.kernels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the report of a machine with two GPUs, one of them too old.
    fn good() -> DoctorReport {
        let gpu = |name: &str, arch| GpuCheck {
            name: name.into(),
            target: Target { arch, accelerated: arch >= 90 },
            multiprocessors: 132,
            memory_bytes: 139 << 30,
        };
        DoctorReport {
            version: "0.1.0",
            platform: "linux x86_64".into(),
            driver: Ok("580.95.05, CUDA 13.0".into()),
            gpus: vec![Ok(gpu("NVIDIA H200", 90)), Ok(gpu("Tesla V100", 70)), Err("cuDeviceGet failed".into())],
            backends: vec![
                (Backend::Cpu, Ok("interpreted by 2 threads".into())),
                (Backend::Ptx, Ok("code for sm_90a, assembled by the driver".into())),
                (Backend::TileIr, Err("no tileiras".into())),
            ],
            chosen: Ok(Backend::Ptx),
            cache: Ok(CacheCheck { folder: "/c".into(), kernels: 3, bytes: 3 << 19, limit_bytes: 1 << 30 }),
            assemblers: vec![("tileiras", Err("not installed".into())), ("ptxas", Ok("/bin/ptxas".into()))],
            environment: vec![("CUTLET_TARGET", "sm_80".into())],
        }
    }

    #[test]
    fn the_report_fits_a_screen() {
        let want = "\
cutlet      0.1.0 on linux x86_64
driver      580.95.05, CUDA 13.0
GPU 0       NVIDIA H200, sm_90a, 132 multiprocessors, 139.0 GiB
GPU 1       Tesla V100, sm_70, 132 multiprocessors, 139.0 GiB; too old: sm_80 is the least
GPU 2       cuDeviceGet failed
cpu         runs: interpreted by 2 threads
ptx         runs: code for sm_90a, assembled by the driver; launches that choose nothing go here
tileir      does not run: no tileiras
cache       /c: 3 kernels, 1.5 of 1024 MiB
tileiras    not installed
ptxas       /bin/ptxas
environment CUTLET_TARGET=sm_80
";
        assert_eq!(good().to_string(), want);
        let bad = DoctorReport {
            driver: Err("no driver".into()),
            gpus: Vec::new(),
            chosen: Err("CUTLET_BACKEND: unknown back end".into()),
            cache: Err("kept nowhere".into()),
            ..good()
        };
        let text = bad.to_string();
        for line in [
            "driver      no driver",
            "GPUs        none",
            "launches    fail if they choose nothing: CUTLET_BACKEND",
            "cache       kept nowhere",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn every_machine_has_a_report() {
        let checkup = doctor();
        assert_eq!(checkup.version, env!("CARGO_PKG_VERSION"));
        let names: Vec<Backend> = checkup.backends.iter().map(|(backend, _)| *backend).collect();
        assert_eq!(names, [Backend::Cpu, Backend::Ptx, Backend::TileIr]);
        assert!(checkup.backends[0].1.is_ok());
        assert_eq!(checkup.gpus.len(), Device::num_gpus());
        if checkup.driver.is_err() {
            assert!(checkup.gpus.is_empty() && checkup.backends[1].1.is_err() && checkup.backends[2].1.is_err());
        }
        assert!(checkup.to_string().lines().count() < 40, "{checkup}");
    }

    #[test]
    fn the_cache_is_counted() {
        let folder = crate::util::temp_dir::TemporaryFolder::new().expect("a folder");
        let empty = cache(Some(DiskCache::new(folder.path().join("none"), 1 << 20))).expect("a folder to come");
        assert_eq!((empty.kernels, empty.bytes), (0, 0));
        assert!(cache(None).expect_err("no cache").contains("CUTLET_CACHE"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let open = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(folder.path(), open).expect("its mode");
            let why = cache(Some(DiskCache::new(folder.path().into(), 1))).expect_err("anybody's folder");
            assert!(why.contains("written by others"), "{why}");
        }
    }

    #[test]
    fn drivers_are_named_by_their_cuda() {
        assert!(driver_text(13_020).ends_with("CUDA 13.2"));
    }
}
