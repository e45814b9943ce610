//! Rejected loads: the loads that the producer does not issue, or that `cp.async` does not copy,
//! with the reasons.
//!
//! `warp_specialize/plan` returns them; `pipeline/missed_hints` prints them as remarks.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::ir::{OpId, Opcode};

/// The loads of a kernel that the producer does not issue.
#[derive(Clone, Debug, Default)]
pub struct RejectedLoads {
    /// The reason for all loads, if there is one.
    pub all: Option<Reason>,
    /// The reason for a single load.
    pub loads: FxHashMap<OpId, Reason>,
}

impl RejectedLoads {
    /// Returns the rejection of all loads for one reason.
    pub fn all(reason: Reason) -> RejectedLoads {
        RejectedLoads { all: Some(reason), loads: FxHashMap::default() }
    }
}

/// The reason why the producer does not issue a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Only sm_90a has producers.
    Target,
    /// TMA or warp specialization is disabled.
    Disabled,
    /// With a producer, a CTA has more threads than the hardware allows.
    Threads { count: u32, most: u32 },
    /// The kernel prints.
    Prints,
    /// Tile blocks exchange tiles within a cluster.
    ClusterExchange,
    /// A branch leaves the loop or the kernel between the load and its MMA.
    EarlyExit,
    /// A branch or loop waits for the preceding kernel. The producer executes only waits of the
    /// entry block.
    WaitsForKernel,
    /// One stage of each pipeline exceeds the free shared memory.
    SharedMemory { needed: u32, free: u32 },
    /// A hint of the loop excludes a producer.
    LoopHint,
    /// The loop has one stage.
    OneStage,
    /// A hint of the load excludes TMA.
    LoadHint,
    /// No op reads the tile.
    Unused,
    /// An op other than an MMA reads the tile.
    ReadBy(Opcode),
    /// The MMA does not read its operand in shared memory by a descriptor.
    NotInSharedMemory,
    /// Several MMAs read the tile in different forms.
    Layouts,
    /// `cat` concatenates the operand, and TMA does not load another part.
    Joined,
    /// The kernel writes the array, or the load is ordered with accesses of other CTAs.
    Written,
    /// TMA cannot load boxes of this array or view, for this reason.
    View(&'static str),
    /// One thread cannot compute the index, or the control flow that leads to the load.
    Index,
}

impl Reason {
    /// Returns true if the reason is a request of the user for this loop or launch.
    pub fn is_hint(self) -> bool {
        matches!(self, Reason::LoopHint | Reason::OneStage)
    }

    /// Returns true if the reason is the same for all loads of a loop.
    pub fn is_of_loop(self) -> bool {
        let of_load = matches!(self, Reason::LoadHint | Reason::Unused | Reason::ReadBy(_) | Reason::NotInSharedMemory)
            || matches!(self, Reason::Layouts | Reason::Joined | Reason::Written | Reason::View(_) | Reason::Index);
        !of_load
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Target => write!(f, "it needs sm_90a"),
            Reason::Disabled => write!(f, "TMA or warp specialization is disabled"),
            Reason::Threads { count, most } => {
                write!(f, "with a producer, a tile block has {count} threads, and the maximum is {most}")
            }
            Reason::ClusterExchange => write!(f, "tile blocks exchange tiles within a cluster"),
            Reason::Prints => write!(f, "the kernel prints"),
            Reason::EarlyExit => write!(f, "a branch leaves the loop or the kernel between the load and its MMA"),
            Reason::WaitsForKernel => write!(f, "a branch or loop waits for the preceding kernel"),
            Reason::SharedMemory { needed, free } => {
                write!(f, "the pipeline stages need {needed} bytes of shared memory, and {free} are free")
            }
            Reason::LoopHint => write!(f, "a hint of the loop disables it"),
            Reason::OneStage => write!(f, "the loop has one stage, so no load runs ahead"),
            Reason::LoadHint => write!(f, "a hint of the load disables TMA"),
            Reason::Unused => write!(f, "no MMA reads the tile"),
            Reason::ReadBy(code) => write!(f, "`{}` reads the tile in registers", code.spec().name),
            Reason::NotInSharedMemory => write!(f, "the MMA does not read this operand in shared memory"),
            Reason::Layouts => write!(f, "several MMAs read the tile in different layouts"),
            Reason::Joined => write!(f, "TMA does not load another part of the operand that `cat` puts together"),
            Reason::Written => write!(f, "the kernel writes to the array, or the load is ordered with other accesses"),
            Reason::View(why) => write!(f, "TMA does not support this array or view: {why}"),
            Reason::Index => write!(f, "one thread alone cannot compute the index or the control flow of the load"),
        }
    }
}

/// The reason why a loop has no multistage `cp.async` copy of the tile of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyReason {
    /// An option disables the copies.
    Disabled,
    /// The loop is no `for`.
    NoCounter,
    /// A `continue` may end an iteration early.
    Continue,
    /// The load is in a region of the loop body.
    Branch,
    /// The loop body makes the view.
    View,
    /// The kernel writes the array, or the load is ordered with accesses of other CTAs.
    Written,
    /// The index depends on a carried value, or threads exchange values to compute it.
    Index,
    /// An access may be partly inside of the array.
    Extent { elements: usize },
    /// An access has a number of bytes that `cp.async` does not copy.
    Pieces { bytes: usize },
    /// The addresses are a tile of pointers.
    Pointers,
    /// An op other than an MMA reads the tile.
    ReadBy(Opcode),
    /// Several ops read the tile.
    Uses,
    /// The MMA reads the tile in an order that differs from that of the accesses.
    Order,
    /// Tiles at any position overlap in a loop without MMAs.
    Overlap,
    /// No access of the loop has this number of bytes.
    Narrow { least: u32 },
    /// Many threads hold the same elements.
    Replicated,
    /// The kernel has a producer for other loops.
    Producer,
    /// Two stages exceed the free shared memory.
    SharedMemory,
}

impl fmt::Display for CopyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CopyReason::Disabled => write!(f, "an option disables cp.async"),
            CopyReason::NoCounter => write!(f, "the loop has no counter"),
            CopyReason::Continue => write!(f, "an iteration may end early"),
            CopyReason::Branch => write!(f, "a branch contains the load"),
            CopyReason::View => write!(f, "the loop computes the bounds or the address of the view"),
            CopyReason::Written => write!(f, "{}", Reason::Written),
            CopyReason::Index => write!(f, "the index depends on the previous iteration or on several threads"),
            CopyReason::Extent { elements } => {
                write!(f, "the contiguous extent of the array is no known multiple of {elements}")
            }
            CopyReason::Pieces { bytes } => {
                write!(f, "contiguous pieces of {bytes} bytes, and cp.async copies 4, 8 or 16")
            }
            CopyReason::Pointers => write!(f, "each element has an address of its own"),
            CopyReason::ReadBy(code) => write!(f, "{}", Reason::ReadBy(code)),
            CopyReason::Uses => write!(f, "several ops read the tile"),
            CopyReason::Order => write!(f, "the MMA reads the tile in another order"),
            CopyReason::Overlap => write!(f, "tiles at any position may overlap in the L1 cache"),
            CopyReason::Narrow { least } => write!(f, "no load of the loop has pieces of {least} bytes"),
            CopyReason::Replicated => write!(f, "too many threads would copy the same elements"),
            CopyReason::Producer => write!(f, "the producer loads for other loops"),
            CopyReason::SharedMemory => write!(f, "shared memory has no space for two stages"),
        }
    }
}
