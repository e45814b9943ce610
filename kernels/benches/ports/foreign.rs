//! Launches of cubins that other compilers made, by the CUDA driver.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail, ensure};
use cutlet::{Diagnostic, Error, Stream};
use libloading::Library;

use crate::jit::tensor_map::TensorMap;

type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Attribute = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
type Function = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h.
const DYNAMIC_SHARED: c_int = 8;

/// The driver, with the primary context of the first GPU.
pub struct Driver {
    library: Library,
}

impl Driver {
    /// Loads the driver's library.
    pub fn new() -> Result<Driver> {
        // SAFETY: the library of the driver has no constructors that depend on this program.
        let driver = Driver { library: unsafe { Library::new("libcuda.so.1") }.context("the driver of the GPU")? };
        let mut context = null_mut();
        // SAFETY: the signatures are those of the driver API.
        unsafe {
            let init = driver.library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit\0")?;
            ensure!(init(0) == 0, "the driver of the GPU cannot be initialized");
            let retain = driver
                .library
                .get::<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>(b"cuDevicePrimaryCtxRetain\0")?;
            let status = retain(&mut context, 0);
            ensure!(status == 0, "no context of the first GPU: status {status}");
            let select = driver.library.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"cuCtxSetCurrent\0")?;
            ensure!(select(context) == 0, "the context of the first GPU is not accepted");
        }
        Ok(driver)
    }

    /// Returns the zeros of an argument of the manifest.
    pub fn clear(&self, argument: &str, arrays: &HashMap<&str, u64>) -> Result<Clear> {
        let Some((name, len)) = argument.split_once(':') else { bail!("the array {argument}") };
        let address = *arrays.get(name).with_context(|| format!("this row has no array {name}"))?;
        // SAFETY: the signature is that of the driver API.
        let memset = unsafe { *self.library.get(b"cuMemsetD32Async\0")? };
        Ok(Clear { memset, address, len: len.parse()? })
    }

    /// Loads the kernel of a cubin: `FILE` of tileiras, or `FILE ENTRY THREADS BYTES` with the threads of a block and
    /// its dynamic shared memory.
    pub fn kernel(&self, folder: &Path, cubin: &str) -> Result<Kernel> {
        // Blocks of tileiras have one thread for the driver; the cubin has their real number.
        let (file, name, threads, bytes) = match cubin.split(' ').collect::<Vec<_>>()[..] {
            [file] => (file, "kernel", 1, 0),
            [file, name, threads, bytes] => (file, name, threads.parse()?, bytes.parse()?),
            _ => bail!("the cubin {cubin}"),
        };
        let path = folder.join(file);
        let image = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let (mut module, mut function, name) = (null_mut(), null_mut(), CString::new(name)?);
        // SAFETY: the signatures are those of the driver API; the image outlives the call.
        unsafe {
            let status = self.library.get::<Load>(b"cuModuleLoadData\0")?(&mut module, image.as_ptr().cast());
            ensure!(status == 0, "loading {}: status {status}", path.display());
            let status = self.library.get::<Function>(b"cuModuleGetFunction\0")?(&mut function, module, name.as_ptr());
            ensure!(status == 0, "{} has no kernel: status {status}", path.display());
            let status = self.library.get::<Attribute>(b"cuFuncSetAttribute\0")?(function, DYNAMIC_SHARED, bytes);
            ensure!(status == 0, "{bytes} bytes of shared memory: status {status}");
            let launch = *self.library.get::<Launch>(b"cuLaunchKernel\0")?;
            Ok(Kernel { function, threads, bytes: bytes as u32, launch })
        }
    }
}

/// An error for a status of the driver other than success.
fn accepted(status: c_int, what: &str) -> cutlet::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(Error::Argument(Diagnostic::new(format!("the driver refuses a {what}: status {status}"), None))),
    }
}

/// A loaded kernel.
#[derive(Clone, Copy)]
pub struct Kernel {
    function: *mut c_void,
    threads: u32,
    /// Dynamic shared memory.
    bytes: u32,
    launch: Launch,
}

/// Zeros in an array of elements of 4 bytes.
pub struct Clear {
    memset: unsafe extern "C" fn(u64, u32, usize, *mut c_void) -> c_int,
    address: u64,
    len: usize,
}

impl Clear {
    /// Queues the zeros.
    pub fn queue(&self, stream: &Stream) -> cutlet::Result<()> {
        // SAFETY: the row owns the array.
        let status = unsafe { (self.memset)(self.address, 0, self.len, stream.raw()) };
        accepted(status, "memset")
    }
}

/// A kernel with grid and arguments.
pub struct Call {
    kernel: Kernel,
    grid: [u32; 3],
    arguments: Vec<Argument>,
}

/// An argument of a kernel.
enum Argument {
    /// A word whose first 4 or 8 bytes count.
    Word(u64),
    Map(Box<TensorMap>),
}

impl Call {
    /// Reads grid and arguments of a line of the manifest. An array is passed as address, extents and strides, or by
    /// `p=NAME` or `p=NAME+BYTES` as an address, by `x=NAME,KIND,NUMBERS` as a tensor map, a list as the address of the
    /// words of its arrays and their number.
    pub fn new(
        driver: &Driver,
        kernel: Kernel,
        grid: &str,
        arguments: &str,
        arrays: &HashMap<&str, u64>,
    ) -> Result<Call> {
        let grid: Vec<u32> = grid.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        let address = |name: &str| arrays.get(name).copied().with_context(|| format!("this row has no array {name}"));
        for argument in arguments.split_whitespace() {
            let mut words = Vec::new();
            if let Some(number) = argument.strip_prefix("f=") {
                words.push(u64::from(number.parse::<f32>()?.to_bits()));
            } else if let Some(number) = argument.strip_prefix("i=") {
                words.push(u64::from(number.parse::<i32>()? as u32));
            } else if let Some(number) = argument.strip_prefix("l=") {
                words.push(number.parse::<i64>()? as u64);
            } else if let Some(of) = argument.strip_prefix("p=") {
                let (name, bytes) = of.split_once('+').unwrap_or((of, "0"));
                words.push(address(name)? + bytes.parse::<u64>()?);
            } else if let Some(map) = argument.strip_prefix("x=") {
                let [name, kind, numbers] = map.splitn(3, ',').collect::<Vec<_>>()[..] else { bail!("the map {map}") };
                let numbers: Vec<i64> = numbers.split(',').map(str::parse).collect::<Result<_, _>>()?;
                all.push(Argument::Map(TensorMap::new(&driver.library, address(name)?, kind, &numbers)?));
            } else {
                let Some((name, shape)) = argument.split_once(':') else { bail!("the argument {argument}") };
                let shape: Vec<u64> = shape.split(',').map(str::parse).collect::<Result<_, _>>()?;
                words.push(address(name)?);
                words.extend(&shape);
                words.extend((0..shape.len()).map(|axis| shape[axis + 1..].iter().product::<u64>()));
            }
            all.extend(words.into_iter().map(Argument::Word));
        }
        let [x, y, z] = grid[..] else { bail!("a grid of {} axes", grid.len()) };
        Ok(Call { kernel, grid: [x, y, z], arguments: all })
    }

    /// Queues the kernel.
    pub fn queue(&self, stream: &Stream) -> cutlet::Result<()> {
        let pointer = |argument: &Argument| match argument {
            Argument::Word(word) => std::ptr::from_ref(word).cast_mut().cast::<c_void>(),
            Argument::Map(map) => std::ptr::from_ref(&**map).cast_mut().cast(),
        };
        let mut pointers: Vec<*mut c_void> = self.arguments.iter().map(pointer).collect();
        let [x, y, z] = self.grid;
        // SAFETY: the manifest has the parameters of the cubin; the driver copies them during the call.
        let status = unsafe {
            (self.kernel.launch)(
                self.kernel.function,
                x,
                y,
                z,
                self.kernel.threads,
                1,
                1,
                self.kernel.bytes,
                stream.raw(),
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        accepted(status, "launch")
    }
}
