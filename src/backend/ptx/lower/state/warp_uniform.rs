//! Warp-uniform values of consumers, broadcast once by shuffle.
//!
//! The second part is a workaround for scalar loads in loops with asynchronous MMAs, for example
//! the scale of the next block:
//! * Symptom: ptxas keeps a warp-uniform load in a uniform register. If the loop carries it, the
//!   move to that register waits for memory before the MMA wait, and delays the next MMA.
//! * Workaround: an opaque, lane-dependent zero is added to the address. The loaded value then
//!   stays in a vector register, and its first use waits for it.

use super::core::Lowering;
use super::sync_state::WarpUniform;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{CvtMods, Operand, Reg, RegClass, ShflMode, Special, Ty};
use crate::backend::ptx::mma::MmaPlan;
use crate::backend::ptx::optimizations::Optimization;
use crate::ir::{MemOrder, OpId, Opcode};

impl Lowering<'_> {
    /// Computes the warp-uniform values.
    pub fn init_warp_uniform(&mut self) -> WarpUniform {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let base = self.b.shfl(ShflMode::Idx, base, 0u32).reg();
        let thread = self.b.special(Special::TidX);
        let group = MmaPlan::group(&mut self.b, thread).reg();
        let sends = self.schedule.tma_stores().any(|send| send.staging.is_some());
        let first = sends.then(|| self.b.shfl(ShflMode::Idx, thread, 0u32).reg());
        let nothing = self.has_scalar_loads().then(|| self.opaque_zero_of_lanes());
        WarpUniform { smem_base: base, warp_group: group, first_thread: first, opaque_zero: nothing }
    }

    /// Returns the XOR of `bases[i]` over the set bits `i` of the warp number. ptxas knows that it
    /// is equal in all lanes.
    pub fn linear_in_warp(&mut self, bases: &[u32]) -> Operand {
        let lanes = WARP_SIZE.trailing_zeros() as usize;
        let bases: Vec<u32> = std::iter::repeat_n(0, lanes).chain(bases.iter().copied()).collect();
        match self
            .sync
            .warp_uniform()
            .and_then(|uniform| uniform.first_thread)
            .filter(|_| bases.iter().any(|&basis| basis != 0))
        {
            Some(first) => self.linear_of(first.into(), &bases),
            None => self.linear_in_thread(&bases),
        }
    }

    /// Returns true if the kernel has scalar loads next to asynchronous MMAs.
    pub fn has_scalar_loads(&self) -> bool {
        self.info.is_enabled(Optimization::ScalarLoad)
            && self.info.inference.accesses.keys().any(|&id| self.is_scalar_load(id))
    }

    /// Returns true if the op is a scalar load in a block with an asynchronous MMA.
    fn is_scalar_load(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        if op.code != Opcode::LoadView || op.mem_order() != MemOrder::Weak || !self.info.is_in_loop(id) {
            return false;
        }
        let result = op.results[0];
        let one = self.module.shape(result).iter().product::<i64>() == 1;
        let block = self.info.regions.block_of(id);
        let beside = || {
            let ops = block.map(|block| &self.module.block(block).ops);
            ops.is_some_and(|ops| ops.iter().any(|&other| self.info.inference.runs_alone(other)))
        };
        one && self.info.element_type(result).is_float() && beside()
    }

    /// Returns a zero as shift of `%lanemask_lt`, whose bit 31 is never set.
    pub fn opaque_zero_of_lanes(&mut self) -> Reg {
        let before = self.b.special(Special::LaneMaskLt);
        let nothing = self.b.shr(Ty::U32, before, 31);
        let wide = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), nothing);
        self.b.reg(wide, RegClass::B64)
    }

    /// Adds the opaque zero to the address of a scalar load, so that ptxas considers it
    /// lane-dependent.
    pub fn lane_dependent_base(&mut self, id: OpId, base: Operand) -> Operand {
        match self.sync.opaque_zero().filter(|_| self.is_scalar_load(id)) {
            Some(nothing) => self.b.add(Ty::S64, base, Operand::from(nothing)),
            None => base,
        }
    }
}
