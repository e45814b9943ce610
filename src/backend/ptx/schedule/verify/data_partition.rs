//! Verifies data partitioning: every consumer group computes its own rows alone.

use std::collections::HashSet;

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Can bands run a schedule side by side?
    pub fn verify_data_partition(&self, body: BlockId, schedule: &Schedule) -> VerifyResult {
        let bands = schedule.warp_spec.as_ref().map_or(1, |roles| roles.data_partitions);
        if bands != self.bands {
            return Err(format!("{bands} bands of rows instead of {}", self.bands));
        }
        if bands == 1 {
            return Ok(());
        }
        let roles = schedule.warp_spec.as_ref().ok_or("bands of rows, and nobody loads for them")?;
        let warps = schedule.partition(WarpRole::Consumer).map_or(0, |agent| agent.warps.len());
        if warps != bands as usize * self.inference.num_warps || roles.pingpong.is_some() || roles.multicast.is_some() {
            return Err("bands of rows have other warps, teams or pairs of blocks".to_owned());
        }
        let meets = |step: &Step| match step {
            Step::Sub(within) => within.is_shared(),
            _ => false,
        };
        if schedule.sequences.iter().flatten().any(meets) {
            return Err("the warps of a band meet".to_owned());
        }
        for load in roles.channels.iter().flat_map(|channel| &channel.loads) {
            if self.band_axis(load.load).is_some() != (load.partitions == bands) {
                return Err(format!("op {} brings the tiles of other bands", load.load.index()));
            }
        }
        let mut problem = None;
        self.module.walk(body, &mut |id| problem = problem.take().or(self.differs(body, id).map(|what| (id, what))));
        problem.map_or(Ok(()), |(id, what)| Err(format!("op {} {what}", id.index())))
    }

    /// What bands do in another way than each for its own rows.
    fn differs(&self, body: BlockId, id: OpId) -> Option<&'static str> {
        let op = self.module.op(id);
        let first = |place: Option<Value>| place.is_none_or(|first| self.is_same_in_bands(first));
        match op.code {
            Opcode::LoadView => match self.band_place(id) {
                Some((_, place)) => (!first(place)).then_some("loads the rows of other bands"),
                None => None,
            },
            Opcode::StoreView => match self.band_place(id) {
                Some((_, place)) if first(place) && self.stores_apart(body, id, place) => None,
                _ => Some("stores what other bands may access"),
            },
            Opcode::For => {
                let same = (0..3).all(|group| self.is_same_in_bands(op.group(group)[0]));
                (!same).then_some("goes round more often in one band")
            }
            Opcode::If => (!self.is_same_in_bands(op.operands[0])).then_some("goes another way in one band"),
            code if matches!(code.spec().effect, Effect::Pure | Effect::Region | Effect::Terminator) => None,
            _ => Some("is done in each band"),
        }
    }

    /// Does a value not depend on the band, if ways through loops and branches do not?
    fn is_same_in_bands(&self, value: Value) -> bool {
        let module = self.module;
        let (mut seen, mut pending) = (HashSet::new(), vec![value]);
        while let Some(value) = pending.pop() {
            if matches!(module.ty(value), Type::Token) || !seen.insert(value) {
                continue;
            }
            match module.def(value) {
                Def::Result(id, _) if module.op(id).code == Opcode::DataPartitionId => return false,
                Def::Result(id, position) => pending.extend(self.made_from(id, position as usize)),
                Def::Arg(block, position) => {
                    let owner = module.block(block).parent;
                    pending.extend(owner.map_or(Vec::new(), |id| self.passed_to(id, position as usize)));
                }
            }
        }
        true
    }

    /// What a result of an op comes from.
    fn made_from(&self, id: OpId, position: usize) -> Vec<Value> {
        let op = self.module.op(id);
        match op.code {
            Opcode::For => vec![self.module.block(op.regions[0]).args[position + 1]],
            Opcode::Loop => self.left_with(id, Opcode::Break, position),
            Opcode::If => self.left_with(id, Opcode::Yield, position),
            _ => op.operands.clone(),
        }
    }

    /// What an argument of a region comes from.
    fn passed_to(&self, owner: OpId, position: usize) -> Vec<Value> {
        let op = self.module.op(owner);
        let carried = |first: Value, position: usize| {
            let mut all = self.left_with(owner, Opcode::Continue, position);
            all.push(first);
            all
        };
        match op.code {
            Opcode::For if position == 0 => (0..3).map(|group| op.group(group)[0]).collect(),
            Opcode::For => carried(op.group(3)[position - 1], position - 1),
            Opcode::Loop => carried(op.group(0)[position], position),
            _ => op.operands.clone(),
        }
    }

    /// The operands at this position of all terminators of this kind in the regions of an op.
    fn left_with(&self, owner: OpId, code: Opcode, position: usize) -> Vec<Value> {
        let mut all = Vec::new();
        for &region in &self.module.op(owner).regions {
            self.module.walk(region, &mut |id| {
                let op = self.module.op(id);
                all.extend(op.operands.get(position).filter(|_| op.code == code));
            });
        }
        all
    }

    /// Does nothing else access what a store writes: no other op, and neither the store itself in another band or iteration?
    fn stores_apart(&self, body: BlockId, store: OpId, first: Option<Value>) -> bool {
        let module = self.module;
        let root = self.stored_array(store);
        let mut alone = matches!(module.def(root), Def::Arg(block, _) if block == body);
        module.walk(body, &mut |id| {
            let accesses = matches!(module.op(id).code, Opcode::LoadView | Opcode::StoreView);
            alone &= id == store || !accesses || self.stored_array(id) != root;
        });
        let view = module.ty(module.op(store).operand_group("view")[0]);
        alone && first.is_none_or(|first| self.is_multiple(first)) && matches!(view, Type::PartitionView { .. })
    }

    /// Is an integer a multiple of the number of bands, and not what is left of one that its type has no room for?
    fn is_multiple(&self, value: Value) -> bool {
        let (facts, bands) = (&self.inference.facts, i64::from(self.bands));
        let multiple = |value: Value| facts.constant(value).filter(|number| number % bands == 0);
        let product = self.module.defining_op(value).map(|id| self.module.op(id)).filter(|op| op.code == Opcode::MulI);
        let fits = |other: Value, number: i64| {
            let most = i128::from(i64::MAX >> (64 - self.module.dtype(value).bits()));
            let bound = |end: i64| (i128::from(end) * i128::from(number)).abs() <= most;
            facts.range(other).is_some_and(|range| bound(range.lo) && bound(range.hi))
        };
        multiple(value).is_some()
            || product.is_some_and(|op| {
                let [a, b] = [op.operands[0], op.operands[1]];
                [(a, b), (b, a)]
                    .into_iter()
                    .any(|(number, other)| multiple(number).is_some_and(|number| fits(other, number)))
            })
    }
}
