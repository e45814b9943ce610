//! MMA groups: MMAs issued together under one `commit_group`.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{MmaGroup, MmaIssue};
use crate::ir::{OpId, Value};
use crate::pass::accumulator_chains;
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Returns true if MMAs that accumulate one after another have the same accumulator layout. A
    /// left operand in registers may assign its rows to other threads than one in shared memory.
    pub fn has_same_accumulator_layout(&self, members: &[OpId]) -> bool {
        let layout = |id: &OpId| match self.inference.mma_plans.get(id) {
            Some(Ok(plan)) => Some(&plan.acc),
            _ => None,
        };
        let alike = |pair: &[OpId]| match (layout(&pair[0]), layout(&pair[1])) {
            (Some(before), Some(after)) => before.is_same(after),
            _ => false,
        };
        accumulator_chains(self.module, members).iter().all(|sum| sum.windows(2).all(alike))
    }

    /// Returns the groups in which related MMAs are issued, at the position of the last one.
    ///
    /// They are one group, unless their accumulators have different layouts or their operands
    /// exceed `capacity` bytes of shared memory. In that case each MMA is a group. `is_there`: true
    /// for values that are already in shared memory.
    pub fn plan_mma_groups(
        &self,
        mma: OpId,
        warp_spec: Option<&WarpSpecialization>,
        is_there: &dyn Fn(Value) -> bool,
        capacity: u32,
    ) -> Vec<MmaGroup> {
        let members = self.mma_groups.group_of(mma);
        let together = self.has_same_accumulator_layout(&members) && self.operand_bytes(&members, is_there) <= capacity;
        if together || members.len() == 1 {
            return vec![MmaGroup {
                issue: self.issue_order(&members, warp_spec),
                ops: members.to_vec(),
                releases: Vec::new(),
            }];
        }
        members.iter().map(|&member| MmaGroup::single(member)).collect_vec()
    }

    /// Returns the order of issue of the MMAs of a group. Accumulators with a common left operand,
    /// and right operands that are adjacent in each step, are one wide accumulator.
    fn issue_order(&self, members: &[OpId], warp_spec: Option<&WarpSpecialization>) -> Vec<MmaIssue> {
        let position = |id: &OpId| members.iter().position(|member| member == id).expect("a member");
        let sums: Vec<Vec<usize>> = accumulator_chains(self.module, members)
            .iter()
            .map(|sum| sum.iter().map(position).collect_vec())
            .collect_vec();
        let mut wide: Vec<Vec<&Vec<usize>>> = Vec::new();
        for sum in &sums {
            let widens = |before: &Vec<usize>| {
                let step = |(&a, &b): (&usize, &usize)| self.can_extend_n(members[a], members[b], warp_spec);
                before.len() == sum.len() && before.iter().zip(sum).all(step)
            };
            match wide.last_mut() {
                Some(others) if others.last().is_some_and(|before| widens(before)) => others.push(sum),
                _ => wide.push(vec![sum]),
            }
        }
        let steps = |sums: Vec<&Vec<usize>>| -> Vec<MmaIssue> {
            let each = |step: usize| {
                sums.iter().enumerate().map(move |(index, sum)| MmaIssue { op: sum[step], extends_n: index > 0 })
            };
            (0..sums[0].len()).flat_map(|step| each(step).collect_vec()).collect_vec()
        };
        wide.into_iter().flat_map(steps).collect_vec()
    }

    /// Returns true if one instruction can execute two MMAs that both start from zero, or both do
    /// not. They have the same left operand. The producer loads the right operands, the second one
    /// directly after the first one.
    pub fn can_extend_n(&self, mma: OpId, next: OpId, warp_spec: Option<&WarpSpecialization>) -> bool {
        if !self.is_enabled(Optimization::WideMma) {
            return false;
        }
        let (a, b) = (&self.module.op(mma).operands, &self.module.op(next).operands);
        let slot = |value: Value| warp_spec?.operand_slot(self.source_load(value)?);
        let plan = |id: OpId| self.inference.mma_plans.get(&id)?.as_ref().ok();
        let (Some(here), Some(there)) = (slot(a[1]), slot(b[1])) else { return false };
        let (Some(plan), Some(other)) = (plan(mma), plan(next)) else { return false };
        let distance = i64::from(there.smem_offset) - i64::from(here.smem_offset);
        a[0] == b[0]
            && self.is_zero(a[2]) == self.is_zero(b[2])
            && (here.channel, here.panel_rows) == (there.channel, there.panel_rows)
            && plan.widened_by(other, here.panel_rows) == Some(distance)
    }

    /// Returns the extents of the operands and the result of an MMA group as of one MMA.
    pub fn combined_shapes(&self, members: &[OpId]) -> [Vec<i64>; 3] {
        let shape = |id: OpId, number: usize| self.module.shape(self.module.op(id).operands[number]);
        let (sums, first) = (accumulator_chains(self.module, members), members[0]);
        let last = shape(first, 2).len() - 1;
        let left = self.module.op(first).operands[0];
        let same_left = sums.iter().filter(|sum| self.module.op(sum[0]).operands[0] == left);
        let n: i64 = same_left.map(|sum| shape(sum[0], 2)[last]).sum();
        let k: i64 = sums[0].iter().map(|&id| shape(id, 0)[last]).sum();
        let elements: i64 = sums.iter().map(|sum| shape(sum[0], 2)[last - 1..].iter().product::<i64>()).sum();
        let [mut a, mut b, mut c] = [0, 1, 2].map(|number| shape(first, number).to_vec());
        (a[last - 1], a[last]) = (elements / n, k);
        (b[last - 1], b[last]) = (k, n);
        (c[last - 1], c[last]) = (elements / n, n);
        [a, b, c]
    }
}
