//! Cluster multicast: loads that both CTAs of a cluster can share.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::cta_uniformity::{CtaUniformity, is_known_at_entry};
use crate::backend::ptx::schedule::ir::pipelines::ClusterMulticast;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::util::sort;

/// Number of CTAs of a cluster.
pub const CLUSTER_SIZE: u32 = 2;

impl KernelInfo<'_> {
    /// Returns the loads that both CTAs of a cluster share, or the reason why there are none.
    /// `slice`: the ops of the producer.
    pub fn plan_multicast(
        &self,
        body: BlockId,
        slice: &FxHashSet<OpId>,
        loads: impl Iterator<Item = OpId>,
    ) -> Result<ClusterMulticast, &'static str> {
        let module = self.module;
        let uniformity = CtaUniformity::new(module, &self.regions);
        let mut multicast = ClusterMulticast {
            multicast_loads: FxHashMap::default(),
            peer_ops: FxHashSet::default(),
            outer_loops: Vec::new(),
            bound_ops: FxHashSet::default(),
        };
        for &id in slice {
            let op = module.op(id);
            let in_step = match op.code {
                Opcode::For if uniformity.any_differs(op.group(1)) || uniformity.any_differs(op.group(2)) => false,
                Opcode::For if uniformity.any_differs(op.group(0)) => {
                    multicast.outer_loops.push(id);
                    let mut bounds = (0..3).map(|group| op.group(group)[0]);
                    self.regions.block_of(id) == Some(body)
                        && uniformity.peer_computable(op.group(0)[0], &mut multicast.peer_ops)
                        && bounds.all(|bound| is_known_at_entry(module, body, bound, &mut multicast.bound_ops))
                }
                Opcode::If => !uniformity.any_differs(&op.operands),
                _ => true,
            };
            if !in_step {
                return Err("the way of a block depends on its place");
            }
        }
        sort::natural(&mut multicast.outer_loops);
        for load in loads {
            let op = module.op(load);
            let deciding: Vec<Value> =
                op.group(1).iter().copied().filter(|value| uniformity.values.contains(value)).collect_vec();
            let mut ops = FxHashSet::default();
            let known = deciding
                .iter()
                .all(|&index| !uniformity.always_differs(index) && uniformity.peer_computable(index, &mut ops));
            if known && !uniformity.any_differs(op.group(0)) {
                multicast.peer_ops.extend(ops);
                multicast.multicast_loads.insert(load, deciding);
            }
        }
        if multicast.multicast_loads.is_empty() { Err("no load is the same in two blocks") } else { Ok(multicast) }
    }
}
