//! The kernels that a call launches, compiled for a target without a GPU.
//!
//! ```
//! use cutlet as ct;
//! use cutlet_kernels::inspect::{Subject, inspect};
//!
//! let device = ct::Device::cpu();
//! let (x, mut y) = (device.zeros::<f32, 4>([1, 1, 64, 1024])?, device.zeros([1, 1, 64, 1024])?);
//! let call = || cutlet_kernels::softmax(&device.default_stream(), x.view(), y.view_mut());
//! let kernels = inspect(ct::Target::SM_90A, Subject::Code, call)?;
//! assert_eq!(kernels.len(), 1);
//! assert!(String::from_utf8_lossy(&kernels[0].ptx).contains(".target sm_90a"));
//! # Ok::<(), ct::Error>(())
//! ```

pub use crate::launch::inspect;

/// Subject of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// PTX.
    Code,
    /// Schedules, and times by the cost model.
    Plan,
}

/// A kernel of an inspected call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspected {
    /// Path of the Rust function.
    pub name: String,
    /// PTX; empty for plans.
    pub ptx: Vec<u8>,
    /// Threads of a tile block; 0 for plans.
    pub threads: u32,
    /// Microseconds by the cost model; 0 for code.
    pub model: f64,
    /// Schedule as text; empty for code.
    pub schedule: String,
}
