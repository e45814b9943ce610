//! Cluster multicast: loads that both CTAs of a cluster can share.

use std::collections::{HashMap, HashSet};

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::cta_uniformity::{CtaUniformity, is_known_at_entry};
use crate::backend::ptx::schedule::ir::pipelines::ClusterMulticast;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// Tile blocks of a cluster.
pub const CLUSTER_SIZE: u32 = 2;

impl KernelInfo<'_> {
    /// What pairs of blocks share of these loads, or why they share nothing. `slice`: what a producer runs.
    pub fn plan_multicast(
        &self,
        body: BlockId,
        slice: &HashSet<OpId>,
        loads: impl Iterator<Item = OpId>,
    ) -> Result<ClusterMulticast, &'static str> {
        let module = self.module;
        let differing = CtaUniformity::of(module, body);
        let mut pairs = ClusterMulticast {
            multicast_loads: HashMap::new(),
            peer_ops: HashSet::new(),
            outer_loops: Vec::new(),
            bound_ops: HashSet::new(),
        };
        for &id in slice {
            let op = module.op(id);
            let in_step = match op.code {
                Opcode::For if differing.any_differs(op.group(1)) || differing.any_differs(op.group(2)) => false,
                Opcode::For if differing.any_differs(op.group(0)) => {
                    pairs.outer_loops.push(id);
                    let mut bounds = (0..3).map(|group| op.group(group)[0]);
                    self.op_blocks[id.index()] == Some(body)
                        && differing.peer_computable(op.group(0)[0], &mut pairs.peer_ops)
                        && bounds.all(|bound| is_known_at_entry(module, body, bound, &mut pairs.bound_ops))
                }
                Opcode::If => !differing.any_differs(&op.operands),
                _ => true,
            };
            if !in_step {
                return Err("the way of a block depends on its place");
            }
        }
        pairs.outer_loops.sort_unstable();
        for load in loads {
            let op = module.op(load);
            let deciding: Vec<Value> =
                op.group(1).iter().copied().filter(|value| differing.values.contains(value)).collect();
            let mut ops = HashSet::new();
            let known = deciding
                .iter()
                .all(|&index| !differing.always_differs(index) && differing.peer_computable(index, &mut ops));
            if known && !differing.any_differs(op.group(0)) {
                pairs.peer_ops.extend(ops);
                pairs.multicast_loads.insert(load, deciding);
            }
        }
        if pairs.multicast_loads.is_empty() { Err("no load is the same in two blocks") } else { Ok(pairs) }
    }
}
