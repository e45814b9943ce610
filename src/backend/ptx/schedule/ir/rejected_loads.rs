//! Rejected loads: the loads that the producer does not issue, or that `cp.async` does not copy,
//! with the reasons.
//!
//! `warp_specialize/plan` returns them; `pipeline/loop_remarks` prints them as remarks.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::ir::{OpId, Opcode};

/// The loads of a kernel that the producer does not issue.
#[derive(Clone, Debug, Default)]
pub struct RejectedLoads {
    /// The reason for all loads, if there is one.
    pub all: Option<ProducerRejection>,
    /// The reason for a single load.
    pub loads: FxHashMap<OpId, ProducerRejection>,
}

impl RejectedLoads {
    /// Returns the rejection of all loads for one reason.
    pub fn all(reason: ProducerRejection) -> RejectedLoads {
        RejectedLoads { all: Some(reason), loads: FxHashMap::default() }
    }
}

/// The reason why the producer does not issue a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerRejection {
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

impl ProducerRejection {
    /// Returns true if the reason is a request of the user for this loop or launch.
    pub fn is_hint(self) -> bool {
        matches!(self, ProducerRejection::LoopHint | ProducerRejection::OneStage)
    }

    /// Returns true if the reason is the same for all loads of a loop.
    pub fn is_of_loop(self) -> bool {
        let of_load = matches!(
            self,
            ProducerRejection::LoadHint
                | ProducerRejection::Unused
                | ProducerRejection::ReadBy(_)
                | ProducerRejection::NotInSharedMemory
                | ProducerRejection::Layouts
                | ProducerRejection::Joined
                | ProducerRejection::Written
                | ProducerRejection::View(_)
                | ProducerRejection::Index
        );
        !of_load
    }
}

impl fmt::Display for ProducerRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ProducerRejection::Target => write!(f, "it needs sm_90a"),
            ProducerRejection::Disabled => write!(f, "TMA or warp specialization is disabled"),
            ProducerRejection::Threads { count, most } => {
                write!(f, "with a producer, a tile block has {count} threads, and the maximum is {most}")
            }
            ProducerRejection::ClusterExchange => write!(f, "tile blocks exchange tiles within a cluster"),
            ProducerRejection::Prints => write!(f, "the kernel prints"),
            ProducerRejection::EarlyExit => {
                write!(f, "a branch leaves the loop or the kernel between the load and its MMA")
            }
            ProducerRejection::WaitsForKernel => write!(f, "a branch or loop waits for the preceding kernel"),
            ProducerRejection::SharedMemory { needed, free } => {
                write!(f, "the pipeline stages need {needed} bytes of shared memory, and {free} are free")
            }
            ProducerRejection::LoopHint => write!(f, "a hint of the loop disables it"),
            ProducerRejection::OneStage => write!(f, "the loop has one stage, so no load runs ahead"),
            ProducerRejection::LoadHint => write!(f, "a hint of the load disables TMA"),
            ProducerRejection::Unused => write!(f, "no MMA reads the tile"),
            ProducerRejection::ReadBy(code) => write!(f, "`{}` reads the tile in registers", code.spec().name),
            ProducerRejection::NotInSharedMemory => write!(f, "the MMA does not read this operand in shared memory"),
            ProducerRejection::Layouts => write!(f, "several MMAs read the tile in different layouts"),
            ProducerRejection::Joined => {
                write!(f, "TMA does not load another part of the operand that `cat` puts together")
            }
            ProducerRejection::Written => {
                write!(f, "the kernel writes to the array, or the load is ordered with other accesses")
            }
            ProducerRejection::View(why) => write!(f, "TMA does not support this array or view: {why}"),
            ProducerRejection::Index => {
                write!(f, "one thread alone cannot compute the index or the control flow of the load")
            }
        }
    }
}

/// The reason why a loop has no multistage `cp.async` copy of the tile of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpAsyncRejection {
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

impl fmt::Display for CpAsyncRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CpAsyncRejection::Disabled => write!(f, "an option disables cp.async"),
            CpAsyncRejection::NoCounter => write!(f, "the loop has no counter"),
            CpAsyncRejection::Continue => write!(f, "an iteration may end early"),
            CpAsyncRejection::Branch => write!(f, "a branch contains the load"),
            CpAsyncRejection::View => write!(f, "the loop computes the bounds or the address of the view"),
            CpAsyncRejection::Written => write!(f, "{}", ProducerRejection::Written),
            CpAsyncRejection::Index => write!(f, "the index depends on the previous iteration or on several threads"),
            CpAsyncRejection::Extent { elements } => {
                write!(f, "the contiguous extent of the array is no known multiple of {elements}")
            }
            CpAsyncRejection::Pieces { bytes } => {
                write!(f, "contiguous pieces of {bytes} bytes, and cp.async copies 4, 8 or 16")
            }
            CpAsyncRejection::Pointers => write!(f, "each element has an address of its own"),
            CpAsyncRejection::ReadBy(code) => write!(f, "{}", ProducerRejection::ReadBy(code)),
            CpAsyncRejection::Uses => write!(f, "several ops read the tile"),
            CpAsyncRejection::Order => write!(f, "the MMA reads the tile in another order"),
            CpAsyncRejection::Overlap => write!(f, "tiles at any position may overlap in the L1 cache"),
            CpAsyncRejection::Narrow { least } => write!(f, "no load of the loop has pieces of {least} bytes"),
            CpAsyncRejection::Replicated => write!(f, "too many threads would copy the same elements"),
            CpAsyncRejection::Producer => write!(f, "the producer loads for other loops"),
            CpAsyncRejection::SharedMemory => write!(f, "shared memory has no space for two stages"),
        }
    }
}
