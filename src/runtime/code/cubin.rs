//! Code on a GPU: PTX to cubin by the driver's linker, cubin to a loaded kernel.
//!
//! The assembler of the linker emits relocatable code, in which other code may call a kernel. It
//! ignores `setmaxnreg`, and serializes matrix instructions in a kernel with divisions. PTX with
//! such instructions is passed to the driver's loader ([`GpuKernel::load_ptx`]), whose assembler
//! compiles a whole program. The loader caches its code and does not return it.

use crate::util::collect::CollectVec as _;
use std::ffi::{CStr, CString, c_int, c_uint, c_void};

use crate::backend::Assembly;
use crate::error::{Error, Result};
use crate::runtime::device::deferred_release::Handle;
use crate::runtime::device::gpu::{Gpu, GpuStream};
use crate::runtime::driver::sys::{
    CUdeviceptr, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUlibrary, CUlinkState, CUmodule,
};

/// The size of each of the two logs of the assembler, in bytes.
const LOG_BYTES: usize = 64 << 10;

/// Machine code of one kernel and the assembler's log.
pub(crate) struct Cubin {
    pub bytes: Vec<u8>,
    pub log: String,
}

/// Assembles PTX for a GPU with the driver.
///
/// # Errors
/// [`Error::Compile`] with the assembler's log.
pub(crate) fn assemble(gpu: &Gpu, kernel: &str, ptx: &str, assembly: Assembly) -> Result<Cubin> {
    gpu.make_current()?;
    let driver = gpu.driver;
    let mut logs = Logs::new();
    let (mut options, mut values) = logs.options(assembly);
    let source = text_with_nul(kernel, ptx)?;
    let name = CString::new(format!("{kernel}.ptx")).unwrap_or_default();

    let mut state: CUlinkState = std::ptr::null_mut();
    // SAFETY: options and values have the same length; the log buffers outlive the link.
    unsafe { driver.link_create(options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) }?;
    let mut cubin: *mut c_void = std::ptr::null_mut();
    let mut bytes = 0usize;
    // SAFETY: the link is alive; the PTX text includes its NUL, as the driver requires.
    let linked = unsafe {
        let data = source.as_bytes_with_nul();
        let kind = CUjitInputType::CU_JIT_INPUT_PTX as c_uint;
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        driver
            .link_add_data(state, kind, data.as_ptr().cast_mut().cast(), data.len(), name.as_ptr(), 0, none, nothing)
            .and_then(|()| driver.link_complete(state, &mut cubin, &mut bytes))
    };
    let result = match linked {
        // SAFETY: the driver returns this many bytes, valid until the link is destroyed.
        Ok(()) => Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), bytes) }.to_vec()),
        Err(error) => Err(logs.refusal(kernel, error)),
    };
    // SAFETY: created above, destroyed once, after the cubin was copied.
    unsafe { driver.link_destroy(state) }?;
    Ok(Cubin { bytes: result?, log: logs.info() })
}

/// The buffers of the assembler's logs.
struct Logs {
    info: Vec<u8>,
    errors: Vec<u8>,
}

impl Logs {
    fn new() -> Logs {
        Logs { info: vec![0; LOG_BYTES], errors: vec![0; LOG_BYTES] }
    }

    /// Returns options of the assembler and their values, which point to these logs.
    fn options(&mut self, assembly: Assembly) -> (Vec<c_uint>, Vec<*mut c_void>) {
        use CUjit_option::*;
        let (mut options, mut values) = asked(assembly);
        let (info, errors) = (self.info.as_mut_ptr().cast(), self.errors.as_mut_ptr().cast());
        options.extend([
            CU_JIT_INFO_LOG_BUFFER as c_uint,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as c_uint,
            CU_JIT_ERROR_LOG_BUFFER as c_uint,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_uint,
            CU_JIT_LOG_VERBOSE as c_uint,
        ]);
        values.extend([info, number(LOG_BYTES), errors, number(LOG_BYTES), number(1)]);
        (options, values)
    }

    fn info(&self) -> String {
        text_of(&self.info)
    }

    fn refusal(&self, kernel: &str, error: Error) -> Error {
        let log = text_of(&self.errors);
        let log = if log.is_empty() { error.to_string() } else { format!("{error}\n{log}") };
        Error::Compile { kernel: kernel.into(), stage: "the driver's PTX assembler", log }
    }
}

/// Returns a number as the value of an option, which is stored in the pointer.
fn number(n: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(n)
}

/// Returns options of the driver's assemblers and their values.
fn asked(assembly: Assembly) -> (Vec<c_uint>, Vec<*mut c_void>) {
    use CUjit_option::*;
    let lines = assembly.lines.then_some((CU_JIT_GENERATE_LINE_INFO as c_uint, number(1)));
    let level = assembly.opt_level.map(|level| (CU_JIT_OPTIMIZATION_LEVEL as c_uint, number(level as usize)));
    lines.into_iter().chain(level).unzip()
}

fn text_with_nul(kernel: &str, ptx: &str) -> Result<CString> {
    CString::new(ptx).map_err(|_| Error::Compile {
        kernel: kernel.into(),
        stage: "the driver's PTX assembler",
        log: "the text contains a NUL byte".into(),
    })
}

/// Returns the name of a kernel or a global with a NUL.
///
/// # Errors
/// [`Error::Argument`] for a name that contains a NUL, which the text of an image never does.
fn name_with_nul(name: &str) -> Result<CString> {
    let refused = || format!("{name:?} names no kernel and no global of an image: there is a NUL in it");
    CString::new(name).map_err(|_| Error::argument(refused()))
}

/// Returns true if this PTX has instructions that require the assembler of whole programs.
pub(crate) fn wants_whole_program(ptx: &str) -> bool {
    ptx.contains("setmaxnreg") || ptx.contains("wgmma")
}

fn text_of(buffer: &[u8]) -> String {
    CStr::from_bytes_until_nul(buffer).map(|text| text.to_string_lossy().trim().to_owned()).unwrap_or_default()
}

/// Returns the lines of an assembler's log about losses of speed: spilled registers and serialized
/// matrix instructions (notes C7500 and following).
pub(crate) fn remarks(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| line.contains("C75") || tells_spills(line))
        .map(|line| line.trim().to_owned())
        .collect_vec()
}

/// Returns true if an assembler's log reports registers that were spilled to memory.
pub(crate) fn spills(log: &str) -> bool {
    log.lines().any(tells_spills)
}

/// Returns true if the assembler placed values of a thread in local memory, as spills or as its
/// stack.
pub(crate) fn uses_local_memory(log: &str) -> bool {
    let has_stack = |part: &str| {
        part.contains("bytes stack frame")
            && part.split_whitespace().next().is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0))
    };
    spills(log) || log.lines().flat_map(|line| line.split(',')).any(has_stack)
}

fn tells_spills(line: &str) -> bool {
    line.split(',').any(|part| {
        part.contains("spill") && part.split_whitespace().next().is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0))
    })
}

/// Code that is loaded into the context of a GPU during the life of this object.
struct Loaded {
    gpu: &'static Gpu,
    code: Code,
}

#[derive(Clone, Copy)]
enum Code {
    Module(CUmodule),
    Library(CUlibrary),
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let (gpu, code) = (self.gpu, Handle::new(self.code));
        gpu.leftovers.release(move || {
            gpu.make_current()?;
            // Code in execution must remain loaded until its end.
            gpu.synchronize_context()?;
            // SAFETY: the context is current; the code was loaded, is unloaded once, and no work
            // uses it.
            unsafe {
                match code.raw() {
                    Code::Module(module) => gpu.driver.module_unload(module),
                    Code::Library(library) => gpu.driver.library_unload(library),
                }
            }
        });
    }
}

/// A kernel loaded into the context of one GPU, with its launch configuration.
pub(crate) struct GpuKernel {
    loaded: Loaded,
    function: GpuFunction,
}

// SAFETY: a driver handle, valid on every thread.
unsafe impl Send for GpuKernel {}
// SAFETY: as above.
unsafe impl Sync for GpuKernel {}

/// The handle and launch configuration of a kernel, valid while the kernel is loaded.
#[derive(Clone, Copy)]
pub(crate) struct GpuFunction {
    gpu: &'static Gpu,
    raw: CUfunction,
    config: LaunchConfig,
}

// SAFETY: a driver handle, valid on every thread.
unsafe impl Send for GpuFunction {}
// SAFETY: as above.
unsafe impl Sync for GpuFunction {}

impl GpuKernel {
    /// Loads a cubin.
    ///
    /// # Errors
    /// [`Error::Driver`] if the driver rejects it (a cubin for another GPU, a damaged one) or the
    /// GPU lacks a required resource.
    pub fn load(gpu: &'static Gpu, cubin: &[u8], entry: &str, config: LaunchConfig) -> Result<GpuKernel> {
        if !is_whole_elf(cubin) {
            let (call, code) = ("cuModuleLoadData", "CUDA_ERROR_INVALID_IMAGE".into());
            return Err(Error::Driver { call, code, text: "this is no machine code, or not all of it".into() });
        }
        gpu.make_current()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: pointers are valid; the driver reads the length of the image from it, which was
        // verified.
        unsafe { gpu.driver.module_load_data(&mut module, cubin.as_ptr().cast()) }?;
        GpuKernel::of_module(gpu, module, entry, config)
    }

    /// Assembles PTX as a whole program and loads it. The assembler's log is also returned. It is
    /// empty if the driver's cache had the code.
    ///
    /// # Errors
    /// [`Error::Compile`] with the assembler's log, [`Error::Driver`] as [`GpuKernel::load`].
    pub fn load_ptx(
        gpu: &'static Gpu,
        kernel: &str,
        (ptx, assembly): (&str, Assembly),
        entry: &str,
        config: LaunchConfig,
    ) -> Result<(GpuKernel, String)> {
        gpu.make_current()?;
        let source = text_with_nul(kernel, ptx)?;
        let mut logs = Logs::new();
        let (mut options, mut values) = logs.options(assembly);
        let mut module = std::ptr::null_mut();
        // SAFETY: options and values have the same length; text and logs outlive the call.
        let loaded = unsafe {
            let (image, count) = (source.as_ptr().cast(), options.len() as c_uint);
            gpu.driver.module_load_data_ex(&mut module, image, count, options.as_mut_ptr(), values.as_mut_ptr())
        };
        loaded.map_err(|error| logs.refusal(kernel, error))?;
        Ok((GpuKernel::of_module(gpu, module, entry, config)?, logs.info()))
    }

    fn of_module(gpu: &'static Gpu, module: CUmodule, entry: &str, config: LaunchConfig) -> Result<GpuKernel> {
        let loaded = Loaded { gpu, code: Code::Module(module) };
        let LaunchConfig { shared_bytes, cluster, .. } = config;
        let name = name_with_nul(entry)?;
        let mut function: CUfunction = std::ptr::null_mut();
        let set = |function, which: CUfunction_attribute, value: u32| {
            // SAFETY: the function is loaded.
            unsafe { gpu.driver.function_set_attribute(function, which as c_uint, value as c_int) }
        };
        // SAFETY: the module is loaded and the pointers are valid.
        unsafe { gpu.driver.module_function(&mut function, module, name.as_ptr()) }?;
        if shared_bytes > 0 {
            set(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)?;
        }
        // Clusters of more than 8 tile blocks are not guaranteed on every GPU of an architecture.
        if cluster > 8 {
            set(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(GpuKernel { loaded, function: GpuFunction { gpu, raw: function, config } })
    }

    /// Loads a cubin that `tileiras` made. It is launched with blocks of one thread: the driver
    /// reads the actual number from the cubin, and rejects any other number.
    ///
    /// # Errors
    /// As [`GpuKernel::load`].
    pub fn load_tile_cubin(gpu: &'static Gpu, cubin: &[u8], entry: &str) -> Result<GpuKernel> {
        GpuKernel::load(gpu, cubin, entry, LaunchConfig { threads: 1, shared_bytes: 0, cluster: 1 })
    }

    /// Compiles bytecode with the driver. It is launched with blocks of one thread: the driver
    /// chooses the actual number.
    ///
    /// # Errors
    /// [`Error::Driver`] with the call that failed. A driver without a compiler may report this
    /// late: at the query of the kernel in the library, or when the kernel is bound to the context.
    pub fn load_tile_ir(gpu: &'static Gpu, bytecode: &[u8], assembly: Assembly, entry: &str) -> Result<GpuKernel> {
        gpu.make_current()?;
        let name = name_with_nul(entry)?;
        let (mut options, mut values) = asked(assembly);
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut library, mut kernel, mut function) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: pointers are valid, options and values have the same length; the file is complete
        // and contains its length.
        unsafe {
            let (code, count) = (bytecode.as_ptr().cast(), options.len() as c_uint);
            let (options, values) = (options.as_mut_ptr().cast(), values.as_mut_ptr());
            gpu.driver.library_load_data(&mut library, code, options, values, count, none, nothing, 0)?;
        }
        let loaded = Loaded { gpu, code: Code::Library(library) };
        // SAFETY: pointers are valid; the library is loaded.
        unsafe {
            gpu.driver.library_kernel(&mut kernel, library, name.as_ptr())?;
            gpu.driver.kernel_function(&mut function, kernel)?;
        }
        let config = LaunchConfig { threads: 1, shared_bytes: 0, cluster: 1 };
        Ok(GpuKernel { loaded, function: GpuFunction { gpu, raw: function, config } })
    }

    /// Returns the address of a global variable of the code, of at least `bytes` bytes.
    fn global(&self, symbol: &str, bytes: usize) -> Result<CUdeviceptr> {
        let gpu = self.gpu();
        gpu.make_current()?;
        let name = name_with_nul(symbol)?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: the code is loaded into the current context and the pointers are valid.
        match self.loaded.code {
            Code::Module(module) => unsafe { gpu.driver.module_global(&mut address, &mut size, module, name.as_ptr()) },
            Code::Library(library) => unsafe {
                gpu.driver.library_global(&mut address, &mut size, library, name.as_ptr())
            },
        }?;
        assert!(bytes <= size, "{bytes} bytes of the global `{symbol}`, which has {size}");
        Ok(address)
    }

    /// Reads the first bytes of a global variable after all work of the device is complete.
    ///
    /// # Errors
    /// [`Error::Driver`] if there is no variable of this name, or earlier work failed.
    pub fn read_global(&self, symbol: &str, to: &mut [u8]) -> Result<()> {
        let (from, gpu) = (self.global(symbol, to.len())?, self.gpu());
        let stream = gpu.default_stream();
        // SAFETY: the variable has this many bytes; the host bytes remain borrowed until the copy
        // is complete.
        unsafe {
            gpu.synchronize_context()?;
            gpu.driver.copy_to_host(to.as_mut_ptr().cast(), from, to.len(), stream.raw)?;
        }
        stream.synchronize()
    }

    /// Replaces the first bytes of a global variable after all work of the device is complete.
    ///
    /// # Errors
    /// As [`GpuKernel::read_global`].
    pub fn write_global(&self, symbol: &str, from: &[u8]) -> Result<()> {
        let (to, gpu) = (self.global(symbol, from.len())?, self.gpu());
        let stream = gpu.default_stream();
        // SAFETY: as in `read_global`.
        unsafe {
            gpu.synchronize_context()?;
            gpu.driver.copy_to_device(to, from.as_ptr().cast(), from.len(), stream.raw)?;
        }
        stream.synchronize()
    }

    fn attribute(&self, which: CUfunction_attribute) -> Result<u32> {
        self.gpu().make_current()?;
        let mut value: c_int = 0;
        // SAFETY: the function is loaded and the pointer valid.
        unsafe { self.gpu().driver.function_attribute(&mut value, which as c_uint, self.function.raw) }?;
        Ok(value.max(0) as u32)
    }

    /// Returns the registers of one thread and its bytes of local memory (spills, stack).
    pub fn resources(&self) -> Result<(u32, u32)> {
        use CUfunction_attribute::*;
        Ok((self.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?, self.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?))
    }

    /// Returns the driver's handle and the launch configuration.
    pub fn raw(&self) -> (*mut c_void, LaunchConfig) {
        (self.function.raw.cast(), self.function.config)
    }

    /// Returns the GPU of the loaded code.
    #[inline]
    pub fn gpu(&self) -> &'static Gpu {
        self.loaded.gpu
    }

    /// Returns the number of tile blocks of a cluster; 1 is no cluster.
    #[inline]
    pub fn cluster(&self) -> u32 {
        self.function.config.cluster
    }

    /// Returns the function for launches, which is not to be used after the drop of the kernel.
    #[inline]
    pub fn function(&self) -> GpuFunction {
        self.function
    }

    /// Queues the kernel on a stream. `dependent`: it may start during the preceding kernel (sm_90
    /// and later).
    ///
    /// # Safety
    /// `params` are pointers to values of the kernel's parameters. Addresses among them are of
    /// memory that this GPU can access and that remains allocated until the work is complete.
    #[inline]
    pub unsafe fn launch(
        &self,
        stream: &GpuStream,
        grid: [u32; 3],
        dependent: bool,
        params: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller; the kernel is loaded.
        unsafe { self.function.launch(stream, grid, dependent, params) }
    }
}

impl GpuFunction {
    /// Queues the kernel as [`GpuKernel::launch`].
    ///
    /// # Safety
    /// As there, and the kernel is still loaded.
    #[inline]
    pub unsafe fn launch(
        self,
        stream: &GpuStream,
        grid: [u32; 3],
        dependent: bool,
        params: &mut [*mut c_void],
    ) -> Result<()> {
        let GpuFunction { gpu, raw, config: LaunchConfig { threads, shared_bytes, cluster } } = self;
        gpu.make_current()?;
        let [x, y, z] = grid;
        let (driver, params, extra) = (gpu.driver, params.as_mut_ptr(), std::ptr::null_mut());
        if cluster <= 1 && !dependent {
            // SAFETY: guaranteed by the caller.
            return unsafe {
                driver.launch_kernel(raw, x, y, z, threads, 1, 1, shared_bytes, stream.raw, params, extra)
            };
        }
        use CUlaunchAttributeID::*;
        let attribute = |id| CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } };
        let mut attributes = [
            attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
            attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION),
        ];
        attributes[0].value.programmaticStreamSerializationAllowed = 1;
        attributes[1].value.clusterDim.x = cluster;
        attributes[1].value.clusterDim.y = 1;
        attributes[1].value.clusterDim.z = 1;
        let chosen = &mut attributes[usize::from(!dependent)..if cluster > 1 { 2 } else { 1 }];
        let config = CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes,
            hStream: stream.raw,
            attrs: chosen.as_mut_ptr(),
            numAttrs: chosen.len() as c_uint,
        };
        // SAFETY: guaranteed by the caller; the attributes live until the call returns.
        unsafe { driver.launch_kernel_ex(&config, raw, params, extra) }
    }
}

/// Returns true if this is a whole ELF file of 64 bits: it contains everything that its headers
/// refer to.
fn is_whole_elf(image: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(image.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(word))
    };
    let fits = |start: u64, bytes: u64| start.checked_add(bytes).is_some_and(|end| end <= image.len() as u64);
    let table = |start: usize, entry: usize, count: usize| -> Option<(u64, u64, u64)> {
        let table = (number(start, 8)?, number(entry, 2)?, number(count, 2)?);
        fits(table.0, table.1 * table.2).then_some(table)
    };
    let is_whole = || {
        let (segments, segment, segment_count) = table(0x20, 0x36, 0x38)?;
        let (sections, section, section_count) = table(0x28, 0x3a, 0x3c)?;
        let segments = (0..segment_count).map(|i| (segments + i * segment) as usize);
        let sections = (0..section_count).map(|i| (sections + i * section) as usize);
        // Sections of type 8 occupy no bytes of the file. The meaning of processor-specific types
        // is unknown.
        let in_file = |&at: &usize| number(at + 4, 4).is_some_and(|kind| kind != 8 && kind < 0x6000_0000);
        let sections = sections.filter(in_file).map(|at| (at + 0x18, at + 0x20));
        let mut parts = segments.map(|at| (at + 8, at + 0x20)).chain(sections);
        Some(parts.all(|(at, bytes)| number(at, 8).zip(number(bytes, 8)).is_some_and(|(at, bytes)| fits(at, bytes))))
    };
    image.starts_with(b"\x7fELF\x02\x01") && is_whole().unwrap_or(false)
}

/// The configuration of a launch, except for grid and parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    /// The number of threads of a tile block.
    pub threads: u32,
    /// The dynamic shared memory of a tile block, in bytes.
    pub shared_bytes: u32,
    /// The number of tile blocks of a cluster; 1 is no cluster.
    pub cluster: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_machine_code_is_loaded() {
        // This program is an ELF file on systems with GPUs.
        let program = std::fs::read(std::env::current_exe().expect("this program")).expect("its file");
        if !program.starts_with(b"\x7fELF") {
            return;
        }
        assert!(is_whole_elf(&program));
        let half = program.len() / 2;
        for image in
            [&[][..], b"\x7fELF", b"\x7fELF\x02\x01", &program[..40], &program[..64], &program[..half], &[0; 64]]
        {
            assert!(!is_whole_elf(image), "{} bytes", image.len());
        }
        let mut wild = program;
        wild[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(!is_whole_elf(&wild));
    }

    #[test]
    fn names_with_a_nul_are_errors() {
        assert_eq!(name_with_nul("scale").expect("a name").as_bytes(), b"scale");
        let refused = name_with_nul("sc\0ale").expect_err("a NUL").to_string();
        assert!(refused.contains("\"sc\\0ale\" names no kernel"), "{refused}");
    }

    #[test]
    fn remarks_are_spills_and_serialisation() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
                       0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                       8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n\
                   ptxas info    : Used 255 registers";
        let remarks = remarks(log);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks[0].starts_with("8 bytes stack") && remarks[1].contains("C7510"));
    }
}
