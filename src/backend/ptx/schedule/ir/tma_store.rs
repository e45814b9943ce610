//! TMA stores, as data: staging buffers and the division of a tile.
//!
//! The threads write a tile from registers to shared memory, and TMA stores it while they continue.
//! There are two forms. In the first one, the CTA writes the boxes in parts that fit the free
//! shared memory. In the second one, each warp has boxes of its own, in a reserved staging buffer
//! or in a pipeline stage.

use std::fmt;

use super::sub_step::LayoutId;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::ir::OpId;
use crate::layout::Layout;

/// The plan of a TMA store.
#[derive(Clone, Debug)]
pub struct TmaStorePlan {
    /// The layout of the stored value.
    pub layout: Layout,
    pub tile: TmaBoxLayout,
    /// The staging buffer, if each warp stores its own boxes.
    pub staging: Option<StagingBuffer>,
}

/// A TMA store as a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmaStore {
    pub op: OpId,
    /// The layout of [`TmaStorePlan`].
    pub layout: LayoutId,
    pub tile: TmaBoxLayout,
    pub staging: Option<StagingBuffer>,
}

/// The division of a TMA store into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSplit {
    pub count: u32,
    pub bytes: u32,
    /// The number of parts that shared memory holds at a time.
    pub in_flight: u32,
}

/// Staging buffer of a TMA store per warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingBuffer {
    /// The buffers of all warps of all consumer groups, one after another.
    pub buffer: Buffer,
    /// The channel whose stage is the buffer, if it is one.
    pub channel: Option<u32>,
    /// The division of the boxes of a warp.
    pub split: StoreSplit,
}

impl StagingBuffer {
    /// Returns the bytes of one warp.
    pub fn bytes_per_warp(&self) -> u32 {
        self.split.in_flight * self.split.bytes
    }
}

/// The reason why TMA does not store a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TmaStoreRejection {
    /// TMA stores need sm_90.
    Target,
    /// An option disables them.
    Disabled,
    /// A hint of the store excludes TMA.
    Hint,
    /// The addresses are a tile of pointers.
    Pointers,
    /// The store is ordered with accesses of other CTAs.
    Order,
    /// TMA has no such atomic operation.
    Operation,
    /// A thread has few bytes of the tile.
    Small { bytes: usize, least: usize },
    /// The registers are in the order of the array.
    Coalesced,
    /// No box contains the layout of the tile.
    Layout,
    /// TMA cannot store boxes of this array or view.
    View(&'static str),
    /// Another op of the kernel accesses the array.
    Accessed,
}

impl fmt::Display for TmaStoreRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TmaStoreRejection::Target => write!(f, "it needs sm_90"),
            TmaStoreRejection::Disabled => write!(f, "TMA stores are disabled"),
            TmaStoreRejection::Hint => write!(f, "a hint of the store disables TMA"),
            TmaStoreRejection::Pointers => write!(f, "each element has an address of its own"),
            TmaStoreRejection::Order => write!(f, "the store is ordered with other accesses"),
            TmaStoreRejection::Operation => write!(f, "TMA has no such atomic operation"),
            TmaStoreRejection::Small { bytes, least } => {
                write!(f, "a thread has {bytes} bytes of the tile, and TMA is used from {least}")
            }
            TmaStoreRejection::Coalesced => {
                write!(f, "the registers are in the order of the array, so TMA is not faster")
            }
            TmaStoreRejection::Layout => write!(f, "TMA boxes do not match the layout of the tile"),
            TmaStoreRejection::View(why) => write!(f, "TMA does not support this array or view: {why}"),
            TmaStoreRejection::Accessed => write!(f, "another operation of the kernel accesses the array"),
        }
    }
}
