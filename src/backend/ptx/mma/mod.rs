//! MMA plans of one CTA: `acc += a × b` over tiles of power-of-two extents.
//!
//! Input: an [`MmaRequest`]. Output: an [`MmaPlan`], i.e. the instruction, the register layouts of
//! operands and accumulator, and the swizzle of operands in shared memory.
//! [`MmaPlan::lower_together`] emits the MMAs of one group; accumulators stay in registers.
//!
//! Selection, in this order: `wgmma` on sm_90a if the extents allow it; `mma.sync` for all types
//! but f32; FMA for f32, in IEEE arithmetic and the order of k.
//!
//! The caller provides the operands: in shared memory, written through
//! [`crate::layout::SharedLayout::accesses`] of the plan's layout before a barrier, or in registers
//! of the plan's layout. The folder depends on layouts and the builder, and on the IR only for the
//! element types.

mod fma;
mod fragment;
mod mma_steps;
mod mma_sync;
mod request;
mod smem_descriptor;
mod smem_operand;
#[cfg(test)]
mod tests;
mod wgmma;
mod wgmma_a_registers;

pub use mma_steps::{CarriedStep, StepEmission};
pub use request::{Effort, MmaPart, MmaRequest, OperandPlan, OperandSource, OperandSpec, Panels};

use super::isa::builder::Builder;
use super::isa::inst::{Operand, Reg, ShflMode, Ty};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::target::Target;
use request::Planned;

/// The instruction and the operand layouts of an MMA.
#[derive(Clone, Debug)]
pub struct MmaPlan {
    /// The left operand.
    pub a: OperandPlan,
    /// The right operand.
    pub b: OperandPlan,
    /// Register layout of the accumulator, of the rank of the tiles.
    pub acc: Layout,
    kind: InstructionKind,
    /// The reason against `wgmma`, on a target that has it.
    pub wgmma_rejection: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum InstructionKind {
    MmaSync(Box<mma_sync::MmaSyncPlan>),
    Fma(Box<fma::FmaPlan>),
    Wgmma(Box<wgmma::WgmmaPlan>),
}

impl MmaPlan {
    /// Plans an MMA.
    ///
    /// # Errors
    /// A sentence that names the types, if no MMA supports them.
    pub fn new(request: &MmaRequest) -> Result<MmaPlan, String> {
        if (request.a.dtype, request.b.dtype, request.acc) == (DType::F32, DType::F32, DType::F32) {
            return Ok(MmaPlan::from_planned(fma::plan(request), InstructionKind::Fma));
        }
        let wgmma_rejection = match (request.target == Target::SM_90A).then(|| wgmma::plan(request)) {
            Some(Ok(planned)) => return Ok(MmaPlan::from_planned(planned, InstructionKind::Wgmma)),
            Some(Err(rejection)) => Some(rejection),
            None => None,
        };
        let plan = MmaPlan::from_planned(mma_sync::plan(request)?, InstructionKind::MmaSync);
        Ok(MmaPlan { wgmma_rejection, ..plan })
    }

    fn from_planned<P>(planned: Planned<P>, kind: impl FnOnce(Box<P>) -> InstructionKind) -> MmaPlan {
        let Planned { a, b, acc, plan } = planned;
        MmaPlan { a, b, acc, kind: kind(Box::new(plan)), wgmma_rejection: None }
    }

    /// Returns true if the instructions are asynchronous. Ordinary writes to shared memory then
    /// need a proxy fence before the instructions. [`MmaPlan::wait`] has to precede reads of the
    /// accumulator and further writes to the operands' shared memory.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.kind, InstructionKind::Wgmma(_))
    }

    /// Returns true if [`MmaPlan::lower_together`] waits for its instructions, so that the MMA is
    /// complete after it.
    pub fn is_complete(&self) -> bool {
        match &self.kind {
            InstructionKind::MmaSync(_) | InstructionKind::Fma(_) => true,
            InstructionKind::Wgmma(plan) => plan.is_complete(),
        }
    }

    /// Returns the instructions and operands of an asynchronous MMA, per thread.
    pub fn effort(&self) -> Effort {
        match &self.kind {
            InstructionKind::Wgmma(plan) => plan.effort(),
            InstructionKind::MmaSync(_) | InstructionKind::Fma(_) => Effort::default(),
        }
    }

    /// Returns true if the MMA is by fused multiply-add, without tensor cores.
    pub fn is_fma(&self) -> bool {
        matches!(self.kind, InstructionKind::Fma(_))
    }

    /// Waits for all asynchronous MMA groups except for the last `pending`.
    pub fn wait(b: &mut Builder, pending: u32) {
        b.wgmma_wait_group(pending);
    }

    /// Emits MMAs in order: `acc += a × b`, or `acc = a × b` without [`MmaPart::accumulate`].
    /// Asynchronous ones are one group, which one wait completes.
    ///
    /// `thread`: the linear number of the thread in the CTA (B32). `group`: the result of
    /// [`MmaPlan::group`], if it is available. The accumulator of a part has one register for each
    /// register of [`MmaPlan::acc`] (f16 in B16, f32 in F32, i32 in B32, f64 in F64). All threads
    /// of the CTA execute it together.
    pub fn lower_together(b: &mut Builder, thread: Reg, group: Option<Reg>, parts: &[MmaPart<'_, MmaPlan>]) {
        let mut running = Vec::new();
        for part in parts {
            assert_eq!(part.acc.len(), part.plan.acc.num_registers(), "accumulator registers");
            if let InstructionKind::Wgmma(plan) = &part.plan.kind {
                let MmaPart { left, right, acc, accumulate, widens, .. } = *part;
                running.push(MmaPart { plan: &**plan, left, right, acc, accumulate, widens });
                continue;
            }
            if !part.accumulate {
                part.acc.iter().for_each(|&register| b.mov_to(register, 0));
            }
            match &part.plan.kind {
                InstructionKind::MmaSync(plan) => plan.lower(b, thread, part.left, part.right, part.acc),
                InstructionKind::Fma(plan) => plan.lower(b, thread, part.left, part.right, part.acc),
                InstructionKind::Wgmma(_) => unreachable!("those run on their own"),
            }
        }
        if !running.is_empty() {
            let group = group.map_or_else(|| MmaPlan::group(b, thread.into()), Operand::from);
            wgmma::lower_together(b, (thread, group), &running);
        }
    }

    /// Returns registers for the last step along k of an iteration, set to zero. `None` if the MMA
    /// cannot be emitted with that step in the next iteration: [`MmaPlan::begin_with_carried`].
    pub fn start_carried_step(&self, b: &mut Builder) -> Option<CarriedStep> {
        match &self.kind {
            InstructionKind::MmaSync(plan) => plan.start_carried_step(b),
            InstructionKind::Fma(_) | InstructionKind::Wgmma(_) => None,
        }
    }

    /// Emits the step of the previous iteration, and loads the fragments of the first step.
    /// [`StepEmission::leave_last_step`] emits the other steps but the last. `None` if the operands
    /// are not in shared memory.
    pub fn begin_with_carried<'a>(
        b: &mut Builder,
        thread: Reg,
        part: &MmaPart<'a, MmaPlan>,
        carried: &CarriedStep,
    ) -> Option<StepEmission<'a>> {
        match &part.plan.kind {
            InstructionKind::MmaSync(plan) => {
                plan.begin_with_carried(b, thread, [part.left, part.right], part.acc, carried)
            }
            InstructionKind::Fma(_) | InstructionKind::Wgmma(_) => None,
        }
    }

    /// Emits the carried step of the last iteration.
    pub fn finish_carried_step(&self, b: &mut Builder, acc: &[Reg], carried: &CarriedStep) {
        if let InstructionKind::MmaSync(plan) = &self.kind {
            plan.finish_carried_step(b, acc, carried);
        }
    }

    /// Emits the number of the thread's warp group, computed from the thread number. It is equal in
    /// all lanes of a warp, so values derived from it can be in uniform registers.
    pub fn group(b: &mut Builder, thread: Operand) -> Operand {
        let group = b.shr(Ty::U32, thread, 7u32);
        b.shfl(ShflMode::Idx, group, 0u32)
    }

    /// Returns the bytes from the right operand of this MMA to that of another one that can widen
    /// it ([`MmaPart::widens`]), in panels of `rows` rows; `None` if it cannot.
    pub fn widened_by(&self, other: &MmaPlan, rows: i64) -> Option<i64> {
        match (&self.kind, &other.kind) {
            (InstructionKind::Wgmma(plan), InstructionKind::Wgmma(other)) => plan.widened_by(other, rows),
            _ => None,
        }
    }

    /// Returns the instruction and the warps as one line of text.
    pub fn describe(&self) -> String {
        match &self.kind {
            InstructionKind::MmaSync(plan) => plan.describe(),
            InstructionKind::Fma(plan) => plan.describe(),
            InstructionKind::Wgmma(plan) => plan.describe(),
        }
    }
}
