//! Order of small tiles: ops on small tiles precede adjacent ops on large tiles.
//!
//! A scaled row maximum between ops on a whole tile, for example, would end a strip-mined sequence.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::op_table::Effect;
use crate::ir::{Elem, OpId, Opcode, Type};

/// A tile is small if an adjacent tile has at least this number of times its registers.
const SMALL_RATIO: u64 = 8;

impl KernelInfo<'_> {
    /// Returns the ops of a block with each small tile computed before the large tiles that precede
    /// it. Its operands, and ops other than elementwise ones, limit the order.
    pub fn small_tiles_first(&self, ops: &[OpId]) -> Vec<OpId> {
        let mut sorted: Vec<OpId> = Vec::with_capacity(ops.len());
        for &id in ops {
            let at = self.position_of_small_tile(id, &sorted).unwrap_or(sorted.len());
            sorted.insert(at, id);
        }
        sorted
    }

    /// Returns the position in `before` that precedes the large tiles, if the result of the op is a
    /// small tile.
    fn position_of_small_tile(&self, id: OpId, before: &[OpId]) -> Option<usize> {
        let words = self.words_of_result(id).filter(|_| self.module.op(id).code.is_elementwise())?;
        let (mut insertion, mut crossed) = (None, 0);
        for (position, &other) in before.iter().enumerate().rev() {
            let results = &self.module.op(other).results;
            let is_operand = self.module.op(id).operands.iter().any(|operand| results.contains(operand));
            if is_operand || !self.has_no_effect(other) {
                break;
            }
            crossed = crossed.max(self.words_of_result(other).unwrap_or(0));
            // Half of the registers: a second tile of this size fills them.
            let is_large = num_warps::fills_registers(2 * crossed, self.inference.num_warps as u32);
            if is_large && crossed >= SMALL_RATIO * words {
                insertion = Some(position);
            }
        }
        insertion
    }

    /// Returns true if an op is elementwise, or has no instructions.
    fn has_no_effect(&self, id: OpId) -> bool {
        let code = self.module.op(id).code;
        let has_no_code = matches!(code, Opcode::Constant | Opcode::Iota) || code.is_alias() || code.is_view();
        code.spec().effect == Effect::Pure && (code.is_elementwise() || has_no_code)
    }

    /// Returns the registers of the tile that an op computes.
    fn words_of_result(&self, id: OpId) -> Option<u64> {
        let &[result] = &self.module.op(id).results[..] else { return None };
        let is_computed = matches!(self.module.ty(result), Type::Tile { elem: Elem::Num(_), .. })
            && self.inference.origin(result) == ValueOrigin::Register
            && self.inference.num_elements(result) > 1;
        is_computed.then(|| u64::from(self.inference.words_of(result)))
    }
}
