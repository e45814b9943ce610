//! Layouts of `cat`, `extract` and `insert`.
//!
//! Layouts of butterfly networks, e.g. sorting networks and FFTs: tiles that are halved along one
//! bit after another.
//!
//! A step separates the tile along one bit of the element index. If that bit is a register bit,
//! `extract` and `cat` only rename registers. A chain of steps therefore uses layouts that each
//! have as many of the next bits as possible in registers. Between two such layouts the tile is
//! converted once through shared memory, for any number of steps.

use super::super::analysis::butterfly_chain::{flat, halved_bit};
use super::super::layouts::blocks::{
    beside_each_other, block_layout, doubled, doubled_in_registers, in_order, is_plain,
};
use super::super::state::core::{Inference, ValueOrigin};
use crate::ir::{OpId, Value};
use crate::layout::Layout;

/// Lanes of a warp, in bits.
const LANE_BITS: usize = 5;

/// Bits in registers also of tiles with fewer elements than there are threads.
const LEAST_BITS: usize = 3;

/// Steps from which on a chain is worth a layout of its own.
const LEAST_STEPS: usize = 3;

impl Inference<'_> {
    /// `cat`: both operands in the layout of one of them.
    pub fn cat(&mut self, id: OpId) {
        let op = self.module.op(id);
        let layout = self.elementwise_layout(&op.operands).filter(is_plain);
        let layout = layout.unwrap_or_else(|| self.default_layout(op.operands[0])).canonical();
        let joined = match self.is_half(&op.operands, &layout) {
            true => {
                self.halves.joined.insert(id);
                doubled_in_registers(&layout, op.dim() as usize)
            }
            false => {
                self.halves.joined.remove(&id);
                doubled(&layout, op.dim() as usize).0
            }
        };
        self.set(op.results[0], in_order(&joined).0);
        self.accesses.insert(id, layout);
    }

    /// `extract`: the layout of the source without what tells blocks apart; where warps do, a fresh
    /// one. A tile that is taken apart into many blocks has each thread hold the same place of all
    /// of them: threads exchange elements once.
    pub fn extract(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let part = module.shape(result);
        if let Some(layout) = self.halved_layout(id) {
            let half = block_layout(&layout, part).canonical();
            self.note_half(&half);
            self.set(result, half);
            self.accesses.insert(id, layout);
            return;
        }
        let layout = self.natural(source).filter(is_plain).unwrap_or_else(|| self.default_layout(source)).canonical();
        let held = block_layout(&layout, part);
        let moved = |own: &[u32], left: &[u32]| own.iter().zip(left).any(|(own, left)| own != left && *left == 0);
        let across_warps = moved(layout.warp_images(), held.warp_images());
        let across_lanes = moved(layout.lane_images(), held.lane_images());
        if (across_warps || across_lanes) && self.extract_groups.takes(module, op) {
            let each = self.default_layout(result).canonical();
            self.accesses.insert(id, beside_each_other(&each, module.shape(source)));
            self.set(result, each);
            return;
        }
        let chosen = if across_warps { self.default_layout(result) } else { held.canonical() };
        self.set(result, chosen);
        self.accesses.insert(id, layout);
    }

    /// `insert`: the layout of the destination.
    pub fn insert(&mut self, id: OpId) {
        let op = self.module.op(id);
        let destination = op.group(1)[0];
        let layout = self.natural_or_default(destination).canonical();
        self.set(op.results[0], layout.clone());
        self.accesses.insert(id, layout);
    }

    /// The layout in which a tile is taken apart into halves, if that is a step of a chain.
    fn halved_layout(&mut self, id: OpId) -> Option<Layout> {
        let module = self.module;
        let op = module.op(id);
        let source = op.operands[0];
        let bit = halved_bit(module, op)?;
        if let Some(layout) = self.halves.of.get(&source) {
            return Some(layout.clone());
        }
        let natural = self.natural(source).filter(|layout| self.halves.known.contains(&flat(layout)));
        let layout = match natural {
            Some(layout) if layout.register_images().contains(&(1 << bit)) => layout,
            natural => {
                let (next, steps) = self.halves.bits_ahead(module, id, self.register_bits(source));
                if natural.is_none() && steps < LEAST_STEPS {
                    return None;
                }
                self.layout_for(source, &next)
            }
        };
        self.halves.known.insert(flat(&layout));
        self.halves.of.insert(source, layout.clone());
        Some(layout)
    }

    /// Bits of the element index that registers tell apart.
    fn register_bits(&self, value: Value) -> usize {
        let bits = self.num_elements(value).trailing_zeros() as usize;
        let threads = LANE_BITS + self.num_warps.trailing_zeros() as usize;
        bits.saturating_sub(threads).max(LEAST_BITS).min(bits)
    }

    /// A layout with these bits in registers. Others fill up from above, as in the layouts of
    /// accesses.
    fn layout_for(&self, value: Value, wanted: &[u32]) -> Layout {
        let bits = self.num_elements(value).trailing_zeros();
        let mut register = wanted.to_vec();
        let others = (0..bits).rev().filter(|bit| !wanted.contains(bit));
        register.extend(others.take(self.register_bits(value) - wanted.len()));
        let mut rest = (0..bits).filter(|bit| !register.contains(bit)).map(|bit| 1 << bit);
        let mut take = |count: usize| (0..count).map(|_| rest.next().unwrap_or(0)).collect::<Vec<u32>>();
        let (lane, warp) = (take(LANE_BITS), take(self.num_warps.trailing_zeros() as usize));
        register.sort_unstable();
        let register = register.into_iter().map(|bit| 1 << bit).collect();
        Layout::new(self.module.shape(value), register, lane, warp)
    }

    /// Notes the layout of a half that such a step made.
    fn note_half(&mut self, layout: &Layout) {
        self.halves.known.insert(flat(layout));
    }

    /// Is this tile a half, or computed from halves, where both that are put together stay in their
    /// threads?
    fn is_half(&self, operands: &[Value], layout: &Layout) -> bool {
        let concrete = operands.iter().all(|&operand| self.source(operand) != ValueOrigin::Rematerialized);
        concrete && self.halves.known.contains(&flat(layout))
    }
}
