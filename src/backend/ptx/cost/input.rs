//! Input of the cost model.

use super::trip_count::LaunchInfo;
use crate::backend::ptx::schedule::{KernelInfo, Schedule};
use crate::ir::BlockId;

/// Input of the cost model: a schedule of an entry with this body.
#[derive(Clone, Copy)]
pub struct CostInput<'a, 'm> {
    pub context: &'a KernelInfo<'m>,
    pub body: BlockId,
    pub schedule: &'a Schedule,
    /// CTAs that fit on an SM.
    pub blocks: u32,
    pub launched: LaunchInfo<'a>,
    /// Spilled registers of MMAs are part of the cost.
    pub has_spills: bool,
}
