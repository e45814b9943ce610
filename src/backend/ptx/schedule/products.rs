//! Products that run on their own: which of them run on over the back edge of a loop, and beside which branches.

use super::Context;
use super::data::Orbit;
use super::streams::Roles;
use crate::ir::{BlockId, OpId, Opcode};

impl Context<'_> {
    /// The products of a loop body that accumulate in place from iteration to iteration.
    pub fn orbits_of(&self, id: OpId, roles: &Roles) -> Vec<Orbit> {
        let module = self.module;
        let op = module.op(id);
        let body = op.regions[0];
        let ops = &module.block(body).ops;
        let Some(&exit) = ops.last() else { return Vec::new() };
        // Where a branch leaves an iteration early, its products have landed.
        if ops.iter().any(|&inner| module.op(inner).code == Opcode::If && self.leaves_early(inner)) {
            return Vec::new();
        }
        ops.iter().filter_map(|&product| self.orbit_of(product, exit, body, roles)).collect()
    }

    /// The way round of one of them, whose loop ends its iterations with `exit`.
    fn orbit_of(&self, product: OpId, exit: OpId, body: BlockId, roles: &Roles) -> Option<Orbit> {
        let module = self.module;
        let this = module.op(product);
        let asynchronous = matches!(this.code, Opcode::MmaF | Opcode::MmaI)
            && matches!(self.inference.products.get(&product), Some(Ok(plan)) if !plan.is_complete());
        if !asynchronous || self.use_counts[this.results[0].index()] != 1 {
            return None;
        }
        let argument = this.operands[2];
        let position = module.block(body).args.iter().position(|&arg| arg == argument)?;
        let carried = module.op(exit).operands.iter().position(|&value| value == this.results[0])?;
        let alone = position == carried + 1 && self.use_counts[argument.index()] == 1;
        alone.then(|| Orbit { product, carried, gives: roles.given_by(product) })
    }

    /// Does a branch contain a `continue` of the loop around it?
    fn leaves_early(&self, branch: OpId) -> bool {
        self.module.op(branch).regions.iter().any(|&region| {
            self.module.block(region).ops.iter().any(|&inner| match self.module.op(inner).code {
                Opcode::Continue => true,
                Opcode::If => self.leaves_early(inner),
                _ => false,
            })
        })
    }

    /// Are there two branches that only compute, so that products may run on beside them?
    pub fn is_quiet(&self, id: OpId) -> bool {
        let regions = &self.module.op(id).regions;
        let mut quiet = regions.len() == 2;
        for &region in regions {
            self.module.walk(region, &mut |inner| {
                quiet &= match self.module.op(inner).code {
                    Opcode::Constant | Opcode::Iota | Opcode::Assume | Opcode::Yield => true,
                    Opcode::Broadcast | Opcode::Reshape | Opcode::Permute => true,
                    code => code.is_elementwise(),
                };
            });
        }
        quiet
    }
}
