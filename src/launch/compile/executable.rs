//! Compiled kernel: code, the data and conditions of its launches, and its other forms.

use crate::util::collect::CollectVec as _;
use std::borrow::Cow;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::guard_check::GuardCheck;
use super::preconditions::Preconditions;
use super::tensor_map_cache::{Encoded, TensorMaps};
use crate::backend::ptx::ParamKind;
use crate::backend::{ParamWord, cpu};
use crate::error::Result;
use crate::launch::checks::races::RaceCheck;
use crate::launch::checks::unwritten::UnwrittenCheck;
use crate::launch::inspect::profile::Profiled;
use crate::launch::inspect::remarks::Remarks;
use crate::launch::inspect::trace::LaunchTrace;
use crate::pass::{POSITIVE_RANGE, UncheckedStore};
use crate::runtime::{FailureNote, GpuKernel};

/// Compiled kernel with the conditions of its launches.
pub(crate) struct Executable {
    pub code: Code,
    /// Conditions that each launch checks.
    pub required: Option<Box<Preconditions>>,
    /// Check of races, if the code records its accesses.
    pub races: Option<Box<RaceCheck>>,
    /// Check of unwritten memory, if the code records its writes.
    pub unwritten: Option<Box<UnwrittenCheck>>,
    /// Stores that may write outside of their array; `None` if the trace is not known.
    pub unchecked_stores: Option<Box<[UncheckedStore]>>,
    /// Record of launches, if the profile is enabled.
    pub profiled: Option<Box<Profiled>>,
}

/// Code of a back end.
pub(crate) enum Code {
    Cpu(Box<cpu::Program>, Remarks),
    Gpu(GpuCode),
}

impl Executable {
    /// Returns true if the code has parameters for a record of its accesses.
    pub fn is_recorded(&self) -> bool {
        self.races.is_some() || self.unwritten.is_some()
    }

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
    /// Parameters that are assumed to be positive.
    pub positive: Option<Box<PositiveParams>>,
    /// Tensor maps among the parameters.
    pub maps: Option<Box<TmaVariant>>,
    /// Form for grids of many tile blocks.
    pub persistent: Option<Box<PersistentVariant>>,
    /// Number of CTAs of a launch of a persistent form, whose last parameters are the extents of
    /// the grid.
    pub persistent_ctas: Option<u32>,
    /// Names of globals, in the module and in the code. A kernel with globals has no other forms.
    pub globals: Vec<(String, String)>,
    /// Memory of the record of failed assertions. Declared after `kernel`, so that it is dropped
    /// after it.
    pub failure: Option<Arc<FailureNote>>,
    /// Records of traced launches.
    pub trace: Option<Box<LaunchTrace>>,
}

/// Tensor maps of a kernel, and the forms for launches without them.
pub(crate) struct TmaVariant {
    pub maps: TensorMaps,
    /// Form for arrays without tensor maps.
    pub without_maps: KernelVariant,
    /// Form for grids that are no multiple of the cluster; `None` if the kernel itself exchanges
    /// tiles within clusters.
    pub without_cluster: Option<KernelVariant>,
}

/// Form whose CTAs compute several tile blocks one after another.
pub(crate) struct PersistentVariant {
    /// Minimum number of tile blocks of a launch.
    pub min_tile_blocks: u64,
    pub variant: KernelVariant,
    /// The compilation has failed.
    pub is_rejected: AtomicBool,
}

/// Maximum number of tile blocks that a persistent form counts in i32.
const MAX_TILE_BLOCKS: u64 = 1 << 30;

impl PersistentVariant {
    /// Returns the form for a grid, compiled if `may_compile` returns true.
    fn for_grid(&self, grid: [u32; 3], may_compile: &dyn Fn() -> bool) -> Option<&GpuCode> {
        let tile_blocks = grid.iter().try_fold(1u64, |all, &extent| all.checked_mul(extent.into()))?;
        if !(self.min_tile_blocks..=MAX_TILE_BLOCKS).contains(&tile_blocks) || self.is_rejected.load(Relaxed) {
            return None;
        }
        if let Some(code) = self.variant.code.get() {
            return Some(code);
        }
        if !may_compile() {
            return None;
        }
        let code = self.variant.get().ok();
        self.is_rejected.store(code.is_none(), Relaxed);
        code
    }
}

/// Assumptions of a kernel on a GPU, and the form without assumptions.
pub(crate) struct LaunchGuard {
    pub check: GuardCheck,
    pub guarded: KernelVariant,
}

/// Parameters that the code assumes to be in [`POSITIVE_RANGE`], and the form for all numbers.
pub(crate) struct PositiveParams {
    /// Positions of the parameters, which are f32.
    pub params: Vec<u32>,
    pub without: KernelVariant,
}

impl PositiveParams {
    /// Returns true if the assumption holds for these parameter words.
    fn hold(&self, words: &[ParamWord]) -> bool {
        self.params.iter().all(|&index| POSITIVE_RANGE.contains(&f32::from_bits(words[index as usize] as u32)))
    }
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
    /// Returns the grid of CTAs and the parameter words for a grid of tile blocks.
    #[inline]
    pub fn launched<'a>(&self, grid: [u32; 3], words: &'a [ParamWord]) -> ([u32; 3], Cow<'a, [ParamWord]>) {
        let Some(ctas) = self.persistent_ctas else { return (grid, Cow::Borrowed(words)) };
        let tile_blocks = grid.iter().map(|&extent| u64::from(extent)).product::<u64>();
        let extents = grid.iter().map(|&extent| ParamWord::from(extent));
        let words = words.iter().copied().chain(extents).collect_vec();
        // The smallest number of CTAs with the same number of tile blocks for the busiest one.
        let rounds = tile_blocks.div_ceil(ctas.into());
        ([tile_blocks.div_ceil(rounds) as u32, 1, 1], Cow::Owned(words))
    }

    /// Returns the symbol of a global of the module in the code.
    pub fn symbol(&self, global: &str) -> Option<&str> {
        self.globals.iter().find(|(name, _)| name == global).map(|(_, symbol)| symbol.as_str())
    }

    /// Selects the form for this grid and these parameter words among all forms; returns it with
    /// its tensor maps. A persistent form is compiled if `may_compile` returns true.
    ///
    /// # Errors
    /// Errors of the compilation of another form.
    #[inline]
    pub fn chosen(
        &self,
        grid: [u32; 3],
        words: &[ParamWord],
        may_compile: &dyn Fn() -> bool,
    ) -> Result<(&GpuCode, Option<Encoded>)> {
        if let Some(code) = self.for_any_number(words)? {
            return code.chosen(grid, words, may_compile);
        }
        if let Some(persistent) = &self.persistent
            && let Some(code) = persistent.for_grid(grid, may_compile)
            && code.positive.as_ref().is_none_or(|positive| positive.hold(words))
            && let Some(maps) = code.maps.as_ref().and_then(|mapped| mapped.maps.encoded(words))
        {
            return Ok((code, Some(maps)));
        }
        let (code, maps) = self.for_launch(Some(grid), words)?;
        match &code.guard {
            Some(guard) if !guard.check.hold(grid, words) => Ok((guard.guarded.get()?, maps)),
            _ => Ok((code, maps)),
        }
    }

    /// Returns the form for all numbers, if the code assumes other numbers than these.
    ///
    /// # Errors
    /// Errors of the compilation of that form.
    #[inline]
    fn for_any_number(&self, words: &[ParamWord]) -> Result<Option<&GpuCode>> {
        match &self.positive {
            Some(positive) if !positive.hold(words) => positive.without.get().map(Some),
            _ => Ok(None),
        }
    }

    /// Selects the form for this grid (`None`: any grid) and these parameter words, and returns it
    /// with its tensor maps. Considers this form, the one for all numbers, the one without tensor
    /// maps, and the one without clusters.
    ///
    /// # Errors
    /// Errors of the compilation of another form.
    #[inline]
    pub fn for_launch(&self, grid: Option<[u32; 3]>, words: &[ParamWord]) -> Result<(&GpuCode, Option<Encoded>)> {
        if let Some(code) = self.for_any_number(words)? {
            return code.for_launch(grid, words);
        }
        let Some(mapped) = &self.maps else { return Ok((self, None)) };
        let cluster = self.kernel.cluster();
        if let Some(without) = &mapped.without_cluster
            && cluster > 1
            && grid.is_none_or(|[x, ..]| !x.is_multiple_of(cluster))
        {
            return without.get()?.for_launch(grid, words);
        }
        match mapped.maps.encoded(words) {
            Some(maps) => Ok((self, Some(maps))),
            None => Ok((mapped.without_maps.get()?, None)),
        }
    }
}
