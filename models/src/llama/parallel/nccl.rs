//! Sums by NCCL, whose library is opened at the first use.

use std::ffi::{CStr, c_char, c_int, c_void};

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};
use libloading::Library;

/// Names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// The sum of `ncclRedOp_t`.
const SUM: c_int = 0;

/// Number of a type in `ncclDataType_t`, which is the same in every NCCL 2.
fn number_of(name: &str) -> Option<c_int> {
    match name {
        "f16" => Some(6),
        "f32" => Some(7),
        "bf16" => Some(9),
        _ => None,
    }
}

type Communicator = *mut c_void;
type InitAll = unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> c_int;
type Reduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Communicator, *mut c_void) -> c_int;
type Group = unsafe extern "C" fn() -> c_int;
type Destroy = unsafe extern "C" fn(Communicator) -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;
type Version = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Functions of the library.
struct Api {
    init_all: InitAll,
    all_reduce: Reduce,
    group_start: Group,
    group_end: Group,
    destroy: Destroy,
    text: Text,
    version: Version,
    /// Declared last: closed after the last call.
    _library: Library,
}

/// A communicator for each rank, of this process.
pub struct Nccl {
    communicators: Vec<Communicator>,
    streams: Vec<Stream>,
    api: Api,
}

// SAFETY: calls borrow the value, and NCCL permits calls of any thread, one at a time.
#[allow(unsafe_code, reason = "handles of a library")]
unsafe impl Send for Nccl {}

#[allow(unsafe_code, reason = "functions of a library")]
impl Api {
    fn open() -> ct::Result<Api> {
        let mut reasons = Vec::new();
        for name in NAMES {
            // SAFETY: opening the library executes its own initialization alone.
            match unsafe { Library::new(name) } {
                // SAFETY: the types are those of the declarations in nccl.h of NCCL 2.
                Ok(library) => return unsafe { Api::of(library) }.map_err(|error| missing(&[error.to_string()])),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(missing(&reasons))
    }

    /// # Safety
    /// The library is NCCL 2.
    unsafe fn of(library: Library) -> Result<Api, libloading::Error> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Ok(Api {
                init_all: *library.get(b"ncclCommInitAll\0")?,
                all_reduce: *library.get(b"ncclAllReduce\0")?,
                group_start: *library.get(b"ncclGroupStart\0")?,
                group_end: *library.get(b"ncclGroupEnd\0")?,
                destroy: *library.get(b"ncclCommDestroy\0")?,
                text: *library.get(b"ncclGetErrorString\0")?,
                version: *library.get(b"ncclGetVersion\0")?,
                _library: library,
            })
        }
    }

    fn check(&self, call: &'static str, code: c_int) -> ct::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL returns a static text for every code.
        let text = unsafe { CStr::from_ptr((self.text)(code)) }.to_string_lossy().into_owned();
        Err(ct::Error::Driver { call, code: code.to_string(), text })
    }
}

fn missing(reasons: &[String]) -> ct::Error {
    ct::Error::NoDevice(format!("NCCL is not found ({}): its folder belongs into LD_LIBRARY_PATH", reasons.join("; ")))
}

#[allow(unsafe_code, reason = "functions of a library")]
impl Nccl {
    /// Makes a communicator of the GPUs of these streams, all of them different.
    ///
    /// # Errors
    /// [`ct::Error::NoDevice`] without the library or without GPUs; [`ct::Error::Driver`] if NCCL
    /// fails.
    pub fn new(streams: &[Stream]) -> ct::Result<Nccl> {
        let mut ordinals = Vec::new();
        for stream in streams {
            let at =
                (0..ct::Device::num_gpus()).find(|&at| ct::Device::gpu(at).is_ok_and(|gpu| gpu == stream.device()));
            let at = at.ok_or_else(|| ct::Error::NoDevice(format!("NCCL adds on GPUs, not on {}", stream.device())))?;
            ordinals.push(at as c_int);
        }
        let api = Api::open()?;
        let mut communicators = vec![std::ptr::null_mut(); streams.len()];
        // SAFETY: both lists have this many elements.
        let code = unsafe { (api.init_all)(communicators.as_mut_ptr(), streams.len() as c_int, ordinals.as_ptr()) };
        api.check("ncclCommInitAll", code)?;
        Ok(Nccl { communicators, streams: streams.to_vec(), api })
    }

    /// Returns the version of the library as NCCL writes it: 22809 for 2.28.9.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] if NCCL fails.
    pub fn version(&self) -> ct::Result<i32> {
        let mut version = 0;
        // SAFETY: the pointer is valid.
        self.api.check("ncclGetVersion", unsafe { (self.api.version)(&mut version) })?;
        Ok(version)
    }

    /// Queues the sum of arrays, one of each rank, into each of them. All work on the arrays is on
    /// the streams of the ranks.
    pub(super) fn sum<'a, T: Element, const R: usize>(
        &self,
        parts: impl Iterator<Item = &'a mut DeviceArray<T, R>>,
    ) -> ct::Result<()> {
        let number = number_of(T::NAME).ok_or_else(|| super::argument(format!("NCCL has no sums of {}", T::NAME)))?;
        // SAFETY: the group ends below, also after an error.
        self.api.check("ncclGroupStart", unsafe { (self.api.group_start)() })?;
        let mut queued = Ok(());
        for ((part, communicator), stream) in parts.zip(&self.communicators).zip(&self.streams) {
            let at = part.address() as *mut c_void;
            // SAFETY: the array has this many elements and is borrowed uniquely. Its work is on
            // this stream.
            let code = unsafe { (self.api.all_reduce)(at, at, part.len(), number, SUM, *communicator, stream.raw()) };
            queued = queued.and(self.api.check("ncclAllReduce", code));
        }
        // SAFETY: the group was started above.
        let ended = self.api.check("ncclGroupEnd", unsafe { (self.api.group_end)() });
        queued.and(ended)
    }
}

#[allow(unsafe_code, reason = "functions of a library")]
impl Drop for Nccl {
    fn drop(&mut self) {
        for (communicator, stream) in self.communicators.iter().zip(&self.streams) {
            let _ = stream.synchronize();
            // SAFETY: made by `ncclCommInitAll`, destroyed once; no sum is in progress.
            let _ = unsafe { (self.api.destroy)(*communicator) };
        }
    }
}
