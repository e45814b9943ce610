//! GPUs that access the memory of each other.
//!
//! Access to memory of a pool is a property of the pool, access to other memory one of the
//! contexts. Both are set once for each pair, in one direction, at the first request, and remain
//! set.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use super::device::Device;
use super::gpu::Gpu;
use crate::error::{Error, Result};
use crate::runtime::driver::sys::{CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType};

/// The driver's error if the contexts already have access.
const ALREADY: &str = "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED";

impl Device {
    /// Returns true if kernels on this device can access memory of the other one. For GPUs this
    /// depends on their connection. The cpu device and GPUs cannot access each other's arrays.
    ///
    /// See [`Launch::peer_access`](crate::Launch::peer_access).
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(ct::Device::cpu().can_access(ct::Device::cpu())?);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Driver`] if the query fails.
    pub fn can_access(self, other: Device) -> Result<bool> {
        match (self.as_gpu(), other.as_gpu()) {
            (None, None) => Ok(true),
            (Some(gpu), Some(other)) => can_access(gpu, other),
            _ => Ok(false),
        }
    }

    /// Lets kernels on this device access memory of the other one.
    ///
    /// # Errors
    /// [`Error::Argument`] if this is impossible.
    #[track_caller]
    pub(crate) fn reach(self, other: Device) -> Result<()> {
        match (self.as_gpu(), other.as_gpu()) {
            (None, None) => Ok(()),
            (Some(gpu), Some(of)) if can_access(gpu, of)? => enable(gpu, of),
            (Some(_), Some(_)) => Err(Error::argument(format!(
                "kernels on {self} cannot access the memory of {other}: the driver finds no connection for that between them; \
                 copy with `copy_from_array`"
            ))),
            _ => Err(Error::argument(format!(
                "a launch on {self} cannot use an array on {other}: make all on GPUs, or copy with `copy_from_array`"
            ))),
        }
    }
}

fn device_of(gpu: &Gpu) -> Result<CUdevice> {
    let mut device: CUdevice = 0;
    // SAFETY: the pointer is valid.
    unsafe { gpu.driver.device_get(&mut device, gpu.ordinal as c_int) }?;
    Ok(device)
}

/// Returns true if kernels of a GPU can access the memory of another one.
pub(crate) fn can_access(gpu: &'static Gpu, other: &'static Gpu) -> Result<bool> {
    if std::ptr::eq(gpu, other) {
        return Ok(true);
    }
    let mut can: c_int = 0;
    // SAFETY: the pointer is valid; both are devices of this driver.
    unsafe { gpu.driver.can_access_peer(&mut can, device_of(gpu)?, device_of(other)?) }?;
    Ok(can != 0)
}

/// Lets kernels of a GPU access the memory of another one, if possible.
///
/// # Errors
/// [`Error::Driver`] if the driver rejects it.
pub(crate) fn enable(gpu: &'static Gpu, other: &'static Gpu) -> Result<()> {
    static ENABLED: Mutex<BTreeSet<(usize, usize)>> = Mutex::new(BTreeSet::new());
    if std::ptr::eq(gpu, other) {
        return Ok(());
    }
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    if enabled.contains(&(gpu.ordinal, other.ordinal)) {
        return Ok(());
    }
    gpu.make_current()?;
    // SAFETY: both contexts are primary ones that are never released, and the first one is current.
    match unsafe { gpu.driver.context_enable_peer(other.context, 0) } {
        Err(Error::Driver { code, .. }) if code == ALREADY => {}
        answer => answer?,
    }
    if let Some(pool) = other.pool {
        let access = CUmemAccessDesc {
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.ordinal as c_int },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as c_uint,
        };
        // SAFETY: the pool is alive, and the list has one description.
        unsafe { gpu.driver.pool_set_access(pool, &access, 1) }?;
    }
    enabled.insert((gpu.ordinal, other.ordinal));
    Ok(())
}
