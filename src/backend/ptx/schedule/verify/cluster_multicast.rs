//! Verifies cluster multicast: which loads both CTAs of a cluster share, and their lockstep.
//!
//! Each CTA issues one half of the boxes of a multicast load, for both. So the CTAs must use the
//! stages of these pipelines in lockstep, and the tiles of a stage must be equal in both. The
//! verifier derives the values that differ between the CTAs by its own backward walk:
//! * *boxes*: a multicast load has at least two, and its pipeline is clustered, as no other one is;
//! * *compared*: the producer compares each index that differs, and computes it for the peer, too;
//! * *uniform*: the view of a multicast load and its other indices are equal;
//! * *in step*: conditions and bounds of the producer are equal. A loop whose start differs is
//!   outermost, and its trip counts are compared.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{ClusterMulticast, WarpSpecialization};
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Verifies the multicast loads of a cluster.
    ///
    /// # Errors
    /// The first fault, with the number of its op or pipeline.
    pub fn verify_cluster_multicast(&self, body: BlockId, warp_spec: &WarpSpecialization) -> VerifyResult {
        let multicast = warp_spec.multicast.as_ref();
        let can_multicast = |load| multicast.is_some_and(|multicast| multicast.can_multicast(load));
        for (index, pipeline) in warp_spec.pipelines.iter().enumerate() {
            let mut loads = warp_spec
                .channels
                .iter()
                .filter(|channel| channel.pipeline == index)
                .flat_map(|channel| &channel.loads);
            if pipeline.clustered != loads.any(|load| can_multicast(load.load)) {
                return Err(format!("pipeline {index}: its barriers do not fit the multicast loads"));
            }
        }
        let Some(multicast) = multicast else { return Ok(()) };
        if self.data_partitions > 1 {
            return Err("data partitions share multicast loads".to_owned());
        }
        for (&load, compared) in &multicast.multicast_loads {
            let fault = |what: &str| Err(format!("multicast op {}: {what}", load.index()));
            let mut loads = warp_spec.channels.iter().flat_map(|channel| &channel.loads);
            if !loads.any(|other| other.load == load && other.boxes.len() > 1) {
                return fault("no channel has two boxes of it");
            }
            let (op, mut walk) = (self.module.op(load), CtaWalk::new(self));
            if op.operand_group("view").iter().any(|&view| walk.differs(view)) {
                return fault("the view differs between the CTAs");
            }
            for &index in op.operand_group("index") {
                let mut walk = CtaWalk::new(self);
                match (walk.differs(index), compared.contains(&index)) {
                    (true, false) => return fault("an index that differs is not compared"),
                    (true, true) if !walk.ops.is_subset(&multicast.peer_ops) => {
                        return fault("an index is not computed for the peer");
                    }
                    _ => {}
                }
            }
        }
        warp_spec.producer_ops.iter().try_for_each(|&id| self.verify_lockstep(body, multicast, id))
    }

    /// Verifies that an op of the producer does not end the lockstep of the CTAs.
    fn verify_lockstep(&self, body: BlockId, multicast: &ClusterMulticast, id: OpId) -> VerifyResult {
        let op = self.module.op(id);
        let differ = |values: &[Value]| values.iter().any(|&value| CtaWalk::new(self).differs(value));
        let is_in_step = match op.code {
            Opcode::If => !differ(&op.operands),
            Opcode::For if differ(op.operand_group("upper_bound")) || differ(op.operand_group("step")) => false,
            Opcode::For if differ(op.operand_group("lower_bound")) => {
                self.regions.block_of(id) == Some(body) && multicast.outer_loops.contains(&id)
            }
            _ => true,
        };
        if is_in_step { Ok(()) } else { Err(format!("op {}: the CTAs of a cluster may diverge", id.index())) }
    }
}

/// Backward walk from a value to the sources of a difference between the CTAs of a cluster.
struct CtaWalk<'a, 'm> {
    info: &'a KernelInfo<'m>,
    seen: FxHashSet<Value>,
    /// The ops on the way to a source.
    ops: FxHashSet<OpId>,
}

impl<'a, 'm> CtaWalk<'a, 'm> {
    fn new(info: &'a KernelInfo<'m>) -> CtaWalk<'a, 'm> {
        CtaWalk { info, seen: FxHashSet::default(), ops: FxHashSet::default() }
    }

    /// Returns true if a value may differ between the CTAs. The state of the machine differs, and
    /// the first coordinate of the grid.
    fn differs(&mut self, value: Value) -> bool {
        let module = self.info.module;
        if matches!(module.ty(value), Type::Token) || !self.seen.insert(value) {
            return false;
        }
        match module.def(value) {
            Def::Arg(block, position) => {
                let Some(parent) = self.info.regions.parent(block) else { return false };
                self.carried(parent, position as usize, true)
            }
            Def::Result(id, position) => {
                let op = module.op(id);
                let differs = match op.code {
                    Opcode::GetTileBlockId => position == 0,
                    Opcode::For | Opcode::Loop => return self.carried(id, position as usize, false),
                    Opcode::If => return self.any(&op.operands) | self.set_by_terminators(id, position as usize),
                    code => code.is_machine_query() | self.any(&op.operands),
                };
                if differs {
                    self.ops.insert(id);
                }
                differs
            }
        }
    }

    fn any(&mut self, values: &[Value]) -> bool {
        values.iter().fold(false, |differs, &value| self.differs(value) | differs)
    }

    /// Returns true if a loop-carried value may differ: argument number `position` of the body, or
    /// a result.
    fn carried(&mut self, id: OpId, position: usize, is_argument: bool) -> bool {
        let op = self.info.module.op(id);
        match (op.code, is_argument, position) {
            (Opcode::For, true, 0) => {
                self.any(op.operand_group("lower_bound"))
                    | self.any(op.operand_group("upper_bound"))
                    | self.any(op.operand_group("step"))
            }
            (Opcode::For, ..) => {
                let position = if is_argument { position - 1 } else { position };
                let initial = op.operand_group("init_values").get(position).copied();
                initial.is_some_and(|value| self.differs(value)) | self.set_by_terminators(id, position)
            }
            (Opcode::Loop, true, _) => {
                let initial = op.operands.get(position).copied();
                initial.is_some_and(|value| self.differs(value)) | self.set_by(id, position, Opcode::Continue)
            }
            (Opcode::Loop, ..) => self.set_by(id, position, Opcode::Break),
            _ => false,
        }
    }

    fn set_by_terminators(&mut self, id: OpId, position: usize) -> bool {
        let (module, regions) = (self.info.module, &self.info.regions);
        let values: Vec<Value> =
            regions.terminators(id).filter_map(|end| module.op(end).operands.get(position).copied()).collect_vec();
        self.any(&values)
    }

    fn set_by(&mut self, id: OpId, position: usize, code: Opcode) -> bool {
        let exits = self.info.regions.exits(self.info.module, id, code);
        let values: Vec<Value> = exits.filter_map(|values| values.get(position).copied()).collect_vec();
        self.any(&values)
    }
}
