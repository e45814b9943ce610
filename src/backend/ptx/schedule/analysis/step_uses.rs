//! Step uses: the values a step reads and the accumulators it updates in place.
//!
//! A value that is computed where it is used, or another view of one, is read when what it is made of is.

use std::collections::HashSet;

use super::deferred_values::is_computed_where_used;
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{MmaGroup, Schedule, Step, StripMine};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Def, OpId, Opcode, Type, Value};
use crate::pass::accumulator_chains;

impl KernelInfo<'_> {
    /// The values that a step reads, and those behind them, in the order in which it comes to them: not those that only the
    /// bodies of a loop or a branch with effects read. What a product adds to in place, and what a loop carries in place, is not read.
    pub fn read_by(&self, step: &Step) -> Vec<Value> {
        let module = self.module;
        let values = match step {
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => self.operands_within(id),
            Step::TmaStore(send) => self.operands_within(send.op),
            Step::StripMine(strip) => self.read_by_strip(strip),
            Step::Mma(plan) => self.read_by_products(plan),
            Step::For(step) => {
                let op = module.op(step.op);
                let bounds = (0..3).flat_map(|group| op.group(group));
                let hoisted = step.hoisted.iter().map(|(value, _)| value);
                bounds.chain(hoisted).chain(op.group(3)).copied().collect()
            }
            Step::Loop(step) => {
                let hoisted = step.hoisted.iter().map(|(value, _)| value);
                hoisted.chain(module.op(step.op).group(0)).copied().collect()
            }
            // Products run on beside a quiet branch: what either branch reads has landed before.
            &Step::If { op, pure: true, .. } => self.operands_within(op),
            &Step::If { op, .. } => module.op(op).operands.clone(),
            &Step::End(id) => self.read_by_end(id),
            Step::Deferred(_)
            | Step::LocalLoadThreadPrivate(_)
            | Step::LocalLoad(_)
            | Step::Produce(_)
            | Step::Advance(_) => Vec::new(),
            Step::ConsumerWait(_)
            | Step::MmaWait(_)
            | Step::ConsumerRelease(_)
            | Step::OrderWait(_)
            | Step::OrderArrive(_) => Vec::new(),
            Step::ConsumerTryWait(_) | Step::Sub(_) | Step::ExpOrderWait { .. } => Vec::new(),
            &Step::ExpOrderArrive(value) => vec![value],
        };
        self.with_sources(values)
    }

    /// What products that are issued together compute, and do not add to themselves.
    pub fn results_of(&self, ops: &[OpId]) -> Vec<Value> {
        accumulator_chains(self.module, ops).iter().map(|sum| self.module.op(sum[sum.len() - 1]).results[0]).collect()
    }

    /// Do these products run on when they have been issued?
    pub fn run_on(&self, ops: &[OpId]) -> bool {
        !ops.iter().all(|id| matches!(self.inference.products.get(id), Some(Ok(plan)) if plan.is_complete()))
    }

    /// Must all products have landed before this step, whatever it reads? What comes after it may come from elsewhere, or a
    /// stage is wanted that they have.
    pub fn lands_all(&self, schedule: &Schedule, step: &Step) -> bool {
        match step {
            Step::For(_) | Step::Loop(_) | Step::ConsumerRelease(_) => true,
            Step::If { pure: quiet, .. } => !quiet,
            // Threads print in turn.
            &Step::Exec(id) => self.module.op(id).code == Opcode::Print,
            // The producer waits for the only stage, which products that still run would give back after this one.
            &Step::Advance(channel) => schedule.warp_spec.as_ref().is_some_and(|roles| roles.is_single_stage(channel)),
            _ => false,
        }
    }

    fn operands_within(&self, id: OpId) -> Vec<Value> {
        let mut values = self.module.op(id).operands.clone();
        for &region in &self.module.op(id).regions {
            self.module.walk(region, &mut |inner| values.extend(&self.module.op(inner).operands));
        }
        values
    }

    fn read_by_strip(&self, strip: &StripMine) -> Vec<Value> {
        let done = strip.ops().filter(|&id| !is_computed_where_used(self, id));
        done.flat_map(|id| self.operands_within(id)).collect()
    }

    /// Operands first, then accumulators.
    fn read_by_products(&self, plan: &MmaGroup) -> Vec<Value> {
        let operands = |id: &OpId| &self.module.op(*id).operands;
        let mut values: Vec<Value> = plan.ops.iter().flat_map(|id| &operands(id)[..2]).copied().collect();
        let made = |value: Value| self.module.defining_op(value).is_some_and(|id| plan.ops.contains(&id));
        for id in &plan.ops {
            let acc = operands(id)[2];
            let follows = self.inference.runs_alone(*id) && self.adds_in_place(*id);
            if !(made(acc) || self.is_zero(acc) || follows) {
                values.push(acc);
            }
        }
        values
    }

    fn read_by_end(&self, id: OpId) -> Vec<Value> {
        let op = self.module.op(id);
        let carried: &[Value] = match (op.code, self.op_blocks[id.index()].and_then(|block| self.loop_around(block))) {
            (Opcode::Continue, Some((Opcode::For, block))) => &self.module.block(block).args[1..],
            (Opcode::Continue, Some((_, block))) => &self.module.block(block).args,
            _ => &[],
        };
        let stays = |position: usize, value: Value| carried.get(position).is_some_and(|&arg| self.adds_up(arg, value));
        let values = op.operands.iter().enumerate().filter(|&(position, &value)| !stays(position, value));
        values.map(|(_, &value)| value).collect()
    }

    /// The loop around a block, and its body.
    fn loop_around(&self, mut block: BlockId) -> Option<(Opcode, BlockId)> {
        loop {
            let owner = self.module.block(block).parent?;
            let code = self.module.op(owner).code;
            if matches!(code, Opcode::For | Opcode::Loop) {
                return Some((code, block));
            }
            block = self.op_blocks[owner.index()]?;
        }
    }

    /// Is the value one that products have added up in the registers of this one?
    pub fn adds_up(&self, start: Value, mut value: Value) -> bool {
        while value != start {
            match self.module.defining_op(value).filter(|&id| self.multiplies_at(id) && self.adds_in_place(id)) {
                Some(id) => value = self.module.op(id).operands[2],
                None => return false,
            }
        }
        true
    }

    fn multiplies_at(&self, id: OpId) -> bool {
        matches!(self.module.op(id).code, Opcode::MmaF | Opcode::MmaI)
    }

    /// Does a product update its accumulator where it stands? A carried value of the loop around, or what another product or a loop
    /// gives, that nothing else uses; the registers of others may be shared.
    pub fn adds_in_place(&self, id: OpId) -> bool {
        let acc = self.module.op(id).operands[2];
        let here = self.op_blocks[id.index()];
        let Some(Ok(plan)) = self.inference.products.get(&id) else { return false };
        if self.use_counts[acc.index()] != 1 || self.is_zero(acc) {
            return false;
        }
        let stands = || {
            let own = self.inference.layout(acc).cloned().unwrap_or_else(|| self.inference.default_layout(acc));
            own.is_same(&plan.acc)
        };
        match self.module.def(acc) {
            Def::Arg(block, _) => Some(block) == here && stands(),
            Def::Result(maker, _) if self.loops_at(maker) => self.op_blocks[maker.index()] == here && stands(),
            Def::Result(maker, _) => {
                let made = self.inference.products.get(&maker).and_then(|made| made.as_ref().ok());
                self.op_blocks[maker.index()] == here && made.is_some_and(|made| made.acc.is_same(&plan.acc))
            }
        }
    }

    /// What loops give has registers of its own, which each iteration writes.
    fn loops_at(&self, id: OpId) -> bool {
        matches!(self.module.op(id).code, Opcode::For | Opcode::Loop)
    }

    /// Does a branch that ends with this op give a value in registers that nothing else has: sums of a product, or what a loop
    /// in it gives?
    pub fn is_left_to(&self, end: OpId, value: Value) -> bool {
        let Some(maker) = self.module.defining_op(value) else { return false };
        let owns = self.loops_at(maker) || self.multiplies_at(maker);
        owns && self.use_counts[value.index()] == 1 && self.op_blocks[maker.index()] == self.op_blocks[end.index()]
    }

    /// Values and what they are computed from where they are used: of views, of names, of what is free or deferred.
    fn with_sources(&self, values: Vec<Value>) -> Vec<Value> {
        let (mut seen, mut all) = (HashSet::new(), Vec::new());
        let mut pending = values;
        pending.reverse();
        while let Some(value) = pending.pop() {
            if !seen.insert(value) {
                continue;
            }
            all.push(value);
            let Some(id) = self.module.defining_op(value) else { continue };
            let op = self.module.op(id);
            let made_here = match self.module.ty(value) {
                Type::Tile { .. } => self.deferred.contains(&id) || is_computed_where_used(self, id),
                Type::Token => false,
                _ => op.code.spec().effect == Effect::Pure,
            };
            if made_here {
                pending.extend(op.operands.iter().rev());
            }
        }
        all
    }

    /// Registers of the accumulators of a product and of those that are issued with it.
    pub fn accumulators(&self, product: OpId) -> u32 {
        let sums = accumulator_chains(self.module, &self.bundles.group_of(product));
        let plans = sums.iter().filter_map(|sum| self.inference.products.get(&sum[0])?.as_ref().ok());
        plans.map(|plan| plan.acc.num_registers() as u32).sum()
    }

    /// As [`KernelInfo::accumulators`], of several products, each accumulator once.
    pub fn accumulators_of(&self, products: &[OpId]) -> u32 {
        let bundles: HashSet<OpId> = products.iter().map(|&product| self.bundles.last_of(product)).collect();
        bundles.into_iter().map(|product| self.accumulators(product)).sum()
    }

    /// Is this a constant tile of zeros?
    pub fn is_zero(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        match op.code {
            Opcode::Constant => matches!(op.const_data(), Some(ConstData::Splat(0))),
            Opcode::Broadcast | Opcode::Reshape => self.is_zero(op.operands[0]),
            _ => false,
        }
    }

    /// The operands of products that are issued together, which of them are left ones, and how they are brought. A value that
    /// several products want in the same form is one operand; one product may want it in another form than the next, if it is
    /// computed turned.
    pub fn operands_of(&self, members: &[OpId]) -> Vec<(Value, bool, &OperandPlan)> {
        let mut all: Vec<(Value, bool, &OperandPlan)> = Vec::new();
        for &id in members {
            let Some(Ok(plan)) = self.inference.products.get(&id) else { continue };
            let operands = &self.module.op(id).operands;
            for (&value, (plan, is_left)) in operands.iter().zip([(&plan.a, true), (&plan.b, false)]) {
                let known = |&(other, left, form): &(Value, bool, &OperandPlan)| {
                    (other, left) == (value, is_left) && form.is_same(plan)
                };
                if !all.iter().any(known) {
                    all.push((value, is_left, plan));
                }
            }
        }
        all
    }
}
