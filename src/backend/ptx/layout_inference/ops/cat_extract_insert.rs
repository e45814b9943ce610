//! Layouts of `cat`, `extract` and `insert`.
//!
//! Butterfly networks, e.g. sorting networks and FFTs, halve a tile along one bit of the element
//! index after another. If that bit is a register bit, `extract` and `cat` only rename registers. A
//! chain of such steps therefore has layouts with as many of the next bits as possible in
//! registers. Between two of these layouts, the tile is converted once.

use super::super::analysis::butterfly_chain::{ButterflyChains, flat, halved_bit};
use super::super::layouts::blocks::{
    block_grid_layout, block_layout, doubled, doubled_in_registers, in_order, moves_single_bits,
};
use super::super::state::core::{Inference, ValueOrigin};
use crate::ir::{OpId, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Bits of the lane number.
const LANE_BITS: usize = 5;

/// Minimum number of register bits, also of tiles with fewer elements than threads.
const MIN_BITS: usize = 3;

/// Minimum number of steps of a chain with layouts of its own.
const MIN_STEPS: usize = 3;

impl Inference<'_> {
    /// Sets the layouts of a `cat`: both operands have one layout, that of an operand.
    pub fn cat(&mut self, id: OpId) {
        let op = self.module.op(id);
        let layout = self.elementwise_layout(&op.operands).filter(moves_single_bits);
        let layout = layout.unwrap_or_else(|| self.default_layout(op.operands[0])).canonical();
        let joined = match self.is_half(&op.operands, &layout) {
            true => {
                self.butterfly_chains.register_joins.insert(id);
                doubled_in_registers(&layout, op.dim() as usize)
            }
            false => {
                self.butterfly_chains.register_joins.remove(&id);
                doubled(&layout, op.dim() as usize).0
            }
        };
        self.set(op.results[0], in_order(&joined).0);
        self.op_layouts.insert(id, layout);
    }

    /// Sets the layouts of an `extract`. The result has the block layout of the source, or the
    /// default layout if warps distinguish blocks. A tile of which many blocks are extracted is
    /// converted once: each thread then holds the same positions of all blocks.
    pub fn extract(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let part = module.shape(result);
        if let Some(layout) = self.butterfly_layout(id) {
            let half = block_layout(&layout, part).canonical();
            self.butterfly_chains.known_layouts.insert(flat(&half));
            self.set(result, half);
            self.op_layouts.insert(id, layout);
            return;
        }
        let layout =
            self.natural(source).filter(moves_single_bits).unwrap_or_else(|| self.default_layout(source)).canonical();
        let source_layout = block_layout(&layout, part);
        let moved = |own: &[u32], left: &[u32]| own.iter().zip(left).any(|(own, left)| own != left && *left == 0);
        let across_warps = moved(layout.warp_bases(), source_layout.warp_bases());
        let across_lanes = moved(layout.lane_bases(), source_layout.lane_bases());
        if (across_warps || across_lanes) && self.extract_groups.takes(module, op) {
            let each = self.default_layout(result).canonical();
            self.op_layouts.insert(id, block_grid_layout(&each, module.shape(source)));
            self.set(result, each);
            return;
        }
        let chosen = if across_warps { self.default_layout(result) } else { source_layout.canonical() };
        self.set(result, chosen);
        self.op_layouts.insert(id, layout);
    }

    /// Sets the layouts of an `insert`: those of the destination.
    pub fn insert(&mut self, id: OpId) {
        let op = self.module.op(id);
        let destination = op.group(1)[0];
        let layout = self.natural_or_default(destination).canonical();
        self.set(op.results[0], layout.clone());
        self.op_layouts.insert(id, layout);
    }

    /// Returns the layout of the source of an `extract` that is a step of a butterfly chain.
    fn butterfly_layout(&mut self, id: OpId) -> Option<Layout> {
        let module = self.module;
        let op = module.op(id);
        let source = op.operands[0];
        let bit = halved_bit(module, op)?;
        if let Some(layout) = self.butterfly_chains.layouts.get(&source) {
            return Some(layout.clone());
        }
        let natural = self.natural(source).filter(|layout| self.butterfly_chains.known_layouts.contains(&flat(layout)));
        let layout = match natural {
            Some(layout) if layout.register_bases().contains(&(1 << bit)) => layout,
            natural => {
                let (next, steps) = ButterflyChains::next_bits(module, &self.uses, id, self.register_bits(source));
                if natural.is_none() && steps < MIN_STEPS {
                    return None;
                }
                self.layout_for(source, &next)
            }
        };
        self.butterfly_chains.known_layouts.insert(flat(&layout));
        self.butterfly_chains.layouts.insert(source, layout.clone());
        Some(layout)
    }

    /// Returns the number of register bits of a tile.
    fn register_bits(&self, value: Value) -> usize {
        let bits = self.num_elements(value).trailing_zeros() as usize;
        let threads = LANE_BITS + self.num_warps.trailing_zeros() as usize;
        bits.saturating_sub(threads).max(MIN_BITS).min(bits)
    }

    /// Returns a layout with the bits `required` in registers. The remaining registers have the
    /// highest other bits.
    fn layout_for(&self, value: Value, required: &[u32]) -> Layout {
        let bits = self.num_elements(value).trailing_zeros();
        let mut register = required.to_vec();
        let others = (0..bits).rev().filter(|bit| !required.contains(bit));
        register.extend(others.take(self.register_bits(value) - required.len()));
        let mut rest = (0..bits).filter(|bit| !register.contains(bit)).map(|bit| 1 << bit);
        let mut take = |count: usize| (0..count).map(|_| rest.next().unwrap_or(0)).collect::<Vec<u32>>();
        let (lane, warp) = (take(LANE_BITS), take(self.num_warps.trailing_zeros() as usize));
        sort::natural(&mut register);
        let register = register.into_iter().map(|bit| 1 << bit).collect_vec();
        Layout::new(self.module.shape(value), register, lane, warp)
    }

    /// Returns true if the operands of a `cat` are halves of a chain, or computed from halves.
    fn is_half(&self, operands: &[Value], layout: &Layout) -> bool {
        let concrete = operands.iter().all(|&operand| self.origin(operand) != ValueOrigin::Rematerialized);
        concrete && self.butterfly_chains.known_layouts.contains(&flat(layout))
    }
}
