//! Layouts of butterfly networks, e.g. sorting networks and FFTs: tiles that are halved along one
//! bit after another.
//!
//! A step separates the tile along one bit of the element index. If that bit is a register bit,
//! `extract` and `cat` only rename registers. A chain of steps therefore uses layouts that each
//! have as many of the next bits as possible in registers. Between two such layouts the tile is
//! converted once through shared memory, for any number of steps.

use super::butterfly_chain::{flat, halved_bit, joined_bit};
use super::{Inference, ValueOrigin};
use crate::ir::{OpId, Opcode, Value};
use crate::layout::Layout;

/// Lanes of a warp, in bits.
const LANE_BITS: usize = 5;

/// Bits in registers also of tiles with fewer elements than there are threads.
const LEAST_BITS: usize = 3;

/// Steps from which on a chain is worth a layout of its own.
const LEAST_STEPS: usize = 3;

impl Inference<'_> {
    /// The bits that a tile is taken apart at from here on, each once, and the number of steps; at
    /// most so many bits.
    fn bits_ahead(&self, id: OpId, most: usize) -> (Vec<u32>, usize) {
        let module = self.module;
        let bits = self.num_elements(module.op(id).operands[0]).trailing_zeros();
        // What the bits of the tile in question are called in the first one; those that are taken
        // out.
        let (mut names, mut out): (Vec<u32>, _) = ((0..bits).collect(), Vec::new());
        let (mut found, mut steps) = (Vec::new(), 0);
        let mut next = Some(id);
        while let Some(id) = next {
            let op = module.op(id);
            match op.code {
                Opcode::Extract => {
                    let Some(bit) = halved_bit(module, op) else { break };
                    let name = names.remove(bit as usize);
                    out.push(name);
                    steps += 1;
                    if !found.contains(&name) {
                        if found.len() == most {
                            break;
                        }
                        found.push(name);
                    }
                }
                Opcode::Cat => {
                    let (Some(bit), Some(name)) = (joined_bit(module, op), out.pop()) else { break };
                    names.insert(bit as usize, name);
                }
                _ => {}
            }
            next = self.goes_on(op.results[0]);
        }
        (found, steps)
    }

    /// The op with which a chain goes on.
    fn goes_on(&self, value: Value) -> Option<OpId> {
        let module = self.module;
        let count = self.num_elements(value);
        self.uses.users(value).iter().map(|&(id, _)| id).find(|&id| match module.op(id).code {
            Opcode::Extract => halved_bit(module, module.op(id)).is_some(),
            Opcode::Cat => joined_bit(module, module.op(id)).is_some(),
            Opcode::Reshape => true,
            code => code.is_elementwise() && self.num_elements(module.op(id).results[0]) == count,
        })
    }

    /// The layout in which a tile is taken apart into halves, if that is a step of a chain.
    pub(super) fn halved_layout(&mut self, id: OpId) -> Option<Layout> {
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
                let (next, steps) = self.bits_ahead(id, self.register_bits(source));
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
    pub(super) fn note_half(&mut self, layout: &Layout) {
        self.halves.known.insert(flat(layout));
    }

    /// Is this tile a half, or computed from halves, where both that are put together stay in their
    /// threads?
    pub(super) fn is_half(&self, operands: &[Value], layout: &Layout) -> bool {
        let concrete = operands.iter().all(|&operand| self.source(operand) != ValueOrigin::Rematerialized);
        concrete && self.halves.known.contains(&flat(layout))
    }

    /// Are the halves that are put together here registers of each thread?
    pub fn joins_registers(&self, id: OpId) -> bool {
        self.halves.joined.contains(&id)
    }
}
