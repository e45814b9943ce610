//! Back ends: execution of a verified and optimized module.
//!
//! A back end uses `ir` and `pass`, and neither the front end nor another back end. `schedule_sim`
//! is not a back end: it executes the schedule of the ptx back end with the interpreter of the cpu
//! back end.
//!
//! The head of `ptx/mod.rs` is an index of the ptx back end by subject: decision, emission,
//! verification.
//!
//! The parameters of a compiled kernel are those of the entry in order, one 64-bit word each
//! ([`ParamWord`]). The back end determines how it passes them.

pub mod cpu;
pub mod ptx;
#[cfg(any(test, feature = "_suite"))]
#[doc(hidden)]
pub mod schedule_sim;
pub mod tileir;

use std::fmt;

/// Bits of one entry parameter: an address, or a number in the low bits.
pub type ParamWord = u64;

/// Hints for the code of one launch. If a field is `None`, the back end selects a value.
///
/// Hints never change results. The cpu back end ignores all but [`Hints::loop_limit`].
///
/// ```
/// use cutlet::Hints;
/// let hints = Hints::new().num_warps(8).occupancy(2);
/// assert_eq!((hints.num_warps, hints.num_stages), (Some(8), None));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Hints {
    /// Number of warps of a tile block (1 to 32, a power of two), or 12 or 24 for *data
    /// partitioning*.
    ///
    /// With 12 or 24 the ptx back end divides the rows of each tile among three groups of 4 or 8
    /// warps. The groups share the right operands of matrix products. This needs sm_90a, products
    /// of 192 rows (with 12), no computation across rows, and one partition view for each array
    /// that is stored to. If it is not possible, the kernel has 8 or 16 warps, and its remarks
    /// state the reason. Without a hint, kernels with several products of 192 rows in a loop are
    /// partitioned, as attention is.
    ///
    /// With 4 on sm_90a, the ptx back end may select the *ping-pong* schedule: two groups of 4
    /// warps alternate the iterations of a persistent loop without carried values, so that one
    /// group multiplies while the other one stores. It needs an `occupancy` of at most 1. Results
    /// and their order are the same.
    pub num_warps: Option<u32>,
    /// Number of stages of software-pipelined loops: the loads of this many iterations are in
    /// flight. With 1, each load is issued in its own iteration.
    pub num_stages: Option<u32>,
    /// Number of tile blocks of one cluster (a power of two up to 16).
    ///
    /// On Hopper with 2 or more, the ptx back end runs the kernel in clusters of two tile blocks.
    /// They are adjacent along the first extent of the grid, and load the common operands of matrix
    /// products once. Requirements:
    ///
    /// * The first extent of the grid is even.
    /// * The control flow of a block does not depend on its position in the grid. Excepted is an
    ///   outermost loop over tiles that starts at this position.
    ///
    /// Otherwise the hint has no effect. Exported PTX has no clusters. The tileir back end passes
    /// the number on.
    pub num_ctas: Option<u32>,
    /// Number of tile blocks that should fit on one multiprocessor (1 to 32). The ptx back end uses
    /// fewer if warps, registers of matrix products or shared memory do not permit it, and reports
    /// this in its remarks.
    pub occupancy: Option<u32>,
    /// Maximal number of instructions of a kernel in the ptx back end. A larger kernel is an error
    /// at the op that exceeds the limit. If `None`, the limit is 2^19 (524288), and a tile of 1024
    /// or more registers per thread is also an error: the assembler would take minutes.
    pub code_limit: Option<u32>,
    /// Number of iterations after which the cpu back end reports a
    /// [`while_loop`](crate::while_loop), or other loop without a range, as endless. If `None`, the
    /// limit is 2^24 (16777216), times 64 if the loop waits for writes of other tile blocks.
    pub loop_limit: Option<u32>,
    /// Milliseconds after which the ptx back end reports a wait that does not end
    /// ([`Error::Hung`](crate::Error::Hung)): of warps for tiles, empty stages and order barriers,
    /// at barriers, and of a loop without a range for atomic or ordered accesses of other tile
    /// blocks (flags, locks). The report names the waits, their lines and warps and the tile block,
    /// and the kernel ends. If `None`, the code has no such limit, and a kernel that waits forever
    /// blocks the GPU. The code is slower with a limit.
    pub wait_limit: Option<u32>,
    /// Optimization level of the assembler, from 0 to 3; `None` is 3. The assembler is the driver's
    /// for PTX, and `tileiras` for Tile IR. A lower level compiles faster, and at 0 the
    /// instructions stay near their source lines. The passes of this crate do not change.
    pub opt_level: Option<u32>,
    /// Emits source lines for profilers and `compute-sanitizer`. If `None`, the environment
    /// variable `CUTLET_LINES` decides (`1`: yes; else no). The instructions do not change.
    pub line_info: Option<bool>,
    /// Requests code for a debugger from `tileiras` (`--device-debug`), which is slow. The ptx back
    /// end has no such code and treats this field as [`Hints::line_info`].
    pub device_debug: bool,
    /// Requests code with checked accesses for `compute-sanitizer` from `tileiras`
    /// (`--sanitize=memcheck`). Code of the ptx back end does not need it: `compute-sanitizer` adds
    /// the checks.
    pub memcheck: bool,
    /// Use of the persistent form of a kernel. The tile blocks that run at a time then compute all
    /// tile blocks of the grid one after another. The loads of a tile block then overlap the stores
    /// of the last one.
    ///
    /// If `None`, the ptx back end uses it on sm_90a under two conditions. The grid has two or more
    /// tile blocks for each that runs at a time. A loop of the kernel has a matrix product whose
    /// loads are all by TMA. It compiles the form at the first launch of such a grid. With `true`,
    /// smaller grids use it, too; with `false`, none does. Kernels with atomics, early exits, loops
    /// without a range, prints, assertions, scratch memory or [`num_blocks`](crate::num_blocks)
    /// have no such form. The same holds for exported PTX, and for launches with
    /// [`Hints::num_ctas`].
    pub persistent: Option<bool>,
    /// Requires results that do not depend on the order in which tile blocks run. A kernel with
    /// float atomics, exchanges, or used results of atomic operations is then an error.
    pub deterministic: bool,
    /// Places time stamps at the steps of the schedule of the ptx back end, for
    /// [`Launch::launch_traced`](crate::Launch::launch_traced) and `CUTLET_TRACE`. Other launches
    /// with this hint record the steps, and no one reads the records.
    pub trace: bool,
    /// Overrides of the plan, for measurements.
    #[doc(hidden)]
    pub plan: PlanOverride,
}

/// Overrides of the ptx back end's plan selection, for measurements.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlanOverride {
    /// Disables the plan search by the cost model.
    pub disable_search: bool,
    /// Disables the ping-pong schedule.
    pub disable_pingpong: bool,
    /// Disables TMA loads; in the tileir back end also TMA stores. Accesses with `allow_tma` keep
    /// their own choice there.
    pub disable_tma_loads: bool,
    /// Maximum number of CTAs of a persistent form; 0 for all that run at a time.
    pub max_ctas: u32,
    /// Enabled optimizations.
    pub optimizations: ptx::OptimizationSet,
}

/// The text is part of the keys of tuning records and cache files. It contains `wait_limit` and the
/// last four fields only if they are set.
impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hints {
            num_warps,
            num_stages,
            num_ctas,
            occupancy,
            code_limit,
            loop_limit,
            wait_limit,
            opt_level,
            line_info,
            device_debug,
            memcheck,
            persistent,
            deterministic,
            trace,
            plan,
        } = self;
        let mut text = f.debug_struct("Hints");
        text.field("num_warps", num_warps).field("num_stages", num_stages).field("num_ctas", num_ctas);
        text.field("occupancy", occupancy).field("code_limit", code_limit).field("loop_limit", loop_limit);
        text.field("opt_level", opt_level).field("line_info", line_info).field("device_debug", device_debug);
        text.field("memcheck", memcheck);
        if wait_limit.is_some() {
            text.field("wait_limit", wait_limit);
        }
        if persistent.is_some() {
            text.field("persistent", persistent);
        }
        if *plan != PlanOverride::default() {
            text.field("plan", plan);
        }
        if *deterministic {
            text.field("deterministic", deterministic);
        }
        if *trace {
            text.field("trace", trace);
        }
        text.finish()
    }
}

impl Hints {
    /// Creates hints without values.
    pub const fn new() -> Hints {
        Hints {
            num_warps: None,
            num_stages: None,
            num_ctas: None,
            occupancy: None,
            code_limit: None,
            loop_limit: None,
            wait_limit: None,
            opt_level: None,
            line_info: None,
            device_debug: false,
            memcheck: false,
            persistent: None,
            deterministic: false,
            trace: false,
            plan: PlanOverride {
                disable_search: false,
                disable_pingpong: false,
                disable_tma_loads: false,
                max_ctas: 0,
                optimizations: ptx::OptimizationSet::ALL,
            },
        }
    }

    /// Sets [`Hints::num_warps`].
    #[must_use]
    pub const fn num_warps(mut self, warps: u32) -> Hints {
        self.num_warps = Some(warps);
        self
    }

    /// Sets [`Hints::num_stages`].
    #[must_use]
    pub const fn num_stages(mut self, stages: u32) -> Hints {
        self.num_stages = Some(stages);
        self
    }

    /// Sets the overrides of the plan, for measurements.
    #[doc(hidden)]
    #[must_use]
    pub const fn plan(mut self, plan: PlanOverride) -> Hints {
        self.plan = plan;
        self
    }

    /// Sets [`Hints::num_ctas`].
    #[must_use]
    pub const fn num_ctas(mut self, blocks: u32) -> Hints {
        self.num_ctas = Some(blocks);
        self
    }

    /// Sets [`Hints::code_limit`].
    #[must_use]
    pub const fn code_limit(mut self, instructions: u32) -> Hints {
        self.code_limit = Some(instructions);
        self
    }

    /// Sets [`Hints::loop_limit`].
    #[must_use]
    pub const fn loop_limit(mut self, turns: u32) -> Hints {
        self.loop_limit = Some(turns);
        self
    }

    /// Sets [`Hints::wait_limit`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// # use cutlet::element::f16;
    /// let x = ct::ArraySpec::<f16, 2>::new([1024, 1024]);
    /// let product = |a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>| {
    ///     let (i, j) = (ct::bid(0), ct::bid(1));
    ///     let sum = ct::fold(0..16, ct::zeros::<f32, 2>([128, 128]), |sum, k| {
    ///         ct::mma(a.load((i, k), [128, 64]), b.load((k, j), [64, 128]), sum)
    ///     });
    ///     c.store((i, j), sum.cast());
    /// };
    /// let code = ct::inspect(product, (x, x, x.mutable())).target(ct::Target::SM_90A);
    /// let code = code.hints(ct::Hints::new().wait_limit(500));
    /// assert!(code.ptx()?.contains("%globaltimer"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn wait_limit(mut self, milliseconds: u32) -> Hints {
        self.wait_limit = Some(milliseconds);
        self
    }

    /// Sets [`Hints::trace`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// let text = ct::inspect(fill, (x.mutable(),)).hints(ct::Hints::new().trace(true)).ptx()?;
    /// assert!(text.contains("%clock"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn trace(mut self, wanted: bool) -> Hints {
        self.trace = wanted;
        self
    }

    /// Sets [`Hints::opt_level`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let launch = ct::Launch::new(1).hints(ct::Hints::new().opt_level(0));
    /// launch.launch(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn opt_level(mut self, level: u32) -> Hints {
        self.opt_level = Some(level);
        self
    }

    /// Sets [`Hints::line_info`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// let hints = ct::Hints::new().line_info(true);
    /// let text = ct::inspect(fill, (x.mutable(),)).hints(hints).ptx()?;
    /// assert!(text.contains(".file 1 ") && text.contains(".loc 1 "));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn line_info(mut self, wanted: bool) -> Hints {
        self.line_info = Some(wanted);
        self
    }

    /// Sets [`Hints::device_debug`].
    #[must_use]
    pub const fn device_debug(mut self, wanted: bool) -> Hints {
        self.device_debug = wanted;
        self
    }

    /// Sets [`Hints::memcheck`].
    #[must_use]
    pub const fn memcheck(mut self, wanted: bool) -> Hints {
        self.memcheck = wanted;
        self
    }

    /// Sets [`Hints::persistent`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([8])?;
    /// let launch = ct::Launch::new(2).hints(ct::Hints::new().persistent(false));
    /// launch.launch(|x: ArrayMut<i32, 1>| x.store(ct::bid(0), ct::ones([4])), (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [1; 8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn persistent(mut self, wanted: bool) -> Hints {
        self.persistent = Some(wanted);
        self
    }

    /// Sets [`Hints::deterministic`].
    ///
    /// ```
    /// use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn total(x: Array<f32, 1>, sum: ArrayMut<f32, 1>) {
    ///     sum.entry(0).atomic_add(x.load(ct::bid(0), [16]).sum(..).item());
    /// }
    ///
    /// let (x, mut sum) = (ct::Device::cpu().zeros([64])?, ct::Device::cpu().zeros([1])?);
    /// let launch = ct::Launch::new(4).hints(ct::Hints::new().deterministic(true));
    /// let error = launch.launch(total, (&x, &mut sum)).unwrap_err().to_string();
    /// assert!(error.contains("adds floats in the order in which tile blocks run"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub const fn deterministic(mut self, wanted: bool) -> Hints {
        self.deterministic = wanted;
        self
    }

    /// Sets [`Hints::occupancy`].
    #[must_use]
    pub const fn occupancy(mut self, blocks: u32) -> Hints {
        self.occupancy = Some(blocks);
        self
    }
}

/// Options of the assembler in addition to the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// Emits source lines.
    pub lines: bool,
    /// Optimization level from 0 to 2; `None` is the highest.
    pub opt_level: Option<u32>,
    /// Requests code for a debugger; `tileiras` only.
    pub device_debug: bool,
    /// Requests code that checks its accesses; `tileiras` only.
    pub memcheck: bool,
}

impl Assembly {
    /// Returns the part of a cache key for these options; empty for the default.
    pub fn key(self) -> Vec<u8> {
        if self == Assembly::default() { Vec::new() } else { format!("{self:?}").into_bytes() }
    }
}
