//! Back ends: a verified, optimised module becomes something that runs.
//!
//! Each back end knows `ir` and `pass`, never the front end and never another back end. `simulate` is none: it runs what one of them
//! plans by means of another one.
//! The parameters of a compiled kernel are the entry's parameters in order, one 64-bit word each
//! ([`ParamWord`]); how they travel from there is the back end's affair.

pub mod cpu;
pub mod ptx;
#[cfg(any(test, feature = "_suite"))]
#[doc(hidden)]
pub mod simulate;
pub mod tileir;

use std::fmt;

/// The bits of one entry parameter: an address, or a number in the low bits.
pub type ParamWord = u64;

/// Wishes for the code of one launch; what is `None` the back end chooses itself.
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
    /// warps, which share the right operands of matrix products. This needs sm_90a, products of 192
    /// rows (with 12), no computation across rows, and one partition view for each array that is
    /// stored to. If it is not possible, the kernel has 8 or 16 warps, and its remarks state the
    /// reason. Without a hint, kernels with several products of 192 rows in a loop are partitioned,
    /// as attention is.
    ///
    /// With 4 on sm_90a, the ptx back end may select the *ping-pong* schedule: two groups of 4 warps
    /// alternate the iterations of a persistent loop without carried values, so that one group
    /// multiplies while the other one stores. It needs an `occupancy` of at most 1. Results and their
    /// order are the same.
    pub num_warps: Option<u32>,
    /// Number of stages of software-pipelined loops: the loads of this many iterations are in
    /// flight. With 1 no load runs ahead.
    pub num_stages: Option<u32>,
    /// Tile blocks of one cluster (a power of two up to 16).
    ///
    /// On Hopper, 2 or more have the ptx back end run the kernel in clusters of two tile blocks, neighbours along the
    /// grid's first extent, that fetch together what both need of the operands of matrix products. It does so where
    /// the way of a block through its loops does not depend on its place in the grid (but for an outermost loop over
    /// tiles that starts there), and where the grid's first extent is even; elsewhere the hint means nothing. Exported
    /// PTX has no clusters. The tileir back end hands the number on.
    pub num_ctas: Option<u32>,
    /// Tile blocks that should fit on one multiprocessor (1 to 32). The ptx back end takes fewer where warps,
    /// registers of matrix products or shared memory do not allow as many, and says so in its remarks.
    pub occupancy: Option<u32>,
    /// Instructions of a kernel at which the ptx back end gives up, with an error at the operation that it came to.
    /// Where this is `None`, that is 2^19 (524288), and a tile of 1024 or more registers of a thread is an error, too:
    /// the assembler would take minutes.
    pub code_limit: Option<u32>,
    /// Turns of one [`while_loop`](crate::while_loop), or other loop without a range, after which the cpu back end takes
    /// it for endless: an error at its place. 2^24 (16777216) where this is `None`, and 64 times as many where the loop
    /// waits for what other tile blocks write.
    pub loop_limit: Option<u32>,
    /// How hard the assembler tries, from 0 to 3, where `None` is 3: the driver's for PTX, `tileiras` for Tile IR. Less
    /// compiles faster, and at 0 instructions stay near the lines that they come from. What the passes of this crate do
    /// does not change.
    pub opt_level: Option<u32>,
    /// Does the code tell profilers and `compute-sanitizer` which line of the user's each instruction comes from? Where
    /// this is `None`, the environment variable `CUTLET_LINES` decides (`1`: yes; else no). The instructions stay the
    /// same.
    pub line_info: Option<bool>,
    /// Has `tileiras` make code for a debugger (`--device-debug`), which is slow. The ptx back end has none: there this
    /// is [`Hints::line_info`].
    pub device_debug: bool,
    /// Has `tileiras` make code that checks its accesses under `compute-sanitizer` (`--sanitize=memcheck`). Code of the
    /// ptx back end needs no such wish: `compute-sanitizer` adds the checks itself.
    pub memcheck: bool,
    /// For measurements of plans that hints leave open.
    #[doc(hidden)]
    pub plan: PlanOverride,
}

/// Which plan the ptx back end takes where hints leave several open.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlanOverride {
    /// The cost model chooses nothing.
    pub disable_search: bool,
    /// Iterations are not dealt to teams.
    pub disable_pingpong: bool,
    /// No load is streamed.
    pub disable_tma_loads: bool,
}

/// The text is a part of what records of tuning and files of the cache are found by: a wish for a plan stands in it where there is one.
impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hints {
            num_warps,
            num_stages,
            num_ctas,
            occupancy,
            code_limit,
            loop_limit,
            opt_level,
            line_info,
            device_debug,
            memcheck,
            plan,
        } = self;
        let mut text = f.debug_struct("Hints");
        text.field("num_warps", num_warps).field("num_stages", num_stages).field("num_ctas", num_ctas);
        text.field("occupancy", occupancy).field("code_limit", code_limit).field("loop_limit", loop_limit);
        text.field("opt_level", opt_level).field("line_info", line_info).field("device_debug", device_debug);
        text.field("memcheck", memcheck);
        if *plan != PlanOverride::default() {
            text.field("plan", plan);
        }
        text.finish()
    }
}

impl Hints {
    /// No hints.
    pub const fn new() -> Hints {
        Hints {
            num_warps: None,
            num_stages: None,
            num_ctas: None,
            occupancy: None,
            code_limit: None,
            loop_limit: None,
            opt_level: None,
            line_info: None,
            device_debug: false,
            memcheck: false,
            plan: PlanOverride { disable_search: false, disable_pingpong: false, disable_tma_loads: false },
        }
    }

    /// With [`Hints::num_warps`].
    #[must_use]
    pub const fn num_warps(mut self, warps: u32) -> Hints {
        self.num_warps = Some(warps);
        self
    }

    /// With [`Hints::num_stages`].
    #[must_use]
    pub const fn num_stages(mut self, stages: u32) -> Hints {
        self.num_stages = Some(stages);
        self
    }

    /// With this plan, for measurements.
    #[doc(hidden)]
    #[must_use]
    pub const fn plan(mut self, plan: PlanOverride) -> Hints {
        self.plan = plan;
        self
    }

    /// With [`Hints::num_ctas`].
    #[must_use]
    pub const fn num_ctas(mut self, blocks: u32) -> Hints {
        self.num_ctas = Some(blocks);
        self
    }

    /// With [`Hints::code_limit`].
    #[must_use]
    pub const fn code_limit(mut self, instructions: u32) -> Hints {
        self.code_limit = Some(instructions);
        self
    }

    /// With [`Hints::loop_limit`].
    #[must_use]
    pub const fn loop_limit(mut self, turns: u32) -> Hints {
        self.loop_limit = Some(turns);
        self
    }

    /// With [`Hints::opt_level`].
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

    /// With [`Hints::line_info`].
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

    /// With [`Hints::device_debug`].
    #[must_use]
    pub const fn device_debug(mut self, wanted: bool) -> Hints {
        self.device_debug = wanted;
        self
    }

    /// With [`Hints::memcheck`].
    #[must_use]
    pub const fn memcheck(mut self, wanted: bool) -> Hints {
        self.memcheck = wanted;
        self
    }

    /// With [`Hints::occupancy`].
    #[must_use]
    pub const fn occupancy(mut self, blocks: u32) -> Hints {
        self.occupancy = Some(blocks);
        self
    }
}

/// What is asked of whoever assembles code, besides the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// Lines of the user's.
    pub lines: bool,
    /// 0 to 2; `None`: the highest.
    pub opt_level: Option<u32>,
    /// Code for a debugger; of `tileiras` alone.
    pub device_debug: bool,
    /// Code that checks its accesses; of `tileiras` alone.
    pub memcheck: bool,
}

impl Assembly {
    /// What is kept on the disk depends on it: nothing, where nothing is asked for.
    pub fn key(self) -> Vec<u8> {
        if self == Assembly::default() { Vec::new() } else { format!("{self:?}").into_bytes() }
    }
}
