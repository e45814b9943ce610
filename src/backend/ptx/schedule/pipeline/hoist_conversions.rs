//! Hoists layout conversions of loop invariants.

use rustc_hash::FxHashSet;

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, Opcode, Type, Value};
use crate::layout::Layout;

/// Maximum number of registers of a value whose conversion is hoisted.
const MAX_HOISTED_REGISTERS: usize = 32;

impl KernelInfo<'_> {
    /// Returns the values from outside that a loop uses, with the layouts to which they are
    /// converted before the loop.
    pub fn hoisted_conversions(&self, body: BlockId) -> Vec<(Value, Layout)> {
        if !self.is_enabled(Optimization::HoistConversions) {
            return Vec::new();
        }
        let module = self.module;
        let mut inside = FxHashSet::default();
        let mut required = Vec::new();
        let inference = &self.inference;
        inside.extend(module.block(body).args.iter().copied());
        module.walk(body, &mut |id| {
            let op = module.op(id);
            inside.extend(op.results.iter().copied());
            for &region in &op.regions {
                inside.extend(module.block(region).args.iter().copied());
            }
            let layout = match op.code {
                Opcode::Reduce | Opcode::Scan | Opcode::StoreView | Opcode::AtomicRedView => {
                    inference.op_layouts.get(&id).cloned()
                }
                code if code.is_elementwise() && inference.origin(op.results[0]) == ValueOrigin::Register => {
                    inference.layout(op.results[0]).cloned()
                }
                _ => None,
            };
            if let Some(layout) = layout {
                for &operand in &op.operands {
                    let tile = matches!(module.ty(operand), Type::Tile { .. });
                    if tile && module.shape(operand) == layout.shape() {
                        required.push((operand, layout.clone()));
                    }
                }
            }
        });
        required.retain(|(value, layout)| {
            let fits = layout.num_registers() <= MAX_HOISTED_REGISTERS;
            fits && !inside.contains(value) && inference.origin(*value) != ValueOrigin::Rematerialized
        });
        required
    }
}
