//! Layouts that the user requests (`with_layout`).
//!
//! A load with this as its only use reads memory in that layout, and a store of such a tile writes
//! in it.

use super::{Inference, ValueOrigin};
use crate::ir::{BlockId, Module, Op, Opcode, Value};
use crate::layout::Layout;

/// Threads of a warp, in bits of their number.
const LANE_BITS: usize = 5;

/// Warps that the layouts of a body are for, if the user has chosen any: the most.
pub fn chosen_warps(module: &Module, body: BlockId) -> Option<u32> {
    let mut threads = None;
    module.walk(body, &mut |id| threads = threads.max(module.op(id).distribution().map(|layout| layout.num_threads())));
    threads.map(|threads| (threads >> LANE_BITS) as u32)
}

impl Inference<'_> {
    /// The layout that a `with_layout` is about, if it is for as many threads as the tile block
    /// has.
    pub fn chosen(&self, op: &Op) -> Option<Layout> {
        let layout = op.distribution()?;
        let shape = self.module.shape(op.results[0]);
        if layout.num_threads() != 32 * self.num_warps as u64 {
            return None;
        }
        let (lanes, warps) = layout.threads.split_at(LANE_BITS);
        Some(Layout::new(shape, layout.slots.to_vec(), lanes.to_vec(), warps.to_vec()).canonical())
    }

    /// `with_layout`: another name where the tile is held so already.
    pub(super) fn with_layout(&mut self, op: &Op) {
        let result = op.results[0];
        let chosen = self.chosen(op);
        let there = chosen.is_some() && self.natural(op.operands[0]).map(|own| own.canonical()) == chosen;
        self.sources[result.index()] = Some(if there { ValueOrigin::View } else { ValueOrigin::Register });
        self.set(result, chosen.unwrap_or_else(|| self.default_layout(result)));
    }

    /// Gives loads whose tiles go to one `with_layout` alone its layout.
    pub(super) fn place_chosen_loads(&mut self) {
        let module = self.module;
        let (regions, uses) = (self.regions.clone(), self.uses.clone());
        for &id in regions.ops().iter().filter(|&&id| module.op(id).code == Opcode::WithLayout) {
            let Some(mut layout) = self.chosen(module.op(id)) else { continue };
            let mut value = module.op(id).operands[0];
            while uses.count(value) == 1
                && let Some(maker) = module.defining_op(value)
            {
                let op = module.op(maker);
                match op.code {
                    code if code.is_bijective_alias() => {
                        layout = self.demand(maker, &layout);
                        value = op.operands[0];
                    }
                    // Elements that share a byte are read together.
                    Opcode::LoadView if module.dtype(value).storage_bits() >= 8 => {
                        self.accesses.insert(maker, layout);
                        break;
                    }
                    _ => break,
                }
            }
        }
    }

    /// Is this a tile in a layout of the user's, perhaps of another shape?
    pub(super) fn is_chosen(&self, mut value: Value) -> bool {
        while let Some(id) = self.module.defining_op(value) {
            let op = self.module.op(id);
            match op.code {
                Opcode::WithLayout => return self.chosen(op).is_some(),
                code if code.is_bijective_alias() => value = op.operands[0],
                _ => return false,
            }
        }
        false
    }
}
