//! Layouts of `pack` and `unpack`: each thread holds all elements of a byte or wider element.

use super::super::layouts::packing::{group_bits, grouped, parted, ratio};
use super::super::state::core::Inference;
use crate::ir::{OpId, Opcode};

impl Inference<'_> {
    /// Sets the layout of a `pack` or `unpack`.
    pub fn pack_unpack(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        debug_assert!(matches!(op.code, Opcode::Pack | Opcode::Unpack));
        let (source, result) = (op.operands[0], op.results[0]);
        let (joined, parts) = ratio(module.dtype(source), module.dtype(result));
        let natural = self.natural_or_default(source).canonical();
        let layout = match group_bits(&natural, joined) {
            Some(_) => natural,
            None => self.blocked_layout(module.shape(source), &[0], joined as usize, joined as usize),
        };
        if let Some(bits) = group_bits(&layout, joined) {
            self.set(result, parted(&grouped(&layout, &bits), parts));
        }
        self.op_layouts.insert(id, layout);
    }
}
