//! Exponential order: two consumer groups evaluate `exp2` one after another.
//!
//! Where the exponentials of an iteration take as long as its products (attention with 8-bit floats, or with few numbers a row), two
//! groups that go in step want them at the same time, and at another time both multiply. If the second one has to wait until
//! the first one has done its exponentials, one group's products run beside the other one's exponentials. (FlashAttention-3, Shah et al.
//! 2024, has groups take turns for that, too, at its products; here these run on beside the work of their own group anyway.)
//!
//! Where products take longer they are what everything waits for, and turns only cost.

use crate::backend::ptx::plan::num_warps::extent;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{For, Schedule, Step, WarpRole};
use crate::dtype::DType;
use crate::ir::{OpId, Opcode, Value};

/// Multiply-adds of 16-bit elements that tensor cores of Hopper do in the time of one exponential: 2048 and 16 a cycle.
const PRODUCTS_OF_EXPONENTIAL: u64 = 128;
/// Products of an iteration: one alone has turns of its own, and of many the exponentials are few.
const LEAST_PRODUCTS: usize = 2;
/// Exponentials of a row: with fewer, iterations are short, and to hand turns on costs more than they gain.
const LEAST_ROW: i64 = 128;

impl KernelInfo<'_> {
    /// Has two groups of warps compute exponentials in turn where these take as long as the products of an iteration.
    pub fn order_exponentials(&self, schedule: &mut Schedule) {
        let of_loop = |plan: &For| Some((plan.body, self.work_of(schedule, plan)?));
        let found: Vec<_> = schedule.loops(WarpRole::Consumer).into_iter().filter_map(of_loop).collect();
        for (body, (begin, end, exponentials)) in found {
            let steps = &mut schedule.sequences[body.0 as usize];
            let late = is_sunk(&steps[begin]);
            steps.insert(end, Step::ExpOrderArrive(exponentials));
            steps.insert(begin, Step::ExpOrderWait { exponentials, sunk: late });
        }
    }

    /// Where the work of a loop begins that groups do in turn, where it ends, and its exponentials.
    fn work_of(&self, schedule: &Schedule, plan: &For) -> Option<(usize, usize, Value)> {
        let steps = schedule.steps(plan.body);
        let products: Vec<OpId> = steps
            .iter()
            .filter_map(|step| if let Step::Mma(plan) = step { Some(plan) } else { None })
            .filter(|plan| self.run_on(&plan.ops))
            .flat_map(|plan| plan.ops.iter().copied())
            .collect();
        let exponentials: Vec<(usize, Value)> =
            steps.iter().enumerate().filter_map(|(at, step)| Some((at, self.exponentials(step)?))).collect();
        let &(first, value) =
            exponentials.iter().max_by_key(|(at, value)| (extent(self.module, *value).0, usize::MAX - at))?;
        let count: u64 = exponentials.iter().map(|&(_, value)| extent(self.module, value).0).sum();
        let multiplied: u64 = products.iter().map(|&id| self.multiply_adds(id)).sum();
        let worth = products.len() >= LEAST_PRODUCTS && count * PRODUCTS_OF_EXPONENTIAL >= multiplied;
        let wide = self.module.shape(value).last().is_some_and(|&extent| extent >= LEAST_ROW);
        let meets = steps.iter().any(|step| matches!(step, Step::Sub(within) if within.is_shared()));
        if !(worth && wide) || meets {
            return None;
        }
        // A late wait for a product ends a block of code, and to that the exponents belong.
        let begin = steps[first..].iter().position(is_sunk).map_or(first, |at| first + at);
        let parts_before = |at: usize| steps[..at].iter().rev().take_while(|step| matches!(step, Step::Sub(_))).count();
        let (begin, end) = (begin - parts_before(begin), steps.len() - 1);
        let end = end - parts_before(end);
        steps[begin..end].iter().all(may_be_work).then_some((begin, end, value))
    }

    /// What a step gives, if these are exponentials of 32 bits: none of them is negative, not even what is no number.
    pub fn exponentials(&self, step: &Step) -> Option<Value> {
        let &Step::Exec(id) = step else { return None };
        let op = self.module.op(id);
        let value = *op.results.first()?;
        let is = op.code == Opcode::Exp2 && self.module.dtype(value) == DType::F32;
        is.then_some(value)
    }

    /// Multiply-adds of a product, as many as if its elements had 16 bits.
    fn multiply_adds(&self, id: OpId) -> u64 {
        let op = self.module.op(id);
        let left = op.operands[0];
        let depth = self.module.shape(left).last().map_or(1, |&depth| depth as u64);
        extent(self.module, op.results[0]).0 * depth * u64::from(self.module.dtype(left).storage_bits()) / 16
    }
}

/// A late wait for products.
pub fn is_sunk(step: &Step) -> bool {
    matches!(step, Step::MmaWait(land) if land.sunk)
}

/// May a group do this in its turn to work? It waits for nothing but its own products.
pub fn may_be_work(step: &Step) -> bool {
    match step {
        Step::Deferred(_) | Step::Exec(_) | Step::StripMine(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) => true,
        Step::Sub(within) => !within.is_shared(),
        _ => false,
    }
}
