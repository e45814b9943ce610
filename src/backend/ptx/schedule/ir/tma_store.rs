//! TMA stores, as data: staging buffers and how a tile is split.
//!
//! A tile goes there from registers, and from there to the array while the threads go on. The whole block writes the boxes
//! in parts, as many as there is room for then; or each warp has boxes of its own in a place that is reserved for it, or in a stage
//! that is lent to the store.

use super::sub_step::LayoutId;
use crate::backend::ptx::boxed::BoxedTile;
use crate::backend::ptx::shared::Buffer;
use crate::ir::OpId;
use crate::layout::Layout;

/// A store that the copy engine does, before there are steps.
#[derive(Clone, Debug)]
pub struct TmaStorePlan {
    /// The layout in which the value is there.
    pub layout: Layout,
    pub tile: BoxedTile,
    /// Each warp does its part, from here.
    pub staging: Option<StagingBuffer>,
}

/// A store as a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmaStore {
    pub op: OpId,
    /// As of [`Boxed`].
    pub layout: LayoutId,
    pub tile: BoxedTile,
    pub staging: Option<StagingBuffer>,
}

/// How a store is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSplit {
    pub count: u32,
    pub bytes: u32,
    /// Parts that fit at a time.
    pub in_flight: u32,
}

/// Shared memory of the warps for stores of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingBuffer {
    /// That of all warps of all teams or bands, one after another.
    pub buffer: Buffer,
    /// It is in the stage of this channel, which is lent to the store.
    pub channel: Option<u32>,
    /// How the boxes of a warp are cut.
    pub split: StoreSplit,
}

impl StagingBuffer {
    /// Bytes of a warp.
    pub fn bytes_per_warp(&self) -> u32 {
        self.split.in_flight * self.split.bytes
    }
}
