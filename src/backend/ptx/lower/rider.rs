//! Small tiles that have come to a stage with the operands of products.

use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, RegClass, Sem, Space, Ty};
use crate::backend::ptx::layout_inference::thread_images;
use crate::ir::OpId;

/// Bytes of the widest access.
const WIDEST: usize = 16;

impl Lowering<'_> {
    /// A load whose tile the copy engine has brought to the stage that is held: reads it. That stays where it is said
    /// (`volatile`): ptxas would fetch early what then stands in registers.
    pub fn load_rider(&mut self, load: OpId) -> Lowered {
        let tile = self.module.op(load).results[0];
        let layout = self.context.inference.accesses.get(&load).cloned().ok_or("a load without a layout")?;
        let dtype = self.context.element_type(tile);
        let size = dtype.storage_bits() as usize / 8;
        let start =
            *self.staged.get(&tile).ok_or("a tile that has come to no stage, which is a defect of this crate")?;
        let axis = layout.shape().iter().position(|&extent| extent > 1).unwrap_or(0);
        let run = layout.vector_len(axis).min(layout.num_registers()).min(WIDEST / size);
        let thread = self.linear_in_thread(&thread_images(&layout));
        let (all, base) =
            (thread_images(&layout).iter().fold(0, |all, image| all | image), self.b.reg(start, RegClass::B32));
        let mods = MemMods { sem: Sem::Volatile, ..MemMods::default() };
        let mut slots: Vec<Operand> = Vec::with_capacity(layout.num_registers());
        for register in (0..layout.num_registers()).step_by(run) {
            let own = layout.element(register, 0, 0);
            let (first, offset) = if own & all == 0 { (thread, own) } else { (self.b.xor(Ty::B32, thread, own), 0) };
            let bytes = self.b.mul(Ty::U32, first, size as i64);
            let at = self.b.add(Ty::U32, base, bytes);
            let at = Addr::new(self.b.reg(at, RegClass::B32), i64::from(offset) * size as i64);
            slots.extend(vector::load(&mut self.b, Space::Shared, dtype, run, &at, mods, None));
        }
        self.tiles[tile.index()] = Some(Tile { layout, slots: slots.into() });
        Ok(())
    }
}
