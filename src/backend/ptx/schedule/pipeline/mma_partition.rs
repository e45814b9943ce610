//! MMA partition: the instruction of each MMA, and the rows and columns per warp group.

use crate::backend::ptx::schedule::Context;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step};
use crate::backend::ptx::schedule::verify::Checked;
use crate::ir::{BlockId, OpId};

impl Context<'_> {
    /// Of each product of a kernel, in the order of the program, its instruction and what of it each group of warps does.
    pub fn splits(&self, body: BlockId) -> Vec<(OpId, String)> {
        let mut all = Vec::new();
        self.module.walk(body, &mut |id| {
            if let Some(Ok(plan)) = self.inference.products.get(&id) {
                all.push((id, plan.describe()));
            }
        });
        all
    }

    /// Is each product that a step issues split as it is planned?
    pub fn check_splits(&self, body: BlockId, schedule: &Schedule) -> Checked {
        let planned = self.splits(body);
        if schedule.products != planned {
            return Err(format!("products are split as {:?} instead of {planned:?}", schedule.products));
        }
        let products = schedule.bodies.iter().flatten().filter_map(|step| match step {
            Step::Multiply(plan) => Some(&plan.ops),
            _ => None,
        });
        match products.flatten().find(|id| planned.iter().all(|(planned, _)| planned != *id)) {
            Some(id) => Err(format!("nobody has a part of product {}", id.index())),
            None => Ok(()),
        }
    }
}
