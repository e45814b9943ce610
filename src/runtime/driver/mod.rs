//! The CUDA driver as a table of checked functions.
//!
//! Each function of the table returns a [`Result`] that names the driver call. The library is
//! opened and all its symbols are looked up at one time. Nothing is linked, and nothing panics on a
//! machine without a driver or with an old one. Status codes are plain numbers, as a newer driver
//! may return unknown ones.
//!
//! The bindings of cudarc are not used: they follow the linking mode and the CUDA version of the
//! whole program. This module does not depend on devices, memory or kernels.

mod library;
pub mod sys;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;

use sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUkernel,
    CUlaunchConfig, CUlibrary, CUlinkState, CUmemAccessDesc, CUmemPoolProps, CUmemoryPool, CUmodule, CUstream,
    CUtensorMap,
};

use crate::error::{Error, Result};
use crate::util::process;

/// The status of a driver call; 0 is success.
type Status = c_uint;

macro_rules! driver_table {
    ($($(#[$meta:meta])* $name:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(,)?);)+) => {
        /// Entry points of the loaded driver library.
        pub struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> Status,)+
        }

        impl Driver {
            fn load() -> Result<Driver, String> {
                // Never unloaded: the functions are called until the program ends.
                let library = std::mem::ManuallyDrop::new(library::open()?);
                let mut version = 0;
                // SAFETY: the signature is that of the driver's header; this function may be called
                // before `cuInit`.
                unsafe {
                    type Version = unsafe extern "C" fn(*mut c_int) -> Status;
                    if let Ok(of_driver) = library.get::<Version>(b"cuDriverGetVersion") {
                        of_driver(&mut version);
                    }
                }
                check_version(version)?;
                Ok(Driver {
                    $($name: {
                        let place = symbol(&library, $symbol)?;
                        // SAFETY: the address of a function, and the signature of this symbol in
                        // the driver's header.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($ty),*) -> Status>(place) }
                    },)+
                })
            }

            $($(#[$meta])*
            ///
            /// # Safety
            /// As the driver documents for the function of this name.
            #[inline]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name(&self, $($arg: $ty),*) -> Result<()> {
                // SAFETY: guaranteed by the caller.
                let status = unsafe { (self.$name)($($arg),*) };
                if status == 0 { Ok(()) } else { Err(self.error($symbol, status)) }
            })+
        }
    };
}

/// Returns the address of a function in the driver's library. Not generic, to limit the code size:
/// the table is long.
fn symbol(library: &Library, name: &str) -> Result<NonNull<c_void>, String> {
    // SAFETY: as an address, a symbol of any type may be looked up.
    let place = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok().and_then(|place| NonNull::new(*place));
    place.ok_or_else(|| format!("the CUDA driver is too old: it has no {name}"))
}

driver_table! {
    /// Initializes the driver.
    init = "cuInit"(flags: c_uint);
    /// Returns the latest CUDA version that the driver supports.
    driver_version = "cuDriverGetVersion"(version: *mut c_int);
    /// Returns the number of devices.
    device_count = "cuDeviceGetCount"(count: *mut c_int);
    /// Returns the handle of a device.
    device_get = "cuDeviceGet"(device: *mut CUdevice, ordinal: c_int);
    /// Returns the name of a device.
    device_name = "cuDeviceGetName"(name: *mut c_char, len: c_int, device: CUdevice);
    /// Returns the bytes of a device's memory.
    device_total_memory = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: CUdevice);
    /// Returns a property of a device.
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_uint, device: CUdevice);
    /// Retains the primary context of a device.
    primary_context_retain = "cuDevicePrimaryCtxRetain"(context: *mut CUcontext, device: CUdevice);
    /// Releases the primary context of a device.
    primary_context_release = "cuDevicePrimaryCtxRelease_v2"(device: CUdevice);
    /// Returns the context of the calling thread.
    context_get_current = "cuCtxGetCurrent"(context: *mut CUcontext);
    /// Sets the context of the calling thread.
    context_set_current = "cuCtxSetCurrent"(context: CUcontext);
    /// Queries if one device can access the memory of another one.
    can_access_peer = "cuDeviceCanAccessPeer"(can: *mut c_int, device: CUdevice, other: CUdevice);
    /// Lets kernels of the current context access memory of another one.
    context_enable_peer = "cuCtxEnablePeerAccess"(other: CUcontext, flags: c_uint);
    /// Waits for all work of the current context.
    context_synchronize = "cuCtxSynchronize"();
    /// Queries if all work of a stream is complete.
    stream_query = "cuStreamQuery"(stream: CUstream);
    /// Makes a stream.
    stream_create = "cuStreamCreate"(stream: *mut CUstream, flags: c_uint);
    /// Returns the context of a stream; for the null stream the current one.
    stream_context = "cuStreamGetCtx"(stream: CUstream, context: *mut CUcontext);
    /// Destroys a stream after its work is complete.
    stream_destroy = "cuStreamDestroy_v2"(stream: CUstream);
    /// Waits for the work of a stream.
    stream_synchronize = "cuStreamSynchronize"(stream: CUstream);
    /// Makes a stream wait for an event.
    stream_wait_event = "cuStreamWaitEvent"(stream: CUstream, event: CUevent, flags: c_uint);
    /// Queues a callback after the present work of a stream, which is called also if the work
    /// fails.
    stream_add_callback = "cuStreamAddCallback"(
        stream: CUstream, call: unsafe extern "C" fn(CUstream, c_uint, *mut c_void), data: *mut c_void, flags: c_uint);
    /// Queries the capture of a stream: 0: none, 1: active, 2: failed.
    stream_is_capturing = "cuStreamIsCapturing"(stream: CUstream, status: *mut c_uint);
    /// Begins the capture of a stream's work as a graph.
    stream_begin_capture = "cuStreamBeginCapture_v2"(stream: CUstream, mode: c_uint);
    /// Ends a capture and returns the graph, null if the capture has failed.
    stream_end_capture = "cuStreamEndCapture"(stream: CUstream, graph: *mut CUgraph);
    /// Destroys a graph.
    graph_destroy = "cuGraphDestroy"(graph: CUgraph);
    /// Makes an executable graph.
    graph_instantiate = "cuGraphInstantiateWithFlags"(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Updates the parameters of an executable graph from a graph of the same form.
    graph_exec_update = "cuGraphExecUpdate_v2"(
        exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
    /// Queues a graph.
    graph_launch = "cuGraphLaunch"(exec: CUgraphExec, stream: CUstream);
    /// Destroys an executable graph after its work is complete.
    graph_exec_destroy = "cuGraphExecDestroy"(exec: CUgraphExec);
    /// Makes an event.
    event_create = "cuEventCreate"(event: *mut CUevent, flags: c_uint);
    /// Destroys an event.
    event_destroy = "cuEventDestroy_v2"(event: CUevent);
    /// Records an event after the present work of a stream.
    event_record = "cuEventRecord"(event: CUevent, stream: CUstream);
    /// Waits for an event.
    event_synchronize = "cuEventSynchronize"(event: CUevent);
    /// Queries if an event is reached.
    event_query = "cuEventQuery"(event: CUevent);
    /// Returns the time between two recorded events.
    event_elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, start: CUevent, end: CUevent);
    /// Makes a memory pool.
    pool_create = "cuMemPoolCreate"(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
    /// Destroys a memory pool.
    pool_destroy = "cuMemPoolDestroy"(pool: CUmemoryPool);
    /// Sets a property of a memory pool.
    pool_set_attribute = "cuMemPoolSetAttribute"(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    /// Sets the devices that can access the memory of a pool.
    pool_set_access = "cuMemPoolSetAccess"(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
    /// Releases unused memory of a pool.
    pool_trim = "cuMemPoolTrimTo"(pool: CUmemoryPool, bytes_to_keep: usize);
    /// Allocates in stream order from a pool.
    alloc_from_pool = "cuMemAllocFromPoolAsync"(
        address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    /// Frees in stream order.
    free_async = "cuMemFreeAsync"(address: CUdeviceptr, stream: CUstream);
    /// Allocates at once.
    alloc = "cuMemAlloc_v2"(address: *mut CUdeviceptr, bytes: usize);
    /// Frees after waiting for the device.
    free = "cuMemFree_v2"(address: CUdeviceptr);
    /// Fills bytes in stream order.
    fill_bytes = "cuMemsetD8Async"(address: CUdeviceptr, byte: c_uchar, bytes: usize, stream: CUstream);
    /// Fills 16-bit units in stream order.
    fill_halves = "cuMemsetD16Async"(address: CUdeviceptr, half: c_ushort, count: usize, stream: CUstream);
    /// Fills 32-bit units in stream order.
    fill_words = "cuMemsetD32Async"(address: CUdeviceptr, word: c_uint, count: usize, stream: CUstream);
    /// Allocates host memory that GPUs can access.
    host_alloc = "cuMemHostAlloc"(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Returns the address of such host memory on the GPU of the current context.
    host_device_pointer = "cuMemHostGetDevicePointer_v2"(
        address: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    /// Frees such host memory.
    host_free = "cuMemFreeHost"(address: *mut c_void);
    /// Copies to the device in stream order.
    copy_to_device = "cuMemcpyHtoDAsync_v2"(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    /// Copies to the host in stream order.
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies within a device in stream order.
    copy_on_device = "cuMemcpyDtoDAsync_v2"(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Copies between devices in stream order.
    copy_between = "cuMemcpyPeerAsync"(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream);
    /// Starts a link.
    link_create = "cuLinkCreate_v2"(
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: *mut CUlinkState);
    /// Adds input to a link.
    link_add_data = "cuLinkAddData_v2"(
        state: CUlinkState, kind: c_uint, data: *mut c_void, bytes: usize, name: *const c_char, count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void);
    /// Ends a link and returns the cubin.
    link_complete = "cuLinkComplete"(state: CUlinkState, cubin: *mut *mut c_void, bytes: *mut usize);
    /// Frees a link and its cubin.
    link_destroy = "cuLinkDestroy"(state: CUlinkState);
    /// Loads a cubin into the current context.
    module_load_data = "cuModuleLoadData"(module: *mut CUmodule, image: *const c_void);
    /// Loads code into the current context, compiling it first if it is PTX.
    module_load_data_ex = "cuModuleLoadDataEx"(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void);
    /// Unloads the code of a module.
    module_unload = "cuModuleUnload"(module: CUmodule);
    /// Finds a kernel of a module.
    module_function = "cuModuleGetFunction"(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    /// Finds a global variable of a module.
    module_global = "cuModuleGetGlobal_v2"(
        address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    /// Loads code as a library: a cubin, or bytecode for the driver's compiler.
    library_load_data = "cuLibraryLoadData"(
        library: *mut CUlibrary, code: *const c_void, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
        library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint);
    /// Unloads a library.
    library_unload = "cuLibraryUnload"(library: CUlibrary);
    /// Finds a kernel of a library.
    library_kernel = "cuLibraryGetKernel"(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    /// Finds a global variable of a library in the current context.
    library_global = "cuLibraryGetGlobal"(
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    /// Returns the function of a kernel in the current context.
    kernel_function = "cuKernelGetFunction"(function: *mut CUfunction, kernel: CUkernel);
    /// Sets a property of a kernel.
    function_set_attribute = "cuFuncSetAttribute"(function: CUfunction, attribute: c_uint, value: c_int);
    /// Reads a property of a kernel.
    function_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_uint, function: CUfunction);
    /// Makes a tensor map for boxes of an array, without work for a device.
    encode_tensor_map = "cuTensorMapEncodeTiled"(
        map: *mut CUtensorMap, element: c_uint, rank: c_uint, address: *mut c_void, extents: *const u64,
        strides: *const u64, boxes: *const u32, element_strides: *const u32, interleave: c_uint, swizzle: c_uint,
        promotion: c_uint, outside: c_uint);
    /// Launches a kernel.
    launch_kernel = "cuLaunchKernel"(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    /// Launches a kernel with attributes.
    launch_kernel_ex = "cuLaunchKernelEx"(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
    /// Returns the name of a status code.
    error_name = "cuGetErrorName"(status: c_uint, name: *mut *const c_char);
    /// Returns the description of a status code.
    error_string = "cuGetErrorString"(status: c_uint, text: *mut *const c_char);
}

/// The minimum CUDA version of drivers that accept the PTX of this crate (9.0), in the format of
/// `cuDriverGetVersion`.
const MIN_VERSION: c_int = 13_000;

fn check_version(version: c_int) -> Result<(), String> {
    let (major, minor) = (version / 1000, version % 1000 / 10);
    match version >= MIN_VERSION {
        true => Ok(()),
        false => Err(format!(
            "the NVIDIA driver is too old: it is of CUDA {major}.{minor}, and CUDA 13.0 is needed, which is driver 580 or \
             later"
        )),
    }
}

/// Status codes that invalidate a context: the work that failed precedes the call that reports it.
const ASYNCHRONOUS: [Status; 8] = [700, 702, 710, 714, 715, 716, 717, 719];

impl Driver {
    /// Returns the driver, which the first call loads and initializes.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no driver library, it is too old, or it finds no device.
    pub fn get() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        // Before any lock: another thread may have loaded the driver during the fork.
        Driver::check_process()?;
        process::watch();
        // 0 is no process.
        let _ = LOADED_IN.compare_exchange(0, process::generation() + 1, Ordering::Relaxed, Ordering::Relaxed);
        let driver = DRIVER.get_or_init(|| {
            let driver = Driver::load()?;
            // SAFETY: cuInit may be called at any time.
            unsafe { driver.init(0) }.map_err(|error| error.to_string())?;
            Ok(driver)
        });
        if driver.is_err() {
            // Children find no device either.
            LOADED_IN.store(0, Ordering::Relaxed);
        }
        driver.as_ref().map_err(|message| Error::NoDevice(message.clone()))
    }

    /// Rejects a use of the driver in a child of the process that has loaded it: a child has
    /// neither the threads nor the contexts of that process.
    ///
    /// # Errors
    /// [`Error::Driver`].
    #[inline]
    pub(crate) fn check_process() -> Result<()> {
        let loaded_in = LOADED_IN.load(Ordering::Relaxed);
        if loaded_in == 0 || loaded_in == process::generation() + 1 { Ok(()) } else { Err(forked()) }
    }

    /// Returns the version of the driver as `1000 * major + 10 * minor` of its CUDA release.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the pointer is valid.
        unsafe { self.driver_version(&mut version) }?;
        Ok(version)
    }

    /// Converts the result of a query to true if the work is complete.
    ///
    /// # Errors
    /// Any result other than complete or not complete.
    pub(crate) fn is_done(answer: Result<()>) -> Result<bool> {
        match answer {
            Ok(()) => Ok(true),
            Err(Error::Driver { code, .. }) if code == "CUDA_ERROR_NOT_READY" => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Converts a status that is not the result of a call.
    pub(crate) fn check(&self, call: &'static str, status: u32) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &'static str, status: Status) -> Error {
        let mut code = describe(self.error_name, status).unwrap_or_else(|| format!("CUDA error {status}"));
        if code.is_empty() {
            code = format!("CUDA error {status}");
        }
        let mut text = describe(self.error_string, status).unwrap_or_else(|| "unknown to this driver".into());
        if ASYNCHRONOUS.contains(&status) {
            text.push_str("; caused by work launched earlier on this device, whose context is lost");
        }
        Error::Driver { call, code, text }
    }
}

/// The generation of the process that has loaded the driver, counted from 1; 0 is none.
static LOADED_IN: AtomicU32 = AtomicU32::new(0);

#[cold]
fn forked() -> Error {
    let text = "this process was forked from one that had loaded the CUDA driver, which does not work in such a child: start \
                processes that use GPUs by `exec` (`std::process::Command`, `multiprocessing` of Python with `spawn`), or fork \
                before the first use of a GPU";
    Error::Driver { call: "cuInit", code: "CUDA_ERROR_NOT_INITIALIZED".into(), text: text.into() }
}

fn describe(lookup: unsafe extern "C" fn(c_uint, *mut *const c_char) -> Status, status: Status) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: the driver writes the address of a static string, or leaves null for an unknown code.
    unsafe {
        if lookup(status, &mut text) != 0 || text.is_null() {
            return None;
        }
        Some(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}
