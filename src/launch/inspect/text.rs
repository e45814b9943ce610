//! Inspection of the code of a kernel, without a launch and without a device.

use std::fmt;

use super::remarks;
use super::spills::Spills;
use crate::backend::cpu::Checks;
use crate::backend::{Hints, tileir};
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, WordBuffer};
use crate::launch::checks::Recorded;
use crate::launch::compile::check_hints::check_hints;
use crate::launch::compile::offline_ptxas::{self, settled};
use crate::launch::compile::preconditions::Preconditions;
use crate::launch::compile::ptx::{self, TensorMapUse};
use crate::launch::compile::{PassMode, check_determinism, optimize, optimize_watched};
use crate::launch::exact_mode;
use crate::launch::grid::IntoGrid;
use crate::launch::options::Launch;
use crate::launch::prove::proof_arguments;
use crate::launch::prove::proved::without_checks;
use crate::pass::Argument;
use crate::runtime::Backend;
use crate::target::Target;

/// Traces a kernel and returns its [`Inspection`]: the code of each compiler stage as text.
///
/// `args` are the arguments of a launch. [`ArraySpec`](crate::ArraySpec) describes arrays that do
/// not exist.
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [128]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let code = ct::inspect(copy, (x, x.mutable())).target(ct::Target::SM_80);
/// assert!(code.ir()?.contains("load_view_tko"));
/// assert!(code.ptx()?.contains(".target sm_80"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Panics
/// If the kernel panics during tracing.
#[track_caller]
pub fn inspect<K, A, P>(kernel: K, args: A) -> Inspection
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Inspection::of_call(&Bound::new(&kernel, &Arguments::new(args)).call())
}

/// Code of a kernel at each stage of the compiler, made by [`inspect`]. Each accessor compiles as
/// far as its stage.
///
/// By default the target is [`Target::SM_90A`], and there are no hints.
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
/// let code: ct::Inspection = ct::inspect(double, (x.mutable(),));
/// assert!(code.ptx()?.contains("mul.rn.f32"));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// * Each accessor returns [`Error::Kernel`] with all errors of an ill-formed kernel.
/// * Accessors of a stage for a target return [`Error::Unsupported`] with all ops that the target
///   does not support.
/// * They return [`Error::Argument`] for hints outside of their ranges.
pub struct Inspection {
    name: String,
    trace: Result<Module>,
    target: Target,
    hints: Hints,
    checks: Option<Checks>,
    exact: bool,
    /// Parameter words and arguments, for proofs.
    given: (WordBuffer, Vec<Argument>),
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Inspection");
        text.field("kernel", &self.name).field("target", &self.target).field("hints", &self.hints);
        text.finish_non_exhaustive()
    }
}

impl Inspection {
    /// Traces a call.
    #[track_caller]
    pub(crate) fn of_call(call: &Call<'_>) -> Inspection {
        let name = call.name();
        let trace = call.trace(&name);
        let (target, hints, given) = (Target::SM_90A, Hints::default(), proof_arguments(call));
        Inspection { name, trace, target, hints, checks: None, exact: exact_mode::is_selected(), given }
    }

    /// Sets the target.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// assert!(ct::inspect(fill, (x.mutable(),)).target(ct::Target::SM_80).ptx()?.contains(".target sm_80"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn target(mut self, target: Target) -> Inspection {
        self.target = target;
        self
    }

    /// Sets the hints.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// let code = ct::inspect(fill, (x.mutable(),)).hints(ct::Hints::new().num_warps(4));
    /// assert!(code.ptx()?.contains(".reqntid 128"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn hints(mut self, hints: Hints) -> Inspection {
        self.hints = hints;
        self
    }

    /// Sets the checks of generated PTX, as [`Launch::checks`](crate::Launch::checks) does. Without
    /// this call they are those of the environment variable `CUTLET_CHECK`. [`ir`](Inspection::ir),
    /// [`passes`](Inspection::passes) and [`tile_ir`](Inspection::tile_ir) have no checks.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>, n: Scalar<i32>| {
    ///     // SAFETY: the caller passes the number of a tile.
    ///     let n = unsafe { n.assume_bounds(0..1024) };
    ///     x.store(n, ct::zeros([1024]));
    /// };
    /// let code = ct::inspect(fill, (x.mutable(), 3)).checks(ct::Checks { bounds: true, ..ct::Checks::none() });
    /// assert!(code.ptx()?.contains("atom."));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Inspection {
        self.checks = Some(checks);
        self
    }

    /// Selects exact mode, as [`Launch::exact`](crate::Launch::exact) does.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let sum = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) + 1.0);
    /// let text = ct::inspect(sum, (x.mutable(),)).exact().ir()?;
    /// assert!(text.contains("addi") && !text.contains("addf"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn exact(mut self) -> Inspection {
        self.exact = true;
        self
    }

    /// Removes the bounds checks that a launch with this grid and with the extents and numbers of
    /// the arguments does not need, as [`Launch::proved`](crate::Launch::proved) does.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// let code = ct::inspect(fill, (x.mutable(),)).proved(1024)?;
    /// assert!(code.ir()?.contains("inbounds"));
    /// assert!(ct::inspect(fill, (x.mutable(),)).proved(1025).is_err());
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Kernel`] unless [`Property::Bounds`](crate::Property::Bounds) is proved;
    /// [`Error::Argument`] for a grid beyond the limits.
    #[track_caller]
    pub fn proved(mut self, grid: impl IntoGrid) -> Result<Inspection> {
        let grid = grid.into_grid().checked(Backend::Ptx)?.unwrap_or([0; 3]);
        let (words, arguments) = &self.given;
        let module = without_checks(&self.name, self.trace()?, grid, (words.words(), arguments))?;
        self.trace = Ok(module);
        Ok(self)
    }

    /// Returns the Tile IR after the passes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// assert!(ct::inspect(fill, (x.mutable(),)).ir()?.contains("store_view_tko"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    pub fn ir(&self) -> Result<String> {
        Ok(self.module(self.mode())?.to_text(PrintOptions::default()))
    }

    /// Returns the Tile IR before the optimization passes (`trace`), and after each of them that
    /// changed it, with the name of the pass. Values keep their names, so that a comparison of two
    /// texts shows the effect of a pass.
    ///
    /// These are the passes that all back ends share. Passes of one back end follow them:
    /// [`schedule`](Inspection::schedule) and [`tile_ir`](Inspection::tile_ir) return their
    /// results. Before `trace`, needless checks are removed, and preconditions of a launch are
    /// split off.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn kernel(x: ct::ArrayMut<f32, 1>) {
    ///     let y = x.load(0, [64]);
    ///     x.store(0, y * y + y * y); // one product after common-subexpression elimination
    /// }
    ///
    /// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
    /// let forms = ct::inspect(kernel, (x,)).passes()?;
    /// let products = |name: &str| {
    ///     let (_, text) = forms.iter().find(|(pass, _)| *pass == name).unwrap();
    ///     text.matches("mulf").count()
    /// };
    /// assert_eq!((products("trace"), products("cse")), (2, 1));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    pub fn passes(&self) -> Result<Vec<(&'static str, String)>> {
        let mut forms: Vec<(&'static str, String)> = Vec::new();
        optimize_watched(&self.name, self.trace()?, self.mode(), &mut |pass, module| {
            let text = module.to_text(PrintOptions::with_stable_names());
            if forms.last().is_none_or(|(_, before)| *before != text) {
                forms.push((pass, text));
            }
        })?;
        Ok(forms)
    }

    /// Returns the Tile IR of the tileir back end for the target, with memory tokens.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// assert!(ct::inspect(fill, (x.mutable(),)).tile_ir()?.contains("store_view_tko"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn tile_ir(&self) -> Result<String> {
        check_hints(self.hints)?;
        let options = tileir::CompileOptions { hints: self.hints, ..tileir::CompileOptions::default() };
        let compiled = tileir::compile(&self.module(self.mode())?, self.target, &options)?;
        Ok(compiled.module.to_text(PrintOptions::default()))
    }

    /// Returns the layouts of tiles in registers of the ptx back end: the elements of each thread.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// assert!(ct::inspect(double, (x.mutable(),)).layouts()?.contains("lane"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn layouts(&self) -> Result<String> {
        let module = self.module_for_ptx()?;
        Ok(ptx::generate(&module, self.target, self.hints, TensorMapUse::for_module(&module))?.layout)
    }

    /// Returns the schedule of the ptx back end: the steps of each warp role before the emission of
    /// PTX (`docs/schedule.md`).
    ///
    /// A header lists the warps, the pipelines, and the user's line of each load, MMA and store.
    /// Values without instructions are omitted; [`full_schedule`](Inspection::full_schedule) has
    /// them. The text is for readers and may change.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let text = ct::inspect(double, (x.mutable(),)).hints(ct::Hints::new().num_warps(8)).schedule()?;
    /// assert!(text.contains("partition all: warps 0..8"), "{text}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn schedule(&self) -> Result<String> {
        let module = self.module_for_ptx()?;
        ptx::schedule(&module, self.target, self.hints, TensorMapUse::for_module(&module).are_allowed())
    }

    /// Returns the [schedule](Inspection::schedule) with the values that have no instructions
    /// (`defer` steps).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let text = ct::inspect(double, (x.mutable(),)).target(ct::Target::SM_80).full_schedule()?;
    /// assert!(text.contains("defer "), "{text}"); // the factor
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn full_schedule(&self) -> Result<String> {
        let module = self.module_for_ptx()?;
        ptx::full_schedule(&module, self.target, self.hints, TensorMapUse::for_module(&module).are_allowed())
    }

    /// Returns a timeline of the [schedule](Inspection::schedule) by the cost model, as an SVG
    /// image.
    ///
    /// Each partition of the warps and each resource of a multiprocessor has a row. The unit of
    /// time is a cycle, and waits are hatched. The interval is one steady iteration of the
    /// innermost loop with matrix products, or the whole tile block without such a loop. Nothing is
    /// measured.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let hints = ct::Hints::new().num_warps(8).occupancy(2);
    /// let picture = ct::inspect(double, (x.mutable(),)).hints(hints).timeline_svg()?;
    /// assert!(picture.starts_with("<svg") && picture.contains("store_view"));
    /// assert!(picture.contains("block 1, all")); // two blocks share a multiprocessor
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn timeline_svg(&self) -> Result<String> {
        let module = self.module_for_ptx()?;
        ptx::picture(&self.name, &module, self.target, self.hints, TensorMapUse::for_module(&module).are_allowed())
    }

    /// Returns the PTX. With `CUTLET_REMARKS=1` the remarks are written to standard error.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let double = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// let text = ct::inspect(double, (x.mutable(),)).ptx()?;
    /// assert!(text.contains(".target sm_90a") && text.contains("mul.rn.f32"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`].
    #[track_caller]
    pub fn ptx(&self) -> Result<String> {
        let module = self.module_for_ptx()?;
        let code = ptx::generate(&module, self.target, self.hints, TensorMapUse::for_module(&module))?;
        remarks::emit_code_remarks(&code, code.min_blocks > 1);
        Ok(code.text)
    }

    /// Returns the lines whose values live in local memory: spilled registers, and arrays of a
    /// thread. The PTX is assembled with lines: by `ptxas` if `CUTLET_PTXAS` names one, else by the
    /// driver if a GPU of the target is present, else by `ptxas` on the search path.
    ///
    /// The driver compiles code with warp roles differently than for a launch. Its lines are those
    /// of similar code with the registers of the consumer warps.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let sort = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [65536]) * 2.0);
    /// let code = ct::inspect(sort, (x.mutable(),)).hints(ct::Hints::new().num_warps(4));
    /// match code.spills() {
    ///     Ok(spills) => println!("{spills}"),
    ///     Err(error) => println!("{error}"), // neither a GPU nor ptxas
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Inspection`]; [`Error::NoDevice`] without an assembler, [`Error::Compile`] with its
    /// log.
    #[track_caller]
    pub fn spills(&self) -> Result<Spills> {
        let module = self.module_for_ptx()?;
        let code = settled(&module, self.target, self.hints.line_info(true), TensorMapUse::for_module(&module))?;
        offline_ptxas::spills(&code, self.target, self.hints)
    }

    /// Returns the generated code.
    #[cfg(test)]
    pub(crate) fn compiled(&self) -> Result<crate::backend::ptx::Compiled> {
        let module = self.module_for_ptx()?;
        ptx::generate(&module, self.target, self.hints, TensorMapUse::for_module(&module))
    }

    /// Returns the optimized module, as a launch compiles it for the ptx back end.
    #[track_caller]
    fn module_for_ptx(&self) -> Result<Module> {
        check_hints(self.hints)?;
        let checks = Launch { checks: self.checks, ..Launch::new(1) }.checks_on(Backend::Ptx)?;
        let recorded = Recorded::by(checks);
        self.module(PassMode::new(Backend::Ptx, checks.bounds || recorded.any(), recorded).exact(self.exact))
    }

    fn mode(&self) -> PassMode {
        PassMode::OPTIMIZED.exact(self.exact)
    }

    fn module(&self, mode: PassMode) -> Result<Module> {
        let module = self.trace()?;
        check_determinism(&module, self.hints)?;
        Ok(optimize(&self.name, module, mode)?.0)
    }

    fn trace(&self) -> Result<Module> {
        match &self.trace {
            Ok(module) => Ok(module.clone()),
            Err(Error::Kernel(problems)) => Err(Error::Kernel(problems.clone())),
            Err(Error::Argument(problem)) => Err(Error::Argument(problem.clone())),
            Err(other) => unreachable!("a trace has no such error: {other}"),
        }
    }
}

#[track_caller]
pub(crate) fn traced(call: &Call<'_>) -> Result<(Module, Option<Preconditions>)> {
    let name = call.name();
    optimize(&name, call.trace(&name)?, PassMode::OPTIMIZED)
}
