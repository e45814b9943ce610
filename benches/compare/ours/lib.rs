//! The kernels of `examples/` as a dynamic library, so that the comparison can launch them in one
//! process with other implementations: `cargo build --profile bench --example compare`.
//!
//! A row (a kernel at one size) is opened by its name, owns its arrays, and has configurations
//! (tile sizes, hints). These are compiled, launched and exported one by one. Python fills and
//! reads the arrays through their addresses. The rows are in [`rows`]; this file does not depend on
//! their computations.

mod attention_f8;
mod backward;
mod configuration;
#[path = "../../kernels/measure/examples.rs"]
mod examples;
#[allow(dead_code, reason = "arrays are filled through their addresses here")]
mod fill;
mod kernels;
mod movement;
mod narrow;
mod numbers;
mod order;
mod rows;
mod scaled;
#[allow(dead_code, reason = "rows are tuned by `benches/kernels`")]
mod tuning;
mod tutorial;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

use configuration::{Place, Row, Step};
use cutlet::aot::Format;
use cutlet::{Backend, Device, Target};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Leaves a text for [`compare_message`].
fn say(text: impl Display) {
    let text = CString::new(text.to_string().replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|message| *message.borrow_mut() = text);
}

/// 0, or 1 with a message.
fn status<E: Display>(result: Result<(), E>) -> i32 {
    result.map_or_else(
        |error| {
            say(error);
            1
        },
        |()| 0,
    )
}

/// Returns the text of the last call on this thread: an error, a report, a label. Valid until the
/// next call.
#[unsafe(no_mangle)]
pub extern "C" fn compare_message() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}

/// The stream of all launches (`CUstream`); null without a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn compare_stream() -> *mut c_void {
    Device::gpu(0).map_or(std::ptr::null_mut(), |device| device.default_stream().raw())
}

/// Opens a row, for example `vadd f32 134217728`, with this many sets of arrays on a GPU; with 0
/// sets, without a device, for exporting only. Null with a message when there is no such row.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_open(name: *const c_char, sets: usize) -> *mut Box<dyn Row> {
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let opened = || -> anyhow::Result<Box<dyn Row>> {
        let device = if sets == 0 { Device::cpu() } else { Device::gpu(0)? };
        rows::open(&name, Place { device, sets: sets.max(1) })
    };
    match opened() {
        Ok(row) => Box::into_raw(Box::new(row)),
        Err(error) => {
            say(error);
            std::ptr::null_mut()
        }
    }
}

/// Closes a row and frees its arrays.
///
/// # Safety
/// `row` is a result of [`compare_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_close(row: *mut Box<dyn Row>) {
    // SAFETY: promised by the caller.
    drop(unsafe { Box::from_raw(row) });
}

/// The number of configurations.
///
/// # Safety
/// `row` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_configurations(row: *const Box<dyn Row>) -> usize {
    // SAFETY: promised by the caller.
    unsafe { &*row }.labels().len()
}

/// Leaves the name of a configuration as the message.
///
/// # Safety
/// `row` is open and has this configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_label(row: *const Box<dyn Row>, configuration: usize) {
    // SAFETY: promised by the caller.
    say(&unsafe { &*row }.labels()[configuration]);
}

/// Returns 1 if a configuration is measured with a back end, else 0.
///
/// # Safety
/// `row` is open and has this configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_serves(row: *const Box<dyn Row>, configuration: usize, generator: i32) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { &*row }.serves(configuration, backend(generator)).into()
}

/// Writes the addresses of the arrays of a set, in the order of the kernel's arguments, and returns
/// their number.
///
/// # Safety
/// `row` is open and has this set; `out` has room for 16 addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_addresses(row: *const Box<dyn Row>, set: usize, out: *mut u64) -> usize {
    // SAFETY: promised by the caller.
    let addresses = unsafe { &*row }.addresses(set);
    for (index, address) in addresses.iter().enumerate().take(16) {
        // SAFETY: promised by the caller.
        unsafe { out.add(index).write(*address) };
    }
    addresses.len().min(16)
}

/// The back end of a call: 0 is ptx, 1 is tileir.
fn backend(number: i32) -> Backend {
    if number == 1 { Backend::TileIr } else { Backend::Ptx }
}

/// Compiles a configuration; the message is then a report of the code. Threads may compile at a
/// time.
///
/// # Safety
/// `row` is open and has configuration and set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_compile(
    row: *const Box<dyn Row>,
    configuration: usize,
    set: usize,
    generator: i32,
) -> i32 {
    let mut report = Vec::new();
    // SAFETY: promised by the caller.
    let done = unsafe { &*row }.call(configuration, set, backend(generator), Step::Compile(&mut report));
    let failed = status(done);
    if failed == 0 {
        say(report.join("; "));
    }
    failed
}

/// Queues a configuration on the stream.
///
/// # Safety
/// `row` is open and has configuration and set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_launch(
    row: *const Box<dyn Row>,
    configuration: usize,
    set: usize,
    generator: i32,
) -> i32 {
    // SAFETY: promised by the caller.
    status(unsafe { &*row }.call(configuration, set, backend(generator), Step::Launch))
}

/// Host time of one launch in nanoseconds, as the mean of `count` launches one after another;
/// negative after an error.
///
/// # Safety
/// `row` is open and has configuration and set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_host_time(
    row: *const Box<dyn Row>,
    configuration: usize,
    set: usize,
    generator: i32,
    count: usize,
) -> f64 {
    // SAFETY: promised by the caller.
    let row = unsafe { &*row };
    let start = Instant::now();
    let done = row.call(configuration, set, backend(generator), Step::Launches(count));
    let nanoseconds = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
    if status(done) == 0 { nanoseconds } else { -1.0 }
}

/// Writes the code of a configuration to `path`, without a device. `format` is `ptx`, `tilebc`, or
/// `cubin`, which also keeps the machine code of the tileir back end in the disk cache, for
/// machines that have no `tileiras`. A configuration of several kernels makes several files,
/// numbered from the second on.
///
/// # Safety
/// `row` is open and has this configuration; the texts are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_export(
    row: *const Box<dyn Row>,
    configuration: usize,
    target: *const c_char,
    format: *const c_char,
    path: *const c_char,
) -> i32 {
    // SAFETY: promised by the caller.
    let (row, [target, format, path]) =
        unsafe { (&*row, [target, format, path].map(|text| CStr::from_ptr(text).to_string_lossy())) };
    let export = || -> anyhow::Result<()> {
        let target: Target = target.parse().map_err(anyhow::Error::msg)?;
        let form = if format == "ptx" { Format::Ptx } else { Format::TileIr(None) };
        let mut exported = Vec::new();
        row.call(configuration, 0, Backend::Ptx, Step::Export { target, format: form, out: &mut exported })?;
        for (index, file) in exported.into_iter().enumerate() {
            let bytes = if format == "cubin" { file.assemble(target)? } else { file.bytes };
            let path = Path::new(&*path);
            let path = if index == 0 { path.to_owned() } else { path.with_extension(format!("{index}.{format}")) };
            std::fs::write(path, bytes)?;
        }
        Ok(())
    };
    status(export())
}
