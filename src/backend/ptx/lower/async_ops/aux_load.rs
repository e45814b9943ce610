//! Loads of auxiliary tiles from a pipeline stage.

use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, RegClass, Sem, Space, Ty};
use crate::backend::ptx::layout_inference::thread_bases;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::ir::OpId;

/// Bytes of the widest vector access.
const WIDEST: usize = 16;

impl Lowering<'_> {
    /// Loads an auxiliary tile from the acquired stage.
    ///
    /// The loads are `volatile`: otherwise ptxas hoists them, and their results are in registers
    /// for longer than necessary.
    pub fn load_aux(&mut self, load: OpId) -> Lowered {
        let tile = self.module.op(load).results[0];
        let layout = self.info.inference.op_layouts.get(&load).cloned().ok_or("a load without a layout")?;
        let dtype = self.info.element_type(tile);
        let size = dtype.storage_bits() as usize / 8;
        let start = *self
            .values
            .stage_addresses
            .get(&tile)
            .ok_or("internal error: an auxiliary tile without a stage; please report it")?;
        let axis = layout.shape().iter().position(|&extent| extent > 1).unwrap_or(0);
        let run = layout.vector_len(axis).min(layout.num_registers()).min(WIDEST / size);
        let thread = self.linear_in_thread(&thread_bases(&layout));
        let (all, base) =
            (thread_bases(&layout).iter().fold(0, |all, basis| all | basis), self.b.reg(start, RegClass::B32));
        let mods = MemMods { sem: Sem::Volatile, ..MemMods::default() };
        let mut regs: Vec<Operand> = Vec::with_capacity(layout.num_registers());
        for register in (0..layout.num_registers()).step_by(run) {
            let own = layout.element(register, 0, 0);
            let (first, offset) = if own & all == 0 { (thread, own) } else { (self.b.xor(Ty::B32, thread, own), 0) };
            let bytes = self.b.mul(Ty::U32, first, size as i64);
            let at = self.b.add(Ty::U32, base, bytes);
            let at = Addr::new(self.b.reg(at, RegClass::B32), i64::from(offset) * size as i64);
            regs.extend(vector_access::load(&mut self.b, Space::Shared, dtype, run, &at, mods, None));
        }
        self.values.define(tile, Tile { layout, regs: regs.into() });
        Ok(())
    }
}
