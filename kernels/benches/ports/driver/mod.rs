//! Launches of cubins that other compilers made, by the CUDA driver.

pub mod call;
mod tensor_map;

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use cutlet::{Diagnostic, Error, Stream};
use libloading::Library;

type Pointer = *mut c_void;
type Launch = unsafe extern "C" fn(
    Pointer,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Pointer,
    *mut Pointer,
    *mut Pointer,
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
            let init = driver.function::<unsafe extern "C" fn(c_uint) -> c_int>("cuInit")?;
            accepted(init(0), "start of the GPU")?;
            let retain =
                driver.function::<unsafe extern "C" fn(*mut Pointer, c_int) -> c_int>("cuDevicePrimaryCtxRetain")?;
            accepted(retain(&mut context, 0), "context of the first GPU")?;
            let select = driver.function::<unsafe extern "C" fn(Pointer) -> c_int>("cuCtxSetCurrent")?;
            accepted(select(context), "context of this thread")?;
        }
        Ok(driver)
    }

    /// Returns a function of the driver API.
    ///
    /// # Safety
    /// `F` is the type of the function in cuda.h.
    unsafe fn function<F: Copy>(&self, name: &str) -> Result<F> {
        // SAFETY: by the condition of this function.
        let found = unsafe { self.library.get::<F>(CString::new(name)?.as_bytes_with_nul()) };
        Ok(*found.with_context(|| format!("the driver has no {name}"))?)
    }

    /// Returns the zeros of an argument of the manifest.
    pub fn clear(&self, argument: &str, arrays: &HashMap<&str, u64>) -> Result<Clear> {
        let Some((name, len)) = argument.split_once(':') else { bail!("the array {argument}") };
        let address = *arrays.get(name).with_context(|| format!("this row has no array {name}"))?;
        // SAFETY: the signature is that of the driver API.
        let memset = unsafe { self.function("cuMemsetD32Async")? };
        Ok(Clear { memset, address, len: len.parse()? })
    }

    /// Loads the kernel of a cubin: `FILE` of tileiras, or `FILE ENTRY THREADS BYTES` with the
    /// threads of a block and its dynamic shared memory.
    pub fn kernel(&self, folder: &Path, cubin: &str) -> Result<Kernel> {
        type Load = unsafe extern "C" fn(*mut Pointer, *const c_void) -> c_int;
        type Function = unsafe extern "C" fn(*mut Pointer, Pointer, *const c_char) -> c_int;
        type Attribute = unsafe extern "C" fn(Pointer, c_int, c_int) -> c_int;
        // Blocks of tileiras have one thread for the driver; the cubin has their real number.
        let (file, name, threads, bytes) = match cubin.split(' ').collect::<Vec<_>>()[..] {
            [file] => (file, "kernel", 1, 0),
            [file, name, threads, bytes] => (file, name, threads.parse()?, bytes.parse()?),
            _ => bail!("the cubin {cubin}"),
        };
        let image = std::fs::read(folder.join(file)).with_context(|| file.to_owned())?;
        let (mut module, mut function, entry) = (null_mut(), null_mut(), CString::new(name)?);
        // SAFETY: the signatures are those of the driver API; the image outlives the call.
        unsafe {
            accepted(self.function::<Load>("cuModuleLoadData")?(&mut module, image.as_ptr().cast()), "cubin")?;
            let found = self.function::<Function>("cuModuleGetFunction")?(&mut function, module, entry.as_ptr());
            accepted(found, "name of a kernel")?;
            let attribute = self.function::<Attribute>("cuFuncSetAttribute")?;
            accepted(attribute(function, DYNAMIC_SHARED, bytes), "size of shared memory")?;
            Ok(Kernel { function, threads, bytes: bytes as u32, launch: self.function("cuLaunchKernel")? })
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
    function: Pointer,
    threads: u32,
    /// Dynamic shared memory.
    bytes: u32,
    launch: Launch,
}

/// Zeros in an array of elements of 4 bytes.
pub struct Clear {
    memset: unsafe extern "C" fn(u64, u32, usize, Pointer) -> c_int,
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
