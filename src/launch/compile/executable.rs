//! A compiled kernel: code with what a launch has to pass and to check, and its other forms.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::launch_conditions::Checks;
use super::preconditions::Requirements;
use super::tensor_map::{Encoded, TensorMaps};
use crate::backend::ptx::ParamKind;
use crate::backend::{ParamWord, cpu};
use crate::error::Result;
use crate::launch::inspect::profile::Profiled;
use crate::launch::inspect::remarks::Remarks;
use crate::runtime::{FailureNote, GpuKernel};

/// A compiled kernel.
pub(crate) struct Executable {
    pub code: Code,
    /// What each launch checks beforehand.
    pub required: Option<Box<Requirements>>,
    /// Where launches are noted, if that is wished.
    pub profiled: Option<Box<Profiled>>,
}

/// What runs.
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

/// A kernel on a GPU.
pub(crate) struct GpuCode {
    pub kernel: GpuKernel,
    /// Where its parameters come from, in order.
    pub params: Vec<ParamKind>,
    /// What became of it, for people.
    pub remarks: Remarks,
    /// What must hold at each launch.
    pub promises: Option<Box<Promised>>,
    /// The tensor maps among the parameters.
    pub maps: Option<Box<Mapped>>,
    /// Names of its globals, in the module and in the code. (A kernel that has some has no other forms.)
    pub globals: Vec<(String, String)>,
    /// Where it notes assertions that fail. (Behind the kernel: dropped when that has ended.)
    pub failure: Option<Arc<FailureNote>>,
}

/// The tensor maps of a kernel, and the kernels for launches that it is not for.
pub(crate) struct Mapped {
    pub maps: TensorMaps,
    /// For arrays that have no maps.
    pub plain: Other,
    /// For grids that clusters do not divide.
    pub single: Other,
}

/// What a kernel on a GPU relies on, and the kernel that relies on nothing.
pub(crate) struct Promised {
    pub checks: Checks,
    pub guarded: Other,
}

/// Another form of a kernel, compiled when it is first asked for.
pub(crate) struct Other {
    code: OnceLock<Box<GpuCode>>,
    building: Mutex<()>,
    build: Box<dyn Fn() -> Result<GpuCode> + Send + Sync + UnwindSafe + RefUnwindSafe>,
}

impl Other {
    pub fn new(build: impl Fn() -> Result<GpuCode> + Send + Sync + UnwindSafe + RefUnwindSafe + 'static) -> Other {
        Other { code: OnceLock::new(), building: Mutex::new(()), build: Box::new(build) }
    }

    /// The code.
    ///
    /// # Errors
    /// Those of compiling.
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
    /// How the code calls a global of the module.
    pub fn symbol(&self, global: &str) -> Option<&str> {
        self.globals.iter().find(|(name, _)| name == global).map(|(_, symbol)| symbol.as_str())
    }

    /// The kernel that runs with this grid and these parameter words, and its maps: of all forms.
    ///
    /// # Errors
    /// Those of compiling another one.
    #[inline]
    pub fn chosen(&self, grid: [u32; 3], words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        let (code, maps) = self.for_launch(Some(grid), words)?;
        match &code.promises {
            Some(promised) if !promised.checks.hold(grid, words) => Ok((promised.guarded.get()?, maps)),
            _ => Ok((code, maps)),
        }
    }

    /// The kernel that runs with this grid (any, if it is not known) and these parameter words, and its maps: this
    /// one, the one without tensor maps, or the one without clusters.
    ///
    /// # Errors
    /// Those of compiling another one.
    #[inline]
    pub fn for_launch(&self, grid: Option<[u32; 3]>, words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        let Some(mapped) = &self.maps else { return Ok((self, None)) };
        let cluster = self.kernel.cluster();
        if cluster > 1 && grid.is_none_or(|[x, ..]| !x.is_multiple_of(cluster)) {
            return mapped.single.get()?.for_launch(grid, words);
        }
        match mapped.maps.encoded(words) {
            Some(maps) => Ok((self, Some(maps))),
            None => Ok((mapped.plain.get()?, None)),
        }
    }
}
