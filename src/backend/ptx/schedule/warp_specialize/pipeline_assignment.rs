//! Pipeline assignment: the channels that share a pipeline.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{Channel, LoopNesting, PipelineDesc, WarpSpecialization};
use crate::ir::{BlockId, OpId};
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Assigns a pipeline to each channel. Two channels share one if neither holds a stage while
    /// the other one iterates. Channels of the same array are preferred, such as a loop and its
    /// peeled iteration.
    pub fn assign_pipelines(&self, warp_spec: &mut WarpSpecialization) {
        let blocks: Vec<BlockId> = warp_spec.channels.iter().map(|channel| channel.block).collect_vec();
        let requested = |block: BlockId| self.loop_stages(self.regions.loop_of_block(block));
        // Loops with different requests have separate pipelines.
        let agree = |a: BlockId, b: BlockId| requested(a).zip(requested(b)).is_none_or(|(a, b)| a == b);
        let is_inner = |block: BlockId| {
            // A loop that contains the loop of another channel is an outer one.
            self.regions.loop_of_block(block).is_some_and(|enclosing| {
                let inside = |&other: &BlockId| {
                    self.regions
                        .loop_of_block(other)
                        .is_some_and(|l| l != enclosing && self.regions.contains(enclosing, l))
                };
                !blocks.iter().any(inside)
            })
        };
        let mut users_by_pipeline: Vec<Vec<usize>> = Vec::new();
        for (index, channel) in warp_spec.channels.iter().enumerate() {
            let fits = |alike: bool, users: &Vec<usize>| {
                let users = users.iter().map(|&user| &warp_spec.channels[user]);
                users.clone().all(|user| {
                    user.stage_bytes == channel.stage_bytes
                        && agree(user.block, channel.block)
                        && (!alike || user.loads_same_boxes(channel))
                        && (alike || is_inner(user.block) == is_inner(channel.block))
                        && self.can_share_pipeline(user, channel)
                })
            };
            let found = users_by_pipeline.iter().position(|users| fits(true, users));
            match found.or_else(|| users_by_pipeline.iter().position(|users| fits(false, users))) {
                Some(pipeline) => users_by_pipeline[pipeline].push(index),
                None => users_by_pipeline.push(vec![index]),
            }
        }
        for (pipeline, users) in users_by_pipeline.iter().enumerate() {
            users.iter().for_each(|&user| warp_spec.channels[user].pipeline = pipeline);
            let nested = users
                .iter()
                .any(|&a| users.iter().any(|&b| self.regions.ancestor_of_block(blocks[a], blocks[b]).is_some()));
            let mut enclosing = users.iter().map(|&user| blocks[user]);
            let nesting = if nested || enclosing.clone().any(is_inner) {
                LoopNesting::Innermost
            } else if enclosing.any(|block| self.regions.loop_of_block(block).is_some()) {
                LoopNesting::Outer
            } else {
                LoopNesting::NotInLoop
            };
            let stage_bytes = warp_spec.channels[users[0]].stage_bytes;
            warp_spec.pipelines.push(PipelineDesc { stage_bytes, num_stages: 1, clustered: false, nesting });
        }
    }

    /// Returns true if each channel has released its stage before the other one acquires any. The
    /// MMA that used the stage may be in flight, unless neither block contains the other one.
    pub fn can_share_pipeline(&self, a: &Channel, b: &Channel) -> bool {
        let outside = |outer: &Channel, inner: &Channel| match self.regions.ancestor_of_block(outer.block, inner.block)
        {
            Some(op) => {
                let ops = &self.module.block(outer.block).ops;
                let position = |id: OpId| ops.iter().position(|&other| other == id);
                position(op) < position(outer.first()) || position(op) > position(outer.last_use)
            }
            None => true,
        };
        a.block != b.block && outside(a, b) && outside(b, a)
    }
}
