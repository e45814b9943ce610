//! A library for Python: softmax of the rows of torch's tensors, which DLPack passes without a
//! copy.
//!
//! `cargo build --release --example dlpack && python3 examples/dlpack/softmax.py`

use std::ffi::{CString, c_char, c_void};

use cutlet as ct;
use cutlet::foreign::dlpack::{self, ManagedTensor};
use cutlet::prelude::*;

/// Each row: exponentials over their sum.
fn rows(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let e = (x - x.reduce_max(1)).exp();
    y.store((row, 0), e / e.sum(1));
}

/// A tensor of the caller: it is released unless it is imported.
struct Given(*mut ManagedTensor);

impl Given {
    /// Imports it as an array.
    ///
    /// # Safety
    /// As for [`dlpack::import`].
    unsafe fn take<const R: usize>(self, stream: &ct::Stream) -> ct::Result<ct::DeviceArray<f32, R>> {
        // SAFETY: promised by the caller.
        let array = unsafe { dlpack::import(self.0, stream) }?;
        std::mem::forget(self);
        Ok(array)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: alive, and not imported.
        unsafe {
            if let Some(delete) = self.0.as_ref().and_then(|tensor| tensor.deleter) {
                delete(self.0);
            }
        }
    }
}

/// # Safety
/// As for [`softmax`].
unsafe fn run(x: Given, y: Given, stream: *mut c_void) -> ct::Result<()> {
    const CPU: i32 = 1;
    // SAFETY: promised by the caller.
    let stream = match unsafe { (*x.0).tensor.device } {
        at if at.kind == CPU => ct::Device::cpu().default_stream(),
        // SAFETY: promised by the caller.
        at => unsafe { ct::Device::gpu(at.ordinal as usize)?.foreign_stream(stream, ()) }?,
    };
    // SAFETY: promised by the caller.
    let (x, mut y) = unsafe { (x.take::<2>(&stream)?, y.take::<2>(&stream)?) };
    let [count, columns] = x.shape();
    let tile = ct::Constant(columns.next_power_of_two());
    ct::Launch::new(count).stream(&stream).launch(rows, (&x, &mut y, tile))
    // Both are released here, and the stream executes later work after the kernel.
}

/// Writes the softmax of the rows of `x` into `y`, on `stream` if they are on a GPU. Returns null,
/// or a message for [`free_message`]. Consumes both tensors.
///
/// # Safety
/// Two tensors of DLPack (`DLManagedTensor`) that no other consumer takes, whose work is on
/// `stream`, a valid stream of their device. The elements of `y` may be written, and are not those
/// of `x`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softmax(x: *mut ManagedTensor, y: *mut ManagedTensor, stream: *mut c_void) -> *mut c_char {
    // SAFETY: promised by the caller.
    match unsafe { run(Given(x), Given(y), stream) } {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => CString::new(error.to_string().replace('\0', " ")).expect("no NUL is left").into_raw(),
    }
}

/// Frees a message of [`softmax`].
///
/// # Safety
/// A message of [`softmax`], freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_message(message: *mut c_char) {
    // SAFETY: promised by the caller.
    drop(unsafe { CString::from_raw(message) });
}
