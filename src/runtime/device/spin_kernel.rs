//! A kernel that only waits: work that is queued after it runs without gaps, even if it is queued
//! slowly.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::gpu::StreamHandle;
use crate::backend::Assembly;
use crate::error::Result;
use crate::runtime::code::cubin::{GpuKernel, LaunchConfig};

/// The kernel, which reads a clock of nanoseconds.
const WAIT: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .entry wait(.param .u64 nanoseconds)
{
    .reg .pred p;
    .reg .b64 start, now, wanted;
    ld.param.u64 wanted, [nanoseconds];
    mov.u64 start, %globaltimer;
again:
    mov.u64 now, %globaltimer;
    sub.u64 now, now, start;
    setp.lt.u64 p, now, wanted;
    @p bra again;
    ret;
}
";

/// Makes a stream idle for some time.
///
/// # Errors
/// [`crate::Error::Compile`] and [`crate::Error::Driver`] if the kernel cannot be compiled or
/// launched.
pub(crate) fn wait(stream: &StreamHandle, time: Duration) -> Result<()> {
    static KERNELS: Mutex<Vec<GpuKernel>> = Mutex::new(Vec::new());
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = kernels.iter().position(|kernel| std::ptr::eq(kernel.gpu(), stream.gpu));
    let at = match found {
        Some(at) => at,
        None => {
            let config = LaunchConfig { threads: 1, shared_bytes: 0, cluster: 1 };
            let assembly = Assembly::default();
            kernels.push(GpuKernel::load_ptx(stream.gpu, "wait", (WAIT, assembly), "wait", config)?.0);
            kernels.len() - 1
        }
    };
    let mut nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut params = [(&raw mut nanoseconds).cast::<c_void>()];
    // SAFETY: the kernel has this one parameter, which lives until the call returns, and uses no
    // memory.
    unsafe { kernels[at].launch(stream, [1, 1, 1], false, &mut params) }
}
