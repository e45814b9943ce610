//! Pipeline assignment: which channels share a pipeline.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::ir::pipelines::{Channel, LoopNesting, PipelineDesc, WarpSpecialization};
use crate::ir::{BlockId, OpId};

impl KernelInfo<'_> {
    /// Gives each channel a ring. Two channels share one if neither holds a stage while the other one goes
    /// round; best are channels of the same array, such as a loop and what was peeled off it.
    pub fn assign_pipelines(&self, roles: &mut WarpSpecialization, structure: &RegionTree) {
        let blocks: Vec<BlockId> = roles.channels.iter().map(|channel| channel.block).collect();
        let wish = |block: BlockId| self.loop_stages(self.enclosing_loop(block, structure));
        // Loops with wishes of their own have rings of their own.
        let agree = |a: BlockId, b: BlockId| wish(a).zip(wish(b)).is_none_or(|(a, b)| a == b);
        let is_inner = |block: BlockId| {
            // A loop that contains another channel's loop is an outer one.
            self.enclosing_loop(block, structure).is_some_and(|around| {
                let inside = |&other: &BlockId| {
                    self.enclosing_loop(other, structure).is_some_and(|l| l != around && self.contains_op(around, l))
                };
                !blocks.iter().any(inside)
            })
        };
        let mut shared: Vec<Vec<usize>> = Vec::new();
        for (index, channel) in roles.channels.iter().enumerate() {
            let fits = |alike: bool, users: &Vec<usize>| {
                let users = users.iter().map(|&user| &roles.channels[user]);
                users.clone().all(|user| {
                    user.stage_bytes == channel.stage_bytes
                        && agree(user.block, channel.block)
                        && (!alike || user.loads_same_boxes(channel))
                        && (alike || is_inner(user.block) == is_inner(channel.block))
                        && self.can_share_pipeline(user, channel, structure)
                })
            };
            let found = shared.iter().position(|users| fits(true, users));
            match found.or_else(|| shared.iter().position(|users| fits(false, users))) {
                Some(ring) => shared[ring].push(index),
                None => shared.push(vec![index]),
            }
        }
        for (ring, users) in shared.iter().enumerate() {
            users.iter().for_each(|&user| roles.channels[user].pipeline = ring);
            let nested =
                users.iter().any(|&a| users.iter().any(|&b| self.contains_block(blocks[a], blocks[b], structure)));
            let mut around = users.iter().map(|&user| blocks[user]);
            let repeats = if nested || around.clone().any(is_inner) {
                LoopNesting::Innermost
            } else if around.any(|block| self.enclosing_loop(block, structure).is_some()) {
                LoopNesting::Outer
            } else {
                LoopNesting::NotInLoop
            };
            let stage_bytes = roles.channels[users[0]].stage_bytes;
            roles.pipelines.push(PipelineDesc { stage_bytes, num_stages: 1, clustered: false, nesting: repeats });
        }
    }

    /// Is one channel done with its stage before the other one takes any? (The product that used it may still
    /// run, unless they stand in blocks of which neither contains the other.)
    pub fn can_share_pipeline(&self, a: &Channel, b: &Channel, structure: &RegionTree) -> bool {
        let outside = |outer: &Channel, inner: &Channel| match self.parent_op(outer.block, inner.block, structure) {
            Some(op) => {
                let ops = &self.module.block(outer.block).ops;
                let place = |id: OpId| ops.iter().position(|&other| other == id);
                place(op) < place(outer.first()) || place(op) > place(outer.last_use)
            }
            None => true,
        };
        a.block != b.block && outside(a, b) && outside(b, a)
    }
}
