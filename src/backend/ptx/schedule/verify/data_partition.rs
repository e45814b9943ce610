//! Verifies data partitioning: every consumer group computes its own rows alone.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Verifies that the consumer groups can execute a schedule independently, each for its own
    /// rows.
    ///
    /// # Errors
    /// The first fault: another number of partitions or warps, ping-pong, multicast, a barrier, or
    /// an op that accesses the rows of other groups.
    pub fn verify_data_partition(&self, body: BlockId, schedule: &Schedule) -> VerifyResult {
        let data_partitions = schedule.warp_spec.as_ref().map_or(1, |warp_spec| warp_spec.data_partitions);
        if data_partitions != self.data_partitions {
            return Err(format!("{data_partitions} data partitions instead of {}", self.data_partitions));
        }
        if data_partitions == 1 {
            return Ok(());
        }
        let warp_spec = schedule.warp_spec.as_ref().ok_or("data partitions without a producer")?;
        let warps = schedule.partition(WarpRole::Consumer).map_or(0, |partition| partition.warps.len());
        if warps != data_partitions as usize * self.inference.num_warps
            || warp_spec.pingpong.is_some()
            || warp_spec.multicast.is_some()
        {
            return Err("data partitions have other warps, ping-pong or multicast".to_owned());
        }
        let uses_shared_smem = |step: &Step| match step {
            Step::Sub(sub_step) => sub_step.uses_shared_smem(),
            _ => false,
        };
        if schedule.sequences.iter().flatten().any(uses_shared_smem) {
            return Err("data partitions have barriers".to_owned());
        }
        for load in warp_spec.channels.iter().flat_map(|channel| &channel.loads) {
            if self.partitioned_axis(load.load).is_some() != (load.partitions == data_partitions) {
                return Err(format!("op {} loads the tiles of other data partitions", load.load.index()));
            }
        }
        let mut problem = None;
        self.module.walk(body, &mut |id| {
            problem = problem.take().or(self.partition_conflict(body, id).map(|what| (id, what)))
        });
        problem.map_or(Ok(()), |(id, what)| Err(format!("op {} {what}", id.index())))
    }

    /// Returns the conflict of an op between data partitions, as the predicate of a sentence.
    /// `None`: each data partition executes the op for its own rows, or equally.
    fn partition_conflict(&self, body: BlockId, id: OpId) -> Option<&'static str> {
        let op = self.module.op(id);
        let first = |first_index: Option<Value>| first_index.is_none_or(|first| self.is_partition_uniform(first));
        match op.code {
            Opcode::LoadView => match self.partitioned_index(id) {
                Some((_, first_index)) => (!first(first_index)).then_some("loads the rows of other data partitions"),
                None => None,
            },
            Opcode::StoreView => match self.partitioned_index(id) {
                Some((_, first_index)) if first(first_index) && self.stores_disjoint_tiles(body, id, first_index) => {
                    None
                }
                _ => Some("stores what other data partitions may access"),
            },
            Opcode::For => {
                let same = (0..3).all(|group| self.is_partition_uniform(op.group(group)[0]));
                (!same).then_some("has another trip count in one data partition")
            }
            Opcode::If => {
                (!self.is_partition_uniform(op.operands[0])).then_some("has another condition in one data partition")
            }
            code if matches!(code.spec().effect, Effect::Pure | Effect::Region | Effect::Terminator) => None,
            _ => Some("is executed by each data partition"),
        }
    }

    /// Returns true if a value does not depend on the data partition, provided that trip counts and
    /// conditions do not. `partition_conflict` verifies those.
    fn is_partition_uniform(&self, value: Value) -> bool {
        let module = self.module;
        let (mut seen, mut pending) = (FxHashSet::default(), vec![value]);
        while let Some(value) = pending.pop() {
            if matches!(module.ty(value), Type::Token) || !seen.insert(value) {
                continue;
            }
            match module.def(value) {
                Def::Result(id, _) if module.op(id).code == Opcode::DataPartitionId => return false,
                Def::Result(id, position) => pending.extend(self.result_sources(id, position as usize)),
                Def::Arg(block, position) => {
                    let owner = module.block(block).parent;
                    pending.extend(owner.map_or(Vec::new(), |id| self.argument_sources(id, position as usize)));
                }
            }
        }
        true
    }

    /// Returns the values that a result of an op depends on.
    fn result_sources(&self, id: OpId, position: usize) -> Vec<Value> {
        let op = self.module.op(id);
        match op.code {
            Opcode::For => vec![self.module.block(op.regions[0]).args[position + 1]],
            Opcode::Loop => self.terminator_operands(id, Opcode::Break, position),
            Opcode::If => self.terminator_operands(id, Opcode::Yield, position),
            _ => op.operands.clone(),
        }
    }

    /// Returns the values that an argument of a region depends on.
    fn argument_sources(&self, owner: OpId, position: usize) -> Vec<Value> {
        let op = self.module.op(owner);
        let carried = |first: Value, position: usize| {
            let mut all = self.terminator_operands(owner, Opcode::Continue, position);
            all.push(first);
            all
        };
        match op.code {
            Opcode::For if position == 0 => (0..3).map(|group| op.group(group)[0]).collect_vec(),
            Opcode::For => carried(op.group(3)[position - 1], position - 1),
            Opcode::Loop => carried(op.group(0)[position], position),
            _ => op.operands.clone(),
        }
    }

    /// Returns operand `position` of each terminator of this kind that sets values of `owner`.
    fn terminator_operands(&self, owner: OpId, code: Opcode, position: usize) -> Vec<Value> {
        self.regions.exits(self.module, owner, code).map(|operands| operands[position]).collect_vec()
    }

    /// Returns true if no other op accesses the array of a store, and no two data partitions store
    /// the same tile, in equal or different iterations.
    fn stores_disjoint_tiles(&self, body: BlockId, store: OpId, first: Option<Value>) -> bool {
        let module = self.module;
        let root = self.stored_array(store);
        let mut is_only_access = matches!(module.def(root), Def::Arg(block, _) if block == body);
        module.walk(body, &mut |id| {
            let accesses = matches!(module.op(id).code, Opcode::LoadView | Opcode::StoreView);
            is_only_access &= id == store || !accesses || self.stored_array(id) != root;
        });
        let view = module.ty(module.op(store).operand_group("view")[0]);
        is_only_access
            && first.is_none_or(|first| self.is_multiple_of_partitions(first))
            && matches!(view, Type::PartitionView { .. })
    }

    /// Returns true if an integer is a multiple of the number of data partitions: a constant, or a
    /// product with a constant that does not overflow its type.
    fn is_multiple_of_partitions(&self, value: Value) -> bool {
        let (int_ranges, data_partitions) = (&self.inference.int_ranges, i64::from(self.data_partitions));
        let multiple = |value: Value| int_ranges.constant(value).filter(|number| number % data_partitions == 0);
        let mma = self.module.defining_op(value).map(|id| self.module.op(id)).filter(|op| op.code == Opcode::MulI);
        let fits = |other: Value, number: i64| {
            let most = i128::from(i64::MAX >> (64 - self.module.dtype(value).bits()));
            let bound = |end: i64| (i128::from(end) * i128::from(number)).abs() <= most;
            int_ranges.range(other).is_some_and(|range| bound(range.lo) && bound(range.hi))
        };
        multiple(value).is_some()
            || mma.is_some_and(|op| {
                let [a, b] = [op.operands[0], op.operands[1]];
                [(a, b), (b, a)]
                    .into_iter()
                    .any(|(number, other)| multiple(number).is_some_and(|number| fits(other, number)))
            })
    }
}
