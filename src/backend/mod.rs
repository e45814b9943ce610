//! Back ends: a verified, optimised module becomes something that runs.
//!
//! Each back end knows `ir` and `pass`, never the front end and never another back end.
//! The parameters of a compiled kernel are the entry's parameters in order, one 64-bit word each
//! ([`ParamWord`]); how they travel from there is the back end's affair.

pub mod cpu;
pub mod ptx;
pub mod tileir;

/// The bits of one entry parameter: an address, or a number in the low bits.
pub type ParamWord = u64;

/// Wishes for the code of one launch; what is `None` the back end chooses itself.
///
/// Hints never change results. The cpu back end ignores all but [`Hints::loop_limit`].
///
/// ```
/// use cutlet::Hints;
/// let hints = Hints::new().num_warps(8).occupancy(2);
/// assert_eq!((hints.num_warps, hints.stages), (Some(8), None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Hints {
    /// Warps of one tile block (1 to 32, a power of two).
    pub num_warps: Option<u32>,
    /// Depth of software-pipelined loops: how many loads are in flight.
    pub stages: Option<u32>,
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
}

impl Hints {
    /// No hints.
    pub const fn new() -> Hints {
        Hints { num_warps: None, stages: None, num_ctas: None, occupancy: None, code_limit: None, loop_limit: None }
    }

    /// With [`Hints::num_warps`].
    #[must_use]
    pub const fn num_warps(mut self, warps: u32) -> Hints {
        self.num_warps = Some(warps);
        self
    }

    /// With [`Hints::stages`].
    #[must_use]
    pub const fn stages(mut self, stages: u32) -> Hints {
        self.stages = Some(stages);
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

    /// With [`Hints::occupancy`].
    #[must_use]
    pub const fn occupancy(mut self, blocks: u32) -> Hints {
        self.occupancy = Some(blocks);
        self
    }
}
