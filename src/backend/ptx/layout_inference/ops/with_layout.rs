//! Layouts that the user requests (`with_layout`).
//!
//! A load with this as its only use reads memory in that layout, also through elementwise ops. A
//! store of such a tile writes in it.

use super::super::analysis::view_shape::{ViewShape, contiguous_axis};
use super::super::layouts::blocks::halved_in_registers;
use super::super::state::core::{Inference, ValueOrigin};
use crate::ir::{Op, OpId, Opcode, Value};
use crate::layout::Layout;

impl Inference<'_> {
    /// Sets the layout of a `with_layout`. The op is a view if the tile has this layout already.
    pub fn with_layout(&mut self, op: &Op) {
        let result = op.results[0];
        let chosen = self.chosen(op);
        let there = chosen.is_some() && self.natural(op.operands[0]).map(|own| own.canonical()) == chosen;
        self.origins[result.index()] = Some(if there { ValueOrigin::View } else { ValueOrigin::Register });
        self.set(result, chosen.unwrap_or_else(|| self.default_layout(result)));
    }

    /// Sets the layout of loads whose only use is a `with_layout`.
    pub fn set_user_loads(&mut self) {
        let module = self.module;
        let (regions, uses) = (self.regions.clone(), self.uses.clone());
        for &id in regions.ops().iter().filter(|&&id| module.op(id).code == Opcode::WithLayout) {
            let Some(mut layout) = self.chosen(module.op(id)) else { continue };
            let is_partial = module.op(id).distribution().is_some_and(|layout| layout.is_partial());
            let mut value = module.op(id).operands[0];
            let mut num_uses = 1;
            while uses.count(value) == num_uses
                && let Some(maker) = module.defining_op(value)
            {
                let op = module.op(maker);
                num_uses = 1;
                match op.code {
                    // A tile twice: words, of which each thread selects the bits of its elements.
                    Opcode::Cat if op.operands[0] == op.operands[1] => {
                        let Some(half) = halved_in_registers(&layout, op.dim() as usize) else { break };
                        layout = half;
                        value = op.operands[0];
                        num_uses = 2;
                    }
                    code if code.is_bijective_alias() => {
                        layout = self.demand(maker, &layout);
                        value = op.operands[0];
                    }
                    // Threads compute the elements that they load.
                    code if code.is_elementwise() && module.shape(value) == layout.shape() => {
                        let is_tile = |&&operand: &&Value| self.origin(operand) != ValueOrigin::Rematerialized;
                        let mut tiles = op.operands.iter().filter(is_tile);
                        let (Some(&tile), None) = (tiles.next(), tiles.next()) else { break };
                        value = tile;
                    }
                    // A partial layout is a preference: its loads are coalesced.
                    Opcode::LoadView if is_partial && !self.has_adjacent_lanes(maker, &layout) => break,
                    // One thread loads all elements of a byte.
                    Opcode::LoadView if module.dtype(value).storage_bits() >= 8 => {
                        self.op_layouts.insert(maker, layout);
                        break;
                    }
                    _ => break,
                }
            }
        }
    }

    /// Returns true if adjacent lanes access adjacent elements.
    fn has_adjacent_lanes(&self, load: OpId, layout: &Layout) -> bool {
        let axis = ViewShape::of(self.module, self.module.op(load).group(0)[0])
            .and_then(|view| contiguous_axis(self.module, &view));
        axis.is_some_and(|axis| {
            let inner: i64 = layout.shape()[axis + 1..].iter().product();
            layout.lane_bases().contains(&((layout.vector_len(axis) as i64 * inner) as u32))
        })
    }
}
