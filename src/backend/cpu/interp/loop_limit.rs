//! Iteration limit of loops without a range: when a loop yields to other tile blocks, and when it
//! is reported as endless.

use std::rc::Rc;

use super::slot::Slot;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module};

/// Default number of iterations after which a loop is reported as endless.
pub(crate) const LIMIT: u64 = 1 << 24;

/// Factor of the limit for a loop that waits for other tile blocks.
const WAITING: u64 = 64;

/// Number of iterations between two yields of a loop with ordered reads, which other blocks may
/// write.
const PATIENCE: u64 = 16;

/// Memory reads of a loop.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Nothing,
    /// Weak reads: of no element that other blocks write at the same time.
    Own,
    Shared,
}

pub(super) struct IterationLimit {
    count: u64,
    limit: u64,
    reads: Reads,
    /// Number and state of an earlier iteration.
    kept: (u64, Vec<Slot>),
}

impl IterationLimit {
    /// Creates the counter before the first iteration of a loop.
    pub fn new(module: &Module, body: BlockId, limit: u64) -> IterationLimit {
        let mut reads = Reads::Nothing;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            let is_weak = op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Weak));
            match op.code.spec().effect {
                Effect::Read | Effect::ReadWrite if !is_weak => reads = Reads::Shared,
                Effect::Read | Effect::ReadWrite if reads == Reads::Nothing => reads = Reads::Own,
                _ => {}
            }
        });
        let limit = if reads == Reads::Shared { limit.saturating_mul(WAITING) } else { limit };
        IterationLimit { count: 0, limit, reads, kept: (0, Vec::new()) }
    }

    /// Counts an iteration that begins with this state, and returns true if the block must yield.
    ///
    /// # Errors
    /// The loop never ends, or the number of iterations exceeds the limit.
    pub fn next(&mut self, state: &[Slot]) -> Result<bool, String> {
        self.count += 1;
        // Without memory reads, an equal state leads to an equal iteration. The distance of the
        // kept iterations doubles, so that a period of any length is found (Brent's cycle
        // detection).
        if self.reads == Reads::Nothing {
            let (iteration, kept) = &self.kept;
            if self.count > 1 && kept.len() == state.len() && kept.iter().zip(state).all(|(a, b)| is_same(a, b)) {
                return Err(format!(
                    "this loop never ends: its state before iteration {} is what it was before iteration \
                     {iteration}; the body must return a state that ends the loop",
                    self.count
                ));
            }
            if self.count.is_power_of_two() {
                self.kept = (self.count, state.to_vec());
            }
        }
        if self.count > self.limit {
            return Err(format!(
                "this loop has run {} iterations and is assumed endless: `Hints::loop_limit` raises the limit",
                self.limit
            ));
        }
        Ok(self.reads == Reads::Shared && self.count.is_multiple_of(PATIENCE))
    }
}

fn is_same(a: &Slot, b: &Slot) -> bool {
    match (a, b) {
        (Slot::Tile(a), Slot::Tile(b)) => Rc::ptr_eq(a, b) || a == b,
        (Slot::View(a), Slot::View(b)) => Rc::ptr_eq(a, b),
        (Slot::Token, Slot::Token) => true,
        _ => false,
    }
}
