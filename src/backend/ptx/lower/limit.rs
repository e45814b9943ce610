//! When lowering gives up: the assembler would take minutes for what comes.

use super::{Lowered, Lowering};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::ir::{Elem, Op, OpId, Opcode, Type, Value};

/// Lines of code at which lowering gives up, where there is no wish for another number.
const CODE_LIMIT: usize = 1 << 19;

/// Registers of a thread that no tile takes, where there is no wish for long code: the assembler takes minutes for them.
const REGISTER_LIMIT: u32 = 1 << 10;

impl Lowering<'_> {
    /// Refuses so much code that nobody would want to wait for its assembler.
    pub fn check_length(&mut self, op: &Op) -> Lowered {
        let limit = self.context.options.code_limit.map_or(CODE_LIMIT, |limit| limit as usize);
        if self.b.num_lines() <= limit && !self.gave_up {
            return Ok(());
        }
        self.gave_up = true;
        let tiles = op.results.iter().chain(&op.operands).filter_map(|&value| self.module.ty(value).as_tile());
        let largest = tiles.max_by_key(|(_, shape)| shape.iter().product::<i64>());
        let of = largest.map_or(String::new(), |(elem, shape)| format!(" of {elem} {shape:?}"));
        let warps = self.context.inference.num_warps;
        Err(format!(
            "the code is longer than {limit} instructions here, at an operation{of} by {warps} warps: take smaller tiles, \
             or raise `Hints::code_limit` and wait for the assembler"
        ))
    }

    /// Refuses tiles of which a thread would hold so much that the assembler has no end. A wish for the length of the
    /// code stands for the will to wait.
    pub fn check_registers(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let virtual_op = matches!(op.code, Opcode::Constant | Opcode::Iota | Opcode::Assume | Opcode::Broadcast)
            || matches!(op.code, Opcode::Reshape | Opcode::Permute)
            || !op.regions.is_empty()
            || self.context.deferred.contains(&id);
        if virtual_op {
            return Ok(());
        }
        let words = |&value: &Value| (self.context.inference.words_of(value), value);
        let of_numbers = |value: &&Value| matches!(self.module.ty(**value), Type::Tile { elem: Elem::Num(_), .. });
        let tiles = op.results.iter().filter(of_numbers);
        let Some((words, value)) = tiles.map(words).max() else { return Ok(()) };
        self.remarks.tile(self.module, id, value, words);
        if words < REGISTER_LIMIT || self.context.options.code_limit.is_some() {
            return Ok(());
        }
        let (elem, shape) = self.module.ty(value).as_tile().expect("a tile");
        let threads = self.context.inference.num_warps as u32 * WARP_SIZE;
        self.gave_up = true;
        Err(format!(
            "a tile of {elem} {shape:?} is {words} registers of each of {threads} threads, which have 255 at most: take \
             smaller tiles, or a `Hints::code_limit` and wait for the assembler"
        ))
    }
}
