//! `cluster_all_gather`: exchange of tiles through distributed shared memory.
//!
//! Each CTA stores its tile to its own shared memory. After a cluster barrier, each CTA loads the
//! tiles of all ranks. A second cluster barrier precedes the next write to the buffer and the exit
//! of a CTA.

use crate::backend::ptx::isa::inst::{Operand, RegClass, Space};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::ir::OpId;
use crate::layout::Side;
use crate::util::collect::CollectVec as _;

/// The first architecture with clusters.
const MIN_CLUSTER_ARCH: u32 = 90;

impl Lowering<'_> {
    /// Lowers `cluster_all_gather`.
    pub fn cluster_all_gather(&mut self, id: OpId) -> Lowered {
        if self.b.target.arch < MIN_CLUSTER_ARCH {
            return Err("clusters need a GPU of sm_90 or later".to_owned());
        }
        let op = self.module.op(id);
        let result = op.results[0];
        let size = self.module.shape(result)[0] as usize;
        let Tile { layout: source_layout, regs } = self.operand()?;
        let layout = self.info.inference.layout(result).cloned().ok_or("a result without a layout")?;
        let dtype = self.info.element_type(result);
        let [rounds, _] = self.smem.split().ok_or(SCHEDULE_MISMATCH)?.map(|number| number as usize);
        let bytes = vector_access::run_bytes(vector_access::shared_type(dtype), 1) as usize;
        let side = Side::in_order(&source_layout, bytes, rounds);
        let owner = self.owner_of(side.replicated);
        let own = self.b.reg(Operand::Smem, RegClass::B32);
        let bases: Vec<Operand> = (0..size).map(|rank| self.b.mapa(own, rank as u32)).collect_vec();
        let mut gathered = vec![vec![Operand::Imm(0); source_layout.num_registers()]; size];
        for round in 0..rounds {
            let buffer = self.next_write_buffer()?;
            self.store_side(buffer, dtype, &regs, &side, round, owner);
            self.begin_read(buffer)?;
            self.b.cluster_barrier();
            for (registers, &base) in gathered.iter_mut().zip(&bases) {
                self.load_side_from((Space::SharedCluster, base), buffer, dtype, registers, (&side, round));
            }
            self.b.cluster_barrier();
        }
        self.values.define(result, Tile { layout, regs: gathered.concat().into() });
        Ok(())
    }
}
