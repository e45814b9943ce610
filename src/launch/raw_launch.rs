//! Compiled kernel with its parameters for the driver, for launches outside of this crate.

use crate::util::collect::CollectVec as _;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::compile::executable::GpuCode;
use super::compile::params::param_pointers;
use super::compile::tensor_map_cache::Encoded;
use super::specialize::Specialized;
use crate::backend::ParamWord;
use crate::backend::ptx::ParamKind;
use crate::error::Result;
use crate::runtime::FailureNote;

/// Arguments of `cuLaunchKernel` for a kernel and its arguments, made by
/// [`CompiledKernel::raw`](crate::CompiledKernel::raw). The function is valid for the lifetime of
/// this value. Its grid must be in the limits of [`Grid`](crate::Grid).
#[non_exhaustive]
pub struct RawLaunch {
    /// Handle of the function (`CUfunction`).
    pub function: *mut c_void,
    /// Threads of a tile block.
    pub threads: u32,
    /// Dynamic shared memory of a tile block in bytes.
    pub shared_bytes: u32,
    /// Tile blocks of a cluster; 1 without clusters.
    pub cluster: u32,
    kinds: Vec<ParamKind>,
    words: Vec<ParamWord>,
    maps: Option<Encoded>,
    failure: Option<Arc<FailureNote>>,
    /// Keeps the code loaded on the GPU.
    _kernel: Specialized,
}

impl fmt::Debug for RawLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLaunch")
            .field("function", &self.function)
            .field("threads", &self.threads)
            .field("shared_bytes", &self.shared_bytes)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl RawLaunch {
    pub(super) fn new(kernel: &Specialized, code: &GpuCode, words: Vec<ParamWord>) -> Result<RawLaunch> {
        // The grid is unknown here.
        let (code, maps) = code.for_launch(None, &words)?;
        let code = code.guard.as_ref().map_or(Ok(code), |guard| guard.guarded.get())?;
        let (function, config) = code.kernel.raw();
        Ok(RawLaunch {
            function,
            threads: config.threads,
            shared_bytes: config.shared_bytes,
            cluster: config.cluster,
            kinds: code.params.clone(),
            words,
            maps,
            failure: code.failure.clone(),
            _kernel: kernel.clone(),
        })
    }

    /// Returns a pointer to each parameter, in order, valid for the lifetime of this value.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let mut x = ct::Device::cpu().zeros::<i32, 1>([4])?;
    /// let fill = ct::compile(|x: ct::ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// // For a kernel of a GPU, what `cuLaunchKernel` takes; on the cpu device there is none.
    /// assert!(fill.raw((&mut x,))?.map(|mut raw| raw.params()).is_none());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn params(&mut self) -> Vec<*mut c_void> {
        let maps = self.maps.as_deref().unwrap_or_default();
        param_pointers(&self.kinds, &self.words, maps, self.failure.as_deref(), None).collect_vec()
    }
}
