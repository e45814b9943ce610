//! Products that are issued together: what they need of registers and shared memory, and which of them are one instruction.

use std::collections::HashSet;

use super::Lowering;
use crate::backend::ptx::mma::MmaPlan;
use crate::ir::{ConstData, OpId, Opcode, Value};
use crate::pass::sums;

impl Lowering<'_> {
    /// Registers of the accumulators of a product and of those that are issued with it.
    pub fn accumulators(&self, product: OpId) -> u32 {
        let sums = sums(self.module, &self.bundles.with(product));
        let plans = sums.iter().filter_map(|sum| self.inference.products.get(&sum[0])?.as_ref().ok());
        plans.map(|plan| plan.acc.num_registers() as u32).sum()
    }

    /// As [`Lowering::accumulators`], of several products, each accumulator once.
    pub fn accumulators_of(&self, products: &[OpId]) -> u32 {
        let bundles: HashSet<OpId> = products.iter().map(|&product| self.bundles.last(product)).collect();
        bundles.into_iter().map(|product| self.accumulators(product)).sum()
    }

    /// Bytes of shared memory of the operands of products that are issued together, but for those that are there or need
    /// none.
    pub fn operand_bytes(&self, members: &[OpId], is_there: &dyn Fn(Value) -> bool) -> u32 {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        for &id in members {
            let Some(Ok(plan)) = self.inference.products.get(&id) else { continue };
            let operands = &self.module.op(id).operands;
            for (&operand, (plan, is_left)) in operands.iter().zip([(&plan.a, true), (&plan.b, false)]) {
                if !is_there(operand) && seen.insert((operand, is_left)) && !self.comes_in_registers(operand, plan) {
                    bytes += self.buffer_bytes(plan);
                }
            }
        }
        bytes
    }

    /// Have the products that add up in turn their sum in the same registers? A left operand that goes through registers may
    /// give its rows to other threads than one that does not.
    pub fn add_up_in_place(&self, members: &[OpId]) -> bool {
        let layout = |id: &OpId| match self.inference.products.get(id) {
            Some(Ok(plan)) => Some(&plan.acc),
            _ => None,
        };
        let alike = |pair: &[OpId]| match (layout(&pair[0]), layout(&pair[1])) {
            (Some(before), Some(after)) => before.is_same(after),
            _ => false,
        };
        sums(self.module, members).iter().all(|sum| sum.windows(2).all(alike))
    }

    /// May the operands of these products be in shared memory at the same time? Then they will not lie over each other.
    pub fn find_room_together(&mut self, members: &[OpId]) -> bool {
        let bytes = self.operand_bytes(members, &|value| self.is_fetched(value));
        let fits = bytes <= self.shared.free();
        if fits && bytes > 0 {
            self.shared.begin_run(bytes);
        }
        fits || members.len() == 1
    }

    /// The order in which products are issued together, by their positions, and which of them widen the one before: the
    /// sums of one left operand whose right operands are neighbours in each step are one wide sum.
    pub fn issue_order(&self, members: &[OpId], plans: &[MmaPlan]) -> Vec<(usize, bool)> {
        let position = |id: &OpId| members.iter().position(|member| member == id).expect("a member");
        let sums: Vec<Vec<usize>> =
            sums(self.module, members).iter().map(|sum| sum.iter().map(position).collect()).collect();
        let operand = |member: usize, number: usize| self.module.op(members[member]).operands[number];
        let mut wide: Vec<Vec<&Vec<usize>>> = Vec::new();
        for sum in &sums {
            let widens = |before: &Vec<usize>| {
                let starts = [before, sum].map(|sum| self.is_zero(operand(sum[0], 2)));
                let step = |(&a, &b): (&usize, &usize)| {
                    let (left, right) = (operand(a, 0), operand(a, 1));
                    left == operand(b, 0) && self.stands_behind([&plans[a], &plans[b]], [right, operand(b, 1)])
                };
                before.len() == sum.len() && starts[0] == starts[1] && before.iter().zip(sum).all(step)
            };
            match wide.last_mut() {
                Some(others) if others.last().is_some_and(|before| widens(before)) => others.push(sum),
                _ => wide.push(vec![sum]),
            }
        }
        let steps = |sums: Vec<&Vec<usize>>| -> Vec<(usize, bool)> {
            let each = |step: usize| sums.iter().enumerate().map(move |(index, sum)| (sum[step], index > 0));
            (0..sums[0].len()).flat_map(|step| each(step).collect::<Vec<_>>()).collect()
        };
        wide.into_iter().flat_map(steps).collect()
    }

    /// Does the second of two streamed right operands stand where one instruction reads both?
    fn stands_behind(&self, plans: [&MmaPlan; 2], [right, next]: [Value; 2]) -> bool {
        let (Some(here), Some(there)) = (self.place_in_stage(right), self.place_in_stage(next)) else { return false };
        let apart = i64::from(there.offset) - i64::from(here.offset);
        (here.channel, here.rows) == (there.channel, there.rows)
            && plans[0].widened_by(plans[1], here.rows) == Some(apart)
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

    /// Extents of the operands and the result of products that are issued together, as of one product.
    pub fn whole_shapes(&self, members: &[OpId]) -> [Vec<i64>; 3] {
        let shape = |id: OpId, number: usize| self.module.shape(self.module.op(id).operands[number]);
        let (sums, first) = (sums(self.module, members), members[0]);
        let last = shape(first, 2).len() - 1;
        let left = self.module.op(first).operands[0];
        let beside = sums.iter().filter(|sum| self.module.op(sum[0]).operands[0] == left);
        let n: i64 = beside.map(|sum| shape(sum[0], 2)[last]).sum();
        let k: i64 = sums[0].iter().map(|&id| shape(id, 0)[last]).sum();
        let elements: i64 = sums.iter().map(|sum| shape(sum[0], 2)[last - 1..].iter().product::<i64>()).sum();
        let [mut a, mut b, mut c] = [0, 1, 2].map(|number| shape(first, number).to_vec());
        (a[last - 1], a[last]) = (elements / n, k);
        (b[last - 1], b[last]) = (k, n);
        (c[last - 1], c[last]) = (elements / n, n);
        [a, b, c]
    }
}
