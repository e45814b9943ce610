//! A kernel's schedule, and the code of it: first everything is planned, then each agent's program becomes instructions.

use std::rc::Rc;

use super::{Lowering, start};
use crate::backend::ptx::CompileOptions;
use crate::backend::ptx::layout_inference::Inference;
use crate::backend::ptx::schedule::{KernelInfo, Schedule, Step, WarpRole};
#[cfg(any(test, feature = "_suite"))]
use crate::backend::ptx::tensor_map::TensorMap;
use crate::error::Diagnostic;
use crate::ir::{BlockId, Entry, Module};

/// The state after the last op.
pub fn lowered<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Lowering<'m> {
    made(start(module, entry, inference, name, options), entry)
}

/// The state when everything is planned: a schedule, and no code of it.
pub fn planned<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    options: &CompileOptions,
) -> Lowering<'m> {
    let lowering = start(module, entry, inference, "kernel", options);
    made(Lowering { plans_only: true, ..lowering }, entry)
}

fn made<'m>(mut lowering: Lowering<'m>, entry: &Entry) -> Lowering<'m> {
    lowering.context.options.occupancy = lowering.context.possible_occupancy();
    lowering.b.come_from(entry.loc.0);
    lowering.params = lowering.entry_params(entry);
    lowering.reserve_own(entry.body);
    lowering.context.select_tma_stores(entry.body);
    let planned = lowering.context.plan_warp_specialization(entry.body, &lowering.shared);
    lowering.remarks.alone = planned.alone;
    // Without a number of blocks, ptxas may save registers for more of them than is good.
    let blocks = lowering.context.options.occupancy.unwrap_or(1);
    lowering.b.function().min_blocks = Some(blocks);
    match planned.roles {
        Some(roles) => {
            if let Err(message) = lowering.with_roles(entry.body, Rc::new(roles)) {
                lowering.errors.push(Diagnostic::new(message, None));
            }
        }
        None => {
            lowering.context.allocate_staging_buffers(entry.body, None, &mut lowering.shared);
            lowering.context.select_privatized_atomics(entry.body, &mut lowering.shared);
            lowering.plan(entry.body, None);
            if let Err(message) = lowering.fetch_store_maps() {
                lowering.errors.push(Diagnostic::new(message, None));
            }
            lowering.clear_private();
            if !lowering.plans_only {
                lowering.run(WarpRole::All);
            }
        }
    }
    let unmet = lowering.context.unmet(entry.body, &lowering.schedule, &planned.unstreamed);
    lowering.remarks.unmet(lowering.module, unmet);
    lowering
}

/// For who looks at the schedule.
impl<'m> Lowering<'m> {
    /// What could not be lowered.
    pub fn problems(&self) -> &[Diagnostic] {
        &self.errors
    }

    /// The tensor maps that the kernel takes.
    #[cfg(any(test, feature = "_suite"))]
    pub fn maps(&self) -> Vec<TensorMap> {
        self.tensor_maps.iter().map(|(map, _)| map.clone()).collect()
    }

    pub fn context(&self) -> &KernelInfo<'m> {
        &self.context
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Tile blocks that fit on a multiprocessor, as far as that is known before there is code.
    pub fn blocks(&self, body: BlockId) -> u32 {
        if self.schedule.warp_spec.is_some() {
            return self.context.blocks_of_roles();
        }
        let (inference, schedule) = (&self.context.inference, &self.schedule);
        let mut ahead = 0;
        for step in schedule.sequences.iter().flatten() {
            if let Step::For(plan) = step {
                ahead = ahead.max(plan.cp_async.as_ref().map_or(0, |ahead| ahead.bytes()));
            }
        }
        let warps = inference.num_warps as u32;
        let fits =
            |registers| inference.target.multiprocessor().fitting_blocks(warps, registers, self.shared.used() + ahead);
        let most = fits(self.context.least_registers(body)).max(1);
        self.context.options.occupancy.map_or(most, |wished| wished.min(most))
    }
}
