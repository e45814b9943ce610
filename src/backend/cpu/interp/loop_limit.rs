//! The turns of a loop without a range: when it lets other tile blocks go on, and when it is taken for endless.

use std::rc::Rc;

use super::slot::Val;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module};

/// Turns after which a loop is taken for endless, where there is no wish for another number.
pub(crate) const LIMIT: u64 = 1 << 24;

/// A loop that waits for other tile blocks may take so many times as long.
const WAITING: u64 = 64;

/// Turns after which a block that reads what others write lets them go on.
const PATIENCE: u64 = 16;

/// What a loop reads of memory.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Nothing,
    /// But not what other blocks write at the same time.
    Own,
    Shared,
}

pub(super) struct Turns {
    count: u64,
    limit: u64,
    reads: Reads,
    /// The state of an earlier turn, and which.
    kept: (u64, Vec<Val>),
}

impl Turns {
    /// Before the first turn of a loop.
    pub fn of(module: &Module, body: BlockId, limit: u64) -> Turns {
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
        Turns { count: 0, limit, reads, kept: (0, Vec::new()) }
    }

    /// A turn with this state begins. Is it time to let other blocks go on?
    ///
    /// # Errors
    /// The loop never ends, or has gone on for too long.
    pub fn next(&mut self, state: &[Val]) -> Result<bool, String> {
        self.count += 1;
        // Without memory, the same state leads to the same turn. The turns that are kept become ever rarer, so that a
        // period of any length is found.
        if self.reads == Reads::Nothing {
            let (turn, kept) = &self.kept;
            if self.count > 1 && kept.len() == state.len() && kept.iter().zip(state).all(|(a, b)| is_same(a, b)) {
                return Err(format!(
                    "this loop never ends: its state before turn {} is what it was before turn {turn}; the body has to \
                     give a state for which the condition ends it",
                    self.count
                ));
            }
            if self.count.is_power_of_two() {
                self.kept = (self.count, state.to_vec());
            }
        }
        if self.count > self.limit {
            return Err(format!(
                "this loop has gone on for {} turns and is taken for endless: `Hints::loop_limit` allows more",
                self.limit
            ));
        }
        Ok(self.reads == Reads::Shared && self.count.is_multiple_of(PATIENCE))
    }
}

fn is_same(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Tile(a), Val::Tile(b)) => Rc::ptr_eq(a, b) || a == b,
        (Val::View(a), Val::View(b)) => Rc::ptr_eq(a, b),
        (Val::Token, Val::Token) => true,
        _ => false,
    }
}
