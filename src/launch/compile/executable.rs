//! Compiled kernel: code, the data and conditions of its launches, and its other forms.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::launch_conditions::ConditionCheck;
use super::preconditions::Requirements;
use super::tensor_map_cache::{Encoded, TensorMaps};
use crate::backend::ptx::ParamKind;
use crate::backend::{ParamWord, cpu};
use crate::error::Result;
use crate::launch::inspect::profile::Profiled;
use crate::launch::inspect::remarks::Remarks;
use crate::runtime::{FailureNote, GpuKernel};

/// Compiled kernel with the conditions of its launches.
pub(crate) struct Executable {
    pub code: Code,
    /// Conditions that each launch checks.
    pub required: Option<Box<Requirements>>,
    /// Record of launches, if the profile is enabled.
    pub profiled: Option<Box<Profiled>>,
}

/// Code of a back end.
pub(crate) enum Code {
    Cpu(Box<cpu::Program>, Remarks),
    Gpu(GpuCode),
}

impl Executable {
    pub fn remarks(&self) -> &Remarks {
        match &self.code {
            Code::Cpu(_, remarks) | Code::Gpu(GpuCode { remarks, .. }) => remarks,
        }
    }
}

/// Code of a kernel on a GPU.
pub(crate) struct GpuCode {
    pub kernel: GpuKernel,
    /// Sources of the parameters, in order.
    pub params: Vec<ParamKind>,
    /// Remarks of the compiler.
    pub remarks: Remarks,
    /// Assumptions that must hold at each launch.
    pub guard: Option<Box<LaunchGuard>>,
    /// Tensor maps among the parameters.
    pub maps: Option<Box<TmaVariant>>,
    /// Names of globals, in the module and in the code. A kernel with globals has no other forms.
    pub globals: Vec<(String, String)>,
    /// Memory of the record of failed assertions. Declared after `kernel`, so that it is dropped
    /// after it.
    pub failure: Option<Arc<FailureNote>>,
}

/// Tensor maps of a kernel, and the forms for launches without them.
pub(crate) struct TmaVariant {
    pub maps: TensorMaps,
    /// Form for arrays without tensor maps.
    pub without_maps: KernelVariant,
    /// Form for grids that are no multiple of the cluster.
    pub without_cluster: KernelVariant,
}

/// Assumptions of a kernel on a GPU, and the form without assumptions.
pub(crate) struct LaunchGuard {
    pub check: ConditionCheck,
    pub guarded: KernelVariant,
}

/// Another form of a kernel, compiled at its first use.
pub(crate) struct KernelVariant {
    code: OnceLock<Box<GpuCode>>,
    building: Mutex<()>,
    build: Box<dyn Fn() -> Result<GpuCode> + Send + Sync + UnwindSafe + RefUnwindSafe>,
}

impl KernelVariant {
    pub fn new(
        build: impl Fn() -> Result<GpuCode> + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> KernelVariant {
        KernelVariant { code: OnceLock::new(), building: Mutex::new(()), build: Box::new(build) }
    }

    /// Returns the code; compiles it at the first call.
    ///
    /// # Errors
    /// Errors of the compilation.
    #[cold]
    pub fn get(&self) -> Result<&GpuCode> {
        let _only_one = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = self.code.get() {
            return Ok(code);
        }
        let code = (self.build)()?;
        Ok(self.code.get_or_init(|| Box::new(code)))
    }
}

impl GpuCode {
    /// Returns the symbol of a global of the module in the code.
    pub fn symbol(&self, global: &str) -> Option<&str> {
        self.globals.iter().find(|(name, _)| name == global).map(|(_, symbol)| symbol.as_str())
    }

    /// Selects the form for this grid and these parameter words among all forms; returns it with
    /// its tensor maps.
    ///
    /// # Errors
    /// Errors of the compilation of another form.
    #[inline]
    pub fn chosen(&self, grid: [u32; 3], words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        let (code, maps) = self.for_launch(Some(grid), words)?;
        match &code.guard {
            Some(guard) if !guard.check.hold(grid, words) => Ok((guard.guarded.get()?, maps)),
            _ => Ok((code, maps)),
        }
    }

    /// Selects the form for this grid (`None`: any grid) and these parameter words, and returns it
    /// with its tensor maps. Considers this form, the one without tensor maps, and the one without
    /// clusters.
    ///
    /// # Errors
    /// Errors of the compilation of another form.
    #[inline]
    pub fn for_launch(&self, grid: Option<[u32; 3]>, words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        let Some(mapped) = &self.maps else { return Ok((self, None)) };
        let cluster = self.kernel.cluster();
        if cluster > 1 && grid.is_none_or(|[x, ..]| !x.is_multiple_of(cluster)) {
            return mapped.without_cluster.get()?.for_launch(grid, words);
        }
        match mapped.maps.encoded(words) {
            Some(maps) => Ok((self, Some(maps))),
            None => Ok((mapped.without_maps.get()?, None)),
        }
    }
}
