//! Named barriers (`barrier.cta.sync`): the ids that the lowering uses (CUTLASS
//! `ReservedNamedBarriers`).

use crate::backend::ptx::schedule::PINGPONG_GROUPS;

/// A named barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBarrier {
    /// All threads of the CTA.
    Cta,
    /// The warps of one ping-pong group, or all consumer warps of a kernel without such groups.
    ConsumerGroup(u32),
    /// The order barrier of the consumer group with this number.
    Order(u32),
}

impl NamedBarrier {
    /// Returns the operand of the instruction. PTX has 16 named barriers.
    pub const fn id(self) -> u32 {
        match self {
            NamedBarrier::Cta => 0,
            NamedBarrier::ConsumerGroup(group) => 1 + group,
            NamedBarrier::Order(group) => 1 + PINGPONG_GROUPS + group,
        }
    }
}
