//! Cluster multicast: loads that both CTAs of a cluster can share.

use std::collections::{HashMap, HashSet};

use crate::backend::ptx::schedule::Context;
use crate::backend::ptx::schedule::analysis::cta_uniformity::{Differing, known_at_entry};
use crate::backend::ptx::schedule::ir::pipelines::Pairs;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// Tile blocks of a cluster.
pub const BLOCKS: u32 = 2;

impl Context<'_> {
    /// What pairs of blocks share of these loads, or why they share nothing. `slice`: what a producer runs.
    pub fn pairs_of(
        &self,
        body: BlockId,
        slice: &HashSet<OpId>,
        loads: impl Iterator<Item = OpId>,
    ) -> Result<Pairs, &'static str> {
        let module = self.module;
        let differing = Differing::of(module, body);
        let mut pairs =
            Pairs { shared: HashMap::new(), mirrored: HashSet::new(), loops: Vec::new(), bounds: HashSet::new() };
        for &id in slice {
            let op = module.op(id);
            let in_step = match op.code {
                Opcode::For if differing.any(op.group(1)) || differing.any(op.group(2)) => false,
                Opcode::For if differing.any(op.group(0)) => {
                    pairs.loops.push(id);
                    let mut bounds = (0..3).map(|group| op.group(group)[0]);
                    self.op_blocks[id.index()] == Some(body)
                        && differing.mirror(op.group(0)[0], &mut pairs.mirrored)
                        && bounds.all(|bound| known_at_entry(module, body, bound, &mut pairs.bounds))
                }
                Opcode::If => !differing.any(&op.operands),
                _ => true,
            };
            if !in_step {
                return Err("the way of a block depends on its place");
            }
        }
        pairs.loops.sort_unstable();
        for load in loads {
            let op = module.op(load);
            let deciding: Vec<Value> =
                op.group(1).iter().copied().filter(|value| differing.values.contains(value)).collect();
            let mut ops = HashSet::new();
            let known = deciding.iter().all(|&index| !differing.always(index) && differing.mirror(index, &mut ops));
            if known && !differing.any(op.group(0)) {
                pairs.mirrored.extend(ops);
                pairs.shared.insert(load, deciding);
            }
        }
        if pairs.shared.is_empty() { Err("no load is the same in two blocks") } else { Ok(pairs) }
    }
}
